//! What the metadata was asked and has acknowledged (INV-M1, INV-T4), kept apart from it.
//!
//! One change of a topic is under way at a time. Until it is answered, the topic may be as before or
//! as after, and a crash leaves it one or the other, whole. What is acknowledged is there from then
//! on; what is refused never was.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use towpath_log::Retention;
use towpath_metadata::{Image, Topic};
use towpath_model::{PartitionIndex, TopicId, TopicPartition};

use crate::profile::{Violation, ensure};

/// Properties of a topic that were set, by name.
pub(super) type Configs = BTreeMap<String, String>;

/// `log.retention.hours`: seven days.
const RETENTION_MS_DEFAULT: u64 = 7 * 24 * 3_600_000;

/// `delete.retention.ms`: a day.
const DELETE_RETENTION_MS_DEFAULT: u64 = 24 * 3_600_000;

/// A topic as clients know it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct TopicModel {
    pub(super) id: TopicId,
    pub(super) partitions: i32,
    pub(super) configs: Configs,
    pub(super) is_internal: bool,
}

impl TopicModel {
    /// Whether its records are acknowledged before they are synced.
    pub(super) fn is_relaxed(&self) -> bool {
        self.configs.get("durability").is_some_and(|value| value == "relaxed")
    }

    /// Whether newer records supersede older ones of their key.
    pub(super) fn is_compacted(&self) -> bool {
        self.configs.get("cleanup.policy").is_some_and(|policy| policy.starts_with("compact"))
    }

    /// How long it keeps tombstones, at least.
    pub(super) fn tombstones_kept(&self) -> Duration {
        let ms = self.configs.get("delete.retention.ms").and_then(|ms| ms.parse().ok());
        Duration::from_millis(ms.unwrap_or(DELETE_RETENTION_MS_DEFAULT))
    }

    fn retention(&self) -> Retention {
        if self.configs.get("cleanup.policy").is_some_and(|policy| policy == "compact") {
            return Retention::default();
        }
        let number = |name: &str, default: Option<u64>| match self.configs.get(name) {
            Some(value) => value.parse::<u64>().ok(),
            None => default,
        };
        Retention {
            time: number("retention.ms", Some(RETENTION_MS_DEFAULT)).map(Duration::from_millis),
            bytes: number("retention.bytes", None),
        }
    }

    /// Its partitions.
    pub(super) fn ids(&self) -> impl Iterator<Item = TopicPartition> + use<> {
        let topic = self.id;
        (0..self.partitions)
            .map(move |partition| TopicPartition { topic, partition: PartitionIndex(partition) })
    }

    fn is(&self, topic: &Topic) -> bool {
        self.id == topic.id
            && usize::try_from(self.partitions) == Ok(topic.partitions.len())
            && self.configs == topic.overrides
            && self.is_internal == topic.internal
    }
}

/// One name.
#[derive(Debug, Clone, Default)]
struct Entry {
    now: Option<TopicModel>,
    /// What it becomes if the change that is under way happens.
    perhaps: Option<Option<TopicModel>>,
}

/// All names.
#[derive(Debug, Clone, Default)]
pub(super) struct Catalog {
    entries: BTreeMap<String, Entry>,
    /// Topics whose deletion was acknowledged.
    pub(super) deleted: BTreeSet<TopicId>,
}

impl Catalog {
    /// The topic of this name, if it is certain that it is there and how it is.
    pub(super) fn certain(&self, name: &str) -> Option<&TopicModel> {
        let entry = self.entries.get(name).filter(|entry| entry.perhaps.is_none())?;
        entry.now.as_ref()
    }

    /// The topic of this name as it was last acknowledged.
    pub(super) fn topic(&self, name: &str) -> Option<&TopicModel> {
        self.entries.get(name)?.now.as_ref()
    }

    /// Every topic that was acknowledged.
    pub(super) fn topics(&self) -> impl Iterator<Item = (&str, &TopicModel)> {
        let entries = self.entries.iter();
        entries.filter_map(|(name, entry)| Some((name.as_str(), entry.now.as_ref()?)))
    }

