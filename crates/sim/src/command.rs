//! What the command line's words do, and print.

use std::path::Path;
use std::process::Command;
use std::time::Instant;

use towpath_sim::campaign::{self, Campaign, Outcome};
use towpath_sim::ledger::Ledger;
use towpath_sim::mutants::{self, Mutant};
use towpath_sim::profile::Profile;
use towpath_sim::profiles;
use towpath_sim::scenario::Scenario;
use towpath_sim::shrink;
use towpath_sim::trace::Trace;

use super::{Does, Options};

/// Names profiles and mutants.
pub(super) fn list() -> bool {
    for profile in profiles::all() {
        println!("{:<12} {}", profile.name(), profile.about());
    }
    println!();
    for mutant in Mutant::ALL {
        println!("{:<28} {}", mutant.name(), mutant.about());
    }
    true
}

/// One run, printed if that is asked for.
pub(super) fn replay(profile: &dyn Profile, options: &Options) -> bool {
    let seed = options.campaign.from;
    let prints = matches!(options.does, Does::Trace);
    let trace = if prints { Trace::printing() } else { Trace::hashing() };
    match campaign::run_traced(profile, seed, &trace.keeping(options.kept.clone())) {
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

/// Makes a failing run small, and prints how to see it.
pub(super) fn shrink(profile: &dyn Profile, options: &Options) -> bool {
    let seed = options.campaign.from;
    let Some(shrunk) = shrink::shrink(profile, seed, shrink::RUNS_MAX) else {
        println!("seed {seed} of {} keeps every promise", profile.name());
        return true;
    };
    println!("FAILED {}", shrunk.failure.violation);
    let (steps, runs) = (shrunk.kept.steps().len(), shrunk.runs);
    println!("  {steps} of {} steps are enough ({runs} runs)", shrunk.steps_before);
    let mutant = options.mutant.map(|m| format!("--mutant {} ", m.name())).unwrap_or_default();
    let (name, kept) = (profile.name(), &shrunk.kept);
    println!(
        "  replay: cargo xtask sim {mutant}--profile {name} --seed {seed} --keep '{kept}' --trace"
    );
    if let Some(path) = &options.save {
        match std::fs::write(path, Scenario::render(&shrunk, options.mutant)) {
            Ok(()) => println!("  kept in {}", path.display()),
            Err(error) => println!("  cannot be kept in {}: {error}", path.display()),
        }
    }
    false
}

/// Prints the hash of a campaign, for another process to compare with.
pub(super) fn hash(profile: &dyn Profile, campaign: Campaign) -> bool {
    let outcome = campaign::run(profile, campaign);
    println!("{:016x}", outcome.hash);
    outcome.failure.is_none()
}

/// Many seeds.
pub(super) fn simulate(profile: &dyn Profile, options: &Options) -> bool {
    let Campaign { seeds, .. } = options.campaign;
    let cost = if options.shares_seeds { profile.cost() } else { 1 };
    let campaign = Campaign { seeds: seeds.div_ceil(cost), ..options.campaign };
    let started = Instant::now();
    let outcome = campaign::run(profile, campaign);
    report(profile, &outcome, started.elapsed().as_secs_f64());
    let checks_determinism = matches!(options.does, Does::CheckDeterminism);
    outcome.is_good() && (!checks_determinism || second_process_agrees(profile, campaign, &outcome))
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

/// Goes on with a long campaign, and prints its totals.
pub(super) fn campaign(directory: &Path, options: &Options) -> bool {
    let Campaign { seeds, threads, .. } = options.campaign;
    let mut ledger = match Ledger::load(directory) {
        Ok(ledger) => ledger,
        Err(error) => {
            println!("FAILED campaign: {} cannot be read: {error}", directory.display());
            return false;
        }
    };
    let tell = |text: &str| println!("{text}");
    if let Err(error) = ledger.run(directory, &options.profiles, seeds, threads, tell) {
        println!("FAILED campaign: {} cannot be written: {error}", directory.display());
        return false;
    }
    let mut is_good = true;
    for profile in &options.profiles {
        let Some(account) = ledger.accounts.get(profile.name()) else { continue };
        let failed = account.failures.len();
        println!(
            "\n{}: {} seeds, {} passed, {failed} failed, {} steps",
            profile.name(),
            account.seeds,
            account.passed,
            account.steps
        );
        for (event, times) in &account.events {
            println!("  {times:>12}  {event}");
        }
        for (seed, violation) in &account.failures {
            println!("FAILED seed {seed}: {violation}");
        }
        let silent = account.silent(*profile);
        for event in &silent {
            println!("FAILED coverage: {event:?} never happened; the generator has gone silent");
        }
        is_good &= failed == 0 && silent.is_empty();
    }
    is_good
}

/// Plants one bug after the other, and prints which seed found it.
pub(super) fn mutants(only: Option<Mutant>, threads: usize) -> Result<bool, String> {
    let all: Vec<Mutant> = only.map_or_else(|| Mutant::ALL.to_vec(), |mutant| vec![mutant]);
    let mut found = 0;
    for mutant in &all {
        let started = Instant::now();
        let hunted = mutants::hunt(*mutant, threads)?;
        let seconds = started.elapsed().as_secs_f64();
        let name = mutant.name();
        match hunted.outcome.failure.as_ref() {
            Some(failure) if hunted.is_found() => {
                found += 1;
                let (profile, seed) = (failure.profile, failure.seed);
                println!("found    {name:<28} {profile} seed {seed} ({seconds:.1} s)");
                println!("         {}", failure.violation);
            }
            Some(failure) => {
                println!("TRIPPED  {name:<28} not a promise: {}", failure.violation);
            }
            None => {
                let seeds = hunted.seeds_before + hunted.outcome.passed;
                println!("SURVIVED {name:<28} {seeds} seeds ({seconds:.1} s): {}", mutant.about());
            }
        }
    }
    println!("mutants: {found} of {} found", all.len());
    Ok(replay_scenarios(only)? && found == all.len())
}

/// Runs that were kept of planted bugs still show them.
fn replay_scenarios(only: Option<Mutant>) -> Result<bool, String> {
    let directory = Path::new(env!("CARGO_MANIFEST_DIR")).join("scenarios");
    let entries = std::fs::read_dir(&directory).map_err(|error| error.to_string())?;
    let mut is_good = true;
    for entry in entries {
        let path = entry.map_err(|error| error.to_string())?.path();
        let text = std::fs::read_to_string(&path).map_err(|error| error.to_string())?;
        let scenario = Scenario::parse(&text)?;
        let Some(mutant) = scenario.mutant.filter(|mutant| only.is_none_or(|o| o == *mutant))
        else {
            continue;
        };
        mutants::plant(Some(mutant))?;
        let trace = Trace::hashing().keeping(Some(scenario.kept));
        let result = campaign::run_traced(scenario.profile, scenario.seed, &trace);
        mutants::plant(None)?;
        let broken = result.err().map(|failure| failure.violation.invariant);
        if broken == Some(scenario.breaks.as_str()) {
            println!("replayed {}", path.display());
            continue;
        }
        is_good = false;
        let (name, profile) = (mutant.name(), scenario.profile.name());
        println!("STALE    {}: it breaks {broken:?} now, not {}", path.display(), scenario.breaks);
        println!("         renew it: cargo xtask sim --mutant {name} --profile {profile} \\");
        println!("           --seed <one that --mutants names> --shrink --save {}", path.display());
    }
    Ok(is_good)
}
