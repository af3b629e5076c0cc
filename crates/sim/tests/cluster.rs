//! Three brokers in one thread that hear each other at once: what a cluster does when nothing goes
//! wrong, and when one of its brokers is gone.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::path::Path;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use towpath_broker::Partition;
use towpath_coordinator::groups;
use towpath_driver::{
    Clock, Delivery, Driver, Formation, Net, NextRecords, Outcome, PeerMessage, Produced,
    QUORUM_TICK, Settings, VolumeIndex,
};
use towpath_log::Identity;
use towpath_metadata::raft::{MemberId, READYS_IN_FLIGHT_MAX};
use towpath_metadata::{NewTopic, Overrides, Reply, Request, Role};
use towpath_model::{
    BrokerId, Now, Offset, PartitionIndex, Time, Timestamp, Token, TopicPartition, Uuid,
};
use towpath_records::{
    BatchBuilder, Compression, ProduceRules, Scratch, TimestampType, Validated, validate_produced,
};
use towpath_replication::Acks;
use towpath_sim::disk::SimDisk;
use towpath_sim::trace::Trace;

#[path = "cluster/deliveries.rs"]
mod deliveries;

#[derive(Clone, Default)]
struct TestClock(Arc<Mutex<u64>>);

impl Clock for TestClock {
    fn now(&self) -> Now {
        let ms = *self.0.lock().unwrap();
        Now { time: Time(ms * 1_000_000), wall: Timestamp(i64::try_from(ms).unwrap()) }
    }

    fn sync_wanted(&self, _: VolumeIndex) {}

    fn wake_at(&self, _: Time) {}
}

/// What is on its way, of all brokers.
#[derive(Clone, Default)]
struct Post {
    messages: Arc<Mutex<VecDeque<(BrokerId, BrokerId, PeerMessage)>>>,
    ready: Arc<Mutex<BTreeSet<(BrokerId, BrokerId)>>>,
}

#[derive(Clone)]
struct TestNet {
    me: BrokerId,
    post: Post,
    answers: Arc<Mutex<BTreeMap<Token, Delivery>>>,
}

impl Net for TestNet {
    fn deliver(&self, token: Token, delivery: Delivery) {
        self.answers.lock().unwrap().insert(token, delivery);
    }

    fn send(&self, to: BrokerId, message: PeerMessage) {
        self.post.messages.lock().unwrap().push_back((self.me, to, message));
    }

    fn records_ready(&self, to: BrokerId) {
        self.post.ready.lock().unwrap().insert((self.me, to));
    }
}

type TestDriver = Driver<SimDisk, TestClock, TestNet>;

struct Broker {
    disk: SimDisk,
    starts: u8,
    running: Option<(Arc<TestDriver>, TestNet)>,
}

struct Cluster {
    clock: TestClock,
    post: Post,
    brokers: BTreeMap<BrokerId, Broker>,
    /// Whose disk takes writes and makes nothing durable.
    stalled: Option<BrokerId>,
    /// Who gets no answers about which log.
    starved: Option<(BrokerId, TopicPartition)>,
    tokens: u64,
}

const BROKERS: [BrokerId; 3] = [BrokerId(1), BrokerId(2), BrokerId(3)];

fn id(seed: u8) -> Uuid {
    Uuid::from_random_bytes([seed; 16])
}

fn directory(broker: BrokerId) -> Uuid {
    id(u8::try_from(broker.0).unwrap())
}

impl Cluster {
    fn start() -> Cluster {
        let mut cluster = Cluster {
            clock: TestClock(Arc::new(Mutex::new(1_000))),
            post: Post::default(),
            brokers: BTreeMap::new(),
            stalled: None,
            starved: None,
            tokens: 0,
        };
        for broker in BROKERS {
            let seed = u64::try_from(broker.0).unwrap();
            let disk = SimDisk::new(seed, Trace::hashing());
            cluster.brokers.insert(broker, Broker { disk, starts: 0, running: None });
            cluster.open(broker);
        }
        cluster.run_until("all brokers are there", |cluster| {
            BROKERS.iter().all(|broker| !cluster.driver(*broker).standing().is_fenced)
        });
        cluster
    }

