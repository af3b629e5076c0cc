//! A broker as far as the controller can tell: a process that starts and dies, a list of records,
//! what it has folded of the metadata, and what it knows as a leader.

use std::collections::BTreeMap;

use towpath_metadata::{Image, Overrides, PartitionState, Record};
use towpath_model::{BrokerId, LeaderEpoch, TopicPartition, Uuid};

/// What a leader knows of a follower.
#[derive(Debug, Clone, Copy)]
pub(super) struct Report {
    /// The registration under which it said so.
    pub(super) broker_epoch: i64,
    /// What it holds: durable records, in a relaxed topic all.
    pub(super) holds: usize,
}

/// A proposal whose outcome the leader does not know.
#[derive(Debug, Clone)]
pub(super) struct Pending {
    pub(super) partition_epoch: i32,
    pub(super) in_sync: Vec<(BrokerId, i64)>,
}

/// A leadership of this process.
#[derive(Debug, Clone)]
pub(super) struct Lead {
    pub(super) epoch: LeaderEpoch,
    pub(super) high_watermark: usize,
    /// Where its epoch begins: a follower joins only beyond it.
    pub(super) start: usize,
    pub(super) reports: BTreeMap<BrokerId, Report>,
    pub(super) pending: Option<Pending>,
}

/// A broker.
#[derive(Debug)]
pub(super) struct Node {
    pub(super) id: BrokerId,
    pub(super) is_up: bool,
    /// It never comes back.
    pub(super) is_dead: bool,
    pub(super) incarnation: Uuid,
    /// The mark of an orderly stop.
    pub(super) mark: Option<i64>,
    /// What this process found at its start.
    pub(super) clean_since: Option<i64>,
    pub(super) lost_power: bool,
    pub(super) sequence: u64,
    /// The committed metadata that it has folded, and how many decisions that is.
    pub(super) image: Image,
    pub(super) folded: usize,
    pub(super) log: Vec<u64>,
    pub(super) durable: usize,
    pub(super) lead: Option<Lead>,
}

impl Node {
    pub(super) fn new(id: BrokerId) -> Node {
        Node {
            id,
            is_up: false,
            is_dead: false,
            incarnation: Uuid::ZERO,
            mark: None,
            clean_since: None,
            lost_power: false,
            sequence: 0,
            image: Image::new(id, Overrides::new()),
            folded: 0,
            log: Vec::new(),
            durable: 0,
            lead: None,
        }
    }

    /// A process begins. What the page cache has is synced before it counts.
    pub(super) fn start(&mut self, incarnation: Uuid) {
        self.is_up = true;
        self.incarnation = incarnation;
        self.clean_since = self.mark.take();
        self.durable = self.log.len();
        self.sequence = 0;
    }

    /// The epoch of its own registration, once it has seen it. Before that it leads and follows
    /// nothing.
    pub(super) fn epoch(&self) -> Option<i64> {
        let known = self.image.broker(self.id);
        known.filter(|known| known.incarnation == self.incarnation).map(|known| known.epoch)
    }

    /// The partition as this process knows it.
    pub(super) fn state(&self, partition: TopicPartition) -> Option<&PartitionState> {
        self.epoch()?;
        self.image.partition(partition).filter(|_| self.is_up)
    }

    pub(super) fn fold(&mut self, decision: &[Record]) {
        decision.iter().for_each(|record| self.image.apply(record));
        self.folded += 1;
    }

    pub(super) fn holds(&self, is_relaxed: bool) -> usize {
        if is_relaxed { self.log.len() } else { self.durable }
    }
}
