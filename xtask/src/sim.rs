//! `cargo xtask sim …`: builds the simulator with optimisation and passes the arguments on.
//!
//! A program of its own, so that the chores stay quick to compile and the simulator quick to run.

use std::env;
use std::process::Command;

use anyhow::{Context, bail};

/// Runs the simulator. `args` are its own; `--help` names them.
pub(crate) fn run(args: &[String]) -> anyhow::Result<()> {
    let cargo = env::var_os("CARGO").unwrap_or_else(|| "cargo".into());
    let status = Command::new(cargo)
        .args(["run", "--quiet", "--release", "--package", "towpath-sim", "--"])
        .args(args)
        .status()
        .context("cargo did not start")?;
    if !status.success() {
        // What failed, and how to replay it, has been printed by the simulator.
        bail!("simulation: {status}");
    }
    Ok(())
}
