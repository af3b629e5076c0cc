//! How far groups are behind, for whoever asks: HTTP, metrics and the log all get it from here.
//!
//! Groups are those with committed offsets in partitions of the internal topic that are led here,
//! as far as those offsets are committed themselves. Each partition is locked once per reader and
//! for one lookup, as for a small fetch.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use towpath_broker::OFFSETS_TOPIC;
use towpath_broker::lag::{Lag, Limits, Standing, Unread};
use towpath_coordinator::groups::Reader;
use towpath_log::disk::Disk;
use towpath_model::properties::{RetentionGuard, TopicConfig};
use towpath_model::{Offset, PartitionIndex, Time, Timestamp, TopicId, TopicName, TopicPartition};

use crate::cell::{Cell, Slot};
use crate::config::retention;
use crate::driver::Driver;
use crate::world::{Clock, Net};

/// How often every lag is looked at for warnings.
const WATCH_EVERY: Duration = Duration::from_secs(30);

/// The same group and topic are warned of no more often.
const WARN_AGAIN_AFTER: Duration = Duration::from_secs(600);

/// Most warnings of one look; the others are counted.
const WARNINGS_MAX: usize = 10;

/// Most readers of one look.
const WATCHED_MAX: usize = 20_000;

/// A group in one partition.
#[derive(Debug, Clone, PartialEq)]
pub struct GroupLag {
    /// The group.
    pub group: Arc<str>,
    /// The topic.
    pub topic: TopicName,
    /// Which partition.
    pub partition: PartitionIndex,
    /// The first offset it has not processed.
    pub committed: Offset,
    /// When it said so.
    pub committed_at: Timestamp,
    /// Where it is and how far behind; `None` when the partition is not served here.
    pub here: Option<(Standing, Lag)>,
}

impl GroupLag {
    /// The lag, where it is known.
    #[must_use]
    pub fn lag(&self) -> Option<&Lag> {
        self.here.as_ref().map(|(_, lag)| lag)
    }
}

/// Groups in partitions, in order of topic, partition and group.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Lags {
    /// As many as were asked for.
    pub rows: Vec<GroupLag>,
    /// How many more there are.
    pub omitted: usize,
}

/// Committed offsets by topic and partition.
type Found = BTreeMap<(Arc<str>, PartitionIndex), Vec<(Arc<str>, Reader)>>;

/// When each group was last warned of, by group and topic.
#[derive(Debug, Default)]
pub(crate) struct LagWatch {
    watched_at: Option<Time>,
    warned_at: BTreeMap<(Arc<str>, TopicName), Time>,
}

impl<D: Disk, C: Clock, N: Net> Driver<D, C, N> {
    /// The lag of one group, or of all of them; at most `rows_max` groups in partitions.
    pub fn lags(&self, group: Option<&str>, rows_max: usize) -> Lags {
        let now = self.clock.now().wall;
        let (found, omitted) = self.find_readers(group, rows_max);
        let mut lags = Lags { rows: Vec::new(), omitted };
        for ((topic, partition), readers) in found {
            let Some((id, name, config)) = self.topic_for_lag(&topic) else { continue };
            let cell = self.records_cell(TopicPartition { topic: id, partition });
            let limits = self.limits(id, &config);
            for (group, reader) in readers.into_iter().filter(|(_, reader)| reader.reads(id)) {
                let here = cell
                    .as_ref()
                    .and_then(|cell| lag_in(&cell.lock(), now, reader.offset, &limits));
                let Reader { offset: committed, committed_at, .. } = reader;
                let topic = name.clone();
                lags.rows.push(GroupLag { group, topic, partition, committed, committed_at, here });
            }
        }
        lags
    }

    /// The lag of a reader at `committed` of a partition that is led here.
    pub fn lag_at(
        &self,
        topic: &str,
        partition: PartitionIndex,
        committed: Offset,
    ) -> Option<(Standing, Lag)> {
        let (id, _, config) = self.topic_for_lag(topic)?;
        let cell = self.records_cell(TopicPartition { topic: id, partition })?;
        let now = self.clock.now().wall;
        lag_in(&cell.lock(), now, committed, &self.limits(id, &config))
    }

    fn find_readers(&self, group: Option<&str>, rows_max: usize) -> (Found, usize) {
        let (mut found, mut count, mut omitted) = (Found::new(), 0, 0);
        let cells = match group {
            Some(group) => {
                self.group_place(group).ok().and_then(|id| self.cell(id)).into_iter().collect()
            }
            None => self.offsets_cells(),
        };
        for cell in cells {
            let slot = cell.lock();
            let readers = slot.partition.readers();
            for topic in readers.topics() {
                for (partition, groups) in readers.of_topic(topic) {
                    let asked = groups
                        .iter()
                        .filter(|(name, _)| group.is_none_or(|asked| *asked == ***name));
                    for (name, reader) in asked {
                        if count < rows_max {
                            let place = found.entry((topic.clone(), partition)).or_default();
                            place.push((name.clone(), *reader));
                            count += 1;
                        } else {
                            omitted += 1;
                        }
                    }
                }
            }
        }
        found.values_mut().for_each(|groups| groups.sort_by(|(a, _), (b, _)| a.cmp(b)));
        (found, omitted)
    }

