//! A long campaign's memory: what was run, in a text file, so that it can be interrupted and go on.
//!
//! ```text
//! towpath-sim campaign 1
//! profile log seeds 12000 passed 11999 steps 83022190
//! event 52012 log: appended
//! failed 4711 INV-R1: log ends at 9, everything before 12 was acknowledged
//! profile …
//! ```
//!
//! It is replaced as a whole after every slice of seeds, so an interruption costs one slice. A
//! failure does not end the campaign: it is written down, and the next seed follows.

use std::collections::BTreeMap;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use crate::campaign::{self, Campaign, Failure, SEEDS_FOR_ALL_EVENTS};
use crate::profile::Profile;

const HEAD: &str = "towpath-sim campaign 1";
const FILE: &str = "ledger.txt";

/// Seeds of an ordinary profile between two writes.
const SLICE: u64 = 500;

/// What a campaign has done with one profile.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Account {
    /// Seeds that are done: 1 to this one.
    pub seeds: u64,
    /// Those of them that kept every promise.
    pub passed: u64,
    /// Steps of those.
    pub steps: u64,
    /// How often what happened.
    pub events: BTreeMap<String, u64>,
    /// Seeds that broke a promise, and which.
    pub failures: BTreeMap<u64, String>,
}

/// All accounts of a campaign.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Ledger {
    /// By profile.
    pub accounts: BTreeMap<String, Account>,
}

impl Ledger {
    /// Reads a ledger back.
    ///
    /// # Errors
    /// The line that is not understood.
    pub fn parse(text: &str) -> Result<Ledger, String> {
        let mut lines = text.lines();
        if lines.next() != Some(HEAD) {
            return Err(format!("it does not begin with {HEAD:?}"));
        }
        let mut ledger = Ledger::default();
        let mut account: Option<&mut Account> = None;
        for line in lines {
            let unknown = || format!("a line is not understood: {line}");
            let (kind, rest) = line.split_once(' ').ok_or_else(unknown)?;
            if kind == "profile" {
                let words: Vec<&str> = rest.split(' ').collect();
                let [name, "seeds", seeds, "passed", passed, "steps", steps] = words[..] else {
                    return Err(unknown());
                };
                let number = |text: &str| text.parse::<u64>().map_err(|_| unknown());
                let (seeds, passed, steps) = (number(seeds)?, number(passed)?, number(steps)?);
                let fresh = Account { seeds, passed, steps, ..Account::default() };
                account =
                    Some(ledger.accounts.entry(name.to_owned()).insert_entry(fresh).into_mut());
                continue;
            }
            let (number, text) = rest.split_once(' ').ok_or_else(unknown)?;
            let number = number.parse::<u64>().map_err(|_| unknown())?;
            let account = account.as_deref_mut().ok_or_else(unknown)?;
            match kind {
                "event" => drop(account.events.insert(text.to_owned(), number)),
                "failed" => drop(account.failures.insert(number, text.to_owned())),
                _ => return Err(unknown()),
            }
        }
        Ok(ledger)
    }

    /// The text of the file.
    #[must_use]
    pub fn render(&self) -> String {
        let mut out = format!("{HEAD}\n");
        for (name, account) in &self.accounts {
            let Account { seeds, passed, steps, events, failures } = account;
            out += &format!("profile {name} seeds {seeds} passed {passed} steps {steps}\n");
            for (event, times) in events {
                out += &format!("event {times} {event}\n");
            }
            for (seed, violation) in failures {
                out += &format!("failed {seed} {}\n", violation.replace('\n', " "));
            }
        }
        out
    }

    /// The ledger in a directory; an empty one where there is none.
    ///
    /// # Errors
    /// When it cannot be read, or is none.
    pub fn load(directory: &Path) -> io::Result<Ledger> {
        match fs::read_to_string(directory.join(FILE)) {
            Ok(text) => Ledger::parse(&text).map_err(io::Error::other),
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(Ledger::default()),
            Err(error) => Err(error),
        }
    }

    fn save(&self, directory: &Path) -> io::Result<()> {
        fs::create_dir_all(directory)?;
        let unfinished: PathBuf = directory.join("ledger.tmp");
        fs::write(&unfinished, self.render())?;
        fs::rename(&unfinished, directory.join(FILE))
    }

