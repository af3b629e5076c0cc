//! Brokers, the controller, the messages between them, and what must hold.

use std::collections::BTreeMap;
use std::time::Duration;

use towpath_metadata::{
    AlterPartitions, ConfigChange, ConfigOperation, Heartbeat, Metadata, NewTopic, Overrides,
    ProposedInSync, Reassignment, Record, RefusalKind, Registration, Reply, Request, Resource,
    ResourceKind,
};
use towpath_model::{
    BrokerId, FoldRecord, LeaderEpoch, Now, PartitionIndex, StateMachine, Token, TopicPartition,
    Uuid,
};

use super::node::{Lead, Node, Pending, Report};
use crate::events::Events;
use crate::profile::{Violation, ensure};
use crate::rng::Rng;
use crate::steps::Parted;
use crate::trace::Trace;

const TOPIC: Uuid = Uuid([5; 16]);
const PARTITION: TopicPartition = TopicPartition { topic: TOPIC, partition: PartitionIndex(0) };
const BROKERS: usize = 4;
const REPLICAS: i32 = 3;

pub(super) fn run(seed: u64, trace: &Trace) -> Result<Events, Violation> {
    trace.begin_world();
    let mut world = World::new(seed, trace.clone());
    world.life(|world| {
        world.found()?;
        for _ in 0..world.rng.between(200, 900) {
            world.part(World::step)?;
        }
        world.heal()
    })?;
    Ok(world.events)
}

struct World {
    rng: Rng,
    trace: Trace,
    events: Events,
    now: Now,
    metadata: Metadata,
    /// Decisions that are committed.
    decisions: Vec<Vec<Record>>,
    nodes: Vec<Node>,
    /// Requests on their way, each with who sent it.
    network: Vec<(BrokerId, Request)>,
    is_relaxed: bool,
    /// The only one whose machine loses power, where records are relaxed.
    unlucky: BrokerId,
    /// What was committed, each with the epoch in which it was.
    committed: Vec<(u64, LeaderEpoch)>,
    leaders: BTreeMap<LeaderEpoch, Uuid>,
    drawn: u64,
    /// Whether one replica has sufficed at some time.
    has_sufficed_one: bool,
}

impl Parted for World {
    fn rng(&mut self) -> &mut Rng {
        &mut self.rng
    }

    fn trace(&self) -> &Trace {
        &self.trace
    }
}

impl World {
    fn new(seed: u64, trace: Trace) -> World {
        let mut rng = Rng::new(seed);
        let is_relaxed = rng.percent(40);
        let unlucky = BrokerId(1 + rng.index(BROKERS) as i32);
        World {
            rng,
            trace,
            events: Events::new(),
            now: Now::default(),
            metadata: Metadata::new(BrokerId(1), Overrides::new()),
            decisions: Vec::new(),
            nodes: (1..=BROKERS as i32).map(|id| Node::new(BrokerId(id))).collect(),
            network: Vec::new(),
            is_relaxed,
            unlucky,
            committed: Vec::new(),
            leaders: BTreeMap::new(),
            drawn: 0,
            has_sufficed_one: false,
        }
    }

    fn draw(&mut self) -> u64 {
        self.drawn += 1;
        self.drawn
    }

    /// Everybody is there, and the topic is.
    fn found(&mut self) -> Result<(), Violation> {
        for at in 0..BROKERS {
            self.start(at);
        }
        self.settle()?;
        let durability = if self.is_relaxed { "relaxed" } else { "synced" };
        let config = |(name, value): (&str, &str)| (name.to_owned(), Some(value.to_owned()));
        let replicas = (1..=REPLICAS).map(BrokerId).collect();
        let topic = NewTopic {
            assignments: vec![(PartitionIndex(0), replicas)],
            configs: [("durability", durability), ("min.insync.replicas", "2")]
                .into_iter()
                .map(config)
                .collect(),
            ..NewTopic::named("t", TOPIC)
        };
        self.decide(Request::CreateTopics { topics: vec![topic], validate_only: false })?;
        self.settle()
    }

    /// All messages arrive, in order, and everybody folds everything.
    fn settle(&mut self) -> Result<(), Violation> {
        for _ in 0..3 {
            for at in 0..BROKERS {
                self.report(at, false);
                while !self.network.is_empty() {
                    let (from, request) = self.network.remove(0);
                    self.arrive(from, request)?;
                }
                while self.fold(at)? {}
            }
        }
        Ok(())
    }

