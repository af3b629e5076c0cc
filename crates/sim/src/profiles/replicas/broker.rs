//! The shell around one broker's core: what a driver does, on a value of a disk.

use std::collections::BTreeMap;

use towpath_model::{BrokerEpoch, BrokerId, Durability, LeaderEpoch, Now, Offset};
use towpath_replication::{
    Acks, AnswerKind, FetchRefusal, Incarnation, Lead, Leader, PartitionDecision, Producers,
    Replica, ReplicaAnswer, ReplicaGrant, ReplicaPosition, ReplicaStart, ReplicaStep,
};

use super::controller::{Alter, State};
use super::ghost::Ghost;
use super::machine::{Batch, Disk, Machine};
use super::swarm::Swarm;
use crate::events::Events;
use crate::profile::{Violation, ensure};

/// The controller's place in the network.
pub(super) const CONTROLLER: BrokerId = BrokerId(0);

#[derive(Debug, Clone)]
pub(super) enum Message {
    // Between brokers.
    Position(Incarnation, ReplicaPosition),
    Answer(ReplicaAnswer, Vec<Batch>),
    // To the controller.
    Register { broker: BrokerId, life: u64 },
    Heartbeat(Incarnation),
    Alter(Alter),
    // From it.
    State(State),
    Refused,
}

#[derive(Debug)]
pub(super) enum Role {
    Leader(Leader),
    Replica(Replica),
}

impl Role {
    pub(super) fn high_watermark(&self) -> Offset {
        match self {
            Role::Leader(leader) => leader.high_watermark(),
            Role::Replica(replica) => replica.high_watermark(),
        }
    }

    fn leader_epoch(&self) -> LeaderEpoch {
        match self {
            Role::Leader(leader) => leader.leader_epoch(),
            Role::Replica(replica) => replica.leader_epoch(),
        }
    }
}

/// What an end of the process forgets.
#[derive(Debug)]
pub(super) struct Process {
    /// Its registration, once it has heard of it.
    pub(super) epoch: Option<BrokerEpoch>,
    /// `None` only while it changes.
    role: Option<Role>,
    /// The newest state that it has heard of.
    state: Option<State>,
    /// Positions that wait for more, and the high watermark that each was told last.
    armed: BTreeMap<BrokerId, (ReplicaPosition, Offset)>,
    /// Records whose producers wait for their commit.
    waiting: Vec<Batch>,
    pub(super) is_syncing: bool,
    /// The high watermark that has been checked.
    pub(super) checked: Offset,
}

impl Process {
    /// Recovers: what is in the log has been synced when this returns.
    pub(super) fn start(me: BrokerId, disk: &mut Disk, durability: Durability) -> Process {
        disk.durable = disk.end();
        let epochs = disk.epochs();
        let replica = Replica::new(ReplicaStart {
            me,
            leader: None,
            leader_epoch: epochs.latest().unwrap_or_default(),
            log_start_offset: disk.start,
            log_end_offset: disk.end(),
            durable_offset: disk.durable,
            high_watermark: disk.start,
            durability,
            producers: Producers::new(1),
            epochs,
        });
        Process {
            epoch: None,
            role: Some(Role::Replica(replica)),
            state: None,
            armed: BTreeMap::new(),
            waiting: Vec::new(),
            is_syncing: false,
            checked: disk.start,
        }
    }

    pub(super) fn role(&self) -> &Role {
        self.role.as_ref().expect("a role is only taken to be changed")
    }

    pub(super) fn leader(&self) -> Option<&Leader> {
        match self.role() {
            Role::Leader(leader) => Some(leader),
            Role::Replica(_) => None,
        }
    }

    fn version(&self) -> u64 {
        self.state.as_ref().map_or(0, |state| state.version)
    }
}

/// What a broker may use in a step, and what it leaves to be sent.
pub(super) struct Context<'w> {
    pub(super) now: Now,
    pub(super) swarm: &'w Swarm,
    pub(super) events: &'w mut Events,
    pub(super) ghost: &'w mut Ghost,
    pub(super) out: Vec<(BrokerId, Message)>,
}

