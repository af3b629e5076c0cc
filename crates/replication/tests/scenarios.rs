//! Runs the text files beside it: each line is an input and, after the arrow, what it causes.
//! `UPDATE_EXPECT=1 cargo test -p towpath-replication --test scenarios` writes the right-hand sides;
//! read the difference before you keep it.

mod support;

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write;
use std::path::{Path, PathBuf};
use std::time::Duration;

use towpath_model::{
    BrokerEpoch, BrokerId, Durability, LeaderEpoch, Now, Offset, ProducerId, Time, Timestamp,
};
use towpath_records::BatchHeader;
use towpath_replication::{
    Acks, Admission, EpochHistory, FollowerView, InSyncProposal, Incarnation, Leader, LeaderStart,
    PartitionDecision, Producers, ReplicaPosition,
};

const ARROW: &str = "→";
const COLUMN: usize = 62;

#[test]
#[expect(clippy::disallowed_methods, reason = "the test, not the core, rewrites its files")]
fn scenarios_come_out_as_written() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/scenarios");
    let mut files: Vec<PathBuf> =
        std::fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path()).collect();
    files.sort();
    assert!(!files.is_empty());
    let mut differing = Vec::new();
    for file in files {
        let written = std::fs::read_to_string(&file).unwrap();
        let happened = run(&written);
        if written == happened {
            continue;
        }
        if std::env::var_os("UPDATE_EXPECT").is_some() {
            std::fs::write(&file, &happened).unwrap();
        } else {
            differing.push(format!("--- {}\n{happened}", file.display()));
        }
    }
    assert!(differing.is_empty(), "these came out otherwise:\n{}", differing.join("\n"));
}

fn run(script: &str) -> String {
    let mut world = World::default();
    let mut out = String::new();
    for line in script.lines() {
        let input = line.split(ARROW).next().unwrap_or_default().trim();
        if input.is_empty() || input.starts_with('#') {
            writeln!(out, "{}", line.trim_end()).unwrap();
            continue;
        }
        let effect = world.step(input);
        writeln!(out, "{input:<COLUMN$} {ARROW} {effect}").unwrap();
    }
    out
}

/// `key=value` words of a line, and the bare words before them.
struct Words<'l> {
    bare: Vec<&'l str>,
    named: BTreeMap<&'l str, &'l str>,
}

impl<'l> Words<'l> {
    fn new(line: &'l str) -> Words<'l> {
        let mut words = Words { bare: Vec::new(), named: BTreeMap::new() };
        for word in line.split_whitespace() {
            match word.split_once('=') {
                Some((key, value)) => {
                    words.named.insert(key, value);
                }
                None => words.bare.push(word),
            }
        }
        words
    }

    fn number(&self, key: &str) -> Option<i64> {
        self.named.get(key).map(|text| text.parse().unwrap_or_else(|_| panic!("{key}={text}")))
    }

    fn brokers(text: &str) -> Vec<BrokerId> {
        text.split(',').map(|id| BrokerId(id.parse().unwrap())).collect()
    }
}

#[derive(Default)]
struct World {
    leader: Option<Leader>,
    now: Now,
    replicas: Vec<BrokerId>,
    /// `min.insync.replicas` as of now.
    min: u32,
    admitted: Option<BatchHeader>,
}

impl World {
    fn leader(&mut self) -> &mut Leader {
        self.leader.as_mut().expect("a scenario begins with `lead`")
    }

