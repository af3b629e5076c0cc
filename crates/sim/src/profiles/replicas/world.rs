//! The run: time, the network, faults, and the checks that need to see everybody.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use towpath_model::{BrokerId, Durability, Now, Offset, Time, Timestamp};

use super::broker::{CONTROLLER, Context, Message, Process, Role};
use super::controller::Controller;
use super::ghost::Ghost;
use super::machine::Machine;
use super::swarm::{Fault, Swarm};
use crate::events::Events;
use crate::profile::{Violation, ensure};
use crate::rng::Rng;
use crate::steps::Parted;
use crate::trace::Trace;

type Checked = Result<(), Violation>;

const TICK: Duration = Duration::from_millis(20);
/// How long everything may take to be in order when nothing fails any more.
const HEALS_WITHIN: Duration = Duration::from_secs(6);

#[derive(Debug)]
enum Event {
    Deliver { from: BrokerId, to: BrokerId, message: Message },
    Tick { broker: BrokerId, life: u64 },
    Synced { broker: BrokerId, life: u64, generation: u64, to: Offset },
    Start(BrokerId),
    Unblock(BrokerId, BrokerId),
    Expire,
    Produce,
    Read,
    Fault,
    Heal,
}

pub(super) struct World {
    rng: Rng,
    trace: Trace,
    events: Events,
    swarm: Swarm,
    now: Time,
    queue: BTreeMap<(Time, u64), Event>,
    queued: u64,
    machines: BTreeMap<BrokerId, Machine>,
    controller: Controller,
    told_version: u64,
    ghost: Ghost,
    blocked: BTreeSet<(BrokerId, BrokerId)>,
    is_healed: bool,
    batches: u64,
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
        trace.begin_world();
        let mut rng = Rng::new(seed);
        let swarm = Swarm::draw(&mut rng);
        let ids = (1..=swarm.replicas).map(BrokerId);
        World {
            rng,
            trace,
            events: Events::new(),
            now: Time(1),
            queue: BTreeMap::new(),
            queued: 0,
            machines: ids.map(|id| (id, Machine::new(id))).collect(),
            controller: Controller::new(swarm.replicas, swarm.min_in_sync),
            told_version: 0,
            ghost: Ghost::default(),
            blocked: BTreeSet::new(),
            is_healed: false,
            batches: 0,
            swarm,
        }
    }

    pub(super) fn into_events(self) -> Events {
        self.events
    }

    pub(super) fn live(&mut self) -> Checked {
        for id in self.ids() {
            self.after(Duration::from_millis(1), Event::Start(id));
        }
        for event in [Event::Expire, Event::Produce, Event::Read, Event::Fault] {
            self.after(TICK, event);
        }
        let ends = self.now + self.swarm.runs_for;
        self.at(ends, Event::Heal);
        let ends = ends + HEALS_WITHIN;
        while let Some(((at, _), event)) = self.queue.pop_first() {
            if ends < at || (self.is_healed && self.is_in_order()) {
                break;
            }
            self.now = at;
            self.happen(event)?;
        }
        self.finish()
    }

    fn ids(&self) -> Vec<BrokerId> {
        self.machines.keys().copied().collect()
    }

    fn at(&mut self, at: Time, event: Event) {
        self.queued += 1;
        self.queue.insert((at, self.queued), event);
    }

    fn after(&mut self, wait: Duration, event: Event) {
        self.at(self.now + wait, event);
    }

    fn happen(&mut self, event: Event) -> Checked {
        if let Event::Tick { broker, .. } | Event::Synced { broker, .. } = event {
            let paused_until = self.machines[&broker].paused_until;
            if self.now < paused_until {
                self.at(paused_until, event);
                return Ok(());
            }
        }
        match event {
            Event::Deliver { from, to, message } => self.deliver(from, to, message),
            Event::Tick { broker, life } => {
                if self.machines[&broker].life != life {
                    return Ok(());
                }
                let wait = TICK + Duration::from_micros(self.rng.below(2000));
                self.after(wait, Event::Tick { broker, life });
                self.step(broker, |machine, context| {
                    machine.tick(context);
                    Ok(())
                })
            }
            Event::Synced { broker, life, generation, to } => {
                let machine = self.machines.get_mut(&broker).expect("machines stay");
                let Some(process) = machine.process.as_mut().filter(|_| machine.life == life)
                else {
                    return Ok(());
                };
                process.is_syncing = false;
                let is_void = machine.disk.generation != generation;
                self.step(broker, |machine, context| {
                    if !is_void {
                        machine.synced(context, to);
                    }
                    Ok(())
                })
            }
            Event::Start(broker) => self.start(broker),
            Event::Unblock(from, to) => {
                self.blocked.remove(&(from, to));
                Ok(())
            }
            Event::Expire => {
                let session = self.swarm.session;
                self.controller.expire(self.now, session, &mut self.events);
                self.after(TICK / 2, Event::Expire);
                self.publish();
                Ok(())
            }
            Event::Produce => {
                self.after(self.swarm.produce_every, Event::Produce);
                if self.is_healed { Ok(()) } else { self.part(World::produce) }
            }
            Event::Read => {
                self.after(Duration::from_millis(3), Event::Read);
                self.read()
            }
            Event::Fault => {
                if self.is_healed {
                    return Ok(());
                }
                self.after(self.swarm.fault_every, Event::Fault);
                self.part(World::fault)
            }
            Event::Heal => {
                self.is_healed = true;
                self.blocked.clear();
                for id in self.ids() {
                    let machine = self.machines.get_mut(&id).expect("machines stay");
                    machine.is_slow = false;
                    machine.paused_until = self.now;
                    self.after(Duration::ZERO, Event::Start(id));
                }
                Ok(())
            }
        }
    }

    fn start(&mut self, broker: BrokerId) -> Checked {
        let machine = self.machines.get_mut(&broker).expect("machines stay");
        if machine.process.is_some() {
            return Ok(());
        }
        machine.life += 1;
        machine.process = Some(Process::start(broker, &mut machine.disk, self.swarm.durability));
        let life = machine.life;
        self.trace.event("start", &[broker.0 as u64, life, machine.disk.end().0 as u64]);
        self.after(Duration::ZERO, Event::Tick { broker, life });
        Ok(())
    }

    /// One step of a process, and whatever follows from it.
    fn step(
        &mut self,
        broker: BrokerId,
        act: impl FnOnce(&mut Machine, &mut Context<'_>) -> Checked,
    ) -> Checked {
        let machine = self.machines.get_mut(&broker).expect("machines stay");
        if machine.process.is_none() {
            return Ok(());
        }
        let mut context = Context {
            now: Now { time: self.now, wall: Timestamp(0) },
            swarm: &self.swarm,
            events: &mut self.events,
            ghost: &mut self.ghost,
            out: Vec::new(),
        };
        act(machine, &mut context)?;
        let mut out = std::mem::take(&mut context.out);
        self.check(broker)?;
        let machine = self.machines.get_mut(&broker).expect("machines stay");
        let mut context = Context {
            now: Now { time: self.now, wall: Timestamp(0) },
            swarm: &self.swarm,
            events: &mut self.events,
            ghost: &mut self.ghost,
            out: Vec::new(),
        };
        machine.settle(&mut context)?;
        out.append(&mut context.out);
        self.want_sync(broker);
        let machine = &self.machines[&broker];
        let role = machine.process.as_ref().map(|process| process.role().high_watermark().0);
        let numbers = [broker.0 as u64, role.unwrap_or(-1) as u64, machine.disk.end().0 as u64];
        self.trace.event("step", &numbers);
        for (to, message) in out {
            self.send(broker, to, message);
        }
        Ok(())
    }

    fn want_sync(&mut self, broker: BrokerId) {
        let machine = self.machines.get_mut(&broker).expect("machines stay");
        let Some(process) = &mut machine.process else { return };
        if process.is_syncing || machine.disk.durable == machine.disk.end() {
            return;
        }
        process.is_syncing = true;
        let (life, generation, to) = (machine.life, machine.disk.generation, machine.disk.end());
        let is_slow = machine.is_slow || self.rng.percent(self.swarm.slow_disk_percent);
        let most = if is_slow { 250_000 } else { 3_000 };
        let wait = Duration::from_micros(self.rng.between(100, most));
        self.after(wait, Event::Synced { broker, life, generation, to });
    }

    /// What is true of a broker after each of its steps.
    fn check(&mut self, broker: BrokerId) -> Checked {
        let machine = self.machines.get_mut(&broker).expect("machines stay");
        let Some(process) = &mut machine.process else { return Ok(()) };
        let (before, after) = (process.checked, process.role().high_watermark());
        ensure!(
            before <= after,
            "INV-R4",
            "the high watermark of broker {broker} goes from {before} to {after}"
        );
        process.checked = after;
        if before == after {
            return Ok(());
        }
        let disk = machine.disk.clone();
        let process = machine.process.as_ref().expect("it is there, a few lines above");
        let passed = disk.between(before.max(disk.start), after);
        let Role::Leader(leader) = process.role() else {
            return passed.iter().try_for_each(|batch| self.ghost.compare(batch, "a follower's"));
        };
        let epoch = leader.leader_epoch();
        ensure!(
            self.swarm.min_in_sync.min(self.swarm.replicas as u32) as usize
                <= leader.in_sync().len(),
            "INV-R9",
            "the high watermark moves to {after} with {:?} in sync",
            leader.in_sync()
        );
        let mut counted = leader.in_sync().clone();
        if self.controller.state.leader_epoch == epoch {
            counted.extend(&self.controller.state.in_sync);
        }
        for member in counted {
            let held = &self.machines[&member].disk;
            let last = passed.last().filter(|last| held.start <= last.base());
            let holds = last.is_none_or(|last| held.at(last.base()).map(|b| b.id) == Some(last.id));
            let counts = match self.swarm.durability {
                Durability::Synced => held.durable,
                Durability::Relaxed => held.end(),
            };
            ensure!(
                after <= counts && holds,
                "INV-R9",
                "the high watermark moves to {after}; in-sync broker {member} holds {counts} (the \
                 same: {holds})"
            );
        }
        passed.iter().try_for_each(|batch| self.ghost.leader_passed(batch, epoch))
    }

    fn send(&mut self, from: BrokerId, to: BrokerId, message: Message) {
        if self.is_healed {
            let wait = Duration::from_micros(self.rng.between(50, 500));
            self.after(wait, Event::Deliver { from, to, message });
            return;
        }
        if self.rng.percent(self.swarm.lost_percent) {
            self.events.note("network: message lost");
            return;
        }
        if self.rng.percent(self.swarm.repeated_percent) {
            self.events.note("network: message repeated");
            self.send_once(from, to, message.clone());
        }
        self.send_once(from, to, message);
    }

    fn send_once(&mut self, from: BrokerId, to: BrokerId, message: Message) {
        let is_for_controller = from == CONTROLLER || to == CONTROLLER;
        let late = if is_for_controller {
            self.swarm.late_to_controller_percent
        } else {
            self.swarm.late_percent
        };
        let most = if self.rng.percent(late) {
            self.events.note("network: message delayed");
            300_000
        } else {
            2_000
        };
        let wait = Duration::from_micros(self.rng.between(50, most));
        self.after(wait, Event::Deliver { from, to, message });
    }

    fn deliver(&mut self, from: BrokerId, to: BrokerId, message: Message) -> Checked {
        if self.blocked.contains(&(from, to)) {
            return Ok(());
        }
        if to == CONTROLLER {
            self.ask_controller(from, message);
            return Ok(());
        }
        let paused_until = self.machines[&to].paused_until;
        if self.now < paused_until {
            self.at(paused_until, Event::Deliver { from, to, message });
            return Ok(());
        }
        self.step(to, |machine, context| machine.receive(context, from, message))
    }

    fn ask_controller(&mut self, from: BrokerId, message: Message) {
        let events = &mut self.events;
        match message {
            Message::Register { broker, life } => self.controller.register(broker, life, events),
            Message::Heartbeat(sender) => self.controller.heartbeat(self.now, sender, events),
            Message::Alter(alter) => {
                if !self.controller.alter(&alter, events) {
                    self.send(CONTROLLER, from, Message::Refused);
                }
            }
            Message::Position(..) | Message::Answer(..) | Message::State(_) | Message::Refused => {
                unreachable!("a broker takes the controller for a broker")
            }
        }
        let state = self.controller.state.clone();
        self.send(CONTROLLER, from, Message::State(state));
        self.publish();
    }

    /// Tells everybody of a change.
    fn publish(&mut self) {
        let state = &self.controller.state;
        if state.version == self.told_version {
            return;
        }
        self.told_version = state.version;
        let state = state.clone();
        self.trace.event("state", &[state.version, state.leader_epoch.0 as u64]);
        for id in self.ids() {
            self.send(CONTROLLER, id, Message::State(state.clone()));
        }
    }

    fn produce(&mut self) -> Checked {
        let ids = self.ids();
        let broker = ids[self.rng.index(ids.len())];
        if self.now < self.machines[&broker].paused_until {
            return Ok(());
        }
        self.batches += 1;
        let (id, records) = (self.batches, self.rng.between(1, 3));
        self.step(broker, |machine, context| machine.produce(context, id, records))
    }

    /// A reader asks whoever the controller takes for the leader.
    fn read(&mut self) -> Checked {
        let Some(broker) = self.controller.state.leader else { return Ok(()) };
        let Some(process) = &self.machines[&broker].process else { return Ok(()) };
        let epoch = self.controller.state.leader_epoch;
        match process.leader().filter(|leader| leader.leader_epoch() == epoch) {
            Some(leader) if leader.is_high_watermark_certain() => {
                self.ghost.tells(broker, leader.high_watermark())
            }
            _ => Ok(()),
        }
    }

    fn fault(&mut self) -> Checked {
        if self.swarm.faults.is_empty() {
            return Ok(());
        }
        let fault = self.rng.weighted(&self.swarm.faults.clone());
        let ids = self.ids();
        let leader = self.controller.state.leader;
        let aims = self.rng.percent(self.swarm.at_leader_percent);
        let victim = match leader {
            Some(leader) if aims => leader,
            _ => ids[self.rng.index(ids.len())],
        };
        let lasts = Duration::from_millis(self.rng.between(1, 400));
        self.trace.event("fault", &[fault as u64, victim.0 as u64]);
        match fault {
            Fault::Kill => self.stop(victim, false, lasts),
            Fault::CutPower => self.stop(victim, true, lasts),
            Fault::CutPowerOfAll => {
                for id in ids {
                    self.stop(id, true, lasts);
                }
            }
            Fault::Pause => {
                self.events.note("broker: paused");
                let until = self.now + lasts;
                self.machines.get_mut(&victim).expect("machines stay").paused_until = until;
            }
            Fault::BlockOneWay => {
                self.events.note("network: one way only");
                let other = BrokerId(self.rng.below(ids.len() as u64 + 1) as i32);
                let pair = if self.rng.percent(50) { (victim, other) } else { (other, victim) };
                self.block(pair.0, pair.1, lasts);
            }
            Fault::Isolate => {
                self.events.note("network: broker cut off");
                let with_controller = self.rng.percent(50);
                for other in ids.into_iter().chain(with_controller.then_some(CONTROLLER)) {
                    self.block(victim, other, lasts);
                    self.block(other, victim, lasts);
                }
            }
            Fault::SlowDisk => {
                let machine = self.machines.get_mut(&victim).expect("machines stay");
                machine.is_slow = !machine.is_slow;
            }
            Fault::DeleteRecords => {
                let share = self.rng.below(101);
                self.step(victim, |machine, context| {
                    machine.delete_records(context, share);
                    Ok(())
                })?;
            }
        }
        Ok(())
    }

    fn stop(&mut self, broker: BrokerId, loses_power: bool, starts_after: Duration) {
        let machine = self.machines.get_mut(&broker).expect("machines stay");
        if machine.process.take().is_none() {
            return;
        }
        machine.paused_until = self.now;
        if loses_power {
            self.events.note("broker: power lost");
            if machine.disk.lose_power(&mut self.rng) {
                self.events.note("broker: unsynced records lost");
            }
        } else {
            self.events.note("broker: killed");
        }
        self.after(starts_after, Event::Start(broker));
    }

    fn block(&mut self, from: BrokerId, to: BrokerId, lasts: Duration) {
        self.blocked.insert((from, to));
        self.after(lasts, Event::Unblock(from, to));
    }

    /// Everybody is in sync, and has committed everything.
    fn is_in_order(&self) -> bool {
        let state = &self.controller.state;
        let Some(leader) = state.leader.and_then(|leader| self.machines.get(&leader)) else {
            return false;
        };
        let end = leader.disk.end();
        let is_settled = |machine: &Machine| {
            let process = machine.process.as_ref();
            machine.disk.end() == end
                && process.is_some_and(|process| process.role().high_watermark() == end)
        };
        state.in_sync.len() == state.replicas.len() && self.machines.values().all(is_settled)
    }

    /// INV-R14 and INV-R1.
    fn finish(&mut self) -> Checked {
        let state = &self.controller.state;
        ensure!(
            self.is_in_order(),
            "INV-R14",
            "not in order {HEALS_WITHIN:?} after everything was healed: {state:?}; {}",
            self.ends()
        );
        let leader = &self.machines[&state.leader.expect("it is in order")].disk;
        self.ghost.finish(leader)?;
        for machine in self.machines.values() {
            let start = leader.start.max(machine.disk.start);
            let ids = |disk: &super::machine::Disk| -> Vec<u64> {
                disk.between(start, disk.end()).iter().map(|batch| batch.id).collect()
            };
            ensure!(
                ids(leader) == ids(&machine.disk),
                "INV-R14",
                "broker {} does not hold what the leader does",
                machine.id
            );
            machine.disk.batches.iter().try_for_each(|b| self.ghost.compare(b, "the last"))?;
        }
        Ok(())
    }

    fn ends(&self) -> String {
        let show = |machine: &Machine| {
            let mark = machine.process.as_ref().map(|process| process.role().high_watermark());
            format!("{}: {mark:?} of {}", machine.id, machine.disk.end())
        };
        self.machines.values().map(show).collect::<Vec<_>>().join(", ")
    }
}
