//! What a record says of how it wants to be delivered, in ordinary headers, so that any Kafka producer
//! can say it:
//!
//! ```text
//! towpath-deliver-after   not before this much time has passed      90s   5m   3d   250ms
//! towpath-deliver-at      not before this moment                    milliseconds since 1970, as in records
//! towpath-ttl             worth nothing after this much time        as deliver-after
//! towpath-priority        0 to 9, 4 is usual                        7
//! towpath-dedup-id        what a repeated send would say too        any bytes
//! ```
//!
//! A record is not refused for what stands in them, for it has been appended already: what cannot be read
//! counts as not said, and is counted.

use std::time::Duration;

use towpath_model::{Offset, PartitionIndex, Timestamp, Uuid};

use crate::dedup::Identity;
use crate::request::{Delay, Facts};

/// Not before this much time has passed.
pub const DELIVER_AFTER: &[u8] = b"towpath-deliver-after";
/// Not before this moment.
pub const DELIVER_AT: &[u8] = b"towpath-deliver-at";
/// Worth nothing after this much time.
pub const TTL: &[u8] = b"towpath-ttl";
/// 0 to 9.
pub const PRIORITY: &[u8] = b"towpath-priority";
/// What a repeated send would say too.
pub const DEDUP_ID: &[u8] = b"towpath-dedup-id";
/// Set by a broker that hands a message over: where it comes from. See [`identity_header`].
pub const MOVED_FROM: &[u8] = b"towpath-moved-from";

/// Set with [`MOVED_FROM`]: the place where the message was first, as [`MOVED_FROM`] has it; it is what the
/// message is called wherever it goes.
pub const FIRST_ID: &[u8] = b"towpath-first-id";
/// Set with [`MOVED_FROM`]: the queue that it comes from.
pub const DEAD_SOURCE: &[u8] = b"towpath-dead-source";
/// Set with [`MOVED_FROM`]: why, by [`crate::DeadReason::name`].
pub const DEAD_REASON: &[u8] = b"towpath-dead-reason";
/// Set with [`MOVED_FROM`]: what the receiver said.
pub const DEAD_NOTE: &[u8] = b"towpath-dead-note";
/// Set with [`MOVED_FROM`]: how often it was received.
pub const DEAD_RECEIVES: &[u8] = b"towpath-dead-receives";
/// Set with [`MOVED_FROM`], once for each of the last deliveries: who had it, for how many milliseconds, how that
/// ended, and what was said.
pub const DEAD_ATTEMPT: &[u8] = b"towpath-dead-attempt";

/// Set with [`MOVED_FROM`]: when the message was sent first, in milliseconds since 1970.
pub const FIRST_SENT: &[u8] = b"towpath-first-sent";
/// Set with [`MOVED_FROM`]: what its first send was told apart by. It counts for nothing any more.
pub const FIRST_DEDUP_ID: &[u8] = b"towpath-first-dedup-id";
/// Set with [`MOVED_FROM`]: how often the message has come back from a dead-letter queue.
pub const REDRIVES: &[u8] = b"towpath-redrives";
/// Set with [`REDRIVES`], once for each of the last times: by whose order, from where, and why it was there.
pub const REDRIVEN_BY: &[u8] = b"towpath-redriven-by";

/// The highest priority.
pub const PRIORITY_MAX: u8 = 9;

/// The longest delay and time-to-live: a year.
pub const DELAY_MAX: Duration = Duration::from_secs(366 * 24 * 60 * 60);

/// What a record's key and headers say. The second value: how many of the headers could not be read.
pub fn facts_of<'a>(
    key: Option<&[u8]>,
    headers: impl Iterator<Item = (&'a [u8], Option<&'a [u8]>)>,
) -> (Facts, u32) {
    let mut facts = Facts { group: key.map(Into::into), ..Facts::default() };
    let mut unread = 0;
    for (name, value) in headers {
        if !name.starts_with(b"towpath-") {
            continue;
        }
        let value = value.unwrap_or_default();
        let text = std::str::from_utf8(value).unwrap_or_default().trim();
        let is_read = match name {
            DELIVER_AFTER => set(&mut facts.delay, duration(text).map(Delay::For)),
            DELIVER_AT => set(&mut facts.delay, moment(text).map(Delay::Until)),
            TTL => set(&mut facts.ttl, duration(text)),
            PRIORITY => set(&mut facts.priority, priority(text)),
            DEDUP_ID => set(&mut facts.dedup_id, (!value.is_empty()).then(|| value.into())),
            MOVED_FROM => set(&mut facts.moved, identity(text)),
            _ => true,
        };
        unread += u32::from(!is_read);
    }
    (facts, unread)
}

