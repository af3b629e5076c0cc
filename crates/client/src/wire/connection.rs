//! One TCP connection to one broker, with many requests on the way at a time.
//!
//! ```text
//!   submit ──▶ outbox ──▶ writer task ══▶ socket ══▶ reader task ──▶ oldest waiter
//! ```
//!
//! Brokers answer in the order of the requests, so waiters form a queue. An answer that is late
//! makes everything behind it late: after the request timeout the connection is given up as a whole,
//! and each waiter hears why. Both tasks live as long as the last clone of the connection.

use std::collections::VecDeque;
use std::ops::RangeInclusive;
use std::sync::atomic::{AtomicI32, Ordering};
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::Duration;

use bytes::{Bytes, BytesMut};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::net::tcp::{OwnedReadHalf, OwnedWriteHalf};
use tokio::sync::{OwnedSemaphorePermit, Semaphore, mpsc, oneshot};
use tokio::task::AbortHandle;
use tokio::time::timeout;
use towpath_protocol::messages::{ApiVersionsRequest, ApiVersionsResponse, RequestHeader};
use towpath_protocol::{
    ApiKey, Decoder, ErrorCode, Message, Request, decode_response_header, encode_request,
};

use super::stranger::recognise;
use crate::config::ClientConfig;
use crate::error::{Error, Result};

/// A connection; clones share it.
#[derive(Clone)]
pub struct Connection {
    link: Arc<Link>,
    _tasks: Arc<Tasks>,
    apis: Arc<[Api]>,
}

/// What one broker says about one API.
struct Api {
    key: i16,
    versions: RangeInclusive<i16>,
}

/// What the two tasks and the callers share.
struct Link {
    address: String,
    client_id: String,
    request_timeout: Duration,
    slots: Arc<Semaphore>,
    outbox: mpsc::Sender<Outgoing>,
    next_correlation: AtomicI32,
    queue: Mutex<Queue>,
}

#[derive(Default)]
struct Queue {
    /// In the order in which answers must come.
    waiters: VecDeque<Waiter>,
    /// Why the connection ended, once it has.
    ended: Option<Error>,
}

struct Waiter {
    correlation_id: i32,
    api_key: ApiKey,
    version: i16,
    reply: oneshot::Sender<Result<Answer>>,
    _place: Place,
}

struct Outgoing {
    bytes: Bytes,
    /// Held until the bytes are written, where nothing else holds it: no answer will come.
    _place: Option<Place>,
}

/// A place among the unanswered requests of a connection.
#[derive(Debug)]
pub struct Place(
    #[expect(dead_code, reason = "given back when it is dropped")] OwnedSemaphorePermit,
);

struct Tasks(Vec<AbortHandle>);

impl Drop for Tasks {
    fn drop(&mut self) {
        self.0.iter().for_each(AbortHandle::abort);
    }
}

/// An answer that has arrived, not yet decoded: messages borrow from it.
#[derive(Debug)]
pub struct Answer {
    /// The version of the request, and so of the answer.
    pub version: i16,
    address: Arc<str>,
    body: Bytes,
}

impl Answer {
    /// Reads the whole answer as `M`.
    pub fn read<'r, M: Message<'r>>(&'r self) -> Result<M> {
        let mut decoder = Decoder::new(&self.body);
        let message = M::decode(self.version, &mut decoder);
        message.and_then(|message| decoder.finish().map(|()| message)).map_err(|cause| {
            Error::Malformed {
                address: self.address.to_string(),
                cause: format!("{}: {cause}", M::NAME),
            }
        })
    }
}

/// A request that was submitted; await it for the answer.
pub struct Pending {
    link: Arc<Link>,
    api: &'static str,
    patience: Duration,
    reply: oneshot::Receiver<Result<Answer>>,
}

impl Pending {
    /// Waits for the answer. When it does not come in time the connection is closed.
    pub async fn answer(self) -> Result<Answer> {
        match timeout(self.patience, self.reply).await {
            Ok(Ok(answer)) => answer,
            Ok(Err(_)) => Err(self.link.reason_it_ended()),
            Err(_) => {
                let error = Error::Disconnected {
                    address: self.link.address.clone(),
                    cause: format!("no answer to {} within {:?}", self.api, self.patience),
                };
                self.link.end(error.clone());
                Err(error)
            }
        }
    }
}

