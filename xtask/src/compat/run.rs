//! Runs the chosen tests of a suite, some beside each other, and collects what came of them.

use std::collections::{BTreeMap, VecDeque};
use std::fs;
use std::path::Path;
use std::sync::{Mutex, PoisonError};
use std::thread;
use std::time::Instant;

use anyhow::{Context, Result};

use super::lists::Lists;
use super::program;
use super::suite::{Outcome, Prepared, Suite};

/// What to run, and where.
pub(super) struct Chosen<'a> {
    pub(super) suite: &'a Suite,
    pub(super) prepared: &'a dyn Prepared,
    pub(super) tests: &'a [&'a String],
    pub(super) bootstrap: &'a str,
}

/// By test, also for the parts that were skipped.
pub(super) type Results = BTreeMap<String, Outcome>;

/// Runs all, and once more, alone, what had to pass and did not: these suites bring time limits of
/// their own, and a busy machine breaks them. What fails twice is broken; what failed once is printed.
pub(super) fn run_tests(chosen: &Chosen, lists: &Lists, logs: &Path) -> Results {
    let queue = Mutex::new(VecDeque::from_iter(chosen.tests.iter().copied()));
    let results = Mutex::new(Vec::new());
    thread::scope(|scope| {
        for _ in 0..chosen.suite.at_once {
            scope.spawn(|| {
                while let Some(test) = take(&queue) {
                    let parts = run_one(chosen, test, logs);
                    results.lock().unwrap_or_else(PoisonError::into_inner).push((test, parts));
                }
            });
        }
    });
    let results = results.into_inner().unwrap_or_else(PoisonError::into_inner);
    let mut all = Results::new();
    for (test, mut parts) in results {
        let is_wrong =
            |(name, outcome): &(String, Outcome)| lists.must_pass(name) && !outcome.is_passed();
        if parts.iter().any(is_wrong) {
            println!("  {test} once more, alone");
            parts = run_one(chosen, test, logs);
        }
        all.extend(parts);
    }
    all
}

fn take<'a>(queue: &Mutex<VecDeque<&'a String>>) -> Option<&'a String> {
    queue.lock().unwrap_or_else(PoisonError::into_inner).pop_front()
}

fn run_one(chosen: &Chosen, test: &str, logs: &Path) -> Vec<(String, Outcome)> {
    let began = Instant::now();
    let log = logs.join(format!("{}.log", test.replace(['/', ':', ' '], "_")));
    let parts = execute(chosen, test, &log)
        .unwrap_or_else(|error| vec![(test.to_owned(), Outcome::Failed(format!("{error:#}")))]);
    let seconds = began.elapsed().as_secs();
    for (name, outcome) in &parts {
        println!("  {name} {} ({seconds} s)", outcome.line());
    }
    parts
}

fn execute(chosen: &Chosen, test: &str, log: &Path) -> Result<Vec<(String, Outcome)>> {
    let mut command = chosen.prepared.command(test, chosen.bootstrap)?;
    let status = program::run(&mut command, log, chosen.suite.wait)?
        .with_context(|| format!("not done within {} s", chosen.suite.wait.as_secs()))?;
    let printed = fs::read(log)?;
    Ok(chosen.prepared.judge(test, status, &String::from_utf8_lossy(&printed)))
}

/// How many passed, were skipped, failed.
pub(super) fn counts(results: &Results) -> String {
    let count = |is: fn(&Outcome) -> bool| results.values().filter(|o| is(o)).count();
    format!(
        "{} passed, {} skipped, {} failed",
        count(Outcome::is_passed),
        count(|outcome| matches!(outcome, Outcome::Skipped(_))),
        count(|outcome| matches!(outcome, Outcome::Failed(_)))
    )
}
