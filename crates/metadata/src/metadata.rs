//! The state machine: which request is decided where.

use std::collections::BTreeMap;

use towpath_model::{BrokerId, Decision, Now, ProducerId, StateMachine, Time, Token};

use crate::image::Image;
use crate::record::{Overrides, Record};
use crate::request::{Reply, Request};
use crate::session::{Session, Soft};

/// How many producer ids one logged record sets aside; a restart skips what is left of them.
pub const PRODUCER_IDS_PER_BLOCK: i64 = 1_000;

/// The metadata of a cluster, where changes are decided.
#[derive(Debug, Clone, PartialEq)]
pub struct Metadata {
    image: Image,
    /// Whom this controller has heard; nobody in a cluster of one.
    pub(crate) sessions: BTreeMap<BrokerId, Session>,
    /// Whether partitions may be left that do not follow the rules of elections yet.
    pub(crate) unsettled: bool,
    /// When the cluster is looked over next.
    pub(crate) upkeep_at: Option<Time>,
    /// When leaders are moved back next.
    pub(crate) preferred_at: Option<Time>,
}

/// What one kind of request leads to.
pub(crate) type Decided = (Vec<Record>, Reply);

impl Metadata {
    /// Metadata before the first record; `me` and `statics` as in [`Image::new`].
    #[must_use]
    pub fn new(me: BrokerId, statics: Overrides) -> Metadata {
        Metadata::begin(Image::new(me, statics))
    }

    /// Metadata that goes on from an image of what is committed, as a new controller does; it then
    /// resumes.
    #[must_use]
    pub fn begin(image: Image) -> Metadata {
        Metadata {
            image,
            sessions: BTreeMap::new(),
            unsettled: false,
            upkeep_at: None,
            preferred_at: None,
        }
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
}

impl StateMachine for Metadata {
    type Request = Request;
    type Record = Record;
    type Reply = Reply;

    fn decide(&self, now: Now, token: Token, request: Request) -> Decision<Record, Reply> {
        let image = &self.image;
        let (mut records, reply) = match request {
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
            Request::RegisterBroker(registration) => self.register_broker(now, registration),
            Request::SetFormatLevel(level) => image.set_format_level(level),
            Request::Heartbeat(heartbeat) => self.heartbeat(now, heartbeat),
            Request::BrokerSilent(broker) => self.broker_silent(now, broker),
            Request::AlterPartitions(proposed) => image.alter_partitions(&proposed),
            Request::DoubtReplicas { broker, epoch, partitions } => {
                image.doubt_replicas(broker, epoch, &partitions)
            }
            Request::AssignDirectories { broker, epoch, directories } => {
                self.assign_directories(broker, epoch, directories)
            }
            Request::AlterReassignments { reassignments, factor_may_change, by_hand } => {
                image.alter_reassignments(reassignments, factor_may_change, by_hand)
            }
            Request::ElectLeaders { kind, partitions } => image.elect_leaders(kind, partitions),
            Request::AcceptLoss(asked) => image.accept_loss(now, asked),
            Request::UnregisterBroker(broker) => self.unregister_broker(broker),
            Request::DrainBroker { broker, drained } => self.drain_broker(broker, drained),
            Request::RemoveBroker(broker) => self.remove_broker(broker),
            Request::NameCluster(id) => self.name_cluster(id),
            Request::StartTask(asked) => image.start_task(now, asked),
            Request::OrderTask { id, order, by } => image.order_task(now, id, order, by),
            Request::TakeTask { id, run } => image.take_task(id, run),
            Request::ReportTask(report) => image.report_task(now, report),
        };
        records.extend(image.tasks_ended_by(now, &records));
        // Elections may be allowed that were not.
        let is_config = |record: &Record| matches!(record, Record::Config { .. });
        if !self.is_alone() && !self.unsettled && records.iter().any(is_config) {
            records.push(Record::Soft(Soft::Unsettled(true)));
        }
        Decision { records, replies: vec![(token, reply)] }
    }

    /// Fences brokers that are silent; when there are none, the next steps of what the controller
    /// does by itself.
    fn expire(&self, now: Now) -> Decision<Record, Reply> {
        let mut records = Vec::new();
        if self.next_fencing().is_some_and(|at| at <= now.time) {
            self.fence_silent(now, &mut records);
        } else {
            self.keep_up(now, &mut records);
        }
        Decision { records, replies: Vec::new() }
    }

    /// Everybody gets a full session. A broker that begins to lead registers itself, which is a
    /// request.
    fn resume(&self, now: Now) -> Decision<Record, Reply> {
        Decision { records: self.fresh_sessions(now), replies: Vec::new() }
    }

    fn apply(&mut self, record: &Record) {
        self.image.apply(record);
        match record {
            Record::Soft(soft) => self.apply_soft(soft),
            Record::BrokerRemoved { id } => {
                self.sessions.remove(id);
            }
            _ => {}
        }
    }

    fn next_deadline(&self) -> Option<Time> {
        if self.is_alone() {
            return None;
        }
        [self.next_fencing(), self.upkeep_at, self.preferred_at].into_iter().flatten().min()
    }
}
