//! Runs the text files in `scenarios/groups/`: requests, and below each what it caused.
//!
//! Member ids are written `client#n` for the n-th id of the file. `UPDATE_EXPECT=1` rewrites what
//! was caused; read it before you commit it.

use std::collections::BTreeMap;
use std::fmt::Write;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use towpath_model::{Generation, LeaderEpoch, Offset, PartitionIndex, Token, TopicId, Uuid};

use super::super::*;
use crate::machine::{Machine, WALL_START};

#[test]
#[expect(clippy::disallowed_methods, reason = "only the test's own files are rewritten")]
fn scenarios_cause_what_they_say() {
    let mut failed = Vec::new();
    for path in files() {
        let text = std::fs::read_to_string(&path).expect("scenario files are readable");
        let actual = run(&text);
        if actual == text {
            continue;
        }
        if std::env::var_os("UPDATE_EXPECT").is_some() {
            std::fs::write(&path, actual).expect("scenario files are writable");
        } else {
            failed.push(format!("{}\n{}", path.display(), first_difference(&text, &actual)));
        }
    }
    assert!(failed.is_empty(), "UPDATE_EXPECT=1 rewrites them:\n{}", failed.join("\n"));
}

fn files() -> Vec<PathBuf> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("scenarios/groups");
    let entries = std::fs::read_dir(&folder).expect("the folder is part of the crate");
    let mut files: Vec<PathBuf> = entries.map(|entry| entry.expect("readable").path()).collect();
    files.sort();
    assert!(!files.is_empty());
    files
}

fn first_difference(expected: &str, actual: &str) -> String {
    let pairs = expected.lines().zip(actual.lines()).enumerate();
    match pairs.into_iter().find(|(_, (expected, actual))| expected != actual) {
        Some((at, (expected, actual))) => {
            format!("  line {}\n  expected {expected}\n  actual   {actual}", at + 1)
        }
        None => "  one is longer than the other".to_owned(),
    }
}

fn run(text: &str) -> String {
    let mut run = Run::new(super::config());
    let mut out = String::new();
    let inputs = text.lines().filter(|line| !line.trim_start().starts_with('→'));
    for line in inputs {
        out.push_str(line);
        out.push('\n');
        for caused in run.line(line) {
            writeln!(out, "    → {caused}").expect("writing to a string");
        }
    }
    out
}

struct Run {
    machine: Machine<Groups>,
    config: GroupsConfig,
    /// What each request was, for answers that come later.
    asked: BTreeMap<Token, String>,
    ids: u8,
}

/// The words of a line: a verb, names, and `key=value`.
struct Words<'a> {
    names: Vec<&'a str>,
    values: Vec<(&'a str, &'a str)>,
}

impl<'a> Words<'a> {
    fn value(&self, key: &str) -> Option<&'a str> {
        self.values.iter().find(|(name, _)| *name == key).map(|(_, value)| *value)
    }

    fn seconds(&self, key: &str, default: u64) -> Duration {
        self.value(key).map_or(Duration::from_secs(default), seconds)
    }

    fn generation(&self) -> Generation {
        Generation(self.value("gen").expect("gen=").parse().expect("a number"))
    }

    fn instance(&self) -> Option<Arc<str>> {
        self.value("instance").map(Arc::from)
    }

    fn has(&self, flag: &str) -> bool {
        self.names.contains(&flag)
    }
}

fn seconds(text: &str) -> Duration {
    let text = text.strip_suffix('s').expect("a number of seconds such as 10s");
    Duration::from_secs_f64(text.parse().expect("a number"))
}

impl Run {
    fn new(config: GroupsConfig) -> Run {
        let fresh = config.clone();
        let machine = Machine::new(move || Groups::new(fresh.clone()));
        Run { machine, config, asked: BTreeMap::new(), ids: 0 }
    }

    fn line(&mut self, line: &str) -> Vec<String> {
        let line = line.trim();
        if line.is_empty() || line.starts_with('#') {
            return Vec::new();
        }
        let (values, names): (Vec<&str>, Vec<&str>) =
            line.split_whitespace().partition(|word| word.contains('=') && !word.contains("-0="));
        let values = values.iter().filter_map(|word| word.split_once('=')).collect();
        let words = Words { names, values };
        match words.names[0] {
            "config" => self.configure(&words),
            "wait" => {
                let decisions = self.machine.wait(seconds(words.names[1]));
                return decisions.iter().flat_map(|decision| self.caused(None, decision)).collect();
            }
            "crash" => self.machine.crash(words.has("compacted")),
            _ => return self.ask(&words),
        }
        Vec::new()
    }

