//! Everything of one run: machines, network, clients, and what they were promised.
//!
//! ```text
//! agenda: (time, number) ─▶ event ─▶ one call of one driver ─▶ what it said goes on the agenda
//!                                            └▶ what it shows is compared with the books
//! ```
//!
//! One thing happens at a time, and time jumps to the next. A call during which the machine stops has
//! said nothing to anybody.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::sync::Arc;
use std::time::Duration;

use towpath_driver::{Delivery, PeerMessage, QUORUM_TICK, VolumeIndex};
use towpath_metadata::raft::{Body, MemberId, Role};
use towpath_metadata::{Overrides, Reply, Request};
use towpath_model::{BrokerId, Offset, ProducerId, Time, Token, TopicPartition};

use super::admin::Catalog;
use super::faults::Mend;
use super::ghost::Book;
use super::network::{Network, Way, between};
use super::node::{Node, Rounds, SimDriver};
use super::observe::View;
use super::offsets::Committer;
use super::producers::{Frame, Producer};
use super::readers::Consumer;
use super::swarm::{Op, Swarm};
use super::truth::Truth;
use super::work::{Clients, Waiter};
use crate::checker::PartitionHistory;
use crate::events::Events;
use crate::profile::{Violation, ensure};
use crate::rng::Rng;
use crate::steps::Parted;
use crate::trace::Trace;

/// Something that happens at a time.
#[derive(Debug)]
pub(super) enum Event {
    Start(BrokerId, u64),
    Close(BrokerId, u64),
    Tick(BrokerId, u64),
    Upkeep(BrokerId, u64),
    Alarm(BrokerId, u64),
    Round(BrokerId, u64),
    Restart(BrokerId, u64),
    Arrive(Way, u64),
    Pull(Way, u64),
    Dial(Way),
    Cut(Way, u64),
    LosePatience(Way, u64),
    Mend(Mend),
    /// The next batch of a producer's connection.
    Batch(usize, u64),
    /// A process looks what is to be carried from one queue to another.
    Carry(BrokerId, u64),
    Heard(BrokerId, Token, Box<Delivery>),
    Client,
    Misfortune,
}

/// Who waits for an answer of which broker, and what it is about.
#[derive(Debug, Clone)]
pub(super) enum Waiting {
    Produce(Box<Frame>),
    ProducerId { producer: usize },
    Admin { change: u64 },
    Commit { partition: TopicPartition, offset: towpath_model::Offset },
    Offset { partition: TopicPartition, place: TopicPartition },
    Deletion { partition: TopicPartition, start: towpath_model::Offset },
    Delivery { log: TopicPartition, end: towpath_model::Offset },
    Work(Box<Waiter>),
}

pub(super) struct World {
    /// For what is done on purpose: clients and faults.
    pub(super) rng: Rng,
    /// For everything else.
    pub(super) chance: Rng,
    pub(super) trace: Trace,
    pub(super) events: Events,
    pub(super) swarm: Swarm,
    pub(super) now: Time,
    agenda: BTreeMap<(Time, u64), Event>,
    scheduled: u64,
    pub(super) nodes: BTreeMap<BrokerId, Node>,
    pub(super) network: Network,
    statics: Overrides,
    /// Whoever was last seen to lead the quorum.
    pub(super) controller: Option<BrokerId>,
    /// Brokers whose disk was replaced and that are not registered since.
    pub(super) blank: BTreeSet<BrokerId>,
    pub(super) truth: Truth,
    pub(super) books: BTreeMap<TopicPartition, Book>,
    /// Where the newest committed snapshot of a queue's deliveries begins, by partition.
    pub(super) snapshots: BTreeMap<TopicPartition, Offset>,
    pub(super) histories: BTreeMap<TopicPartition, PartitionHistory>,
    /// What each process shows of its replicas.
    pub(super) views: BTreeMap<(BrokerId, TopicPartition), View>,
    pub(super) catalog: Catalog,
    pub(super) producers: Vec<Producer>,
    /// Batches on their way, by producer and connection, in the order in which they were sent.
    pub(super) frames: BTreeMap<(usize, u64), VecDeque<Frame>>,
    pub(super) consumers: Vec<Consumer>,
    pub(super) committer: Committer,
    /// Who works queues.
    pub(super) work: Clients,
    /// By broker and token; what is not here any more was given up.
    pub(super) waits: BTreeMap<(BrokerId, Token), Waiting>,
    tokens: u64,
    pub(super) producer_ids: BTreeSet<ProducerId>,
    /// Proposals that each broker has made, by what they are about.
    proposals: BTreeSet<(BrokerId, TopicPartition, i32, i32)>,
    /// Nothing goes wrong any more, and clients only finish what they have begun.
    pub(super) is_healing: bool,
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
    pub(super) fn new(seed: u64, trace: Trace) -> World {
        let mut rng = Rng::new(seed);
        let swarm = Swarm::of(seed, &mut rng);
        World::with(rng, swarm, trace)
    }