    fn open(&mut self, id_: BrokerId) {
        let broker = self.brokers.get_mut(&id_).unwrap();
        broker.starts += 1;
        let voters =
            BROKERS.iter().map(|broker| MemberId::new(*broker, directory(*broker))).collect();
        let settings = Settings {
            broker_id: id_,
            statics: Overrides::from([("disk.reserve.bytes".to_owned(), "0".to_owned())]),
            incarnation: id(10 * u8::try_from(id_.0).unwrap() + broker.starts),
            addresses: Vec::new(),
            forgotten_directories: Vec::new(),
            rack: None,
            role: Role::Broker,
            formation: Formation::With(voters),
        };
        let identity = || Identity {
            cluster_id: "test".to_owned(),
            node_id: id_,
            directory_id: directory(id_),
        };
        let net = TestNet { me: id_, post: self.post.clone(), answers: Arc::default() };
        let (disk, root) = (broker.disk.clone(), Path::new("/srv/data"));
        let clock = self.clock.clone();
        let driver =
            Driver::open(disk, root, identity, "boot", settings, clock, net.clone()).unwrap();
        broker.running = Some((driver, net));
        for (other, running) in &self.brokers {
            if let Some((driver, _)) = &running.running
                && *other != id_
            {
                driver.peer_connected(id_);
                self.driver(id_).peer_connected(*other);
            }
        }
    }

    fn kill(&mut self, broker: BrokerId) {
        let broker = self.brokers.get_mut(&broker).unwrap();
        broker.running = None;
        broker.disk.kill();
        broker.disk.restart();
    }

    fn driver(&self, broker: BrokerId) -> Arc<TestDriver> {
        Arc::clone(&self.brokers[&broker].running.as_ref().unwrap().0)
    }

    fn running(&self) -> Vec<BrokerId> {
        let running = self.brokers.iter().filter(|(_, broker)| broker.running.is_some());
        running.map(|(id, _)| *id).collect()
    }

    /// Everything that is on its way arrives, and every disk is done.
    fn settle(&self) {
        loop {
            let mut is_quiet = true;
            for broker in self.running() {
                let driver = self.driver(broker);
                while self.stalled != Some(broker) && driver.has_unsynced() {
                    driver.sync_round();
                    is_quiet = false;
                }
            }
            let message = self.post.messages.lock().unwrap().pop_front();
            if let Some((from, to, message)) = message {
                is_quiet = false;
                if self.brokers[&to].running.is_some() {
                    self.driver(to).receive(from, message);
                }
            }
            let ready = self.post.ready.lock().unwrap().pop_first();
            if let Some((from, to)) = ready {
                is_quiet = false;
                let has_both =
                    self.brokers[&from].running.is_some() && self.brokers[&to].running.is_some();
                while let NextRecords::Answers(answers) = match has_both {
                    true => self.driver(from).next_records(to, 1 << 20, true),
                    false => NextRecords::Nothing,
                } {
                    let is_lost = |log| self.starved == Some((to, log));
                    let answers = answers.into_iter().filter(|portion| !is_lost(portion.partition));
                    let answers = answers.map(|portion| portion.read().unwrap());
                    self.driver(to).receive_records(from, answers.collect());
                }
            }
            if is_quiet {
                break;
            }
        }
    }

    fn run_for(&self, time: Duration) {
        let ticks = time.as_millis() / QUORUM_TICK.as_millis();
        for _ in 0..ticks {
            *self.clock.0.lock().unwrap() += u64::try_from(QUORUM_TICK.as_millis()).unwrap();
            for broker in self.running() {
                self.driver(broker).tick();
                self.settle();
            }
        }
    }

    fn run_until(&self, what: &str, is_so: impl Fn(&Cluster) -> bool) {
        for _ in 0..400 {
            if is_so(self) {
                return;
            }
            self.run_for(QUORUM_TICK);
        }
        let states: Vec<_> = self
            .running()
            .into_iter()
            .map(|broker| {
                let driver = self.driver(broker);
                (broker, driver.standing(), driver.quorum_status())
            })
            .collect();
        panic!("20 s have passed, and not: {what}: {states:#?}");
    }

