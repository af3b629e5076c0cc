//! Everything that has a length or a count, larger than it may be or than what follows it.

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use towpath_protocol::ApiKey;
use towpath_protocol::messages::{
    CreatableTopic, CreateTopicsRequest, FetchRequest, FetchTopic, MetadataRequest,
    MetadataRequestTopic, OffsetFetchRequest, RequestHeader,
};
use towpath_protocol::{Request, encode_request};
use towpath_records::{BatchBuilder, Compression};

use crate::kafka::{KafkaConnection, now, produce_request};

const TOPIC: &str = "oversized";
/// How long an answer or an end may take.
const PATIENCE: Duration = Duration::from_secs(30);
/// Connections that each announce the largest frame and send a little of it.
const ANNOUNCERS: usize = 200;

/// What is sent, and what may come back.
struct Case {
    name: &'static str,
    frame: Vec<u8>,
}

/// Sends all of it, each over a connection of its own. Returns how many cases there were.
pub fn attack(address: SocketAddr) -> Result<usize> {
    let mut kafka = KafkaConnection::open(address)?;
    kafka.create_topic(TOPIC, 1, &[])?;
    let mut count = 0;
    for Case { name, frame } in cases()? {
        ends_or_answers(address, &frame).with_context(|| name.to_owned())?;
        count += 1;
    }
    for batch in lying_batches()? {
        let refused = kafka.produce_batch(TOPIC, 0, &batch);
        ensure!(refused.is_err(), "a batch that lies was taken: {batch:x?}");
        count += 1;
    }
    announce(address)?;
    let (records, end) = kafka.read_all(TOPIC, 0, 0)?;
    ensure!(records.is_empty() && end == 0, "{} records came out of it", records.len());
    Ok(count + ANNOUNCERS)
}

fn cases() -> Result<Vec<Case>> {
    let mut cases = Vec::new();
    for (name, length) in [
        ("length i32::MAX", i32::MAX),
        ("length −1", -1),
        ("length i32::MIN", i32::MIN),
        ("length one more than the limit", 100 * 1024 * 1024 + 1),
    ] {
        cases.push(Case { name, frame: length.to_be_bytes().to_vec() });
    }
    for api_key in ApiKey::ALL {
        for version in api_key.versions() {
            // A count in the classic and in the compact encoding, with nothing behind it.
            for count in
                [&[0x7f, 0xff, 0xff, 0xff][..], &[0xff, 0xff, 0xff, 0xff, 0x0f], &[0xff; 12]]
            {
                let frame = raw_frame(*api_key, version, count);
                cases.push(Case { name: api_key.name(), frame });
            }
            // Tagged fields without end.
            let frame = raw_frame(*api_key, version, &[0xff; 4_000]);
            cases.push(Case { name: api_key.name(), frame });
        }
    }
    let long = "n".repeat(30_000);
    let topics = |name: &'static str, count| {
        let topic = MetadataRequestTopic { name: Some(name), ..MetadataRequestTopic::default() };
        vec![topic; count]
    };
    let request =
        MetadataRequest { topics: Some(topics("x", 200_000)), ..MetadataRequest::default() };
    cases.push(Case { name: "metadata of 200,000 topics", frame: frame_of(&request, 12)? });
    let topic = FetchTopic { topic: &long, ..FetchTopic::default() };
    let request = FetchRequest { topics: vec![topic; 100], ..FetchRequest::default() };
    cases.push(Case { name: "fetch of long names", frame: frame_of(&request, 12)? });
    let topic = CreatableTopic { name: &long, num_partitions: 1, ..CreatableTopic::default() };
    let request =
        CreateTopicsRequest { topics: vec![topic; 100], ..CreateTopicsRequest::default() };
    cases.push(Case { name: "topics with long names", frame: frame_of(&request, 7)? });
    let request = OffsetFetchRequest { group_id: &long, ..OffsetFetchRequest::default() };
    cases.push(Case { name: "a group with a long name", frame: frame_of(&request, 7)? });
    let noise = vec![0xff; 4 << 20];
    let request = produce_request(TOPIC, 0, &noise);
    cases.push(Case { name: "4 MiB of noise for records", frame: frame_of(&request, 9)? });
    Ok(cases)
}

