//! Writes the reading of a struct: plain fields in order, then the tagged section.

use super::default::default_value;
use super::structs::{Emitter, condition, scalar_method};
use crate::protocol::layout::{Field, Flexible};
use crate::protocol::schema::Type;

impl Emitter<'_> {
    pub(super) fn decode_body(&self) -> String {
        let mut body = String::new();
        let (tagged, plain): (Vec<_>, Vec<_>) =
            self.item.fields.iter().partition(|field| field.tag.is_some());
        for field in &plain {
            let read = self.read(field);
            let value = match condition(field.versions, self.item.versions) {
                Some(condition) => {
                    format!("if {condition} {{ {read} }} else {{ {} }}", default_value(field))
                }
                None => read,
            };
            body += &format!("let {} = {value};\n", field.name);
        }
        for field in &tagged {
            body += &format!("let mut {} = {};\n", field.name, default_value(field));
        }
        body += &self.decode_tags(&tagged);
        body += "Ok(Self {";
        for field in &self.item.fields {
            body += &format!("{}, ", field.name);
        }
        body += "})\n";
        self.flexible_line(&body) + &body
    }

    fn decode_tags(&self, tagged: &[&Field]) -> String {
        if self.item.flexible() == Flexible::Never {
            return String::new();
        }
        let place = format!("\"{}\"", self.item.name);
        let section = if tagged.is_empty() {
            format!("d.tagged_fields({place}, |_, _| Ok(false))?;\n")
        } else {
            let mut arms = String::new();
            for field in tagged {
                // Within the tagged section of a flexible version: only what is newer asks.
                let context = self.flexible_versions();
                let guard = condition(field.versions, context)
                    .map(|condition| format!(" if {condition}"))
                    .unwrap_or_default();
                let tag = field.tag.unwrap_or_default();
                arms += &format!("{tag}{guard} => {} = {},\n", field.name, self.read(field));
            }
            format!(
                "d.tagged_fields({place}, |tag, d| {{\nmatch tag {{\n{arms}_ => return Ok(false),\n}}\nOk(true)\n}})?;\n"
            )
        };
        self.if_flexible(section)
    }

    fn read(&self, field: &Field) -> String {
        let path = self.field_path(field);
        let flexible = self.flexible(field);
        let nullable = self.nullable(field);
        match (&field.kind, field.is_optional()) {
            (Type::Array(element), false) => {
                let (size, read) = self.read_element(element, flexible, &path);
                format!("d.array({flexible}, {size}, {path}, {read})?")
            }
            (Type::Array(element), true) => {
                let (size, read) = self.read_element(element, flexible, &path);
                format!("d.nullable_array({flexible}, {nullable}, {size}, {path}, {read})?")
            }
            (Type::Struct(name), true) => {
                format!("d.nullable_struct({nullable}, {path}, |d| {name}::decode(version, d))?")
            }
            (Type::String, true) => format!("d.nullable_string({flexible}, {nullable}, {path})?"),
            (Type::Bytes, true) => format!("d.nullable_bytes({flexible}, {nullable}, {path})?"),
            (Type::Records, true) => format!("d.nullable_records({flexible}, {nullable}, {path})?"),
            (kind, _) => format!("{}?", read_plain(kind, flexible, &path)),
        }
    }

    fn read_element(&self, element: &Type, flexible: &str, path: &str) -> (String, String) {
        let size = match element {
            Type::Struct(name) => format!("{name}::size_min(version)"),
            Type::String => choose(flexible, "1", "2"),
            Type::Bytes | Type::Records | Type::Array(_) => choose(flexible, "1", "4"),
            Type::Bool | Type::Int8 => "1".to_owned(),
            Type::Int16 | Type::Uint16 => "2".to_owned(),
            Type::Int32 | Type::Uint32 => "4".to_owned(),
            Type::Int64 | Type::Float64 => "8".to_owned(),
            Type::Uuid => "16".to_owned(),
        };
        (size, format!("|d| {}", read_plain(element, flexible, path)))
    }
}

fn choose(flexible: &str, compact: &str, classic: &str) -> String {
    match flexible {
        "true" => compact.to_owned(),
        "false" => classic.to_owned(),
        other => format!("if {other} {{ {compact} }} else {{ {classic} }}"),
    }
}

fn read_plain(kind: &Type, flexible: &str, path: &str) -> String {
    match kind {
        Type::String => format!("d.string({flexible}, {path})"),
        Type::Bytes => format!("d.bytes({flexible}, {path})"),
        Type::Records => format!("d.records({flexible}, {path})"),
        Type::Struct(name) => format!("{name}::decode(version, d)"),
        scalar => format!("d.{}({path})", scalar_method(scalar)),
    }
}
