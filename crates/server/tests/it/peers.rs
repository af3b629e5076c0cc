//! What connections between brokers carry, survive and refuse.

use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use bytes::Bytes;
use towpath_model::{BrokerId, Uuid};
use towpath_server::peer::{Addresses, Class, FRAME_BYTES_MAX, Hello, MAGIC, PeerLimits};

use crate::peer_transport::*;

fn pair() -> (Transport, Transport) {
    let one = Transport::start(1, Options::default());
    let two = Transport::start(2, Options::default());
    one.knows(&[&two]);
    two.knows(&[&one]);
    (one, two)
}

#[test]
fn messages_go_between_all_of_three_brokers_in_both_classes() {
    let secret = Some("what only the three of them know");
    let all: Vec<Transport> =
        (1..=3).map(|id| Transport::start(id, Options { secret, ..Options::default() })).collect();
    for one in &all {
        one.knows(&all.iter().collect::<Vec<_>>());
    }
    for from in &all {
        for to in all.iter().filter(|to| to.id != from.id) {
            for class in Class::ALL {
                from.send(to, class, format!("{} {} {class:?}", from.id, to.id).as_bytes());
            }
        }
        assert!(!from.peers.send(from.id, Class::Control, b"to itself".to_vec()));
        assert!(!from.peers.send(BrokerId(4), Class::Control, b"to nobody".to_vec()));
    }
}

#[test]
fn messages_of_any_size_arrive_and_small_ones_in_order() {
    let (one, two) = pair();
    for bytes in [0, 1, 5000, FRAME_BYTES_MAX, FRAME_BYTES_MAX + 1, 10_000_000] {
        one.send(&two, Class::Control, &vec![bytes as u8; bytes]);
    }
    two.handler.change(|seen| seen.messages.clear());
    for number in 0..1000_u32 {
        assert!(one.peers.send(BrokerId(2), Class::Control, number.to_be_bytes().to_vec()));
    }
    two.handler.until("all of them", |seen| seen.messages.len() == 1000);
    let seen = two.handler.seen();
    let numbers = seen.messages.iter().map(|(_, message)| message.clone());
    assert!(numbers.eq((0..1000_u32).map(|number| Bytes::copy_from_slice(&number.to_be_bytes()))));
}

#[test]
fn brokers_without_a_cluster_learn_who_the_others_are() {
    let directory_id = Some(Uuid([7; 16]));
    let one = Transport::start(1, Options { directory_id, ..Options::default() });
    let cluster_id = Arc::new(Mutex::new(Some("a-cluster")));
    let two = Transport::start(2, Options { cluster_id, ..Options::default() });
    one.knows(&[&two]);
    let is_two = |hello: &Hello| {
        hello.node_id == BrokerId(2) && hello.cluster_id.as_deref() == Some("a-cluster")
    };
    one.handler.until("its hello", |seen| seen.hellos.iter().any(is_two));
    // Also by the one that is called, which calls back at the address that it was told.
    let is_one = |hello: &Hello| hello.directory_id == Uuid([7; 16]);
    two.handler.until("its hello", |seen| seen.hellos.iter().any(is_one));
    two.send(&one, Class::Control, b"called back");
}

#[test]
fn a_broker_that_has_come_to_a_cluster_says_so_to_those_that_know_it_already() {
    let cluster_id = Arc::new(Mutex::new(None));
    let of_one = Arc::clone(&cluster_id);
    let one = Transport::start(1, Options { cluster_id: of_one, ..Options::default() });
    let two = Transport::start(2, Options::default());
    one.knows(&[&two]);
    one.reaches(BrokerId(2));
    two.reaches(BrokerId(1));
    *cluster_id.lock().unwrap() = Some("a-cluster");
    one.peers.introduce_again();
    let has_it = |hello: &Hello| hello.cluster_id.as_deref() == Some("a-cluster");
    two.handler.until("the news", |seen| seen.hellos.iter().any(has_it));
    one.repeat(&two, Class::Control, b"after that");
}