    /// Goes on until every profile has run its share of `seeds`: so many, divided by its cost.
    /// `tell` hears of every failure at once, and of every slice.
    ///
    /// # Errors
    /// When the ledger cannot be written.
    pub fn run(
        &mut self,
        directory: &Path,
        profiles: &[&'static dyn Profile],
        seeds: u64,
        threads: usize,
        mut tell: impl FnMut(&str),
    ) -> io::Result<()> {
        let share = |profile: &dyn Profile, seeds: u64| seeds.div_ceil(profile.cost());
        loop {
            let mut is_done = true;
            for profile in profiles {
                let account = self.accounts.entry(profile.name().to_owned()).or_default();
                let left = share(*profile, seeds).saturating_sub(account.seeds);
                if left == 0 {
                    continue;
                }
                is_done = false;
                let slice = left.min(share(*profile, SLICE));
                for failure in account.go_on(*profile, slice, threads) {
                    tell(&failure.to_string());
                }
                tell(&format!("{}: {} seeds done", profile.name(), account.seeds));
                self.save(directory)?;
            }
            if is_done {
                return Ok(());
            }
        }
    }
}

impl Account {
    /// Runs the next seeds, all of them, whatever fails.
    fn go_on(&mut self, profile: &dyn Profile, seeds: u64, threads: usize) -> Vec<Failure> {
        let end = self.seeds + seeds;
        let mut failures = Vec::new();
        while self.seeds < end {
            let (from, seeds) = (self.seeds + 1, end - self.seeds);
            let outcome = campaign::run(profile, Campaign { from, seeds, threads, twice: false });
            let Some(failure) = outcome.failure else {
                self.absorb(&outcome);
                self.seeds = end;
                break;
            };
            // Which other seeds were run depends on the threads: those before it run once more.
            let before = Campaign { from, seeds: failure.seed - from, threads, twice: false };
            let passed = campaign::run(profile, before);
            let failure = passed.failure.clone().unwrap_or(failure);
            if passed.failure.is_none() {
                self.absorb(&passed);
            }
            self.seeds = failure.seed;
            self.failures.insert(failure.seed, failure.violation.to_string());
            failures.push(failure);
        }
        failures
    }

    fn absorb(&mut self, outcome: &campaign::Outcome) {
        self.passed += outcome.passed;
        self.steps += outcome.steps;
        for (event, times) in outcome.events.iter() {
            *self.events.entry(event.to_owned()).or_default() += times;
        }
    }

    /// Events that should have happened by now and did not.
    #[must_use]
    pub fn silent(&self, profile: &dyn Profile) -> Vec<&'static str> {
        if self.seeds.saturating_mul(profile.cost()) < SEEDS_FOR_ALL_EVENTS {
            return Vec::new();
        }
        let events = profile.must_happen().iter().copied();
        events.filter(|event| !self.events.contains_key(*event)).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::events::Events;
    use crate::profile::Violation;
    use crate::trace::Trace;

    struct Sevens;

    impl Profile for Sevens {
        fn name(&self) -> &'static str {
            "sevens"
        }
        fn about(&self) -> &'static str {
            "a test"
        }
        fn must_happen(&self) -> &'static [&'static str] {
            &["even", "never"]
        }
        fn run(&self, seed: u64, trace: &Trace) -> Result<Events, Violation> {
            trace.event("seed", &[seed]);
            let mut events = Events::new();
            events.add("even", u64::from(seed.is_multiple_of(2)));
            match seed.is_multiple_of(700) {
                true => Err(Violation::new("INV-X", "seven\nhundred")),
                false => Ok(events),
            }
        }
    }

    #[test]
    fn a_campaign_goes_on_where_it_was_interrupted() {
        let directory = tempfile();
        let run = |seeds: u64| {
            let mut ledger = Ledger::load(&directory).unwrap();
            let mut failures = 0;
            let tell = |text: &str| failures += usize::from(text.contains("FAILED"));
            ledger.run(&directory, &[&Sevens], seeds, 2, tell).unwrap();
            (ledger, failures)
        };
        assert_eq!(run(650).1, 0);
        let (ledger, failures) = run(1500);
        assert_eq!(failures, 2, "only what is new is told");
        let account = &ledger.accounts["sevens"];
        assert_eq!((account.seeds, account.passed), (1500, 1498));
        assert_eq!(account.events["even"], 748);
        assert_eq!(account.failures[&1400], "INV-X: seven\nhundred");
        assert_eq!(account.silent(&Sevens), ["never"]);
        let read = Ledger::load(&directory).unwrap();
        assert_eq!(read.accounts["sevens"].failures[&700], "INV-X: seven hundred");
        assert_eq!(run(1500).0, read);
        fs::remove_dir_all(&directory).unwrap();
    }

    fn tempfile() -> PathBuf {
        std::env::temp_dir().join(format!("towpath-sim-ledger-{}", std::process::id()))
    }

    #[test]
    fn what_is_no_ledger_is_refused() {
        assert!(Ledger::parse("").is_err());
        assert!(Ledger::parse("towpath-sim campaign 1\nevent 1 early\n").is_err());
        let line = "profile log seeds x passed 1 steps 1";
        assert!(Ledger::parse(&format!("{HEAD}\n{line}\n")).unwrap_err().contains(line));
    }
}
