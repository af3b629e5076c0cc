//! Every bound has its error, and whoever runs into it is the only one who notices.

use std::io::{Read, Write};
use std::net::TcpStream;
use std::time::{Duration, Instant};

use towpath_process::kafka::KafkaConnection;

use crate::support::{dev, eventually, serve};

#[test]
fn one_connection_too_many_is_closed_and_the_others_stay() {
    let (broker, _data) = serve("[broker]\n\"max.connections\" = 20\n");
    let mut held: Vec<_> =
        (0..20).map(|_| KafkaConnection::open(broker.addresses.kafka).unwrap()).collect();
    held.iter_mut().for_each(|connection| drop(connection.topics().unwrap()));
    let refused = KafkaConnection::open(broker.addresses.kafka).and_then(|mut c| c.topics());
    assert!(refused.is_err(), "the limit does not hold");
    broker.wait_for_log("max.connections", Duration::from_secs(30)).unwrap();
    held.iter_mut().for_each(|connection| drop(connection.topics().unwrap()));
    // A place that is given back can be taken.
    held.pop();
    eventually(Duration::from_secs(30), || {
        KafkaConnection::open(broker.addresses.kafka).and_then(|mut c| c.topics()).ok()
    });
}

#[test]
fn a_frame_that_is_too_large_is_refused_before_it_arrives() {
    let (broker, _data) = dev();
    let mut kafka = KafkaConnection::open(broker.addresses.kafka).unwrap();
    kafka.topics().unwrap();
    kafka.send(&(100 * 1024 * 1024 + 1_i32).to_be_bytes()).unwrap();
    assert!(kafka.receive().is_err());
    let log = broker.wait_for_log("socket.request.max.bytes", Duration::from_secs(30)).unwrap();
    assert!(log.contains("104857601"), "{log}");
}

#[test]
fn a_request_that_never_ends_is_closed_at_its_deadline() {
    let (broker, _data) = dev();
    let began = Instant::now();
    let mut slow: Vec<TcpStream> =
        (0..20).map(|_| TcpStream::connect(broker.addresses.kafka).unwrap()).collect();
    for stream in &mut slow {
        stream.set_read_timeout(Some(Duration::from_secs(45))).unwrap();
        stream.write_all(&[0, 0, 0, 100, 0, 18]).unwrap();
    }
    for stream in &mut slow {
        let closed = stream.read(&mut [0; 8]);
        let is_closed = matches!(&closed, Ok(0))
            || closed.as_ref().is_err_and(|e| e.kind() == std::io::ErrorKind::ConnectionReset);
        assert!(is_closed, "after {:?}: {closed:?}", began.elapsed());
    }
    assert!(Duration::from_secs(20) < began.elapsed(), "closed after {:?}", began.elapsed());
    broker.wait_for_log("did not arrive within", Duration::from_secs(30)).unwrap();
}

#[test]
fn a_topic_with_absurdly_many_partitions_is_refused() {
    let (mut broker, _data) = dev();
    let before = broker.cost().unwrap().resident_bytes;
    let mut kafka = KafkaConnection::open(broker.addresses.kafka).unwrap();
    for partitions in [i32::MAX, 100_000_000] {
        let refused = kafka.create_topic("absurd", partitions, &[]);
        assert!(refused.is_err(), "{partitions} partitions were created");
    }
    broker.check_running().unwrap();
    let grown = broker.cost().unwrap().resident_bytes.saturating_sub(before);
    assert!(grown < 64 << 20, "a refusal took {grown} bytes");
    assert!(!kafka.topics().unwrap().contains("absurd"));
}