    /// The world of a mix that was drawn from these numbers.
    pub(super) fn with(mut rng: Rng, swarm: Swarm, trace: Trace) -> World {
        trace.begin_world();
        let property = |name: &str, value: String| (name.to_owned(), value);
        let statics = Overrides::from([
            property("log.segment.bytes", swarm.segment_bytes.to_string()),
            property("log.index.interval.bytes", "400".to_owned()),
            property("log.cleaner.backoff.ms", "100".to_owned()),
            property("disk.reserve.bytes", "3000".to_owned()),
            // Some records are years old; that they expire is another profile's matter.
            property("log.retention.ms", "-1".to_owned()),
            property("replica.lag.time.max.ms", swarm.lag_ms.to_string()),
            property(
                "leader.imbalance.check.interval.seconds",
                swarm.rebalance_seconds.to_string(),
            ),
        ]);
        let mut chance = rng.fork();
        let mut nodes = BTreeMap::new();
        for number in 1..=swarm.brokers {
            let id = BrokerId(number);
            nodes.insert(id, Node::new(id, &mut chance, &trace));
        }
        let first = || nodes.values().take(3);
        let voters: BTreeSet<MemberId> =
            first().map(|node| MemberId::new(node.id, node.directory)).collect();
        let first: Vec<BrokerId> = first().map(|node| node.id).collect();
        for id in &first {
            let node = nodes.get_mut(id).expect("just made");
            node.formation = towpath_driver::Formation::With(voters.clone());
        }
        let network = Network::new(chance.fork(), swarm.weather);
        let producers = (0..swarm.producers).map(|at| Producer::new(at as usize)).collect();
        let mut world = World {
            chance,
            trace,
            events: Events::new(),
            now: Time(0),
            agenda: BTreeMap::new(),
            scheduled: 0,
            nodes,
            network,
            statics,
            controller: None,
            blank: BTreeSet::new(),
            truth: Truth::default(),
            books: BTreeMap::new(),
            snapshots: BTreeMap::new(),
            histories: BTreeMap::new(),
            views: BTreeMap::new(),
            catalog: Catalog::default(),
            producers,
            frames: BTreeMap::new(),
            consumers: vec![Consumer::default(), Consumer::default()],
            committer: Committer::default(),
            work: Clients::default(),
            waits: BTreeMap::new(),
            tokens: 0,
            producer_ids: BTreeSet::new(),
            proposals: BTreeSet::new(),
            is_healing: false,
            rng,
            swarm,
        };
        let all: Vec<BrokerId> = world.nodes.keys().copied().collect();
        for id in all {
            // Whoever joins later comes when there is a cluster.
            let longest = if first.contains(&id) { 30 } else { 4_000 };
            let after = Duration::from_millis(world.chance.between(0, longest));
            world.schedule(Time(0) + after, Event::Start(id, 0));
        }
        world
    }

    pub(super) fn into_events(mut self) -> Events {
        for node in self.nodes.values() {
            self.events.merge(&node.disk.events());
        }
        self.events
            .add("cluster: batch committed", self.books.values().map(|b| b.len() as u64).sum());
        self.events
    }

    pub(super) fn node(&mut self, id: BrokerId) -> &mut Node {
        self.nodes.get_mut(&id).expect("brokers do not go away")
    }

