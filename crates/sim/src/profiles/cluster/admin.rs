//! An administrator, and what it was told (INV-M1, T4): topics come and go, grow, are configured and
//! moved; brokers are emptied.
//!
//! Every topic has a name of its own and an id that is known before, so a change without an answer can be
//! told apart from every other: it may happen at any later time, or never.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use towpath_broker::OFFSETS_TOPIC;
use towpath_driver::Delivery;
use towpath_metadata::raft::{Role, Status, Term};
use towpath_metadata::{
    ConfigChange, ConfigOperation, ElectionKind, Image, MorePartitions, NewTopic, PartitionState,
    Reassignment, Refusal, Reply, Request, Resource, ResourceKind, TopicRef,
};
use towpath_model::{BrokerId, PartitionIndex, Time, TopicId, TopicName, TopicPartition};

use super::node::random_id;
use super::truth::Truth;
use super::world::{Waiting, World};
use crate::profile::{Violation, ensure};
use crate::rng::Rng;

/// Most topics at a time, and most partitions of one.
const TOPICS_MAX: usize = 3;
const PARTITIONS_MAX: i32 = 3;
/// How long a question may be on its way that nobody waits for any more, while all connections are well.
const STRAY_MAX: Duration = Duration::from_millis(700);

/// How far something has come.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Progress {
    No,
    Asked,
    Sure,
}

/// A topic.
#[derive(Debug, Clone)]
struct Fact {
    name: TopicName,
    created: Progress,
    deleted: Progress,
    /// Partitions that it surely has, and that it may have.
    partitions: (i32, i32),
    /// Values that min.insync.replicas may have; `None` is the default.
    min_in_sync: BTreeSet<Option<u32>>,
    /// A configuration without an answer may come at any time.
    may_change: bool,
    is_internal: bool,
    /// Its replicas may have been moved.
    was_moved: bool,
    /// A change is under way.
    is_busy: bool,
}

/// What was asked.
#[derive(Debug, Clone)]
pub(super) enum Change {
    Create(TopicId),
    Delete(TopicId),
    Grow(TopicId, i32),
    MinInSync(TopicId, u32),
    /// Whatever comes of it is right.
    Any,
}

/// All topics there may be or have been.
#[derive(Debug, Default)]
pub(super) struct Catalog {
    facts: BTreeMap<TopicId, Fact>,
    /// What was asked and has no answer, and the newest term of the quorum then; none if somebody
    /// took himself for the controller of an older one.
    changes: BTreeMap<u64, (Change, Option<Term>)>,
    asked: u64,
    /// When something was asked last.
    asked_at: Time,
}

impl Catalog {
    /// A topic's name.
    pub(super) fn name_of(&self, id: TopicId) -> Option<TopicName> {
        self.facts.get(&id).map(|fact| fact.name.clone())
    }

    /// Whether a topic is there, and nobody has asked for its deletion.
    pub(super) fn surely_exists(&self, id: TopicId) -> bool {
        let fact = self.facts.get(&id);
        fact.is_some_and(|f| f.created == Progress::Sure && f.deleted == Progress::No)
    }

    /// The fewest that must be in sync for anything to be committed; `None` where that is open.
    pub(super) fn min_in_sync(&self, id: TopicId, state: &PartitionState) -> Option<usize> {
        let fact = self.facts.get(&id)?;
        // The default follows from how many replicas the topic has, which moves with them.
        let default = if fact.was_moved { 1 } else { 2 };
        let values = fact.min_in_sync.iter().map(|min| min.unwrap_or(default) as usize);
        let min = values.min().unwrap_or(1).min(state.settled_replicas());
        (!fact.may_change && !fact.is_busy).then_some(min)
    }

    /// Some partition of a topic for everybody that is surely there.
    pub(super) fn any_partition(&self, rng: &mut Rng, truth: &Truth) -> Option<TopicPartition> {
        let mut all = truth.partitions();
        let is_public = |id| self.facts.get(&id).is_some_and(|fact| !fact.is_internal);
        all.retain(|id| self.surely_exists(id.topic) && is_public(id.topic));
        (!all.is_empty()).then(|| all[rng.index(all.len())])
    }

