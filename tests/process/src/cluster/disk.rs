//! A broker's disk: an ext4 file system in a file, mounted over a loop device, which frees itself
//! when it is unmounted.

use std::fs::{self, File};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result};
use rustix::fs::{FallocateFlags, fallocate, major, minor};

use super::node::NODES;
use super::tool;

/// Where the kernel keeps limits on block devices, in its first version of control groups. In the
/// second one, what a broker writes would have to be limited through its cache as well.
const LIMITS: &str = "/sys/fs/cgroup/blkio";
/// What a slow disk takes: bytes and writes per second.
const SLOW: [(&str, u64); 2] =
    [("blkio.throttle.write_bps_device", 512 << 10), ("blkio.throttle.write_iops_device", 40)];

/// One broker's disk.
#[derive(Debug)]
pub(super) struct Disk {
    mounted: PathBuf,
    limits: PathBuf,
    /// `major:minor` of the loop device.
    device: String,
}

impl Disk {
    /// Makes a file system of so many bytes in `directory` and mounts it there.
    pub(super) fn make(directory: &Path, node: u8, bytes: u64) -> Result<Disk> {
        let image = directory.join(format!("disk-{node}.img"));
        let mounted = directory.join(format!("disk-{node}"));
        File::create(&image)?.set_len(bytes)?;
        fs::create_dir(&mounted)?;
        let (image, place) = (image.to_string_lossy(), mounted.to_string_lossy());
        // Nothing is set aside for root, who fills it.
        tool::run("mkfs.ext4", &["-q", "-F", "-m", "0", &image])?;
        tool::run("mount", &["-o", "loop", &image, &place])?;
        let device = fs::metadata(&mounted)?.dev();
        let device = format!("{}:{}", major(device), minor(device));
        let limits = limits_of(std::process::id(), node);
        Ok(Disk { mounted, limits, device })
    }

    /// The broker's data directory.
    pub(super) fn data(&self) -> PathBuf {
        self.mounted.join("data")
    }

    fn filler(&self) -> PathBuf {
        self.mounted.join("filler")
    }

    /// Leaves so many bytes free, about.
    pub(super) fn fill(&self, leave_bytes: u64) -> Result<()> {
        let file = File::create(self.filler())?;
        let mut filled = 0;
        let mut step = 1 << 30;
        while 4096 <= step {
            match fallocate(&file, FallocateFlags::empty(), filled, step) {
                Ok(()) => filled += step,
                Err(rustix::io::Errno::NOSPC) => step /= 2,
                Err(error) => return Err(error).context("the disk cannot be filled"),
            }
        }
        file.set_len(filled.saturating_sub(leave_bytes))?;
        Ok(())
    }

    /// Frees what [`Disk::fill`] took.
    pub(super) fn free(&self) -> Result<()> {
        Ok(fs::remove_file(self.filler())?)
    }

    /// Whether it can be made slow here.
    pub(super) fn can_be_slow() -> bool {
        Path::new(LIMITS).join(SLOW[0].0).exists()
    }

    /// Makes it slow for this process, which a broker has to be told at every start.
    pub(super) fn slow(&self, pid: u32) -> Result<()> {
        fs::create_dir_all(&self.limits)?;
        for (file, limit) in SLOW {
            fs::write(self.limits.join(file), format!("{} {limit}", self.device))?;
        }
        Ok(fs::write(self.limits.join("cgroup.procs"), pid.to_string())?)
    }

    /// Makes it quick again, for everybody.
    pub(super) fn quicken(&self) -> Result<()> {
        for (file, _) in SLOW {
            fs::write(self.limits.join(file), format!("{} 0", self.device))?;
        }
        Ok(())
    }
}

fn limits_of(run: u32, node: u8) -> PathBuf {
    Path::new(LIMITS).join(format!("towpath-{run}-{node}"))
}

/// Removes the limits of a run whose brokers have ended.
pub(super) fn remove_limits(run: u32) {
    for node in NODES {
        // Most disks were never slow.
        let _ = fs::remove_dir(limits_of(run, node));
    }
}
