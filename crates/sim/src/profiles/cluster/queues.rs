//! Topics that are worked as queues: somebody writes into their delivery logs, lets their beginnings go, and
//! makes topics into queues while they are used. What becomes of a delivery log is compared with its own
//! book, as that of records is, and with that of the records: the two have one in-sync set.

use towpath_metadata::{ConfigChange, ConfigOperation, Request, Resource, ResourceKind};
use towpath_model::{BrokerId, Offset, TopicId, TopicPartition};

use super::admin::Change;
use super::world::{Waiting, World};
use crate::profile::{Violation, ensure};

/// Of a hundred steps at a delivery log, how many let its beginning go.
const TRIMS_PERCENT: u64 = 8;

impl World {
    /// Whoever works a queue notes something in its delivery log.
    pub(super) fn deliver(&mut self) -> Result<(), Violation> {
        let mut queues = self.truth.partitions();
        queues.retain(|id| self.truth.is_queue(id.topic));
        if queues.is_empty() {
            return Ok(());
        }
        let queue = queues[self.rng.index(queues.len())];
        let Some(of) = self.some_leader(queue.delivery_log()) else { return Ok(()) };
        if self.rng.percent(TRIMS_PERCENT) { self.trim(of, queue) } else { self.note(of, queue) }
    }

    fn note(&mut self, of: BrokerId, queue: TopicPartition) -> Result<(), Violation> {
        let token = self.token();
        // Known before the answer: a snapshot of deliveries is one record at least.
        let begin = self.views[&(of, queue.delivery_log())].end;
        let waiting = Waiting::Delivery { log: queue.delivery_log(), end: begin + 1 };
        self.waits.insert((of, token), waiting);
        let snapshot = towpath_queue::Request::Snapshot;
        let asked = self.call(of, |driver| driver.ask_deliveries(queue, token, snapshot))?;
        match asked {
            Some(Ok(())) => {}
            _ => drop(self.waits.remove(&(of, token))),
        }
        Ok(())
    }

    /// What is acknowledged is committed. Who has not heard yet that a topic was deleted goes on with it, and
    /// nobody looks any more.
    pub(super) fn delivery_leaves(
        &mut self,
        of: BrokerId,
        log: TopicPartition,
        end: Offset,
    ) -> Result<(), Violation> {
        let committed = self.books.entry(log).or_default().end;
        ensure!(
            end <= committed || !self.truth.topics.contains(&log.topic),
            "INV-R1",
            "{log}: broker {of} acknowledges up to {end}, committed is {committed}"
        );
        self.snapshots.insert(log.records(), Offset(end.0 - 1));
        self.events.note("queue: delivery acknowledged");
        Ok(())
    }

    /// What a follower has folded of deliveries is what anybody reads in its log.
    pub(super) fn compare_folded(&mut self, id: BrokerId) -> Result<(), Violation> {
        let Some(process) = &self.nodes[&id].process else { return Ok(()) };
        let driver = std::sync::Arc::clone(&process.driver);
        for partition in self.truth.partitions() {
            let is_true = driver.has_folded_what_the_log_says(partition);
            ensure!(
                is_true != Some(false),
                "INV-Q4",
                "{partition}: broker {id} has folded something else than its log says"
            );
            if is_true == Some(true) {
                self.events.note("queue: a follower has folded along");
            }
        }
        Ok(())
    }

    fn trim(&mut self, of: BrokerId, queue: TopicPartition) -> Result<(), Violation> {
        let log = queue.delivery_log();
        let view = self.views[&(of, log)];
        // Only behind a snapshot that is committed.
        let snapshot = self.snapshots.get(&queue).copied();
        let Some(before) = snapshot.filter(|begin| *begin < view.high_watermark) else {
            return Ok(());
        };
        let book = self.books.entry(log).or_default();
        book.start_asked = book.start_asked.max(before);
        let trimmed = self.call(of, |driver| driver.trim_deliveries(queue, before))?;
        if matches!(trimmed, Some(Ok(start)) if Offset(0) < start) {
            self.events.note("queue: deliveries trimmed");
        }
        Ok(())
    }

    /// A topic becomes a queue, if it is none.
    pub(super) fn make_queue(&mut self, id: TopicId) -> Result<(), Violation> {
        let Some(name) = self.catalog.name_of(id) else { return Ok(()) };
        let resource = Resource { kind: ResourceKind::Topic, name: name.as_str().to_owned() };
        let change = ConfigChange {
            name: "queue.enable".to_owned(),
            operation: ConfigOperation::Set,
            value: Some("true".to_owned()),
        };
        let resources = vec![(resource, vec![change])];
        if !self.truth.is_queue(id) {
            self.events.note("queue: made of a topic in use");
        }
        self.change(Change::Any, Request::AlterConfigs { resources, validate_only: false })
    }

    /// As of one state of a partition both of its logs wait for the same replicas.
    pub(super) fn compare_pair(
        &self,
        id: BrokerId,
        partition: TopicPartition,
    ) -> Result<(), Violation> {
        let Some(process) = &self.nodes[&id].process else { return Ok(()) };
        let waits_for = |log| {
            let counts = process.driver.with_replica(log, |replica, _| {
                let leader = replica.leader()?;
                Some(((leader.leader_epoch(), leader.partition_epoch()), leader.maximal_in_sync()))
            });
            counts.flatten()
        };
        let (records, deliveries) = (partition.records(), partition.records().delivery_log());
        let (Some((state, counts)), Some((its_state, its_counts))) =
            (waits_for(records), waits_for(deliveries))
        else {
            return Ok(());
        };
        ensure!(
            state != its_state || counts == its_counts,
            "INV-R9",
            "{records} at broker {id}: records wait for {counts:?}, deliveries for {its_counts:?}"
        );
        Ok(())
    }
}
