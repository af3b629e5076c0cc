//! The delivery logs of queues: replicated beside their partitions' records, with the same leader and the
//! same in-sync set.

use towpath_metadata::{ConfigChange, ConfigOperation, Resource, ResourceKind, TopicRef};
use towpath_model::LeaderEpoch;

use super::*;

const QUEUE: (&str, &str) = ("queue.enable", "true");

impl Cluster {
    fn create_queue(&mut self, name: &str) -> TopicPartition {
        let configs = vec![(QUEUE.0.to_owned(), Some(QUEUE.1.to_owned()))];
        let topic = NewTopic { partitions: 1, configs, ..NewTopic::named(name, id(79)) };
        let request = Request::CreateTopics { topics: vec![topic], validate_only: false };
        let reply = self.ask(BrokerId(1), request);
        let Reply::CreatedTopics(created) = &reply else { panic!("{reply:?}") };
        assert!(created[0].1.is_ok(), "{reply:?}");
        self.driver(BrokerId(1)).partition_of(name, PartitionIndex(0)).expect("it was created")
    }

    fn deliver(&mut self, id: TopicPartition) -> Token {
        self.tokens += 1;
        let token = Token(self.tokens);
        let leader = self.leader(id).expect("somebody leads");
        let purge = towpath_queue::Request::Purge { subscription: 0 };
        self.driver(leader).ask_deliveries(id, token, purge).expect("it is led here");
        token
    }

    /// Where the delivery log ends at a broker, how much of it is committed, and who leads it there.
    fn deliveries(
        &self,
        at: BrokerId,
        id: TopicPartition,
    ) -> (Offset, Offset, Option<LeaderEpoch>) {
        let lines = |log: &Partition| {
            let leads = log.leader().map(|leader| leader.leader_epoch());
            (log.log_end_offset(), log.high_watermark(), leads)
        };
        self.driver(at).with_replica(id.delivery_log(), |log, _| lines(log)).expect("it is open")
    }

    fn in_sync(&self, id: TopicPartition) -> Vec<BrokerId> {
        let driver = self.driver(self.running()[0]);
        driver.image().partition(id).expect("it is there").in_sync.clone()
    }

    fn files_of_deliveries(&self, at: BrokerId) -> usize {
        let files = self.brokers[&at].disk.files();
        files
            .iter()
            .filter(|(path, _)| path.contains("/topics/") && path.contains("/0-deliveries/"))
            .count()
    }
}

#[test]
fn deliveries_are_replicated_and_outlive_their_leader() {
    let mut cluster = Cluster::start();
    let id = cluster.create_queue("orders");
    for _ in 0..3 {
        cluster.produce(id, Acks::All);
        let token = cluster.deliver(id);
        cluster.settle();
        assert!(cluster.is_acknowledged(token));
    }
    let leader = cluster.leader(id).unwrap();
    cluster.kill(leader);
    cluster.run_until("another broker leads", |cluster| cluster.leader(id).is_some());
    let next = cluster.leader(id).unwrap();
    let epoch = cluster.driver(next).position(id, None).unwrap().leader_epoch;
    let (held, _, leads) = cluster.deliveries(next, id);
    assert!(Offset(3) <= held);
    assert_eq!(leads, Some(epoch));
    let token = cluster.deliver(id);
    cluster.settle();
    assert!(cluster.is_acknowledged(token));
    let (last, ..) = cluster.deliveries(next, id);
    assert!(held < last);

    cluster.open(leader);
    cluster.run_until("all three are in sync again", |cluster| cluster.in_sync(id).len() == 3);
    cluster.run_for(Duration::from_secs(1));
    for broker in BROKERS {
        let (end, high_watermark, _) = cluster.deliveries(broker, id);
        assert_eq!((end, high_watermark), (last, last), "broker {broker}");
    }
}

#[test]
fn clients_do_not_find_a_delivery_log() {
    let mut cluster = Cluster::start();
    let id = cluster.create_queue("orders");
    cluster.deliver(id);
    cluster.settle();
    let leader = cluster.leader(id).unwrap();
    let driver = cluster.driver(leader);
    let deliveries = id.delivery_log();
    let (mut batch, validated) = batch();
    assert!(driver.produce(deliveries, &mut batch, &validated, Acks::All, Token(99)).is_err());
    assert!(driver.position(deliveries, None).is_err());
    assert!(driver.delete_records(deliveries, None).is_err());
    assert_eq!(driver.size_bytes(deliveries), None);
    assert_eq!(driver.partition_of("orders", deliveries.partition), None);
    assert!(driver.size_bytes(id).is_some_and(|bytes| 0 < bytes), "deliveries count with records");
    assert_eq!(driver.stored().values().map(|stored| stored.replicas).sum::<usize>(), 1);
}

