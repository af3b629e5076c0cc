//! Sends messages to a queue: each into a partition that takes it now.
//!
//! ```text
//! order matters  ─▶ murmur2 of the message group: one partition, whoever leads it
//! named by an id ─▶ murmur2 of the id: a repeat meets the first one there, also when partitions were added since
//! otherwise      ─▶ a partition that this broker leads, or else one that somebody else leads
//! ```
//!
//! The messages of a request that may go anywhere stay together. A message for which nobody was found
//! goes to another partition where it may; where it may not, its leader is looked for once more.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use serde_json::{Map, Value, json};
use tokio::time::{Instant, sleep};
use towpath_model::properties::LimitPolicy;
use towpath_model::{BrokerId, PartitionIndex};
use towpath_queue::{DEDUP_ID, MOVED_FROM};
use towpath_records::partitioner::partition_of;

use crate::api_error::{ApiError, Code};
use crate::app::{App, TopicView};
use crate::encoding::{Encoded, Encoding};
use crate::message::{NewMessage, PublishedMessage};
use crate::publish_elsewhere::{Elsewhere, LOOK_AGAIN_AFTER, not_taken, publish_once};
use crate::publish_messages::{Results, publish_plain};

use super::message::NewQueueMessage;
use super::place::{Places, no_leader};

/// How soon it is looked again whether a full queue has room, at first and later.
const ROOM_LOOKED_FOR_FIRST: Duration = Duration::from_millis(20);
const ROOM_LOOKED_FOR_EVERY: Duration = Duration::from_millis(250);

/// How often a message is tried to be placed.
const TRIES: usize = 3;

/// How long a send waits for room where its queue lets it, if nothing is said.
const WAIT_USUAL: Duration = Duration::from_secs(10);

/// Sends messages; the results are in their order.
pub(crate) async fn send(
    app: &App,
    queue: &TopicView,
    messages: Vec<NewQueueMessage>,
) -> Vec<Result<PublishedMessage, ApiError>> {
    send_within(app, queue, messages, WAIT_USUAL).await
}

/// The same. Where a queue lets its senders wait for room, they do so for `wait`.
pub(super) async fn send_within(
    app: &App,
    queue: &TopicView,
    messages: Vec<NewQueueMessage>,
    wait: Duration,
) -> Vec<Result<PublishedMessage, ApiError>> {
    let records = messages.into_iter().map(NewQueueMessage::into_record).collect();
    let may_wait = queue.config.queue.limit_policy == LimitPolicy::Block;
    send_records(app, queue, records, if may_wait { wait } else { Duration::ZERO }).await
}

/// Sends messages as they are, delivery headers included. `wait`: for how long those wait that a full queue does
/// not take.
pub(super) async fn send_records(
    app: &App,
    queue: &TopicView,
    records: Vec<NewMessage>,
    wait: Duration,
) -> Vec<Result<PublishedMessage, ApiError>> {
    let mut sending = Sending {
        app,
        queue,
        turn: app.turns.next(),
        results: records.iter().map(|_| None).collect(),
        records,
        unheard: BTreeSet::new(),
        full: BTreeSet::new(),
        keeps_records: queue.config.queue.is_limited(),
    };
    sending.run_until(Instant::now() + wait).await;
    let lost = || Err(ApiError::new(Code::Internal, "the message was not sent"));
    sending.results.into_iter().map(|result| result.unwrap_or_else(lost)).collect()
}

struct Sending<'a> {
    app: &'a App,
    queue: &'a TopicView,
    turn: u32,
    records: Vec<NewMessage>,
    results: Results,
    /// Brokers that have not taken what was passed on to them.
    unheard: BTreeSet<BrokerId>,
    /// Partitions that have not taken all of what was sent to them.
    full: BTreeSet<PartitionIndex>,
    /// What was tried may have to be tried again.
    keeps_records: bool,
}

