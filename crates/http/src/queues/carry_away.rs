//! Carries messages from one queue to another: dead letters, and those that a task brings back.
//!
//! ```text
//! moving, committed at the source ─▶ append at the destination, with where it comes from ─▶ settled at the source
//! ```
//!
//! The broker that leads the source does this, again and again until the last step is done: a destination that
//! has taken a message knows it by where it comes from, and does not deliver it twice.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use tokio::task::JoinSet;
use tokio::time::{Instant, sleep_until};
use towpath_model::{Offset, TopicPartition};
use towpath_queue::{
    Attempt, DEAD_ATTEMPT, DEAD_NOTE, DEAD_REASON, DEAD_RECEIVES, DEAD_SOURCE, DEDUP_ID,
    DELIVER_AFTER, DELIVER_AT, DeadReason, Departure, FIRST_DEDUP_ID, FIRST_ID, FIRST_SENT,
    Identity, MOVED_FROM, REDRIVEN_BY, REDRIVES, Reply, Request, Return, TTL, identity_header,
};
use towpath_server::StoredMessage;

use crate::api_error::{ApiError, Code};
use crate::app::App;
use crate::message::NewMessage;

use super::read_each::read_each;
use super::send::send_records;

/// How often it is looked what is to be carried.
const LOOK_EVERY: Duration = Duration::from_millis(500);
/// Messages from one partition to one queue that are carried at once.
const CARRIED_MAX: usize = 100;
/// Bytes of them, about.
const CARRIED_BYTES_MAX: usize = 16 << 20;
/// Ways that are gone at once: one that is slow holds up no other, until so many are.
const WAYS_MAX: usize = 16;
/// How a message was to be delivered, and how it was moved before, does not go with it.
const NOT_CARRIED: [&[u8]; 14] = [
    DELIVER_AFTER,
    DELIVER_AT,
    TTL,
    DEDUP_ID,
    MOVED_FROM,
    FIRST_ID,
    FIRST_SENT,
    REDRIVES,
    REDRIVEN_BY,
    DEAD_SOURCE,
    DEAD_REASON,
    DEAD_NOTE,
    DEAD_RECEIVES,
    DEAD_ATTEMPT,
];
/// Notes of how a message came back that go with it, the newest ones.
const REDRIVES_KEPT: usize = 10;

/// From which subscription of a partition to which queue.
type Way = (TopicPartition, u32, Arc<str>);

/// Carries messages until the broker stops.
pub(crate) async fn carry_away(app: App) {
    let mut stop = app.stop.clone();
    let mut carrying = Carrying::default();
    let mut look_at = Instant::now() + LOOK_EVERY;
    loop {
        tokio::select! {
            _ = stop.changed() => return,
            has_more = carrying.one_has_ended() => {
                if has_more {
                    look_at = Instant::now();
                }
            }
            () = sleep_until(look_at) => {
                look_at = Instant::now() + LOOK_EVERY;
                carrying.begin(&app);
            }
        }
    }
}

/// What is under way. Dropped, it ends; it is begun anew after a restart.
#[derive(Default)]
struct Carrying {
    ways: BTreeMap<tokio::task::Id, Way>,
    tasks: JoinSet<bool>,
    /// The last one that was begun: others have their turn first.
    last: Option<Way>,
}

impl Carrying {
    fn begin(&mut self, app: &App) {
        let ways: BTreeSet<Way> = app.node.driver().moves_underway().into_iter().collect();
        let last = self.last.clone();
        let (first, later): (Vec<Way>, Vec<Way>) =
            ways.into_iter().partition(|way| last.as_ref().is_none_or(|last| last < way));
        for way in first.into_iter().chain(later) {
            if WAYS_MAX <= self.tasks.len() {
                return;
            }
            if self.ways.values().any(|underway| *underway == way) {
                continue;
            }
            let (app, gone) = (app.clone(), way.clone());
            let task = self.tasks.spawn(async move { carry_from(&app, &gone).await });
            self.ways.insert(task.id(), way.clone());
            self.last = Some(way);
        }
    }

    /// Waits for the end of one; says whether there is more to be carried that way.
    async fn one_has_ended(&mut self) -> bool {
        let (id, has_more) = match self.tasks.join_next_with_id().await {
            // Nothing is under way: whoever waits for this waits for something else.
            None => return std::future::pending().await,
            Some(Ok((id, has_more))) => (id, has_more),
            Some(Err(failed)) => (failed.id(), false),
        };
        self.ways.remove(&id);
        has_more
    }
}

