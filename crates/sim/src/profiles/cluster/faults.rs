//! What goes wrong, to whom, and for how long.

use std::time::Duration;

use towpath_model::{BrokerId, TopicPartition};

use super::network::between;
use super::node::Pace;
use super::world::{Event, World};
use crate::profile::Violation;

/// A kind of misfortune.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Fault {
    Kill,
    StopAtCall,
    LosePower,
    LoseAllPower,
    Pause,
    SlowDisk,
    FillDisk,
    FailSync,
    JumpWall,
    StopOrderly,
    ReplaceDisk,
    Isolate,
    BlockOneWay,
    BlockController,
    CutConnection,
}

/// The end of something that lasts.
#[derive(Debug, Clone)]
pub(super) enum Mend {
    Ways(Vec<(BrokerId, BrokerId)>),
    Disk(BrokerId),
    Space(BrokerId),
}

const fn ms(ms: u64) -> Duration {
    Duration::from_millis(ms)
}

impl World {
    /// Something goes wrong. Not while a replaced disk has not come back into the cluster: what only it
    /// was to hold is lost for good, and whoever else goes then may have been needed. For the same reason
    /// nobody moves replicas meanwhile, which may leave that disk's alone.
    pub(super) fn misfortune(&mut self) -> Result<(), Violation> {
        if !self.blank.is_empty() {
            return Ok(());
        }
        let fault = self.rng.weighted(&self.swarm.faults);
        let victim = self.victim();
        self.trace.event("fault", &[fault as u64, victim.0 as u64]);
        self.trace.remark(|| format!("{fault:?} meets {victim}"));
        match fault {
            Fault::Kill => self.kill(victim, false),
            Fault::LosePower => self.kill(victim, true),
            Fault::LoseAllPower => {
                self.events.note("fault: all lost power");
                let all: Vec<BrokerId> = self.nodes.keys().copied().collect();
                all.into_iter().try_for_each(|id| self.kill(id, true))
            }
            Fault::StopAtCall => {
                let calls = self.rng.between(1, 60);
                self.node(victim).disk.crash_at(calls);
                Ok(())
            }
            Fault::Pause => {
                let longest = self.rng.weighted(&[(2, 500), (1, 3_000)]);
                let pause = between(&mut self.rng, ms(20), ms(longest));
                self.pause(victim, pause);
                Ok(())
            }
            Fault::SlowDisk => {
                let longest = self.rng.weighted(&[(2, 250), (1, 1_500)]);
                self.node(victim).pace = Pace { round: (ms(10), ms(longest)) };
                self.events.note("fault: slow disk");
                self.mend_later(Mend::Disk(victim), ms(3_000));
                Ok(())
            }
            Fault::FillDisk => {
                let spare = self.rng.between(0, 4_000);
                self.fill_disk(victim, spare);
                self.mend_later(Mend::Space(victim), ms(2_000));
                Ok(())
            }
            Fault::FailSync => {
                let syncs = self.rng.between(1, 4);
                self.node(victim).disk.fail_sync_in(syncs);
                Ok(())
            }
            Fault::JumpWall => {
                let mut rng = self.rng.fork();
                self.node(victim).jump_wall(&mut rng);
                self.events.note("fault: wall clock jumped");
                Ok(())
            }
            Fault::StopOrderly => self.stop_orderly(victim),
            Fault::ReplaceDisk => self.replace_disk(victim),
            Fault::Isolate => {
                self.events.note("fault: broker isolated");
                let others = self.others(victim);
                let ways = others.iter().flat_map(|other| [(victim, *other), (*other, victim)]);
                let ways = ways.collect();
                self.partition(ways);
                Ok(())
            }
            Fault::BlockOneWay => {
                self.events.note("fault: one way blocked");
                let others = self.others(victim);
                let all = self.rng.percent(50);
                let one = others[self.rng.index(others.len())];
                let outward = self.rng.percent(50);
                let met = others.into_iter().filter(|other| all || *other == one);
                let ways = met.map(|other| if outward { (victim, other) } else { (other, victim) });
                let ways = ways.collect();
                self.partition(ways);
                Ok(())
            }
            Fault::BlockController => {
                let Some(controller) = self.controller.filter(|id| *id != victim) else {
                    return Ok(());
                };
                self.events.note("fault: controller out of reach");
                self.partition(vec![(victim, controller), (controller, victim)]);
                Ok(())
            }
            Fault::CutConnection => self.cut_one(),
        }
    }

