//! What a member does, and how it takes what it is told.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use towpath_coordinator::groups::{FetchedTopic, JoinRefusal, Joined, Refusal, Reply, Synced};
use towpath_driver::{Delivery, ReadLimits};
use towpath_model::{Generation, Offset, PartitionIndex, Time, TopicPartition};

use super::requests;
use super::world::{Waiting, World};
use crate::profile::{Violation, ensure};

/// A consumer of the group.
#[derive(Debug, Clone)]
pub(super) struct Member {
    pub(super) instance: Option<Arc<str>>,
    /// Its id; empty before the coordinator gave it one.
    pub(super) id: Arc<str>,
    pub(super) generation: Generation,
    pub(super) session: Duration,
    pub(super) phase: Phase,
    /// What it owns, and where it reads; `None`: it does not know yet.
    pub(super) owned: BTreeMap<TopicPartition, Option<Offset>>,
    /// Rises whenever it starts anew; answers to an earlier self are not its own.
    pub(super) selves: u64,
    /// A commit of an earlier generation that is still on its way.
    late_commit: Option<(Generation, TopicPartition, Offset)>,
    beaten_at: Time,
}

/// Where a member stands.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Phase {
    /// It is about to join.
    Out,
    /// It waits for the answer to a join or a sync.
    Waiting,
    /// It has its share.
    Working,
    /// It does nothing, and says nothing.
    Silent,
}

impl Member {
    pub(super) fn new(instance: Option<Arc<str>>, session: Duration) -> Member {
        Member {
            instance,
            id: "".into(),
            generation: Generation(0),
            session,
            phase: Phase::Out,
            owned: BTreeMap::new(),
            selves: 0,
            late_commit: None,
            beaten_at: Time(0),
        }
    }

    /// What owns partitions: a static member keeps them under a new id (KIP-345).
    pub(super) fn owner(&self) -> &str {
        self.instance.as_deref().unwrap_or(&self.id)
    }

    /// The broker went away; whether it comes back as it was, the next answers tell.
    pub(super) fn disconnect(&mut self) {
        self.beaten_at = Time(0);
        if self.phase == Phase::Waiting {
            self.rejoin();
        }
    }

    /// It gives up what it owns and joins again.
    fn rejoin(&mut self) {
        self.selves += 1;
        let known = self.owned.iter().find_map(|(id, position)| Some((*id, (*position)?)));
        self.late_commit = known.map(|(id, position)| (self.generation, id, position));
        self.owned.clear();
        self.phase = Phase::Out;
    }

    /// The topic goes: it joins again, and knows nothing of what it had.
    pub(super) fn loses_topic(&mut self) {
        match self.phase {
            Phase::Working => self.rejoin(),
            Phase::Silent => self.owned.clear(),
            Phase::Out | Phase::Waiting => {}
        }
        self.late_commit = None;
    }

    /// It starts as a new process.
    fn restart(&mut self) {
        self.id = "".into();
        self.rejoin();
        self.late_commit = None;
    }

    /// What a refusal means to a member that sent `id`.
    fn refused(&mut self, refusal: Refusal) -> Result<(), Violation> {
        match refusal {
            Refusal::RebalanceInProgress | Refusal::IllegalGeneration => self.rejoin(),
            Refusal::UnknownMemberId | Refusal::GroupIdNotFound => self.restart(),
            Refusal::FencedInstanceId => {
                self.restart();
                self.phase = Phase::Silent;
            }
            other => {
                return Err(Violation::new("INV-C1", format!("a member is refused: {other}")));
            }
        }
        Ok(())
    }
}

impl World {
    /// A member does one thing.
    pub(super) fn act(&mut self, at: usize) -> Result<(), Violation> {
        match self.members[at].phase {
            Phase::Silent | Phase::Waiting => Ok(()),
            Phase::Out => {
                self.join(at);
                Ok(())
            }
            Phase::Working => self.work(at),
        }
    }

    fn join(&mut self, at: usize) {
        let suffix = self.machine.new_id();
        let requires_known = self.rng.percent(70);
        let member = &mut self.members[at];
        let request = requests::join(member, suffix, requires_known);
        member.phase = Phase::Waiting;
        let waiting = Waiting::Join { member: at, selves: member.selves };
        if !self.ask(waiting, request) {
            self.members[at].phase = Phase::Out;
        }
    }