    fn step(&mut self, line: &str) -> String {
        let words = Words::new(line);
        let now = self.now;
        match words.bare.as_slice() {
            ["lead"] => self.lead(&words),
            ["restart"] => self.restart(&words),
            ["produce"] => self.produce(&words),
            ["appended"] => {
                let header = self.admitted.take().expect("`produce` was admitted before");
                self.leader().appended(now, &header);
                self.offsets()
            }
            ["synced", offset] => {
                self.leader().synced(now, Offset(offset.parse().unwrap()));
                self.offsets()
            }
            ["fetch"] => {
                let end = words.number("end").unwrap();
                let epoch = LeaderEpoch(words.number("epoch").unwrap() as i32);
                let last = words.number("last").map_or(epoch, |last| LeaderEpoch(last as i32));
                let follower = Incarnation {
                    broker: BrokerId(words.number("from").unwrap() as i32),
                    epoch: BrokerEpoch(words.number("incarnation").unwrap_or(1)),
                };
                let position = ReplicaPosition {
                    leader_epoch: epoch,
                    from: Offset(end),
                    last_epoch: (0 < end).then_some(last),
                    durable_offset: Offset(words.number("durable").unwrap_or(end)),
                    log_start_offset: Offset(words.number("start").unwrap_or(end)),
                };
                match self.leader().replica_asks(now, follower, &position) {
                    Ok(_) => self.offsets(),
                    Err(refusal) => format!("refused: {refusal}"),
                }
            }
            ["in-sync", brokers] => {
                let replicas = self.replicas.clone();
                let decision = PartitionDecision {
                    partition_epoch: self.leader().partition_epoch() + 1,
                    replicas: &replicas,
                    in_sync: Words::brokers(brokers).into_iter().collect(),
                    min_insync_replicas: self.min,
                };
                self.leader().partition_decided(now, decision);
                self.offsets()
            }
            ["propose", brokers] => {
                let followers = Words::brokers(brokers).into_iter().filter(|id| id.0 != 1);
                let proposal = InSyncProposal {
                    partition_epoch: self.leader().partition_epoch(),
                    followers: followers.map(|id| (id, Some(BrokerEpoch(1)))).collect(),
                };
                self.leader().propose_in_sync(proposal);
                self.offsets()
            }
            ["refused"] => {
                self.leader().proposal_refused();
                self.offsets()
            }
            ["configure"] => {
                self.min = words.number("min").unwrap_or(1) as u32;
                let min = self.min;
                self.leader().set_config(min, durability(&words));
                self.offsets()
            }
            ["start-moves-to", offset] => {
                self.leader().log_start_moved(Offset(offset.parse().unwrap()));
                self.offsets()
            }
            ["at", seconds] => {
                let elapsed = Duration::from_secs(seconds.parse().unwrap());
                self.now = Now { time: Time(0) + elapsed, wall: Timestamp(0) + elapsed };
                "·".to_owned()
            }
            ["judge"] => {
                let stall = Duration::from_secs(words.number("stall").unwrap() as u64);
                let fenced = words.number("fenced");
                let is_eligible = |of: Incarnation| Some(i64::from(of.broker.0)) != fenced;
                match self.leader().judged_in_sync(None, now, stall, is_eligible) {
                    Some(judged) => {
                        let followers = judged.followers.keys().copied();
                        let all = std::iter::once(BrokerId(1)).chain(followers).collect();
                        format!("in sync should be {}", join(&all))
                    }
                    None => "no change".to_owned(),
                }
            }
            ["followers"] => {
                let show = |(broker, view): (BrokerId, FollowerView)| {
                    format!(
                        "{broker} end {:?} durable {:?}",
                        view.log_end_offset, view.durable_offset
                    )
                };
                self.leader().followers().map(show).collect::<Vec<_>>().join(", ")
            }
            ["end-of-epoch", epoch] => {
                let asked = LeaderEpoch(epoch.parse().unwrap());
                match self.leader().end_offset_of_epoch(asked) {
                    Some((epoch, end)) => format!("epoch {epoch} ends at {end}"),
                    None => "unknown".to_owned(),
                }
            }
            ["check-epoch", epoch] => {
                let asked = LeaderEpoch(epoch.parse().unwrap());
                match self.leader().check_epoch(Some(asked).filter(|epoch| 0 <= epoch.0)) {
                    Ok(()) => "ok".to_owned(),
                    Err(refusal) => format!("refused: {refusal}"),
                }
            }
            ["expire"] => {
                let idle = Duration::from_secs(words.number("idle").unwrap() as u64);
                self.leader().expire_producers(now, idle);
                self.producers()
            }
            ["producers"] => self.producers(),
            _ => panic!("no such input: {line}"),
        }
    }

