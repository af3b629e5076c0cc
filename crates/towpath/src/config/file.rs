//! The configuration file: TOML, read with the line of every value.
//!
//! ```toml
//! data = "/var/lib/towpath"   # or several: ["/disk1/towpath", "/disk2/towpath"]
//! kafka = "127.0.0.1:9092"
//! http = "127.0.0.1:8080"
//!
//! [broker]
//! "num.partitions" = 3        # or without quotes: num.partitions = 3
//! ```

use std::fs;
use std::ops::Range;
use std::path::{Path, PathBuf};

use toml::Spanned;
use toml::de::{DeTable, DeValue};

use super::{ClusterWritten, ConfigError, Given, Origin, SqsWritten, Written};

/// Largest file that is read; anything larger is not a configuration.
const FILE_BYTES_MAX: u64 = 1024 * 1024;

/// Reads a file into a layer.
pub(crate) fn read_file(path: &Path) -> Result<Written, Vec<ConfigError>> {
    let fail = |message: String| vec![ConfigError { origin: None, message }];
    let name = path.display();
    let length = fs::metadata(path).map_err(|error| fail(format!("{name}: {error}")))?.len();
    if FILE_BYTES_MAX < length {
        return Err(fail(format!("{name} has {length} bytes; that is no configuration file")));
    }
    let text = fs::read_to_string(path).map_err(|error| fail(format!("{name}: {error}")))?;
    parse(path, &text)
}

/// Collects values and errors with their lines.
struct Reader<'a> {
    path: &'a Path,
    text: &'a str,
    errors: Vec<ConfigError>,
}

/// Reads the text of a file.
pub(super) fn parse(path: &Path, text: &str) -> Result<Written, Vec<ConfigError>> {
    let mut reader = Reader { path, text, errors: Vec::new() };
    let table = match DeTable::parse(text) {
        Ok(table) => table,
        Err(error) => {
            let origin = error.span().map(|span| reader.origin(&span));
            let message = error.message().to_owned();
            return Err(vec![ConfigError { origin, message }]);
        }
    };
    let written = reader.read(table.get_ref());
    if reader.errors.is_empty() { Ok(written) } else { Err(reader.errors) }
}

impl Reader<'_> {
    fn origin(&self, span: &Range<usize>) -> Origin {
        let before = &self.text.as_bytes()[..span.start.min(self.text.len())];
        let line = 1 + before.iter().filter(|byte| **byte == b'\n').count();
        Origin::File { path: self.path.to_owned(), line }
    }

    fn refuse(&mut self, span: &Range<usize>, message: String) {
        let origin = Some(self.origin(span));
        self.errors.push(ConfigError { origin, message });
    }

    fn read(&mut self, table: &DeTable<'_>) -> Written {
        let mut written = Written::default();
        for (key, value) in table {
            match key.get_ref().as_ref() {
                "data" => written.data = self.paths(value, "data"),
                "kafka" => written.kafka = self.text(value, "kafka"),
                "http" => written.http = self.text(value, "http"),
                "advertise_kafka" => {
                    written.advertise_kafka = self.text(value, "advertise_kafka");
                }
                "insecure" => written.insecure = self.boolean(value, "insecure"),
                name if ClusterWritten::SETTINGS.contains(&name) => {
                    if let Some(given) = self.texts(value, name) {
                        written.cluster.take(name, given);
                    }
                }
                name if SqsWritten::SETTINGS.contains(&name) => {
                    if let Some(given) = self.text(value, name) {
                        written.sqs.take(name, given);
                    }
                }
                "broker" => match value.get_ref() {
                    DeValue::Table(table) => self.properties("", table, &mut written),
                    _ => self.refuse(&value.span(), "broker is a table: [broker]".to_owned()),
                },
                other => {
                    let message = format!(
                        "there is no setting {other:?}; there are data, kafka, http, \
                         advertise_kafka, insecure, {}, {} and the table [broker]",
                        ClusterWritten::SETTINGS.join(", "),
                        SqsWritten::SETTINGS.join(", ")
                    );
                    self.refuse(&key.span(), message);
                }
            }
        }
        written
    }

    /// One path, or a list of them.
    fn paths(&mut self, value: &Spanned<DeValue<'_>>, name: &str) -> Option<Given<Vec<PathBuf>>> {
        let items = match value.get_ref() {
            DeValue::Array(items) => items.iter().collect(),
            _ => vec![value],
        };
        let texts = items.iter().map(|item| match item.get_ref() {
            DeValue::String(text) => Some(PathBuf::from(text.as_ref())),
            _ => None,
        });
        let Some(paths) = texts.collect::<Option<Vec<PathBuf>>>() else {
            self.refuse(&value.span(), format!("{name} is a text in quotes, or a list of them"));
            return None;
        };
        Some(Given { value: paths, origin: self.origin(&value.span()) })
    }

    /// One text, or a list of them, which is the same as one with commas.
    fn texts(&mut self, value: &Spanned<DeValue<'_>>, name: &str) -> Option<Given<String>> {
        let DeValue::Array(items) = value.get_ref() else { return self.text(value, name) };
        let texts = items.iter().map(|item| match item.get_ref() {
            DeValue::String(text) => Some(text.to_string()),
            _ => None,
        });
        let Some(texts) = texts.collect::<Option<Vec<String>>>() else {
            self.refuse(&value.span(), format!("{name} is a text in quotes, or a list of them"));
            return None;
        };
        Some(Given { value: texts.join(","), origin: self.origin(&value.span()) })
    }

    fn text(&mut self, value: &Spanned<DeValue<'_>>, name: &str) -> Option<Given<String>> {
        let DeValue::String(text) = value.get_ref() else {
            self.refuse(&value.span(), format!("{name} is a text in quotes"));
            return None;
        };
        Some(Given { value: text.to_string(), origin: self.origin(&value.span()) })
    }

    fn boolean(&mut self, value: &Spanned<DeValue<'_>>, name: &str) -> Option<Given<bool>> {
        let DeValue::Boolean(boolean) = value.get_ref() else {
            self.refuse(&value.span(), format!("{name} is true or false"));
            return None;
        };
        Some(Given { value: *boolean, origin: self.origin(&value.span()) })
    }

    /// Properties: `a.b = 1` is a table in a table to TOML, and the property `a.b` to us.
    fn properties(&mut self, prefix: &str, table: &DeTable<'_>, written: &mut Written) {
        for (key, value) in table {
            let name = format!("{prefix}{}", key.get_ref());
            let text = match value.get_ref() {
                DeValue::Table(table) => {
                    self.properties(&format!("{name}."), table, written);
                    continue;
                }
                DeValue::String(text) => text.to_string(),
                DeValue::Integer(number) if number.radix() == 10 => number.as_str().to_owned(),
                DeValue::Float(number) => number.as_str().to_owned(),
                DeValue::Boolean(boolean) => boolean.to_string(),
                DeValue::Integer(_) | DeValue::Datetime(_) | DeValue::Array(_) => {
                    let message = format!("{name} is a text, a decimal number, true or false");
                    self.refuse(&value.span(), message);
                    continue;
                }
            };
            let origin = self.origin(&value.span());
            written.broker.insert(name, Given { value: text, origin });
        }
    }
}
