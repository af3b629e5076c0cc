//! Flips bits in the files of one broker at a time. Whatever they hit, the broker comes back, is in
//! sync, has the same bytes as the others, and nobody reads a wrong one. Where it cannot tell any more
//! whose disk it is, it refuses to start, and is given an empty one.

use std::collections::BTreeMap;
use std::fmt;
use std::fs::{self, OpenOptions};
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::thread;
use std::time::Duration;

use anyhow::{Context, Result};
use fastrand::Rng;

use super::ledger::Ledger;
use super::node::NODES;
use super::round::Round;

/// Bits that are flipped while a broker is down, at most.
const FLIPS_PER_STOP_MAX: u64 = 10;

/// Kinds of files that a broker does not do without: it refuses its disk, and whatever else was
/// flipped there goes unjudged. So one of these is flipped alone.
const ALONE: [&str; 5] = ["format", "quorum", "registered", "metadata.snapshot", "metadata: log"];

/// How long the load goes on after that: the newest segment of every partition is followed by another
/// one, and scrubs look at all that are not written to any more.
const SCRUBBED_AFTER: Duration = Duration::from_secs(12);

/// So many flips.
pub(super) fn run(flips: u64, rng: &mut Rng, round: &mut Round, ledger: &mut Ledger) -> Result<()> {
    let mut left = flips;
    while 0 < left {
        let id = NODES[rng.usize(..NODES.len())];
        if rng.bool() {
            round.nodes.kill(id)?;
        } else {
            round.nodes.terminate(id)?;
        }
        let data = round.nodes.disk(id).data();
        let flipped = flip_some(&data, left, rng)?;
        for flip in &flipped {
            ledger.count(&format!("flip: {}", flip.kind), 1);
        }
        let told = || {
            let all: Vec<String> = flipped.iter().map(ToString::to_string).collect();
            format!("broker {id}, flipped {}", all.join(", "))
        };
        println!("{}", told());
        let judged = if round.nodes.start_or_replace(id).with_context(told)? {
            println!("the broker refused its disk and got an empty one");
            ledger.count(&format!("start refused, disk replaced: {}", flipped[0].kind), 1);
            ledger.count("flips that went unjudged with a refused disk", flipped.len() as u64 - 1);
            1
        } else {
            thread::sleep(SCRUBBED_AFTER);
            flipped.len() as u64
        };
        round.settle().with_context(told)?;
        left -= judged;
        ledger.cycles += judged;
    }
    Ok(())
}

struct Flipped {
    kind: String,
    file: PathBuf,
    byte: u64,
}

impl fmt::Display for Flipped {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} byte {}", self.file.display(), self.byte)
    }
}

/// Flips one bit, or some but no more than `most` where the start judges each of them.
fn flip_some(data: &Path, most: u64, rng: &mut Rng) -> Result<Vec<Flipped>> {
    let mut files = BTreeMap::new();
    collect(data, data, &mut files)?;
    let mut flipped = vec![flip(data, &files, rng)?];
    if ALONE.contains(&flipped[0].kind.as_str()) {
        return Ok(flipped);
    }
    files.retain(|kind, _| !ALONE.contains(&kind.as_str()));
    for _ in 1..most.min(rng.u64(1..=FLIPS_PER_STOP_MAX)) {
        flipped.push(flip(data, &files, rng)?);
    }
    Ok(flipped)
}

/// Files by kind.
type Files = BTreeMap<String, Vec<PathBuf>>;

/// Flips one bit of one file; every kind of file is as likely as any other.
fn flip(data: &Path, files: &Files, rng: &mut Rng) -> Result<Flipped> {
    let kinds: Vec<&String> = files.keys().collect();
    let kind = kinds[rng.usize(..kinds.len())].clone();
    let of_kind = &files[&kind];
    let path = &of_kind[rng.usize(..of_kind.len())];
    let file = OpenOptions::new().read(true).write(true).open(path)?;
    let byte = rng.u64(..file.metadata()?.len());
    let mut bytes = [0];
    file.read_exact_at(&mut bytes, byte)?;
    file.write_all_at(&[bytes[0] ^ (1 << rng.u8(..8))], byte)?;
    file.sync_all()?;
    Ok(Flipped { kind, file: path.strip_prefix(data)?.to_owned(), byte })
}

/// All files that have bytes, by kind.
fn collect(data: &Path, directory: &Path, files: &mut Files) -> Result<()> {
    for entry in fs::read_dir(directory)? {
        let entry = entry?;
        let path = entry.path();
        if entry.file_type()?.is_dir() {
            collect(data, &path, files)?;
        } else if 0 < entry.metadata()?.len() {
            files.entry(kind_of(path.strip_prefix(data)?)).or_default().push(path);
        }
    }
    Ok(())
}

/// What a file is: where it lies, and how its name ends or, without an end, begins.
fn kind_of(file: &Path) -> String {
    let name = file.file_name().unwrap_or_default().to_string_lossy();
    let first = file.iter().next().unwrap_or_default().to_string_lossy();
    let is_numbered = name.starts_with(|letter: char| letter.is_ascii_digit());
    let kind = match name.rsplit_once('.') {
        Some((_, end)) if is_numbered => end,
        Some((begin, end)) if end.parse::<u8>().is_ok() => begin,
        _ => &name,
    };
    if first == name { kind.to_owned() } else { format!("{first}: {kind}") }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn files_of_a_kind_are_told_by_their_names() {
        let kind = |path: &str| kind_of(Path::new(path));
        assert_eq!(kind("format"), "format");
        assert_eq!(kind("quorum.1"), "quorum");
        assert_eq!(kind("metadata.snapshot"), "metadata.snapshot");
        assert_eq!(kind("wal/00000000000000000001.wal"), "wal: wal");
        assert_eq!(kind("topics/a-b/0/00000000000000000000.log"), "topics: log");
        assert_eq!(kind("metadata/checkpoint.0"), "metadata: checkpoint");
    }
}
