//! Real clients of Kafka and SQS against a broker: `cargo xtask clients`, or any broker with `--bootstrap HOST:PORT`,
//! and any server of SQS with `--sqs URL`.
//!
//! The programs lie in `tests/clients`; each prints `VERSION …` and one line `STEP name ok|fail detail` per
//! thing it tried. This module installs what they need under `target/clients` (never a system package),
//! runs them one after another, and adds up. It knows no client's business.
//!
//! A client whose language or program the machine lacks is skipped with the reason; whether that is
//! good enough is the caller's choice (`ci`).

use std::fs;
use std::path::Path;
use std::process::Command;

use anyhow::{Context, Result, bail, ensure};

use crate::oracle::root;

mod beside;
mod docs;
pub(crate) mod kit;
pub(crate) mod program;
mod servers;

use beside::Beside;
use kit::{Kit, is_on_path};
use program::{last_lines, lines};
pub(crate) use servers::Servers;
use servers::{HTTP, KAFKA, SQS};

const USAGE: &str = "usage: cargo xtask clients [--bootstrap HOST:PORT] [--sqs URL] [--only NAME] [--ci] [--write-docs]";

/// What one client did.
pub(crate) struct ClientReport {
    /// As in `CLIENTS`.
    pub(crate) name: &'static str,
    server: &'static str,
    /// As the client itself says; empty if it never got that far.
    pub(crate) version: String,
    /// In the order they ran.
    pub(crate) steps: Vec<Step>,
    /// Why it did not run at all.
    pub(crate) skipped: Option<String>,
}

/// One thing that a client tried.
pub(crate) struct Step {
    pub(crate) name: String,
    pub(crate) is_passed: bool,
    pub(crate) detail: String,
}

/// What all clients did.
pub(crate) struct Report {
    pub(crate) clients: Vec<ClientReport>,
    ci: bool,
}

impl Report {
    /// Whether every step of every client passed; in CI a skipped client is a failure too.
    pub(crate) fn is_passed(&self) -> bool {
        self.clients.iter().all(|client| match client.skipped {
            Some(_) => !self.ci,
            None => client.steps.iter().all(|step| step.is_passed),
        })
    }
}

/// Runs one `clients` command; `args` are the words after `clients`.
///
/// # Errors
/// Unknown words, a product that does not start, and any failed step (or, with `--ci`, any skipped client).
pub(crate) fn command(args: &[String]) -> Result<()> {
    let (mut bootstrap, mut sqs, mut only) = (None, None, None);
    let (mut ci, mut write_docs) = (false, false);
    let mut words = args.iter();
    while let Some(word) = words.next() {
        match word.as_str() {
            "--bootstrap" => bootstrap = Some(words.next().context(USAGE)?),
            "--sqs" => sqs = Some(words.next().context(USAGE)?),
            "--only" => only = Some(words.next().context(USAGE)?),
            "--ci" => ci = true,
            "--write-docs" => write_docs = true,
            _ => bail!(USAGE),
        }
    }
    ensure!(!(write_docs && only.is_some()), "--write-docs needs a run of all clients");
    let only = only.map(String::as_str);
    let servers = match (bootstrap, sqs) {
        (None, None) => Servers::start()?,
        (kafka, sqs) => Servers::others(kafka.map(String::as_str), sqs.map(String::as_str)),
    };
    let report = run(&servers, ci, only)?;
    if write_docs {
        docs::write(&root()?.join("docs/clients.md"), &report)?;
    }
    ensure!(report.is_passed(), "not all clients passed");
    Ok(())
}

/// Runs the clients whose name contains `filter`, or all, as far as the servers that they need are there.
///
/// Prints one line per step as it happens and one per client.
///
/// # Errors
/// When a filter matches nothing or no broker listens. What goes wrong with a client is in the report.
pub(crate) fn run(servers: &Servers, ci: bool, filter: Option<&str>) -> Result<Report> {
    let root = root()?;
    let chosen = CLIENTS.iter().filter(|client| servers.have(client.server));
    let chosen: Vec<&Client> =
        chosen.filter(|client| filter.is_none_or(|f| client.name.contains(f))).collect();
    ensure!(!chosen.is_empty(), "no client is called {}", filter.unwrap_or_default());
    servers.check()?;
    let mut report = Report { clients: Vec::new(), ci };
    for client in chosen {
        let done = client.run(&root, servers);
        println!("{}", summary(&done));
        report.clients.push(done);
    }
    Ok(report)
}

fn summary(client: &ClientReport) -> String {
    let ClientReport { name, version, steps, skipped, .. } = client;
    if let Some(reason) = skipped {
        return format!("client {name} skipped: {reason}");
    }
    let passed = steps.iter().filter(|step| step.is_passed).count();
    format!("client {name} {version}: {passed} steps passed, {} failed", steps.len() - passed)
}

