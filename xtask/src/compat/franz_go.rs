//! franz-go's tests of its client (`kgo`) and of its admin client (`kadm`), from the Go module proxy.
//!
//! Tests are part of a Go module. The module cache is read-only and its modules do not know each
//! other, so both are copied out and built there. Most tests of `kgo` need a broker and skip themselves
//! by what it advertises; the others cost nothing.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitStatus};
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use serde::Deserialize;

use super::suite::{Outcome, Prepared, Suite};
use crate::clients::kit::{finish, with};
use crate::clients::program::last_lines;

pub(super) const SUITE: Suite =
    Suite { name: "franz-go", needs: &["go"], at_once: 3, wait: Duration::from_secs(240), prepare };

/// Package, module with version, the package's directory in it.
const PACKAGES: &[(&str, &str, &str)] = &[
    ("kgo", "github.com/twmb/franz-go@v1.22.3", "pkg/kgo"),
    ("kadm", "github.com/twmb/franz-go/pkg/kadm@v1.20.0", "."),
];

/// Per test of the group and transaction chains; the suite's own default is 500,000.
const RECORDS: &str = "10000";

struct FranzGo {
    made: PathBuf,
}

#[derive(Deserialize)]
#[serde(rename_all = "PascalCase")]
struct Downloaded {
    dir: Option<PathBuf>,
    error: Option<String>,
}

fn prepare(made: &Path) -> Result<Box<dyn Prepared>> {
    for (package, module, dir) in PACKAGES {
        let binary = binary(made, package);
        let stamp = made.join(format!("{package}.version"));
        if binary.exists() && fs::read_to_string(&stamp).is_ok_and(|version| version == *module) {
            continue;
        }
        let sources = made.join(package);
        copy_module(module, &sources)?;
        let mut build = go(&sources.join(dir));
        finish(build.args(["test", "-c", "-vet=off", "-mod=mod", "-o"]).arg(&binary).arg("."))?;
        fs::write(stamp, module)?;
    }
    Ok(Box::new(FranzGo { made: made.to_owned() }))
}

/// Downloads a module and copies it to `target`, writable.
fn copy_module(module: &str, target: &Path) -> Result<()> {
    // Outside of any module, so that nothing is recorded anywhere.
    let output = go(&std::env::temp_dir()).args(["mod", "download", "-json", module]).output()?;
    let downloaded: Downloaded = serde_json::from_slice(&output.stdout)
        .with_context(|| String::from_utf8_lossy(&output.stderr).into_owned())?;
    let error = downloaded.error.unwrap_or_default();
    let dir = downloaded.dir.with_context(|| format!("fetching {module}: {error}"))?;
    if target.exists() {
        fs::remove_dir_all(target)?;
    }
    finish(with("cp", ["-r", "--no-preserve=mode"]).arg(dir).arg(target))
}

fn go(dir: &Path) -> Command {
    let mut go = Command::new("go");
    go.current_dir(dir).env("GOTOOLCHAIN", "local").env("GOWORK", "off");
    go
}

fn binary(made: &Path, package: &str) -> PathBuf {
    made.join(format!("{package}.test"))
}

impl Prepared for FranzGo {
    fn tests(&self) -> Result<Vec<String>> {
        let mut tests = Vec::new();
        for (package, _, _) in PACKAGES {
            let output =
                Command::new(binary(&self.made, package)).args(["-test.list", "^Test"]).output()?;
            ensure!(output.status.success(), "{package} does not list its tests");
            let listed = String::from_utf8(output.stdout)?;
            tests.extend(listed.lines().map(|test| format!("{package}/{test}")));
        }
        Ok(tests)
    }

    fn command(&self, test: &str, bootstrap: &str) -> Result<Command> {
        let (package, name) = test.split_once('/').unwrap_or(("kgo", test));
        let dir = PACKAGES.iter().find(|(known, _, _)| *known == package).map_or(".", |p| p.2);
        let mut command = Command::new(binary(&self.made, package));
        command
            .current_dir(self.made.join(package).join(dir))
            .args(["-test.v", "-test.run", &format!("^{name}$")])
            .envs([("KGO_SEEDS", bootstrap), ("KGO_TEST_RF", "1")])
            .env("KGO_TEST_RECORDS", RECORDS);
        Ok(command)
    }

    /// The lines are `--- PASS: TestName (0.01s)`, indented and with `/` for the parts of a test. A
    /// test passes only if it says so: one that never began would end well too.
    fn judge(&self, test: &str, status: ExitStatus, printed: &str) -> Vec<(String, Outcome)> {
        let (package, name) = test.split_once('/').unwrap_or(("kgo", test));
        let mut own = Outcome::Failed(format!("{status}: {}", last_lines(printed, 3)));
        let mut parts = Vec::new();
        let mut said = "no reason given";
        for line in printed.lines() {
            let Some((result, part)) = result_line(line) else {
                if is_said_by_a_test(line) {
                    said = line.trim();
                }
                continue;
            };
            match (result, part == name) {
                ("PASS", true) if status.success() => own = Outcome::Passed,
                ("SKIP", true) => own = Outcome::Skipped(said.to_owned()),
                // What it said may stand far away, between the words of others.
                ("SKIP", false) => {
                    let why = Outcome::Skipped(format!("by {name}"));
                    parts.push((format!("{package}/{part}"), why));
                }
                _ => {}
            }
        }
        parts.push((test.to_owned(), own));
        parts
    }
}

/// Whether the line is a test's own word, such as the reason of a skip: `    client_test.go:399: …`.
fn is_said_by_a_test(line: &str) -> bool {
    line.starts_with("    ") && line.contains("_test.go:")
}

/// Result and name.
fn result_line(line: &str) -> Option<(&str, &str)> {
    let rest = line.trim_start().strip_prefix("--- ")?;
    let (result, rest) = rest.split_once(": ")?;
    Some((result, rest.split_once(' ').map_or(rest, |(name, _)| name)))
}

#[cfg(test)]
mod tests {
    use std::os::unix::process::ExitStatusExt;

    use super::*;

    fn judge(exit: i32, printed: &str) -> Vec<(String, Outcome)> {
        let suite = FranzGo { made: PathBuf::new() };
        suite.judge("kgo/TestOne", ExitStatus::from_raw(exit << 8), printed)
    }

    #[test]
    fn a_test_passes_only_when_it_says_so() {
        let said = "=== RUN   TestOne\n--- PASS: TestOne (0.01s)\nPASS\n";
        assert_eq!(judge(0, said), [("kgo/TestOne".to_owned(), Outcome::Passed)]);
        assert!(!judge(1, said)[0].1.is_passed());
        assert!(!judge(0, "PASS\n")[0].1.is_passed());
    }

    #[test]
    fn a_skip_has_its_reason() {
        let said = "    a_test.go:1: no TLS\n--- SKIP: TestOne (0.01s)\nPASS\n";
        let skipped = Outcome::Skipped("a_test.go:1: no TLS".to_owned());
        assert_eq!(judge(0, said), [("kgo/TestOne".to_owned(), skipped)]);
    }

    #[test]
    fn skipped_parts_are_results_of_their_own() {
        let said = "--- PASS: TestOne (0.01s)\n    --- SKIP: TestOne/tls (0.00s)\nPASS\n";
        assert_eq!(
            judge(0, said),
            [
                ("kgo/TestOne/tls".to_owned(), Outcome::Skipped("by TestOne".to_owned())),
                ("kgo/TestOne".to_owned(), Outcome::Passed),
            ]
        );
    }
}
