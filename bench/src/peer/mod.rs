//! Other work queues, as processes on the broker's CPU, with what they need to be measured and no more.

mod amqp;
mod elasticmq;
mod nats;
mod rabbitmq;

use std::fs::File;
use std::net::{Ipv4Addr, SocketAddr, TcpStream};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use tempfile::TempDir;
use towpath_process::Cost;

use crate::broker::{Lab, free_port};
use crate::machine;

pub(crate) use amqp::{AmqpConnection, AmqpEvent};
pub(crate) use nats::NatsConnection;

/// How long a start may take.
const START_MAX: Duration = Duration::from_secs(120);
/// Between two looks at a process that starts.
const LOOK_EVERY: Duration = Duration::from_millis(50);

/// Whose.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum PeerKind {
    /// From Maven, in memory: it has nothing else.
    ElasticMq,
    /// Quorum queues, Debian's version.
    RabbitMq,
    /// JetStream in files, Debian's version. It syncs every two minutes.
    Nats,
}

impl PeerKind {
    pub(crate) fn name(self) -> &'static str {
        match self {
            PeerKind::ElasticMq => "ElasticMQ",
            PeerKind::RabbitMq => "RabbitMQ",
            PeerKind::Nats => "NATS",
        }
    }

    /// Samples that are not counted: virtual machines compile what they are asked to do.
    pub(crate) fn warm_ups(self) -> usize {
        match self {
            PeerKind::ElasticMq => 4,
            PeerKind::RabbitMq | PeerKind::Nats => 1,
        }
    }
}

/// One process; it and its directory are gone when this is dropped.
pub(crate) struct Peer {
    kind: PeerKind,
    pub(crate) port: u16,
    child: Child,
    /// The process that does the work: the child, or one that it has started.
    pid: u32,
    home: TempDir,
}

impl Peer {
    /// Starts one on an empty directory and waits until it takes connections.
    pub(crate) fn start(lab: &Lab, kind: PeerKind) -> Result<Peer> {
        let home = TempDir::with_prefix_in(format!("{}-", kind.name()), lab.data())?;
        let port = free_port()?;
        let mut command = match kind {
            PeerKind::ElasticMq => elasticmq::command(lab, home.path(), port)?,
            PeerKind::RabbitMq => rabbitmq::command(home.path(), port)?,
            PeerKind::Nats => nats::command(home.path(), port),
        };
        let log = File::create(home.path().join("peer.log"))?;
        command.stdin(Stdio::null()).stdout(log.try_clone()?).stderr(log);
        machine::pin(machine::BROKER_CPU)?;
        let child = command.spawn();
        machine::pin(machine::CLIENT_CPU)?;
        let child = child.with_context(|| format!("{} is not there", kind.name()))?;
        let mut peer = Peer { kind, port, pid: child.id(), child, home };
        peer.wait()?;
        Ok(peer)
    }

    pub(crate) fn address(&self) -> SocketAddr {
        SocketAddr::from((Ipv4Addr::LOCALHOST, self.port))
    }

    pub(crate) fn cost(&self) -> Result<Cost> {
        Cost::of(self.pid)
    }

    fn wait(&mut self) -> Result<()> {
        let deadline = Instant::now() + START_MAX;
        while !self.is_ready() {
            let ended = self.child.try_wait()?;
            let words = std::fs::read_to_string(self.home.path().join("peer.log"));
            ensure!(ended.is_none(), "{} ended: {}", self.kind.name(), words.unwrap_or_default());
            ensure!(Instant::now() < deadline, "{} does not answer", self.kind.name());
            std::thread::sleep(LOOK_EVERY);
        }
        if let PeerKind::RabbitMq = self.kind {
            self.pid = rabbitmq::machine_of(self.child.id())?;
        }
        Ok(())
    }

    fn is_ready(&self) -> bool {
        TcpStream::connect(self.address()).is_ok()
    }
}

impl Drop for Peer {
    fn drop(&mut self) {
        if self.pid != self.child.id() {
            // The child is a script, whose own child would live on.
            let _ = Command::new("kill").args(["-9", &self.pid.to_string()]).status();
        }
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

fn path_text(path: &Path) -> String {
    path.display().to_string()
}
