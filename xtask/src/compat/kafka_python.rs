//! kafka-python's integration tests, from its source package on PyPI.
//!
//! The package brings tests and fixtures; `KAFKA_URI` points them at a broker that runs already. Its
//! other tests need no broker and are left out.

use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::process::{Command, ExitStatus};
use std::time::Duration;

use anyhow::{Result, ensure};

use super::suite::{Outcome, Prepared, Suite};
use crate::clients::kit::{finish, python, with};
use crate::clients::program::last_lines;
use crate::root;

pub(super) const SUITE: Suite = Suite {
    name: "kafka-python",
    needs: &["python3", "tar"],
    nodes: 1,
    at_once: 3,
    wait: Duration::from_secs(240),
    prepare,
};

/// Where the tests lie in the package.
const DIRECTORY: &str = "test/integration";

const VERSION: &str = "3.0.12";

/// What the tests believe they talk to, and one of them checks: the newest that the client knows.
const KAFKA_VERSION: &str = "4.3.0";

struct KafkaPython {
    interpreter: PathBuf,
    sources: PathBuf,
}

fn prepare(made: &Path) -> Result<Box<dyn Prepared>> {
    let lists = root().join("tests/compat/kafka-python");
    let interpreter = python(&lists.join("requirements.txt"), &made.join("python"))?;
    let sources = made.join(format!("kafka_python-{VERSION}"));
    if !sources.join("test/__init__.py").exists() {
        let mut download = with(&interpreter, ["-m", "pip", "download", "-q", "--no-deps"]);
        download.args(["--no-binary", "kafka-python", &format!("kafka-python=={VERSION}")]);
        finish(download.arg("-d").arg(made))?;
        let archive = made.join(format!("kafka_python-{VERSION}.tar.gz"));
        finish(with("tar", ["-xzf"]).arg(archive).arg("-C").arg(made))?;
        // Without it, `test` is the package of that name in Python's own library.
        File::create(sources.join("test/__init__.py"))?;
    }
    // The package leaves this module out.
    fs::copy(lists.join("service.py"), sources.join("test/service.py"))?;
    Ok(Box::new(KafkaPython { interpreter, sources }))
}

impl KafkaPython {
    fn pytest(&self, args: &[&str]) -> Command {
        let mut command =
            with(&self.interpreter, ["-m", "pytest", "-q", "-Wignore", "-p", "no:cacheprovider"]);
        command.args(args).current_dir(&self.sources).env("KAFKA_VERSION", KAFKA_VERSION);
        command
    }
}

impl Prepared for KafkaPython {
    /// Named by file and function: `test_admin_integration.py::test_create_topics`.
    fn tests(&self) -> Result<Vec<String>> {
        let output = self.pytest(&["--collect-only", DIRECTORY]).output()?;
        let listed = String::from_utf8(output.stdout)?;
        ensure!(output.status.success(), "pytest lists no tests: {}", last_lines(&listed, 3));
        let tests =
            listed.lines().filter_map(|line| line.strip_prefix(DIRECTORY)?.strip_prefix('/'));
        Ok(tests.map(str::to_owned).collect())
    }

    /// The members of a group have sessions of three seconds in one test.
    fn settings(&self, _test: &str) -> &'static [&'static str] {
        &["group.min.session.timeout.ms=1000"]
    }

    fn command(&self, test: &str, bootstrap: &str) -> Result<Command> {
        let mut command = self.pytest(&["-rs", &format!("{DIRECTORY}/{test}")]);
        command.env("KAFKA_URI", format!("kafka://{bootstrap}"));
        // A directory with a Kafka to start, which never happens; it only has to exist.
        command.env("KAFKA_ROOT", &self.sources);
        Ok(command)
    }

    /// pytest ends well when it has skipped everything; only its summary says what happened, and the
    /// fixtures have the last word.
    fn judge(&self, test: &str, status: ExitStatus, printed: &str) -> Vec<(String, Outcome)> {
        let has_passed = printed.lines().any(|line| line.starts_with("1 passed"));
        let skip = printed.lines().find_map(|line| line.strip_prefix("SKIPPED "));
        let outcome = match skip {
            _ if status.success() && has_passed => Outcome::Passed,
            Some(why) if status.success() => Outcome::Skipped(why.to_owned()),
            _ => Outcome::Failed(reason(printed).unwrap_or_else(|| last_lines(printed, 2))),
        };
        vec![(test.to_owned(), outcome)]
    }
}

/// The exception, from pytest's lines of `E   …`; its line of progress, `E  [100%]`, looks alike.
fn reason(printed: &str) -> Option<String> {
    let mut lines = printed.lines().filter(|line| !line.ends_with("%]"));
    lines.find_map(|line| line.strip_prefix("E  ")).map(|line| line.trim().to_owned())
}

#[cfg(test)]
mod tests {
    use std::os::unix::process::ExitStatusExt;

    use super::*;

    #[test]
    fn only_a_passed_test_passes() {
        let suite = KafkaPython { interpreter: PathBuf::new(), sources: PathBuf::new() };
        let judge = |exit: i32, printed: &str| {
            suite.judge("t.py::one", ExitStatus::from_raw(exit << 8), printed).remove(0).1
        };
        assert_eq!(judge(0, ".\n1 passed in 2.04s\nDone!\n"), Outcome::Passed);
        let skipped = "s\nSKIPPED [1] test/integration/t.py:3: no TLS\n1 skipped in 0.10s\n";
        let why = "[1] test/integration/t.py:3: no TLS".to_owned();
        assert_eq!(judge(0, skipped), Outcome::Skipped(why));
        assert!(matches!(judge(0, "no tests ran in 0.01s\n"), Outcome::Failed(_)));
        assert!(matches!(judge(1, "F\n1 failed in 0.01s\n"), Outcome::Failed(_)));
    }
}
