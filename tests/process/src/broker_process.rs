//! One broker as a process: start, wait until it says that it is ready, stop, kill, start again.

use std::fs::{self, File};
use std::io::{BufRead, BufReader};
use std::net::{Ipv4Addr, SocketAddr, TcpListener};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::mpsc::{Receiver, RecvTimeoutError, channel};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};
use rustix::process::{Pid, Signal, kill_process};
use tempfile::TempDir;

use crate::binary::towpath_binary;
use crate::cost::Cost;

/// A start takes milliseconds; right after a large build the first sync waits for gigabytes that
/// are still on their way to the disk.
pub(crate) const READY_PATIENCE: Duration = Duration::from_secs(120);

/// How an error begins that says that a broker ended instead of being ready.
pub(crate) const ENDED_EARLY: &str = "ended before it was ready";

/// Where a broker listens.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Addresses {
    /// The Kafka listener.
    pub kafka: SocketAddr,
    /// The HTTP listener.
    pub http: SocketAddr,
}

/// Two loopback addresses that were free a moment ago, for brokers that must come back to the same
/// place. A start that fails says who has taken them meanwhile.
pub fn free_addresses() -> Result<Addresses> {
    Ok(Addresses { kafka: free_address()?, http: free_address()? })
}

/// Its port is none that the system gives to whoever asks for any (`ip_local_port_range` begins at
/// 32,768 on Linux): while a broker is down, no other socket gets its port by chance.
fn free_address() -> Result<SocketAddr> {
    const PORTS: std::ops::Range<u32> = 10_000..32_000;
    static GIVEN: AtomicU32 = AtomicU32::new(0);
    for _ in PORTS {
        // Test processes that run beside each other begin at different ones.
        let at =
            std::process::id().wrapping_mul(97).wrapping_add(GIVEN.fetch_add(1, Ordering::Relaxed));
        let port = PORTS.start + at % (PORTS.end - PORTS.start);
        let address = SocketAddr::from((Ipv4Addr::LOCALHOST, u16::try_from(port)?));
        if TcpListener::bind(address).is_ok() {
            return Ok(address);
        }
    }
    bail!("no port is free between {} and {}", PORTS.start, PORTS.end)
}

/// Flags come before these, where a test is about them.
const NO_WATERMARKS: [(&str, &str); 2] = [
    ("TOWPATH_BROKER__DISK_LOW_WATERMARK_BYTES", "0"),
    ("TOWPATH_BROKER__DISK_HIGH_WATERMARK_BYTES", "0"),
];

/// How to start a broker. Can be used again and again: that is what a restart is.
#[derive(Debug, Clone)]
pub struct Start {
    arguments: Vec<String>,
    variables: Vec<(String, String)>,
    directory: Option<PathBuf>,
    namespace: Option<String>,
    log: Option<PathBuf>,
}

impl Start {
    /// `towpath dev` on this data directory; port 0 unless [`Start::at`] says more.
    pub fn dev(data: &Path) -> Start {
        Start::command("dev").arguments(["--data", &data.to_string_lossy()])
    }

    /// `towpath serve` on this data directory; port 0 unless [`Start::at`] says more.
    pub fn serve(data: &Path) -> Start {
        Start::command("serve").arguments(["--data", &data.to_string_lossy()])
    }

    /// `towpath dev --ephemeral`.
    pub fn ephemeral() -> Start {
        Start::command("dev").arguments(["--ephemeral"])
    }

    /// `towpath` with this command and nothing else.
    pub fn command(command: &str) -> Start {
        Start {
            arguments: vec![command.to_owned()],
            variables: Vec::new(),
            directory: None,
            namespace: None,
            log: None,
        }
    }

    /// On these addresses.
    #[must_use]
    pub fn at(self, addresses: Addresses) -> Start {
        let (kafka, http) = (addresses.kafka.to_string(), addresses.http.to_string());
        self.arguments(["--kafka", &kafka, "--http", &http])
    }

    /// With more arguments.
    #[must_use]
    pub fn arguments<S: AsRef<str>>(mut self, more: impl IntoIterator<Item = S>) -> Start {
        self.arguments.extend(more.into_iter().map(|argument| argument.as_ref().to_owned()));
        self
    }

    /// With this environment variable.
    #[must_use]
    pub fn variable(mut self, name: &str, value: &str) -> Start {
        self.variables.push((name.to_owned(), value.to_owned()));
        self
    }

    /// In this working directory.
    #[must_use]
    pub fn in_directory(mut self, directory: &Path) -> Start {
        self.directory = Some(directory.to_owned());
        self
    }

