//! Batches into a produce request, and its answer back into verdicts.

use std::collections::BTreeMap;
use std::sync::Arc;

use towpath_protocol::messages::{
    PartitionProduceData, ProduceRequest, ProduceResponse, TopicProduceData,
};
use towpath_protocol::{Blob, Uuid};

use super::batch::Batch;
use super::config::{Acks, ProducerConfig};
use super::verdict::Verdict;
use crate::error::{Error, Result};
use crate::image::Image;
use crate::news::LeaderNews;
use crate::record::TopicPartition;
use crate::wire::{Answer, Connection, Pending};

/// One partition's share of a request.
pub(super) struct Part {
    pub(super) partition: TopicPartition,
    pub(super) batch: Batch,
}

pub(super) enum Submitted {
    Awaited(Pending),
    /// Nobody will answer: acks=0.
    Unanswered,
    /// It did not leave.
    NotNow(Error),
}

/// The first version that names topics by id (KIP-516).
const BY_TOPIC_ID: i16 = 13;

/// Hands a request for `parts` to the connection.
pub(super) fn submit(
    connection: &Connection,
    config: &ProducerConfig,
    image: &Image,
    parts: &[Part],
) -> Submitted {
    let Some(place) = connection.try_reserve() else {
        return Submitted::NotNow(Error::Disconnected {
            address: connection.address().to_owned(),
            cause: "too many requests are waiting".to_owned(),
        });
    };
    let submitted = encode(config, parts).and_then(|encoded| {
        let ids = topic_ids(image, parts);
        let highest = if ids.is_some() { BY_TOPIC_ID } else { BY_TOPIC_ID - 1 };
        let version = connection.version_up_to::<ProduceRequest<'_>>(highest)?;
        let request = ProduceRequest {
            transactional_id: None,
            acks: config.acks.on_the_wire(),
            timeout_ms: i32::try_from(config.request_timeout.as_millis()).unwrap_or(i32::MAX),
            topic_data: topics(parts, &encoded, ids.as_ref()),
        };
        if config.acks == Acks::None {
            connection.submit_unanswered(place, version, &request)?;
            return Ok(Submitted::Unanswered);
        }
        // The broker itself waits up to the request timeout; its answer needs a moment more.
        let patience = config.request_timeout + config.request_timeout / 10;
        connection.submit_in(place, version, &request, patience).map(Submitted::Awaited)
    });
    submitted.unwrap_or_else(Submitted::NotNow)
}

fn encode(config: &ProducerConfig, parts: &[Part]) -> Result<Vec<Vec<u8>>> {
    parts.iter().map(|part| part.batch.encode(config.compression)).collect()
}

/// The ids of all topics, unless one of them is not known.
fn topic_ids(image: &Image, parts: &[Part]) -> Option<BTreeMap<Arc<str>, Uuid>> {
    parts
        .iter()
        .map(|part| {
            let id = image.topics.get(&part.partition.topic)?.id;
            (!id.is_zero()).then(|| (part.partition.topic.clone(), id))
        })
        .collect()
}

fn topics<'a>(
    parts: &'a [Part],
    encoded: &'a [Vec<u8>],
    ids: Option<&BTreeMap<Arc<str>, Uuid>>,
) -> Vec<TopicProduceData<'a>> {
    let mut by_topic: BTreeMap<&'a Arc<str>, Vec<PartitionProduceData<'a>>> = BTreeMap::new();
    for (part, bytes) in parts.iter().zip(encoded) {
        by_topic.entry(&part.partition.topic).or_default().push(PartitionProduceData {
            index: part.partition.partition.0,
            records: Some(Blob::Bytes(bytes)),
        });
    }
    by_topic
        .into_iter()
        .map(|(topic, partition_data)| TopicProduceData {
            name: topic,
            topic_id: ids.and_then(|ids| ids.get(topic).copied()).unwrap_or(Uuid::ZERO),
            partition_data,
        })
        .collect()
}

/// What the answer says about each partition, and about who leads.
pub(super) fn verdicts(
    answer: &Answer,
    image: &Image,
) -> Result<(BTreeMap<TopicPartition, Verdict>, LeaderNews)> {
    let response: ProduceResponse<'_> = answer.read()?;
    let mut news = LeaderNews::of_produce(&response);
    let mut verdicts = BTreeMap::new();
    for topic in &response.responses {
        let name: Arc<str> = if answer.version < BY_TOPIC_ID {
            topic.name.into()
        } else {
            match image.topic_of_id(topic.topic_id) {
                Some(topic) => topic.name.clone(),
                // Deleted meanwhile: its batches find no verdict, and try again with new metadata.
                None => continue,
            }
        };
        for partition in &topic.partition_responses {
            let place = TopicPartition::new(name.clone(), partition.index);
            let verdict = Verdict::of(&place, partition);
            news.produced(&place, partition);
            verdicts.insert(place, verdict);
        }
    }
    Ok((verdicts, news))
}
