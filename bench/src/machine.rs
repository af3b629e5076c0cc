//! The machine: which CPU does what, how quiet it is, and what it is called.

use std::fs;
use std::io::Write;
use std::path::Path;
use std::process::Command;
use std::time::{Duration, Instant};

use anyhow::{Context, Result};
use rustix::thread::{CpuSet, sched_setaffinity};
use serde::{Deserialize, Serialize};
use towpath_process::Cost;

/// The CPU of both brokers: one of them is idle while the other is measured.
pub(crate) const BROKER_CPU: usize = 0;
/// The CPU of every client.
pub(crate) const CLIENT_CPU: usize = 1;

/// Above this share of one CPU, spent by others, a pair is called noisy.
const FOREIGN_CPU_MAX: f64 = 0.25;
/// Above this share of the machine's time, taken by its host, a pair is called noisy.
const STEAL_MAX: f64 = 0.02;
/// Kernel clock ticks per second in `/proc`.
const TICKS_PER_S: f64 = 100.0;

/// Puts this thread, and the processes it will start, on one CPU.
pub(crate) fn pin(cpu: usize) -> Result<()> {
    let mut set = CpuSet::new();
    set.set(cpu);
    sched_setaffinity(None, &set).with_context(|| format!("cannot run on CPU {cpu}"))
}

/// Asks for more weight than other sessions have. Where that is not allowed, it is measured all
/// the same: the report tells how busy the machine was.
pub(crate) fn take_priority() {
    let _ = fs::write("/proc/self/autogroup", "-10");
}

/// Writes and removes `bytes`: the first touch of a page that a virtual machine's host has not
/// given yet costs several times an ordinary write.
pub(crate) fn warm_memory(directory: &Path, bytes: u64) -> Result<()> {
    let path = directory.join("warm-up");
    let mut file = fs::File::create(&path)?;
    let chunk = vec![1_u8; 1 << 20];
    for _ in 0..bytes >> 20 {
        file.write_all(&chunk)?;
    }
    drop(file);
    fs::remove_file(path)?;
    Ok(())
}

/// What disturbed a measurement.
#[derive(Debug, Clone, Copy, Default, Serialize, Deserialize)]
pub(crate) struct Noise {
    /// CPU time per second of wall time that neither broker nor client used.
    pub(crate) foreign_cpus: f64,
    /// Share of the machine's CPU time that its host took.
    pub(crate) steal: f64,
    /// The one-minute load average at the end.
    pub(crate) load: f64,
}

impl Noise {
    pub(crate) fn is_loud(&self) -> bool {
        FOREIGN_CPU_MAX < self.foreign_cpus || STEAL_MAX < self.steal
    }
}

/// A look at the counters of the whole machine.
pub(crate) struct Look {
    at: Instant,
    busy: f64,
    steal: f64,
    all: f64,
}

impl Look {
    pub(crate) fn now() -> Look {
        let (busy, steal, all) = cpu_times().unwrap_or_default();
        Look { at: Instant::now(), busy, steal, all }
    }

    /// What happened since, beside `ours` of CPU time.
    pub(crate) fn noise_since(&self, ours: Duration) -> Noise {
        let now = Look::now();
        let wall = (now.at - self.at).as_secs_f64().max(0.001);
        let foreign = (now.busy - self.busy) / TICKS_PER_S - ours.as_secs_f64();
        Noise {
            foreign_cpus: (foreign / wall).max(0.0),
            steal: (now.steal - self.steal) / (now.all - self.all).max(1.0),
            load: load_average(),
        }
    }
}

/// Ticks of all CPUs together: busy ones, stolen ones, all.
fn cpu_times() -> Option<(f64, f64, f64)> {
    let stat = fs::read_to_string("/proc/stat").ok()?;
    let fields: Vec<f64> =
        stat.lines().next()?.split_whitespace().skip(1).filter_map(|f| f.parse().ok()).collect();
    let [user, nice, system, idle, waiting, interrupts, soft, steal, ..] = fields[..] else {
        return None;
    };
    let busy = user + nice + system + interrupts + soft;
    Some((busy, steal, busy + idle + waiting + steal))
}