#[test]
fn a_seed_is_enough_to_know_each_other() {
    let one = Transport::start(1, Options::default());
    let two = Transport::start(2, Options::default());
    // Its own address among them does no harm.
    two.addresses.set_seeds([peer_address(two.address), peer_address(one.address)]);
    two.send(&one, Class::Control, b"hello");
    one.send(&two, Class::Control, b"hello");
    assert_eq!(two.addresses.of(BrokerId(1)), Some(peer_address(one.address)));
}

#[test]
fn a_process_that_is_gone_is_told_from_one_that_is_silent_and_found_when_it_is_back() {
    let (one, two) = pair();
    one.send(&two, Class::Control, b"before");
    one.handler.change(|seen| seen.lost.clear());
    let port = two.address.port();
    drop(two);
    let is_gone = |(peer, refused): &(BrokerId, bool)| *peer == BrokerId(2) && *refused;
    one.handler.until("refused", |seen| seen.lost.iter().any(is_gone));
    assert_eq!(one.handler.seen().lost[0], (BrokerId(2), false));
    eventually(|| !one.peers.send(BrokerId(2), Class::Control, b"lost".to_vec()));
    assert!(!one.peers.is_connected(BrokerId(2), Class::Control));

    let two = Transport::start(2, Options { port, ..Options::default() });
    one.repeat(&two, Class::Control, b"after");
    one.repeat(&two, Class::Records, b"after, too");
}

/// The peer dials first, so that nobody waits for the end of a rest.
#[test]
fn a_peer_that_calls_is_called_back_at_once() {
    let rest = Duration::from_secs(600);
    let limits = PeerLimits { rest_min: rest, rest_max: rest, ..PeerLimits::default() };
    let one = Transport::start(1, Options { limits, ..Options::default() });
    // Bound and not listening: calls are refused, and nobody else is given the port.
    let held = tokio::net::TcpSocket::new_v4().unwrap();
    held.bind("127.0.0.1:0".parse().unwrap()).unwrap();
    let address = held.local_addr().unwrap();
    let port = address.port();
    one.addresses.set(BrokerId(2), peer_address(address));
    one.handler.until("refused", |seen| seen.lost.contains(&(BrokerId(2), true)));
    drop(held);
    let two = Transport::start(2, Options { port, ..Options::default() });
    two.knows(&[&one]);
    one.send(&two, Class::Control, b"at once");
}

#[test]
fn a_peer_that_moves_is_followed_and_one_that_is_forgotten_is_left() {
    let (one, two) = pair();
    one.send(&two, Class::Control, b"here");
    let moved = Transport::start(2, Options::default());
    one.knows(&[&moved]);
    one.repeat(&moved, Class::Control, b"there");
    one.addresses.remove(BrokerId(2));
    eventually(|| !one.peers.send(BrokerId(2), Class::Control, b"nowhere".to_vec()));
}

#[test]
fn strangers_are_closed_and_disturb_nobody() {
    let limits = PeerLimits { handshake_max: Duration::from_secs(1), ..PeerLimits::default() };
    let one = Transport::start(1, Options { limits, ..Options::default() });
    let two = Transport::start(2, Options::default());
    one.knows(&[&two]);
    two.knows(&[&one]);
    let mut hello_frame = MAGIC.to_vec();
    hello_frame.extend([0, 0, 4, 0, HELLO]);
    let strangers: [(&str, &[u8]); 6] = [
        ("http", b"GET / HTTP/1.1\r\nhost: x\r\n\r\n"),
        ("kafka", b"\0\0\0\x0a\0\x12\0\0\0\0\0\x07\xff\xff"),
        ("tls", &[0x16, 3, 1, 2, 0, 1, 0, 1, 0xfc, 3, 3]),
        ("random", &[0xf7; 4096]),
        ("silent", b""),
        ("half a hello", &hello_frame),
    ];
    for (what, bytes) in strangers {
        let mut socket = TcpStream::connect(one.address).unwrap();
        socket.write_all(bytes).unwrap();
        assert!(is_closed(&mut socket), "{what}");
        two.repeat(&one, Class::Control, what.as_bytes());
    }
    eventually(|| one.metrics.refused_for("stranger") == 4);
    // On a busy machine an honest handshake may be among them.
    eventually(|| 2 <= one.metrics.refused_for("slow"));
    // In their own language.
    let mut socket = TcpStream::connect(one.address).unwrap();
    socket.write_all(b"GET / HTTP/1.1\r\n\r\n").unwrap();
    let mut answer = String::new();
    socket.read_to_string(&mut answer).unwrap();
    assert!(answer.contains("for the brokers of a cluster"), "{answer}");
}

