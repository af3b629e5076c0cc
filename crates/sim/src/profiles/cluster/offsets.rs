//! A group's offsets, by somebody who commits and asks for them, one after the other, of whoever
//! coordinates (INV-C2).

use std::collections::BTreeMap;
use std::sync::Arc;

use towpath_coordinator::groups::{
    CommitOffsets, CommitPartition, CommitTopic, FetchOffsets, FetchTopic, Reply, Request,
};
use towpath_driver::Delivery;
use towpath_model::{Offset, TopicPartition};

use super::world::{Waiting, World};
use crate::profile::{Violation, ensure};

const GROUP: &str = "billing";

/// What was committed.
#[derive(Debug, Default)]
pub(super) struct Committer {
    partitions: BTreeMap<TopicPartition, Progress>,
}

#[derive(Debug, Default)]
struct Progress {
    /// Somebody waits for an answer about it.
    is_busy: bool,
    /// The commit that was acknowledged last.
    acknowledged: Option<Offset>,
    /// Commits since then without an answer.
    maybe: Vec<Offset>,
}

impl Committer {
    /// There will be no answer.
    pub(super) fn gives_up(&mut self, partition: TopicPartition, commit: Option<Offset>) {
        let progress = self.partitions.entry(partition).or_default();
        progress.is_busy = false;
        progress.maybe.extend(commit);
    }

    /// Nobody waits.
    pub(super) fn is_quiet(&self) -> bool {
        self.partitions.values().all(|progress| !progress.is_busy)
    }

    /// Partitions that have offsets.
    pub(super) fn partitions(&self) -> Vec<TopicPartition> {
        self.partitions.keys().copied().collect()
    }
}

impl World {
    /// Commits some offset, or asks for one.
    pub(super) fn commit_or_fetch(&mut self) -> Result<(), Violation> {
        let Some(partition) = self.catalog.any_partition(&mut self.rng, &self.truth) else {
            return Ok(());
        };
        let offset = self.rng.percent(60).then(|| Offset(self.rng.below(1_000) as i64));
        self.ask_group(partition, offset)
    }

    /// Commits this offset, or asks for the one that is committed.
    pub(super) fn ask_group(
        &mut self,
        partition: TopicPartition,
        offset: Option<Offset>,
    ) -> Result<(), Violation> {
        if self.committer.partitions.get(&partition).is_some_and(|progress| progress.is_busy) {
            return Ok(());
        }
        let Some(name) = self.catalog.name_of(partition.topic) else { return Ok(()) };
        let Some(somebody) = self.any_awake() else { return Ok(()) };
        let place = self.call(somebody, |driver| driver.group_place(GROUP))?;
        let Some(Ok(place)) = place else { return Ok(()) };
        let Some(of) = self.guess_leader(place).filter(|of| self.nodes[of].is_awake(self.now))
        else {
            return Ok(());
        };
        let topic: Arc<str> = name.as_str().into();
        let token = self.token();
        let (waiting, request) = match offset {
            Some(offset) => {
                let committed = CommitPartition {
                    partition: partition.partition,
                    offset,
                    leader_epoch: None,
                    metadata: "".into(),
                };
                let commit = CommitOffsets {
                    group: GROUP.into(),
                    member_id: "".into(),
                    group_instance_id: None,
                    generation: None,
                    retention: None,
                    knows_group_id_not_found: true,
                    topics: vec![CommitTopic {
                        name: topic,
                        id: partition.topic,
                        partitions: vec![committed],
                    }],
                };
                (Waiting::Commit { partition, offset }, Request::CommitOffsets(commit))
            }
            None => {
                let partitions = vec![partition.partition];
                let topic = FetchTopic { name: topic, id: partition.topic, partitions };
                let fetch = FetchOffsets {
                    group: GROUP.into(),
                    topics: Some(vec![topic]),
                    require_stable: true,
                };
                (Waiting::Offset { partition, place }, Request::FetchOffsets(fetch))
            }
        };
        self.committer.partitions.entry(partition).or_default().is_busy = true;
        self.waits.insert((of, token), waiting);
        let asked = self.call(of, |driver| driver.ask_group(GROUP, token, request))?;
        if matches!(asked, Some(Err(_)))
            && let Some(waiting) = self.waits.remove(&(of, token))
        {
            // It was not taken.
            let progress = self.committer.partitions.entry(partition).or_default();
            progress.is_busy = false;
            drop(waiting);
        }
        Ok(())
    }

    pub(super) fn commit_answered(
        &mut self,
        partition: TopicPartition,
        offset: Offset,
        delivery: &Delivery,
    ) -> Result<(), Violation> {
        match delivery {
            Delivery::Groups(Reply::CommitOffsets(Ok(topics))) => {
                let is_done = topics.iter().flat_map(|t| &t.partitions).all(|(_, r)| r.is_ok());
                let progress = self.committer.partitions.entry(partition).or_default();
                progress.is_busy = false;
                ensure!(is_done, "INV-C2", "{partition}: a commit is answered by {topics:?}");
                progress.acknowledged = Some(offset);
                progress.maybe.clear();
                self.events.note("group: offset committed");
            }
            Delivery::Groups(Reply::CommitOffsets(Err(refusal))) => {
                return Err(Violation::new("INV-C2", format!("{partition}: refused: {refusal:?}")));
            }
            _ => {
                self.committer.gives_up(partition, Some(offset));
                self.events.note("group: commit without an answer");
            }
        }
        Ok(())
    }

    pub(super) fn offset_answered(
        &mut self,
        partition: TopicPartition,
        delivery: &Delivery,
    ) -> Result<(), Violation> {
        self.committer.gives_up(partition, None);
        if matches!(delivery, Delivery::Groups(Reply::FetchOffsets(_))) {
            self.events.note("group: offset answered");
        }
        Ok(())
    }

    /// A coordinator says what is committed. One that has been replaced may not know better yet.
    pub(super) fn offset_leaves(
        &mut self,
        from: towpath_model::BrokerId,
        partition: TopicPartition,
        place: TopicPartition,
        delivery: &Delivery,
    ) -> Result<(), Violation> {
        let Delivery::Groups(Reply::FetchOffsets(topics)) = delivery else { return Ok(()) };
        let led = self.views.get(&(from, place)).and_then(|view| view.leads);
        let newest = self.truth.newest(place).map(|state| state.leader_epoch);
        let leads_still = led.is_some() && led == newest;
        if !leads_still || !self.catalog.surely_exists(partition.topic) {
            return Ok(());
        }
        let found = topics.iter().flat_map(|topic| &topic.partitions);
        let found = found.map(|found| found.committed.as_ref().map(|it| it.offset)).next();
        let found = found.flatten();
        let progress = self.committer.partitions.entry(partition).or_default();
        let may_be = found == progress.acknowledged
            || found.is_some_and(|offset| progress.maybe.contains(&offset));
        ensure!(
            may_be,
            "INV-C2",
            "{partition} is committed at {found:?}; acknowledged {:?}, perhaps {:?}",
            progress.acknowledged,
            progress.maybe
        );
        Ok(())
    }
}
