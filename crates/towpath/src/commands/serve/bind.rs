//! Binds the listeners, or says which port is taken and what would work.

use std::io;
use std::net::{SocketAddr, TcpListener};

use towpath_http::HttpListener;
use towpath_server::KafkaListener;

use super::port_holder::holder_of;
use crate::config::{Settings, SqsAddress};
use crate::failure::{Failure, Outcome};

/// How many ports after a taken one are tried, to name a free one.
const PORTS_TRIED: u16 = 100;

/// All listeners. Whoever connects from now on waits until they are served.
pub(super) struct Listeners {
    pub(super) kafka: KafkaListener,
    pub(super) http: HttpListener,
    pub(super) kafka_address: SocketAddr,
    pub(super) http_address: SocketAddr,
    pub(super) sqs_address: Option<SocketAddr>,
    /// For other brokers, where some may come.
    pub(super) peer: Option<PeerListener>,
}

/// Where other brokers connect.
pub(super) struct PeerListener {
    pub(super) listener: tokio::net::TcpListener,
    pub(super) address: SocketAddr,
}

pub(super) async fn bind(command: &str, settings: &Settings) -> Outcome<Listeners> {
    let kafka = KafkaListener::bind(settings.kafka).await;
    let kafka = kafka.map_err(|error| not_bound(command, "--kafka", settings.kafka, &error))?;
    let http = HttpListener::bind(settings.http).await;
    let http = http.map_err(|error| not_bound(command, "--http", settings.http, &error))?;
    let sqs = bind_sqs(command, settings.sqs.listen).await?;
    let sqs_address = sqs.as_ref().map(tokio::net::TcpListener::local_addr).transpose()?;
    let http = http.with_sqs(settings.sqs.settings.clone(), sqs);
    let (kafka_address, http_address) = (kafka.local_addr()?, http.local_addr()?);
    let peer = match &settings.cluster {
        Some(cluster) => Some(bind_peer(command, cluster.peer).await?),
        None => None,
    };
    Ok(Listeners { kafka, http, kafka_address, http_address, sqs_address, peer })
}

/// Where the usual port is taken and nobody has named one, SQS is only served where HTTP is.
async fn bind_sqs(
    command: &str,
    listen: Option<SqsAddress>,
) -> Outcome<Option<tokio::net::TcpListener>> {
    let Some(SqsAddress { address, is_named }) = listen else { return Ok(None) };
    match tokio::net::TcpListener::bind(address).await {
        Ok(listener) => Ok(Some(listener)),
        Err(error) if is_named => Err(not_bound(command, "--sqs", address, &error)),
        Err(error) => {
            tracing::warn!(%address, %error, "SQS has no port of its own, and is served with HTTP");
            Ok(None)
        }
    }
}

async fn bind_peer(command: &str, address: SocketAddr) -> Outcome<PeerListener> {
    let bound = tokio::net::TcpListener::bind(address).await;
    let listener = bound.map_err(|error| not_bound(command, "--peer", address, &error))?;
    let address = listener.local_addr()?;
    Ok(PeerListener { listener, address })
}

fn not_bound(command: &str, flag: &str, address: SocketAddr, error: &io::Error) -> Failure {
    let port = address.port();
    match error.kind() {
        io::ErrorKind::AddrInUse => {
            let message = format!("port {port} is in use ({flag} {address})");
            let failure = Failure::new(message);
            match free_port_after(address) {
                Some(free) => failure
                    .with_help(match holder_of(port) {
                        Some(holder) => format!("{holder} listens there already"),
                        None => "something listens there already, maybe another Towpath or Kafka"
                            .to_owned(),
                    })
                    .with_try(format!("towpath {command} {flag} {free}")),
                None => failure.with_help(format!("name another one with {flag}")),
            }
        }
        io::ErrorKind::PermissionDenied => {
            Failure::new(format!("port {port} may not be used ({flag} {address}): {error}"))
                .with_help("ports below 1024 are for the system; take a higher one")
        }
        _ => Failure::new(format!("cannot listen on {address} ({flag}): {error}")),
    }
}

/// A port near the taken one that is free at this moment.
fn free_port_after(address: SocketAddr) -> Option<SocketAddr> {
    let candidates = (1..=PORTS_TRIED).filter_map(|step| address.port().checked_add(step));
    candidates
        .map(|port| SocketAddr::new(address.ip(), port))
        .find(|candidate| TcpListener::bind(candidate).is_ok())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_taken_port_is_named_with_a_command_that_works() {
        let taken = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = taken.local_addr().unwrap();
        let error = TcpListener::bind(address).unwrap_err();
        let failure = not_bound("dev", "--kafka", address, &error);
        assert!(failure.message.contains(&address.port().to_string()), "{failure:?}");
        let command = failure.command.unwrap();
        let free = command.strip_prefix("towpath dev --kafka ").unwrap();
        assert!(TcpListener::bind(free).is_ok(), "{command}");
    }
}