    fn step(&mut self) -> Result<(), Violation> {
        let at = self.rng.index(BROKERS);
        let kinds = [
            (24, 0),
            (30, 1),
            (60, 2),
            (14, 3),
            (10, 4),
            (40, 5),
            (14, 6),
            (40, 7),
            (1, 8),
            (5, 9),
            (6, 10),
            (1, 11),
            (1, 12),
            (1, 13),
            (2, 14),
        ];
        let kind = self.rng.weighted(&kinds);
        self.trace.event("step", &[kind, at as u64]);
        match kind {
            0 => self.report(at, false),
            1 => self.fold(at).map(drop)?,
            2 => self.deliver()?,
            3 => self.append(at),
            4 => self.sync(at),
            5 => self.replicate(at)?,
            6 => self.advance(at)?,
            7 => self.propose(at),
            8 => self.stop(at),
            9 if !self.nodes[at].is_up => self.start(at),
            9 => self.die(at),
            10 => self.pass()?,
            11 => self.fail_over()?,
            12 => self.set_min()?,
            13 => self.reassign()?,
            _ => {
                let silent = BrokerId(1 + self.rng.index(BROKERS) as i32);
                if !self.nodes[silent.0 as usize - 1].is_up {
                    self.network.push((self.nodes[at].id, Request::BrokerSilent(silent)));
                }
            }
        }
        Ok(())
    }

    /// Carries a request out at the controller; what is decided is committed at once.
    fn decide(&mut self, request: Request) -> Result<Reply, Violation> {
        let decision = self.metadata.decide(self.now, Token(0), request);
        self.commit(decision.records)?;
        let reply = decision.replies.into_iter().next().map(|(_, reply)| reply);
        Ok(reply.expect("each request has its answer"))
    }

    fn commit(&mut self, records: Vec<Record>) -> Result<(), Violation> {
        let before = self.metadata.image().partition(PARTITION).cloned();
        records.iter().for_each(|record| self.metadata.apply(record));
        let logged: Vec<Record> = records.into_iter().filter(Record::is_logged).collect();
        if !logged.is_empty() {
            self.decisions.push(logged);
        }
        let after = self.metadata.image().partition(PARTITION);
        if let (Some(before), Some(after)) = (before, after)
            && before != *after
        {
            let epochs = [after.leader_epoch.0, after.partition_epoch];
            self.trace.event("state", &epochs.map(|epoch| epoch as u64));
            self.trace.remark(|| format!("{after:?}"));
            if after.leader.is_some_and(|id| before.eligible.contains(&id)) {
                self.events.note("controller: eligible replica elected");
            }
            if after.leader.is_some() && before.leader != after.leader {
                self.events.note("controller: leader elected anew");
            }
            if after.leader.is_none() && after.in_sync.len() == 1 {
                self.events.note("controller: last replica in sync fenced");
            }
            if before.is_reassigning() && !after.is_reassigning() {
                self.events.note("controller: replicas moved");
            }
            ensure!(
                before.leader_epoch <= after.leader_epoch
                    && before.partition_epoch < after.partition_epoch,
                "INV-R7",
                "epochs fell: {before:?}, then {after:?}"
            );
        }
        Ok(())
    }

    fn arrive(&mut self, from: BrokerId, request: Request) -> Result<(), Violation> {
        let proposed = match &request {
            Request::AlterPartitions(proposed) => Some(proposed.changes[0].clone()),
            _ => None,
        };
        let image = self.metadata.image();
        let gone = proposed.iter().flat_map(|proposed| &proposed.in_sync).find(|(id, epoch)| {
            image.broker(*id).is_none_or(|broker| broker.epoch != *epoch || !broker.is_active())
        });
        let gone = gone.copied();
        let reply = self.decide(request)?;
        let (Some(proposed), Reply::AlteredPartitions(Ok(mut altered))) = (proposed, reply) else {
            return Ok(());
        };
        let Err(refusal) = altered.remove(0).1 else {
            self.events.note("controller: proposal accepted");
            ensure!(
                gone.is_none(),
                "INV-R11",
                "{proposed:?} is accepted, and {gone:?} is not there under that epoch"
            );
            return Ok(());
        };
        match refusal.kind() {
            RefusalKind::InvalidUpdateVersion => {
                self.events.note("controller: late proposal refused");
            }
            RefusalKind::IneligibleReplica => {
                self.events.note("controller: member refused");
                let image = self.metadata.image();
                let stale = proposed.in_sync.iter().any(|(id, epoch)| {
                    image.broker(*id).is_some_and(|broker| broker.epoch != *epoch)
                });
                if stale {
                    self.events.note("controller: registration behind a refused proposal");
                }
            }
            _ => {}
        }
        // The answer may get lost; then the metadata shows that the proposal is over. It counts only
        // beside everything that it rests on: an earlier copy may have been accepted.
        let node = &mut self.nodes[from.0 as usize - 1];
        if let Some(lead) = &mut node.lead
            && lead.epoch == proposed.leader_epoch
            && node.folded == self.decisions.len()
            && self.rng.percent(80)
        {
            lead.pending.take_if(|pending| {
                pending.partition_epoch == proposed.partition_epoch
                    && pending.in_sync == proposed.in_sync
            });
        }
        Ok(())
    }