    pub(super) fn schedule(&mut self, at: Time, event: Event) {
        self.scheduled += 1;
        self.agenda.insert((at.max(self.now), self.scheduled), event);
    }

    /// A token nobody has had.
    pub(super) fn token(&mut self) -> Token {
        self.tokens += 1;
        Token(self.tokens)
    }

    /// Lets things happen until `end`.
    pub(super) fn run_until(&mut self, end: Time) -> Result<(), Violation> {
        while let Some(first) = self.agenda.first_entry() {
            let (at, _) = *first.key();
            if end < at {
                break;
            }
            let event = first.remove();
            self.now = at;
            self.happen(event)?;
        }
        self.now = self.now.max(end);
        Ok(())
    }

    fn happen(&mut self, event: Event) -> Result<(), Violation> {
        match event {
            Event::Start(id, starts) => self.start(id, starts),
            Event::Close(id, starts) if self.is_same(id, starts) => self.close(id),
            Event::Restart(id, starts) if self.is_same(id, starts) => {
                self.events.note("cluster: broker restarted after a failure");
                self.kill(id, false)
            }
            Event::Close(..) | Event::Restart(..) => Ok(()),
            Event::Tick(id, starts) => self.tick(id, starts),
            Event::Upkeep(id, starts) => self.upkeep(id, starts),
            Event::Alarm(id, starts) => self.ring(id, starts),
            Event::Round(id, starts) => self.sync(id, starts),
            Event::Arrive(way, connection) => self.arrive(way, connection),
            Event::Pull(way, connection) => self.pull(way, connection),
            Event::Dial(way) => self.dial(way),
            Event::Cut(way, connection) => self.cut_if(way, connection),
            Event::LosePatience(way, connection) => self.lose_patience(way, connection),
            Event::Mend(mend) => {
                self.mend(mend);
                Ok(())
            }
            Event::Batch(producer, connection) => self.batch_arrives(producer, connection),
            Event::Carry(id, starts) => self.carry(id, starts),
            Event::Heard(from, token, delivery) => self.hear(from, token, *delivery),
            Event::Client => self.client(),
            Event::Misfortune if self.is_healing => Ok(()),
            Event::Misfortune => {
                self.part(World::misfortune)?;
                let every = self.swarm.fault_every;
                let soon = self.swarm.is_biased && self.chance.percent(50);
                let (low, high) = match soon {
                    true => (Duration::from_millis(3), Duration::from_millis(40)),
                    false => (every / 10, every),
                };
                let after = between(&mut self.chance, low, high);
                self.schedule(self.now + after, Event::Misfortune);
                Ok(())
            }
        }
    }

    /// Lets clients begin.
    pub(super) fn begin_clients(&mut self) {
        self.schedule(self.now, Event::Client);
    }

    /// Lets things go wrong from now on.
    pub(super) fn begin_faults(&mut self) {
        let after = between(&mut self.chance, Duration::ZERO, self.swarm.fault_every);
        self.schedule(self.now + after, Event::Misfortune);
    }

    fn client(&mut self) -> Result<(), Violation> {
        if self.is_healing && self.swarm.work.is_some() {
            // Who works queues ends it in order.
            return Ok(());
        }
        let op = if self.is_healing { Op::Produce } else { self.rng.weighted(&self.swarm.ops) };
        let act = |world: &mut World| {
            world.trace.event(op.name(), &[]);
            match op {
                Op::Produce => {
                    let at = world.rng.index(world.producers.len());
                    world.produce(at)
                }
                Op::BumpEpoch => {
                    let at = world.rng.index(world.producers.len());
                    world.bump_epoch(at);
                    Ok(())
                }
                Op::Consume => world.consume(),
                Op::Commit => world.commit_or_fetch(),
                Op::Administer if world.swarm.work.is_some() => world.move_queues(),
                Op::Administer => world.administer(),
                Op::DeleteRecords => world.delete_records(),
                Op::CompareReplica => world.compare_replica(),
                Op::CheckDisk => world.check_disk(),
                Op::Deliver => world.deliver(),
                Op::Work => world.work(),
            }
        };
        // What was begun is ended, whichever steps are left out.
        if self.is_healing { self.apart(true, act) } else { self.part(act) }?;
        let after = between(&mut self.chance, Duration::from_micros(200), self.swarm.op_every);
        self.schedule(self.now + after, Event::Client);
        Ok(())
    }

