//! Composes the deciders of one process: what one partition does with an input, and which
//! partition a request belongs to.
//!
//! Pure: time, bytes' headers and IO results come in, orders go out. The driver carries the orders
//! out, so that the simulator runs exactly what the server runs. The surprise: a partition knows
//! nothing of its records' bytes, only their headers and offsets; bytes are the log's.

pub mod guard;
mod host;
pub mod lag;
mod losses;
mod partition;
pub mod peer;
mod shard;
mod watches;

pub use host::{Advanced, Host};
pub use losses::{LOSSES_MAX, Loss, Losses};
pub use partition::{Output, Partition, State};
pub use shard::{OFFSETS_TOPIC, PUBLISHERS_TOPIC, group_partition, publisher_partition};
pub use watches::{Condition, Outcome};
