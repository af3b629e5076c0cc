use super::*;

/// Segments of 10 records and 100 bytes, the n-th with a newest record of time `n * step`.
fn expiring(segments: i64, step: i64, readers: &[(&str, i64)]) -> Expiring {
    let segment = |n: i64| ExpiredSegment {
        end_offset: Offset(n * 10),
        bytes: 100,
        newest: Timestamp(n * step),
        cause: Cause::RetentionTime,
    };
    Expiring {
        log_start_offset: Offset(0),
        segments: (1..=segments).map(segment).collect(),
        readers: readers.iter().map(|(group, at)| ((*group).into(), Offset(*at))).collect(),
    }
}

fn hold(cap: u64) -> Rules {
    Rules { guard: RetentionGuard::Hold, hold_bytes_max: cap, is_disk_pressed: false }
}

fn one(rules: &Rules, expiring: Expiring) -> Verdict {
    let partitions = BTreeMap::from([(PartitionIndex(0), expiring)]);
    decide(rules, &partitions).remove(&PartitionIndex(0)).unwrap()
}

fn lost(verdict: &Verdict) -> Vec<(&str, i64, i64, Cause)> {
    verdict.losses.iter().map(|l| (&*l.group, l.from.0, l.to.0, l.cause)).collect()
}

#[test]
fn what_every_group_has_read_goes_and_the_rest_is_held() {
    let verdict = one(&hold(10_000), expiring(4, 1, &[("fast", 40), ("slow", 25)]));
    assert_eq!((verdict.start, verdict.held_bytes), (Some(Offset(20)), 200));
    assert_eq!(verdict.losses, []);
}

#[test]
fn without_groups_nothing_is_held() {
    let verdict = one(&hold(10_000), expiring(4, 1, &[]));
    assert_eq!((verdict.start, verdict.held_bytes), (Some(Offset(40)), 0));
}

#[test]
fn warn_holds_nothing_and_names_what_is_lost() {
    let rules = Rules { guard: RetentionGuard::Warn, ..hold(10_000) };
    let verdict = one(&rules, expiring(4, 1, &[("fast", 40), ("slow", 25)]));
    assert_eq!(verdict.start, Some(Offset(40)));
    assert_eq!(lost(&verdict), [("slow", 25, 40, Cause::RetentionTime)]);
    let off = Rules { guard: RetentionGuard::Off, ..rules };
    assert_eq!(one(&off, expiring(4, 1, &[("slow", 25)])).losses, []);
}

#[test]
fn beyond_the_cap_the_oldest_goes_and_is_named() {
    let verdict = one(&hold(150), expiring(4, 1, &[("slow", 3)]));
    assert_eq!((verdict.start, verdict.held_bytes), (Some(Offset(30)), 100));
    assert_eq!(lost(&verdict), [("slow", 3, 30, Cause::GuardCap)]);
}

#[test]
fn the_partitions_of_a_topic_share_the_cap_and_the_oldest_segment_goes_first() {
    let partitions = BTreeMap::from([
        (PartitionIndex(0), expiring(3, 100, &[("slow", 0)])),
        (PartitionIndex(1), expiring(3, 10, &[("slow", 0)])),
        (PartitionIndex(2), expiring(0, 1, &[("slow", 0)])),
    ]);
    let verdicts = decide(&hold(250), &partitions);
    let start = |partition| verdicts[&PartitionIndex(partition)].start;
    assert_eq!((start(0), start(1), start(2)), (Some(Offset(10)), Some(Offset(30)), None));
    let held: u64 = verdicts.values().map(|verdict| verdict.held_bytes).sum();
    assert_eq!(held, 200, "the most that fits");
}

#[test]
fn a_full_disk_comes_first() {
    let rules = Rules { is_disk_pressed: true, ..hold(10_000) };
    let verdict = one(&rules, expiring(3, 1, &[("slow", 12)]));
    assert_eq!((verdict.start, verdict.held_bytes), (Some(Offset(30)), 0));
    assert_eq!(lost(&verdict), [("slow", 12, 30, Cause::DiskPressure)]);
}

#[test]
fn a_segment_that_was_read_goes_by_retention_whatever_follows() {
    let rules = Rules { is_disk_pressed: true, ..hold(10_000) };
    let verdict = one(&rules, expiring(3, 1, &[("fast", 20), ("slow", 10)]));
    assert_eq!(
        lost(&verdict),
        [("slow", 10, 30, Cause::DiskPressure), ("fast", 20, 30, Cause::DiskPressure)]
    );
}

#[test]
fn whoever_has_lost_before_loses_only_what_was_still_there() {
    let mut expiring = expiring(3, 1, &[("slow", 2)]);
    expiring.log_start_offset = Offset(15);
    expiring.segments.remove(0);
    let rules = Rules { guard: RetentionGuard::Warn, ..hold(0) };
    assert_eq!(lost(&one(&rules, expiring)), [("slow", 15, 30, Cause::RetentionTime)]);
}