    /// Whether the first brokers are there and may lead.
    pub(super) fn has_formed(&self) -> bool {
        let unfenced = |node: &&Node| {
            node.process.as_ref().is_some_and(|process| !process.driver.standing().is_fenced)
        };
        3 <= self.nodes.values().filter(unfenced).count()
    }

    /// What lies on the disks and should not, or is missing (INV-T4, T6).
    pub(super) fn check_leftovers(&self) -> Result<(), Violation> {
        for (id, node) in &self.nodes {
            for (path, _) in node.disk.files() {
                let is_aside = path.contains("/quarantine/");
                let topic = self.catalog.named_in(&path);
                let may_be = topic.is_some_and(|topic| self.catalog.may_be_deleted(topic));
                ensure!(!is_aside || may_be, "INV-T6", "broker {id} has set {path} aside");
            }
        }
        Ok(())
    }

    pub(super) fn is_same(&self, id: BrokerId, starts: u64) -> bool {
        let node = &self.nodes[&id];
        node.is_up() && node.starts == starts
    }

    /// Whether an event of a process has to wait because it is stopped; it comes again then.
    pub(super) fn waits_for(&mut self, id: BrokerId, event: impl FnOnce() -> Event) -> bool {
        let until = self.nodes[&id].paused_until.filter(|until| self.now < *until);
        if let Some(until) = until {
            self.schedule(until, event());
        }
        until.is_some()
    }

    fn start(&mut self, id: BrokerId, starts: u64) -> Result<(), Violation> {
        let now = self.now;
        let (statics, limits) = (self.statics.clone(), self.swarm.limits);
        let snapshot_bytes = self.swarm.snapshot_bytes;
        let node = self.nodes.get_mut(&id).expect("brokers do not go away");
        if node.is_up() || node.starts != starts {
            return Ok(());
        }
        self.trace.event("start", &[id.0 as u64, starts + 1]);
        let result = node.start(now, &statics, limits, snapshot_bytes);
        let has_stopped = node.disk.has_crashed();
        let starts = node.starts;
        if has_stopped {
            self.events.note("cluster: stopped during the start");
        } else if let Err(error) = result {
            let is_excused = node.is_full || node.has_sync_failed();
            ensure!(is_excused, "INV-F1", "broker {id} on a healthy machine: {error}");
        } else {
            self.schedule(now + QUORUM_TICK / 10, Event::Tick(id, starts));
            self.schedule(now + Duration::from_secs(1), Event::Upkeep(id, starts));
            if let Some(mix) = &self.swarm.work {
                let bytes = mix.snapshot_bytes;
                self.call(id, |driver| driver.snapshot_deliveries_every(bytes))?;
                let after = between(&mut self.chance, Duration::ZERO, Duration::from_millis(500));
                self.schedule(now + after, Event::Carry(id, starts));
            }
            self.connect_all(id)?;
            return self.call(id, |_| ()).map(drop);
        }
        let loses_power = self.chance.percent(30);
        self.died(id, loses_power)
    }

    /// A thread of a process calls its driver. `None`: there is no process, or not any more.
    pub(super) fn call<R>(
        &mut self,
        id: BrokerId,
        act: impl FnOnce(&SimDriver) -> R,
    ) -> Result<Option<R>, Violation> {
        let now = self.now;
        let node = self.nodes.get_mut(&id).expect("brokers do not go away");
        node.catch_up(now);
        let Some(process) = &node.process else { return Ok(None) };
        let driver = Arc::clone(&process.driver);
        let result = act(&driver);
        drop(driver);
        if node.disk.has_crashed() {
            let loses_power = self.chance.percent(50);
            self.events.note("cluster: stopped at a call");
            drop(result);
            self.died(id, loses_power)?;
            return Ok(None);
        }
        self.called(id)?;
        Ok(Some(result))
    }

