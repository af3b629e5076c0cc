//! A metadata log of one process: what is decided is written down, read back from the bytes, and
//! applied, so that every test also tests that the state is its records.

use std::time::Duration;

use towpath_metadata::{
    AlterPartitions, Beat, ConfigChange, ConfigOperation, ElectionKind, Heartbeat, Image, Metadata,
    NewTopic, PartitionState, ProposedInSync, Reassignment, Record, Refusal, Registration, Reply,
    Request, Resource, ResourceKind,
};
use towpath_model::{
    BrokerId, FoldRecord, KeyValue, Now, PartitionIndex, StateMachine, Token, TopicPartition, Uuid,
};

pub(crate) struct World {
    pub(crate) metadata: Metadata,
    pub(crate) log: Vec<KeyValue>,
    drawn: u32,
    beats: u64,
    pub(crate) now: Now,
}

impl World {
    /// One broker, number 1, in rack `a`.
    pub(crate) fn new() -> World {
        World::configured(&[])
    }

    /// As [`World::new`], with what its operator wrote.
    pub(crate) fn configured(statics: &[(&str, &str)]) -> World {
        let mut world = World::unregistered(statics);
        world.register(1);
        world
    }

    pub(crate) fn unregistered(statics: &[(&str, &str)]) -> World {
        let statics = statics.iter().map(|(name, value)| ((*name).into(), (*value).into()));
        let metadata = Metadata::new(BrokerId(1), statics.collect());
        World { metadata, log: Vec::new(), drawn: 0, beats: 0, now: Now::default() }
    }

    pub(crate) fn image(&self) -> &Image {
        self.metadata.image()
    }

    pub(crate) fn decide(&mut self, request: Request) -> (Vec<Record>, Reply) {
        let decision = self.metadata.decide(self.now, Token(7), request.clone());
        let again = self.metadata.decide(self.now, Token(7), request);
        assert_eq!(decision, again, "deciding twice gives the same");
        self.write(&decision.records);
        let [(token, reply)] = <[_; 1]>::try_from(decision.replies).expect("one answer");
        assert_eq!(token, Token(7));
        (decision.records, reply)
    }

    /// Applies records, and logs those that are.
    fn write(&mut self, records: &[Record]) {
        for record in records {
            assert_eq!(record.is_logged(), record.encode().is_some());
            match record.encode() {
                None => self.metadata.apply(record),
                Some(logged) => {
                    let read = Record::decode(&logged.key, logged.value.as_deref());
                    assert_eq!(read.as_ref(), Ok(&Some(record.clone())));
                    self.metadata.apply(record);
                    self.log.push(logged);
                }
            }
        }
    }

    /// Lets time pass, and carries out what follows from it alone.
    pub(crate) fn pass(&mut self, milliseconds: u64) -> Vec<Record> {
        self.now.time = self.now.time + Duration::from_millis(milliseconds);
        let mut all = Vec::new();
        while self.metadata.next_deadline().is_some_and(|at| at <= self.now.time) {
            let decision = self.metadata.expire(self.now);
            assert!(decision.replies.is_empty());
            assert!(!decision.records.is_empty(), "a deadline that leads to nothing");
            self.write(&decision.records);
            all.extend(decision.records);
        }
        all
    }

    /// Another controller takes over with what is logged.
    pub(crate) fn fail_over(&mut self) {
        self.metadata = self.replayed();
        let decision = self.metadata.resume(self.now);
        self.write(&decision.records);
    }

    /// The same with a controller whose operator wrote something else.
    pub(crate) fn fail_over_to(&mut self, statics: &[(&str, &str)]) {
        let mut next = World::unregistered(statics).metadata;
        for logged in &self.log {
            let record = Record::decode(&logged.key, logged.value.as_deref()).unwrap();
            record.iter().for_each(|record| next.apply(record));
        }
        self.metadata = next;
        let decision = self.metadata.resume(self.now);
        self.write(&decision.records);
    }

    pub(crate) fn ask(&mut self, request: Request) -> Reply {
        self.decide(request).1
    }

    /// What a process finds that reads the log.
    pub(crate) fn replayed(&self) -> Metadata {
        replay(&self.log)
    }

    /// What a process finds that reads the log after only the newest record of each key was kept.
    pub(crate) fn compacted(&self) -> Metadata {
        let kept =
            self.log.iter().enumerate().filter(|(at, logged)| {
                self.log[at + 1..].iter().all(|later| later.key != logged.key)
            });
        replay(&kept.map(|(_, logged)| logged.clone()).collect::<Vec<_>>())
    }

    pub(crate) fn register(&mut self, id: i32) -> i64 {
        self.register_after(id, None)
    }

    pub(crate) fn register_after(&mut self, id: i32, clean_since: Option<i64>) -> i64 {
        let epoch = self.start(id, |registration| registration.clean_since = clean_since);
        self.beat(id);
        epoch
    }

