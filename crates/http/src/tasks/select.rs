//! `POST /queues/{queue}/partitions/{partition}/select`: looks at messages of one partition that could be
//! received, and says which of them a task would move. Takes nothing. Whoever leads the partition answers.

use axum::body::Body;
use axum::extract::State;
use axum::http::HeaderMap;
use serde::{Deserialize, Serialize};
use towpath_metadata::IN_HAND_MAX;
use towpath_model::{Now, Offset, PartitionIndex};
use towpath_queue::{DEAD_SOURCE, Deliveries, OWN_SUBSCRIPTION, PeekFilter, PeekState, Stats};
use towpath_server::StoredMessage;

use crate::answer::Json;
use crate::api_error::{ApiError, Code};
use crate::app::{App, TopicView};
use crate::body::{parse_json, read_body};
use crate::captured::Captured;
use crate::limits::QUEUE_ANSWER_BYTES;
use crate::queues::{Content, header, not_asked, read_each, redrives_of};
use crate::refusals;

use super::filter::Filter;

/// Offsets that one look passes, at most.
const SCAN_MAX: usize = 20_000;
/// Messages that one look reads, at most.
const READ_MAX: usize = 2_000;
/// Messages that are shown, at most.
pub(super) const EXAMPLES_MAX: usize = 10;

/// What is looked for.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Wanted {
    /// From this offset on.
    #[serde(default)]
    pub(crate) from: i64,
    /// Before this offset.
    #[serde(default = "end_of_time")]
    pub(crate) until: i64,
    /// How many messages are chosen at most.
    pub(crate) max: usize,
    /// Which.
    #[serde(default)]
    pub(crate) filter: Filter,
    /// Those that came back so often already are not chosen; null: however often they did.
    #[serde(default)]
    pub(crate) redrives_max: Option<u32>,
    /// Each goes back to where it came from: those of which that is not known, or not there, are not chosen.
    #[serde(default)]
    pub(crate) home: bool,
    /// Also those that cannot be received now.
    #[serde(default)]
    pub(crate) held_too: bool,
    /// How many of those chosen are shown at most.
    #[serde(default)]
    pub(crate) examples: usize,
    /// The queue is given up: it is not looked at before nothing more can come.
    #[serde(default)]
    pub(crate) is_to_be_emptied: bool,
}

fn end_of_time() -> i64 {
    i64::MAX
}

/// What was found.
#[derive(Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Selected {
    /// Messages that would be moved.
    pub(crate) offsets: Vec<i64>,
    /// Where to go on; null: there are no more before `until`.
    pub(crate) next: Option<i64>,
    pub(crate) looked_at: u64,
    /// Not wanted by the filter.
    pub(crate) passed_over: u64,
    /// Came back too often already.
    pub(crate) guarded: u64,
    /// Came from nowhere that is there, or cannot be read.
    pub(crate) stranded: u64,
    /// Where the partition ends.
    pub(crate) end: i64,
    /// Messages in the whole partition that could be received, or with `held_too` all, where `max` is 0. Those that are
    /// not admitted yet are among them where the queue is to be emptied.
    pub(crate) ready: u64,
    /// Those of them that another queue does not take.
    #[serde(default)]
    pub(crate) unmovable: u64,
    pub(crate) examples: Vec<Content>,
}

pub(super) async fn handle(
    State(app): State<App>,
    Captured((name, partition)): Captured<(String, String)>,
    headers: HeaderMap,
    body: Body,
) -> Result<Json<Selected>, ApiError> {
    let queue = app.queue(&name)?;
    let partition = queue.partition_in_path(&partition)?.partition;
    let (bytes, _share) = read_body(&app.memory, &headers, body).await?;
    let wanted: Wanted = parse_json(&bytes)?;
    if IN_HAND_MAX < wanted.max || EXAMPLES_MAX < wanted.examples {
        let message = format!("max is at most {IN_HAND_MAX}, examples at most {EXAMPLES_MAX}");
        return Err(ApiError::new(Code::InvalidRequest, message));
    }
    select_here(&app, &queue, partition, &wanted).await.map(Json)
}

