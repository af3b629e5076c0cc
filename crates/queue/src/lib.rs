//! Work queues: who gets which message, until when, and what becomes of it.
//!
//! ```text
//!   ready ──receive──▶ leased ──delete──▶ settled
//!    │ ▲                 │
//!    │ └─ comes back ────┘  lease ends, given back, failed: at once or after a delay
//!    └─ next receive would be one too many ──▶ moving ──▶ settled here, ready in the dead-letter queue
//! ```
//!
//! A message is an offset of a partition's log; what is in it is the log's affair. [`Deliveries`] is the
//! fold of that partition's delivery log, one for all of its subscriptions; every arrow is one record, so
//! a message is never lost between two places. Nothing here depends on how far the oldest and the newest
//! unsettled message are apart.

mod admission;
mod advice;
mod bytes;
mod decide;
mod dedup;
mod deliveries;
mod due;
mod expire;
mod groups;
mod growth;
mod index;
mod limit;
mod moving;
mod named;
mod names;
mod observed;
mod ranges;
mod record;
mod request;
mod settled;
mod snapshot;
mod stats;
mod subscription;
mod time;
mod waits;

#[cfg(test)]
mod tests;

pub use admission::{
    DEAD_ATTEMPT, DEAD_NOTE, DEAD_REASON, DEAD_RECEIVES, DEAD_SOURCE, DEDUP_ID, DELAY_MAX,
    DELIVER_AFTER, DELIVER_AT, FIRST_DEDUP_ID, FIRST_ID, FIRST_SENT, MOVED_FROM, PRIORITY,
    PRIORITY_MAX, REDRIVEN_BY, REDRIVES, TTL, duration, facts_of, identity, identity_header,
};
pub use advice::{TooShort, Worked};
pub use decide::{DeliveryDecision, LEASE_MAX, RECEIVE_MAX};
pub use dedup::{DedupKey, Identity};
pub use deliveries::{Deliveries, Holding, OWN_SUBSCRIPTION, PRIORITY_USUAL, SUBSCRIPTIONS_MAX};
pub use groups::GroupNumber;
pub use growth::{Growth, GrowthRule, Load};
pub use limit::{Fill, Limits, Measure, OverLimit};
pub use observed::{Durations, Observed, RECEIVES_UP_TO, Recent, quantile};
pub use ranges::OffsetRanges;
pub use record::{DeadReason, Record, Return, Settlement, Special, Verdict};
pub use request::{
    Delay, Delivery, DeliveryConfig, Departure, Facts, Receipt, ReceiptOutcome, Receive, Reply,
    Request, Retry, Wait,
};
pub use settled::SettledSet;
pub use stats::{PeekFilter, PeekState, Peeked, Stats};
pub use subscription::{Attempt, Move};
pub use time::QueueTime;