fn frame_of<'a, M: Request<'a>>(request: &M, version: i16) -> Result<Vec<u8>> {
    let header = RequestHeader {
        request_api_key: M::API_KEY,
        request_api_version: version,
        correlation_id: 1,
        client_id: Some("oversized"),
    };
    let frame = encode_request(&header, request, version)?;
    Ok(frame.into_bytes().context("a request has no file regions")?.to_vec())
}

/// A frame with a good header and this for a body.
fn raw_frame(api_key: ApiKey, version: i16, body: &[u8]) -> Vec<u8> {
    let mut frame = vec![0; 4];
    frame.extend(api_key.key().to_be_bytes());
    frame.extend(version.to_be_bytes());
    frame.extend([0, 0, 0, 1, 0, 1, b'x']);
    if api_key.is_flexible(version) {
        frame.push(0);
    }
    frame.extend(body);
    let length = i32::try_from(frame.len() - 4).unwrap_or(i32::MAX);
    frame[..4].copy_from_slice(&length.to_be_bytes());
    frame
}

/// Sends a frame, and waits for an answer or an end. What it is does not matter here.
fn ends_or_answers(address: SocketAddr, frame: &[u8]) -> Result<()> {
    let mut stream = TcpStream::connect(address)?;
    stream.set_read_timeout(Some(PATIENCE))?;
    stream.set_write_timeout(Some(PATIENCE))?;
    if stream.write_all(frame).is_err() {
        return Ok(());
    }
    match stream.read(&mut [0; 64]) {
        Err(error) if error.kind() == std::io::ErrorKind::WouldBlock => {
            Err(error).context("neither an answer nor an end")
        }
        _ => Ok(()),
    }
}

/// Batches whose header or records say more than there is.
fn lying_batches() -> Result<Vec<Vec<u8>>> {
    let mut batches = Vec::new();
    // Where the header has its length, its last offset delta and its count of records; and the
    // first record its length.
    let lies: [(usize, &[u8]); 6] = [
        (8, &[0x7f, 0xff, 0xff, 0xff]),
        (8, &[0xff, 0xff, 0xff, 0xff]),
        (23, &[0x7f, 0xff, 0xff, 0xff]),
        (57, &[0x7f, 0xff, 0xff, 0xff]),
        (61, &[0xfe, 0xff, 0xff, 0xff, 0x0f]),
        (61, &[0xff; 8]),
    ];
    for compression in Compression::ALL {
        for (at, lie) in lies {
            let mut batch = BatchBuilder::new(compression, now());
            batch.append(now(), Some(b"key"), Some(&[b'v'; 100]), [])?;
            let mut batch = batch.build();
            let end = (at + lie.len()).min(batch.len());
            batch[at..end].copy_from_slice(&lie[..end - at]);
            let checksum = towpath_records::crc::crc32c(&batch[21..]);
            batch[17..21].copy_from_slice(&checksum.to_be_bytes());
            batches.push(batch);
        }
    }
    Ok(batches)
}

/// Announces the largest frame many times at once, and sends some of it: only what has arrived may
/// cost anything.
fn announce(address: SocketAddr) -> Result<()> {
    let mut streams = Vec::with_capacity(ANNOUNCERS);
    for _ in 0..ANNOUNCERS {
        let mut stream = TcpStream::connect(address)?;
        stream.write_all(&(100 * 1024 * 1024_i32).to_be_bytes())?;
        stream.write_all(&[0; 8 << 10])?;
        streams.push(stream);
    }
    std::thread::sleep(Duration::from_secs(1));
    Ok(())
}
