//! From settings to a running server, and to its end.
//!
//! ```text
//! bind ─▶ recover the data ─▶ serve ─▶ (dev) write and read a record ─▶ ready
//!   signal ─▶ not ready ─▶ close listeners, answer what is under way ─▶ flush ─▶ exit 0
//! ```

use std::io::Write;
use std::net::SocketAddr;
use std::num::NonZero;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::{Duration, Instant};

use tempfile::TempDir;
use tokio::runtime::{Builder, Runtime};
use tokio::sync::watch;
use tokio::task::JoinHandle;
use towpath_driver::Settings as DriverSettings;
use towpath_http::Readiness;
use towpath_metadata::Address;
use towpath_server::disk::NodeDisk;
use towpath_server::{Limits, Node, NodeSettings, Progress, Surroundings, random_uuid};

use super::banner::Banner;
use super::bind::{Listeners, bind};
use super::stop::StopSignals;
use super::{logging, surroundings};
use crate::cli::Global;
use crate::config::Settings;
use crate::failure::{Failure, Outcome};

/// How the two ways to run a server differ beyond their settings.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Mode {
    /// The command, as it is typed.
    pub(crate) command: &'static str,
    /// Only say that it is ready after a record has been written and read back.
    pub(crate) tests_itself: bool,
    /// Over HTTP on loopback, answer only to `localhost` and addresses.
    pub(crate) has_local_names_only: bool,
    /// Tell programs and not people.
    pub(crate) ready_json: bool,
}

/// Threads for work that waits for the disk; idle ones end by themselves.
const BLOCKING_THREADS_MAX: usize = 16;
/// With several directories: whoever one disk holds up must not use up the threads that take over.
const BLOCKING_THREADS_WITH_SEVERAL_MAX: usize = 512;
const BLOCKING_IDLE_MAX: Duration = Duration::from_secs(2);

/// Runs a server until it is told to stop.
pub(crate) fn start(global: &Global, settings: Settings, mode: Mode) -> Outcome<()> {
    let begun = Instant::now();
    if settings.cluster.is_some() {
        let message = "clusters of several brokers are not served yet";
        return Err(Failure::new(message).with_help("start without --peer, --cluster and --join"));
    }
    logging::begin(global)?;
    end_on_panic();
    surroundings::raise_open_files();
    let data = Data::prepare(settings.data.clone())?;
    let runtime = runtime(data.paths().len())?;
    let ended = runtime.block_on(run(settings, &data, mode, begun));
    // What still runs is nobody's any more.
    runtime.shutdown_timeout(Duration::from_secs(1));
    data.remove()?;
    ended
}

fn runtime(directories: usize) -> Outcome<Runtime> {
    let cores = std::thread::available_parallelism().map_or(1, NonZero::get);
    let blocking = match directories {
        0 | 1 => BLOCKING_THREADS_MAX,
        _ => BLOCKING_THREADS_WITH_SEVERAL_MAX,
    };
    let runtime = Builder::new_multi_thread()
        .worker_threads(cores)
        .max_blocking_threads(blocking)
        .thread_keep_alive(BLOCKING_IDLE_MAX)
        .thread_name("towpath-worker")
        .enable_all()
        .build()?;
    Ok(runtime)
}

/// A panic is a bug of ours: nothing that this process thinks can be trusted any more, and what
/// was acknowledged is on disk. Threads that went on would serve on top of the wreck.
fn end_on_panic() {
    let print = std::panic::take_hook();
    std::panic::set_hook(Box::new(move |info| {
        print(info);
        eprintln!("this is a bug in Towpath; the process ends, and acknowledged records are safe");
        std::process::abort();
    }));
}

/// Where the data is, and whether it stays.
enum Data {
    Kept(Vec<PathBuf>),
    Temporary([PathBuf; 1], TempDir),
}

impl Data {
    fn prepare(kept: Vec<PathBuf>) -> Outcome<Data> {
        let Some(first) = kept.first() else {
            let directory = TempDir::with_prefix("towpath-")?;
            return Ok(Data::Temporary([directory.path().to_owned()], directory));
        };
        // The others may be on disks that are not there; the broker then says so and starts.
        std::fs::create_dir_all(first).map_err(|error| {
            let name = first.display();
            Failure::new(format!("the data directory {name} cannot be made: {error}"))
                .with_help("name another one with --data DIR")
        })?;
        Ok(Data::Kept(kept))
    }

    fn paths(&self) -> &[PathBuf] {
        match self {
            Data::Kept(paths) => paths,
            Data::Temporary(path, _) => path,
        }
    }

    fn remove(self) -> Outcome<()> {
        match self {
            Data::Kept(_) => Ok(()),
            Data::Temporary(_, directory) => directory.close().map_err(|error| {
                Failure::new(format!("the temporary data was not removed: {error}"))
            }),
        }
    }
}

