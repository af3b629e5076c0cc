//! A cluster of members from a seed: what a driver does with a [`Consensus`], on disks and a network
//! that fail. Everything follows from the seed.

mod changes;
mod weather;

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use towpath_metadata::raft::{
    BadMessage, Consensus, Entry, LogIndex, MemberId, MembershipChange, Message, Proposed,
    RaftStart, Ready, Role, Settings, Snapshot, Term,
};
use towpath_model::{BrokerId, Uuid};

use crate::checker::{Checker, State, hash_of};
use crate::disk::Disk;
use crate::rng::Rng;
use weather::Weather;

/// What the harness drives.
pub(crate) trait Member: Consensus {
    /// Whether leaders and members come and go; otherwise one leads in all of its lives.
    const CHANGES: bool;

    fn start(start: RaftStart) -> Self;
}

pub(crate) struct Node<C> {
    pub(crate) me: MemberId,
    pub(crate) disk: Disk,
    pub(crate) core: Option<C>,
    pub(crate) state: State,
    is_first_voter: bool,
    life: u64,
    asleep_until: u64,
    stalled_until: u64,
    persisted: u64,
    to_apply: VecDeque<ToApply>,
    /// The state is that of a snapshot which this Ready makes durable.
    ahead_of_disk: Option<u64>,
    given_out: LogIndex,
    /// Reads under way: in which term they were asked for, and what they must see.
    reads: BTreeMap<u64, (Term, LogIndex)>,
}

enum ToApply {
    Entry(Entry),
    Snapshot(u64, Snapshot),
}

struct InFlight {
    at: u64,
    from: usize,
    to: usize,
    message: Message,
}

pub(crate) struct Cluster<C> {
    pub(crate) nodes: Vec<Node<C>>,
    pub(crate) checker: Checker,
    pub(crate) now: u64,
    pub(crate) rng: Rng,
    pub(crate) weather: Weather,
    seed: u64,
    settings: Settings,
    first_voters: BTreeSet<MemberId>,
    network: Vec<InFlight>,
    /// Who does not reach whom, until when.
    cut: BTreeMap<(usize, usize), u64>,
    disks: u64,
    commands: u64,
    /// Proposals that were accepted.
    proposed: Vec<(Proposed, u64)>,
}

impl<C: Member> Cluster<C> {
    pub(crate) fn new(seed: u64) -> Cluster<C> {
        let mut rng = Rng::new(seed);
        let voters = [1, 2, 3, 3, 3, 4, 5][rng.below(7) as usize];
        let spare = if C::CHANGES { rng.below(3) as usize } else { 0 };
        let weather = Weather::draw(&mut rng);
        let settings = Settings {
            election_ticks: 10,
            heartbeat_ticks: 2,
            unapplied_entries_max: [15, 200, 100_000][rng.below(3) as usize],
            trailing_entries: [0, 3, 1000][rng.below(3) as usize],
        };
        Cluster::build(seed, rng, voters, spare, weather, settings)
    }

    /// A cluster in good weather.
    pub(crate) fn calm(seed: u64, voters: usize, spare: usize) -> Cluster<C> {
        let settings = Settings {
            election_ticks: 10,
            heartbeat_ticks: 2,
            unapplied_entries_max: 1000,
            trailing_entries: 0,
        };
        Cluster::build(seed, Rng::new(seed), voters, spare, Weather::calm(), settings)
    }

    fn build(
        seed: u64,
        rng: Rng,
        voters: usize,
        spare: usize,
        weather: Weather,
        settings: Settings,
    ) -> Cluster<C> {
        let mut cluster = Cluster {
            nodes: Vec::new(),
            checker: Checker::default(),
            now: 0,
            rng,
            weather,
            seed,
            settings,
            first_voters: BTreeSet::new(),
            network: Vec::new(),
            cut: BTreeMap::new(),
            disks: 0,
            commands: 0,
            proposed: Vec::new(),
        };
        for slot in 0..voters + spare {
            let me = cluster.new_member(slot);
            if slot < voters {
                cluster.first_voters.insert(me);
            }
            cluster.nodes.push(Node {
                me,
                disk: Disk::default(),
                core: None,
                state: State::default(),
                is_first_voter: slot < voters,
                life: 0,
                asleep_until: 0,
                stalled_until: 0,
                persisted: 0,
                to_apply: VecDeque::new(),
                ahead_of_disk: None,
                given_out: LogIndex(0),
                reads: BTreeMap::new(),
            });
        }
        for slot in 0..voters + spare {
            cluster.start(slot);
        }
        cluster
    }

