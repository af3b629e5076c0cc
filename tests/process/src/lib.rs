//! Real broker processes from the outside: start them, feed them, kill them, and compare what they
//! promised with what is there afterwards.
//!
//! ```text
//!   BrokerProcess   the binary, its two addresses, its log, what it costs
//!   kafka, http     small clients of our own, so that a bug in `towpath-client` cannot hide one
//!   hostile         bytes that no client would send
//!   attack          those bytes, bombs and slow connections, while honest clients go on
//!   history         what was promised: the checker's own model, independent of the broker's code
//!   load            writers and members of a group, for brokers that die under them
//!   kill            load, kill -9, restart, again; and then the history is checked
//!   cluster         three brokers on networks and disks of their own, to which things happen
//! ```
//!
//! What surprises: nothing here knows how the broker works. A test that needs to look into a data
//! directory belongs to the simulator; `cluster` alone does it, to compare copies.

pub mod attack;
mod binary;
mod broker_process;
pub mod cluster;
mod cost;
pub mod history;
pub mod hostile;
pub mod http;
pub mod kafka;
pub mod kill;
mod load;

pub use binary::{is_optimised, towpath_binary};
pub use broker_process::{Addresses, BrokerProcess, Finished, Start, Starting, free_addresses};
pub use cost::Cost;