impl Connection {
    /// Opens a connection and asks which versions the broker speaks.
    pub async fn open(address: &str, config: &ClientConfig) -> Result<Connection> {
        let unreachable = |cause: String| Error::Unreachable { address: address.to_owned(), cause };
        let stream = timeout(config.connect_timeout, TcpStream::connect(address))
            .await
            .map_err(|_| unreachable(format!("no answer within {:?}", config.connect_timeout)))?
            .map_err(|error| unreachable(plain_words(&error)))?;
        Connection::over(stream, address, config).await
    }

    /// Takes over an open socket and asks which versions the broker speaks.
    pub async fn over(
        stream: TcpStream,
        address: &str,
        config: &ClientConfig,
    ) -> Result<Connection> {
        // Requests are written whole; waiting to fill packets would only delay them.
        stream.set_nodelay(true).map_err(|error| Error::Unreachable {
            address: address.to_owned(),
            cause: plain_words(&error),
        })?;
        let (read, write) = stream.into_split();
        let (outbox, outgoing) = mpsc::channel(config.in_flight_max);
        let link = Arc::new(Link {
            address: address.to_owned(),
            client_id: config.client_id.clone(),
            request_timeout: config.request_timeout,
            slots: Arc::new(Semaphore::new(config.in_flight_max)),
            outbox,
            next_correlation: AtomicI32::new(0),
            queue: Mutex::default(),
        });
        let writer = tokio::spawn(write_frames(write, outgoing, link.clone()));
        let reader = tokio::spawn(read_frames(read, config.response_bytes_max, link.clone()));
        let tasks = Tasks(vec![writer.abort_handle(), reader.abort_handle()]);
        let mut connection =
            Connection { link, _tasks: Arc::new(tasks), apis: Arc::from(Vec::new()) };
        connection.apis = connection.ask_versions(config.connect_timeout).await?.into();
        Ok(connection)
    }

    /// The address that was dialled.
    #[must_use]
    pub fn address(&self) -> &str {
        &self.link.address
    }

    /// Whether it can still carry requests.
    #[must_use]
    pub fn is_open(&self) -> bool {
        self.link.queue().ended.is_none()
    }

    /// The highest version of `M` that both sides speak.
    pub fn version_of<'a, M: Request<'a>>(&self) -> Result<i16> {
        self.version_up_to::<M>(*M::VERSIONS.end())
    }

    /// The highest version of `M` that both sides speak and that is not above `highest`.
    pub fn version_up_to<'a, M: Request<'a>>(&self, highest: i16) -> Result<i16> {
        let unsupported =
            || Error::UnsupportedApi { address: self.link.address.clone(), api: M::NAME };
        let theirs = self.apis.iter().find(|api| api.key == M::API_KEY).ok_or_else(unsupported)?;
        let version = highest.min(*M::VERSIONS.end()).min(*theirs.versions.end());
        let lowest = *theirs.versions.start().max(M::VERSIONS.start());
        if version < lowest { Err(unsupported()) } else { Ok(version) }
    }

    /// Sends `request` in the highest common version and waits for the answer.
    pub async fn call<'a, M: Request<'a>>(&self, request: &M) -> Result<Answer> {
        self.call_version(self.version_of::<M>()?, request).await
    }

    /// Sends `request` in `version` and waits for the answer.
    pub async fn call_version<'a, M: Request<'a>>(
        &self,
        version: i16,
        request: &M,
    ) -> Result<Answer> {
        self.submit(version, request, self.link.request_timeout).await?.answer().await
    }

    /// Puts `request` on its way, after waiting while too many are unanswered.
    pub async fn submit<'a, M: Request<'a>>(
        &self,
        version: i16,
        request: &M,
        patience: Duration,
    ) -> Result<Pending> {
        let slot = self.reserve().await?;
        self.submit_in(slot, version, request, patience)
    }

    /// Waits for a place among the unanswered requests.
    pub async fn reserve(&self) -> Result<Place> {
        let slots = self.link.slots.clone();
        slots.acquire_owned().await.map(Place).map_err(|_| self.link.reason_it_ended())
    }

    /// A place among the unanswered requests, if there is one now.
    #[must_use]
    pub fn try_reserve(&self) -> Option<Place> {
        self.link.slots.clone().try_acquire_owned().ok().map(Place)
    }

