//! What a field is before anyone sets it, and how to see that someone has.

use crate::protocol::layout::Field;
use crate::protocol::schema::Type;

/// Whether the default is what `Default` gives the field's type.
pub(super) fn is_plain_default(field: &Field) -> bool {
    matches!(default_value(field).as_str(), "None" | "0" | "false" | "\"\"" | "&[]" | "0.0")
        || (!field.is_optional()
            && match &field.kind {
                Type::Array(_) | Type::Struct(_) | Type::Records => true,
                Type::Uuid => field.default.is_none(),
                _ => false,
            })
}

pub(super) fn default_value(field: &Field) -> String {
    if field.default.as_deref() == Some("null") {
        return "None".to_owned();
    }
    // As in Kafka: records are null unless said otherwise, anything else is empty.
    if field.kind == Type::Records && field.is_optional() {
        return "None".to_owned();
    }
    let value = match (&field.kind, &field.default) {
        (Type::Bool, default) => default.as_deref().unwrap_or("false").to_lowercase(),
        (Type::String, default) => format!("{:?}", default.as_deref().unwrap_or_default()),
        (Type::Bytes, _) => "&[]".to_owned(),
        (Type::Records, _) => "Blob::default()".to_owned(),
        (Type::Uuid, _) => "Uuid::ZERO".to_owned(),
        (Type::Array(_), _) => "Vec::new()".to_owned(),
        (Type::Struct(name), _) => format!("{name}::default()"),
        (Type::Float64, default) => default.clone().unwrap_or_else(|| "0.0".to_owned()),
        (_, default) => number(default.as_deref().unwrap_or("0")),
    };
    // The extra `&[][..]` gives a null-able empty slice its type.
    match (&field.kind, field.is_optional()) {
        (Type::Bytes, true) => "Some(&[][..])".to_owned(),
        (_, true) => format!("Some({value})"),
        (_, false) => value,
    }
}

/// A number as Rust writes it, with its extremes by name.
fn number(text: &str) -> String {
    match text {
        "0x7fffffff" | "2147483647" => "i32::MAX".to_owned(),
        "-2147483648" => "i32::MIN".to_owned(),
        "9223372036854775807" => "i64::MAX".to_owned(),
        other => other.to_owned(),
    }
}

pub(super) fn differs_from_default(field: &Field) -> String {
    let value = format!("self.{}", field.name);
    let default = default_value(field);
    match (&field.kind, default.as_str()) {
        (_, "None") => format!("{value}.is_some()"),
        (Type::Array(_), "Vec::new()") | (_, "\"\"" | "&[]") => format!("!{value}.is_empty()"),
        (Type::Array(_), _) => format!("{value}.as_ref().is_none_or(|x| !x.is_empty())"),
        (Type::Bool, "false") => value,
        (Type::Bool, "true") => format!("!{value}"),
        _ => format!("{value} != {default}"),
    }
}
