//! What is asked of deliveries, and what is answered.

use std::sync::Arc;
use std::time::Duration;

use towpath_model::{Offset, Time, Timestamp, Token};

use crate::dedup::Identity;
use crate::record::DeadReason;
use crate::subscription::{Attempt, Move};
use crate::time::QueueTime;

/// What a queue's configuration says. Only who leads asks for it: what is decided stands in records.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DeliveryConfig {
    /// Messages of a group are delivered in order, and every message has one.
    pub is_fifo: bool,
    /// Before that much time has passed, a message is not delivered, if it does not say otherwise.
    pub delay: Duration,
    /// How long a message is worth anything; nothing: for as long as it is there.
    pub retention: Option<Duration>,
    /// Messages that one subscription may hold at the same time, in this partition.
    pub in_flight_max: usize,
    /// After so many receives, the next one moves the message to the dead-letter queue.
    pub receives_max: Option<u32>,
    /// Where messages go that cannot be worked.
    pub dead_letter_queue: Option<Arc<str>>,
    /// Messages that grow too old go there too, and are not just dropped.
    pub expired_are_dead_letters: bool,
    /// When a message that failed comes back.
    pub retry: Retry,
    /// How long a repeated send is recognised.
    pub dedup_window: Duration,
    /// Whether equal ids in different groups are different messages.
    pub dedup_by_group: bool,
}

impl Default for DeliveryConfig {
    fn default() -> Self {
        DeliveryConfig {
            is_fifo: false,
            delay: Duration::ZERO,
            retention: None,
            in_flight_max: 120_000,
            receives_max: None,
            dead_letter_queue: None,
            expired_are_dead_letters: false,
            retry: Retry::default(),
            dedup_window: Duration::from_secs(300),
            dedup_by_group: false,
        }
    }
}

/// Exponential backoff with jitter: `first`, twice that, four times that … `max`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Retry {
    /// After the first failure; zero is at once, always.
    pub first: Duration,
    /// At most.
    pub max: Duration,
    /// By how many percent a delay is shorter or longer at most, so that what failed together does not
    /// come back together.
    pub jitter_percent: u8,
}

/// What is known of a message that has more to it than its place.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Facts {
    /// Its message group.
    pub group: Option<Arc<[u8]>>,
    /// When it may be delivered.
    pub delay: Option<Delay>,
    /// How long it is worth anything.
    pub ttl: Option<Duration>,
    /// Its priority, if not [`crate::PRIORITY_USUAL`].
    pub priority: Option<u8>,
    /// What a repeated send would name.
    pub dedup_id: Option<Arc<[u8]>>,
    /// Another partition hands it over.
    pub moved: Option<Identity>,
    /// It is no message: a control record.
    pub is_control: bool,
    /// It cannot be decoded.
    pub is_undecodable: bool,
}

/// When a message may be delivered.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Delay {
    /// So long after it is admitted.
    For(Duration),
    /// When people's clocks say so.
    Until(Timestamp),
}

/// One particular delivery of one message.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Receipt {
    /// Which message.
    pub offset: Offset,
    /// Which delivery of this partition; never the same twice.
    pub lease: u64,
}

/// Who wants messages.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Receive {
    /// For which subscription.
    pub subscription: u32,
    /// How many at most.
    pub max: u32,
    /// How long they are hidden from others.
    pub visibility: Duration,
    /// Until when it waits for the first one; nothing: it does not.
    pub wait_until: Option<Time>,
    /// Who receives, for people.
    pub holder: Arc<str>,
    /// By which name the same messages may be asked for again.
    pub attempt: Option<Arc<[u8]>>,
}

/// A receiver that waits.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Wait {
    /// Whom to answer.
    pub token: Token,
    /// What it wants.
    pub receive: Receive,
    /// Until when it waits.
    pub until: Time,
}

