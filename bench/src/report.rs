//! Tables: medians, ratios of neighbours, and whether floors and targets are reached.

use std::fmt::Write;
use std::fs;
use std::path::Path;

use anyhow::{Context, Result};
use serde::Serialize;

use crate::row::{Bound, Finished, Goal, Of, Row, Sample};

/// Median, least and greatest of some figures.
#[derive(Debug, Clone, Copy, PartialEq)]
struct Spread {
    median: f64,
    min: f64,
    max: f64,
}

impl Spread {
    fn of(mut figures: Vec<f64>) -> Option<Spread> {
        figures.retain(|figure| figure.is_finite());
        figures.sort_by(f64::total_cmp);
        let (min, max) = (*figures.first()?, *figures.last()?);
        let middle = figures.len() / 2;
        let median = if figures.len().is_multiple_of(2) {
            f64::midpoint(figures[middle - 1], figures[middle])
        } else {
            figures[middle]
        };
        Some(Spread { median, min, max })
    }

    fn text(self) -> String {
        format!("{} ({}–{})", number(self.median), number(self.min), number(self.max))
    }
}

/// Three digits that count.
fn number(value: f64) -> String {
    if value.is_infinite() {
        return "any".to_owned();
    }
    let digits = match value.abs() {
        size if size >= 100.0 => 0,
        size if size >= 10.0 => 1,
        size if size >= 1.0 => 2,
        _ => 3,
    };
    format!("{value:.digits$}")
}

fn ours(done: &Finished, metric: &str) -> Option<Spread> {
    Spread::of(done.towpath.iter().filter_map(|sample| sample.get(metric)).collect())
}

fn theirs(done: &Finished, metric: &str) -> Option<Spread> {
    Spread::of(done.theirs.iter().filter_map(|sample| sample.get(metric)).collect())
}

fn ratio(done: &Finished, metric: &str) -> Option<Spread> {
    let pairs = done.towpath.iter().zip(&done.theirs);
    Spread::of(pairs.filter_map(|(a, b)| Some(a.get(metric)? / b.get(metric)?)).collect())
}

fn value(done: &Finished, goal: &Goal) -> Option<Spread> {
    match goal.of {
        Of::Ours => ours(done, goal.metric),
        Of::Ratio => ratio(done, goal.metric),
    }
}

fn verdict(goal: &Goal, value: f64) -> &'static str {
    let holds = |limit: f64| match goal.bound {
        Bound::AtMost => value <= limit,
        Bound::AtLeast => limit <= value,
    };
    if holds(goal.target) {
        "target"
    } else if holds(goal.floor) {
        "floor"
    } else {
        "MISSED"
    }
}

fn sign(goal: &Goal) -> &'static str {
    match goal.bound {
        Bound::AtMost => "≤",
        Bound::AtLeast => "≥",
    }
}

fn unit(row: &Row, goal: &Goal) -> String {
    match goal.of {
        Of::Ours => String::new(),
        Of::Ratio => format!("× {}", row.beside()),
    }
}

/// One row's table.
pub(crate) fn table(row: &Row, done: &Finished) -> String {
    let mut text = String::new();
    let has_peer = !done.theirs.is_empty();
    let _ = if has_peer {
        let beside = row.beside();
        writeln!(text, "| {} | Towpath | {beside} | ratio |\n| --- | --- | --- | --- |", row.id)
    } else {
        writeln!(text, "| {} | Towpath |\n| --- | --- |", row.id)
    };
    for metric in metrics(&done.towpath, &done.theirs) {
        let cell = |spread: Option<Spread>| spread.map_or("–".to_owned(), Spread::text);
        let _ = write!(text, "| {metric} | {} |", cell(ours(done, &metric)));
        if has_peer {
            let _ = write!(text, " {} |", cell(theirs(done, &metric)));
            let _ = write!(text, " {} |", cell(ratio(done, &metric)));
        }
        text.push('\n');
    }
    for goal in row.goals {
        let Some(spread) = value(done, goal) else { continue };
        let (sign, unit) = (sign(goal), unit(row, goal));
        let _ = writeln!(
            text,
            "\n{}: {}{unit}; floor {sign} {}, target {sign} {}: **{}**",
            goal.metric,
            spread.text(),
            number(goal.floor),
            number(goal.target),
            verdict(goal, spread.median),
        );
    }
    let samples = done.towpath.iter().chain(&done.theirs);
    let loud = samples.clone().filter(|sample| sample.noise.is_loud()).count();
    let foreign = samples.clone().map(|sample| sample.noise.foreign_cpus).fold(0.0, f64::max);
    let load = samples.map(|sample| sample.noise.load).fold(0.0, f64::max);
    let count = done.towpath.len();
    let _ = writeln!(
        text,
        "\nn = {count}; noisy samples: {loud}; CPUs used by others: at most {}; load ≤ {}",
        number(foreign),
        number(load)
    );
    text
}

