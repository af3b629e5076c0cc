//! A topic that is worked as a queue: what producers send is received, hidden, deleted and delivered again.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use towpath_driver::Clock;
use towpath_model::{Offset, PartitionIndex, TopicPartition};
use towpath_protocol::ErrorCode;
use towpath_queue::{Delivery, Receipt, ReceiptOutcome, Receive, Reply, Request, Stats};

use crate::broker::{Broker, Options};
use crate::topics::delete_records;
use crate::wire::{Wire, batch, batch_at, now_ms, numbered, produce_request, produced};

const SECOND: Duration = Duration::from_secs(1);

struct Queue<'b> {
    broker: &'b Broker,
    id: TopicPartition,
}

impl Queue<'_> {
    fn create<'b>(broker: &'b Broker, wire: &mut Wire, configs: &[(&str, &str)]) -> Queue<'b> {
        let mut all = vec![("queue.enable", "true")];
        all.extend(configs);
        wire.create("jobs", 1, &all);
        Queue::open(broker)
    }

    fn open(broker: &Broker) -> Queue<'_> {
        Queue::open_partition(broker, 0)
    }

    fn open_partition(broker: &Broker, index: i32) -> Queue<'_> {
        let id = broker.node().driver().partition_of("jobs", PartitionIndex(index));
        Queue { broker, id: id.expect("it was created") }
    }

    fn ask(&self, request: Request) -> Reply {
        let node = self.broker.node();
        self.broker.block_on(node.ask_deliveries(self.id, request)).expect("it is led here")
    }

    fn receive(&self, max: u32, visibility: Duration) -> Vec<Delivery> {
        self.receive_for(0, max, visibility)
    }

    fn receive_of(&self, subscription: u32, max: u32) -> Vec<Delivery> {
        self.receive_for(subscription, max, 600 * SECOND)
    }

    fn receive_for(&self, subscription: u32, max: u32, visibility: Duration) -> Vec<Delivery> {
        let receive = Receive {
            subscription,
            max,
            visibility,
            wait_until: None,
            holder: Arc::from("test"),
            attempt: None,
        };
        let node = Arc::clone(self.broker.shared_node());
        match self.broker.block_on(node.receive(self.id, receive)).expect("it is led here") {
            Reply::Received { messages, .. } => messages,
            other => panic!("{other:?}"),
        }
    }

    fn values(&self, messages: &[Delivery]) -> Vec<String> {
        let offsets: Vec<Offset> = messages.iter().map(|message| message.receipt.offset).collect();
        let node = self.broker.node();
        let read = self
            .broker
            .block_on(node.read_messages(self.id, &offsets, usize::MAX))
            .expect("they are there")
            .found;
        let text = |offset: &Offset| {
            String::from_utf8(read[offset].value.clone().unwrap().to_vec()).unwrap()
        };
        offsets.iter().map(text).collect()
    }

    fn delete(&self, messages: &[Delivery]) -> Vec<ReceiptOutcome> {
        self.delete_for(0, messages)
    }

    fn delete_for(&self, subscription: u32, messages: &[Delivery]) -> Vec<ReceiptOutcome> {
        let receipts: Vec<Receipt> = messages.iter().map(|message| message.receipt).collect();
        match self.ask(Request::Delete { subscription, receipts }) {
            Reply::Receipts(outcomes) => outcomes,
            other => panic!("{other:?}"),
        }
    }

    fn stats(&self) -> Stats {
        let driver = self.broker.node().driver();
        let stats = driver.with_deliveries(self.id, |deliveries, now| deliveries.stats(now, 0));
        stats.expect("it is led here").expect("it is its own subscription")
    }
}

