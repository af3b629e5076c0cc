//! What becomes of received messages: deleted, kept for longer, given back, rejected; each by its receipt,
//! at whoever leads the partition that the receipt names.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use axum::http::HeaderMap;
use axum::response::Response;
use serde::{Deserialize, Serialize};
use tokio::task::JoinSet;
use tokio::time::sleep;
use towpath_model::{BrokerId, TopicPartition};
use towpath_queue::{LEASE_MAX, Receipt, ReceiptOutcome, Reply, Request};

use crate::api_error::{ApiError, Code};
use crate::app::{App, TopicView};
use crate::batch_answer::{Asked, answer_many, ask_many};
use crate::forward::{is_hop, leader_of, misdirected};
use crate::publish_elsewhere::LOOK_AGAIN_AFTER;
use crate::refusals;

use super::place::{no_leader, no_subscription};
use super::receipt::QueueReceipt;

/// The longest text that a worker may say of a message.
const NOTE_BYTES_MAX: usize = 1_024;

/// What is to become of messages.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Verb {
    /// They have been worked.
    Delete,
    /// They are kept for so long from now on, each.
    Extend,
    /// They could not be worked now, and come back: after the delay, or when the queue's policy says.
    Release {
        /// Nothing: the queue's retry policy says.
        delay: Option<Duration>,
        /// What went wrong, for people.
        note: Option<Arc<str>>,
    },
    /// Nobody took them; that they were handed out does not count.
    GiveBack,
    /// They cannot be worked, ever.
    Reject {
        /// Why, for people.
        note: Arc<str>,
    },
}

/// Which message, and for how long it is kept, where it is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Named {
    pub(crate) receipt: QueueReceipt,
    pub(crate) visibility: Duration,
}

/// Nothing more is to be said of what was done.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Settled {}

type Results = Vec<Option<Result<Settled, ApiError>>>;

/// Carries it out; the results are in the order of the receipts. `asks_others`: receipts of partitions that
/// other brokers lead are passed on to those.
pub(crate) async fn settle(
    app: &App,
    queue: &TopicView,
    verb: &Verb,
    named: Vec<Result<Named, ApiError>>,
    asks_others: bool,
) -> Vec<Result<Settled, ApiError>> {
    let mut results: Results = named.iter().map(|_| None).collect();
    let mut rest = Vec::new();
    for (at, named) in named.into_iter().enumerate() {
        match named.and_then(|named| check(queue, named)) {
            Ok(named) => rest.push((at, named)),
            Err(error) => results[at] = Some(Err(error)),
        }
    }
    for is_last in [false, true] {
        rest = settle_once(app, queue, verb, rest, asks_others, &mut results).await;
        if rest.is_empty() || is_last || !asks_others {
            break;
        }
        sleep(LOOK_AGAIN_AFTER).await;
    }
    for (at, named) in rest {
        let leader = leader_of(app, named.receipt.place());
        results[at] = Some(Err(leader.map_or_else(|| no_leader(queue), misdirected)));
    }
    let lost = || Err(ApiError::new(Code::Internal, "the receipt was not answered"));
    results.into_iter().map(|result| result.unwrap_or_else(lost)).collect()
}

fn check(queue: &TopicView, named: Named) -> Result<Named, ApiError> {
    let QueueReceipt { topic, partition, .. } = named.receipt;
    let exists = u32::try_from(partition.0).is_ok_and(|index| index < queue.partitions.get());
    if topic == queue.id && exists {
        return Ok(named);
    }
    let message = format!("the receipt is not one of queue {:?}", queue.name.as_str());
    Err(ApiError::new(Code::InvalidReceipt, message)
        .with_help("a queue that was deleted and created again does not know earlier receipts"))
}

