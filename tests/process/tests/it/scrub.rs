//! Bytes that change on the disk while the broker runs, and that nobody reads.

use std::fs::OpenOptions;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use towpath_process::http;
use towpath_process::kafka::KafkaConnection;

use crate::support::{command, eventually, output_of, serve, stop};

/// A scrub that rests looks again every five seconds.
const PATIENCE: Duration = Duration::from_secs(180);

#[test]
fn damage_is_found_before_somebody_reads_it() {
    let (broker, data) = serve("[broker]\n\"log.scrub.interval.ms\" = 0\n");
    let mut kafka = KafkaConnection::open(broker.addresses.kafka).unwrap();
    kafka.create_topic("orders", 1, &[("segment.bytes", "1048576")]).unwrap();
    for n in 0..4 {
        kafka.produce("orders", 0, &[&vec![b'a' + n; 900_000]]).unwrap();
    }

    let segment = find(data.path(), "00000000000000000001.log").expect("a segment per record");
    let file = OpenOptions::new().read(true).write(true).open(&segment).unwrap();
    file.write_all_at(b"XYZ", 500_000).unwrap();

    let ranges = eventually(PATIENCE, || {
        let ranges = metric(broker.addresses.http, "towpath_scrub_damaged_ranges_total ");
        (ranges != "0").then_some(ranges)
    });
    assert_eq!(ranges, "1");
    assert_eq!(metric(broker.addresses.http, "towpath_damaged_ranges "), "1");
    let log = broker.log();
    assert!(log.contains("orders") && log.contains("damaged records"), "{log}");

    let read = |offset: i64| {
        let path = format!("/topics/orders/partitions/0/messages?offset={offset}");
        http::get(broker.addresses.http, &path).unwrap()
    };
    assert!(read(0).success().is_ok());
    let refused = read(1).json().unwrap();
    assert_eq!(refused["error"]["code"], "RECORDS_DAMAGED", "{refused}");
    assert!(read(2).success().is_ok());

    // On the command line at once, with the way on.
    let began = Instant::now();
    let said = command(&broker, "read", &["orders", "--from", "offset:1"]);
    assert_eq!(said.status.code(), Some(1), "{said:#?}");
    assert!(said.stderr.contains("the records 1 to 1 of orders-0 are damaged"), "{said:#?}");
    assert!(said.stderr.contains("towpath read orders -p 0 --from offset:2"), "{said:#?}");
    let said = command(&broker, "tail", &["orders", "--from", "earliest"]);
    assert!(said.stderr.contains("the records 1 to 1 of orders-0 are damaged"), "{said:#?}");
    let said = command(&broker, "read", &["orders", "--group", "crew"]);
    let go_on = ["group", "seek", "crew", "-t", "orders", "-p", "0", "--to", "offset:2"];
    assert!(said.stderr.contains(&format!("towpath {}", go_on.join(" "))), "{said:#?}");
    output_of(&broker, "group", &[&go_on[1..], &["--yes"]].concat());
    let read = output_of(&broker, "read", &["orders", "--group", "crew", "--format", "%o\\n"]);
    assert_eq!(read, "2\n3\n");
    assert!(began.elapsed() < PATIENCE, "{:?}", began.elapsed());
    stop(broker);
}

fn metric(address: std::net::SocketAddr, name: &str) -> String {
    let body = String::from_utf8(http::get(address, "/metrics").unwrap().body).unwrap();
    let line = body.lines().find_map(|line| line.strip_prefix(name));
    line.unwrap_or_else(|| panic!("no {name}")).to_owned()
}

fn find(directory: &Path, name: &str) -> Option<PathBuf> {
    for entry in std::fs::read_dir(directory).ok()?.flatten() {
        let path = entry.path();
        let found = if path.is_dir() { find(&path, name) } else { None };
        let is_it =
            entry.file_name() == name && path.components().any(|at| at.as_os_str() == "topics");
        if is_it || found.is_some() {
            return found.or(Some(path));
        }
    }
    None
}
