//! Kills a broker again and again under load, and then asks whether it kept its word.
//!
//! ```text
//!   writers (client, idempotent) ┐                        ┌ kill -9 after 5–500 ms
//!   publishers (HTTP)            ├──▶ towpath serve ◀─────┤ kill -9 again while it starts
//!   members of one group         │    same data, ports    └ SIGTERM
//!   topics created and deleted   ┘
//! ```
//!
//! Clients reconnect by themselves; nobody tells them. At the end the load stops, the group reads to
//! the end, the broker is killed once more, and everything is read and compared.

mod campaign;
mod chaos;
mod churn;
mod publishers;

pub use campaign::{Plan, Summary, run};
