//! Where brokers are, from all who say something about it.
//!
//! ```text
//! what a peer says of itself when it connects  >  what the operator has configured  >  the metadata
//! ```
//!
//! The metadata comes last: when all brokers of a cluster move at once, it names the addresses that they
//! have left, until they have found each other. A peer that has proved who it is knows best.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use tokio::sync::watch;
use towpath_metadata::Image;
use towpath_model::BrokerId;

use crate::cluster::Neighbours;
use crate::node::Node;
use crate::peer::{Addresses, PeerAddress};

/// The name of the listener for peers in a broker's registration.
pub(crate) const PEER_LISTENER: &str = "PEER";

/// How often the transport is told.
const LOOK_EVERY: Duration = Duration::from_millis(500);

/// Keeps the transport's addresses in line with what is known.
#[derive(Debug, Clone, Default)]
pub struct AddressBook {
    configured: BTreeMap<BrokerId, PeerAddress>,
}

impl AddressBook {
    /// With what the operator has configured.
    #[must_use]
    pub fn new(configured: BTreeMap<BrokerId, PeerAddress>) -> AddressBook {
        AddressBook { configured }
    }

    /// Tells the transport where brokers are, again and again, until `stop` changes.
    pub async fn keep(
        self,
        addresses: Addresses,
        neighbours: Arc<Neighbours>,
        node: Arc<Node>,
        mut stop: watch::Receiver<bool>,
    ) {
        loop {
            let known = self.known(&node.driver().image(), &neighbours.addresses());
            addresses.replace(known);
            for broker in gone(&node.driver().image()) {
                // As long as it is there, it is told that it was removed.
                if !node.is_connected(broker) {
                    addresses.remove(broker);
                }
            }
            tokio::select! {
                () = tokio::time::sleep(LOOK_EVERY) => {}
                _ = stop.changed() => return,
            }
        }
    }

    fn known(
        &self,
        image: &Image,
        said: &BTreeMap<BrokerId, PeerAddress>,
    ) -> BTreeMap<BrokerId, PeerAddress> {
        let registered = image.brokers().filter_map(|broker| {
            let address = broker.address(PEER_LISTENER)?;
            Some((broker.id, PeerAddress { host: address.host.clone(), port: address.port }))
        });
        let mut known: BTreeMap<_, _> = registered.collect();
        known.extend(self.configured.clone());
        for (id, address) in &mut known {
            if let Some(said) = said.get(id) {
                address.clone_from(said);
            }
        }
        known
    }
}

/// Brokers that were removed: nobody has to look for them any more.
fn gone(image: &Image) -> BTreeSet<BrokerId> {
    let removed = image.retired().map(|(broker, _)| broker);
    removed.filter(|broker| image.broker(*broker).is_none()).collect()
}

#[cfg(test)]
mod tests {
    use towpath_metadata::{Address, Broker, Overrides, Record, Role};
    use towpath_model::Uuid;

    use super::*;

    fn at(port: u16) -> PeerAddress {
        PeerAddress { host: "host".to_owned(), port }
    }

    fn image(brokers: &[(i32, u16)]) -> Image {
        let mut image = Image::new(BrokerId(1), Overrides::new());
        for (id, port) in brokers {
            let listener = PEER_LISTENER.to_owned();
            let address = Address { listener, host: "host".to_owned(), port: *port };
            image.apply(&Record::Broker(Broker {
                id: BrokerId(*id),
                epoch: 1,
                incarnation: Uuid::ZERO,
                role: Role::Broker,
                rack: None,
                addresses: vec![address],
                directories: Vec::new(),
                offline: Vec::new(),
                fenced: false,
                in_controlled_shutdown: false,
                format_level: towpath_metadata::FORMAT_LEVEL,
                drained: false,
            }));
        }
        image
    }

    #[test]
    fn peers_know_best_then_the_operator_then_the_metadata() {
        let book = AddressBook::new([(BrokerId(1), at(11)), (BrokerId(2), at(12))].into());
        let image = image(&[(2, 22), (3, 23), (4, 24)]);
        let said = [(BrokerId(1), at(31)), (BrokerId(4), at(34)), (BrokerId(5), at(35))].into();
        let known = book.known(&image, &said);
        let expected = [(1, 31), (2, 12), (3, 23), (4, 34)];
        assert_eq!(known, expected.map(|(id, port)| (BrokerId(id), at(port))).into());
    }

    #[test]
    fn who_was_removed_is_gone_until_it_comes_back_with_another_disk() {
        let mut image = image(&[(2, 22), (3, 23)]);
        for broker in [BrokerId(3), BrokerId(4)] {
            image.apply(&Record::Retired { broker, directory: Uuid::ZERO });
        }
        assert_eq!(gone(&image), [BrokerId(4)].into());
    }
}
