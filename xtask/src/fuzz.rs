//! `cargo xtask fuzz`: feeds every parser with bytes that nobody would send.
//!
//! The work is done by `towpath-fuzz`, a program of its own, so that this one stays quick to
//! compile. It is built for speed, with assertions and overflow checks.

use std::process::Command;

use anyhow::{Context, Result, bail};

/// Builds, and fuzzes. The arguments are those of `towpath-fuzz`: `--seconds N`, `--seed S`, and
/// the names of targets.
pub(crate) fn run(args: &[String]) -> Result<()> {
    let cargo = std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into());
    let status = Command::new(cargo)
        .args(["run", "--quiet", "--release", "--package", "towpath-fuzz"])
        .args(["--config", "profile.release.debug-assertions=true"])
        .args(["--config", "profile.release.overflow-checks=true"])
        .arg("--")
        .args(args)
        .status()
        .context("cargo cannot be started")?;
    if !status.success() {
        bail!("towpath-fuzz: {status}");
    }
    Ok(())
}