    /// A broker registers after a crash of its machine; it is not ready yet.
    pub(crate) fn start(&mut self, id: i32, change: impl FnOnce(&mut Registration)) -> i64 {
        let mut registration = Registration {
            id: BrokerId(id),
            incarnation: self.draw(),
            rack: Some("a".to_owned()),
            directories: vec![directory(id)],
            lost_power: true,
            ..Registration::default()
        };
        change(&mut registration);
        let reply = self.ask(Request::RegisterBroker(registration));
        let Reply::RegisteredBroker(Ok(epoch)) = reply else { panic!("{reply:?}") };
        epoch
    }

    /// A heartbeat of a broker that is ready.
    pub(crate) fn beat(&mut self, id: i32) -> Beat {
        self.beat_as(id, |_| {}).unwrap()
    }

    pub(crate) fn beat_as(
        &mut self,
        id: i32,
        change: impl FnOnce(&mut Heartbeat),
    ) -> Result<Beat, Refusal> {
        self.beats += 1;
        let mut heartbeat = Heartbeat {
            broker: BrokerId(id),
            epoch: self.image().broker(BrokerId(id)).map_or(0, |broker| broker.epoch),
            sequence: self.beats,
            applied: self.log.len() as u64,
            is_ready: true,
            ..Heartbeat::default()
        };
        change(&mut heartbeat);
        let reply = self.ask(Request::Heartbeat(heartbeat));
        let Reply::Beat(beat) = reply else { panic!("{reply:?}") };
        beat
    }

    pub(crate) fn draw(&mut self) -> Uuid {
        self.drawn += 1;
        {
            let mut bytes = [0; 16];
            bytes[..4].copy_from_slice(&self.drawn.wrapping_mul(0x9e37_79b1).to_be_bytes());
            bytes[12..].copy_from_slice(&self.drawn.to_be_bytes());
            Uuid::from_random_bytes(bytes)
        }
    }

    pub(crate) fn topic(&mut self, name: &str) -> NewTopic {
        let id = self.draw();
        NewTopic::named(name, id)
    }

    /// `partitions` and the outcome of creating one topic.
    pub(crate) fn create(&mut self, topic: NewTopic) -> Result<i32, Refusal> {
        let reply = self.ask(Request::CreateTopics { topics: vec![topic], validate_only: false });
        let Reply::CreatedTopics(mut results) = reply else { panic!("{reply:?}") };
        results.remove(0).1.map(|created| created.partitions)
    }

    pub(crate) fn create_named(&mut self, name: &str) {
        let topic = self.topic(name);
        self.create(topic).unwrap();
    }

    pub(crate) fn alter(
        &mut self,
        resource: Resource,
        changes: &[(&str, ConfigOperation, Option<&str>)],
    ) -> Result<(), Refusal> {
        let changes = changes.iter().map(|(name, operation, value)| ConfigChange {
            name: (*name).to_owned(),
            operation: *operation,
            value: value.map(str::to_owned),
        });
        let resources = vec![(resource, changes.collect())];
        let reply = self.ask(Request::AlterConfigs { resources, validate_only: false });
        let Reply::AlteredConfigs(mut results) = reply else { panic!("{reply:?}") };
        results.remove(0).1
    }

    pub(crate) fn set(
        &mut self,
        resource: Resource,
        name: &str,
        value: &str,
    ) -> Result<(), Refusal> {
        self.alter(resource, &[(name, ConfigOperation::Set, Some(value))])
    }

    pub(crate) fn replace(
        &mut self,
        resource: Resource,
        values: &[(&str, Option<&str>)],
    ) -> Result<(), Refusal> {
        let values =
            values.iter().map(|(name, value)| ((*name).to_owned(), value.map(str::to_owned)));
        let resources = vec![(resource, values.collect())];
        let reply = self.ask(Request::ReplaceConfigs { resources, validate_only: false });
        let Reply::AlteredConfigs(mut results) = reply else { panic!("{reply:?}") };
        results.remove(0).1
    }

    /// `value source; synonyms` of a described property.
    pub(crate) fn described(&self, resource: Resource, name: &str) -> String {
        let entries = self.image().describe(&resource).unwrap();
        let entry = entries.iter().find(|entry| entry.name() == name).expect("it is registered");
        let mut text = format!("{} {:?}", entry.value.as_deref().unwrap_or("-"), entry.source);
        for synonym in &entry.synonyms {
            text += &format!("; {}={} {:?}", synonym.name, synonym.value, synonym.source);
        }
        text
    }
}

/// The only data directory of a broker.
pub(crate) fn directory(id: i32) -> Uuid {
    Uuid([u8::try_from(id).unwrap() + 2; 16])
}

fn replay(log: &[KeyValue]) -> Metadata {
    let mut metadata = Metadata::new(BrokerId(1), Default::default());
    for logged in log {
        let record = Record::decode(&logged.key, logged.value.as_deref()).unwrap().unwrap();
        metadata.apply(&record);
    }
    metadata
}