/// Carries some messages; says whether there may be more that go the same way.
async fn carry_from(app: &App, way: &Way) -> bool {
    let (id, subscription, to) = way;
    let asked =
        Request::Moves { subscription: *subscription, to: Arc::clone(to), max: CARRIED_MAX };
    let Ok(Reply::Moves(departures)) = app.node.ask_deliveries(*id, asked).await else {
        return false;
    };
    let many = departures.len();
    let gone = carry_to(app, way, departures).await;
    gone == many && many == CARRIED_MAX
}

/// Says how many messages lie at the destination now.
async fn carry_to(app: &App, way: &Way, departures: Vec<Departure>) -> usize {
    let (id, subscription, to) = (way.0, way.1, &*way.2);
    let Some(source) = app.node.driver().image().topic_by_id(id.topic).map(|t| t.name.clone())
    else {
        return 0;
    };
    let queue = match app.queue(to) {
        Ok(queue) => queue,
        Err(error) => {
            tracing::warn!(source = %source, to, reason = %error.message,
                "messages cannot be carried to another queue, and wait");
            let offsets = departures.iter().map(|departure| departure.offset).collect();
            give_up(app, way, offsets, &error.message, false).await;
            return 0;
        }
    };
    let Readable { messages, damaged, gone } = readable(app, id, &departures).await;
    give_up(app, way, damaged, "the disk has damaged it, and it cannot be moved", false).await;
    let (mut records, mut carried) = (Vec::new(), Vec::new());
    for (departure, message) in messages {
        let identity = Identity {
            topic: id.topic,
            partition: id.partition,
            offset: departure.offset,
            subscription,
        };
        records.push(record(&message, departure, &identity, source.as_str()));
        carried.push(departure.offset);
    }
    let results = send_records(app, &queue, records, Duration::ZERO).await;
    let mut offsets = gone;
    let mut refused: BTreeMap<String, Vec<Offset>> = BTreeMap::new();
    for (at, result) in carried.into_iter().zip(results) {
        match result {
            Ok(_) => offsets.push(at),
            // It waits here for room there, as long as it takes, or until that queue is gone.
            Err(error) if matches!(error.code, Code::QueueFull | Code::QueueGivenUp) => {}
            Err(error) if is_for_good(&error) => {
                tracing::warn!(source = %source, to, offset = %at, reason = %error.message,
                    "another queue does not take a message, which goes back to where it was");
                refused.entry(error.message).or_default().push(at);
            }
            Err(error) => {
                tracing::warn!(source = %source, to, offset = %at, reason = %error.message,
                "a message was not taken by another queue, and is sent again")
            }
        }
    }
    for (note, offsets) in refused {
        give_up(app, way, offsets, &note, true).await;
    }
    let gone = offsets.len();
    if gone != 0 {
        let _ = app.node.ask_deliveries(id, Request::Moved { subscription, offsets }).await;
    }
    gone
}

/// Whether the same message is never taken there, as that queue is set now.
fn is_for_good(error: &ApiError) -> bool {
    matches!(error.code, Code::MessageTooLarge | Code::InvalidMessage)
}

/// Messages go back to where they were, for a while at least: many that cannot go must not hold up those behind
/// them.
async fn give_up(app: &App, way: &Way, offsets: Vec<Offset>, note: &str, is_for_good: bool) {
    if !offsets.is_empty() {
        let (subscription, note) = (way.1, Arc::from(note));
        let failed = Request::MoveFailed { subscription, offsets, note, is_for_good };
        let _ = app.node.ask_deliveries(way.0, failed).await;
    }
}

/// Messages that are to be carried.
#[derive(Default)]
struct Readable<'d> {
    messages: Vec<(&'d Departure, StoredMessage)>,
    /// It could be read when it was admitted: the disk has damaged it, and other brokers may have it.
    damaged: Vec<Offset>,
    /// There is nothing left to carry.
    gone: Vec<Offset>,
}

/// What can be carried now; what is in neither list is looked for again later.
async fn readable<'d>(app: &App, id: TopicPartition, departures: &'d [Departure]) -> Readable<'d> {
    let offsets: Vec<Offset> = departures.iter().map(|departure| departure.offset).collect();
    let Ok(mut read) = read_each(app, id, &offsets, CARRIED_BYTES_MAX).await else {
        return Readable::default();
    };
    let mut readable = Readable::default();
    for departure in departures {
        if let Some(message) = read.found.remove(&departure.offset) {
            readable.messages.push((departure, message));
        } else if read.damaged.contains(&departure.offset) {
            match departure.way.reason {
                // That is why it goes: what was sent is not known, only that it was.
                DeadReason::Undecodable => readable.messages.push((departure, nothing())),
                _ => readable.damaged.push(departure.offset),
            }
        }
    }
    readable.gone = read.gone.into_iter().collect();
    readable.damaged.iter().for_each(|offset| app.node.driver().doubt(id, *offset));
    readable
}

