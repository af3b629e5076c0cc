//! The HTTP API over real sockets, in front of a broker in this process.

mod api;
mod manners;
mod patience;
mod support;
