//! `-f '%k\t%v\n'`: records to text, and lines of text to records.
//!
//! ```text
//!   %k key   %v value   %t topic   %p partition   %o offset   %T timestamp   %h headers   %% percent
//!   \n \t \r \0 \\
//! ```
//!
//! Headers are `name=value`, separated by commas. Timestamps are RFC 3339 on the way out; on the way
//! in, milliseconds are understood too. An absent key or value is written as nothing.

use towpath_client::{OutgoingRecord, Record, Timestamp};

use crate::when::{When, format_millis, parse_when};

/// A parsed format.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct RecordFormat {
    parts: Vec<Part>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
enum Part {
    Text(Vec<u8>),
    Field(Field),
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Field {
    Key,
    Value,
    Topic,
    Partition,
    Offset,
    Timestamp,
    Headers,
}

/// Reads a format; the errors are for people.
pub(crate) fn parse_record_format(text: &str) -> Result<RecordFormat, String> {
    let mut parts = Vec::new();
    let mut literal = Vec::new();
    let mut chars = text.chars();
    while let Some(c) = chars.next() {
        let field = match c {
            '%' => match chars.next() {
                Some('k') => Field::Key,
                Some('v') => Field::Value,
                Some('t') => Field::Topic,
                Some('p') => Field::Partition,
                Some('o') => Field::Offset,
                Some('T') => Field::Timestamp,
                Some('h') => Field::Headers,
                Some('%') => {
                    literal.push(b'%');
                    continue;
                }
                other => {
                    let found = other.map(String::from).unwrap_or_default();
                    return Err(format!("%{found} is no field: there are %k %v %t %p %o %T %h %%"));
                }
            },
            '\\' => {
                literal.push(match chars.next() {
                    Some('n') => b'\n',
                    Some('t') => b'\t',
                    Some('r') => b'\r',
                    Some('0') => 0,
                    Some('\\') => b'\\',
                    other => {
                        let found = other.map(String::from).unwrap_or_default();
                        return Err(format!(
                            "\\{found} is unknown: there are \\n \\t \\r \\0 \\\\"
                        ));
                    }
                });
                continue;
            }
            c => {
                literal.extend(c.encode_utf8(&mut [0; 4]).bytes());
                continue;
            }
        };
        if !literal.is_empty() {
            parts.push(Part::Text(std::mem::take(&mut literal)));
        }
        parts.push(Part::Field(field));
    }
    if !literal.is_empty() {
        parts.push(Part::Text(literal));
    }
    Ok(RecordFormat { parts })
}

impl RecordFormat {
    /// Appends the record's text to `out`.
    pub(crate) fn write(&self, record: &Record, out: &mut Vec<u8>) {
        for part in &self.parts {
            match part {
                Part::Text(text) => out.extend_from_slice(text),
                Part::Field(field) => write_field(*field, record, out),
            }
        }
    }