    /// Every partition of the groups' topic that is led here.
    pub(crate) fn offsets_cells(&self) -> Vec<Arc<Cell<D>>> {
        let topic = self.image().topic(OFFSETS_TOPIC).map(|topic| topic.id);
        topic.map_or_else(Vec::new, |id| self.led_cells_of(id))
    }

    fn topic_for_lag(&self, name: &str) -> Option<(TopicId, TopicName, TopicConfig)> {
        let image = self.image();
        let topic = image.topic(name)?;
        Some((topic.id, topic.name.clone(), image.effective_config(topic)))
    }

    fn limits(&self, topic: TopicId, config: &TopicConfig) -> Limits {
        let Some(kept) = retention(config) else { return Limits::default() };
        let holds = config.retention_guard == RetentionGuard::Hold;
        let hold_bytes = holds
            .then(|| config.retention_guard_bytes_max.saturating_sub(self.held_bytes_of(topic)));
        Limits { time: kept.time, bytes: kept.bytes, hold_bytes }
    }

    /// Warns, now and then, of groups that have used up half of what retention gives them.
    pub(crate) fn watch_lags(&self) {
        let now = self.clock.now().time;
        let mut watch = self.lag_watch.lock().expect("only upkeep locks this");
        if watch.watched_at.is_some_and(|at| now < at + WATCH_EVERY) {
            return;
        }
        watch.watched_at = Some(now);
        watch.warned_at.retain(|_, at| now < *at + WARN_AGAIN_AFTER);
        let lags = self.lags(None, WATCHED_MAX);
        let (mut worst, mut more) = (BTreeMap::new(), 0);
        for row in lags.rows.iter().filter(|row| row.lag().is_some_and(Lag::is_warned_of)) {
            let ratio = |row: &GroupLag| row.lag().and_then(|lag| lag.retention_ratio);
            let entry = worst.entry((row.group.clone(), row.topic.clone())).or_insert(row);
            if ratio(entry) < ratio(row) {
                *entry = row;
            }
        }
        worst.retain(|key, _| !watch.warned_at.contains_key(key));
        for (nth, (key, row)) in worst.into_iter().enumerate() {
            if nth < WARNINGS_MAX {
                warn_of(row);
                watch.warned_at.insert(key, now);
            } else {
                more += 1;
            }
        }
        if more != 0 {
            tracing::warn!(more, "more groups are as far behind; towpath group lag shows them all");
        }
    }
}

fn warn_of(row: &GroupLag) {
    let Some(lag) = row.lag() else { return };
    let percent = lag.retention_ratio.map_or(0, |ratio| (ratio * 100.0) as u64);
    let loses_in = lag.time_to_loss.map(|left| Duration::from_secs(left.as_secs()));
    tracing::warn!(group = %row.group, topic = %row.topic, partition = %row.partition,
        lag_records = lag.records, percent_of_retention = percent, ?loses_in,
        "a group has used up half of the topic's retention or more: let it catch up, keep records \
         for longer (retention.ms, retention.bytes) or hold them for it (retention.guard=hold)");
}

/// The lag of a reader at `committed` in one partition; `None` when it is not led here or cannot be
/// read.
fn lag_in<D: Disk>(
    slot: &Slot<D>,
    now: Timestamp,
    committed: Offset,
    limits: &Limits,
) -> Option<(Standing, Lag)> {
    if !slot.leads() {
        return None;
    }
    let position = slot.position();
    let standing = Standing {
        committed,
        log_start_offset: position.log_start_offset,
        high_watermark: position.high_watermark,
    };
    if !standing.is_behind() {
        return Some((standing, Lag::of(now, &standing, None, limits)));
    }
    // A disk that cannot be read leaves the records to be counted, and the rest open.
    let found = slot.log.outlook(standing.first_unread(), standing.high_watermark).ok().flatten();
    let unread = found.map(|outlook| Unread {
        waiting_since: outlook.waiting_since,
        expires_from: outlook.expires_from,
        bytes: outlook.unread_bytes,
        bytes_to_segment_end: outlook.bytes_to_segment_end,
        log_bytes: outlook.size_bytes,
        rate: slot.log.append_rate(now),
    });
    Some((standing, Lag::of(now, &standing, unread.as_ref(), limits)))
}
