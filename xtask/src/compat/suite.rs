//! What every suite has to say about itself.

use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus};
use std::time::Duration;

use anyhow::Result;

/// One suite, before anything of it was fetched.
pub(super) struct Suite {
    /// Names its directories and the word on the command line.
    pub(super) name: &'static str,
    /// Programs of the system that it cannot do without, or files by their absolute path.
    pub(super) needs: &'static [&'static str],
    /// How many brokers it is run against: one is `towpath dev`, several are a cluster.
    pub(super) nodes: u8,
    /// How many of its tests may run beside each other: they wait more than they work.
    pub(super) at_once: usize,
    /// After this long a test counts as failed.
    pub(super) wait: Duration,
    /// Fetches and builds what is not yet in the suite's directory under `target/compat`.
    pub(super) prepare: fn(&Path) -> Result<Box<dyn Prepared>>,
}

/// A suite that is ready to run.
pub(super) trait Prepared: Sync {
    /// The names of all its tests, as `command` takes them.
    ///
    /// # Errors
    /// When the suite cannot be asked.
    fn tests(&self) -> Result<Vec<String>>;

    /// Properties, as `NAME=VALUE`, of the brokers of this test, beyond what every suite assumes.
    fn settings(&self, _test: &str) -> &'static [&'static str] {
        &[]
    }

    /// More words on the command line of one broker of a cluster, by its number.
    fn flags(&self, _broker: u8) -> Vec<String> {
        Vec::new()
    }

    /// Starts what stands between the tests and the brokers, which listen at `bootstrap`
    /// (`HOST:PORT,…`), and runs until it is dropped.
    ///
    /// # Errors
    /// When it does not come up.
    fn surround(&self, _bootstrap: &str) -> Result<Option<Beside>> {
        Ok(None)
    }

    /// The directory in which tests ask for a broker to be stopped or started.
    fn orders(&self) -> Option<PathBuf> {
        None
    }

    /// The command that runs one test against the brokers at `bootstrap` (`HOST:PORT,…`).
    ///
    /// # Errors
    /// When a file that the test reads cannot be written.
    fn command(&self, test: &str, bootstrap: &str) -> Result<Command>;

    /// What came of it, from what it printed. Usually one result under the test's own name; a part of
    /// it that was skipped is a result of its own, so that it has to be explained like any other.
    fn judge(&self, test: &str, status: ExitStatus, printed: &str) -> Vec<(String, Outcome)>;
}

/// A process that runs beside the tests; killed when dropped.
pub(super) struct Beside(pub(super) Child);

impl Drop for Beside {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// What became of a test.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Outcome {
    Passed,
    /// By the suite itself, for this reason.
    Skipped(String),
    Failed(String),
}

impl Outcome {
    pub(super) fn is_passed(&self) -> bool {
        *self == Outcome::Passed
    }

    /// A word and the reason.
    pub(super) fn line(&self) -> String {
        match self {
            Outcome::Passed => "passed".to_owned(),
            Outcome::Skipped(why) => format!("skipped: {why}"),
            Outcome::Failed(why) => format!("FAILED: {why}"),
        }
    }
}