/// Looks into a partition that is led here.
pub(super) async fn select_here(
    app: &App,
    queue: &TopicView,
    partition: PartitionIndex,
    wanted: &Wanted,
) -> Result<Selected, ApiError> {
    let id = queue.partition(partition);
    let from = Offset(wanted.from.max(0));
    let look = |deliveries: &Deliveries, now: Now| {
        let stats = deliveries.stats(now, OWN_SUBSCRIPTION).filter(|_| wanted.max == 0);
        let filter = if wanted.held_too { PeekFilter::Any } else { PeekFilter::Ready };
        let max = wanted.read_max();
        let seen = deliveries.peek(now, OWN_SUBSCRIPTION, from, filter, max, SCAN_MAX);
        let count = |stats: Stats| match wanted.held_too {
            true => stats.ready + stats.in_flight + stats.delayed + stats.moving,
            false => stats.ready,
        };
        (
            deliveries.admitted_to(),
            stats.map_or((0, 0), |stats| (count(stats), stats.unmovable)),
            seen,
        )
    };
    let given_up_at = match wanted.is_to_be_emptied {
        true => Some(given_up_at(app, queue, partition)?),
        false => None,
    };
    let (end, (ready, unmovable), (seen, next)) =
        app.node.driver().with_deliveries(id, look).map_err(not_asked)?;
    let not_admitted = given_up_at.map_or(0, |last| u64::try_from(last - end).unwrap_or(0));
    let ready = ready + not_admitted;
    let is_free = |state: &PeekState| match state {
        PeekState::Ready => true,
        PeekState::Moving(_) => false,
        _ => wanted.held_too,
    };
    let there = seen.into_iter().filter(|seen| is_free(&seen.state)).map(|seen| seen.offset);
    let offsets: Vec<Offset> = there.take_while(|offset| offset.0 < wanted.until).collect();
    let next = next.filter(|next| next.0 < wanted.until);
    let mut selected =
        Selected { end: end.0, ready, unmovable, next: next.map(|at| at.0), ..Selected::default() };
    if !wanted.has_to_read() {
        selected.take_all(wanted, &offsets);
        return Ok(selected);
    }
    let _reading = app.memory.take(2 * QUEUE_ANSWER_BYTES).await?;
    let read = read_each(app, id, &offsets, QUEUE_ANSWER_BYTES).await;
    let read = read.map_err(|error| refusals::of_read_messages(&error))?;
    for offset in offsets {
        if selected.offsets.len() == wanted.max || read.cut.is_some_and(|cut| cut <= offset) {
            selected.next = Some(offset.0);
            break;
        }
        match read.found.get(&offset) {
            Some(message) => selected.judge(app, queue, partition, wanted, message),
            None if read.damaged.contains(&offset) => {
                selected.looked_at += 1;
                selected.stranded += 1;
            }
            // It was there a moment ago.
            None => {}
        }
    }
    Ok(selected)
}

/// Where a partition's messages end, once it takes no more.
fn given_up_at(
    app: &App,
    queue: &TopicView,
    partition: PartitionIndex,
) -> Result<Offset, ApiError> {
    app.node.driver().given_up_at(queue.partition(partition)).ok_or_else(|| {
        let name = queue.name.as_str();
        let message = format!(
            "partition {partition} of queue {name:?} has not heard yet that it is given up"
        );
        ApiError::new(Code::Unavailable, message).with_help("try again")
    })
}

impl Wanted {
    /// Messages to look at in one go: more than are wanted, because not all may be.
    fn read_max(&self) -> usize {
        if self.max == 0 { 0 } else { READ_MAX.min(20 + 4 * self.max) }
    }

    fn has_to_read(&self) -> bool {
        let has_conditions = self.filter != Filter::default() || self.redrives_max.is_some();
        has_conditions || self.home || self.examples != 0
    }
}

impl Selected {
    fn take_all(&mut self, wanted: &Wanted, offsets: &[Offset]) {
        let taken = &offsets[..offsets.len().min(wanted.max)];
        if let Some(first) = offsets.get(taken.len()) {
            self.next = Some(first.0);
        }
        self.looked_at = taken.len() as u64;
        self.offsets = taken.iter().map(|offset| offset.0).collect();
    }

    fn judge(
        &mut self,
        app: &App,
        queue: &TopicView,
        partition: PartitionIndex,
        wanted: &Wanted,
        message: &StoredMessage,
    ) {
        self.looked_at += 1;
        if !wanted.filter.wants(partition, message) {
            self.passed_over += 1;
        } else if wanted.redrives_max.is_some_and(|max| max <= redrives_of(message)) {
            self.guarded += 1;
        } else if wanted.home && home_of(app, queue, message).is_none() {
            self.stranded += 1;
        } else {
            self.offsets.push(message.offset.0);
            if self.examples.len() < wanted.examples {
                self.examples.push(Content::of(partition, message, false));
            }
        }
    }
}

/// The queue that a dead letter came from, if that is known and there.
pub(super) fn home_of(app: &App, queue: &TopicView, message: &StoredMessage) -> Option<String> {
    let name = std::str::from_utf8(header(message, DEAD_SOURCE)?).ok()?;
    (name != queue.name.as_str() && app.queue(name).is_ok()).then(|| name.to_owned())
}