    /// In this network namespace, which `ip netns` knows by this name. Only root may.
    #[must_use]
    pub fn in_namespace(mut self, name: &str) -> Start {
        self.namespace = Some(name.to_owned());
        self
    }

    /// Appends what the broker logs to this file, which outlives it.
    #[must_use]
    pub fn logging_to(mut self, file: &Path) -> Start {
        self.log = Some(file.to_owned());
        self
    }

    /// Starts the process and waits until it is ready.
    pub fn ready(&self) -> Result<BrokerProcess> {
        self.begin()?.ready(READY_PATIENCE)
    }

    /// Starts the process and does not wait.
    pub fn begin(&self) -> Result<Starting> {
        let names_port = self.arguments.iter().any(|a| a == "--kafka" || a == "--http");
        let port_zero: &[&str] = if names_port { &[] } else { &["--kafka", "127.0.0.1:0"] };
        let log = match &self.log {
            Some(file) => Log::Kept(file.clone()),
            None => Log::Temporary(TempDir::with_prefix("towpath-process-log-")?),
        };
        // May build the binary first, which is no part of a start.
        let mut command = self.to_command()?;
        let started = Instant::now();
        let mut child = command
            // How full the disk is that a test happens to run on is nothing that it tests.
            .envs(NO_WATERMARKS)
            .args(port_zero)
            .arg("--ready-json")
            .stdout(Stdio::piped())
            .stderr(File::options().append(true).create(true).open(log.file())?)
            .spawn()
            .context("the binary cannot be started")?;
        let stdout = child.stdout.take().context("stdout is piped")?;
        Ok(Starting { running: Running { child, log }, lines: lines_of(stdout), started })
    }

    /// Runs a command that ends by itself within `patience`, and gives back what it said.
    pub fn run(&self, patience: Duration) -> Result<Finished> {
        let output = TempDir::with_prefix("towpath-process-run-")?;
        let file = |name: &str| output.path().join(name);
        let child = self
            .to_command()?
            .stdout(File::create(file("stdout"))?)
            .stderr(File::create(file("stderr"))?)
            .spawn()
            .context("the binary cannot be started")?;
        let mut running = Running { child, log: Log::Temporary(TempDir::new()?) };
        let status = running.wait(patience).with_context(|| {
            let said = fs::read_to_string(file("stderr")).unwrap_or_default();
            format!("`towpath {}` did not end; it said:\n{said}", self.arguments.join(" "))
        })?;
        Ok(Finished {
            status,
            stdout: fs::read_to_string(file("stdout"))?,
            stderr: fs::read_to_string(file("stderr"))?,
        })
    }

    fn to_command(&self) -> Result<Command> {
        let mut command = match &self.namespace {
            None => Command::new(towpath_binary()?),
            Some(name) => {
                // It becomes the broker: the process id is the broker's.
                let mut enter = Command::new("nsenter");
                enter.arg(format!("--net=/run/netns/{name}")).arg(towpath_binary()?);
                enter
            }
        };
        command.args(&self.arguments).stdin(Stdio::null()).env("NO_COLOR", "1");
        // What the developer has set must not change what is tested.
        for (name, _) in std::env::vars().filter(|(name, _)| name.starts_with("TOWPATH_")) {
            command.env_remove(name);
        }
        command.envs(self.variables.iter().cloned());
        if let Some(directory) = &self.directory {
            command.current_dir(directory);
        }
        Ok(command)
    }
}

/// The lines of a pipe, read by a thread that ends with the pipe.
fn lines_of(pipe: impl std::io::Read + Send + 'static) -> Receiver<String> {
    let (tell, lines) = channel();
    thread::spawn(move || {
        for line in BufReader::new(pipe).lines().map_while(Result::ok) {
            // Nobody listens once the ready line was found; the pipe is drained all the same.
            let _ = tell.send(line);
        }
    });
    lines
}

/// A command that has ended.
#[derive(Debug)]
pub struct Finished {
    /// How.
    pub status: ExitStatus,
    /// What it wrote for programs.
    pub stdout: String,
    /// What it wrote for people.
    pub stderr: String,
}

/// Where a process logs.
#[derive(Debug)]
enum Log {
    Temporary(TempDir),
    Kept(PathBuf),
}

impl Log {
    fn file(&self) -> PathBuf {
        match self {
            Log::Temporary(directory) => directory.path().join("stderr"),
            Log::Kept(file) => file.clone(),
        }
    }
}

/// A process that is killed when nobody needs it any more.
#[derive(Debug)]
struct Running {
    child: Child,
    log: Log,
}

impl Drop for Running {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

impl Running {
    fn log(&self) -> String {
        let bytes = fs::read(self.log.file()).unwrap_or_default();
        String::from_utf8_lossy(&bytes).into_owned()
    }

