//! Strangers who mean harm, while an honest client goes on. Nothing crashes, memory stays where it
//! was, and the honest client is served.

use std::io::Write;
use std::net::TcpStream;
use std::thread;
use std::time::Duration;

use rustix::process::{Pid, Resource, Rlimit, getrlimit, prlimit};
use towpath_process::BrokerProcess;
use towpath_process::attack::{self, Watch, raise_file_limit};
use towpath_process::hostile::TOPIC;
use towpath_process::http;
use towpath_process::kafka::{KafkaConnection, fetch_request};
use towpath_protocol::messages::{DescribeConfigsRequest, DescribeConfigsResource};

use crate::support::{dev, eventually};

/// A broker, among the resources of DescribeConfigs.
const BROKER: i8 = 4;

/// Ends a watch, and prints what it saw.
fn end(watch: Watch, broker: &mut BrokerProcess) {
    println!("{}", watch.end(broker).unwrap());
}

#[test]
fn frames_of_any_length_type_and_content_do_no_harm() {
    let (mut broker, _data) = dev();
    let address = broker.addresses.kafka;
    KafkaConnection::open(address).unwrap().create_topic(TOPIC, 2, &[]).unwrap();
    let watch = Watch::begin(&broker).unwrap();
    println!("{:?}", attack::frames::attack(address, 1, 5_000).unwrap());
    end(watch, &mut broker);
}

#[test]
fn what_is_oversized_is_refused_and_costs_little() {
    let (mut broker, _data) = dev();
    let watch = Watch::begin(&broker).unwrap();
    println!("{} cases", attack::oversized::attack(broker.addresses.kafka).unwrap());
    end(watch, &mut broker);
}

#[test]
fn http_requests_that_no_client_sends_do_no_harm() {
    let (mut broker, _data) = dev();
    KafkaConnection::open(broker.addresses.kafka).unwrap().create_topic(TOPIC, 2, &[]).unwrap();
    let watch = Watch::begin(&broker).unwrap();
    println!("{} requests", attack::web::attack(broker.addresses.http, 1, 300).unwrap());
    end(watch, &mut broker);
}

#[test]
fn slow_connections_cost_little_and_hold_nobody_up() {
    raise_file_limit().unwrap();
    let (mut broker, _data) = dev();
    let address = broker.addresses.kafka;
    let watch = Watch::begin(&broker).unwrap();
    let mut slow: Vec<TcpStream> = (0..200).map(|_| TcpStream::connect(address).unwrap()).collect();
    // A frame of 50 MB, byte by byte.
    for stream in &mut slow {
        stream.write_all(&50_000_000_i32.to_be_bytes()).unwrap();
    }
    for byte in 0..40_u8 {
        for stream in &mut slow {
            stream.write_all(&[byte]).unwrap();
        }
        thread::sleep(Duration::from_millis(50));
    }
    end(watch, &mut broker);
}

#[test]
fn clients_that_never_read_their_answers_cost_little() {
    let (mut broker, _data) = dev();
    let address = broker.addresses.kafka;
    let mut kafka = KafkaConnection::open(address).unwrap();
    kafka.create_topic("large", 1, &[]).unwrap();
    let value = vec![b'x'; 500_000];
    for _ in 0..8 {
        kafka.produce("large", 0, &[&value]).unwrap();
    }
    let watch = Watch::begin(&broker).unwrap();
    let fetch = kafka.frame(&fetch_request("large", 0, 0), 12).unwrap();
    // Some twenty kilobytes of prose come back for each of these.
    let resource = DescribeConfigsResource {
        resource_type: BROKER,
        resource_name: "1",
        configuration_keys: None,
    };
    let describe = DescribeConfigsRequest {
        resources: vec![resource; 100],
        include_synonyms: true,
        include_documentation: true,
    };
    let describe = kafka.frame(&describe, 4).unwrap();
    let mut deaf: Vec<TcpStream> = (0..50).map(|_| TcpStream::connect(address).unwrap()).collect();
    for (number, stream) in (0..).zip(&mut deaf) {
        stream.set_nonblocking(true).unwrap();
        for _ in 0..200 {
            // What does not fit any more is what the broker does not take.
            let _ = stream.write(if number % 2 == 0 { &fetch } else { &describe });
        }
    }
    thread::sleep(Duration::from_secs(2));
    end(watch, &mut broker);
}

