//! Messages that other brokers take: passed on, one request for each broker, in which they keep their order.

use std::collections::BTreeMap;

use bytes::Bytes;
use serde::Deserialize;
use serde_json::{Map, Value};
use tokio::time::{Duration, sleep};
use towpath_model::{BrokerId, PartitionIndex, TopicPartition};

use crate::api_error::{ApiError, Code};
use crate::app::{App, TopicView};
use crate::batch_answer::{Asked, ask_many};
use crate::body::parse_json;
use crate::forward::{leader_of, misdirected};
use crate::message::PublishedMessage;

/// How long the metadata has to follow a change before brokers are asked again.
pub(crate) const LOOK_AGAIN_AFTER: Duration = Duration::from_millis(200);

/// A message that goes elsewhere.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Elsewhere {
    /// Its place in the request.
    pub(crate) at: usize,
    /// Where it belongs.
    pub(crate) partition: PartitionIndex,
    /// Whose leader takes it: that partition, or the one that keeps the results of its producer.
    pub(crate) by: TopicPartition,
}

pub(crate) type Outcome = (usize, Result<PublishedMessage, ApiError>);

/// A body as it was written: one message or several.
#[derive(Deserialize)]
#[serde(untagged)]
enum Written {
    Many { messages: Vec<Map<String, Value>> },
    One(Map<String, Value>),
}

/// Publishes messages of `body` that other brokers take.
pub(crate) async fn publish(
    app: &App,
    topic: &TopicView,
    body: &Bytes,
    mut rest: Vec<Elsewhere>,
) -> Vec<Outcome> {
    if rest.is_empty() {
        return Vec::new();
    }
    let written = match parse_json::<Written>(body) {
        Ok(Written::Many { messages }) => messages,
        Ok(Written::One(message)) => vec![message],
        Err(error) => return rest.into_iter().map(|one| (one.at, Err(error.clone()))).collect(),
    };
    let mut done = Vec::with_capacity(rest.len());
    for is_last in [false, true] {
        rest = publish_once(app, topic, &written, rest, &mut done).await;
        if rest.is_empty() || is_last {
            break;
        }
        sleep(LOOK_AGAIN_AFTER).await;
    }
    done.extend(rest.into_iter().map(|one| (one.at, Err(not_taken(app, topic, &one)))));
    done
}

/// Why nobody has taken a message.
pub(crate) fn not_taken(app: &App, topic: &TopicView, one: &Elsewhere) -> ApiError {
    let text = match leader_of(app, one.by) {
        Some(leader) => return misdirected(leader),
        None if one.by == topic.partition(one.partition) => {
            format!("partition {} of {} has no leader", one.partition.0, topic.name)
        }
        None => "nobody keeps the results of the producer at the moment".to_owned(),
    };
    ApiError::new(Code::Unavailable, text).with_help("try again")
}

/// Asks every broker once, all at the same time; gives back what none of them has taken.
pub(crate) async fn publish_once(
    app: &App,
    topic: &TopicView,
    written: &[Map<String, Value>],
    messages: Vec<Elsewhere>,
    done: &mut Vec<Outcome>,
) -> Vec<Elsewhere> {
    let mut left = Vec::new();
    let mut by_leader: BTreeMap<BrokerId, Vec<Elsewhere>> = BTreeMap::new();
    for one in messages {
        match leader_of(app, one.by) {
            Some(leader) => by_leader.entry(leader).or_default().push(one),
            None => left.push(one),
        }
    }
    let mut asked = Vec::new();
    for (leader, messages) in by_leader {
        let body = body_of(written, &messages);
        let (app, path) = (app.clone(), format!("/topics/{}/messages", topic.name));
        let task = tokio::spawn(async move { ask_many(&app, leader, &path, body).await });
        asked.push((messages, task));
    }
    for (messages, task) in asked {
        match task.await {
            Ok(Asked::Answered(Ok(results))) if results.len() == messages.len() => {
                done.extend(messages.into_iter().map(|one| one.at).zip(results));
            }
            Ok(Asked::Answered(Err(error))) => {
                done.extend(messages.into_iter().map(|one| (one.at, Err(error.clone()))));
            }
            Ok(Asked::InDoubt(error)) => {
                let error = in_doubt(error);
                done.extend(messages.into_iter().map(|one| (one.at, Err(error.clone()))));
            }
            Ok(Asked::NotTaken) => left.extend(messages),
            _ => done.extend(messages.into_iter().map(|one| {
                let error = ApiError::new(Code::Internal, "a broker answered something else");
                (one.at, Err(error))
            })),
        }
    }
    left
}

/// The messages as they were written, each with the partition that was chosen for it here.
fn body_of(written: &[Map<String, Value>], messages: &[Elsewhere]) -> Bytes {
    let named = messages.iter().filter_map(|one| {
        let mut message = written.get(one.at)?.clone();
        message.insert("partition".to_owned(), one.partition.0.into());
        Some(Value::Object(message))
    });
    let mut body = Map::new();
    body.insert("messages".to_owned(), Value::Array(named.collect()));
    Value::Object(body).to_string().into()
}

fn in_doubt(error: ApiError) -> ApiError {
    ApiError::new(Code::NotCommittedInTime, error.message).with_help(
        "it may have been published or not; with producer_id and sequence a repeat is safe",
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    fn written(text: &str) -> Vec<Map<String, Value>> {
        match serde_json::from_str(text).unwrap() {
            Written::Many { messages } => messages,
            Written::One(message) => vec![message],
        }
    }

    #[test]
    fn messages_are_passed_on_as_they_were_written_with_their_partition() {
        let many =
            written(r#"{"messages":[{"value":"a"},{"value":null,"key":"k"},{"value":"c"}]}"#);
        let elsewhere = |at, index| {
            let partition = PartitionIndex(index);
            let by = TopicPartition { topic: towpath_model::Uuid::ZERO, partition };
            Elsewhere { at, partition, by }
        };
        let body = body_of(&many, &[elsewhere(1, 7), elsewhere(2, 0)]);
        let expected =
            r#"{"messages":[{"key":"k","partition":7,"value":null},{"partition":0,"value":"c"}]}"#;
        assert_eq!(body, expected);
        let one = written(r#"{"value":"a"}"#);
        assert_eq!(
            body_of(&one, &[elsewhere(0, 3)]),
            r#"{"messages":[{"partition":3,"value":"a"}]}"#
        );
    }
}
