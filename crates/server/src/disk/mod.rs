//! The disks that exist: [`LinuxDisk`] with Linux's own calls, [`PortableDisk`] with the standard
//! library only; and the one that a node uses, [`NodeDisk`] around one of them. All keep the contract of [`Disk`](towpath_log::disk::Disk), checked by the same
//! suite as the simulated disk; nothing here retries, repairs or decides.

#[cfg(target_os = "linux")]
mod linux;
mod names;
mod node_disk;
mod portable;

#[cfg(test)]
mod tests;

#[cfg(target_os = "linux")]
pub use linux::{LinuxDisk, LinuxFile};
pub(crate) use node_disk::off_worker;
pub use node_disk::{DiskCall, Hindrance, NodeDisk, NodeFile};
pub use portable::{PortableDisk, PortableFile};

/// The disk for the system this was built for.
#[cfg(target_os = "linux")]
pub type SystemDisk = LinuxDisk;
/// The disk for the system this was built for.
#[cfg(not(target_os = "linux"))]
pub type SystemDisk = PortableDisk;