type Checked = Result<(), Violation>;

impl Machine {
    fn process(&mut self) -> &mut Process {
        self.process.as_mut().expect("only a process acts")
    }

    fn incarnation(&self) -> Option<Incarnation> {
        let epoch = self.process.as_ref()?.epoch?;
        Some(Incarnation { broker: self.id, epoch })
    }

    pub(super) fn receive(
        &mut self,
        context: &mut Context<'_>,
        from: BrokerId,
        message: Message,
    ) -> Checked {
        match message {
            Message::Position(follower, position) => {
                self.asked(context, follower, &position);
                Ok(())
            }
            Message::Answer(answer, batches) => self.answered(context, &answer, batches),
            Message::State(state) => self.apply(context, state),
            Message::Refused => {
                if let Some(Role::Leader(leader)) = &mut self.process().role {
                    leader.proposal_refused();
                }
                Ok(())
            }
            Message::Register { .. } | Message::Heartbeat(_) | Message::Alter(_) => {
                unreachable!("{from} takes a broker for the controller")
            }
        }
    }

    fn apply(&mut self, context: &mut Context<'_>, state: State) -> Checked {
        let (me, life) = (self.id, self.life);
        let process = self.process.as_mut().expect("only a process acts");
        if state.version <= process.version() {
            return Ok(());
        }
        let registration = state.registrations.get(&me).filter(|known| known.life == life);
        let Some(registration) = registration else { return Ok(()) };
        process.epoch = Some(registration.epoch);
        process.state = Some(state.clone());
        let is_news = process.role().leader_epoch() < state.leader_epoch;
        let role = process.role.take().expect("a role is there between steps");
        let role = match role {
            Role::Leader(mut leader) if !is_news => {
                let decision = PartitionDecision {
                    partition_epoch: state.partition_epoch,
                    replicas: &state.replicas,
                    in_sync: state.in_sync.clone(),
                    min_insync_replicas: context.swarm.min_in_sync,
                };
                leader.partition_decided(context.now, decision);
                Role::Leader(leader)
            }
            Role::Leader(leader) => {
                context.events.note("leader: resigned");
                process.waiting.clear();
                process.armed.clear();
                Role::Replica(leader.resign())
            }
            role => role,
        };
        process.role = Some(match role {
            Role::Replica(replica) if state.leader == Some(me) => {
                if replica.leader().is_some() {
                    context.events.note("leader: led after following");
                }
                let leader = replica.lead(Lead {
                    leader_epoch: state.leader_epoch,
                    partition_epoch: state.partition_epoch,
                    begun_at: context.now.time,
                    replicas: state.replicas.clone(),
                    in_sync: state.in_sync.clone(),
                    min_insync_replicas: context.swarm.min_in_sync,
                });
                context.ghost.leads(me, life, state.leader_epoch, &self.disk)?;
                Role::Leader(leader)
            }
            Role::Replica(mut replica) => {
                replica.follow(state.leader, state.leader_epoch);
                Role::Replica(replica)
            }
            leader => leader,
        });
        self.tell_position(context);
        Ok(())
    }

    fn tell_position(&mut self, context: &mut Context<'_>) {
        let Some(incarnation) = self.incarnation() else { return };
        if let Role::Replica(replica) = self.process().role()
            && let Some(leader) = replica.leader()
        {
            context.out.push((leader, Message::Position(incarnation, replica.position())));
        }
    }

    fn asked(
        &mut self,
        context: &mut Context<'_>,
        follower: Incarnation,
        position: &ReplicaPosition,
    ) {
        let process = self.process.as_mut().expect("only a process acts");
        let Some(Role::Leader(leader)) = &mut process.role else { return };
        let begin = self.disk.start;
        let answer = match leader.replica_asks(context.now, follower, position) {
            Ok(ReplicaGrant::Send { .. } | ReplicaGrant::Wait) if begin <= position.from => {
                // Sent when this step is over, if there is something.
                process.armed.insert(follower.broker, (*position, Offset(-1)));
                return;
            }
            Ok(_) => leader.begin_anew(position, begin),
            Err(refusal) => {
                context.events.note(match refusal {
                    FetchRefusal::Diverging { .. } => "follower: position diverges",
                    FetchRefusal::LeftBehind { .. } => "follower: left behind",
                    FetchRefusal::StaleBrokerEpoch { .. } => "leader: stale incarnation refused",
                    FetchRefusal::UnknownLeaderEpoch { .. } => "leader: zombie refused",
                    _ => "leader: position refused",
                });
                let answer = leader.answer_to_refused(position, refusal);
                answer.unwrap_or_else(|| leader.begin_anew(position, begin))
            }
        };
        context.out.push((follower.broker, Message::Answer(answer, Vec::new())));
    }

