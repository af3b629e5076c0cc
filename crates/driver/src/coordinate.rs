//! Asking the replicated states: metadata, groups, publishers. Answers go to the token.

use towpath_broker::{
    OFFSETS_TOPIC, Output, PUBLISHERS_TOPIC, group_partition, publisher_partition,
};
use towpath_coordinator::publishers::Publisher;
use towpath_coordinator::{groups, publishers};
use towpath_log::disk::Disk;
use towpath_model::{Now, Token, TopicId, TopicName, TopicPartition};

use crate::cell::Slot;
use crate::driver::Driver;
use crate::manage::NOBODY;
use crate::world::{Clock, Net};

/// This broker does not hold the state that was asked.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum NotCoordinator {
    /// The internal topic does not exist yet.
    #[error("the internal topic for this state does not exist yet")]
    NoTopic,
    /// Another broker leads the partition, or its disk failed.
    #[error("this broker does not lead the partition that holds this state")]
    NotLeader,
    /// The partition should be led here and cannot be.
    #[error("the partition that holds this state is offline on this broker; its log says why")]
    Offline,
}

impl<D: Disk, C: Clock, N: Net> Driver<D, C, N> {
    /// Where a group lives.
    ///
    /// # Errors
    /// [`NotCoordinator::NoTopic`].
    pub fn group_place(&self, group: &str) -> Result<TopicPartition, NotCoordinator> {
        self.place(OFFSETS_TOPIC, |partitions| group_partition(group, partitions))
    }

    /// Asks the coordinator of `group`; the answer is delivered to `token`.
    ///
    /// # Errors
    /// [`NotCoordinator`].
    pub fn ask_group(
        &self,
        group: &str,
        token: Token,
        request: groups::Request,
    ) -> Result<(), NotCoordinator> {
        let place = self.group_place(group)?;
        self.ask_groups_at(place, token, request)
    }

    /// Asks one partition of the groups, for what concerns all of its groups.
    ///
    /// # Errors
    /// [`NotCoordinator::NotLeader`].
    pub fn ask_groups_at(
        &self,
        place: TopicPartition,
        token: Token,
        request: groups::Request,
    ) -> Result<(), NotCoordinator> {
        self.ask_at(place, |slot, now, out| slot.partition.ask_groups(now, token, request, out))
    }

    /// Every partition that holds groups and is led here.
    pub fn group_places(&self) -> Vec<TopicPartition> {
        self.places_of(OFFSETS_TOPIC)
    }

    /// Every partition of an internal topic that is led here.
    fn places_of(&self, name: &str) -> Vec<TopicPartition> {
        let topic = self.image().topic(name).map(|topic| topic.id);
        topic.map_or_else(Vec::new, |id| self.led_cells_of(id).iter().map(|cell| cell.id).collect())
    }

    /// Tells every group and every publisher here that a topic is gone.
    pub(crate) fn forget_topic(&self, topic: TopicId, name: &TopicName) {
        // A coordinator that has just failed forgets with everything else.
        for place in self.group_places() {
            self.forget_offsets(place, topic, name);
        }
        for place in self.places_of(PUBLISHERS_TOPIC) {
            let deleted = publishers::Request::TopicDeleted { topic };
            let _ = self.ask_at(place, |slot, now, out| {
                slot.partition.ask_publishers(now, NOBODY, deleted, out)
            });
        }
    }

    /// Step by step, so that nobody waits long for the groups, until nothing is left or the log takes no
    /// more.
    fn forget_offsets(&self, place: TopicPartition, topic: TopicId, name: &TopicName) {
        let mut end = None;
        let mut step = || {
            let deleted = groups::Request::TopicDeleted { name: name.as_str().into(), id: topic };
            self.ask_at(place, |slot, now, out| {
                let before = end.replace(slot.partition.log_end_offset());
                before != end
                    && slot.partition.ask_groups(now, NOBODY, deleted, out)
                    && out.iter().any(|order| matches!(order, Output::Append(_)))
            })
        };
        while step().is_ok() {}
    }

    /// Where the results of an HTTP publisher live.
    ///
    /// # Errors
    /// [`NotCoordinator::NoTopic`].
    pub fn publisher_place(&self, publisher: &Publisher) -> Result<TopicPartition, NotCoordinator> {
        self.place(PUBLISHERS_TOPIC, |n| publisher_partition(publisher, n))
    }

    /// Asks the state of one HTTP publisher; the answer is delivered to `token`.
    ///
    /// # Errors
    /// [`NotCoordinator`].
    pub fn ask_publisher(
        &self,
        publisher: &Publisher,
        token: Token,
        request: publishers::Request,
    ) -> Result<(), NotCoordinator> {
        let place = self.publisher_place(publisher)?;
        self.ask_at(place, |slot, now, out| slot.partition.ask_publishers(now, token, request, out))
    }

    fn place(
        &self,
        topic: &str,
        partition: impl FnOnce(i32) -> towpath_model::PartitionIndex,
    ) -> Result<TopicPartition, NotCoordinator> {
        let image = self.image();
        let topic = image.topic(topic).ok_or(NotCoordinator::NoTopic)?;
        let count = i32::try_from(topic.partitions.len()).expect("partition counts are i32");
        Ok(TopicPartition { topic: topic.id, partition: partition(count) })
    }

    fn ask_at(
        &self,
        place: TopicPartition,
        ask: impl FnOnce(&mut Slot<D>, Now, &mut Vec<Output>) -> bool,
    ) -> Result<(), NotCoordinator> {
        let cell = self.cell(place).ok_or_else(|| match self.offline(place) {
            Some(_) => NotCoordinator::Offline,
            None => NotCoordinator::NotLeader,
        })?;
        let asked = self.step(&cell, |slot, now, out| slot.leads() && ask(slot, now, out));
        asked.then_some(()).ok_or(NotCoordinator::NotLeader)
    }
}
