//! The topic that the group reads is deleted and made again under its name, with another id. What was
//! committed for the old one is no part of the new one (INV-C2), whatever crashes in between.
//!
//! ```text
//! there ─▶ going ─▶ (nothing) ─▶ coming ─▶ there, with a new id
//! ```
//!
//! Members forget what they own as soon as the deletion is asked for, and join again. What they ask
//! for with the old id, the broker's edge refuses, as it does in the server.

use towpath_driver::{Delivery, Outcome};
use towpath_metadata::{self as metadata, NewTopic, Reply, TopicRef};
use towpath_model::TopicId;

use super::requests::TOPIC;
use super::world::{Waiting, World};
use crate::profile::{Violation, ensure};

/// What is being done to the topic.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Fate {
    There,
    Going,
    Coming(TopicId),
}

impl World {
    /// The topic, if it is certain to be there.
    pub(super) fn is_topic_there(&self) -> bool {
        self.fate == Fate::There
    }

    /// Somebody deletes the topic, or goes on with what could not be done before.
    pub(super) fn recreate_topic(&mut self) -> Result<(), Violation> {
        if self.fate != Fate::There {
            return self.nudge_topic();
        }
        for member in &mut self.members {
            member.loses_topic();
        }
        self.fate = Fate::Going;
        let gone = vec![TopicRef { name: None, id: Some(self.topic) }];
        self.ask_metadata(metadata::Request::DeleteTopics(gone));
        Ok(())
    }

    /// Goes on with a change that nobody is at work on. A directory that has failed makes no more of
    /// them, and the change that it failed on may be on the disk: the next start tells.
    pub(super) fn nudge_topic(&mut self) -> Result<(), Violation> {
        if self.machine.driver().is_failed() {
            return Ok(());
        }
        let is_asked = self.waits.values().any(|waiting| matches!(waiting, Waiting::Topic));
        if self.fate == Fate::There || is_asked { Ok(()) } else { self.settle_topic() }
    }

    fn create_topic(&mut self) {
        let id = self.machine.new_id();
        self.fate = Fate::Coming(id);
        let topic = NewTopic { partitions: self.partitions, ..NewTopic::named(TOPIC, id) };
        let topics = vec![topic];
        self.ask_metadata(metadata::Request::CreateTopics { topics, validate_only: false });
    }

    /// Without an answer the next start tells what has become of it.
    fn ask_metadata(&mut self, request: metadata::Request) {
        let token = self.machine.token();
        self.waits.insert(token, Waiting::Topic);
        if self.machine.driver().ask_metadata(token, request).is_err() {
            self.waits.remove(&token);
        }
    }

    pub(super) fn topic_answered(&mut self, delivery: &Delivery) -> Result<(), Violation> {
        let is_done = match delivery {
            Delivery::Metadata(Reply::DeletedTopics(all)) => all.iter().all(|(_, r)| r.is_ok()),
            Delivery::Metadata(Reply::CreatedTopics(all)) => all.iter().all(|(_, r)| r.is_ok()),
            Delivery::Wait(Outcome::StorageFailed | Outcome::NotLeader) => {
                // Nor does a controller decide anything whose disk does not answer.
                let statuses = self.machine.driver().volume_statuses();
                let may_fail = self.may_fail() || statuses[0].stalled_for.is_some();
                ensure!(may_fail, "INV-M1", "a healthy broker refuses a change: {delivery:?}");
                return Ok(());
            }
            _ => false,
        };
        ensure!(is_done, "INV-M1", "a change of {TOPIC} is answered by {delivery:?}");
        self.settle_topic()
    }

    /// Finds out what has become of the topic, and goes on from there.
    pub(super) fn settle_topic(&mut self) -> Result<(), Violation> {
        let found = self.machine.driver().image().topic(TOPIC).map(|topic| topic.id);
        match (self.fate, found) {
            (_, Some(found)) if found == self.topic => {
                ensure!(
                    !matches!(self.fate, Fate::Coming(_)),
                    "INV-T4",
                    "{TOPIC} is back with the id it had before it was deleted"
                );
                self.fate = Fate::There;
            }
            (Fate::Coming(id), Some(found)) if found == id => {
                self.events.note("topic: made again under its name");
                self.topic = id;
                self.fate = Fate::There;
            }
            (Fate::There, None) => {
                return Err(Violation::new("INV-M1", format!("{TOPIC} is gone")));
            }
            (Fate::Going | Fate::Coming(_), None) => {
                if self.fate == Fate::Going {
                    self.events.note("topic: deleted");
                }
                self.create_topic();
            }
            (fate, Some(found)) => {
                let detail = format!("{TOPIC} is {found}, it was {}, {fate:?}", self.topic);
                return Err(Violation::new("INV-M1", detail));
            }
        }
        Ok(())
    }
}
