//! Descriptions of properties as they travel between brokers: by name, since each side has the
//! property itself. One that this version does not know is left out.

use serde::{Deserialize, Deserializer, Serialize, Serializer};
use towpath_model::properties;

use crate::configs::{ConfigEntry, ConfigSource, ConfigSynonym};

#[derive(Serialize, Deserialize)]
struct Entry {
    name: String,
    value: Option<String>,
    source: ConfigSource,
    read_only: bool,
    synonyms: Vec<(String, String, ConfigSource)>,
}

pub(crate) fn serialize<S: Serializer>(
    entries: &[ConfigEntry],
    serializer: S,
) -> Result<S::Ok, S::Error> {
    let synonym =
        |synonym: &ConfigSynonym| (synonym.name.to_owned(), synonym.value.clone(), synonym.source);
    let entries = entries.iter().map(|entry| Entry {
        name: entry.property.name.to_owned(),
        value: entry.value.clone(),
        source: entry.source,
        read_only: entry.read_only,
        synonyms: entry.synonyms.iter().map(synonym).collect(),
    });
    serializer.collect_seq(entries)
}

pub(crate) fn deserialize<'de, D: Deserializer<'de>>(
    deserializer: D,
) -> Result<Vec<ConfigEntry>, D::Error> {
    let entries = Vec::<Entry>::deserialize(deserializer)?;
    let known = entries.into_iter().filter_map(|entry| {
        let synonym = |(name, value, source): (String, String, ConfigSource)| {
            let property = properties::topic(&name).or_else(|| properties::broker(&name))?;
            Some(ConfigSynonym { name: property.name, value, source })
        };
        Some(ConfigEntry {
            property: properties::topic(&entry.name)?,
            value: entry.value,
            source: entry.source,
            read_only: entry.read_only,
            synonyms: entry.synonyms.into_iter().filter_map(synonym).collect(),
        })
    });
    Ok(known.collect())
}
