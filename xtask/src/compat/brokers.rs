//! The brokers that a suite talks to: one as on a laptop, or several that form a cluster.
//!
//! Those of a cluster stand at loopback addresses of their own, which follow from this process's id:
//! a broker that is stopped and started again finds its ports free, whatever else the machine does.

use std::fs::{self, File};
use std::net::{Ipv4Addr, SocketAddrV4};
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::sync::{Mutex, PoisonError};

use anyhow::{Context, Result};

use crate::product::{self, Product, Starting};

/// What brokers have to be told so that the suites find what they assume: topics that appear when
/// they are used have four partitions (librdkafka and kafka-python say so in their instructions).
const SETTINGS: &[&str] = &["num.partitions=4"];

/// What `dev` sets by itself and the brokers of a cluster do not.
const CLUSTER_SETTINGS: &[&str] = &[
    "auto.create.topics.enable=true",
    "group.initial.rebalance.delay.ms=0",
    "disk.reserve.bytes=0",
];

const KAFKA_PORT: u16 = 9092;
const PEER_PORT: u16 = 9094;
const HTTP_PORT: u16 = 8080;

/// What to start.
pub(super) struct Plan<'a> {
    /// The suite's directory, for the data and the logs.
    pub(super) made: &'a Path,
    /// One is `towpath dev`.
    pub(super) nodes: u8,
    /// Properties as `NAME=VALUE`, which win against what every suite gets.
    pub(super) settings: &'a [&'a str],
    /// More words on the command line of one broker of a cluster.
    pub(super) flags: &'a dyn Fn(u8) -> Vec<String>,
    /// Whether the data stays when all is over.
    pub(super) keeps_data: bool,
}

/// Running brokers, killed when dropped.
pub(super) struct Brokers {
    nodes: Vec<Node>,
    data: PathBuf,
    keeps_data: bool,
}

/// One of them: its command line outlives its process.
struct Node {
    arguments: Vec<String>,
    log: PathBuf,
    /// Where clients connect, whatever it advertises.
    kafka: String,
    running: Mutex<Option<Product>>,
}

impl Brokers {
    /// Builds and starts them, and waits until all are ready.
    ///
    /// # Errors
    /// A broker that does not become ready: its log, in the suite's directory, says why.
    pub(super) fn start(plan: &Plan) -> Result<Brokers> {
        product::build()?;
        let data = plan.made.join("data");
        if data.exists() {
            fs::remove_dir_all(&data)?;
        }
        let mut nodes: Vec<Node> = (1..=plan.nodes).map(|id| plan.node(id, &data)).collect();
        for node in &nodes {
            File::create(&node.log).with_context(|| node.log.display().to_string())?;
        }
        let starting: Vec<Starting> = nodes.iter().map(Node::begin).collect::<Result<_>>()?;
        for (node, starting) in nodes.iter_mut().zip(starting) {
            let product =
                starting.ready().with_context(|| format!("see {}", node.log.display()))?;
            if node.kafka.is_empty() {
                node.kafka.clone_from(&product.kafka);
            }
            *node.running.get_mut().unwrap_or_else(PoisonError::into_inner) = Some(product);
        }
        Ok(Brokers { nodes, data, keeps_data: plan.keeps_data })
    }

    /// Where clients connect: `HOST:PORT,HOST:PORT`, in the order of the brokers' numbers.
    pub(super) fn bootstrap(&self) -> String {
        self.nodes.iter().map(|node| node.kafka.as_str()).collect::<Vec<_>>().join(",")
    }

    /// Stops the broker of that number, which lets others lead first; does nothing if it is down.
    ///
    /// # Errors
    /// An unknown number, and a broker that cannot be told to stop.
    pub(super) fn stop(&self, id: u8) -> Result<()> {
        let node = self.node(id)?;
        let running = node.running.lock().unwrap_or_else(PoisonError::into_inner).take();
        running.map_or(Ok(()), Product::stop)
    }

