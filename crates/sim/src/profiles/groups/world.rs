//! Everything of one run: the machine, the group's members, what they wait for, and its history.

use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;
use std::time::Duration;

use towpath_coordinator::groups;
use towpath_driver::Delivery;
use towpath_log::WriteAheadLimits;
use towpath_model::{Generation, Offset, PartitionIndex, Token, TopicId, TopicPartition};
use towpath_records::{BatchBuilder, Compression};
use towpath_replication::Acks;

use super::super::broker::machine::Machine;
use super::super::broker::validate;
use super::members::{Member, Phase};
use super::requests::GROUP;
use super::topic::Fate;
use crate::checker::GroupHistory;
use crate::events::Events;
use crate::profile::{Violation, ensure};
use crate::rng::Rng;
use crate::steps::Parted;
use crate::trace::Trace;

/// Who waits for an answer, and what it is about.
#[derive(Debug, Clone)]
pub(super) enum Waiting {
    Join {
        member: usize,
        selves: u64,
    },
    Sync {
        member: usize,
        selves: u64,
    },
    Heartbeat {
        member: usize,
        selves: u64,
    },
    Commit {
        member: usize,
        selves: u64,
        owner: String,
        id: Arc<str>,
        generation: Generation,
        partition: TopicPartition,
        offset: Offset,
    },
    Fetch {
        member: usize,
        selves: u64,
        /// How many commits had been asked for by then.
        commits_asked: BTreeMap<TopicPartition, u64>,
    },
    Leave,
    /// Nobody: an old request came once more.
    Nobody,
    /// A deletion or creation of the topic.
    Topic,
}

/// How many requests the network may repeat.
const SENT_KEPT: usize = 20;

/// One step of a life.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Op {
    Act,
    Feed,
    FallSilent,
    Wake,
    ReplaceStatic,
    Leave,
    SyncRound,
    Tick,
    Upkeep,
    Compact,
    LetTimePass,
    JumpClock,
    Pause,
    RepeatOld,
    HearLate,
    RecreateTopic,
    FillDisk,
    FreeDisk,
    FailSync,
}

pub(super) struct World {
    pub(super) rng: Rng,
    pub(super) machine: Machine,
    pub(super) events: Events,
    pub(super) members: Vec<Member>,
    pub(super) history: GroupHistory,
    pub(super) waits: BTreeMap<Token, Waiting>,
    /// Requests that were sent, the newest last: the network may bring them once more, over an old
    /// connection or in a later life.
    sent: VecDeque<(Waiting, groups::Request)>,
    /// Answers that left the broker and have not arrived.
    late: VecDeque<(Token, Delivery)>,
    /// How many answers are lost, and how many come late, in percent.
    loses_answers: u64,
    delays_answers: u64,
    splits_rounds: bool,
    /// The topic that the group reads.
    pub(super) topic: TopicId,
    pub(super) fate: Fate,
    pub(super) partitions: i32,
    /// Commits that were ever asked for.
    pub(super) commits_asked: BTreeMap<TopicPartition, u64>,
    /// What was committed when somebody was last told.
    pub(super) committed: BTreeMap<TopicPartition, Offset>,
    /// The id under which each static member was let in last, in this process.
    pub(super) instances: BTreeMap<Arc<str>, Arc<str>>,
    /// The newest generation that a member was let into.
    pub(super) newest_generation: Generation,
    /// Members only finish what there is.
    pub(super) is_draining: bool,
    pub(super) is_full: bool,
    pub(super) was_full: bool,
    pub(super) ops: Vec<(u64, Op)>,
    pub(super) steps_max: u64,
    pub(super) crashes_percent: u64,
}

impl Parted for World {
    fn rng(&mut self) -> &mut Rng {
        &mut self.rng
    }

    fn trace(&self) -> &Trace {
        &self.machine.trace
    }
}

impl World {
    pub(super) fn new(seed: u64, trace: Trace) -> World {
        trace.begin_world();
        let mut rng = Rng::new(seed);
        let property = |name: &str, value: &str| (name.to_owned(), value.to_owned());
        let statics = BTreeMap::from([
            property("group.initial.rebalance.delay.ms", "500"),
            property("log.segment.bytes", "8000"),
            property("log.cleaner.backoff.ms", "0"),
        ]);
        let limits = WriteAheadLimits {
            file_bytes_max: rng.between(4, 64) << 10,
            direct_bytes_min: 4 << 10,
        };
        let machine = Machine::new(&mut rng, trace, limits, statics);
        let members = (0..rng.between(1, 4)).map(|at| {
            let instance = rng.percent(40).then(|| format!("instance-{at}").into());
            Member::new(instance, Duration::from_millis(rng.between(6_000, 10_000)))
        });
        World {
            members: members.collect(),
            machine,
            events: Events::new(),
            history: GroupHistory::new(),
            waits: BTreeMap::new(),
            sent: VecDeque::new(),
            late: VecDeque::new(),
            loses_answers: rng.weighted(&[(2, 0), (2, 2), (1, 10)]),
            delays_answers: rng.weighted(&[(2, 0), (1, 10), (1, 50)]),
            splits_rounds: rng.percent(60),
            topic: TopicId::ZERO,
            fate: Fate::There,
            partitions: rng.between(1, 4) as i32,
            commits_asked: BTreeMap::new(),
            committed: BTreeMap::new(),
            instances: BTreeMap::new(),
            newest_generation: Generation(0),
            is_draining: false,
            is_full: false,
            was_full: false,
            ops: draw_ops(&mut rng),
            steps_max: rng.between(40, 250),
            crashes_percent: rng.weighted(&[(1, 0), (3, 60), (1, 90)]),
            rng,
        }
    }

