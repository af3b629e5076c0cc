//! Takes message descriptions out of Kafka's jars, facts only: their prose and comments stay
//! behind.

use std::collections::BTreeMap;
use std::path::Path;
use std::process::Command;

use anyhow::{Context, Result, bail, ensure};
use serde_json::Value;

use super::schema::{self, Field, Message, Role, Type, Versions};

/// APIs that we import. To serve another one, add its name and import again.
const APIS: &[&str] = &[
    "AlterConfigs",
    "AlterPartitionReassignments",
    "ApiVersions",
    "CreatePartitions",
    "CreateTopics",
    "DeleteGroups",
    "DeleteRecords",
    "DeleteTopics",
    "DescribeCluster",
    "DescribeConfigs",
    "DescribeGroups",
    "DescribeLogDirs",
    "DescribeProducers",
    "DescribeQuorum",
    "DescribeTopicPartitions",
    "ElectLeaders",
    "Fetch",
    "FindCoordinator",
    "Heartbeat",
    "IncrementalAlterConfigs",
    "InitProducerId",
    "JoinGroup",
    "LeaveGroup",
    "ListGroups",
    "ListOffsets",
    "ListPartitionReassignments",
    "Metadata",
    "OffsetCommit",
    "OffsetDelete",
    "OffsetFetch",
    "OffsetForLeaderEpoch",
    "Produce",
    "SyncGroup",
    "UnregisterBroker",
];

/// What is not an API, by the file it goes to.
const OTHERS: &[(&str, &[&str])] = &[
    ("header", &["RequestHeader", "ResponseHeader"]),
    ("consumer_protocol", &["ConsumerProtocolSubscription", "ConsumerProtocolAssignment"]),
    (
        "consumer_offsets",
        &["OffsetCommitKey", "OffsetCommitValue", "GroupMetadataKey", "GroupMetadataValue"],
    ),
];

pub(crate) fn run(jars: &[&str], out: &Path) -> Result<()> {
    std::fs::create_dir_all(out)?;
    for api in APIS {
        let names = [format!("{api}Request"), format!("{api}Response")];
        let names: Vec<&str> = names.iter().map(String::as_str).collect();
        import(jars, &names, &out.join(format!("{}.schema", super::layout::snake(api))))?;
    }
    for (file, names) in OTHERS {
        import(jars, names, &out.join(format!("{file}.schema")))?;
    }
    Ok(())
}

fn import(jars: &[&str], names: &[&str], out: &Path) -> Result<()> {
    let mut messages = Vec::new();
    for name in names {
        let json = read_description(jars, name)?;
        messages.push(message(&json).with_context(|| (*name).to_owned())?);
    }
    cap_to_request(&mut messages);
    std::fs::write(out, schema::print(&messages))?;
    Ok(())
}

/// An unstable last version is marked at the request only; its response has the same versions.
fn cap_to_request(messages: &mut [Message]) {
    if let [request, response] = messages
        && (request.role, response.role) == (Role::Request, Role::Response)
    {
        response.versions = response.versions.and(request.versions);
    }
}

fn read_description(jars: &[&str], name: &str) -> Result<Value> {
    for jar in jars {
        let file = format!("common/message/{name}.json");
        let output = Command::new("unzip").args(["-p", jar, &file]).output().context("unzip")?;
        if output.status.success() {
            let text = String::from_utf8(output.stdout)?;
            let json: Vec<&str> =
                text.lines().filter(|line| !line.trim_start().starts_with("//")).collect();
            return serde_json::from_str(&json.join("\n")).with_context(|| file);
        }
    }
    bail!("none of the jars describes {name}")
}

fn message(json: &Value) -> Result<Message> {
    let role = match text(json, "type")? {
        "request" => Role::Request,
        "response" => Role::Response,
        "header" => Role::Header,
        _ => Role::Data,
    };
    let mut versions = Versions::parse(text(json, "validVersions")?)?;
    if json["latestVersionUnstable"].as_bool() == Some(true) {
        versions.last -= 1;
    }
    let mut shared = BTreeMap::new();
    for item in json["commonStructs"].as_array().into_iter().flatten() {
        shared
            .insert(text(item, "name")?.to_owned(), fields(&item["fields"], &mut BTreeMap::new())?);
    }
    Ok(Message {
        role,
        name: text(json, "name")?.to_owned(),
        api: json["apiKey"].as_i64().map(i16::try_from).transpose()?,
        versions,
        flexible: Versions::parse(text(json, "flexibleVersions")?)?,
        fields: fields(&json["fields"], &mut shared)?,
    })
}

/// `shared` holds the structs described apart; the first field that has one takes its description.
fn fields(json: &Value, shared: &mut BTreeMap<String, Vec<Field>>) -> Result<Vec<Field>> {
    let items = json.as_array().context("fields")?;
    items.iter().map(|item| field(item, shared)).collect()
}

fn field(json: &Value, shared: &mut BTreeMap<String, Vec<Field>>) -> Result<Field> {
    let name = text(json, "name")?;
    let kind = Type::parse(text(json, "type")?);
    let versions = |key: &str| json[key].as_str().map(Versions::parse).transpose();
    let tag = match (json["tag"].as_u64(), versions("taggedVersions")?) {
        (Some(tag), Some(versions)) => Some((u32::try_from(tag)?, versions)),
        (None, None) => None,
        _ => bail!("{name} has only one of tag and taggedVersions"),
    };
    let never_flexible = json["flexibleVersions"].as_str();
    ensure!(never_flexible.is_none_or(|value| value == "none"), "{name} is flexible on its own");

    let mut own = Vec::new();
    if !json["fields"].is_null() {
        own = fields(&json["fields"], shared)?;
    } else if let Some(described) = kind.struct_name().and_then(|name| shared.remove(name)) {
        own = described;
    }
    Ok(Field {
        name: name.to_owned(),
        kind,
        versions: versions("versions")?.context("versions")?,
        nullable: versions("nullableVersions")?.unwrap_or(Versions::NONE),
        tag,
        default: default(&json["default"]),
        is_ignorable: json["ignorable"].as_bool().unwrap_or(false),
        is_never_flexible: never_flexible.is_some(),
        is_key: json["mapKey"].as_bool().unwrap_or(false),
        entity: json["entityType"].as_str().map(str::to_owned),
        fields: own,
    })
}

fn default(json: &Value) -> Option<String> {
    match json {
        Value::Null => None,
        Value::String(text) if text.is_empty() => Some("\"\"".to_owned()),
        Value::String(text) => Some(text.clone()),
        other => Some(other.to_string()),
    }
}

fn text<'j>(json: &'j Value, key: &str) -> Result<&'j str> {
    json[key].as_str().with_context(|| key.to_owned())
}
