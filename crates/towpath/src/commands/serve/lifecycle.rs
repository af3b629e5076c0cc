//! From settings to a running server, and to its end.
//!
//! ```text
//! bind ─▶ find the cluster, recover the data ─▶ serve HTTP ─▶ be there for the cluster
//!      ─▶ (dev) write and read a record ─▶ serve Kafka clients, ready
//!   signal, or order to start anew ─▶ not ready ─▶ let others lead ─▶ close listeners,
//!      answer what is under way ─▶ flush ─▶ exit 0, or the program again
//! ```

use std::io::Write;
use std::num::NonZero;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::{Duration, Instant};

use tempfile::TempDir;
use tokio::runtime::{Builder, Runtime};
use tokio::sync::watch;
use tokio::task::JoinHandle;
use tokio::time::sleep;
use towpath_http::{HttpListener, Readiness};
use towpath_server::{KafkaListener, Node, Progress};

use super::again::Program;
use super::banner::Banner;
use super::bind::{Listeners, bind};
use super::joining::{Bound, Joined, join, not_opened};
use super::leaving::leave;
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
    /// Over HTTP and SQS on loopback, answer only to `localhost` and addresses.
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
    let program = Program::running()?;
    logging::begin(global)?;
    end_on_panic();
    surroundings::raise_open_files();
    let data = Data::prepare(settings.data.clone())?;
    let runtime = runtime(data.paths().len())?;
    let ended = runtime.block_on(run(settings, &data, mode, begun));
    // What still runs is nobody's any more.
    runtime.shutdown_timeout(Duration::from_secs(1));
    data.remove()?;
    match ended? {
        Ended::Stopped => Ok(()),
        Ended::ToStartAgain => Err(program.run_again()),
    }
}

/// How a server's run ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Ended {
    Stopped,
    /// It was ordered to start anew.
    ToStartAgain,
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

async fn run(settings: Settings, data: &Data, mode: Mode, begun: Instant) -> Outcome<Ended> {
    // First of all: a signal during a long recovery is heard when it is over.
    let mut signals = StopSignals::listen()?;
    let mut listeners = bind(mode.command, &settings).await?;
    if mode.has_local_names_only {
        listeners.http = listeners.http.with_local_names_only();
    }
    let is_temporary = matches!(data, Data::Temporary(..));
    data.paths().iter().for_each(|p| surroundings::check_file_system(p, is_temporary));
    let (kafka, http) = (listeners.kafka_address, listeners.http_address);
    let sqs = listeners.sqs_address;
    let peer = listeners.peer.as_ref().map(|peer| peer.address);
    let opened = open_answering(&settings, data.paths(), listeners, &mut signals).await?;
    let Some((joined, listeners)) = opened else { return Ok(Ended::Stopped) };
    let Listeners { kafka: for_clients, http: for_callers, .. } = listeners;
    let mut serving = Serving::begin(joined, for_callers);
    let arrived = tokio::select! {
        arrived = serving.arrive() => Some(arrived),
        () = signals.wait() => None,
    };
    let tested = match arrived {
        Some(Ok(())) if mode.tests_itself => {
            let tested = serving.node.self_test().await;
            tested.map_err(|error| Failure::new(error.to_string())).map(Some)
        }
        Some(arrived) => arrived.map(Some),
        None => Ok(None),
    };
    if !matches!(tested, Ok(Some(()))) {
        signals.insist();
        serving.end().await;
        return tested.map(|_| Ended::Stopped);
    }
    serving.take_clients(for_clients);
    serving.readiness.set_ready();
    let kept = match data {
        Data::Kept(paths) => paths.as_slice(),
        Data::Temporary(..) => &[],
    };
    let ready_after = begun.elapsed();
    let has_hint = mode.command == "dev";
    let banner = Banner { kafka, http, sqs, peer, data: kept, ready_after, has_hint };
    tracing::info!(%kafka, %http, data = ?data.paths(), ?ready_after, "ready");
    say(&if mode.ready_json { banner.json() + "\n" } else { banner.text() });

    if !is_temporary {
        serving.node.restart().allow();
    }
    let ended = tokio::select! {
        error = serving.unserved() => Err(error),
        () = serving.node.restart().given() => Ok(Ended::ToStartAgain),
        () = signals.wait() => Ok(Ended::Stopped),
    };
    tracing::info!("stopping");
    signals.insist();
    serving.end().await;
    tracing::info!("stopped");
    ended
}

