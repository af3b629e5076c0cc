//! What every connection between brokers works with.

use std::sync::Arc;
use std::time::{Duration, Instant};

use towpath_model::{BrokerId, Time, Uuid};

use super::addresses::Addresses;
use super::handshake::Refusal;
use super::hello::{Class, Hello, LEVELS, NONCE_BYTES, PeerAddress};
use super::metrics::PeerMetrics;
use super::secret::Secret;
use super::{PeerHandler, PeerLimits};
use crate::cold_reads::ColdReads;
use crate::complaints::Complaints;
use crate::limits::Ledger;

/// Says to which cluster this broker belongs at the moment; `None`: to none yet.
pub type ClusterIdGetter = Arc<dyn Fn() -> Option<String> + Send + Sync>;

/// Shared by all tasks, and ends with them: it holds the handler, which may hold [`super::Peers`].
pub(crate) struct Context {
    pub(crate) node_id: BrokerId,
    pub(crate) directory_id: Uuid,
    pub(crate) incarnation: Uuid,
    pub(crate) cluster_id: ClusterIdGetter,
    pub(crate) address: Option<PeerAddress>,
    pub(crate) secret: Option<Secret>,
    pub(crate) addresses: Addresses,
    pub(crate) limits: PeerLimits,
    pub(crate) metrics: PeerMetrics,
    pub(crate) ledger: Ledger,
    /// Who may wait for a device: a few at once, whatever the number of peers.
    pub(crate) cold_reads: ColdReads,
    pub(crate) handler: Arc<dyn PeerHandler>,
    pub(crate) complaints: Complaints,
    pub(crate) began: Instant,
}

impl Context {
    /// What this broker says of itself, never twice the same.
    pub(crate) fn hello(&self, class: Class, expects: Option<BrokerId>) -> Hello {
        let mut nonce = [0; NONCE_BYTES];
        getrandom::fill(&mut nonce).expect("the system has randomness");
        Hello {
            levels: LEVELS,
            class,
            has_secret: self.secret.is_some(),
            node_id: self.node_id,
            directory_id: self.directory_id,
            incarnation: self.incarnation,
            nonce,
            expects,
            cluster_id: (self.cluster_id)(),
            address: self.address.clone(),
        }
    }

    /// Counts a refusal. The result: how many lines were left out, if one may be written.
    pub(crate) fn refused(&self, refusal: &Refusal) -> Option<u64> {
        self.metrics.refused(refusal.name());
        self.may_complain()
    }

    pub(crate) fn may_complain(&self) -> Option<u64> {
        let elapsed = u64::try_from(self.began.elapsed().as_nanos()).unwrap_or(u64::MAX);
        self.complaints.allow(Time(elapsed))
    }
}

/// Between half of `rest` and all of it, so that many do not come at once.
pub(crate) fn jittered(rest: Duration) -> Duration {
    let chance = getrandom::u32().unwrap_or(u32::MAX / 2);
    rest.mul_f64(0.5 + 0.5 * f64::from(chance) / f64::from(u32::MAX))
}
