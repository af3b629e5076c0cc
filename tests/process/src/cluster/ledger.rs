//! What a campaign has seen, in a text file, so that it can be interrupted and go on.
//!
//! ```text
//! towpath-cluster campaign 1
//! seed 812 cycles 24
//! count 31 fault: kill one
//! time 3 640 first acknowledgement after a kill or stop
//! failed 811 INV-R1: …
//! ```
//!
//! A line `seed` is the next round's seed and the cycles that are done; a line `time` says how
//! often something took so many milliseconds.

use std::collections::BTreeMap;
use std::fmt::Write;
use std::fs;
use std::path::Path;
use std::time::Duration;

use anyhow::{Context, Result, ensure};

use crate::history::Report;

const HEAD: &str = "towpath-cluster campaign 1";
const FILE: &str = "ledger.txt";

/// Sums of all rounds so far.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct Ledger {
    /// The next round's seed.
    pub(super) seed: u64,
    /// Cycles that are done.
    pub(super) cycles: u64,
    counts: BTreeMap<String, u64>,
    /// By what was timed and the milliseconds it took: how often.
    times: BTreeMap<(String, u64), u64>,
    /// By seed.
    pub(super) failures: BTreeMap<u64, String>,
}

impl Ledger {
    /// An empty one.
    pub(super) fn begin(seed: u64) -> Ledger {
        Ledger { seed, ..Ledger::default() }
    }

    /// The ledger in a directory; an empty one that begins with `seed` where there is none.
    pub(super) fn load(directory: &Path, seed: u64) -> Result<Ledger> {
        match fs::read_to_string(directory.join(FILE)) {
            Ok(text) => Ledger::parse(&text),
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => Ok(Ledger::begin(seed)),
            Err(error) => Err(error.into()),
        }
    }

    fn parse(text: &str) -> Result<Ledger> {
        let mut lines = text.lines();
        ensure!(lines.next() == Some(HEAD), "the ledger does not begin with {HEAD:?}");
        let mut ledger = Ledger::default();
        for line in lines {
            ledger.line(line).with_context(|| format!("a line is not understood: {line}"))?;
        }
        Ok(ledger)
    }

    fn line(&mut self, line: &str) -> Result<()> {
        let (kind, rest) = line.split_once(' ').context("one word")?;
        let (number, text) = rest.split_once(' ').context("two words")?;
        let number: u64 = number.parse()?;
        match kind {
            "seed" => {
                self.seed = number;
                self.cycles = text.strip_prefix("cycles ").context("no cycles")?.parse()?;
            }
            "count" => *self.counts.entry(text.to_owned()).or_default() += number,
            "time" => {
                let (took, name) = text.split_once(' ').context("no name")?;
                self.times.insert((name.to_owned(), took.parse()?), number);
            }
            "failed" => drop(self.failures.insert(number, text.to_owned())),
            _ => anyhow::bail!("unknown"),
        }
        Ok(())
    }

    fn render(&self) -> String {
        let mut out = format!("{HEAD}\nseed {} cycles {}\n", self.seed, self.cycles);
        for (name, times) in &self.counts {
            let _ = writeln!(out, "count {times} {name}");
        }
        for ((name, took), times) in &self.times {
            let _ = writeln!(out, "time {times} {took} {name}");
        }
        for (seed, what) in &self.failures {
            let _ = writeln!(out, "failed {seed} {}", what.replace('\n', " "));
        }
        out
    }

    /// Replaces the file as a whole.
    pub(super) fn save(&self, directory: &Path) -> Result<()> {
        fs::create_dir_all(directory)?;
        let unfinished = directory.join("ledger.tmp");
        fs::write(&unfinished, self.render())?;
        Ok(fs::rename(&unfinished, directory.join(FILE))?)
    }

    /// Something happened so many times.
    pub(super) fn count(&mut self, what: &str, times: u64) {
        *self.counts.entry(what.to_owned()).or_default() += times;
    }

    /// Something took so long.
    pub(super) fn time(&mut self, what: &str, took: Duration) {
        let took = u64::try_from(took.as_millis()).unwrap_or(u64::MAX);
        *self.times.entry((what.to_owned(), took)).or_default() += 1;
    }

    /// What the last comparison of a round found.
    pub(super) fn absorb(&mut self, report: &Report) {
        self.count("records acknowledged", report.acked);
        self.count("records found, on each of three disks", report.checked);
        self.count("records lost", report.lost);
        self.count("records duplicated", report.duplicated);
        self.count("records reordered", report.reordered);
    }

    /// All of it for people.
    pub(super) fn summary(&self) -> String {
        let mut out = format!("{} cycles\n", self.cycles);
        for (name, times) in &self.counts {
            let _ = writeln!(out, "{times:>10}  {name}");
        }
        let names: std::collections::BTreeSet<&str> =
            self.times.keys().map(|(name, _)| name.as_str()).collect();
        for name in names {
            let [p50, p99, longest] = [50, 99, 100].map(|percent| self.quantile(name, percent));
            let times: u64 =
                self.times.iter().filter(|((n, _), _)| n == name).map(|(_, times)| times).sum();
            let _ = writeln!(
                out,
                "{name}: p50 {p50} ms, p99 {p99} ms, longest {longest} ms, of {times}"
            );
        }
        for (seed, what) in &self.failures {
            let _ = writeln!(out, "FAILED seed {seed}: {what}");
        }
        out
    }

    /// The time that so many of a hundred did not exceed, in milliseconds.
    fn quantile(&self, name: &str, percent: u64) -> u64 {
        let of_name = || self.times.iter().filter(|((n, _), _)| n == name);
        let all: u64 = of_name().map(|(_, times)| times).sum();
        let mut seen = 0;
        for ((_, took), times) in of_name() {
            seen += times;
            if all * percent <= seen * 100 {
                return *took;
            }
        }
        0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_written_is_read_back() {
        let mut ledger = Ledger { seed: 7, cycles: 24, ..Ledger::default() };
        ledger.count("fault: kill one", 3);
        ledger.time("a while", Duration::from_millis(20));
        ledger.time("a while", Duration::from_millis(20));
        ledger.failures.insert(6, "INV-R1: lost".to_owned());
        assert_eq!(Ledger::parse(&ledger.render()).unwrap(), ledger);
        assert!(Ledger::parse("").is_err());
        assert!(Ledger::parse(&format!("{HEAD}\ncount x y\n")).is_err());
    }

    #[test]
    fn quantiles_count_every_time() {
        let mut ledger = Ledger::default();
        for took in 1..=100 {
            ledger.time("t", Duration::from_millis(took));
        }
        assert_eq!((ledger.quantile("t", 50), ledger.quantile("t", 99)), (50, 99));
        assert_eq!(ledger.quantile("other", 50), 0);
    }
}
