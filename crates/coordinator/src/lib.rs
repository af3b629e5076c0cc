//! Replicated state that is a fold: consumer groups with their offsets, and HTTP publishers.
//!
//! Both are values behind the one contract of `towpath_model::StateMachine`: `decide` looks and
//! answers with records, `apply` carries records out. Nothing here reads a clock, draws a random
//! number or touches a disk; the driver hands those in. It knows no wire format of requests either:
//! the server translates, and maps each [`groups::Refusal`] to its Kafka code.
//!
//! The surprise: a rebalance in progress is in no log. What is logged of a group is its last
//! finished generation and its offsets; the rest lives in the leader's memory and is rebuilt by
//! the members' own retries (`docs/adr/0005-groups-as-a-fold.md`).

mod cursor;
pub mod groups;
#[cfg(test)]
mod machine;
pub mod publishers;