    /// Whom it meets: in a biased seed, half the time whoever matters.
    fn victim(&mut self) -> BrokerId {
        let all: Vec<BrokerId> = self.nodes.keys().copied().collect();
        let any = all[self.rng.index(all.len())];
        if !self.swarm.is_biased || self.rng.percent(50) {
            return any;
        }
        if self.rng.percent(40)
            && let Some(controller) = self.controller
        {
            return controller;
        }
        let partitions = self.truth.partitions();
        if partitions.is_empty() {
            return any;
        }
        let id = partitions[self.rng.index(partitions.len())];
        self.truth.newest(id).and_then(|state| state.leader).unwrap_or(any)
    }

    fn others(&self, than: BrokerId) -> Vec<BrokerId> {
        self.nodes.keys().copied().filter(|id| *id != than).collect()
    }

    fn mend_later(&mut self, mend: Mend, longest: Duration) {
        let after = between(&mut self.rng, ms(100), longest);
        self.schedule(self.now + after, Event::Mend(mend));
    }

    fn partition(&mut self, ways: Vec<(BrokerId, BrokerId)>) {
        self.block(&ways);
        let longest = self.rng.weighted(&[(2, 1_500), (1, 6_000)]);
        self.mend_later(Mend::Ways(ways), ms(longest));
    }

    pub(super) fn mend(&mut self, mend: Mend) {
        match mend {
            Mend::Ways(ways) => self.unblock(&ways),
            Mend::Disk(id) => self.node(id).pace = Pace::HEALTHY,
            Mend::Space(id) => self.free_disk(id),
        }
    }

    pub(super) fn free_disk(&mut self, id: BrokerId) {
        let node = self.node(id);
        node.disk.set_capacity(None);
        node.is_full = false;
    }

    fn fill_disk(&mut self, id: BrokerId, spare: u64) {
        let node = self.node(id);
        node.disk.set_capacity(None);
        let Some(process) = &node.process else { return };
        let Ok(space) = process.driver.space() else { return };
        node.disk.set_capacity(Some(space.total_bytes - space.free_bytes + spare));
        node.is_full = true;
        if let Some(process) = &mut node.process {
            process.was_full = true;
        }
        self.events.note("fault: disk filled");
    }

    fn pause(&mut self, id: BrokerId, pause: Duration) {
        let until = self.now + pause;
        let node = self.node(id);
        if node.is_up() && node.paused_until.is_none_or(|before| before < until) {
            node.paused_until = Some(until);
            self.events.note("fault: process paused");
        }
    }

    /// The process is killed, or the machine loses power.
    pub(super) fn kill(&mut self, id: BrokerId, loses_power: bool) -> Result<(), Violation> {
        if !self.nodes[&id].is_up() {
            return Ok(());
        }
        self.events.note(if loses_power { "fault: power lost" } else { "fault: process killed" });
        self.died(id, loses_power)
    }

    /// The process is gone.
    pub(super) fn died(&mut self, id: BrokerId, loses_power: bool) -> Result<(), Violation> {
        self.trace.event("died", &[id.0 as u64, u64::from(loses_power)]);
        self.node(id).end(loses_power);
        self.views.retain(|(node, _), _| *node != id);
        self.lose_clients_of(id)?;
        let longest = self.chance.weighted(&[(2, 300), (2, 1_500), (1, 4_000)]);
        let rest = between(&mut self.chance, ms(20), ms(longest));
        let starts = self.nodes[&id].starts;
        self.schedule(self.now + rest, Event::Start(id, starts));
        self.disconnect_all(id)
    }

