//! An administrator: creates, deletes, recreates and grows topics, changes their configuration,
//! deletes records; sometimes asks for what must be refused (INV-M1, T4, T7).

use towpath_broker::{OFFSETS_TOPIC, PUBLISHERS_TOPIC};
use towpath_driver::{DeleteRecordsRefusal, Delivery, Outcome};
use towpath_metadata::{
    self as metadata, ConfigChange, ConfigOperation, MorePartitions, NewTopic, Reply, Resource,
    ResourceKind, TopicRef,
};
use towpath_model::{Offset, TopicPartition};

use super::catalog::{Configs, TopicModel};
use super::publishers::WEB;
use super::world::{Waiting, World};
use crate::profile::{Violation, ensure};

/// Topics that come and go.
const STREAMS: [&str; 3] = ["orders", "payments", "audit"];

/// One that is compacted as long as it lives.
const LEDGER: &str = "accounts";

/// Most partitions of a topic.
const PARTITIONS_MAX: i32 = 4;

impl World {
    /// The administrator does one thing.
    pub(super) fn administer(&mut self) -> Result<(), Violation> {
        for name in [PUBLISHERS_TOPIC, WEB] {
            if self.catalog.topic(name).is_none() {
                return self.create(name);
            }
        }
        if self.swarm.has_ledger && self.catalog.topic(LEDGER).is_none() {
            return self.create(LEDGER);
        }
        let name = match self.rng.index(STREAMS.len() + 1) {
            at if at < STREAMS.len() => STREAMS[at],
            _ => LEDGER,
        };
        if self.catalog.is_changing(name) {
            return Ok(());
        }
        match self.catalog.certain(name).cloned() {
            None => self.create(name),
            Some(topic) => match self.rng.below(10) {
                0..2 => self.delete(name, &topic),
                2..4 => self.grow(name, &topic),
                4..9 => self.configure(name, &topic),
                _ => self.ask_nonsense(name, &topic),
            },
        }
    }

    /// Makes what a run begins with.
    pub(super) fn create(&mut self, name: &str) -> Result<(), Violation> {
        if self.catalog.is_changing(name) {
            return Ok(());
        }
        let is_internal = [OFFSETS_TOPIC, PUBLISHERS_TOPIC].contains(&name);
        let mut configs = Configs::new();
        if is_internal {
            for (property, value) in [
                ("cleanup.policy", "compact"),
                ("delete.retention.ms", "3000"),
                ("max.compaction.lag.ms", "2000"),
            ] {
                configs.insert(property.to_owned(), value.to_owned());
            }
        } else if name != WEB {
            if name == LEDGER {
                configs.extend(self.draw_ledger());
            }
            for _ in 0..self.rng.below(3) {
                let (property, value) = self.draw_property();
                configs.insert(property.to_owned(), value.to_owned());
            }
        }
        let partitions = if is_internal { 2 } else { self.rng.between(1, 2) as i32 };
        let id = self.machine.new_id();
        let topic = NewTopic {
            partitions,
            internal: is_internal,
            configs: configs.iter().map(|(n, v)| (n.clone(), Some(v.clone()))).collect(),
            ..NewTopic::named(name, id)
        };
        let after = TopicModel { id, partitions, configs, is_internal };
        let request = metadata::Request::CreateTopics { topics: vec![topic], validate_only: false };
        self.change(name, Some(after), request)
    }

    fn delete(&mut self, name: &str, topic: &TopicModel) -> Result<(), Violation> {
        let by_id = self.rng.percent(50);
        let reference =
            TopicRef { name: (!by_id).then(|| name.to_owned()), id: by_id.then_some(topic.id) };
        self.change(name, None, metadata::Request::DeleteTopics(vec![reference]))
    }

    fn grow(&mut self, name: &str, topic: &TopicModel) -> Result<(), Violation> {
        if PARTITIONS_MAX <= topic.partitions {
            return Ok(());
        }
        let partitions = topic.partitions + 1;
        let more = MorePartitions { name: name.to_owned(), count: partitions, assignments: None };
        let request =
            metadata::Request::CreatePartitions { topics: vec![more], validate_only: false };
        self.change(name, Some(TopicModel { partitions, ..topic.clone() }), request)
    }

