//! What a schema means in Rust: names, types, and which versions can reach each struct.

use std::collections::BTreeMap;

use anyhow::{Context, Result, bail, ensure};

use super::Api;
use super::schema::{self, Message, Role, Type, Versions};

/// A struct to generate; the outermost of a message or one inside it.
pub(crate) struct Struct {
    /// Name of the schema file it comes from.
    pub(crate) api: String,
    pub(crate) name: String,
    /// Set if it is a message.
    pub(crate) message: Option<Role>,
    pub(crate) api_key: Option<i16>,
    /// Name of the message that it is, or is in.
    pub(crate) message_name: String,
    /// The versions in which it can occur. Conditions below it take these for granted.
    pub(crate) versions: Versions,
    pub(crate) first_flexible: Option<i16>,
    pub(crate) fields: Vec<Field>,
    /// Whether it borrows from the input.
    pub(crate) borrows: bool,
    /// Whether it is an element of an array.
    pub(crate) is_element: bool,
}

/// A field of a struct to generate.
pub(crate) struct Field {
    pub(crate) name: String,
    /// Structs in it are called by their Rust names.
    pub(crate) kind: Type,
    /// Within the versions of its struct.
    pub(crate) versions: Versions,
    pub(crate) nullable: Versions,
    pub(crate) tag: Option<u32>,
    pub(crate) default: Option<String>,
    pub(crate) is_ignorable: bool,
    pub(crate) is_never_flexible: bool,
    pub(crate) note: String,
}

impl Field {
    pub(crate) fn is_optional(&self) -> bool {
        !self.nullable.is_empty()
    }
}

impl Struct {
    /// Whether it is flexible in all, none or some of its versions.
    pub(crate) fn flexible(&self) -> Flexible {
        match self.first_flexible {
            Some(first) if first <= self.versions.first => Flexible::Always,
            Some(first) if first <= self.versions.last => Flexible::From(first),
            _ => Flexible::Never,
        }
    }
}

#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Flexible {
    Always,
    From(i16),
    Never,
}

impl Flexible {
    pub(crate) fn at(self, version: i16) -> bool {
        match self {
            Self::Always => true,
            Self::From(first) => first <= version,
            Self::Never => false,
        }
    }
}

/// All structs, in the order in which they are written.
pub(crate) struct Types {
    pub(crate) structs: Vec<Struct>,
    by_name: BTreeMap<String, usize>,
}

impl Types {
    pub(crate) fn of(apis: &[Api]) -> Result<Self> {
        let names = rust_names(apis);
        let mut structs = Vec::new();
        for api in apis {
            for message in &api.messages {
                let definitions = definitions(message)?;
                let mut contexts = BTreeMap::new();
                find_contexts(&message.fields, message.versions, &definitions, &mut contexts);
                let within = Within { api: &api.name, message, names: &names };
                structs.push(within.layout(None, message.versions, &message.fields)?);
                for (kafka_name, fields) in in_order(&message.fields) {
                    let context = contexts[kafka_name];
                    if !context.is_empty() {
                        structs.push(within.layout(Some(kafka_name), context, fields)?);
                    }
                }
            }
        }
        let mut types = Self { by_name: BTreeMap::new(), structs };
        for (i, item) in types.structs.iter().enumerate() {
            let earlier = types.by_name.insert(item.name.clone(), i);
            ensure!(earlier.is_none(), "two structs are called {}", item.name);
        }
        types.find_borrows();
        types.find_elements();
        Ok(types)
    }

    pub(crate) fn get(&self, name: &str) -> &Struct {
        &self.structs[self.by_name[name]]
    }

    pub(crate) fn borrows(&self, kind: &Type) -> bool {
        match kind {
            Type::String | Type::Bytes | Type::Records => true,
            Type::Array(element) => self.borrows(element),
            Type::Struct(name) => self.get(name).borrows,
            _ => false,
        }
    }

    /// Structs contain each other without cycles, so this ends after as many rounds as they nest
    /// deep.
    fn find_borrows(&mut self) {
        loop {
            let found: Vec<usize> = (0..self.structs.len())
                .filter(|&i| !self.structs[i].borrows)
                .filter(|&i| self.structs[i].fields.iter().any(|field| self.borrows(&field.kind)))
                .collect();
            if found.is_empty() {
                return;
            }
            for i in found {
                self.structs[i].borrows = true;
            }
        }
    }

    fn find_elements(&mut self) {
        let mut elements = Vec::new();
        for field in self.structs.iter().flat_map(|item| &item.fields) {
            if let Type::Array(element) = &field.kind
                && let Type::Struct(name) = &**element
            {
                elements.push(self.by_name[name]);
            }
        }
        for i in elements {
            self.structs[i].is_element = true;
        }
    }

    /// Fewest bytes a struct takes at a version.
    pub(crate) fn size_min(&self, item: &Struct, version: i16) -> usize {
        let flexible = item.flexible().at(version);
        let present = item.fields.iter().filter(|field| field.versions.contains(version));
        let fields: usize = present
            .filter(|field| field.tag.is_none())
            .map(|field| match &field.kind {
                Type::Struct(_) if field.nullable.contains(version) => 1,
                kind => self.kind_size_min(kind, flexible && !field.is_never_flexible, version),
            })
            .sum();
        fields + usize::from(flexible)
    }

    fn kind_size_min(&self, kind: &Type, flexible: bool, version: i16) -> usize {
        match kind {
            Type::Bool | Type::Int8 => 1,
            Type::Int16 | Type::Uint16 => 2,
            Type::Int32 | Type::Uint32 => 4,
            Type::Int64 | Type::Float64 => 8,
            Type::Uuid => 16,
            Type::String | Type::Bytes | Type::Records | Type::Array(_) if flexible => 1,
            Type::String => 2,
            Type::Bytes | Type::Records | Type::Array(_) => 4,
            Type::Struct(name) => self.size_min(self.get(name), version),
        }
    }
}