fn nothing() -> StoredMessage {
    StoredMessage {
        offset: Offset::ZERO,
        timestamp: towpath_model::Timestamp(0),
        key: None,
        value: None,
        headers: Vec::new(),
    }
}

/// The message as the destination gets it.
fn record(
    message: &StoredMessage,
    departure: &Departure,
    identity: &Identity,
    source: &str,
) -> NewMessage {
    let own = message.headers.iter().filter(|(name, _)| !NOT_CARRIED.contains(&&**name));
    let mut headers: Vec<(Vec<u8>, Option<Vec<u8>>)> = own
        .map(|(name, value)| (name.to_vec(), value.as_ref().map(|value| value.to_vec())))
        .collect();
    let mut say = |name: &[u8], value: Vec<u8>| headers.push((name.to_vec(), Some(value)));
    let from = identity_header(identity).into_bytes();
    let keep = |name, otherwise: Vec<u8>| header(message, name).map_or(otherwise, <[u8]>::to_vec);
    say(FIRST_ID, keep(FIRST_ID, from.clone()));
    say(FIRST_SENT, keep(FIRST_SENT, message.timestamp.0.to_string().into_bytes()));
    if let Some(id) = header(message, DEDUP_ID) {
        say(FIRST_DEDUP_ID, id.to_vec());
    }
    say(MOVED_FROM, from);
    let is_redriven = departure.way.reason == DeadReason::Redriven;
    let redrives = redrives_of(message) + u32::from(is_redriven);
    if redrives != 0 {
        say(REDRIVES, redrives.to_string().into_bytes());
    }
    let mut trail = trail_of(message);
    if is_redriven {
        trail.push(redriven_by(message, departure, source).into_bytes());
    }
    let forgotten = trail.len().saturating_sub(REDRIVES_KEPT);
    trail.drain(..forgotten);
    trail.into_iter().for_each(|note| say(REDRIVEN_BY, note));
    if !is_redriven {
        say(DEAD_SOURCE, source.as_bytes().to_vec());
        say(DEAD_REASON, departure.way.reason.name().as_bytes().to_vec());
        say(DEAD_RECEIVES, departure.receives.to_string().into_bytes());
        if let Some(note) = &departure.way.note {
            say(DEAD_NOTE, note.as_bytes().to_vec());
        }
        for attempt in &departure.history {
            say(DEAD_ATTEMPT, attempt_text(attempt).into_bytes());
        }
    }
    NewMessage {
        key: message.key.as_ref().map(|key| key.to_vec()),
        value: message.value.as_ref().map(|value| value.to_vec()),
        headers,
        timestamp: None,
        partition: None,
        producer: None,
    }
}

/// The last header of this name.
pub(crate) fn header<'m>(message: &'m StoredMessage, name: &[u8]) -> Option<&'m [u8]> {
    let found = message.headers.iter().rfind(|(own, _)| **own == *name);
    found.and_then(|(_, value)| value.as_deref())
}

/// How often a message has come back from a dead-letter queue.
pub(crate) fn redrives_of(message: &StoredMessage) -> u32 {
    let said = header(message, REDRIVES).and_then(|value| std::str::from_utf8(value).ok());
    said.and_then(|value| value.parse().ok()).unwrap_or(0)
}

fn trail_of(message: &StoredMessage) -> Vec<Vec<u8>> {
    let notes = message.headers.iter().filter(|(name, _)| **name == *REDRIVEN_BY);
    notes.filter_map(|(_, note)| note.as_ref().map(|note| note.to_vec())).collect()
}

/// By whose order a message comes back, from where, and why it was there.
fn redriven_by(message: &StoredMessage, departure: &Departure, source: &str) -> String {
    let reason = header(message, DEAD_REASON).map(String::from_utf8_lossy);
    let reason = reason.map(|reason| format!(": {reason}")).unwrap_or_default();
    let by = departure.way.note.as_deref().unwrap_or("somebody");
    format!("{by} from {source}{reason}")
}

fn attempt_text(attempt: &Attempt) -> String {
    let held = (attempt.returned_at - attempt.received_at).as_millis();
    let said = attempt.note.as_deref().map(|note| format!(": {note}")).unwrap_or_default();
    if attempt.why == Return::MoveFailed {
        return format!("it could not be moved for {held} ms{said}");
    }
    let holder = if attempt.holder.is_empty() { "a receiver" } else { &attempt.holder };
    format!("{holder} held it for {held} ms, {}{said}", attempt.why.name())
}
