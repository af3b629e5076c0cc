//! A whole broker behind its listener: frames of one connection in, answers out.
//!
//! ```text
//!   input = up to eight pieces of 48 bytes, each a request:
//!   how u8 │ API u8 │ version u8 │ a byte for each choice of a field (chance.rs)
//! ```
//!
//! Most requests are well formed, so that what is in them reaches what is behind the codec; some get
//! damage, some are bytes as they come. Promises: no thread of the broker panics; answers come in
//! the order of the requests, can be read in the version asked for and leave nothing over; what need
//! not wait is answered; and an administrator is served afterwards. What surprises: the broker lives
//! on from one input to the next, with its topics and configurations restored in between. What is
//! left of others (groups, producers) ends with the broker, after some hundred inputs.

mod chance;
mod node;
#[allow(dead_code, reason = "the codec's own tests use all of it")]
#[path = "../../../../crates/protocol/tests/support/samples.rs"]
mod samples;

use std::cell::RefCell;
use std::collections::VecDeque;
use std::io::ErrorKind;
use std::time::Duration;

use tokio::io::AsyncWriteExt;
use tokio::net::TcpStream;
use towpath_protocol::messages::*;
use towpath_protocol::{ApiKey, Message, Uuid, decode_response_header, encode_request};

use self::chance::{Chance, Sample};
use self::node::{Broker, PATIENCE, connect, read_frame};
use super::frames::by_api;
use crate::shape::Shape;
use crate::target::Target;

/// Requests of one connection.
pub(super) const BROKER: Target =
    Target { name: "broker", seeds, run: converse, memory_max: 64 << 20, waits_for_others: true };

const PIECE_BYTES: usize = 48;
const PIECES_MAX: usize = 8;
/// Inputs of one broker.
const INPUTS_MAX: u32 = 400;
/// How long a request is waited for that may wait itself, for records or for members.
const GLANCE: Duration = Duration::from_millis(10);
/// How much of an answer's text its shape is taken from.
const TEXT_BYTES_MAX: usize = 20_000;

thread_local! {
    static RUNNING: RefCell<Option<Broker>> = const { RefCell::new(None) };
}

/// A request that was sent.
struct Asked {
    key: i16,
    version: i16,
    correlation_id: i32,
}

fn converse(input: &[u8]) -> Shape {
    RUNNING.with_borrow_mut(|running| {
        let broker = match running {
            Some(broker) if broker.inputs < INPUTS_MAX => broker,
            _ => {
                *running = None;
                running.insert(Broker::start())
            }
        };
        broker.inputs += 1;
        let topic_id = broker.reset();
        let pieces = input.chunks(PIECE_BYTES).take(PIECES_MAX);
        let sent: Vec<u8> = (0..).zip(pieces).flat_map(|(n, p)| frame(n, p, topic_id)).collect();
        let address = broker.address;
        broker.runtime.block_on(async { talk(connect(address).await, &sent).await })
    })
}

/// The frame of a piece of the input, with its length in front.
fn frame(nth: i32, piece: &[u8], topic_id: Uuid) -> Vec<u8> {
    let mut chance = Chance::new(piece, topic_id);
    let how = chance.byte();
    if how & 0x0f == 0x0f {
        // As it comes: not even its header need be one.
        return with_length(&chance.rest());
    }
    let mut body = request(nth, &mut chance);
    if how & 0x03 == 0x03 {
        for _ in 0..=how >> 6 {
            damage(&mut body, &mut chance);
        }
    }
    let mut frame = with_length(&body);
    if how & 0x3f == 0x2e {
        frame[..4].copy_from_slice(&chance.i64().to_be_bytes()[4..]);
    }
    frame
}

fn with_length(body: &[u8]) -> Vec<u8> {
    let length = i32::try_from(body.len()).expect("requests are small");
    [&length.to_be_bytes()[..], body].concat()
}