    fn ask(&mut self, broker: BrokerId, request: Request) -> Reply {
        self.tokens += 1;
        let token = Token(self.tokens);
        self.driver(broker).ask_metadata(token, request).unwrap();
        self.run_for(Duration::from_millis(100));
        let answers = &self.brokers[&broker].running.as_ref().unwrap().1.answers;
        match answers.lock().unwrap().remove(&token) {
            Some(Delivery::Metadata(reply)) => reply,
            other => panic!("{other:?}"),
        }
    }

    fn create(&mut self, at: BrokerId, name: &str) -> TopicPartition {
        let topic = NewTopic { partitions: 1, ..NewTopic::named(name, id(77)) };
        let reply =
            self.ask(at, Request::CreateTopics { topics: vec![topic], validate_only: false });
        let Reply::CreatedTopics(created) = &reply else { panic!("{reply:?}") };
        assert_eq!(created[0].1.as_ref().unwrap().replication_factor, 3);
        self.driver(at).partition_of(name, PartitionIndex(0)).expect("it was created")
    }

    /// The topic that holds groups, with one partition and three replicas.
    fn create_offsets_topic(&mut self) -> TopicPartition {
        let name = "__consumer_offsets";
        let topic = NewTopic { partitions: 1, internal: true, ..NewTopic::named(name, id(78)) };
        let topics = vec![topic];
        let reply = self.ask(BrokerId(1), Request::CreateTopics { topics, validate_only: false });
        let Reply::CreatedTopics(created) = &reply else { panic!("{reply:?}") };
        assert_eq!(created[0].1.as_ref().unwrap().replication_factor, 3);
        self.driver(BrokerId(1)).partition_of(name, PartitionIndex(0)).expect("it was created")
    }

    /// Commits an offset of `topic`.
    fn commit(&mut self, groups: TopicPartition, topic: TopicPartition, offset: i64) {
        self.tokens += 1;
        let committed = groups::CommitPartition {
            partition: topic.partition,
            offset: Offset(offset),
            leader_epoch: None,
            metadata: "".into(),
        };
        let request = groups::Request::CommitOffsets(groups::CommitOffsets {
            group: "workers".into(),
            member_id: "".into(),
            group_instance_id: None,
            generation: None,
            retention: None,
            knows_group_id_not_found: true,
            topics: vec![groups::CommitTopic {
                name: "orders".into(),
                id: topic.topic,
                partitions: vec![committed],
            }],
        });
        let leader = self.leader(groups).expect("somebody leads");
        self.driver(leader).ask_group("workers", Token(self.tokens), request).unwrap();
        self.settle();
    }

    fn leader(&self, id: TopicPartition) -> Option<BrokerId> {
        let leads = |broker: &BrokerId| self.driver(*broker).position(id, None).is_ok();
        self.running().into_iter().find(leads)
    }

    fn produce(&mut self, id: TopicPartition, acks: Acks) -> (Produced, Token) {
        self.tokens += 1;
        let token = Token(self.tokens);
        let (mut batch, validated) = batch();
        let leader = self.leader(id).expect("somebody leads");
        (self.driver(leader).produce(id, &mut batch, &validated, acks, token).unwrap(), token)
    }

    fn is_acknowledged(&self, token: Token) -> bool {
        self.running().iter().any(|broker| {
            let answers = &self.brokers[broker].running.as_ref().unwrap().1.answers;
            let answers = answers.lock().unwrap();
            let answer = answers.get(&token);
            matches!(answer, Some(Delivery::Wait(Outcome::Reached) | Delivery::Deliveries(_)))
        })
    }
}

fn batch() -> (Vec<u8>, Validated) {
    let mut builder = BatchBuilder::new(Compression::None, Timestamp(1));
    builder.append(Timestamp(1), None, Some(b"record"), []).unwrap();
    let batch = builder.build();
    let rules = ProduceRules {
        batch_bytes_max: 1 << 20,
        plain_bytes_max: 1 << 20,
        record_bytes_max: 1 << 20,
        requires_keys: false,
        timestamp_type: TimestampType::CreateTime,
        timestamp_before_ms_max: i64::MAX,
        timestamp_after_ms_max: i64::MAX,
        now: Timestamp(1),
    };
    let validated = validate_produced(&batch, &rules, &mut Scratch::new()).unwrap();
    (batch, validated)
}

