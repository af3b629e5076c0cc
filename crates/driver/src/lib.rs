//! Carries out what the broker's cores order, over the traits [`Disk`], [`Clock`] and [`Net`].
//!
//! The server (real disks, sockets, threads) and the simulator (everything from a seed) both run
//! this code, so the order of lock, write, sync and wake-up is what the simulator has tested.
//!
//! ```text
//! lock partition ─▶ core decides ─▶ log.append (page cache) ─▶ core: appended ─▶ unlock ─▶ wake
//! sync round: take dirty of many partitions ─▶ make all durable ─▶ core: synced ─▶ wake
//! ```
//!
//! Nothing but an append is carried out while a partition is locked. No function here waits:
//! an answer that must wait is delivered to its token through [`Net`].

mod cell;
mod compact;
mod config;
mod coordinate;
mod damage;
mod deadlines;
mod deliveries;
mod driver;
mod fetch;
mod find_offset;
mod fold_along;
mod forget;
mod inspect;
mod lag;
mod level;
mod locate;
mod manage;
mod offline;
mod open;
mod pair;
mod produce;
mod queue_limits;
mod queues;
mod quorum;
mod recover;
mod replicas;
mod report;
mod reserve;
mod retire;
mod room;
mod scrub;
mod stall;
mod sync;
mod upkeep;
mod volume;
mod world;

pub use compact::{CompactionTotals, CompactionWork, PartitionCompaction};
pub use coordinate::NotCoordinator;
pub use damage::Damaged;
pub use driver::{Driver, Settings};
pub use fetch::{FetchRefusal, Position, Read, ReadLimits, Reader};
pub use find_offset::{Finding, OffsetAnswer, OffsetQuery, TimeSearch};
pub use inspect::Stored;
pub use lag::{GroupLag, Lags};
pub use level::format_level;
pub use manage::DeleteRecordsRefusal;
pub use offline::Offline;
pub use open::{OpenError, Place};
pub use produce::{NoRoom, ProduceFailure, Produced};
pub use queue_limits::{QueueFull, QueueGivenUp};
pub use quorum::{Formation, QUORUM_TICK, Standing as BrokerStanding};
pub use replicas::{Batches, ComingReplica, NextRecords, Portion, ReplicationReport};
pub use report::{GroupReport, PartitionReport, Traffic};
pub use retire::GuardReport;
pub use room::Room;
pub use scrub::{ScrubTotals, ScrubWork};
pub use sync::{Round, SyncReport};
pub use towpath_broker::guard::Cause;
pub use towpath_broker::lag::{Lag, RATIO_WARNING, Standing};
pub use towpath_broker::peer::{self, Fed, PeerMessage, QuorumReport, ReportedMember};
pub use towpath_broker::{Condition, LOSSES_MAX, Loss, OFFSETS_TOPIC, Outcome};
pub use towpath_log::disk::{Disk, DiskFile, Space};
pub use towpath_log::{
    DamageCause, DamagedRange, LOOKUP_PLAIN_BYTES_MAX, Patience, Slice, TimeStep,
};
pub use volume::{MissingVolume, VolumeIndex, VolumeStatus};
pub use world::{Clock, Delivery, Net};
