//! What is expected of a suite: `passes.txt` and `findings.md`.
//!
//! `passes.txt` has one test per line; ` # slow` behind it keeps it out of CI. `findings.md` is prose
//! for people, in which a line that begins with "- `NAME`" explains that test (several names may stand
//! there, separated by commas, up to the first colon). Every test is in exactly one of them.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, ensure};

use super::run::Results;
use super::suite::Outcome;

const SLOW: &str = "slow";

/// Both lists of a suite.
pub(super) struct Lists {
    file: PathBuf,
    /// Each with whether it is slow.
    passes: BTreeMap<String, bool>,
    findings: BTreeSet<String>,
}

impl Lists {
    /// Reads both files; a missing one is empty.
    ///
    /// # Errors
    /// A mark that is not known, and a test that is in both.
    pub(super) fn read(dir: &Path) -> Result<Lists> {
        let file = dir.join("passes.txt");
        let passes = passes(&fs::read_to_string(&file).unwrap_or_default())
            .with_context(|| file.display().to_string())?;
        let findings = findings(&fs::read_to_string(dir.join("findings.md")).unwrap_or_default());
        let both: Vec<&String> = findings.iter().filter(|t| passes.contains_key(*t)).collect();
        ensure!(
            both.is_empty(),
            "in {}, both in passes.txt and findings.md: {both:?}",
            dir.display()
        );
        Ok(Lists { file, passes, findings })
    }

    /// Whether the test has to pass.
    pub(super) fn must_pass(&self, test: &str) -> bool {
        self.passes.contains_key(test)
    }

    /// Whether CI runs the test: those that must pass and are not slow.
    pub(super) fn is_quick(&self, test: &str) -> bool {
        self.passes.get(test) == Some(&false)
    }

    /// Compares with what was seen; only a whole run can say that a listed test no longer exists.
    pub(super) fn compare(&self, results: &Results, is_whole: bool) -> Verdict {
        let mut verdict = Verdict::default();
        for (test, outcome) in results {
            let is_explained = self.findings.contains(test);
            match (self.must_pass(test), outcome) {
                (true, Outcome::Passed) => {}
                (true, other) => verdict.broken.push(format!("{test} {}", other.line())),
                (false, Outcome::Passed) => {
                    verdict.new.push(test.clone());
                    if is_explained {
                        verdict.outdated.push(test.clone());
                    } else {
                        verdict.unlisted.push(test.clone());
                    }
                }
                (false, _) if is_explained => {}
                (false, other) => verdict.unexplained.push(format!("{test} {}", other.line())),
            }
        }
        if is_whole {
            let listed = self.passes.keys().chain(&self.findings);
            verdict.gone = listed.filter(|test| !results.contains_key(*test)).cloned().collect();
        }
        verdict
    }

    /// Adds tests to `passes.txt`, which is written sorted; its first comment lines stay.
    ///
    /// # Errors
    /// When the file cannot be written.
    pub(super) fn add(&mut self, tests: &[String]) -> Result<()> {
        for test in tests {
            self.passes.insert(test.clone(), false);
        }
        let old = fs::read_to_string(&self.file).unwrap_or_default();
        let mut text: String = old
            .lines()
            .take_while(|line| line.starts_with('#'))
            .map(|l| format!("{l}\n"))
            .collect();
        for (test, is_slow) in &self.passes {
            text.push_str(test);
            text.push_str(if *is_slow { " # slow\n" } else { "\n" });
        }
        fs::write(&self.file, text).with_context(|| self.file.display().to_string())
    }
}

fn passes(text: &str) -> Result<BTreeMap<String, bool>> {
    let mut passes = BTreeMap::new();
    for line in text.lines().filter(|line| !line.is_empty() && !line.starts_with('#')) {
        let (test, mark) = line.split_once(" # ").unwrap_or((line, ""));
        ensure!(mark.is_empty() || mark == SLOW, "unknown mark {mark} of {test}");
        ensure!(passes.insert(test.to_owned(), mark == SLOW).is_none(), "{test} is listed twice");
    }
    Ok(passes)
}

fn findings(text: &str) -> BTreeSet<String> {
    let mut tests = BTreeSet::new();
    for line in text.lines() {
        let Some(mut rest) = line.strip_prefix("- `") else { continue };
        while let Some((test, after)) = rest.split_once('`') {
            tests.insert(test.to_owned());
            match after.strip_prefix(", `") {
                Some(next) => rest = next,
                None => break,
            }
        }
    }
    tests
}

/// How a run differs from the lists.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct Verdict {
    /// Had to pass and did not.
    broken: Vec<String>,
    /// Did not pass, and nobody says why.
    unexplained: Vec<String>,
    /// Passed and are not on the list.
    pub(super) new: Vec<String>,
    /// The part of `new` that is explained as failing.
    outdated: Vec<String>,
    /// The part of `new` that is on no list at all.
    unlisted: Vec<String>,
    /// Listed, and the suite has no such test.
    gone: Vec<String>,
}

impl Verdict {
    /// `wrote`: what newly passes has been added to the list.
    pub(super) fn is_as_expected(&self, wrote: bool) -> bool {
        self.broken.is_empty()
            && self.unexplained.is_empty()
            && self.gone.is_empty()
            && (wrote || self.unlisted.is_empty())
    }

    /// What to tell the user, one line each.
    pub(super) fn lines(&self, wrote: bool) -> Vec<String> {
        let mut lines = Vec::new();
        let mut say = |tests: &[String], what: &str| {
            lines.extend(tests.iter().map(|test| format!("{what}: {test}")));
        };
        say(&self.broken, "must pass (passes.txt) and did not");
        say(&self.unexplained, "explained nowhere (findings.md)");
        say(&self.gone, "listed, and not in the suite (take it out)");
        if wrote {
            say(&self.new, "added to passes.txt");
            say(&self.outdated, "to be taken out of findings.md");
        } else {
            say(&self.unlisted, "passes and is on no list (--write adds it)");
            say(&self.outdated, "passes now (--write adds it)");
        }
        lines
    }
}

#[cfg(test)]
mod tests;