#[test]
fn a_topic_becomes_a_queue_while_it_is_used() {
    let mut cluster = Cluster::start();
    let id = cluster.create(BrokerId(1), "orders");
    cluster.produce(id, Acks::All);
    cluster.settle();
    let change = ConfigChange {
        name: QUEUE.0.to_owned(),
        operation: ConfigOperation::Set,
        value: Some(QUEUE.1.to_owned()),
    };
    let resource = Resource { kind: ResourceKind::Topic, name: "orders".to_owned() };
    let resources = vec![(resource, vec![change])];
    cluster.ask(BrokerId(2), Request::AlterConfigs { resources, validate_only: false });
    let token = cluster.deliver(id);
    cluster.settle();
    assert!(cluster.is_acknowledged(token));
    let leader = cluster.leader(id).unwrap();
    let (last, ..) = cluster.deliveries(leader, id);
    assert_eq!(cluster.in_sync(id).len(), 3);

    for broker in BROKERS {
        cluster.kill(broker);
    }
    for broker in BROKERS {
        cluster.open(broker);
    }
    cluster.run_until("all three are back", |cluster| {
        cluster.leader(id).is_some_and(|leader| last <= cluster.deliveries(leader, id).1)
            && cluster.in_sync(id).len() == 3
    });
}

#[test]
fn who_lacks_deliveries_is_not_in_sync() {
    let mut cluster = Cluster::start();
    let id = cluster.create_queue("orders");
    let leader = cluster.leader(id).unwrap();
    let behind = BROKERS.into_iter().find(|broker| *broker != leader).unwrap();
    cluster.starved = Some((behind, id.delivery_log()));
    let token = cluster.deliver(id);
    cluster.run_for(Duration::from_millis(500));
    assert!(!cluster.is_acknowledged(token), "it counts, and has not got it");
    let (_, record) = cluster.produce(id, Acks::All);
    cluster.settle();
    assert!(cluster.is_acknowledged(record), "each log has a high watermark of its own");
    cluster.run_until("it is left out", |cluster| !cluster.in_sync(id).contains(&behind));
    cluster.run_until("the others commit", |cluster| cluster.is_acknowledged(token));
    cluster.run_for(Duration::from_secs(3));
    assert!(!cluster.in_sync(id).contains(&behind), "it holds all records, and not all deliveries");

    cluster.starved = None;
    cluster.run_until("it is in sync again", |cluster| cluster.in_sync(id).len() == 3);
    cluster.starved = Some((behind, id));
    cluster.produce(id, Acks::All);
    cluster.run_until("it lacks records", |cluster| !cluster.in_sync(id).contains(&behind));
    let token = cluster.deliver(id);
    cluster.settle();
    assert!(cluster.is_acknowledged(token), "nobody waits for it");
}

#[test]
fn a_replica_with_damaged_deliveries_is_copied_anew() {
    let mut cluster = Cluster::start();
    let id = cluster.create_queue("orders");
    for _ in 0..5 {
        // Each in a round of its own: two logs of one round are also in the write-ahead file.
        cluster.produce(id, Acks::All);
        cluster.settle();
        cluster.deliver(id);
        cluster.settle();
    }
    let leader = cluster.leader(id).unwrap();
    cluster.kill(leader);
    cluster.run_until("another broker leads", |cluster| cluster.leader(id).is_some());
    let disk = cluster.brokers[&leader].disk.clone();
    let segment =
        |(path, _): &(String, Vec<u8>)| path.contains("0-deliveries") && path.ends_with(".log");
    let (path, _) = disk.files().into_iter().find(segment).expect("a segment was written");
    disk.flip_bit(Path::new(&path), 70, 3).unwrap();
    cluster.open(leader);
    let damaged = |cluster: &Cluster| cluster.driver(leader).damaged_partitions();
    cluster.run_until("the damage is met", |cluster| !damaged(cluster).is_empty());
    cluster.run_until("it is copied", |cluster| {
        cluster.driver(leader).upkeep();
        damaged(cluster).is_empty() && cluster.in_sync(id).contains(&leader)
    });
    let next = cluster.leader(id).unwrap();
    assert_eq!(cluster.deliveries(leader, id).0, cluster.deliveries(next, id).0);
}

