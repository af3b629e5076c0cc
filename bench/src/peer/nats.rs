//! NATS with JetStream: one server, and as much of its protocol as a work queue needs.

use std::net::SocketAddr;
use std::path::Path;
use std::process::Command;

use anyhow::{Context, Result, bail, ensure};
use tokio::io::{AsyncBufReadExt, AsyncReadExt, AsyncWriteExt, BufStream};
use tokio::net::TcpStream;

use super::path_text;
use crate::broker::tied;

pub(super) fn command(home: &Path, port: u16) -> Command {
    let mut command = tied(Path::new("nats-server"));
    command.args(["-a", "127.0.0.1", "-p", &port.to_string(), "-js"]);
    command.args(["-sd", &path_text(&home.join("data"))]);
    command
}

/// A client: answers come to one inbox.
pub(crate) struct NatsConnection {
    stream: BufStream<TcpStream>,
    inbox: String,
}

/// What came to the inbox.
pub(crate) struct NatsMessage {
    /// Where it is to be acknowledged.
    pub(crate) reply: Option<String>,
    pub(crate) body: Vec<u8>,
    /// A status instead of a message: nothing more comes for a request.
    pub(crate) is_status: bool,
}

impl NatsConnection {
    pub(crate) async fn open(address: SocketAddr, name: usize) -> Result<NatsConnection> {
        let stream = TcpStream::connect(address).await?;
        stream.set_nodelay(true)?;
        let mut stream = BufStream::with_capacity(64 << 10, 64 << 10, stream);
        let inbox = format!("_INBOX.{name}");
        let hello = format!(
            "CONNECT {{\"verbose\":false,\"headers\":true,\"no_responders\":true}}\r\nSUB {inbox} 1\r\n"
        );
        stream.write_all(hello.as_bytes()).await?;
        stream.flush().await?;
        Ok(NatsConnection { stream, inbox })
    }

    /// Writes a message into the buffer of what is to be sent.
    pub(crate) async fn publish(
        &mut self,
        subject: &str,
        body: &[u8],
        wants_reply: bool,
    ) -> Result<()> {
        let reply = if wants_reply { format!(" {}", self.inbox) } else { String::new() };
        let head = format!("PUB {subject}{reply} {}\r\n", body.len());
        self.stream.write_all(head.as_bytes()).await?;
        self.stream.write_all(body).await?;
        Ok(self.stream.write_all(b"\r\n").await?)
    }

    pub(crate) async fn flush(&mut self) -> Result<()> {
        Ok(self.stream.flush().await?)
    }

    /// Asks the server for something, which has to be done.
    pub(crate) async fn api(&mut self, subject: &str, body: &str) -> Result<()> {
        self.publish(subject, body.as_bytes(), true).await?;
        self.flush().await?;
        let answer = self.next().await?;
        let text = String::from_utf8_lossy(&answer.body).into_owned();
        ensure!(!answer.is_status && !text.contains("\"error\""), "{subject}: {text}");
        Ok(())
    }

    /// The next message.
    pub(crate) async fn next(&mut self) -> Result<NatsMessage> {
        loop {
            let mut line = String::new();
            ensure!(0 < self.stream.read_line(&mut line).await?, "NATS has closed the connection");
            let words: Vec<&str> = line.split_whitespace().collect();
            match words.first().copied() {
                Some("MSG") => return self.message(&words[1..], 0).await,
                Some("HMSG") => {
                    let headers = words[words.len() - 2].parse()?;
                    let mut words = words;
                    words.remove(words.len() - 2);
                    return self.message(&words[1..], headers).await;
                }
                Some("PING") => {
                    self.stream.write_all(b"PONG\r\n").await?;
                    self.flush().await?;
                }
                Some("-ERR") => bail!("NATS: {line}"),
                _ => {}
            }
        }
    }

    /// `words`: subject, subscription, perhaps where to reply, bytes.
    async fn message(&mut self, words: &[&str], headers: usize) -> Result<NatsMessage> {
        let bytes: usize = words.last().context("a message has a length")?.parse()?;
        let reply = (words.len() == 4).then(|| words[2].to_owned());
        let mut body = vec![0; bytes + 2];
        self.stream.read_exact(&mut body).await?;
        body.truncate(bytes);
        let is_status = 0 < headers && headers == bytes;
        Ok(NatsMessage { reply, body: body.split_off(headers), is_status })
    }
}