/// What is asked.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Request {
    /// Records have been appended. Those of which nothing is said are plain messages. What does not begin
    /// where the last ones ended changes nothing.
    Admit {
        /// The first one.
        base: Offset,
        /// How many.
        count: u32,
        /// Those that are not plain: each with its distance to the first one, in order.
        facts: Vec<(u32, Facts)>,
    },
    /// There is no message before this offset that has not been admitted: records are gone, or are none
    /// that anybody sent.
    Skip {
        /// The first offset at which there may be one.
        to: Offset,
    },
    /// Somebody wants messages.
    Receive(Receive),
    /// A receiver waits no more.
    StopWaiting {
        /// The token under which it waits.
        waiter: Token,
    },
    /// Messages have been worked.
    Delete {
        /// By which subscription.
        subscription: u32,
        /// Which.
        receipts: Vec<Receipt>,
    },
    /// Messages are kept for so long from now on; zero gives them back at once.
    Extend {
        /// By which subscription.
        subscription: u32,
        /// Which, and how long.
        receipts: Vec<(Receipt, Duration)>,
    },
    /// Messages could not be worked now. Without a delay the queue's retry policy says when they come
    /// back.
    Release {
        /// By which subscription.
        subscription: u32,
        /// Which.
        receipts: Vec<Receipt>,
        /// When they come back.
        delay: Option<Duration>,
        /// What went wrong, for people.
        note: Option<Arc<str>>,
    },
    /// Messages cannot be worked, ever.
    Reject {
        /// By which subscription.
        subscription: u32,
        /// Which.
        receipts: Vec<Receipt>,
        /// Why, for people.
        note: Arc<str>,
    },
    /// Nobody took what was handed out. What was handed out by the name of an attempt stays held.
    Unclaim {
        /// By which subscription.
        subscription: u32,
        /// Which.
        receipts: Vec<Receipt>,
    },
    /// Everything that was sent until now is forgotten.
    Purge {
        /// By which subscription.
        subscription: u32,
    },
    /// Messages are dropped, or moved.
    Dispose {
        /// By which subscription.
        subscription: u32,
        /// Which.
        offsets: Vec<Offset>,
        /// Where to, and why; nothing: they are dropped.
        to: Option<(Arc<str>, DeadReason)>,
        /// By whose order, for people.
        note: Option<Arc<str>>,
        /// Also those that cannot be received now: that somebody holds, that are delayed, or whose group
        /// is held.
        held_too: bool,
    },
    /// What is on its way to one other queue. The answer says only what is committed: whoever carries it out
    /// must not do what a new leader knows nothing of.
    Moves {
        /// Of which subscription.
        subscription: u32,
        /// Which queue.
        to: Arc<str>,
        /// How many messages at most.
        max: usize,
    },
    /// Messages lie where they were moved.
    Moved {
        /// Of which subscription.
        subscription: u32,
        /// Which.
        offsets: Vec<Offset>,
    },
    /// Messages cannot be moved there, and go back to where they were.
    MoveFailed {
        /// Of which subscription.
        subscription: u32,
        /// Which.
        offsets: Vec<Offset>,
        /// Why, for people.
        note: Arc<str>,
        /// The other queue never takes them, as far as can be told: each comes back later every time, an hour at most,
        /// but for those that have a group, which would wait with it.
        is_for_good: bool,
    },
    /// A subscription begins with messages that come from now on, or with all that are there.
    Subscribe {
        /// Its name.
        name: Arc<str>,
        /// Whether it gets what is there already.
        from_start: bool,
        /// How many partitions are told.
        partitions: u32,
    },
    /// A subscription is not wanted any more.
    Unsubscribe {
        /// Its name.
        name: Arc<str>,
        /// How many partitions are told.
        partitions: u32,
    },
    /// A partition is to have every subscription of the queue: those that partition 0 has, from their beginning, for
    /// whatever is in this one came after it was added. At partition 0 itself, which knows them, `names` is empty.
    ///
    /// Partition 0 is asked first. It notes how many partitions there are, and from then on takes no change that is
    /// not told to so many; the names that it answers with are passed to the other one. No partition takes a
    /// change before it has taken over. So every change is either among those names, or is told to the partition.
    TakeOver {
        /// The subscriptions, besides the queue's own.
        names: Vec<Arc<str>>,
        /// How many partitions the queue has.
        partitions: u32,
    },
    /// Records before this are gone.
    Trim {
        /// The first one that is there.
        start: Offset,
    },
    /// Records before `to` of messages with which every subscription is done are to be removed.
    Forget {
        /// First offset of which nothing is said.
        to: Offset,
    },
    /// The state is to be logged as a whole.
    Snapshot,
}

/// A message that was handed out.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Delivery {
    /// Proves it.
    pub receipt: Receipt,
    /// How often it was received, with this time.
    pub receives: u32,
    /// When it was received first.
    pub first_received: Timestamp,
}

/// A message on its way to another queue.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Departure {
    /// Which message.
    pub offset: Offset,
    /// Where to, and why.
    pub way: Move,
    /// How often it was received.
    pub receives: u32,
    /// How its deliveries ended, the newest last.
    pub history: Vec<Attempt>,
}

/// What became of one receipt.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ReceiptOutcome {
    /// It was done.
    Done,
    /// The message is settled already.
    Settled,
    /// The lease has run out, and nobody else has the message.
    Expired,
    /// The message was delivered anew since.
    Superseded,
    /// It would be held for longer than [`crate::LEASE_MAX`] altogether.
    TooLong,
    /// There is no such delivery.
    Unknown,
}

/// What is answered.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Reply {
    /// Up to where messages are admitted.
    Admitted {
        /// The first one that is not.
        admitted_to: Offset,
    },
    /// Messages; none when none is ready.
    Received {
        /// Which.
        messages: Vec<Delivery>,
        /// Until when nobody else gets them.
        until: QueueTime,
    },
    /// The subscription holds as many messages as it may; or there are as many subscriptions.
    OverLimit,
    /// One outcome for each receipt, in order.
    Receipts(Vec<ReceiptOutcome>),
    /// What is on its way.
    Moves(Vec<Departure>),
    /// How many messages it was.
    Count(u64),
    /// What became of messages that were to be disposed of; the rest were gone already, or on their way.
    Disposed {
        /// They go now.
        gone: u64,
        /// They cannot be received now, and stay.
        held: u64,
    },
    /// The subscription's number.
    Subscribed(u32),
    /// There is no such subscription.
    UnknownSubscription,
    /// This partition has the subscriptions of these names, besides the queue's own, and all that the queue has.
    TakenOver(Vec<Arc<str>>),
    /// Nothing was done: this partition has not taken over the queue's subscriptions.
    NotTakenOver,
    /// Nothing was done: the queue has more partitions than are told.
    MorePartitions,
    /// It is done.
    Done,
}