    /// A message arrives: mostly the oldest, sometimes another; some get lost, some come again.
    fn deliver(&mut self) -> Result<(), Violation> {
        if self.network.is_empty() {
            return Ok(());
        }
        let at = if self.rng.percent(65) { 0 } else { self.rng.index(self.network.len()) };
        let (from, request) = self.network.remove(at);
        if self.rng.percent(8) {
            return Ok(());
        }
        if self.rng.percent(20) {
            self.network.push((from, request.clone()));
        }
        self.arrive(from, request)
    }

    /// A broker says that it is there, as it does again and again.
    fn report(&mut self, at: usize, wants_shutdown: bool) {
        let node = &mut self.nodes[at];
        if !node.is_up {
            return;
        }
        let request = match node.epoch() {
            None => Request::RegisterBroker(Registration {
                id: node.id,
                incarnation: node.incarnation,
                directories: vec![Uuid([node.id.0 as u8; 16])],
                clean_since: node.clean_since,
                lost_power: node.lost_power,
                ..Registration::default()
            }),
            Some(epoch) => {
                node.sequence += 1;
                Request::Heartbeat(Heartbeat {
                    broker: node.id,
                    epoch,
                    sequence: node.sequence,
                    applied: node.folded as u64,
                    is_ready: true,
                    wants_shutdown,
                    ..Heartbeat::default()
                })
            }
        };
        self.network.push((node.id, request));
    }

    /// Folds one more decision; false when there is none.
    fn fold(&mut self, at: usize) -> Result<bool, Violation> {
        let node = &mut self.nodes[at];
        let Some(decision) = self.decisions.get(node.folded).filter(|_| node.is_up) else {
            return Ok(false);
        };
        node.fold(decision);
        let leads = node.state(PARTITION).filter(|state| state.leader == Some(node.id)).cloned();
        let Some(state) = leads else {
            node.lead = None;
            return Ok(true);
        };
        if let Some(lead) = node.lead.as_mut().filter(|lead| lead.epoch == state.leader_epoch) {
            lead.pending.take_if(|pending| pending.partition_epoch < state.partition_epoch);
            return Ok(true);
        }
        let epoch = state.leader_epoch;
        node.lead = Some(Lead {
            epoch,
            high_watermark: 0,
            start: node.log.len(),
            reports: BTreeMap::new(),
            pending: None,
        });
        let (id, incarnation, log) = (node.id, node.incarnation, node.log.clone());
        let first = *self.leaders.entry(epoch).or_insert(incarnation);
        ensure!(first == incarnation, "INV-R6", "two processes lead in epoch {epoch}: one is {id}");
        for (offset, (record, committed_in)) in self.committed.iter().enumerate() {
            ensure!(
                epoch <= *committed_in || log.get(offset) == Some(record),
                "INV-R5",
                "broker {id} leads epoch {epoch} without record {offset}, committed in {committed_in}"
            );
        }
        Ok(true)
    }

    fn append(&mut self, at: usize) {
        let record = self.draw();
        let node = &mut self.nodes[at];
        if node.is_up && node.lead.is_some() {
            node.log.push(record);
        }
    }

    fn sync(&mut self, at: usize) {
        let node = &mut self.nodes[at];
        if node.is_up {
            node.durable = node.log.len();
        }
    }

    /// A follower that knows of the leader's epoch gets what it has, and says what it holds.
    fn replicate(&mut self, at: usize) -> Result<(), Violation> {
        let leader = self.nodes.iter().position(|node| {
            node.lead.as_ref().is_some_and(|lead| {
                let state = self.nodes[at].state(PARTITION);
                state.is_some_and(|state| {
                    state.leader_epoch == lead.epoch
                        && state.leader == Some(node.id)
                        && state.replicas.contains(&self.nodes[at].id)
                })
            })
        });
        let Some(leader) = leader.filter(|leader| *leader != at && self.nodes[*leader].is_up)
        else {
            return Ok(());
        };
        let source = self.nodes[leader].log.clone();
        let follower = &mut self.nodes[at];
        let common = follower.log.iter().zip(&source).take_while(|(own, led)| own == led).count();
        follower.log.truncate(common);
        follower.durable = follower.durable.min(common);
        let upto = if self.rng.percent(50) { source.len() } else { (common + 1).min(source.len()) };
        follower.log.extend_from_slice(&source[common..upto]);
        if self.rng.percent(50) {
            follower.durable = follower.log.len();
        }
        let (id, holds) = (follower.id, follower.holds(self.is_relaxed));
        let broker_epoch = follower.epoch().expect("a follower knows its registration");
        if let Some(lead) = &mut self.nodes[leader].lead {
            lead.reports.insert(id, Report { broker_epoch, holds });
        }
        Ok(())
    }