    fn new_member(&mut self, slot: usize) -> MemberId {
        self.disks += 1;
        let mut directory = [0; 16];
        directory[..8].copy_from_slice(&(self.disks << 32).to_be_bytes());
        MemberId::new(BrokerId(slot as i32 + 1), Uuid(directory))
    }

    /// A process begins, with what is on the disk.
    pub(crate) fn start(&mut self, slot: usize) {
        let keeps_state = self.rng.one_in(4);
        let remembers_commit = self.rng.one_in(2);
        let node = &mut self.nodes[slot];
        node.life += 1;
        let base = node.disk.snapshot_index();
        let keeps_state = keeps_state && node.ahead_of_disk.take().is_none();
        if !keeps_state || node.state.applied < base || node.disk.last_index() < node.state.applied
        {
            node.state = match &node.disk.snapshot {
                Some(snapshot) => State::decode(&snapshot.data, snapshot.membership.clone()),
                None => State::default(),
            };
        }
        let commit = node.given_out.min(node.disk.last_index());
        let start = RaftStart {
            me: node.me,
            vote: node.disk.vote,
            first_voters: node.is_first_voter.then(|| self.first_voters.clone()),
            snapshot: node.disk.snapshot.clone(),
            entries: node.disk.entries.clone(),
            commit: if remembers_commit { commit } else { LogIndex(0) },
            applied: node.state.applied,
            settings: self.settings,
            seed: self.seed,
        };
        node.persisted = 0;
        node.given_out = node.state.applied;
        node.core = Some(C::start(start));
    }

    pub(crate) fn crash(&mut self, slot: usize) {
        let node = &mut self.nodes[slot];
        if node.core.take().is_none() {
            return;
        }
        node.disk.crash(&mut self.rng);
        node.to_apply.clear();
        node.reads.clear();
        node.asleep_until = 0;
        node.stalled_until = 0;
        for entry in &node.disk.entries {
            self.checker.appended(entry);
        }
        self.checker.event("crash");
    }

    /// A member's disk is replaced by an empty one: it is another member now.
    pub(crate) fn replace_disk(&mut self, slot: usize) {
        self.crash(slot);
        let me = self.new_member(slot);
        let node = &mut self.nodes[slot];
        node.me = me;
        node.disk = Disk::default();
        node.state = State::default();
        node.given_out = LogIndex(0);
        node.is_first_voter = false;
        self.checker.event("disk replaced");
        self.start(slot);
    }

    pub(crate) fn tick(&mut self) {
        self.now += 1;
        self.happen();
        self.deliver();
        for slot in 0..self.nodes.len() {
            if self.now < self.nodes[slot].asleep_until {
                continue;
            }
            if let Some(core) = &mut self.nodes[slot].core {
                core.tick();
            }
            self.drive(slot);
        }
    }

    pub(crate) fn ticks(&mut self, count: u64) {
        for _ in 0..count {
            self.tick();
        }
    }

    fn deliver(&mut self) {
        let (due, later) =
            std::mem::take(&mut self.network).into_iter().partition(|m| m.at <= self.now);
        self.network = later;
        for InFlight { from, to, message, .. } in due {
            let is_cut = self.cut.get(&(from, to)).is_some_and(|&until| self.now < until);
            let node = &mut self.nodes[to];
            if is_cut || self.now < node.asleep_until {
                self.checker.event("message lost");
                continue;
            }
            let Some(core) = &mut node.core else { continue };
            match core.receive(message) {
                Ok(()) => {}
                Err(BadMessage::NotForMe { .. }) => self.checker.event("message for another disk"),
                Err(BadMessage::NotReadyToLead) => self.checker.event("late hand-over"),
                Err(error) => panic!("a correct member's message is refused: {error}"),
            }
            if self.rng.one_in(2) {
                self.drive(to);
            }
        }
    }

