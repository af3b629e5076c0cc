//! The end of a run: nothing goes wrong any more, and within a bounded time everybody has what was
//! promised (INV-R1, R14, P1, P2, P6, M1, C2, T6).

use std::time::Duration;

use towpath_model::{BrokerId, Offset, TopicPartition};
use towpath_records::BatchHeader;

use super::node::Pace;
use super::world::World;
use crate::profile::{Violation, ensure};

/// How long a cluster that is well may take to be in order.
const BOUND: Duration = Duration::from_secs(60);
/// How long messages go on being as late and as small as the seed says. Two moves of one partition, one
/// batch per late message, take longer than the bound without anybody being stuck.
const WEATHER_LASTS: Duration = Duration::from_secs(30);
const STEP: Duration = Duration::from_millis(100);

/// A log, batch by batch.
type Batches = Vec<(BatchHeader, Vec<u8>)>;

/// Ends all misfortunes.
pub(super) fn mend(world: &mut World) {
    world.is_healing = true;
    world.trace.event("heal", &[]);
    let blocked: Vec<(BrokerId, BrokerId)> = world.network.blocked.iter().copied().collect();
    world.unblock(&blocked);
    let ids: Vec<BrokerId> = world.nodes.keys().copied().collect();
    for id in &ids {
        world.free_disk(*id);
        let node = world.node(*id);
        node.disk.crash_never();
        node.pace = Pace::HEALTHY;
    }
}

/// Waits until the cluster has come into order by itself.
pub(super) fn converge(world: &mut World) -> Result<(), Violation> {
    let began = world.now;
    loop {
        world.run_until(world.now + STEP)?;
        let Some(reason) = unrest(world) else { break };
        if WEATHER_LASTS <= world.now - began {
            world.network.weather.calm();
        }
        ensure!(
            world.now - began < BOUND,
            "INV-R14",
            "{} s after everything is well: {reason}",
            BOUND.as_secs()
        );
    }
    world.trace.event("converged", &[(world.now - began).as_millis() as u64]);
    Ok(())
}

/// Why the cluster is not in order yet.
fn unrest(world: &World) -> Option<String> {
    for (id, node) in &world.nodes {
        let Some(process) = &node.process else { return Some(format!("broker {id} is down")) };
        if process.registered.is_none() || process.has_failed || process.is_stopping {
            return Some(format!("broker {id} does not serve"));
        }
        if process.applied != Some(world.truth.applied) {
            return Some(format!("broker {id} lacks metadata"));
        }
        let standing = process.driver.standing();
        if standing.is_fenced {
            return Some(format!("broker {id} is fenced: {:?}", process.driver.quorum_status()));
        }
        if process.driver.has_unsynced() {
            return Some(format!("broker {id} has something to sync"));
        }
    }
    let controllers = world
        .nodes
        .values()
        .filter(|node| node.process.as_ref().is_some_and(|process| process.driver.is_controller()));
    let controllers = controllers.count();
    if controllers != 1 {
        return Some(format!("there are {controllers} controllers"));
    }
    for (at, producer) in world.producers.iter().enumerate() {
        if !producer.is_quiet() {
            return Some(format!("producer {at} waits: {producer:?}"));
        }
    }
    if !world.committer.is_quiet() || !world.catalog.is_quiet() {
        return Some("somebody waits for an answer".to_owned());
    }
    world.truth.logs().iter().copied().find_map(|partition| unrest_of(world, partition))
}

fn unrest_of(world: &World, partition: TopicPartition) -> Option<String> {
    let Some(state) = world.truth.newest(partition) else {
        return Some(format!("{partition} is not there"));
    };
    let Some(leader) = state.leader else {
        return Some(format!("nobody leads {partition}: {state:?}"));
    };
    if state.is_reassigning() || state.in_sync.len() != state.replicas.len() {
        let views: Vec<_> = world.views.iter().filter(|((_, of), _)| *of == partition).collect();
        return Some(format!("{partition} is not in sync: {state:?}, {views:?}"));
    }
    let Some(lead) = world.views.get(&(leader, partition)) else {
        return Some(format!("{partition}: its leader has not opened it: {state:?}"));
    };
    for replica in &state.replicas {
        let Some(view) = world.views.get(&(*replica, partition)) else {
            return Some(format!("{partition}: replica {replica} is not open"));
        };
        let is_done = view.start == lead.start
            && view.end == lead.end
            && view.durable == lead.end
            && view.high_watermark == lead.end
            && view.epoch == state.leader_epoch
            && view.leads.is_some() == (*replica == leader);
        if !is_done {
            return Some(format!("{partition}: {replica} has {view:?}, leader {leader} {lead:?}"));
        }
    }
    None
}

/// Everything that was promised is there, on every replica.
pub(super) fn check(world: &mut World) -> Result<(), Violation> {
    for partition in world.truth.logs().iter().copied() {
        check_replicas(world, partition)?;
    }
    for node in world.nodes.values() {
        let process = node.process.as_ref().expect("all are up");
        world.catalog.check(&process.driver.image())?;
    }
    for partition in world.committer.partitions() {
        if world.catalog.surely_exists(partition.topic) {
            world.ask_group(partition, None)?;
        }
    }
    world.run_until(world.now + STEP)?;
    world.check_leftovers()
}

fn check_replicas(world: &mut World, partition: TopicPartition) -> Result<(), Violation> {
    let state = world.truth.newest(partition).cloned().expect("it is one of the partitions");
    let mut found = Vec::new();
    for replica in &state.replicas {
        let process = world.nodes[replica].process.as_ref().expect("all are up");
        let read = process.driver.with_replica(partition, |_, log| {
            let start = log.log_start_offset();
            let all: Result<Vec<_>, _> = log
                .batches(start, log.log_end_offset())
                .map(|read| read.map(|(header, bytes)| (header, bytes.to_vec())))
                .collect();
            (start, all)
        });
        let (from, all) = read.expect("it is open");
        let all = all.map_err(|error| {
            Violation::new("INV-R1", format!("{partition} at broker {replica}: {error}"))
        })?;
        found.push((*replica, from, all));
    }
    // All start at the same offset by now, and may hold the batch that it lies in or not.
    let start = found.iter().map(|(_, from, _)| *from).max().unwrap_or(Offset(0));
    let has_gaps = world.books.get(&partition).is_some_and(|book| book.has_gaps);
    let mut first: Option<(BrokerId, Batches)> = None;
    for (replica, _, mut all) in found {
        all.retain(|(header, _)| start <= header.base_offset());
        match &first {
            None => first = Some((replica, all)),
            Some((other, batches)) => ensure!(
                has_gaps || *batches == all,
                "INV-R14",
                "{partition}: the replicas of {other} and {replica} differ"
            ),
        }
    }
    let Some((_, batches)) = first else { return Ok(()) };
    let book = world.books.entry(partition).or_default();
    let headers: Vec<BatchHeader> = batches.iter().map(|(header, _)| *header).collect();
    book.compare(start, book.end, &headers, |_| true)
        .map_err(|difference| Violation::new("INV-R1", format!("{partition}: {difference}")))?;
    let has_producers = world.swarm.work.is_none() && world.catalog.is_public(partition.topic);
    if has_producers && !partition.is_delivery_log() {
        let history = world.histories.entry(partition).or_default();
        history.check_log(start, &batches)?;
    }
    Ok(())
}
