//! Replicas whose records cannot all be read any more: copied anew from whoever leads.
//!
//! ```text
//! damage is noted ─▶ ask the controller to count on others
//!   ─▶ (image: a new leadership, this replica neither in sync nor eligible)
//!   ─▶ drop the replica ─▶ follow the leader from where its log begins
//! ```
//!
//! A replica is dropped only once the metadata says that it counts for nothing and that another broker
//! leads, and before it has said a word under that leadership: what a leader has once been told is
//! durable, it counts on. Where nobody else holds all that is committed, the controller refuses, and what can be read
//! is served as before.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use towpath_broker::Outcome;
use towpath_log::disk::Disk;
use towpath_metadata::{PartitionState, Reply, Request};
use towpath_model::{Time, TopicPartition};

use crate::cell::Cell;
use crate::driver::Driver;
use crate::quorum::DOUBT;
use crate::world::{Clock, Delivery, Net};

/// How often this is looked at.
const LOOK_EVERY: Duration = Duration::from_secs(1);
/// Most partitions in one question.
const DOUBTED_MAX: usize = 1_000;

/// Partitions of which records were found damaged.
#[derive(Debug, Default)]
pub(crate) struct Suspects {
    partitions: BTreeSet<TopicPartition>,
    look_at: Option<Time>,
}

impl<D: Disk, C: Clock, N: Net> Driver<D, C, N> {
    /// Records of this log cannot be read: its partition is doubted, whichever of its logs it is.
    pub(crate) fn suspect(&self, id: TopicPartition) {
        self.suspects.lock().expect("no panic holds the suspects").partitions.insert(id.records());
    }

    /// Asks to be done without, or copies anew.
    pub(super) fn repair(&self, now: Time) {
        let suspects = {
            let mut suspects = self.suspects.lock().expect("no panic holds the suspects");
            if suspects.partitions.is_empty() || suspects.look_at.is_some_and(|at| now < at) {
                return;
            }
            suspects.look_at = Some(now + LOOK_EVERY);
            suspects.partitions.clone()
        };
        let me = self.settings.broker_id;
        let (mut gone, mut asked) = (Vec::new(), Vec::new());
        {
            let image = self.image();
            for id in suspects {
                match image.partition(id).filter(|state| state.replicas.contains(&me)) {
                    None => gone.push(id),
                    Some(state) if 1 < state.replicas.len() && asked.len() < DOUBTED_MAX => {
                        asked.push(id);
                    }
                    Some(_) => {}
                }
            }
        }
        if !gone.is_empty() {
            let mut suspects = self.suspects.lock().expect("no panic holds the suspects");
            suspects.partitions.retain(|id| !gone.contains(id));
        }
        if let Some(epoch) = self.broker_epoch()
            && !asked.is_empty()
        {
            self.ask_for_myself(
                DOUBT,
                Request::DoubtReplicas { broker: me, epoch, partitions: asked },
            );
        }
    }

    /// Drops a damaged replica, records and deliveries, if a leadership begins under which it counts for
    /// nothing; says whether it did.
    pub(super) fn copied_anew(&self, cell: &Arc<Cell<D>>, state: &PartitionState) -> bool {
        let (id, me) = (cell.id, self.settings.broker_id);
        let counts = state.in_sync.contains(&me) || state.eligible.contains(&me);
        let is_led = state.leader.is_some_and(|leader| leader != me);
        let is_suspect = || {
            let suspects = self.suspects.lock().expect("no panic holds the suspects");
            suspects.partitions.contains(&id)
        };
        let is_new = || cell.lock().partition.leader_epoch() < state.leader_epoch;
        if counts || !is_led || !is_suspect() || !is_new() {
            return false;
        }
        self.suspects.lock().expect("no panic holds the suspects").partitions.remove(&id);
        tracing::warn!(topic = %cell.topic, partition = %id.partition,
            "records of this replica are damaged: it is dropped and copied anew from its leader");
        let logs: Vec<_> = std::iter::once(Arc::clone(cell)).chain(self.other_log(cell)).collect();
        for log in logs {
            self.leaving.lock().expect("no panic holds the list").insert(log.id);
            self.cells.write().expect("no panic holds the map").remove(&log.id);
            self.close(&log, Outcome::NotLeader);
            let doomed = &self.volume(log.volume).doomed;
            doomed.lock().expect("no panic holds the list").push(log);
        }
        true
    }

    /// What the controller says to doubts.
    pub(crate) fn doubts_answered(&self, delivery: Delivery) {
        let Delivery::Metadata(Reply::DoubtedReplicas(Ok(answers))) = delivery else { return };
        for (id, refusal) in answers.into_iter().filter_map(|(id, a)| Some((id, a.err()?))) {
            tracing::debug!(partition = %id, %refusal, "a damaged replica stays");
        }
    }

    /// The files of a replica are gone; where it is still wanted here, it begins anew.
    pub(crate) fn begin_anew_if_held(&self, id: TopicPartition) {
        self.leaving.lock().expect("no panic holds the list").remove(&id);
        let image = self.image();
        let Some(topic) = image.topic_by_id(id.topic) else { return };
        if let Err(error) = self.open_if_held(&image, topic, id.records().partition) {
            tracing::error!(topic = %topic.name, partition = %id.partition, %error,
                "a replica cannot begin anew");
        }
        drop(image);
        self.resume_deliveries(id.records());
    }
}
