//! Writes structs and the frame of what they can do.
//!
//! Conditions on versions are written out where a struct can occur without the field, and nowhere
//! else; so the code of a struct that only exists in flexible versions has no trace of the others.

use std::fmt::Write;

use anyhow::{Context, Result};

use super::default::{default_value, is_plain_default};
use super::has_word;
use crate::protocol::layout::{Field, Flexible, Struct, Types};
use crate::protocol::schema::{Role, Type, Versions};

pub(super) struct Emitter<'t> {
    pub(super) types: &'t Types,
    pub(super) item: &'t Struct,
}

impl Emitter<'_> {
    pub(super) fn write(&self, out: &mut String) -> Result<()> {
        self.write_struct(out)?;
        self.write_default(out)?;
        match self.item.message {
            Some(role) => self.write_message(role, out),
            None => self.write_inner(out),
        }
    }

    fn lifetime(&self) -> &'static str {
        if self.item.borrows { "<'a>" } else { "" }
    }

    fn write_struct(&self, out: &mut String) -> Result<()> {
        let Struct { name, versions, message_name, .. } = self.item;
        match self.item.message {
            Some(Role::Request | Role::Response) => {
                let key = self.item.api_key.context("an API has a key")?;
                writeln!(out, "/// `{name}` (API {key}), versions {versions}.")?;
            }
            Some(_) => writeln!(out, "/// `{name}`, versions {versions}.")?,
            None => writeln!(out, "/// Inside [`{message_name}`], versions {versions}.")?,
        }
        let default = if self.has_plain_default() { ", Default" } else { "" };
        writeln!(out, "#[derive(Debug, Clone, PartialEq{default})]")?;
        writeln!(out, "pub struct {name}{} {{", self.lifetime())?;
        for field in &self.item.fields {
            writeln!(out, "/// {}.\npub {}: {},", field.note, field.name, self.field_type(field))?;
        }
        writeln!(out, "}}\n")?;
        Ok(())
    }

    fn field_type(&self, field: &Field) -> String {
        let kind = self.rust_type(&field.kind);
        if field.is_optional() { format!("Option<{kind}>") } else { kind }
    }

    fn rust_type(&self, kind: &Type) -> String {
        match kind {
            Type::Bool => "bool".to_owned(),
            Type::Int8 => "i8".to_owned(),
            Type::Int16 => "i16".to_owned(),
            Type::Uint16 => "u16".to_owned(),
            Type::Int32 => "i32".to_owned(),
            Type::Uint32 => "u32".to_owned(),
            Type::Int64 => "i64".to_owned(),
            Type::Float64 => "f64".to_owned(),
            Type::Uuid => "Uuid".to_owned(),
            Type::String => "&'a str".to_owned(),
            Type::Bytes => "&'a [u8]".to_owned(),
            Type::Records => "Blob<'a>".to_owned(),
            Type::Array(element) => format!("Vec<{}>", self.rust_type(element)),
            Type::Struct(name) if self.types.get(name).borrows => format!("{name}<'a>"),
            Type::Struct(name) => name.clone(),
        }
    }

    fn has_plain_default(&self) -> bool {
        self.item.fields.iter().all(is_plain_default)
    }

    fn write_default(&self, out: &mut String) -> Result<()> {
        if self.has_plain_default() {
            return Ok(());
        }
        let anonymous = if self.item.borrows { "<'_>" } else { "" };
        writeln!(
            out,
            "impl Default for {}{anonymous} {{\nfn default() -> Self {{\nSelf {{",
            self.item.name
        )?;
        for field in &self.item.fields {
            writeln!(out, "{}: {},", field.name, default_value(field))?;
        }
        writeln!(out, "}}\n}}\n}}\n")?;
        Ok(())
    }

    fn write_message(&self, role: Role, out: &mut String) -> Result<()> {
        let Struct { name, versions, first_flexible, .. } = self.item;
        writeln!(out, "impl<'a> Message<'a> for {name}{} {{", self.lifetime())?;
        writeln!(out, "const NAME: &'static str = \"{name}\";")?;
        writeln!(out, "const API_KEY: i16 = {};", self.item.api_key.unwrap_or(-1))?;
        writeln!(
            out,
            "const VERSIONS: RangeInclusive<i16> = {}..={};",
            versions.first, versions.last
        )?;
        writeln!(out, "const FIRST_FLEXIBLE: Option<i16> = {first_flexible:?};\n")?;
        writeln!(
            out,
            "fn decode(version: i16, d: &mut Decoder<'a>) -> Result<Self, DecodeError> {{"
        )?;
        writeln!(out, "check_decode::<Self>(version)?;\n{}}}\n", self.decode_body())?;
        writeln!(
            out,
            "fn encode(&self, version: i16, e: &mut Encoder) -> Result<(), EncodeError> {{"
        )?;
        writeln!(out, "check_encode::<Self>(version)?;\n{}}}\n}}\n", self.encode_body())?;
        if role == Role::Request {
            let response = name.replace("Request", "Response");
            let borrows = if self.types.get(&response).borrows { "<'r>" } else { "" };
            writeln!(out, "impl<'a> Request<'a> for {name}{} {{", self.lifetime())?;
            writeln!(out, "type Response<'r> = {response}{borrows};\n}}\n")?;
        }
        Ok(())
    }

    fn write_inner(&self, out: &mut String) -> Result<()> {
        let name = &self.item.name;
        let input = if self.item.borrows { "<'a>" } else { "<'_>" };
        let lifetime = self.lifetime();
        writeln!(out, "impl{lifetime} {name}{lifetime} {{")?;
        if self.item.is_element {
            self.write_size_min(out)?;
        }
        let body = self.decode_body();
        let version = version_parameter(&body);
        writeln!(
            out,
            "pub(crate) fn decode({version}: i16, d: &mut Decoder{input}) -> Result<Self, DecodeError> {{\n{body}}}\n"
        )?;
        let body = self.encode_body();
        let version = version_parameter(&body);
        writeln!(
            out,
            "pub(crate) fn encode(&self, {version}: i16, e: &mut Encoder) -> Result<(), EncodeError> {{\n{body}}}\n}}\n"
        )?;
        Ok(())
    }

    fn write_size_min(&self, out: &mut String) -> Result<()> {
        let Versions { first, last } = self.item.versions;
        let mut runs: Vec<(i16, i16, usize)> = Vec::new();
        for version in first..=last {
            let size = self.types.size_min(self.item, version);
            match runs.last_mut() {
                Some((_, end, same)) if *same == size => *end = version,
                _ => runs.push((version, version, size)),
            }
        }
        writeln!(out, "/// Fewest bytes it takes on the wire.")?;
        if let [(_, _, size)] = runs.as_slice() {
            writeln!(out, "pub(crate) const fn size_min(_version: i16) -> usize {{ {size} }}\n")?;
            return Ok(());
        }
        writeln!(out, "pub(crate) const fn size_min(version: i16) -> usize {{\nmatch version {{")?;
        let final_run = runs.len() - 1;
        for (i, (start, end, size)) in runs.into_iter().enumerate() {
            match i == final_run {
                true => writeln!(out, "_ => {size},")?,
                false if start == end => writeln!(out, "{start} => {size},")?,
                false => writeln!(out, "{start}..={end} => {size},")?,
            }
        }
        writeln!(out, "}}\n}}\n")?;
        Ok(())
    }

    /// `let flexible = …` where that depends on the version, unless `body` does not ask.
    pub(super) fn flexible_line(&self, body: &str) -> String {
        match self.item.flexible() {
            Flexible::From(first) if has_word(body, "flexible") => {
                format!("let flexible = version >= {first};\n")
            }
            _ => String::new(),
        }
    }

    pub(super) fn flexible(&self, field: &Field) -> &'static str {
        match self.item.flexible() {
            _ if field.is_never_flexible => "false",
            // A field that only occurs in flexible versions, or only in others, need not ask.
            Flexible::From(first) if first <= field.versions.first => "true",
            Flexible::From(first) if field.versions.last < first => "false",
            Flexible::From(_) => "flexible",
            Flexible::Always => "true",
            Flexible::Never => "false",
        }
    }

    pub(super) fn field_path(&self, field: &Field) -> String {
        format!("\"{}.{}\"", self.item.name, field.name)
    }

    /// Whether the field is null-able, as an expression, where the field is there.
    pub(super) fn nullable(&self, field: &Field) -> String {
        condition(field.nullable, field.versions).unwrap_or_else(|| "true".to_owned())
    }

    pub(super) fn flexible_versions(&self) -> Versions {
        match self.item.flexible() {
            Flexible::From(first) => Versions { first, ..self.item.versions },
            _ => self.item.versions,
        }
    }

    pub(super) fn if_flexible(&self, section: String) -> String {
        match self.item.flexible() {
            Flexible::Always => section,
            Flexible::From(_) => format!("if flexible {{\n{section}}}\n"),
            Flexible::Never => String::new(),
        }
    }
}

