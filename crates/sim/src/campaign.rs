//! Many seeds of many profiles, over a few threads, and what came of them.
//!
//! A panic of the product is a violation like any other: it has a seed. Threads only share the next
//! seed to take; the sums do not depend on who took which.

use std::cell::RefCell;
use std::fmt;
use std::panic::{self, AssertUnwindSafe, catch_unwind};
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread;

use crate::events::Events;
use crate::profile::{Profile, Violation};
use crate::trace::Trace;

/// From this many seeds of an ordinary profile on (see [`Profile::cost`]), a campaign fails when an
/// event of [`Profile::must_happen`] did not.
pub const SEEDS_FOR_ALL_EVENTS: u64 = 1000;

/// Which seeds to run, and how.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Campaign {
    /// The first seed.
    pub from: u64,
    /// How many, one after the other.
    pub seeds: u64,
    /// Threads that share them.
    pub threads: usize,
    /// Whether each seed runs twice and must give the same hash.
    pub twice: bool,
}

/// A run that broke a promise, with all that is needed to see it again.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Failure {
    /// The profile.
    pub profile: &'static str,
    /// The seed.
    pub seed: u64,
    /// Events of the trace before it broke.
    pub step: u64,
    /// Hash of the trace up to there.
    pub hash: u64,
    /// The promise.
    pub violation: Violation,
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Failure { profile, seed, step, hash, violation } = self;
        write!(f, "FAILED {violation}\n  profile {profile}, seed {seed}, step {step}, ")?;
        write!(f, "hash {hash:016x}\n  replay: ")?;
        write!(f, "cargo xtask sim --profile {profile} --seed {seed} --trace   (--shrink: smaller)")
    }
}

/// What a campaign saw.
#[derive(Debug, Clone, Default)]
pub struct Outcome {
    /// Runs that kept every promise.
    pub passed: u64,
    /// Steps of all runs.
    pub steps: u64,
    /// Sums over all runs.
    pub events: Events,
    /// Sum of all traces' hashes: equal campaigns have equal sums.
    pub hash: u64,
    /// The failed run with the lowest seed among those that were run.
    pub failure: Option<Failure>,
    /// Events that should have happened and did not.
    pub silent: Vec<&'static str>,
}

impl Outcome {
    /// Whether every run kept every promise, and enough of the faults happened.
    #[must_use]
    pub fn is_good(&self) -> bool {
        self.failure.is_none() && self.silent.is_empty()
    }

    fn absorb(&mut self, run: Result<Passed, Failure>) {
        match run {
            Ok(passed) => {
                self.passed += 1;
                self.steps += passed.steps;
                self.hash = self.hash.wrapping_add(passed.hash);
                self.events.merge(&passed.events);
            }
            Err(failure) => {
                if self.failure.as_ref().is_none_or(|other| failure.seed < other.seed) {
                    self.failure = Some(failure);
                }
            }
        }
    }
}

/// A run that kept every promise.
#[derive(Debug, Clone)]
pub struct Passed {
    /// Hash of its trace.
    pub hash: u64,
    /// Events of its trace.
    pub steps: u64,
    /// What happened.
    pub events: Events,
}

/// Runs the seeds of `campaign` until one fails.
#[must_use]
pub fn run(profile: &dyn Profile, campaign: Campaign) -> Outcome {
    let next = AtomicU64::new(0);
    let stop = AtomicBool::new(false);
    let outcome = Mutex::new(Outcome::default());
    let work = || {
        while !stop.load(Ordering::Relaxed) {
            let at = next.fetch_add(1, Ordering::Relaxed);
            if campaign.seeds <= at {
                break;
            }
            let seed = campaign.from.wrapping_add(at);
            let run =
                if campaign.twice { run_twice(profile, seed) } else { run_once(profile, seed) };
            if run.is_err() {
                stop.store(true, Ordering::Relaxed);
            }
            outcome.lock().expect("absorbing a run does not panic").absorb(run);
        }
    };
    thread::scope(|scope| {
        for _ in 1..campaign.threads {
            scope.spawn(work);
        }
        work();
    });
    let mut outcome = outcome.into_inner().expect("absorbing a run does not panic");
    if SEEDS_FOR_ALL_EVENTS <= campaign.seeds.saturating_mul(profile.cost())
        && outcome.failure.is_none()
    {
        let silent = profile.must_happen().iter().filter(|event| outcome.events.count(event) == 0);
        outcome.silent = silent.copied().collect();
    }
    outcome
}

/// Runs one seed.
///
/// # Errors
/// The promise it broke.
pub fn run_once(profile: &dyn Profile, seed: u64) -> Result<Passed, Failure> {
    run_traced(profile, seed, &Trace::hashing())
}

