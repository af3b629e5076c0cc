//! The metadata from outside: requests, their answers, and the state that the log gives back.

#[path = "../support/mod.rs"]
mod support;

mod brokers;
mod configs;
mod creating;
mod deleting;
mod growing;
mod records;