#[test]
fn somebody_who_endlessly_sends_is_refused_early() {
    let one = Transport::start(1, Options::default());
    let mut socket = TcpStream::connect(one.address).unwrap();
    socket.set_write_timeout(Some(Duration::from_secs(60))).unwrap();
    socket.write_all(&MAGIC).unwrap();
    socket.write_all(&[0, 0, 4, 1, 9]).unwrap();
    let mut sent = 0;
    while socket.write_all(&[0x55; 1024]).is_ok() {
        sent += 1024;
        assert!(sent < 64 << 20, "it is still being read");
    }
}

#[test]
fn whoever_has_another_secret_or_cluster_or_none_is_refused_by_both() {
    let secret = |secret| Options { secret: Some(secret), ..Options::default() };
    let cluster = |cluster_id| Options {
        cluster_id: Arc::new(Mutex::new(Some(cluster_id))),
        ..Options::default()
    };
    let cases = [
        ("secret", secret("the secret of the first"), secret("the secret of the second")),
        ("secret", secret("the secret of the first"), Options::default()),
        ("cluster", cluster("first"), cluster("second")),
    ];
    for (reason, of_one, of_two) in cases {
        let (one, two) = (Transport::start(1, of_one), Transport::start(2, of_two));
        one.knows(&[&two]);
        // Whoever finds it out, and whoever is told.
        let refused =
            |it: &Transport| it.metrics.refused_for(reason) + it.metrics.refused_for("told");
        eventually(|| 0 < refused(&one) && 0 < refused(&two));
        assert!(!one.peers.is_connected(BrokerId(2), Class::Control));
        assert!(one.handler.seen().hellos.is_empty() && two.handler.seen().hellos.is_empty());
        assert!(!one.handler.seen().lost.contains(&(BrokerId(2), true)), "somebody is there");
    }
}

#[test]
fn a_handshake_that_was_recorded_opens_nothing() {
    let secret = Some("what only the two of them know");
    let two = Transport::start(2, Options { secret, ..Options::default() });
    let spy = TcpListener::bind("127.0.0.1:0").unwrap();
    let addresses = Addresses::new([(BrokerId(2), peer_address(spy.local_addr().unwrap()))]);
    let one = Transport::start(1, Options { secret, addresses, ..Options::default() });
    // Everything that broker 1 says passes through here, until messages follow.
    let (mut from_one, _) = spy.accept().unwrap();
    let mut to_two = TcpStream::connect(two.address).unwrap();
    let mut recorded = Vec::new();
    for (heard, said) in [(true, false), (false, true), (true, false)] {
        assert_ne!(heard, said);
        let mut room = [0; 2048];
        if heard {
            let read = from_one.read(&mut room).unwrap();
            recorded.extend(&room[..read]);
            to_two.write_all(&room[..read]).unwrap();
        } else {
            let read = to_two.read(&mut room).unwrap();
            from_one.write_all(&room[..read]).unwrap();
        }
    }
    two.handler.until("broker 1", |seen| !seen.hellos.is_empty());
    let mut again = TcpStream::connect(two.address).unwrap();
    again.write_all(&recorded).unwrap();
    assert!(is_closed(&mut again));
    eventually(|| two.metrics.refused_for("secret") == 1);
    drop(one);
}

