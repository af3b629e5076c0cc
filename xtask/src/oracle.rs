//! A real Kafka 4.4 to compare with: `cargo xtask oracle start|stop|classpath`.
//!
//! Kafka comes from the pom of `tests/clients/java` (broker, tools and all they need); nothing is
//! unpacked, the class path of the local Maven repository is run as it is. One combined node with its
//! data in `target/oracle`, formatted anew at each start, so that answers never depend on what ran
//! before. It stays up until `stop`; the process id lies in its directory.

use std::fs::{self, File};
use std::net::{SocketAddr, TcpStream};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail, ensure};

/// A cold JVM on two busy cores needs about ten seconds; a broker that takes longer has failed.
const START_WAIT: Duration = Duration::from_secs(60);
const STOP_WAIT: Duration = Duration::from_secs(20);

const USAGE: &str = "usage: cargo xtask oracle start [--port N] [--dir DIR] [--config KEY=VALUE]...
       cargo xtask oracle stop [--dir DIR]
       cargo xtask oracle classpath";

/// Runs one `oracle` command; `args` are the words after `oracle`.
///
/// # Errors
/// Unknown words, a missing `java` or `mvn`, and a broker that does not come up in time.
pub(crate) fn run(args: &[String]) -> Result<()> {
    let (command, rest) = args.split_first().context(USAGE)?;
    let options = Options::parse(rest)?;
    match command.as_str() {
        "start" => start(&options),
        "stop" => stop(&options.dir),
        "classpath" => {
            println!("{}", kafka_class_path()?);
            Ok(())
        }
        _ => bail!(USAGE),
    }
}

struct Options {
    port: u16,
    dir: PathBuf,
    configs: Vec<String>,
}

impl Options {
    fn parse(args: &[String]) -> Result<Options> {
        let mut options =
            Options { port: 29092, dir: root()?.join("target/oracle"), configs: Vec::new() };
        let mut words = args.iter();
        while let Some(word) = words.next() {
            let value = words.next().with_context(|| format!("{word} needs a value\n{USAGE}"))?;
            match word.as_str() {
                "--port" => options.port = value.parse().context("--port takes a number")?,
                "--dir" => options.dir = PathBuf::from(value),
                "--config" => {
                    ensure!(value.contains('='), "--config takes KEY=VALUE, not {value}");
                    options.configs.push(value.clone());
                }
                _ => bail!("unknown option {word}\n{USAGE}"),
            }
        }
        ensure!(options.port < u16::MAX, "the controller listens on the port above --port");
        Ok(options)
    }
}

/// The directory of the workspace, found from the one we were started in.
///
/// # Errors
/// When started outside of the repository.
pub(crate) fn root() -> Result<PathBuf> {
    let here = std::env::current_dir()?;
    here.ancestors()
        .find(|dir| dir.join(POM).is_file())
        .map(Path::to_path_buf)
        .context("run this inside the repository")
}

/// Names Kafka's version, for the broker as for the Java client.
const POM: &str = "tests/clients/java/pom.xml";

/// The class path of Kafka with its console tools, asked of Maven once and kept in `target`.
///
/// # Errors
/// When Maven is missing or cannot resolve the pom.
pub(crate) fn kafka_class_path() -> Result<String> {
    let root = root()?;
    class_path(&root.join(POM), &root.join("target/clients/java/classpath.txt"))
}

/// The class path of what a pom names, asked of Maven once and kept in `file`.
///
/// # Errors
/// When Maven is missing or cannot resolve the pom.
pub(crate) fn class_path(pom: &Path, file: &Path) -> Result<String> {
    let is_whole = |paths: String| paths.trim().split(':').all(|path| Path::new(path).exists());
    if is_older(file, pom) || !fs::read_to_string(file).is_ok_and(is_whole) {
        fs::create_dir_all(file.parent().expect("the path above has a parent"))?;
        let status = Command::new("mvn")
            .args(["-q", "-B", "-f"])
            .arg(pom)
            .arg("org.apache.maven.plugins:maven-dependency-plugin:3.8.1:build-classpath")
            .arg(format!("-Dmdep.outputFile={}", file.display()))
            .status()
            .with_context(|| format!("mvn is needed to fetch what {} names", pom.display()))?;
        ensure!(status.success(), "mvn could not resolve {}", pom.display());
    }
    Ok(fs::read_to_string(file)?.trim().to_string())
}

/// Whether `made` is missing or older than what it is made from.
pub(crate) fn is_older(made: &Path, source: &Path) -> bool {
    let modified = |path: &Path| fs::metadata(path).and_then(|m| m.modified());
    match (modified(made), modified(source)) {
        (Ok(made), Ok(source)) => made < source,
        _ => true,
    }
}