struct Client {
    name: &'static str,
    /// The server that it needs.
    server: &'static str,
    kit: Kit,
    /// The program, relative to its kit's directory.
    program: &'static str,
}

const fn kafka(name: &'static str, kit: Kit, program: &'static str) -> Client {
    Client { name, server: KAFKA, kit, program }
}

const fn sqs(name: &'static str, kit: Kit, program: &'static str) -> Client {
    Client { name, server: SQS, kit, program }
}

const CLIENTS: &[Client] = &[
    kafka("kcat", Kit::System("kcat"), "kcat_client.py"),
    kafka("confluent-kafka", Kit::Python, "confluent_client.py"),
    kafka("kafka-python", Kit::Python, "kafka_python_client.py"),
    kafka("aiokafka", Kit::Python, "aiokafka_client.py"),
    kafka("kafkajs", Kit::Node, "kafkajs.mjs"),
    kafka("@platformatic/kafka", Kit::Node, "platformatic.mjs"),
    kafka("franz-go", Kit::Go, "franz"),
    kafka("sarama", Kit::Go, "sarama"),
    kafka("Java client", Kit::Java, "ClientTest.java"),
    kafka("console tools", Kit::JavaTools, "console_tools.py"),
    kafka("wire behaviour", Kit::Oracle, "check.py"),
    sqs("boto3", Kit::Python, "boto3_client.py"),
    sqs("botocore, Query", Kit::PythonWith("query-requirements.txt"), "botocore_query_client.py"),
    sqs("AWS SDK for Java 1", Kit::JavaSqs, "SqsV1"),
    sqs("AWS SDK for Java 2", Kit::JavaSqs, "SqsV2"),
    sqs("@aws-sdk/client-sqs", Kit::Node, "sqs.mjs"),
    sqs("AWS SDK for Go 2", Kit::Go, "sqs"),
    sqs("Celery", Kit::Python, "celery_client.py"),
    sqs("sqs-consumer", Kit::Node, "sqs_consumer.mjs"),
];

impl Client {
    fn run(&self, root: &Path, servers: &Servers) -> ClientReport {
        let mut report = ClientReport {
            name: self.name,
            server: self.server,
            version: String::new(),
            steps: Vec::new(),
            skipped: None,
        };
        if let Some(missing) = self.kit.needs().into_iter().find(|program| !is_on_path(program)) {
            report.skipped = Some(format!("{missing} is not installed"));
            return report;
        }
        match self.kit.command(root, self.program) {
            Ok(mut command) => {
                command.envs(servers.variables());
                if let Err(error) = self.follow(root, servers, command, &mut report) {
                    report.push("program", false, format!("{error:#}"));
                }
            }
            Err(error) => report.skipped = Some(format!("{error:#}")),
        }
        report
    }

    /// Reads the program's lines until it ends, and checks what they announce.
    fn follow(
        &self,
        root: &Path,
        servers: &Servers,
        mut command: Command,
        report: &mut ClientReport,
    ) -> Result<()> {
        let log = root.join("target/clients").join(format!("{}.log", self.program));
        let (mut topic, mut worker) = (None, None);
        let status = lines(&mut command, &log, |line| match line.split_once(' ') {
            Some(("VERSION", version)) => report.version = version.to_string(),
            Some(("TOPIC", words)) => topic = words.split_once(' ').map(owned),
            Some(("QUEUE", topic)) if servers.have(HTTP) => {
                worker = Some(Beside::start(root, servers, "queue_worker.py", &[topic]));
            }
            Some(("STEP", words)) => report.push_line(words),
            _ => {}
        })?;
        let stored = topic.map(|(topic, codecs): (String, String)| {
            Beside::start(root, servers, "stored.py", &[&topic, &codecs])
        });
        for beside in worker.into_iter().chain(stored) {
            for words in beside.steps()? {
                report.push_line(&words);
            }
        }
        let said = last_lines(&fs::read_to_string(&log).unwrap_or_default(), 3);
        ensure!(!report.steps.is_empty(), "ended ({status}) before its first step: {said}");
        ensure!(
            status.success() || report.steps.iter().any(|step| !step.is_passed),
            "ended ({status}) after {}: {said}",
            report.steps.last().map_or("nothing", |step| &step.name)
        );
        Ok(())
    }
}

impl ClientReport {
    fn push_line(&mut self, words: &str) {
        let mut words = words.splitn(3, ' ');
        let mut next = || words.next().unwrap_or_default().to_string();
        let (name, result, detail) = (next(), next(), next());
        self.push(&name, result == "ok", detail);
    }

    fn push(&mut self, name: &str, is_passed: bool, detail: String) {
        let result = if is_passed { "ok" } else { "fail" };
        println!("  {}: {name} {result} {detail}", self.name);
        self.steps.push(Step { name: name.to_string(), is_passed, detail });
    }
}

fn owned((left, right): (&str, &str)) -> (String, String) {
    (left.to_string(), right.to_string())
}
