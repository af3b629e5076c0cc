//! Measures how one group-commit round is best made durable; ADR 0001 keeps the numbers.
//!
//! `cargo run --release -p towpath-log --example durability -- [DIRECTORY]`
//!
//! Each round appends some bytes to each of N preallocated files, then makes them durable in one of
//! three ways: `fdatasync` of each file, one `syncfs`, or one write-ahead file that gets a copy of
//! the bytes and the only `fdatasync`. With "foreign", 256 MiB of another file are written just
//! before each round and never synced by us. Times are those of writing and making durable
//! together; CPU is that of this thread, as the scheduler counts it.

use std::fs::{self, File, OpenOptions};
use std::io::{self, IoSlice, Write};
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

const FOREIGN_BYTES: usize = 256 << 20;
const WAL_BYTES: u64 = 128 << 20;
const TIME_PER_CASE: Duration = Duration::from_secs(6);
const ROUNDS_MAX: usize = 40;
const ROUNDS_MIN: usize = 5;

#[derive(Clone, Copy, PartialEq, Eq)]
enum Method {
    EachFile,
    WholeFileSystem,
    WriteAheadGrowing,
    WriteAheadWritten,
}

impl Method {
    const ALL: [Method; 4] = [
        Method::EachFile,
        Method::WholeFileSystem,
        Method::WriteAheadGrowing,
        Method::WriteAheadWritten,
    ];

    fn name(self) -> &'static str {
        match self {
            Method::EachFile => "fdatasync each",
            Method::WholeFileSystem => "syncfs",
            Method::WriteAheadGrowing => "write-ahead, growing",
            Method::WriteAheadWritten => "write-ahead, written before",
        }
    }
}

/// (files, bytes appended to each per round)
const CASES: [(usize, usize); 10] = [
    (1, 4 << 10),
    (2, 4 << 10),
    (4, 4 << 10),
    (8, 4 << 10),
    (64, 4 << 10),
    (1000, 4 << 10),
    (1, 1 << 20),
    (8, 64 << 10),
    (64, 64 << 10),
    (8, 1 << 20),
];

fn main() -> io::Result<()> {
    let root = std::env::args().nth(1).map_or_else(std::env::temp_dir, PathBuf::from);
    let directory = root.join(format!("towpath-durability-{}", std::process::id()));
    println!("| files × bytes | foreign | method | p50 ms | max ms | CPU ms/round | rounds |");
    println!("|---|---|---|---|---|---|---|");
    for (files, bytes) in CASES {
        for foreign in [false, true] {
            if foreign && !matches!((files, bytes), (1 | 64 | 1000, 4096) | (8, 1048576)) {
                continue;
            }
            for method in Method::ALL {
                fs::create_dir_all(&directory)?;
                let outcome = measure(&directory, files, bytes, foreign, method);
                fs::remove_dir_all(&directory)?;
                settle(&root)?;
                let Measured { mut rounds, cpu } = outcome?;
                rounds.sort();
                println!(
                    "| {files} × {} KiB | {} | {} | {:.2} | {:.2} | {:.2} | {} |",
                    bytes >> 10,
                    if foreign { "256 MiB" } else { "" },
                    method.name(),
                    millis(rounds[rounds.len() / 2]),
                    millis(rounds[rounds.len() - 1]),
                    millis(cpu) / rounds.len() as f64,
                    rounds.len(),
                );
            }
        }
    }
    Ok(())
}

struct Measured {
    rounds: Vec<Duration>,
    cpu: Duration,
}

fn measure(
    directory: &Path,
    files: usize,
    bytes: usize,
    foreign: bool,
    method: Method,
) -> io::Result<Measured> {
    // Room for all rounds, 16 MiB at most; then it is reused from the start.
    let room = (bytes * ROUNDS_MAX).min(16 << 20) as u64;
    let segments: Vec<File> = (0..files)
        .map(|n| {
            let file = create(&directory.join(format!("{n}.log")))?;
            preallocate(&file, room)?;
            Ok(file)
        })
        .collect::<io::Result<_>>()?;
    let mut wal = create(&directory.join("wal"))?;
    if method == Method::WriteAheadWritten {
        let zeros = vec![0; 1 << 20];
        for _ in 0..WAL_BYTES >> 20 {
            wal.write_all(&zeros)?;
        }
    }
    let strangers = create(&directory.join("foreign"))?;
    settle(directory)?;

    let batch = vec![0xa5; bytes];
    let header = [0x5a; 64];
    let mut measured = Measured { rounds: Vec::new(), cpu: Duration::ZERO };
    let mut wal_end = 0;
    let started = Instant::now();
    for round in 0..ROUNDS_MAX {
        if ROUNDS_MIN <= round && TIME_PER_CASE < started.elapsed() {
            break;
        }
        if foreign {
            let noise = vec![round as u8; 1 << 20];
            for at in 0..FOREIGN_BYTES >> 20 {
                strangers.write_all_at(&noise, (at << 20) as u64)?;
            }
        }
        let position = (round * bytes) as u64 % room;
        let (start, cpu) = (Instant::now(), thread_cpu()?);
        for file in &segments {
            file.write_all_at(&batch, position)?;
        }
        match method {
            Method::EachFile => segments.iter().try_for_each(File::sync_data)?,
            Method::WholeFileSystem => rustix::fs::syncfs(&wal)?,
            Method::WriteAheadGrowing | Method::WriteAheadWritten => {
                let frame_bytes = (files * (bytes + header.len())) as u64;
                if method == Method::WriteAheadWritten && WAL_BYTES < wal_end + frame_bytes {
                    wal_end = 0;
                }
                append_frames(&wal, wal_end, &header, &batch, files)?;
                wal_end += frame_bytes;
                wal.sync_data()?;
            }
        }
        measured.rounds.push(start.elapsed());
        measured.cpu += thread_cpu()?.saturating_sub(cpu);
    }
    Ok(measured)
}

/// One vectored write for up to 512 frames, as a write-ahead file would do it.
fn append_frames(
    wal: &File,
    mut position: u64,
    header: &[u8],
    batch: &[u8],
    mut files: usize,
) -> io::Result<()> {
    while files > 0 {
        let now = files.min(512);
        let slices: Vec<IoSlice<'_>> =
            (0..now).flat_map(|_| [IoSlice::new(header), IoSlice::new(batch)]).collect();
        let want = now * (header.len() + batch.len());
        let wrote = rustix::io::pwritev(wal, &slices, position)?;
        if wrote != want {
            return Err(io::Error::other("short write; make the case smaller"));
        }
        position += want as u64;
        files -= now;
    }
    Ok(())
}

fn create(path: &Path) -> io::Result<File> {
    OpenOptions::new().read(true).write(true).create_new(true).open(path)
}

fn preallocate(file: &File, bytes: u64) -> io::Result<()> {
    Ok(rustix::fs::fallocate(file, rustix::fs::FallocateFlags::empty(), 0, bytes)?)
}

/// Nothing of the case before may be charged to the next one.
fn settle(path: &Path) -> io::Result<()> {
    Ok(rustix::fs::syncfs(File::open(path)?)?)
}

fn thread_cpu() -> io::Result<Duration> {
    let text = fs::read_to_string("/proc/thread-self/schedstat")?;
    let nanos = text.split(' ').next().and_then(|n| n.parse().ok()).unwrap_or(0);
    Ok(Duration::from_nanos(nanos))
}

fn millis(time: Duration) -> f64 {
    time.as_secs_f64() * 1e3
}
