//! A request's parameters, from either encoding.
//!
//! ```text
//!   JSON                                      Query
//!   "MessageBody": "x"                        MessageBody=x
//!   "TagKeys": ["a", "b"]                     TagKey.1=a & TagKey.2=b
//!   "Tags": {"a": "b"}                        Tag.1.Key=a & Tag.1.Value=b
//!   "Entries": [{"Id": "a"}]                  DeleteMessageBatchRequestEntry.1.Id=a
//! ```
//!
//! So lists and maps have two names. Numbers in names need not follow each other, and a list of one
//! may lack its number. Taking a parameter takes it out: nothing of a large body is copied. A JSON
//! `null` is absent. Numbers and truth values where JSON should have texts are taken as texts, as
//! AWS does, and texts where it should have numbers are not.

use std::collections::BTreeMap;

use base64::Engine;
use base64::prelude::BASE64_STANDARD;
use serde_json::{Map, Value};

use super::malformed;
use crate::error::Error;
use crate::queue_name::QueueReference;

/// What AWS's parser says of an object that stands for something else; clients have seen it.
const UNEXPECTED_STRUCTURE: &str = "Start of structure or map found where not expected.";
const UNEXPECTED_LIST: &str = "Start of list found where not expected";
const UNEXPECTED_VALUE: &str = "Unexpected value type in payload";
const NO_INTEGER: &str = "STRING_VALUE can not be converted to an Integer";

/// The parameters of a request, or of a part of it.
pub(crate) struct Fields {
    source: Source,
    path_queue: Result<Option<QueueReference>, Error>,
}

enum Source {
    Json(Map<String, Value>),
    Query(Vec<(String, String)>),
}

/// The names of a map's keys and values in the Query encoding.
pub(crate) struct EntryNames {
    pub(crate) key: &'static str,
    pub(crate) value: &'static str,
}

/// Of attributes.
pub(crate) const NAME_VALUE: EntryNames = EntryNames { key: "Name", value: "Value" };
/// Of tags.
pub(crate) const KEY_VALUE: EntryNames = EntryNames { key: "Key", value: "Value" };

impl Fields {
    pub(super) fn json(object: Map<String, Value>) -> Fields {
        Fields { source: Source::Json(object), path_queue: Ok(None) }
    }

    pub(super) fn query(pairs: Vec<(String, String)>) -> Fields {
        Fields { source: Source::Query(pairs), path_queue: Ok(None) }
    }

    pub(super) fn set_path_queue(&mut self, queue: Result<Option<QueueReference>, Error>) {
        self.path_queue = queue;
    }

    /// The queue of `QueueUrl`, or else of the path.
    pub(crate) fn queue(&mut self) -> Result<QueueReference, Error> {
        match self.text("QueueUrl")? {
            Some(url) if !url.is_empty() => QueueReference::from_url(&url),
            _ => self.path_queue.clone()?.ok_or_else(|| Error::missing("QueueUrl")),
        }
    }

    pub(crate) fn text(&mut self, name: &str) -> Result<Option<String>, Error> {
        match &mut self.source {
            Source::Json(object) => object.remove(name).map_or(Ok(None), json_text),
            Source::Query(pairs) => Ok(take(pairs, name)),
        }
    }

    /// A text that must be there and not be empty.
    pub(crate) fn required(&mut self, name: &str) -> Result<String, Error> {
        let text = self.text(name)?.filter(|text| !text.is_empty());
        text.ok_or_else(|| Error::missing(name))
    }

    pub(crate) fn integer(&mut self, name: &str) -> Result<Option<i32>, Error> {
        match &mut self.source {
            Source::Json(object) => object.remove(name).map_or(Ok(None), json_integer),
            Source::Query(pairs) => match take(pairs, name) {
                None => Ok(None),
                Some(text) => text.parse().map(Some).map_err(|_| malformed(NO_INTEGER)),
            },
        }
    }

    /// Bytes, which both encodings have in base64.
    pub(crate) fn bytes(&mut self, name: &str) -> Result<Option<Vec<u8>>, Error> {
        let Some(text) = self.text(name)? else { return Ok(None) };
        let bytes = BASE64_STANDARD.decode(&text);
        bytes.map(Some).map_err(|_| malformed(format!("{name} is no base64.")))
    }

    /// Whether a list is there and has elements.
    pub(crate) fn has_list(&self, json: &str, query: &str) -> bool {
        match &self.source {
            Source::Json(object) => match object.get(json) {
                Some(Value::Array(list)) => !list.is_empty(),
                _ => false,
            },
            Source::Query(pairs) => {
                pairs.iter().any(|(name, _)| name == query || is_below(name, query))
            }
        }
    }

    pub(crate) fn texts(&mut self, json: &str, query: &str) -> Result<Vec<String>, Error> {
        match &mut self.source {
            Source::Json(object) => {
                let texts = json_list(object.remove(json))?.into_iter().map(json_text);
                texts.filter_map(Result::transpose).collect()
            }
            Source::Query(pairs) => {
                let elements = take_elements(pairs, query)?;
                Ok(elements.into_values().flat_map(|mut element| take(&mut element, "")).collect())
            }
        }
    }

    pub(crate) fn structures(&mut self, json: &str, query: &str) -> Result<Vec<Fields>, Error> {
        match &mut self.source {
            Source::Json(object) => {
                json_list(object.remove(json))?.into_iter().map(json_structure).collect()
            }
            Source::Query(pairs) => {
                let elements = take_elements(pairs, query)?;
                Ok(elements.into_values().map(Fields::query).collect())
            }
        }
    }