    /// Starts the broker of that number again and waits until it is ready; does nothing if it is up.
    ///
    /// # Errors
    /// An unknown number, and a broker that does not become ready.
    pub(super) fn start_again(&self, id: u8) -> Result<()> {
        let node = self.node(id)?;
        let mut running = node.running.lock().unwrap_or_else(PoisonError::into_inner);
        if running.is_none() {
            *running = Some(node.begin()?.ready()?);
        }
        Ok(())
    }

    fn node(&self, id: u8) -> Result<&Node> {
        let at = usize::from(id).checked_sub(1);
        at.and_then(|at| self.nodes.get(at)).with_context(|| format!("there is no broker {id}"))
    }
}

impl Drop for Brokers {
    fn drop(&mut self) {
        self.nodes.clear();
        if !self.keeps_data {
            // Nothing depends on it: the next start sweeps, too.
            let _ = fs::remove_dir_all(&self.data);
        }
    }
}

impl Plan<'_> {
    fn node(&self, id: u8, data: &Path) -> Node {
        let is_alone = self.nodes == 1;
        let mut arguments = if is_alone { alone() } else { self.member(id) };
        let data = data.join(id.to_string());
        arguments.extend(["--data".to_owned(), data.display().to_string()]);
        let wide = if is_alone { &[] } else { CLUSTER_SETTINGS };
        let is_replaced = |setting: &str| {
            let name = setting.split_once('=').map_or(setting, |(name, _)| name);
            self.settings.iter().any(|own| own.split_once('=').is_some_and(|(own, _)| own == name))
        };
        let assumed = SETTINGS.iter().chain(wide).filter(|setting| !is_replaced(setting));
        for setting in assumed.chain(self.settings) {
            arguments.extend(["--set".to_owned(), (*setting).to_owned()]);
        }
        let log = self.made.join(log_name(self.nodes, id));
        let kafka = if is_alone { String::new() } else { at(id, KAFKA_PORT) };
        Node { arguments, log, kafka, running: Mutex::new(None) }
    }

    fn member(&self, id: u8) -> Vec<String> {
        let members = (1..=self.nodes).map(|id| format!("{id}@{}", at(id, PEER_PORT)));
        let members = members.collect::<Vec<_>>().join(",");
        let mut words: Vec<String> = ["serve", "--node-id", &id.to_string(), "--cluster", &members]
            .map(str::to_owned)
            .to_vec();
        let addresses = [("--kafka", KAFKA_PORT), ("--http", HTTP_PORT)];
        words.extend(addresses.iter().flat_map(|(flag, port)| [(*flag).to_owned(), at(id, *port)]));
        words.extend((self.flags)(id));
        words
    }
}

fn alone() -> Vec<String> {
    ["dev", "--kafka", "127.0.0.1:0"].map(str::to_owned).to_vec()
}

/// `broker.log`, or `broker-2.log` of several.
fn log_name(nodes: u8, id: u8) -> String {
    if nodes == 1 { "broker.log".to_owned() } else { format!("broker-{id}.log") }
}

/// An address of that broker; 127.0.0.0/8 is the machine itself.
fn at(id: u8, port: u16) -> String {
    let [_, _, high, low] = std::process::id().to_be_bytes();
    SocketAddrV4::new(Ipv4Addr::new(127, 128 | high & 0x7f, low, id), port).to_string()
}

impl Node {
    fn begin(&self) -> Result<Starting> {
        let log = File::options().append(true).open(&self.log)?;
        Product::begin(&self.arguments, Stdio::from(log))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_a_suite_sets_wins() {
        let plan = Plan {
            made: Path::new("made"),
            nodes: 3,
            settings: &["auto.create.topics.enable=false"],
            flags: &|id| vec!["--rack".to_owned(), format!("r{id}")],
            keeps_data: false,
        };
        let words = plan.node(2, Path::new("data")).arguments.join(" ");
        assert!(words.contains("--rack r2 --data data/2"), "{words}");
        assert!(words.contains("auto.create.topics.enable=false"), "{words}");
        assert!(!words.contains("auto.create.topics.enable=true"), "{words}");
    }
}
