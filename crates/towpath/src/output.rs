//! What commands print: fields and tables, in the caller's format.
//!
//! A command fills a [`Report`] once; table, JSON, JSON lines and TSV come from the same cells, so
//! that field names are the same everywhere. Machines get numbers, people get words.

use std::fmt::Write as _;
use std::io::{self, IsTerminal, Write};

use serde_json::{Map, Value};

use towpath_driver::RATIO_WARNING;

use crate::units::{bytes_in_words, count_in_words, seconds_in_words};

/// How to print.
#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
pub(crate) enum Format {
    /// Aligned columns for people
    Table,
    /// One JSON object
    Json,
    /// One JSON object per line
    Jsonl,
    /// Tab-separated values without a header
    Tsv,
}

impl Format {
    /// The caller's choice, or what suits where the output goes.
    pub(crate) fn or_by_terminal(choice: Option<Format>) -> Format {
        choice.unwrap_or_else(
            || {
                if io::stdout().is_terminal() { Format::Table } else { Format::Tsv }
            },
        )
    }
}

/// One value, and how people read it.
#[derive(Debug, Clone)]
pub(crate) struct Cell {
    value: Value,
    words: Option<String>,
}

impl<T: Into<Value>> From<T> for Cell {
    fn from(value: T) -> Cell {
        Cell { value: value.into(), words: None }
    }
}

impl Cell {
    pub(crate) fn bytes(bytes: u64) -> Cell {
        Cell { value: bytes.into(), words: Some(bytes_in_words(bytes)) }
    }

    pub(crate) fn count(count: i64) -> Cell {
        Cell { value: count.into(), words: Some(count_in_words(count)) }
    }

    /// A duration; fractions of a second are for machines only.
    pub(crate) fn seconds(seconds: f64) -> Cell {
        // A negative or endless one counts as none.
        let words = seconds_in_words(seconds as u64);
        Cell { value: seconds.into(), words: Some(words) }
    }

    /// A part of retention, in percent for people, with a mark from where the broker warns.
    pub(crate) fn retention_ratio(ratio: f64) -> Cell {
        let mark = if RATIO_WARNING <= ratio { " !" } else { "" };
        let words = format!("{:.0} %{mark}", ratio * 100.0);
        Cell { value: ratio.into(), words: Some(words) }
    }

    /// Absent: `null` for machines, a dash for people.
    pub(crate) fn none() -> Cell {
        Cell { value: Value::Null, words: Some("-".to_owned()) }
    }

    pub(crate) fn or_none(cell: Option<impl Into<Cell>>) -> Cell {
        cell.map_or_else(Cell::none, Into::into)
    }

    /// A list of ids.
    pub(crate) fn list(items: impl IntoIterator<Item = impl Into<Value>>) -> Cell {
        let items: Vec<Value> = items.into_iter().map(Into::into).collect();
        let words = items.iter().map(plain).collect::<Vec<_>>().join(",");
        Cell { value: items.into(), words: Some(words) }
    }

    fn for_people(&self) -> String {
        self.words.clone().unwrap_or_else(|| plain(&self.value))
    }

    fn for_tsv(&self) -> String {
        match &self.value {
            Value::Array(_) => self.for_people(),
            value => escape_tsv(&plain(value)),
        }
    }
}

fn plain(value: &Value) -> String {
    match value {
        Value::Null => String::new(),
        Value::String(text) => text.clone(),
        other => other.to_string(),
    }
}

fn escape_tsv(text: &str) -> String {
    text.replace('\\', "\\\\").replace('\t', "\\t").replace('\n', "\\n").replace('\r', "\\r")
}

/// Rows under stable column names.
#[derive(Debug, Clone)]
pub(crate) struct Table {
    name: &'static str,
    columns: Vec<&'static str>,
    rows: Vec<Vec<Cell>>,
}

impl Table {
    /// An empty table; `name` is its field in JSON.
    pub(crate) fn new(name: &'static str, columns: &[&'static str]) -> Table {
        Table { name, columns: columns.to_vec(), rows: Vec::new() }
    }

    pub(crate) fn row(&mut self, cells: Vec<Cell>) {
        assert_eq!(cells.len(), self.columns.len(), "a row has a cell per column");
        self.rows.push(cells);
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.rows.is_empty()
    }

    fn objects(&self) -> impl Iterator<Item = Value> {
        self.rows.iter().map(|row| {
            let fields = self.columns.iter().zip(row);
            let object: Map<String, Value> =
                fields.map(|(name, cell)| ((*name).to_owned(), cell.value.clone())).collect();
            Value::Object(object)
        })
    }

    /// Aligned columns; numbers stand right.
    fn render(&self, out: &mut String, with_color: bool) {
        let headers: Vec<String> =
            self.columns.iter().map(|c| c.replace('_', " ").to_uppercase()).collect();
        let texts: Vec<Vec<String>> =
            self.rows.iter().map(|row| row.iter().map(Cell::for_people).collect()).collect();
        let width = |at: usize| {
            let cells = texts.iter().map(|row| row[at].chars().count());
            cells.max().unwrap_or(0).max(headers[at].len())
        };
        let widths: Vec<usize> = (0..headers.len()).map(width).collect();
        let is_number: Vec<bool> = (0..headers.len())
            .map(|at| {
                let mut cells = self.rows.iter().map(|row| &row[at].value).peekable();
                cells.peek().is_some() && cells.all(|value| value.is_number() || value.is_null())
            })
            .collect();
        let mut line = |cells: &[String], style: &str| {
            let mut text = String::new();
            for (at, cell) in cells.iter().enumerate() {
                let pad = " ".repeat(widths[at] - cell.chars().count());
                let gap = if at == 0 { "" } else { "  " };
                if is_number[at] {
                    let _ = write!(text, "{gap}{pad}{cell}");
                } else {
                    let _ = write!(text, "{gap}{cell}{pad}");
                }
            }
            let off = if style.is_empty() { "" } else { "\x1b[0m" };
            let _ = writeln!(out, "{style}{}{off}", text.trim_end());
        };
        line(&headers, if with_color { "\x1b[1m" } else { "" });
        texts.iter().for_each(|row| line(row, ""));
    }
}

