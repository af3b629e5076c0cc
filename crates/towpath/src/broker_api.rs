//! What a broker tells over its own HTTP API and the Kafka protocol has no words for: lag in seconds,
//! the time until records are lost, what was lost, how far compaction is, what is wrong with disks.
//!
//! Where that API is, the broker says over the Kafka protocol, in its property `listeners`; so a
//! command needs no second address. Against a Kafka, or where the port cannot be reached, these
//! numbers are missing, and the reason is kept.

use std::time::Duration;

use serde::Deserialize;
use serde::de::DeserializeOwned;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use towpath_client::{BrokerId, Resource};

use crate::failure::{Exit, Failure, Outcome};
use crate::session::Session;

/// Longest answer that is read.
const ANSWER_BYTES_MAX: u64 = 64 * 1024 * 1024;

/// How long a broker that answers by Kafka may take to answer by HTTP.
const PATIENCE_MAX: Duration = Duration::from_secs(5);

/// Most pages of a listing: a million groups.
const PAGES_MAX: usize = 1_000;

/// The HTTP API of one broker; or why there is none.
#[derive(Debug, Clone)]
pub(crate) struct BrokerApi {
    address: Result<String, String>,
    patience: Duration,
}

/// A group's lag in one partition. What follows the commit is missing where the broker does not
/// lead the partition.
#[derive(Debug, Clone, PartialEq, Deserialize)]
pub(crate) struct PartitionLag {
    pub(crate) topic: String,
    pub(crate) partition: i32,
    pub(crate) committed_offset: i64,
    pub(crate) log_start_offset: Option<i64>,
    pub(crate) high_watermark: Option<i64>,
    pub(crate) lag_seconds: Option<f64>,
    pub(crate) retention_ratio: Option<f64>,
    pub(crate) time_to_loss_seconds: Option<u64>,
}

/// Records that were deleted before a group had read them.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
pub(crate) struct Loss {
    pub(crate) topic: String,
    pub(crate) partition: i32,
    pub(crate) first_offset: i64,
    pub(crate) last_offset: i64,
    pub(crate) records: i64,
    pub(crate) at: i64,
    pub(crate) cause: String,
}

/// Lag and losses of a group.
#[derive(Debug, Clone, Default, Deserialize)]
pub(crate) struct GroupLag {
    pub(crate) partitions: Vec<PartitionLag>,
    pub(crate) losses: Vec<Loss>,
}

/// A group with its worst lag.
#[derive(Debug, Clone, PartialEq, Deserialize)]
pub(crate) struct ListedGroup {
    pub(crate) group: String,
    pub(crate) lag_seconds: Option<f64>,
    pub(crate) retention_ratio: Option<f64>,
    pub(crate) time_to_loss_seconds: Option<u64>,
    pub(crate) lost_records: i64,
}

/// How far a partition is compacted.
#[derive(Debug, Clone, PartialEq, Deserialize)]
pub(crate) struct Compaction {
    /// Records before it have been compacted.
    pub(crate) clean_offset: i64,
    pub(crate) dirty_ratio: f64,
    /// Since 1970, in milliseconds; `None`: never since the broker started.
    pub(crate) last_run_ms: Option<i64>,
    /// Why it has stopped, if it has.
    pub(crate) stopped: Option<String>,
}

#[derive(Deserialize)]
struct ShownTopic {
    partitions: Vec<ShownPartition>,
}

/// What a broker tells of a partition that it leads.
#[derive(Deserialize)]
pub(crate) struct ShownPartition {
    pub(crate) partition: i32,
    pub(crate) compaction: Option<Compaction>,
    /// Records appended with `acks=0` and with `acks=1` since the broker serves the partition.
    #[serde(default)]
    pub(crate) records_acks_none: i64,
    #[serde(default)]
    pub(crate) records_acks_leader: i64,
}

#[derive(Deserialize)]
struct Page {
    groups: Vec<ListedGroup>,
    next: Option<String>,
}

/// An answer that is an error.
#[derive(Deserialize)]
struct Refused {
    error: Refusal,
}

#[derive(Deserialize)]
struct Refusal {
    code: String,
    message: String,
    help: Option<String>,
}

impl Refusal {
    fn into_failure(self) -> Failure {
        Failure { code: self.code, help: self.help, ..Failure::new(self.message) }
    }
}

impl BrokerApi {
    /// Asks a broker where its HTTP API is.
    pub(crate) async fn of(session: &Session, broker: BrokerId) -> BrokerApi {
        let patience = session.global.timeout.min(PATIENCE_MAX);
        BrokerApi { address: find(session, broker).await, patience }
    }

