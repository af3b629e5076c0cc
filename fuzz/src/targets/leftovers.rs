//! What a start finds of work that did not end: a damage file, and a compaction that was cut off at any
//! of its disk calls (`.cleaned`, `.swap`, old segments beside the new one), with damage in them.
//!
//! ```text
//!   input = which disk u8 │ changes as for a whole directory
//! ```

use std::collections::BTreeSet;
use std::path::Path;
use std::sync::OnceLock;
use std::time::Duration;

use towpath_log::{CompactionRules, DataDirectory, Log, ScrubStep, Step};
use towpath_model::{Now, Time, Timestamp};
use towpath_sim::{SimDisk, Trace};

use super::directory::{
    BOOT, ROOT, append, commit, config, identity, limits, open_changed, places,
};
use crate::shape::Shape;
use crate::target::Target;

/// Damage to what lies behind unfinished work.
pub(super) const LEFTOVERS: Target =
    Target { name: "leftovers", seeds, run: open, memory_max: 64 << 20, waits_for_others: false };

/// The compacted log, and the damaged one.
const NTH: usize = 1;
/// Most disks on which a compaction was cut off, one per changing call.
const CUTS_MAX: u64 = 60;
const RULES: CompactionRules = CompactionRules {
    min_lag: Duration::ZERO,
    max_lag: None,
    min_dirty_ratio: 0.0,
    tombstones_kept: Duration::ZERO,
    key_bytes_max: 1 << 20,
};

fn disks() -> &'static [SimDisk] {
    static DISKS: OnceLock<Vec<SimDisk>> = OnceLock::new();
    DISKS.get_or_init(|| {
        let mut disks = vec![damaged()];
        for call in 1..=CUTS_MAX {
            let (disk, is_cut) = compacting(call);
            disks.push(disk);
            if !is_cut {
                break;
            }
        }
        disks
    })
}

/// A process with logs of several segments, all of it durable.
fn begin() -> (SimDisk, DataDirectory<SimDisk>, Vec<Log<SimDisk>>) {
    let disk = SimDisk::new(1, Trace::hashing());
    let (directory, _) =
        DataDirectory::open_with(disk.clone(), Path::new(ROOT), identity, BOOT, limits())
            .expect("a new one");
    let mut logs: Vec<Log<SimDisk>> = places()
        .into_iter()
        .map(|place| directory.open_log(place, config()).expect("a new log").0)
        .collect();
    for round in 0..24 {
        logs.iter_mut().for_each(|log| append(log, round));
        commit(&directory, &mut logs);
    }
    (disk, directory, logs)
}

/// A scrub has found a changed batch, and the process was stopped.
fn damaged() -> SimDisk {
    let (disk, directory, mut logs) = begin();
    logs.iter_mut().for_each(|log| log.save_checkpoint().expect("a healthy disk"));
    let log = &mut logs[NTH];
    let mut job = log.next_to_scrub(None).expect("a segment lies still");
    let of_topic = |path: &str| path.contains("topics/") && path.ends_with(&segment(job.segment()));
    let files = disk.files();
    let (path, _) = files.iter().find(|(path, _)| of_topic(path)).expect("the segment's file");
    disk.flip_bit(Path::new(path), 200, 3).expect("a healthy disk");
    let scrubbed = loop {
        match job.step(1 << 20).expect("a healthy disk").0 {
            ScrubStep::Done(scrubbed) => break scrubbed,
            ScrubStep::More => {}
            ScrubStep::Gone => panic!("nobody removes segments here"),
        }
    };
    log.scrubbed(scrubbed).expect("a healthy disk");
    assert!(!log.damaged().is_empty(), "the scrub has found what was changed");
    directory.close(&mut logs).expect("a healthy disk");
    end(disk, directory, logs)
}

fn segment(base: towpath_model::Offset) -> String {
    format!("{:020}.log", base.0)
}

/// A compaction, cut off at one of its changing calls; and whether it was.
fn compacting(call: u64) -> (SimDisk, bool) {
    let (disk, directory, mut logs) = begin();
    disk.crash_at(call);
    let log = &mut logs[NTH];
    let now = Now { time: Time(100), wall: Timestamp(1_800_000_000_000) };
    let limit = log.log_end_offset();
    let begun = log.begin_compaction(&RULES, now, limit, BTreeSet::new());
    if let Ok(Some(mut compaction)) = begun {
        loop {
            match compaction.step() {
                Ok(Step::Worked) => {}
                Ok(Step::Replace(replacement)) => {
                    if !log.replace(&replacement).unwrap_or(false) {
                        break;
                    }
                }
                Ok(Step::Finished(compacted)) => {
                    log.compacted(&compacted);
                    let _ = log.save_checkpoint();
                    break;
                }
                Err(_) => break,
            }
        }
    }
    let is_cut = disk.has_crashed();
    (end(disk, directory, logs), is_cut)
}

fn end(disk: SimDisk, directory: DataDirectory<SimDisk>, logs: Vec<Log<SimDisk>>) -> SimDisk {
    drop((logs, directory));
    disk.kill();
    disk.restart();
    disk.crash_never();
    disk
}

fn open(input: &[u8]) -> Shape {
    let Some((which, changes)) = input.split_first() else { return Shape::default() };
    let which = usize::from(*which) % disks().len();
    let kind = if which == 0 { "damaged" } else { "compacting" };
    open_changed(&disks()[which].fork(1), changes, Shape::default().word(kind))
}

/// Every disk as it is, and each with a change of every file that work leaves behind.
fn seeds() -> Vec<Vec<u8>> {
    let mut seeds = Vec::new();
    for (which, disk) in (0..).zip(disks()) {
        seeds.push(vec![which]);
        for (file, (path, _)) in (0..).zip(disk.files()) {
            let is_left =
                ["/damage", ".cleaned", ".swap", ".tmp"].iter().any(|l| path.ends_with(l));
            if is_left {
                seeds.push(vec![which, file, 0, 0, 20, 3]);
                seeds.push(vec![which, file, 3, 0, 40, 0, file, 2, 0, 8, 0xff]);
            }
        }
    }
    seeds
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn work_is_left_behind_in_every_form() {
        let has = |end: &str| {
            let is_on = |disk: &SimDisk| disk.files().iter().any(|(path, _)| path.contains(end));
            disks().iter().filter(|disk| is_on(disk)).count()
        };
        assert_eq!(has("/damage"), 1);
        assert!(0 < has(".cleaned") && 0 < has(".swap"));
        assert!(disks().len() <= CUTS_MAX as usize, "the last disk's compaction came to its end");
    }
}
