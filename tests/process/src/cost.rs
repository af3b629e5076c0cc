//! What a process costs, as Linux tells it in `/proc`.

use std::fs;
use std::path::PathBuf;
use std::time::Duration;

use anyhow::{Context, Result};

/// Clock ticks per second in `/proc/PID/stat`: fixed by the kernel's interface to user space.
const TICKS_PER_S: u64 = 100;

/// One look at a process.
#[derive(Debug, Clone, Copy)]
pub struct Cost {
    /// Memory in RAM, in bytes.
    pub resident_bytes: u64,
    /// The part of it that is the process's own: no pages of files, which the kernel reads in as
    /// code is first run and takes back as it likes.
    pub anonymous_bytes: u64,
    /// Processor time, user and system together, of all its threads that still run and, rounded
    /// down to 10 ms, of those that ended.
    pub cpu: Duration,
    /// Open file descriptors.
    pub open_files: usize,
    /// Threads.
    pub threads: usize,
}

impl Cost {
    /// Looks at the process `pid`.
    pub fn of(pid: u32) -> Result<Cost> {
        let directory = PathBuf::from(format!("/proc/{pid}"));
        let read = |name: &str| {
            fs::read_to_string(directory.join(name))
                .with_context(|| format!("process {pid}: {name}"))
        };
        let status = read("status")?;
        let tasks: Vec<_> = fs::read_dir(directory.join("task"))?.collect::<Result<_, _>>()?;
        let running: u64 = tasks
            .iter()
            .filter_map(|task| fs::read_to_string(task.path().join("schedstat")).ok())
            .filter_map(|line| line.split_whitespace().next()?.parse::<u64>().ok())
            .sum();
        Ok(Cost {
            resident_bytes: kilobytes(&status, "VmRSS:").context("no VmRSS")? * 1024,
            anonymous_bytes: kilobytes(&status, "RssAnon:").context("no RssAnon")? * 1024,
            cpu: Duration::from_nanos(running).max(ticks(&read("stat")?)?),
            open_files: fs::read_dir(directory.join("fd"))?.count(),
            threads: tasks.len(),
        })
    }
}

fn kilobytes(status: &str, name: &str) -> Option<u64> {
    let line = status.lines().find_map(|line| line.strip_prefix(name))?;
    line.split_whitespace().next()?.parse().ok()
}

/// User and system time. The second field is the command in parentheses and may contain anything,
/// so counting starts behind the last parenthesis, at the third field.
fn ticks(stat: &str) -> Result<Duration> {
    let (_, rest) = stat.rsplit_once(')').context("no command in stat")?;
    let fields: Vec<&str> = rest.split_whitespace().collect();
    let of = |field: usize| -> Result<u64> {
        Ok(fields.get(field - 3).context("stat is too short")?.parse()?)
    };
    let ticks = of(14)? + of(15)?;
    Ok(Duration::from_millis(ticks * 1000 / TICKS_PER_S))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn our_own_cost_makes_sense() {
        let cost = Cost::of(std::process::id()).unwrap();
        assert!(1 << 20 < cost.resident_bytes);
        assert!(0 < cost.anonymous_bytes && cost.anonymous_bytes < cost.resident_bytes);
        assert!(0 < cost.threads && 2 < cost.open_files);
    }

    #[test]
    fn a_command_with_blanks_and_parentheses_does_not_shift_the_fields() {
        let stat = "7 (a ) b) S 1 7 7 0 -1 0 0 0 0 0 12 3 0 0 20 0 1 0 5";
        assert_eq!(ticks(stat).unwrap(), Duration::from_millis(150));
    }
}
