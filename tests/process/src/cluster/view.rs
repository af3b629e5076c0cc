//! How a broker sees the cluster: who leads, and who is in sync.

use std::collections::BTreeMap;
use std::net::SocketAddr;

use anyhow::{Context, Result};
use towpath_protocol::messages::{MetadataRequest, MetadataResponse};

use crate::history::Place;
use crate::http;
use crate::kafka::KafkaConnection;

/// One broker's answer.
#[derive(Debug)]
pub(super) struct View {
    brokers: usize,
    pub(super) leaders: BTreeMap<Place, i32>,
    /// Partitions of which not all replicas are in sync, with what is known of them.
    behind: Vec<String>,
}

impl View {
    /// Asks.
    pub(super) fn of(connection: &mut KafkaConnection) -> Result<View> {
        let request = MetadataRequest { topics: None, ..MetadataRequest::default() };
        let answer = connection.call(&request, 9)?;
        let answer: MetadataResponse<'_> = answer.read()?;
        let brokers = answer.brokers.len();
        let mut view = View { brokers, leaders: BTreeMap::new(), behind: Vec::new() };
        for topic in &answer.topics {
            for partition in &topic.partitions {
                let place = Place::new(topic.name.unwrap_or(""), partition.partition_index);
                let (all, in_sync) = (&partition.replica_nodes, &partition.isr_nodes);
                let leader = partition.leader_id;
                if leader < 0 || in_sync.len() < all.len() {
                    view.behind.push(format!("{place} led by {leader}, {in_sync:?} of {all:?}"));
                }
                view.leaders.insert(place, leader);
            }
        }
        Ok(view)
    }

    /// What is not as it should be, for a cluster of so many brokers.
    pub(super) fn lacks(&self, brokers: usize) -> Option<String> {
        if self.brokers != brokers {
            return Some(format!("{} brokers", self.brokers));
        }
        match self.behind.as_slice() {
            [] => None,
            [first, rest @ ..] => Some(format!("{first}, and {} more", rest.len())),
        }
    }

    /// Which partitions only one of two brokers knows.
    pub(super) fn differs(&self, other: &View) -> Option<String> {
        let only = |one: &View, other: &View| {
            let mut places = one.leaders.keys();
            places.find(|place| !other.leaders.contains_key(place)).map(ToString::to_string)
        };
        let unknown = || only(other, self).map(|place| format!("no partition {place}"));
        only(self, other).map(|place| format!("{place}, which others do not know")).or_else(unknown)
    }
}

/// What the quorum of the metadata lacks, as a broker says over HTTP, for so many brokers: who has come
/// with an empty disk follows it first, and counts for a majority only once it is a voter.
pub(super) fn quorum_lacks(http: SocketAddr, brokers: usize) -> Result<Option<String>> {
    let cluster = http::get(http, "/cluster")?.success()?;
    let members = |kind: &str| {
        let members = cluster["quorum"][kind].as_array();
        members.map(Vec::len).with_context(|| format!("{cluster}"))
    };
    let (voters, learners) = (members("voters")?, members("learners")?);
    let is_whole = (voters, learners) == (brokers, 0);
    Ok((!is_whole).then(|| format!("{voters} voters and {learners} who follow them")))
}
