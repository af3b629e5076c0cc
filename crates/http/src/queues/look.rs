//! Looks at a queue without taking anything: how many messages are where, and which they are.

use std::time::Duration;

use axum::http::Method;
use bytes::Bytes;
use serde::{Deserialize, Serialize};
use towpath_model::{Now, Offset, PartitionIndex};
use towpath_queue::{
    Attempt, DeadReason, Deliveries, Observed, PeekFilter, PeekState, Peeked, Return, Stats,
};

use crate::api_error::ApiError;
use crate::app::{App, TopicView};
use crate::forward::{ask_each, ask_value, leader_of};
use crate::memory::Share;

use super::message::Content;
use super::observed::QueueObserved;
use super::place::{Places, no_leader, no_subscription, not_asked};
use super::read_each::Read;
use super::receive::read_stored;
use super::subscriptions::number_in;

/// Offsets of a partition that one peek looks at.
const SCAN_MAX: usize = 100_000;

/// How many messages of a queue are where, summed over its partitions.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub(crate) struct QueueStats {
    /// Can be received, or wait for an earlier one of their group.
    pub(crate) ready: u64,
    /// Held by receivers.
    pub(crate) in_flight: u64,
    /// Not delivered yet.
    pub(crate) delayed: u64,
    /// On their way to another queue.
    pub(crate) moving: u64,
    /// Of those that are ready or delayed: another queue does not take them, and that is tried again.
    #[serde(default)]
    pub(crate) unmovable: u64,
    /// Bytes of all messages that are there, about.
    #[serde(default)]
    pub(crate) bytes: u64,
    /// Message groups that can be received from now.
    #[serde(default)]
    pub(crate) ready_groups: u64,
    /// Message groups of which a message is held.
    pub(crate) held_groups: u64,
    /// Receivers that wait.
    pub(crate) receivers: u64,
    /// Age of the oldest message that can be received.
    pub(crate) oldest_waiting_ms: Option<u64>,
    /// Age of the oldest message.
    pub(crate) oldest_ms: Option<u64>,
    /// What the leaders of its partitions have seen.
    #[serde(flatten)]
    pub(crate) observed: QueueObserved,
    /// Partitions that could not be asked: what is in them is not counted.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub(crate) partitions_missing: Vec<i32>,
}

impl QueueStats {
    fn of((stats, seen): &(Stats, Observed), bytes: u64) -> QueueStats {
        QueueStats {
            ready: stats.ready,
            in_flight: stats.in_flight,
            delayed: stats.delayed,
            moving: stats.moving,
            unmovable: stats.unmovable,
            bytes,
            ready_groups: stats.ready_groups,
            held_groups: stats.held_groups,
            receivers: stats.receivers,
            oldest_waiting_ms: stats.oldest_waiting.map(milliseconds),
            oldest_ms: stats.oldest.map(milliseconds),
            observed: QueueObserved::of(seen),
            partitions_missing: Vec::new(),
        }
    }

    fn add(&mut self, more: QueueStats) {
        self.ready += more.ready;
        self.in_flight += more.in_flight;
        self.delayed += more.delayed;
        self.moving += more.moving;
        self.unmovable += more.unmovable;
        self.bytes += more.bytes;
        self.ready_groups += more.ready_groups;
        self.held_groups += more.held_groups;
        self.receivers += more.receivers;
        self.oldest_waiting_ms = self.oldest_waiting_ms.max(more.oldest_waiting_ms);
        self.oldest_ms = self.oldest_ms.max(more.oldest_ms);
        self.observed.add(more.observed);
        self.partitions_missing.extend(more.partitions_missing);
    }

    /// Messages that are there, wherever they are.
    pub(crate) fn depth(&self) -> u64 {
        self.ready + self.in_flight + self.delayed + self.moving
    }
}

pub(super) fn milliseconds(duration: Duration) -> u64 {
    u64::try_from(duration.as_millis()).unwrap_or(u64::MAX)
}