/// A well-formed request without its length.
fn request(nth: i32, chance: &mut Chance) -> Vec<u8> {
    let api_key = ApiKey::ALL[chance.below(ApiKey::ALL.len())];
    let served = api_key.versions();
    let count = usize::try_from(served.end() - served.start() + 1).expect("there is a version");
    let version = served.start() + i16::try_from(chance.below(count)).expect("there are few");
    let header = RequestHeader {
        request_api_key: api_key.key(),
        request_api_version: version,
        correlation_id: nth,
        client_id: Some("fuzz"),
    };
    macro_rules! sampled {
        ($request:ident, $response:ident) => {
            encode_request(&header, &$request::sample(chance, version), version)
        };
    }
    let frame = by_api!(api_key, sampled).ok().and_then(|frame| frame.into_bytes());
    // A field without a value that the version must have cannot be sent.
    frame.map_or_else(Vec::new, |bytes| bytes[4..].to_vec())
}

fn damage(frame: &mut Vec<u8>, chance: &mut Chance) {
    let at = usize::from(u16::from_be_bytes([chance.byte(), chance.byte()])) % (frame.len() + 1);
    let left = frame.len() - at;
    match chance.below(5) {
        0 => frame.truncate(at),
        1 if 0 < left => frame[at] ^= 1 << chance.below(8),
        2 => {
            let width = [1, 2, 4, 8][chance.below(4)].min(left);
            frame[at..at + width].copy_from_slice(&chance.i64().to_be_bytes()[..width]);
        }
        3 => drop(frame.drain(at..at + left.min(chance.below(32)))),
        _ => drop(frame.splice(at..at, chance.string().bytes())),
    }
}

/// Sends the bytes, and reads whatever comes back.
async fn talk(mut socket: TcpStream, sent: &[u8]) -> Shape {
    let mut asked = requests_in(sent);
    let mut shape = Shape::default();
    // The broker may have closed before the last frame.
    if socket.write_all(sent).await.is_err() {
        shape = shape.word("not taken");
    }
    while let Some(oldest) = asked.front() {
        let patience = if oldest.may_wait() { GLANCE } else { PATIENCE };
        match tokio::time::timeout(patience, read_frame(&mut socket)).await {
            Ok(Ok(answer)) => shape = answered(&mut asked, &answer, shape),
            Ok(Err(error)) => {
                let kinds =
                    [ErrorKind::UnexpectedEof, ErrorKind::ConnectionReset, ErrorKind::BrokenPipe];
                assert!(kinds.contains(&error.kind()), "{error}");
                return shape.word("closed");
            }
            Err(_) if oldest.may_wait() => return shape.word("waits"),
            Err(_) => panic!("no answer to {:?} within {PATIENCE:?}", oldest.key),
        }
    }
    shape
}

/// What a broker finds in the bytes, up to a frame that ends the connection or that never ends.
fn requests_in(mut sent: &[u8]) -> VecDeque<Asked> {
    let mut found = VecDeque::new();
    while let Some((length, rest)) = sent.split_first_chunk::<4>() {
        let length = usize::try_from(i32::from_be_bytes(*length)).unwrap_or(usize::MAX);
        let Some((frame, rest)) = rest.split_at_checked(length) else { break };
        let Some(asked) = Asked::of(frame) else { break };
        found.push_back(asked);
        sent = rest;
    }
    found
}

impl Asked {
    /// `None`: too short for the numbers that every request begins with.
    fn of(frame: &[u8]) -> Option<Asked> {
        let (key, rest) = frame.split_first_chunk::<2>()?;
        let (version, rest) = rest.split_first_chunk::<2>()?;
        let (correlation_id, _) = rest.split_first_chunk::<4>()?;
        Some(Asked {
            key: i16::from_be_bytes(*key),
            version: i16::from_be_bytes(*version),
            correlation_id: i32::from_be_bytes(*correlation_id),
        })
    }

    fn is(&self, api_key: ApiKey) -> bool {
        self.key == api_key.key()
    }

