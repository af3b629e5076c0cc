//! Writes a record as any producer does and reads it back as any consumer does: what `towpath dev`
//! does before it says that it is ready.

use std::time::Duration;

use towpath_driver::{Clock, DiskFile, ReadLimits};
use towpath_metadata::{NewTopic, Refusal};
use towpath_model::{PartitionIndex, TopicPartition};
use towpath_records::{BatchBuilder, Compression, split_batches};
use towpath_replication::Acks;

use crate::node::{Node, Unavailable, random_uuid};
use crate::publish::PublishError;

/// The topic of these records. Its name makes it one of the broker's own, which are not listed.
const SELF_TEST_TOPIC: &str = "__towpath_selftest";

/// How long the record may take to be committed.
const SELF_TEST_WAIT: Duration = Duration::from_secs(10);

/// Most bytes of the record's batch, read back.
const READ_BYTES: usize = 4096;

/// Why the broker does not work.
#[derive(Debug, thiserror::Error)]
pub enum SelfTestError {
    /// The topic cannot be made.
    #[error("no topic for the self-test: {0}")]
    NoTopic(String),
    /// The metadata does not answer.
    #[error(transparent)]
    Unavailable(#[from] Unavailable),
    /// The record cannot be written.
    #[error("the record of the self-test was not written: {0}")]
    NotWritten(#[from] PublishError),
    /// The record cannot be read.
    #[error("the record of the self-test cannot be read: {0}")]
    NotRead(String),
}

impl Node {
    /// Writes a record, waits until it is committed, and reads it back.
    ///
    /// # Errors
    /// [`SelfTestError`] names the step that failed.
    pub async fn self_test(&self) -> Result<(), SelfTestError> {
        let (id, config) = match self.self_test_place() {
            Some(place) => place,
            None => {
                self.create_self_test_topic().await?;
                let none = || SelfTestError::NoTopic("it was created and is not there".to_owned());
                self.self_test_place().ok_or_else(none)?
            }
        };
        let value = random_uuid().to_string();
        let timestamp = self.driver().clock().now().wall;
        let mut builder = BatchBuilder::new(Compression::None, timestamp);
        builder
            .append(timestamp, None, Some(value.as_bytes()), [])
            .expect("an empty batch takes a record of 36 bytes");
        let appended = self.append(id, &config, &mut builder.build(), Acks::All)?;
        let offset = self.acknowledged(appended, SELF_TEST_WAIT).await?.base_offset;

        let limits = ReadLimits { max_bytes: READ_BYTES, at_least_one_batch: true };
        let read = self.driver().read(id, None, offset, false, limits);
        let read = read.map_err(|refusal| SelfTestError::NotRead(refusal.to_string()))?;
        let slice = read.slice.ok_or_else(|| SelfTestError::NotRead("it is gone".to_owned()))?;
        let mut bytes = vec![0; slice.len];
        let found = slice.file.read_at(&mut bytes, slice.position);
        found.map_err(|error| SelfTestError::NotRead(error.to_string()))?;
        let is_there = split_batches(&bytes).any(|batch| {
            batch.header.base_offset() == offset
                && batch.check_crc().is_ok()
                && batch.body().windows(value.len()).any(|window| window == value.as_bytes())
        });
        is_there.then_some(()).ok_or_else(|| SelfTestError::NotRead("it is another one".to_owned()))
    }

    fn self_test_place(&self) -> Option<(TopicPartition, towpath_model::properties::TopicConfig)> {
        let image = self.driver().image();
        let topic = image.topic(SELF_TEST_TOPIC)?;
        let id = TopicPartition { topic: topic.id, partition: PartitionIndex(0) };
        Some((id, image.effective_config(topic)))
    }

    async fn create_self_test_topic(&self) -> Result<(), SelfTestError> {
        let config = |name: &str, value: &str| (name.to_owned(), Some(value.to_owned()));
        let topic = NewTopic {
            partitions: 1,
            internal: true,
            configs: vec![
                config("cleanup.policy", "delete"),
                config("retention.ms", "60000"),
                config("segment.bytes", "1048576"),
                config("segment.ms", "60000"),
            ],
            ..NewTopic::named(SELF_TEST_TOPIC, random_uuid())
        };
        match self.create_topics(vec![topic]).await?.into_iter().next() {
            Some((_, Ok(_) | Err(Refusal::TopicExists(_)))) => Ok(()),
            Some((_, Err(refusal))) => Err(SelfTestError::NoTopic(refusal.to_string())),
            None => Err(SelfTestError::NoTopic("no answer".to_owned())),
        }
    }
}
