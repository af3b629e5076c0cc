//! What a follower needs of a log: whole batches as the leader has them, gaps and empty ones too.

use bytes::Bytes;
use towpath_model::{LeaderEpoch, Offset};
use towpath_records::{
    BatchHeader, Compression, set_base_offset, set_leader_epoch, split_batches, without_records,
};

use super::fixture::*;
use crate::testing::{Dice, MemoryDisk};
use crate::{Log, LogError, ReadError, Run, RunRefusal};

type Epochs = [(LeaderEpoch, Offset)];

/// A batch of `epoch` that holds `[base, base + records)`.
fn batch_of(base: i64, records: i64, epoch: i32, bytes: usize) -> Vec<u8> {
    let times: Vec<i64> = (base..base + records).collect();
    let mut batch = batch(Offset(base), &times, bytes, Compression::None);
    set_leader_epoch(&mut batch, LeaderEpoch(epoch));
    batch
}

/// The same without its records, as a compaction leaves it.
fn emptied(batch: &[u8]) -> Vec<u8> {
    let header = BatchHeader::parse(batch).unwrap();
    let mut empty = without_records(&header);
    set_base_offset(&mut empty, header.base_offset());
    set_leader_epoch(&mut empty, header.leader_epoch());
    empty
}

/// What a compaction may leave of three leaderships: a gap first, between, and where epoch 2 began.
fn compacted() -> Vec<Vec<u8>> {
    vec![
        batch_of(3, 2, 0, 300),
        batch_of(5, 1, 0, 10),
        emptied(&batch_of(8, 4, 0, 10)),
        batch_of(15, 2, 2, 700),
        batch_of(17, 1, 2, 1600),
        batch_of(20, 3, 3, 40),
        emptied(&batch_of(23, 1, 3, 10)),
        batch_of(24, 1, 3, 900),
    ]
}

fn check(bytes: &[u8], log: &TestLog, leader_epoch: i32) -> Result<Run, RunRefusal> {
    let end = log.log_end_offset();
    let last_epoch = log.leader_epoch_before(end);
    let bytes = Bytes::copy_from_slice(bytes);
    let mut starts: Vec<_> = split_batches(&bytes)
        .map(|batch| (batch.header.leader_epoch(), batch.header.base_offset()))
        .collect();
    starts.dedup_by_key(|(epoch, _)| *epoch);
    Run::check(bytes, end, last_epoch, LeaderEpoch(leader_epoch), &starts)
}

/// What lies in a file may be written anew while it is sent.
#[test]
fn batches_of_another_leadership_than_was_said_are_refused() {
    let batches = [batch_of(0, 3, 2, 10), batch_of(3, 2, 4, 10)].concat();
    let check = |last_epoch: Option<i32>, starts: &[(i32, i64)]| {
        let starts: Vec<_> =
            starts.iter().map(|(epoch, start)| (LeaderEpoch(*epoch), Offset(*start))).collect();
        let bytes = Bytes::copy_from_slice(&batches);
        let last_epoch = last_epoch.map(LeaderEpoch);
        Run::check(bytes, Offset(0), last_epoch, LeaderEpoch(5), &starts).map(drop)
    };
    let refused = |offset, epoch, said| {
        let (epoch, said) = (LeaderEpoch(epoch), LeaderEpoch(said));
        Err(RunRefusal::OtherEpoch { offset: Offset(offset), epoch, said })
    };
    assert_eq!(check(Some(2), &[(4, 3)]), Ok(()));
    // A compaction may have removed the first batch of a leadership.
    assert_eq!(check(Some(1), &[(2, 0), (3, 1), (4, 2)]), Ok(()));
    assert_eq!(check(None, &[(4, 3)]), Ok(()), "when the first one began is not known");
    assert_eq!(check(Some(2), &[(5, 3)]), refused(3, 4, 5));
    assert_eq!(check(Some(2), &[]), refused(3, 4, 2));
    assert_eq!(check(Some(1), &[(4, 3)]), refused(0, 2, 1));
}

fn append_all(log: &mut TestLog, bytes: &[u8], epochs: &Epochs) -> Result<usize, LogError> {
    let mut run = check(bytes, log, 9).unwrap();
    let mut writes = 0;
    while !log.append_run(&mut run, epochs, now(1))?.is_empty() {
        writes += 1;
    }
    Ok(writes)
}

fn replicate(leader: &TestLog, follower: &mut TestLog, max_bytes: usize) {
    while let Some(slice) = leader.read_for_replica(follower.log_end_offset(), max_bytes).unwrap() {
        let bytes = slice.read().unwrap();
        assert!(bytes.len() <= max_bytes || split_batches(&bytes).count() == 1);
        append_all(follower, &bytes, leader.leader_epochs()).unwrap();
        assert_eq!(follower.log_end_offset(), slice.next_offset);
    }
}