    fn ask(&mut self, now: Time, term: Option<Term>, change: Change) -> u64 {
        self.asked += 1;
        self.asked_at = now;
        self.changes.insert(self.asked, (change, term));
        self.asked
    }

    /// There will be no answer: it may happen or not.
    pub(super) fn gives_up(&mut self, change: u64) {
        let Some((change, _)) = self.changes.remove(&change) else { return };
        let fact = change.topic().and_then(|id| self.facts.get_mut(&id));
        if let Some(fact) = fact {
            fact.is_busy = false;
            fact.may_change |= matches!(change, Change::MinInSync(..));
        }
    }

    /// An answer leaves the broker that was asked: its own metadata shows what it says.
    pub(super) fn answer_leaves(
        &mut self,
        change: u64,
        delivery: &Delivery,
        image: &Image,
        only_controller: Option<Term>,
    ) -> Result<(), Violation> {
        let Delivery::Metadata(reply) = delivery else { return Ok(()) };
        let Some((change, asked_in)) = self.changes.get(&change).cloned() else { return Ok(()) };
        let refusal = refusal_of(reply);
        let Some(fact) = change.topic().and_then(|id| self.facts.get_mut(&id)) else {
            return Ok(());
        };
        if let Some(refusal) = refusal {
            // A controller that has been replaced and does not know it refuses by what it knows.
            let is_judged = asked_in.is_some() && asked_in == only_controller;
            let is_explained = !is_judged || change.may_be_refused(&refusal);
            ensure!(
                is_explained,
                "INV-M1",
                "{change:?} of {} is refused by the only controller since: {refusal}",
                fact.name
            );
            return Ok(());
        }
        let shown = change.topic().and_then(|id| image.topic_by_id(id));
        let is_shown = match change {
            Change::Create(_) => {
                fact.created = Progress::Sure;
                shown.is_some()
            }
            Change::Delete(_) => {
                fact.deleted = Progress::Sure;
                shown.is_none()
            }
            Change::Grow(_, count) => {
                fact.partitions.0 = count;
                shown.is_some_and(|topic| count as usize <= topic.partitions.len())
            }
            Change::MinInSync(_, min) => {
                if !fact.may_change {
                    fact.min_in_sync = BTreeSet::from([Some(min)]);
                }
                let value = shown.and_then(|topic| topic.overrides.get("min.insync.replicas"));
                fact.may_change || value.is_some_and(|value| *value == min.to_string())
            }
            Change::Any => true,
        };
        ensure!(
            is_shown,
            "INV-M1",
            "{change:?} of {} is acknowledged, and the asked broker shows {shown:?}",
            fact.name
        );
        Ok(())
    }

    /// Compares the metadata of a broker that has come furthest.
    pub(super) fn check(&self, image: &Image) -> Result<(), Violation> {
        for (id, fact) in &self.facts {
            let shown = image.topic_by_id(*id);
            let count = shown.map_or(0, |topic| topic.partitions.len() as i32);
            let has_to = fact.created == Progress::Sure && fact.deleted == Progress::No;
            ensure!(shown.is_some() || !has_to, "INV-M1", "{} is gone", fact.name);
            ensure!(
                shown.is_none() || fact.deleted < Progress::Sure,
                "INV-M1",
                "{} was deleted and is there",
                fact.name
            );
            let (sure, perhaps) = fact.partitions;
            ensure!(
                shown.is_none() || (sure <= count && count <= perhaps),
                "INV-M1",
                "{} has {count} partitions, {sure} to {perhaps} were asked for",
                fact.name
            );
        }
        for topic in image.topics() {
            let is_known = self.facts.contains_key(&topic.id);
            ensure!(is_known, "INV-T4", "nobody has asked for a topic {}", topic.name);
        }
        Ok(())
    }

