//! Runs one program and listens to it, with a deadline.

use std::fs::File;
use std::io::{BufRead, BufReader};
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Command, ExitStatus, Stdio};
use std::sync::mpsc;
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};

/// Each program ends within 30 s where all is well; its own steps give up after 20 s each.
const PROGRAM_WAIT: Duration = Duration::from_secs(120);

/// Runs a command in a process group of its own, handing each line it prints to `each`; what it says
/// on its error stream goes to `log`. At the deadline the whole group is killed.
pub(super) fn lines(
    command: &mut Command,
    log: &Path,
    mut each: impl FnMut(&str),
) -> Result<ExitStatus> {
    let mut child = command
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(File::create(log)?)
        .process_group(0)
        .spawn()
        .with_context(|| format!("could not start {command:?}"))?;
    let out = child.stdout.take().expect("stdout was asked to be piped");
    let (sender, receiver) = mpsc::sync_channel(64);
    // Lives until the program and whoever it started have closed their output, at the latest when
    // the group is killed.
    let reader = thread::spawn(move || {
        for line in BufReader::new(out).lines().map_while(Result::ok) {
            if sender.send(line).is_err() {
                return;
            }
        }
    });
    let deadline = Instant::now() + PROGRAM_WAIT;
    loop {
        match receiver.recv_timeout(deadline.saturating_duration_since(Instant::now())) {
            Ok(line) => each(&line),
            Err(mpsc::RecvTimeoutError::Disconnected) => break,
            Err(mpsc::RecvTimeoutError::Timeout) => {
                Command::new("kill").args(["-9", "--", &format!("-{}", child.id())]).status()?;
                child.wait()?;
                bail!("not done within {PROGRAM_WAIT:?}");
            }
        }
    }
    let status = child.wait()?;
    reader.join().ok();
    Ok(status)
}

/// The last lines that say something, on one line.
pub(crate) fn last_lines(text: &str, count: usize) -> String {
    let lines: Vec<&str> = text.lines().map(str::trim).filter(|line| !line.is_empty()).collect();
    lines[lines.len().saturating_sub(count)..].join(" | ")
}
