//! What the brokers of one run stand on: a bridge, a network namespace and a mounted file system for
//! each. Everything carries the process id of the run in its name, so that it can be found again.
//!
//! It is taken down by a process of its own, which waits until the run's end of a pipe is closed:
//! whatever ends the run, Ctrl-C and signal 9 included, closes it. A run also takes down what runs
//! left behind whose process is gone.

use std::fs;
use std::io::Read;
use std::net::{Ipv4Addr, SocketAddr, SocketAddrV4};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::thread;
use std::time::Duration;

use anyhow::{Context, Result, ensure};

use super::disk::Disk;
use super::node::NODES;
use super::tool;
use crate::Addresses;

/// Programs that a rig needs.
const PROGRAMS: [&str; 5] = ["ip", "nsenter", "mkfs.ext4", "mount", "umount"];
/// A start of the names of directories; the process id follows.
const DIRECTORY_PREFIX: &str = "towpath-cluster-";
/// Attempts, 100 ms apart, until a file system can be unmounted whose broker was just killed.
const UNMOUNT_ATTEMPTS: u32 = 50;

/// Why no rig can be built here, if none can.
pub fn missing() -> Option<String> {
    if !rustix::process::geteuid().is_root() {
        return Some("only root can make network namespaces and mount file systems".to_owned());
    }
    if let Some(program) = tool::missing(&PROGRAMS) {
        return Some(format!("{program} is not installed"));
    }
    let name = format!("towpath-probe-{}", std::process::id());
    let probe = tool::run("ip", &["netns", "add", &name]);
    let probe = probe.and_then(|_| tool::run("ip", &["netns", "delete", &name]));
    probe.err().map(|error| format!("network namespaces do not work here: {error:#}"))
}

/// The names of one run's things.
#[derive(Debug, Clone, Copy)]
struct Names {
    run: u32,
}

impl Names {
    fn directory(self) -> PathBuf {
        std::env::temp_dir().join(format!("{DIRECTORY_PREFIX}{}", self.run))
    }

    fn namespace_prefix(self) -> String {
        format!("towpath-{}-", self.run)
    }

    fn namespace(self, node: u8) -> String {
        format!("{}{node}", self.namespace_prefix())
    }

    fn bridge(self) -> String {
        format!("tpb{}", self.run)
    }

    /// The bridge's end of a broker's cable; an interface's name has at most 15 bytes.
    fn cable(self, node: u8) -> String {
        format!("tpv{}n{node}", self.run)
    }

    fn address(self, node: u8) -> Ipv4Addr {
        let [_, _, high, low] = self.run.to_be_bytes();
        Ipv4Addr::new(10, 128 | (high & 0x7f), low, node)
    }
}

/// The last byte of the bridge's own address, which clients come from.
const BRIDGE: u8 = 254;

/// Three networks and three disks. Taken down when dropped.
#[derive(Debug)]
pub(super) struct Rig {
    names: Names,
    pub(super) disks: Vec<Disk>,
    cleaner: Child,
}

impl Rig {
    /// Builds it.
    pub(super) fn build(disk_bytes: u64) -> Result<Rig> {
        sweep_leftovers();
        let names = Names { run: std::process::id() };
        // A round before this one has been taken down, so this name is free.
        let cleaner = Command::new(std::env::current_exe()?)
            .args(["--sweep-after", &names.run.to_string()])
            .stdin(Stdio::piped())
            // Ctrl-C is for the foreground group.
            .process_group(0)
            .spawn()
            .context("the process that cleans up cannot be started")?;
        let mut rig = Rig { names, disks: Vec::new(), cleaner };
        fs::create_dir_all(names.directory())?;
        rig.lay_network()?;
        for node in NODES {
            rig.disks.push(Disk::make(&names.directory(), node, disk_bytes)?);
        }
        Ok(rig)
    }

    fn lay_network(&self) -> Result<()> {
        let names = self.names;
        let bridge = names.bridge();
        let ip = |line: &str| tool::run("ip", &line.split(' ').collect::<Vec<_>>());
        ip(&format!("link add {bridge} type bridge"))?;
        ip(&format!("address add {}/24 dev {bridge}", names.address(BRIDGE)))?;
        ip(&format!("link set {bridge} up"))?;
        for node in NODES {
            let (space, cable) = (names.namespace(node), names.cable(node));
            ip(&format!("netns add {space}"))?;
            ip(&format!("link add {cable} type veth peer name eth0 netns {space}"))?;
            ip(&format!("link set {cable} master {bridge} up"))?;
            ip(&format!("-n {space} address add {}/24 dev eth0", names.address(node)))?;
            ip(&format!("-n {space} link set eth0 up"))?;
            ip(&format!("-n {space} link set lo up"))?;
            // Local addresses are looked up first, before any rule could drop a packet for them.
            ip(&format!("-n {space} rule add pref 100 lookup local"))?;
            ip(&format!("-n {space} rule delete pref 0"))?;
        }
        Ok(())
    }