    /// What a driver does after every step.
    fn drive(&mut self, slot: usize) {
        for _ in 0..4 {
            let Some(core) = &mut self.nodes[slot].core else { return };
            let ready = core.take_ready();
            let is_nothing = ready.is_none();
            if let Some(ready) = ready {
                self.take(slot, ready);
            }
            self.sync(slot);
            self.apply(slot);
            if is_nothing && self.nodes[slot].disk.pending() == 0 {
                return;
            }
        }
    }

    fn take(&mut self, slot: usize, mut ready: Ready) {
        let node = &mut self.nodes[slot];
        self.checker.trace(&(slot, ready.number, ready.vote, ready.truncate_from, &ready.append));
        self.checker.trace(&ready.committed);
        if let Some(change) = ready.role_change
            && change.role == Role::Leader
        {
            self.checker.event("leader elected");
        }
        if ready.truncate_from.is_some() {
            self.checker.event("log truncated");
        }
        for entry in &ready.append {
            assert!(
                ready.truncate_from.is_none_or(|from| node.given_out < from),
                "what was given out as committed is truncated: {}",
                entry.index
            );
        }
        if let Some(snapshot) = &ready.snapshot {
            assert!(node.given_out < snapshot.index, "a snapshot goes back");
            node.given_out = snapshot.index;
            self.checker.event("snapshot installed");
            node.to_apply.push_back(ToApply::Snapshot(ready.number, snapshot.clone()));
        }
        for entry in std::mem::take(&mut ready.committed) {
            assert_eq!(entry.index, node.given_out.next(), "committed entries come without gaps");
            assert!(node.disk.holds(&entry), "{} is committed and not durable", entry.index);
            node.given_out = entry.index;
            self.checker.given_out(&entry);
            node.to_apply.push_back(ToApply::Entry(entry));
        }
        for read in std::mem::take(&mut ready.reads) {
            let (_, floor) = node.reads.remove(&read.context).expect("a read that was asked for");
            assert!(floor <= read.index, "a read sees {} and must see {floor}", read.index);
            self.checker.event("read confirmed");
        }
        if let Some(change) = ready.role_change {
            // Reads of an earlier leadership get no answer.
            node.reads.retain(|_, (term, _)| change.role == Role::Leader && *term == change.term);
        }
        let messages = std::mem::take(&mut ready.messages);
        let must_sync = ready.must_sync || node.disk.pending() != 0;
        node.disk.write(&mut ready);
        self.send(slot, messages);
        if !must_sync {
            self.sync_one(slot);
        }
    }

    fn sync(&mut self, slot: usize) {
        if self.now < self.nodes[slot].stalled_until {
            return;
        }
        for _ in 0..self.rng.below(4) {
            self.sync_one(slot);
        }
    }

    fn sync_one(&mut self, slot: usize) {
        let node = &mut self.nodes[slot];
        let Some(synced) = node.disk.sync_one() else { return };
        for entry in &synced.appended {
            self.checker.appended(entry);
        }
        node.persisted = synced.number;
        node.ahead_of_disk = node.ahead_of_disk.filter(|&number| synced.number < number);
        node.core.as_mut().expect("it is driven").persisted(synced.number);
        if synced.has_snapshot {
            self.checker.event("snapshot durable");
        }
        self.send(slot, synced.messages);
    }