#[test]
fn decompression_bombs_are_refused_within_bounds() {
    let (mut broker, _data) = dev();
    let watch = Watch::begin(&broker).unwrap();
    println!("{} bombs", attack::bombs::attack(broker.addresses.kafka).unwrap());
    end(watch, &mut broker);
}

#[test]
fn files_that_run_out_cost_connections_and_not_data() {
    let (mut broker, _data) = dev();
    let pid = Pid::from_raw(broker.pid().try_into().unwrap());
    let few = broker.cost().unwrap().open_files as u64 + 60;
    let limit = Rlimit { current: Some(few), maximum: Some(few) };
    prlimit(pid, Resource::Nofile, limit).unwrap();
    let mut kafka = KafkaConnection::open(broker.addresses.kafka).unwrap();
    kafka.topics().unwrap();
    let before = broker.cost().unwrap();
    let flood: Vec<_> =
        (0..200).filter_map(|_| TcpStream::connect(broker.addresses.kafka).ok()).collect();
    let log = broker.wait_for_log("nearly as many files", Duration::from_secs(30)).unwrap();
    assert!(log.contains("ulimit -n"), "no fix: {log}");
    thread::sleep(Duration::from_secs(1));
    // There is room for the files of a new partition, and whoever was there is served.
    kafka.create_topic("new", 1, &[]).unwrap();
    kafka.produce("new", 0, &[b"value"]).unwrap();
    // A refusal may be overtaken by the reset of a connection whose request was never read.
    let refused = http::get(broker.addresses.http, "/livez");
    assert!(refused.as_ref().map_or(true, |answer| answer.status == 503), "{refused:?}");
    drop(flood);
    eventually(Duration::from_secs(30), || {
        KafkaConnection::open(broker.addresses.kafka).and_then(|mut kafka| kafka.topics()).ok()
    });
    let spent = broker.cost().unwrap().cpu - before.cpu;
    println!("{spent:?} of processor time meanwhile");
    // Nobody asks the kernel again and again for what it does not have.
    assert!(spent < Duration::from_secs(10), "{spent:?}");
    broker.check_running().unwrap();
    assert!(!broker.log().contains("panicked"), "{}", broker.log());
}

#[test]
fn a_client_id_that_is_no_text_does_not_cost_the_connection() {
    let (broker, _data) = dev();
    let mut kafka = KafkaConnection::open(broker.addresses.kafka).unwrap();
    // ApiVersions v0.
    kafka.send(b"\0\0\0\x0c\0\x12\0\0\0\0\0\x07\0\x02\xff\xfe").unwrap();
    assert_eq!(kafka.receive().unwrap()[..4], [0, 0, 0, 7]);
}

/// What an idle connection may cost, in bytes of the broker's own memory: 12 KB are meant.
const CONNECTION_BYTES_MAX: u64 = 30_000;

/// How many there are: as many as a broker takes, and as there are files for.
fn flood_size() -> usize {
    const MOST: u64 = 9_500;
    let files = getrlimit(Resource::Nofile).current.unwrap_or(MOST + 500);
    usize::try_from(files.saturating_sub(500).min(MOST)).unwrap()
}

#[test]
fn idle_connections_by_the_thousand_cost_a_few_kilobytes_each() {
    raise_file_limit().unwrap();
    let (mut broker, _data) = dev();
    // What the first connections cost once is not what each costs.
    drop(idle(&broker, 100));
    let before = broker.cost().unwrap().anonymous_bytes;
    let connections = idle(&broker, flood_size());
    let grown = broker.cost().unwrap().anonymous_bytes.saturating_sub(before);
    let each = grown / connections.len() as u64;
    println!("{} connections, {each} bytes each", connections.len());
    assert!(each < CONNECTION_BYTES_MAX, "{each} bytes each");
    let log = broker.log();
    assert!(!log.contains("refused"), "{log}");
    broker.check_running().unwrap();
}

/// So many connections, each of which has asked and been answered once.
fn idle(broker: &BrokerProcess, count: usize) -> Vec<KafkaConnection> {
    let connect = |_| {
        let mut kafka = KafkaConnection::open(broker.addresses.kafka).unwrap();
        kafka.topics().unwrap();
        kafka
    };
    (0..count).map(connect).collect()
}
