//! Receives messages of a queue, from whichever of its partitions has some.
//!
//! ```text
//! what this broker leads, without waiting ─▶ some? answer
//!        └─ none: others, one after the other; or, who may wait, all of them at once: the first one that
//!           has some ends the wait at the others
//! ```
//!
//! What was handed out and does not reach the caller, because another partition was faster, the answer is
//! full or the caller has hung up, is given back and does not count as received ([`Handout`]).

use std::sync::Arc;
use std::time::Duration;

use axum::body::to_bytes;
use axum::http::Method;
use serde::{Deserialize, Serialize};
use tokio::task::{AbortHandle, JoinSet};
use tokio::time::{Instant, sleep, sleep_until, timeout};
use towpath_driver::Clock;
use towpath_model::{BrokerId, Offset, PartitionIndex, TopicPartition};
use towpath_queue::{Delivery, QueueTime, RECEIVE_MAX, Receive, Reply};
use towpath_server::StoredMessage;

use crate::api_error::{ApiError, Code, Failed};
use crate::app::{App, TopicView};
use crate::body::parse_json;
use crate::forward::ask;
use crate::limits::{QUEUE_ANSWER_BYTES, QUEUE_ANSWER_BYTES_MAX, RECEIVE_WAIT_MAX, VISIBILITY_MAX};
use crate::memory::Share;
use crate::publish_elsewhere::LOOK_AGAIN_AFTER;
use crate::refusals;

use super::message::{Content, size};
use super::place::{Places, no_leader, no_subscription};
use super::read_each::{Read, read_each};
use super::receipt::QueueReceipt;
use super::settle::{Named, Verb, settle};
use super::subscriptions::number_in;

/// Of so many receives one begins with the partitions that others lead, so that what is there is not
/// forgotten as long as there is something here.
const TURNS_TO_OTHERS: u32 = 4;
/// How long an answer of another broker is still listened for, when it is not wanted any more.
const LATE_ANSWER_WAIT: Duration = Duration::from_secs(1);
/// How long a receive waits at brokers before it looks for leaders of partitions that had none.
const WITHOUT_LEADER_WAIT: Duration = Duration::from_secs(1);

/// How long a receive waits at others while receivers hold as much of a partition as they may.
const LIMITED_WAIT: Duration = Duration::from_secs(1);

const _: () = assert!(RECEIVE_MAX as usize <= crate::limits::QUEUE_MESSAGES_MAX);

/// Who wants messages, as a body of `POST /queues/{queue}/receive` has it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct WrittenReceive {
    /// How many at most.
    #[serde(default = "one")]
    pub(crate) max: u32,
    /// How long to wait for the first one.
    #[serde(default)]
    pub(crate) wait_ms: u64,
    /// How long they are hidden from others; nothing: as the queue has it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) visibility_ms: Option<u64>,
    /// For which subscription; nothing: the queue's own.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) subscription: Option<String>,
    /// Who receives, for people.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) holder: Option<String>,
    /// By which name the same messages may be asked for again.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) attempt_id: Option<String>,
    /// Nothing is handed out but what an attempt of this name was given before. Brokers ask so of each
    /// other, before anything new is handed out.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub(crate) repeats_only: bool,
    /// Headers that say how a message wants to be delivered are shown too; brokers ask so of each other.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub(crate) all_headers: bool,
}

fn one() -> u32 {
    1
}

/// How often who waits looks whether the queue has more partitions: ten thousand of them are to take no processor time.
const PARTITIONS_LOOKED_FOR_EVERY: Duration = Duration::from_secs(10);

/// The longest name of a holder or an attempt.
const NAME_BYTES_MAX: usize = 256;

/// As much of the name of a holder as is kept.
pub(crate) fn short_name(name: &str) -> &str {
    &name[..name.floor_char_boundary(NAME_BYTES_MAX)]
}

