//! Names from the server for shell completion, within a moment or not at all.

use std::ffi::OsStr;
use std::future::Future;
use std::time::Duration;

use clap_complete::engine::CompletionCandidate;
use towpath_client::{
    Admin, ClientConfig, Cluster, HttpCluster, HttpConfig, Result, split_address,
};

/// People wait for a key press; beyond this they would rather have no names.
const PATIENCE: Duration = Duration::from_millis(300);

/// Topics whose names begin with what was typed.
pub(crate) fn topics(typed: &OsStr) -> Vec<CompletionCandidate> {
    candidates(typed, async |admin: Admin| {
        let topics = admin.topics().await?;
        let shown = topics.values().filter(|topic| !topic.is_internal);
        Ok(shown.map(|topic| topic.name.to_string()).collect())
    })
}

/// Groups whose names begin with what was typed.
pub(crate) fn groups(typed: &OsStr) -> Vec<CompletionCandidate> {
    candidates(typed, async |admin: Admin| {
        Ok(admin.groups().await?.into_iter().map(|group| group.group).collect())
    })
}

/// Queues whose names begin with what was typed.
pub(crate) fn queues(typed: &OsStr) -> Vec<CompletionCandidate> {
    candidates(typed, async |admin: Admin| {
        HttpCluster::new(HttpConfig::of(admin.cluster()).await?).queues().await
    })
}

fn candidates<F: Future<Output = Result<Vec<String>>>>(
    typed: &OsStr,
    names: impl FnOnce(Admin) -> F,
) -> Vec<CompletionCandidate> {
    let typed = typed.to_string_lossy();
    let Ok(runtime) = tokio::runtime::Builder::new_current_thread().enable_all().build() else {
        return Vec::new();
    };
    let asking = async {
        let mut config = ClientConfig::new(&server(std::env::args()))?;
        config.connect_timeout = PATIENCE;
        config.request_timeout = PATIENCE;
        names(Admin::new(Cluster::connect(config).await?)).await
    };
    let asked = runtime.block_on(async { tokio::time::timeout(PATIENCE, asking).await });
    let Ok(Ok(names)) = asked else { return Vec::new() };
    names
        .into_iter()
        .filter(|name| name.starts_with(&*typed))
        .map(CompletionCandidate::new)
        .collect()
}

/// The server on the line that is being typed, as the parser would see it.
fn server(args: impl Iterator<Item = String>) -> String {
    let default =
        || std::env::var("TOWPATH_SERVER").unwrap_or_else(|_| "127.0.0.1:9092".to_owned());
    let args: Vec<String> = args.collect();
    let named = args.iter().enumerate().find_map(|(at, arg)| {
        let value = arg.strip_prefix("--server=").map(str::to_owned);
        value.or_else(|| (arg == "-s" || arg == "--server").then(|| args.get(at + 1).cloned())?)
    });
    named.filter(|address| split_address(address).is_ok()).unwrap_or_else(default)
}

#[cfg(test)]
mod tests {
    use super::server;

    #[test]
    fn the_server_is_taken_from_the_line() {
        let line = |text: &str| server(text.split(' ').map(str::to_owned));
        assert_eq!(line("towpath -s a:1 topic show x"), "a:1");
        assert_eq!(line("towpath topic show --server=b:2 x"), "b:2");
    }
}
