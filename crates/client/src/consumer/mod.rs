//! Reads records: as a member of a group, or alone from chosen partitions.

mod assignor;
mod commits;
mod decode;
mod fetcher;
mod group;
mod group_config;
mod membership;
mod offsets;
mod reader;
mod subscription;

pub(crate) use commits::{Committer, commit, committed};
pub(crate) use offsets::list_offsets;
pub(crate) use subscription::decode_assignment;

pub use assignor::{Assignments, Assignor, MemberSubscription};
pub use commits::Committed;
pub use fetcher::{FetchConfig, OffsetReset};
pub use group::GroupConsumer;
pub use group_config::{GroupConfig, RebalanceEvent, RebalanceListener};
pub use offsets::{FoundOffset, Isolation, OffsetSpec};
pub use reader::{Bound, Reader};
