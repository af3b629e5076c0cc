//! The changes of state of deliveries, and their bytes in the delivery log.
//!
//! ```text
//! key    u8 kind
//! value  u8 version 1 │ fields as varints, in the order in which they stand below
//! ```
//!
//! The log is not compacted: a key says nothing but what kind of record it is, and a kind that this
//! version does not know ends the fold. Times are on the queue's clock ([`QueueTime`]).

use std::sync::Arc;

use towpath_model::{
    FoldError, FoldRecord, KeyValue, Offset, PartitionIndex, Time, Timestamp, Token,
};

use crate::bytes::{Reader, put_bytes, put_i64, put_offsets, put_option, put_u64};
use crate::dedup::{DedupKey, Identity};
use crate::request::Wait;
use crate::time::QueueTime;

/// One change of [`crate::Deliveries`].
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Record {
    /// Messages have come: `count` of them from `base` on. Those of which nothing is said are plain.
    Admitted {
        /// When.
        at: QueueTime,
        /// The first one.
        base: Offset,
        /// How many.
        count: u32,
        /// Those that are not plain, in order.
        specials: Vec<Special>,
    },
    /// Messages were handed to a receiver.
    Leased {
        /// When.
        at: QueueTime,
        /// When, for people.
        wall: Timestamp,
        /// By which subscription.
        subscription: u32,
        /// Number of the first message's delivery; the others follow.
        first_lease: u64,
        /// Until when the receiver has them.
        until: QueueTime,
        /// Who receives, for people.
        holder: Arc<str>,
        /// By which name the receiver may ask for the same ones again.
        attempt: Option<Arc<[u8]>>,
        /// Which messages, in the order in which they are handed out.
        offsets: Vec<Offset>,
    },
    /// A subscription is done with messages.
    Settled {
        /// When.
        at: QueueTime,
        /// Which subscription.
        subscription: u32,
        /// Why.
        how: Settlement,
        /// Which messages.
        offsets: Vec<Offset>,
    },
    /// Messages that were held, or on their way elsewhere, wait again.
    Returned {
        /// When.
        at: QueueTime,
        /// Of which subscription.
        subscription: u32,
        /// Why.
        why: Return,
        /// What the receiver said.
        note: Option<Arc<str>>,
        /// Which messages, and before when none of them is handed out again.
        messages: Vec<(Offset, Option<QueueTime>)>,
    },
    /// Receivers keep messages until another time.
    Extended {
        /// When.
        at: QueueTime,
        /// Of which subscription.
        subscription: u32,
        /// Which messages, and until when.
        messages: Vec<(Offset, QueueTime)>,
    },
    /// Messages are to be handed to another queue. Settled once they are there.
    Moving {
        /// When.
        at: QueueTime,
        /// Of which subscription.
        subscription: u32,
        /// To which queue.
        to: Arc<str>,
        /// Why.
        reason: DeadReason,
        /// What the receiver said.
        note: Option<Arc<str>>,
        /// Which messages.
        offsets: Vec<Offset>,
    },
    /// Everything before `end` is purged.
    Purged {
        /// When.
        at: QueueTime,
        /// Which subscription.
        subscription: u32,
        /// First message that stays.
        end: Offset,
    },
    /// Everything before `to` has grown older than messages may.
    Aged {
        /// When.
        at: QueueTime,
        /// First message that is young enough.
        to: Offset,
    },
    /// Records before `start` are gone.
    Trimmed {
        /// When.
        at: QueueTime,
        /// First record that is there.
        start: Offset,
    },
    /// There is no message before `to` that has not been admitted.
    Skipped {
        /// When.
        at: QueueTime,
        /// The first offset at which there may be one.
        to: Offset,
    },
    /// Records before `to` of messages with which every subscription is done may be removed: for whoever
    /// subscribes later, they were never there.
    Forgotten {
        /// When.
        at: QueueTime,
        /// First offset of which nothing is said.
        to: Offset,
    },
    /// Somebody begins to lead whose records end at `end`: whatever was said of later ones is void.
    Resumed {
        /// When.
        at: QueueTime,
        /// First offset without a record.
        end: Offset,
    },
    /// A subscription begins.
    Subscribed {
        /// When.
        at: QueueTime,
        /// Its number.
        number: u32,
        /// Its name; the queue's own has none.
        name: Arc<str>,
        /// The first message that it gets.
        from: Offset,
    },
    /// This partition has all subscriptions of its queue, and hears of every change from now on.
    TakenOver {
        /// When.
        at: QueueTime,
        /// How many partitions the queue has at least.
        partitions: u32,
    },
    /// A subscription is gone.
    Unsubscribed {
        /// When.
        at: QueueTime,
        /// Its number.
        number: u32,
    },
    /// It has become later, and nothing else happened.
    Ticked {
        /// When.
        at: QueueTime,
    },
    /// A part of the state as a whole.
    Snapshot {
        /// Which part, from 0.
        part: u32,
        /// Whether no other one follows.
        is_last: bool,
        /// Its bytes.
        bytes: Arc<[u8]>,
    },
    /// Not logged: a receiver waits.
    Waits(Arc<Wait>),
    /// Not logged: a receiver waits no more.
    WaitOver(Token),
    /// Not logged: delays that ended by then have ended.
    Passed {
        /// When.
        at: QueueTime,
    },
    /// Not logged: messages that have grown too old have been looked at.
    Looked,
    /// Not logged: this process leads, and it is `at` when its clock says `time`.
    Runs {
        /// The queue's clock.
        at: QueueTime,
        /// The process's.
        time: Time,
    },
}

