//! Starts the process anew: the same command line in the same process, so that whoever supervises it
//! sees no end. Where the program has been replaced meanwhile, the new one runs.

use std::env;
use std::os::unix::process::CommandExt;
use std::path::PathBuf;
use std::process::Command;

use crate::failure::{Failure, Outcome};

/// The program that runs, found out when it starts: later its file may be another one.
pub(super) struct Program(PathBuf);

impl Program {
    pub(super) fn running() -> Outcome<Program> {
        let program = env::current_exe().map_err(|error| {
            Failure::new(format!("where this program lies cannot be found out: {error}"))
        })?;
        Ok(Program(program))
    }

    /// Does not return, unless the program cannot be run.
    pub(super) fn run_again(&self) -> Failure {
        let mut words = env::args_os();
        let mut command = Command::new(&self.0);
        if let Some(name) = words.next() {
            command.arg0(name);
        }
        let error = command.args(words).exec();
        let program = self.0.display();
        Failure::new(format!("the node has stopped, and {program} cannot be run again: {error}"))
            .with_help("start it by hand: nothing is lost")
    }
}
