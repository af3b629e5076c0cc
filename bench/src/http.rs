//! HTTP/1.1 spoken raw: one request at a time on one connection, answers with a length.

use std::net::SocketAddr;

use anyhow::{Context, Result, bail, ensure};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

/// The longest head of an answer.
const HEAD_BYTES_MAX: usize = 16 << 10;

/// One connection that is kept.
pub(crate) struct HttpConnection {
    stream: TcpStream,
    host: String,
    buffer: Vec<u8>,
}

impl HttpConnection {
    pub(crate) async fn open(address: SocketAddr) -> Result<HttpConnection> {
        let stream = TcpStream::connect(address).await?;
        stream.set_nodelay(true)?;
        Ok(HttpConnection { stream, host: address.to_string(), buffer: Vec::new() })
    }

    /// Sends a request and does not wait for its answer.
    pub(crate) async fn send(&mut self, path: &str, headers: &str, body: &[u8]) -> Result<()> {
        let mut request = format!(
            "POST {path} HTTP/1.1\r\nhost: {}\r\ncontent-length: {}\r\n{headers}\r\n",
            self.host,
            body.len()
        )
        .into_bytes();
        request.extend_from_slice(body);
        Ok(self.stream.write_all(&request).await?)
    }

    /// The body of the next answer, which has to be a good one.
    pub(crate) async fn receive(&mut self) -> Result<Vec<u8>> {
        let (head, rest) = self.head().await?;
        let status = head.split(' ').nth(1).unwrap_or_default();
        let length = head.lines().find_map(|line| {
            let (name, value) = line.split_once(':')?;
            name.eq_ignore_ascii_case("content-length")
                .then(|| value.trim().parse::<usize>().ok())?
        });
        let length = length.with_context(|| format!("an answer without a length: {head}"))?;
        let mut body = rest;
        let had = body.len();
        ensure!(had <= length, "more was answered than was asked for");
        body.resize(length, 0);
        self.stream.read_exact(&mut body[had..]).await?;
        if !status.starts_with('2') {
            bail!("{head}{}", String::from_utf8_lossy(&body));
        }
        Ok(body)
    }

    /// Sends a request and waits for its answer.
    pub(crate) async fn post(&mut self, path: &str, headers: &str, body: &[u8]) -> Result<Vec<u8>> {
        self.send(path, headers, body).await?;
        self.receive().await
    }

    async fn head(&mut self) -> Result<(String, Vec<u8>)> {
        self.buffer.clear();
        loop {
            if let Some(at) = self.buffer.windows(4).position(|four| four == b"\r\n\r\n") {
                let head = String::from_utf8_lossy(&self.buffer[..at + 2]).into_owned();
                return Ok((head, self.buffer.split_off(at + 4)));
            }
            ensure!(self.buffer.len() < HEAD_BYTES_MAX, "the head of an answer does not end");
            let read = self.stream.read_buf(&mut self.buffer).await?;
            ensure!(0 < read, "the broker has closed the connection");
        }
    }
}
