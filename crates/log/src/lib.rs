//! One partition's segments on a [`disk::Disk`].

pub mod disk;
