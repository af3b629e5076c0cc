//! Our schema files: what a message looks like on the wire, as one line per field.
//!
//! ```text
//! request FetchRequest api 1 versions 4-18 flexible 12+
//!   ClusterId string versions 12+ nullable 12+ tag 0 12+ default null ignorable
//!   Topics []FetchTopic versions 0+
//!     Topic string versions 0-12 entity topicName ignorable
//! ```
//!
//! Fields of a struct are indented below the first field that has it; a later field of the same
//! message that has it too just names it. Names and versions are those of Kafka.

use std::fmt::{self, Write};

use anyhow::{Context, Result, bail, ensure};

/// A range of versions, both ends included; empty if `first > last`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Versions {
    pub(crate) first: i16,
    pub(crate) last: i16,
}

impl Versions {
    pub(crate) const NONE: Self = Self { first: 0, last: -1 };

    pub(crate) fn parse(text: &str) -> Result<Self> {
        if text == "none" {
            return Ok(Self::NONE);
        }
        if let Some(first) = text.strip_suffix('+') {
            return Ok(Self { first: first.parse()?, last: i16::MAX });
        }
        let (first, last) = text.split_once('-').unwrap_or((text, text));
        Ok(Self { first: first.parse()?, last: last.parse()? })
    }

    pub(crate) fn is_empty(self) -> bool {
        self.last < self.first
    }

    pub(crate) fn and(self, other: Self) -> Self {
        Self { first: self.first.max(other.first), last: self.last.min(other.last) }
    }

    /// The smallest range that holds both.
    pub(crate) fn hull(self, other: Self) -> Self {
        if self.is_empty() {
            return other;
        }
        if other.is_empty() {
            return self;
        }
        Self { first: self.first.min(other.first), last: self.last.max(other.last) }
    }

    pub(crate) fn contains(self, version: i16) -> bool {
        self.first <= version && version <= self.last
    }
}

impl fmt::Display for Versions {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match *self {
            Self { first, last } if last < first => f.write_str("none"),
            Self { first, last: i16::MAX } => write!(f, "{first}+"),
            Self { first, last } if first == last => write!(f, "{first}"),
            Self { first, last } => write!(f, "{first}-{last}"),
        }
    }
}

/// A wire type.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Type {
    Bool,
    Int8,
    Int16,
    Uint16,
    Int32,
    Uint32,
    Int64,
    Float64,
    Uuid,
    String,
    Bytes,
    Records,
    Array(Box<Type>),
    /// By Kafka's name, which is unique in its message.
    Struct(String),
}

impl Type {
    pub(crate) fn parse(text: &str) -> Self {
        if let Some(element) = text.strip_prefix("[]") {
            return Self::Array(Box::new(Self::parse(element)));
        }
        match text {
            "bool" => Self::Bool,
            "int8" => Self::Int8,
            "int16" => Self::Int16,
            "uint16" => Self::Uint16,
            "int32" => Self::Int32,
            "uint32" => Self::Uint32,
            "int64" => Self::Int64,
            "float64" => Self::Float64,
            "uuid" => Self::Uuid,
            "string" => Self::String,
            "bytes" => Self::Bytes,
            "records" => Self::Records,
            name => Self::Struct(name.to_owned()),
        }
    }

    /// The struct in it, if it is one or an array of one.
    pub(crate) fn struct_name(&self) -> Option<&str> {
        match self {
            Self::Struct(name) => Some(name),
            Self::Array(element) => element.struct_name(),
            _ => None,
        }
    }
}

impl fmt::Display for Type {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Array(element) => write!(f, "[]{element}"),
            Self::Struct(name) => f.write_str(name),
            scalar => f.write_str(&format!("{scalar:?}").to_lowercase()),
        }
    }
}

/// A field of a message or struct.
#[derive(Clone, Debug)]
pub(crate) struct Field {
    pub(crate) name: String,
    pub(crate) kind: Type,
    pub(crate) versions: Versions,
    pub(crate) nullable: Versions,
    pub(crate) tag: Option<(u32, Versions)>,
    /// As written; `""` is the empty string, nothing is the type's own default.
    pub(crate) default: Option<String>,
    pub(crate) is_ignorable: bool,
    /// Encoded in the old way even in flexible versions (the client id of a request header).
    pub(crate) is_never_flexible: bool,
    pub(crate) is_key: bool,
    pub(crate) entity: Option<String>,
    /// Fields of the struct, where this field is the first to have it.
    pub(crate) fields: Vec<Field>,
}

/// What a message is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Role {
    Request,
    Response,
    Header,
    /// The content of an internal record or of an embedded protocol.
    Data,
}

impl Role {
    fn word(self) -> &'static str {
        match self {
            Self::Request => "request",
            Self::Response => "response",
            Self::Header => "header",
            Self::Data => "data",
        }
    }
}