impl WrittenReceive {
    /// Refuses what is not possible.
    pub(crate) fn check(&self) -> Result<(), ApiError> {
        let invalid = |message: String| Err(ApiError::new(Code::InvalidRequest, message));
        let wait_ms_max = RECEIVE_WAIT_MAX.as_millis();
        if self.max == 0 || RECEIVE_MAX < self.max {
            return invalid(format!("max is 1 to {RECEIVE_MAX}"));
        }
        if wait_ms_max < u128::from(self.wait_ms) {
            return invalid(format!("wait_ms is 0 to {wait_ms_max}"));
        }
        for (field, name) in [("holder", &self.holder), ("attempt_id", &self.attempt_id)] {
            if name.as_ref().is_some_and(|name| NAME_BYTES_MAX < name.len()) {
                return invalid(format!("{field} has at most {NAME_BYTES_MAX} bytes"));
            }
        }
        read_visibility(self.visibility_ms).map(|_| ())
    }
}

/// For how long messages are hidden.
pub(super) fn read_visibility(ms: Option<u64>) -> Result<Option<Duration>, ApiError> {
    let visibility = ms.map(Duration::from_millis);
    if visibility.is_none_or(|visibility| visibility <= VISIBILITY_MAX) {
        return Ok(visibility);
    }
    let message = format!("visibility_ms is 0 to {}", VISIBILITY_MAX.as_millis());
    Err(ApiError::new(Code::InvalidRequest, message))
}

/// A message as its receiver gets it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct ReceivedMessage {
    #[serde(flatten)]
    pub(crate) content: Content,
    /// How often it was received, with this time.
    pub(crate) receives: u32,
    /// When it was received first.
    pub(crate) first_received_ms: i64,
    /// Proves this delivery.
    pub(crate) receipt: String,
    /// When others may receive it, if nothing is done.
    pub(crate) visible_again_ms: i64,
}

/// The answer to a receive.
#[derive(Debug, Default, Serialize, Deserialize)]
pub(crate) struct Received {
    pub(crate) messages: Vec<ReceivedMessage>,
}

/// A message that was handed out, as it is stored.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Handed {
    pub(crate) stored: StoredMessage,
    /// How often it was received, with this time.
    pub(crate) receives: u32,
    /// When it was received first.
    pub(crate) first_received_ms: i64,
    /// Proves this delivery.
    pub(crate) receipt: QueueReceipt,
    /// When others may receive it, if nothing is done.
    pub(crate) visible_again_ms: i64,
}

impl ReceivedMessage {
    pub(crate) fn of(handed: &Handed, all_headers: bool) -> ReceivedMessage {
        let partition = handed.receipt.partition;
        ReceivedMessage {
            content: Content::of(partition, &handed.stored, all_headers),
            receives: handed.receives,
            first_received_ms: handed.first_received_ms,
            receipt: handed.receipt.to_string(),
            visible_again_ms: handed.visible_again_ms,
        }
    }

    /// The message as another broker has read it, if that was asked for all of its headers.
    fn into_handed(self) -> Result<Handed, ApiError> {
        let receipt: QueueReceipt = self.receipt.parse()?;
        Ok(Handed {
            stored: self.content.into_stored(receipt.receipt.offset)?,
            receives: self.receives,
            first_received_ms: self.first_received_ms,
            receipt,
            visible_again_ms: self.visible_again_ms,
        })
    }
}

/// Messages that were handed out. Dropped before they are [taken](Handout::take), they are given back.
pub(crate) struct Handout {
    app: App,
    queue: Arc<TopicView>,
    messages: Vec<Handed>,
    receipts: Vec<QueueReceipt>,
    shares: Vec<Share>,
}

impl Handout {
    fn new(app: &App, queue: &Arc<TopicView>, receipts: Vec<QueueReceipt>) -> Handout {
        let (app, queue) = (app.clone(), Arc::clone(queue));
        Handout { app, queue, messages: Vec::new(), receipts, shares: Vec::new() }
    }

    fn is_empty(&self) -> bool {
        self.receipts.is_empty()
    }

    /// They are on their way to who asked for them.
    pub(crate) fn take(mut self) -> (Vec<Handed>, Vec<Share>) {
        self.receipts.clear();
        (std::mem::take(&mut self.messages), std::mem::take(&mut self.shares))
    }
}

impl Drop for Handout {
    fn drop(&mut self) {
        give_back(&self.app, &self.queue, std::mem::take(&mut self.receipts));
    }
}

fn give_back(app: &App, queue: &Arc<TopicView>, receipts: Vec<QueueReceipt>) {
    if receipts.is_empty() {
        return;
    }
    // Should those who lead not answer, the messages come back when their time has run out.
    settle_quietly(app, queue, Verb::GiveBack, receipts);
}

