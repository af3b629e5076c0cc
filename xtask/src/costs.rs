//! `cargo xtask costs [--update] [--profiles DIR]`: what a request costs in instructions,
//! allocations and system calls, against the baseline in `bench/costs.json`.

use std::process::{Command, Stdio};

use anyhow::{Context, Result, bail};

use crate::{product, root};

/// Programs that count.
const TOOLS: [&str; 2] = ["valgrind", "strace"];

/// The first tool that is not there.
pub(crate) fn missing_tool() -> Option<&'static str> {
    let is_there = |tool: &&str| {
        let mut version = Command::new(tool);
        version.arg("--version").stdout(Stdio::null()).stderr(Stdio::null());
        version.status().is_ok_and(|status| status.success())
    };
    TOOLS.iter().find(|tool| !is_there(tool)).copied()
}

/// Builds, counts and compares.
pub(crate) fn run(args: &[String]) -> Result<()> {
    if let Some(tool) = missing_tool() {
        bail!("{tool} is not installed");
    }
    for package in ["towpath", "towpath-bench"] {
        crate::test::cargo(&["build", "--release", "--package", package])?;
    }
    let status = Command::new(product::binary().with_file_name("towpath-bench"))
        .arg("costs")
        .arg("--towpath")
        .arg(product::binary())
        .arg("--baseline")
        .arg(root().join("bench/costs.json"))
        .args(args)
        .status()
        .context("towpath-bench did not start")?;
    if !status.success() {
        bail!("costs: {status}");
    }
    Ok(())
}
