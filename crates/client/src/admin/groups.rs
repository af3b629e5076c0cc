//! Groups: who they are, who is in them, what they have committed.

use std::collections::BTreeMap;

use towpath_model::BrokerId;
use towpath_protocol::ErrorCode;
use towpath_protocol::messages::{
    DeleteGroupsRequest, DeleteGroupsResponse, DescribeGroupsRequest, DescribeGroupsResponse,
    ListGroupsRequest, ListGroupsResponse, OffsetDeleteRequest, OffsetDeleteRequestPartition,
    OffsetDeleteRequestTopic, OffsetDeleteResponse,
};

use super::{Admin, check, only};
use crate::cluster::Lane;
use crate::consumer::{Committed, Committer, commit, committed, decode_assignment};
use crate::error::{Error, Result};
use crate::record::TopicPartition;

/// A group in a list.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct GroupListing {
    /// Its id.
    pub group: String,
    /// Who coordinates it.
    pub coordinator: BrokerId,
    /// What its members do: `consumer`, `connect`, …; empty for a group with offsets only.
    pub protocol_type: String,
    /// Its state, where the broker tells: `Stable`, `Empty`, ….
    pub state: String,
}

/// A group in detail.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct GroupDescription {
    /// Its id.
    pub group: String,
    /// Who coordinates it.
    pub coordinator: BrokerId,
    /// Its state: `Stable`, `Empty`, `PreparingRebalance`, `CompletingRebalance`, `Dead`.
    pub state: String,
    /// What its members do.
    pub protocol_type: String,
    /// The assignor in use.
    pub protocol: String,
    /// Its members.
    pub members: Vec<GroupMember>,
}

/// A member of a group.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct GroupMember {
    /// The id the coordinator gave it.
    pub member_id: String,
    /// Its lasting identity, if it has one.
    pub instance_id: Option<String>,
    /// What its client calls itself.
    pub client_id: String,
    /// Where it connects from.
    pub client_host: String,
    /// What it reads; empty where the assignment cannot be read.
    pub assignment: Vec<TopicPartition>,
}

impl Admin {
    /// Every group of the cluster, by name.
    pub async fn groups(&self) -> Result<Vec<GroupListing>> {
        let brokers: Vec<BrokerId> = self.cluster.image().brokers.keys().copied().collect();
        let mut groups = Vec::new();
        for broker in brokers {
            let request = ListGroupsRequest::default();
            let answer = self.cluster.call_broker(broker, Lane::Ordinary, &request).await?;
            let response: ListGroupsResponse<'_> = answer.read()?;
            check(|| format!("listing the groups of broker {broker}"), response.error_code, None)?;
            groups.extend(response.groups.iter().map(|group| GroupListing {
                group: group.group_id.to_owned(),
                coordinator: broker,
                protocol_type: group.protocol_type.to_owned(),
                state: group.group_state.to_owned(),
            }));
        }
        groups.sort_by(|a, b| a.group.cmp(&b.group));
        Ok(groups)
    }

    /// One group in detail; `None` when there is none of that name.
    pub async fn group(&self, group: &str) -> Result<Option<GroupDescription>> {
        let request = DescribeGroupsRequest { groups: vec![group], ..Default::default() };
        let (coordinator, answer) = self.ask_coordinator(group, &request).await?;
        let response: DescribeGroupsResponse<'_> = answer.read()?;
        let doing = || format!("describing group {group:?}");
        let described = only(response.groups, doing)?;
        let code = ErrorCode::from(described.error_code);
        // Up to version 5 a group that does not exist is a dead one, from 6 on an error (KIP-1043).
        let is_unknown =
            code == ErrorCode::GroupIdNotFound || (code.is_ok() && described.group_state == "Dead");
        if is_unknown {
            return Ok(None);
        }
        check(doing, described.error_code, described.error_message)?;
        let member = |member: &towpath_protocol::messages::DescribedGroupMember<'_>| GroupMember {
            member_id: member.member_id.to_owned(),
            instance_id: member.group_instance_id.map(str::to_owned),
            client_id: member.client_id.to_owned(),
            client_host: member.client_host.trim_start_matches('/').to_owned(),
            assignment: if described.protocol_type == "consumer" {
                decode_assignment(member.member_assignment).unwrap_or_default()
            } else {
                Vec::new()
            },
        };
        Ok(Some(GroupDescription {
            group: group.to_owned(),
            coordinator,
            state: described.group_state.to_owned(),
            protocol_type: described.protocol_type.to_owned(),
            protocol: described.protocol_data.to_owned(),
            members: described.members.iter().map(member).collect(),
        }))
    }

    /// Deletes a group and what it has committed; it must have no members.
    pub async fn delete_group(&self, group: &str) -> Result<()> {
        let request = DeleteGroupsRequest { groups_names: vec![group] };
        let (_, answer) = self.ask_coordinator(group, &request).await?;
        let response: DeleteGroupsResponse<'_> = answer.read()?;
        let doing = || format!("deleting group {group:?}");
        let deleted = only(response.results, doing)?;
        check(doing, deleted.error_code, deleted.error_message)
    }

    /// Everything the group has committed.
    pub async fn group_offsets(&self, group: &str) -> Result<BTreeMap<TopicPartition, Committed>> {
        committed(&self.cluster, group, None).await
    }

    /// Commits in the group's name, from outside: it must have no members.
    pub async fn alter_group_offsets(
        &self,
        group: &str,
        offsets: &BTreeMap<TopicPartition, Committed>,
    ) -> Result<()> {
        let patience = self.cluster.config().request_timeout;
        commit(&self.cluster, &Committer::outsider(group), offsets, patience).await
    }

    /// Forgets what the group has committed for these partitions; no member may be subscribed to
    /// them.
    pub async fn delete_group_offsets(
        &self,
        group: &str,
        partitions: &[TopicPartition],
    ) -> Result<()> {
        let mut by_topic: BTreeMap<&str, Vec<OffsetDeleteRequestPartition>> = BTreeMap::new();
        for place in partitions {
            let partition = OffsetDeleteRequestPartition { partition_index: place.partition.0 };
            by_topic.entry(&place.topic).or_default().push(partition);
        }
        let topic = |(name, partitions)| OffsetDeleteRequestTopic { name, partitions };
        let request = OffsetDeleteRequest {
            group_id: group,
            topics: by_topic.into_iter().map(topic).collect(),
        };
        let (_, answer) = self.ask_coordinator(group, &request).await?;
        let response: OffsetDeleteResponse<'_> = answer.read()?;
        let doing = || format!("forgetting offsets of group {group:?}");
        check(doing, response.error_code, None)?;
        let mut partitions = response.topics.iter().flat_map(|topic| &topic.partitions);
        partitions.try_for_each(|partition| check(doing, partition.error_code, None))
    }

    /// Asks the group's coordinator; once more when it has moved.
    async fn ask_coordinator<'a, M: towpath_protocol::Request<'a>>(
        &self,
        group: &str,
        request: &M,
    ) -> Result<(BrokerId, crate::wire::Answer)> {
        let mut retries = self.cluster.retries(self.cluster.config().request_timeout);
        loop {
            let asked = async {
                let coordinator = self.cluster.coordinator(group).await?;
                let answer = self.cluster.call_broker(coordinator, Lane::Group, request).await?;
                Ok::<_, Error>((coordinator, answer))
            };
            let error = match asked.await {
                Ok(answered) => return Ok(answered),
                Err(error) => error,
            };
            self.cluster.forget_coordinator_on(group, &error);
            retries.after(error).await?;
        }
    }
}