/// The names of all figures, in order.
fn metrics(ours: &[Sample], theirs: &[Sample]) -> Vec<String> {
    let mut names: Vec<String> = Vec::new();
    for (name, _) in ours.iter().chain(theirs).flat_map(|sample| &sample.figures) {
        if !names.contains(name) {
            names.push(name.clone());
        }
    }
    names
}

/// One line per goal.
pub(crate) fn summary(rows: &[Row], finished: &[Finished]) -> String {
    let mut text = "| row | figure | measured | floor | target | |\n".to_owned();
    text.push_str("| --- | --- | --- | --- | --- | --- |\n");
    for (row, done) in finished_rows(rows, finished) {
        for goal in row.goals {
            let Some(spread) = value(done, goal) else { continue };
            let (sign, unit) = (sign(goal), unit(row, goal));
            let _ = writeln!(
                text,
                "| {} | {} | {}{unit} | {sign} {} | {sign} {} | {} |",
                row.id,
                goal.metric,
                spread.text(),
                number(goal.floor),
                number(goal.target),
                verdict(goal, spread.median),
            );
        }
    }
    text
}

fn finished_rows<'a>(
    rows: &'a [Row],
    finished: &'a [Finished],
) -> impl Iterator<Item = (&'a Row, &'a Finished)> {
    rows.iter().filter_map(|row| Some((row, finished.iter().find(|done| done.id == row.id)?)))
}

#[derive(Serialize)]
struct Everything<'a> {
    surroundings: &'a [(&'static str, String)],
    rows: Vec<&'a Finished>,
}

/// Writes `path`.md and `path`.json.
pub(crate) fn write(
    path: &Path,
    rows: &[Row],
    finished: &[Finished],
    surroundings: &[(&'static str, String)],
) -> Result<()> {
    let mut text = "# Measured\n\n".to_owned();
    text.push_str("Medians (least–greatest); ratios are Towpath ÷ the other, pair by pair.\n\n");
    for (name, value) in surroundings {
        let _ = writeln!(text, "- {name}: {value}");
    }
    let _ = write!(text, "\n{}", summary(rows, finished));
    for (row, done) in finished_rows(rows, finished) {
        let _ = write!(text, "\n## {}: {}\n\n{}", row.id, row.title, table(row, done));
    }
    let everything =
        Everything { surroundings, rows: finished_rows(rows, finished).map(|(_, f)| f).collect() };
    if let Some(parent) = path.parent() {
        fs::create_dir_all(parent)?;
    }
    fs::write(path.with_extension("md"), text)
        .with_context(|| format!("write {}", path.display()))?;
    fs::write(path.with_extension("json"), serde_json::to_string(&everything)? + "\n")?;
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_spread_takes_the_middle_and_leaves_out_what_is_no_number() {
        let spread = Spread::of(vec![3.0, f64::NAN, 1.0, 2.0]).unwrap();
        assert_eq!(spread, Spread { median: 2.0, min: 1.0, max: 3.0 });
        assert_eq!(Spread::of(vec![1.0, 2.0]).unwrap().median, 1.5);
        assert_eq!(Spread::of(vec![]), None);
    }

    #[test]
    fn a_goal_is_a_target_a_floor_or_missed_in_its_own_direction() {
        let less = Goal::at_most("x", Of::Ours, 1.0, 0.5);
        assert_eq!([0.5, 0.6, 1.1].map(|x| verdict(&less, x)), ["target", "floor", "MISSED"]);
        let more = Goal::at_least("x", Of::Ours, 2.0, 5.0);
        assert_eq!([5.0, 2.0, 1.9].map(|x| verdict(&more, x)), ["target", "floor", "MISSED"]);
    }
}