    /// Whether it may wait for something that somebody else does, or have no answer at all.
    fn may_wait(&self) -> bool {
        let waiting = [ApiKey::Fetch, ApiKey::JoinGroup, ApiKey::SyncGroup, ApiKey::Produce];
        waiting.into_iter().any(|api_key| self.is(api_key))
    }
}

/// Takes the question that this answers off those that are open, and reads the answer.
fn answered(asked: &mut VecDeque<Asked>, answer: &[u8], shape: Shape) -> Shape {
    let correlation_id = answer.first_chunk().map(|bytes| i32::from_be_bytes(*bytes));
    let question = loop {
        let oldest = asked.pop_front().expect("every answer has its question, in their order");
        if Some(oldest.correlation_id) == correlation_id {
            break oldest;
        }
        assert!(oldest.is(ApiKey::Produce), "API {} was passed over", oldest.key);
    };
    let api_key = ApiKey::try_from(question.key).expect("only a known API is answered");
    let version = match api_key {
        // Whoever asks in a version of the future is told so in the first one (KIP-511).
        ApiKey::ApiVersions if !api_key.versions().contains(&question.version) => 0,
        _ => question.version,
    };
    let (_, mut d) = decode_response_header(api_key, version, answer).expect("an answer's header");
    macro_rules! text {
        ($request:ident, $response:ident) => {
            match $response::decode(version, &mut d) {
                Ok(answer) => format!("{answer:?}"),
                Err(error) => panic!("an answer of {api_key:?} version {version}: {error}"),
            }
        };
    }
    let text = by_api!(api_key, text);
    assert_eq!(d.remaining(), 0, "bytes are left behind an answer of {api_key:?} {version}");
    let mut shape = shape.word(api_key.name());
    let head = text.get(..TEXT_BYTES_MAX).unwrap_or(&text);
    let mut errors: Vec<&str> = head
        .split("error_code: ")
        .skip(1)
        .filter_map(|rest| rest.split([',', ' ', '}']).next())
        .collect();
    errors.sort_unstable();
    errors.dedup();
    for error in errors {
        shape = shape.word(error);
    }
    shape
}

/// Every API in its first and its last version, and conversations in which one leads to another.
fn seeds() -> Vec<Vec<u8>> {
    let piece = |api_key: ApiKey, version: u8, choices: &[u8]| {
        let at = ApiKey::ALL.iter().position(|known| *known == api_key).unwrap_or(0);
        let mut piece = vec![0, u8::try_from(at).unwrap_or(0), version];
        piece.extend(choices);
        piece.resize(PIECE_BYTES, 0);
        piece
    };
    let mut seeds = Vec::new();
    for api_key in ApiKey::ALL {
        let served = api_key.versions();
        let last = u8::try_from(served.end() - served.start()).unwrap_or(0);
        seeds.push(piece(*api_key, 0, &[]));
        seeds.push(piece(*api_key, last, &[]));
    }
    let all = |api_keys: &[ApiKey]| {
        api_keys.iter().flat_map(|api_key| piece(*api_key, 3, &[])).collect::<Vec<u8>>()
    };
    seeds.push(all(&[ApiKey::InitProducerId, ApiKey::Produce, ApiKey::ListOffsets, ApiKey::Fetch]));
    seeds.push(all(&[ApiKey::FindCoordinator, ApiKey::OffsetCommit, ApiKey::OffsetFetch]));
    seeds.push(all(&[ApiKey::JoinGroup, ApiKey::SyncGroup, ApiKey::Heartbeat, ApiKey::LeaveGroup]));
    seeds.push(all(&[ApiKey::CreateTopics, ApiKey::CreatePartitions, ApiKey::DeleteTopics]));
    seeds.push(all(&[ApiKey::Produce, ApiKey::DeleteRecords, ApiKey::Fetch, ApiKey::Produce]));
    seeds
}
