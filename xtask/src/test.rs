//! `cargo xtask test [--ci]`: everything that must hold, in one command.
//!
//! Builds and tests come first; then campaigns (simulation, kills, fuzzing) share what is left of
//! the time budget, each with a floor. What cannot run here (a toolchain is missing) is skipped and
//! listed; with `--ci` a skip is a failure.

use std::env;
use std::path::Path;
use std::process::Command;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail, ensure};

use crate::product::Product;
use crate::{clients, compat, licences, root};

/// The whole run should stay under 45 minutes on two idle cores; campaigns get what is left of this.
const BUDGET: Duration = Duration::from_secs(40 * 60);

/// Simulation: seeds that run whatever the time, over all profiles.
const SEEDS_MIN: u64 = 3_000;
/// Kills that run whatever the time.
const KILLS_MIN: u64 = 50;
/// Faults of a cluster, each of another kind: one, two and all brokers killed, one paused, one cut
/// off, one cut one way, a full disk.
const CLUSTER: [&str; 4] = ["--times", "7", "--hold", "4"];
/// One round of `towpath cluster restart`.
const RESTARTS: [&str; 3] = ["--restarts", "--times", "1"];
/// Killed leaders of work queues.
const QUEUES: [&str; 3] = ["--queues", "--times", "5"];
/// Frames and slow connections of the attack: what fits into the minute that it takes to see slow
/// connections closed.
const ATTACK: [&str; 4] = ["--frames", "100000", "--slow", "500"];
/// Fuzzing that runs whatever the time.
const FUZZ_SECONDS_MIN: u64 = 60;
/// Fuzzing never takes more: longer campaigns have their own command.
const FUZZ_SECONDS_MAX: u64 = 300;

/// What became of a step.
enum Outcome {
    Passed,
    Skipped(String),
    Failed(String),
}

struct Run {
    is_ci: bool,
    began: Instant,
    steps: Vec<(String, Outcome, Duration)>,
}

/// Runs everything. `args`: `--ci`.
pub(crate) fn run(args: &[String]) -> Result<()> {
    let is_ci = match args {
        [] => false,
        [flag] if flag == "--ci" => true,
        _ => bail!("usage: cargo xtask test [--ci]"),
    };
    let mut run = Run { is_ci, began: Instant::now(), steps: Vec::new() };
    run.component("formatting", "fmt", &["fmt", "--all", "--check"]);
    let lints = ["clippy", "--workspace", "--all-targets", "--", "-D", "warnings"];
    run.component("lints", "clippy", &lints);
    run.step("licences", licences::check);
    run.cargo("unit and process tests", &["test", "--workspace", "--no-fail-fast"]);
    run.cargo("release build", &["build", "--release", "--workspace"]);
    let measured = ["test", "--release", "--package", "towpath-process"];
    run.cargo("process tests, release: start-up, memory, size", &measured);
    run.costs();
    run.clients();
    run.compat();
    run.campaigns();
    run.conclude()
}

impl Run {
    fn step(&mut self, name: &str, act: impl FnOnce() -> Result<()>) {
        self.outcome(name, || match act() {
            Ok(()) => Outcome::Passed,
            Err(error) => Outcome::Failed(format!("{error:#}")),
        });
    }

    fn outcome(&mut self, name: &str, act: impl FnOnce() -> Outcome) {
        println!("── {name}");
        let began = Instant::now();
        let outcome = act();
        self.steps.push((name.to_owned(), outcome, began.elapsed()));
    }

    fn cargo(&mut self, name: &str, args: &[&str]) {
        self.step(name, || cargo(args));
    }

    /// A step of a component that a toolchain may lack.
    fn component(&mut self, name: &str, component: &str, args: &[&str]) {
        let has_it = Command::new("cargo").args([component, "--version"]).output();
        if has_it.is_ok_and(|output| output.status.success()) {
            self.cargo(name, args);
        } else {
            let why = format!("cargo {component} is not installed");
            self.outcome(name, || Outcome::Skipped(why));
        }
    }

    fn costs(&mut self) {
        let name = "costs per request";
        match crate::costs::missing_tool() {
            None => self.step(name, || crate::costs::run(&[])),
            Some(tool) => {
                self.outcome(name, || Outcome::Skipped(format!("{tool} is not installed")));
            }
        }
    }