    fn work(&mut self, at: usize) -> Result<(), Violation> {
        let now = self.machine.now().time;
        let member = &self.members[at];
        if member.session / 3 <= now - member.beaten_at {
            self.heartbeat(at, now);
            return Ok(());
        }
        if member.owned.keys().any(|id| id.topic != self.topic) {
            // Its topic was made again; it finds out, and asks for its share once more.
            self.members[at].rejoin();
            self.members[at].late_commit = None;
            return Ok(());
        }
        if !self.is_topic_there() {
            return Ok(());
        }
        let mut owned: Vec<TopicPartition> = member.owned.keys().copied().collect();
        if self.is_draining {
            owned.retain(|id| !self.is_done_with(*id));
        }
        if owned.is_empty() {
            return Ok(());
        }
        let partition = owned[self.rng.index(owned.len())];
        let Some(position) = self.members[at].owned[&partition] else {
            self.fetch(at, vec![partition]);
            return Ok(());
        };
        match self.rng.below(10) {
            0..5 => self.read(at, partition, position),
            5..9 => {
                self.commit(at, partition, position);
                Ok(())
            }
            _ => {
                self.fetch(at, vec![partition]);
                Ok(())
            }
        }
    }

    fn heartbeat(&mut self, at: usize, now: Time) {
        let member = &mut self.members[at];
        member.beaten_at = now;
        let request = requests::heartbeat(member);
        let waiting = Waiting::Heartbeat { member: at, selves: member.selves };
        self.ask(waiting, request);
    }

    fn read(
        &mut self,
        at: usize,
        partition: TopicPartition,
        position: Offset,
    ) -> Result<(), Violation> {
        let limits = ReadLimits { max_bytes: 300, at_least_one_batch: true };
        let read = self.machine.driver().read(partition, None, position, false, limits);
        let Ok(read) = read else {
            ensure!(self.may_fail(), "INV-R1", "{partition} cannot be read at {position}");
            return Ok(());
        };
        if let Some(slice) = read.slice {
            self.history.delivered(partition, position, slice.next_offset)?;
            self.members[at].owned.insert(partition, Some(slice.next_offset));
        }
        Ok(())
    }

    /// Commits where it stands; now and then an earlier place, to read again.
    pub(super) fn commit(&mut self, at: usize, partition: TopicPartition, position: Offset) {
        let back =
            if !self.is_draining && self.rng.percent(10) { self.rng.below(3) as i64 } else { 0 };
        let offset = Offset((position.0 - back).max(0));
        self.send_commit(at, self.members[at].generation, partition, offset);
    }

    fn send_commit(
        &mut self,
        at: usize,
        generation: Generation,
        partition: TopicPartition,
        offset: Offset,
    ) {
        if partition.topic != self.topic || !self.is_topic_there() {
            // The broker's edge knows no such topic any more.
            return;
        }
        *self.commits_asked.entry(partition).or_default() += 1;
        let member = &self.members[at];
        let request =
            requests::commit(member, generation, partition.topic, partition.partition, offset);
        let waiting = Waiting::Commit {
            member: at,
            selves: member.selves,
            owner: member.owner().to_owned(),
            id: member.id.clone(),
            generation,
            partition,
            offset,
        };
        self.ask(waiting, request);
    }

    pub(super) fn fetch(&mut self, at: usize, partitions: Vec<TopicPartition>) {
        let Some(first) = partitions.first().filter(|_| self.is_topic_there()) else { return };
        let indexes: Vec<PartitionIndex> = partitions.iter().map(|id| id.partition).collect();
        let request = requests::fetch(first.topic, indexes);
        let asked = |id: &TopicPartition| self.commits_asked.get(id).copied().unwrap_or(0);
        let commits_asked = partitions.iter().map(|id| (*id, asked(id))).collect();
        let waiting = Waiting::Fetch { member: at, selves: self.members[at].selves, commits_asked };
        self.ask(waiting, request);
    }

    /// It stops saying anything, and knows all it knew.
    pub(super) fn fall_silent(&mut self, at: usize) {
        if self.members[at].phase == Phase::Working {
            self.members[at].phase = Phase::Silent;
            self.events.note("member: fell silent");
        }
    }

    /// It goes on: as if nothing had been, or as a new process.
    pub(super) fn wake(&mut self, at: usize) {
        if self.members[at].phase != Phase::Silent {
            return;
        }
        let member = &mut self.members[at];
        if !member.owned.is_empty() && self.rng.percent(60) {
            self.events.note("member: woke with what it knew");
            member.phase = Phase::Working;
            let owned: Vec<_> = member.owned.iter().map(|(id, at)| (*id, *at)).collect();
            for (partition, position) in owned {
                if let Some(position) = position {
                    self.commit(at, partition, position);
                }
            }
        } else {
            member.restart();
        }
    }

