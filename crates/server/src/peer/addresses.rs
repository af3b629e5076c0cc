//! Where peers are: what the cluster says, and what those without a better known address have said of
//! themselves.

use std::collections::BTreeMap;
use std::sync::Arc;

use tokio::sync::watch;
use towpath_model::BrokerId;

use super::hello::PeerAddress;

/// Addresses of peers, which may change at any time. Cheap to clone; all clones are one.
#[derive(Debug, Clone)]
pub struct Addresses(Arc<watch::Sender<Known>>);

/// What is known at a moment.
#[derive(Debug, Clone, Default)]
pub(crate) struct Known {
    /// By those who run the cluster, and by its metadata.
    told: BTreeMap<BrokerId, PeerAddress>,
    /// By peers of themselves.
    learned: BTreeMap<BrokerId, PeerAddress>,
    /// Addresses of whoever may be there.
    seeds: Vec<PeerAddress>,
}

impl Known {
    pub(crate) fn of(&self, peer: BrokerId) -> Option<&PeerAddress> {
        self.told.get(&peer).or_else(|| self.learned.get(&peer))
    }

    pub(crate) fn peers(&self) -> impl Iterator<Item = BrokerId> {
        let learned = self.learned.keys().filter(|peer| !self.told.contains_key(peer));
        self.told.keys().chain(learned).copied()
    }

    pub(crate) fn seeds(&self) -> &[PeerAddress] {
        &self.seeds
    }
}

impl Default for Addresses {
    fn default() -> Self {
        Addresses(Arc::new(watch::Sender::new(Known::default())))
    }
}

impl Addresses {
    /// These peers, at these addresses.
    #[must_use]
    pub fn new(told: impl IntoIterator<Item = (BrokerId, PeerAddress)>) -> Addresses {
        let addresses = Addresses::default();
        addresses.replace(told);
        addresses
    }

    /// Says where a peer is. A connection to another address of it ends.
    pub fn set(&self, peer: BrokerId, address: PeerAddress) {
        self.change(|known| known.told.insert(peer, address.clone()).as_ref() != Some(&address));
    }

    /// Forgets a peer, until it makes itself known again: connections to it end.
    pub fn remove(&self, peer: BrokerId) {
        self.change(|known| {
            let was_learned = known.learned.remove(&peer).is_some();
            known.told.remove(&peer).is_some() || was_learned
        });
    }

    /// These peers and no others, besides those that make themselves known.
    pub fn replace(&self, told: impl IntoIterator<Item = (BrokerId, PeerAddress)>) {
        let told: BTreeMap<_, _> = told.into_iter().collect();
        self.change(|known| {
            let is_other = known.told != told;
            known.told = told;
            is_other
        });
    }

    /// Addresses at which brokers of the cluster may be, whoever they are: they are asked now and then
    /// who they are, and are peers from then on.
    pub fn set_seeds(&self, seeds: impl IntoIterator<Item = PeerAddress>) {
        let seeds: Vec<_> = seeds.into_iter().collect();
        self.change(|known| {
            let is_other = known.seeds != seeds;
            known.seeds = seeds;
            is_other
        });
    }

    /// Where a peer is.
    #[must_use]
    pub fn of(&self, peer: BrokerId) -> Option<PeerAddress> {
        self.0.borrow().of(peer).cloned()
    }

    /// What a peer that has proved itself says of itself. Does not count where something else is told.
    /// `false`: there are too many already.
    pub(crate) fn learn(&self, peer: BrokerId, address: PeerAddress, peers_max: usize) -> bool {
        let mut is_known = true;
        self.change(|known| {
            is_known = known.of(peer).is_some() || known.peers().count() < peers_max;
            is_known && known.learned.insert(peer, address.clone()).as_ref() != Some(&address)
        });
        is_known
    }

    pub(crate) fn watch(&self) -> watch::Receiver<Known> {
        self.0.subscribe()
    }

    fn change(&self, change: impl FnOnce(&mut Known) -> bool) {
        self.0.send_if_modified(change);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(port: u16) -> PeerAddress {
        PeerAddress { host: "host".to_owned(), port }
    }

    #[test]
    fn what_is_told_counts_more_than_what_a_peer_says() {
        let addresses = Addresses::new([(BrokerId(1), at(1))]);
        assert!(addresses.learn(BrokerId(1), at(9), 2));
        assert!(addresses.learn(BrokerId(2), at(2), 2));
        assert_eq!(addresses.of(BrokerId(1)), Some(at(1)));
        assert_eq!(addresses.of(BrokerId(2)), Some(at(2)));
        assert!(!addresses.learn(BrokerId(3), at(3), 2));
        assert_eq!(addresses.of(BrokerId(3)), None);
        addresses.remove(BrokerId(2));
        assert_eq!(addresses.of(BrokerId(2)), None);
    }

    #[test]
    fn only_a_change_is_one() {
        let addresses = Addresses::new([(BrokerId(1), at(1))]);
        let watch = addresses.watch();
        addresses.set(BrokerId(1), at(1));
        addresses.replace([(BrokerId(1), at(1))]);
        assert!(!watch.has_changed().unwrap());
        addresses.set(BrokerId(1), at(2));
        assert!(watch.has_changed().unwrap());
    }
}
