//! Ids of requests, for people who compare logs: as distinct as random ones, without asking the system for
//! randomness each time.

use std::sync::atomic::{AtomicU64, Ordering};

use towpath_model::Uuid;

/// Gives out ids that count up from a random one.
#[derive(Debug)]
pub(crate) struct RequestIds {
    first: u128,
    given: AtomicU64,
}

impl RequestIds {
    pub(crate) fn beginning_with(first: Uuid) -> RequestIds {
        RequestIds { first: u128::from_be_bytes(first.0), given: AtomicU64::new(0) }
    }

    /// The next one, as most of the world writes it.
    pub(crate) fn next(&self) -> String {
        let given = self.given.fetch_add(1, Ordering::Relaxed);
        let id = self.first.wrapping_add(u128::from(given));
        Uuid::from_random_bytes(id.to_be_bytes()).hyphenated()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ids_differ_and_are_those_of_random_uuids() {
        let ids = RequestIds::beginning_with(Uuid([0xff; 16]));
        let (one, two) = (ids.next(), ids.next());
        assert_eq!(one, "ffffffff-ffff-4fff-bfff-ffffffffffff");
        assert_eq!(two, "00000000-0000-4000-8000-000000000000");
    }
}
