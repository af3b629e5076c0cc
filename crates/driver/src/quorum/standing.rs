//! What this broker says about itself: that it has started, and that it is there.
//!
//! ```text
//! start ─▶ register, until the registration is in the image ─▶ open partitions ─▶ heartbeats: unfenced
//!          stop wanted ─▶ heartbeats say so, until nobody would miss this broker
//! ```
//!
//! It leads and follows nothing before its own registration of this process is in its image: what the
//! metadata says of an earlier process does not concern this one.

use std::time::Duration;

use towpath_broker::Outcome;
use towpath_log::disk::Disk;
use towpath_metadata::{Heartbeat, Refusal, Registration, Reply, Request};
use towpath_model::{Now, Time, Uuid};

use super::QuorumSlot;
use crate::driver::Driver;
use crate::open::OpenError;
use crate::world::{Clock, Delivery, Net};

/// Own tokens of what this broker says about itself; in-sync sets have the numbers above.
const REGISTER: u64 = 1;
const HEARTBEAT: u64 = 2;
pub(super) const SILENT: u64 = 3;
pub(crate) const DOUBT: u64 = 4;
pub(crate) const DIRECTORIES: u64 = 5;
pub(crate) const FIRST_PROPOSAL: u64 = 16;

/// How often a registration that has not come back is repeated.
const REGISTER_EVERY: Duration = Duration::from_millis(300);
/// How often a broker says that it is there.
const HEARTBEAT_EVERY: Duration = Duration::from_millis(100);

/// What this broker tells the controller, and was told.
#[derive(Debug)]
pub(crate) struct Station {
    registration: Registration,
    /// What the image says of this process.
    registered: Option<i64>,
    register_at: Option<Time>,
    beat_at: Option<Time>,
    sequence: u64,
    /// Partitions have been opened: what is on the disks is known.
    is_ready: bool,
    wants_shutdown: bool,
    may_shut_down: bool,
}

/// How this broker stands with the cluster.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Standing {
    /// The epoch of its registration, once it is registered.
    pub broker_epoch: Option<i64>,
    /// Whether it counts as gone.
    pub is_fenced: bool,
    /// Whether it can stop without anybody missing it.
    pub may_shut_down: bool,
}

impl Station {
    pub(crate) fn new(registration: Registration) -> Station {
        Station {
            registration,
            registered: None,
            register_at: None,
            beat_at: None,
            sequence: 0,
            is_ready: false,
            wants_shutdown: false,
            may_shut_down: false,
        }
    }
}