    /// Whether data of this topic may be deleted anywhere.
    pub(super) fn may_be_deleted(&self, id: TopicId) -> bool {
        self.facts.get(&id).is_some_and(|fact| fact.deleted != Progress::No)
    }

    /// The topic that a path belongs to.
    pub(super) fn named_in(&self, path: &str) -> Option<TopicId> {
        self.facts.keys().copied().find(|id| path.contains(&id.to_string()))
    }

    /// Whether a topic is for everybody.
    pub(super) fn is_public(&self, id: TopicId) -> bool {
        self.facts.get(&id).is_some_and(|fact| !fact.is_internal)
    }

    /// Nobody waits.
    pub(super) fn is_quiet(&self) -> bool {
        self.facts.values().all(|fact| !fact.is_busy)
    }

    fn live(&self) -> Vec<TopicId> {
        let live = self.facts.iter().filter(|(id, fact)| self.surely_exists(**id) && !fact.is_busy);
        live.filter(|(_, fact)| !fact.is_internal).map(|(id, _)| *id).collect()
    }
}

impl Change {
    /// Whether a controller that knows everything may refuse this so. Topics are created and deleted once;
    /// they grow and are configured, with what is valid, by somebody who knows that they are there. Only
    /// brokers may be missing: some are fenced, stop, or are drained.
    fn may_be_refused(&self, refusal: &Refusal) -> bool {
        matches!((self, refusal), (Change::Any, _) | (_, Refusal::TooFewBrokers { .. }))
    }

    fn topic(&self) -> Option<TopicId> {
        match self {
            Change::Create(id)
            | Change::Delete(id)
            | Change::Grow(id, _)
            | Change::MinInSync(id, _) => Some(*id),
            Change::Any => None,
        }
    }
}

impl World {
    /// Whether whatever the administrator has asked for has happened or never will: nobody waits, and
    /// what was given up was asked so long ago that it is not on its way any more.
    pub(super) fn is_administration_over(&self) -> bool {
        self.catalog.changes.is_empty() && self.catalog.asked_at + STRAY_MAX <= self.now
    }

    /// The administrator does one thing.
    pub(super) fn administer(&mut self) -> Result<(), Violation> {
        if !self.blank.is_empty() {
            return Ok(());
        }
        let live = self.catalog.live();
        if live.len() < TOPICS_MAX && (live.is_empty() || self.rng.percent(15)) {
            return self.create_topic(false);
        }
        if live.is_empty() {
            return Ok(());
        }
        let id = live[self.rng.index(live.len())];
        if self.swarm.has_queues && self.rng.percent(10) {
            return self.make_queue(id);
        }
        match self.rng.below(12) {
            0..1 => {
                self.fact(id).deleted = Progress::Asked;
                let topics = vec![TopicRef { name: None, id: Some(id) }];
                self.change(Change::Delete(id), Request::DeleteTopics(topics))
            }
            1..3 => self.grow(id),
            3..5 => self.set_min_in_sync(id),
            5..8 => self.reassign(id),
            8..10 => {
                let kind = ElectionKind::Preferred;
                let request = Request::ElectLeaders { kind, partitions: None };
                self.change(Change::Any, request)
            }
            _ => {
                let all: Vec<BrokerId> = self.nodes.keys().copied().collect();
                let broker = all[self.rng.index(all.len())];
                let drained = 3 < all.len() && self.rng.percent(30);
                self.change(Change::Any, Request::DrainBroker { broker, drained })
            }
        }
    }