/// A message that is not plain.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Special {
    /// Its distance to the batch's first message.
    pub index: u32,
    /// Its message group.
    pub group: Option<Arc<[u8]>>,
    /// Not handed out before.
    pub not_before: Option<QueueTime>,
    /// Worth nothing afterwards.
    pub expires: Option<QueueTime>,
    /// Its priority, if not the usual one.
    pub priority: Option<u8>,
    /// What a repeated send has in common with it, and until when that is looked for.
    pub dedup: Option<(DedupKey, QueueTime)>,
    /// What becomes of it.
    pub verdict: Verdict,
}

/// What becomes of a message when it is admitted.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Verdict {
    /// It is delivered.
    #[default]
    Deliver,
    /// It repeats another one, and is never delivered.
    Duplicate {
        /// The first of them.
        of: Offset,
    },
    /// It is no message: a control record, or the place of one that is not there.
    Skip,
}

/// Why a subscription is done with a message.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Settlement {
    /// The receiver has deleted it.
    Deleted,
    /// It lies in another queue now.
    Moved,
    /// It has grown too old.
    Expired,
    /// An operator has dropped it.
    Dropped,
    /// The receiver rejects it, and there is no dead-letter queue.
    Rejected,
}

/// Why a message waits again.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Return {
    /// The receiver had it for too long.
    LeaseExpired,
    /// The receiver gives it back.
    Released,
    /// The receiver has failed with it.
    Failed,
    /// Nobody took what was handed out; it does not count as received.
    Unclaimed,
    /// It could not be handed to the other queue.
    MoveFailed,
}

/// Why a message goes to a dead-letter queue, or why an operator moves it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum DeadReason {
    /// It was received too often.
    TooManyReceives,
    /// It has grown too old.
    Expired,
    /// The receiver rejects it.
    Rejected,
    /// Its queue is deleted.
    QueueDeleted,
    /// It comes from a batch that cannot be decoded.
    Undecodable,
    /// An operator moves it back.
    Redriven,
}

impl DeadReason {
    /// As headers and people have it.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            DeadReason::TooManyReceives => "too-many-receives",
            DeadReason::Expired => "expired",
            DeadReason::Rejected => "rejected",
            DeadReason::QueueDeleted => "queue-deleted",
            DeadReason::Undecodable => "undecodable",
            DeadReason::Redriven => "redriven",
        }
    }
}

impl Return {
    /// As headers and people have it.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Return::LeaseExpired => "lease-expired",
            Return::Released => "released",
            Return::Failed => "failed",
            Return::Unclaimed => "unclaimed",
            Return::MoveFailed => "move-failed",
        }
    }
}