    /// A static member starts as a new process while its old self still runs, and commits once more.
    pub(super) fn replace_static(&mut self, at: usize) {
        let member = self.members[at].clone();
        if member.instance.is_none() || member.phase != Phase::Working {
            return;
        }
        self.members[at].restart();
        self.join(at);
        let old = member.owned.iter().find_map(|(id, at)| Some((*id, (*at)?)));
        if let Some((partition, position)) = old {
            // As the old self would.
            let new = std::mem::replace(&mut self.members[at], member);
            self.commit(at, partition, position);
            self.members[at] = new;
        }
    }

    pub(super) fn leave(&mut self, at: usize) {
        if self.members[at].phase != Phase::Working {
            return;
        }
        let request = requests::leave(&self.members[at]);
        self.ask(Waiting::Leave, request);
        self.members[at].restart();
    }

    /// An answer of the coordinator, or why there is none.
    pub(super) fn told(&mut self, waiting: Waiting, delivery: Delivery) -> Result<(), Violation> {
        if matches!(waiting, Waiting::Topic) {
            return self.topic_answered(&delivery);
        }
        let Delivery::Groups(reply) = delivery else {
            return self.unanswered(waiting);
        };
        match (waiting, reply) {
            (Waiting::Nobody, _) => Ok(()),
            (Waiting::Join { member, selves }, Reply::Join(result)) => {
                if self.members[member].selves != selves {
                    return Ok(());
                }
                match result {
                    Ok(joined) => self.joined(member, joined),
                    Err(JoinRefusal { refusal: Refusal::MemberIdRequired, member_id }) => {
                        self.events.note("member: id handed out");
                        self.members[member].id = member_id;
                        self.members[member].phase = Phase::Out;
                        Ok(())
                    }
                    Err(JoinRefusal { refusal, .. }) => self.members[member].refused(refusal),
                }
            }
            (Waiting::Sync { member, selves }, Reply::Sync(result)) => {
                if self.members[member].selves != selves {
                    return Ok(());
                }
                match result {
                    Ok(synced) => self.synced(member, &synced),
                    Err(refusal) => self.members[member].refused(refusal),
                }
            }
            (Waiting::Heartbeat { member, selves }, Reply::Heartbeat(result)) => {
                let is_mine = self.members[member].selves == selves;
                match result {
                    Err(refusal) if is_mine && self.members[member].phase == Phase::Working => {
                        self.members[member].refused(refusal)
                    }
                    _ => Ok(()),
                }
            }
            (waiting @ Waiting::Commit { .. }, Reply::CommitOffsets(result)) => {
                let each = |topics: Vec<towpath_coordinator::groups::CommittedTopic>| {
                    let partitions = topics.into_iter().flat_map(|topic| topic.partitions);
                    partitions.map(|(_, result)| result).collect::<Result<Vec<()>, Refusal>>()
                };
                self.commit_answered(waiting, result.and_then(each).map(|_| ()))
            }
            (Waiting::Fetch { member, selves, commits_asked }, Reply::FetchOffsets(topics)) => {
                self.fetched(member, selves, &commits_asked, &topics)
            }
            (Waiting::Leave, Reply::Leave(result)) => {
                if result.is_ok() {
                    self.events.note("member: left");
                }
                Ok(())
            }
            (waiting, reply) => {
                Err(Violation::new("INV-C1", format!("{waiting:?} is answered by {reply:?}")))
            }
        }
    }

    /// The coordinator is gone, or its disk has no room: nothing follows, except that a commit may
    /// count.
    pub(super) fn unanswered(&mut self, waiting: Waiting) -> Result<(), Violation> {
        match waiting {
            Waiting::Join { member, selves } | Waiting::Sync { member, selves } => {
                if self.members[member].selves == selves {
                    self.members[member].rejoin();
                }
            }
            Waiting::Commit { partition, offset, .. } => {
                self.events.note("commit: without an answer");
                self.history.maybe_committed(partition, offset);
            }
            Waiting::Heartbeat { .. }
            | Waiting::Fetch { .. }
            | Waiting::Leave
            | Waiting::Nobody
            | Waiting::Topic => {}
        }
        Ok(())
    }