/// Says something of messages, and waits for nobody.
fn settle_quietly(app: &App, queue: &Arc<TopicView>, verb: Verb, receipts: Vec<QueueReceipt>) {
    let (app, queue) = (app.clone(), Arc::clone(queue));
    let named =
        receipts.into_iter().map(|receipt| Ok(Named { receipt, visibility: Duration::ZERO }));
    let named = named.collect();
    tokio::spawn(async move { settle(&app, &queue, &verb, named, true).await });
}

/// Receives messages. `asks_others`: also of partitions that other brokers lead.
pub(crate) async fn receive(
    app: &App,
    queue: &Arc<TopicView>,
    wanted: &WrittenReceive,
    asks_others: bool,
) -> Result<Handout, ApiError> {
    let turn = app.turns.next();
    if wanted.attempt_id.is_some() && asks_others {
        let wanted = WrittenReceive { wait_ms: 0, repeats_only: true, ..wanted.clone() };
        let queue = Arc::clone(queue);
        let repeating = Receiving { app, queue, wanted: &wanted, asks_others, turn };
        if let Ok(Some(handout)) = Box::pin(repeating.look()).await
            && !handout.is_empty()
        {
            return Ok(handout);
        }
    }
    let mut receiving = Receiving { app, queue: Arc::clone(queue), wanted, asks_others, turn };
    let deadline = Instant::now() + Duration::from_millis(wanted.wait_ms);
    // Of its own, as whatever else is over before the wait begins: thousands of receivers may wait, and each keeps
    // what its future has room for.
    if let Some(handout) = Box::pin(receiving.look()).await? {
        return Ok(handout);
    }
    receiving.wait(deadline).await
}

struct Receiving<'a> {
    app: &'a App,
    queue: Arc<TopicView>,
    wanted: &'a WrittenReceive,
    asks_others: bool,
    turn: u32,
}

