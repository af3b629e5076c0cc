//! `cargo xtask attack`: sends a real broker what strangers who mean harm would send.
//!
//! The work is done by `towpath-attack`, a program of its own, so that this one stays quick to
//! compile. Both it and the broker are built for speed.

use std::process::Command;

use anyhow::{Context, Result, bail};

/// Builds, and attacks. The arguments are those of `towpath-attack`: `--frames N`, `--slow N`,
/// `--seed S`.
pub(crate) fn run(args: &[String]) -> Result<()> {
    let cargo = std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into());
    let status = Command::new(cargo)
        .args(["run", "--quiet", "--release", "--package", "towpath-process"])
        .args(["--bin", "towpath-attack", "--"])
        .args(args)
        .status()
        .context("cargo cannot be started")?;
    if !status.success() {
        bail!("towpath-attack: {status}");
    }
    Ok(())
}