/// Everything from the first batch on, as a replica gets it.
fn whole(log: &TestLog) -> Vec<u8> {
    let mut at = log.first_batch_offset().unwrap();
    let mut all = Vec::new();
    while let Some(slice) = log.read_for_replica(at, 500).unwrap() {
        all.extend_from_slice(&slice.read().unwrap());
        at = slice.next_offset;
    }
    all
}

#[test]
fn a_replica_gets_every_batch_and_becomes_equal() {
    let disk = MemoryDisk::default();
    let (directory, _) = open(&disk);
    let (mut leader, _) = open_log(&directory, 0);
    let bytes = compacted().concat();
    let epochs = [(LeaderEpoch(0), Offset(0)), (LeaderEpoch(2), Offset(13))];
    let writes = append_all(&mut leader, &bytes, &epochs).unwrap();
    assert!(1 < writes && writes == leader.segment_count(), "one write a segment: {writes}");
    assert_eq!(whole(&leader), bytes);
    assert_eq!(
        leader.leader_epochs(),
        [(0, 0), (2, 13), (3, 20)].map(|(epoch, at)| (LeaderEpoch(epoch), Offset(at)))
    );
    for (partition, max_bytes) in [(1, 1), (2, 700), (3, 1 << 20)] {
        let (mut follower, _) = open_log(&directory, partition);
        replicate(&leader, &mut follower, max_bytes);
        assert_eq!(whole(&follower), bytes);
        assert_eq!(follower.leader_epochs(), leader.leader_epochs());
        commit(&directory, &mut [&mut follower]);
        assert_eq!(follower.durable_offset(), Offset(25));
    }
    // Clients see no batch without records.
    let seen = contents_of(&leader);
    assert_eq!(seen, compacted().iter().filter(|b| has_records(b)).cloned().collect::<Vec<_>>());
}

fn has_records(batch: &[u8]) -> bool {
    0 < BatchHeader::parse(batch).unwrap().record_count()
}

fn contents_of(log: &TestLog) -> Vec<Vec<u8>> {
    let mut at = Offset(0);
    let mut all = Vec::new();
    while let Some(slice) = log.read(at, log.log_end_offset(), 1 << 20, true).unwrap() {
        let bytes = slice.read().unwrap();
        all.extend(split_batches(&bytes).map(|batch| batch.bytes.to_vec()));
        at = slice.next_offset;
    }
    all
}

#[test]
fn a_replica_ends_where_a_batch_does() {
    let disk = MemoryDisk::default();
    let (directory, _) = open(&disk);
    let (mut log, _) = open_log(&directory, 0);
    append_all(&mut log, &compacted().concat(), &[]).unwrap();
    let first_of =
        |from| log.read_for_replica(Offset(from), 1).map(|s| s.map(|s| s.first_offset.0));
    assert_eq!(first_of(0).unwrap(), Some(3));
    assert_eq!(first_of(5).unwrap(), Some(5));
    assert_eq!(first_of(6).unwrap(), Some(8), "in a gap");
    assert_eq!(first_of(12).unwrap(), Some(15));
    assert_eq!(first_of(25).unwrap(), None);
    for inside in [4, 9, 16, 26] {
        assert!(matches!(first_of(inside), Err(ReadError::OutOfRange { .. })), "{inside}");
    }
    let resident = log.read_resident_for_replica(Offset(8), 1).unwrap().unwrap();
    assert_eq!((resident.first_offset, resident.next_offset), (Offset(8), Offset(12)));
    let epoch_before = |at| log.leader_epoch_before(Offset(at)).map(|epoch| epoch.0);
    assert_eq!(
        [0, 3, 4, 15, 16, 25].map(epoch_before),
        [None, None, Some(0), Some(0), Some(2), Some(3)]
    );
}

#[test]
fn a_replica_begins_at_the_batch_that_holds_the_log_start() {
    let disk = MemoryDisk::default();
    let (directory, _) = open(&disk);
    let (mut log, _) = open_log(&directory, 0);
    append_all(&mut log, &compacted().concat(), &[]).unwrap();
    commit(&directory, &mut [&mut log]);
    for (start, begin) in [(4, 3), (5, 5), (7, 7), (10, 8), (16, 15), (17, 17), (25, 25)] {
        log.start_moves_to(Offset(start)).unwrap();
        assert_eq!(log.first_batch_offset().unwrap(), Offset(begin), "starts at {start}");
        let found = log.read_for_replica(Offset(begin), 1).unwrap();
        assert!(found.is_none_or(|slice| Offset(start) < slice.next_offset));
        let before = log.read_for_replica(Offset(begin - 1), 1);
        assert!(matches!(before, Err(ReadError::OutOfRange { .. })), "{before:?}");
    }
}