impl Receiving<'_> {
    fn places(&self) -> Result<Places, ApiError> {
        let places = Places::of(self.app, &self.queue);
        let places = if self.asks_others { places } else { places.only_here() };
        match places.here.is_empty() && places.elsewhere.is_empty() {
            true => Err(no_leader(&self.queue)),
            false => Ok(places),
        }
    }

    fn nothing(&self) -> Handout {
        Handout::new(self.app, &self.queue, Vec::new())
    }

    /// What can be had without waiting; `None`: who may wait should.
    async fn look(&self) -> Result<Option<Handout>, ApiError> {
        let places = match self.places() {
            Err(_) if 0 < self.wanted.wait_ms && self.asks_others => return Ok(None),
            places => places?,
        };
        let to_others_first = self.turn % TURNS_TO_OTHERS == TURNS_TO_OTHERS - 1;
        let may_wait = 0 < self.wanted.wait_ms;
        let mut first = None;
        for is_here in [!to_others_first, to_others_first] {
            // Who may wait asks all others at once.
            let found = match is_here {
                true => self.look_here(&places).await,
                false if may_wait && !to_others_first => continue,
                false => self.look_elsewhere(&places).await,
            };
            match found {
                Ok(Some(handout)) => return Ok(Some(handout)),
                Ok(None) => {}
                Err(error) => first = first.or(Some(error)),
            }
        }
        match first {
            None if may_wait => Ok(None),
            Some(error) if may_wait && (is_passing(&error) || is_limit(&error)) => Ok(None),
            None => Ok(Some(self.nothing())),
            Some(error) => Err(error),
        }
    }

    async fn look_here(&self, places: &Places) -> Result<Option<Handout>, ApiError> {
        let mut first = None;
        let mut found: Option<Handout> = None;
        for partition in in_turn(&places.here, self.turn) {
            let had = found.as_ref().map_or(0, |found| found.receipts.len());
            let left = self.wanted.max - u32::try_from(had).unwrap_or(self.wanted.max);
            if left == 0 {
                break;
            }
            let wanted = WrittenReceive { max: left, ..self.wanted.clone() };
            match receive_in(self.app, &self.queue, partition, &wanted, None).await {
                Ok(more) if more.is_empty() => {}
                Ok(more) => found = Some(join(found, more)),
                Err(error) => first = first.or(Some(error)),
            }
        }
        match first {
            Some(error) if found.is_none() => Err(error),
            _ => Ok(found),
        }
    }

    async fn look_elsewhere(&self, places: &Places) -> Result<Option<Handout>, ApiError> {
        let mut first = None;
        let leaders: Vec<BrokerId> = places.elsewhere.keys().copied().collect();
        for leader in in_turn(&leaders, self.turn / TURNS_TO_OTHERS) {
            let wanted = WrittenReceive { wait_ms: 0, ..self.wanted.clone() };
            match receive_from(self.app, &self.queue, leader, &wanted).await {
                Ok(found) if found.is_empty() => {}
                Ok(found) => return Ok(Some(found)),
                Err(error) => first = first.or(Some(error)),
            }
        }
        first.map_or(Ok(None), Err)
    }

    /// Waits at all partitions. When one cannot be waited at any more, all are looked for anew.
    async fn wait(&mut self, deadline: Instant) -> Result<Handout, ApiError> {
        loop {
            let waited = match self.places() {
                Ok(places) => self.wait_once(places, deadline).await,
                Err(error) => Err(error),
            };
            let now = Instant::now();
            match waited {
                Ok(handout) if !handout.is_empty() => return Ok(handout),
                Ok(_) if now < deadline && self.has_more_partitions() => {}
                Ok(nothing) if deadline <= now || *self.app.stop.borrow() => return Ok(nothing),
                // What was handed out cannot be read, or a broker stops: nobody may spin on that.
                Ok(_) => sleep_until(deadline.min(now + LOOK_AGAIN_AFTER)).await,
                Err(error) if !is_passing(&error) || deadline <= now + LOOK_AGAIN_AFTER => {
                    return Err(error);
                }
                // A hop is told at once, so that who asked looks for the leaders.
                Err(error) if !self.asks_others => return Err(error),
                Err(_) => sleep(LOOK_AGAIN_AFTER).await,
            }
        }
    }

    /// Whether partitions were added since it was looked for them; from then on they are known.
    fn has_more_partitions(&mut self) -> bool {
        let newest = self.app.queue(self.queue.name.as_str()).ok();
        let newest = newest.filter(|it| it.id == self.queue.id);
        match newest.filter(|it| it.partitions != self.queue.partitions) {
            Some(newest) => {
                self.queue = Arc::new(newest);
                true
            }
            None => false,
        }
    }

    async fn wait_once(&self, places: Places, deadline: Instant) -> Result<Handout, ApiError> {
        let deadline = match places.nowhere.is_empty() {
            true => deadline,
            false => deadline.min(Instant::now() + WITHOUT_LEADER_WAIT),
        };
        let left = deadline.saturating_duration_since(Instant::now());
        let wait_ms = u64::try_from(left.as_millis()).unwrap_or_default();
        let wanted = WrittenReceive { wait_ms, ..self.wanted.clone() };
        let mut waiting = Waiting::default();
        for partition in places.here {
            let (app, queue, wanted) = (self.app.clone(), Arc::clone(&self.queue), wanted.clone());
            let here = waiting.all.spawn(async move {
                receive_in(&app, &queue, partition, &wanted, Some(left)).await
            });
            waiting.here.push(here);
        }
        for leader in places.elsewhere.into_keys() {
            let (app, queue, wanted) = (self.app.clone(), Arc::clone(&self.queue), wanted.clone());
            waiting.all.spawn(async move { receive_from(&app, &queue, leader, &wanted).await });
        }
        let mut stop = self.app.stop.clone();
        let (mut limit, mut is_limited_everywhere) = (None, true);
        let mut until = deadline;
        loop {
            // Whatever else is waited for is called off, or given back, with the others.
            let joined = tokio::select! {
                joined = waiting.all.join_next() => joined,
                _ = stop.changed() => return Ok(self.nothing()),
                () = partitions_added(self.app, &self.queue), if self.asks_others => {
                    return Ok(self.nothing());
                }
                () = sleep_until(until), if limit.is_some() => return Ok(self.nothing()),
            };
            match joined {
                None => {
                    return limit.filter(|_| is_limited_everywhere).map_or(Ok(self.nothing()), Err);
                }
                // Before its time: something is the matter there.
                Some(Ok(Ok(handout))) if handout.is_empty() && Instant::now() < deadline => {
                    return Ok(handout);
                }
                Some(Ok(Ok(handout))) if handout.is_empty() => is_limited_everywhere = false,
                // Others may have something; and it is asked again, since nobody waits there.
                Some(Ok(Err(error))) if is_limit(&error) => {
                    limit = Some(error);
                    until = until.min(Instant::now() + LIMITED_WAIT);
                }
                Some(Ok(found)) => return found,
                // A panic ends the process.
                Some(Err(_)) => {}
            }
        }
    }
}