    /// Whatever the driver said and wants since it was last looked at.
    fn called(&mut self, id: BrokerId) -> Result<(), Violation> {
        let now = self.now;
        let Some(process) = &mut self.node(id).process else { return Ok(()) };
        let mut said = process.outbox.take();
        let wants_round = process.takes_sync_wish();
        let begins_round = matches!(process.round, Rounds::Idle) && wants_round;
        if wants_round && !begins_round {
            // The round under way will be followed by another.
            process.wants_more = true;
        }
        if begins_round {
            process.round = Rounds::Due;
        }
        let alarm = process.clock.alarm().map(|at| process.global(at));
        let rings = alarm.filter(|at| process.alarm.is_none_or(|before| *at < before));
        if rings.is_some() {
            process.alarm = rings;
        }
        let starts = self.nodes[&id].starts;
        if let Some(at) = rings {
            self.schedule(at, Event::Alarm(id, starts));
        }
        if begins_round {
            let after = between(&mut self.chance, Duration::ZERO, Duration::from_micros(300));
            self.schedule(now + after, Event::Round(id, starts));
        }
        self.observe(id)?;
        for (token, delivery) in std::mem::take(&mut said.answers) {
            self.stamp(id, token);
            self.answered(id, token, &delivery)?;
            let after =
                between(&mut self.chance, Duration::from_micros(50), Duration::from_millis(2));
            self.schedule(now + after, Event::Heard(id, token, Box::new(delivery)));
        }
        self.transmit(id, said);
        Ok(())
    }

    fn tick(&mut self, id: BrokerId, starts: u64) -> Result<(), Violation> {
        if !self.is_same(id, starts) || self.waits_for(id, || Event::Tick(id, starts)) {
            return Ok(());
        }
        self.schedule(self.now + QUORUM_TICK, Event::Tick(id, starts));
        self.trace.event("tick", &[id.0 as u64]);
        let status = self.call(id, |driver| {
            driver.tick();
            (driver.quorum_status(), driver.standing(), driver.take_unserved())
        })?;
        let Some((status, standing, unserved)) = status else { return Ok(()) };
        if let Some(error) = unserved {
            let node = &self.nodes[&id];
            let is_excused = node.is_full || node.has_sync_failed();
            ensure!(is_excused, "INV-F1", "broker {id} serves nothing: {error}");
            return self.kill(id, false);
        }
        self.truth.newest_term = self.truth.newest_term.max(status.term);
        if status.role == Role::Leader && self.truth.leads_quorum(status.term, status.me)? {
            self.events.note("cluster: controller changed");
        }
        if status.role == Role::Leader {
            self.controller = Some(id);
        }
        let is_stopping = self.nodes[&id].process.as_ref().is_some_and(|p| p.is_stopping);
        if is_stopping && standing.may_shut_down {
            return self.close(id);
        }
        Ok(())
    }

    fn upkeep(&mut self, id: BrokerId, starts: u64) -> Result<(), Violation> {
        if !self.is_same(id, starts) || self.waits_for(id, || Event::Upkeep(id, starts)) {
            return Ok(());
        }
        self.schedule(self.now + Duration::from_secs(1), Event::Upkeep(id, starts));
        let is_failed = self.call(id, |driver| {
            driver.upkeep();
            driver.watch_disks();
            driver.is_failed()
        })?;
        if is_failed == Some(true) {
            self.failed(id)?;
        }
        self.compare_folded(id)
    }

    /// A broker's only directory has failed: whoever watches it restarts it.
    fn failed(&mut self, id: BrokerId) -> Result<(), Violation> {
        let node = &self.nodes[&id];
        ensure!(node.has_sync_failed(), "INV-F6", "the directory of {id} failed, and no sync has");
        let starts = node.starts;
        let after = between(&mut self.chance, Duration::from_millis(20), Duration::from_secs(2));
        self.schedule(self.now + after, Event::Restart(id, starts));
        Ok(())
    }