    /// The leader commits what all hold who may be in sync.
    fn advance(&mut self, at: usize) -> Result<(), Violation> {
        let is_relaxed = self.is_relaxed;
        let node = &self.nodes[at];
        let (Some(lead), Some(state)) = (&node.lead, node.state(PARTITION)) else { return Ok(()) };
        let topic = node.image.topic_by_id(TOPIC).expect("it has partitions");
        if state.in_sync.len() < node.image.min_in_sync(topic, state) {
            return Ok(());
        }
        let pending = lead.pending.iter().flat_map(|pending| &pending.in_sync).map(|(id, _)| id);
        let holds = |id: &BrokerId| match lead.reports.get(id) {
            _ if *id == node.id => node.holds(is_relaxed),
            None => 0,
            Some(report) => report.holds,
        };
        let upto = state.in_sync.iter().chain(pending).map(holds).min().unwrap_or(0);
        // Nothing of an older epoch is committed by counting alone: it could still be cut.
        if upto < lead.start || upto <= lead.high_watermark {
            return Ok(());
        }
        let (id, epoch, log) = (node.id, lead.epoch, node.log.clone());
        for (offset, record) in log.iter().enumerate().take(upto) {
            match self.committed.get(offset) {
                Some((known, _)) => ensure!(
                    known == record,
                    "INV-R3",
                    "broker {id} commits another record at {offset} in epoch {epoch}"
                ),
                None => self.committed.push((*record, epoch)),
            }
        }
        let lead = self.nodes[at].lead.as_mut().expect("it leads");
        lead.high_watermark = upto;
        Ok(())
    }

    /// The leader proposes those who have what is committed, sometimes fewer.
    fn propose(&mut self, at: usize) {
        let shrinks = self.rng.percent(30);
        let leaves = self.rng.index(BROKERS) as i32 + 1;
        let again = self.rng.percent(50);
        let is_relaxed = self.is_relaxed;
        let node = &mut self.nodes[at];
        let (Some(state), Some(broker_epoch)) = (node.state(PARTITION).cloned(), node.epoch())
        else {
            return;
        };
        let holds = node.holds(is_relaxed);
        let known_epoch = |id: &BrokerId| node.image.broker(*id).map_or(-1, |broker| broker.epoch);
        let Some(lead) = &node.lead else { return };
        let proposal = match &lead.pending {
            Some(pending) if again => pending.clone(),
            Some(_) => return,
            None => {
                let joins = |id: &BrokerId| {
                    let report = lead.reports.get(id)?;
                    let is_caught_up =
                        lead.high_watermark.max(lead.start) <= report.holds.min(holds);
                    is_caught_up.then_some((*id, report.broker_epoch))
                };
                let member = |id: &BrokerId| {
                    let stays = state.in_sync.contains(id).then(|| (*id, known_epoch(id)));
                    match *id {
                        id if id == node.id => Some((id, broker_epoch)),
                        id if shrinks && id.0 == leaves => None,
                        _ => joins(id).or(stays),
                    }
                };
                let in_sync: Vec<_> = state.replicas.iter().filter_map(member).collect();
                if in_sync.iter().map(|(id, _)| *id).eq(state.in_sync.iter().copied()) {
                    return;
                }
                Pending { partition_epoch: state.partition_epoch, in_sync }
            }
        };
        let request = Request::AlterPartitions(AlterPartitions {
            broker: node.id,
            broker_epoch,
            changes: vec![ProposedInSync {
                partition: PARTITION,
                leader_epoch: lead.epoch,
                partition_epoch: proposal.partition_epoch,
                in_sync: proposal.in_sync.clone(),
            }],
        });
        let id = node.id;
        if let Some(lead) = &mut node.lead {
            lead.pending = Some(proposal);
        }
        self.network.push((id, request));
    }