    /// Makes a topic.
    pub(super) fn create_topic(&mut self, is_internal: bool) -> Result<(), Violation> {
        let id = random_id(&mut self.rng);
        let number = self.catalog.facts.len();
        let name = if is_internal { OFFSETS_TOPIC.to_owned() } else { format!("topic-{number}") };
        let partitions = if is_internal { 2 } else { self.rng.between(1, 2) as i32 };
        let factor = if is_internal { 3 } else { self.rng.weighted(&[(1, 1), (2, 2), (7, 3)]) };
        let min = (!is_internal && self.rng.percent(30)).then(|| self.rng.between(1, 2) as u32);
        let min_in_sync = min.map(|min| ("min.insync.replicas".to_owned(), Some(min.to_string())));
        let is_queue = self.swarm.has_queues && !is_internal && self.rng.percent(60);
        let queue = is_queue.then(|| ("queue.enable".to_owned(), Some("true".to_owned())));
        let new = NewTopic {
            partitions,
            replication_factor: factor,
            internal: is_internal,
            configs: min_in_sync.into_iter().chain(queue).collect(),
            ..NewTopic::named(&name, id)
        };
        self.create(new, min)
    }

    /// Makes a queue with this configuration.
    pub(super) fn create_named(
        &mut self,
        name: &str,
        partitions: i32,
        configs: Vec<(String, Option<String>)>,
    ) -> Result<(), Violation> {
        let id = random_id(&mut self.rng);
        let new =
            NewTopic { partitions, replication_factor: 3, configs, ..NewTopic::named(name, id) };
        self.create(new, None)
    }

    fn create(&mut self, topic: NewTopic, min: Option<u32>) -> Result<(), Violation> {
        let id = topic.candidate_id;
        let fact = Fact {
            name: TopicName::new(&topic.name)
                .map_err(|error| Violation::new("workload", error.to_string()))?,
            created: Progress::Asked,
            deleted: Progress::No,
            partitions: (topic.partitions, topic.partitions),
            min_in_sync: BTreeSet::from([min]),
            may_change: false,
            is_internal: topic.internal,
            was_moved: false,
            is_busy: true,
        };
        self.catalog.facts.insert(id, fact);
        let request = Request::CreateTopics { topics: vec![topic], validate_only: false };
        self.change(Change::Create(id), request)
    }

    /// Replicas of some queue's partition are moved, or leaders are chosen anew.
    pub(super) fn move_queues(&mut self) -> Result<(), Violation> {
        let live = self.catalog.live();
        if !self.blank.is_empty() || live.is_empty() {
            return Ok(());
        }
        if self.rng.percent(40) {
            let kind = ElectionKind::Preferred;
            return self.change(Change::Any, Request::ElectLeaders { kind, partitions: None });
        }
        let id = live[self.rng.index(live.len())];
        self.reassign(id)
    }

    fn fact(&mut self, id: TopicId) -> &mut Fact {
        self.catalog.facts.get_mut(&id).expect("topics stay in the catalog")
    }

    fn grow(&mut self, id: TopicId) -> Result<(), Violation> {
        let fact = self.fact(id);
        let count = fact.partitions.1 + 1;
        if PARTITIONS_MAX < count {
            return Ok(());
        }
        fact.partitions.1 = count;
        let name = fact.name.as_str().to_owned();
        let topics = vec![MorePartitions { name, count, assignments: None }];
        let request = Request::CreatePartitions { topics, validate_only: false };
        self.change(Change::Grow(id, count), request)
    }

    fn set_min_in_sync(&mut self, id: TopicId) -> Result<(), Violation> {
        let min = self.rng.between(1, 2) as u32;
        let fact = self.fact(id);
        fact.min_in_sync.insert(Some(min));
        let name = fact.name.as_str().to_owned();
        let resource = Resource { kind: ResourceKind::Topic, name };
        let change = ConfigChange {
            name: "min.insync.replicas".to_owned(),
            operation: ConfigOperation::Set,
            value: Some(min.to_string()),
        };
        let resources = vec![(resource, vec![change])];
        let request = Request::AlterConfigs { resources, validate_only: false };
        self.change(Change::MinInSync(id, min), request)
    }

