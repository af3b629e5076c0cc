//! Reads records: as a member of a group, or alone from chosen partitions.

mod assignor;
mod decode;
mod fetcher;
mod offsets;
mod reader;

pub(crate) use offsets::list_offsets;

pub use assignor::{Assignments, Assignor, MemberSubscription};
pub use fetcher::{FetchConfig, OffsetReset};
pub use offsets::{FoundOffset, Isolation, OffsetSpec};
pub use reader::{Bound, Reader};