#[test]
fn what_a_kafka_producer_sends_is_received_hidden_and_deleted() {
    let broker = Broker::start();
    let mut wire = broker.connect();
    let queue = Queue::create(&broker, &mut wire, &[]);
    wire.produce("jobs", &batch(&["a", "b"]));
    wire.produce("jobs", &batch(&["c"]));
    let first = queue.receive(2, 30 * SECOND);
    assert_eq!(queue.values(&first), ["a", "b"]);
    let second = queue.receive(2, SECOND / 5);
    assert_eq!(queue.values(&second), ["c"]);
    assert_eq!(queue.receive(2, SECOND), []);
    assert_eq!(queue.delete(&first[..1]), [ReceiptOutcome::Done]);
    std::thread::sleep(SECOND / 4);
    let again = queue.receive(2, SECOND);
    assert_eq!(queue.values(&again), ["c"]);
    assert_eq!(again[0].receives, 2);
    // Whoever reads the topic as a log sees everything.
    assert_eq!(wire.fetch("jobs", 0).values(), ["a", "b", "c"]);
    let stats = queue.stats();
    assert_eq!((stats.ready, stats.in_flight), (0, 2));
}

#[test]
fn leases_and_deletions_survive_a_crash() {
    let broker = Broker::start();
    let mut wire = broker.connect();
    let queue = Queue::create(&broker, &mut wire, &[]);
    wire.produce("jobs", &batch(&["a", "b", "c"]));
    let first = queue.receive(2, 30 * SECOND);
    assert_eq!(queue.delete(&first[..1]), [ReceiptOutcome::Done]);
    let broker = Broker::start_in(broker.as_if_killed(), Options::default());
    let queue = Queue::open(&broker);
    let after = queue.receive(10, SECOND);
    assert_eq!(queue.values(&after), ["c"]);
    assert_eq!(queue.delete(&first), [ReceiptOutcome::Settled, ReceiptOutcome::Done]);
    let broker = broker.restart();
    let queue = Queue::open(&broker);
    assert_eq!(queue.stats().in_flight, 1);
}

/// The same leadership goes on then, with records that it has appended itself.
#[test]
fn leases_and_deletions_survive_a_stop_in_good_order() {
    let broker = Broker::start();
    let mut wire = broker.connect();
    let queue = Queue::create(&broker, &mut wire, &[]);
    wire.produce("jobs", &batch(&["a", "b", "c"]));
    let first = queue.receive(2, 30 * SECOND);
    assert_eq!(queue.delete(&first[..1]), [ReceiptOutcome::Done]);
    let broker = broker.restart();
    let queue = Queue::open(&broker);
    assert_eq!(queue.stats().in_flight, 1);
    let after = queue.receive(10, SECOND);
    assert_eq!(queue.values(&after), ["c"]);
    assert_eq!(queue.delete(&first), [ReceiptOutcome::Settled, ReceiptOutcome::Done]);
}

#[test]
fn a_topic_becomes_a_queue_with_everything_that_is_in_it() {
    let broker = Broker::start();
    let mut wire = broker.connect();
    wire.create("jobs", 1, &[]);
    wire.produce("jobs", &batch(&["a", "b"]));
    assert_eq!(wire.alter("jobs", "queue.enable", Some("true")), ErrorCode::None);
    let queue = Queue::open(&broker);
    wire.produce("jobs", &batch(&["c"]));
    let all = queue.receive(10, SECOND);
    assert_eq!(queue.values(&all), ["a", "b", "c"]);
}

/// Whoever publishes metadata waits for partitions, so nobody who holds one may wait for the metadata.
#[test]
fn a_topic_becomes_a_queue_while_it_is_looked_at_and_written_to() {
    let broker = Broker::start();
    let mut wire = broker.connect();
    wire.create("jobs", 1, &[("queue.limit.messages", "1000000")]);
    let large = "x".repeat(100_000);
    (0..100).for_each(|_| drop(wire.produce("jobs", &batch(&[large.as_str(); 5]))));
    let id = Queue::open(&broker).id;
    let is_over = Arc::new(AtomicBool::new(false));
    let lookers: Vec<_> = (0..2)
        .map(|_| {
            let (node, is_over) = (Arc::clone(broker.shared_node()), Arc::clone(&is_over));
            std::thread::spawn(move || {
                while !is_over.load(Ordering::Relaxed) {
                    node.driver().queue_fill(id);
                }
            })
        })
        .collect();
    let mut writer = broker.connect();
    let (done, is_done) = std::sync::mpsc::channel();
    let alter = std::thread::spawn(move || {
        assert_eq!(wire.alter("jobs", "queue.enable", Some("true")), ErrorCode::None);
        writer.produce("jobs", &batch(&["last"]));
        done.send(()).expect("somebody waits");
    });
    is_done.recv_timeout(30 * SECOND).expect("nobody waits for ever");
    is_over.store(true, Ordering::Relaxed);
    lookers.into_iter().for_each(|looker| looker.join().expect("it looked"));
    alter.join().expect("it was altered");
    assert_eq!(Queue::open(&broker).stats().ready, 501);
}

