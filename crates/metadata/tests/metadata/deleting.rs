//! DeleteTopics.

use towpath_metadata::{Effect, Reply, Request, TopicRef, effect};
use towpath_model::Uuid;

use crate::support::{World, told};

fn by_name(name: &str) -> TopicRef {
    TopicRef { name: Some(name.to_owned()), id: None }
}

fn by_id(id: Uuid) -> TopicRef {
    TopicRef { name: None, id: Some(id) }
}

fn delete(world: &mut World, topics: Vec<TopicRef>) -> Vec<String> {
    let Reply::DeletedTopics(results) = world.ask(Request::DeleteTopics(topics)) else { panic!() };
    let show = |topic: &TopicRef| {
        format!("{}/{}", topic.name.as_deref().unwrap_or("-"), i32::from(topic.id.is_some()))
    };
    results
        .into_iter()
        .map(|(topic, result)| {
            format!("{} {}", show(&topic), told(result.map(|gone| gone.name.to_string())))
        })
        .collect()
}

#[test]
fn what_is_not_there_is_refused_as_kafka_refuses_it() {
    let mut world = World::new();
    world.create_named("t");
    let stranger = Uuid([0x11; 16]);
    let both = TopicRef { name: Some("t".to_owned()), id: Some(stranger) };
    let neither = TopicRef { name: None, id: None };
    let asked = vec![by_name("nope"), by_id(stranger), both, neither, by_name("")];
    assert_eq!(
        delete(&mut world, asked),
        [
            "nope/0 UnknownTopic: This server does not host this topic-partition.",
            "-/1 UnknownTopicId: This server does not host this topic ID.",
            "t/1 InvalidRequest: You may not specify both topic name and topic id.",
            "-/0 InvalidRequest: Neither topic name nor id were specified.",
            "/0 UnknownTopic: This server does not host this topic-partition.",
        ]
    );
}

#[test]
fn naming_a_topic_twice_deletes_nothing() {
    let mut world = World::new();
    world.create_named("t");
    let id = world.image().topic("t").unwrap().id;
    assert_eq!(
        delete(&mut world, vec![by_name("t"), by_name("t")]),
        ["t/0 InvalidRequest: Duplicate topic name."]
    );
    assert_eq!(
        delete(&mut world, vec![by_id(id), by_id(id)]),
        ["-/1 InvalidRequest: Duplicate topic id."]
    );
    assert_eq!(
        delete(&mut world, vec![by_id(id), by_name("t")]),
        ["t/1 InvalidRequest: The provided topic name maps to an ID that was already supplied."]
    );
    assert!(world.image().topic("t").is_some());
}

#[test]
fn a_deleted_topic_takes_its_partitions_and_configuration_along() {
    let mut world = World::new();
    let mut topic = world.topic("t");
    topic.partitions = 2;
    topic.configs = vec![("retention.ms".to_owned(), Some("5".to_owned()))];
    world.create(topic).unwrap();
    let id = world.image().topic("t").unwrap().id;

    let (records, _) = world.decide(Request::DeleteTopics(vec![by_id(id)]));
    let effects: Vec<_> = records.iter().map(effect).collect();
    assert!(matches!(
        effects[..],
        [
            Effect::TopicConfigChanged(_),
            Effect::PartitionRemoved(_),
            Effect::PartitionRemoved(_),
            Effect::TopicDeleted(_)
        ]
    ));
    assert_eq!(world.image().topic_count(), 0);
    assert_eq!(world.image().partition_count(), 0);
    assert!(world.image().topic_by_id(id).is_none());

    world.create_named("t");
    let again = world.image().topic("t").unwrap();
    assert_ne!(again.id, id, "a topic that comes again is another topic");
    assert!(again.overrides.is_empty());
    assert_eq!(world.compacted(), world.metadata, "a compaction leaves nothing of the old one");
}

#[test]
fn deletion_can_be_forbidden_and_internal_topics_stay() {
    let mut world = World::configured(&[("delete.topic.enable", "false")]);
    world.create_named("t");
    assert_eq!(
        delete(&mut world, vec![by_name("t")]),
        ["t/0 TopicDeletionDisabled: Topic deletion is disabled."]
    );
    let mut world = World::new();
    let mut offsets = world.topic("__consumer_offsets");
    offsets.internal = true;
    world.create(offsets).unwrap();
    assert!(delete(&mut world, vec![by_name("__consumer_offsets")])[0].contains("prohibited"));
}
