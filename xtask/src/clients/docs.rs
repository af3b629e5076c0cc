//! Writes the tables of `docs/clients.md` from a run, so that they never say what nobody saw.

use std::fmt::Write;
use std::fs;
use std::path::Path;

use anyhow::{Context, Result};

use super::servers::{KAFKA, SQS};
use super::{ClientReport, Report};

const BEGIN: &str = "<!-- written by `cargo xtask clients --write-docs` -->\n";
const END: &str = "<!-- end of what is written -->\n";

/// A table of clients that need the same server. Columns are steps, in the order of a run, with their titles;
/// steps without one go to the last column.
struct Table {
    server: &'static str,
    /// A column that lists the steps with this beginning, with its title.
    listed: Option<(&'static str, &'static str)>,
    columns: &'static [(&'static str, &'static str)],
}

const TABLES: [Table; 2] = [
    Table {
        server: KAFKA,
        listed: Some(("publish-", "publishes")),
        columns: &[
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
        ],
    },
    Table {
        server: SQS,
        listed: None,
        columns: &[
            ("create", "creates queues"),
            ("list", "lists"),
            ("attributes", "attributes"),
            ("tags", "tags"),
            ("message", "message"),
            ("batch", "batches"),
            ("delay", "delay"),
            ("visibility", "visibility"),
            ("long-poll", "long poll"),
            ("fifo", "FIFO"),
            ("dead-letters", "dead letters"),
            ("move-task", "move task"),
            ("errors", "errors"),
            ("purge", "purge"),
            ("address", "queue URL"),
            ("delete-queue", "deletes queue"),
            ("signatures", "signatures"),
        ],
    },
];

/// Replaces the tables between the two marks of the file.
///
/// # Errors
/// When the file or its marks are missing.
pub(super) fn write(file: &Path, report: &Report) -> Result<()> {
    let text = fs::read_to_string(file).with_context(|| format!("reading {}", file.display()))?;
    let missing = || format!("{} has lost the marks around its tables", file.display());
    let (before, rest) = text.split_once(BEGIN).with_context(missing)?;
    let (_, after) = rest.split_once(END).with_context(missing)?;
    let mut written: String = TABLES.iter().map(|table| table.text(report)).collect();
    written.push_str(&failures(report));
    fs::write(file, format!("{before}{BEGIN}{written}\n{END}{after}"))?;
    Ok(())
}

impl Table {
    fn text(&self, report: &Report) -> String {
        let listed = self.listed.iter().map(|(_, title)| *title);
        let titles = listed.chain(self.columns.iter().map(|(_, title)| *title));
        let titles: Vec<&str> =
            ["client", "version"].into_iter().chain(titles).chain(["further"]).collect();
        let mut out = format!("\n| {} |\n{}|\n", titles.join(" | "), "|---".repeat(titles.len()));
        for client in report.clients.iter().filter(|client| client.server == self.server) {
            let cells = self.cells(client, titles.len());
            writeln!(out, "| {} |", cells.join(" | ")).expect("a string takes all");
        }
        out
    }

    fn cells(&self, client: &ClientReport, width: usize) -> Vec<String> {
        let mut cells = vec![client.name.to_string(), client.version.clone()];
        if let Some(reason) = &client.skipped {
            cells.push(format!("not run: {reason}"));
            cells.resize(width, String::new());
            return cells;
        }
        if let Some((beginning, _)) = self.listed {
            cells.push(named(client, |name| name.strip_prefix(beginning)));
        }
        for (step, _) in self.columns {
            let found = client.steps.iter().find(|s| s.name == *step);
            let said = found.map_or("–", |s| if s.is_passed { "yes" } else { "**no**" });
            cells.push(said.to_string());
        }
        cells.push(named(client, |name| (!self.has_column(name)).then_some(name)));
        cells
    }

    fn has_column(&self, name: &str) -> bool {
        self.columns.iter().any(|(step, _)| *step == name)
            || self.listed.is_some_and(|(beginning, _)| name.starts_with(beginning))
    }
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