#[test]
fn what_is_no_run_is_refused() {
    let disk = MemoryDisk::default();
    let (directory, _) = open(&disk);
    let (mut log, _) = open_log(&directory, 0);
    append_all(&mut log, &batch_of(0, 5, 3, 10), &[]).unwrap();
    let good = batch_of(5, 2, 3, 10);
    let refusal = |bytes: &[u8]| check(bytes, &log, 4).map(|_| ()).unwrap_err();
    assert!(check(&good, &log, 4).is_ok());
    assert_eq!(refusal(&[]), RunRefusal::CutOff { position: 0 });
    assert_eq!(refusal(&good[..70]), RunRefusal::CutOff { position: 0 });
    let tail = [&good[..], &good[..20]].concat();
    assert_eq!(refusal(&tail), RunRefusal::CutOff { position: good.len() });
    let mut damaged = good.clone();
    *damaged.last_mut().unwrap() ^= 1;
    assert_eq!(refusal(&damaged), RunRefusal::Checksum { offset: Offset(5) });
    let twice = [&good[..], &good[..]].concat();
    let overlap = |offset, expected| RunRefusal::Overlap {
        offset: Offset(offset),
        expected: Offset(expected),
    };
    assert_eq!(refusal(&twice), overlap(5, 7));
    assert_eq!(refusal(&batch_of(4, 2, 3, 10)), overlap(4, 5));
    assert!(matches!(refusal(&batch_of(5, 2, 2, 10)), RunRefusal::Epoch { .. }));
    assert!(matches!(refusal(&batch_of(5, 2, 5, 10)), RunRefusal::Epoch { .. }));
    assert!(matches!(refusal(&[1; 200]), RunRefusal::NotABatch { .. } | RunRefusal::CutOff { .. }));
}

/// What a stop left is a prefix of `batches`, no shorter than what was durable.
fn assert_prefix(log: &Log<MemoryDisk>, batches: &[Vec<u8>], durable: Offset, seen: &str) {
    let found = whole(log);
    let mut end = Offset(0);
    let mut bytes = 0;
    for batch in batches.iter().take_while(|batch| {
        bytes += batch.len();
        bytes <= found.len()
    }) {
        end = BatchHeader::parse(batch).unwrap().next_offset();
    }
    assert!(batches.concat().starts_with(&found), "{seen}");
    assert_eq!(log.log_end_offset(), end, "{seen}");
    assert!(durable <= end, "{seen}: {durable} was durable, {end} is left");
}

#[test]
fn gaps_survive_a_stop_anywhere() {
    let batches = compacted();
    for calls in 1..60 {
        for seed in 0..6 {
            let disk = MemoryDisk::default();
            let (directory, _) = open(&disk);
            let (mut log, _) = open_log(&directory, 0);
            disk.stop_after(calls);
            let mut durable = Offset(0);
            for run in batches.chunks(3) {
                if append_all(&mut log, &run.concat(), &[]).is_err() {
                    break;
                }
                let round = log.take_dirty().into_iter().collect();
                for committed in directory.commit(round) {
                    log.committed(&committed);
                }
                durable = log.durable_offset();
            }
            drop((log, directory));
            if seed == 0 {
                disk.kill()
            } else {
                disk.power_cut(&mut Dice(seed))
            }
            let seen = format!("stopped at {calls}, seed {seed}");
            let (directory, _) = open(&disk);
            let (mut log, recovery) = open_log(&directory, 0);
            assert_eq!(recovery.damage, vec![], "{seen}");
            assert_prefix(&log, &batches, durable, &seen);
            // It goes on from there.
            let bytes = batches.concat();
            let left = &bytes[whole(&log).len()..];
            if !left.is_empty() {
                append_all(&mut log, left, &[]).unwrap();
            }
            commit(&directory, &mut [&mut log]);
            drop((log, directory));
            disk.power_cut(&mut Dice(seed));
            let (directory, _) = open(&disk);
            assert_prefix(&open_log(&directory, 0).0, &batches, Offset(25), &seen);
        }
    }
}

