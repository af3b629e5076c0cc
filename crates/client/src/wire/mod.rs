//! Sockets and frames: one [`Connection`] to one broker, and the first bytes of strangers.

mod connection;
mod stranger;

pub use connection::{Answer, Connection, Pending, Place};
pub use stranger::recognise;
