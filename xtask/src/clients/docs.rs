//! Writes the table of `docs/clients.md` from a run, so that it never says what nobody saw.

use std::fmt::Write;
use std::fs;
use std::path::Path;

use anyhow::{Context, Result};

use super::{ClientReport, Report};

const BEGIN: &str = "<!-- written by `cargo xtask clients --write-docs` -->\n";
const END: &str = "<!-- end of what is written -->\n";

/// Columns that every library client has, by step name; other steps go to the last column.
const COLUMNS: [(&str, &str); 11] = [
    ("create", "creates topic"),
    ("stored-codecs", "codecs stored"),
    ("read", "reads back"),
    ("idempotent", "idempotent"),
    ("group-of-two", "group of two"),
    ("one-leaves", "one leaves"),
    ("commit", "commits"),
    ("resume", "resumes"),
    ("seek-by-time", "seeks by time"),
    ("queue", "reads a queue's topic"),
    ("queue-worked", "its queue is worked"),
];

/// Replaces the table between the two marks of the file.
///
/// # Errors
/// When the file or its marks are missing.
pub(super) fn write(file: &Path, report: &Report) -> Result<()> {
    let text = fs::read_to_string(file).with_context(|| format!("reading {}", file.display()))?;
    let missing = || format!("{} has lost the marks around its table", file.display());
    let (before, rest) = text.split_once(BEGIN).with_context(missing)?;
    let (_, after) = rest.split_once(END).with_context(missing)?;
    fs::write(file, format!("{before}{BEGIN}{}{END}{after}", table(report)))?;
    Ok(())
}

fn table(report: &Report) -> String {
    let mut out = String::from("\n| client | version | publishes |");
    let mut rule = String::from("|---|---|---|");
    for (_, title) in COLUMNS {
        write!(out, " {title} |").expect("a string takes all");
        rule.push_str("---|");
    }
    writeln!(out, " further |\n{rule}---|").expect("a string takes all");
    for client in &report.clients {
        out.push_str(&row(client));
    }
    out.push_str(&failures(report));
    out.push('\n');
    out
}

fn row(client: &ClientReport) -> String {
    let mut cells = vec![client.name.to_string(), client.version.clone()];
    if let Some(reason) = &client.skipped {
        cells.push(format!("not run: {reason}"));
        cells.resize(COLUMNS.len() + 4, String::new());
        return format!("| {} |\n", cells.join(" | "));
    }
    cells.push(named(client, |name| name.strip_prefix("publish-")));
    for (step, _) in COLUMNS {
        let found = client.steps.iter().find(|s| s.name == step);
        cells.push(found.map_or("–", |s| if s.is_passed { "yes" } else { "**no**" }).to_string());
    }
    let is_column = |name: &str| COLUMNS.iter().any(|(step, _)| *step == name);
    cells.push(named(client, |name| {
        (!is_column(name) && !name.starts_with("publish-")).then_some(name)
    }));
    format!("| {} |\n", cells.join(" | "))
}

/// The steps that `pick` takes, under the name it gives them; a failed one is struck out.
fn named<'a>(client: &'a ClientReport, pick: impl Fn(&'a str) -> Option<&'a str>) -> String {
    let shown = client.steps.iter().filter_map(|step| {
        let name = pick(&step.name)?;
        Some(if step.is_passed { name.to_string() } else { format!("~~{name}~~") })
    });
    let shown: Vec<String> = shown.collect();
    if shown.is_empty() { "–".to_string() } else { shown.join(", ") }
}

/// What failed, in the client's own words.
fn failures(report: &Report) -> String {
    let mut out = String::new();
    for client in &report.clients {
        for step in client.steps.iter().filter(|step| !step.is_passed) {
            let line = format!("\n- {}, {}: {}", client.name, step.name, step.detail);
            out.push_str(&line);
        }
    }
    if out.is_empty() { out } else { format!("\nWhat failed:\n{out}\n") }
}
