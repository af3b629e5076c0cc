//! As much of AMQP 0-9-1 as a work queue needs: one channel, publisher confirms, one consumer.

use std::net::SocketAddr;

use anyhow::{Result, bail, ensure};
use tokio::io::{AsyncReadExt, AsyncWriteExt, BufStream};
use tokio::net::TcpStream;

const METHOD: u8 = 1;
const HEADER: u8 = 2;
const BODY: u8 = 3;
const HEARTBEAT: u8 = 8;
const FRAME_END: u8 = 0xce;

const CLOSE: (u16, u16) = (10, 50);
const CHANNEL_CLOSE: (u16, u16) = (20, 40);
const DELIVER: (u16, u16) = (60, 60);
const ACK: (u16, u16) = (60, 80);

/// One connection with one channel.
pub(crate) struct AmqpConnection {
    stream: BufStream<TcpStream>,
}

/// What the broker says by itself.
pub(crate) enum AmqpEvent {
    /// Everything up to this publish is safe.
    Confirmed {
        tag: u64,
        all_before: bool,
    },
    /// A message, whose content follows and is read with the next event.
    Delivered {
        tag: u64,
    },
    Other,
}

/// The arguments of a method, as they are written.
#[derive(Default)]
struct Arguments(Vec<u8>);

impl Arguments {
    fn u8(mut self, value: u8) -> Self {
        self.0.push(value);
        self
    }

    fn u16(mut self, value: u16) -> Self {
        self.0.extend(value.to_be_bytes());
        self
    }

    fn u32(mut self, value: u32) -> Self {
        self.0.extend(value.to_be_bytes());
        self
    }

    fn u64(mut self, value: u64) -> Self {
        self.0.extend(value.to_be_bytes());
        self
    }

    fn short(mut self, text: &str) -> Self {
        self.0.push(u8::try_from(text.len()).expect("names are short"));
        self.0.extend(text.as_bytes());
        self
    }

    fn long(self, bytes: &[u8]) -> Self {
        let mut own = self.u32(u32::try_from(bytes.len()).expect("arguments are small"));
        own.0.extend(bytes);
        own
    }
}

impl AmqpConnection {
    /// Connects as the guest that every new node knows.
    pub(crate) async fn open(address: SocketAddr) -> Result<AmqpConnection> {
        let stream = TcpStream::connect(address).await?;
        stream.set_nodelay(true)?;
        let stream = BufStream::with_capacity(128 << 10, 128 << 10, stream);
        let mut own = AmqpConnection { stream };
        own.stream.write_all(b"AMQP\x00\x00\x09\x01").await?;
        own.stream.flush().await?;
        own.answer((10, 10)).await?;
        let start =
            Arguments::default().u32(0).short("PLAIN").long(b"\0guest\0guest").short("en_US");
        own.call(0, (10, 11), start, (10, 30)).await?;
        let tune = Arguments::default().u16(1).u32(131_072).u16(0);
        own.method(0, (10, 31), tune).await?;
        own.call(0, (10, 40), Arguments::default().short("/").short("").u8(0), (10, 41)).await?;
        own.call(1, (20, 10), Arguments::default().short(""), (20, 11)).await?;
        Ok(own)
    }

    /// A quorum queue.
    pub(crate) async fn declare(&mut self, queue: &str) -> Result<()> {
        let table = [b"\x0cx-queue-typeS".as_slice(), &6_u32.to_be_bytes(), b"quorum"].concat();
        let declare = Arguments::default().u16(0).short(queue).u8(2).long(&table);
        self.call(1, (50, 10), declare, (50, 11)).await
    }

    /// Publishes are confirmed from now on; so many messages come and are not acknowledged.
    pub(crate) async fn work(&mut self, queue: &str, prefetch: u16) -> Result<()> {
        self.call(1, (85, 10), Arguments::default().u8(0), (85, 11)).await?;
        let limit = Arguments::default().u32(0).u16(prefetch).u8(0);
        self.call(1, (60, 10), limit, (60, 11)).await?;
        let consume = Arguments::default().u16(0).short(queue).short("").u8(0).u32(0);
        self.call(1, (60, 20), consume, (60, 21)).await
    }