    /// The network namespace of a broker.
    pub(super) fn namespace(&self, node: u8) -> String {
        self.names.namespace(node)
    }

    /// Where a broker listens for clients.
    pub(super) fn addresses(&self, node: u8) -> Addresses {
        let at = |port| SocketAddr::V4(SocketAddrV4::new(self.names.address(node), port));
        Addresses { kafka: at(9092), http: at(8080) }
    }

    /// Where a broker listens for other brokers.
    pub(super) fn peer(&self, node: u8) -> SocketAddr {
        SocketAddr::V4(SocketAddrV4::new(self.names.address(node), 9094))
    }

    /// A directory of the run, on the machine's own disk.
    pub(super) fn directory(&self) -> PathBuf {
        self.names.directory()
    }

    /// From now on, nothing that `from` sends arrives at `to`. Nobody is told: packets vanish.
    pub(super) fn cut(&self, from: u8, to: u8) -> Result<()> {
        self.rule("add", from, to)
    }

    /// Takes [`Rig::cut`] back.
    pub(super) fn mend(&self, from: u8, to: u8) -> Result<()> {
        self.rule("delete", from, to)
    }

    fn rule(&self, verb: &str, from: u8, to: u8) -> Result<()> {
        let (space, from) = (self.names.namespace(to), self.names.address(from).to_string());
        let rule = ["-n", &space, "rule", verb, "pref", "10", "from", &from, "blackhole"];
        tool::run("ip", &rule).map(drop)
    }

    /// Takes everything down, and fails when something is left.
    pub(super) fn take_down(mut self) -> Result<()> {
        self.end()
    }

    fn end(&mut self) -> Result<()> {
        let Some(pipe) = self.cleaner.stdin.take() else { return Ok(()) };
        drop(pipe);
        let status = self.cleaner.wait()?;
        ensure!(status.success(), "not everything was cleaned up: {status}");
        Ok(())
    }
}

impl Drop for Rig {
    fn drop(&mut self) {
        if let Err(error) = self.end() {
            eprintln!("error: {error:#}");
        }
    }
}

/// Waits until standard input ends, and takes down what that run has built.
pub fn sweep_after(run: u32) -> Result<()> {
    let mut nothing = Vec::new();
    std::io::stdin().read_to_end(&mut nothing)?;
    sweep(Names { run })
}

/// Takes down what runs have left whose process is gone.
fn sweep_leftovers() {
    let directories = fs::read_dir(std::env::temp_dir()).into_iter().flatten().flatten();
    let runs = directories.filter_map(|entry| {
        entry.file_name().to_str()?.strip_prefix(DIRECTORY_PREFIX)?.parse::<u32>().ok()
    });
    for run in runs {
        if !Path::new(&format!("/proc/{run}")).exists() {
            eprintln!("run {run} has left something behind; it is removed");
            if let Err(error) = sweep(Names { run }) {
                eprintln!("warning: {error:#}");
            }
        }
    }
}

fn sweep(names: Names) -> Result<()> {
    let spaces = tool::run("ip", &["netns", "list"])?;
    let spaces = spaces.lines().filter_map(|line| line.split_whitespace().next());
    for space in spaces.filter(|space| space.starts_with(&names.namespace_prefix())) {
        for pid in tool::run("ip", &["netns", "pids", space])?.split_whitespace() {
            // One that has ended meanwhile is as good.
            let _ = tool::run("kill", &["-9", pid]);
        }
        tool::run("ip", &["netns", "delete", space])?;
    }
    // A cable would go with its namespace, but only some time later.
    let links = NODES.map(|node| names.cable(node)).into_iter().chain([names.bridge()]);
    for link in links.filter(|link| Path::new("/sys/class/net").join(link).exists()) {
        // It may have gone by itself between these two lines.
        let _ = tool::run("ip", &["link", "delete", &link]);
    }
    let directory = names.directory();
    for mounted in mounts_below(&directory)? {
        unmount(&mounted)?;
    }
    super::disk::remove_limits(names.run);
    match fs::remove_dir_all(&directory) {
        Err(error) if error.kind() != std::io::ErrorKind::NotFound => {
            Err(error).with_context(|| format!("{} cannot be removed", directory.display()))
        }
        _ => Ok(()),
    }
}

fn mounts_below(directory: &Path) -> Result<Vec<PathBuf>> {
    let mounts = fs::read_to_string("/proc/self/mounts")?;
    let places = mounts.lines().filter_map(|line| line.split(' ').nth(1)).map(PathBuf::from);
    Ok(places.filter(|place| place.starts_with(directory)).collect())
}

fn unmount(place: &Path) -> Result<()> {
    let place = place.to_string_lossy();
    for _ in 0..UNMOUNT_ATTEMPTS {
        if tool::run("umount", &[&place]).is_ok() {
            return Ok(());
        }
        thread::sleep(Duration::from_millis(100));
    }
    tool::run("umount", &["--lazy", &place]).map(drop)
}
