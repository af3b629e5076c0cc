//! What the server prints when it is ready.

use std::net::SocketAddr;
use std::path::PathBuf;
use std::time::Duration;

/// What there is to say.
pub(super) struct Banner<'a> {
    pub(super) kafka: SocketAddr,
    pub(super) http: SocketAddr,
    /// None: only where HTTP is.
    pub(super) sqs: Option<SocketAddr>,
    pub(super) peer: Option<SocketAddr>,
    /// None: a directory that is removed at the end.
    pub(super) data: &'a [PathBuf],
    pub(super) ready_after: Duration,
    /// Print what to type next.
    pub(super) has_hint: bool,
}

/// Where the tools look for a server by themselves.
const DEFAULT_KAFKA: &str = "127.0.0.1:9092";

impl Banner<'_> {
    /// For programs: one line.
    pub(super) fn json(&self) -> String {
        let more = |name, address: Option<SocketAddr>| {
            address.map(|address| format!(",\"{name}\":\"{address}\"")).unwrap_or_default()
        };
        let (sqs, peer) = (more("sqs", self.sqs), more("peer", self.peer));
        format!("{{\"kafka\":\"{}\",\"http\":\"{}\"{sqs}{peer}}}", self.kafka, self.http)
    }

    /// For people.
    pub(super) fn text(&self) -> String {
        let version = env!("CARGO_PKG_VERSION");
        let ready = format!("Towpath {version} is ready in {} ms", self.ready_after.as_millis());
        let data = match self.data {
            [] => "data: temporary, removed at the end".to_owned(),
            data => {
                let names: Vec<String> = data.iter().map(|d| d.display().to_string()).collect();
                format!("data: {} (on disk before it is acknowledged)", names.join(", "))
            }
        };
        let (kafka, http) = (dialled(self.kafka), dialled(self.http));
        let http = format!("http://{http}");
        let mut text = format!(
            "{ready}   {data}\n  Kafka   {kafka:<24} any Kafka client, no options\n  \
             HTTP    {http:<24} JSON: publish, read; /metrics\n"
        );
        if let Some(sqs) = self.sqs {
            let sqs = format!("http://{}", dialled(sqs));
            text.push_str(&format!("  SQS     {sqs:<24} any AWS SDK: --endpoint-url {sqs}\n"));
        }
        if let Some(peer) = self.peer {
            let peer = dialled(peer);
            text.push_str(&format!("  Peers   {peer:<24} other brokers: --join {peer}\n"));
        }
        if self.has_hint {
            let is_default = kafka == DEFAULT_KAFKA;
            let server = if is_default { String::new() } else { format!("-s {kafka} ") };
            text.push_str(&format!(
                "Try:  towpath {server}send hello \"it works\"   ·   towpath {server}read hello\n"
            ));
        }
        text
    }
}

/// The address under which somebody on this machine reaches a listener.
fn dialled(address: SocketAddr) -> String {
    if !address.ip().is_unspecified() {
        return address.to_string();
    }
    format!("127.0.0.1:{} (and every other address of this machine)", address.port())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn banner(kafka: &str) -> Banner<'static> {
        Banner {
            kafka: kafka.parse().unwrap(),
            http: "127.0.0.1:8080".parse().unwrap(),
            sqs: None,
            peer: None,
            data: &[],
            ready_after: Duration::from_millis(14),
            has_hint: true,
        }
    }

    #[test]
    fn programs_get_one_line() {
        let json = banner("127.0.0.1:9092").json();
        assert_eq!(json, r#"{"kafka":"127.0.0.1:9092","http":"127.0.0.1:8080"}"#);
        let peer = Some("127.0.0.1:9094".parse().unwrap());
        let json = Banner { peer, ..banner("127.0.0.1:9092") }.json();
        assert!(json.ends_with(r#","peer":"127.0.0.1:9094"}"#), "{json}");
        let sqs = Some("127.0.0.1:9324".parse().unwrap());
        let banner = Banner { sqs, peer, ..banner("127.0.0.1:9092") };
        let json = banner.json();
        assert!(json.ends_with(r#","sqs":"127.0.0.1:9324","peer":"127.0.0.1:9094"}"#), "{json}");
        assert!(banner.text().contains("--endpoint-url http://127.0.0.1:9324\n"));
    }

    #[test]
    fn the_hint_names_the_server_only_where_it_must() {
        assert!(banner("127.0.0.1:9092").text().contains("Try:  towpath send hello"));
        let other = banner("127.0.0.1:9093").text();
        assert!(other.contains("towpath -s 127.0.0.1:9093 send hello"), "{other}");
    }
}