    fn ring(&mut self, id: BrokerId, starts: u64) -> Result<(), Violation> {
        if !self.is_same(id, starts) || self.waits_for(id, || Event::Alarm(id, starts)) {
            return Ok(());
        }
        let process = self.node(id).process.as_mut().expect("it is the same one");
        process.alarm = None;
        self.call(id, |driver| {
            if driver.clock().take_alarm() {
                driver.expire_due();
                if let Some(next) = driver.next_deadline() {
                    towpath_driver::Clock::wake_at(driver.clock(), next);
                }
            }
        })?;
        Ok(())
    }

    /// The sync thread comes one step further.
    fn sync(&mut self, id: BrokerId, starts: u64) -> Result<(), Violation> {
        if !self.is_same(id, starts) || self.waits_for(id, || Event::Round(id, starts)) {
            return Ok(());
        }
        self.sync_step(id)?;
        if !self.is_same(id, starts) {
            return Ok(());
        }
        let (low, high) = self.nodes[&id].pace.round;
        let process = self.node(id).process.as_mut().expect("it is the same one");
        let after = match process.round {
            Rounds::Idle if !std::mem::take(&mut process.wants_more) => return Ok(()),
            Rounds::Idle => {
                process.round = Rounds::Due;
                (Duration::ZERO, Duration::from_micros(50))
            }
            Rounds::Due | Rounds::Begun(_) | Rounds::Busy => (low, high),
            Rounds::Committed(_) => (Duration::from_micros(5), Duration::from_micros(100)),
        };
        let after = between(&mut self.chance, after.0, after.1);
        self.schedule(self.now + after, Event::Round(id, starts));
        Ok(())
    }

    fn sync_step(&mut self, id: BrokerId) -> Result<(), Violation> {
        let Some(process) = self.node(id).process.as_mut() else { return Ok(()) };
        let round = std::mem::replace(&mut process.round, Rounds::Busy);
        let next = self.call(id, |driver| match round {
            Rounds::Idle | Rounds::Busy => Rounds::Idle,
            Rounds::Due => Rounds::Begun(driver.begin_round(VolumeIndex::FIRST)),
            Rounds::Begun(mut round) => {
                driver.commit_round(&mut round);
                Rounds::Committed(round)
            }
            Rounds::Committed(round) => {
                driver.finish_round(round);
                Rounds::Idle
            }
        })?;
        let Some(next) = next else { return Ok(()) };
        let was_finished = matches!(next, Rounds::Idle);
        let process = self.node(id).process.as_mut().expect("the call has returned");
        process.round = next;
        let is_failed = process.driver.is_failed();
        if was_finished && is_failed && !std::mem::replace(&mut process.has_failed, true) {
            self.call(id, |driver| driver.upkeep())?;
            if self.nodes[&id].is_up() {
                self.failed(id)?;
            }
        }
        Ok(())
    }

    /// Ends a round that is under way, as the end of the sync thread does.
    pub(super) fn finish_round(&mut self, id: BrokerId) -> Result<(), Violation> {
        for _ in 0..3 {
            let is_idle = |world: &World| {
                let process = world.nodes[&id].process.as_ref();
                process.is_none_or(|process| matches!(process.round, Rounds::Idle | Rounds::Due))
            };
            if is_idle(self) {
                break;
            }
            self.sync_step(id)?;
        }
        Ok(())
    }

    /// One more round, if there is work for it.
    pub(super) fn sync_now(&mut self, id: BrokerId) -> Result<(), Violation> {
        let Some(process) = &mut self.node(id).process else { return Ok(()) };
        if process.driver.has_unsynced() {
            process.round = Rounds::Due;
            self.sync_step(id)?;
        }
        self.finish_round(id)
    }

    /// An answer reaches whoever waits for it.
    fn hear(&mut self, from: BrokerId, token: Token, delivery: Delivery) -> Result<(), Violation> {
        // Who gave up has no wait any more.
        let Some(waiting) = self.waits.remove(&(from, token)) else { return Ok(()) };
        self.trace.event("delivered", &[from.0 as u64, token.0]);
        self.trace.remark(|| format!("{waiting:?} is answered by {delivery:?}"));
        match waiting {
            Waiting::Produce(frame) => self.produce_answered(*frame, &delivery),
            Waiting::ProducerId { producer } => self.producer_id_answered(producer, &delivery),
            Waiting::Admin { change } => self.admin_answered(change, &delivery),
            Waiting::Commit { partition, offset } => {
                self.commit_answered(partition, offset, &delivery)
            }
            Waiting::Offset { partition, .. } => self.offset_answered(partition, &delivery),
            Waiting::Work(waiter) => self.work_heard(from, *waiter, delivery),
            Waiting::Deletion { .. } | Waiting::Delivery { .. } => Ok(()),
        }
    }

