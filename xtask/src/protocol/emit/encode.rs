//! Writes the writing of a struct, and the refusal of fields that a version does not have.

use super::default::differs_from_default;
use super::structs::{Emitter, condition, scalar_method};
use crate::protocol::layout::{Field, Flexible};
use crate::protocol::schema::Type;

impl Emitter<'_> {
    pub(super) fn encode_body(&self) -> String {
        let mut body = String::new();
        for field in self.item.fields.iter().filter(|field| field.tag.is_none()) {
            let write = self.write_field(field);
            match condition(field.versions, self.item.versions) {
                None => body += &write,
                Some(condition) => {
                    body += &format!("if {condition} {{\n{write}}}{}", self.refuse(field));
                }
            }
        }
        let tagged: Vec<_> = self.item.fields.iter().filter(|field| field.tag.is_some()).collect();
        body += &self.encode_tags(&tagged);
        body += "Ok(())\n";
        self.flexible_line(&body) + &body
    }

    /// What follows the `if` around a field that some versions do not have.
    fn refuse(&self, field: &Field) -> String {
        if field.is_ignorable {
            return "\n".to_owned();
        }
        format!(
            " else if {} {{\nreturn Err(EncodeError::FieldNotInVersion {{ field: {}, version }});\n}}\n",
            differs_from_default(field),
            self.field_path(field),
        )
    }

    fn encode_tags(&self, tagged: &[&Field]) -> String {
        if self.item.flexible() == Flexible::Never {
            return String::new();
        }
        let context = self.flexible_versions();
        let mut tagged = tagged.to_vec();
        tagged.sort_by_key(|field| field.tag);
        let mut refusals = String::new();
        for field in tagged.iter().filter(|field| !field.is_ignorable) {
            if let Some(present) = condition(field.versions, self.item.versions) {
                refusals += &format!(
                    "if {} && {} {{\nreturn Err(EncodeError::FieldNotInVersion {{ field: {}, version }});\n}}\n",
                    negate(&present),
                    differs_from_default(field),
                    self.field_path(field),
                );
            }
        }
        if tagged.is_empty() {
            return self.if_flexible("e.uvarint(0);\n".to_owned());
        }
        let mut section = String::new();
        let mut names = Vec::new();
        for field in &tagged {
            let set = differs_from_default(field);
            let set = match condition(field.versions, context) {
                Some(condition) => format!("{condition} && {set}"),
                None => set,
            };
            section += &format!("let has_{} = {set};\n", field.name);
            names.push(format!("u32::from(has_{})", field.name));
        }
        section += &format!("e.uvarint({});\n", names.join(" + "));
        for field in &tagged {
            let tag = field.tag.unwrap_or_default();
            let mut write = self.write_field(field);
            match write.strip_suffix("?;\n") {
                Some(result) => write = result.to_owned(),
                None => write += "Ok(())",
            }
            section += &format!(
                "if has_{} {{\ne.tagged_field({tag}, {}, |e| {{ {write} }})?;\n}}\n",
                field.name,
                self.field_path(field),
            );
        }
        refusals + &self.if_flexible(section)
    }

    fn write_field(&self, field: &Field) -> String {
        let path = self.field_path(field);
        let flexible = self.flexible(field);
        let nullable = self.nullable(field);
        let value = format!("self.{}", field.name);
        match (&field.kind, field.is_optional()) {
            (Type::Array(element), false) => {
                let write = write_element(element, flexible, &path);
                format!("e.array({flexible}, &{value}, {path}, {write})?;\n")
            }
            (Type::Array(element), true) => {
                let write = write_element(element, flexible, &path);
                format!(
                    "e.nullable_array({flexible}, {nullable}, {value}.as_deref(), {path}, {write})?;\n"
                )
            }
            (Type::Struct(_), true) => {
                format!(
                    "e.nullable_struct({nullable}, {value}.as_ref(), {path}, |e, x| x.encode(version, e))?;\n"
                )
            }
            (Type::Struct(_), false) => format!("{value}.encode(version, e)?;\n"),
            (Type::String, false) => format!("e.string({flexible}, {value}, {path})?;\n"),
            (Type::String, true) => {
                format!("e.nullable_string({flexible}, {nullable}, {value}, {path})?;\n")
            }
            (Type::Bytes, false) => format!("e.bytes({flexible}, {value}, {path})?;\n"),
            (Type::Bytes, true) => {
                format!("e.nullable_bytes({flexible}, {nullable}, {value}, {path})?;\n")
            }
            (Type::Records, false) => format!("e.records({flexible}, {value}, {path})?;\n"),
            (Type::Records, true) => {
                format!("e.nullable_records({flexible}, {nullable}, {value}, {path})?;\n")
            }
            (scalar, _) => format!("e.{}({value});\n", scalar_method(scalar)),
        }
    }
}

/// A condition made by [`condition`], the other way round.
fn negate(condition: &str) -> String {
    for (is, is_not) in [(">=", "<"), ("<=", ">"), ("==", "!=")] {
        if let Some(number) = condition.strip_prefix(&format!("version {is} ")) {
            return format!("version {is_not} {number}");
        }
    }
    format!("!{condition}")
}

fn write_element(kind: &Type, flexible: &str, path: &str) -> String {
    match kind {
        Type::String => format!("|e, x| e.string({flexible}, x, {path})"),
        Type::Bytes => format!("|e, x| e.bytes({flexible}, x, {path})"),
        Type::Records => format!("|e, x| e.records({flexible}, *x, {path})"),
        Type::Struct(_) => "|e, x| x.encode(version, e)".to_owned(),
        scalar => format!("|e, x| {{ e.{}(*x); Ok(()) }}", scalar_method(scalar)),
    }
}