/// Rust names of the structs inside messages, by (message, Kafka's name). A name that more than one
/// message uses gets the message's in front.
fn rust_names(apis: &[Api]) -> BTreeMap<(String, String), String> {
    let messages = || apis.iter().flat_map(|api| &api.messages);
    let mut uses: BTreeMap<&str, usize> = BTreeMap::new();
    for message in messages() {
        *uses.entry(&message.name).or_default() += 1;
        for (name, _) in in_order(&message.fields) {
            *uses.entry(name).or_default() += 1;
        }
    }
    let mut names = BTreeMap::new();
    for message in messages() {
        for (name, _) in in_order(&message.fields) {
            let rust_name =
                if uses[name] == 1 { name.to_owned() } else { format!("{}{name}", message.name) };
            names.insert((message.name.clone(), name.to_owned()), rust_name);
        }
    }
    names
}

/// Structs that the fields describe, outer before inner.
fn in_order(fields: &[schema::Field]) -> Vec<(&str, &[schema::Field])> {
    let mut found = Vec::new();
    for field in fields {
        if field.fields.is_empty() {
            continue;
        }
        if let Some(name) = field.kind.struct_name() {
            found.push((name, field.fields.as_slice()));
            found.extend(in_order(&field.fields));
        }
    }
    found
}

fn definitions(message: &Message) -> Result<BTreeMap<&str, &[schema::Field]>> {
    let mut definitions = BTreeMap::new();
    for (name, fields) in in_order(&message.fields) {
        if definitions.insert(name, fields).is_some() {
            bail!("{} describes {name} twice", message.name);
        }
    }
    Ok(definitions)
}

fn find_contexts<'m>(
    fields: &'m [schema::Field],
    context: Versions,
    definitions: &BTreeMap<&'m str, &'m [schema::Field]>,
    found: &mut BTreeMap<&'m str, Versions>,
) {
    for field in fields {
        let Some(name) = field.kind.struct_name() else { continue };
        let reach = field.versions.and(context);
        let known = found.entry(name).or_insert(Versions::NONE);
        *known = known.hull(reach);
        if let Some(inner) = definitions.get(name) {
            find_contexts(inner, reach, definitions, found);
        }
    }
}

/// The message whose structs are being laid out.
struct Within<'m> {
    api: &'m str,
    message: &'m Message,
    names: &'m BTreeMap<(String, String), String>,
}

impl Within<'_> {
    fn layout(
        &self,
        kafka_name: Option<&str>,
        versions: Versions,
        fields: &[schema::Field],
    ) -> Result<Struct> {
        let message = self.message;
        let is_reachable = |field: &&schema::Field| !field.versions.and(versions).is_empty();
        let fields = fields
            .iter()
            .filter(is_reachable)
            .map(|field| self.field(field, versions))
            .collect::<Result<_>>()?;
        let name = match kafka_name {
            Some(inner) => self.names[&(message.name.clone(), inner.to_owned())].clone(),
            None => message.name.clone(),
        };
        let flexible = message.flexible.and(message.versions);
        Ok(Struct {
            api: self.api.to_owned(),
            name,
            message: kafka_name.is_none().then_some(message.role),
            api_key: message.api,
            message_name: message.name.clone(),
            versions,
            first_flexible: (!flexible.is_empty()).then_some(flexible.first),
            fields,
            borrows: false,
            is_element: false,
        })
    }

    fn field(&self, field: &schema::Field, context: Versions) -> Result<Field> {
        let versions = field.versions.and(context);
        if let Some((_, tagged)) = field.tag {
            ensure!(tagged.and(context) == versions, "{} is tagged only at times", field.name);
        }
        Ok(Field {
            name: field_name(&field.name),
            kind: self.kind(&field.kind)?,
            versions,
            nullable: field.nullable.and(versions),
            tag: field.tag.map(|(tag, _)| tag),
            default: field.default.clone().filter(|text| text != "\"\""),
            is_ignorable: field.is_ignorable,
            is_never_flexible: field.is_never_flexible,
            note: note(field),
        })
    }

    fn kind(&self, kind: &Type) -> Result<Type> {
        Ok(match kind {
            Type::Array(element) => Type::Array(Box::new(self.kind(element)?)),
            Type::Struct(name) => {
                let key = (self.message.name.clone(), name.clone());
                Type::Struct(
                    self.names.get(&key).with_context(|| format!("no struct {name}"))?.clone(),
                )
            }
            other => other.clone(),
        })
    }
}

/// The documentation of a field.
fn note(field: &schema::Field) -> String {
    let mut note = format!("`{}`, versions {}", field.kind, field.versions);
    if !field.nullable.is_empty() {
        note += &format!(", nullable {}", field.nullable);
    }
    if let Some((tag, _)) = field.tag {
        note += &format!(", tag {tag}");
    }
    if let Some(default) = field.default.as_ref().filter(|text| *text != "\"\"") {
        note += &format!(", default {default}");
    }
    note
}

fn field_name(name: &str) -> String {
    let name = snake(name);
    match name.as_str() {
        "type" | "match" | "move" | "ref" => format!("{name}_"),
        _ => name,
    }
}

/// `LastKnownElr` → `last_known_elr`.
pub(crate) fn snake(name: &str) -> String {
    let mut out = String::new();
    for (i, letter) in name.char_indices() {
        if letter.is_uppercase() && 0 < i {
            out.push('_');
        }
        out.extend(letter.to_lowercase());
    }
    out
}