    fn reassign(&mut self, id: TopicId) -> Result<(), Violation> {
        self.fact(id).was_moved = true;
        let fact = self.fact(id).clone();
        let index = PartitionIndex(self.rng.below(fact.partitions.0 as u64) as i32);
        let mut brokers: Vec<BrokerId> = self.nodes.keys().copied().collect();
        let factor = self.rng.between(1, 3) as usize;
        let mut target = Vec::new();
        while target.len() < factor && !brokers.is_empty() {
            target.push(brokers.remove(self.rng.index(brokers.len())));
        }
        let target = self.rng.percent(85).then_some(target);
        let partition = (fact.name.as_str().to_owned(), index);
        let reassignments = vec![Reassignment { partition, target }];
        let request =
            Request::AlterReassignments { reassignments, factor_may_change: true, by_hand: true };
        self.change(Change::Any, request)
    }

    pub(super) fn change(&mut self, change: Change, request: Request) -> Result<(), Violation> {
        let Some(of) = self.any_awake() else {
            if let Some(fact) = change.topic().and_then(|id| self.catalog.facts.get_mut(&id)) {
                fact.is_busy = false;
            }
            return Ok(());
        };
        if let Some(fact) = change.topic().and_then(|id| self.catalog.facts.get_mut(&id)) {
            fact.is_busy = true;
        }
        let change = self.catalog.ask(self.now, self.only_controller(), change);
        self.ask(of, Waiting::Admin { change }, request)
    }

    /// The newest term of the quorum, if nobody takes himself for the controller of an older one: who
    /// has been replaced and does not know it refuses by what he knows.
    pub(super) fn only_controller(&self) -> Option<Term> {
        let processes = self.nodes.values().filter_map(|node| node.process.as_ref());
        let statuses: Vec<_> = processes.map(|process| process.driver.quorum_status()).collect();
        let newest = statuses.iter().map(|status| status.term).max()?;
        let newest = newest.max(self.truth.newest_term);
        let is_old = |status: &Status| status.role == Role::Leader && status.term < newest;
        (!statuses.iter().any(is_old)).then_some(newest)
    }

    pub(super) fn admin_answered(
        &mut self,
        change: u64,
        delivery: &Delivery,
    ) -> Result<(), Violation> {
        let Delivery::Metadata(reply) = delivery else {
            self.events.note("admin: change without an answer");
            self.catalog.gives_up(change);
            return Ok(());
        };
        let is_refused = refusal_of(reply).is_some();
        self.events.note(match (reply, is_refused) {
            (_, true) => "admin: change refused",
            (Reply::CreatedTopics(_), _) => "admin: topic created",
            (Reply::DeletedTopics(_), _) => "admin: topic deleted",
            (Reply::CreatedPartitions(_), _) => "admin: partitions added",
            (Reply::AlteredReassignments(_), _) => "admin: replicas moved",
            (Reply::ElectedLeaders(_), _) => "admin: leaders elected",
            (Reply::DrainedBroker(_), _) => "admin: broker drained",
            _ => "admin: topic configured",
        });
        let Some((change, _)) = self.catalog.changes.remove(&change) else { return Ok(()) };
        if let Some(fact) = change.topic().and_then(|id| self.catalog.facts.get_mut(&id)) {
            fact.is_busy = false;
        }
        Ok(())
    }
}

fn refusal_of(reply: &Reply) -> Option<Refusal> {
    match reply {
        Reply::CreatedTopics(all) => all.iter().find_map(|(_, r)| r.as_ref().err().cloned()),
        Reply::DeletedTopics(all) => all.iter().find_map(|(_, r)| r.as_ref().err().cloned()),
        Reply::CreatedPartitions(all) => all.iter().find_map(|(_, r)| r.as_ref().err().cloned()),
        Reply::AlteredConfigs(all) => all.iter().find_map(|(_, r)| r.as_ref().err().cloned()),
        Reply::AlteredReassignments(all) | Reply::ElectedLeaders(all) => {
            all.iter().find_map(|(_, r)| r.as_ref().err().cloned())
        }
        Reply::DrainedBroker(result) => result.as_ref().err().cloned(),
        _ => None,
    }
}