    /// Nobody hears from this broker's process any more.
    pub(super) fn lose_clients_of(&mut self, id: BrokerId) -> Result<(), Violation> {
        let lost = self.waits.extract_if((id, Token(0))..=(id, Token(u64::MAX)), |_, _| true);
        let lost: Vec<Waiting> = lost.map(|(_, waiting)| waiting).collect();
        for waiting in lost {
            self.gives_up(waiting)?;
        }
        for at in 0..self.producers.len() {
            if self.producers[at].leader == Some(id) {
                self.disconnect_producer(at);
            }
        }
        Ok(())
    }

    /// Somebody will get no answer.
    pub(super) fn gives_up(&mut self, waiting: Waiting) -> Result<(), Violation> {
        match waiting {
            Waiting::Produce(_) | Waiting::Deletion { .. } | Waiting::Delivery { .. } => {}
            Waiting::Work(waiter) => return self.work_given_up(*waiter),
            Waiting::ProducerId { producer } => self.producers[producer].is_asking_for_id = false,
            Waiting::Admin { change } => self.catalog.gives_up(change),
            Waiting::Commit { partition, offset } => {
                self.committer.gives_up(partition, Some(offset));
            }
            Waiting::Offset { partition, .. } => self.committer.gives_up(partition, None),
        }
        Ok(())
    }

    /// Asks some broker something about the metadata.
    pub(super) fn ask(
        &mut self,
        of: BrokerId,
        waiting: Waiting,
        request: Request,
    ) -> Result<(), Violation> {
        let token = self.token();
        if !self.nodes[&of].is_awake(self.now) {
            return self.gives_up(waiting);
        }
        self.waits.insert((of, token), waiting);
        let asked = self.call(of, |driver| driver.ask_metadata(token, request))?;
        if let Some(Err(_)) = asked
            && let Some(waiting) = self.waits.remove(&(of, token))
        {
            return self.gives_up(waiting);
        }
        Ok(())
    }

    /// Some broker whose process runs.
    pub(super) fn any_awake(&mut self) -> Option<BrokerId> {
        let now = self.now;
        let awake = self.nodes.values().filter(|node| node.is_awake(now)).map(|node| node.id);
        let awake: Vec<BrokerId> = awake.collect();
        (!awake.is_empty()).then(|| awake[self.rng.index(awake.len())])
    }

    /// What goes out, for the counts.
    pub(super) fn note_message(&mut self, from: BrokerId, message: &PeerMessage) {
        match message {
            PeerMessage::Ask { request: Request::AlterPartitions(asked), .. } => {
                for change in &asked.changes {
                    let about =
                        (from, change.partition, change.leader_epoch.0, change.partition_epoch);
                    if !self.proposals.insert(about) {
                        self.events.note("cluster: proposal repeated");
                    }
                }
            }
            PeerMessage::Answer { reply: Reply::AlteredPartitions(Ok(answers)), .. } => {
                let refused = answers.iter().filter(|(_, answer)| answer.is_err()).count();
                self.events.add("cluster: stale proposal refused", refused as u64);
            }
            PeerMessage::Answer { reply: Reply::AlteredPartitions(Err(_)), .. } => {
                self.events.note("cluster: proposal of an old registration refused");
            }
            PeerMessage::NotController { .. } => {
                self.events.note("cluster: question to a broker that is not the controller");
            }
            _ => {}
        }
    }

    /// What comes in, for the counts.
    pub(super) fn note_arrival(&mut self, _to: BrokerId, message: &PeerMessage) {
        if let PeerMessage::Raft(message) = message
            && matches!(message.body, Body::Snapshot(_))
        {
            self.events.note("cluster: metadata snapshot arrived");
        }
    }
}
