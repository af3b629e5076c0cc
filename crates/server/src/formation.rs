//! How a node with an empty data directory comes to its cluster.
//!
//! ```text
//! alone         a cluster of one, at once
//! --cluster     wait until every member has said which directory it has
//!                 all of them empty ─▶ they are the first voters; the cluster's id follows from them
//!                 some cluster is there already ─▶ this directory is a new one in it: join
//! --join        wait until somebody says which cluster it is, and join that
//! ```
//!
//! A cluster is formed only by all of its members together. A node whose disk was replaced therefore
//! never forms a second one while the others are away, and never votes as the member it was: its new
//! directory is a new member.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

use sha2::{Digest, Sha256};
use tokio::sync::watch;
use towpath_driver::Formation;
use towpath_log::{DataDirectory, Identity, QuorumFiles};
use towpath_metadata::raft::MemberId;
use towpath_model::{BrokerId, Uuid};

use crate::cluster::Neighbours;
use crate::disk::NodeDisk;
use crate::peer::Hello;
use crate::progress::Progress;

/// How a node was told to come to its cluster.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Membership {
    /// It is a cluster by itself.
    Alone,
    /// It is one of these brokers, which begin together.
    With(BTreeSet<BrokerId>),
    /// It joins a cluster that somebody it knows belongs to.
    Join,
}

/// What a node begins with.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Formed {
    /// The cluster.
    pub cluster_id: String,
    /// This node's part in its quorum.
    pub formation: Formation,
}

/// What a node's first data directory says of where the node belongs.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Belonging {
    /// Whose directory it is; `None`: it is empty.
    pub identity: Option<Identity>,
    /// Whether it has taken part in a quorum: then it knows its cluster, and nobody has to be asked.
    pub has_quorum: bool,
}

impl Belonging {
    /// Reads it. Asks the disk.
    ///
    /// # Errors
    /// When the directory cannot be read, or is none of ours.
    pub fn look(disk: &NodeDisk, first: &Path) -> Result<Belonging, towpath_log::OpenError> {
        let identity = DataDirectory::identity_at(disk, first)?;
        let has_quorum = identity.is_some() && QuorumFiles::are_at(disk, first)?;
        Ok(Belonging { identity, has_quorum })
    }
}

/// The id of the cluster that these members form.
fn cluster_id_of(members: &BTreeMap<BrokerId, Uuid>) -> String {
    let mut hash = Sha256::new();
    hash.update(b"towpath cluster");
    for (broker, directory) in members {
        hash.update(broker.0.to_be_bytes());
        hash.update(directory.0);
    }
    let digest = hash.finalize();
    let mut id = [0; 16];
    id.copy_from_slice(&digest[..16]);
    Uuid::from_random_bytes(id).to_string()
}

/// Waits until it is clear which cluster this is. `me` and `directory` are this node's own; `mine` the
/// cluster that the directory was made for, if a start before this one came so far.
pub async fn form(
    neighbours: &Neighbours,
    membership: &Membership,
    me: BrokerId,
    directory: Uuid,
    mine: Option<&str>,
) -> Formed {
    form_watched(neighbours, membership, me, directory, mine, &Progress::default()).await
}

/// [`form`], which others can watch.
pub async fn form_watched(
    neighbours: &Neighbours,
    membership: &Membership,
    me: BrokerId,
    directory: Uuid,
    mine: Option<&str>,
    progress: &Progress,
) -> Formed {
    let mut hellos = neighbours.hellos();
    let mut told = None;
    loop {
        let decided = decide(&hellos.borrow_and_update(), membership, me, directory, mine);
        match decided {
            Ok(formed) => {
                progress.wait_for_nobody();
                return formed;
            }
            Err(missing) if told.as_ref() != Some(&missing) => {
                progress.wait_for(&missing);
                tracing::info!("{}", progress.waiting().unwrap_or_default());
                told = Some(missing);
            }
            Err(_) => {}
        }
        if hellos.changed().await.is_err() {
            // The sender lives as long as the node: this is its end.
            std::future::pending::<()>().await;
        }
    }
}

/// What is clear by now, or of whom nothing has been heard.
fn decide(
    hellos: &BTreeMap<BrokerId, Hello>,
    membership: &Membership,
    me: BrokerId,
    directory: Uuid,
    mine: Option<&str>,
) -> Result<Formed, BTreeSet<BrokerId>> {
    let clusters = hellos.values().filter_map(|hello| hello.cluster_id.clone());
    let there = clusters.min();
    match membership {
        Membership::Alone => {
            let cluster_id = cluster_id_of(&BTreeMap::from([(me, directory)]));
            Ok(Formed { cluster_id, formation: Formation::Alone })
        }
        Membership::Join => match there {
            Some(cluster_id) => Ok(Formed { cluster_id, formation: Formation::Joining }),
            None => Err(BTreeSet::new()),
        },
        Membership::With(brokers) => {
            let others = brokers.iter().filter(|broker| **broker != me);
            let missing: BTreeSet<BrokerId> =
                others.filter(|broker| !hellos.contains_key(broker)).copied().collect();
            if !missing.is_empty() {
                return Err(missing);
            }
            let directory_of = |broker: &BrokerId| match hellos.get(broker) {
                Some(hello) if *broker != me => hello.directory_id,
                _ => directory,
            };
            let members: BTreeMap<BrokerId, Uuid> =
                brokers.iter().map(|broker| (*broker, directory_of(broker))).collect();
            let cluster_id = cluster_id_of(&members);
            let known = there.as_deref().or(mine);
            if known.is_some_and(|known| known != cluster_id) {
                let cluster_id = known.map(str::to_owned).unwrap_or(cluster_id);
                return Ok(Formed { cluster_id, formation: Formation::Joining });
            }
            let voters = members.iter().map(|(broker, id)| MemberId::new(*broker, *id)).collect();
            Ok(Formed { cluster_id, formation: Formation::With(voters) })
        }
    }
}

/// The cluster of this node, once it is known: what the transport tells peers.
#[derive(Debug, Clone)]
pub struct ClusterId(watch::Sender<Option<String>>);

impl Default for ClusterId {
    fn default() -> Self {
        ClusterId(watch::Sender::new(None))
    }
}

impl ClusterId {
    /// It is this one.
    pub fn set(&self, id: &str) {
        self.0.send_replace(Some(id.to_owned()));
    }

    /// What is known.
    #[must_use]
    pub fn get(&self) -> Option<String> {
        self.0.borrow().clone()
    }
}