fn load_average() -> f64 {
    let text = fs::read_to_string("/proc/loadavg").unwrap_or_default();
    text.split_whitespace().next().and_then(|first| first.parse().ok()).unwrap_or(f64::NAN)
}

/// CPU time of the clients: this process and those that it has waited for.
pub(crate) fn own_cpu() -> Duration {
    let own = Cost::of(std::process::id()).map(|cost| cost.cpu).unwrap_or_default();
    own + Duration::from_secs_f64(ended_children().unwrap_or(0.0) / TICKS_PER_S)
}

/// Ticks of children that have ended; the command, in parentheses, may contain blanks.
fn ended_children() -> Option<f64> {
    let stat = fs::read_to_string("/proc/self/stat").ok()?;
    let (_, rest) = stat.rsplit_once(')')?;
    let fields: Vec<&str> = rest.split_whitespace().collect();
    Some(fields.get(13)?.parse::<f64>().ok()? + fields.get(14)?.parse::<f64>().ok()?)
}

/// Names of the things that figures depend on.
pub(crate) fn describe(data: &Path, commit: &str) -> Vec<(&'static str, String)> {
    let cpu = fs::read_to_string("/proc/cpuinfo").unwrap_or_default();
    let model = cpu.lines().find_map(|line| line.strip_prefix("model name"));
    let count = cpu.lines().filter(|line| line.starts_with("processor")).count();
    let memory = fs::read_to_string("/proc/meminfo").unwrap_or_default();
    let said = |program: &str, arguments: &[&str]| {
        let output = Command::new(program).args(arguments).output().ok()?;
        Some(String::from_utf8_lossy(&output.stdout).trim().replace('\n', "; "))
    };
    let unknown = || "unknown".to_owned();
    vec![
        ("commit", commit.to_owned()),
        (
            "CPU",
            format!(
                "{} × {}",
                count,
                model.unwrap_or("unknown").trim_start_matches([' ', '\t', ':'])
            ),
        ),
        ("memory", memory.lines().next().unwrap_or_default().to_owned()),
        ("kernel", said("uname", &["-r"]).unwrap_or_else(unknown)),
        (
            "file system",
            said("findmnt", &["-n", "-o", "FSTYPE,OPTIONS", "-T", &data.to_string_lossy()])
                .unwrap_or_else(unknown),
        ),
        ("Java", said("java", &["--version"]).unwrap_or_else(unknown)),
        ("load at the end", format!("{:.2}", load_average())),
        ("Towpath", "towpath serve --kafka 127.0.0.1:PORT --http 127.0.0.1:PORT --data DIR".into()),
        ("Kafka", format!("java {} kafka.Kafka server.properties", crate::broker::JVM_OPTIONS)),
        ("command", shown_command(std::env::args().skip(1))),
    ]
}

/// What somebody typed, without what the command adds for this machine.
fn shown_command(args: impl Iterator<Item = String>) -> String {
    let mut shown = vec!["cargo xtask bench".to_owned()];
    let (mut rest, mut saves) = (Vec::new(), false);
    let mut args = args.peekable();
    while let Some(arg) = args.next() {
        match arg.as_str() {
            "--towpath" | "--commit" | "--keep" | "--data" => drop(args.next()),
            "--kafka" => {
                drop(args.next());
                shown.push("kafka".to_owned());
            }
            "--elasticmq" => {
                drop(args.next());
                shown.push("queues".to_owned());
            }
            "--peers" => {}
            "--save" => {
                drop(args.next());
                saves = true;
            }
            _ => rest.push(arg),
        }
    }
    shown.extend(rest);
    shown.extend(saves.then(|| "--save".to_owned()));
    shown.join(" ")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_report_shows_what_somebody_typed() {
        let args = ["--towpath", "/x/towpath", "--data", "/x", "--kafka", "/a.jar", "--save", "/r"];
        let args = args.iter().chain(&["--all", "P1"]).map(|arg| (*arg).to_owned());
        assert_eq!(shown_command(args), "cargo xtask bench kafka --all P1 --save");
        let args = ["--towpath", "/x/towpath", "--peers", "--elasticmq", "/a.jar:/b.jar", "Q1"];
        let args = args.iter().map(|arg| (*arg).to_owned());
        assert_eq!(shown_command(args), "cargo xtask bench queues Q1");
    }
}