fn set<T>(field: &mut Option<T>, value: Option<T>) -> bool {
    let is_read = value.is_some();
    if is_read {
        *field = value;
    }
    is_read
}

/// A duration as people write it: a whole number and `ms`, `s`, `m`, `h` or `d`; without a unit,
/// milliseconds. Nothing above [`DELAY_MAX`].
pub fn duration(text: &str) -> Option<Duration> {
    let digits = text.find(|letter: char| !letter.is_ascii_digit()).unwrap_or(text.len());
    let (number, unit) = text.split_at(digits);
    let number: u64 = number.parse().ok()?;
    let unit_ms = match unit.trim() {
        "" | "ms" => 1,
        "s" => 1_000,
        "m" => 60_000,
        "h" => 3_600_000,
        "d" => 86_400_000,
        _ => return None,
    };
    let duration = Duration::from_millis(number.checked_mul(unit_ms)?);
    (duration <= DELAY_MAX).then_some(duration)
}

fn moment(text: &str) -> Option<Timestamp> {
    text.parse().ok().filter(|ms| 0 <= *ms).map(Timestamp)
}

fn priority(text: &str) -> Option<u8> {
    text.parse().ok().filter(|priority| *priority <= PRIORITY_MAX)
}

/// The value of the header [`MOVED_FROM`].
#[must_use]
pub fn identity_header(identity: &Identity) -> String {
    let Identity { topic, partition, offset, subscription } = identity;
    format!("{topic}/{partition}/{offset}/{subscription}", offset = offset.0)
}

/// Reads [`identity_header`] back.
#[must_use]
pub fn identity(text: &str) -> Option<Identity> {
    let mut parts = text.split('/');
    let identity = Identity {
        topic: parts.next()?.parse::<Uuid>().ok()?,
        partition: PartitionIndex(parts.next()?.parse().ok()?),
        offset: Offset(parts.next()?.parse().ok()?),
        subscription: parts.next()?.parse().ok()?,
    };
    parts.next().is_none().then_some(identity)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(headers: &[(&[u8], &[u8])]) -> (Facts, u32) {
        facts_of(None, headers.iter().map(|(name, value)| (*name, Some(*value))))
    }

    #[test]
    fn every_header_is_read() {
        let (facts, unread) = read(&[
            (DELIVER_AFTER, b"90s"),
            (TTL, b"3d"),
            (PRIORITY, b"9"),
            (DEDUP_ID, b"\xff\x00"),
            (b"trace", b"not ours"),
        ]);
        assert_eq!(unread, 0);
        assert_eq!(facts.delay, Some(Delay::For(Duration::from_secs(90))));
        assert_eq!(facts.ttl, Some(Duration::from_secs(3 * 86_400)));
        assert_eq!(facts.priority, Some(9));
        assert_eq!(facts.dedup_id.as_deref(), Some(&b"\xff\x00"[..]));
        let (facts, _) = read(&[(DELIVER_AT, b"1700000000000")]);
        assert_eq!(facts.delay, Some(Delay::Until(Timestamp(1_700_000_000_000))));
    }

    #[test]
    fn what_cannot_be_read_counts_as_not_said() {
        let (facts, unread) = read(&[
            (DELIVER_AFTER, b"soon"),
            (DELIVER_AT, b"-5"),
            (TTL, b"99999d"),
            (PRIORITY, b"10"),
            (DEDUP_ID, b""),
            (MOVED_FROM, b"somewhere"),
        ]);
        assert_eq!((facts, unread), (Facts::default(), 6));
    }

    #[test]
    fn durations_have_units() {
        let ms = |text| duration(text).map(|duration| duration.as_millis());
        assert_eq!(ms("250"), Some(250));
        assert_eq!(ms("250ms"), Some(250));
        assert_eq!(ms("2h"), Some(7_200_000));
        assert_eq!(ms("1 d"), Some(86_400_000));
        assert_eq!(ms("1w"), None);
        assert_eq!(ms(""), None);
        assert_eq!(ms("18446744073709551615d"), None);
    }

    #[test]
    fn an_identity_survives_its_header() {
        let written = Identity {
            topic: Uuid([7; 16]),
            partition: PartitionIndex(3),
            offset: Offset(1 << 40),
            subscription: 2,
        };
        let (facts, unread) = read(&[(MOVED_FROM, identity_header(&written).as_bytes())]);
        assert_eq!((facts.moved, unread), (Some(written), 0));
    }

    #[test]
    fn the_key_is_the_group() {
        let (facts, _) = facts_of(Some(b"customer-7"), std::iter::empty());
        assert_eq!(facts.group.as_deref(), Some(&b"customer-7"[..]));
    }
}
