mod properties;

use std::time::Duration;

use towpath_model::{Offset, Uuid};

use super::*;
use crate::machine::Machine;

fn config() -> PublishersConfig {
    PublishersConfig {
        publishers_max: 3,
        append_timeout: Duration::from_secs(60),
        check_interval: Duration::from_secs(600),
    }
}

fn machine() -> Machine<Publishers> {
    Machine::new(|| Publishers::new(config()))
}

fn publisher(name: &str) -> Publisher {
    Publisher { topic: Uuid([7; 16]), name: name.into() }
}

fn begin_into(
    machine: &mut Machine<Publishers>,
    name: &str,
    sequence: i64,
    partition: i32,
) -> Reply {
    let mut producer_id = None;
    loop {
        let request = Request::Begin {
            publisher: publisher(name),
            sequence,
            partition: PartitionIndex(partition),
            producer_id,
        };
        let (_, decision) = machine.ask(request);
        match decision.replies.into_iter().next().expect("an answer").1 {
            Reply::NeedsProducerId if producer_id.is_none() => producer_id = Some(ProducerId(500)),
            answer => return answer,
        }
    }
}

fn begin(machine: &mut Machine<Publishers>, sequence: i64) -> Reply {
    begin_into(machine, "7", sequence, 0)
}

fn append(machine: &mut Machine<Publishers>, sequence: i64, partition: i32) -> Intent {
    match begin_into(machine, "7", sequence, partition) {
        Reply::Append(intent) => intent,
        other => panic!("{other:?}"),
    }
}

fn finish(machine: &mut Machine<Publishers>, number: u64, outcome: Outcome) -> Reply {
    let request = Request::Finish { publisher: publisher("7"), number, outcome };
    machine.ask(request).1.replies.remove(0).1
}

fn appended(offset: i64) -> Outcome {
    Outcome::Appended { offset: Offset(offset), timestamp: Timestamp(offset * 10) }
}

fn published(offset: i64, partition: i32) -> Published {
    let (offset, timestamp) = (Offset(offset), Timestamp(offset * 10));
    Published { partition: PartitionIndex(partition), offset, timestamp }
}

fn publish(machine: &mut Machine<Publishers>, sequence: i64, partition: i32) {
    let intent = append(machine, sequence, partition);
    let partition_was = intent.partition;
    assert_eq!(partition_was, PartitionIndex(partition));
    assert_eq!(finish(machine, intent.number, appended(sequence)), Reply::Finished);
}

#[test]
fn a_repeat_gets_the_first_result_also_after_a_restart() {
    let mut machine = machine();
    publish(&mut machine, 5, 2);
    assert_eq!(begin(&mut machine, 5), Reply::Repeat(published(5, 2)));
    machine.crash(true);
    assert_eq!(begin(&mut machine, 5), Reply::Repeat(published(5, 2)));
}

#[test]
fn sequences_only_have_to_rise_and_older_ones_are_stale() {
    let mut machine = machine();
    publish(&mut machine, -3, 0);
    publish(&mut machine, 10, 0);
    publish(&mut machine, 12, 0);
    assert_eq!(begin(&mut machine, 11), Reply::Stale);
    assert_eq!(begin(&mut machine, i64::MIN), Reply::Stale);
    assert_eq!(begin(&mut machine, -3), Reply::Repeat(published(-3, 0)));
}

#[test]
fn the_last_hundred_results_are_known() {
    let mut machine = machine();
    for sequence in 0..101 {
        publish(&mut machine, sequence, 0);
    }
    assert_eq!(begin(&mut machine, 0), Reply::Stale);
    assert_eq!(begin(&mut machine, 1), Reply::Repeat(published(1, 0)));
    machine.crash(true);
    assert_eq!(begin(&mut machine, 0), Reply::Stale);
    assert_eq!(begin(&mut machine, 1), Reply::Repeat(published(1, 0)));
    assert_eq!(begin(&mut machine, 100), Reply::Repeat(published(100, 0)));
}

