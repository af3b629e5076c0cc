//! The way to every broker: bootstrap, metadata, leaders, group coordinators, connections.
//!
//! Connections are kept per broker and *lane*: a fetch that is parked at the broker for its maximum
//! wait, or a JoinGroup that waits for a rebalance, must not hold up what comes behind it.

use std::collections::{BTreeMap, HashMap};
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::Duration;

use tokio::time::{Instant, sleep, sleep_until};
use towpath_model::{BrokerId, PartitionIndex};
use towpath_protocol::messages::{
    FindCoordinatorRequest, FindCoordinatorResponse, MetadataRequest, MetadataRequestTopic,
    MetadataResponse,
};
use towpath_protocol::{ErrorCode, Request};

use crate::admin::{Admin, ConfigEntry, Resource};
use crate::config::{Backoff, ClientConfig};
use crate::error::{Error, Result};
use crate::image::{Broker, Image, Partition, Topic};
use crate::news::LeaderNews;
use crate::wire::{Answer, Connection};

/// A cluster and our connections to it; clones share them.
#[derive(Clone)]
pub struct Cluster {
    inner: Arc<Inner>,
}

struct Inner {
    config: ClientConfig,
    state: Mutex<State>,
    /// Held by whoever fetches metadata, so that many who miss ask once.
    refreshing: tokio::sync::Mutex<()>,
}

#[derive(Default)]
struct State {
    image: Arc<Image>,
    /// Counts refreshes, so that one who waited for another's refresh can tell.
    refreshes: u64,
    links: HashMap<(Target, Lane), Arc<tokio::sync::Mutex<Slot>>>,
    coordinators: HashMap<String, BrokerId>,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash)]
enum Target {
    Bootstrap(String),
    Broker(BrokerId),
}

/// What a connection is for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Lane {
    /// Short requests.
    Ordinary,
    /// Produce requests, whose order on the wire matters.
    Produce,
    /// Fetches, which the broker may park.
    Fetch,
    /// Heartbeats and commits.
    Group,
    /// JoinGroup and SyncGroup, which the broker parks for whole rebalances.
    Join,
}

#[derive(Default)]
struct Slot {
    address: String,
    connection: Option<Connection>,
    failures: u32,
    not_before: Option<Instant>,
}

/// How long a topic may stay unknown after a request that lets the broker create it. Kafka says
/// "unknown" both while it creates a topic and when it never will.
const AUTO_CREATE_PATIENCE: Duration = Duration::from_secs(10);
/// How long a topic may stay unknown where another broker may have created it a moment ago. Kafka's
/// clients go on for a minute; a person who mistyped a name is told sooner.
const NEWS_PATIENCE: Duration = Duration::from_millis(500);

/// Decides whether and when something is tried again.
pub(crate) struct Retries {
    deadline: Instant,
    failures: u32,
    backoff: Backoff,
}

impl Retries {
    /// Waits before the next attempt; gives `error` back when there should be none.
    pub(crate) async fn after(&mut self, error: Error) -> Result<()> {
        self.failures += 1;
        let wait = self.backoff.wait(self.failures);
        if !error.is_retriable() || self.deadline <= Instant::now() + wait {
            return Err(error);
        }
        sleep(wait).await;
        Ok(())
    }
}

impl Cluster {
    /// Reaches the cluster once, so that a wrong address is told at once.
    pub async fn connect(config: ClientConfig) -> Result<Cluster> {
        let inner =
            Inner { config, state: Mutex::default(), refreshing: tokio::sync::Mutex::default() };
        let cluster = Cluster { inner: Arc::new(inner) };
        cluster.refresh(&[]).await?;
        Ok(cluster)
    }

    /// The settings it was opened with.
    #[must_use]
    pub fn config(&self) -> &ClientConfig {
        &self.inner.config
    }

    /// What the cluster said last.
    #[must_use]
    pub fn image(&self) -> Arc<Image> {
        self.state().image.clone()
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.inner.state.lock().expect("nothing panics while it holds this lock")
    }

    // ------------------------------------------------------------------------------- requests