pub(crate) fn topic(name: &str) -> Resource {
    Resource { kind: ResourceKind::Topic, name: name.to_owned() }
}

pub(crate) fn broker(name: &str) -> Resource {
    Resource { kind: ResourceKind::Broker, name: name.to_owned() }
}

pub(crate) fn group(name: &str) -> Resource {
    Resource { kind: ResourceKind::Group, name: name.to_owned() }
}

/// The refusal as a client sees it.
pub(crate) fn told<T: std::fmt::Debug>(result: Result<T, Refusal>) -> String {
    match result {
        Ok(value) => format!("{value:?}"),
        Err(refusal) => format!("{:?}: {refusal}", refusal.kind()),
    }
}

/// A cluster of these brokers, all there, in which they are heard whenever they are told to be.
impl World {
    pub(crate) fn cluster(ids: &[i32]) -> World {
        let mut world = World::unregistered(&[]);
        ids.iter().for_each(|id| {
            world.register(*id);
        });
        world
    }

    /// One topic `t` of one partition on these brokers.
    pub(crate) fn with_topic(ids: &[i32], configs: &[(&str, &str)]) -> World {
        let mut world = World::cluster(ids);
        let mut topic = world.topic("t");
        topic.assignments = vec![(PartitionIndex(0), ids.iter().map(|id| BrokerId(*id)).collect())];
        topic.configs = configs
            .iter()
            .map(|(name, value)| ((*name).to_owned(), Some((*value).to_owned())))
            .collect();
        world.create(topic).unwrap();
        world
    }

    pub(crate) fn partition_id(&self) -> TopicPartition {
        let topic = self.image().topic("t").unwrap().id;
        TopicPartition { topic, partition: PartitionIndex(0) }
    }

    pub(crate) fn state(&self) -> PartitionState {
        self.image().partition(self.partition_id()).unwrap().clone()
    }

    /// `leader; in sync; eligible` of `t`.
    pub(crate) fn shown(&self) -> String {
        let state = self.state();
        let list =
            |ids: &[BrokerId]| ids.iter().map(|id| id.0.to_string()).collect::<Vec<_>>().join(" ");
        let leader = state.leader.map_or("-".to_owned(), |id| id.0.to_string());
        format!("{leader}; {}; {}", list(&state.in_sync), list(&state.eligible))
    }

    /// These are heard again and again, the others are silent, until they are fenced.
    pub(crate) fn hear_only(&mut self, ids: &[i32]) {
        for _ in 0..12 {
            ids.iter().for_each(|id| {
                self.beat(*id);
            });
            self.pass(100);
        }
    }

    pub(crate) fn epoch(&self, id: i32) -> i64 {
        self.image().broker(BrokerId(id)).unwrap().epoch
    }

    /// The leader of `t` proposes these in-sync replicas, on the ground of `state`.
    pub(crate) fn propose_on(
        &mut self,
        state: &PartitionState,
        in_sync: &[(i32, i64)],
    ) -> Result<PartitionState, Refusal> {
        let leader = state.leader.expect("a leader proposes");
        let change = ProposedInSync {
            partition: self.partition_id(),
            leader_epoch: state.leader_epoch,
            partition_epoch: state.partition_epoch,
            in_sync: in_sync.iter().map(|(id, epoch)| (BrokerId(*id), *epoch)).collect(),
        };
        let reply = self.ask(Request::AlterPartitions(AlterPartitions {
            broker: leader,
            broker_epoch: self.epoch(leader.0),
            changes: vec![change],
        }));
        let Reply::AlteredPartitions(Ok(mut altered)) = reply else { panic!("{reply:?}") };
        altered.remove(0).1
    }

    /// As [`World::propose_on`], on the ground of what is in force.
    pub(crate) fn propose(&mut self, in_sync: &[i32]) -> Result<PartitionState, Refusal> {
        let members: Vec<_> = in_sync.iter().map(|id| (*id, self.epoch(*id))).collect();
        let state = self.state();
        self.propose_on(&state, &members)
    }

    pub(crate) fn reassign(&mut self, target: Option<&[i32]>) -> Result<(), Refusal> {
        let target = target.map(|ids| ids.iter().map(|id| BrokerId(*id)).collect());
        let partition = ("t".to_owned(), PartitionIndex(0));
        let reply = self.ask(Request::AlterReassignments {
            reassignments: vec![Reassignment { partition, target }],
            factor_may_change: true,
            by_hand: true,
        });
        let Reply::AlteredReassignments(mut outcomes) = reply else { panic!("{reply:?}") };
        outcomes.remove(0).1
    }

    pub(crate) fn elect(&mut self, kind: ElectionKind) -> Result<(), Refusal> {
        let partitions = Some(vec![("t".to_owned(), PartitionIndex(0))]);
        let reply = self.ask(Request::ElectLeaders { kind, partitions });
        let Reply::ElectedLeaders(mut outcomes) = reply else { panic!("{reply:?}") };
        outcomes.remove(0).1
    }
}