    /// That of the only broker there is, or of the first that says where its own is.
    pub(crate) async fn of_any(session: &Session) -> BrokerApi {
        let brokers: Vec<BrokerId> = session.cluster.image().brokers.keys().copied().collect();
        let mut found =
            BrokerApi { address: Err("no broker is known".to_owned()), patience: PATIENCE_MAX };
        for broker in brokers {
            found = BrokerApi::of(session, broker).await;
            if found.address.is_ok() {
                break;
            }
        }
        found
    }

    /// The same for an operation that may take as long as the caller has patience.
    #[must_use]
    pub(crate) fn with_patience(self, patience: Duration) -> BrokerApi {
        BrokerApi { patience, ..self }
    }

    /// Asks for something, and has an error in the API's own words.
    pub(crate) async fn call<T: DeserializeOwned>(&self, method: &str, path: &str) -> Outcome<T> {
        self.call_with(method, path, "").await
    }

    /// The same with a body.
    pub(crate) async fn call_with<T: DeserializeOwned>(
        &self,
        method: &str,
        path: &str,
        body: &str,
    ) -> Outcome<T> {
        let unreachable = |why| Failure {
            exit: Exit::Unreachable,
            code: "UNREACHABLE".to_owned(),
            ..Failure::new(why)
        };
        let (status, body) = self.exchange(method, path, body).await.map_err(unreachable)?;
        if let Ok(Refused { error }) = serde_json::from_slice(&body) {
            return Err(error.into_failure());
        }
        // Done, and nothing to say about it.
        let body = if body.is_empty() { b"null" } else { &body[..] };
        serde_json::from_slice(body).map_err(|error| {
            let message = format!("{method} {path} was answered with status {status}: {error}");
            Failure::new(message).with_help("is the server of another version?")
        })
    }

    /// The lag of a group, and what it has lost; `None`: the group is not there.
    pub(crate) async fn group_lag(&self, group: &str) -> Result<Option<GroupLag>, String> {
        self.get(&format!("/groups/{}/lag", encoded(group))).await
    }

    /// Every group.
    pub(crate) async fn groups(&self) -> Result<Vec<ListedGroup>, String> {
        let (mut all, mut path) = (Vec::new(), "/groups".to_owned());
        for _ in 0..PAGES_MAX {
            let page: Option<Page> = self.get(&path).await?;
            let Some(page) = page else { break };
            all.extend(page.groups);
            let Some(next) = page.next else { break };
            path = format!("/groups?after={}", encoded(&next));
        }
        Ok(all)
    }

    /// The partitions of a topic, as far as their leaders answer.
    pub(crate) async fn partitions(&self, topic: &str) -> Result<Vec<ShownPartition>, String> {
        let shown: Option<ShownTopic> = self.get(&format!("/topics/{}", encoded(topic))).await?;
        Ok(shown.map_or_else(Vec::new, |shown| shown.partitions))
    }

    /// What is wrong with the broker's data directories, in its own words.
    pub(crate) async fn directory_problems(&self) -> Result<Vec<String>, String> {
        let (_, body) = self.exchange("GET", "/readyz", "").await?;
        Ok(problems_in(&String::from_utf8_lossy(&body)))
    }

    async fn get<T: DeserializeOwned>(&self, path: &str) -> Result<Option<T>, String> {
        let (status, body) = self.exchange("GET", path, "").await?;
        let address = self.address.as_deref().map_err(Clone::clone)?;
        match status {
            200 => serde_json::from_slice(&body).map(Some).map_err(|error| {
                format!("http://{address}{path} answers something else than expected: {error}")
            }),
            404 => Ok(None),
            status => Err(format!("http://{address}{path} answers with status {status}")),
        }
    }

    /// Status and body.
    async fn exchange(
        &self,
        method: &str,
        path: &str,
        body: &str,
    ) -> Result<(u16, Vec<u8>), String> {
        let address = self.address.as_deref().map_err(Clone::clone)?;
        let asked =
            tokio::time::timeout(self.patience, exchange(address, method, path, body)).await;
        let bytes = asked
            .map_err(|_| format!("http://{address} does not answer within {:?}", self.patience))?
            .map_err(|error| format!("http://{address} cannot be reached: {error}"))?;
        let (status, body) = parse(&bytes)
            .ok_or_else(|| format!("http://{address} does not answer as HTTP wants it"))?;
        Ok((status, body.to_vec()))
    }
}

