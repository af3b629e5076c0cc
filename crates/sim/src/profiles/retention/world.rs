//! Everything of one run: the machine, the topic, the groups, and what each was told.

use std::collections::BTreeMap;
use std::time::Duration;

use towpath_driver::Delivery;
use towpath_log::WriteAheadLimits;
use towpath_metadata::{self as metadata, ConfigChange, ConfigOperation, Resource, ResourceKind};
use towpath_model::{Offset, PartitionIndex, Token, TopicId, TopicPartition};
use towpath_records::{BatchBuilder, Compression};
use towpath_replication::Acks;

use super::super::broker::machine::Machine;
use super::super::broker::validate;
use super::check::Before;
use super::groups::{Asked, Group};
use crate::events::Events;
use crate::profile::{Violation, ensure};
use crate::rng::Rng;
use crate::trace::Trace;

/// The topic.
pub(super) const TOPIC: &str = "orders";

/// One step of a life.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Op {
    Produce,
    Commit,
    DeleteGroup,
    DeleteRecords,
    Configure,
    PressDisk,
    SyncRound,
    Tick,
    Upkeep,
    LetTimePass,
}

pub(super) struct World {
    pub(super) rng: Rng,
    pub(super) machine: Machine,
    pub(super) events: Events,
    pub(super) topic: TopicId,
    pub(super) partitions: i32,
    pub(super) groups: Vec<Group>,
    pub(super) waits: BTreeMap<Token, Asked>,
    /// Where each log started when it was last looked at.
    pub(super) starts: BTreeMap<TopicPartition, Offset>,
    /// An order to delete records before an offset that was not confirmed.
    pub(super) order: Option<(TopicPartition, Offset)>,
    /// An upkeep that was begun and is not judged yet.
    pub(super) before: Option<Before>,
    /// Something was held after the last upkeep.
    pub(super) held: bool,
    pub(super) is_pressed: bool,
    pub(super) ops: Vec<(u64, Op)>,
    pub(super) steps_max: u64,
    pub(super) crashes_percent: u64,
}

impl World {
    pub(super) fn new(seed: u64, trace: Trace) -> World {
        let mut rng = Rng::new(seed);
        let property = |name: &str, value: &str| (name.to_owned(), value.to_owned());
        let statics = BTreeMap::from([
            property("log.index.interval.bytes", "400"),
            property("log.retention.check.interval.ms", "1000"),
            property("log.roll.ms", "1000"),
        ]);
        let limits = WriteAheadLimits {
            file_bytes_max: rng.between(4, 64) << 10,
            direct_bytes_min: 4 << 10,
        };
        let machine = Machine::new(&mut rng, trace, limits, statics);
        World {
            groups: (0..rng.between(1, 3)).map(|at| Group::new(&format!("group-{at}"))).collect(),
            machine,
            events: Events::new(),
            topic: TopicId::ZERO,
            partitions: rng.between(1, 3) as i32,
            waits: BTreeMap::new(),
            starts: BTreeMap::new(),
            order: None,
            before: None,
            held: false,
            is_pressed: false,
            ops: draw_ops(&mut rng),
            steps_max: rng.between(40, 250),
            crashes_percent: rng.weighted(&[(1, 0), (3, 60), (1, 90)]),
            rng,
        }
    }

    pub(super) fn into_events(mut self) -> Events {
        self.events.merge(&self.machine.disk_events());
        self.events
    }

    pub(super) fn step(&mut self, op: Op) -> Result<(), Violation> {
        self.machine.trace.event("op", &[op as u64]);
        match op {
            Op::Produce => self.produce()?,
            Op::Commit => self.commit(),
            Op::DeleteGroup => self.delete_group(),
            Op::DeleteRecords => self.delete_records()?,
            Op::Configure => self.configure(),
            Op::PressDisk => {
                self.is_pressed = self.rng.percent(30);
                self.machine.driver().set_disk_pressed(self.is_pressed);
            }
            Op::SyncRound => {
                self.machine.sync_if_wanted();
            }
            Op::Tick => self.machine.tick(),
            Op::Upkeep => self.upkeep()?,
            Op::LetTimePass => {
                let pause = self.rng.weighted(&[(4, 300), (3, 1_500), (1, 10_000)]);
                self.machine.advance(Duration::from_millis(pause));
            }
        }
        self.settle()
    }