/// Asks everybody concerned once, all at the same time; gives back what nobody has taken.
async fn settle_once(
    app: &App,
    queue: &TopicView,
    verb: &Verb,
    named: Vec<(usize, Named)>,
    asks_others: bool,
    results: &mut Results,
) -> Vec<(usize, Named)> {
    let me = app.node.driver().broker_id();
    let mut left = Vec::new();
    let mut here: BTreeMap<(TopicPartition, u32), Vec<(usize, Named)>> = BTreeMap::new();
    let mut elsewhere: BTreeMap<BrokerId, Vec<(usize, Named)>> = BTreeMap::new();
    for one in named {
        let receipt = one.1.receipt;
        match leader_of(app, receipt.place()) {
            Some(leader) if leader == me => {
                here.entry((receipt.place(), receipt.subscription)).or_default().push(one);
            }
            Some(leader) if asks_others => elsewhere.entry(leader).or_default().push(one),
            _ => left.push(one),
        }
    }
    // Most requests are about one partition, and need no tasks.
    if elsewhere.is_empty() && here.len() == 1 {
        for ((id, subscription), named) in here {
            let answer = settle_here(app, id, verb, request(verb, subscription, &named)).await;
            left.extend(take(results, named, answer));
        }
        return left;
    }
    let mut asked = JoinSet::new();
    for ((id, subscription), named) in here {
        let (app, verb, request) = (app.clone(), verb.clone(), request(verb, subscription, &named));
        asked.spawn(async move { (named, settle_here(&app, id, &verb, request).await) });
    }
    for (leader, named) in elsewhere {
        let (app, body) = (app.clone(), body(verb, &named).to_string().into());
        let path = format!("/queues/{}/{}", queue.name, path(verb));
        asked.spawn(async move { (named, ask_many(&app, leader, &path, body).await) });
    }
    while let Some(joined) = asked.join_next().await {
        // A panic ends the process, and nothing else cancels these tasks.
        let Ok((named, answer)) = joined else { continue };
        left.extend(take(results, named, answer));
    }
    left
}

async fn settle_here(
    app: &App,
    id: TopicPartition,
    verb: &Verb,
    request: Request,
) -> Asked<Settled> {
    let reply = app.node.ask_deliveries(id, request).await.map_err(refusals::of_unavailable);
    Asked::Answered(reply.and_then(|reply| outcomes(reply, *verb == Verb::Delete)))
}

/// Notes what was answered about some receipts; gives back those that nobody has taken.
fn take(
    results: &mut Results,
    named: Vec<(usize, Named)>,
    answer: Asked<Settled>,
) -> Vec<(usize, Named)> {
    match answer {
        Asked::NotTaken => return named,
        Asked::Answered(Ok(found)) if found.len() == named.len() => {
            named.into_iter().zip(found).for_each(|((at, _), found)| results[at] = Some(found));
        }
        Asked::Answered(Err(error)) => fail(results, &named, &error),
        Asked::InDoubt(error) => {
            let error = error.with_help("it may have been done or not: a repeat is safe");
            fail(results, &named, &error);
        }
        Asked::Answered(Ok(_)) => {
            let error = ApiError::new(Code::Internal, "a broker answered something else");
            fail(results, &named, &error);
        }
    }
    Vec::new()
}

fn fail(results: &mut Results, named: &[(usize, Named)], error: &ApiError) {
    named.iter().for_each(|(at, _)| results[*at] = Some(Err(error.clone())));
}

fn request(verb: &Verb, subscription: u32, named: &[(usize, Named)]) -> Request {
    let receipts =
        || -> Vec<Receipt> { named.iter().map(|(_, one)| one.receipt.receipt).collect() };
    match verb {
        Verb::Delete => Request::Delete { subscription, receipts: receipts() },
        Verb::Extend => {
            let receipts = named.iter().map(|(_, one)| (one.receipt.receipt, one.visibility));
            Request::Extend { subscription, receipts: receipts.collect() }
        }
        Verb::Release { delay, note } => Request::Release {
            subscription,
            receipts: receipts(),
            delay: *delay,
            note: note.clone(),
        },
        Verb::GiveBack => Request::Unclaim { subscription, receipts: receipts() },
        Verb::Reject { note } => {
            Request::Reject { subscription, receipts: receipts(), note: Arc::clone(note) }
        }
    }
}

