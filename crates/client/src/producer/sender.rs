//! The one task that sends: it owns everything about brokers and the producer's identity.
//!
//! Each turn it looks what may leave, hands it to connections in order, and then waits for the first
//! of: an answer, a new record, a deadline. It lives until the producer is closed and everything is
//! settled, or the producer is dropped.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::sync::Arc;
use std::time::Duration;

use futures_util::future::BoxFuture;
use futures_util::stream::{FuturesUnordered, StreamExt};
use tokio::time::{Instant, sleep, sleep_until};
use towpath_model::{BrokerId, ProducerEpoch, ProducerId};
use towpath_protocol::ErrorCode;
use towpath_protocol::messages::{InitProducerIdRequest, InitProducerIdResponse};

use super::accumulator::{Accumulator, Shared};
use super::batch::{Batch, Identity};
use super::config::ProducerConfig;
use super::queue::{PartitionQueue, Readiness};
use super::request::{self, Part};
use super::verdict::Verdict;
use crate::cluster::{Cluster, Lane};
use crate::error::{Error, Result};
use crate::record::TopicPartition;
use crate::wire::{Answer, Connection};

pub(super) struct Sender {
    cluster: Cluster,
    config: Arc<ProducerConfig>,
    shared: Arc<Shared>,
    identity: Naming,
    brokers: HashMap<BrokerId, BrokerLink>,
    events: FuturesUnordered<BoxFuture<'static, Event>>,
    is_refreshing: bool,
}

/// Where the producer's identity comes from.
enum Naming {
    NotNeeded,
    Wanted,
    Asking,
    Known(Identity),
}

#[derive(Default)]
struct BrokerLink {
    connection: Option<Connection>,
    is_connecting: bool,
    flying: usize,
}

enum Event {
    Connected(BrokerId, Result<Connection>),
    Answered(BrokerId, Vec<Part>, Result<Answer>),
    Named(Result<Identity>),
    Refreshed,
}

/// How long the sender sleeps when nothing has a deadline.
const IDLE: Duration = Duration::from_secs(3600);

/// Attempts at a leader that has not heard of it, with this wait after each.
const NEWS_ATTEMPTS: u32 = 4;
const NEWS_WAIT: Duration = Duration::from_millis(10);

impl Sender {
    pub(super) fn new(
        cluster: Cluster,
        config: Arc<ProducerConfig>,
        shared: Arc<Shared>,
    ) -> Sender {
        let identity = if config.is_idempotent { Naming::Wanted } else { Naming::NotNeeded };
        Sender {
            cluster,
            config,
            shared,
            identity,
            brokers: HashMap::new(),
            events: FuturesUnordered::new(),
            is_refreshing: false,
        }
    }

    pub(super) async fn run(mut self) {
        loop {
            let now = Instant::now();
            self.expire(now);
            let wake_at = self.dispatch(now);
            if self.is_done() {
                return;
            }
            tokio::select! {
                Some(event) = self.events.next(), if !self.events.is_empty() => self.handle(event),
                () = self.shared.wake.notified() => {}
                () = sleep_until(wake_at) => {}
            }
        }
    }

    fn is_done(&self) -> bool {
        let accumulator = self.shared.accumulator();
        accumulator.is_closed && accumulator.is_idle()
    }

    // --------------------------------------------------------------------------------- sending

    /// Sends what may leave now. Returns when time alone will make more leave or expire.
    fn dispatch(&mut self, now: Instant) -> Instant {
        self.renew_epochs();
        let mut wake_at = now + IDLE;
        let mut ready: BTreeMap<BrokerId, Vec<TopicPartition>> = BTreeMap::new();
        let mut leaderless: BTreeSet<Arc<str>> = BTreeSet::new();
        {
            let image = self.cluster.image();
            let accumulator = self.shared.accumulator();
            let readiness = self.readiness(&accumulator);
            for (partition, queue) in &accumulator.partitions {
                if let Some(at) = queue.expires_at(self.config.delivery_timeout) {
                    wake_at = wake_at.min(at);
                }
                match queue.ready_at(readiness) {
                    None => {}
                    Some(at) if now < at => wake_at = wake_at.min(at),
                    Some(_) => {
                        let leader = image.partition(partition).and_then(|known| known.leader);
                        match leader {
                            Some(leader) => {
                                ready.entry(leader).or_default().push(partition.clone())
                            }
                            None => _ = leaderless.insert(partition.topic.clone()),
                        }
                    }
                }
            }
        }
        if !ready.is_empty() && matches!(self.identity, Naming::Wanted) {
            self.ask_for_identity();
        }
        if matches!(self.identity, Naming::NotNeeded | Naming::Known(_)) {
            for (broker, partitions) in ready {
                self.send_to(broker, &partitions);
            }
        }
        if !leaderless.is_empty() {
            self.refresh(leaderless);
        }
        wake_at
    }