/// The statistics of a subscription. `asks_others`: also of partitions that other brokers lead.
pub(crate) async fn stats(
    app: &App,
    queue: &TopicView,
    subscription: Option<&str>,
    asks_others: bool,
) -> Result<QueueStats, ApiError> {
    let places = Places::of(app, queue);
    let mut sum = QueueStats::default();
    for partition in &places.here {
        match stats_in(app, queue, *partition, subscription).await {
            Ok(stats) => {
                let fill = app.node.driver().queue_fill(queue.partition(*partition));
                sum.add(QueueStats::of(&stats, fill.map_or(0, |(fill, _)| fill.bytes)));
            }
            Err(error) if error.code == crate::api_error::Code::Unavailable => {
                sum.partitions_missing.push(partition.0);
            }
            Err(error) => return Err(error),
        }
    }
    if asks_others {
        let path = with_subscription(format!("/queues/{}/stats", queue.name), '?', subscription);
        let asked = places.elsewhere.keys().map(|leader| (*leader, Bytes::new()));
        for (leader, told) in ask_each::<QueueStats>(app, &Method::GET, &path, asked).await {
            match told {
                Ok(told) => sum.add(told),
                Err(_) => sum.partitions_missing.extend(indexes(&places.elsewhere[&leader])),
            }
        }
        sum.partitions_missing.extend(indexes(&places.nowhere));
        if sum.partitions_missing.len() == queue.partition_indexes().count() {
            return Err(no_leader(queue));
        }
    }
    sum.partitions_missing.sort_unstable();
    Ok(sum)
}

fn indexes(partitions: &[PartitionIndex]) -> impl Iterator<Item = i32> + '_ {
    partitions.iter().map(|partition| partition.0)
}

/// A path with the parameter `subscription`, if there is one.
fn with_subscription(path: String, separator: char, subscription: Option<&str>) -> String {
    match subscription {
        None => path,
        Some(name) => format!("{path}{separator}subscription={}", percent_encoded(name)),
    }
}

pub(super) fn percent_encoded(text: &str) -> String {
    let encode = |byte: u8| match byte {
        b'a'..=b'z' | b'A'..=b'Z' | b'0'..=b'9' | b'-' | b'_' | b'.' => {
            char::from(byte).to_string()
        }
        byte => format!("%{byte:02X}"),
    };
    text.bytes().map(encode).collect()
}

async fn stats_in(
    app: &App,
    queue: &TopicView,
    partition: PartitionIndex,
    subscription: Option<&str>,
) -> Result<(Stats, Observed), ApiError> {
    let number = number_in(app, queue, partition, subscription).await?;
    let id = queue.partition(partition);
    let driver = app.node.driver();
    let stats = driver.with_deliveries(id, |deliveries, now| {
        Some((deliveries.stats(now, number)?, deliveries.observed(now, number)?))
    });
    stats.map_err(not_asked)?.ok_or_else(|| no_subscription(subscription))
}

/// What somebody wants to see.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Peek {
    pub(crate) filter: PeekFilter,
    /// From which message on.
    pub(crate) from: (PartitionIndex, Offset),
    pub(crate) max: usize,
    pub(crate) subscription: Option<String>,
}

/// Messages that somebody looks at.
#[derive(Debug, Default, Serialize, Deserialize)]
pub(crate) struct PeekedMessages {
    pub(crate) messages: Vec<PeekedMessage>,
    /// The `from` of what comes next; null at the end.
    pub(crate) next: Option<String>,
    /// Partitions that could not be looked into.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub(crate) partitions_missing: Vec<i32>,
}

/// A message as somebody sees it who only looks.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct PeekedMessage {
    #[serde(flatten)]
    pub(crate) content: Content,
    pub(crate) receives: u32,
    pub(crate) age_ms: u64,
    #[serde(flatten)]
    pub(crate) state: ShownState,
    /// How its deliveries ended, the newest last.
    pub(crate) history: Vec<ShownAttempt>,
}

