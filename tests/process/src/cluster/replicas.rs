//! The three copies of a partition, as they lie on the disks.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail, ensure};
use towpath_records::{Scratch, records, split_batches};

use super::node::{NODES, Nodes};
use crate::history::{FoundRecord, Place};
use crate::load::{EVENTS, EVENTS_PARTITIONS, ORDERS, ORDERS_PARTITIONS};

/// Topics with three replicas whose content is checked.
pub(super) const CHECKED: [(&str, i32); 2] =
    [(ORDERS, ORDERS_PARTITIONS), (EVENTS, EVENTS_PARTITIONS)];

/// All partitions whose content is checked.
pub(super) fn places() -> impl Iterator<Item = Place> {
    CHECKED.into_iter().flat_map(|(topic, partitions)| {
        (0..partitions).map(move |partition| Place::new(topic, partition))
    })
}

/// How long copies may differ although all are in sync: a follower that is in sync may still be on
/// its way to the last record.
const EQUAL_PATIENCE: Duration = Duration::from_secs(30);
/// The most bytes that the records of one batch may have.
const BATCH_BYTES_MAX: usize = 64 << 20;

/// Waits until all copies of everything that is checked are equal, and gives back what they hold.
pub(super) fn equal(nodes: &Nodes) -> Result<BTreeMap<Place, Vec<FoundRecord>>> {
    let mut found = BTreeMap::new();
    for (topic, partitions) in CHECKED {
        for partition in 0..partitions {
            let place = Place::new(topic, partition);
            let bytes = equal_copies(nodes, &place)?;
            found.insert(place, decode(&bytes)?);
        }
    }
    Ok(found)
}

fn equal_copies(nodes: &Nodes, place: &Place) -> Result<Vec<u8>> {
    let deadline = Instant::now() + EQUAL_PATIENCE;
    loop {
        // A copy that cannot be read may be about to be repaired.
        match compared(nodes, place) {
            Ok(copy) => return Ok(copy),
            Err(error) if deadline <= Instant::now() => {
                let what = format!("INV-R14: {EQUAL_PATIENCE:?} after all were in sync");
                return Err(error.context(what));
            }
            Err(_) => std::thread::sleep(Duration::from_millis(50)),
        }
    }
}

/// The copy that all have.
fn compared(nodes: &Nodes, place: &Place) -> Result<Vec<u8>> {
    let mut first: Option<Vec<u8>> = None;
    for id in NODES {
        let copy = copy_of(&nodes.disk(id).data(), place);
        let copy = copy.with_context(|| format!("{place} of broker {id}"))?;
        let Some(first) = &first else {
            first = Some(copy);
            continue;
        };
        if let Some(what) = difference(first, &copy) {
            let (one, other) = (first.len(), copy.len());
            bail!("broker {id} has another copy of {place}, {other} bytes to {one}: {what}");
        }
    }
    first.context("no copies")
}

/// All batches of a replica, one after the other.
fn copy_of(data: &Path, place: &Place) -> Result<Vec<u8>> {
    let Some(directory) = directory_of(data, place)? else { return Ok(Vec::new()) };
    let mut all = Vec::new();
    for segment in segments(&directory)? {
        let bytes = fs::read(&segment)?;
        let mut batches = split_batches(&bytes);
        for batch in &mut batches {
            batch.check_crc().with_context(|| segment.display().to_string())?;
        }
        let end = batches.position();
        let rest = bytes[end..].iter().position(|byte| *byte != 0);
        ensure!(rest.is_none(), "{} is no batch from {end} on", segment.display());
        all.extend_from_slice(&bytes[..end]);
    }
    Ok(all)
}

/// The directory of a replica. A topic has one name and one id in these runs.
fn directory_of(data: &Path, place: &Place) -> Result<Option<PathBuf>> {
    let topics = fs::read_dir(data.join("topics"))?.collect::<Result<Vec<_>, _>>()?;
    let prefix = format!("{}-", place.topic);
    let is_its = |name: &str| name.starts_with(&prefix) && name.len() == prefix.len() + 22;
    let topic = topics.iter().find(|entry| entry.file_name().to_str().is_some_and(is_its));
    let directory = topic.map(|topic| topic.path().join(place.partition.to_string()));
    Ok(directory.filter(|directory| directory.is_dir()))
}

/// Its segments in order.
fn segments(directory: &Path) -> Result<Vec<PathBuf>> {
    let mut segments: Vec<PathBuf> = fs::read_dir(directory)?
        .map(|entry| entry.map(|entry| entry.path()))
        .collect::<Result<_, _>>()?;
    segments.retain(|path| path.extension().is_some_and(|extension| extension == "log"));
    segments.sort();
    Ok(segments)
}

/// Where two copies part, in words.
fn difference(one: &[u8], other: &[u8]) -> Option<String> {
    if one == other {
        return None;
    }
    let pairs = split_batches(one).zip(split_batches(other));
    let mut end = 0;
    for (a, b) in pairs {
        if a.bytes != b.bytes {
            return Some(format!("{:?} and {:?}", a.header, b.header));
        }
        end = a.header.next_offset().0;
    }
    Some(format!("one of them ends at {end}"))
}

fn decode(bytes: &[u8]) -> Result<Vec<FoundRecord>> {
    let mut found = Vec::new();
    let mut scratch = Scratch::new();
    for batch in split_batches(bytes) {
        for record in records(batch.bytes, BATCH_BYTES_MAX, &mut scratch)? {
            let record = record?;
            let offset = batch.header.offset_of(record.offset_delta).0;
            let value = record.value.map(<[u8]>::to_vec).unwrap_or_default();
            found.push(FoundRecord { offset, value });
        }
    }
    Ok(found)
}
