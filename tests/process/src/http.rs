//! A very small HTTP client: one connection per request, one answer, no conveniences.

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::time::Duration;

use anyhow::{Context, Result, bail};
use serde_json::Value;

/// How long anything may take.
const PATIENCE: Duration = Duration::from_secs(15);

/// What came back.
#[derive(Debug, Clone)]
pub struct Answer {
    /// The status.
    pub status: u16,
    /// The head, as it came.
    pub head: String,
    /// The body.
    pub body: Vec<u8>,
}

impl Answer {
    /// The body as JSON.
    pub fn json(&self) -> Result<Value> {
        serde_json::from_slice(&self.body)
            .with_context(|| format!("no JSON: {}", String::from_utf8_lossy(&self.body)))
    }

    /// The body as JSON, if the request succeeded.
    pub fn success(&self) -> Result<Value> {
        if !(200..300).contains(&self.status) {
            bail!("HTTP status {}: {}", self.status, String::from_utf8_lossy(&self.body));
        }
        self.json()
    }
}

/// GET.
pub fn get(address: SocketAddr, path: &str) -> Result<Answer> {
    request(address, "GET", path, None)
}

/// POST with a JSON body.
pub fn post(address: SocketAddr, path: &str, body: &Value) -> Result<Answer> {
    request(address, "POST", path, Some(body))
}

/// POST to `/` with headers, each with the end of its line; `host` is the address.
pub fn post_with(address: SocketAddr, headers: &str, body: &str) -> Result<Answer> {
    exchange(address, "POST", "/", headers, body)
}

fn request(address: SocketAddr, method: &str, path: &str, body: Option<&Value>) -> Result<Answer> {
    let body = body.map(Value::to_string).unwrap_or_default();
    exchange(address, method, path, "content-type: application/json\r\n", &body)
}

fn exchange(
    address: SocketAddr,
    method: &str,
    path: &str,
    headers: &str,
    body: &str,
) -> Result<Answer> {
    let mut stream = TcpStream::connect_timeout(&address, PATIENCE)?;
    stream.set_read_timeout(Some(PATIENCE))?;
    stream.set_write_timeout(Some(PATIENCE))?;
    let length = body.len();
    // In one piece, so that even a stranger that answers and hangs up has read all of it.
    let request = format!(
        "{method} {path} HTTP/1.1\r\nhost: {address}\r\nconnection: close\r\n\
         {headers}content-length: {length}\r\n\r\n{body}"
    );
    stream.write_all(request.as_bytes())?;
    let mut bytes = Vec::new();
    stream.read_to_end(&mut bytes)?;
    parse(&bytes)
}

fn parse(bytes: &[u8]) -> Result<Answer> {
    let end = bytes
        .windows(4)
        .position(|window| window == b"\r\n\r\n")
        .context("the answer has no end of its head")?;
    let head = String::from_utf8_lossy(&bytes[..end]).into_owned();
    let status = head
        .strip_prefix("HTTP/1.1 ")
        .and_then(|rest| rest.get(..3))
        .and_then(|code| code.parse().ok())
        .with_context(|| format!("no status line: {head}"))?;
    let body = &bytes[end + 4..];
    let body = if has_chunks(&head) { unchunk(body)? } else { body.to_vec() };
    if let Some(length) = header(&head, "content-length").and_then(|l| l.parse::<usize>().ok())
        && body.len() != length
    {
        bail!("the answer was cut off: {} of {length} bytes", body.len());
    }
    Ok(Answer { status, head, body })
}

fn header<'h>(head: &'h str, name: &str) -> Option<&'h str> {
    head.lines().find_map(|line| {
        let (found, value) = line.split_once(':')?;
        found.eq_ignore_ascii_case(name).then(|| value.trim())
    })
}

fn has_chunks(head: &str) -> bool {
    header(head, "transfer-encoding").is_some_and(|value| value.eq_ignore_ascii_case("chunked"))
}

fn unchunk(mut rest: &[u8]) -> Result<Vec<u8>> {
    let mut body = Vec::new();
    loop {
        let line = rest.windows(2).position(|w| w == b"\r\n").context("a chunk without length")?;
        let length = std::str::from_utf8(&rest[..line])?;
        let length = usize::from_str_radix(length.split(';').next().unwrap_or(length), 16)?;
        rest = &rest[line + 2..];
        if length == 0 {
            return Ok(body);
        }
        body.extend_from_slice(rest.get(..length).context("a chunk was cut off")?);
        rest = rest.get(length + 2..).context("a chunk was cut off")?;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn both_ways_to_tell_a_length_are_read() {
        let plain = b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\n{}";
        assert_eq!(parse(plain).unwrap().body, b"{}");
        let chunks =
            b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n1\r\n{\r\n1\r\n}\r\n0\r\n\r\n";
        assert_eq!(parse(chunks).unwrap().body, b"{}");
    }

    #[test]
    fn an_answer_that_was_cut_off_is_no_answer() {
        assert!(parse(b"HTTP/1.1 200 OK\r\nContent-Length: 3\r\n\r\n{}").is_err());
        assert!(parse(b"HTTP/1.1 200 OK\r\nConte").is_err());
    }
}
