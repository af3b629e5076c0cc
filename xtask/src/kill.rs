//! `cargo xtask kill`: kills real brokers under load, and checks what they had promised.
//!
//! The work is done by `towpath-kill`, a program of its own, so that this one stays quick to
//! compile. Both it and the broker are built for speed: the faster the broker, the more happens
//! between two kills.

use std::process::Command;

use anyhow::{Context, Result, bail};

/// Builds, and kills. The arguments are those of `towpath-kill`: `--times N`, `--seed S`,
/// `--data DIR`.
pub(crate) fn run(args: &[String]) -> Result<()> {
    let cargo = std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into());
    let status = Command::new(cargo)
        .args(["run", "--quiet", "--release", "--package", "towpath-process"])
        .args(["--bin", "towpath-kill", "--"])
        .args(args)
        .status()
        .context("cargo cannot be started")?;
    if !status.success() {
        bail!("towpath-kill: {status}");
    }
    Ok(())
}
