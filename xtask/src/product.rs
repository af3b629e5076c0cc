//! The product as the tests run it: built with optimisation, on ports that it picks itself.

use std::ffi::OsStr;
use std::io::{BufRead, BufReader};
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::sync::mpsc::{self, Receiver};
use std::thread;
use std::time::Duration;

use anyhow::{Context, Result, bail, ensure};
use serde::Deserialize;

use crate::root;

/// A start takes milliseconds; a minute is for a machine that is busy with everything else.
const START_WAIT: Duration = Duration::from_secs(60);

/// A running broker; killed when dropped.
pub(crate) struct Product {
    child: Child,
    /// Where it listens for Kafka clients.
    pub(crate) kafka: String,
    /// And for HTTP.
    pub(crate) http: String,
    /// And for clients of SQS alone, if anywhere.
    pub(crate) sqs: Option<String>,
}

#[derive(Deserialize)]
struct Ready {
    kafka: String,
    http: String,
    sqs: Option<String>,
}

/// Where cargo puts what it builds.
pub(crate) fn target() -> PathBuf {
    let target = std::env::var_os("CARGO_TARGET_DIR");
    target.map_or_else(|| root().join("target"), PathBuf::from)
}

/// Where cargo puts the optimised binary.
pub(crate) fn binary() -> PathBuf {
    target().join("release/towpath")
}

/// A broker that is not ready yet: those of a cluster wait for each other.
pub(crate) struct Starting {
    /// Without its address.
    product: Product,
    lines: Receiver<String>,
}

/// Builds the product with optimisation.
pub(crate) fn build() -> Result<()> {
    crate::test::cargo(&["build", "--release", "--package", "towpath"])
}

impl Product {
    /// Builds and starts an ephemeral `dev` broker and waits until it is ready.
    pub(crate) fn start() -> Result<Product> {
        Product::start_with(&[])
    }

    /// The same with more arguments.
    pub(crate) fn start_with(more: &[&OsStr]) -> Result<Product> {
        build()?;
        let listeners =
            ["--kafka", "--http", "--sqs"].into_iter().flat_map(|flag| [flag, "127.0.0.1:0"]);
        let words = ["dev", "--ephemeral"].into_iter().chain(listeners).map(OsStr::new);
        Product::begin(words.chain(more.iter().copied()), Stdio::inherit())?.ready()
    }

    /// Starts what was built with this command line, and does not wait; its log goes to `log`.
    pub(crate) fn begin(
        arguments: impl IntoIterator<Item = impl AsRef<OsStr>>,
        log: Stdio,
    ) -> Result<Starting> {
        let mut child = Command::new(binary())
            .args(arguments)
            .arg("--ready-json")
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(log)
            .spawn()
            .context("the broker did not start")?;
        let stdout = child.stdout.take().context("the broker has no output")?;
        let (sender, lines) = mpsc::channel();
        // Lives as long as the broker: somebody has to read what it prints.
        thread::spawn(move || {
            for line in BufReader::new(stdout).lines().map_while(Result::ok) {
                // After the first line nobody listens, and that is fine.
                let _ = sender.send(line);
            }
        });
        Ok(Starting {
            product: Product { child, kafka: String::new(), http: String::new(), sqs: None },
            lines,
        })
    }

    /// Asks it to stop, as an operator does, and waits until it has.
    pub(crate) fn stop(mut self) -> Result<()> {
        let status = Command::new("kill").arg(self.child.id().to_string()).status()?;
        ensure!(status.success(), "the broker cannot be told to stop");
        self.child.wait()?;
        Ok(())
    }
}

impl Starting {
    /// Waits until it is ready.
    pub(crate) fn ready(mut self) -> Result<Product> {
        let Ok(line) = self.lines.recv_timeout(START_WAIT) else {
            bail!("the broker printed no ready line within {START_WAIT:?}");
        };
        let ready: Ready = serde_json::from_str(&line).context("the ready line")?;
        let Ready { kafka, http, sqs } = ready;
        (self.product.kafka, self.product.http, self.product.sqs) = (kafka, http, sqs);
        Ok(self.product)
    }
}

impl Drop for Product {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