/// A message.
#[derive(Clone, Debug)]
pub(crate) struct Message {
    pub(crate) role: Role,
    pub(crate) name: String,
    /// API key, or record type.
    pub(crate) api: Option<i16>,
    pub(crate) versions: Versions,
    pub(crate) flexible: Versions,
    pub(crate) fields: Vec<Field>,
}

/// Writes messages as a schema file.
pub(crate) fn print(messages: &[Message]) -> String {
    let mut out = String::new();
    for (i, message) in messages.iter().enumerate() {
        if 0 < i {
            out.push('\n');
        }
        let _ = write!(out, "{} {}", message.role.word(), message.name);
        if let Some(api) = message.api {
            let _ = write!(out, " api {api}");
        }
        let _ = writeln!(out, " versions {} flexible {}", message.versions, message.flexible);
        print_fields(&message.fields, 1, &mut out);
    }
    out
}

fn print_fields(fields: &[Field], depth: usize, out: &mut String) {
    for field in fields {
        let indent = 2 * depth;
        let _ =
            write!(out, "{:indent$}{} {} versions {}", "", field.name, field.kind, field.versions);
        if !field.nullable.is_empty() {
            let _ = write!(out, " nullable {}", field.nullable);
        }
        if let Some((tag, versions)) = field.tag {
            let _ = write!(out, " tag {tag} {versions}");
        }
        if let Some(default) = &field.default {
            let _ = write!(out, " default {default}");
        }
        if let Some(entity) = &field.entity {
            let _ = write!(out, " entity {entity}");
        }
        for (is_set, word) in [
            (field.is_ignorable, " ignorable"),
            (field.is_never_flexible, " never-flexible"),
            (field.is_key, " key"),
        ] {
            if is_set {
                out.push_str(word);
            }
        }
        out.push('\n');
        print_fields(&field.fields, depth + 1, out);
    }
}

/// Reads a schema file.
pub(crate) fn parse(text: &str) -> Result<Vec<Message>> {
    let mut messages: Vec<Message> = Vec::new();
    for (i, line) in text.lines().enumerate() {
        let content = line.trim_start();
        if content.is_empty() || content.starts_with('#') {
            continue;
        }
        let depth = (line.len() - content.len()) / 2;
        let words: Vec<&str> = content.split_whitespace().collect();
        let added = match depth {
            0 => parse_message(&words).map(|message| messages.push(message)),
            _ => parse_field(&words).and_then(|field| {
                let message = messages.last_mut().context("a field before any message")?;
                let mut fields = &mut message.fields;
                for _ in 1..depth {
                    fields = &mut fields.last_mut().context("indented too far")?.fields;
                }
                fields.push(field);
                Ok(())
            }),
        };
        added.with_context(|| format!("line {}: {content}", i + 1))?;
    }
    Ok(messages)
}

fn parse_message(words: &[&str]) -> Result<Message> {
    let [role, name, rest @ ..] = words else { bail!("a message has a role and a name") };
    let roles = [Role::Request, Role::Response, Role::Header, Role::Data];
    let role = roles.into_iter().find(|known| known.word() == *role).context("unknown role")?;
    let mut message = Message {
        role,
        name: (*name).to_owned(),
        api: None,
        versions: Versions::NONE,
        flexible: Versions::NONE,
        fields: Vec::new(),
    };
    ensure!(rest.len().is_multiple_of(2), "a word without its value");
    for pair in rest.chunks(2) {
        match pair[0] {
            "api" => message.api = Some(pair[1].parse()?),
            "versions" => message.versions = Versions::parse(pair[1])?,
            "flexible" => message.flexible = Versions::parse(pair[1])?,
            word => bail!("unknown word {word}"),
        }
    }
    ensure!(!message.versions.is_empty(), "a message has versions");
    Ok(message)
}

fn parse_field(words: &[&str]) -> Result<Field> {
    let [name, kind, rest @ ..] = words else { bail!("a field has a name and a type") };
    let mut field = Field {
        name: (*name).to_owned(),
        kind: Type::parse(kind),
        versions: Versions::NONE,
        nullable: Versions::NONE,
        tag: None,
        default: None,
        is_ignorable: false,
        is_never_flexible: false,
        is_key: false,
        entity: None,
        fields: Vec::new(),
    };
    let mut rest = rest.iter();
    while let Some(&word) = rest.next() {
        let mut value = || rest.next().copied().with_context(|| format!("{word} needs a value"));
        match word {
            "versions" => field.versions = Versions::parse(value()?)?,
            "nullable" => field.nullable = Versions::parse(value()?)?,
            "tag" => field.tag = Some((value()?.parse()?, Versions::parse(value()?)?)),
            "default" => field.default = Some(value()?.to_owned()),
            "entity" => field.entity = Some(value()?.to_owned()),
            "ignorable" => field.is_ignorable = true,
            "never-flexible" => field.is_never_flexible = true,
            "key" => field.is_key = true,
            _ => bail!("unknown word {word}"),
        }
    }
    ensure!(!field.versions.is_empty(), "a field has versions");
    Ok(field)
}