#[test]
fn what_is_acknowledged_outlives_its_leader() {
    let mut cluster = Cluster::start();
    let id = cluster.create(BrokerId(2), "orders");
    for _ in 0..5 {
        let (produced, token) = cluster.produce(id, Acks::All);
        assert!(produced.is_pending, "nobody else has it yet");
        cluster.settle();
        assert!(cluster.is_acknowledged(token), "one round trip and two syncs are enough");
    }
    let leader = cluster.leader(id).unwrap();
    cluster.kill(leader);
    cluster.run_until("another broker leads", |cluster| cluster.leader(id).is_some());
    let next = cluster.leader(id).unwrap();
    assert_ne!(next, leader);
    let (produced, token) = cluster.produce(id, Acks::All);
    assert_eq!(produced.base_offset.0, 5, "all that was acknowledged is there");
    cluster.settle();
    assert!(cluster.is_acknowledged(token));

    cluster.open(leader);
    cluster.run_until("all three are in sync again", |cluster| {
        let leader = cluster.leader(id).unwrap();
        let driver = cluster.driver(leader);
        driver
            .with_partition(id, |partition| partition.leader().unwrap().in_sync().len() == 3)
            .unwrap()
    });
}

/// The state of a partition is read when somebody begins to lead: only then the damage shows.
#[test]
fn whoever_cannot_read_the_state_of_a_partition_leaves_it_to_another() {
    let mut cluster = Cluster::start();
    let orders = cluster.create(BrokerId(1), "orders");
    let groups = cluster.create_offsets_topic();
    for offset in 1..6 {
        cluster.commit(groups, orders, offset);
    }
    let state = |cluster: &Cluster| {
        let broker = cluster.running()[0];
        cluster.driver(broker).image().partition(groups).unwrap().clone()
    };
    let leader = cluster.leader(groups).unwrap();
    let next = *state(&cluster).replicas.iter().find(|id| **id != leader).unwrap();
    let disk = cluster.brokers[&next].disk.clone();
    let segment = |(path, _): &(String, Vec<u8>)| {
        path.contains("__consumer_offsets") && path.ends_with(".log")
    };
    let (path, _) = disk.files().into_iter().find(segment).expect("a segment was written");
    disk.flip_bit(Path::new(&path), 70, 3).unwrap();
    cluster.kill(leader);
    cluster.run_until("who cannot is to lead", |cluster| state(cluster).leader == Some(next));
    cluster.run_until("another one leads", |cluster| {
        cluster.driver(next).upkeep();
        cluster.leader(groups).is_some()
    });
    assert_ne!(cluster.leader(groups), Some(next));
    cluster.run_until("it is copied anew", |cluster| {
        cluster.driver(next).upkeep();
        state(cluster).in_sync.contains(&next)
    });
    cluster.commit(groups, orders, 6);
}

#[test]
fn a_damaged_replica_is_copied_anew() {
    let mut cluster = Cluster::start();
    let id = cluster.create(BrokerId(1), "orders");
    for _ in 0..5 {
        cluster.produce(id, Acks::All);
        cluster.settle();
    }
    let leader = cluster.leader(id).unwrap();
    let in_sync = |cluster: &Cluster| {
        let driver = cluster.driver(cluster.leader(id).unwrap());
        driver.with_partition(id, |p| p.leader().unwrap().in_sync().clone()).unwrap()
    };
    cluster.kill(leader);
    cluster.run_until("another broker leads", |cluster| cluster.leader(id).is_some());
    let disk = cluster.brokers[&leader].disk.clone();
    let segment = |(path, _): &(String, Vec<u8>)| path.contains("topics") && path.ends_with(".log");
    let (path, _) = disk.files().into_iter().find(segment).expect("a segment was written");
    disk.flip_bit(Path::new(&path), 70, 3).unwrap();
    cluster.open(leader);
    let damaged = |cluster: &Cluster| cluster.driver(leader).damaged_partitions();
    cluster.run_until("the damage is met", |cluster| !damaged(cluster).is_empty());
    cluster.run_until("it is copied", |cluster| {
        cluster.driver(leader).upkeep();
        damaged(cluster).is_empty() && in_sync(cluster).contains(&leader)
    });
    let (_, token) = cluster.produce(id, Acks::All);
    cluster.settle();
    assert!(cluster.is_acknowledged(token));
}

