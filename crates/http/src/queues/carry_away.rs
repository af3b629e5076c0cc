//! Carries messages from one queue to another: dead letters above all.
//!
//! ```text
//! moving, committed at the source ─▶ append at the destination, with where it comes from ─▶ settled at the source
//! ```
//!
//! The broker that leads the source does this, again and again until the last step is done: a destination that
//! has taken a message knows it by where it comes from, and does not deliver it twice.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use tokio::time::sleep;
use towpath_driver::FetchRefusal;
use towpath_model::{Offset, TopicPartition};
use towpath_queue::{
    Attempt, DEAD_ATTEMPT, DEAD_NOTE, DEAD_REASON, DEAD_RECEIVES, DEAD_SOURCE, DeadReason,
    Departure, FIRST_ID, Identity, MOVED_FROM, Reply, Request, identity_header,
};
use towpath_server::{NotRead, StoredMessage};

use crate::app::App;
use crate::message::NewMessage;

use super::send::send_records;

/// How often it is looked what is to be carried.
const LOOK_EVERY: Duration = Duration::from_millis(500);
/// Messages of one source that are carried at once.
const CARRIED_MAX: usize = 100;
/// Bytes of them, about.
const CARRIED_BYTES_MAX: usize = 16 << 20;
/// Whatever says how a message was to be delivered, or how it was moved before, does not go with it.
const OURS: &[u8] = b"towpath-";

/// Carries messages until the broker stops.
pub(crate) async fn carry_away(app: App) {
    let mut stop = app.stop.clone();
    loop {
        tokio::select! {
            _ = stop.changed() => return,
            () = sleep(LOOK_EVERY) => {}
        }
        for (id, subscription) in app.node.driver().queues_with_moves() {
            carry_from(&app, id, subscription).await;
        }
    }
}

async fn carry_from(app: &App, id: TopicPartition, subscription: u32) {
    let asked = Request::Moves { subscription, max: CARRIED_MAX };
    let Ok(Reply::Moves(departures)) = app.node.ask_deliveries(id, asked).await else { return };
    let mut by_queue: BTreeMap<Arc<str>, Vec<Departure>> = BTreeMap::new();
    for departure in departures {
        by_queue.entry(Arc::clone(&departure.way.to)).or_default().push(departure);
    }
    for (to, departures) in by_queue {
        carry_to(app, id, subscription, &to, departures).await;
    }
}

async fn carry_to(
    app: &App,
    id: TopicPartition,
    subscription: u32,
    to: &str,
    departures: Vec<Departure>,
) {
    let offsets = || departures.iter().map(|departure| departure.offset).collect::<Vec<Offset>>();
    let Some(source) = app.node.driver().image().topic_by_id(id.topic).map(|t| t.name.clone())
    else {
        return;
    };
    let queue = match app.queue(to) {
        Ok(queue) => queue,
        Err(error) => {
            let note = Arc::from(error.message.as_str());
            tracing::warn!(source = %source, to, reason = %error.message,
                "messages cannot be carried to their dead-letter queue, and wait");
            let failed = Request::MoveFailed { subscription, offsets: offsets(), note };
            let _ = app.node.ask_deliveries(id, failed).await;
            return;
        }
    };
    let (mut records, mut carried) = (Vec::new(), Vec::new());
    for (departure, message) in messages(app, id, &departures).await {
        let identity = Identity {
            topic: id.topic,
            partition: id.partition,
            offset: departure.offset,
            subscription,
            attempt: departure.way.attempt,
        };
        records.push(record(&message, departure, &identity, source.as_str()));
        carried.push(departure.offset);
    }
    let results = send_records(app, &queue, records).await;
    let there = carried.into_iter().zip(results).filter_map(|(at, result)| match result {
        Ok(_) => Some(at),
        Err(error) => {
            tracing::warn!(source = %source, to, offset = %at, reason = %error.message,
                "a message was not taken by its dead-letter queue, and is sent again");
            None
        }
    });
    let offsets: Vec<Offset> = there.collect();
    if !offsets.is_empty() {
        let _ = app.node.ask_deliveries(id, Request::Moved { subscription, offsets }).await;
    }
}

/// The messages that can be carried now; the others are looked for again later.
async fn messages<'d>(
    app: &App,
    id: TopicPartition,
    departures: &'d [Departure],
) -> Vec<(&'d Departure, StoredMessage)> {
    let offsets: Vec<Offset> = departures.iter().map(|departure| departure.offset).collect();
    match app.node.read_messages(id, &offsets, CARRIED_BYTES_MAX).await {
        Ok(mut stored) => {
            let found =
                |departure: &'d Departure| Some((departure, stored.remove(&departure.offset)?));
            return departures.iter().filter_map(found).collect();
        }
        Err(NotRead::Fetch(FetchRefusal::Corrupt(_))) => {}
        Err(_) => return Vec::new(),
    }
    // One that cannot be read keeps no other from it.
    let mut found = Vec::new();
    for departure in departures {
        let one = app.node.read_messages(id, &[departure.offset], CARRIED_BYTES_MAX).await;
        match one {
            Ok(mut stored) => {
                found.extend(stored.remove(&departure.offset).map(|message| (departure, message)));
            }
            // That is why it goes: what was sent is not known, only that it was.
            Err(NotRead::Fetch(FetchRefusal::Corrupt(_)))
                if departure.way.reason == DeadReason::Undecodable =>
            {
                found.push((departure, nothing()));
            }
            // It could be read when it was admitted: the disk has damaged it, and others may have it.
            Err(NotRead::Fetch(FetchRefusal::Corrupt(_))) => {
                app.node.driver().doubt(id, departure.offset);
            }
            Err(_) => {}
        }
    }
    found
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
    let from = identity_header(identity);
    let first = message.headers.iter().rfind(|(name, _)| **name == *FIRST_ID);
    let first = first.and_then(|(_, value)| value.as_ref()).map(|value| value.to_vec());
    let own = message.headers.iter().filter(|(name, _)| !name.starts_with(OURS));
    let mut headers: Vec<(Vec<u8>, Option<Vec<u8>>)> = own
        .map(|(name, value)| (name.to_vec(), value.as_ref().map(|value| value.to_vec())))
        .collect();
    let mut say = |name: &[u8], value: Vec<u8>| headers.push((name.to_vec(), Some(value)));
    say(FIRST_ID, first.unwrap_or_else(|| from.clone().into_bytes()));
    say(MOVED_FROM, from.into_bytes());
    say(DEAD_SOURCE, source.as_bytes().to_vec());
    say(DEAD_REASON, departure.way.reason.name().as_bytes().to_vec());
    say(DEAD_RECEIVES, departure.receives.to_string().into_bytes());
    if let Some(note) = &departure.way.note {
        say(DEAD_NOTE, note.as_bytes().to_vec());
    }
    for attempt in &departure.history {
        say(DEAD_ATTEMPT, attempt_text(attempt).into_bytes());
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

fn attempt_text(attempt: &Attempt) -> String {
    let held = (attempt.returned_at - attempt.received_at).as_millis();
    let said = attempt.note.as_deref().map(|note| format!(": {note}")).unwrap_or_default();
    let holder = if attempt.holder.is_empty() { "a receiver" } else { &attempt.holder };
    format!("{holder} held it for {held} ms, {}{said}", attempt.why.name())
}