    fn configure(&mut self, words: &Words<'_>) {
        for (key, value) in &words.values {
            match *key {
                "initial-delay" => self.config.initial_rebalance_delay = seconds(value),
                "members" => self.config.group_members_max = value.parse().expect("a number"),
                "pieces" => self.config.group_metadata_bytes_max = value.parse().expect("a number"),
                "groups" => self.config.groups_max = value.parse().expect("a number"),
                "record" => self.config.record_bytes_max = value.parse().expect("a number"),
                "retention" if *value == "never" => self.config.offsets_retention = None,
                _ => panic!("no setting {key}"),
            }
        }
        *self = Run::new(self.config.clone());
    }

    fn ask(&mut self, words: &Words<'_>) -> Vec<String> {
        let request = self.request(words);
        let (token, decision) = self.machine.ask(request);
        let label = words.names.iter().take(3).copied().collect::<Vec<_>>().join(" ");
        self.asked.insert(token, label);
        let mut caused = self.caused(Some(token), &decision);
        if !decision.replies.iter().any(|(answered, _)| *answered == token) {
            caused.push("(waits)".to_owned());
        }
        caused
    }

    fn request(&mut self, words: &Words<'_>) -> Request {
        let group = words.names.get(1).copied().filter(|name| *name != "-").unwrap_or("");
        let group: Arc<str> = group.into();
        let third = words.names.get(2).copied().unwrap_or("");
        match words.names[0] {
            "join" => self.join(group, third, words),
            "sync" => Request::Sync(Sync {
                group,
                generation: words.generation(),
                member_id: id(third),
                group_instance_id: words.instance(),
                protocol_type: words.value("type").map(Arc::from),
                protocol: words.value("protocol").map(Arc::from),
                assignments: pairs(words.value("assign").unwrap_or("")),
            }),
            "heartbeat" => Request::Heartbeat(Heartbeat {
                group,
                generation: words.generation(),
                member_id: id(third),
                group_instance_id: words.instance(),
            }),
            "leave" => {
                let leaving = |name: &&str| Leaving {
                    member_id: if *name == "-" { "".into() } else { id(name) },
                    group_instance_id: words.instance(),
                    reason: words.value("reason").map(Arc::from),
                };
                let members = words.names[2..].iter().map(leaving).collect();
                Request::Leave(Leave { group, members })
            }
            "commit" => Request::CommitOffsets(commit(group, words)),
            "fetch" => {
                let topics: Vec<&str> = words.names[2..].to_vec();
                let topics = topics.iter().map(|name| FetchTopic {
                    name: (*name).into(),
                    id: topic_id(words),
                    partitions: vec![PartitionIndex(0), PartitionIndex(1)],
                });
                let topics: Vec<FetchTopic> = topics.collect();
                let topics = (!topics.is_empty()).then_some(topics);
                Request::FetchOffsets(FetchOffsets { group, topics, require_stable: true })
            }
            "describe" => Request::Describe { group },
            "list" => Request::List {
                states: words.names[1..].iter().map(|s| (*s).into()).collect(),
                types: Vec::new(),
            },
            "delete" => Request::Delete { group },
            "delete-offsets" => {
                let topics = vec![(third.into(), vec![PartitionIndex(0)])];
                Request::DeleteOffsets { group, topics }
            }
            "topic-deleted" => Request::TopicDeleted { name: group, id: topic_id(words) },
            verb => panic!("no verb {verb}"),
        }
    }

    fn join(&mut self, group: Arc<str>, client: &str, words: &Words<'_>) -> Request {
        self.ids += 1;
        let mut suffix = [0; 16];
        suffix[15] = self.ids;
        let member_id = words.value("as").map_or_else(|| "".into(), id);
        Request::Join(Join {
            group,
            member_id,
            group_instance_id: words.instance(),
            client_id: client.into(),
            client_host: "/127.0.0.1".into(),
            session_timeout: words.seconds("session", 10),
            rebalance_timeout: words.seconds("rebalance", 60),
            protocol_type: words.value("type").unwrap_or("consumer").into(),
            protocols: pairs(words.value("protocols").unwrap_or("range:r")),
            requires_known_member_id: words.has("v4") || words.has("v9"),
            supports_skipping_assignment: words.has("v9"),
            reason: words.value("reason").map(Arc::from),
            new_member_suffix: Uuid(suffix),
        })
    }