fn start(options: &Options) -> Result<()> {
    let bootstrap = SocketAddr::from(([127, 0, 0, 1], options.port));
    ensure!(TcpStream::connect(bootstrap).is_err(), "something already listens on {bootstrap}");
    let class_path = kafka_class_path()?;
    let dir = &options.dir;
    if dir.exists() {
        // Only a directory that an earlier start made is swept away.
        ensure!(
            dir.join("server.properties").exists() || fs::read_dir(dir)?.next().is_none(),
            "{} is not empty and was not made by this command",
            dir.display()
        );
        fs::remove_dir_all(dir)?;
    }
    fs::create_dir_all(dir)?;
    let properties = dir.join("server.properties");
    fs::write(&properties, server_properties(options))?;
    let logging = dir.join("log4j2.properties");
    fs::write(&logging, LOGGING)?;

    let java = |main: &str| {
        let mut command = Command::new("java");
        command
            .args(["-Xmx512m", "-XX:+UseSerialGC"])
            .arg(format!("-Dlog4j2.configurationFile={}", logging.display()))
            .args(["-cp", &class_path, main]);
        command
    };
    let formatted = java("kafka.tools.StorageTool")
        .args(["format", "--standalone", "--cluster-id", CLUSTER_ID, "-c"])
        .arg(&properties)
        .output()
        .context("java is needed to run Kafka")?;
    ensure!(
        formatted.status.success(),
        "formatting failed: {}{}",
        String::from_utf8_lossy(&formatted.stdout),
        String::from_utf8_lossy(&formatted.stderr)
    );

    let log = File::create(dir.join("broker.log"))?;
    let mut broker = java("kafka.Kafka")
        .arg(&properties)
        .stdin(Stdio::null())
        .stdout(log.try_clone()?)
        .stderr(log)
        .spawn()?;
    fs::write(dir.join("pid"), broker.id().to_string())?;
    let deadline = Instant::now() + START_WAIT;
    while TcpStream::connect(bootstrap).is_err() {
        if let Some(status) = broker.try_wait()? {
            bail!("Kafka ended ({status}), see {}", dir.join("broker.log").display());
        }
        if Instant::now() > deadline {
            let _ = broker.kill();
            bail!("Kafka did not listen in {START_WAIT:?}, see {}/broker.log", dir.display());
        }
        thread::sleep(Duration::from_millis(100));
    }
    println!("{bootstrap}");
    Ok(())
}

/// Any 16 bytes will do; a fixed one keeps answers comparable.
const CLUSTER_ID: &str = "AAAAAAAAAAAAAAAAAAAAAQ";

fn server_properties(options: &Options) -> String {
    let (port, controller) = (options.port, options.port + 1);
    let data = options.dir.join("data");
    let mut text = format!(
        "process.roles=broker,controller\n\
         node.id=1\n\
         controller.quorum.bootstrap.servers=127.0.0.1:{controller}\n\
         listeners=PLAINTEXT://127.0.0.1:{port},CONTROLLER://127.0.0.1:{controller}\n\
         advertised.listeners=PLAINTEXT://127.0.0.1:{port},CONTROLLER://127.0.0.1:{controller}\n\
         controller.listener.names=CONTROLLER\n\
         inter.broker.listener.name=PLAINTEXT\n\
         log.dirs={data}\n\
         offsets.topic.replication.factor=1\n\
         offsets.topic.num.partitions=4\n\
         transaction.state.log.replication.factor=1\n\
         transaction.state.log.min.isr=1\n\
         transaction.state.log.num.partitions=4\n\
         share.coordinator.state.topic.replication.factor=1\n\
         share.coordinator.state.topic.min.isr=1\n\
         group.initial.rebalance.delay.ms=0\n",
        data = data.display()
    );
    for config in &options.configs {
        text.push_str(config);
        text.push('\n');
    }
    text
}

const LOGGING: &str = "rootLogger.level=WARN
rootLogger.appenderRef.console.ref=console
appender.console.type=Console
appender.console.name=console
appender.console.layout.type=PatternLayout
appender.console.layout.pattern=[%d] %p %m (%c)%n
";

/// Stops the broker that `start` left in `dir`, and only that one.
fn stop(dir: &Path) -> Result<()> {
    let file = dir.join("pid");
    let pid = fs::read_to_string(&file)
        .with_context(|| format!("no broker was started in {}", dir.display()))?;
    if is_kafka(&pid) {
        Command::new("kill").arg(&pid).status()?;
        let deadline = Instant::now() + STOP_WAIT;
        while is_kafka(&pid) {
            if Instant::now() > deadline {
                Command::new("kill").args(["-9", &pid]).status()?;
                break;
            }
            thread::sleep(Duration::from_millis(100));
        }
    }
    fs::remove_file(file)?;
    Ok(())
}

/// A process id may have been given to someone else since; its command line tells.
fn is_kafka(pid: &str) -> bool {
    fs::read(format!("/proc/{pid}/cmdline"))
        .is_ok_and(|line| String::from_utf8_lossy(&line).contains("kafka.Kafka"))
}