#[test]
fn deliveries_go_with_their_topic_and_never_by_age() {
    let mut cluster = Cluster::start();
    let id = cluster.create_queue("orders");
    for _ in 0..4 {
        cluster.produce(id, Acks::All);
        cluster.deliver(id);
        cluster.settle();
    }
    let leader = cluster.leader(id).unwrap();
    *cluster.clock.0.lock().unwrap() += 30 * 24 * 3_600_000;
    cluster.run_until("there is a leader", |cluster| cluster.leader(id) == Some(leader));
    // The messages grow too old by the queue's own retention; once that is committed, the records go by theirs.
    cluster.run_until("the records have gone", |cluster| {
        let Some(leader) = cluster.leader(id) else { return false };
        cluster.driver(leader).upkeep();
        let position = cluster.driver(leader).position(id, None);
        position.is_ok_and(|position| position.log_start_offset == Offset(4))
    });
    let leader = cluster.leader(id).unwrap();
    let start = |cluster: &Cluster, at| {
        cluster.driver(at).with_replica(id.delivery_log(), |log, _| log.log_start_offset()).unwrap()
    };
    assert_eq!(start(&cluster, leader), Offset(0));

    let beyond = cluster.driver(leader).trim_deliveries(id, Offset(900));
    assert!(beyond.unwrap_err().to_string().contains("beyond the high watermark"));
    assert_eq!(cluster.driver(leader).trim_deliveries(id, Offset(3)).unwrap(), Offset(3));
    cluster.run_until("the others follow", |cluster| {
        BROKERS.into_iter().all(|broker| start(cluster, broker) == Offset(3))
    });

    assert!(BROKERS.into_iter().all(|broker| 0 < cluster.files_of_deliveries(broker)));
    let topics = vec![TopicRef { name: Some("orders".to_owned()), id: None }];
    cluster.ask(BrokerId(1), Request::DeleteTopics(topics));
    cluster.run_until("their files are gone", |cluster| {
        BROKERS.into_iter().all(|broker| {
            cluster.driver(broker).upkeep();
            cluster.files_of_deliveries(broker) == 0
        })
    });
}

#[test]
fn a_follower_folds_along_and_leads_with_what_it_knows() {
    let mut cluster = Cluster::start();
    let id = cluster.create_queue("jobs");
    for _ in 0..3 {
        cluster.produce(id, Acks::All);
        let token = cluster.deliver(id);
        cluster.settle();
        assert!(cluster.is_acknowledged(token));
    }
    // Followers hear what is committed, and fold that.
    cluster.run_for(Duration::from_secs(2));
    let leader = cluster.leader(id).unwrap();
    let (end, committed, _) = cluster.deliveries(leader, id);
    assert_eq!(end, committed);
    let admitted_to =
        |cluster: &Cluster, at| cluster.driver(at).with_deliveries(id, |it, _| it.admitted_to());
    let admitted = admitted_to(&cluster, leader).unwrap();
    for broker in BROKERS {
        cluster.driver(broker).upkeep();
        let expected = (broker != leader).then_some(end);
        assert_eq!(cluster.driver(broker).folded_to(id), expected, "broker {broker}");
    }

    cluster.kill(leader);
    cluster.run_until("another broker leads", |cluster| cluster.leader(id).is_some());
    let next = cluster.leader(id).unwrap();
    assert_eq!(cluster.driver(next).folded_to(id), None, "who leads follows nobody");
    assert_eq!(admitted_to(&cluster, next).unwrap(), admitted);

    // A replica that comes back begins at the log's start, and catches up with what others have folded.
    cluster.open(leader);
    cluster.run_until("all three are in sync again", |cluster| cluster.in_sync(id).len() == 3);
    cluster.run_for(Duration::from_secs(1));
    let (end, ..) = cluster.deliveries(next, id);
    cluster.driver(leader).upkeep();
    assert_eq!(cluster.driver(leader).folded_to(id), Some(end));
}
