//! What the system says of this process. Only Linux says it in files; elsewhere there is nothing.

use std::fs;

/// Bytes of memory that are resident.
pub(crate) fn resident_bytes() -> Option<u64> {
    let status = fs::read_to_string("/proc/self/status").ok()?;
    resident_in(&status)
}

fn resident_in(status: &str) -> Option<u64> {
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:"))?;
    let kib: u64 = line.trim().strip_suffix("kB")?.trim().parse().ok()?;
    Some(kib * 1024)
}

/// Open file descriptors.
pub(crate) fn open_files() -> Option<u64> {
    Some(fs::read_dir("/proc/self/fd").ok()?.count() as u64)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn resident_memory_is_read_in_bytes() {
        assert_eq!(resident_in("VmPeak:\t 9 kB\nVmRSS:\t  1234 kB\n"), Some(1234 * 1024));
        assert_eq!(resident_in("nothing"), None);
    }
}
