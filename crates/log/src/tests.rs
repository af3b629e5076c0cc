//! Tests of a whole data directory on a disk that forgets.

mod append;
mod compaction;
mod damage;
mod fixture;
mod lifecycle;
mod model;
mod outlook;
mod start;
mod timestamps;
mod write_ahead;