#[test]
fn another_data_directory_under_the_same_number_is_refused() {
    let one = Transport::start(1, Options::default());
    let mut first = Puppet::dial(one.address, hello(2, Class::Control));
    first.send(MESSAGE, b"from the first");
    one.receives(BrokerId(2), b"from the first");
    let second = Transport::start(2, Options::default());
    second.knows(&[&one]);
    eventually(|| 0 < one.metrics.refused_for("node id"));
    // When the first is gone, the number is free.
    drop(first);
    second.send(&one, Class::Control, b"from the second");
}

#[test]
fn the_newest_connection_of_a_peer_counts() {
    let one = Transport::start(1, Options::default());
    let mut older = Puppet::dial(one.address, hello(2, Class::Control));
    let mut newer = Puppet::dial(one.address, hello(2, Class::Control));
    let mut of_other_class = Puppet::dial(one.address, hello(2, Class::Records));
    assert!(older.is_closed());
    newer.send(MESSAGE, b"newer");
    one.receives(BrokerId(2), b"newer");
    of_other_class.send(MESSAGE, b"records");
    one.receives(BrokerId(2), b"records");
}

#[test]
fn a_peer_that_breaks_the_rules_loses_its_connection_only() {
    let one = Transport::start(1, Options::default());
    let mut honest = Puppet::dial(one.address, hello(3, Class::Control));
    let too_large = u32::try_from(FRAME_BYTES_MAX + 2).unwrap().to_be_bytes();
    let no_message = [&[0xff; 4][..], &[0; 10]].concat();
    let cases: [(&str, Vec<u8>); 6] = [
        ("a frame too large", [&too_large[..], &[MESSAGE]].concat()),
        ("a frame of nothing", vec![0; 4]),
        ("an unknown kind", vec![0, 0, 0, 1, 99]),
        ("a hello where it has no place", vec![0, 0, 0, 1, HELLO]),
        ("a piece of nothing", vec![0, 0, 0, 1, 6]),
        ("a message too large", [&[0, 0, 0, 15, FIRST_PIECE][..], &no_message].concat()),
    ];
    for (what, bytes) in cases {
        let mut puppet = Puppet::dial(one.address, hello(2, Class::Control));
        puppet.socket.write_all(&bytes).unwrap();
        assert!(puppet.is_closed(), "{what}");
        honest.send(MESSAGE, what.as_bytes());
        one.receives(BrokerId(3), what.as_bytes());
    }
}

#[test]
fn a_peer_that_says_nothing_is_given_up_and_one_that_asks_is_answered() {
    let limits = PeerLimits { stall_max: Duration::from_secs(2), ..PeerLimits::default() };
    let one = Transport::start(1, Options { limits, ..Options::default() });
    let mut silent = Puppet::dial(one.address, hello(2, Class::Control));
    let mut asks = Puppet::dial(one.address, hello(3, Class::Control));
    let began = Instant::now();
    asks.send(PING, b"");
    let mut pong = [0; 5];
    asks.socket.read_exact(&mut pong).unwrap();
    assert_eq!(pong, [0, 0, 0, 1, PONG]);
    assert!(silent.is_closed());
    assert!(Duration::from_secs(1) < began.elapsed());
}

#[test]
fn a_receiver_that_owes_an_answer_is_given_up() {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let limits = PeerLimits {
        stall_max: Duration::from_millis(500),
        ping_every: Duration::from_millis(100),
        ..PeerLimits::default()
    };
    let addresses = Addresses::new([(BrokerId(2), peer_address(listener.local_addr().unwrap()))]);
    let one = Transport::start(1, Options { limits, addresses, ..Options::default() });
    let (mut control, _records) = Puppet::accept_both(&listener, 2);
    // It takes all bytes, as a machine does whose process has stopped; messages go on meanwhile.
    let is_alive = false;
    while control.message(is_alive).is_some() {}
    one.handler.until("given up", |seen| seen.lost.contains(&(BrokerId(2), false)));
}