#[test]
fn a_receiver_that_waits_is_woken_by_a_send() {
    let broker = Broker::start();
    let mut wire = broker.connect();
    let queue = Queue::create(&broker, &mut wire, &[]);
    let node = Arc::clone(broker.shared_node());
    let receive = Receive {
        subscription: 0,
        max: 10,
        visibility: SECOND,
        wait_until: Some(node.driver().clock().now().time + 20 * SECOND),
        holder: Arc::from("test"),
        attempt: None,
    };
    let id = queue.id;
    let waiting = broker.spawn(async move { node.receive(id, receive).await });
    std::thread::sleep(SECOND / 10);
    assert_eq!(queue.stats().receivers, 1);
    wire.produce("jobs", &batch(&["a"]));
    let reply = broker.block_on(waiting).expect("it ends").expect("it is led here");
    let Reply::Received { messages, .. } = reply else { panic!("{reply:?}") };
    assert_eq!(queue.values(&messages), ["a"]);
}

#[test]
fn who_hangs_up_holds_nothing() {
    let broker = Broker::start();
    let mut wire = broker.connect();
    let queue = Queue::create(&broker, &mut wire, &[]);
    let node = Arc::clone(broker.shared_node());
    let wait_until = Some(node.driver().clock().now().time + 20 * SECOND);
    let (holder, attempt) = (Arc::from("test"), None);
    let visibility = 30 * SECOND;
    let receive = Receive { subscription: 0, max: 10, visibility, wait_until, holder, attempt };
    let id = queue.id;
    let waiting = broker.spawn(async move { node.receive(id, receive).await });
    std::thread::sleep(SECOND / 10);
    waiting.abort();
    let _ = broker.block_on(waiting);
    assert_eq!(queue.stats().receivers, 0);
    wire.produce("jobs", &batch(&["a"]));
    let all = queue.receive(10, SECOND);
    assert_eq!(all[0].receives, 1);
}

#[test]
fn what_was_deleted_before_a_topic_became_a_queue_is_passed_over() {
    let broker = Broker::start();
    let mut wire = broker.connect();
    wire.create("jobs", 1, &[]);
    wire.produce("jobs", &batch(&["a"]));
    wire.produce("jobs", &batch(&["b"]));
    assert_eq!(delete_records(&mut wire, "jobs", 1), (ErrorCode::None, 1));
    assert_eq!(wire.alter("jobs", "queue.enable", Some("true")), ErrorCode::None);
    let queue = Queue::open(&broker);
    let all = queue.receive(10, SECOND);
    assert_eq!(queue.values(&all), ["b"]);
}

fn try_produce(wire: &mut Wire, batch: &[u8]) -> crate::wire::Produced {
    produced(&wire.ask(11, &produce_request("jobs", 0, -1, batch)))
}

#[test]
fn a_producer_of_a_full_queue_is_told_what_it_does_not_try_again_after() {
    let broker = Broker::start();
    let mut wire = broker.connect();
    let limited = [("queue.limit.messages", "2"), ("queue.limit.policy", "reject")];
    let queue = Queue::create(&broker, &mut wire, &limited);
    let first = numbered(7, 0, &["a", "b"]);
    assert_eq!(try_produce(&mut wire, &first).error, ErrorCode::None);
    let refused = try_produce(&mut wire, &numbered(7, 2, &["c"]));
    assert_eq!(refused.error, ErrorCode::PolicyViolation);
    let text = refused.message.expect("it says why");
    assert!(
        text.contains("queue \"jobs\"") && text.contains("queue.limit.messages is 2"),
        "{text}"
    );
    // What is there already is not refused when it is repeated.
    let repeated = try_produce(&mut wire, &first);
    assert_eq!((repeated.error, repeated.base_offset), (ErrorCode::None, 0));
    let held = queue.receive(1, 30 * SECOND);
    assert_eq!(queue.delete(&held), [ReceiptOutcome::Done]);
    assert_eq!(try_produce(&mut wire, &numbered(7, 2, &["c"])).base_offset, 2);
}