    fn caused(&self, own: Option<Token>, decision: &GroupDecision) -> Vec<String> {
        let records = decision.records.iter().filter_map(logged);
        let replies = decision.replies.iter().map(|(token, reply)| {
            let reply = short(&answer(reply));
            match own == Some(*token) {
                true => reply,
                false => format!("[{}] {reply}", self.asked[token]),
            }
        });
        records.chain(replies).collect()
    }
}

fn commit(group: Arc<str>, words: &Words<'_>) -> CommitOffsets {
    let member = words.names.get(2).copied().filter(|name| !name.contains('='));
    let commits = words.names.iter().filter_map(|word| word.split_once("-0="));
    let topics = commits.map(|(topic, offset)| CommitTopic {
        name: topic.into(),
        id: topic_id(words),
        partitions: vec![CommitPartition {
            partition: PartitionIndex(0),
            offset: Offset(offset.parse().expect("an offset")),
            leader_epoch: words.value("epoch").map(|e| LeaderEpoch(e.parse().expect("a number"))),
            metadata: words.value("note").unwrap_or("").into(),
        }],
    });
    CommitOffsets {
        group,
        member_id: member.map_or_else(|| "".into(), id),
        group_instance_id: words.instance(),
        generation: words.value("gen").map(|_| words.generation()),
        retention: words.value("retention").map(seconds),
        knows_group_id_not_found: words.has("v9"),
        topics: topics.collect(),
    }
}

fn topic_id(words: &Words<'_>) -> TopicId {
    let byte = words.value("topic-id").map(|id| id.parse().expect("a small number"));
    byte.map_or(TopicId::ZERO, |byte| Uuid([byte; 16]))
}

/// `client#n` as the id that was given out; other texts stay.
fn id(text: &str) -> Arc<str> {
    match text.split_once('#') {
        Some((client, n)) => {
            let n: u8 = n.parse().expect("a small number after #");
            format!("{client}-00000000-0000-0000-0000-0000000000{n:02x}").into()
        }
        None => text.into(),
    }
}

/// The way back, anywhere in a text.
fn short(text: &str) -> String {
    const MIDDLE: &str = "-00000000-0000-0000-0000-0000000000";
    let mut parts = text.split(MIDDLE);
    let mut out = parts.next().unwrap_or("").to_owned();
    for part in parts {
        let n = u8::from_str_radix(&part[..2], 16).expect("ids end in two digits");
        write!(out, "#{n}{}", &part[2..]).expect("writing to a string");
    }
    out
}

/// `name:bytes,name:bytes`; a name may be `client#n`. For protocols the bytes may be `[topic]`: a
/// subscription in the form of Kafka's consumers.
fn pairs(text: &str) -> Vec<(Arc<str>, Arc<[u8]>)> {
    let pairs = text.split(',').filter(|pair| !pair.is_empty());
    pairs
        .map(|pair| {
            let (name, bytes) = pair.split_once(':').expect("name:bytes");
            let bytes = match bytes.strip_prefix('[').and_then(|t| t.strip_suffix(']')) {
                Some(topic) => {
                    let mut subscription = vec![0, 1, 0, 0, 0, 1, 0, topic.len() as u8];
                    subscription.extend(topic.as_bytes());
                    subscription
                }
                None => bytes.as_bytes().to_vec(),
            };
            (id(name), Arc::from(bytes))
        })
        .collect()
}

fn logged(record: &Record) -> Option<String> {
    let text = match record {
        Record::Stored { group, value: None } => format!("log {group}: no group"),
        Record::Stored { group, value: Some(stored) } => {
            let members = stored
                .members
                .iter()
                .map(|member| format!("{}={}", member.member_id, bytes(&member.assignment)));
            let members: Vec<String> = members.collect();
            let members = if members.is_empty() { "nobody".to_owned() } else { members.join(" ") };
            format!("log {group}: generation {} {members}", stored.generation)
        }
        Record::OffsetCommitted { group, topic, partition, committed } => {
            format!("log {group}: {topic}-{partition} at {}", committed.offset)
        }
        Record::OffsetRemoved { group, topic, partition } => {
            format!("log {group}: {topic}-{partition} no offset")
        }
        Record::Live { .. }
        | Record::Member { .. }
        | Record::Heartbeat { .. }
        | Record::CheckOffsetsAt(_) => return None,
    };
    Some(short(&text))
}