    /// Delivers what was answered.
    pub(super) fn settle(&mut self) -> Result<(), Violation> {
        let mailbox = self.machine.process().mailbox;
        while !self.machine.has_stopped() {
            let Some((token, delivery)) = mailbox.take() else {
                return self.machine.check_wishes();
            };
            self.machine.trace.event("delivered", &[token.0]);
            let Some(asked) = self.waits.remove(&token) else { continue };
            match delivery {
                Delivery::Groups(reply) => self.group_answered(asked, reply)?,
                other => {
                    let excused = self.machine.driver().is_failed();
                    ensure!(excused, "INV-C2", "{asked:?} is answered by {other:?}");
                }
            }
        }
        Ok(())
    }

    /// The topic's partitions.
    pub(super) fn ids(&self) -> Vec<TopicPartition> {
        let topic = self.topic;
        let indexes = (0..self.partitions).map(PartitionIndex);
        indexes.map(|partition| TopicPartition { topic, partition }).collect()
    }

    pub(super) fn random_id(&mut self) -> TopicPartition {
        let ids = self.ids();
        ids[self.rng.index(ids.len())]
    }

    fn produce(&mut self) -> Result<(), Violation> {
        let id = self.random_id();
        let wall = self.machine.now().wall;
        let mut builder = BatchBuilder::new(Compression::None, wall);
        let value = vec![b'x'; self.rng.between(10, 600) as usize];
        for _ in 0..self.rng.between(1, 3) {
            builder.append(wall, None, Some(&value), []).expect("a small record fits");
        }
        let mut bytes = builder.build();
        let validated = validate(&bytes)?;
        let token = self.machine.token();
        let result = self.machine.driver().produce(id, &mut bytes, &validated, Acks::None, token);
        ensure!(result.is_ok() || self.machine.has_stopped(), "INV-F1", "{id}: {result:?}");
        Ok(())
    }

    /// Sets one property of the topic; whether it holds is the image's to say.
    fn configure(&mut self) {
        let (name, value) = self.rng.weighted(&[
            (4, ("retention.guard", "hold")),
            (2, ("retention.guard", "warn")),
            (1, ("retention.guard", "off")),
            (2, ("retention.guard.max.bytes", "0")),
            (2, ("retention.guard.max.bytes", "3000")),
            (3, ("retention.guard.max.bytes", "1000000")),
            (2, ("retention.ms", "2000")),
            (1, ("retention.ms", "20000")),
            (1, ("retention.bytes", "3000")),
            (1, ("retention.bytes", "-1")),
        ]);
        let change = ConfigChange {
            name: name.to_owned(),
            operation: ConfigOperation::Set,
            value: Some(value.to_owned()),
        };
        let resource = Resource { kind: ResourceKind::Topic, name: TOPIC.to_owned() };
        let resources = vec![(resource, vec![change])];
        let request = metadata::Request::AlterConfigs { resources, validate_only: false };
        let token = self.machine.token();
        let _ = self.machine.driver().ask_metadata(token, request);
    }

    /// The process is gone, and with it everything that was not answered.
    pub(super) fn disconnect_all(&mut self) {
        for (_, asked) in std::mem::take(&mut self.waits) {
            self.unanswered(&asked);
        }
        self.is_pressed = false;
    }
}

/// Producers, groups and the broker's threads always run; each of the others is off in every other
/// seed.
fn draw_ops(rng: &mut Rng) -> Vec<(u64, Op)> {
    const SOMETIMES: [(u64, Op); 4] =
        [(1, Op::DeleteGroup), (1, Op::DeleteRecords), (1, Op::PressDisk), (3, Op::Upkeep)];
    let mut ops = vec![
        (rng.between(15, 40), Op::Produce),
        (rng.between(5, 15), Op::Commit),
        (2, Op::Configure),
        (rng.between(8, 25), Op::SyncRound),
        (4, Op::Tick),
        (5, Op::Upkeep),
        (8, Op::LetTimePass),
    ];
    ops.extend(SOMETIMES.iter().filter(|_| rng.percent(50)));
    ops
}
