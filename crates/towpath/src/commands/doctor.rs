//! `towpath doctor connect`: dials a cluster the way clients do, in two steps, and names the step
//! that fails. The second step is the one people trip over: a client asks one address for the
//! cluster, and then dials the addresses that the cluster advertises.

use std::time::Duration;

use clap::{Args, Subcommand};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpStream, lookup_host};
use tokio::time::{Instant, timeout};
use towpath_client::{
    ClientConfig, Cluster, Connection, Error, join_address, recognise, split_address,
};

use crate::cli::Global;
use crate::failure::{Exit, Failure, Outcome};
use crate::output::{Cell, Format, Report, Table, write_out};
use crate::session::use_color;

/// The verbs of `doctor`.
#[derive(Debug, Subcommand)]
pub(crate) enum DoctorCommand {
    /// Find out why clients cannot connect
    Connect(ConnectArgs),
}

/// Flags of `doctor connect`.
#[derive(Debug, Args)]
pub(crate) struct ConnectArgs {
    /// What clients are given as their server; -s if not given
    #[arg(value_name = "HOST:PORT")]
    address: Option<String>,
}

/// One thing that was tried.
struct Step {
    name: &'static str,
    target: String,
    took: Duration,
    outcome: Result<String, Problem>,
}

struct Problem {
    what: String,
    /// What to set or do.
    remedy: String,
}

pub(crate) async fn run(global: &Global, command: DoctorCommand) -> Outcome {
    let DoctorCommand::Connect(args) = command;
    let address = args.address.as_deref().unwrap_or(&global.server);
    let (host, port) = split_address(address)?;
    let mut config = ClientConfig::new(address)?;
    config.request_timeout = global.timeout;
    config.connect_timeout = config.connect_timeout.min(global.timeout);
    let steps = examine(host, port, &config).await;
    print(global, &steps)?;
    let failed: Vec<&Step> = steps.iter().filter(|step| step.outcome.is_err()).collect();
    let Some(step) = failed.first() else { return Ok(Exit::Ok) };
    let Err(problem) = &step.outcome else { return Ok(Exit::Ok) };
    let mut failure = Failure::new(format!("{} {}: {}", step.name, step.target, problem.what))
        .with_help(problem.remedy.clone());
    failure.exit = Exit::Unreachable;
    failure.code = "CONNECT".to_owned();
    Err(failure)
}

async fn examine(host: &str, port: u16, config: &ClientConfig) -> Vec<Step> {
    let address = join_address(host, port);
    let mut steps = Vec::new();
    let mut note = |name, target: &str, started: Instant, outcome: Result<String, Problem>| {
        let is_ok = outcome.is_ok();
        steps.push(Step { name, target: target.to_owned(), took: started.elapsed(), outcome });
        is_ok
    };

    let started = Instant::now();
    if !note("resolve", host, started, resolve(host, port).await) {
        return steps;
    }
    let started = Instant::now();
    if !note("connect", &address, started, connect(&address, config).await) {
        return steps;
    }
    let started = Instant::now();
    let opened = Connection::open(&address, config).await;
    let spoke = match &opened {
        Ok(_) => Ok("speaks the Kafka protocol".to_owned()),
        Err(error) => Err(protocol_problem(&address, error).await),
    };
    if !note("protocol", &address, started, spoke) {
        return steps;
    }
    let started = Instant::now();
    let cluster = Cluster::connect(config.clone()).await;
    let listed = match &cluster {
        Ok(cluster) => listing(cluster),
        Err(error) => Err(Problem {
            what: error.to_string(),
            remedy: "the server answers, but not this question: look into its log".to_owned(),
        }),
    };
    if !note("metadata", &address, started, listed) {
        return steps;
    }
    let brokers = cluster.map(|cluster| cluster.image().brokers.clone()).unwrap_or_default();
    for broker in brokers.values() {
        let advertised = broker.address();
        let started = Instant::now();
        let dialled = advertised_step(&address, &advertised, broker.id.0, config).await;
        note("advertised", &advertised, started, dialled);
    }
    steps
}

async fn resolve(host: &str, port: u16) -> Result<String, Problem> {
    match lookup_host((host, port)).await {
        Ok(found) => {
            let mut found: Vec<String> = found.map(|address| address.ip().to_string()).collect();
            found.dedup();
            Ok(found.join(", "))
        }
        Err(error) => Err(Problem {
            what: error.to_string(),
            remedy: format!(
                "{host} is not known to this machine: check the spelling, DNS, /etc/hosts"
            ),
        }),
    }
}