fn bytes(bytes: &[u8]) -> String {
    if bytes.is_empty() { "-".to_owned() } else { String::from_utf8_lossy(bytes).into_owned() }
}

fn answer(reply: &Reply) -> String {
    match reply {
        Reply::Join(Ok(joined)) => {
            let members = joined.members.iter().map(|member| {
                let instance = member.group_instance_id.as_deref();
                let instance = instance.map(|i| format!("({i})")).unwrap_or_default();
                format!(" {}{instance}={}", member.member_id, bytes(&member.metadata))
            });
            format!(
                "{} joined generation {} {} leader {}{}{}",
                joined.member_id,
                joined.generation,
                joined.protocol.as_deref().unwrap_or("-"),
                joined.leader,
                if joined.skip_assignment { " skip-assignment" } else { "" },
                members.collect::<String>(),
            )
        }
        Reply::Join(Err(JoinRefusal { refusal, member_id })) if member_id.is_empty() => {
            format!("{refusal:?}")
        }
        Reply::Join(Err(JoinRefusal { refusal, member_id })) => format!("{refusal:?} {member_id}"),
        Reply::Sync(Ok(synced)) => format!("assigned {}", bytes(&synced.assignment)),
        Reply::Heartbeat(Ok(())) | Reply::Delete(Ok(())) => "ok".to_owned(),
        Reply::Sync(Err(refusal))
        | Reply::Heartbeat(Err(refusal))
        | Reply::Leave(Err(refusal))
        | Reply::CommitOffsets(Err(refusal))
        | Reply::Delete(Err(refusal))
        | Reply::DeleteOffsets(Err(refusal)) => format!("{refusal:?}"),
        Reply::Leave(Ok(left)) => list(left.iter().map(|left| match left.result {
            Ok(()) => "left".to_owned(),
            Err(refusal) => format!("{refusal:?}"),
        })),
        Reply::CommitOffsets(Ok(topics)) => list(topics.iter().flat_map(|topic| {
            topic.partitions.iter().map(|(_, result)| result_word(*result, "committed"))
        })),
        Reply::DeleteOffsets(Ok(topics)) => list(topics.iter().flat_map(|topic| {
            topic.partitions.iter().map(|(_, result)| result_word(*result, "deleted"))
        })),
        Reply::FetchOffsets(topics) => list(topics.iter().flat_map(|topic| {
            topic.partitions.iter().map(|p| {
                let name = format!("{}-{}", topic.name, p.partition);
                match &p.committed {
                    None => format!("{name} none"),
                    Some(at) => format!("{name} at {}{}", at.offset, note(at)),
                }
            })
        })),
        Reply::Describe(None) => "no such group".to_owned(),
        Reply::Describe(Some(group)) => describe(group),
        Reply::List(groups) => list(groups.iter().map(|listing| {
            format!("{} {} [{}]", listing.group, listing.state.as_str(), listing.protocol_type)
        })),
        Reply::TopicDeleted { offsets } => format!("{offsets} offsets"),
    }
}

fn note(committed: &CommittedOffset) -> String {
    match &*committed.metadata {
        "" => String::new(),
        note => format!(" ({note})"),
    }
}

fn describe(group: &Description) -> String {
    let since =
        group.state_since.map_or("-".to_owned(), |at| format!("{}s", (at.0 - WALL_START) / 1000));
    let members = group.members.iter().map(|member| {
        format!(
            "; {} {} {} {}",
            member.member_id,
            member.client_host,
            bytes(&member.metadata),
            bytes(&member.assignment)
        )
    });
    format!(
        "{} since {since} generation {} protocol [{}] leader {} pending {} because [{}]{}",
        group.state.as_str(),
        group.generation,
        group.protocol,
        group.leader.as_deref().unwrap_or("-"),
        group.pending_members,
        group.last_rebalance.as_ref().map_or("", |rebalance| &rebalance.reason),
        members.collect::<String>(),
    )
}

fn result_word(result: Result<(), Refusal>, word: &str) -> String {
    result.map_or_else(|refusal| format!("{refusal:?}"), |()| word.to_owned())
}

fn list(words: impl Iterator<Item = String>) -> String {
    let words: Vec<String> = words.collect();
    if words.is_empty() { "nothing".to_owned() } else { words.join(", ") }
}
