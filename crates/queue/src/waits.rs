//! Receivers that wait, in the order in which they came: found by subscription, by token and by when their time is
//! over, so that ten thousand of them cost the others nothing.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use towpath_model::{Time, Token};

use crate::request::Wait;

/// Who waits, of all subscriptions.
#[derive(Debug, Clone, Default)]
pub(crate) struct Waits {
    /// By subscription, then by the order in which they came.
    by_subscription: BTreeMap<u32, BTreeMap<u64, Arc<Wait>>>,
    /// Where each one is.
    places: BTreeMap<Token, (u32, u64)>,
    by_end: BTreeSet<(Time, Token)>,
    next: u64,
}

impl Waits {
    /// Somebody waits from now on.
    pub(crate) fn add(&mut self, wait: Arc<Wait>) {
        self.remove(wait.token);
        let place = (wait.receive.subscription, self.next);
        self.next += 1;
        self.places.insert(wait.token, place);
        self.by_end.insert((wait.until, wait.token));
        self.by_subscription.entry(place.0).or_default().insert(place.1, wait);
    }

    /// Somebody waits no more.
    pub(crate) fn remove(&mut self, token: Token) {
        let Some((subscription, number)) = self.places.remove(&token) else { return };
        let Some(waits) = self.by_subscription.get_mut(&subscription) else { return };
        if let Some(wait) = waits.remove(&number) {
            self.by_end.remove(&(wait.until, token));
        }
        if waits.is_empty() {
            self.by_subscription.remove(&subscription);
        }
    }

    pub(crate) fn clear(&mut self) {
        *self = Waits { next: self.next, ..Waits::default() };
    }

    /// Who came first, of those whose subscription is one of these.
    pub(crate) fn first_of(&self, is_meant: impl Fn(u32) -> bool) -> Option<&Arc<Wait>> {
        let meant = self.by_subscription.iter().filter(|(number, _)| is_meant(**number));
        let firsts = meant.filter_map(|(_, waits)| waits.first_key_value());
        firsts.min_by_key(|(number, _)| **number).map(|(_, wait)| wait)
    }

    /// When the first one's time is over.
    pub(crate) fn first_end(&self) -> Option<Time> {
        self.by_end.first().map(|(until, _)| *until)
    }

    /// Whose time is over, the earliest first.
    pub(crate) fn over(&self, now: Time) -> impl Iterator<Item = Token> + '_ {
        let over = self.by_end.iter().take_while(move |(until, _)| *until <= now);
        over.map(|(_, token)| *token)
    }

    /// How many wait for a subscription.
    pub(crate) fn count(&self, subscription: u32) -> usize {
        self.by_subscription.get(&subscription).map_or(0, BTreeMap::len)
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;
    use crate::request::Receive;

    fn wait(token: u64, subscription: u32, until: u64) -> Arc<Wait> {
        let receive = Receive {
            subscription,
            max: 1,
            visibility: Duration::ZERO,
            wait_until: Some(Time(until)),
            holder: "somebody".into(),
            attempt: None,
        };
        Arc::new(Wait { token: Token(token), receive, until: Time(until) })
    }

    #[test]
    fn who_came_first_is_first_and_time_is_over_in_its_own_order() {
        let mut waits = Waits::default();
        for (token, subscription, until) in [(5, 0, 30), (4, 1, 10), (3, 0, 20), (2, 1, 40)] {
            waits.add(wait(token, subscription, until));
        }
        let first = |waits: &Waits, only: Option<u32>| {
            waits.first_of(|of| only.is_none_or(|only| of == only)).map(|wait| wait.token.0)
        };
        assert_eq!([first(&waits, None), first(&waits, Some(1))], [Some(5), Some(4)]);
        assert_eq!(first(&waits, Some(7)), None);
        assert_eq!(waits.first_end(), Some(Time(10)));
        assert_eq!(waits.over(Time(20)).map(|token| token.0).collect::<Vec<_>>(), [4, 3]);
        assert_eq!([waits.count(0), waits.count(1), waits.count(7)], [2, 2, 0]);

        [5, 4, 9].iter().for_each(|token| waits.remove(Token(*token)));
        assert_eq!([first(&waits, None), first(&waits, Some(1))], [Some(3), Some(2)]);
        assert_eq!(waits.first_end(), Some(Time(20)));
        waits.clear();
        assert_eq!((first(&waits, None), waits.first_end()), (None, None));
    }

    #[test]
    fn who_waits_again_waits_once_and_came_last() {
        let mut waits = Waits::default();
        [1, 2, 1].iter().for_each(|token| waits.add(wait(*token, 0, *token)));
        assert_eq!(waits.count(0), 2);
        assert_eq!(waits.first_of(|_| true).map(|wait| wait.token), Some(Token(2)));
    }
}