/// Where a message is.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "state", rename_all = "lowercase")]
pub(crate) enum ShownState {
    /// It can be received.
    Ready,
    /// An earlier message of its group is held, or delayed.
    Blocked,
    /// A receiver has it.
    Held { holder: String, held_ms: u64, left_ms: u64 },
    /// It is not delivered yet.
    Delayed { left_ms: u64 },
    /// It goes to another queue.
    Moving { to: String, reason: String, note: Option<String> },
}

/// A delivery that is over, or a way to another queue that failed: since when, and when last.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct ShownAttempt {
    pub(crate) holder: String,
    pub(crate) received_ms_ago: u64,
    pub(crate) returned_ms_ago: u64,
    pub(crate) why: String,
    pub(crate) note: Option<String>,
}

impl ShownState {
    fn of(state: PeekState) -> ShownState {
        match state {
            PeekState::Ready => ShownState::Ready,
            PeekState::Blocked => ShownState::Blocked,
            PeekState::Held { holder, held_for, left } => ShownState::Held {
                holder: holder.to_string(),
                held_ms: milliseconds(held_for),
                left_ms: milliseconds(left),
            },
            PeekState::Delayed { left } => ShownState::Delayed { left_ms: milliseconds(left) },
            PeekState::Moving(way) => ShownState::Moving {
                to: way.to.to_string(),
                reason: reason(way.reason).to_owned(),
                note: way.note.as_deref().map(str::to_owned),
            },
        }
    }
}

impl ShownAttempt {
    fn of(deliveries: &Deliveries, now: Now, attempt: &Attempt) -> ShownAttempt {
        ShownAttempt {
            holder: attempt.holder.to_string(),
            received_ms_ago: milliseconds(deliveries.since(now, attempt.received_at)),
            returned_ms_ago: milliseconds(deliveries.since(now, attempt.returned_at)),
            why: why(attempt.why).to_owned(),
            note: attempt.note.as_deref().map(str::to_owned),
        }
    }
}

fn reason(reason: DeadReason) -> &'static str {
    match reason {
        DeadReason::TooManyReceives => "too many receives",
        DeadReason::Expired => "expired",
        DeadReason::Rejected => "rejected",
        DeadReason::QueueDeleted => "queue deleted",
        DeadReason::Undecodable => "undecodable",
        DeadReason::Redriven => "redriven",
    }
}

fn why(why: Return) -> &'static str {
    match why {
        Return::LeaseExpired => "lease expired",
        Return::Released => "released",
        Return::Failed => "failed",
        Return::Unclaimed => "unclaimed",
        Return::MoveFailed => "move failed",
    }
}

/// Looks at messages, partition by partition.
pub(crate) async fn peek(
    app: &App,
    queue: &TopicView,
    peek: &Peek,
) -> Result<(PeekedMessages, Vec<Share>), ApiError> {
    let me = app.node.driver().broker_id();
    let (mut seen, mut shares) = (PeekedMessages::default(), Vec::new());
    let (first, from) = peek.from;
    for partition in queue.partition_indexes().filter(|partition| first <= *partition) {
        if seen.messages.len() == peek.max {
            seen.next = Some(place(partition, Offset::ZERO));
            break;
        }
        let from = if partition == first { from } else { Offset::ZERO };
        let max = peek.max - seen.messages.len();
        let wanted = Peek { from: (partition, from), max, ..peek.clone() };
        let found = match leader_of(app, queue.partition(partition)) {
            Some(leader) if leader == me => {
                peek_in(app, queue, &wanted).await.map(|(found, share)| {
                    shares.push(share);
                    found
                })
            }
            Some(leader) => {
                let path = path(queue, &wanted);
                ask_value(app, leader, &Method::GET, &path, Bytes::new()).await
            }
            None => Err(no_leader(queue)),
        };
        match found {
            Ok(found) => {
                seen.messages.extend(found.messages);
                if found.next.is_some() {
                    seen.next = found.next;
                    break;
                }
            }
            Err(error) if error.code.status().is_server_error() => {
                seen.partitions_missing.push(partition.0);
            }
            Err(error) => return Err(error),
        }
    }
    Ok((seen, shares))
}

