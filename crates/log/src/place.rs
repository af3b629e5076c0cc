//! Where a log lies inside a data directory.

use std::path::{Path, PathBuf};

use towpath_model::{Offset, PartitionIndex, TopicId, TopicName, TopicPartition, Uuid};

/// Most bytes of a topic's name that its directory carries; the id follows and is what counts.
const NAME_BYTES_MAX: usize = 200;
/// Characters of a topic id.
const ID_CHARACTERS: usize = 22;
/// What the directory of a delivery log is called, behind the number of its partition.
const DELIVERIES: &str = "-deliveries";

/// The directory of all topics.
pub(crate) const TOPICS: &str = "topics";
/// The directory of the metadata log.
pub(crate) const METADATA: &str = "metadata";

/// Which log.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum LogPlace {
    /// The metadata log.
    Metadata,
    /// A partition of a topic, or its delivery log.
    Partition {
        /// The topic's permanent id.
        topic: TopicId,
        /// Its name, for people who look into the directory.
        name: TopicName,
        /// Which of its partitions.
        partition: PartitionIndex,
    },
}

impl LogPlace {
    /// The log's identity; the metadata log has a topic id that Kafka reserves for it.
    #[must_use]
    pub fn partition(&self) -> TopicPartition {
        match self {
            LogPlace::Metadata => {
                TopicPartition { topic: Uuid::METADATA_TOPIC, partition: PartitionIndex(0) }
            }
            LogPlace::Partition { topic, partition, .. } => {
                TopicPartition { topic: *topic, partition: *partition }
            }
        }
    }

    /// Its directory, relative to the data directory.
    pub(crate) fn path(&self) -> PathBuf {
        match self {
            LogPlace::Metadata => PathBuf::from(METADATA),
            LogPlace::Partition { topic, name, partition } => {
                let name = name.as_str();
                let cut = &name[..name.len().min(NAME_BYTES_MAX)];
                [TOPICS.to_owned(), format!("{cut}-{topic}"), directory_name(*partition)]
                    .iter()
                    .collect()
            }
        }
    }
}

/// A partition directory that was found on the disk.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FoundLog {
    /// The topic's permanent id.
    pub topic: TopicId,
    /// Which of its partitions.
    pub partition: PartitionIndex,
    /// Its directory.
    pub path: PathBuf,
}

/// The topic id at the end of a topic directory's name.
pub(crate) fn topic_of(directory_name: &str) -> Option<TopicId> {
    let at = directory_name.len().checked_sub(ID_CHARACTERS)?;
    let (name, id) = directory_name.split_at_checked(at)?;
    if !name.ends_with('-') {
        return None;
    }
    id.parse().ok()
}

/// The name of a partition's directory: its number; a delivery log lies beside its partition.
pub(crate) fn directory_name(PartitionIndex(number): PartitionIndex) -> String {
    if number < 0 { format!("{}{DELIVERIES}", !number) } else { number.to_string() }
}

/// The partition, or delivery log, that a directory's name says, if it is one we wrote.
pub(crate) fn partition_of(name: &str) -> Option<PartitionIndex> {
    let (digits, is_delivery_log) = match name.strip_suffix(DELIVERIES) {
        Some(digits) => (digits, true),
        None => (name, false),
    };
    let number: i32 = digits.parse().ok().filter(|number| 0 <= *number)?;
    let partition = PartitionIndex(if is_delivery_log { !number } else { number });
    (directory_name(partition) == name).then_some(partition)
}

/// Which file of a partition directory.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum FileKind {
    Segment,
    Index,
    TimeIndex,
    Producers,
}

impl FileKind {
    fn extension(self) -> &'static str {
        match self {
            FileKind::Segment => "log",
            FileKind::Index => "index",
            FileKind::TimeIndex => "timeindex",
            FileKind::Producers => "producers",
        }
    }

    /// The file of this kind for `offset`.
    pub(crate) fn path(self, directory: &Path, offset: Offset) -> PathBuf {
        directory.join(format!("{:020}.{}", offset.0, self.extension()))
    }

    /// The offset in a file's name, if it is a file of this kind.
    pub(crate) fn offset_in(self, name: &str) -> Option<Offset> {
        let (digits, extension) = name.split_once('.')?;
        let is_ours = extension == self.extension()
            && digits.len() == 20
            && digits.bytes().all(|c| c.is_ascii_digit());
        if !is_ours {
            return None;
        }
        digits.parse().ok().map(Offset)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn directories_are_found_again_by_topic_id() {
        let name = TopicName::new(&"n".repeat(249)).unwrap();
        let topic = Uuid::from_random_bytes([0xfb; 16]);
        let place = LogPlace::Partition { topic, name, partition: PartitionIndex(12) };
        let path = place.path();
        let mut parts = path.iter().map(|part| part.to_str().unwrap());
        assert_eq!(parts.next(), Some(TOPICS));
        let directory = parts.next().unwrap();
        assert_eq!(directory.len(), 223);
        assert_eq!(topic_of(directory), Some(topic));
        assert_eq!(parts.next().and_then(partition_of), Some(PartitionIndex(12)));
        assert_eq!(partition_of("012"), None);
        assert_eq!(partition_of("-1"), None);
        assert_eq!(directory_name(PartitionIndex(!12)), "12-deliveries");
        assert_eq!(partition_of("12-deliveries"), Some(PartitionIndex(!12)));
        assert_eq!(partition_of("012-deliveries"), None);
        assert_eq!(partition_of("-1-deliveries"), None);
        assert_eq!(partition_of("-deliveries"), None);
        assert_eq!(topic_of("short"), None);
    }

    #[test]
    fn file_names_carry_twenty_digits() {
        let path = FileKind::Segment.path(Path::new("d"), Offset(4711));
        assert_eq!(path, Path::new("d/00000000000000004711.log"));
        assert_eq!(FileKind::Segment.offset_in("00000000000000004711.log"), Some(Offset(4711)));
        assert_eq!(FileKind::Segment.offset_in("00000000000000004711.index"), None);
        assert_eq!(FileKind::Segment.offset_in("4711.log"), None);
        assert_eq!(FileKind::Segment.offset_in("99999999999999999999.log"), None);
    }
}
