//! How long a delivery lasts, as far as the one who was told of it can rely on it.

use towpath_model::Time;

/// The newest delivery.
#[derive(Debug, Clone)]
pub(super) struct Lease {
    pub(super) number: u64,
    /// Nobody else gets the message before, if nothing else was asked for.
    pub(super) first_until: Time,
    pub(super) attempt: Option<u64>,
    /// What was asked for since, in that order.
    pub(super) changes: Vec<Change>,
}

/// Somebody has asked for another end of a lease.
#[derive(Debug, Clone)]
pub(super) struct Change {
    /// In which call.
    call: u64,
    until: Time,
    /// It was answered.
    is_sure: bool,
}

impl Lease {
    /// Nobody else gets the message before.
    pub(super) fn until(&self) -> Time {
        self.changes.iter().fold(self.first_until, |until, change| match change.is_sure {
            true => change.until,
            false => until.min(change.until),
        })
    }

    pub(super) fn may_end(&mut self, call: u64, until: Time) {
        self.changes.push(Change { call, until, is_sure: false });
    }

    pub(super) fn surely_ends(&mut self, call: u64) {
        let changes = self.changes.iter_mut().filter(|change| change.call == call);
        changes.for_each(|change| change.is_sure = true);
    }
}
