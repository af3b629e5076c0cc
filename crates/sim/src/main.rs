//! `towpath-sim`: runs profiles from seeds. `cargo xtask sim` builds it with optimisation and passes
//! its arguments on.

mod command;

use std::path::PathBuf;
use std::process::ExitCode;

use towpath_sim::campaign::{self, Campaign};
use towpath_sim::mutants::{self, Mutant};
use towpath_sim::profile::Profile;
use towpath_sim::profiles;
use towpath_sim::steps::Parts;

const USAGE: &str = "\
Runs simulated brokers from seeds and checks what they promised.

  --seeds N              how many seeds (default 1000)
  --from K               the first of them (default 1)
  --seed S               only this seed
  --profile P            only this profile; may repeat (default: all, the expensive ones with
                         fewer seeds)
  --trace                print every event; needs --seed and --profile
  --shrink               make a failing run as small as it gets; needs --seed and --profile
  --keep PARTS           only these lives and steps of a run, as --shrink prints them
  --save FILE            keep the shrunk run as a scenario (crates/sim/scenarios/NAME.txt)
  --check-determinism    run every seed twice here and once in a second process, compare hashes
  --campaign NAME        remember what was run, and go on after an interruption; NAME is a directory
                         (without a slash: below target/campaigns)
  --mutants [NAME]       plant every bug in turn, or one, and see that it is found
  --mutant NAME          plant one bug, and run seeds as usual
  --threads T            threads that share the seeds (default 2)
  --list                 name the profiles and the mutants

Exit code 0: every promise kept. 1: one was broken, or a fault that must happen never did, or a
mutant survived. 2: the command was not understood.";

/// What the command line asks for.
struct Options {
    profiles: Vec<&'static dyn Profile>,
    campaign: Campaign,
    /// Whether expensive profiles run fewer seeds.
    shares_seeds: bool,
    mutant: Option<Mutant>,
    kept: Option<Parts>,
    save: Option<PathBuf>,
    does: Does,
}

enum Does {
    Simulate,
    CheckDeterminism,
    /// What the second process of `CheckDeterminism` is asked.
    Hash,
    Trace,
    Shrink,
    Campaign(PathBuf),
    /// All of them, or the one that is planted.
    Mutants,
    List,
}

fn main() -> ExitCode {
    let args: Vec<String> = std::env::args().skip(1).collect();
    if args.iter().any(|arg| arg == "--help" || arg == "-h") {
        println!("{USAGE}");
        return ExitCode::SUCCESS;
    }
    match parse(&args).and_then(|options| run(&options)) {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => ExitCode::FAILURE,
        Err(problem) => {
            eprintln!("{problem}\n\n{USAGE}");
            ExitCode::from(2)
        }
    }
}

fn parse(args: &[String]) -> Result<Options, String> {
    let mut options = Options {
        profiles: Vec::new(),
        campaign: Campaign { from: 1, seeds: 1000, threads: 2, twice: false },
        shares_seeds: false,
        mutant: None,
        kept: None,
        save: None,
        does: Does::Simulate,
    };
    let mut args = args.iter().peekable();
    while let Some(arg) = args.next() {
        let mut value = || args.next().ok_or_else(|| format!("{arg} needs a value"));
        match arg.as_str() {
            "--seeds" => options.campaign.seeds = number(value()?)?,
            "--from" => options.campaign.from = number(value()?)?,
            "--seed" => {
                options.campaign.from = number(value()?)?;
                options.campaign.seeds = 1;
            }
            "--threads" => options.campaign.threads = number(value()?)?.clamp(1, 64) as usize,
            "--profile" => options.profiles.push(profile(value()?)?),
            "--keep" => options.kept = Some(Parts::parse(value()?)?),
            "--save" => options.save = Some(value()?.into()),
            "--mutant" => options.mutant = Some(mutant(value()?)?),
            "--mutants" => {
                options.does = Does::Mutants;
                if let Some(name) = args.next_if(|next| !next.starts_with('-')) {
                    options.mutant = Some(mutant(name)?);
                }
            }
            "--campaign" => options.does = Does::Campaign(campaign_directory(value()?)),
            "--trace" => options.does = Does::Trace,
            "--shrink" => options.does = Does::Shrink,
            "--check-determinism" => options.does = Does::CheckDeterminism,
            "--hash" => options.does = Does::Hash,
            "--list" => options.does = Does::List,
            _ => return Err(format!("{arg} is not an option")),
        }
    }
    if options.campaign.from != 1 && matches!(options.does, Does::Campaign(_)) {
        let reason = "--campaign begins at seed 1 and goes on where it stopped: leave --from out";
        return Err(reason.to_owned());
    }
    let is_one_run = options.profiles.len() == 1 && options.campaign.seeds == 1;
    if !is_one_run && matches!(options.does, Does::Trace | Does::Shrink) {
        return Err("--trace and --shrink need one --seed and one --profile".to_owned());
    }
    if !is_one_run && options.kept.is_some() {
        return Err("--keep needs one --seed and one --profile".to_owned());
    }
    if options.profiles.is_empty() {
        options.profiles = profiles::all().to_vec();
        options.shares_seeds = true;
    }
    options.campaign.twice = matches!(options.does, Does::CheckDeterminism);
    Ok(options)
}

fn number(text: &str) -> Result<u64, String> {
    text.replace('_', "").parse().map_err(|_| format!("{text} is not a number"))
}

fn profile(name: &str) -> Result<&'static dyn Profile, String> {
    let known = || profiles::all().iter().map(|p| p.name()).collect::<Vec<_>>().join(", ");
    profiles::find(name).ok_or_else(|| format!("no profile {name}; there are {}", known()))
}

fn mutant(name: &str) -> Result<Mutant, String> {
    Mutant::find(name).ok_or_else(|| format!("no mutant {name}; --list names them"))
}

fn campaign_directory(name: &str) -> PathBuf {
    let is_path = name.contains('/');
    if is_path { name.into() } else { PathBuf::from("target/campaigns").join(name) }
}

fn run(options: &Options) -> Result<bool, String> {
    if !matches!(options.does, Does::Trace) {
        campaign::quiet_panics();
    }
    if !matches!(options.does, Does::List | Does::Mutants) {
        mutants::plant(options.mutant)?;
    }
    let each = |act: &dyn Fn(&'static dyn Profile) -> bool| {
        options.profiles.iter().map(|profile| act(*profile)).fold(true, |good, this| good & this)
    };
    Ok(match &options.does {
        Does::List => command::list(),
        Does::Mutants => command::mutants(options.mutant, options.campaign.threads)?,
        Does::Trace => each(&|profile| command::replay(profile, options)),
        Does::Simulate if options.kept.is_some() => {
            each(&|profile| command::replay(profile, options))
        }
        Does::Shrink => each(&|profile| command::shrink(profile, options)),
        Does::Hash => each(&|profile| command::hash(profile, options.campaign)),
        Does::Simulate | Does::CheckDeterminism => {
            each(&|profile| command::simulate(profile, options))
        }
        Does::Campaign(directory) => command::campaign(directory, options),
    })
}