    /// Writes a persistent message into the buffer of what is to be sent.
    pub(crate) async fn publish(&mut self, queue: &str, body: &[u8]) -> Result<()> {
        let to = Arguments::default().u16(0).short("").short(queue).u8(0);
        self.method_buffered(1, (60, 40), to).await?;
        let length = u64::try_from(body.len())?;
        let header = Arguments::default().u16(60).u16(0).u64(length).u16(0x1000).u8(2);
        self.frame(HEADER, 1, &header.0).await?;
        self.frame(BODY, 1, body).await
    }

    /// Acknowledges every message up to this one.
    pub(crate) async fn acknowledge(&mut self, tag: u64) -> Result<()> {
        self.method(1, ACK, Arguments::default().u64(tag).u8(1)).await
    }

    pub(crate) async fn flush(&mut self) -> Result<()> {
        Ok(self.stream.flush().await?)
    }

    /// What comes next.
    pub(crate) async fn next(&mut self) -> Result<AmqpEvent> {
        let (kind, payload) = self.read().await?;
        if kind != METHOD {
            return Ok(AmqpEvent::Other);
        }
        let rest = payload.get(4..).unwrap_or_default();
        let number = |at: usize| {
            let bytes = rest.get(at..at + 8).and_then(|bytes| bytes.try_into().ok());
            u64::from_be_bytes(bytes.unwrap_or_default())
        };
        match method_of(&payload) {
            ACK => Ok(AmqpEvent::Confirmed { tag: number(0), all_before: rest.get(8) == Some(&1) }),
            DELIVER => {
                let consumer = usize::from(rest.first().copied().unwrap_or_default());
                Ok(AmqpEvent::Delivered { tag: number(1 + consumer) })
            }
            CLOSE | CHANNEL_CLOSE => bail!("RabbitMQ: {}", String::from_utf8_lossy(rest)),
            _ => Ok(AmqpEvent::Other),
        }
    }

    async fn call(
        &mut self,
        channel: u16,
        method: (u16, u16),
        arguments: Arguments,
        answer: (u16, u16),
    ) -> Result<()> {
        self.method(channel, method, arguments).await?;
        self.answer(answer).await
    }

    async fn answer(&mut self, expected: (u16, u16)) -> Result<()> {
        loop {
            let (kind, payload) = self.read().await?;
            match method_of(&payload) {
                _ if kind != METHOD => {}
                found if found == expected => return Ok(()),
                CLOSE | CHANNEL_CLOSE => bail!("RabbitMQ: {}", String::from_utf8_lossy(&payload)),
                _ => {}
            }
        }
    }

    async fn method(&mut self, channel: u16, method: (u16, u16), rest: Arguments) -> Result<()> {
        self.method_buffered(channel, method, rest).await?;
        self.flush().await
    }

    async fn method_buffered(
        &mut self,
        channel: u16,
        (class, method): (u16, u16),
        rest: Arguments,
    ) -> Result<()> {
        let mut payload = Arguments::default().u16(class).u16(method).0;
        payload.extend(rest.0);
        self.frame(METHOD, channel, &payload).await
    }

    async fn frame(&mut self, kind: u8, channel: u16, payload: &[u8]) -> Result<()> {
        let length = u32::try_from(payload.len())?;
        let head = Arguments::default().u8(kind).u16(channel).u32(length);
        self.stream.write_all(&head.0).await?;
        self.stream.write_all(payload).await?;
        Ok(self.stream.write_all(&[FRAME_END]).await?)
    }

    async fn read(&mut self) -> Result<(u8, Vec<u8>)> {
        loop {
            let mut head = [0; 7];
            self.stream.read_exact(&mut head).await?;
            let length = u32::from_be_bytes([head[3], head[4], head[5], head[6]]);
            let mut payload = vec![0; usize::try_from(length)? + 1];
            self.stream.read_exact(&mut payload).await?;
            ensure!(payload.pop() == Some(FRAME_END), "a frame does not end where it should");
            if head[0] != HEARTBEAT {
                return Ok((head[0], payload));
            }
        }
    }
}

fn method_of(payload: &[u8]) -> (u16, u16) {
    let at = |at: usize| {
        let bytes = payload.get(at..at + 2).and_then(|bytes| bytes.try_into().ok());
        u16::from_be_bytes(bytes.unwrap_or_default())
    };
    (at(0), at(2))
}
