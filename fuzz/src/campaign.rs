//! Feeds one target for a while.

use std::panic::{self, AssertUnwindSafe};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, Once, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::Result;

use crate::allocations::peak_of;
use crate::corpus::{Corpus, write_input};
use crate::mutate::Mutator;
use crate::shape::Shape;
use crate::target::Target;

/// The longest a run may take; in an unoptimised build everything is slower.
const RUN_MAX: Duration = Duration::from_secs(if cfg!(debug_assertions) { 5 } else { 1 });
/// How much longer a run may take that waits for other threads.
const OTHERS: u32 = 10;
/// A run that takes so long is not waited for: the process ends.
const HANG: Duration = Duration::from_secs(30);

/// The words of the first panic, on whatever thread, while a target runs; `None` otherwise.
static PANIC: Mutex<Option<String>> = Mutex::new(None);

/// An input that broke a promise.
#[derive(Debug, Clone)]
pub struct Failure {
    /// Which target.
    pub target: &'static str,
    /// What happened.
    pub what: String,
    /// The input.
    pub input: Vec<u8>,
}

/// How a campaign went.
#[derive(Debug, Clone, Copy, Default)]
pub struct Outcome {
    /// Runs.
    pub execs: u64,
    /// Inputs with shapes of their own.
    pub corpus: usize,
    /// The longest run.
    pub longest: Duration,
    /// The most memory that a run held, in bytes.
    pub peak_bytes: usize,
}

/// A run that has begun.
#[derive(Debug)]
struct Run {
    since: Instant,
    input: Vec<u8>,
}

/// A target and what is known about it.
#[derive(Debug)]
pub struct Campaign {
    target: Target,
    corpus: Corpus,
    mutator: Mutator,
    outcome: Outcome,
    under_way: Arc<Mutex<Option<Run>>>,
}

impl Campaign {
    /// Runs everything that is known, and is then ready to go further.
    pub fn begin(
        target: Target,
        roots: &[&Path],
        regressions: &Path,
        seed: u64,
    ) -> Result<Result<Campaign, Failure>> {
        keep_panics_quiet();
        let mut campaign = Campaign {
            target,
            corpus: Corpus::default(),
            mutator: Mutator::new(seed),
            outcome: Outcome::default(),
            under_way: Arc::default(),
        };
        for input in Corpus::known(&target, roots, regressions)? {
            if let Err(failure) = campaign.run(&input) {
                return Ok(Err(failure));
            }
        }
        Ok(Ok(campaign))
    }

    /// Ends the process when a run hangs, after writing its input to `failures`.
    pub fn watch_for_hangs(&self, failures: &Path) {
        let (under_way, name) = (Arc::downgrade(&self.under_way), self.target.name);
        let directory = failures.join(name);
        // Lives as long as the campaign.
        thread::spawn(move || {
            while let Some(under_way) = under_way.upgrade() {
                let hung = under_way
                    .lock()
                    .unwrap_or_else(PoisonError::into_inner)
                    .take_if(|run| HANG < run.since.elapsed());
                if let Some(Run { input, .. }) = hung {
                    let path = write_input(&directory, &input).unwrap_or_default();
                    eprintln!("{name}: no end after {HANG:?}; the input is {}", path.display());
                    std::process::exit(1);
                }
                drop(under_way);
                thread::sleep(Duration::from_secs(1));
            }
        });
    }

    /// Mutates and runs until `deadline`, or `execs_max` times.
    pub fn go_on(&mut self, deadline: Instant, execs_max: u64) -> Result<(), Failure> {
        let end = self.outcome.execs.saturating_add(execs_max);
        while self.outcome.execs < end && Instant::now() < deadline {
            let input = self.mutator.mutant(self.corpus.inputs());
            self.run(&input)?;
        }
        Ok(())
    }

    /// How it went so far.
    pub fn outcome(&self) -> Outcome {
        Outcome { corpus: self.corpus.inputs().len(), ..self.outcome }
    }

    /// What is known.
    pub fn corpus(&self) -> &Corpus {
        &self.corpus
    }

    /// Which target.
    pub fn target(&self) -> &Target {
        &self.target
    }

    fn run(&mut self, input: &[u8]) -> Result<(), Failure> {
        let failure =
            |what: String| Err(Failure { target: self.target.name, what, input: input.to_vec() });
        let began = Instant::now();
        self.note(Some(Run { since: began, input: input.to_vec() }));
        let target = self.target;
        *panic_words() = Some(String::new());
        let (outcome, peak) =
            peak_of(|| panic::catch_unwind(AssertUnwindSafe(|| (target.run)(input))));
        let panic = panic_words().take().unwrap_or_default();
        self.note(None);
        let took = began.elapsed();
        let shape: Shape = match outcome {
            // A panic that a task or another thread has swallowed is one as well.
            Ok(shape) if panic.is_empty() => shape,
            _ => return failure(panic),
        };
        let run_max = if target.waits_for_others { OTHERS * RUN_MAX } else { RUN_MAX };
        if run_max < took {
            return failure(format!("took {took:?}"));
        }
        if target.memory_for(input.len()) < peak {
            return failure(format!("held {peak} bytes for an input of {}", input.len()));
        }
        self.corpus.offer(input, shape);
        self.outcome.execs += 1;
        self.outcome.longest = self.outcome.longest.max(took);
        self.outcome.peak_bytes = self.outcome.peak_bytes.max(peak);
        Ok(())
    }

    fn note(&self, run: Option<Run>) {
        *self.under_way.lock().unwrap_or_else(PoisonError::into_inner) = run;
    }
}

fn panic_words() -> MutexGuard<'static, Option<String>> {
    PANIC.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Failure {
    /// Writes the input to a file under `directory`.
    pub fn write(&self, directory: &Path) -> Result<PathBuf> {
        write_input(&directory.join(self.target), &self.input)
    }
}

/// The panic of a target is a result here: its words are kept for the report, not printed.
fn keep_panics_quiet() {
    static ONCE: Once = Once::new();
    ONCE.call_once(|| {
        let usual = panic::take_hook();
        panic::set_hook(Box::new(move |info| {
            match &mut *panic_words() {
                Some(words) if words.is_empty() => *words = info.to_string(),
                // What follows from the first one.
                Some(_) => {}
                None => usual(info),
            }
        }));
    });
}