    fn lead(&mut self, words: &Words<'_>) -> String {
        self.replicas = Words::brokers(words.named.get("replicas").unwrap_or(&"1"));
        let in_sync = words.named.get("in-sync").map(|text| Words::brokers(text));
        let end = Offset(words.number("end").unwrap_or(0));
        let start = Offset(words.number("start").unwrap_or(0));
        self.min = words.number("min").unwrap_or(1) as u32;
        self.leader = Some(Leader::new(LeaderStart {
            me: BrokerId(1),
            leader_epoch: LeaderEpoch(words.number("epoch").unwrap_or(0) as i32),
            partition_epoch: 0,
            begun_at: self.now.time,
            replicas: self.replicas.clone(),
            in_sync: in_sync.unwrap_or(self.replicas.clone()).into_iter().collect(),
            min_insync_replicas: self.min,
            durability: durability(words),
            log_start_offset: start,
            log_end_offset: end,
            durable_offset: words.number("durable").map_or(end, Offset),
            high_watermark: words.number("high-watermark").map_or(start, Offset),
            producers: Producers::new(words.number("producers").unwrap_or(100) as usize),
            epochs: EpochHistory::new(),
        }));
        self.offsets()
    }

    /// The process comes back and leads again with what its disk holds.
    fn restart(&mut self, words: &Words<'_>) -> String {
        let old = self.leader.take().unwrap();
        let snapshot = old.producers().encode();
        let epoch = words.number("epoch").map_or(old.leader_epoch(), |e| LeaderEpoch(e as i32));
        let most = words.number("producers").unwrap_or(100) as usize;
        self.min = 1;
        self.leader = Some(Leader::new(LeaderStart {
            me: BrokerId(1),
            leader_epoch: epoch,
            partition_epoch: 0,
            begun_at: self.now.time,
            replicas: self.replicas.clone(),
            in_sync: old.in_sync().clone(),
            min_insync_replicas: self.min,
            durability: Durability::Synced,
            log_start_offset: old.log_start_offset(),
            log_end_offset: old.log_end_offset(),
            durable_offset: old.log_end_offset(),
            high_watermark: old.log_start_offset(),
            producers: Producers::decode(&snapshot, self.now, most).unwrap(),
            epochs: old.epochs().clone(),
        }));
        self.offsets()
    }

    fn produce(&mut self, words: &Words<'_>) -> String {
        let acks = match words.named.get("acks") {
            Some(&"0") => Acks::None,
            Some(&"1") => Acks::Leader,
            _ => Acks::All,
        };
        let records = words.number("records").unwrap_or(1) as u32;
        let producer = words.number("id").map(|id| {
            let epoch = words.number("epoch").unwrap_or(0) as i16;
            (id, epoch, words.number("sequence").unwrap() as i32)
        });
        let now = self.now;
        let header = support::sent(records, producer);
        match self.leader().produce(now, &header, acks) {
            Ok(Admission::Append { base_offset, leader_epoch }) => {
                self.admitted = Some(support::stored(records, producer, base_offset, leader_epoch));
                let end = base_offset + i64::from(records);
                format!("append [{base_offset},{end}) under epoch {leader_epoch}")
            }
            Ok(Admission::Duplicate { base_offset, end_offset, .. }) => {
                format!("duplicate of [{base_offset},{end_offset})")
            }
            Err(refusal) => format!("refused: {refusal}"),
        }
    }

    fn offsets(&mut self) -> String {
        let leader = self.leader();
        format!(
            "start {} · high watermark {} · durable {} · end {}",
            leader.log_start_offset(),
            leader.high_watermark(),
            leader.durable_offset(),
            leader.log_end_offset()
        )
    }

    fn producers(&mut self) -> String {
        let producers = self.leader().producers();
        let ids: Vec<ProducerId> = producers.iter().map(|producer| producer.id).collect();
        let show = |id: &ProducerId| {
            let known = producers.get(*id).unwrap();
            format!("{id} (epoch {}, last sequence {})", known.epoch, known.last_sequence)
        };
        if ids.is_empty() {
            return "none".to_owned();
        }
        ids.iter().map(show).collect::<Vec<_>>().join(", ")
    }
}

fn durability(words: &Words<'_>) -> Durability {
    match words.named.get("durability") {
        Some(&"relaxed") => Durability::Relaxed,
        _ => Durability::Synced,
    }
}

fn join(brokers: &BTreeSet<BrokerId>) -> String {
    brokers.iter().map(ToString::to_string).collect::<Vec<_>>().join(",")
}