    fn wait(&mut self, patience: Duration) -> Result<ExitStatus> {
        let deadline = Instant::now() + patience;
        loop {
            if let Some(status) = self.child.try_wait()? {
                return Ok(status);
            }
            if deadline <= Instant::now() {
                bail!("the process still runs after {patience:?}");
            }
            thread::sleep(Duration::from_millis(2));
        }
    }

    fn signal(&self, signal: Signal) -> Result<()> {
        Ok(kill_process(Pid::from_child(&self.child), signal)?)
    }

    fn kill(&mut self) -> Result<()> {
        self.child.kill()?;
        self.child.wait()?;
        Ok(())
    }
}

/// A broker that has been started and may not be ready yet.
#[derive(Debug)]
pub struct Starting {
    running: Running,
    lines: Receiver<String>,
    started: Instant,
}

impl Starting {
    /// Waits for the ready line.
    pub fn ready(mut self, patience: Duration) -> Result<BrokerProcess> {
        let deadline = self.started + patience;
        loop {
            let left = deadline.saturating_duration_since(Instant::now());
            match self.lines.recv_timeout(left) {
                Ok(line) => {
                    let Some(addresses) = ready_line(&line) else { continue };
                    let ready_after = self.started.elapsed();
                    return Ok(BrokerProcess { addresses, ready_after, running: self.running });
                }
                Err(RecvTimeoutError::Timeout) => {
                    bail!("not ready after {patience:?}; it said:\n{}", self.running.log());
                }
                Err(RecvTimeoutError::Disconnected) => {
                    let status = self.running.wait(Duration::from_secs(5))?;
                    bail!("{ENDED_EARLY} ({status}); it said:\n{}", self.running.log());
                }
            }
        }
    }

    /// Everything it has logged so far.
    pub fn log(&self) -> String {
        self.running.log()
    }

    /// Its process id.
    pub fn pid(&self) -> u32 {
        self.running.child.id()
    }

    /// Kills it with signal 9, ready or not.
    pub fn kill(mut self) -> Result<()> {
        self.running.kill()
    }
}

fn ready_line(line: &str) -> Option<Addresses> {
    let json: serde_json::Value = serde_json::from_str(line).ok()?;
    let address = |name: &str| json.get(name)?.as_str()?.parse().ok();
    Some(Addresses { kafka: address("kafka")?, http: address("http")? })
}

/// A broker that has said that it is ready. Killed when dropped.
#[derive(Debug)]
pub struct BrokerProcess {
    /// Where it listens.
    pub addresses: Addresses,
    /// Time from the start of the process to the ready line.
    pub ready_after: Duration,
    running: Running,
}

impl BrokerProcess {
    /// Its process id.
    pub fn pid(&self) -> u32 {
        self.running.child.id()
    }

    /// Everything it has logged so far.
    pub fn log(&self) -> String {
        self.running.log()
    }

    /// Waits until its log contains `text`.
    pub fn wait_for_log(&self, text: &str, patience: Duration) -> Result<String> {
        let deadline = Instant::now() + patience;
        loop {
            let log = self.log();
            if log.contains(text) {
                return Ok(log);
            }
            if deadline <= Instant::now() {
                bail!("the log does not say {text:?} after {patience:?}; it says:\n{log}");
            }
            thread::sleep(Duration::from_millis(5));
        }
    }

    /// What it costs right now.
    pub fn cost(&self) -> Result<Cost> {
        Cost::of(self.pid())
    }

    /// Fails when it has ended by itself.
    pub fn check_running(&mut self) -> Result<()> {
        match self.running.child.try_wait()? {
            None => Ok(()),
            Some(status) => bail!("the broker ended ({status}); it said:\n{}", self.log()),
        }
    }

    /// Stops it where it is, as a machine does that hangs for a while.
    pub fn pause(&self) -> Result<()> {
        self.running.signal(Signal::STOP)
    }

    /// Lets it go on after a pause.
    pub fn resume(&self) -> Result<()> {
        self.running.signal(Signal::CONT)
    }

    /// Kills it with signal 9: nothing is flushed, nobody is told.
    pub fn kill(mut self) -> Result<()> {
        self.check_running()?;
        self.running.kill()
    }

    /// Asks it to stop (SIGTERM) and waits. Returns how it ended and how long it took.
    pub fn terminate(mut self, patience: Duration) -> Result<(ExitStatus, Duration, String)> {
        self.check_running()?;
        let asked = Instant::now();
        self.running.signal(Signal::TERM)?;
        let status = self.running.wait(patience).with_context(|| self.log())?;
        Ok((status, asked.elapsed(), self.log()))
    }
}
