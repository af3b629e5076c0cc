//! The simulator tested on the smallest honest product: a file of checksummed entries, each
//! acknowledged after a sync.
//!
//! It shows that [`SimDisk`] lets a careful program keep its promises, and, with one careless line
//! planted at a time (see the tests), that it finds who does not. What it teaches costs nothing: a
//! broken simulator would fail here before it accuses the log.

use std::io::{self, IoSlice};
use std::path::Path;

use towpath_log::disk::{Disk, DiskFile};

use crate::disk::{SimDisk, SimFile};
use crate::events::Events;
use crate::profile::{Profile, Violation, ensure};
use crate::rng::Rng;
use crate::trace::Trace;

/// The profile.
#[derive(Debug)]
pub struct Journal;

impl Profile for Journal {
    fn name(&self) -> &'static str {
        "journal"
    }

    fn about(&self) -> &'static str {
        "the simulator itself: a tiny journal that loses nothing on a disk that forgets"
    }

    fn must_happen(&self) -> &'static [&'static str] {
        &[
            "disk: write torn",
            "disk: write forgotten",
            "disk: writes kept out of order",
            "disk: last sector is noise",
            "disk: last sector is zero",
            "disk: create lost",
            "disk: length kept without its bytes",
            "disk: sync failed",
            "journal: tail cut",
        ]
    }

    fn run(&self, seed: u64, trace: &Trace) -> Result<Events, Violation> {
        run(seed, trace, Care::default())
    }
}

/// What the journal is careful about; each can be switched off to see the simulator notice.
#[derive(Debug, Clone, Copy)]
struct Care {
    syncs_file: bool,
    syncs_name: bool,
    checks_entries: bool,
    stops_after_failed_sync: bool,
    syncs_what_it_found: bool,
    drops_what_is_cached: bool,
}

impl Default for Care {
    fn default() -> Care {
        Care {
            syncs_file: true,
            syncs_name: true,
            checks_entries: true,
            stops_after_failed_sync: true,
            syncs_what_it_found: true,
            drops_what_is_cached: true,
        }
    }
}

const FILE: &str = "/journal";
const PREFIX_BYTES: usize = 12;

fn run(seed: u64, trace: &Trace, care: Care) -> Result<Events, Violation> {
    let mut rng = Rng::new(seed);
    let disk = SimDisk::new(rng.draw(), trace.clone());
    let mut events = Events::new();
    let mut acked: Vec<Vec<u8>> = Vec::new();
    let mut attempted = acked.clone();
    for _ in 0..rng.between(2, 6) {
        disk.crash_at(rng.between(1, 12));
        if rng.percent(20) {
            disk.fail_sync_in(rng.between(1, 4));
        }
        live(&disk, &mut rng, care, &mut acked, &mut attempted, &mut events);
        if rng.percent(60) {
            disk.lose_power()
        } else {
            disk.kill()
        }
        disk.restart();
        check(&disk, care, &acked, &mut attempted, &mut events)?;
        acked.clone_from(&attempted);
    }
    events.merge(&disk.events());
    Ok(events)
}

/// One process: recovers, appends, acknowledges, until the machine stops.
fn live(
    disk: &SimDisk,
    rng: &mut Rng,
    care: Care,
    acked: &mut Vec<Vec<u8>>,
    attempted: &mut Vec<Vec<u8>>,
    events: &mut Events,
) {
    let Ok((file, found)) = open(disk, care, events) else { return };
    let mut position = bytes_of(&found);
    loop {
        let mut body = vec![0; rng.between(1, 1500) as usize];
        rng.fill(&mut body);
        attempted.push(body.clone());
        let Ok(()) = append(&file, &body, position) else { return };
        position += (PREFIX_BYTES + body.len()) as u64;
        if rng.percent(30) {
            continue;
        }
        let failed = care.syncs_file && file.sync_data().is_err();
        if failed && (care.stops_after_failed_sync || file.sync_data().is_err()) {
            return;
        }
        acked.clone_from(attempted);
    }
}