impl Return {
    /// Every reason to come back.
    pub const ALL: [Return; 5] = [
        Return::LeaseExpired,
        Return::Released,
        Return::Failed,
        Return::Unclaimed,
        Return::MoveFailed,
    ];
}

impl DeadReason {
    /// Every reason to go to another queue.
    pub const ALL: [DeadReason; 6] = [
        DeadReason::TooManyReceives,
        DeadReason::Expired,
        DeadReason::Rejected,
        DeadReason::QueueDeleted,
        DeadReason::Undecodable,
        DeadReason::Redriven,
    ];
}

impl Settlement {
    /// Every way to be done with a message.
    pub const ALL: [Settlement; 5] = [
        Settlement::Deleted,
        Settlement::Moved,
        Settlement::Expired,
        Settlement::Dropped,
        Settlement::Rejected,
    ];

    /// As metrics and people have it.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Settlement::Deleted => "deleted",
            Settlement::Moved => "moved",
            Settlement::Expired => "expired",
            Settlement::Dropped => "dropped",
            Settlement::Rejected => "rejected",
        }
    }
}

macro_rules! as_byte {
    ($type:ident, $what:literal: $($name:ident = $byte:literal),+ $(,)?) => {
        impl $type {
            /// As it stands in the log, for ever.
            pub(crate) fn byte(self) -> u8 {
                match self { $($type::$name => $byte),+ }
            }

            pub(crate) fn from_byte(byte: u8) -> Result<$type, FoldError> {
                match byte {
                    $($byte => Ok($type::$name),)+
                    _ => Err(Reader::error(concat!("unknown ", $what))),
                }
            }
        }
    };
}

as_byte!(Settlement, "settlement": Deleted = 0, Moved = 1, Expired = 2, Dropped = 3, Rejected = 4);
as_byte!(Return, "reason to return": LeaseExpired = 0, Released = 1, Failed = 2, Unclaimed = 3, MoveFailed = 4);
as_byte!(DeadReason, "reason to move": TooManyReceives = 0, Expired = 1, Rejected = 2, QueueDeleted = 3,
    Undecodable = 4, Redriven = 5);

const VERSION: u8 = 1;

/// The kinds of records, as they stand in keys.
mod kind {
    pub(super) const ADMITTED: u8 = 1;
    pub(super) const LEASED: u8 = 2;
    pub(super) const SETTLED: u8 = 3;
    pub(super) const RETURNED: u8 = 4;
    pub(super) const EXTENDED: u8 = 5;
    pub(super) const MOVING: u8 = 6;
    pub(super) const PURGED: u8 = 7;
    pub(super) const AGED: u8 = 8;
    pub(super) const TRIMMED: u8 = 9;
    pub(super) const RESUMED: u8 = 10;
    pub(super) const SUBSCRIBED: u8 = 11;
    pub(super) const UNSUBSCRIBED: u8 = 12;
    pub(super) const TICKED: u8 = 13;
    pub(super) const SNAPSHOT: u8 = 14;
    pub(super) const SKIPPED: u8 = 15;
    pub(super) const FORGOTTEN: u8 = 16;
    pub(super) const TAKEN_OVER: u8 = 17;
}

impl Record {
    /// When it happened; nothing for what has no time.
    pub fn at(&self) -> Option<QueueTime> {
        match self {
            Record::Admitted { at, .. }
            | Record::Leased { at, .. }
            | Record::Settled { at, .. }
            | Record::Returned { at, .. }
            | Record::Extended { at, .. }
            | Record::Moving { at, .. }
            | Record::Purged { at, .. }
            | Record::Aged { at, .. }
            | Record::Trimmed { at, .. }
            | Record::Skipped { at, .. }
            | Record::Forgotten { at, .. }
            | Record::Resumed { at, .. }
            | Record::Subscribed { at, .. }
            | Record::TakenOver { at, .. }
            | Record::Unsubscribed { at, .. }
            | Record::Ticked { at }
            | Record::Passed { at }
            | Record::Runs { at, .. } => Some(*at),
            Record::Snapshot { .. } | Record::Waits(_) | Record::WaitOver(_) | Record::Looked => {
                None
            }
        }
    }