    fn answered(
        &mut self,
        context: &mut Context<'_>,
        answer: &ReplicaAnswer,
        batches: Vec<Batch>,
    ) -> Checked {
        let process = self.process.as_mut().expect("only a process acts");
        let Some(Role::Replica(replica)) = &mut process.role else { return Ok(()) };
        let disk = &mut self.disk;
        match replica.judge(answer) {
            ReplicaStep::Ignore => {
                context.events.note("follower: answer ignored");
                return Ok(());
            }
            ReplicaStep::Wait => return Ok(()),
            ReplicaStep::Told => {}
            ReplicaStep::Append => {
                let AnswerKind::Batches { epochs } = &answer.kind else {
                    return Err(Violation::new("workload", "appends what is no batch"));
                };
                if !continues(disk, &batches) {
                    return Ok(());
                }
                for batch in batches {
                    context.ghost.writes(&batch)?;
                    disk.batches.push(batch);
                    replica.appended(context.now, &batch.header, epochs);
                }
            }
            ReplicaStep::TruncateTo(to) => {
                context.events.note("follower: log cut");
                disk.truncate(to);
                ensure!(
                    replica.high_watermark() <= disk.end(),
                    "INV-R8",
                    "broker {} cuts to {to}, below its high watermark {}",
                    self.id,
                    replica.high_watermark()
                );
                replica.truncated(disk.end(), Producers::new(1));
                self.tell_position(context);
                return Ok(());
            }
            ReplicaStep::StartAt(offset) => {
                context.events.note("follower: began anew");
                disk.begin_at(offset);
                replica.started_at(offset, Producers::new(1));
                self.tell_position(context);
                return Ok(());
            }
            ReplicaStep::Contradiction(contradiction) => {
                let detail = format!("broker {} is told by {answer:?}: {contradiction}", self.id);
                return Err(Violation::new("INV-R5", detail));
            }
        }
        replica.leader_told(answer.high_watermark, answer.log_start_offset);
        if let Some(to) = replica.wanted_log_start() {
            disk.move_start(to);
            replica.log_start_moved(to);
        }
        if answer.kind != AnswerKind::Nothing {
            self.tell_position(context);
        }
        Ok(())
    }

    /// The disk holds everything before `to`.
    pub(super) fn synced(&mut self, context: &mut Context<'_>, to: Offset) {
        self.disk.durable = self.disk.durable.max(to);
        let durable = self.disk.durable;
        match &mut self.process().role {
            Some(Role::Leader(leader)) => leader.synced(context.now, durable),
            Some(Role::Replica(replica)) => replica.synced(durable),
            None => {}
        }
        self.tell_position(context);
    }

    /// What a broker does now and then: register, heartbeat, ask, judge.
    pub(super) fn tick(&mut self, context: &mut Context<'_>) {
        let Some(incarnation) = self.incarnation() else {
            let (broker, life) = (self.id, self.life);
            context.out.push((CONTROLLER, Message::Register { broker, life }));
            return;
        };
        context.out.push((CONTROLLER, Message::Heartbeat(incarnation)));
        self.tell_position(context);
        let process = self.process();
        let (Some(Role::Leader(leader)), Some(state)) = (&mut process.role, &process.state) else {
            return;
        };
        let looks = context.swarm.looks_who_is_fenced;
        let is_eligible = |follower| !looks || state.is_eligible(follower);
        if let Some(judged) =
            leader.judged_in_sync(None, context.now, context.swarm.stall, is_eligible)
        {
            let is_agreed = judged.followers.len() + 1 == leader.in_sync().len()
                && judged.followers.keys().all(|member| leader.in_sync().contains(member));
            if is_agreed {
                context.events.note("leader: expansion made void");
            }
            leader.propose_in_sync(judged);
        }
        if let Some(proposal) = leader.proposal() {
            let proposal = proposal.clone();
            let leader_epoch = leader.leader_epoch();
            let alter = Alter { sender: incarnation, leader_epoch, proposal };
            context.out.push((CONTROLLER, Message::Alter(alter)));
        }
    }