/// Ends when the queue has other partitions than it had.
async fn partitions_added(app: &App, queue: &TopicView) {
    loop {
        sleep(PARTITIONS_LOOKED_FOR_EVERY).await;
        let image = app.node.driver().image();
        let many = image.topic_by_id(queue.id).map_or(0, |topic| topic.partitions.len());
        if many != queue.partitions.get() as usize {
            return;
        }
    }
}

/// Receivers at several partitions, of whom one is enough.
#[derive(Default)]
struct Waiting {
    all: JoinSet<Result<Handout, ApiError>>,
    /// Those that wait at partitions led here.
    here: Vec<AbortHandle>,
}

impl Drop for Waiting {
    /// Who waits here is called off. An answer of another broker may be on its way: what it hands out is heard, and
    /// given back, or nobody would have it until its time has run out.
    fn drop(&mut self) {
        self.here.iter().for_each(AbortHandle::abort);
        let mut others = std::mem::take(&mut self.all);
        while others.try_join_next().is_some() {}
        if others.is_empty() {
            return;
        }
        tokio::spawn(async move {
            let heard = async { while others.join_next().await.is_some() {} };
            let _ = timeout(LATE_ANSWER_WAIT, heard).await;
        });
    }
}

/// Whether the same may work a little later.
fn is_passing(error: &ApiError) -> bool {
    matches!(error.code, Code::Unavailable | Code::Misdirected)
}

/// Whether receivers hold as much of a partition as they may.
fn is_limit(error: &ApiError) -> bool {
    error.code == Code::LimitReached
}

/// All of them, with another first one each time.
fn in_turn<T: Copy>(all: &[T], turn: u32) -> impl Iterator<Item = T> + '_ {
    let skipped = usize::try_from(turn).unwrap_or_default().checked_rem(all.len()).unwrap_or(0);
    all.iter().cycle().skip(skipped).take(all.len()).copied()
}

fn join(found: Option<Handout>, mut more: Handout) -> Handout {
    let Some(mut found) = found else { return more };
    found.messages.append(&mut more.messages);
    found.receipts.append(&mut more.receipts);
    found.shares.append(&mut more.shares);
    found
}

/// Receives of one partition that is led here.
async fn receive_in(
    app: &App,
    queue: &Arc<TopicView>,
    partition: PartitionIndex,
    wanted: &WrittenReceive,
    wait: Option<Duration>,
) -> Result<Handout, ApiError> {
    let id = queue.partition(partition);
    let subscription = number_in(app, queue, partition, wanted.subscription.as_deref()).await?;
    if wanted.repeats_only && !knows_attempt(app, id, subscription, wanted) {
        return Ok(Handout::new(app, queue, Vec::new()));
    }
    let visibility = wanted.visibility_ms.map(Duration::from_millis);
    let receive = Receive {
        subscription,
        max: wanted.max,
        visibility: visibility.unwrap_or(queue.config.queue.visibility_timeout),
        wait_until: wait.map(|wait| app.node.driver().clock().now().time + wait),
        holder: wanted.holder.as_deref().unwrap_or_default().into(),
        attempt: wanted.attempt_id.as_deref().map(|name| name.as_bytes().into()),
    };
    match app.node.receive(id, receive).await.map_err(refusals::of_unavailable)? {
        Reply::Received { messages, until } => {
            let topic = queue.id;
            let receipts = messages.iter().map(|message| QueueReceipt {
                topic,
                partition,
                subscription,
                receipt: message.receipt,
            });
            let handout = Handout::new(app, queue, receipts.collect());
            Box::pin(read(app, id, handout, &messages, until)).await
        }
        Reply::OverLimit => {
            let held = queue.config.queue.in_flight_max;
            let message = format!("receivers hold {held} messages of a partition of the queue");
            Err(ApiError::new(Code::LimitReached, message)
                .with_help("delete what has been worked, or raise queue.in.flight.max"))
        }
        Reply::UnknownSubscription => Err(no_subscription(&wanted.subscription)),
        _ => Err(ApiError::new(Code::Internal, "the deliveries gave an answer out of turn")),
    }
}