    fn apply(&mut self, slot: usize) {
        for _ in 0..self.rng.below(8) {
            let node = &mut self.nodes[slot];
            let waits = self.rng.one_in(2);
            match node.to_apply.front() {
                None => return,
                Some(ToApply::Snapshot(number, _)) if waits && node.persisted < *number => return,
                Some(_) => {}
            }
            match node.to_apply.pop_front().expect("looked at above") {
                ToApply::Entry(entry) => node.state.apply(&entry),
                ToApply::Snapshot(number, snapshot) => {
                    node.ahead_of_disk = (node.persisted < number).then_some(number);
                    node.state = State::decode(&snapshot.data, snapshot.membership);
                    assert_eq!(node.state.applied, snapshot.index);
                }
            }
            self.checker.applied(&node.state);
            node.core.as_mut().expect("it is driven").applied(node.state.applied);
        }
    }

    fn send(&mut self, from: usize, messages: Vec<Message>) {
        for message in messages {
            let life = if C::CHANGES { self.nodes[from].life } else { 0 };
            self.checker.sent(&message, life);
            let to = message.to.broker().0 as usize - 1;
            let copies = 1 + u64::from(self.rng.below(100) < self.weather.repeat_percent);
            for _ in 0..copies {
                if self.rng.below(100) < self.weather.drop_percent {
                    self.checker.event("message lost");
                    continue;
                }
                let at = self.now + 1 + self.rng.below(self.weather.delay_ticks);
                self.network.push(InFlight { at, from, to, message: message.clone() });
            }
        }
    }

    /// What the seed lets happen in this tick.
    fn happen(&mut self) {
        let slots = self.nodes.len() as u64;
        let slot = self.rng.below(slots) as usize;
        let other = self.rng.below(slots) as usize;
        let a_while = 5 + self.rng.below(60);
        if self.rng.below(100) < self.weather.propose_percent {
            self.propose(slot);
            self.read(other);
        }
        if self.rng.one_in(self.weather.crash_one_in) {
            self.crash(slot);
            if self.rng.one_in(4) {
                self.crash(other);
            }
        }
        if self.weather.starts && self.rng.one_in(15) && self.nodes[slot].core.is_none() {
            self.start(slot);
        }
        if self.rng.one_in(self.weather.pause_one_in) {
            self.nodes[slot].asleep_until = self.now + a_while;
            self.checker.event("pause");
        }
        if self.rng.one_in(self.weather.stall_one_in) {
            self.nodes[slot].stalled_until = self.now + a_while;
            self.checker.event("disk stalled");
        }
        if self.rng.one_in(self.weather.cut_one_in) {
            self.cut_off(slot, other, self.now + a_while);
        }
        if self.rng.one_in(self.weather.compact_one_in) {
            self.compact(slot);
        }
        if self.rng.one_in(self.weather.transfer_one_in) {
            self.transfer(slot);
        }
        if C::CHANGES && self.rng.one_in(self.weather.change_one_in) {
            self.change_something();
        }
        if self.rng.one_in(self.weather.unreachable_one_in) {
            let member = self.nodes[other].me;
            if let Some(core) = &mut self.nodes[slot].core {
                core.unreachable(member);
            }
        }
    }

    fn cut_off(&mut self, slot: usize, other: usize, until: u64) {
        let everybody = 0..self.nodes.len();
        match self.rng.below(4) {
            0 => drop(self.cut.insert((slot, other), until)),
            1 => self.cut.extend(everybody.map(|peer| ((slot, peer), until))),
            2 => self.cut.extend(everybody.map(|peer| ((peer, slot), until))),
            _ => {
                for peer in everybody {
                    self.cut.insert((slot, peer), until);
                    self.cut.insert((peer, slot), until);
                }
            }
        }
        self.checker.event("cut");
    }

    pub(crate) fn propose(&mut self, slot: usize) -> Option<Proposed> {
        self.commands += 1;
        let command = hash_of(&(self.seed, self.commands)).to_be_bytes().to_vec();
        let core = self.nodes[slot].core.as_mut()?;
        let proposed = core.propose(command).ok()?;
        assert_eq!(core.status().last_index, proposed.index);
        self.proposed.push((proposed, self.commands));
        self.drive(slot);
        Some(proposed)
    }

    pub(crate) fn read(&mut self, slot: usize) {
        self.commands += 1;
        let floor = self.checker.newest();
        let node = &mut self.nodes[slot];
        if let Some(core) = &mut node.core
            && core.read_index(self.commands).is_ok()
        {
            node.reads.insert(self.commands, (core.status().term, floor));
        }
    }

