//! Elections that an operator asks for (ElectLeaders, KIP-460).

use std::collections::BTreeSet;

use crate::cluster::{ElectionKind, NamedPartition};
use crate::elect::{Election, Electorate};
use crate::image::Image;
use crate::metadata::Decided;
use crate::record::Record;
use crate::refusal::Refusal;
use crate::request::Reply;

impl Image {
    /// `None` asks for all partitions; those that need no election are then not in the answer.
    pub(crate) fn elect_leaders(
        &self,
        kind: ElectionKind,
        asked: Option<Vec<NamedPartition>>,
    ) -> Decided {
        let electorate = self.electorate();
        let is_all = asked.is_none();
        let asked = asked.unwrap_or_else(|| {
            let all = self.partitions();
            all.map(|(topic, id, _)| (topic.name.to_string(), id.partition)).collect()
        });
        let mut seen = BTreeSet::new();
        let mut records = Vec::new();
        let mut outcomes = Vec::new();
        for partition in asked {
            if !seen.insert(partition.clone()) {
                continue;
            }
            let result = self.elect_leader(&electorate, kind, &partition);
            if is_all && result == Err(Refusal::ElectionNotNeeded) {
                continue;
            }
            outcomes.push((partition, result.map(|record| records.push(record))));
        }
        (records, Reply::ElectedLeaders(outcomes))
    }

    fn elect_leader(
        &self,
        electorate: &Electorate,
        kind: ElectionKind,
        partition: &NamedPartition,
    ) -> Result<Record, Refusal> {
        let (topic, id, state) = self.named(partition)?;
        let elect = |election| {
            let wanted = state.clone();
            self.settled_by(electorate, topic, id, wanted, election, &[])
        };
        match kind {
            ElectionKind::Preferred => {
                let preferred = state.replicas.first().copied();
                if state.leader.is_some() && state.leader == preferred {
                    return Err(Refusal::ElectionNotNeeded);
                }
                let elected = elect(Election::Preferred).filter(|record| match record {
                    Record::Partition { state, .. } => state.leader == preferred,
                    _ => false,
                });
                elected.ok_or(Refusal::PreferredLeaderNotAvailable)
            }
            ElectionKind::Unclean if state.leader.is_some() => Err(Refusal::ElectionNotNeeded),
            ElectionKind::Unclean => {
                elect(Election::Unclean).ok_or(Refusal::EligibleLeadersNotAvailable)
            }
        }
    }
}