fn knows_attempt(
    app: &App,
    id: TopicPartition,
    subscription: u32,
    wanted: &WrittenReceive,
) -> bool {
    let name = wanted.attempt_id.as_deref().unwrap_or_default().as_bytes();
    let driver = app.node.driver();
    let known =
        driver.with_deliveries(id, |deliveries, _| deliveries.knows_attempt(subscription, name));
    known.unwrap_or(false)
}

/// Reads what was handed out, as much as an answer takes; the rest is given back.
async fn read(
    app: &App,
    id: TopicPartition,
    mut handout: Handout,
    messages: &[Delivery],
    until: QueueTime,
) -> Result<Handout, ApiError> {
    if messages.is_empty() {
        return Ok(handout);
    }
    let offsets: Vec<Offset> = messages.iter().map(|message| message.receipt.offset).collect();
    let (Read { mut found, damaged, gone, .. }, share) =
        read_stored(app, &handout.queue, id, &offsets).await?;
    handout.shares.push(share);
    let left = app.node.driver().with_deliveries(id, |deliveries, now| deliveries.left(now, until));
    let left = left.map_or(0, |left| i64::try_from(left.as_millis()).unwrap_or(i64::MAX));
    let visible_again_ms = app.node.driver().clock().now().wall.0.saturating_add(left);
    let mut kept = Vec::with_capacity(found.len());
    let (mut not_read, mut done_with) = (Vec::new(), Vec::new());
    for (delivery, receipt) in messages.iter().zip(std::mem::take(&mut handout.receipts)) {
        if damaged.contains(&delivery.receipt.offset) {
            // Given back it would come first again, and nothing after it would ever come. So it stays held,
            // counts as received, and goes where the queue wants what is received too often.
            continue;
        }
        if gone.contains(&delivery.receipt.offset) {
            done_with.push(receipt);
            continue;
        }
        let Some(stored) = found.remove(&delivery.receipt.offset) else {
            not_read.push(receipt);
            continue;
        };
        handout.messages.push(Handed {
            stored,
            receives: delivery.receives,
            first_received_ms: delivery.first_received.0,
            receipt,
            visible_again_ms,
        });
        kept.push(receipt);
    }
    handout.receipts = kept;
    give_back(app, &handout.queue, not_read);
    forget_gone(app, &handout.queue, id, done_with);
    Ok(handout)
}

/// Of messages without records nothing is left to work. There are some where it was forgotten that they were done
/// with: after a loss of deliveries that somebody has accepted.
fn forget_gone(app: &App, queue: &Arc<TopicView>, id: TopicPartition, receipts: Vec<QueueReceipt>) {
    if receipts.is_empty() {
        return;
    }
    tracing::warn!(queue = %queue.name, partition = %id.partition, messages = receipts.len(),
        "messages that were to be delivered have no record any more: they were done with before \
         deliveries were lost, and are done with again");
    settle_quietly(app, queue, Verb::Delete, receipts);
}

/// Reads messages, as many as an answer takes, and the share of memory that they have then. Where there is damage,
/// its limits are looked for from now on.
pub(super) async fn read_stored(
    app: &App,
    queue: &TopicView,
    id: TopicPartition,
    offsets: &[Offset],
) -> Result<(Read, Share), ApiError> {
    let largest = usize::try_from(queue.config.max_message_bytes).unwrap_or(usize::MAX);
    let many = offsets.len().saturating_mul(largest);
    // As much as there may be, until it is known how much there is.
    let reading = app.memory.take(many.min(QUEUE_ANSWER_BYTES.max(largest))).await?;
    let read = read_each(app, id, offsets, QUEUE_ANSWER_BYTES).await;
    let read = read.map_err(|error| refusals::of_read_messages(&error))?;
    read.damaged.iter().for_each(|offset| app.node.driver().doubt(id, *offset));
    let bytes: usize = read.found.values().map(size).sum();
    drop(reading);
    // Once as they are, and once as JSON.
    let share = app.memory.take(2 * bytes).await?;
    Ok((read, share))
}