/// To standard output, at once. Whoever closed it does not want to know.
fn say(text: &str) {
    let mut out = std::io::stdout().lock();
    let _ = out.write_all(text.as_bytes()).and_then(|()| out.flush());
}

/// Opens the data directory, and meanwhile answers over HTTP that the process lives and how far it
/// is. Kafka clients wait. `None`: it was told to stop.
async fn open_answering(
    settings: &Settings,
    data: &[PathBuf],
    listeners: Listeners,
    signals: &mut StopSignals,
) -> Outcome<Option<(Joined, Listeners)>> {
    let Listeners { kafka, http, kafka_address, http_address, sqs_address, peer } = listeners;
    let progress = Progress::default();
    let (tell, is_over) = watch::channel(false);
    let answering = tokio::spawn(http.answer_while_starting(progress.clone(), is_over));
    let bound = Bound { kafka: kafka_address, http: http_address };
    let joined = join(settings, data, bound, peer, &progress, signals).await?;
    tell.send_replace(true);
    let http = answering.await.map_err(|error| Failure::new(error.to_string()))?;
    let listeners = Listeners { kafka, http, kafka_address, http_address, sqs_address, peer: None };
    Ok(joined.map(|joined| (joined, listeners)))
}

/// How often a broker that starts looks how it stands.
const LOOK_EVERY: Duration = Duration::from_millis(20);
/// And one that serves.
const LOOK_AGAIN_EVERY: Duration = Duration::from_secs(1);

/// A node and its listeners at work.
struct Serving {
    node: Arc<Node>,
    joined: Joined,
    readiness: Readiness,
    stop: watch::Sender<bool>,
    listeners: Vec<JoinHandle<()>>,
}

impl Serving {
    fn begin(joined: Joined, http: HttpListener) -> Serving {
        let node = Arc::clone(&joined.node);
        let (stop, stopped) = watch::channel(false);
        let readiness = Readiness::default();
        let http = tokio::spawn(http.serve(Arc::clone(&node), readiness.clone(), stopped));
        Serving { node, joined, readiness, stop, listeners: vec![http] }
    }

    /// Begins to answer Kafka clients. Not before [`Serving::arrive`]: until a majority of the
    /// cluster has been heard, this broker does not know which of the metadata on its disk is
    /// committed, and would say of topics that they do not exist.
    fn take_clients(&mut self, kafka: KafkaListener) {
        let served = kafka.serve(Arc::clone(&self.node), self.stop.subscribe());
        self.listeners.push(tokio::spawn(served));
    }

    /// Waits until the cluster counts this broker as one that is there.
    async fn arrive(&self) -> Outcome<()> {
        loop {
            if let Some(error) = self.node.driver().take_unserved() {
                return Err(not_opened(error));
            }
            let standing = self.node.driver().standing();
            if standing.broker_epoch.is_some() && !standing.is_fenced {
                return Ok(());
            }
            sleep(LOOK_EVERY).await;
        }
    }

    /// Waits for an error that leaves this broker with nothing to serve.
    async fn unserved(&self) -> Failure {
        loop {
            if let Some(error) = self.node.driver().take_unserved() {
                return not_opened(error);
            }
            sleep(LOOK_AGAIN_EVERY).await;
        }
    }

    /// Lets others take over, closes the listeners, lets what is under way end, and flushes.
    async fn end(self) {
        self.readiness.set_stopping();
        leave(&self.node).await;
        self.stop.send_replace(true);
        for listener in self.listeners {
            // A listener that panicked has already ended the process.
            let _ = listener.await;
        }
        drop(self.node);
        let node = self.joined.part().await;
        // Flushing waits for the disk; there is nobody left to hold up, but the runtime's timers.
        let _ = tokio::task::spawn_blocking(move || node.stop()).await;
    }
}
