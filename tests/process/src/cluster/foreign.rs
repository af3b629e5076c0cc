//! A client of another project under the same moves: franz-go with default settings
//! (`tests/clients/go/steady`).

use std::io::{BufRead, BufReader};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::thread::{self, JoinHandle};

use anyhow::{Context, Result, ensure};

use super::node::NODES;
use super::round::Round;
use super::tool;
use crate::history::Place;
use crate::load::Load;

/// What it writes to.
const TOPIC: &str = "foreign";
const PARTITIONS: i32 = 6;

/// The client at work. Killed when dropped.
#[derive(Debug)]
pub(super) struct Foreign {
    process: Child,
    listening: Option<JoinHandle<()>>,
}

/// Its partitions.
pub(super) fn places() -> impl Iterator<Item = Place> {
    (0..PARTITIONS).map(|partition| Place::new(TOPIC, partition))
}

/// Whether it writes to a partition.
pub(super) fn is_its(place: &Place) -> bool {
    place.topic == TOPIC
}

impl Foreign {
    /// Builds it, creates its topic and starts it. `None`: there is no Go here.
    pub(super) fn begin(round: &Round) -> Result<Option<Foreign>> {
        if tool::missing(&["go"]).is_some() {
            println!("skipped  franz-go: go is not installed");
            return Ok(None);
        }
        let program = round.nodes.rig.directory().join("steady");
        let sources = Path::new(env!("CARGO_MANIFEST_DIR")).join("../clients/go");
        let mut build = Command::new("go");
        build.current_dir(sources).env("GOTOOLCHAIN", "local").args(["build", "-mod=readonly"]);
        let built = build.arg("-o").arg(&program).arg("./steady").status()?;
        ensure!(built.success(), "go build ./steady: {built}");
        let mut connection = round.nodes.connect(NODES[0])?;
        connection.create_replicated_topic(TOPIC, PARTITIONS, 3, &[])?;
        let mut process = Command::new(program)
            .env("BOOTSTRAP", round.nodes.servers())
            .env("TOPIC", TOPIC)
            .env("PARTITIONS", PARTITIONS.to_string())
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()?;
        let told = BufReader::new(process.stdout.take().context("stdout is piped")?);
        let load = Arc::clone(&round.load);
        let listening = Some(thread::spawn(move || listen(told, &load)));
        Ok(Some(Foreign { process, listening }))
    }

    /// Lets it end, and fails when it gave anything up.
    pub(super) fn end(mut self) -> Result<()> {
        drop(self.process.stdin.take());
        let status = self.process.wait()?;
        ensure!(status.success(), "franz-go with default settings gave up: {status}");
        if let Some(listening) = self.listening.take() {
            ensure!(listening.join().is_ok(), "what franz-go says cannot be read");
        }
        Ok(())
    }
}

impl Drop for Foreign {
    fn drop(&mut self) {
        // It may have ended.
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

/// A line is the number of a partition that has acknowledged something.
fn listen(told: impl BufRead, load: &Load) {
    for line in told.lines().map_while(Result::ok) {
        if let Ok(partition) = line.parse() {
            load.acked_elsewhere(&Place::new(TOPIC, partition));
        }
    }
}