    /// Sends a request that any broker answers.
    pub async fn call_any<'a, M: Request<'a>>(&self, request: &M) -> Result<Answer> {
        self.any().await?.call(request).await
    }

    /// Sends a request to one broker.
    pub async fn call_broker<'a, M: Request<'a>>(
        &self,
        broker: BrokerId,
        lane: Lane,
        request: &M,
    ) -> Result<Answer> {
        self.broker(broker, lane).await?.call(request).await
    }

    /// A count of attempts that may go on for `patience`.
    pub(crate) fn retries(&self, patience: Duration) -> Retries {
        Retries {
            deadline: Instant::now() + patience,
            failures: 0,
            backoff: self.config().retry_backoff,
        }
    }

    // ---------------------------------------------------------------------------- connections

    /// A connection to any broker that answers; those that failed a moment ago come last, for they may
    /// have to be waited for.
    pub async fn any(&self) -> Result<Connection> {
        let mut brokers: Vec<Broker> = self.image().brokers.values().cloned().collect();
        fastrand::shuffle(&mut brokers);
        brokers.sort_by_key(|broker| self.is_doubtful(broker.id));
        let mut last = None;
        for broker in &brokers {
            match self.link(Target::Broker(broker.id), broker.address(), Lane::Ordinary).await {
                Ok(connection) => return Ok(connection),
                Err(error) => last = Some(error),
            }
        }
        let mut bootstrap = self.config().bootstrap.clone();
        fastrand::shuffle(&mut bootstrap);
        for address in bootstrap {
            let target = Target::Bootstrap(address.clone());
            match self.link(target, address, Lane::Ordinary).await {
                Ok(connection) => return Ok(connection),
                Err(error) => last = Some(error),
            }
        }
        Err(last.unwrap_or_else(|| Error::Unreachable {
            address: self.config().bootstrap.join(","),
            cause: "no address to dial".to_owned(),
        }))
    }

    /// Whether a broker is being dialled, or must not be dialled yet.
    fn is_doubtful(&self, id: BrokerId) -> bool {
        let slot = self.state().links.get(&(Target::Broker(id), Lane::Ordinary)).cloned();
        let Some(slot) = slot else { return false };
        let Ok(slot) = slot.try_lock() else { return true };
        let is_open = slot.connection.as_ref().is_some_and(Connection::is_open);
        !is_open && slot.not_before.is_some_and(|at| Instant::now() < at)
    }

    /// A connection to one broker.
    pub async fn broker(&self, id: BrokerId, lane: Lane) -> Result<Connection> {
        let address = self.image().brokers.get(&id).map(Broker::address);
        let address = address.ok_or_else(|| Error::Unreachable {
            address: format!("broker {id}"),
            cause: "the cluster does not list it any more".to_owned(),
        })?;
        self.link(Target::Broker(id), address, lane).await
    }

    async fn link(&self, target: Target, address: String, lane: Lane) -> Result<Connection> {
        let slot = self.state().links.entry((target, lane)).or_default().clone();
        let mut slot = slot.lock().await;
        if slot.address != address {
            *slot = Slot { address, ..Slot::default() };
        }
        if let Some(connection) = slot.connection.as_ref().filter(|c| c.is_open()) {
            return Ok(connection.clone());
        }
        if let Some(not_before) = slot.not_before {
            sleep_until(not_before).await;
        }
        match Connection::open(&slot.address, self.config()).await {
            Ok(connection) => {
                slot.failures = 0;
                // A broker that accepts and hangs up must not be dialled in a tight loop either.
                slot.not_before = Some(Instant::now() + self.config().reconnect_backoff.wait(1));
                slot.connection = Some(connection.clone());
                Ok(connection)
            }
            Err(error) => {
                slot.failures += 1;
                let wait = self.config().reconnect_backoff.wait(slot.failures);
                slot.not_before = Some(Instant::now() + wait);
                Err(error)
            }
        }
    }

    // ------------------------------------------------------------------------------- metadata

    /// Asks for the brokers and these topics, without creating any.
    pub async fn refresh(&self, topics: &[Arc<str>]) -> Result<BTreeMap<Arc<str>, ErrorCode>> {
        self.fetch_metadata(Some(topics), false).await
    }

