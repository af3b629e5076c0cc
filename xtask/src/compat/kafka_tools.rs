//! Kafka's own test programs and console tools, from Maven, as steps with an expected result.
//!
//! They are programs and not tests, so what to expect of each is ours: `tests/compat/kafka-tools/steps.py`.

use std::path::{Path, PathBuf};
use std::process::{Command, ExitStatus};
use std::time::Duration;

use anyhow::{Result, ensure};

use super::suite::{Outcome, Prepared, Suite};
use crate::clients::kit::{finish, with};
use crate::clients::program::last_lines;
use crate::oracle::{is_older, kafka_class_path};
use crate::root;

pub(super) const SUITE: Suite = Suite {
    name: "kafka-tools",
    needs: &["python3", "java", "javac", "mvn"],
    nodes: 1,
    at_once: 2,
    wait: Duration::from_secs(300),
    prepare,
};

struct KafkaTools {
    program: PathBuf,
    class_path: String,
}

fn prepare(made: &Path) -> Result<Box<dyn Prepared>> {
    let sources = root().join("tests/compat/kafka-tools");
    let kafka = kafka_class_path()?;
    let host = sources.join("Host.java");
    if is_older(&made.join("Host.class"), &host) {
        finish(with("javac", ["-cp", &kafka, "-d"]).arg(made).arg(&host))?;
    }
    let class_path = format!("{}:{kafka}", made.display());
    Ok(Box::new(KafkaTools { program: sources.join("steps.py"), class_path }))
}

impl Prepared for KafkaTools {
    fn tests(&self) -> Result<Vec<String>> {
        let output = with("python3", [&self.program]).arg("--list").output()?;
        ensure!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
        Ok(String::from_utf8(output.stdout)?.lines().map(str::to_owned).collect())
    }

    fn command(&self, test: &str, bootstrap: &str) -> Result<Command> {
        let mut command = with("python3", [&self.program]);
        command.arg(test).envs([("BOOTSTRAP", bootstrap), ("CLASSPATH", &self.class_path)]);
        Ok(command)
    }

    fn judge(&self, test: &str, status: ExitStatus, printed: &str) -> Vec<(String, Outcome)> {
        let outcome = if status.success() {
            Outcome::Passed
        } else {
            Outcome::Failed(last_lines(printed, 3))
        };
        vec![(test.to_owned(), outcome)]
    }
}
