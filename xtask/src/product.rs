//! The product as the tests run it: built with optimisation, on ports that it picks itself.

use std::ffi::OsStr;
use std::io::{BufRead, BufReader};
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::sync::mpsc;
use std::thread;
use std::time::Duration;

use anyhow::{Context, Result, bail};
use serde::Deserialize;

use crate::root;

/// A start takes milliseconds; a minute is for a machine that is busy with everything else.
const START_WAIT: Duration = Duration::from_secs(60);

/// A running broker; killed when dropped.
pub(crate) struct Product {
    child: Child,
    /// Where it listens for Kafka clients.
    pub(crate) kafka: String,
}

#[derive(Deserialize)]
struct Ready {
    kafka: String,
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

impl Product {
    /// Starts an ephemeral `dev` broker and waits until it is ready.
    pub(crate) fn start() -> Result<Product> {
        Product::start_with(["--ephemeral"], Stdio::inherit())
    }

    /// Starts a `dev` broker with these flags, which say where its data is; its log goes to `log`.
    pub(crate) fn start_with(
        flags: impl IntoIterator<Item = impl AsRef<OsStr>>,
        log: Stdio,
    ) -> Result<Product> {
        crate::test::cargo(&["build", "--release", "--package", "towpath"])?;
        let mut child = Command::new(binary())
            .args(["dev", "--kafka", "127.0.0.1:0", "--ready-json"])
            .args(flags)
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(log)
            .spawn()
            .context("the broker did not start")?;
        let stdout = child.stdout.take().context("the broker has no output")?;
        let (sender, receiver) = mpsc::channel();
        // Lives as long as the broker: somebody has to read what it prints.
        thread::spawn(move || {
            for line in BufReader::new(stdout).lines().map_while(Result::ok) {
                // After the first line nobody listens, and that is fine.
                let _ = sender.send(line);
            }
        });
        let Ok(line) = receiver.recv_timeout(START_WAIT) else {
            let _ = child.kill();
            bail!("the broker printed no ready line within {START_WAIT:?}");
        };
        let ready: Ready = serde_json::from_str(&line).context("the ready line")?;
        Ok(Product { child, kafka: ready.kafka })
    }
}

impl Drop for Product {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