/// A follower that comes back to find its leader's log beginning later than its own ends.
fn begins_anew(records_before: usize) {
    let mut cluster = Cluster::start();
    let id = cluster.create(BrokerId(1), "orders");
    for _ in 0..records_before {
        cluster.produce(id, Acks::All);
        cluster.settle();
    }
    let leader = cluster.leader(id).unwrap();
    let away = BROKERS.into_iter().find(|broker| *broker != leader).unwrap();
    cluster.kill(away);
    for _ in 0..6 {
        cluster.produce(id, Acks::All);
    }
    cluster.run_until("the others go on", |cluster| {
        let driver = cluster.driver(cluster.leader(id).unwrap());
        let committed = |partition: &Partition| partition.leader().unwrap().high_watermark();
        driver.with_partition(id, committed).unwrap() == Offset(6 + records_before as i64)
    });
    let leader = cluster.leader(id).unwrap();
    let start = cluster.driver(leader).delete_records(id, Some(Offset(4)));
    assert_eq!(start.unwrap(), Offset(4));
    cluster.open(away);
    cluster.run_until("all three are in sync again", |cluster| {
        let driver = cluster.driver(cluster.leader(id).unwrap());
        let in_sync = |partition: &Partition| partition.leader().unwrap().in_sync().len();
        driver.with_partition(id, in_sync).unwrap() == 3
    });
}

#[test]
fn a_follower_without_a_record_begins_where_the_leader_does() {
    begins_anew(0);
}

#[test]
fn a_follower_that_was_left_behind_begins_where_the_leader_does() {
    begins_anew(2);
}

/// A controller goes on writing what it proposes while nothing of it becomes durable, and its core stops
/// giving it out: what it never sent gives way to what its successor decides, also on its disk.
#[test]
fn a_stalled_controllers_last_proposals_give_way_to_its_successors() {
    let mut cluster = Cluster::start();
    let is_controller =
        |cluster: &Cluster, broker: BrokerId| cluster.driver(broker).is_controller();
    let first = BROKERS.into_iter().find(|broker| is_controller(&cluster, *broker)).unwrap();
    let request = |name: &str, seed| {
        let topic = NewTopic { partitions: 1, ..NewTopic::named(name, id(seed)) };
        Request::CreateTopics { topics: vec![topic], validate_only: false }
    };
    cluster.stalled = Some(first);
    for nth in 0..u8::try_from(READYS_IN_FLIGHT_MAX).unwrap() + 10 {
        let request = request(&format!("topic-{nth}"), 100 + nth);
        cluster.driver(first).ask_metadata(Token(1_000 + u64::from(nth)), request).unwrap();
        cluster.settle();
    }
    let next = |cluster: &Cluster| {
        let mut others = BROKERS.into_iter().filter(|broker| *broker != first);
        others.find(|broker| is_controller(cluster, *broker))
    };
    cluster.run_until("another broker is the controller", |cluster| next(cluster).is_some());
    let next = next(&cluster).unwrap();
    let term = |cluster: &Cluster, broker| cluster.driver(broker).quorum_status().term;
    cluster.run_until("it hears of that", |cluster| term(cluster, first) == term(cluster, next));

    cluster.stalled = None;
    let reply = cluster.ask(next, request("orders", 99));
    assert!(matches!(&reply, Reply::CreatedTopics(created) if created[0].1.is_ok()), "{reply:?}");
    let agree = |cluster: &Cluster| {
        let applied = |broker| cluster.driver(broker).metadata_applied();
        applied(first) == applied(next) && !cluster.driver(first).standing().is_fenced
    };
    cluster.run_until("the first one is back", agree);
    cluster.kill(first);
    cluster.open(first);
    cluster.run_until("it has started anew", agree);
    let records = |broker| cluster.driver(broker).image().to_records().collect::<Vec<_>>();
    assert_eq!(records(first), records(next));
}
