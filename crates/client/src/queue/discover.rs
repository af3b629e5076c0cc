//! Where the HTTP listeners of a cluster are: each broker says so over the Kafka protocol, in its
//! property `listeners`.

use crate::admin::{Admin, Resource};
use crate::cluster::Cluster;
use crate::error::{Error, Result};

use super::http::HttpConfig;

impl HttpConfig {
    /// Asks the brokers of a cluster where their HTTP listeners are. Those that do not say are left out.
    ///
    /// # Errors
    /// When none of them says.
    pub async fn of(cluster: &Cluster) -> Result<HttpConfig> {
        let admin = Admin::new(cluster.clone());
        let image = cluster.image();
        let mut addresses = Vec::new();
        let mut failed = None;
        for (id, broker) in &image.brokers {
            match admin.configs(&Resource::Broker(*id), false).await {
                Ok(entries) => {
                    let listeners = entries.into_iter().find(|entry| entry.name == "listeners");
                    let listeners = listeners.and_then(|entry| entry.value).unwrap_or_default();
                    addresses.extend(http_listener(&listeners, &broker.host));
                }
                Err(error) => failed = Some(error),
            }
        }
        if addresses.is_empty() {
            let nobody = || Error::InvalidArgument("no broker says that it serves HTTP".to_owned());
            return Err(failed.unwrap_or_else(nobody));
        }
        HttpConfig::new(&addresses.join(","))
    }
}

/// The HTTP listener among these. One on all addresses is dialled where the Kafka listener is.
fn http_listener(listeners: &str, host: &str) -> Option<String> {
    let mut listeners = listeners.split(',');
    let http = listeners.find_map(|listener| listener.trim().strip_prefix("HTTP://"))?;
    let any = ["0.0.0.0:", "[::]:"].iter().find_map(|any| http.strip_prefix(any));
    Some(match any {
        Some(port) if host.contains(':') => format!("[{host}]:{port}"),
        Some(port) => format!("{host}:{port}"),
        None => http.to_owned(),
    })
}

#[cfg(test)]
mod tests {
    use super::http_listener;

    #[test]
    fn the_http_listener_is_found_among_others() {
        let found = |listeners: &str, host: &str| http_listener(listeners, host);
        let local = "PLAINTEXT://127.0.0.1:9092,HTTP://127.0.0.1:8080";
        assert_eq!(found(local, "db").as_deref(), Some("127.0.0.1:8080"));
        assert_eq!(found("HTTP://0.0.0.0:8080", "db").as_deref(), Some("db:8080"));
        assert_eq!(found("HTTP://[::]:8080", "::1").as_deref(), Some("[::1]:8080"));
        assert_eq!(found("PLAINTEXT://127.0.0.1:9092", "db"), None);
    }
}
