//! The metadata from outside: requests, their answers, and the state that the log gives back.

#[path = "../support/mod.rs"]
mod support;

mod balancing;
mod brokers;
mod configs;
mod creating;
mod deleting;
mod elections;
mod growing;
mod invariants;
mod liveness;
mod losing;
mod operating;
mod reassigning;
mod records;
mod tasks;
mod travel;
mod upkeep;