    fn start(&mut self, at: usize) {
        let incarnation = Uuid(u128::from(self.draw()).to_be_bytes());
        if !self.nodes[at].is_up && !self.nodes[at].is_dead {
            self.nodes[at].start(incarnation);
        }
    }

    /// An orderly stop: everything is synced, and marked if the process has registered.
    fn stop(&mut self, at: usize) {
        if self.rng.percent(70) {
            return self.report(at, true);
        }
        let node = &mut self.nodes[at];
        if node.is_up {
            node.durable = node.log.len();
            node.mark = node.epoch();
            node.lost_power &= node.epoch().is_none();
            node.is_up = false;
            node.lead = None;
        }
    }

    fn die(&mut self, at: usize) {
        let loses_power = self.rng.percent(50);
        let kept = self.rng.draw();
        let unlucky = self.unlucky;
        let node = &mut self.nodes[at];
        let was_registered = node.epoch().is_some();
        node.is_up = false;
        node.lead = None;
        // A relaxed topic survives the power cut of one machine; with more, it may lose records.
        let loses_power = loses_power && (!self.is_relaxed || node.id == unlucky);
        node.lost_power = loses_power || (node.lost_power && !was_registered);
        if loses_power {
            let unsynced = node.log.len() - node.durable;
            let left = node.durable + (kept % (unsynced as u64 + 1)) as usize;
            if left < node.log.len() {
                self.events.note("node: lost unsynced records");
            }
            node.log.truncate(left);
        }
    }

    fn pass(&mut self) -> Result<(), Violation> {
        let wait = self.rng.weighted(&[(8, 20), (4, 150), (1, 700)]);
        self.now.time = self.now.time + Duration::from_millis(wait);
        while self.metadata.next_deadline().is_some_and(|at| at <= self.now.time) {
            let decision = self.metadata.expire(self.now);
            self.commit(decision.records)?;
        }
        Ok(())
    }

    fn fail_over(&mut self) -> Result<(), Violation> {
        self.events.note("controller: failed over");
        let image = self.metadata.image().clone();
        self.metadata = Metadata::begin(image);
        let decision = self.metadata.resume(self.now);
        self.commit(decision.records)
    }

    fn set_min(&mut self) -> Result<(), Violation> {
        if self.is_relaxed {
            // With one replica to hold a record, one power cut may lose it.
            return Ok(());
        }
        self.events.note("controller: minimum changed");
        let value = 1 + self.rng.below(3);
        self.has_sufficed_one |= value == 1;
        let change = ConfigChange {
            name: "min.insync.replicas".to_owned(),
            operation: ConfigOperation::Set,
            value: Some(value.to_string()),
        };
        let resource = Resource { kind: ResourceKind::Topic, name: "t".to_owned() };
        let resources = vec![(resource, vec![change])];
        self.decide(Request::AlterConfigs { resources, validate_only: false }).map(drop)
    }

    fn reassign(&mut self) -> Result<(), Violation> {
        let without = 1 + self.rng.index(BROKERS) as i32;
        let target = (1..=BROKERS as i32).filter(|id| *id != without).map(BrokerId).collect();
        let target = Some(target).filter(|_| self.rng.percent(80));
        let partition = ("t".to_owned(), PartitionIndex(0));
        let reassignments = vec![Reassignment { partition, target }];
        let request =
            Request::AlterReassignments { reassignments, factor_may_change: true, by_hand: true };
        self.decide(request).map(drop)
    }

    /// Everybody comes back but one, who may be dead for good, and messages arrive: somebody leads,
    /// and everything that was committed is there.
    fn heal(&mut self) -> Result<(), Violation> {
        if !self.has_sufficed_one && !self.is_relaxed && self.rng.percent(50) {
            self.events.note("node: broker dead for good");
            let victim = self.rng.index(BROKERS);
            self.nodes[victim].is_up = false;
            self.nodes[victim].lead = None;
            self.nodes[victim].is_dead = true;
        }
        self.network.clear();
        for at in 0..BROKERS {
            let broker = self.metadata.image().broker(self.nodes[at].id);
            if broker.is_some_and(|broker| broker.in_controlled_shutdown) {
                // It stops, as it was asked to.
                self.nodes[at].is_up = false;
                self.nodes[at].lead = None;
            }
            self.start(at);
        }
        for _ in 0..4 {
            self.settle()?;
            self.now.time = self.now.time + Duration::from_millis(400);
            let decision = self.metadata.expire(self.now);
            self.commit(decision.records)?;
        }
        let state = self.metadata.image().partition(PARTITION).expect("it was created");
        ensure!(state.leader.is_some(), "INV-R14", "nobody leads in the end: {state:?}");
        Ok(())
    }
}
