//! Runs one test as a process, with a deadline.

use std::fs::File;
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Command, ExitStatus, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, Result};

/// How often the process is asked whether it has ended.
const POLL: Duration = Duration::from_millis(20);

/// Runs a command in a process group of its own; all it says goes to `log`. `None` if it had not
/// ended in time: then the whole group was killed.
pub(super) fn run(command: &mut Command, log: &Path, wait: Duration) -> Result<Option<ExitStatus>> {
    let file = File::create(log).with_context(|| format!("creating {}", log.display()))?;
    let mut child = command
        .stdin(Stdio::null())
        .stdout(file.try_clone()?)
        .stderr(file)
        .process_group(0)
        .spawn()
        .with_context(|| format!("could not start {command:?}"))?;
    let deadline = Instant::now() + wait;
    let status = loop {
        if let Some(status) = child.try_wait()? {
            break Some(status);
        }
        if deadline < Instant::now() {
            break None;
        }
        thread::sleep(POLL);
    };
    // A test that has ended may have left children of its own behind.
    let group = format!("-{}", child.id());
    Command::new("kill").args(["-9", "--", &group]).stderr(Stdio::null()).status()?;
    if status.is_none() {
        child.wait()?;
    }
    Ok(status)
}
