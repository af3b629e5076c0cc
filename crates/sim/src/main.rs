//! `towpath-sim`: runs profiles from seeds. `cargo xtask sim` builds it with optimisation and passes
//! its arguments on.

use std::process::{Command, ExitCode};
use std::time::Instant;

use towpath_sim::campaign::{self, Campaign, Outcome};
use towpath_sim::profile::Profile;
use towpath_sim::profiles;
use towpath_sim::trace::Trace;

const USAGE: &str = "\
Runs simulated brokers from seeds and checks what they promised.

  --seeds N              how many seeds (default 1000)
  --from K               the first of them (default 1)
  --seed S               only this seed
  --profile P            only this profile; may repeat (default: all, the expensive ones with
                         fewer seeds)
  --trace                print every event; needs --seed and --profile
  --check-determinism    run every seed twice here and once in a second process, compare hashes
  --threads T            threads that share the seeds (default 2)
  --list                 name the profiles

Exit code 0: every promise kept. 1: one was broken, or a fault that must happen never did.
2: the command was not understood.";

/// What the command line asks for.
struct Options {
    profiles: Vec<&'static dyn Profile>,
    campaign: Campaign,
    trace: bool,
    check_determinism: bool,
    hash_only: bool,
    list: bool,
    /// Whether expensive profiles run fewer seeds.
    shares_seeds: bool,
}

fn main() -> ExitCode {
    let args: Vec<String> = std::env::args().skip(1).collect();
    if args.iter().any(|arg| arg == "--help" || arg == "-h") {
        println!("{USAGE}");
        return ExitCode::SUCCESS;
    }
    match parse(&args) {
        Ok(options) => run(&options),
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
        trace: false,
        check_determinism: false,
        hash_only: false,
        list: false,
        shares_seeds: false,
    };
    let mut args = args.iter();
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
            "--trace" => options.trace = true,
            "--check-determinism" => options.check_determinism = true,
            // What the second process of --check-determinism is asked.
            "--hash" => options.hash_only = true,
            "--list" => options.list = true,
            _ => return Err(format!("{arg} is not an option")),
        }
    }
    if options.trace && (options.profiles.len() != 1 || options.campaign.seeds != 1) {
        return Err("--trace needs one --seed and one --profile".to_owned());
    }
    if options.profiles.is_empty() {
        options.profiles = profiles::all().to_vec();
        options.shares_seeds = true;
    }
    options.campaign.twice = options.check_determinism;
    Ok(options)
}

fn number(text: &str) -> Result<u64, String> {
    text.replace('_', "").parse().map_err(|_| format!("{text} is not a number"))
}

fn profile(name: &str) -> Result<&'static dyn Profile, String> {
    let known = || profiles::all().iter().map(|p| p.name()).collect::<Vec<_>>().join(", ");
    profiles::find(name).ok_or_else(|| format!("no profile {name}; there are {}", known()))
}

fn run(options: &Options) -> ExitCode {
    if options.list {
        for profile in profiles::all() {
            println!("{:<12} {}", profile.name(), profile.about());
        }
        return ExitCode::SUCCESS;
    }
    if !options.trace {
        campaign::quiet_panics();
    }
    let mut good = true;
    for profile in &options.profiles {
        good &= if options.trace {
            replay(*profile, options.campaign.from)
        } else if options.hash_only {
            print_hash(*profile, options.campaign)
        } else {
            simulate(*profile, options)
        };
    }
    if good { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}

fn replay(profile: &dyn Profile, seed: u64) -> bool {
    match campaign::run_traced(profile, seed, &Trace::printing()) {
        Ok(passed) => {
            println!("passed, {} steps, hash {:016x}", passed.steps, passed.hash);
            print!("{}", passed.events);
            true
        }
        Err(failure) => {
            println!("{failure}");
            false
        }
    }
}

fn print_hash(profile: &dyn Profile, campaign: Campaign) -> bool {
    let outcome = campaign::run(profile, campaign);
    println!("{:016x}", outcome.hash);
    outcome.failure.is_none()
}

fn simulate(profile: &dyn Profile, options: &Options) -> bool {
    let Campaign { seeds, .. } = options.campaign;
    let cost = if options.shares_seeds { profile.cost() } else { 1 };
    let campaign = Campaign { seeds: seeds.div_ceil(cost), ..options.campaign };
    let started = Instant::now();
    let outcome = campaign::run(profile, campaign);
    report(profile, &outcome, started.elapsed().as_secs_f64());
    outcome.is_good()
        && (!options.check_determinism || second_process_agrees(profile, campaign, &outcome))
}

fn report(profile: &dyn Profile, outcome: &Outcome, seconds: f64) {
    let Outcome { passed, steps, hash, .. } = outcome;
    let rate = *passed as f64 / seconds.max(1e-9);
    println!(
        "{}: {passed} seeds passed, {steps} steps, {rate:.0} seeds/s, hash {hash:016x}",
        profile.name()
    );
    print!("{}", outcome.events);
    if let Some(failure) = &outcome.failure {
        println!("{failure}");
    }
    for event in &outcome.silent {
        println!("FAILED coverage: {event:?} never happened; the generator has gone silent");
    }
}

fn second_process_agrees(profile: &dyn Profile, campaign: Campaign, outcome: &Outcome) -> bool {
    let Campaign { from, seeds, .. } = campaign;
    let exe = match std::env::current_exe() {
        Ok(exe) => exe,
        Err(error) => {
            println!("FAILED determinism: no path to this program: {error}");
            return false;
        }
    };
    let second = Command::new(exe)
        .args(["--hash", "--profile", profile.name()])
        .args(["--from", &from.to_string(), "--seeds", &seeds.to_string()])
        .output();
    let here = format!("{:016x}", outcome.hash);
    match second {
        Ok(output) if String::from_utf8_lossy(&output.stdout).trim() == here => {
            println!("{}: a second process has the same hash", profile.name());
            true
        }
        Ok(output) => {
            let there = String::from_utf8_lossy(&output.stdout);
            println!("FAILED determinism: {here} here, {} in a second process", there.trim());
            false
        }
        Err(error) => {
            println!("FAILED determinism: the second process did not start: {error}");
            false
        }
    }
}