/// How a hop asks for one partition.
fn path(queue: &TopicView, peek: &Peek) -> String {
    let state = match peek.filter {
        PeekFilter::Any => "",
        PeekFilter::Ready => "&state=ready",
        PeekFilter::Held => "&state=held",
        PeekFilter::Delayed => "&state=delayed",
        PeekFilter::Moving => "&state=moving",
    };
    let (partition, from) = peek.from;
    let from = place(partition, from);
    let path = format!("/queues/{}/peek?from={from}&max={}{state}", queue.name, peek.max);
    with_subscription(path, '&', peek.subscription.as_deref())
}

fn place(partition: PartitionIndex, offset: Offset) -> String {
    super::message::message_id(partition, offset.0)
}

/// Looks into the one partition that `peek` begins with, which is led here.
pub(crate) async fn peek_in(
    app: &App,
    queue: &TopicView,
    peek: &Peek,
) -> Result<(PeekedMessages, Share), ApiError> {
    let (partition, from) = peek.from;
    let id = queue.partition(partition);
    let number = number_in(app, queue, partition, peek.subscription.as_deref()).await?;
    let look = |deliveries: &Deliveries, now: Now| {
        let (found, next) = deliveries.peek(now, number, from, peek.filter, peek.max, SCAN_MAX);
        let show = |seen: Peeked| {
            let history = seen.history.iter().map(|one| ShownAttempt::of(deliveries, now, one));
            let history = history.collect::<Vec<_>>();
            (seen.offset, (seen.receives, seen.age, ShownState::of(seen.state), history))
        };
        (found.into_iter().map(show).collect::<Vec<_>>(), next)
    };
    let seen = app.node.driver().with_deliveries(id, look);
    let (seen, next) = seen.map_err(not_asked)?;
    let offsets: Vec<Offset> = seen.iter().map(|(offset, _)| *offset).collect();
    let (Read { found: mut stored, cut, .. }, share) =
        read_stored(app, queue, id, &offsets).await?;
    let show = |(offset, (receives, age, state, history))| {
        let content = Content::of(partition, &stored.remove(&offset)?, false);
        Some(PeekedMessage { content, receives, age_ms: milliseconds(age), state, history })
    };
    let messages = seen.into_iter().filter_map(show).collect();
    let next = cut.or(next).map(|next| place(partition, next));
    Ok((PeekedMessages { messages, next, partitions_missing: Vec::new() }, share))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn statistics_are_summed_and_ages_are_the_oldest() {
        let mut sum = QueueStats { ready: 1, oldest_ms: Some(5), ..QueueStats::default() };
        sum.add(QueueStats { ready: 2, in_flight: 3, oldest_ms: None, ..QueueStats::default() });
        sum.add(QueueStats { oldest_ms: Some(9), ..QueueStats::default() });
        assert_eq!((sum.ready, sum.in_flight, sum.oldest_ms), (3, 3, Some(9)));
        assert_eq!(sum.oldest_waiting_ms, None);
    }

    #[test]
    fn names_of_subscriptions_stand_in_a_path() {
        let path = with_subscription("/p".to_owned(), '?', Some("a b&ü"));
        assert_eq!(path, "/p?subscription=a%20b%26%C3%BC");
    }

    #[test]
    fn a_state_is_shown_beside_the_message() {
        let message = PeekedMessage {
            content: Content {
                id: "0-1".to_owned(),
                value: Some("v".to_owned()),
                value_encoding: None,
                group: None,
                group_encoding: None,
                headers: Vec::new(),
                sent_ms: 1,
            },
            receives: 2,
            age_ms: 3,
            state: ShownState::Held { holder: "w".to_owned(), held_ms: 4, left_ms: 5 },
            history: Vec::new(),
        };
        let written = serde_json::to_value(&message).unwrap();
        assert_eq!((&written["state"], &written["left_ms"]), (&"held".into(), &5.into()));
        assert_eq!(serde_json::from_value::<PeekedMessage>(written).unwrap(), message);
    }
}
