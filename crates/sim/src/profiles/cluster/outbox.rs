//! What a process wants to leave it: answers to clients, messages to other brokers. Whoever runs the
//! process empties it after every call.

use std::collections::BTreeSet;
use std::sync::{Arc, Mutex};

use towpath_driver::{Delivery, Net, PeerMessage};
use towpath_model::{BrokerId, Token};

use crate::profiles::broker::shell::lock;

/// What has been said during one call.
#[derive(Debug, Default)]
pub(super) struct Said {
    pub(super) answers: Vec<(Token, Delivery)>,
    pub(super) messages: Vec<(BrokerId, PeerMessage)>,
    pub(super) ready: BTreeSet<BrokerId>,
}

/// A process's net.
#[derive(Debug, Clone, Default)]
pub(super) struct Outbox {
    said: Arc<Mutex<Said>>,
}

impl Outbox {
    /// Everything that was said since this was last asked.
    pub(super) fn take(&self) -> Said {
        std::mem::take(&mut lock(&self.said))
    }
}

impl Net for Outbox {
    fn deliver(&self, token: Token, delivery: Delivery) {
        lock(&self.said).answers.push((token, delivery));
    }

    fn send(&self, to: BrokerId, message: PeerMessage) {
        lock(&self.said).messages.push((to, message));
    }

    fn records_ready(&self, to: BrokerId) {
        lock(&self.said).ready.insert(to);
    }
}