    /// Asks for the brokers and every topic there is.
    pub async fn refresh_all(&self) -> Result<Arc<Image>> {
        self.fetch_metadata(None, false).await?;
        Ok(self.image())
    }

    async fn fetch_metadata(
        &self,
        topics: Option<&[Arc<str>]>,
        may_create: bool,
    ) -> Result<BTreeMap<Arc<str>, ErrorCode>> {
        let request = MetadataRequest {
            topics: topics.map(|topics| {
                let by_name =
                    |name| MetadataRequestTopic { name: Some(name), ..Default::default() };
                topics.iter().map(|topic| by_name(&**topic)).collect()
            }),
            allow_auto_topic_creation: may_create,
            ..Default::default()
        };
        let answer = self.call_any(&request).await?;
        let response: MetadataResponse<'_> = answer.read()?;
        let code = ErrorCode::from(response.error_code);
        if !code.is_ok() {
            return Err(Error::refused("asking for metadata", code, None));
        }
        let mut state = self.state();
        let (image, errors) = state.image.after(&response, topics.is_none(), Instant::now());
        state.image = Arc::new(image);
        state.refreshes += 1;
        Ok(errors)
    }

    /// The topic, from the cache or from the cluster. `may_create` lets the broker create it.
    pub async fn topic(
        &self,
        name: &Arc<str>,
        may_create: bool,
        patience: Duration,
    ) -> Result<Arc<Topic>> {
        let started = Instant::now();
        let mut retries = self.retries(patience);
        loop {
            let (cached, refreshes) = {
                let state = self.state();
                (state.image.topics.get(name).cloned(), state.refreshes)
            };
            let is_fresh =
                |topic: &Topic| topic.fetched_at.elapsed() < self.config().metadata_age_max;
            if let Some(topic) = cached.as_ref().filter(|topic| is_fresh(topic)) {
                return Ok(topic.clone());
            }
            let refreshing = self.inner.refreshing.lock().await;
            let is_another_one_ahead = {
                let state = self.state();
                state.refreshes != refreshes && state.image.topics.contains_key(name)
            };
            if is_another_one_ahead {
                continue;
            }
            let error = match self
                .fetch_metadata(Some(std::slice::from_ref(name)), may_create)
                .await
            {
                Ok(errors) => match errors.get(name) {
                    None => continue,
                    Some(ErrorCode::UnknownTopicOrPartition)
                        if self.patience_with_unknown(may_create).await <= started.elapsed() =>
                    {
                        return Err(Error::UnknownTopic { topic: name.to_string() });
                    }
                    Some(code) => Error::refused(format!("looking up topic {name:?}"), *code, None),
                },
                Err(error) => match cached {
                    Some(stale) => return Ok(stale),
                    None => error,
                },
            };
            drop(refreshing);
            retries.after(error).await?;
        }
    }

    /// How long a topic may be unknown before it counts as missing.
    async fn patience_with_unknown(&self, may_create: bool) -> Duration {
        if may_create && self.creates_topics().await {
            AUTO_CREATE_PATIENCE
        } else if 1 < self.image().brokers.len() {
            NEWS_PATIENCE
        } else {
            Duration::ZERO
        }
    }

    /// Whether the brokers say that they create topics when they are used; then it is worth waiting
    /// for one. A broker that does not say may do so.
    async fn creates_topics(&self) -> bool {
        let Some(broker) = self.image().brokers.keys().next().copied() else { return true };
        let configs = Admin::new(self.clone()).configs(&Resource::Broker(broker), false).await;
        let is_off = |entry: &ConfigEntry| {
            entry.name == "auto.create.topics.enable" && entry.value.as_deref() == Some("false")
        };
        !configs.is_ok_and(|entries| entries.iter().any(is_off))
    }

    /// The partition, from the cache or from the cluster.
    pub async fn partition(
        &self,
        topic: &Arc<str>,
        index: PartitionIndex,
        patience: Duration,
    ) -> Result<Partition> {
        let topic = self.topic(topic, false, patience).await?;
        topic.partition(index).cloned().ok_or_else(|| Error::UnknownPartition {
            topic: topic.name.to_string(),
            partition: index.0,
            count: topic.partitions.len(),
        })
    }