    fn kind(&self) -> Option<u8> {
        match self {
            Record::Admitted { .. } => Some(kind::ADMITTED),
            Record::Leased { .. } => Some(kind::LEASED),
            Record::Settled { .. } => Some(kind::SETTLED),
            Record::Returned { .. } => Some(kind::RETURNED),
            Record::Extended { .. } => Some(kind::EXTENDED),
            Record::Moving { .. } => Some(kind::MOVING),
            Record::Purged { .. } => Some(kind::PURGED),
            Record::Aged { .. } => Some(kind::AGED),
            Record::Trimmed { .. } => Some(kind::TRIMMED),
            Record::Skipped { .. } => Some(kind::SKIPPED),
            Record::Forgotten { .. } => Some(kind::FORGOTTEN),
            Record::Resumed { .. } => Some(kind::RESUMED),
            Record::Subscribed { .. } => Some(kind::SUBSCRIBED),
            Record::TakenOver { .. } => Some(kind::TAKEN_OVER),
            Record::Unsubscribed { .. } => Some(kind::UNSUBSCRIBED),
            Record::Ticked { .. } => Some(kind::TICKED),
            Record::Snapshot { .. } => Some(kind::SNAPSHOT),
            Record::Waits(_)
            | Record::WaitOver(_)
            | Record::Looked
            | Record::Passed { .. }
            | Record::Runs { .. } => None,
        }
    }

    fn put(&self, out: &mut Vec<u8>) {
        if let Some(at) = self.at() {
            put_u64(out, at.0);
        }
        match self {
            Record::Admitted { base, count, specials, .. } => {
                put_i64(out, base.0);
                put_u64(out, u64::from(*count));
                put_u64(out, specials.len() as u64);
                specials.iter().for_each(|special| put_special(out, special));
            }
            Record::Leased {
                wall,
                subscription,
                first_lease,
                until,
                holder,
                attempt,
                offsets,
                ..
            } => {
                put_i64(out, wall.0);
                put_u64(out, u64::from(*subscription));
                put_u64(out, *first_lease);
                put_u64(out, until.0);
                put_bytes(out, holder.as_bytes());
                put_option(out, attempt.as_deref(), put_bytes);
                put_offsets(out, offsets.iter().copied());
            }
            Record::Settled { subscription, how, offsets, .. } => {
                put_u64(out, u64::from(*subscription));
                out.push(how.byte());
                put_offsets(out, offsets.iter().copied());
            }
            Record::Returned { subscription, why, note, messages, .. } => {
                put_u64(out, u64::from(*subscription));
                out.push(why.byte());
                put_option(out, note.as_deref(), |out, note| put_bytes(out, note.as_bytes()));
                put_offsets(out, messages.iter().map(|(offset, _)| *offset));
                for (_, until) in messages {
                    put_option(out, *until, |out, until| put_u64(out, until.0));
                }
            }
            Record::Extended { subscription, messages, .. } => {
                put_u64(out, u64::from(*subscription));
                put_offsets(out, messages.iter().map(|(offset, _)| *offset));
                messages.iter().for_each(|(_, until)| put_u64(out, until.0));
            }
            Record::Moving { subscription, to, reason, note, offsets, .. } => {
                put_u64(out, u64::from(*subscription));
                put_bytes(out, to.as_bytes());
                out.push(reason.byte());
                put_option(out, note.as_deref(), |out, note| put_bytes(out, note.as_bytes()));
                put_offsets(out, offsets.iter().copied());
            }
            Record::Purged { subscription, end, .. } => {
                put_u64(out, u64::from(*subscription));
                put_i64(out, end.0);
            }
            Record::Aged { to: offset, .. }
            | Record::Trimmed { start: offset, .. }
            | Record::Skipped { to: offset, .. }
            | Record::Forgotten { to: offset, .. }
            | Record::Resumed { end: offset, .. } => put_i64(out, offset.0),
            Record::Subscribed { number, name, from, .. } => {
                put_u64(out, u64::from(*number));
                put_bytes(out, name.as_bytes());
                put_i64(out, from.0);
            }
            Record::TakenOver { partitions: number, .. } | Record::Unsubscribed { number, .. } => {
                put_u64(out, u64::from(*number))
            }
            Record::Snapshot { part, is_last, bytes } => {
                put_u64(out, u64::from(*part));
                out.push(u8::from(*is_last));
                put_bytes(out, bytes);
            }
            Record::Ticked { .. }
            | Record::Waits(_)
            | Record::WaitOver(_)
            | Record::Looked
            | Record::Passed { .. }
            | Record::Runs { .. } => {}
        }
    }
}