    fn readiness(&self, accumulator: &Accumulator) -> Readiness {
        Readiness {
            linger: self.config.linger,
            batch_bytes: self.config.batch_bytes,
            is_urgent: 0 < accumulator.hurried_by || accumulator.is_closed,
            is_idempotent: self.config.is_idempotent,
        }
    }

    fn send_to(&mut self, broker: BrokerId, partitions: &[TopicPartition]) {
        let link = self.brokers.entry(broker).or_default();
        let Some(connection) = link.connection.clone().filter(Connection::is_open) else {
            if !link.is_connecting {
                link.is_connecting = true;
                let cluster = self.cluster.clone();
                self.events.push(Box::pin(async move {
                    Event::Connected(broker, cluster.broker(broker, Lane::Produce).await)
                }));
            }
            return;
        };
        let mut left = partitions;
        while !left.is_empty() && self.brokers[&broker].flying < self.config.in_flight_max {
            let (parts, rest) = self.take_parts(left);
            left = rest;
            if parts.is_empty() {
                continue;
            }
            let image = self.cluster.image();
            match request::submit(&connection, &self.config, &image, &parts) {
                request::Submitted::Awaited(pending) => {
                    self.brokers.entry(broker).or_default().flying += 1;
                    self.events.push(Box::pin(async move {
                        Event::Answered(broker, parts, pending.answer().await)
                    }));
                }
                request::Submitted::Unanswered => self.deliver_unanswered(parts),
                request::Submitted::NotNow(error) => {
                    self.settle_all(parts, &error, false);
                    return;
                }
            }
        }
    }

