//! Who belongs to the cluster, as its operators order it: a broker leaves for good, one is emptied
//! first, one has put replicas into a directory, and the cluster gets its name.

use std::collections::BTreeSet;

use towpath_model::{BrokerId, TopicPartition, Uuid};

use crate::broker::Broker;
use crate::metadata::{Decided, Metadata};
use crate::record::Record;
use crate::refusal::Refusal;
use crate::request::Reply;
use crate::topic::PartitionState;

/// The longest name of a cluster, in bytes.
const CLUSTER_ID_BYTES_MAX: usize = 249;

impl Metadata {
    /// Forgets a broker (UnregisterBroker, KIP-500). Partitions keep naming it as a replica until
    /// they are moved, which happens by itself.
    pub(crate) fn unregister_broker(&self, id: BrokerId) -> Decided {
        let mut records = Vec::new();
        let result = self.forget(id, &mut records);
        (records, Reply::UnregisteredBroker(result))
    }

    /// Forgets a broker that holds nothing, and sees to it that it stays away: with the data
    /// directories that it had it does not come back.
    pub(crate) fn remove_broker(&self, id: BrokerId) -> Decided {
        let image = self.image();
        let mut records = Vec::new();
        let mut remove = || {
            let broker = image.broker(id).ok_or(Refusal::BrokerNotRegistered(id))?;
            let is_there = !broker.fenced && !broker.in_controlled_shutdown;
            if is_there && !broker.drained {
                return Err(Refusal::BrokerThere(id));
            }
            let replicas = image.load(id).replicas;
            let mut held = image.partitions().filter(|(.., state)| state.replicas.contains(&id));
            if let Some((topic, ..)) = held.next() {
                let topic = topic.name.as_str().to_owned();
                return Err(Refusal::BrokerHoldsReplicas { broker: id, replicas, topic });
            }
            let directories = broker.directories.iter();
            records.extend(
                directories.map(|directory| Record::Retired { broker: id, directory: *directory }),
            );
            self.forget(id, &mut records)
        };
        let result = remove();
        if result.is_err() {
            records.clear();
        }
        (records, Reply::RemovedBroker(result))
    }

    fn forget(&self, id: BrokerId, records: &mut Vec<Record>) -> Result<(), Refusal> {
        let broker = self.image().broker(id).ok_or(Refusal::BrokerNotRegistered(id))?;
        if self.is_alone() {
            return Err(Refusal::LastBroker(id));
        }
        let mut electorate = self.image().electorate();
        electorate.brokers.remove(&id);
        // Epochs rise over all registrations, so the largest must not be forgotten with it.
        records.push(Record::BrokerEpoch(broker.epoch));
        records.push(Record::BrokerRemoved { id });
        self.settle_all(&electorate, records);
        Ok(())
    }

    /// Says whether a broker's replicas are to go elsewhere. Others lead at once, as far as they are
    /// in sync; replicas move step by step.
    pub(crate) fn drain_broker(&self, id: BrokerId, drained: bool) -> Decided {
        let image = self.image();
        let mut records = Vec::new();
        let mut drain = || {
            let broker = image.broker(id).ok_or(Refusal::BrokerNotRegistered(id))?;
            let others = image.brokers().filter(|other| other.id != id && image.can_hold(other.id));
            if drained && others.filter(|other| !other.drained).count() == 0 {
                return Err(Refusal::LastBroker(id));
            }
            if broker.drained == drained {
                return Ok(());
            }
            let changed = Broker { drained, ..broker.clone() };
            let mut electorate = image.electorate();
            electorate.brokers.insert(id, changed.clone());
            records.push(Record::Broker(changed));
            self.settle_all(&electorate, &mut records);
            Ok(())
        };
        let result = drain();
        (records, Reply::DrainedBroker(result))
    }

    /// Notes in which directories a broker's replicas lie (KIP-858).
    pub(crate) fn assign_directories(
        &self,
        broker: BrokerId,
        epoch: i64,
        assigned: Vec<(TopicPartition, Uuid)>,
    ) -> Decided {
        let image = self.image();
        let mut records = Vec::new();
        let assign = || {
            let known = image.registered(broker, epoch)?;
            let electorate = image.electorate();
            let mut seen = BTreeSet::new();
            for (partition, directory) in assigned {
                // A partition that has gone meanwhile needs none.
                let Some(state) = image.partition(partition) else { continue };
                let Some(topic) = image.topic_by_id(partition.topic) else { continue };
                let at = state.replicas.iter().position(|id| *id == broker);
                let Some(at) = at.filter(|_| seen.insert(partition)) else { continue };
                if !known.directories.contains(&directory) {
                    return Err(Refusal::UnknownDirectory(directory));
                }
                let mut wanted: PartitionState = state.clone();
                wanted.directories[at] = directory;
                electorate.without_unusable(&mut wanted);
                records.extend(image.settled(&electorate, topic, partition, wanted));
            }
            Ok(())
        };
        let result = assign();
        if result.is_err() {
            records.clear();
        }
        (records, Reply::AssignedDirectories(result))
    }

    /// Gives the cluster its name, unless it has one; the answer is the one in force.
    pub(crate) fn name_cluster(&self, id: String) -> Decided {
        if let Some(known) = self.image().cluster_id() {
            return (Vec::new(), Reply::NamedCluster(Ok(known.to_owned())));
        }
        if id.is_empty() || CLUSTER_ID_BYTES_MAX < id.len() {
            return (Vec::new(), Reply::NamedCluster(Err(Refusal::InvalidClusterId)));
        }
        (vec![Record::ClusterId(id.clone())], Reply::NamedCluster(Ok(id)))
    }
}
