//! Accepts HTTP connections, as many as the limit allows.

use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use tokio::net::{TcpListener, TcpStream};
use tokio::sync::watch;
use tokio::task::JoinSet;
use towpath_server::{
    ConnectionSlots, NoSlot, Node, Progress, TOO_FEW_FILES, leaves_files_for_data,
};

use crate::api_error::{ApiError, Code};
use crate::app::App;
use crate::connection;
use crate::health::Readiness;
use crate::limits::{CONNECTIONS_MAX, DRAIN_MAX};
use crate::queues::{carry_away, grow_queues, take_over_subscriptions};
use crate::routes::Front;
use crate::sqs::SqsSettings;
use crate::starting;
use crate::tasks::work_on_tasks;

/// After a failed accept (no file descriptors left, usually) the next try waits.
pub(crate) const ACCEPT_PAUSE: Duration = Duration::from_millis(100);

/// A bound HTTP listener.
#[derive(Debug)]
pub struct HttpListener {
    listener: TcpListener,
    has_local_names_only: bool,
    sqs: SqsSettings,
    /// Of its own, for SQS.
    sqs_listener: Option<TcpListener>,
}

impl HttpListener {
    /// Binds `address`; port 0 picks one.
    ///
    /// # Errors
    /// As the system says, such as an address in use.
    pub async fn bind(address: SocketAddr) -> io::Result<Self> {
        let listener = TcpListener::bind(address).await?;
        let sqs = SqsSettings::default();
        Ok(HttpListener { listener, has_local_names_only: false, sqs, sqs_listener: None })
    }

    /// Serves SQS like this, and at a listener of its own too, if there is one. Without this, every
    /// request of SQS is refused.
    #[must_use]
    pub fn with_sqs(self, settings: SqsSettings, listener: Option<TcpListener>) -> Self {
        HttpListener { sqs: settings, sqs_listener: listener, ..self }
    }

    /// At every port that is on loopback, answers only requests that name this machine as `localhost` or by an
    /// address; what others reach it by may have any name. A web page can
    /// make its own name point to this machine (DNS rebinding), and is then of the same origin for
    /// the browser; but it cannot make the browser say another name than its own.
    #[must_use]
    pub fn with_local_names_only(self) -> Self {
        HttpListener { has_local_names_only: true, ..self }
    }

    /// The address that was bound.
    ///
    /// # Errors
    /// As the system says.
    pub fn local_addr(&self) -> io::Result<SocketAddr> {
        self.listener.local_addr()
    }

    /// Answers `/livez` and `/readyz` until `over` becomes true, and comes back to serve: a broker that
    /// recovers for minutes lives, and says how far it is.
    pub async fn answer_while_starting(
        self,
        progress: Progress,
        over: watch::Receiver<bool>,
    ) -> HttpListener {
        starting::answer(&self.listener, progress, over).await;
        self
    }

    /// Serves connections until `stop` changes; then lets what is under way end, for a few seconds
    /// at most, and closes the rest.
    pub async fn serve(
        self,
        node: Arc<Node>,
        readiness: Readiness,
        mut stop: watch::Receiver<bool>,
    ) {
        if let Ok(address) = self.local_addr() {
            node.set_http_address(address);
        }
        let mut app = App::new(node, readiness, stop.clone());
        app.is_on_loopback = is_on_loopback(&self.listener);
        app.has_local_names_only = self.has_local_names_only && app.is_on_loopback;
        app.sqs = Arc::new(self.sqs);
        let mut sqs_app = app.clone();
        sqs_app.is_for_sqs = true;
        let sqs_listener = self.sqs_listener;
        sqs_app.is_on_loopback = sqs_listener.as_ref().is_some_and(is_on_loopback);
        sqs_app.has_local_names_only = self.has_local_names_only && sqs_app.is_on_loopback;
        let (front, sqs_front) = (Front::new(app.clone()), Front::new(sqs_app));
        // What a broker does by itself ends with it.
        let mut jobs = JoinSet::new();
        jobs.spawn(carry_away(app.clone()));
        jobs.spawn(work_on_tasks(app.clone()));
        jobs.spawn(take_over_subscriptions(app.clone()));
        jobs.spawn(grow_queues(app.clone()));
        let slots = ConnectionSlots::new(CONNECTIONS_MAX);
        let mut connections = JoinSet::new();
        loop {
            tokio::select! {
                _ = stop.changed() => break,
                accepted = self.listener.accept() => match accepted {
                    Ok((socket, peer)) => {
                        admit(&front, &slots, &mut connections, socket, peer);
                    }
                    Err(error) => not_accepted(&app, &error).await,
                },
                accepted = accept(sqs_listener.as_ref()) => match accepted {
                    Ok((socket, peer)) => {
                        admit(&sqs_front, &slots, &mut connections, socket, peer);
                    }
                    Err(error) => not_accepted(&app, &error).await,
                },
                Some(_) = connections.join_next(), if !connections.is_empty() => {}
            }
        }
        drop((self.listener, sqs_listener));
        jobs.abort_all();
        let drained = async { while connections.join_next().await.is_some() {} };
        if tokio::time::timeout(DRAIN_MAX, drained).await.is_err() {
            connections.shutdown().await;
        }
    }
}

/// The next connection; where there is no listener, never.
async fn accept(listener: Option<&TcpListener>) -> io::Result<(TcpStream, SocketAddr)> {
    match listener {
        Some(listener) => listener.accept().await,
        None => std::future::pending().await,
    }
}

async fn not_accepted(app: &App, error: &io::Error) {
    if let Some(suppressed) = app.node.may_complain() {
        tracing::warn!(%error, suppressed, "cannot accept an http connection");
    }
    tokio::time::sleep(ACCEPT_PAUSE).await;
}

fn is_on_loopback(listener: &TcpListener) -> bool {
    listener.local_addr().is_ok_and(|address| address.ip().is_loopback())
}

fn admit(
    front: &Front,
    slots: &ConnectionSlots,
    connections: &mut JoinSet<()>,
    socket: TcpStream,
    peer: SocketAddr,
) {
    let app = front.app();
    let refused = |message: String| {
        app.metrics.connections_refused.inc();
        if let Some(suppressed) = app.node.may_complain() {
            tracing::warn!(%peer, suppressed, "http connection refused: {message}");
        }
        // A courtesy: whether it arrives does not matter.
        let _ = socket.try_write(&overloaded(message));
    };
    if !leaves_files_for_data(&socket) {
        return refused(TOO_FEW_FILES.to_owned());
    }
    let per_address_max = app.node.broker_config().connections_per_ip_max;
    let slot = match slots.take(peer.ip(), per_address_max) {
        Ok(slot) => slot,
        Err(NoSlot::InAll) => {
            return refused(format!("{CONNECTIONS_MAX} connections are open, which is the limit"));
        }
        Err(NoSlot::OfAddress) => {
            return refused(format!(
                "{per_address_max} connections from {} are open, which is the limit \
                 (max.connections.per.ip)",
                peer.ip().to_canonical()
            ));
        }
    };
    let front = front.clone();
    connections.spawn(async move {
        front.app().metrics.connections.inc();
        connection::serve(&front, socket, peer).await;
        front.app().metrics.connections.dec();
        drop(slot);
    });
}

fn overloaded(message: String) -> Vec<u8> {
    let body = ApiError::new(Code::Overloaded, message).to_json();
    let length = body.len();
    format!(
        "HTTP/1.1 503 Service Unavailable\r\ncontent-type: application/json\r\nretry-after: 1\r\n\
         content-length: {length}\r\nconnection: close\r\n\r\n{body}"
    )
    .into_bytes()
}
