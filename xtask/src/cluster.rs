//! `cargo xtask cluster`: kills, pauses, cuts off, fills and damages three real brokers under load,
//! and checks what they had promised.
//!
//! The work is done by `towpath-cluster`, a program of its own, so that this one stays quick to
//! compile. It needs root: every broker has a network namespace and a file system of its own.

use std::process::Command;

use anyhow::{Context, Result, bail};

/// How `towpath-cluster` ends when it cannot run on this machine.
const CANNOT: i32 = 2;

/// Builds and runs. The arguments are those of `towpath-cluster`: `--times N`, `--rolling`,
/// `--restarts`, `--moves`, `--flips`, `--queues`, `--seed S`, `--hold SECONDS`, `--campaign DIR`.
pub(crate) fn run(args: &[String]) -> Result<()> {
    let status = command(args).status().context("cargo cannot be started")?;
    if !status.success() {
        bail!("towpath-cluster: {status}");
    }
    Ok(())
}

/// Why it cannot run here, if it cannot.
pub(crate) fn missing() -> Option<String> {
    let output = command(&["--probe".to_owned()]).output().ok()?;
    let said = String::from_utf8_lossy(&output.stdout).trim().to_owned();
    (output.status.code() == Some(CANNOT)).then_some(said)
}

fn command(args: &[String]) -> Command {
    let cargo = std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into());
    let mut command = Command::new(cargo);
    command
        .args(["run", "--quiet", "--release", "--package", "towpath-process"])
        .args(["--bin", "towpath-cluster", "--"])
        .args(args);
    command
}
