//! Every package that ships is under a permissive licence: read from cargo's metadata, so that it
//! needs no advisory database and no further tool. And every exception from an advisory in
//! `deny.toml` says until when it holds, and still does.

use std::process::Command;
use std::time::{SystemTime, UNIX_EPOCH};

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
    let exceptions = std::fs::read_to_string(root().join("deny.toml")).context("deny.toml")?;
    check_exceptions(&exceptions, today()?)?;
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

/// Days since 1970-01-01.
type Day = u64;

fn today() -> Result<Day> {
    Ok(SystemTime::now().duration_since(UNIX_EPOCH)?.as_secs() / 86_400)
}

/// Each line with an advisory's id ends its reason with `until YYYY-MM-DD`, a day to come.
fn check_exceptions(deny: &str, today: Day) -> Result<()> {
    for line in deny.lines().filter(|line| line.contains("RUSTSEC-")) {
        let until = line.split_once("until ").and_then(|(_, rest)| day(rest.get(..10)?));
        match until {
            Some(until) if today < until => {}
            Some(_) => bail!("this exception has ended; decide anew (deny.toml): {}", line.trim()),
            None => bail!("an exception without `until YYYY-MM-DD` (deny.toml): {}", line.trim()),
        }
    }
    Ok(())
}

/// The day of `YYYY-MM-DD` (UTC): `days_from_civil` of Howard Hinnant's "chrono-Compatible Low-Level Date Algorithms".
fn day(text: &str) -> Option<Day> {
    let mut parts = text.split('-').map(|part| part.parse::<u64>().ok());
    let (year, month, day) = (parts.next()??, parts.next()??, parts.next()??);
    if year < 1970 || !(1..=12).contains(&month) || !(1..=31).contains(&day) {
        return None;
    }
    let year = if month <= 2 { year - 1 } else { year };
    let day_of_year = (153 * ((month + 9) % 12) + 2) / 5 + day - 1;
    let days = year * 365 + year / 4 - year / 100 + year / 400 + day_of_year;
    days.checked_sub(719_468)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_exception_holds_until_its_day() {
        assert_eq!(day("1970-01-01"), Some(0));
        assert_eq!(day("2026-11-30"), Some(20_787));
        assert_eq!(day("2026-13-01"), None);
        let deny = r#"    { id = "RUSTSEC-1-1", reason = "why: until 2026-11-30" },"#;
        assert!(check_exceptions(deny, 20_786).is_ok());
        assert!(check_exceptions(deny, 20_787).is_err());
        assert!(check_exceptions(r#"{ id = "RUSTSEC-1-1" }"#, 1).is_err());
    }

    #[test]
    fn one_allowed_alternative_of_every_part_is_enough() {
        assert!(is_allowed("MIT OR Apache-2.0"));
        assert!(is_allowed("MIT/Apache-2.0"));
        assert!(is_allowed("(MIT OR Apache-2.0) AND Unicode-3.0"));
        assert!(!is_allowed("GPL-3.0"));
        assert!(!is_allowed("MIT AND GPL-3.0"));
    }
}
