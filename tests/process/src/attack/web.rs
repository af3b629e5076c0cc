//! HTTP requests that no client would send: heads, queries, bodies, chunks, pipelines.

use std::io::{self, Read, Write};
use std::net::SocketAddr;
use std::time::Duration;

use anyhow::{Result, ensure};
use fastrand::Rng;
use rustix::net::sockopt::set_socket_linger;

use super::frames::dial;

/// How long an answer may take before the connection is left.
const PATIENCE: Duration = Duration::from_millis(50);
/// How long the answer to a request with one fault may take.
const ANSWER_PATIENCE: Duration = Duration::from_secs(30);
/// Most bytes of an answer that are read.
const ANSWER_BYTES_MAX: usize = 64 << 10;

/// Sends the list of oversized requests once, each of which must be answered or ended, and then
/// `count` mutants. Returns how many requests were sent.
pub fn attack(address: SocketAddr, seed: u64, count: u64) -> Result<u64> {
    let oversized = oversized();
    for (name, request) in &oversized {
        let answer = ask(address, request, ANSWER_PATIENCE)?;
        ensure!(!answer.starts_with(b"HTTP/1.1 5"), "{name}: {}", String::from_utf8_lossy(&answer));
        ensure!(!answer.starts_with(b"HTTP/1.1 2"), "{name} was taken");
    }
    let mut rng = Rng::with_seed(seed);
    let valid = valid();
    for _ in 0..count {
        ask(address, &mutant(&mut rng, &valid), PATIENCE)?;
    }
    Ok(oversized.len() as u64 + count)
}

/// Sends a request, and takes what comes back within `patience` of silence.
fn ask(address: SocketAddr, request: &[u8], patience: Duration) -> Result<Vec<u8>> {
    let mut stream = dial(address)?;
    stream.set_read_timeout(Some(patience))?;
    stream.set_write_timeout(Some(Duration::from_secs(5)))?;
    // Its end is a reset, which leaves no port behind for a minute.
    set_socket_linger(&stream, Some(Duration::ZERO))?;
    // The broker may have heard enough before all is written.
    let _ = stream.write_all(request);
    let mut answer = Vec::new();
    let mut piece = [0; 16 << 10];
    while answer.len() < ANSWER_BYTES_MAX {
        match stream.read(&mut piece) {
            Ok(0) => break,
            Ok(read) => answer.extend_from_slice(&piece[..read]),
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) if error.kind() == io::ErrorKind::WouldBlock && answer.is_empty() => {
                ensure!(patience < ANSWER_PATIENCE, "no answer within {patience:?}");
                break;
            }
            Err(_) => break,
        }
        if patience == ANSWER_PATIENCE {
            break;
        }
    }
    Ok(answer)
}

fn get(path: &str) -> Vec<u8> {
    format!("GET {path} HTTP/1.1\r\nhost: localhost\r\n\r\n").into_bytes()
}

fn post(path: &str, body: &str) -> Vec<u8> {
    let length = body.len();
    format!(
        "POST {path} HTTP/1.1\r\nhost: localhost\r\ncontent-type: application/json\r\n\
         content-length: {length}\r\n\r\n{body}"
    )
    .into_bytes()
}

