//! RabbitMQ: one node, without plugins.

use std::fs;
use std::path::Path;
use std::process::Command;

use anyhow::{Context, Result};

use super::path_text;
use crate::broker::free_port;

/// Where Debian keeps the script that runs it as whoever calls.
const SERVER: &str = "/usr/lib/rabbitmq/bin/rabbitmq-server";

pub(super) fn command(home: &Path, port: u16) -> Result<Command> {
    fs::write(home.join("plugins"), "[].\n")?;
    let mut command = Command::new(SERVER);
    command
        .env("HOME", home)
        .env("RABBITMQ_NODENAME", format!("bench{port}@localhost"))
        .env("RABBITMQ_NODE_IP_ADDRESS", "127.0.0.1")
        .env("RABBITMQ_NODE_PORT", port.to_string())
        .env("RABBITMQ_DIST_PORT", free_port()?.to_string())
        .env("RABBITMQ_MNESIA_BASE", path_text(&home.join("data")))
        .env("RABBITMQ_LOG_BASE", path_text(&home.join("log")))
        .env("RABBITMQ_ENABLED_PLUGINS_FILE", path_text(&home.join("plugins")));
    Ok(command)
}

/// The virtual machine that the script has started.
pub(super) fn machine_of(script: u32) -> Result<u32> {
    let mut wanted = vec![script];
    let mut parents = Vec::new();
    for entry in fs::read_dir("/proc")?.flatten() {
        let Ok(pid) = entry.file_name().to_string_lossy().parse::<u32>() else { continue };
        let Ok(stat) = fs::read_to_string(entry.path().join("stat")) else { continue };
        let (Some(name), Some((_, rest))) = (
            stat.split_once('(').and_then(|(_, rest)| rest.split_once(')')).map(|(name, _)| name),
            stat.rsplit_once(") "),
        ) else {
            continue;
        };
        let parent = rest.split(' ').nth(1).and_then(|parent| parent.parse().ok()).unwrap_or(0);
        parents.push((pid, parent, name.to_owned()));
    }
    while let Some(parent) = wanted.pop() {
        for (pid, of, name) in &parents {
            if *of == parent {
                if name == "beam.smp" {
                    return Ok(*pid);
                }
                wanted.push(*pid);
            }
        }
    }
    parents
        .iter()
        .find(|(pid, _, name)| *pid == script && name == "beam.smp")
        .map(|(pid, ..)| *pid)
        .context("RabbitMQ has started no virtual machine")
}
