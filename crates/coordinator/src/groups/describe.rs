//! DescribeGroups and ListGroups: what people and administrators see.

use std::sync::Arc;

use super::Groups;
use super::group::Group;
use super::member::Member;
use super::reply::{DescribedMember, Description, GROUP_TYPE, GroupState, Listing};

impl Groups {
    /// One group, with what `group why` and the metrics show beside what Kafka does.
    #[must_use]
    pub fn describe(&self, group: &Arc<str>) -> Option<Description> {
        match self.live.get(group) {
            Some(live) => Some(describe(group, live)),
            // A group that only keeps offsets.
            None => self.exists(group).then(|| describe(group, &Group::empty())),
        }
    }

    /// All groups in one of `states` and of one of `types`; an empty list means all. Names are
    /// compared without regard to letter case, and unknown ones find nothing.
    #[must_use]
    pub fn list(&self, states: &[Arc<str>], types: &[Arc<str>]) -> Vec<Listing> {
        let names = |list: &[Arc<str>], name: &str| {
            list.is_empty() || list.iter().any(|listed| listed.eq_ignore_ascii_case(name))
        };
        if !names(types, GROUP_TYPE) {
            return Vec::new();
        }
        let live = self.live.iter().map(|(group, live)| listing(group, live));
        let offsets_only = self.offsets.keys().filter(|group| !self.live.contains_key(*group));
        let offsets_only = offsets_only.map(|group| listing(group, &Group::empty()));
        live.chain(offsets_only).filter(|listing| names(states, listing.state.as_str())).collect()
    }
}

fn listing(group: &Arc<str>, live: &Group) -> Listing {
    let protocol_type = live.protocol_type.clone().unwrap_or_else(|| "".into());
    let members = live.members.len();
    Listing { group: group.clone(), protocol_type, state: live.state(), members }
}

fn describe(group: &Arc<str>, live: &Group) -> Description {
    let state = live.state();
    // Metadata and protocol are those of a finished generation; before that they may change.
    let protocol = live.protocol.clone().filter(|_| state == GroupState::Stable);
    let protocol = protocol.unwrap_or_else(|| "".into());
    let member = |(member_id, member): (&Arc<str>, &Arc<Member>)| DescribedMember {
        member_id: member_id.clone(),
        group_instance_id: member.group_instance_id.clone(),
        client_id: member.client_id.clone(),
        client_host: member.client_host.clone(),
        metadata: member.metadata(&protocol),
        assignment: member.assignment.clone(),
    };
    Description {
        group: group.clone(),
        state,
        state_since: live.since,
        protocol_type: live.protocol_type.clone().unwrap_or_else(|| "".into()),
        protocol: protocol.clone(),
        generation: live.generation,
        leader: live.leader.clone(),
        last_rebalance: live.last_rebalance.clone(),
        members: live.in_order().map(member).collect(),
        pending_members: live.pending.len(),
    }
}