#[test]
fn producer_sequences_are_gapless_per_partition() {
    let mut machine = machine();
    for (sequence, partition, expected) in [(1, 0, 0), (2, 1, 0), (3, 0, 1), (4, 0, 2), (5, 1, 1)] {
        machine.crash(sequence % 2 == 0);
        let intent = append(&mut machine, sequence, partition);
        assert_eq!(intent.producer_sequence, Sequence(expected));
        assert_eq!((intent.producer_id, intent.producer_epoch.0), (ProducerId(500), 0));
        assert_eq!(finish(&mut machine, intent.number, appended(sequence)), Reply::Finished);
    }
}

#[test]
fn an_append_under_way_is_busy_until_its_time_is_up() {
    let mut machine = machine();
    let intent = append(&mut machine, 1, 0);
    assert_eq!(begin(&mut machine, 1), Reply::Busy);
    assert_eq!(begin(&mut machine, 2), Reply::Busy);
    machine.wait(Duration::from_secs(60));
    assert_eq!(begin(&mut machine, 2), Reply::Resolve(intent));
}

#[test]
fn after_a_crash_the_fate_is_asked_for_and_the_result_is_the_first() {
    let mut machine = machine();
    let intent = append(&mut machine, 1, 4);
    machine.crash(false);
    assert_eq!(begin(&mut machine, 1), Reply::Resolve(intent));
    assert_eq!(begin(&mut machine, 2), Reply::Resolve(intent));
    assert_eq!(finish(&mut machine, intent.number, appended(9)), Reply::Finished);
    assert_eq!(begin(&mut machine, 1), Reply::Repeat(published(9, 4)));
    // Whoever else asked for it comes too late, and nothing changes.
    assert_eq!(finish(&mut machine, intent.number, Outcome::NotAppended), Reply::Superseded);
    assert_eq!(begin(&mut machine, 1), Reply::Repeat(published(9, 4)));
}

#[test]
fn a_refuted_append_is_repeated_as_the_same_producer_and_sequence() {
    let mut machine = machine();
    publish(&mut machine, 1, 4);
    let lost = append(&mut machine, 2, 4);
    machine.crash(true);
    assert_eq!(finish(&mut machine, lost.number, Outcome::NotAppended), Reply::Finished);
    machine.crash(true);
    // Another partition was asked for: the first choice holds, a straggler is on its way to it.
    let again = append(&mut machine, 2, 0);
    assert_eq!(again, Intent { number: lost.number + 1, ..lost });
    assert_eq!(begin(&mut machine, 1), Reply::Repeat(published(1, 4)));
    // The first attempt turns out to have arrived; the second one's answer is what counts.
    assert_eq!(finish(&mut machine, lost.number, appended(8)), Reply::Superseded);
    assert_eq!(finish(&mut machine, again.number, appended(8)), Reply::Finished);
    assert_eq!(begin(&mut machine, 2), Reply::Repeat(published(8, 4)));
}

#[test]
fn giving_a_refuted_message_up_fences_its_straggler() {
    let mut machine = machine();
    publish(&mut machine, 1, 4);
    let lost = append(&mut machine, 2, 4);
    assert_eq!(finish(&mut machine, lost.number, Outcome::NotAppended), Reply::Finished);
    let next = append(&mut machine, 3, 4);
    assert_eq!(next.producer_epoch, ProducerEpoch(lost.producer_epoch.0 + 1));
    assert_eq!(next.producer_sequence, Sequence(0));
    assert_eq!(finish(&mut machine, next.number, appended(3)), Reply::Finished);
    assert_eq!(begin(&mut machine, 2), Reply::Stale);
    machine.crash(true);
    assert_eq!(begin(&mut machine, 2), Reply::Stale);
    let after = append(&mut machine, 4, 4);
    assert_eq!((after.producer_epoch, after.producer_sequence), (next.producer_epoch, Sequence(1)));
}

