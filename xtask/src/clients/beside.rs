//! Programs that look at the broker while a client runs or afterwards, and print steps as clients do.

use std::path::Path;
use std::thread::{self, JoinHandle};

use anyhow::{Result, anyhow};

use super::kit::with;
use super::program::lines;
use super::servers::Servers;

/// A program that runs.
pub(super) struct Beside(JoinHandle<Result<Vec<String>>>);

impl Beside {
    /// Starts a program of `tests/clients/python` that needs no package.
    pub(super) fn start(root: &Path, servers: &Servers, program: &str, words: &[&str]) -> Beside {
        let mut command = with("python3", [root.join("tests/clients/python").join(program)]);
        command.args(words).envs(servers.variables());
        let log = root.join("target/clients").join(format!("{program}.log"));
        // Ends with the program, which has a deadline.
        Beside(thread::spawn(move || {
            let mut steps = Vec::new();
            lines(&mut command, &log, |line| {
                steps.extend(line.strip_prefix("STEP ").map(str::to_owned));
            })?;
            Ok(steps)
        }))
    }

    /// Waits for its end: the words behind each `STEP`.
    ///
    /// # Errors
    /// When it could not be started, or was not done in time.
    pub(super) fn steps(self) -> Result<Vec<String>> {
        self.0.join().map_err(|_| anyhow!("the thread that follows a program has panicked"))?
    }
}
