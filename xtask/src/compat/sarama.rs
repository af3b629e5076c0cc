//! sarama's functional tests, from the Go module proxy: five brokers behind Shopify's toxiproxy, which
//! the tests tell to cut connections.
//!
//! Clients only ever meet the proxies, at the addresses that the tests know and the brokers advertise.
//! The suite wants to bring up its cluster with docker, and stops brokers and runs Kafka's tools by it:
//! `tests/compat/sarama/docker` stands in for it. The module's other tests run against its own mock and
//! say nothing about us.

use std::collections::BTreeSet;
use std::fs::{self, File};
use std::net::TcpStream;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitStatus, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Result, bail, ensure};

use super::go_module;
use super::kafka_scripts::script;
use super::suite::{Beside, Outcome, Prepared, Suite};
use crate::root;

pub(super) const SUITE: Suite = Suite {
    name: "sarama",
    needs: &["go", "bash", "java", "mvn"],
    nodes: 5,
    // They share their topics, and what one cuts off, the others miss.
    at_once: 1,
    wait: Duration::from_secs(150),
    prepare,
};

const MODULE: &str = "github.com/IBM/sarama@v1.61.1";
const TOXIPROXY: &str = "github.com/Shopify/toxiproxy/v2@v2.12.0";

/// Kafka's scripts that the tests call, and the classes behind them.
const SCRIPTS: &[(&str, &str)] = &[
    ("kafka-console-producer.sh", "org.apache.kafka.tools.ConsoleProducer"),
    ("kafka-console-consumer.sh", "org.apache.kafka.tools.consumer.ConsoleConsumer"),
    ("kafka-verifiable-consumer.sh", "org.apache.kafka.tools.VerifiableConsumer"),
];

/// What the tests believe they talk to: they leave out what their broker would not have.
const KAFKA_VERSION: &str = "4.4.0";

/// Where the tests look for toxiproxy.
const TOXIPROXY_ADDRESS: &str = "127.0.0.1:8474";
/// A start takes milliseconds.
const TOXIPROXY_WAIT: Duration = Duration::from_secs(20);

struct Sarama {
    made: PathBuf,
}

fn prepare(made: &Path) -> Result<Box<dyn Prepared>> {
    go_module::build(made, "sarama", MODULE, &|sources| {
        let mut build = go_module::go(sources);
        build.args(["test", "-c", "-vet=off", "-mod=mod", "-tags", "functional"]);
        build
    })?;
    go_module::build(made, "toxiproxy", TOXIPROXY, &|sources| {
        let mut build = go_module::go(&sources.join("cmd/server"));
        build.args(["build", "-mod=mod"]);
        build
    })?;
    for (name, class) in SCRIPTS {
        script(&made.join("kafka/bin"), name, class)?;
    }
    Ok(Box::new(Sarama { made: made.to_owned() }))
}

/// The address of the proxy before that broker, written into the tests.
fn proxy(broker: u8) -> String {
    format!("127.0.0.1:{}", 29090 + u16::from(broker))
}

impl Prepared for Sarama {
    /// The functions in the files that are built for functional tests only.
    fn tests(&self) -> Result<Vec<String>> {
        let mut tests = BTreeSet::new();
        for entry in fs::read_dir(self.made.join("sarama"))? {
            let file = entry?.path();
            if file.file_name().is_some_and(|name| name.as_encoded_bytes().ends_with(b"_test.go")) {
                tests.extend(functional_tests(&fs::read_to_string(file)?));
            }
        }
        Ok(tests.into_iter().collect())
    }

    /// As in the suite's `docker-compose.yml`.
    fn settings(&self, _test: &str) -> &'static [&'static str] {
        &["auto.create.topics.enable=false", "num.partitions=1"]
    }

    fn flags(&self, broker: u8) -> Vec<String> {
        ["--rack", &broker.to_string(), "--advertise-kafka", &proxy(broker)]
            .map(str::to_owned)
            .to_vec()
    }

    fn surround(&self, bootstrap: &str) -> Result<Option<Beside>> {
        ensure!(
            TcpStream::connect(TOXIPROXY_ADDRESS).is_err(),
            "something listens on {TOXIPROXY_ADDRESS}, where the tests expect toxiproxy"
        );
        let proxies: Vec<_> = (1..).zip(bootstrap.split(',')).map(proxy_entry).collect();
        let file = self.made.join("proxies.json");
        fs::write(&file, serde_json::to_string(&proxies)?)?;
        let log = File::create(self.made.join("toxiproxy.log"))?;
        let server = Command::new(go_module::binary(&self.made, "toxiproxy"))
            .args(["-host", "127.0.0.1", "-config"])
            .arg(&file)
            .stdin(Stdio::null())
            .stdout(log.try_clone()?)
            .stderr(log)
            .spawn()?;
        let server = Beside(server);
        let deadline = Instant::now() + TOXIPROXY_WAIT;
        while TcpStream::connect(TOXIPROXY_ADDRESS).is_err() {
            if deadline < Instant::now() {
                bail!("toxiproxy does not listen, see {}/toxiproxy.log", self.made.display());
            }
            thread::sleep(Duration::from_millis(20));
        }
        Ok(Some(server))
    }

    fn orders(&self) -> Option<PathBuf> {
        Some(self.made.join("orders"))
    }

    fn command(&self, test: &str, bootstrap: &str) -> Result<Command> {
        let first = bootstrap.split(',').next().unwrap_or(bootstrap);
        let stand_in = root().join("tests/compat/sarama");
        let path = std::env::var_os("PATH").unwrap_or_default();
        let path = std::iter::once(stand_in).chain(std::env::split_paths(&path));
        let mut command = Command::new(go_module::binary(&self.made, "sarama"));
        command
            .current_dir(self.made.join("sarama"))
            .args(["-test.v", "-test.run", &format!("^{test}$")])
            .env("PATH", std::env::join_paths(path)?)
            .env("KAFKA_VERSION", KAFKA_VERSION)
            .env("BOOTSTRAP", first)
            .env("KAFKA_BIN", self.made.join("kafka/bin"))
            .env("ORDERS", self.made.join("orders"))
            .env("LOGS", &self.made);
        Ok(command)
    }

    fn judge(&self, test: &str, status: ExitStatus, printed: &str) -> Vec<(String, Outcome)> {
        go_module::judge(test, status, printed)
    }
}

/// As in toxiproxy's configuration file.
fn proxy_entry((broker, upstream): (u8, &str)) -> serde_json::Value {
    serde_json::json!({
        "name": format!("kafka{broker}"),
        "listen": proxy(broker),
        "upstream": upstream,
        "enabled": true,
    })
}

/// The names of the tests in a Go source file, if it is built for functional tests only.
fn functional_tests(source: &str) -> Vec<String> {
    if !source.lines().any(|line| line == "//go:build functional") {
        return Vec::new();
    }
    let names = source.lines().filter_map(|line| line.strip_prefix("func Test")?.split_once('('));
    // Not TestMain, which Go calls around all others.
    names.filter(|(name, _)| *name != "Main").map(|(name, _)| format!("Test{name}")).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_functional_tests_count() {
        let text = "\npackage sarama\nfunc TestMain(m *testing.M) {}\nfunc TestA(t *testing.T) {\n";
        assert_eq!(functional_tests(&format!("//go:build functional\n{text}")), ["TestA"]);
        assert!(functional_tests(text).is_empty());
    }
}