/// What became of each. A message that is settled is as gone as who deletes it wants it.
fn outcomes(reply: Reply, is_delete: bool) -> Result<Vec<Result<Settled, ApiError>>, ApiError> {
    match reply {
        Reply::Receipts(outcomes) => Ok(outcomes
            .into_iter()
            .map(|found| match found {
                ReceiptOutcome::Settled if is_delete => Ok(Settled {}),
                found => outcome(found),
            })
            .collect()),
        Reply::UnknownSubscription => Err(no_subscription("of the receipt")),
        _ => Err(ApiError::new(Code::Internal, "the deliveries gave an answer out of turn")),
    }
}

fn outcome(outcome: ReceiptOutcome) -> Result<Settled, ApiError> {
    let stale = |message: &str| Err(ApiError::new(Code::ReceiptStale, message));
    match outcome {
        ReceiptOutcome::Done => Ok(Settled {}),
        ReceiptOutcome::Settled => stale("the message is settled already"),
        ReceiptOutcome::Expired => stale("the message is not held any more: its time has run out"),
        ReceiptOutcome::Superseded => stale("the message was delivered anew since"),
        ReceiptOutcome::TooLong => {
            let hours = LEASE_MAX.as_secs() / 3600;
            let message = format!("a message is held for {hours} hours at most, altogether");
            Err(ApiError::new(Code::LimitReached, message))
        }
        ReceiptOutcome::Unknown => {
            Err(ApiError::new(Code::InvalidReceipt, "there was no such delivery"))
        }
    }
}

fn path(verb: &Verb) -> &'static str {
    match verb {
        Verb::Delete => "delete",
        Verb::Extend => "extend",
        Verb::Release { .. } | Verb::GiveBack => "release",
        Verb::Reject { .. } => "reject",
    }
}

/// Carries it out, for a handler.
pub(super) async fn answer(
    app: &App,
    queue: &TopicView,
    verb: &Verb,
    named: Vec<Result<Named, ApiError>>,
    headers: &HeaderMap,
) -> Result<Response, ApiError> {
    let results = settle(app, queue, verb, named, !is_hop(headers)).await;
    let is_misdirected = |result: &Result<Settled, ApiError>| matches!(result, Err(e) if e.code == Code::Misdirected);
    if is_hop(headers) && results.iter().all(is_misdirected) {
        // Who asked may ask somebody else.
        return Err(misdirected(app.node.driver().broker_id()));
    }
    Ok(answer_many(results))
}

/// Receipts as texts, each of which may be none.
pub(super) fn read_receipts(texts: Vec<String>) -> Result<Vec<Result<Named, ApiError>>, ApiError> {
    refuse_none(texts.len())?;
    let read = |text: String| Ok(Named { receipt: text.parse()?, visibility: Duration::ZERO });
    Ok(texts.into_iter().map(read).collect())
}

pub(super) fn refuse_none(receipts: usize) -> Result<(), ApiError> {
    match receipts {
        0 => Err(ApiError::new(Code::InvalidRequest, "receipts is empty")),
        _ => Ok(()),
    }
}

/// What a worker says of a message is kept with it.
pub(super) fn check_note(note: Option<&str>) -> Result<(), ApiError> {
    if note.is_none_or(|note| note.len() <= NOTE_BYTES_MAX) {
        return Ok(());
    }
    let message = format!("note has at most {NOTE_BYTES_MAX} bytes");
    Err(ApiError::new(Code::InvalidRequest, message))
}

/// A receipt as a body has it.
#[derive(Debug, Serialize, Deserialize)]
#[serde(untagged, expecting = "a receipt is a text, or {receipt, visibility_ms}")]
pub(super) enum WrittenReceipt {
    Text(String),
    For(ReceiptFor),
}

