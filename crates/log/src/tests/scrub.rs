//! What lies still is read, and what has changed is found without a restart.

use towpath_model::Offset;

use super::fixture::*;
use crate::disk::Disk;
use crate::testing::{Dice, MemoryDisk};
use crate::{ReadError, ScrubReport, ScrubStep};

/// Five sealed segments of one batch each and an active one, durable and with a checkpoint.
fn log_of_six() -> (MemoryDisk, Directory, TestLog, Vec<Vec<u8>>) {
    let disk = MemoryDisk::default();
    let (directory, _) = open(&disk);
    let (mut log, _) = open_log(&directory, 0);
    let all = (0..6).map(|_| append(&mut log, 2, 900)).collect();
    log.save_checkpoint().unwrap();
    (disk, directory, log, all)
}

/// Reads every segment that lies still, in pieces; returns what that changed.
fn scrub(log: &mut TestLog) -> Vec<(Offset, ScrubReport)> {
    let (mut after, mut reports) = (None, Vec::new());
    while let Some(mut job) = log.next_to_scrub(after) {
        after = Some(job.segment());
        loop {
            match job.step(100).unwrap() {
                (ScrubStep::More, read) => assert!(0 < read),
                (ScrubStep::Gone, _) => break,
                (ScrubStep::Done(scrubbed), _) => {
                    reports.push((job.segment(), log.scrubbed(scrubbed).unwrap()));
                    break;
                }
            }
        }
    }
    reports
}

fn segment(base: i64) -> std::path::PathBuf {
    file(0, &format!("{base:020}.log"))
}

#[test]
fn a_healthy_log_is_read_and_left_alone() {
    let (_, _, mut log, all) = log_of_six();
    let reports = scrub(&mut log);
    assert_eq!(reports.iter().map(|(base, _)| base.0).collect::<Vec<_>>(), [0, 2, 4, 6, 8]);
    assert!(reports.iter().all(|(_, report)| *report == ScrubReport::default()), "{reports:?}");
    assert_eq!(contents(&log, Offset(0)), all.concat());
}

#[test]
fn a_flipped_bit_is_found_refused_and_remembered() {
    let (disk, directory, mut log, all) = log_of_six();
    // In the checksum, in the records, and in what no checksum covers: the base offset.
    for at in [17, 700, 6] {
        disk.flip(&segment(4), at);
    }
    let reports = scrub(&mut log);
    let (_, report) = &reports[2];
    assert_eq!(report.new_damage, vec![changed(4, 6)]);
    assert!(report.has_rebuilt_index);
    assert!(matches!(
        log.read(Offset(5), Offset(12), 999, true),
        Err(ReadError::CorruptBatch { from: Offset(4), to: Offset(6) })
    ));
    assert_eq!(contents(&log, Offset(6)), all[3..].concat());
    let again = scrub(&mut log);
    assert!(again.iter().all(|(_, report)| *report == ScrubReport::default()), "{again:?}");
    drop((log, directory));
    disk.power_cut(&mut Dice(1));
    let (directory, _) = open(&disk);
    let (log, recovery) = open_log(&directory, 0);
    assert_eq!((recovery.damage, recovery.new_damage), (vec![changed(4, 6)], 0));
    assert_eq!(contents(&log, Offset(6)), all[3..].concat());
}

#[test]
fn what_is_written_to_is_sealed_where_somebody_has_met_damage() {
    let (disk, _directory, mut log, all) = log_of_six();
    disk.flip(&segment(10), 700);
    assert!(log.scrub_of(Offset(11)).is_none());
    assert!(!log.seal_doubted(Offset(9)) && !log.seal_doubted(Offset(12)));
    assert!(log.seal_doubted(Offset(11)));
    assert!(!log.seal_doubted(Offset(11)), "it lies still");
    let reports = scrub(&mut log);
    assert_eq!(reports[5].1.new_damage[0].offsets, Offset(10)..Offset(12));
    let next = append(&mut log, 2, 900);
    assert_eq!(contents(&log, Offset(12)), next);
    assert_eq!(all.len(), 6);
}

#[test]
fn bytes_that_have_vanished_are_named_so() {
    let (disk, _directory, mut log, _) = log_of_six();
    let length = disk.content(&segment(4)).len();
    disk.overwrite(&segment(4), &vec![0; length]);
    disk.overwrite(&segment(6), b"");
    let reports = scrub(&mut log);
    assert_eq!(reports[2].1.new_damage, vec![missing(4, 6)]);
    assert_eq!(reports[3].1.new_damage, vec![missing(6, 8)]);
}

#[test]
fn a_wrong_index_is_rebuilt() {
    let disk = MemoryDisk::default();
    let (directory, _) = open(&disk);
    let (mut log, _) = open_log(&directory, 0);
    let all: Vec<Vec<u8>> = (0..40).map(|_| append(&mut log, 2, 90)).collect();
    log.save_checkpoint().unwrap();
    let names = disk.list(file(0, "x").parent().unwrap()).unwrap();
    let sealed = log.next_to_scrub(None).unwrap().segment();
    for kind in ["index", "timeindex"] {
        let name = format!("{:020}.{kind}", sealed.0);
        assert!(names.contains(&name));
        let right = disk.content(&file(0, &name));
        disk.flip(&file(0, &name), right.len() - 3);
        let reports = scrub(&mut log);
        assert!(reports[0].1.has_rebuilt_index && reports[0].1.new_damage.is_empty());
        assert!(reports[1..].iter().all(|(_, report)| *report == ScrubReport::default()));
        assert!(scrub(&mut log).iter().all(|(_, report)| !report.has_rebuilt_index));
    }
    // One that is whole and of another segment of the same shape says other places.
    let other = disk.content(&file(0, &format!("{:020}.index", reports_second(&log).0)));
    disk.overwrite(&file(0, &format!("{:020}.index", sealed.0)), &other);
    assert!(scrub(&mut log)[0].1.has_rebuilt_index);
    assert_eq!(contents(&log, Offset(0)), all.concat());
}

fn reports_second(log: &TestLog) -> Offset {
    let first = log.next_to_scrub(None).unwrap().segment();
    log.next_to_scrub(Some(first)).unwrap().segment()
}

#[test]
fn what_changes_meanwhile_makes_the_result_void() {
    let (disk, _directory, mut log, _) = log_of_six();
    disk.flip(&segment(0), 700);
    let mut job = log.next_to_scrub(None).unwrap();
    let (ScrubStep::Done(found), _) = job.step(u64::MAX).unwrap() else { panic!("not read") };
    log.start_moves_to(Offset(2)).unwrap();
    assert_eq!(log.scrubbed(found).unwrap(), ScrubReport::default());
    let mut job = log.next_to_scrub(None).unwrap();
    log.start_moves_to(Offset(6)).unwrap();
    assert!(matches!(job.step(100), Ok((ScrubStep::Gone, 0))));
    disk.flip(&segment(6), 700);
    let mut job = log.next_to_scrub(None).unwrap();
    let (ScrubStep::Done(found), _) = job.step(u64::MAX).unwrap() else { panic!("not read") };
    log.truncate_to(Offset(8)).unwrap();
    assert_eq!(log.scrubbed(found).unwrap(), ScrubReport::default(), "the generation has risen");
}