impl<D: Disk, C: Clock, N: Net> Driver<D, C, N> {
    fn station(&self) -> std::sync::MutexGuard<'_, Station> {
        self.station.lock().expect("no panic holds the station")
    }

    /// How this broker stands with the cluster.
    pub fn standing(&self) -> Standing {
        let (registered, may_shut_down) = {
            let station = self.station();
            (station.registered, station.may_shut_down)
        };
        let image = self.image();
        let broker = image.broker(self.settings.broker_id).filter(|_| registered.is_some());
        let is_fenced = broker.is_none_or(|broker| broker.fenced);
        Standing { broker_epoch: registered, is_fenced, may_shut_down }
    }

    /// The epoch of this process's registration, once the image has it.
    pub(crate) fn broker_epoch(&self) -> Option<i64> {
        self.station().registered
    }

    /// Asks the cluster to do without this broker; [`Driver::standing`] says when it can.
    pub fn want_shutdown(&self) {
        let mut station = self.station();
        station.wants_shutdown = true;
        station.beat_at = None;
    }

    /// Whether there is nobody else: then nobody watches this broker.
    pub(crate) fn is_alone(&self) -> bool {
        let is_alone = self.quorum.lock().is_sole_voter();
        is_alone && self.image().brokers().all(|broker| broker.id == self.settings.broker_id)
    }

    /// Registers, or says that it is there, when it is time.
    pub(super) fn keep_station(&self, now: Now) {
        if self.is_retired() {
            return;
        }
        let request = self.station().next(now.time);
        let Some((number, mut request)) = request else { return };
        if let Request::Heartbeat(heartbeat) = &mut request {
            heartbeat.applied = self.quorum.lock().applied.0;
            heartbeat.offline = self.offline_directories();
        }
        self.ask_for_myself(number, request);
    }

    /// Registers now.
    pub(crate) fn register(&self) {
        let registration = self.station().registration.clone();
        self.ask_for_myself(REGISTER, Request::RegisterBroker(registration));
    }

    /// The image has changed: it may know of this process now. Says whether it does for the first
    /// time.
    pub(crate) fn note_registration(&self, epoch: Option<i64>) -> bool {
        let mut station = self.station();
        let is_first = station.registered.is_none() && epoch.is_some();
        station.registered = epoch;
        is_first
    }

    /// Every partition that lies here has been looked at.
    pub(crate) fn note_ready(&self) {
        let mut station = self.station();
        station.is_ready = true;
        station.beat_at = None;
    }

    /// An answer to something that this broker asked for itself.
    pub(crate) fn own_answer(&self, number: u64, delivery: Delivery) {
        match (number, delivery) {
            (HEARTBEAT, Delivery::Metadata(Reply::Beat(Ok(beat)))) => {
                let mut station = self.station();
                station.may_shut_down = station.wants_shutdown && beat.may_shut_down;
            }
            (HEARTBEAT, Delivery::Metadata(Reply::Beat(Err(refusal)))) => {
                tracing::warn!(%refusal, "the controller does not accept this broker's heartbeat");
            }
            (REGISTER, Delivery::Metadata(Reply::RegisteredBroker(Err(refusal)))) => {
                tracing::error!(%refusal, "the controller does not accept this broker");
                if matches!(refusal, Refusal::ProgramTooOld { .. }) {
                    self.note_unserved(OpenError::ProgramTooOld(refusal));
                }
            }
            (REGISTER | HEARTBEAT, Delivery::Wait(Outcome::NotLeader)) => {
                // Whoever is the controller now is asked soon.
                let mut station = self.station();
                station.register_at = None;
                station.beat_at = None;
            }
            (REGISTER | HEARTBEAT | SILENT | DIRECTORIES, _) => {}
            (DOUBT, delivery) => self.doubts_answered(delivery),
            (proposal, delivery) => self.proposal_answered(proposal, delivery),
        }
    }

    /// Data directories that are absent or have failed.
    fn offline_directories(&self) -> Vec<Uuid> {
        let failed = self.volumes.iter().filter(|volume| volume.directory.is_failed());
        let failed = failed.map(|volume| volume.directory.identity().directory_id);
        failed.chain(self.missing.iter().filter_map(|missing| missing.id)).collect()
    }
}

impl Station {
    /// What there is to say now.
    fn next(&mut self, now: Time) -> Option<(u64, Request)> {
        let Some(epoch) = self.registered else {
            if self.register_at.is_some_and(|at| now < at) {
                return None;
            }
            self.register_at = Some(now + REGISTER_EVERY);
            return Some((REGISTER, Request::RegisterBroker(self.registration.clone())));
        };
        if self.beat_at.is_some_and(|at| now < at) {
            return None;
        }
        self.beat_at = Some(now + HEARTBEAT_EVERY);
        self.sequence += 1;
        let heartbeat = Heartbeat {
            broker: self.registration.id,
            epoch,
            sequence: self.sequence,
            applied: 0,
            is_ready: self.is_ready,
            wants_shutdown: self.wants_shutdown,
            offline: Vec::new(),
        };
        Some((HEARTBEAT, Request::Heartbeat(heartbeat)))
    }
}

impl<D: Disk> QuorumSlot<D> {
    /// Whether this broker alone decides.
    pub(crate) fn is_sole_voter(&self) -> bool {
        let status = self.core.status();
        let voters = &status.membership.voters;
        status.membership.members().len() == 1 && voters.contains(&status.me)
    }
}