async fn connect(address: &str, config: &ClientConfig) -> Result<String, Problem> {
    match timeout(config.connect_timeout, TcpStream::connect(address)).await {
        Ok(Ok(_)) => Ok("accepts connections".to_owned()),
        Ok(Err(error)) if error.kind() == std::io::ErrorKind::ConnectionRefused => Err(Problem {
            what: "nobody listens there (connection refused)".to_owned(),
            remedy:
                "start the server, check the port, and that it listens on this address and not \
                     on another one of its machine (`--kafka ADDR`)"
                    .to_owned(),
        }),
        Ok(Err(error)) => Err(Problem {
            what: error.to_string(),
            remedy: "there is no way to that machine: check network and firewall".to_owned(),
        }),
        Err(_) => Err(Problem {
            what: format!("no answer within {:?}", config.connect_timeout),
            remedy: "something drops the packets on the way: check firewalls and security groups"
                .to_owned(),
        }),
    }
}

/// Why it does not speak Kafka; where the error does not tell, it is asked in other languages.
async fn protocol_problem(address: &str, error: &Error) -> Problem {
    let looks_like = match error {
        Error::NotKafka { looks_like, .. } => Some(*looks_like),
        _ => probe(address).await,
    };
    let (what, remedy) = match looks_like {
        Some(kind) if kind.contains("TLS") => (
            "a TLS listener answers".to_owned(),
            "use the plaintext listener, or give the client its TLS settings (security.protocol=SSL)".to_owned(),
        ),
        Some(kind) if kind.contains("HTTP") => (
            "an HTTP server answers".to_owned(),
            "this is the port for HTTP (8080 by default): Kafka clients want the other one, 9092 by default".to_owned(),
        ),
        Some(kind) => (format!("{kind} answers"), "name the Kafka listener, 9092 by default".to_owned()),
        None => (
            error.to_string(),
            "it accepts connections but does not answer ApiVersions: it may want TLS or SASL, be \
             another service, or be a proxy without a server behind it"
                .to_owned(),
        ),
    };
    Problem { what, remedy }
}

/// Says hello in HTTP and in TLS, and looks what comes back.
async fn probe(address: &str) -> Option<&'static str> {
    /// A ClientHello of TLS 1.2 without extensions: enough to be refused in TLS.
    const CLIENT_HELLO: [u8; 50] = {
        let mut hello = [0; 50];
        let head = [0x16, 3, 1, 0, 45, 1, 0, 0, 41, 3, 3];
        let tail = [0, 0, 2, 0x00, 0x2f, 1, 0];
        let mut at = 0;
        while at < head.len() {
            hello[at] = head[at];
            at += 1;
        }
        let mut at = 0;
        while at < tail.len() {
            hello[43 + at] = tail[at];
            at += 1;
        }
        hello
    };
    for greeting in [&b"GET / HTTP/1.0\r\n\r\n"[..], &CLIENT_HELLO] {
        let asking = async {
            let mut stream = TcpStream::connect(address).await.ok()?;
            stream.write_all(greeting).await.ok()?;
            let mut first = [0; 8];
            let count = stream.read(&mut first).await.ok()?;
            recognise(&first[..count])
        };
        if let Ok(Some(kind)) = timeout(Duration::from_secs(2), asking).await {
            return Some(kind);
        }
    }
    None
}

fn listing(cluster: &Cluster) -> Result<String, Problem> {
    let image = cluster.image();
    if image.brokers.is_empty() {
        return Err(Problem {
            what: "the cluster lists no broker".to_owned(),
            remedy: "it is still starting, or all brokers are fenced: look into its log".to_owned(),
        });
    }
    let brokers = image.brokers.values().map(towpath_client::Broker::address);
    Ok(format!("advertises {}", brokers.collect::<Vec<_>>().join(", ")))
}

async fn advertised_step(
    asked: &str,
    advertised: &str,
    id: i32,
    config: &ClientConfig,
) -> Result<String, Problem> {
    let failure = match Connection::open(advertised, config).await {
        Ok(_) => return Ok(format!("broker {id} answers there")),
        Err(error) => error,
    };
    let same_port = asked.rsplit_once(':').map_or("9092", |(_, port)| port);
    Err(Problem {
        what: format!(
            "the cluster tells clients to go there for broker {id}, and there: {failure}"
        ),
        remedy: format!(
            "set the address that clients can reach: `--advertise-kafka HOST:{same_port}` for towpath, \
             `advertised.listeners` for Kafka. {asked} itself can be reached from here"
        ),
    })
}

fn print(global: &Global, steps: &[Step]) -> Outcome<()> {
    let format = Format::or_by_terminal(global.output);
    let mut table = Table::new("steps", &["step", "target", "ok", "ms", "detail"]);
    for step in steps {
        let (is_ok, detail) = match &step.outcome {
            Ok(detail) => (true, detail.clone()),
            Err(problem) => (false, problem.what.clone()),
        };
        table.row(vec![
            step.name.into(),
            step.target.as_str().into(),
            is_ok.into(),
            Cell::from(u64::try_from(step.took.as_millis()).unwrap_or(u64::MAX)),
            detail.into(),
        ]);
    }
    let color = use_color(global, &std::io::stdout());
    write_out(Report::new().table(table).render(format, color).as_bytes())?;
    Ok(())
}