#[test]
fn a_reader_that_is_slow_holds_up_its_records_and_nothing_else() {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let addresses = Addresses::new([(BrokerId(2), peer_address(listener.local_addr().unwrap()))]);
    let limits = PeerLimits { stall_max: Duration::from_secs(30), ..PeerLimits::default() };
    let one = Transport::start(1, Options { addresses, limits, ..Options::default() });
    let (mut control, mut records) = Puppet::accept_both(&listener, 2);
    let batches: Vec<Bytes> = (0..200).map(|number| vec![number; 1 << 20].into()).collect();
    one.handler.change(|seen| seen.records.extend(batches.iter().cloned()));
    one.peers.ready_to_send_records(BrokerId(2));
    // The system's buffers fill up, and then nothing more is asked for.
    let handed_out = || one.handler.seen().handed_out;
    let mut before = 0;
    eventually(|| {
        std::thread::sleep(Duration::from_millis(200));
        let is_still = 0 < before && before == handed_out();
        before = handed_out();
        is_still
    });
    assert!(before < 100, "{before} MiB for a reader that reads nothing");
    one.peers.ready_to_send_records(BrokerId(2));
    assert!(one.peers.send(BrokerId(2), Class::Control, b"a heartbeat".to_vec()));
    assert_eq!(control.message(true).unwrap(), &b"a heartbeat"[..]);
    assert_eq!(handed_out(), before);
    // It reads again, and nothing is missing.
    for batch in batches {
        assert_eq!(records.message(true).unwrap(), batch);
    }
}

#[test]
fn a_reader_that_takes_nothing_is_given_up() {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let addresses = Addresses::new([(BrokerId(2), peer_address(listener.local_addr().unwrap()))]);
    let limits = PeerLimits { stall_max: Duration::from_millis(300), ..PeerLimits::default() };
    let one = Transport::start(1, Options { addresses, limits, ..Options::default() });
    let (_control, _stuck) = Puppet::accept_both(&listener, 2);
    let batches = (0..200).map(|number| Bytes::from(vec![number; 1 << 20]));
    one.handler.change(|seen| seen.records.extend(batches));
    one.peers.ready_to_send_records(BrokerId(2));
    loop {
        let puppet = Puppet::accept(&listener, 2);
        if puppet.theirs.class == Class::Records {
            break;
        }
    }
}

#[test]
fn a_disk_that_does_not_answer_holds_up_what_is_on_it_and_nothing_else() {
    let (one, two) = pair();
    one.reaches(BrokerId(2));
    one.handler.change(|seen| {
        seen.is_stalled = true;
        seen.cold.push_back(Bytes::from_static(b"cold"));
    });
    one.peers.ready_to_send_records(BrokerId(2));
    one.handler.until("a read that waits", |seen| seen.waiting == 1);
    for number in 0..10 {
        one.handler.change(|seen| seen.records.push_back(vec![number; 5000].into()));
        one.peers.ready_to_send_records(BrokerId(2));
        two.receives(BrokerId(1), &[number; 5000]);
    }
    assert_eq!(one.handler.seen().waiting, 1);
    one.handler.change(|seen| seen.is_stalled = false);
    two.receives(BrokerId(1), b"cold");
}

#[test]
fn at_a_queues_bound_the_oldest_are_dropped_and_counted() {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let addresses = Addresses::new([(BrokerId(2), peer_address(listener.local_addr().unwrap()))]);
    let limits = PeerLimits {
        queue_bytes_max: FRAME_BYTES_MAX,
        stall_max: Duration::from_secs(30),
        ..PeerLimits::default()
    };
    let one = Transport::start(1, Options { addresses, limits, ..Options::default() });
    let (mut control, _records) = Puppet::accept_both(&listener, 2);
    for number in 0..200_u8 {
        assert!(one.peers.send(BrokerId(2), Class::Control, vec![number; 1 << 20]));
    }
    let mut messages = Vec::new();
    while messages.last() != Some(&199) {
        messages.push(control.message(true).unwrap()[0]);
    }
    assert!(messages.is_sorted());
    assert_eq!(one.metrics.dropped(Class::Control), 200 - messages.len() as u64);
    assert!(0 < one.metrics.dropped(Class::Control));
}
