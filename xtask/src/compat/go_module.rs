//! Programs and tests out of Go modules, which the module proxy brings whole.
//!
//! The module cache is read-only and its modules do not know each other, so a module is copied out and
//! built in its copy.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitStatus};

use anyhow::{Context, Result};
use serde::Deserialize;

use super::suite::Outcome;
use crate::clients::kit::{finish, with};
use crate::clients::program::last_lines;

#[derive(Deserialize)]
#[serde(rename_all = "PascalCase")]
struct Downloaded {
    dir: Option<PathBuf>,
    error: Option<String>,
}

/// Fetches `module@version` into `made/NAME` and builds [`binary`] there, unless that is done already.
/// `command` says how, given the directory; where to put it and from what (`.`) is added.
///
/// # Errors
/// When the module cannot be fetched or does not build.
pub(super) fn build(
    made: &Path,
    name: &str,
    module: &str,
    command: &dyn Fn(&Path) -> Command,
) -> Result<()> {
    let binary = binary(made, name);
    let stamp = made.join(format!("{name}.version"));
    if binary.exists() && fs::read_to_string(&stamp).is_ok_and(|version| version == *module) {
        return Ok(());
    }
    fs::create_dir_all(made.join("bin"))?;
    let sources = made.join(name);
    copy(module, &sources)?;
    finish(command(&sources).arg("-o").arg(&binary).arg("."))?;
    fs::write(stamp, module)?;
    Ok(())
}

/// Where [`build`] puts what it makes.
pub(super) fn binary(made: &Path, name: &str) -> PathBuf {
    made.join("bin").join(name)
}

/// Downloads a module and copies it to `target`, writable.
fn copy(module: &str, target: &Path) -> Result<()> {
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

/// The Go command, in that directory.
pub(super) fn go(dir: &Path) -> Command {
    let mut go = Command::new("go");
    go.current_dir(dir).env("GOTOOLCHAIN", "local").env("GOWORK", "off");
    go
}

/// What became of a test and of its parts that were skipped. The lines are `--- PASS: TestName (0.01s)`,
/// indented and with `/` for the parts of a test. A test passes only if it says so: one that never began
/// would end well too.
pub(super) fn judge(test: &str, status: ExitStatus, printed: &str) -> Vec<(String, Outcome)> {
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
        match (result, part == test) {
            ("PASS", true) if status.success() => own = Outcome::Passed,
            ("SKIP", true) => own = Outcome::Skipped(said.to_owned()),
            // What it said may stand far away, between the words of others.
            ("SKIP", false) => {
                parts.push((part.to_owned(), Outcome::Skipped(format!("by {test}"))));
            }
            _ => {}
        }
    }
    parts.push((test.to_owned(), own));
    parts
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
        super::judge("TestOne", ExitStatus::from_raw(exit << 8), printed)
    }

    #[test]
    fn a_test_passes_only_when_it_says_so() {
        let said = "=== RUN   TestOne\n--- PASS: TestOne (0.01s)\nPASS\n";
        assert_eq!(judge(0, said), [("TestOne".to_owned(), Outcome::Passed)]);
        assert!(!judge(1, said)[0].1.is_passed());
        assert!(!judge(0, "PASS\n")[0].1.is_passed());
    }

    #[test]
    fn a_skip_has_its_reason() {
        let said = "    a_test.go:1: no TLS\n--- SKIP: TestOne (0.01s)\nPASS\n";
        let skipped = Outcome::Skipped("a_test.go:1: no TLS".to_owned());
        assert_eq!(judge(0, said), [("TestOne".to_owned(), skipped)]);
    }

    #[test]
    fn skipped_parts_are_results_of_their_own() {
        let said = "--- PASS: TestOne (0.01s)\n    --- SKIP: TestOne/tls (0.00s)\nPASS\n";
        assert_eq!(
            judge(0, said),
            [
                ("TestOne/tls".to_owned(), Outcome::Skipped("by TestOne".to_owned())),
                ("TestOne".to_owned(), Outcome::Passed),
            ]
        );
    }
}