    fn stop_orderly(&mut self, id: BrokerId) -> Result<(), Violation> {
        let asked = self.call(id, |driver| driver.want_shutdown())?;
        let starts = self.nodes[&id].starts;
        if asked.is_some()
            && let Some(process) = &mut self.node(id).process
            && !std::mem::replace(&mut process.is_stopping, true)
        {
            self.events.note("fault: orderly stop");
            // Its operator's patience.
            self.schedule(self.now + ms(5_000), Event::Close(id, starts));
        }
        Ok(())
    }

    /// A stop that was asked for ends the process, once nobody would miss it or patience ends.
    pub(super) fn close(&mut self, id: BrokerId) -> Result<(), Violation> {
        self.finish_round(id)?;
        // What the last round commits is looked at while the partitions are open.
        self.sync_now(id)?;
        let closed = self.call(id, |driver| driver.close_cleanly().is_ok())?;
        if closed == Some(true) {
            self.events.note("cluster: broker stopped orderly");
        }
        if closed.is_some() {
            let loses_power = self.chance.percent(30);
            self.died(id, loses_power)?;
        }
        Ok(())
    }

    /// A disk is replaced by an empty one: only where no other copy is needed for anything.
    fn replace_disk(&mut self, id: BrokerId) -> Result<(), Violation> {
        if !self.can_do_without(id) {
            return Ok(());
        }
        self.kill(id, true)?;
        let mut rng = self.rng.fork();
        let trace = self.trace.clone();
        let node = self.node(id);
        node.replace_disk(&mut rng, &trace);
        self.blank.insert(id);
        // Nor does anything happen meanwhile that was planned before.
        for node in self.nodes.values() {
            node.disk.crash_never();
            node.disk.fail_sync_never();
        }
        self.events.note("fault: disk replaced");
        Ok(())
    }

    /// Whether all others are there and well, and hold everything that this one holds.
    fn can_do_without(&self, id: BrokerId) -> bool {
        if !self.is_administration_over() {
            return false;
        }
        let well = |other: &BrokerId| {
            let node = &self.nodes[other];
            let is_stopping = node.process.as_ref().is_some_and(|process| process.is_stopping);
            node.is_awake(self.now)
                && !is_stopping
                && !node.has_sync_failed()
                && !self.blank.contains(other)
        };
        if !self.nodes.keys().all(well) || !self.network.blocked.is_empty() {
            return false;
        }
        let Some(controller) = self.controller.filter(|controller| *controller != id) else {
            return false;
        };
        let Some(process) = &self.nodes[&controller].process else { return false };
        let status = process.driver.quorum_status();
        let members = status.membership.members();
        let is_current = members.iter().all(|member| {
            let node = self.nodes.get(&member.broker());
            node.is_some_and(|node| {
                towpath_metadata::raft::MemberId::new(node.id, node.directory) == *member
            })
        });
        let caught_up = status.progress.iter().all(|(member, progress)| {
            member.broker() == id || *member == status.me || status.commit <= progress.matched
        });
        let is_led = process.driver.is_controller();
        if !is_led || status.membership.is_joint() || !is_current || !caught_up {
            return false;
        }
        if status.membership.voters.len() < 3 {
            return false;
        }
        self.truth.partitions().into_iter().all(|partition| {
            let Some(state) = self.truth.newest(partition) else { return false };
            let has_replica = state.replicas.contains(&id);
            let others = state.in_sync.iter().filter(|other| **other != id).count();
            let stays = !state.is_reassigning() && !self.has_proposed(id, partition);
            !has_replica || (0 < others && stays)
        })
    }

    /// Whether a leader waits for an answer about who is in sync: it may be left alone.
    fn has_proposed(&self, id: BrokerId, partition: TopicPartition) -> bool {
        let Some(process) = &self.nodes[&id].process else { return false };
        let has_proposed = process.driver.with_replica(partition, |replica, _| {
            replica.leader().is_some_and(|leader| leader.proposal().is_some())
        });
        has_proposed == Some(true)
    }
}