    /// Puts `request` on its way at once. Requests leave in the order of these calls.
    pub fn submit_in<'a, M: Request<'a>>(
        &self,
        place: Place,
        version: i16,
        request: &M,
        patience: Duration,
    ) -> Result<Pending> {
        let (reply, receiver) = oneshot::channel();
        let (correlation_id, bytes) = self.encode(version, request)?;
        let api_key = ApiKey::try_from(M::API_KEY).expect("every request's key is an API key");
        {
            let mut queue = self.link.queue();
            if let Some(ended) = &queue.ended {
                return Err(ended.clone());
            }
            // Both under the lock: the queue's order must be the order on the wire. The outbox has
            // room for every place.
            self.link
                .outbox
                .try_send(Outgoing { bytes, _place: None })
                .map_err(|_| self.disconnected("its writer ended"))?;
            let waiter = Waiter { correlation_id, api_key, version, reply, _place: place };
            queue.waiters.push_back(waiter);
        }
        Ok(Pending { link: self.link.clone(), api: M::NAME, patience, reply: receiver })
    }

    /// Puts a request on its way that the broker will not answer (Produce with acks=0).
    pub fn submit_unanswered<'a, M: Request<'a>>(
        &self,
        place: Place,
        version: i16,
        request: &M,
    ) -> Result<()> {
        let (_, bytes) = self.encode(version, request)?;
        self.link
            .outbox
            .try_send(Outgoing { bytes, _place: Some(place) })
            .map_err(|_| self.link.reason_it_ended())
    }

    fn encode<'a, M: Request<'a>>(&self, version: i16, request: &M) -> Result<(i32, Bytes)> {
        let correlation_id = self.link.next_correlation.fetch_add(1, Ordering::Relaxed);
        let header = RequestHeader {
            request_api_key: M::API_KEY,
            request_api_version: version,
            correlation_id,
            client_id: Some(&self.link.client_id),
        };
        let frame = encode_request(&header, request, version)
            .map_err(|error| Error::InvalidArgument(format!("{}: {error}", M::NAME)))?;
        let bytes = frame.into_bytes().expect("our requests carry no file regions");
        Ok((correlation_id, bytes))
    }

    fn disconnected(&self, cause: &str) -> Error {
        Error::Disconnected { address: self.link.address.clone(), cause: cause.to_owned() }
    }

    /// ApiVersions in our highest version; a broker that does not have it answers in version 0 and
    /// lists what it has (KIP-511), and then we ask again.
    async fn ask_versions(&self, patience: Duration) -> Result<Vec<Api>> {
        let ours = ApiVersionsRequest::VERSIONS;
        let mut version = *ours.end();
        loop {
            let request = ApiVersionsRequest {
                client_software_name: "towpath",
                client_software_version: env!("CARGO_PKG_VERSION"),
                ..ApiVersionsRequest::default()
            };
            let mut answer = self.submit(version, &request, patience).await?.answer().await?;
            let is_refused =
                answer.body.starts_with(&ErrorCode::UnsupportedVersion.code().to_be_bytes());
            if is_refused {
                answer.version = 0;
            }
            let response: ApiVersionsResponse<'_> = answer.read()?;
            let apis: Vec<Api> = response
                .api_keys
                .iter()
                .map(|api| Api { key: api.api_key, versions: api.min_version..=api.max_version })
                .collect();
            if !is_refused {
                let code = ErrorCode::from(response.error_code);
                let asking = || format!("asking {} for its versions", self.link.address);
                return if code.is_ok() {
                    Ok(apis)
                } else {
                    Err(Error::refused(asking(), code, None))
                };
            }
            let theirs = apis.iter().find(|api| api.key == ApiVersionsRequest::API_KEY);
            let highest = theirs.map_or(0, |api| *api.versions.end());
            if highest >= version {
                return Err(Error::UnsupportedApi {
                    address: self.link.address.clone(),
                    api: ApiVersionsRequest::NAME,
                });
            }
            version = highest.max(*ours.start());
        }
    }
}

