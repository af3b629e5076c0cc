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

/// USER_HZ: what Linux counts in for programs, whatever it counts in itself.
const TICKS_PER_SECOND: f64 = 100.0;

/// CPU time in seconds, of all threads.
pub(crate) fn cpu_seconds() -> Option<f64> {
    Some(ticks_in(&fs::read_to_string("/proc/self/stat").ok()?)? as f64 / TICKS_PER_SECOND)
}

/// User and system time, the 14th and 15th field. The second one is a name in parentheses that may
/// hold anything.
fn ticks_in(stat: &str) -> Option<u64> {
    let (_, rest) = stat.rsplit_once(") ")?;
    let mut fields = rest.split(' ').skip(11);
    let user: u64 = fields.next()?.parse().ok()?;
    let system: u64 = fields.next()?.parse().ok()?;
    Some(user + system)
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

    #[test]
    fn times_are_found_behind_any_name() {
        let stat = "7 (a b) c) S 1 7 7 0 -1 4194560 5 0 0 0 130 12 0 0 20 0 9 0 99 1 2";
        assert_eq!(ticks_in(stat), Some(142));
        assert_eq!(ticks_in("7 (x"), None);
    }
}