/// The broker's own checks; what else is amiss is about directories.
const CHECKS: [&str; 5] = [
    "started",
    "not stopping",
    "data directory",
    "known to the cluster",
    "not removed from the cluster",
];

/// Of an answer to `/readyz`, a line each.
fn problems_in(answer: &str) -> Vec<String> {
    let amiss = answer.lines().filter_map(|line| line.strip_prefix("[-] "));
    amiss.filter(|line| !CHECKS.contains(line)).map(str::to_owned).collect()
}

async fn find(session: &Session, broker: BrokerId) -> Result<String, String> {
    let entries = session.admin.configs(&Resource::Broker(broker), false).await;
    let entries = entries.map_err(|error| error.to_string())?;
    let listeners = entries.into_iter().find(|entry| entry.name == "listeners");
    let listeners = listeners.and_then(|entry| entry.value).unwrap_or_default();
    let http = listeners.split(',').find_map(|listener| listener.trim().strip_prefix("HTTP://"));
    let Some(http) = http else {
        return Err(format!("broker {broker} does not say that it serves HTTP"));
    };
    let image = session.cluster.image();
    let host = image.brokers.get(&broker).map(|known| known.host.clone()).unwrap_or_default();
    Ok(dialled(http, &host))
}

/// A listener on all addresses is dialled where the Kafka listener was.
fn dialled(listener: &str, host: &str) -> String {
    let any = ["0.0.0.0:", "[::]:"].iter().find_map(|any| listener.strip_prefix(any));
    match any {
        Some(port) if host.contains(':') => format!("[{host}]:{port}"),
        Some(port) => format!("{host}:{port}"),
        None => listener.to_owned(),
    }
}

async fn exchange(address: &str, method: &str, path: &str, body: &str) -> std::io::Result<Vec<u8>> {
    let mut socket = TcpStream::connect(address).await?;
    let length = body.len();
    let request = format!(
        "{method} {path} HTTP/1.1\r\nhost: {address}\r\ncontent-length: {length}\r\n\
         connection: close\r\n\r\n{body}"
    );
    socket.write_all(request.as_bytes()).await?;
    let mut answer = Vec::new();
    socket.take(ANSWER_BYTES_MAX).read_to_end(&mut answer).await?;
    Ok(answer)
}

/// Status and body. Our own server sends bodies in one piece.
fn parse(answer: &[u8]) -> Option<(u16, &[u8])> {
    let end = answer.windows(4).position(|window| window == b"\r\n\r\n")?;
    let head = std::str::from_utf8(&answer[..end]).ok()?;
    let status = head.strip_prefix("HTTP/1.")?.split(' ').nth(1)?;
    Some((status.parse().ok()?, &answer[end + 4..]))
}

/// A name as a piece of a path or query.
pub(crate) fn encoded(name: &str) -> String {
    let mut out = String::new();
    for byte in name.bytes() {
        if byte.is_ascii_alphanumeric() || b"-._~".contains(&byte) {
            out.push(char::from(byte));
        } else {
            out.push_str(&format!("%{byte:02X}"));
        }
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_safe_in_paths() {
        assert_eq!(encoded("a-b.c_d~1"), "a-b.c_d~1");
        assert_eq!(encoded("a/b c?ü"), "a%2Fb%20c%3F%C3%BC");
    }

    #[test]
    fn answers_are_cut_into_status_and_body() {
        let answer = b"HTTP/1.1 404 Not Found\r\ncontent-length: 2\r\n\r\n{}";
        assert_eq!(parse(answer), Some((404, &b"{}"[..])));
        assert_eq!(parse(b"SSH-2.0"), None);
        assert_eq!(parse(b"HTTP/1.1 x\r\n\r\n"), None);
    }

    #[test]
    fn problems_of_directories_are_told_from_the_checks() {
        let answer = "[+] started\n[-] data directory\n[-] /a has failed: EIO\n\
            [-] /b is full: 3 MiB free, producing is refused\nnot ready\n";
        let found = problems_in(answer);
        assert_eq!(found.len(), 2, "{found:?}");
        assert!(found[0].starts_with("/a has failed") && found[1].starts_with("/b is full"));
        assert!(problems_in("ok\n").is_empty());
    }

    #[test]
    fn a_listener_on_all_addresses_is_dialled_by_the_brokers_host() {
        assert_eq!(dialled("127.0.0.1:8080", "db"), "127.0.0.1:8080");
        assert_eq!(dialled("0.0.0.0:8080", "db"), "db:8080");
        assert_eq!(dialled("[::]:8080", "::1"), "[::1]:8080");
    }
}