async fn run(settings: Settings, data: &Data, mode: Mode, begun: Instant) -> Outcome<()> {
    // First of all: a signal during a long recovery is heard when it is over.
    let mut signals = StopSignals::listen()?;
    let mut listeners = bind(mode.command, &settings).await?;
    if mode.has_local_names_only && listeners.http_address.ip().is_loopback() {
        // On somebody's own machine; what `serve` is reached by may have any name.
        listeners.http = listeners.http.with_local_names_only();
    }
    let is_temporary = matches!(data, Data::Temporary(..));
    data.paths().iter().for_each(|p| surroundings::check_file_system(p, is_temporary));
    let (kafka, http) = (listeners.kafka_address, listeners.http_address);
    let (node, listeners) = open_answering(&settings, data.paths(), listeners).await?;
    let serving = Serving::begin(node, listeners);
    if mode.tests_itself
        && let Err(error) = serving.node.self_test().await
    {
        serving.end().await;
        return Err(Failure::new(error.to_string()));
    }
    serving.readiness.set_ready();
    let kept = match data {
        Data::Kept(paths) => paths.as_slice(),
        Data::Temporary(..) => &[],
    };
    let ready_after = begun.elapsed();
    let banner = Banner { kafka, http, data: kept, ready_after, has_hint: mode.command == "dev" };
    tracing::info!(%kafka, %http, data = ?data.paths(), ?ready_after, "ready");
    say(&if mode.ready_json { banner.json() + "\n" } else { banner.text() });

    signals.wait().await;
    tracing::info!("stopping");
    signals.insist();
    serving.end().await;
    tracing::info!("stopped");
    Ok(())
}

/// To standard output, at once. Whoever closed it does not want to know.
fn say(text: &str) {
    let mut out = std::io::stdout().lock();
    let _ = out.write_all(text.as_bytes()).and_then(|()| out.flush());
}

/// Opens the data directory, and meanwhile answers over HTTP that the process lives and how far it
/// is. Kafka clients wait.
async fn open_answering(
    settings: &Settings,
    data: &[PathBuf],
    listeners: Listeners,
) -> Outcome<(Arc<Node>, Listeners)> {
    let Listeners { kafka, http, kafka_address, http_address } = listeners;
    let progress = Progress::default();
    let (tell, is_over) = watch::channel(false);
    let answering = tokio::spawn(http.answer_while_starting(progress.clone(), is_over));
    let node = open(settings, data, kafka_address, progress).await?;
    tell.send_replace(true);
    let http = answering.await.map_err(|error| Failure::new(error.to_string()))?;
    Ok((node, Listeners { kafka, http, kafka_address, http_address }))
}

async fn open(
    settings: &Settings,
    data: &[PathBuf],
    kafka_address: SocketAddr,
    progress: Progress,
) -> Outcome<Arc<Node>> {
    let advertised =
        settings.advertised.as_ref().map(|address| (address.host.clone(), address.port));
    let (host, port) = advertised
        .clone()
        .unwrap_or_else(|| (kafka_address.ip().to_string(), kafka_address.port()));
    let broker = &settings.broker;
    let settings = NodeSettings {
        data: data.to_vec(),
        disk: NodeDisk::default(),
        driver: DriverSettings {
            broker_id: broker.node_id,
            statics: settings.statics.clone(),
            incarnation: random_uuid(),
            addresses: vec![Address { listener: "PLAINTEXT".to_owned(), host, port }],
            forgotten_directories: settings.forgotten_directories.clone(),
            rack: None,
            role: towpath_metadata::Role::Broker,
            formation: towpath_driver::Formation::Alone,
        },
        advertised,
        limits: Limits {
            frame_bytes_max: broker.request_bytes_max,
            connections_max: broker.connections_max,
            idle_max: broker.connections_idle_max,
            ..Limits::default()
        },
        http_creates_topics: broker.auto_create_topics,
        identity: None,
    };
    // Recovery reads the disk, for seconds where there is much.
    let opened = tokio::task::spawn_blocking(move || {
        Node::start_with(settings, Surroundings::default(), &progress)
    })
    .await;
    match opened.map_err(|error| Failure::new(error.to_string()))? {
        Ok(node) => Ok(node),
        Err(error) => Err(Failure::new(error.to_string()).with_help(
            "nothing was changed; the message names the file or directory that it is about",
        )),
    }
}

/// A node and its listeners at work.
struct Serving {
    node: Arc<Node>,
    readiness: Readiness,
    stop: watch::Sender<bool>,
    listeners: Vec<JoinHandle<()>>,
}

impl Serving {
    fn begin(node: Arc<Node>, listeners: Listeners) -> Serving {
        let (stop, stopped) = watch::channel(false);
        let readiness = Readiness::default();
        let Listeners { kafka, http, .. } = listeners;
        let kafka = tokio::spawn(kafka.serve(Arc::clone(&node), stopped.clone()));
        let http = tokio::spawn(http.serve(Arc::clone(&node), readiness.clone(), stopped));
        Serving { node, readiness, stop, listeners: vec![kafka, http] }
    }

    /// Closes the listeners, lets what is under way end, and flushes.
    async fn end(self) {
        self.readiness.set_stopping();
        self.stop.send_replace(true);
        for listener in self.listeners {
            // A listener that panicked has already ended the process.
            let _ = listener.await;
        }
        let node = self.node;
        // Flushing waits for the disk; there is nobody left to hold up, but the runtime's timers.
        let _ = tokio::task::spawn_blocking(move || node.stop()).await;
    }
}