#[test]
fn a_used_up_epoch_needs_another_producer_id() {
    let mut machine = machine();
    let intent = append(&mut machine, 1, 0);
    let worn = Intent { producer_epoch: ProducerEpoch(i16::MAX), ..intent };
    let (publisher, at, is_refuted) = (publisher("7"), machine.now.wall, true);
    let record = Record::Intended { publisher: publisher.clone(), intent: worn, at, is_refuted };
    machine.state.apply(&record);
    let (sequence, partition) = (2, PartitionIndex(0));
    let begin = |producer_id| Request::Begin {
        publisher: publisher.clone(),
        sequence,
        partition,
        producer_id,
    };
    assert_eq!(machine.ask(begin(None)).1.replies[0].1, Reply::NeedsProducerId);
    let fresh = machine.ask(begin(Some(ProducerId(501)))).1.replies.remove(0).1;
    let Reply::Append(intent) = fresh else { panic!("{fresh:?}") };
    assert_eq!((intent.producer_id, intent.producer_epoch.0), (ProducerId(501), 0));
    assert_eq!((intent.number, intent.producer_sequence), (2, Sequence(0)));
}

#[test]
fn publishers_and_results_are_forgotten_after_a_day() {
    let mut machine = machine();
    publish(&mut machine, 1, 0);
    machine.wait(RETENTION / 2);
    publish(&mut machine, 2, 1);
    machine.wait(RETENTION / 2 + Duration::from_secs(600));
    assert_eq!(begin(&mut machine, 1), Reply::Stale);
    assert_eq!(begin(&mut machine, 2), Reply::Repeat(published(2, 1)));
    machine.wait(RETENTION);
    assert!(machine.state.is_empty());
    assert!(machine.replay(false).is_empty());
    // It is a new publisher now, and may begin anywhere.
    publish(&mut machine, 1, 0);
}

#[test]
fn a_deleted_topic_takes_its_publishers_along() {
    let mut machine = machine();
    publish(&mut machine, 1, 0);
    publish(&mut machine, 2, 1);
    let deleted = Request::TopicDeleted { topic: Uuid([7; 16]) };
    assert_eq!(machine.ask(deleted).1.replies[0].1, Reply::TopicDeleted { publishers: 1 });
    machine.crash(true);
    assert!(machine.state.is_empty());
}

#[test]
fn publishers_are_bounded_and_names_are_checked() {
    let mut machine = machine();
    for name in ["a", "b", "c"] {
        assert!(matches!(begin_into(&mut machine, name, 1, 0), Reply::Append(_)));
    }
    assert_eq!(machine.state.len(), 3);
    assert_eq!(begin_into(&mut machine, "d", 1, 0), Reply::TooManyPublishers);
    assert_eq!(begin_into(&mut machine, "", 1, 0), Reply::InvalidName);
    assert_eq!(begin_into(&mut machine, &"x".repeat(257), 1, 0), Reply::InvalidName);
    // Others are not held up by one that waits.
    assert_eq!(begin_into(&mut machine, "a", 1, 0), Reply::Busy);
}

#[test]
fn partitions_follow_from_the_numbers_and_are_spread() {
    assert_eq!(message_partition("p", 1, 12), message_partition("p", 1, 12));
    let mut counts = [0; 12];
    for sequence in 0..12_000 {
        counts[usize::try_from(message_partition("p", sequence, 12).0).expect("in range")] += 1;
    }
    assert!(counts.iter().all(|count| (800..1200).contains(count)), "{counts:?}");
    assert!((0..50).contains(&publisher_partition(&publisher("7"), 50)));
    assert_eq!(message_partition("p", 1, 0), PartitionIndex(0));
}

#[test]
fn broken_records_end_in_an_error_and_later_kinds_are_skipped() {
    use towpath_model::FoldRecord;

    let mut machine = machine();
    append(&mut machine, 1, 0);
    let logged = machine.state.logged_state().next().expect("an intent");
    let logged = logged.encode().expect("it is logged");
    let value = logged.value.expect("no tombstone");
    for end in 0..value.len() {
        assert!(Record::decode(&logged.key, Some(&value[..end])).is_err());
    }
    for end in 0..logged.key.len() {
        assert!(Record::decode(&logged.key[..end], Some(&value)).is_err());
    }
    assert_eq!(Record::decode(&[9, 1, 2], Some(&value)), Ok(None));
    let later_version: Vec<u8> = [2].into_iter().chain(value).collect();
    assert!(Record::decode(&logged.key, Some(&later_version)).is_err());
}