    pub(crate) fn compact(&mut self, slot: usize) {
        let node = &mut self.nodes[slot];
        let pending_snapshot = node.ahead_of_disk.is_some()
            || node.to_apply.iter().any(|a| matches!(a, ToApply::Snapshot(..)));
        let index = node.state.applied;
        if pending_snapshot || index <= node.disk.snapshot_index() {
            return;
        }
        let Some(core) = &mut node.core else { return };
        let entry = node.disk.entries.iter().find(|entry| entry.index == index);
        let term = entry.expect("applied entries are durable").term;
        let data = node.state.encode();
        let membership = node.state.membership.clone();
        node.disk.compact(Snapshot { index, term, membership, data: data.clone() });
        core.compact(index, data);
        self.checker.event("compaction");
    }

    pub(crate) fn leader(&self) -> Option<usize> {
        let leads = |node: &Node<C>| {
            let status = node.core.as_ref()?.status();
            (status.role == Role::Leader).then_some(status.term)
        };
        (0..self.nodes.len())
            .filter_map(|slot| leads(&self.nodes[slot]).map(|term| (term, slot)))
            .max()
            .map(|(_, slot)| slot)
    }

    fn transfer(&mut self, to: usize) {
        let to = self.nodes[to].me;
        if let Some(leader) = self.leader()
            && let Some(core) = &mut self.nodes[leader].core
            && core.transfer_leadership(to).is_ok()
        {
            self.checker.event("transfer begun");
        }
    }

    pub(crate) fn change(&mut self, change: MembershipChange) -> Option<Proposed> {
        let leader = self.leader()?;
        let core = self.nodes[leader].core.as_mut()?;
        let proposed = core.change_membership(change).ok()?;
        self.checker.event("change proposed");
        self.drive(leader);
        Some(proposed)
    }

    /// Everybody is up and reaches everybody: then there is a leader again, it decides, and everybody
    /// hears of it.
    pub(crate) fn heal(&mut self) {
        self.weather = Weather::calm();
        self.cut.clear();
        for slot in 0..self.nodes.len() {
            self.nodes[slot].asleep_until = 0;
            self.nodes[slot].stalled_until = 0;
            if self.nodes[slot].core.is_none() {
                self.start(slot);
            }
        }
        let healed_at = self.now;
        let mut last: Option<Proposed> = None;
        loop {
            self.tick();
            assert!(self.now - healed_at < 4000, "no progress again: {:#?}", self.statuses());
            if (self.now - healed_at).is_multiple_of(20)
                && let Some(leader) = self.leader()
            {
                let term = self.nodes[leader].core.as_ref().map(|core| core.status().term);
                // What an earlier leader took may be lost.
                let is_pending = |p: Proposed| {
                    Some(p.term) == term || self.checker.is_committed(p.index, p.term) == Some(true)
                };
                if !last.is_some_and(is_pending) {
                    last = self.propose(leader);
                }
                let membership = &self.checker.newest_state().membership;
                if membership.is_joint() && !membership.auto_leave {
                    self.change(MembershipChange::LeaveJoint);
                }
                self.read(leader);
            }
            if let Some(Proposed { index, term }) = last
                && self.checker.is_committed(index, term) == Some(true)
                && self.has_converged()
            {
                return;
            }
        }
    }

    fn statuses(&self) -> Vec<String> {
        let of = |node: &Node<C>| {
            let status = node.core.as_ref().map(|core| core.status());
            format!("{:?} {status:?}", node.state)
        };
        self.nodes.iter().map(of).collect()
    }

    fn has_converged(&self) -> bool {
        let newest = self.checker.newest();
        let state = self.checker.newest_state();
        let members = state.membership.members();
        !state.membership.is_joint()
            && self.nodes.iter().filter(|node| members.contains(&node.me)).all(|node| {
                node.state.applied == newest && node.reads.is_empty() && node.state == state
            })
    }
}
