//! This node among its peers: what arrives goes to the driver, what the driver sends goes out.
//!
//! The transport ([`crate::peer`]) carries bytes and the driver knows what they mean; here they meet.
//! Until the driver is there, only who has called is kept: a cluster that is being formed needs it.

use std::collections::BTreeMap;
use std::sync::{Arc, OnceLock};

use bytes::Bytes;
use tokio::sync::watch;
use towpath_broker::peer::{Frame, PeerMessage, encode_heads};
use towpath_driver::{Batches, NextRecords, Portion};
use towpath_model::BrokerId;

use crate::disk::NodeDisk;
use crate::node::Node;
use crate::peer::{Hello, Part, PeerAddress, PeerHandler, Records};

/// Batches with fewer bytes are copied rather than sent from their file by a call of their own.
const FILE_BYTES_MIN: usize = 16 * 1024;

/// Peers as the transport knows them, for the node that they are peers of.
#[derive(Default)]
pub struct Neighbours {
    node: OnceLock<Arc<Node>>,
    hellos: watch::Sender<BTreeMap<BrokerId, Hello>>,
}

impl Neighbours {
    /// What peers have said of themselves so far, and may say.
    pub(crate) fn hellos(&self) -> watch::Receiver<BTreeMap<BrokerId, Hello>> {
        self.hellos.subscribe()
    }

    /// Where peers say that they are, of those that have called or been called.
    pub(crate) fn addresses(&self) -> BTreeMap<BrokerId, PeerAddress> {
        let hellos = self.hellos.borrow();
        hellos.iter().filter_map(|(id, hello)| Some((*id, hello.address.clone()?))).collect()
    }

    /// From now on what arrives goes to this node.
    pub fn serve(&self, node: &Arc<Node>) {
        if self.node.set(Arc::clone(node)).is_err() {
            return;
        }
        let known: Vec<BrokerId> = self.hellos.borrow().keys().copied().collect();
        for peer in known {
            node.guarded(|| node.driver().peer_connected(peer));
        }
    }
}

impl PeerHandler for Neighbours {
    fn receive(&self, from: BrokerId, message: Bytes) {
        let Some(node) = self.node.get() else { return };
        match Frame::decode(&message) {
            Ok(Frame::Message(message)) => {
                if let PeerMessage::Join { member, address: Some(place) } = &message {
                    node.hear_of(member.broker(), place);
                }
                node.guarded(|| node.driver().receive(from, message));
            }
            Ok(Frame::Records(answers)) => {
                node.guarded(|| node.driver().receive_records(from, answers));
            }
            Err(error) => {
                if let Some(suppressed) = node.may_complain() {
                    tracing::warn!(%from, %error, suppressed, "a message of a broker is not understood");
                }
            }
        }
    }

    fn next_records(&self, to: BrokerId, bytes_max: usize, may_wait: bool) -> Records {
        let Some(node) = self.node.get() else { return Records::Nothing };
        match node.driver().next_records(to, bytes_max, may_wait) {
            NextRecords::Nothing => Records::Nothing,
            NextRecords::Cold => Records::Cold,
            NextRecords::Answers(answers) => Records::Message(parts(answers)),
        }
    }

    fn connected(&self, peer: BrokerId, hello: &Hello) {
        self.hellos.send_if_modified(|hellos| {
            let before = hellos.insert(peer, hello.clone());
            // Another nonce comes with every connection.
            before.is_none_or(|before| {
                (before.directory_id, before.cluster_id, before.incarnation, before.address)
                    != (
                        hello.directory_id,
                        hello.cluster_id.clone(),
                        hello.incarnation,
                        hello.address.clone(),
                    )
            })
        });
        if let Some(node) = self.node.get() {
            node.guarded(|| node.driver().peer_connected(peer));
        }
    }

    fn disconnected(&self, peer: BrokerId, refused: bool) {
        if let Some(node) = self.node.get() {
            node.guarded(|| node.driver().peer_disconnected(peer, refused));
        }
    }
}

/// Answers as the parts of one message.
fn parts(answers: Vec<Portion<NodeDisk>>) -> Vec<Part> {
    let (mut heads, mut batches) = (Vec::with_capacity(answers.len()), Vec::new());
    for Portion { partition, answer, batches: found } in answers {
        let part = match found {
            Batches::Memory(bytes) => Part::Bytes(bytes),
            Batches::File(slice) if slice.len < FILE_BYTES_MIN => match slice.read() {
                Ok(bytes) => Part::Bytes(bytes),
                Err(error) => {
                    // The follower tells its position again.
                    tracing::warn!(%partition, %error, "records for a follower cannot be read");
                    continue;
                }
            },
            Batches::File(slice) => {
                Part::File { file: slice.file, position: slice.position, len: slice.len }
            }
        };
        heads.push((partition, answer, part.size()));
        batches.push(part);
    }
    batches.insert(0, Part::Bytes(encode_heads(heads)));
    batches
}
