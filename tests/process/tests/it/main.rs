//! The product's promises, seen from outside of its process. One binary, so that it links once.

mod cluster;
mod compaction;
mod costs;
mod first_minute;
mod hostile;
mod kill;
mod lag;
mod life;
mod limits;
mod nodes;
mod operating;
mod queue_commands;
mod queue_worker;
mod queues;
mod scrub;
// The signer of the tests of HTTP: one is enough.
#[path = "../../../../crates/http/tests/http/sigv4.rs"]
mod sigv4;
mod sqs;
mod strangers;
mod support;
mod tasks;
mod verify;
