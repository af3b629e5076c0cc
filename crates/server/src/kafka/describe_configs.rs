//! DescribeConfigs: properties of topics, brokers and groups, with where each value comes from.

use std::borrow::Cow;

use towpath_metadata::{ConfigEntry, ConfigSource, Refusal, Resource, ResourceKind};
use towpath_protocol::messages::{
    DescribeConfigsRequest, DescribeConfigsResource, DescribeConfigsResourceResult,
    DescribeConfigsResponse, DescribeConfigsResult, DescribeConfigsSynonym,
};

use super::{Handled, Incoming, distinct, errors};
use crate::node::Node;

pub(super) fn handle(node: &Node, incoming: &Incoming) -> Handled {
    let request: DescribeConfigsRequest<'_> = incoming.decode()?;
    let has_documentation = request.include_documentation;
    let asked = distinct(&request.resources, |asked| (asked.resource_type, asked.resource_name));
    let described: Vec<_> = asked
        .into_iter()
        .map(|asked| {
            let described = describe(node, asked).map(|entries| {
                let documented = entries.into_iter().map(|entry| {
                    let documentation = has_documentation.then(|| entry.documentation());
                    (entry, documentation)
                });
                documented.collect::<Vec<Documented>>()
            });
            let message = match &described {
                Ok(_) => String::new(),
                Err(refusal) => errors::describe_message(refusal),
            };
            (asked, described, message)
        })
        .collect();
    let results = described.iter().map(|(asked, described, message)| DescribeConfigsResult {
        error_code: described.as_ref().err().map_or(0, |r| errors::of_metadata_refusal(r).into()),
        error_message: Some(message),
        resource_type: asked.resource_type,
        resource_name: asked.resource_name,
        configs: described
            .as_ref()
            .map_or_else(|_| Vec::new(), |entries| to_wire(entries, &request)),
    });
    incoming.answer(&DescribeConfigsResponse { results: results.collect(), ..Default::default() })
}

fn describe(node: &Node, asked: &DescribeConfigsResource<'_>) -> Result<Vec<ConfigEntry>, Refusal> {
    let resource = Resource {
        kind: ResourceKind::from_wire(asked.resource_type),
        name: asked.resource_name.to_owned(),
    };
    let mut entries = node.driver().image().describe(&resource)?;
    if resource.kind == ResourceKind::Broker {
        // Given with the data directory and the sockets, so the metadata does not have them.
        for entry in &mut entries {
            entry.value = match entry.name() {
                "log.dirs" => {
                    let all = node.data_directories().iter().map(|path| path.display().to_string());
                    Some(all.collect::<Vec<_>>().join(","))
                }
                "listeners" => Some(node.listeners()),
                _ => continue,
            };
            entry.source = ConfigSource::Static;
        }
    }
    // An empty list of keys asks for all of them, as null does.
    if let Some(keys) = asked.configuration_keys.as_ref().filter(|keys| !keys.is_empty()) {
        entries.retain(|entry| keys.contains(&entry.name()));
    }
    Ok(entries)
}

/// A property with its prose, where that was asked for.
type Documented = (ConfigEntry, Option<Cow<'static, str>>);

fn to_wire<'a>(
    entries: &'a [Documented],
    request: &DescribeConfigsRequest<'_>,
) -> Vec<DescribeConfigsResourceResult<'a>> {
    let to_result = |(entry, documentation): &'a Documented| DescribeConfigsResourceResult {
        name: entry.name(),
        value: entry.value.as_deref(),
        read_only: entry.read_only,
        config_source: entry.source.wire_id(),
        is_sensitive: entry.is_sensitive(),
        synonyms: if request.include_synonyms {
            entry
                .synonyms
                .iter()
                .map(|synonym| DescribeConfigsSynonym {
                    name: synonym.name,
                    value: Some(&synonym.value),
                    source: synonym.source.wire_id(),
                })
                .collect()
        } else {
            Vec::new()
        },
        config_type: entry.kind().wire_id(),
        documentation: documentation.as_deref(),
    };
    entries.iter().map(to_result).collect()
}
