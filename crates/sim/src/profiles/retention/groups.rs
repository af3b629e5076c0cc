//! Groups that commit, and what they were told of it.

use std::collections::BTreeMap;
use std::sync::Arc;

use towpath_coordinator::groups::{
    CommitOffsets, CommitPartition, CommitTopic, FetchOffsets, FetchTopic, Reply, Request,
};
use towpath_model::{Offset, TopicPartition};

use super::world::{TOPIC, World};
use crate::profile::{Violation, ensure};

/// A group, as its members know it.
#[derive(Debug, Clone)]
pub(super) struct Group {
    pub(super) name: Arc<str>,
    /// What was acknowledged last, by partition.
    pub(super) committed: BTreeMap<TopicPartition, Offset>,
    /// What may be there instead, because an answer never came; `None`: deleted.
    perhaps: BTreeMap<TopicPartition, Vec<Option<Offset>>>,
}

/// What an answer is about.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Asked {
    Commit { group: usize, id: TopicPartition, offset: Offset },
    Delete { group: usize },
    Fetch { group: usize },
}

impl Group {
    pub(super) fn new(name: &str) -> Group {
        Group { name: name.into(), committed: BTreeMap::new(), perhaps: BTreeMap::new() }
    }

    fn may_be(&self, id: TopicPartition, found: Option<Offset>) -> bool {
        self.committed.get(&id).copied() == found
            || self.perhaps.get(&id).is_some_and(|perhaps| perhaps.contains(&found))
    }
}

impl World {
    /// Some group commits somewhere, now and then an earlier place than before.
    pub(super) fn commit(&mut self) {
        let group = self.rng.index(self.groups.len());
        let id = self.random_id();
        let Ok(lines) = self.machine.driver().position(id, None) else { return };
        let from = match self.groups[group].committed.get(&id) {
            Some(before) if self.rng.percent(90) => *before,
            _ => lines.log_start_offset,
        };
        let span = (lines.high_watermark - from).max(0).unsigned_abs();
        let step = if self.rng.percent(30) { span } else { self.rng.below(span + 1) };
        let offset = from + step as i64;
        if self.groups[group].committed.get(&id).is_some_and(|before| offset < *before) {
            self.events.note("commit: back to an earlier offset");
        }
        self.send_commit(group, id, offset);
    }

    pub(super) fn send_commit(&mut self, group: usize, id: TopicPartition, offset: Offset) {
        let (partition, leader_epoch) = (id.partition, None);
        let partitions =
            vec![CommitPartition { partition, offset, leader_epoch, metadata: "".into() }];
        let request = Request::CommitOffsets(CommitOffsets {
            group: self.groups[group].name.clone(),
            member_id: "".into(),
            group_instance_id: None,
            generation: None,
            retention: None,
            knows_group_id_not_found: true,
            topics: vec![CommitTopic { name: TOPIC.into(), id: id.topic, partitions }],
        });
        self.ask(Asked::Commit { group, id, offset }, request);
    }

    pub(super) fn delete_group(&mut self) {
        let group = self.rng.index(self.groups.len());
        let request = Request::Delete { group: self.groups[group].name.clone() };
        self.ask(Asked::Delete { group }, request);
    }

    fn ask(&mut self, asked: Asked, request: Request) {
        let (Asked::Commit { group, .. } | Asked::Delete { group } | Asked::Fetch { group }) =
            asked;
        let name = self.groups[group].name.clone();
        let token = self.machine.token();
        self.machine.trace.remark(|| format!("{token:?}: {asked:?}"));
        self.waits.insert(token, asked);
        if self.machine.driver().ask_group(&name, token, request).is_err() {
            let asked = self.waits.remove(&token);
            asked.iter().for_each(|asked| self.unanswered(asked));
        }
    }

    pub(super) fn group_answered(&mut self, asked: Asked, reply: Reply) -> Result<(), Violation> {
        match (asked, reply) {
            (Asked::Commit { group, id, offset }, Reply::CommitOffsets(Ok(_))) => {
                self.events.note("commit: accepted");
                self.groups[group].committed.insert(id, offset);
                Ok(())
            }
            (Asked::Delete { group }, Reply::Delete(result)) => {
                if result.is_ok() {
                    self.groups[group].committed.clear();
                }
                Ok(())
            }
            (Asked::Fetch { group }, Reply::FetchOffsets(topics)) => {
                let partitions = topics.iter().flat_map(|topic| &topic.partitions);
                let found: BTreeMap<_, _> = partitions
                    .filter_map(|found| Some((found.partition, found.committed.as_ref()?.offset)))
                    .collect();
                self.told(group, &found)
            }
            (asked, reply) => {
                Err(Violation::new("INV-C2", format!("{asked:?} is answered by {reply:?}")))
            }
        }
    }

    fn told(
        &mut self,
        group: usize,
        found: &BTreeMap<towpath_model::PartitionIndex, Offset>,
    ) -> Result<(), Violation> {
        for id in self.ids() {
            let found = found.get(&id.partition).copied();
            let known = &mut self.groups[group];
            ensure!(
                known.may_be(id, found),
                "INV-C2",
                "{} has {found:?} in {id}, acknowledged {:?}, perhaps {:?}",
                known.name,
                known.committed.get(&id),
                known.perhaps.get(&id)
            );
            if known.committed.get(&id).copied() != found {
                self.events.note("commit: without an answer, and it counts");
            }
            match found {
                Some(offset) => known.committed.insert(id, offset),
                None => known.committed.remove(&id),
            };
            known.perhaps.remove(&id);
        }
        Ok(())
    }

    /// Nobody knows whether it has happened.
    pub(super) fn unanswered(&mut self, asked: &Asked) {
        match *asked {
            Asked::Commit { group, id, offset } => {
                self.groups[group].perhaps.entry(id).or_default().push(Some(offset));
            }
            Asked::Delete { group } => {
                for id in self.ids() {
                    self.groups[group].perhaps.entry(id).or_default().push(None);
                }
            }
            Asked::Fetch { .. } => {}
        }
    }

    /// After a start: every group asks where it is, and takes the answer for the truth.
    pub(super) fn ask_where_groups_are(&mut self) -> Result<(), Violation> {
        for group in 0..self.groups.len() {
            let partitions = self.ids().into_iter().map(|id| id.partition).collect();
            let topic = FetchTopic { name: TOPIC.into(), id: self.topic, partitions };
            let request = Request::FetchOffsets(FetchOffsets {
                group: self.groups[group].name.clone(),
                topics: Some(vec![topic]),
                require_stable: true,
            });
            self.ask(Asked::Fetch { group }, request);
        }
        while self.machine.sync_if_wanted() {}
        self.settle()
    }
}