    /// Who leads the partition, as far as the cache knows; asks when it knows nobody.
    pub async fn leader(&self, topic: &Arc<str>, index: PartitionIndex) -> Result<BrokerId> {
        let known = self.partition(topic, index, self.config().request_timeout).await?.leader;
        if let Some(leader) = known {
            return Ok(leader);
        }
        self.refresh(std::slice::from_ref(topic)).await?;
        let partition = self.partition(topic, index, self.config().request_timeout).await?;
        partition
            .leader
            .ok_or_else(|| Error::NoLeader { topic: topic.to_string(), partition: index.0 })
    }

    /// A broker that refused has said who leads.
    pub(crate) fn heed(&self, news: LeaderNews) {
        let mut state = self.state();
        if let Some(image) = state.image.after_news(news) {
            state.image = Arc::new(image);
        }
    }

    /// Makes the next use of these topics ask the cluster again: a broker said that what we know
    /// is old.
    pub async fn leadership_is_stale(&self, topics: &[Arc<str>]) -> Result<()> {
        let _refreshing = self.inner.refreshing.lock().await;
        self.fetch_metadata(Some(topics), false).await.map(|_| ())
    }

    // ----------------------------------------------------------------------------- coordinators

    /// The broker that runs a group; asks the cluster when it is not known.
    pub async fn coordinator(&self, group: &str) -> Result<BrokerId> {
        let known = self.state().coordinators.get(group).copied();
        match known {
            Some(broker) => Ok(broker),
            None => self.find_coordinator(group).await,
        }
    }

    /// Forgets who runs the group: the broker we knew says that it does not, or is gone.
    pub fn coordinator_is_stale(&self, group: &str) {
        self.state().coordinators.remove(group);
    }

    /// Whether `error` means that the group is run elsewhere; forgets the coordinator if so.
    pub(crate) fn forget_coordinator_on(&self, group: &str, error: &Error) -> bool {
        let is_stale = match error {
            Error::Unreachable { .. } | Error::Disconnected { .. } => true,
            error => matches!(
                error.code(),
                Some(ErrorCode::NotCoordinator | ErrorCode::CoordinatorNotAvailable)
            ),
        };
        if is_stale {
            self.coordinator_is_stale(group);
        }
        is_stale
    }

    async fn find_coordinator(&self, group: &str) -> Result<BrokerId> {
        let connection = self.any().await?;
        // From version 4 on, keys come as a list (KIP-699).
        let version = connection.version_of::<FindCoordinatorRequest<'_>>()?;
        let request = if 4 <= version {
            FindCoordinatorRequest { coordinator_keys: vec![group], ..Default::default() }
        } else {
            FindCoordinatorRequest { key: group, ..Default::default() }
        };
        let answer = connection.call_version(version, &request).await?;
        let response: FindCoordinatorResponse<'_> = answer.read()?;
        let (code, message, id, host, port) = match response.coordinators.first() {
            Some(c) => (c.error_code, c.error_message, c.node_id, c.host, c.port),
            None => (
                response.error_code,
                response.error_message,
                response.node_id,
                response.host,
                response.port,
            ),
        };
        let code = ErrorCode::from(code);
        if !code.is_ok() {
            let doing = format!("finding the coordinator of group {group:?}");
            return Err(Error::refused(doing, code, message));
        }
        let broker = Broker {
            id: BrokerId(id),
            host: host.to_owned(),
            port: u16::try_from(port).map_err(|_| Error::Malformed {
                address: connection.address().to_owned(),
                cause: format!("the coordinator's port is {port}"),
            })?,
            rack: None,
        };
        let mut state = self.state();
        if !state.image.brokers.contains_key(&broker.id) {
            state.image = Arc::new((*state.image).clone().with_broker(broker.clone()));
        }
        state.coordinators.insert(group.to_owned(), broker.id);
        Ok(broker.id)
    }
}
