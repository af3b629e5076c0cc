//! Other projects' own test suites against the product: `cargo xtask compat SUITE`.
//!
//! A suite is fetched from its registry under `target/compat` and never enters the repository. What
//! does are two lists per suite in `tests/compat/SUITE`: `passes.txt`, the tests that must pass, and
//! `findings.md`, which explains every other one. So a test is expected to pass, or explained, or
//! fails the run; the first list only grows. This module knows the lists and the order of a run;
//! what a suite is made of stands in its own file.

use std::collections::BTreeMap;
use std::fs;
use std::path::PathBuf;
use std::time::Instant;

use anyhow::{Context, Result, bail, ensure};

use crate::clients::kit::is_on_path;
use crate::root;

mod brokers;
mod franz_go;
mod go_module;
mod kafka_python;
mod kafka_scripts;
mod kafka_tools;
mod librdkafka;
mod lists;
mod orders;
mod program;
mod run;
mod sarama;
mod suite;

use brokers::{Brokers, Plan};
use lists::Lists;
use orders::obeying;
use run::{Chosen, Results, run_tests};
use suite::{Prepared, Suite};

const USAGE: &str = "usage: cargo xtask compat SUITE|all [--only TEST] [--quick] [--keep] [--write] [--bootstrap HOST:PORT,…]

  --only TEST            the tests whose name contains TEST
  --quick                without the tests marked slow, as in CI
  --keep                 keep the broker's data, in target/compat/SUITE/data
  --write                add what newly passes to the list
  --bootstrap HOST:PORT  another broker, such as `cargo xtask oracle start`, or all brokers of a cluster;
                         nothing is compared

suites: franz-go, librdkafka, sarama, kafka-tools, kafka-python";

const SUITES: &[&Suite] = &[
    &franz_go::SUITE,
    &librdkafka::SUITE,
    &sarama::SUITE,
    &kafka_tools::SUITE,
    &kafka_python::SUITE,
];

/// What was asked for.
#[derive(Default)]
struct Options<'a> {
    only: Option<&'a str>,
    is_quick: bool,
    keeps_data: bool,
    writes: bool,
    bootstrap: Option<&'a str>,
}

/// Runs one `compat` command; `args` are the words after `compat`.
///
/// # Errors
/// Unknown words, missing programs, and every test that is neither passed as expected nor explained.
pub(crate) fn command(args: &[String]) -> Result<()> {
    let (name, rest) = args.split_first().context(USAGE)?;
    let options = parse(rest)?;
    let chosen: Vec<&Suite> =
        SUITES.iter().copied().filter(|suite| name == "all" || suite.name == name).collect();
    ensure!(!chosen.is_empty(), "no suite is called {name}\n{USAGE}");
    for suite in chosen {
        if let Some(program) = missing(suite) {
            bail!("{} needs {program}, which is not installed", suite.name);
        }
        run_suite(suite, &options)?;
    }
    Ok(())
}

fn parse(args: &[String]) -> Result<Options<'_>> {
    let mut options = Options::default();
    let mut words = args.iter();
    while let Some(word) = words.next() {
        match word.as_str() {
            "--only" => options.only = Some(words.next().context(USAGE)?),
            "--bootstrap" => options.bootstrap = Some(words.next().context(USAGE)?),
            "--quick" => options.is_quick = true,
            "--keep" => options.keeps_data = true,
            "--write" => options.writes = true,
            _ => bail!(USAGE),
        }
    }
    ensure!(
        !(options.writes && options.bootstrap.is_some()),
        "--write is about Towpath: it needs a run without --bootstrap"
    );
    Ok(options)
}

/// The suites by name, each with the program that this machine lacks for it.
pub(crate) fn suites() -> impl Iterator<Item = (&'static str, Option<&'static str>)> {
    SUITES.iter().map(|suite| (suite.name, missing(suite)))
}

/// The share of a suite that CI runs.
///
/// # Errors
/// As [`command`].
pub(crate) fn quick(name: &str) -> Result<()> {
    command(&[name.to_owned(), "--quick".to_owned()])
}

fn missing(suite: &Suite) -> Option<&'static str> {
    suite.needs.iter().copied().find(|program| !is_on_path(program))
}

fn run_suite(suite: &Suite, options: &Options) -> Result<()> {
    let began = Instant::now();
    let made = directory(suite);
    fs::create_dir_all(&made)?;
    let prepared =
        (suite.prepare)(&made).with_context(|| format!("preparing the suite {}", suite.name))?;
    println!("compat {}: ready after {} s", suite.name, began.elapsed().as_secs());

    let mut lists = Lists::read(&root().join("tests/compat").join(suite.name))?;
    let logs = made.join("logs");
    fs::create_dir_all(&logs)?;
    let mut tests = prepared.tests()?;
    if options.is_quick {
        tests.retain(|test| lists.is_quick(test));
    }
    if let Some(only) = options.only {
        tests.retain(|test| test.contains(only));
    }
    ensure!(!tests.is_empty(), "no test of {} was chosen", suite.name);

    let results = run_all(suite, &*prepared, &tests, &lists, options)?;
    if options.bootstrap.is_some() {
        println!("compat {}: {}", suite.name, run::counts(&results));
        return Ok(());
    }
    let is_whole = options.only.is_none() && !options.is_quick;
    let verdict = lists.compare(&results, is_whole);
    if options.writes {
        lists.add(&verdict.new)?;
    }
    let seconds = began.elapsed().as_secs();
    println!("compat {}: {}; {seconds} s", suite.name, run::counts(&results));
    for line in verdict.lines(options.writes) {
        println!("  {line}");
    }
    ensure!(
        verdict.is_as_expected(options.writes),
        "the suite {} did not go as tests/compat/{} says (logs in {})",
        suite.name,
        suite.name,
        logs.display()
    );
    Ok(())
}

/// Runs the tests, those that want their brokers set up otherwise at some of their own.
fn run_all(
    suite: &Suite,
    prepared: &dyn Prepared,
    tests: &[String],
    lists: &Lists,
    options: &Options,
) -> Result<Results> {
    let made = directory(suite);
    let mut by_settings = BTreeMap::<&[&str], Vec<&String>>::new();
    for test in tests {
        by_settings.entry(prepared.settings(test)).or_default().push(test);
    }
    let mut results = Results::new();
    for (settings, tests) in by_settings {
        let plan = Plan {
            made: &made,
            nodes: suite.nodes,
            settings,
            flags: &|broker| prepared.flags(broker),
            keeps_data: options.keeps_data,
        };
        let run = |bootstrap: &str| -> Result<Results> {
            let _beside = prepared.surround(bootstrap)?;
            let chosen = Chosen { suite, prepared, tests: &tests, bootstrap };
            Ok(run_tests(&chosen, lists, &made.join("logs")))
        };
        results.extend(match options.bootstrap {
            Some(bootstrap) => run(bootstrap)?,
            None => {
                let brokers = Brokers::start(&plan)?;
                obeying(prepared.orders(), &brokers, || run(&brokers.bootstrap()))?
            }
        });
    }
    Ok(results)
}

/// Where a suite is fetched, built and run.
fn directory(suite: &Suite) -> PathBuf {
    root().join("target/compat").join(suite.name)
}
