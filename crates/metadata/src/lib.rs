//! What the cluster has decided: topics, partitions, configuration, brokers, producer ids.
//!
//!   Request ── Metadata::decide ──▶ Records ──(metadata log)──▶ Image::apply ──▶ Image
//!
//! A state machine over records of its own; today they live in one broker's local log, later Raft
//! replicates the same records. [`Image`] is the state that everybody reads; a reader that wants
//! only what is committed folds a copy of its own from the committed records. [`effect`] says which
//! partitions a record makes the driver open, close or configure anew.
//!
//! All records of one decision are one atomic append: a topic is never seen without its partitions.
//! It knows nothing of logs, leaders' positions or connections. The surprise: candidates for random
//! things (topic ids) come in with the request, because deciding twice must give the same records.

mod accept_loss;
mod alter_configs;
mod alter_partitions;
mod alter_tasks;
mod balance;
mod broker;
mod cluster;
mod configs;
mod create_partitions;
mod create_topics;
mod delete_topics;
mod doubt_replicas;
mod effect;
mod elect;
mod elect_leaders;
mod format_level;
mod image;
mod members;
mod metadata;
mod place;
mod queue;
pub mod raft;
mod reassign;
mod record;
mod refusal;
mod register_broker;
mod request;
mod session;
mod settle;
mod snapshot;
mod survey;
mod task;
mod throttle;
mod topic;
mod upkeep;
mod wire;

pub use accept_loss::{AcceptedLoss, LossAcceptance, Survivor};
pub use balance::{BalancePlan, PlannedLeader, PlannedMove};
pub use broker::{Address, Broker, Role};
pub use cluster::{
    AlterPartitions, AlteredPartitions, Beat, ElectionKind, Heartbeat, NamedPartition,
    PartitionOutcomes, ProposedInSync, Reassignment, Registration,
};
pub use configs::{ConfigEntry, ConfigSource, ConfigSynonym};
pub use effect::{Effect, effect};
pub use format_level::FORMAT_LEVEL;
pub use image::Image;
pub use metadata::{Metadata, PRODUCER_IDS_PER_BLOCK};
pub use place::{Load, Placeable, Placement};
pub use queue::QueueRefusal;
pub use record::{ConfiguredResource, Overrides, Record};
pub use refusal::{Refusal, RefusalKind};
pub use request::{
    ConfigChange, ConfigOperation, ConfigValues, CreatedTopic, DeletedTopic, DoubtedReplicas,
    MorePartitions, NewTopic, Reply, Request, Resource, ResourceKind, TopicRef,
};
pub use session::{Session, Soft};
pub use survey::{BrokerState, Stuck, Survey};
pub use task::{
    FILTER_BYTES_MAX, IN_HAND_MAX, NewTask, REDRIVES_MAX_USUAL, TASKS_ACTIVE_MAX, TASKS_KEPT, Task,
    TaskFailure, TaskKind, TaskOrder, TaskProgress, TaskQueue, TaskReport, TaskState,
};
pub use throttle::Throttled;
pub use topic::{PartitionState, Topic};