impl Sending<'_> {
    /// What one partition has no room for is sent to another one where that may be, and to all of them again
    /// later.
    async fn run_until(&mut self, deadline: Instant) {
        let mut rest: Vec<usize> = (0..self.records.len()).collect();
        let mut pause = ROOM_LOOKED_FOR_FIRST;
        loop {
            self.run(rest).await;
            rest = self.not_taken_for_room();
            if rest.is_empty() || !self.keeps_records {
                return;
            }
            let free: Vec<usize> = rest.iter().copied().filter(|at| self.is_free(*at)).collect();
            if !free.is_empty() && self.has_another_partition() {
                rest = free;
                continue;
            }
            if deadline <= Instant::now() + pause {
                return;
            }
            sleep(pause).await;
            pause = (2 * pause).min(ROOM_LOOKED_FOR_EVERY);
            self.full.clear();
        }
    }

    /// Messages that would have been sent, had there been room.
    fn not_taken_for_room(&self) -> Vec<usize> {
        let is_full = |result: &Option<Result<PublishedMessage, ApiError>>| {
            let error = result.as_ref().and_then(|result| result.as_ref().err());
            error.is_some_and(|error| error.code == Code::QueueFull)
        };
        let results = self.results.iter().enumerate();
        results.filter(|(_, result)| is_full(result)).map(|(at, _)| at).collect()
    }

    /// Notes that the one that was tried is full; says whether there is one that may not be.
    fn has_another_partition(&mut self) -> bool {
        let places = Places::of(self.app, self.queue);
        self.full.extend(self.any_partition(&places));
        self.any_partition(&places).is_some_and(|next| !self.full.contains(&next))
    }

    /// Whether a message may go anywhere.
    fn is_free(&self, at: usize) -> bool {
        bound(self.queue, &self.records[at]).is_none()
    }

    async fn run(&mut self, messages: Vec<usize>) {
        let mut rest = messages;
        for tried in 1..=TRIES {
            let left = self.place(rest).await;
            if left.is_empty() {
                return;
            }
            if tried == TRIES {
                for one in left {
                    self.results[one.at] = Some(Err(not_taken(self.app, self.queue, &one)));
                }
                return;
            }
            let is_bound = |one: &Elsewhere| bound(self.queue, &self.records[one.at]).is_some();
            if left.iter().any(is_bound) {
                sleep(LOOK_AGAIN_AFTER).await;
            }
            rest = left.into_iter().map(|one| one.at).collect();
        }
    }

    /// Tries each message at one partition; gives back those that nobody has taken.
    async fn place(&mut self, messages: Vec<usize>) -> Vec<Elsewhere> {
        let (app, queue) = (self.app, self.queue);
        let places = Places::of(app, queue);
        let free = self.any_partition(&places);
        let mut here: BTreeMap<PartitionIndex, Vec<(usize, NewMessage)>> = BTreeMap::new();
        let (mut elsewhere, mut written) = (Vec::new(), Vec::new());
        for at in messages {
            let record = &self.records[at];
            let Some(partition) = bound(queue, record).or(free) else {
                self.results[at] = Some(Err(no_leader(queue)));
                continue;
            };
            if places.here.contains(&partition) {
                // Whatever becomes of it here is its result: it is not needed again, unless there is no room.
                let record = match self.keeps_records {
                    true => record.clone(),
                    false => std::mem::replace(&mut self.records[at], nothing()),
                };
                here.entry(partition).or_default().push((at, record));
            } else {
                if written.is_empty() {
                    written = vec![Map::new(); self.records.len()];
                }
                written[at] = as_written(record);
                elsewhere.push(Elsewhere { at, partition, by: queue.partition(partition) });
            }
        }
        let mut published = Vec::new();
        let (left, ()) = tokio::join!(
            publish_once(app, queue, &written, elsewhere, &mut published),
            publish_plain(app, queue, here, &mut self.results)
        );
        published.into_iter().for_each(|(at, result)| self.results[at] = Some(result));
        let leader_of = |one: &Elsewhere| crate::forward::leader_of(app, one.by);
        self.unheard.extend(left.iter().filter_map(leader_of));
        left
    }

    /// A partition for what may go anywhere.
    fn any_partition(&self, places: &Places) -> Option<PartitionIndex> {
        pick(places, &self.unheard, &self.full, self.turn)
    }
}

fn nothing() -> NewMessage {
    NewMessage {
        key: None,
        value: None,
        headers: Vec::new(),
        timestamp: None,
        partition: None,
        producer: None,
    }
}

/// The next partition that is led here, or else by a broker that has not failed to answer; a full one last.
fn pick(
    places: &Places,
    unheard: &BTreeSet<BrokerId>,
    full: &BTreeSet<PartitionIndex>,
    turn: u32,
) -> Option<PartitionIndex> {
    let nth = |of: Vec<PartitionIndex>| {
        let index = usize::try_from(turn).unwrap_or_default().checked_rem(of.len())?;
        of.get(index).copied()
    };
    let elsewhere = |only_heard: bool| {
        let asked = places.elsewhere.iter();
        let asked = asked.filter(move |(leader, _)| !only_heard || !unheard.contains(leader));
        asked.flat_map(|(_, partitions)| partitions).copied()
    };
    let with_room = |partition: &PartitionIndex| !full.contains(partition);
    let here = || places.here.iter().copied();
    nth(here().filter(with_room).collect())
        .or_else(|| nth(elsewhere(true).filter(with_room).collect()))
        .or_else(|| nth(here().collect()))
        .or_else(|| nth(elsewhere(true).collect()))
        .or_else(|| nth(elsewhere(false).collect()))
}

/// The partition that a message has to go to, if there is one.
fn bound(queue: &TopicView, record: &NewMessage) -> Option<PartitionIndex> {
    if queue.config.queue.fifo {
        return Some(partition_of(record.key.as_deref().unwrap_or_default(), queue.partitions));
    }
    let names_it = |name: &[u8]| name == DEDUP_ID || name == MOVED_FROM;
    let id = record.headers.iter().rfind(|(name, _)| names_it(name))?.1.as_deref()?;
    let among = queue.config.queue.dedup_partitions.unwrap_or(queue.partitions);
    Some(partition_of(id, among.min(queue.partitions)))
}