    /// Reads one line, without its newline, into `record`.
    pub(crate) fn read(&self, line: &[u8], record: &mut OutgoingRecord) -> Result<(), String> {
        let mut parts = self.parts.as_slice();
        // The newline at the end of the format is what separated the lines.
        let newline = Part::Text(b"\n".to_vec());
        if let [front @ .., last] = parts
            && *last == newline
        {
            parts = front;
        }
        let mut rest = line;
        while let Some((part, after)) = parts.split_first() {
            parts = after;
            match part {
                Part::Text(text) => {
                    let trimmed =
                        text.strip_suffix(b"\n").filter(|_| parts.is_empty()).unwrap_or(text);
                    rest = rest.strip_prefix(trimmed).ok_or_else(|| mismatch(line, text))?;
                }
                Part::Field(field) => {
                    let end = match parts.first() {
                        None => rest.len(),
                        Some(Part::Field(_)) => {
                            return Err("two fields need a text between them".to_owned());
                        }
                        Some(Part::Text(text)) => {
                            let text = text.strip_suffix(b"\n").unwrap_or(text);
                            find(rest, text).ok_or_else(|| mismatch(line, text))?
                        }
                    };
                    read_field(*field, &rest[..end], record)?;
                    rest = &rest[end..];
                }
            }
        }
        if rest.is_empty() { Ok(()) } else { Err(mismatch(line, b"the end")) }
    }
}

fn write_field(field: Field, record: &Record, out: &mut Vec<u8>) {
    match field {
        Field::Key => out.extend_from_slice(record.key.as_deref().unwrap_or_default()),
        Field::Value => out.extend_from_slice(record.value.as_deref().unwrap_or_default()),
        Field::Topic => out.extend_from_slice(record.topic.as_bytes()),
        Field::Partition => out.extend_from_slice(record.partition.to_string().as_bytes()),
        Field::Offset => out.extend_from_slice(record.offset.to_string().as_bytes()),
        Field::Timestamp => out.extend_from_slice(format_millis(record.timestamp.0).as_bytes()),
        Field::Headers => {
            for (at, header) in record.headers.iter().enumerate() {
                if at > 0 {
                    out.push(b',');
                }
                out.extend_from_slice(header.key.as_bytes());
                out.push(b'=');
                out.extend_from_slice(header.value.as_deref().unwrap_or_default());
            }
        }
    }
}

fn read_field(field: Field, bytes: &[u8], record: &mut OutgoingRecord) -> Result<(), String> {
    let text = || std::str::from_utf8(bytes).map_err(|_| "a field is not UTF-8".to_owned());
    match field {
        Field::Key => record.key = (!bytes.is_empty()).then(|| bytes.to_vec().into()),
        Field::Value => record.value = Some(bytes.to_vec().into()),
        Field::Topic => record.topic = text()?.into(),
        Field::Partition => {
            let partition =
                text()?.parse().map_err(|_| "a partition is not a number".to_owned())?;
            *record = record.clone().partition(partition);
        }
        Field::Timestamp => record.timestamp = Some(parse_timestamp(text()?)?),
        Field::Headers => {
            for header in text()?.split(',').filter(|header| !header.is_empty()) {
                let (name, value) = header
                    .split_once('=')
                    .ok_or_else(|| format!("{header:?} is no header: write name=value"))?;
                *record = record.clone().header(name, value.as_bytes().to_vec());
            }
        }
        Field::Offset => return Err("%o is chosen by the server: it cannot be sent".to_owned()),
    }
    Ok(())
}

/// A timestamp: milliseconds since 1970, or RFC 3339.
pub(crate) fn parse_timestamp(text: &str) -> Result<Timestamp, String> {
    if let Ok(millis) = text.parse() {
        return Ok(Timestamp(millis));
    }
    match parse_when(text) {
        Ok(When::At(millis)) => Ok(Timestamp(millis)),
        _ => Err(format!("{text:?} is no timestamp: write milliseconds or RFC 3339")),
    }
}

fn find(bytes: &[u8], text: &[u8]) -> Option<usize> {
    if text.is_empty() {
        return Some(bytes.len());
    }
    bytes.windows(text.len()).position(|window| window == text)
}

fn mismatch(line: &[u8], wanted: &[u8]) -> String {
    let wanted = String::from_utf8_lossy(wanted);
    format!(
        "line {:?} does not fit the format: {wanted:?} is missing",
        String::from_utf8_lossy(line)
    )
}

#[cfg(test)]
mod tests {
    use towpath_client::{Header, Offset, PartitionIndex};

    use super::*;

    fn record() -> Record {
        Record {
            topic: "t".into(),
            partition: PartitionIndex(3),
            offset: Offset(42),
            timestamp: Timestamp(0),
            leader_epoch: None,
            key: Some("k".into()),
            value: Some("v".into()),
            headers: vec![
                Header { key: "a".into(), value: Some("1".into()) },
                Header { key: "b".into(), value: None },
            ],
        }
    }

    #[test]
    fn every_field_can_be_written() {
        let format = parse_record_format(r"%t-%p@%o %T %k=%v [%h] 100%%\n").unwrap();
        let mut out = Vec::new();
        format.write(&record(), &mut out);
        let text = String::from_utf8(out).unwrap();
        assert_eq!(text, "t-3@42 1970-01-01T00:00:00.000Z k=v [a=1,b=] 100%\n");
    }

    #[test]
    fn lines_are_read_by_the_same_format() {
        for format in [r"%k\t%v\n", r"%k\t%v"] {
            let mut got = OutgoingRecord::new("t", "");
            parse_record_format(format).unwrap().read(b"key\tva\tlue", &mut got).unwrap();
            assert_eq!(got.key.unwrap(), "key");
            assert_eq!(got.value.unwrap(), "va\tlue");
        }
        let mut got = OutgoingRecord::new("t", "");
        let format = parse_record_format(r"%p [%h] %T: %v;\n").unwrap();
        format.read(b"2 [a=1,b=2] 77: x;", &mut got).unwrap();
        assert_eq!((got.partition.unwrap().0, got.headers.len()), (2, 2));
        assert_eq!((got.timestamp.unwrap().0, &got.value.unwrap()[..]), (77, &b"x"[..]));
    }

    #[test]
    fn what_does_not_fit_is_refused() {
        let mut got = OutgoingRecord::new("t", "");
        let tabbed = parse_record_format(r"%k\t%v\n").unwrap();
        assert!(tabbed.read(b"no tab", &mut got).is_err());
        assert!(parse_record_format("%k%v").unwrap().read(b"x", &mut got).is_err());
        assert!(parse_record_format("%o").unwrap().read(b"1", &mut got).is_err());
        assert!(parse_record_format("%z").is_err());
        assert!(parse_record_format("%").is_err());
        assert!(parse_record_format(r"\q").is_err());
    }
}
