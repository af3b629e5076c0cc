//! A broker has started.
//!
//! Every registration has an epoch of its own, so that what an earlier process of the same broker
//! said can be told apart (KIP-903). The new process leads nothing and is in sync with nobody until
//! it has shown that it knows of its registration: a leadership under the old process would
//! otherwise be carried on by one that does not know where it stands.
//!
//! ```text
//! start                        in synced topics            in relaxed topics
//! orderly stop before          in sync or eligible, as if it had been fenced (both)
//! killed, same machine         the same (what it wrote is in the page cache)
//! machine started anew         the same (it is on disk)    neither in sync nor eligible
//! data directory gone          neither in sync nor eligible (both)
//! ```
//!
//! The last replica in sync stays so, whatever happened to it: nobody has more than it, and where
//! that is less than was acknowledged, all that were in sync have lost power, which relaxed topics
//! do not promise to survive. Only where its data directory is gone does it hold nothing, and its
//! partition waits for an operator's decision.
//!
//! A cluster of one has nobody who could lead meanwhile, so its broker goes on at once. A start that
//! was not preceded by an orderly stop may have lost what was not synced: records at offsets that
//! readers of a relaxed topic have seen, and other records will be written there now. So such a
//! start raises the leader epoch (KIP-966), and whoever has the old records finds out by asking
//! where the old epoch ended (KIP-320). An orderly stop has synced everything: the same process
//! might as well have gone on, and nothing is raised.

use towpath_model::mutant::{self, Mutant};
use towpath_model::{BrokerId, Durability, Now, Time, TopicPartition, Uuid};

use crate::broker::Broker;
use crate::cluster::Registration;
use crate::elect::{Election, Electorate};
use crate::format_level::FIRST_FORMAT_LEVEL;
use crate::metadata::{Decided, Metadata};
use crate::record::Record;
use crate::refusal::Refusal;
use crate::request::Reply;
use crate::session::Soft;
use crate::topic::{PartitionState, Topic};

impl Metadata {
    pub(crate) fn register_broker(&self, now: Now, registration: Registration) -> Decided {
        let mut records = Vec::new();
        let epoch = self.register(now, registration, &mut records);
        (records, Reply::RegisteredBroker(epoch))
    }

    fn register(
        &self,
        now: Now,
        registration: Registration,
        records: &mut Vec<Record>,
    ) -> Result<i64, Refusal> {
        let image = self.image();
        let id = registration.id;
        if registration.directories.iter().any(|directory| image.is_retired(id, *directory)) {
            return Err(Refusal::BrokerRetired(id));
        }
        let format_level = registration.format_level.max(FIRST_FORMAT_LEVEL);
        image.check_level(id, format_level)?;
        let known = image.broker(id);
        if let Some(known) = known {
            if known.incarnation == registration.incarnation {
                return Ok(known.epoch);
            }
            if self.is_elsewhere(now, known, &registration) {
                return Err(Refusal::DuplicateBroker(id));
            }
        }
        let is_first = image.brokers().all(|other| other.id == id);
        let start = Start {
            id,
            is_clean: registration.clean_since.is_some()
                && registration.clean_since == known.map(|known| known.epoch),
            lost_power: registration.lost_power,
            lost_directories: known.map_or_else(Vec::new, |known| {
                let is_lost = |id: &Uuid| !registration.directories.contains(id);
                known.directories.iter().copied().filter(is_lost).collect()
            }),
            goes_on: is_first,
        };
        let last = image.brokers().map(|broker| broker.epoch).max().unwrap_or(0);
        let broker = Broker {
            id,
            epoch: 1 + last.max(image.past_broker_epoch),
            incarnation: registration.incarnation,
            role: registration.role,
            rack: registration.rack,
            addresses: registration.addresses,
            offline: registration
                .offline
                .into_iter()
                .filter(|id| registration.directories.contains(id))
                .collect(),
            directories: registration.directories,
            format_level,
            fenced: !is_first,
            in_controlled_shutdown: false,
            drained: known.is_some_and(|known| known.drained),
        };
        let epoch = broker.epoch;
        let mut electorate = image.electorate();
        electorate.brokers.insert(id, broker.clone());
        records.push(Record::Broker(broker));
        records.extend(image.partitions().filter_map(|(topic, partition, state)| {
            self.started(&electorate, &start, topic, partition, state)
        }));
        if !is_first {
            self.begin_sessions(now, id, records);
        }
        Ok(epoch)
    }