fn valid() -> Vec<Vec<u8>> {
    let message = r#"{"key":"k","value":"v","headers":[{"name":"a","value":"b"}]}"#;
    let commit = r#"{"offsets":[{"topic":"hostile","partition":0,"offset":1}]}"#;
    let chunked = "POST /topics/hostile/messages HTTP/1.1\r\nhost: localhost\r\n\
        transfer-encoding: chunked\r\n\r\n5\r\n{\"val\r\n8\r\nue\":\"a\"}\r\n0\r\n\r\n";
    vec![
        get("/topics"),
        get("/topics/hostile"),
        get("/topics/hostile/partitions/0/messages?offset=0&max_bytes=1000"),
        get("/topics/hostile/offsets?timestamp=2026-01-01T00:00:00Z"),
        get("/groups/hostile/offsets"),
        get("/readyz?verbose"),
        post("/topics/hostile/messages", message),
        post("/topics/hostile/messages", &format!(r#"{{"messages":[{message},{message}]}}"#)),
        post("/groups/hostile/offsets", commit),
        chunked.as_bytes().to_vec(),
        [get("/livez"), get("/livez"), get("/topics")].concat(),
    ]
}

/// One fault each, which must lead to a refusal.
fn oversized() -> Vec<(&'static str, Vec<u8>)> {
    let head = |lines: String| {
        format!("GET /topics HTTP/1.1\r\nhost: localhost\r\n{lines}\r\n").into_bytes()
    };
    let many_headers = (0..2_000).map(|n| format!("x-{n}: 1\r\n")).collect();
    let deep = "[".repeat(200_000);
    let deep_objects = r#"{"value":"#.repeat(100_000);
    let many = format!(r#"{{"messages":[{}]}}"#, vec![r#"{"value":"v"}"#; 200_000].join(","));
    let record_headers = vec![r#"{"name":"n","value":"v"}"#; 100_000].join(",");
    let with_headers = format!(r#"{{"value":"v","headers":[{record_headers}]}}"#);
    let chunk_lie = "POST /topics/hostile/messages HTTP/1.1\r\nhost: localhost\r\n\
        transfer-encoding: chunked\r\n\r\nffffffffffffffff\r\nx";
    let length_lie = "POST /topics/hostile/messages HTTP/1.1\r\nhost: localhost\r\n\
        content-length: 99999999999999\r\n\r\nx";
    let two_lengths = "POST /topics/hostile/messages HTTP/1.1\r\nhost: localhost\r\n\
        content-length: 5\r\ncontent-length: 6\r\n\r\nhello";
    let both = "POST /topics/hostile/messages HTTP/1.1\r\nhost: localhost\r\n\
        content-length: 5\r\ntransfer-encoding: gzip\r\n\r\nhello";
    let zipped = "POST /topics/hostile/messages HTTP/1.1\r\nhost: localhost\r\n\
        content-encoding: gzip\r\ncontent-length: 5\r\n\r\nhello";
    vec![
        ("a header of 1 MB", head(format!("x: {}\r\n", "a".repeat(1 << 20)))),
        ("a header of 20 KB", head(format!("x: {}\r\n", "a".repeat(20_000)))),
        ("2,000 headers", head(many_headers)),
        ("a path of 100 KB", get(&format!("/topics/{}", "a".repeat(100_000)))),
        ("a query of 1 MB", get(&format!("/topics?after={}", "a".repeat(1 << 20)))),
        ("a query of 10,000 parameters", get(&format!("/topics?{}", "a=1&".repeat(10_000)))),
        ("200,000 open brackets", post("/topics/hostile/messages", &deep)),
        ("100,000 open objects", post("/topics/hostile/messages", &deep_objects)),
        ("200,000 messages", post("/topics/hostile/messages", &many)),
        ("100,000 record headers", post("/topics/hostile/messages", &with_headers)),
        ("a chunk of 2^64 bytes", chunk_lie.as_bytes().to_vec()),
        ("a body of 99 TB", length_lie.as_bytes().to_vec()),
        ("two lengths", two_lengths.as_bytes().to_vec()),
        ("a length and an encoding", both.as_bytes().to_vec()),
        ("a compressed body", zipped.as_bytes().to_vec()),
        ("a path that climbs", get("/topics/%2e%2e%2f%00/partitions/-1/messages?offset=9e99")),
        ("a version of the future", b"GET /livez HTTP/9.9\r\nhost: localhost\r\n\r\n".to_vec()),
        (
            "a number too large",
            get("/topics/hostile/partitions/0/messages?offset=99999999999999999999"),
        ),
    ]
}

fn mutant(rng: &mut Rng, valid: &[Vec<u8>]) -> Vec<u8> {
    const WORDS: [&[u8]; 12] = [
        b"\r\n\r\n",
        b"\r\n",
        b"\0",
        b"%00",
        b"%",
        b"9999999999999999999",
        b"-1",
        b"transfer-encoding: chunked\r\n",
        b"content-length: 1\r\n",
        b"\xff\xfe",
        b"{\"",
        b"[[[[[[[[[[[[[[[[",
    ];
    let mut request = valid[rng.usize(..valid.len())].clone();
    for _ in 0..rng.usize(1..5) {
        let at = rng.usize(..=request.len());
        match rng.u8(..5) {
            0 => request.truncate(at),
            1 if at < request.len() => request[at] ^= 1 << rng.u8(..8),
            2 => {
                let word = WORDS[rng.usize(..WORDS.len())];
                request.splice(at..at, word.iter().copied());
            }
            3 => {
                let end = (at + rng.usize(..16)).min(request.len());
                request.drain(at..end);
            }
            _ => {
                let copied: Vec<u8> = request[at..].iter().copied().take(rng.usize(..64)).collect();
                request.splice(at..at, copied);
            }
        }
    }
    request
}