#[test]
fn a_batch_that_never_fits_is_too_large_also_where_others_wait() {
    let broker = Broker::start();
    let mut wire = broker.connect();
    let limited = [("queue.limit.messages", "2"), ("queue.limit.policy", "block")];
    Queue::create(&broker, &mut wire, &limited);
    let refused = try_produce(&mut wire, &numbered(7, 0, &["a", "b", "c"]));
    assert_eq!(refused.error, ErrorCode::MessageTooLarge);
    let text = refused.message.expect("it says what to do");
    assert!(text.contains("a batch of 3 messages never fits"), "{text}");
    assert_eq!(try_produce(&mut wire, &numbered(7, 0, &["a", "b"])).error, ErrorCode::None);
}

#[test]
fn a_producer_waits_for_room_by_trying_again_where_the_queue_lets_it() {
    let broker = Broker::start();
    let mut wire = broker.connect();
    let limited = [("queue.limit.messages", "1"), ("queue.limit.policy", "block")];
    let queue = Queue::create(&broker, &mut wire, &limited);
    wire.produce("jobs", &batch(&["a"]));
    let waiting = numbered(7, 0, &["b"]);
    let refused = try_produce(&mut wire, &waiting);
    assert_eq!(refused.error, ErrorCode::NotEnoughReplicas);
    assert!(refused.message.is_some_and(|text| text.contains("holds 1 messages")));
    let held = queue.receive(1, 30 * SECOND);
    assert_eq!(queue.delete(&held), [ReceiptOutcome::Done]);
    assert_eq!(try_produce(&mut wire, &waiting).error, ErrorCode::None);
}

#[test]
fn retention_of_records_waits_for_messages_that_are_not_done_with() {
    let properties = vec![("log.retention.check.interval.ms", "1")];
    let broker = Broker::start_with(Options { properties, ..Options::default() });
    let mut wire = broker.connect();
    let queue = Queue::create(&broker, &mut wire, &[("retention.ms", "1000")]);
    wire.produce("jobs", &batch_at(now_ms() - 3_600_000, &["a", "b"]));
    std::thread::sleep(3 * SECOND);
    assert_eq!(wire.list_offset("jobs", -2).1, 0);
    let first = queue.receive(1, 30 * SECOND);
    assert_eq!(queue.delete(&first), [ReceiptOutcome::Done]);
    std::thread::sleep(3 * SECOND);
    assert_eq!(wire.list_offset("jobs", -2).1, 0, "one of them is left");
    let second = queue.receive(1, 30 * SECOND);
    assert_eq!(queue.values(&second), ["b"]);
    assert_eq!(queue.delete(&second), [ReceiptOutcome::Done]);
    let deadline = std::time::Instant::now() + 10 * SECOND;
    while wire.list_offset("jobs", -2).1 != 2 {
        assert!(std::time::Instant::now() < deadline, "nothing of them is needed any more");
        std::thread::sleep(SECOND / 20);
    }
}