    /// Whether a change of this name is under way.
    pub(super) fn is_changing(&self, name: &str) -> bool {
        self.entries.get(name).is_some_and(|entry| entry.perhaps.is_some())
    }

    /// A change is asked for.
    pub(super) fn ask(&mut self, name: &str, after: Option<TopicModel>) {
        self.entries.entry(name.to_owned()).or_default().perhaps = Some(after);
    }

    /// The change was acknowledged.
    pub(super) fn accept(&mut self, name: &str) {
        if let Some(entry) = self.entries.get_mut(name)
            && let Some(after) = entry.perhaps.take()
        {
            let before = std::mem::replace(&mut entry.now, after);
            let gone = before.filter(|before| entry.now.as_ref().is_none_or(|n| n.id != before.id));
            self.deleted.extend(gone.map(|topic| topic.id));
        }
    }

    /// The change was refused for good.
    pub(super) fn refuse(&mut self, name: &str) {
        if let Some(entry) = self.entries.get_mut(name) {
            entry.perhaps = None;
        }
    }

    /// Whether every record that a partition acknowledges now was promised to be synced first.
    pub(super) fn is_surely_synced(&self, topic: TopicId) -> bool {
        let with_id = |candidate: Option<&TopicModel>| {
            candidate.is_none_or(|known| known.id != topic || !known.is_relaxed())
        };
        let entries = self.entries.values();
        entries.into_iter().all(|entry| {
            let perhaps = entry.perhaps.as_ref().and_then(Option::as_ref);
            with_id(entry.now.as_ref()) && with_id(perhaps)
        })
    }

    /// The strictest retention that may be in force.
    pub(super) fn strictest_retention(&self, topic: TopicId) -> Retention {
        let entries = self.entries.values();
        let states = entries.flat_map(|entry| {
            let perhaps = entry.perhaps.as_ref().and_then(Option::as_ref);
            entry.now.as_ref().into_iter().chain(perhaps)
        });
        let mut strictest = Retention::default();
        for retention in states.filter(|known| known.id == topic).map(TopicModel::retention) {
            strictest.time = strictest.time.into_iter().chain(retention.time).min();
            strictest.bytes = strictest.bytes.into_iter().chain(retention.bytes).min();
        }
        strictest
    }

    /// Compares with what the broker publishes (INV-M1): topics that are certain are as they were
    /// acknowledged, the others as before or as after.
    pub(super) fn check(&self, image: &Image) -> Result<(), Violation> {
        for topic in image.topics() {
            ensure!(!self.deleted.contains(&topic.id), "INV-T4", "deleted {} is back", topic.name);
            let is_known = self.entries.contains_key(topic.name.as_str());
            ensure!(is_known, "INV-M1", "nobody has asked for topic {}", topic.name);
        }
        for (name, entry) in &self.entries {
            let found = image.topic(name);
            let is_before = matches_image(entry.now.as_ref(), found);
            let is_after = entry.perhaps.as_ref().is_some_and(|p| matches_image(p.as_ref(), found));
            ensure!(
                is_before || is_after,
                "INV-M1",
                "topic {name} is {found:?}, acknowledged {:?}, perhaps {:?}",
                entry.now,
                entry.perhaps
            );
        }
        Ok(())
    }

    /// After a start: a change that was under way has happened, or it never will. Returns the names
    /// whose change has happened.
    pub(super) fn settle(&mut self, image: &Image) -> Result<Vec<String>, Violation> {
        self.check(image)?;
        let changing = self.entries.iter().filter(|(_, entry)| entry.perhaps.is_some());
        let names: Vec<String> = changing.map(|(name, _)| name.clone()).collect();
        let mut happened = Vec::new();
        for name in names {
            let entry = &self.entries[&name];
            let after = entry.perhaps.as_ref().expect("only those that change were collected");
            if matches_image(after.as_ref(), image.topic(&name)) {
                self.accept(&name);
                happened.push(name);
            } else {
                self.refuse(&name);
            }
        }
        Ok(happened)
    }
}

fn matches_image(model: Option<&TopicModel>, found: Option<&Topic>) -> bool {
    match (model, found) {
        (None, None) => true,
        (Some(model), Some(found)) => model.is(found),
        _ => false,
    }
}
