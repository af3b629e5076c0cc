//! Programs of the system that are run for their effect.

use std::process::Command;

use anyhow::{Context, Result, bail};

/// Runs a program and gives back what it printed.
pub(super) fn run(program: &str, arguments: &[&str]) -> Result<String> {
    let output = Command::new(program)
        .args(arguments)
        .output()
        .with_context(|| format!("{program} cannot be started"))?;
    if !output.status.success() {
        let said = String::from_utf8_lossy(&output.stderr);
        bail!("`{program} {}`: {}: {}", arguments.join(" "), output.status, said.trim());
    }
    Ok(String::from_utf8_lossy(&output.stdout).into_owned())
}

/// The first of these programs that is not installed.
pub(super) fn missing<'p>(programs: &[&'p str]) -> Option<&'p str> {
    let path = std::env::var_os("PATH").unwrap_or_default();
    let is_there =
        |program: &str| std::env::split_paths(&path).any(|place| place.join(program).is_file());
    programs.iter().copied().find(|program| !is_there(program))
}
