//! Every package that ships is under a permissive licence: read from cargo's metadata, so that it
//! needs no advisory database and no further tool.

use std::process::Command;

use anyhow::{Context, Result, bail};
use serde::Deserialize;

use crate::root;

/// What `deny.toml` allows.
const ALLOWED: [&str; 11] = [
    "Apache-2.0",
    "MIT",
    "BSD-2-Clause",
    "BSD-3-Clause",
    "ISC",
    "Zlib",
    "0BSD",
    "Unlicense",
    "BSL-1.0",
    "Unicode-3.0",
    "Apache-2.0 WITH LLVM-exception",
];

#[derive(Deserialize)]
struct Metadata {
    packages: Vec<Package>,
}

#[derive(Deserialize)]
struct Package {
    name: String,
    version: String,
    license: Option<String>,
}

pub(crate) fn check() -> Result<()> {
    let output = Command::new("cargo")
        .args(["metadata", "--format-version", "1", "--locked"])
        .current_dir(root())
        .output()
        .context("cargo metadata did not start")?;
    if !output.status.success() {
        bail!("cargo metadata: {}", String::from_utf8_lossy(&output.stderr));
    }
    let metadata: Metadata = serde_json::from_slice(&output.stdout)?;
    let refused: Vec<String> = metadata
        .packages
        .iter()
        .filter(|package| !package.license.as_deref().is_some_and(is_allowed))
        .map(|p| format!("{} {}: {}", p.name, p.version, p.license.as_deref().unwrap_or("none")))
        .collect();
    if !refused.is_empty() {
        bail!("licences that are not allowed:\n{}", refused.join("\n"));
    }
    println!("{} packages, all under permissive licences", metadata.packages.len());
    Ok(())
}

/// An SPDX expression of `AND`s and `OR`s: every part of one alternative is allowed. Parentheses
/// only group alternatives in the packages there are.
fn is_allowed(expression: &str) -> bool {
    let flat = expression.replace(['(', ')'], " ").replace('/', " OR ");
    let alternative = |text: &str| ALLOWED.contains(&text.trim());
    flat.split(" AND ").all(|part| part.split(" OR ").any(alternative))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_allowed_alternative_of_every_part_is_enough() {
        assert!(is_allowed("MIT OR Apache-2.0"));
        assert!(is_allowed("MIT/Apache-2.0"));
        assert!(is_allowed("(MIT OR Apache-2.0) AND Unicode-3.0"));
        assert!(!is_allowed("GPL-3.0"));
        assert!(!is_allowed("MIT AND GPL-3.0"));
    }
}