fn open(disk: &SimDisk, care: Care, events: &mut Events) -> io::Result<(SimFile, Vec<Vec<u8>>)> {
    let path = Path::new(FILE);
    let file = if disk.exists(path)? { disk.open(path)? } else { disk.create(path)? };
    if care.syncs_name {
        disk.sync_dir(Path::new("/"))?;
    }
    if care.syncs_what_it_found {
        file.sync_data()?;
    }
    if care.drops_what_is_cached {
        // A sync may have failed before, and the cache shows what it has lost.
        file.drop_cached(0, u64::MAX)?;
    }
    let entries = entries(&file, care)?;
    if bytes_of(&entries) < file.len()? {
        events.note("journal: tail cut");
        file.truncate(bytes_of(&entries))?;
        file.sync_data()?;
    }
    Ok((file, entries))
}

fn append(file: &SimFile, body: &[u8], position: u64) -> io::Result<()> {
    let prefix = prefix(body);
    file.write_at(&[IoSlice::new(&prefix), IoSlice::new(body)], position)
}

/// Length and checksum. The length is not zero, so that zeros are not an entry.
fn prefix(body: &[u8]) -> [u8; PREFIX_BYTES] {
    let mut out = [0; PREFIX_BYTES];
    out[..4].copy_from_slice(&(body.len() as u32).to_le_bytes());
    let sum = Trace::hashing();
    sum.content("", body);
    out[4..].copy_from_slice(&sum.hash().to_le_bytes());
    out
}

fn entries(file: &SimFile, care: Care) -> io::Result<Vec<Vec<u8>>> {
    let mut bytes = vec![0; file.len()? as usize];
    file.read_at(&mut bytes, 0)?;
    let mut rest = bytes.as_slice();
    let mut out = Vec::new();
    while let Some((head, after)) = rest.split_at_checked(PREFIX_BYTES) {
        let len = u32::from_le_bytes([head[0], head[1], head[2], head[3]]) as usize;
        let Some((body, after)) = after.split_at_checked(len) else { break };
        if len == 0 || (care.checks_entries && prefix(body) != head) {
            break;
        }
        out.push(body.to_vec());
        rest = after;
    }
    Ok(out)
}

fn bytes_of(entries: &[Vec<u8>]) -> u64 {
    entries.iter().map(|body| (PREFIX_BYTES + body.len()) as u64).sum()
}

/// Reads the journal as the next process would. What it has is what counts from now on.
fn check(
    disk: &SimDisk,
    care: Care,
    acked: &[Vec<u8>],
    attempted: &mut Vec<Vec<u8>>,
    events: &mut Events,
) -> Result<(), Violation> {
    let opened = open(disk, care, events);
    let (_, found) = opened.map_err(|e| Violation::new("INV-R1", format!("cannot open: {e}")))?;
    let kept = found.iter().zip(acked).take_while(|(found, acked)| found == acked).count();
    ensure!(kept == acked.len(), "INV-R1", "{} entries acknowledged, {kept} found", acked.len());
    ensure!(attempted.starts_with(&found), "INV-R7", "the journal has entries that nobody wrote");
    attempted.truncate(found.len());
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn first_violation(care: Care) -> Option<u64> {
        (0..300).find(|seed| run(*seed, &Trace::hashing(), care).is_err())
    }

    #[test]
    fn a_careful_journal_keeps_its_promises() {
        for seed in 0..100 {
            run(seed, &Trace::hashing(), Care::default()).unwrap();
        }
    }

    #[test]
    fn every_careless_line_is_found() {
        let careful = Care::default();
        let careless = [
            Care { syncs_file: false, ..careful },
            Care { syncs_name: false, ..careful },
            Care { checks_entries: false, ..careful },
            Care { stops_after_failed_sync: false, ..careful },
            Care { syncs_what_it_found: false, ..careful },
            Care { drops_what_is_cached: false, ..careful },
        ];
        for care in careless {
            assert!(first_violation(care).is_some(), "{care:?} went unnoticed");
        }
    }
}
