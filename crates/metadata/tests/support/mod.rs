//! A metadata log of one process: what is decided is written down, read back from the bytes, and
//! applied, so that every test also tests that the state is its records.

use towpath_metadata::{
    ConfigChange, ConfigOperation, Image, Metadata, NewTopic, Record, Refusal, Registration, Reply,
    Request, Resource, ResourceKind,
};
use towpath_model::{BrokerId, FoldRecord, KeyValue, Now, StateMachine, Token, Uuid};

pub(crate) struct World {
    pub(crate) metadata: Metadata,
    pub(crate) log: Vec<KeyValue>,
    drawn: u8,
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
        World { metadata: Metadata::new(BrokerId(1), statics.collect()), log: Vec::new(), drawn: 0 }
    }

    pub(crate) fn image(&self) -> &Image {
        self.metadata.image()
    }

    pub(crate) fn decide(&mut self, request: Request) -> (Vec<Record>, Reply) {
        let decision = self.metadata.decide(Now::default(), Token(7), request.clone());
        let again = self.metadata.decide(Now::default(), Token(7), request);
        assert_eq!(decision, again, "deciding twice gives the same");
        for record in &decision.records {
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
        let [(token, reply)] = <[_; 1]>::try_from(decision.replies).expect("one answer");
        assert_eq!(token, Token(7));
        (decision.records, reply)
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
        let reply = self.ask(Request::RegisterBroker(Registration {
            id: BrokerId(id),
            incarnation: Uuid([9; 16]),
            rack: Some("a".to_owned()),
            addresses: Vec::new(),
            directories: vec![Uuid([3; 16])],
            clean_since,
        }));
        let Reply::RegisteredBroker(epoch) = reply else { panic!("{reply:?}") };
        epoch
    }

    pub(crate) fn draw(&mut self) -> Uuid {
        self.drawn += 1;
        Uuid::from_random_bytes([self.drawn; 16])
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