    pub(super) fn into_events(mut self) -> Events {
        self.events.merge(&self.machine.disk_events());
        self.events
    }

    pub(super) fn step(&mut self, op: Op) -> Result<(), Violation> {
        let at = self.rng.index(self.members.len());
        self.machine.trace.event("op", &[op as u64, at as u64]);
        match op {
            Op::Act => self.act(at)?,
            Op::Feed => self.feed()?,
            Op::FallSilent => self.fall_silent(at),
            Op::Wake => self.wake(at),
            Op::ReplaceStatic => self.replace_static(at),
            Op::Leave => self.leave(at),
            Op::SyncRound if self.splits_rounds => self.machine.sync_a_part(&mut self.events),
            Op::SyncRound => {
                self.machine.sync_if_wanted();
            }
            Op::Tick => self.machine.tick(),
            Op::Upkeep => self.machine.driver().upkeep(),
            Op::Compact => {
                let turns = self.rng.between(1, 20);
                let ended = self.machine.compact(turns);
                self.events.add("compaction: ended", ended);
            }
            Op::LetTimePass => {
                let pause = self.rng.weighted(&[(6, 100), (3, 1_000), (1, 7_000)]);
                self.machine.advance(Duration::from_millis(pause));
            }
            Op::JumpClock => self.machine.jump_wall(&mut self.rng),
            Op::Pause => {
                self.events.note("life: paused");
                let pause = self.rng.between(1, 60);
                self.machine.advance(Duration::from_secs(pause));
            }
            Op::RepeatOld => self.repeat_old(),
            Op::HearLate => self.hear_late(1)?,
            Op::RecreateTopic => self.recreate_topic()?,
            Op::FillDisk => {
                let spare = self.rng.between(0, 4_000);
                self.machine.fill_disk(spare);
                self.is_full = true;
                self.was_full = true;
            }
            Op::FreeDisk => self.free_disk(),
            Op::FailSync => self.machine.disk.fail_sync_in(self.rng.between(1, 5)),
        }
        self.settle()
    }

    pub(super) fn free_disk(&mut self) {
        self.machine.disk.set_capacity(None);
        self.is_full = false;
    }

    /// Delivers what was answered.
    pub(super) fn settle(&mut self) -> Result<(), Violation> {
        let mailbox = self.machine.process().mailbox;
        while !self.machine.has_stopped() {
            let Some((token, delivery)) = mailbox.take() else {
                return self.machine.check_wishes();
            };
            let Some(waiting) = self.waits.get(&token) else { continue };
            if matches!(waiting, Waiting::Topic) {
                self.hear(token, delivery)?;
                continue;
            }
            // What is committed is only true when it is said, so the order of these answers stays.
            let is_about_offsets =
                matches!(waiting, Waiting::Commit { .. } | Waiting::Fetch { .. });
            if !self.is_draining && self.rng.percent(self.loses_answers) {
                self.events.note("network: answer lost");
                let waiting = self.waits.remove(&token).expect("it waits");
                self.unanswered(waiting)?;
            } else if !self.is_draining
                && !is_about_offsets
                && self.rng.percent(self.delays_answers)
            {
                self.late.push_back((token, delivery));
            } else {
                self.hear(token, delivery)?;
            }
        }
        Ok(())
    }

    fn hear(&mut self, token: Token, delivery: Delivery) -> Result<(), Violation> {
        let Some(waiting) = self.waits.remove(&token) else { return Ok(()) };
        self.machine.trace.event("delivered", &[token.0]);
        self.machine.trace.remark(|| format!("{waiting:?} is answered by {delivery:?}"));
        self.told(waiting, delivery)
    }

    /// So many answers that had to wait arrive, in any order.
    pub(super) fn hear_late(&mut self, most: usize) -> Result<(), Violation> {
        for _ in 0..most {
            let at = if self.late.is_empty() { 0 } else { self.rng.index(self.late.len()) };
            let Some((token, delivery)) = self.late.remove(at) else { break };
            self.events.note("network: answer came late");
            self.hear(token, delivery)?;
        }
        Ok(())
    }

