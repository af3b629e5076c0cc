//! The state machine: which request is decided where.

use towpath_model::{BrokerId, Decision, Now, ProducerId, StateMachine, Time, Token};

use crate::image::Image;
use crate::record::{Overrides, Record};
use crate::refusal::Refusal;
use crate::request::{Reply, Request};

/// The newest level of formats that this program reads and writes.
pub const FORMAT_LEVEL: u16 = 1;

/// How many producer ids one logged record sets aside; a restart skips what is left of them.
pub const PRODUCER_IDS_PER_BLOCK: i64 = 1_000;

/// The metadata of a cluster, where changes are decided.
#[derive(Debug, Clone, PartialEq)]
pub struct Metadata {
    image: Image,
}

/// What one kind of request leads to.
pub(crate) type Decided = (Vec<Record>, Reply);

impl Metadata {
    /// Metadata before the first record; `me` and `statics` as in [`Image::new`].
    #[must_use]
    pub fn new(me: BrokerId, statics: Overrides) -> Metadata {
        Metadata { image: Image::new(me, statics) }
    }

    /// The state with every record applied, committed or not.
    #[must_use]
    pub fn image(&self) -> &Image {
        &self.image
    }

    fn allocate_producer_id(&self) -> Decided {
        let end = self.image.producer_id_block_end;
        let next = self.image.next_producer_id;
        let mut records = Vec::new();
        // A fresh block begins at the end of the last one, which is where `next` stands then.
        if next == end {
            records.push(Record::ProducerIdBlock { end: end + PRODUCER_IDS_PER_BLOCK });
        }
        records.push(Record::ProducerIdTaken(ProducerId(next)));
        (records, Reply::AllocatedProducerId(ProducerId(next)))
    }

    fn set_format_level(&self, asked: u16) -> Decided {
        let current = self.image.format_level();
        if asked < current || FORMAT_LEVEL < asked {
            let refusal = Refusal::FormatLevel { asked, current, most: FORMAT_LEVEL };
            return (Vec::new(), Reply::FormatLevelSet(Err(refusal)));
        }
        let changes = asked != current;
        let records = changes.then_some(Record::FormatLevel(asked)).into_iter().collect();
        (records, Reply::FormatLevelSet(Ok(asked)))
    }
}

impl StateMachine for Metadata {
    type Request = Request;
    type Record = Record;
    type Reply = Reply;

    fn decide(&self, _now: Now, token: Token, request: Request) -> Decision<Record, Reply> {
        let image = &self.image;
        let (records, reply) = match request {
            Request::CreateTopics { topics, validate_only } => {
                image.create_topics(&topics, validate_only)
            }
            Request::DeleteTopics(topics) => image.delete_topics(topics),
            Request::CreatePartitions { topics, validate_only } => {
                image.create_partitions(&topics, validate_only)
            }
            Request::ReplaceConfigs { resources, validate_only } => {
                image.replace_configs(resources, validate_only)
            }
            Request::AlterConfigs { resources, validate_only } => {
                image.alter_configs(resources, validate_only)
            }
            Request::AllocateProducerId => self.allocate_producer_id(),
            Request::RegisterBroker(registration) => image.register_broker(registration),
            Request::SetFormatLevel(level) => self.set_format_level(level),
        };
        Decision { records, replies: vec![(token, reply)] }
    }

    /// Nothing here happens by time alone.
    fn expire(&self, _now: Now) -> Decision<Record, Reply> {
        Decision::default()
    }

    /// Nothing: a broker that begins to lead registers itself, which is a request.
    fn resume(&self, _now: Now) -> Decision<Record, Reply> {
        Decision::default()
    }

    fn apply(&mut self, record: &Record) {
        self.image.apply(record);
    }

    fn next_deadline(&self) -> Option<Time> {
        None
    }
}