    /// Takes a producer's batch, if this broker leads and enough are in sync.
    pub(super) fn produce(&mut self, context: &mut Context<'_>, id: u64, records: u64) -> Checked {
        let process = self.process.as_mut().expect("only a process acts");
        let Some(Role::Leader(leader)) = &mut process.role else { return Ok(()) };
        let batch = Batch::new(id, records, leader.log_end_offset(), leader.leader_epoch());
        if leader.produce(context.now, &batch.header, Acks::All).is_err() {
            context.events.note("leader: too few in sync");
            return Ok(());
        }
        context.ghost.writes(&batch)?;
        self.disk.batches.push(batch);
        leader.appended(context.now, &batch.header);
        process.waiting.push(batch);
        Ok(())
    }

    /// Deletes records before some committed batch.
    pub(super) fn delete_records(&mut self, context: &mut Context<'_>, share: u64) {
        let process = self.process.as_mut().expect("only a process acts");
        let Some(Role::Leader(leader)) = &mut process.role else { return };
        let committed = self.disk.between(self.disk.start, leader.high_watermark());
        if committed.is_empty() {
            return;
        }
        context.events.note("records: deleted");
        let last = (committed.len() as u64 * share / 100) as usize;
        let to = committed[last.min(committed.len() - 1)].end();
        self.disk.move_start(to);
        leader.log_start_moved(to);
        // Its start is durable, and with it everything before.
        leader.synced(context.now, self.disk.durable);
    }

    /// Whatever the offsets of this moment allow: acknowledgements, and answers to who waits.
    pub(super) fn settle(&mut self, context: &mut Context<'_>) -> Checked {
        let disk = &self.disk;
        let Some(process) = &mut self.process else { return Ok(()) };
        let Some(Role::Leader(leader)) = &process.role else { return Ok(()) };
        let high_watermark = leader.high_watermark();
        let is_done = |batch: &Batch| batch.end() <= high_watermark;
        for batch in process.waiting.iter().filter(|batch| is_done(batch)) {
            context.events.note("records: acknowledged");
            context.ghost.acknowledge(batch)?;
        }
        process.waiting.retain(|batch| !is_done(batch));
        if !leader.is_high_watermark_certain() {
            context.events.note("leader: high watermark not certain");
        }
        process.armed.retain(|follower, (position, told)| {
            let batches = disk.between(position.from, disk.end());
            if let (Some(last), true) = (batches.last(), disk.start <= position.from) {
                let most = batches.len().min(context.swarm.batches_max);
                let batches = batches[..most].to_vec();
                let end = batches.last().map_or(last.end(), Batch::end);
                let epochs = leader.epochs_between(position.from, end);
                let answer = leader.answer(position, AnswerKind::Batches { epochs });
                context.out.push((*follower, Message::Answer(answer, batches)));
                return false;
            }
            if *told < high_watermark {
                *told = high_watermark;
                let answer = leader.answer(position, AnswerKind::Nothing);
                context.out.push((*follower, Message::Answer(answer, Vec::new())));
            }
            true
        });
        Ok(())
    }
}

/// What a log checks before it takes a run of batches.
fn continues(disk: &Disk, batches: &[Batch]) -> bool {
    let mut end = disk.end();
    let mut epoch = disk.batches.last().map_or(LeaderEpoch(0), Batch::epoch);
    batches.iter().all(|batch| {
        let follows = batch.base() == end && epoch <= batch.epoch();
        (end, epoch) = (batch.end(), batch.epoch());
        follows
    })
}
