//! `cargo xtask fuzz` runs this: every target a share of the time.

use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::{Duration, Instant};

use anyhow::{Result, bail};
use clap::Parser;
use towpath_fuzz::{Campaign, Failure, Target, targets};

/// How often a campaign saves what it has found.
const SAVE_EVERY: Duration = Duration::from_secs(60);

#[derive(Parser)]
#[command(about = "Feed every parser with bytes that nobody would send")]
struct Arguments {
    /// Targets, by name; all of them if none is named
    targets: Vec<String>,
    /// How long, all targets together
    #[arg(long, default_value_t = 60)]
    seconds: u64,
    /// Where chance starts
    #[arg(long)]
    seed: Option<u64>,
    /// List the targets
    #[arg(long)]
    list: bool,
    /// Run the target on these files only, and let it panic
    #[arg(long, value_name = "FILE", requires = "targets")]
    replay: Vec<PathBuf>,
    /// Add new inputs of at most so many bytes to the committed corpus
    #[arg(long, value_name = "BYTES")]
    keep: Option<usize>,
    /// The corpus
    #[arg(long, value_name = "DIR", default_value = concat!(env!("CARGO_MANIFEST_DIR"), "/corpus"))]
    corpus: PathBuf,
    /// Inputs that once broke something, in a directory per target
    #[arg(long, value_name = "DIR", default_value = concat!(env!("CARGO_MANIFEST_DIR"), "/regressions"))]
    regressions: PathBuf,
    /// Where campaigns keep what they find, and go on from
    #[arg(long, value_name = "DIR", default_value = "target/fuzz-corpus")]
    work: PathBuf,
    /// Where inputs that broke something go
    #[arg(long, value_name = "DIR", default_value = "target/fuzz-failures")]
    failures: PathBuf,
}

fn main() -> Result<ExitCode> {
    let arguments = Arguments::parse();
    if arguments.list {
        targets::ALL.iter().for_each(|target| println!("{}", target.name));
        return Ok(ExitCode::SUCCESS);
    }
    let chosen = chosen(&arguments.targets)?;
    if !arguments.replay.is_empty() {
        for file in &arguments.replay {
            let input = std::fs::read(file)?;
            for target in &chosen {
                (target.run)(&input);
            }
            println!("{}: nothing happened", file.display());
        }
        return Ok(ExitCode::SUCCESS);
    }
    let seed = arguments.seed.unwrap_or_else(|| fastrand::u64(..));
    let share = Duration::from_secs(arguments.seconds) / u32::try_from(chosen.len())?;
    let mut crashes = 0;
    println!("fuzz: seed {seed}, {share:?} for each of {} targets", chosen.len());
    for target in chosen {
        crashes += u64::from(!feed(target, &arguments, seed, share)?);
    }
    println!("fuzz: {crashes} crashes");
    Ok(if crashes == 0 { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

fn chosen(names: &[String]) -> Result<Vec<Target>> {
    if let Some(unknown) = names.iter().find(|n| targets::ALL.iter().all(|t| t.name != **n)) {
        let known: Vec<&str> = targets::ALL.iter().map(|target| target.name).collect();
        bail!("there is no target {unknown:?}; there are {}", known.join(", "));
    }
    let is_chosen = |target: &&Target| names.is_empty() || names.iter().any(|n| n == target.name);
    Ok(targets::ALL.iter().filter(is_chosen).copied().collect())
}

/// Whether nothing broke.
fn feed(target: Target, arguments: &Arguments, seed: u64, share: Duration) -> Result<bool> {
    let deadline = Instant::now() + share;
    let roots = [arguments.corpus.as_path(), &arguments.work];
    let failure = match Campaign::begin(target, &roots, &arguments.regressions, seed)? {
        Err(failure) => failure,
        Ok(mut campaign) => {
            campaign.watch_for_hangs(&arguments.failures);
            let ended = go_on(&mut campaign, deadline, &arguments.work)?;
            let outcome = campaign.outcome();
            println!(
                "{:>12}: {} execs, corpus {}, longest {:?}, peak {} KiB",
                target.name,
                outcome.execs,
                outcome.corpus,
                outcome.longest,
                outcome.peak_bytes >> 10
            );
            if let Some(bytes_max) = arguments.keep {
                campaign.corpus().keep(&target, &arguments.corpus, bytes_max)?;
            }
            match ended {
                Ok(()) => return Ok(true),
                Err(failure) => failure,
            }
        }
    };
    let path = failure.write(&arguments.failures)?;
    println!("{}: {}\n  input: {}", target.name, failure.what, path.display());
    println!("  again: cargo xtask fuzz {} --replay {}", target.name, path.display());
    println!("  keep it as a test: {}", arguments.regressions.join(target.name).display());
    Ok(false)
}

/// Goes on until `deadline`, and saves what is found now and then: a campaign of hours that is
/// stopped has not been for nothing.
fn go_on(campaign: &mut Campaign, deadline: Instant, work: &Path) -> Result<Result<(), Failure>> {
    loop {
        let ended = campaign.go_on(deadline.min(Instant::now() + SAVE_EVERY), u64::MAX);
        campaign.corpus().save(campaign.target(), work)?;
        if ended.is_err() || deadline <= Instant::now() {
            return Ok(ended);
        }
    }
}
