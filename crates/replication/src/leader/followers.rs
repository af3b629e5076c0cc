//! The followers of one leader, by broker. There are two of them as a rule and a hundred thousand
//! leaders in a process: a list that is exactly as long as it must be takes a fifth of a tree's room.

use towpath_model::{BrokerId, Time};

use crate::follower::Follower;

/// Invariant: brokers rise strictly.
#[derive(Debug, Clone, Default)]
pub(super) struct Followers(Box<[(BrokerId, Follower)]>);

impl Followers {
    /// Those of `replicas` that are not `me`: who is here already keeps what it has reported, the others
    /// have stood still since `now`.
    pub(super) fn become_those_of(&mut self, me: BrokerId, replicas: &[BrokerId], now: Time) {
        let unheard = Follower { reported: None, behind_since: Some(now) };
        let known = |id: &BrokerId| self.get(*id).copied().unwrap_or(unheard);
        let others = replicas.iter().filter(|id| **id != me);
        let mut followers: Vec<_> = others.map(|id| (*id, known(id))).collect();
        followers.sort_unstable_by_key(|(id, _)| *id);
        followers.dedup_by_key(|(id, _)| *id);
        self.0 = followers.into();
    }

    pub(super) fn len(&self) -> usize {
        self.0.len()
    }

    pub(super) fn get(&self, broker: BrokerId) -> Option<&Follower> {
        self.iter().find(|(id, _)| *id == broker).map(|(_, follower)| follower)
    }

    pub(super) fn get_mut(&mut self, broker: BrokerId) -> Option<&mut Follower> {
        let mut followers = self.0.iter_mut();
        followers.find(|(id, _)| *id == broker).map(|(_, follower)| follower)
    }

    pub(super) fn iter(&self) -> impl Iterator<Item = (BrokerId, &Follower)> {
        self.0.iter().map(|(id, follower)| (*id, follower))
    }

    pub(super) fn iter_mut(&mut self) -> impl Iterator<Item = &mut Follower> {
        self.0.iter_mut().map(|(_, follower)| follower)
    }
}