/// Receives from another broker, of the partitions that it leads.
async fn receive_from(
    app: &App,
    queue: &Arc<TopicView>,
    broker: BrokerId,
    wanted: &WrittenReceive,
) -> Result<Handout, ApiError> {
    let path = format!("/queues/{}/receive", queue.name);
    let wanted = WrittenReceive { all_headers: true, ..wanted.clone() };
    let body = serde_json::to_vec(&wanted).expect("texts and numbers are JSON");
    let asked = ask(app, broker, &Method::POST, &path, body.into()).await;
    let response = asked.map_err(crate::forward::NotAsked::into_error)?;
    let bytes = to_bytes(response.into_body(), QUEUE_ANSWER_BYTES_MAX).await.map_err(|_| {
        let message = format!("the answer of broker {broker} broke off");
        ApiError::new(Code::Unavailable, message).with_help("try again")
    })?;
    let received = match parse_json::<Told>(&bytes)? {
        Told::Received(received) => received,
        Told::Failed { error } => return Err(error.into_error()),
    };
    let messages: Result<Vec<Handed>, ApiError> =
        received.messages.into_iter().map(ReceivedMessage::into_handed).collect();
    let messages = messages?;
    let receipts = messages.iter().map(|message| message.receipt).collect();
    let mut handout = Handout::new(app, queue, receipts);
    handout.messages = messages;
    handout.shares.push(app.memory.take(2 * bytes.len()).await?);
    Ok(handout)
}

/// What another broker answers to a receive.
#[derive(Deserialize)]
#[serde(untagged)]
enum Told {
    Failed { error: Failed },
    Received(Received),
}

#[cfg(test)]
mod tests {
    use super::*;

    fn written(json: &str) -> Result<WrittenReceive, ApiError> {
        let written: WrittenReceive = parse_json(json.as_bytes())?;
        written.check().map(|()| written)
    }

    #[test]
    fn the_name_of_a_holder_is_cut_between_two_characters() {
        assert_eq!(short_name("me"), "me");
        let long = "ü".repeat(NAME_BYTES_MAX);
        assert_eq!(short_name(&long).len(), NAME_BYTES_MAX);
        assert_eq!(short_name(&format!("a{long}")).len(), NAME_BYTES_MAX - 1);
    }

    #[test]
    fn a_receive_says_what_it_wants_within_bounds() {
        let usual = written("{}").unwrap();
        assert_eq!((usual.max, usual.wait_ms, usual.visibility_ms), (1, 0, None));
        written(r#"{"max":500,"wait_ms":20000,"visibility_ms":43200000}"#).unwrap();
        for json in [
            r#"{"max":0}"#,
            r#"{"max":501}"#,
            r#"{"wait_ms":20001}"#,
            r#"{"visibility_ms":43200001}"#,
        ] {
            assert_eq!(written(json).unwrap_err().code, Code::InvalidRequest, "{json}");
        }
        assert_eq!(written(r#"{"maximum":1}"#).unwrap_err().code, Code::InvalidJson);
    }

    #[test]
    fn turns_begin_everywhere_and_leave_nobody_out() {
        let turn = |turn| in_turn(&[1, 2, 3], turn).collect::<Vec<_>>();
        assert_eq!([turn(0), turn(1), turn(5)], [vec![1, 2, 3], vec![2, 3, 1], vec![3, 1, 2]]);
        assert_eq!(in_turn::<u8>(&[], 7).count(), 0);
    }

    #[test]
    fn a_received_message_survives_a_hop() {
        let json = r#"{"messages":[{"id":"0-1","value":"/w==","value_encoding":"base64","group":null,
            "headers":[{"name":"a","value":null}],"sent_ms":1,"receives":2,"first_received_ms":3,
            "receipt":"r","visible_again_ms":4}]}"#;
        let Told::Received(received) = parse_json(json.as_bytes()).unwrap() else {
            panic!("these are messages")
        };
        let written: serde_json::Value = serde_json::to_value(&received).unwrap();
        assert_eq!(written, serde_json::from_str::<serde_json::Value>(json).unwrap());
    }
}