    /// The network brings an old request once more. Nobody waits for the answer, except that an
    /// accepted commit counts like any other.
    fn repeat_old(&mut self) {
        if self.sent.is_empty() {
            return;
        }
        let (waiting, mut request) = self.sent[self.rng.index(self.sent.len())].clone();
        if let groups::Request::Join(join) = &mut request {
            // It is the broker that draws it, once for every arrival.
            join.new_member_suffix = self.machine.new_id();
        }
        self.events.note("network: request repeated");
        let waiting = match waiting {
            // The edge knows no topic of this id any more.
            Waiting::Commit { partition, .. }
                if partition.topic != self.topic || !self.is_topic_there() =>
            {
                return;
            }
            Waiting::Commit { partition, .. } => {
                *self.commits_asked.entry(partition).or_default() += 1;
                waiting
            }
            _ => Waiting::Nobody,
        };
        self.put_to_coordinator(waiting, request);
    }

    /// Asks the coordinator; says whether there will be an answer.
    pub(super) fn ask(&mut self, waiting: Waiting, request: groups::Request) -> bool {
        if SENT_KEPT <= self.sent.len() {
            self.sent.pop_front();
        }
        self.sent.push_back((waiting.clone(), request.clone()));
        self.put_to_coordinator(waiting, request)
    }

    fn put_to_coordinator(&mut self, waiting: Waiting, request: groups::Request) -> bool {
        let token = self.machine.token();
        self.machine.trace.remark(|| format!("{token:?}: {waiting:?}"));
        self.waits.insert(token, waiting);
        let asked = self.machine.driver().ask_group(GROUP, token, request).is_ok();
        if !asked {
            self.waits.remove(&token);
        }
        asked
    }

    /// Whether something may be refused that a healthy broker takes.
    pub(super) fn may_fail(&self) -> bool {
        self.machine.excuses_failure(self.was_full) || self.machine.driver().is_failed()
    }

    /// The group's partitions.
    pub(super) fn ids(&self) -> Vec<TopicPartition> {
        let topic = self.topic;
        let indexes = (0..self.partitions).map(PartitionIndex);
        indexes.map(|partition| TopicPartition { topic, partition }).collect()
    }

    /// Whether somebody owns the partition, has read it to its end and committed that.
    pub(super) fn is_done_with(&self, id: TopicPartition) -> bool {
        let Ok(lines) = self.machine.driver().position(id, None) else { return false };
        let is_read = self.members.iter().any(|member| {
            let position = member.owned.get(&id).copied().flatten();
            member.phase == Phase::Working && position == Some(lines.high_watermark)
        });
        let committed = self.committed.get(&id).copied().unwrap_or(Offset::ZERO);
        is_read && committed == lines.high_watermark
    }

    /// Somebody produces a record.
    fn feed(&mut self) -> Result<(), Violation> {
        if !self.is_topic_there() {
            return Ok(());
        }
        let ids = self.ids();
        let id = ids[self.rng.index(ids.len())];
        let wall = self.machine.now().wall;
        let mut builder = BatchBuilder::new(Compression::None, wall);
        for _ in 0..self.rng.between(1, 3) {
            builder.append(wall, None, Some(b"an order"), []).expect("a small record fits");
        }
        let mut bytes = builder.build();
        let validated = validate(&bytes)?;
        let token = self.machine.token();
        let acks = if self.rng.percent(50) { Acks::All } else { Acks::None };
        let result = self.machine.driver().produce(id, &mut bytes, &validated, acks, token);
        let is_excused = self.may_fail() || self.machine.is_stalled();
        ensure!(result.is_ok() || is_excused, "INV-F1", "{id}: {result:?}");
        Ok(())
    }

    /// The process is gone, and with it everything that was not answered.
    pub(super) fn disconnect_all(&mut self) -> Result<(), Violation> {
        for (_, waiting) in std::mem::take(&mut self.waits) {
            self.unanswered(waiting)?;
        }
        self.late.clear();
        self.members.iter_mut().for_each(Member::disconnect);
        self.instances.clear();
        self.was_full = self.is_full;
        Ok(())
    }
}

/// Members and the broker's threads always run; each of the others is off in every other seed.
fn draw_ops(rng: &mut Rng) -> Vec<(u64, Op)> {
    const SOMETIMES: [(u64, Op); 13] = [
        (1, Op::RecreateTopic),
        (1, Op::Pause),
        (2, Op::RepeatOld),
        (2, Op::FallSilent),
        (1, Op::ReplaceStatic),
        (1, Op::Leave),
        (1, Op::Upkeep),
        (8, Op::Compact),
        (1, Op::JumpClock),
        (1, Op::FillDisk),
        (1, Op::FailSync),
        (4, Op::LetTimePass),
        (2, Op::FallSilent),
    ];
    let mut ops = vec![
        (rng.between(30, 60), Op::Act),
        (rng.between(3, 10), Op::Feed),
        (2, Op::Wake),
        (rng.between(8, 25), Op::SyncRound),
        (rng.between(4, 10), Op::Tick),
        (6, Op::LetTimePass),
        (rng.between(2, 10), Op::HearLate),
        (4, Op::FreeDisk),
    ];
    ops.extend(SOMETIMES.iter().filter(|_| rng.percent(50)));
    ops
}
