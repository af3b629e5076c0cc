//! `cargo xtask sim …`: builds the simulator with optimisation and passes the arguments on.
//!
//! A program of its own, so that the chores stay quick to compile and the simulator quick to run.
//! With planted bugs it is another build, in a target directory of its own: nothing that is built
//! anywhere else can contain them.

use std::env;
use std::path::PathBuf;
use std::process::Command;

use anyhow::{Context, bail};

use crate::root;

/// What switches planted bugs on; see `crates/model/src/mutant.rs`.
const MUTANTS: &str = "--cfg towpath_mutants";

/// Runs the simulator. `args` are its own; `--help` names them.
pub(crate) fn run(args: &[String]) -> anyhow::Result<()> {
    let cargo = env::var_os("CARGO").unwrap_or_else(|| "cargo".into());
    let mut command = Command::new(cargo);
    command.args(["run", "--quiet", "--release", "--package", "towpath-sim"]);
    if args.iter().any(|arg| arg == "--mutants" || arg == "--mutant") {
        let flags = env::var("RUSTFLAGS").unwrap_or_default();
        command.env("RUSTFLAGS", format!("{flags} {MUTANTS}").trim());
        command.arg("--target-dir").arg(target().join("mutants"));
    }
    let status = command.arg("--").args(args).status().context("cargo did not start")?;
    if !status.success() {
        // What failed, and how to replay it, has been printed by the simulator.
        bail!("simulation: {status}");
    }
    Ok(())
}

fn target() -> PathBuf {
    env::var_os("CARGO_TARGET_DIR").map_or_else(|| root().join("target"), PathBuf::from)
}