    /// A map from texts to texts. Of keys that come twice the last counts.
    pub(crate) fn map(
        &mut self,
        json: &str,
        query: &str,
        names: &EntryNames,
    ) -> Result<BTreeMap<String, String>, Error> {
        let mut map = BTreeMap::new();
        match &mut self.source {
            Source::Json(object) => {
                for (key, value) in json_map(object.remove(json))? {
                    if let Some(value) = json_text(value)? {
                        map.insert(key, value);
                    }
                }
            }
            Source::Query(pairs) => {
                for mut entry in take_elements(pairs, query)?.into_values() {
                    let key = take(&mut entry, names.key);
                    let key =
                        key.ok_or_else(|| Error::missing(&format!("{query}.{}", names.key)))?;
                    map.insert(key, take(&mut entry, names.value).unwrap_or_default());
                }
            }
        }
        Ok(map)
    }

    /// A map from texts to structures, as a list; keys are distinct.
    pub(crate) fn structure_map(
        &mut self,
        json: &str,
        query: &str,
    ) -> Result<Vec<(String, Fields)>, Error> {
        match &mut self.source {
            Source::Json(object) => {
                let entries = json_map(object.remove(json))?.into_iter();
                entries.map(|(key, value)| Ok((key, json_structure(value)?))).collect()
            }
            Source::Query(pairs) => {
                let mut map = BTreeMap::new();
                for mut entry in take_elements(pairs, query)?.into_values() {
                    let key = take(&mut entry, NAME_VALUE.key).unwrap_or_default();
                    map.insert(key, Fields::query(take_below(&mut entry, NAME_VALUE.value)));
                }
                Ok(map.into_iter().collect())
            }
        }
    }
}

fn json_text(value: Value) -> Result<Option<String>, Error> {
    match value {
        Value::Null => Ok(None),
        Value::String(text) => Ok(Some(text)),
        Value::Number(number) => Ok(Some(number.to_string())),
        Value::Bool(flag) => Ok(Some(flag.to_string())),
        Value::Object(_) => Err(malformed(UNEXPECTED_STRUCTURE)),
        Value::Array(_) => Err(malformed(UNEXPECTED_LIST)),
    }
}

fn json_integer(value: Value) -> Result<Option<i32>, Error> {
    let number = match value {
        Value::Null => return Ok(None),
        Value::Number(number) => number,
        Value::Object(_) => return Err(malformed(UNEXPECTED_STRUCTURE)),
        Value::Array(_) => return Err(malformed(UNEXPECTED_LIST)),
        Value::String(_) => return Err(malformed(NO_INTEGER)),
        Value::Bool(_) => return Err(malformed("TRUE_VALUE can not be converted to an Integer")),
    };
    let whole = number.as_i64().or_else(|| {
        let float = number.as_f64()?;
        // The cast saturates; the range of an i32 is checked below.
        (float.fract() == 0.0).then_some(float as i64)
    });
    let integer = whole.and_then(|whole| i32::try_from(whole).ok());
    integer.map(Some).ok_or_else(|| malformed(format!("{number} is no 32-bit integer")))
}

fn json_list(value: Option<Value>) -> Result<Vec<Value>, Error> {
    match value {
        None | Some(Value::Null) => Ok(Vec::new()),
        Some(Value::Array(list)) => Ok(list),
        Some(Value::Object(_)) => Err(malformed(UNEXPECTED_STRUCTURE)),
        Some(_) => Err(malformed(UNEXPECTED_VALUE)),
    }
}

fn json_map(value: Option<Value>) -> Result<Map<String, Value>, Error> {
    match value {
        None | Some(Value::Null) => Ok(Map::new()),
        Some(Value::Object(map)) => Ok(map),
        Some(Value::Array(_)) => Err(malformed(UNEXPECTED_LIST)),
        Some(_) => Err(malformed(UNEXPECTED_VALUE)),
    }
}

fn json_structure(value: Value) -> Result<Fields, Error> {
    json_map(Some(value)).map(Fields::json)
}

/// Takes the first value of this name.
fn take(pairs: &mut Vec<(String, String)>, name: &str) -> Option<String> {
    let index = pairs.iter().position(|(given, _)| given == name)?;
    Some(pairs.remove(index).1)
}

fn is_below(name: &str, prefix: &str) -> bool {
    name.strip_prefix(prefix).is_some_and(|rest| rest.starts_with('.'))
}

/// Takes everything below a name, without the name and the dot.
fn take_below(pairs: &mut Vec<(String, String)>, prefix: &str) -> Vec<(String, String)> {
    let mut below = Vec::new();
    for (mut name, value) in std::mem::take(pairs) {
        if is_below(&name, prefix) {
            name.drain(..=prefix.len());
            below.push((name, value));
        } else {
            pairs.push((name, value));
        }
    }
    below
}

type Elements = BTreeMap<u32, Vec<(String, String)>>;

/// Takes a list: what is below `list.1`, `list.2` and so on, by number. What has no number is the
/// first element (`AttributeName=All`, `Attribute.Name=…`), as in the oldest clients.
fn take_elements(pairs: &mut Vec<(String, String)>, list: &str) -> Result<Elements, Error> {
    let mut elements = Elements::new();
    if let Some(value) = take(pairs, list) {
        elements.entry(0).or_default().push((String::new(), value));
    }
    for (name, value) in take_below(pairs, list) {
        let (index, rest) = name.split_once('.').unwrap_or((&name, ""));
        if index.starts_with(|char: char| char.is_ascii_digit()) {
            let index = index.parse();
            let index =
                index.map_err(|_| malformed(format!("The elements of {list} have no numbers.")))?;
            elements.entry(index).or_default().push((rest.to_owned(), value));
        } else {
            elements.entry(0).or_default().push((name, value));
        }
    }
    Ok(elements)
}