/// A receipt with a time of its own.
#[derive(Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct ReceiptFor {
    pub(super) receipt: String,
    pub(super) visibility_ms: u64,
}

/// A body as [`path`] takes it; what is not said is left out.
#[derive(Debug, Default, Serialize)]
struct Body {
    receipts: Vec<WrittenReceipt>,
    #[serde(skip_serializing_if = "Option::is_none")]
    delay_ms: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    note: Option<String>,
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    uncounted: bool,
}

fn body(verb: &Verb, named: &[(usize, Named)]) -> String {
    let written = |named: &Named| match verb {
        Verb::Extend => WrittenReceipt::For(ReceiptFor {
            receipt: named.receipt.to_string(),
            visibility_ms: milliseconds(named.visibility),
        }),
        _ => WrittenReceipt::Text(named.receipt.to_string()),
    };
    let receipts = named.iter().map(|(_, one)| written(one)).collect();
    let body = match verb {
        Verb::Delete | Verb::Extend => Body { receipts, ..Body::default() },
        Verb::Release { delay, note } => {
            let delay_ms = delay.map(milliseconds);
            Body { receipts, delay_ms, note: note.as_deref().map(str::to_owned), ..Body::default() }
        }
        Verb::GiveBack => Body { receipts, uncounted: true, ..Body::default() },
        Verb::Reject { note } => Body { receipts, note: Some(note.to_string()), ..Body::default() },
    };
    serde_json::to_string(&body).expect("texts and numbers are JSON")
}

fn milliseconds(duration: Duration) -> u64 {
    u64::try_from(duration.as_millis()).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests {
    use towpath_model::{Offset, PartitionIndex, Uuid};

    use super::*;

    fn named() -> Vec<(usize, Named)> {
        let receipt = QueueReceipt {
            topic: Uuid([1; 16]),
            partition: PartitionIndex(0),
            subscription: 0,
            receipt: Receipt { offset: Offset(5), lease: 9 },
        };
        vec![(0, Named { receipt, visibility: Duration::from_secs(2) })]
    }

    #[test]
    fn what_is_passed_on_says_no_more_than_what_was_asked() {
        let text = named()[0].1.receipt.to_string();
        assert_eq!(body(&Verb::Delete, &named()), format!(r#"{{"receipts":["{text}"]}}"#));
        assert_eq!(
            body(&Verb::Extend, &named()),
            format!(r#"{{"receipts":[{{"receipt":"{text}","visibility_ms":2000}}]}}"#)
        );
        assert_eq!(
            body(&Verb::GiveBack, &named()),
            format!(r#"{{"receipts":["{text}"],"uncounted":true}}"#)
        );
        let release = Verb::Release { delay: Some(Duration::ZERO), note: Some("busy".into()) };
        assert_eq!(
            body(&release, &named()),
            format!(r#"{{"receipts":["{text}"],"delay_ms":0,"note":"busy"}}"#)
        );
    }

    #[test]
    fn receipts_that_prove_nothing_have_errors_of_their_own() {
        let outcomes = [ReceiptOutcome::Done, ReceiptOutcome::Superseded, ReceiptOutcome::Unknown];
        let codes = outcomes.map(|found| outcome(found).err().map(|error| error.code));
        assert_eq!(codes, [None, Some(Code::ReceiptStale), Some(Code::InvalidReceipt)]);
    }

    #[test]
    fn deleting_again_is_no_error_and_keeping_what_is_gone_is_one() {
        let settled = || Reply::Receipts(vec![ReceiptOutcome::Settled]);
        assert_eq!(outcomes(settled(), true).unwrap()[0], Ok(Settled {}));
        let kept = outcomes(settled(), false).unwrap().remove(0);
        assert_eq!(kept.unwrap_err().code, Code::ReceiptStale);
    }
}