/// Runs one seed with a trace of the caller's.
///
/// # Errors
/// The promise it broke.
pub fn run_traced(profile: &dyn Profile, seed: u64, trace: &Trace) -> Result<Passed, Failure> {
    let result = catch_unwind(AssertUnwindSafe(|| profile.run(seed, trace)));
    let result = result.unwrap_or_else(|panic| Err(panicked(&*panic)));
    match result {
        Ok(events) => Ok(Passed { hash: trace.hash(), steps: trace.steps(), events }),
        Err(violation) => Err(failure(profile, seed, trace, violation)),
    }
}

fn run_twice(profile: &dyn Profile, seed: u64) -> Result<Passed, Failure> {
    let first = run_once(profile, seed)?;
    let trace = Trace::hashing();
    let second = run_traced(profile, seed, &trace)?;
    if first.hash == second.hash {
        return Ok(second);
    }
    let detail = format!("two runs have the hashes {:016x} and {:016x}", first.hash, second.hash);
    Err(failure(profile, seed, &trace, Violation::new("determinism", detail)))
}

fn failure(profile: &dyn Profile, seed: u64, trace: &Trace, violation: Violation) -> Failure {
    Failure { profile: profile.name(), seed, step: trace.steps(), hash: trace.hash(), violation }
}

thread_local! {
    /// Where the last panic of this thread happened.
    static PANICKED_AT: RefCell<String> = const { RefCell::new(String::new()) };
}

/// From now on a panic prints nothing; the failure that it becomes says where it was.
pub fn quiet_panics() {
    panic::set_hook(Box::new(|info| {
        let place = info.location().map(|at| format!(" at {at}")).unwrap_or_default();
        PANICKED_AT.set(place);
    }));
}

/// No panic may follow from what clients and disks do (INV-X2).
fn panicked(panic: &(dyn std::any::Any + Send)) -> Violation {
    Violation::new("INV-X2", format!("panic: {}", panic_text(panic)))
}

fn panic_text(panic: &(dyn std::any::Any + Send)) -> String {
    let text = panic.downcast_ref::<String>().map(String::as_str);
    let text = text.or(panic.downcast_ref::<&str>().copied()).unwrap_or("no message");
    format!("{text}{}", PANICKED_AT.take())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::rng::Rng;

    struct Fair;

    impl Profile for Fair {
        fn name(&self) -> &'static str {
            "fair"
        }
        fn about(&self) -> &'static str {
            "a test"
        }
        fn must_happen(&self) -> &'static [&'static str] {
            &["even", "never"]
        }
        fn run(&self, seed: u64, trace: &Trace) -> Result<Events, Violation> {
            trace.event("draw", &[Rng::new(seed).draw()]);
            let mut events = Events::new();
            events.note(if seed.is_multiple_of(2) { "even" } else { "odd" });
            if seed == 5000 {
                return Err(Violation::new("INV-X", "five thousand"));
            }
            assert!(seed != 6000, "a bug at {seed}");
            Ok(events)
        }
    }

    fn campaign(from: u64, seeds: u64, threads: usize) -> Campaign {
        Campaign { from, seeds, threads, twice: false }
    }

    #[test]
    fn sums_do_not_depend_on_the_threads() {
        let one = run(&Fair, campaign(0, 500, 1));
        let two = run(&Fair, Campaign { twice: true, ..campaign(0, 500, 2) });
        assert_eq!((one.passed, one.hash, one.events.clone()), (500, two.hash, two.events));
        assert_eq!(one.events.count("odd"), 250);
        assert!(one.is_good(), "too few seeds to miss an event");
    }

    #[test]
    fn an_event_that_never_happened_fails_a_large_campaign() {
        let outcome = run(&Fair, campaign(0, SEEDS_FOR_ALL_EVENTS, 2));
        assert_eq!(outcome.silent, ["never"]);
        assert!(!outcome.is_good());
    }

    #[test]
    fn a_violation_and_a_panic_name_their_seed_and_how_to_replay_it() {
        let failure = run(&Fair, campaign(4999, 3, 1)).failure.unwrap();
        let text = failure.to_string();
        assert!(text.starts_with("FAILED INV-X: five thousand\n"), "{text}");
        assert!(text.contains("cargo xtask sim --profile fair --seed 5000 --trace"), "{text}");
        let failure = run(&Fair, campaign(6000, 1, 1)).failure.unwrap();
        assert_eq!(failure.violation, Violation::new("INV-X2", "panic: a bug at 6000"));
    }
}