    /// One batch of each partition, as many as one request takes; and the partitions that are left.
    fn take_parts<'p>(
        &self,
        partitions: &'p [TopicPartition],
    ) -> (Vec<Part>, &'p [TopicPartition]) {
        let identity = match self.identity {
            Naming::Known(identity) => Some(identity),
            _ => None,
        };
        let mut accumulator = self.shared.accumulator();
        let mut parts = Vec::new();
        let mut bytes = 0;
        for (at, partition) in partitions.iter().enumerate() {
            if self.config.request_bytes_max <= bytes {
                return (parts, &partitions[at..]);
            }
            let queue = accumulator.partitions.get_mut(partition);
            if let Some(batch) = queue.and_then(|queue| queue.take(identity)) {
                bytes += batch.bytes;
                parts.push(Part { partition: partition.clone(), batch });
            }
        }
        (parts, &[])
    }

    // -------------------------------------------------------------------------------- answers

    fn handle(&mut self, event: Event) {
        match event {
            Event::Connected(broker, connection) => {
                let link = self.brokers.entry(broker).or_default();
                link.is_connecting = false;
                match connection {
                    Ok(connection) => link.connection = Some(connection),
                    Err(error) => self.cannot_connect(broker, &error),
                }
            }
            Event::Answered(broker, parts, outcome) => {
                let link = self.brokers.entry(broker).or_default();
                link.flying = link.flying.saturating_sub(1);
                self.answered(broker, parts, outcome);
            }
            Event::Named(Ok(identity)) => self.identity = Naming::Known(identity),
            Event::Named(Err(error)) => {
                self.identity = Naming::Wanted;
                self.stop(format!("no producer id: {error}"));
            }
            Event::Refreshed => self.is_refreshing = false,
        }
    }

    fn cannot_connect(&mut self, broker: BrokerId, error: &Error) {
        let image = self.cluster.image();
        let mut topics = BTreeSet::new();
        {
            let mut accumulator = self.shared.accumulator();
            for (partition, queue) in &mut accumulator.partitions {
                let leader = image.partition(partition).and_then(|known| known.leader);
                if leader == Some(broker) {
                    queue.last_error = Some(error.clone());
                    topics.insert(partition.topic.clone());
                }
            }
        }
        self.refresh(topics);
    }

    fn answered(&mut self, broker: BrokerId, parts: Vec<Part>, outcome: Result<Answer>) {
        let answer = match outcome {
            Ok(answer) => answer,
            Err(error) => return self.settle_all(parts, &error, true),
        };
        let (verdicts, news) = match request::verdicts(&answer, &self.cluster.image()) {
            Ok(said) => said,
            Err(error) => return self.settle_all(parts, &error, true),
        };
        self.cluster.heed(news);
        let image = self.cluster.image();
        let mut stale = BTreeSet::new();
        for Part { partition, batch } in parts {
            let verdict = verdicts.get(&partition).cloned().unwrap_or_else(Verdict::missing);
            let leader = image.partition(&partition).and_then(|known| known.leader);
            let verdict = verdict.said_by(broker, leader);
            if verdict.is_leadership_stale() {
                stale.insert(partition.topic.clone());
            }
            self.settle(partition, batch, verdict);
        }
        if !stale.is_empty() {
            self.refresh(stale);
        }
    }

    /// The whole request failed. If `was_sent`, the broker may have carried it out.
    fn settle_all(&mut self, parts: Vec<Part>, error: &Error, was_sent: bool) {
        let topics = parts.iter().map(|part| part.partition.topic.clone()).collect();
        for Part { partition, batch } in parts {
            let verdict = match error {
                Error::InvalidArgument(_) | Error::UnsupportedApi { .. } => {
                    Verdict::Refused(error.clone())
                }
                error => Verdict::Again { error: error.clone(), is_uncertain: was_sent },
            };
            self.settle(partition, batch, verdict);
        }
        self.refresh(topics);
    }

    fn deliver_unanswered(&self, parts: Vec<Part>) {
        for Part { partition, batch } in parts {
            self.settle(
                partition,
                batch,
                Verdict::Written { base_offset: None, append_time: None },
            );
        }
    }

    /// Ends one attempt of one batch.
    fn settle(&self, partition: TopicPartition, mut batch: Batch, verdict: Verdict) {
        let mut accumulator = self.shared.accumulator();
        let is_stopped = accumulator.stopped.is_some();
        let queue = accumulator
            .partitions
            .get_mut(&partition)
            .expect("queues of partitions with batches on the way are kept");
        queue.landed(&mut batch);
        let verdict = match verdict {
            Verdict::Again { error, .. } if is_stopped => Verdict::Refused(error),
            Verdict::OutOfOrder(error) | Verdict::Elsewhere(error) | Verdict::Soon(error)
                if is_stopped =>
            {
                Verdict::Refused(error)
            }
            verdict => verdict,
        };
        match verdict {
            Verdict::Written { base_offset, append_time } => {
                queue.last_error = None;
                queue.confirm(&batch);
                self.release(&batch);
                batch.deliver(partition.partition, base_offset, append_time);
            }
            Verdict::Again { error, is_uncertain } => {
                let wait = self.cluster.config().retry_backoff.wait(batch.attempts);
                batch.is_uncertain |= is_uncertain;
                tracing::debug!(%partition, attempt = batch.attempts, %error, "produce failed, retrying");
                queue.last_error = Some(error);
                queue.put_back(batch, Some(Instant::now() + wait));
            }
            Verdict::Elsewhere(error) => {
                batch.attempts -= 1;
                queue.last_error = Some(error);
                queue.put_back(batch, None);
            }
            Verdict::Soon(error) => {
                let wait = self.wait_for_news(batch.attempts);
                tracing::debug!(%partition, attempt = batch.attempts, %error, "the next leader does not lead yet");
                queue.last_error = Some(error);
                queue.put_back(batch, Some(Instant::now() + wait));
            }
            Verdict::OutOfOrder(error) => {
                if queue.is_oldest(&batch) {
                    tracing::warn!(%partition, %error, "the broker lost track of this producer's sequences: going on under a new epoch");
                    queue.want_new_epoch();
                }
                queue.last_error = Some(error);
                queue.put_back(batch, None);
            }
            Verdict::TooLarge => self.split(&mut accumulator, partition, batch),
            Verdict::Refused(error) => {
                if !batch.is_uncertain {
                    queue.close_gap(&batch);
                }
                self.release(&batch);
                batch.give_up(&error);
            }
            Verdict::Fenced(error) => {
                self.release(&batch);
                batch.give_up(&error);
                drop(accumulator);
                self.stop(error.to_string());
            }
        }
        self.shared.progress.notify_waiters();
    }

    /// How long a leader is left alone that has not heard that it leads: first for less than the usual
    /// wait, for it hears from the controller and is not overloaded.
    fn wait_for_news(&self, attempts: u32) -> Duration {
        let wait = self.cluster.config().retry_backoff.wait(attempts.saturating_sub(NEWS_ATTEMPTS));
        if attempts <= NEWS_ATTEMPTS { wait.min(NEWS_WAIT) } else { wait }
    }

    fn split(&self, accumulator: &mut Accumulator, partition: TopicPartition, batch: Batch) {
        let bytes = batch.bytes;
        let Some(queue) = accumulator.partitions.get_mut(&partition) else { return };
        if batch.records.len() < 2 {
            queue.close_gap(&batch);
            self.release(&batch);
            let topic = partition.topic.to_string();
            return batch.give_up(&Error::RecordTooLarge { topic, bytes, limit: None });
        }
        if let Some((first, second)) = batch.split() {
            queue.put_back(first, None);
            queue.put_back(second, None);
        }
    }

    /// The batch's records are settled: their bytes make room.
    fn release(&self, batch: &Batch) {
        self.shared.room.add_permits(batch.buffered_bytes());
    }

    fn expire(&self, now: Instant) {
        let patience = self.config.delivery_timeout;
        let mut accumulator = self.shared.accumulator();
        let mut expired = Vec::new();
        for (partition, queue) in &mut accumulator.partitions {
            for batch in queue.expire(now, patience) {
                let error = self.expiry(partition, queue, &batch);
                expired.push((batch, error));
            }
        }
        for (batch, error) in expired {
            self.release(&batch);
            batch.give_up(&error);
            self.shared.progress.notify_waiters();
        }
    }

    fn expiry(&self, partition: &TopicPartition, queue: &PartitionQueue, batch: &Batch) -> Error {
        let after = self.config.delivery_timeout;
        if batch.is_uncertain {
            let topic = partition.topic.to_string();
            return Error::DeliveryUnknown { topic, partition: partition.partition.0, after };
        }
        let cause = queue.last_error.as_ref().map(|e| format!(" (last: {e})")).unwrap_or_default();
        Error::TimedOut { doing: format!("delivering to {partition}{cause}"), after }
    }

    /// Nothing can be sent any more: everything that waits is given up.
    fn stop(&self, reason: String) {
        let error = Error::ProducerStopped { reason };
        let mut accumulator = self.shared.accumulator();
        accumulator.stopped.get_or_insert_with(|| error.clone());
        let batches: Vec<Batch> =
            accumulator.partitions.values_mut().flat_map(PartitionQueue::drain).collect();
        for batch in batches {
            self.release(&batch);
            batch.give_up(&error);
        }
        self.shared.progress.notify_waiters();
    }

    // ------------------------------------------------------------------------------- identity

    fn ask_for_identity(&mut self) {
        self.identity = Naming::Asking;
        let cluster = self.cluster.clone();
        let patience = self.config.delivery_timeout;
        self.events.push(Box::pin(async move {
            Event::Named(ask_for_identity(&cluster, patience).await)
        }));
    }

    /// Partitions that lost their place start over under the next epoch. Like Kafka's own producer
    /// we raise the epoch ourselves (KIP-360); when it is used up we ask for a new id.
    fn renew_epochs(&mut self) {
        let Naming::Known(identity) = self.identity else { return };
        let shared = self.shared.clone();
        let mut accumulator = shared.accumulator();
        let mut waiting: Vec<&mut PartitionQueue> =
            accumulator.partitions.values_mut().filter(|queue| queue.awaits_new_epoch()).collect();
        if waiting.is_empty() {
            return;
        }
        let mut next = identity;
        if waiting.iter().any(|queue| queue.counts_under(identity)) {
            match identity.epoch.0.checked_add(1) {
                Some(epoch) => next.epoch = ProducerEpoch(epoch),
                None => return self.identity = Naming::Wanted,
            }
        }
        for queue in &mut waiting {
            queue.start_over(next);
        }
        self.identity = Naming::Known(next);
    }

    fn refresh(&mut self, topics: BTreeSet<Arc<str>>) {
        if self.is_refreshing || topics.is_empty() {
            return;
        }
        self.is_refreshing = true;
        let cluster = self.cluster.clone();
        let topics: Vec<Arc<str>> = topics.into_iter().collect();
        self.events.push(Box::pin(async move {
            if let Err(error) = cluster.leadership_is_stale(&topics).await {
                tracing::debug!(%error, "metadata refresh failed");
            }
            // Whatever it brought: asking again at once would only add load.
            sleep(cluster.config().retry_backoff.wait(1)).await;
            Event::Refreshed
        }));
    }
}

async fn ask_for_identity(cluster: &Cluster, patience: Duration) -> Result<Identity> {
    let mut retries = cluster.retries(patience);
    loop {
        match ask_once(cluster).await {
            Ok(identity) => return Ok(identity),
            Err(error) => retries.after(error).await?,
        }
    }
}

async fn ask_once(cluster: &Cluster) -> Result<Identity> {
    // The transaction timeout means nothing without a transactional id, but is checked.
    let request = InitProducerIdRequest {
        transactional_id: None,
        transaction_timeout_ms: i32::MAX,
        ..Default::default()
    };
    let answer = cluster.call_any(&request).await?;
    let response: InitProducerIdResponse = answer.read()?;
    let code = ErrorCode::from(response.error_code);
    if !code.is_ok() {
        return Err(Error::refused("asking for a producer id", code, None));
    }
    Ok(Identity {
        id: ProducerId(response.producer_id),
        epoch: ProducerEpoch(response.producer_epoch),
    })
}
