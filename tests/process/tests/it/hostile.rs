//! Strangers who mean harm, while an honest client goes on. Nothing crashes, memory stays where it
//! was, and the honest client is served.

use std::io::Write;
use std::net::TcpStream;
use std::thread;
use std::time::Duration;

use towpath_process::BrokerProcess;
use towpath_process::attack::{self, Watch, raise_file_limit};
use towpath_process::hostile::TOPIC;
use towpath_process::kafka::{KafkaConnection, fetch_request};
use towpath_protocol::messages::{DescribeConfigsRequest, DescribeConfigsResource};

use crate::support::dev;

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
fn a_thousand_idle_connections_cost_little() {
    raise_file_limit().unwrap();
    let (mut broker, _data) = dev();
    let watch = Watch::begin(&broker).unwrap();
    let idle: Vec<_> = (0..1_000)
        .map(|number| {
            let mut kafka = KafkaConnection::open(broker.addresses.kafka).unwrap();
            if number % 2 == 0 {
                kafka.topics().unwrap();
            }
            kafka
        })
        .collect();
    thread::sleep(Duration::from_secs(1));
    end(watch, &mut broker);
    drop(idle);
}

#[test]
fn decompression_bombs_are_refused_within_bounds() {
    let (mut broker, _data) = dev();
    let watch = Watch::begin(&broker).unwrap();
    println!("{} bombs", attack::bombs::attack(broker.addresses.kafka).unwrap());
    end(watch, &mut broker);
}