#[test]
fn a_log_begins_anew_wherever_it_stops() {
    let batches = compacted();
    let anew = batch_of(40, 2, 5, 30);
    let mut has_begun = [false; 2];
    for (started, calls) in [false, true].into_iter().flat_map(|s| (1..45).map(move |c| (s, c))) {
        for seed in 0..6 {
            let disk = MemoryDisk::default();
            let (directory, _) = open(&disk);
            let (mut log, _) = open_log(&directory, 0);
            append_all(&mut log, &batches[..6].concat(), &[]).unwrap();
            commit(&directory, &mut [&mut log]);
            append_all(&mut log, &batches[6..].concat(), &[]).unwrap();
            if started {
                log.start_moves_to(Offset(16)).unwrap();
            }
            let start = log.log_start_offset();
            disk.stop_after(calls);
            let begun = log.begin_at(Offset(40), Some(b"producers")).is_ok();
            has_begun[usize::from(begun)] = true;
            if begun {
                assert_eq!(
                    (log.log_start_offset(), log.log_end_offset()),
                    (Offset(40), Offset(40))
                );
                assert_eq!((log.durable_offset(), log.size_bytes()), (Offset(40), 0));
                assert_eq!(log.leader_epochs(), []);
            }
            drop((log, directory));
            if seed == 0 {
                disk.kill()
            } else {
                disk.power_cut(&mut Dice(seed))
            }
            let seen = format!("stopped at {calls}, seed {seed}");
            let (directory, _) = open(&disk);
            let (mut log, recovery) = open_log(&directory, 0);
            assert_eq!(recovery.damage, vec![], "{seen}");
            assert_eq!(recovery.new_damage, 0, "{seen} {recovery:?} {log:?} {begun}");
            if log.log_start_offset() == Offset(40) {
                assert_eq!(log.log_end_offset(), Offset(40), "{seen}");
                assert_eq!(log.segment_count(), 0, "{seen}");
                let known = log.load_producers(Offset(40));
                assert_eq!(known, Some((Offset(40), b"producers".to_vec())), "{seen}");
            } else {
                assert!(!begun, "{seen}");
                assert_eq!(log.log_start_offset(), start, "{seen}");
                let (all, found) = (batches.concat(), whole(&log));
                let is_part = found.is_empty() || all.windows(found.len()).any(|w| w == found);
                assert!(is_part, "{seen}: {log:?}");
                log.begin_at(Offset(40), Some(b"producers")).unwrap();
            }
            append_all(&mut log, &anew, &[]).unwrap();
            commit(&directory, &mut [&mut log]);
            drop((log, directory));
            disk.power_cut(&mut Dice(seed + 9));
            let (directory, _) = open(&disk);
            let (log, _) = open_log(&directory, 0);
            assert_eq!((log.log_start_offset(), whole(&log)), (Offset(40), anew.clone()), "{seen}");
        }
    }
    assert_eq!(has_begun, [true, true]);
}

/// A leader may count on a replica whose log ends where it is to begin anew.
#[test]
fn a_log_that_begins_anew_at_its_end_never_ends_before() {
    let batches = compacted();
    let mut seen = [false; 2];
    for (calls, seed) in (1..30).flat_map(|calls| (0..6).map(move |seed| (calls, seed))) {
        let disk = MemoryDisk::default();
        let (directory, _) = open(&disk);
        let (mut log, _) = open_log(&directory, 0);
        append_all(&mut log, &batches.concat(), &[]).unwrap();
        commit(&directory, &mut [&mut log]);
        let end = log.log_end_offset();
        disk.stop_after(calls);
        let begun = log.begin_at(end, Some(b"producers")).is_ok();
        drop((log, directory));
        disk.power_cut(&mut Dice(seed));
        let (directory, _) = open(&disk);
        let (log, _) = open_log(&directory, 0);
        let about = format!("stopped at {calls}, seed {seed}");
        assert_eq!(log.log_end_offset(), end, "{about}");
        let is_anew = log.log_start_offset() == end;
        assert!(is_anew || (!begun && log.log_start_offset() == Offset(0)), "{about}");
        if is_anew {
            assert_eq!(log.load_producers(end), Some((end, b"producers".to_vec())), "{about}");
        }
        seen[usize::from(is_anew)] = true;
    }
    assert_eq!(seen, [true, true]);
}

#[test]
fn a_log_without_a_file_begins_anywhere() {
    let disk = MemoryDisk::default();
    let (directory, _) = open(&disk);
    let (mut log, _) = open_log(&directory, 0);
    log.begin_at(Offset(1000), Some(b"producers")).unwrap();
    drop((log, directory));
    disk.power_cut(&mut Dice(3));
    let (directory, _) = open(&disk);
    let (log, _) = open_log(&directory, 0);
    assert_eq!((log.log_start_offset(), log.log_end_offset()), (Offset(1000), Offset(1000)));
}

#[test]
fn a_round_from_before_a_new_beginning_vouches_for_nothing() {
    let disk = MemoryDisk::default();
    let (directory, _) = open(&disk);
    let (mut log, _) = open_log(&directory, 0);
    append_all(&mut log, &compacted().concat(), &[]).unwrap();
    let old = log.take_dirty().into_iter().collect();
    log.begin_at(Offset(40), Some(b"producers")).unwrap();
    append_all(&mut log, &batch_of(40, 2, 5, 30), &[]).unwrap();
    for committed in directory.commit(old) {
        assert_eq!(committed.result(), Ok(()));
        log.committed(&committed);
    }
    assert_eq!(log.durable_offset(), Offset(40));
}
