//! Tests of a whole data directory on a disk that forgets.

mod append;
mod compaction;
mod damage;
mod fixture;
mod lifecycle;
mod model;
mod outlook;
mod quorum_files;
mod replica;
mod scrub;
mod start;
mod timestamps;
mod verify;
mod write_ahead;