/// What of a special message is there.
mod has {
    pub(super) const GROUP: u8 = 1;
    pub(super) const NOT_BEFORE: u8 = 2;
    pub(super) const EXPIRES: u8 = 4;
    pub(super) const PRIORITY: u8 = 8;
    pub(super) const DEDUP: u8 = 16;
    pub(super) const VERDICT: u8 = 32;
}

fn put_special(out: &mut Vec<u8>, special: &Special) {
    let Special { index, group, not_before, expires, priority, dedup, verdict } = special;
    put_u64(out, u64::from(*index));
    let flag = |is_there: bool, flag: u8| if is_there { flag } else { 0 };
    out.push(
        flag(group.is_some(), has::GROUP)
            | flag(not_before.is_some(), has::NOT_BEFORE)
            | flag(expires.is_some(), has::EXPIRES)
            | flag(priority.is_some(), has::PRIORITY)
            | flag(dedup.is_some(), has::DEDUP)
            | flag(*verdict != Verdict::Deliver, has::VERDICT),
    );
    if let Some(group) = group {
        put_bytes(out, group);
    }
    if let Some(at) = not_before {
        put_u64(out, at.0);
    }
    if let Some(at) = expires {
        put_u64(out, at.0);
    }
    out.extend(priority);
    if let Some((key, until)) = dedup {
        put_key(out, key);
        put_u64(out, until.0);
    }
    match verdict {
        Verdict::Deliver => {}
        Verdict::Skip => out.push(0),
        Verdict::Duplicate { of } => {
            out.push(1);
            put_i64(out, of.0);
        }
    }
}

fn special(reader: &mut Reader<'_>) -> Result<Special, FoldError> {
    let index = reader.u32()?;
    let flags = reader.u8()?;
    let has = |flag: u8| flags & flag != 0;
    Ok(Special {
        index,
        group: if has(has::GROUP) { Some(reader.blob()?) } else { None },
        not_before: if has(has::NOT_BEFORE) { Some(reader.time()?) } else { None },
        expires: if has(has::EXPIRES) { Some(reader.time()?) } else { None },
        priority: if has(has::PRIORITY) { Some(reader.u8()?) } else { None },
        dedup: if has(has::DEDUP) { Some((key(reader)?, reader.time()?)) } else { None },
        verdict: match has(has::VERDICT) {
            false => Verdict::Deliver,
            true => match reader.u8()? {
                0 => Verdict::Skip,
                1 => Verdict::Duplicate { of: reader.offset()? },
                _ => return Err(Reader::error("unknown verdict")),
            },
        },
    })
}

pub(crate) fn put_key(out: &mut Vec<u8>, key: &DedupKey) {
    match key {
        DedupKey::Id { group, id } => {
            out.push(0);
            put_option(out, group.as_deref(), put_bytes);
            put_bytes(out, id);
        }
        DedupKey::Moved(Identity { topic, partition, offset, subscription }) => {
            out.push(1);
            out.extend(topic.0);
            put_i64(out, i64::from(partition.0));
            put_i64(out, offset.0);
            put_u64(out, u64::from(*subscription));
        }
    }
}

pub(crate) fn key(reader: &mut Reader<'_>) -> Result<DedupKey, FoldError> {
    match reader.u8()? {
        0 => Ok(DedupKey::Id { group: reader.option(Reader::blob)?, id: reader.blob()? }),
        1 => {
            let topic = reader.uuid()?;
            let partition = i32::try_from(reader.i64()?)
                .map_err(|_| Reader::error("a partition is too large"))?;
            Ok(DedupKey::Moved(Identity {
                topic,
                partition: PartitionIndex(partition),
                offset: reader.offset()?,
                subscription: reader.u32()?,
            }))
        }
        _ => Err(Reader::error("unknown kind of identity")),
    }
}