    fn clients(&mut self) {
        let is_ci = self.is_ci;
        let mut skipped = Vec::new();
        self.step("real clients", || {
            let report = clients::run(&clients::Servers::start()?, is_ci, None)?;
            for client in &report.clients {
                skipped.extend(client.skipped.clone().map(|why| (client.name, why)));
            }
            ensure!(report.is_passed(), "not all clients passed");
            Ok(())
        });
        for (client, why) in skipped {
            self.outcome(&format!("client {client}"), || Outcome::Skipped(why));
        }
        self.step("our own client", || {
            let product = Product::start()?;
            let exercise =
                ["run", "--release", "--package", "towpath-client", "--example", "exercise"];
            cargo(&[&exercise[..], &["--", &product.kafka]].concat())
        });
    }

    /// Other projects' suites, without their slow tests.
    fn compat(&mut self) {
        for (suite, missing) in compat::suites() {
            let name = format!("suite {suite}");
            match missing {
                Some(program) => {
                    let why = format!("{program} is not installed");
                    self.outcome(&name, || Outcome::Skipped(why));
                }
                None => self.step(&name, || compat::quick(suite)),
            }
        }
    }

    fn campaigns(&mut self) {
        let seeds = SEEDS_MIN.to_string();
        self.step("simulation", || crate::sim::run(&words(&["--seeds", &seeds])));
        self.step("simulation, planted bugs", || crate::sim::run(&words(&["--mutants"])));
        self.step("simulation, determinism", || {
            crate::sim::run(&words(&["--check-determinism", "--seeds", "50"]))
        });
        let kills = KILLS_MIN.to_string();
        self.step("kills", || crate::kill::run(&words(&["--times", &kills])));
        self.cluster();
        self.step("attack", || crate::attack::run(&words(&ATTACK)));
        let left = BUDGET.saturating_sub(self.began.elapsed()).as_secs();
        let seconds = left.clamp(FUZZ_SECONDS_MIN, FUZZ_SECONDS_MAX).to_string();
        self.step("fuzzing", || crate::fuzz::run(&words(&["--seconds", &seconds])));
    }

    fn cluster(&mut self) {
        let parts = [
            ("cluster kills", &CLUSTER[..]),
            ("cluster restarts", &RESTARTS[..]),
            ("cluster queues", &QUEUES[..]),
        ];
        for (name, args) in parts {
            match crate::cluster::missing() {
                None => self.step(name, || crate::cluster::run(&words(args))),
                Some(why) => self.outcome(name, || Outcome::Skipped(why)),
            }
        }
    }

    fn conclude(&self) -> Result<()> {
        println!("\n── summary, {} s", self.began.elapsed().as_secs());
        let (mut passed, mut failed, mut skipped) = (0, 0, 0);
        for (name, outcome, took) in &self.steps {
            let took = took.as_secs();
            match outcome {
                Outcome::Passed => {
                    passed += 1;
                    println!("ok       {name} ({took} s)");
                }
                Outcome::Skipped(why) => {
                    skipped += 1;
                    println!("skipped  {name}: {why}");
                }
                Outcome::Failed(why) => {
                    failed += 1;
                    println!("FAILED   {name} ({took} s): {why}");
                }
            }
        }
        println!("{passed} passed, {failed} failed, {skipped} skipped");
        if 0 < failed {
            bail!("{failed} steps failed");
        }
        if self.is_ci && 0 < skipped {
            bail!("{skipped} steps were skipped, which CI does not allow");
        }
        Ok(())
    }
}

fn words(words: &[&str]) -> Vec<String> {
    words.iter().map(|word| (*word).to_owned()).collect()
}

/// Runs cargo in the project's root.
pub(crate) fn cargo(args: &[&str]) -> Result<()> {
    let program = env::var_os("CARGO").unwrap_or_else(|| "cargo".into());
    let root: &Path = &root();
    let status = Command::new(program).args(args).current_dir(root).status();
    let status = status.context("cargo did not start")?;
    if !status.success() {
        bail!("cargo {}: {status}", args.join(" "));
    }
    Ok(())
}
