//! The one waiting mechanism: acknowledgements and long polls wait for an offset to be passed.
//!
//! A watch is a token, a line and an offset. It fires once, when the line has reached the offset
//! or when the partition stops being led here, whichever comes first.

use std::collections::BTreeMap;

use towpath_model::mutant::{self, Mutant};
use towpath_model::{Offset, Token};

/// What a request waits for; ends are exclusive, so "reached" means `line >= offset`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Condition {
    /// The high watermark: committed on every in-sync replica.
    HighWatermark(Offset),
    /// The leader's own durable offset.
    Durable(Offset),
    /// The log starts of the leader and of every in-sync replica.
    LogStarts(Offset),
}

/// How a wait ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Outcome {
    /// The offset was reached.
    Reached,
    /// The partition is no longer led by this broker, or was deleted.
    NotLeader,
    /// The data directory failed; what was appended may or may not be there after a restart.
    StorageFailed,
}

/// All waits on one partition.
#[derive(Debug, Default)]
pub(crate) struct Watches {
    high_watermark: BTreeMap<(Offset, Token), ()>,
    durable: BTreeMap<(Offset, Token), ()>,
    log_starts: BTreeMap<(Offset, Token), ()>,
}

impl Watches {
    pub(crate) fn add(&mut self, token: Token, condition: Condition) {
        match condition {
            Condition::HighWatermark(offset) => self.high_watermark.insert((offset, token), ()),
            Condition::Durable(offset) => self.durable.insert((offset, token), ()),
            Condition::LogStarts(offset) => self.log_starts.insert((offset, token), ()),
        };
    }

    /// Forgets a wait whose owner gave up.
    pub(crate) fn remove(&mut self, token: Token, condition: Condition) {
        match condition {
            Condition::HighWatermark(offset) => self.high_watermark.remove(&(offset, token)),
            Condition::Durable(offset) => self.durable.remove(&(offset, token)),
            Condition::LogStarts(offset) => self.log_starts.remove(&(offset, token)),
        };
    }

    pub(crate) fn count(&self) -> usize {
        self.high_watermark.len() + self.durable.len() + self.log_starts.len()
    }

    /// Takes out every token whose condition holds now.
    pub(crate) fn reached(&mut self, high_watermark: Offset, durable: Offset) -> Vec<Token> {
        let mut tokens = take_up_to(&mut self.high_watermark, high_watermark);
        tokens.extend(take_up_to(&mut self.durable, durable));
        tokens
    }

    /// Whether anybody waits for log starts.
    pub(crate) fn wait_for_log_starts(&self) -> bool {
        !self.log_starts.is_empty()
    }

    /// Takes out every token that waits for log starts up to `low_watermark`.
    pub(crate) fn starts_reached(&mut self, low_watermark: Offset) -> Vec<Token> {
        take_up_to(&mut self.log_starts, low_watermark)
    }

    /// Takes out every token.
    pub(crate) fn drain(&mut self) -> Vec<Token> {
        let high_watermark = std::mem::take(&mut self.high_watermark);
        let durable = std::mem::take(&mut self.durable);
        let log_starts = std::mem::take(&mut self.log_starts);
        let all =
            high_watermark.into_keys().chain(durable.into_keys()).chain(log_starts.into_keys());
        all.map(|(_, token)| token).collect()
    }
}

fn take_up_to(waits: &mut BTreeMap<(Offset, Token), ()>, line: Offset) -> Vec<Token> {
    let line = if mutant::is_on(Mutant::WokenEarly) { line.next() } else { line };
    let first_kept = (line.next(), Token(0));
    if waits.first_key_value().is_none_or(|(first, ())| first >= &first_kept) {
        return Vec::new();
    }
    let kept = waits.split_off(&first_kept);
    std::mem::replace(waits, kept).into_keys().map(|(_, token)| token).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_watch_fires_when_its_line_reaches_the_offset_and_only_once() {
        let mut watches = Watches::default();
        watches.add(Token(1), Condition::HighWatermark(Offset(10)));
        watches.add(Token(2), Condition::HighWatermark(Offset(11)));
        watches.add(Token(3), Condition::Durable(Offset(5)));
        assert_eq!(watches.reached(Offset(9), Offset(4)), vec![]);
        assert_eq!(watches.reached(Offset(10), Offset(5)), vec![Token(1), Token(3)]);
        assert_eq!(watches.reached(Offset(10), Offset(5)), vec![]);
        watches.add(Token(4), Condition::LogStarts(Offset(7)));
        assert!(watches.wait_for_log_starts());
        assert_eq!(watches.starts_reached(Offset(6)), vec![]);
        assert_eq!(watches.starts_reached(Offset(7)), vec![Token(4)]);
        assert!(!watches.wait_for_log_starts());
        assert_eq!(watches.drain(), vec![Token(2)]);
    }
}
