//! Workers of the client crate at real brokers, one of which is killed in the middle.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use towpath_client::{
    ClientConfig, Cluster as Client, HandlerError, HttpCluster, HttpConfig, OutgoingMessage, Queue,
    QueueWorker, Work, WorkerConfig, WorkerHandle,
};
use towpath_process::http;

use crate::cluster::{Cluster, WHOLE_PATIENCE};
use crate::support::{eventually, stop};

const MESSAGES: usize = 400;
/// Long enough for a failover in an unoptimised build: what was held by nobody comes back after it.
const VISIBILITY: Duration = Duration::from_secs(10);

/// Who works which message, and what has been worked.
#[derive(Default)]
struct Ledger {
    /// Messages by their ids, with how many work them and were not told that their lease is lost.
    running: BTreeMap<String, usize>,
    worked: BTreeSet<String>,
    /// Messages that two worked at once.
    clashes: Vec<String>,
}

impl Ledger {
    fn begin(&mut self, id: &str) {
        let running = self.running.entry(id.to_owned()).or_default();
        *running += 1;
        if 1 < *running {
            self.clashes.push(id.to_owned());
        }
    }

    fn end(&mut self, id: &str) {
        *self.running.get_mut(id).unwrap() -= 1;
    }
}

/// Works a message for a while, some of them for longer than their lease lasts unless it is extended.
async fn work(ledger: Arc<Mutex<Ledger>>, turn: usize, mut work: Work) -> Result<(), HandlerError> {
    let id = work.message.id.clone();
    ledger.lock().unwrap().begin(&id);
    let takes = if turn % 100 == 7 {
        VISIBILITY + Duration::from_secs(3)
    } else {
        Duration::from_millis(80)
    };
    let is_worked = tokio::select! {
        () = tokio::time::sleep(takes) => true,
        () = work.lease_lost() => false,
    };
    let mut ledger = ledger.lock().unwrap();
    ledger.end(&id);
    if !is_worked {
        return Err(HandlerError::retry("the lease was lost"));
    }
    ledger.worked.insert(id);
    Ok(())
}

fn start_worker(
    runtime: &tokio::runtime::Runtime,
    queue: Queue,
    ledger: &Arc<Mutex<Ledger>>,
) -> (WorkerHandle, tokio::task::JoinHandle<towpath_client::Result<towpath_client::WorkerStats>>) {
    let config = WorkerConfig {
        parallel: 8,
        visibility: Some(VISIBILITY),
        wait: Duration::from_secs(2),
        ..WorkerConfig::default()
    };
    let worker = QueueWorker::new(queue, config).unwrap();
    let (handle, ledger, turns) = (worker.handle(), Arc::clone(ledger), AtomicUsize::new(0));
    let working = runtime.spawn(worker.run(move |message| {
        let (ledger, turn) = (Arc::clone(&ledger), turns.fetch_add(1, Ordering::Relaxed));
        work(ledger, turn, message)
    }));
    (handle, working)
}

#[test]
fn workers_lose_nothing_and_work_nothing_twice_at_once_while_a_broker_is_killed() {
    let cluster = Cluster::of(3);
    let mut brokers: Vec<_> = cluster.first_three().into_iter().map(Some).collect();
    cluster.wait_until_whole(3);
    let body = serde_json::json!({ "name": "q" });
    http::post(cluster.places[0].addresses.http, "/queues", &body).unwrap().success().unwrap();
    cluster.wait_until_whole(3);

    let runtime = tokio::runtime::Runtime::new().unwrap();
    let bootstrap = cluster.places[1].addresses.kafka.to_string();
    let queue = runtime.block_on(async {
        let client = Client::connect(ClientConfig::new(&bootstrap).unwrap()).await.unwrap();
        let config = HttpConfig::of(&client).await.unwrap();
        assert_eq!(config.addresses.len(), 3, "every broker says where it serves HTTP");
        Queue::new(HttpCluster::new(config), "q")
    });
    let message = |n: usize| OutgoingMessage {
        dedup_id: Some(n.to_string()),
        ..OutgoingMessage::new(n.to_string())
    };
    let messages: Vec<OutgoingMessage> = (0..MESSAGES).map(message).collect();
    let sent = runtime.block_on(queue.send_all(&messages)).unwrap();
    let sent: BTreeSet<String> = sent.into_iter().map(|sent| sent.unwrap().id).collect();
    assert_eq!(sent.len(), MESSAGES);

    let ledger = Arc::new(Mutex::new(Ledger::default()));
    let workers: Vec<_> = (0..2).map(|_| start_worker(&runtime, queue.clone(), &ledger)).collect();
    let worked = || ledger.lock().unwrap().worked.len();
    eventually(WHOLE_PATIENCE, || (MESSAGES / 4 < worked()).then_some(()));
    brokers[0].take().unwrap().kill().unwrap();
    let killed = Instant::now();
    eventually(4 * WHOLE_PATIENCE, || (worked() == MESSAGES).then_some(()));
    println!("all worked {:?} after the kill", killed.elapsed());

    for (handle, working) in workers {
        handle.stop();
        let stats = runtime.block_on(working).unwrap().unwrap();
        println!("{stats:?}");
        assert_eq!((stats.running, stats.rejected), (0, 0));
    }
    let ledger = ledger.lock().unwrap();
    assert_eq!(ledger.worked, sent);
    assert_eq!(ledger.clashes, Vec::<String>::new());
    // Nothing is left, but what a worker could not delete while nobody led its partition.
    let id = 2;
    eventually(WHOLE_PATIENCE, || {
        let stats = http::get(cluster.places[id].addresses.http, "/queues/q/stats").ok()?;
        let stats = stats.success().ok()?;
        (stats.get("partitions_missing").is_none() && stats["in_flight"] == 0).then_some(())
    });
    brokers.into_iter().flatten().for_each(stop);
}