    fn joined(&mut self, at: usize, joined: Joined) -> Result<(), Violation> {
        let partitions = self.partitions;
        let member = &mut self.members[at];
        member.id = joined.member_id.clone();
        member.generation = joined.generation;
        if let Some(instance) = &member.instance {
            let before = self.instances.insert(instance.clone(), member.id.clone());
            if before.is_some_and(|before| before != member.id) {
                self.events.note("member: static one came back");
            }
        }
        let leads = joined.leader == member.id && !joined.skip_assignment;
        ensure!(
            !leads || joined.members.iter().any(|known| known.member_id == member.id),
            "INV-C1",
            "the leader of generation {} is not a member of it",
            joined.generation
        );
        let shares = if leads { requests::assign(&joined.members, partitions) } else { Vec::new() };
        let request = requests::sync(member, shares);
        let waiting = Waiting::Sync { member: at, selves: member.selves };
        self.newest_generation = self.newest_generation.max(joined.generation);
        if !self.ask(waiting, request) {
            self.members[at].rejoin();
        }
        if let Some((generation, partition, offset)) = self.members[at].late_commit.take()
            && generation < joined.generation
            && self.rng.percent(30)
        {
            self.send_commit(at, generation, partition, offset);
        }
        Ok(())
    }

    fn synced(&mut self, at: usize, synced: &Synced) -> Result<(), Violation> {
        let now = self.machine.now().time;
        let topic = self.topic;
        let member = &mut self.members[at];
        let share = requests::share(&synced.assignment);
        let share: Vec<TopicPartition> =
            share.into_iter().map(|partition| TopicPartition { topic, partition }).collect();
        self.history.assigned(member.generation, member.owner(), &share)?;
        self.events.note("member: assigned");
        self.machine.trace.event("assigned", &[at as u64, member.generation.0 as u64]);
        member.phase = Phase::Working;
        member.beaten_at = now;
        member.owned = share.iter().map(|partition| (*partition, None)).collect();
        self.fetch(at, share);
        Ok(())
    }

    fn commit_answered(
        &mut self,
        waiting: Waiting,
        result: Result<(), Refusal>,
    ) -> Result<(), Violation> {
        let Waiting::Commit { member, selves, owner, id, generation, partition, offset } = waiting
        else {
            unreachable!("only commits are answered here")
        };
        let Err(refusal) = result else {
            self.events.note("commit: accepted");
            let newest = self.newest_generation;
            ensure!(
                newest <= generation,
                "INV-C1",
                "{owner} commits in generation {generation}, {newest} has begun"
            );
            let current = self.instances.get(owner.as_str());
            ensure!(
                current.is_none_or(|current| *current == id),
                "INV-C1",
                "{id} commits for {owner}, which is {current:?}"
            );
            self.committed.insert(partition, offset);
            return self.history.committed(generation, &owner, partition, offset);
        };
        self.events.note(match refusal {
            Refusal::IllegalGeneration => "commit: fenced by generation",
            Refusal::FencedInstanceId => "commit: fenced by instance",
            Refusal::UnknownMemberId => "commit: fenced, the member is not known",
            _ => "commit: refused",
        });
        let own = &self.members[member];
        let is_mine = (own.selves, &own.id, own.generation) == (selves, &id, generation);
        if is_mine && self.members[member].phase == Phase::Working {
            self.members[member].refused(refusal)?;
        }
        Ok(())
    }

    fn fetched(
        &mut self,
        at: usize,
        selves: u64,
        commits_asked: &BTreeMap<TopicPartition, u64>,
        topics: &[FetchedTopic],
    ) -> Result<(), Violation> {
        for (partition, asked) in commits_asked {
            let answers = topics.iter().filter(|topic| topic.id == partition.topic);
            let mut answers = answers.flat_map(|topic| &topic.partitions);
            let answer = answers.find(|answer| answer.partition == partition.partition);
            let answer = answer.ok_or_else(|| {
                Violation::new("INV-C2", format!("{partition} was asked for, and not answered"))
            })?;
            let committed = answer.committed.as_ref().map(|committed| committed.offset);
            if self.history.is_perhaps(*partition, committed) {
                self.events.note("commit: without an answer, and it counts");
            }
            self.history.fetched(*partition, committed)?;
            if self.commits_asked.get(partition).copied().unwrap_or(0) == *asked {
                self.history.settled(*partition, committed);
            }
            self.committed.insert(*partition, committed.unwrap_or(Offset::ZERO));
            let member = &mut self.members[at];
            let is_new = member.selves == selves && member.owned.get(partition) == Some(&None);
            if is_new && member.phase == Phase::Working {
                let position = committed.unwrap_or(Offset::ZERO);
                self.history.resumed(*partition, position)?;
                member.owned.insert(*partition, Some(position));
            }
        }
        Ok(())
    }
}
