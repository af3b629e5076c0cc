//! Lets Kafka's own classes read and rewrite what our codec writes.

use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result, ensure};

/// `jars`: kafka-clients, kafka-group-coordinator, kafka-server-common and slf4j-api.
pub(crate) fn run(jars: &[&str], root: &Path) -> Result<()> {
    let cargo = std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into());
    let written = Command::new(cargo)
        .args([
            "test",
            "--quiet",
            "--package",
            "towpath-protocol",
            "--test",
            "codec",
            "against_kafka::",
        ])
        .current_dir(root)
        .status()?;
    ensure!(written.success(), "the samples could not be written");

    let target = std::env::var_os("CARGO_TARGET_DIR").map_or(root.join("target"), PathBuf::from);
    let compared = Command::new("java")
        .args(["-cp", &jars.join(":")])
        .arg(root.join("crates/protocol/tests/java/ReadAndRewrite.java"))
        .arg(target.join("tmp/codec-samples.txt"))
        .status()
        .context("java")?;
    ensure!(compared.success(), "Kafka's classes do not agree with ours");
    Ok(())
}