/// The condition under which something with `versions` is there, unless that is always so in
/// `context`.
pub(crate) fn condition(versions: Versions, context: Versions) -> Option<String> {
    let from = context.first < versions.first;
    let until = versions.last < context.last;
    let Versions { first, last } = versions;
    match (from, until) {
        (false, false) => None,
        _ if first == last => Some(format!("version == {first}")),
        (true, false) => Some(format!("version >= {first}")),
        (false, true) => Some(format!("version <= {last}")),
        (true, true) => Some(format!("({first}..={last}).contains(&version)")),
    }
}

/// `_version` where the body does not look at it.
fn version_parameter(body: &str) -> &'static str {
    if has_word(body, "version") { "version" } else { "_version" }
}

/// The method of the codec, which both directions call alike.
pub(super) fn scalar_method(kind: &Type) -> &'static str {
    match kind {
        Type::Bool => "bool",
        Type::Int8 => "i8",
        Type::Int16 => "i16",
        Type::Uint16 => "u16",
        Type::Int32 => "i32",
        Type::Uint32 => "u32",
        Type::Int64 => "i64",
        Type::Float64 => "f64",
        Type::Uuid => "uuid",
        Type::String | Type::Bytes | Type::Records | Type::Array(_) | Type::Struct(_) => {
            unreachable!("{kind} is no scalar")
        }
    }
}