/// Everything one command says.
#[derive(Debug, Clone, Default)]
pub(crate) struct Report {
    fields: Vec<(&'static str, Cell)>,
    tables: Vec<Table>,
}

impl Report {
    pub(crate) fn new() -> Report {
        Report::default()
    }

    #[must_use]
    pub(crate) fn field(mut self, name: &'static str, cell: impl Into<Cell>) -> Report {
        self.fields.push((name, cell.into()));
        self
    }

    #[must_use]
    pub(crate) fn table(mut self, table: Table) -> Report {
        self.tables.push(table);
        self
    }

    /// The report as text, with its last newline.
    pub(crate) fn render(&self, format: Format, with_color: bool) -> String {
        match format {
            Format::Table => self.for_people(with_color),
            Format::Tsv => self.as_tsv(),
            Format::Json => format!("{:#}\n", self.as_json()),
            Format::Jsonl if self.fields.is_empty() => {
                let rows = self.tables.iter().flat_map(Table::objects);
                rows.map(|row| format!("{row}\n")).collect()
            }
            Format::Jsonl => format!("{}\n", self.as_json()),
        }
    }

    fn as_json(&self) -> Value {
        let fields =
            self.fields.iter().map(|(name, cell)| ((*name).to_owned(), cell.value.clone()));
        let tables = self
            .tables
            .iter()
            .map(|table| (table.name.to_owned(), Value::Array(table.objects().collect())));
        Value::Object(fields.chain(tables).collect())
    }

    fn as_tsv(&self) -> String {
        let mut out = String::new();
        for (name, cell) in &self.fields {
            let _ = writeln!(out, "{name}\t{}", cell.for_tsv());
        }
        for row in self.tables.iter().flat_map(|table| &table.rows) {
            let cells: Vec<String> = row.iter().map(Cell::for_tsv).collect();
            let _ = writeln!(out, "{}", cells.join("\t"));
        }
        out
    }

    fn for_people(&self, with_color: bool) -> String {
        let mut out = String::new();
        let width = self.fields.iter().map(|(name, _)| name.len()).max().unwrap_or(0);
        for (name, cell) in &self.fields {
            let name = name.replace('_', " ");
            let _ = writeln!(out, "{name:<width$}  {}", cell.for_people());
        }
        let has_titles = !self.fields.is_empty() || 1 < self.tables.len();
        for table in self.tables.iter().filter(|table| !(has_titles && table.is_empty())) {
            if has_titles {
                let _ = writeln!(out, "\n{}", table.name.replace('_', " "));
            }
            table.render(&mut out, with_color);
        }
        out
    }
}

/// Writes to standard output; a reader that went away (`| head`) is not an error.
/// Returns whether somebody still reads.
pub(crate) fn write_out(bytes: &[u8]) -> io::Result<bool> {
    let mut stdout = io::stdout().lock();
    match stdout.write_all(bytes).and_then(|()| stdout.flush()) {
        Ok(()) => Ok(true),
        Err(error) if error.kind() == io::ErrorKind::BrokenPipe => Ok(false),
        Err(error) => Err(error),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn report() -> Report {
        let mut table = Table::new("topics", &["name", "records", "leader_id"]);
        table.row(vec!["orders".into(), Cell::count(12_345), 1.into()]);
        table.row(vec!["a\tb".into(), Cell::count(7), Cell::none()]);
        Report::new().table(table)
    }

    #[test]
    fn a_list_looks_right_in_every_format() {
        let report = report();
        assert_eq!(
            report.render(Format::Table, false),
            "NAME    RECORDS  LEADER ID\norders   12,345          1\na\tb           7          -\n"
        );
        assert_eq!(report.render(Format::Tsv, false), "orders\t12345\t1\na\\tb\t7\t\n");
        assert_eq!(
            report.render(Format::Jsonl, false),
            "{\"leader_id\":1,\"name\":\"orders\",\"records\":12345}\n\
             {\"leader_id\":null,\"name\":\"a\\tb\",\"records\":7}\n"
        );
        let json: Value = serde_json::from_str(&report.render(Format::Json, false)).unwrap();
        assert_eq!(json["topics"][0]["records"], 12_345);
    }

    #[test]
    fn fields_come_before_their_tables() {
        let text = report().field("cluster_id", "x").render(Format::Table, false);
        assert!(text.starts_with("cluster id  x\n\ntopics\nNAME"), "{text}");
    }
}