    fn configure(&mut self, name: &str, topic: &TopicModel) -> Result<(), Violation> {
        let (property, value) = match self.rng.percent(30) {
            true if name == LEDGER => ("cleanup.policy", self.draw_policy()),
            _ => self.draw_property(),
        };
        let mut configs = topic.configs.clone();
        let operation = if property != "cleanup.policy" && self.rng.percent(30) {
            configs.remove(property);
            ConfigOperation::Delete
        } else {
            configs.insert(property.to_owned(), value.to_owned());
            ConfigOperation::Set
        };
        let value = (operation == ConfigOperation::Set).then(|| value.to_owned());
        let change = ConfigChange { name: property.to_owned(), operation, value };
        let resource = Resource { kind: ResourceKind::Topic, name: name.to_owned() };
        let resources = vec![(resource, vec![change])];
        let request = metadata::Request::AlterConfigs { resources, validate_only: false };
        self.change(name, Some(TopicModel { configs, ..topic.clone() }), request)
    }

    fn draw_policy(&mut self) -> &'static str {
        self.rng.weighted(&[(2, "compact"), (1, "compact,delete")])
    }

    /// What makes a topic compacted, soon enough to be seen.
    fn draw_ledger(&mut self) -> Configs {
        let kept = self.rng.weighted(&[(1, "0"), (2, "2000")]);
        let how = self.rng.weighted(&[
            (2, ("max.compaction.lag.ms", "2000")),
            (2, ("min.cleanable.dirty.ratio", "0.01")),
        ]);
        // Segments are closed by this, or by their size.
        let age = self.rng.weighted(&[(1, "500"), (1, "5000")]);
        let all = [
            ("cleanup.policy", self.draw_policy()),
            ("delete.retention.ms", kept),
            ("segment.ms", age),
            how,
        ];
        all.into_iter().map(|(name, value)| (name.to_owned(), value.to_owned())).collect()
    }

    fn draw_property(&mut self) -> (&'static str, &'static str) {
        self.rng.weighted(&[
            (6, ("durability", "relaxed")),
            (4, ("durability", "synced")),
            (3, ("retention.ms", "-1")),
            (2, ("retention.ms", "3000")),
            (2, ("retention.ms", "600000")),
            (2, ("retention.bytes", "4000")),
            (3, ("segment.ms", "1000")),
        ])
    }

    fn change(
        &mut self,
        name: &str,
        after: Option<TopicModel>,
        request: metadata::Request,
    ) -> Result<(), Violation> {
        self.note_becomes(after.as_ref());
        self.catalog.ask(name, after);
        let waiting = Waiting::Admin { name: name.to_owned() };
        if !self.ask_metadata(waiting, request) && !self.machine.has_stopped() {
            ensure!(self.machine.driver().is_failed(), "INV-M1", "the metadata is not led");
            self.catalog.refuse(name);
        }
        Ok(())
    }

    /// What is not there, or not possible: it is refused, and nothing changes.
    fn ask_nonsense(&mut self, name: &str, topic: &TopicModel) -> Result<(), Violation> {
        let request = match self.rng.below(4) {
            0 => {
                let again = NewTopic::named(name, self.machine.new_id());
                metadata::Request::CreateTopics { topics: vec![again], validate_only: false }
            }
            1 => {
                let gone = self.catalog.deleted.first().copied();
                let id = gone.unwrap_or_else(|| self.machine.new_id());
                metadata::Request::DeleteTopics(vec![TopicRef { name: None, id: Some(id) }])
            }
            2 => {
                let count = topic.partitions;
                let same = MorePartitions { name: name.to_owned(), count, assignments: None };
                metadata::Request::CreatePartitions { topics: vec![same], validate_only: false }
            }
            _ => {
                let change = ConfigChange {
                    name: "durability".to_owned(),
                    operation: ConfigOperation::Set,
                    value: Some("perhaps".to_owned()),
                };
                let resource = Resource { kind: ResourceKind::Topic, name: name.to_owned() };
                let resources = vec![(resource, vec![change])];
                metadata::Request::AlterConfigs { resources, validate_only: false }
            }
        };
        self.ask_metadata(Waiting::Nonsense, request);
        Ok(())
    }

    pub(super) fn admin_answered(
        &mut self,
        name: &str,
        delivery: &Delivery,
    ) -> Result<(), Violation> {
        match delivery {
            Delivery::Metadata(reply) => {
                let refusal = refusal_of(reply);
                ensure!(refusal.is_none(), "INV-M1", "a change of {name} is refused: {refusal:?}");
                self.events.note(match reply {
                    Reply::CreatedTopics(_) => "admin: topic created",
                    Reply::DeletedTopics(_) => "admin: topic deleted",
                    Reply::CreatedPartitions(_) => "admin: partitions added",
                    _ => "admin: topic configured",
                });
                self.accepted(name)?;
                let driver = self.machine.driver();
                self.catalog.check(&driver.image())
            }
            Delivery::Wait(Outcome::StorageFailed) if !self.machine.driver().is_failed() => {
                ensure!(self.is_full, "INV-M1", "a healthy disk refuses a change of {name}");
                self.events.note("admin: change refused for a full disk");
                self.catalog.refuse(name);
                let driver = self.machine.driver();
                self.catalog.check(&driver.image())
            }
            // It may have happened; the next start tells.
            Delivery::Wait(_) => Ok(()),
            other => Err(Violation::new("INV-M1", format!("{name} is answered by {other:?}"))),
        }
    }

    pub(super) fn nonsense_answered(&mut self, delivery: &Delivery) -> Result<(), Violation> {
        if let Delivery::Metadata(reply) = delivery {
            ensure!(refusal_of(reply).is_some(), "INV-M1", "nonsense is accepted: {reply:?}");
            self.events.note("admin: nonsense refused");
        }
        let driver = self.machine.driver();
        self.catalog.check(&driver.image())
    }

    /// Deletes records of some partition.
    pub(super) fn delete_records(&mut self) -> Result<(), Violation> {
        let Some(id) = self.random_stream_partition() else { return Ok(()) };
        let driver = self.machine.driver();
        let Ok(position) = driver.position(id, None) else { return Ok(()) };
        let (start, high_watermark) = (position.log_start_offset, position.high_watermark);
        let span = (high_watermark - start).unsigned_abs();
        let before = match self.rng.below(4) {
            0 => None,
            1 => Some(position.log_end_offset.next()),
            _ => Some(start + self.rng.below(span + 1) as i64),
        };
        let asked = before.unwrap_or(high_watermark);
        let model = self.partitions.entry(id).or_default();
        if asked <= high_watermark {
            model.start_asked = model.start_asked.max(asked);
        }
        let result = driver.delete_records(id, before);
        if self.machine.has_stopped() {
            return Ok(());
        }
        self.records_deleted(id, asked, high_watermark, result)
    }

    fn records_deleted(
        &mut self,
        id: TopicPartition,
        asked: Offset,
        high_watermark: Offset,
        result: Result<Offset, DeleteRecordsRefusal>,
    ) -> Result<(), Violation> {
        match result {
            Ok(start) => {
                ensure!(asked <= start, "INV-T7", "{id}: asked to start at {asked}, is {start}");
                ensure!(asked <= high_watermark, "INV-T5", "{id}: {asked} above {high_watermark}");
                self.events.note("admin: records deleted");
            }
            Err(DeleteRecordsRefusal::BeyondHighWatermark { .. }) => {
                ensure!(high_watermark < asked, "INV-T7", "{id}: {asked} is refused");
            }
            Err(DeleteRecordsRefusal::NotLeader) => {}
            Err(DeleteRecordsRefusal::Offline(reason)) => {
                return Err(Violation::new("INV-F1", format!("{id}: {reason}")));
            }
            Err(DeleteRecordsRefusal::Stalled(reason)) => {
                ensure!(self.machine.is_stalled(), "INV-F8", "{id}: the disk answers: {reason}");
            }
            Err(DeleteRecordsRefusal::Storage(error)) => {
                let is_excused = self.is_full || self.machine.driver().is_failed();
                ensure!(is_excused, "INV-F1", "{id}: records cannot be deleted: {error}");
            }
        }
        Ok(())
    }
}

fn refusal_of(reply: &Reply) -> Option<String> {
    match reply {
        Reply::CreatedTopics(all) => {
            all.iter().find_map(|(_, r)| Some(r.as_ref().err()?.to_string()))
        }
        Reply::DeletedTopics(all) => {
            all.iter().find_map(|(_, r)| Some(r.as_ref().err()?.to_string()))
        }
        Reply::CreatedPartitions(all) => {
            all.iter().find_map(|(_, r)| Some(r.as_ref().err()?.to_string()))
        }
        Reply::AlteredConfigs(all) => {
            all.iter().find_map(|(_, r)| Some(r.as_ref().err()?.to_string()))
        }
        Reply::FormatLevelSet(result) => result.as_ref().err().map(ToString::to_string),
        // The workload asks nothing else that can be refused.
        _ => None,
    }
}
