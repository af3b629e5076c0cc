//! CreatePartitions.

use towpath_metadata::{MorePartitions, Reply, Request};
use towpath_model::BrokerId;

use crate::support::{World, told};

fn grow(world: &mut World, count: i32, assignments: Option<&[&[i32]]>) -> String {
    let assign = |lists: &[&[i32]]| {
        lists.iter().map(|ids| ids.iter().map(|id| BrokerId(*id)).collect()).collect()
    };
    let topics =
        vec![MorePartitions { name: "t".to_owned(), count, assignments: assignments.map(assign) }];
    let reply = world.ask(Request::CreatePartitions { topics, validate_only: false });
    let Reply::CreatedPartitions(mut results) = reply else { panic!() };
    told(results.remove(0).1)
}

#[test]
fn what_is_no_increase_is_refused_as_kafka_refuses_it() {
    let mut world = World::new();
    assert!(grow(&mut world, 3, None).starts_with("UnknownTopic"));
    world.create_named("t");
    assert_eq!(grow(&mut world, 1, None), "InvalidPartitions: Topic already has 1 partition(s).");
    for count in [0, -1] {
        assert_eq!(
            grow(&mut world, count, None),
            format!(
                "InvalidPartitions: The topic t currently has 1 partition(s); {count} would not be an increase."
            )
        );
    }
    assert_eq!(
        grow(&mut world, 20_000, None),
        "PolicyViolation: Excessively large number of additional partitions per request."
    );
}

#[test]
fn assignments_name_exactly_the_additional_partitions() {
    let mut world = World::new();
    world.create_named("t");
    for (assignments, expected) in [
        (
            &[&[1][..], &[1]][..],
            "Attempted to add 1 additional partition(s), but only 2 assignment(s) were specified.",
        ),
        (
            &[][..],
            "Attempted to add 1 additional partition(s), but only 0 assignment(s) were specified.",
        ),
        (
            &[&[8][..]][..],
            "The manual partition assignment includes broker 8, but no such broker is registered.",
        ),
        (&[&[][..]][..], "The manual partition assignment includes an empty replica list."),
        (
            &[&[1, 1][..]][..],
            "The manual partition assignment includes the broker 1 more than once.",
        ),
    ] {
        let told = grow(&mut world, 2, Some(assignments));
        assert_eq!(told, format!("InvalidReplicaAssignment: {expected}"));
    }
    assert_eq!(grow(&mut world, 2, Some(&[&[1]])), "2");
    assert_eq!(grow(&mut world, 4, None), "4");
    let topic = world.image().topic("t").unwrap();
    assert_eq!(topic.partitions.len(), 4);
    assert_eq!(world.image().partition_count(), 4);
}

#[test]
fn validating_changes_nothing_and_a_repeated_name_is_refused_once() {
    let mut world = World::new();
    world.create_named("t");
    let more = |count| MorePartitions { name: "t".to_owned(), count, assignments: None };
    let (records, reply) =
        world.decide(Request::CreatePartitions { topics: vec![more(5)], validate_only: true });
    assert!(records.is_empty());
    assert_eq!(reply, Reply::CreatedPartitions(vec![("t".to_owned(), Ok(5))]));
    let topics = vec![more(5), more(6)];
    let (records, reply) = world.decide(Request::CreatePartitions { topics, validate_only: false });
    assert!(records.is_empty());
    let Reply::CreatedPartitions(results) = reply else { panic!() };
    assert_eq!(results.len(), 1);
    assert_eq!(told(results[0].1.clone()), "InvalidRequest: Duplicate topic name.");
}

#[test]
fn ids_of_a_queue_that_grows_stay_among_the_partitions_that_it_had() {
    let kept = |configs: &[(&str, &str)]| {
        let mut world = World::new();
        let mut topic = world.topic("t");
        topic.configs.extend(
            configs.iter().map(|(name, value)| ((*name).to_owned(), Some((*value).to_owned()))),
        );
        world.create(topic).unwrap();
        assert_eq!(grow(&mut world, 3, None), "3");
        let of = |world: &World| {
            let image = world.image();
            let topic = image.topic("t").unwrap();
            topic.overrides.get("queue.dedup.partitions").cloned()
        };
        let first = of(&world);
        assert_eq!(grow(&mut world, 5, None), "5");
        assert_eq!(of(&world), first);
        first
    };
    assert_eq!(kept(&[("queue.enable", "true")]).as_deref(), Some("1"));
    let set = |count| kept(&[("queue.enable", "true"), ("queue.dedup.partitions", count)]);
    // They were among all that there were, however many more were set.
    assert_eq!((set("1"), set("12")), (Some("1".to_owned()), Some("1".to_owned())));
    assert_eq!(kept(&[]), None);
    assert_eq!(kept(&[("queue.enable", "true"), ("queue.fifo", "true")]), None);
}