impl FoldRecord for Record {
    fn encode(&self) -> Option<KeyValue> {
        let key = vec![self.kind()?];
        let mut value = vec![VERSION];
        self.put(&mut value);
        Some(KeyValue { key, value: Some(value) })
    }

    fn is_logged(&self) -> bool {
        self.kind().is_some()
    }

    fn decode(key: &[u8], value: Option<&[u8]>) -> Result<Option<Record>, FoldError> {
        let ([kind], Some([VERSION, value @ ..])) = (key, value) else {
            return Err(Reader::error("it is of another version"));
        };
        let reader = &mut Reader::new(value);
        let record = match *kind {
            kind::ADMITTED => Record::Admitted {
                at: reader.time()?,
                base: reader.offset()?,
                count: reader.u32()?,
                specials: reader.list(special)?,
            },
            kind::LEASED => Record::Leased {
                at: reader.time()?,
                wall: Timestamp(reader.i64()?),
                subscription: reader.u32()?,
                first_lease: reader.u64()?,
                until: reader.time()?,
                holder: reader.text()?,
                attempt: reader.option(Reader::blob)?,
                offsets: reader.offsets()?,
            },
            kind::SETTLED => Record::Settled {
                at: reader.time()?,
                subscription: reader.u32()?,
                how: Settlement::from_byte(reader.u8()?)?,
                offsets: reader.offsets()?,
            },
            kind::RETURNED => {
                let (at, subscription) = (reader.time()?, reader.u32()?);
                let why = Return::from_byte(reader.u8()?)?;
                let note = reader.option(Reader::text)?;
                let offsets = reader.offsets()?.into_iter();
                let messages = offsets.map(|offset| Ok((offset, reader.option(Reader::time)?)));
                let messages = messages.collect::<Result<_, FoldError>>()?;
                Record::Returned { at, subscription, why, note, messages }
            }
            kind::EXTENDED => {
                let (at, subscription) = (reader.time()?, reader.u32()?);
                let offsets = reader.offsets()?.into_iter();
                let messages = offsets.map(|offset| Ok((offset, reader.time()?)));
                let messages = messages.collect::<Result<_, FoldError>>()?;
                Record::Extended { at, subscription, messages }
            }
            kind::MOVING => Record::Moving {
                at: reader.time()?,
                subscription: reader.u32()?,
                to: reader.text()?,
                reason: DeadReason::from_byte(reader.u8()?)?,
                note: reader.option(Reader::text)?,
                offsets: reader.offsets()?,
            },
            kind::PURGED => Record::Purged {
                at: reader.time()?,
                subscription: reader.u32()?,
                end: reader.offset()?,
            },
            kind::AGED => Record::Aged { at: reader.time()?, to: reader.offset()? },
            kind::TRIMMED => Record::Trimmed { at: reader.time()?, start: reader.offset()? },
            kind::SKIPPED => Record::Skipped { at: reader.time()?, to: reader.offset()? },
            kind::FORGOTTEN => Record::Forgotten { at: reader.time()?, to: reader.offset()? },
            kind::RESUMED => Record::Resumed { at: reader.time()?, end: reader.offset()? },
            kind::SUBSCRIBED => Record::Subscribed {
                at: reader.time()?,
                number: reader.u32()?,
                name: reader.text()?,
                from: reader.offset()?,
            },
            kind::TAKEN_OVER => Record::TakenOver { at: reader.time()?, partitions: reader.u32()? },
            kind::UNSUBSCRIBED => {
                Record::Unsubscribed { at: reader.time()?, number: reader.u32()? }
            }
            kind::TICKED => Record::Ticked { at: reader.time()? },
            kind::SNAPSHOT => {
                let (part, is_last) = (reader.u32()?, reader.flag()?);
                let bytes = reader.blob()?;
                // Who folds it cannot refuse it.
                if part == 0 && bytes.first() != Some(&crate::snapshot::VERSION) {
                    return Err(Reader::error("the snapshot is of another version"));
                }
                Record::Snapshot { part, is_last, bytes }
            }
            _ => return Err(Reader::error("it is of a kind that this version does not know")),
        };
        if !reader.is_empty() {
            return Err(Reader::error("goes on after its end"));
        }
        Ok(Some(record))
    }
}