    /// Whether another process of this number is there, with other data: two brokers have been
    /// given one number.
    fn is_elsewhere(&self, now: Now, known: &Broker, asked: &Registration) -> bool {
        let session = self.sessions.get(&known.id);
        let is_there = !known.fenced && session.is_some_and(|session| now.time < session.ends_at);
        let shares = known.directories.iter().any(|id| asked.directories.contains(id));
        is_there && !shares && !known.directories.is_empty()
    }

    /// The second broker makes it a cluster whose members are watched.
    fn begin_sessions(&self, now: Now, id: BrokerId, records: &mut Vec<Record>) {
        let others = self.image().brokers().map(|broker| broker.id);
        let unwatched = others.filter(|other| *other != id && !self.sessions.contains_key(other));
        for broker in unwatched.chain([id]) {
            records.push(Record::Soft(Soft::Heard(self.full_session(now, broker))));
        }
        if self.upkeep_at.is_none() {
            records.push(Record::Soft(Soft::UpkeepAt(now.time)));
        }
        if self.preferred_at.is_none() {
            let at: Time = now.time + self.image().broker_config().leader_imbalance_check;
            records.push(Record::Soft(Soft::PreferredAt(at)));
        }
    }

    fn started(
        &self,
        electorate: &Electorate,
        start: &Start,
        topic: &Topic,
        partition: TopicPartition,
        state: &PartitionState,
    ) -> Option<Record> {
        let image = self.image();
        let at = state.replicas.iter().position(|replica| *replica == start.id)?;
        let mut wanted = state.clone();
        let mut disqualified = Vec::new();
        let directory = state.directory_of(start.id);
        let is_gone = match directory {
            Uuid::ZERO => !start.lost_directories.is_empty(),
            known => start.lost_directories.contains(&known),
        };
        // Where nobody else is there, its operator has given the directory up, and begins anew.
        let is_lost = is_gone && !start.goes_on;
        let counts = |state: &PartitionState| {
            state.in_sync.contains(&start.id) || state.eligible.contains(&start.id)
        };
        if is_lost {
            let broker = electorate.brokers.get(&start.id);
            wanted.directories[at] = broker.map_or(Uuid::ZERO, Broker::only_directory);
            if counts(state) {
                disqualified.push(start.id);
                wanted.in_sync.retain(|id| *id != start.id);
            }
        } else if !start.is_clean
            && start.lost_power
            && counts(state)
            && !mutant::is_on(Mutant::DirtyStaysEligible)
            && image.effective_config(topic).durability == Durability::Relaxed
        {
            disqualified.push(start.id);
            wanted.in_sync.retain(|id| *id != start.id);
            if wanted.in_sync.is_empty() {
                // Whoever is eligible holds all that is committed; without them, nobody has more.
                let eligible = state.eligible.iter().copied().filter(|id| *id != start.id);
                wanted.in_sync = eligible.collect();
            }
            if wanted.in_sync.is_empty() {
                wanted.in_sync.push(start.id);
            }
        }
        electorate.without_unusable(&mut wanted);
        let leads_on = start.goes_on && state.leader == Some(start.id);
        let is_raised =
            leads_on && (!start.is_clean || is_gone) && !mutant::is_on(Mutant::LeaderEpochKept);
        let election = if is_raised { Election::Anew } else { image.election(topic) };
        image.settled_by(electorate, topic, partition, wanted, election, &disqualified)
    }
}

/// How a broker has started.
struct Start {
    id: BrokerId,
    is_clean: bool,
    lost_power: bool,
    lost_directories: Vec<Uuid>,
    /// Whether it leads on at once what it led.
    goes_on: bool,
}
