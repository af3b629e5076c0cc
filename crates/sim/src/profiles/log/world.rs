//! What outlives a process: the disk, the clocks, the ghosts.

use std::collections::BTreeMap;
use std::path::Path;

use towpath_log::{DataDirectory, Identity, Log, LogConfig, LogPlace, OpenReport, Recovery};
use towpath_model::{
    BrokerId, LeaderEpoch, Offset, PartitionIndex, TopicName, TopicPartition, Uuid,
};

use super::ghost::{Ending, Ghost};
use super::swarm::Swarm;
use crate::clock::SimClock;
use crate::disk::SimDisk;
use crate::events::Events;
use crate::rng::Rng;
use crate::steps::Parted;
use crate::trace::Trace;
use crate::workload::Producer;

/// Its parents do not exist at first: they must become durable too.
pub(super) const ROOT: &str = "/srv/towpath/data";

pub(super) struct World {
    pub(super) rng: Rng,
    pub(super) disk: SimDisk,
    pub(super) clock: SimClock,
    pub(super) trace: Trace,
    pub(super) events: Events,
    pub(super) swarm: Swarm,
    pub(super) slots: Vec<Slot>,
    pub(super) leader_epoch: LeaderEpoch,
    /// Topics that were deleted for good.
    pub(super) gone: Vec<TopicPartition>,
    boot: u64,
}

/// One log of the data directory.
pub(super) struct Slot {
    pub(super) place: LogPlace,
    pub(super) ghost: Ghost,
    /// How badly processes have ended since the log was last compared with its ghost.
    pub(super) ending: Ending,
    /// A deletion has begun and not returned; it will be repeated before the log is used.
    pub(super) is_being_deleted: bool,
    pub(super) producer: Producer,
    /// Every producer snapshot that was handed over.
    pub(super) snapshots: BTreeMap<Offset, Vec<Vec<u8>>>,
}

impl Slot {
    fn new(place: LogPlace, producer: i64) -> Slot {
        Slot {
            place,
            ghost: Ghost::default(),
            ending: Ending::Closed,
            is_being_deleted: false,
            producer: Producer::new(producer),
            snapshots: BTreeMap::new(),
        }
    }
}

impl Parted for World {
    fn rng(&mut self) -> &mut Rng {
        &mut self.rng
    }

    fn trace(&self) -> &Trace {
        &self.trace
    }
}

impl World {
    pub(super) fn new(seed: u64, trace: Trace) -> World {
        trace.begin_world();
        let mut rng = Rng::new(seed);
        let swarm = Swarm::draw(&mut rng);
        let mut slots = vec![Slot::new(LogPlace::Metadata, 1)];
        let mut ids = rng.fork();
        for at in 0..swarm.partitions {
            slots.push(Slot::new(new_partition(&mut ids, at), at as i64 + 2));
        }
        let disk = SimDisk::new(rng.draw(), trace.clone());
        disk.set_copies_on_write(rng.percent(30));
        World {
            disk,
            clock: SimClock::new(),
            events: Events::new(),
            leader_epoch: LeaderEpoch(0),
            gone: Vec::new(),
            boot: 0,
            rng,
            trace,
            swarm,
            slots,
        }
    }

    pub(super) fn into_events(mut self) -> Events {
        self.events.merge(&self.disk.events());
        self.events
    }

    /// Opens the data directory on `disk`, which is the world's own or a copy.
    pub(super) fn open_directory(
        &self,
        disk: &SimDisk,
    ) -> Result<(DataDirectory<SimDisk>, OpenReport), String> {
        let identity = || Identity {
            cluster_id: "sim".to_owned(),
            node_id: BrokerId(1),
            directory_id: Uuid([7; 16]),
        };
        let boot = format!("boot-{}", self.boot);
        DataDirectory::open_with(disk.clone(), Path::new(ROOT), identity, &boot, self.swarm.limits)
            .map_err(|error| error.to_string())
    }

    pub(super) fn open_log(
        &self,
        directory: &DataDirectory<SimDisk>,
        slot: usize,
    ) -> Result<(Log<SimDisk>, Recovery), String> {
        directory
            .open_log(self.slots[slot].place.clone(), self.log_config())
            .map_err(|error| error.to_string())
    }

    pub(super) fn log_config(&self) -> LogConfig {
        LogConfig {
            segment_bytes: self.swarm.segment_bytes,
            index_interval_bytes: self.swarm.index_interval_bytes,
            ..LogConfig::default()
        }
    }

    /// The process ends; logs may lose what `ending` says.
    pub(super) fn end(&mut self, ending: Ending) {
        let event = match ending {
            Ending::Closed => "life: closed",
            Ending::Killed => "life: killed",
            Ending::PowerLost => "life: power lost",
        };
        self.events.note(event);
        for slot in &mut self.slots {
            slot.ending = slot.ending.max(ending);
        }
    }

    /// The machine starts again after it lost power.
    pub(super) fn reboot(&mut self) {
        self.boot += 1;
    }

    /// After a deletion: the slot's next log is another topic's.
    pub(super) fn replace_slot(&mut self, slot: usize) {
        let old = &self.slots[slot];
        self.gone.push(old.place.partition());
        let producer = old.producer.id.0;
        let place = new_partition(&mut self.rng, slot);
        self.slots[slot] = Slot::new(place, producer);
    }
}

fn new_partition(ids: &mut Rng, at: usize) -> LogPlace {
    let mut bytes = [0; 16];
    ids.fill(&mut bytes);
    LogPlace::Partition {
        topic: Uuid::from_random_bytes(bytes),
        name: TopicName::new(&format!("topic{at}")).expect("letters and digits"),
        partition: PartitionIndex(at as i32),
    }
}