/// Of a topic that is a queue and nothing else, what is done with goes; what is not stays, and is delivered.
#[test]
fn records_of_a_queue_go_with_its_messages_and_one_that_is_stuck_keeps_no_other() {
    let properties = vec![("log.cleaner.backoff.ms", "100")];
    let broker = Broker::start_with(Options { properties, ..Options::default() });
    let mut wire = broker.connect();
    let queue = Queue::create(&broker, &mut wire, &[("segment.bytes", "1048576")]);
    let subscribed =
        queue.ask(Request::Subscribe { name: Arc::from("audit"), from_start: true, partitions: 1 });
    assert_eq!(subscribed, Reply::Subscribed(1));
    let long = "x".repeat(50_000);
    let texts: Vec<String> = (0..120).map(|n| format!("{n} {long}")).collect();
    for text in &texts {
        wire.produce("jobs", &batch(&[text]));
    }
    let work = |subscription, kept: &[i64]| {
        let mut done = Vec::new();
        for _ in 0..12 {
            let messages = queue.receive_of(subscription, 10);
            let receipts = messages.iter().map(|message| message.receipt);
            done.extend(receipts.filter(|receipt| !kept.contains(&receipt.offset.0)));
        }
        queue.ask(Request::Delete { subscription, receipts: done });
    };
    work(0, &[30, 70]);
    std::thread::sleep(2 * SECOND);
    let removed = || broker.node().driver().compaction_totals().removed_records;
    assert_eq!((wire.list_offset("jobs", -2).1, removed()), (0, 0), "the audit has not seen them");
    work(1, &[30, 70]);
    let deadline = std::time::Instant::now() + 20 * SECOND;
    while removed() < 60 || wire.list_offset("jobs", -2).1 == 0 {
        assert!(std::time::Instant::now() < deadline, "{} records were removed", removed());
        std::thread::sleep(SECOND / 20);
    }
    let start = wire.list_offset("jobs", -2).1;
    assert!((10..=30).contains(&start), "{start}");

    let late =
        queue.ask(Request::Subscribe { name: Arc::from("late"), from_start: true, partitions: 1 });
    assert_eq!(late, Reply::Subscribed(2));
    let left = queue.receive_of(2, 100);
    let offsets: Vec<i64> = left.iter().map(|message| message.receipt.offset.0).collect();
    let (stuck, newest) = offsets.split_at(2);
    assert_eq!(stuck, [30, 70], "whoever comes later gets what has not gone");
    assert!(newest.iter().all(|at| 90 < *at), "nothing goes from a segment that is written to");
    assert_eq!(queue.values(&left)[..2], [texts[30].clone(), texts[70].clone()]);
}

#[test]
fn a_partition_that_was_added_keeps_its_records_until_it_has_all_subscriptions() {
    let properties = vec![("log.retention.check.interval.ms", "1")];
    let broker = Broker::start_with(Options { properties, ..Options::default() });
    let mut wire = broker.connect();
    wire.create("jobs", 2, &[("queue.enable", "true"), ("retention.ms", "1000")]);
    let (first, added) = (Queue::open(&broker), Queue::open_partition(&broker, 1));
    let subscribe = Request::Subscribe { name: "audit".into(), from_start: false, partitions: 1 };
    assert_eq!(
        first.ask(subscribe.clone()),
        Reply::Subscribed(1),
        "partition 0 knows what there is"
    );
    assert_eq!(added.ask(subscribe), Reply::NotTakenOver);
    let batch = batch_at(now_ms() - 3_600_000, &["a"]);
    let sent = produced(&wire.ask(9, &produce_request("jobs", 1, -1, &batch)));
    assert_eq!(sent.error, ErrorCode::None);
    assert_eq!(added.delete(&added.receive(1, 30 * SECOND)), [ReceiptOutcome::Done]);
    let start = || {
        let driver = broker.node().driver();
        driver.with_replica(added.id, |log, _| log.log_start_offset()).unwrap()
    };
    std::thread::sleep(3 * SECOND);
    assert_eq!(start(), Offset(0), "a subscription may want it");

    let names = vec![Arc::from("audit")];
    let take_over = Request::TakeOver { names: names.clone(), partitions: 2 };
    assert_eq!(added.ask(take_over), Reply::TakenOver(names));
    let message = added.receive_for(1, 1, 30 * SECOND);
    assert_eq!(added.values(&message), ["a"]);
    assert_eq!(added.delete_for(1, &message), [ReceiptOutcome::Done]);
    let deadline = std::time::Instant::now() + 10 * SECOND;
    while start() != Offset(1) {
        assert!(std::time::Instant::now() < deadline, "nobody wants it any more");
        std::thread::sleep(SECOND / 20);
    }
}