impl Link {
    fn queue(&self) -> MutexGuard<'_, Queue> {
        self.queue.lock().expect("nothing panics while it holds this lock")
    }

    fn reason_it_ended(&self) -> Error {
        self.queue().ended.clone().unwrap_or_else(|| Error::Disconnected {
            address: self.address.clone(),
            cause: "it was closed".to_owned(),
        })
    }

    /// Ends the connection for everybody who waits; the first reason stays.
    fn end(&self, reason: Error) {
        let waiters = {
            let mut queue = self.queue();
            queue.ended.get_or_insert_with(|| reason.clone());
            std::mem::take(&mut queue.waiters)
        };
        self.slots.close();
        for waiter in waiters {
            // A caller that stopped waiting has no use for the reason.
            let _ = waiter.reply.send(Err(reason.clone()));
        }
    }
}

async fn write_frames(
    mut socket: OwnedWriteHalf,
    mut outgoing: mpsc::Receiver<Outgoing>,
    link: Arc<Link>,
) {
    while let Some(Outgoing { bytes, _place }) = outgoing.recv().await {
        if let Err(error) = socket.write_all(&bytes).await {
            link.end(Error::Disconnected {
                address: link.address.clone(),
                cause: plain_words(&error),
            });
            return;
        }
    }
}

async fn read_frames(mut socket: OwnedReadHalf, bytes_max: usize, link: Arc<Link>) {
    let address: Arc<str> = link.address.as_str().into();
    loop {
        let frame = match read_frame(&mut socket, bytes_max, &link.address).await {
            Ok(frame) => frame,
            Err(error) => return link.end(error),
        };
        let Some(waiter) = link.queue().waiters.pop_front() else {
            return link.end(malformed(&address, "an answer came that nobody asked for"));
        };
        let header = decode_response_header(waiter.api_key, waiter.version, &frame)
            .map(|(header, body)| (header.correlation_id, body.position()));
        match header {
            Ok((correlation_id, body_at)) if correlation_id == waiter.correlation_id => {
                let answer = Answer {
                    version: waiter.version,
                    address: address.clone(),
                    body: frame.slice(body_at..),
                };
                // A caller that stopped waiting has no use for the answer.
                let _ = waiter.reply.send(Ok(answer));
            }
            _ => {
                let error = malformed(&address, "its header does not belong to the oldest request");
                let _ = waiter.reply.send(Err(error.clone()));
                return link.end(error);
            }
        }
    }
}

async fn read_frame(socket: &mut OwnedReadHalf, bytes_max: usize, address: &str) -> Result<Bytes> {
    let lost = |error: std::io::Error| Error::Disconnected {
        address: address.to_owned(),
        cause: plain_words(&error),
    };
    let mut prefix = [0; 4];
    socket.read_exact(&mut prefix).await.map_err(lost)?;
    if let Some(looks_like) = recognise(&prefix) {
        return Err(Error::NotKafka { address: address.to_owned(), looks_like });
    }
    let length = usize::try_from(i32::from_be_bytes(prefix)).ok();
    let Some(length) = length.filter(|length| (4..=bytes_max).contains(length)) else {
        let length = i32::from_be_bytes(prefix);
        return Err(malformed(address, &format!("a frame of {length} bytes is beyond our limits")));
    };
    // Grows with what really arrives: a length alone must not cost memory.
    const STEP: usize = 1 << 20;
    let mut frame = BytesMut::with_capacity(length.min(STEP));
    while frame.len() < length {
        let wanted = (length - frame.len()).min(STEP);
        frame.reserve(wanted);
        let mut part = (&mut *socket).take(wanted as u64);
        if part.read_buf(&mut frame).await.map_err(lost)? == 0 {
            return Err(lost(std::io::ErrorKind::UnexpectedEof.into()));
        }
    }
    Ok(frame.freeze())
}

fn malformed(address: &str, cause: &str) -> Error {
    Error::Malformed { address: address.to_owned(), cause: cause.to_owned() }
}

/// What happened, without the operating system's numbers.
pub(crate) fn plain_words(error: &std::io::Error) -> String {
    use std::io::ErrorKind;
    match error.kind() {
        ErrorKind::ConnectionRefused => "nobody listens there (connection refused)".to_owned(),
        ErrorKind::ConnectionReset | ErrorKind::UnexpectedEof | ErrorKind::BrokenPipe => {
            "the other side closed it".to_owned()
        }
        ErrorKind::TimedOut => "no answer".to_owned(),
        _ => error.to_string(),
    }
}