/// As a body of `POST /topics/{topic}/messages` has it.
fn as_written(record: &NewMessage) -> Map<String, Value> {
    let mut written = Map::new();
    let mut put = |name: &str, bytes: &Option<Vec<u8>>| {
        let encoded = bytes.as_deref().map(Encoded::of);
        if let Some(Encoding::Base64) = encoded.as_ref().and_then(|encoded| encoded.encoding) {
            written.insert(format!("{name}_encoding"), "base64".into());
        }
        written.insert(name.to_owned(), encoded.map(|encoded| encoded.text).into());
    };
    put("key", &record.key);
    put("value", &record.value);
    let headers = record.headers.iter().map(|(name, value)| {
        let (name, value) = (Encoded::of(name), value.as_deref().map(Encoded::of));
        let value_encoding = value.as_ref().and_then(|value| value.encoding);
        json!({
            "name": name.text,
            "name_encoding": name.encoding.unwrap_or_default(),
            "value": value.map(|value| value.text),
            "value_encoding": value_encoding.unwrap_or_default(),
        })
    });
    written.insert("headers".to_owned(), headers.collect());
    written
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::message::Publish;
    use std::num::NonZeroU32;
    use towpath_model::properties::TopicConfig;
    use towpath_model::{TopicId, TopicName};

    fn places() -> Places {
        Places {
            here: vec![PartitionIndex(1), PartitionIndex(4)],
            elsewhere: BTreeMap::from([
                (BrokerId(2), vec![PartitionIndex(0)]),
                (BrokerId(3), vec![PartitionIndex(2), PartitionIndex(3)]),
            ]),
            nowhere: vec![PartitionIndex(5)],
        }
    }

    #[test]
    fn what_may_go_anywhere_goes_to_partitions_led_here_in_turn() {
        let picked = |turn| pick(&places(), &BTreeSet::new(), &BTreeSet::new(), turn).unwrap().0;
        assert_eq!([picked(0), picked(1), picked(2)], [1, 4, 1]);
    }

    #[test]
    fn without_such_it_goes_to_somebody_who_answers() {
        let places = Places { here: Vec::new(), ..places() };
        let picked = |turn, unheard: &[i32]| {
            let unheard = unheard.iter().map(|id| BrokerId(*id)).collect();
            pick(&places, &unheard, &BTreeSet::new(), turn).map(|partition| partition.0)
        };
        assert_eq!(
            (0..4).map(|turn| picked(turn, &[])).collect::<Vec<_>>(),
            [Some(0), Some(2), Some(3), Some(0)]
        );
        assert_eq!([picked(0, &[2]), picked(1, &[2])], [Some(2), Some(3)]);
        // Rather somebody who did not answer than nobody.
        assert_eq!(picked(0, &[2, 3]), Some(0));
        assert_eq!(pick(&Places::default(), &BTreeSet::new(), &BTreeSet::new(), 0), None);
    }

    #[test]
    fn a_partition_without_room_is_the_last_one_that_is_asked() {
        let picked = |full: &[i32]| {
            let full = full.iter().map(|index| PartitionIndex(*index)).collect();
            pick(&places(), &BTreeSet::new(), &full, 0).map(|partition| partition.0)
        };
        assert_eq!(
            [picked(&[1]), picked(&[1, 4]), picked(&[0, 1, 4])],
            [Some(4), Some(0), Some(2)]
        );
        assert_eq!(picked(&[0, 1, 2, 3, 4]), Some(1));
    }

    #[test]
    fn a_repeat_meets_the_first_one_although_partitions_were_added_since() {
        let config = TopicConfig::default();
        let queue = |partitions: u32, dedup_partitions: u32| {
            let mut config = config.clone();
            config.queue.dedup_partitions = NonZeroU32::new(dedup_partitions);
            let name = TopicName::new("q").unwrap();
            let partitions = NonZeroU32::new(partitions).unwrap();
            TopicView { name, id: TopicId::default(), partitions, config }
        };
        for id in 0..100_u32 {
            let id = Some(id.to_string().into_bytes());
            for name in [DEDUP_ID, MOVED_FROM] {
                let headers = vec![(name.to_vec(), id.clone())];
                let record = NewMessage { headers, ..nothing() };
                let first = bound(&queue(3, 0), &record);
                assert!(first.is_some());
                assert_eq!(bound(&queue(12, 3), &record), first);
            }
        }
        assert_eq!(bound(&queue(12, 3), &nothing()), None);
    }

    #[test]
    fn a_record_that_is_passed_on_is_the_same_record() {
        let record = NewMessage {
            key: Some(vec![0xff]),
            value: None,
            headers: vec![
                (b"a".to_vec(), Some(b"b".to_vec())),
                (vec![0xfe], Some(vec![0xfd])),
                (b"c".to_vec(), None),
            ],
            timestamp: None,
            partition: None,
            producer: None,
        };
        let written = Value::Object(as_written(&record)).to_string();
        assert_eq!(Publish::parse(written.as_bytes()).unwrap(), Publish::One(record));
    }
}
