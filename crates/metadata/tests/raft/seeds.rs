//! Many clusters, one per seed. `TOWPATH_RAFT_SEEDS=from..to` runs others than the usual ones.

use std::collections::BTreeMap;

use towpath_metadata::raft::{Raft, RaftStart};

use crate::cluster::{Cluster, Member};
use crate::toy::Toy;

impl Member for Raft {
    const CHANGES: bool = true;

    fn start(start: RaftStart) -> Raft {
        Raft::start(start).expect("what a disk holds is a start")
    }
}

fn run<C: Member>(seed: u64) -> Cluster<C> {
    let mut cluster = Cluster::<C>::new(seed);
    cluster.ticks(400);
    cluster.heal();
    cluster
}

fn seeds(usual: std::ops::Range<u64>) -> std::ops::Range<u64> {
    let Ok(text) = std::env::var("TOWPATH_RAFT_SEEDS") else { return usual };
    let (from, to) = text.split_once("..").expect("TOWPATH_RAFT_SEEDS is FROM..TO");
    from.parse().expect("a number")..to.parse().expect("a number")
}

fn run_all<C: Member>(seeds: std::ops::Range<u64>) -> BTreeMap<&'static str, u64> {
    let mut events = BTreeMap::new();
    let mut hash = 0;
    for seed in seeds.clone() {
        let ran = std::panic::catch_unwind(|| run::<C>(seed).checker);
        let Ok(ran) = ran else { panic!("seed {seed} breaks a promise: see above") };
        hash ^= ran.trace_hash();
        for (name, count) in ran.events {
            *events.entry(name).or_default() += count;
        }
    }
    println!("seeds {seeds:?}: hash {hash:016x}, {events:#?}");
    events
}

#[test]
fn every_promise_holds_in_every_weather() {
    let events = run_all::<Raft>(seeds(0..300));
    for name in [
        "crash",
        "cut",
        "disk stalled",
        "disk replaced",
        "leader elected",
        "log truncated",
        "snapshot installed",
        "read confirmed",
        "transfer begun",
        "change proposed",
        "message for another disk",
    ] {
        assert!(events.contains_key(name), "{name} never came up: {events:?}");
    }
}

#[test]
fn another_implementation_keeps_the_same_promises() {
    let events = run_all::<Toy>(seeds(0..150));
    for name in ["crash", "cut", "snapshot installed", "read confirmed"] {
        assert!(events.contains_key(name), "{name} never came up: {events:?}");
    }
}

#[test]
fn the_same_seed_gives_the_same_run() {
    for seed in 0..25 {
        let hash = run::<Raft>(seed).checker.trace_hash();
        assert_eq!(hash, run::<Raft>(seed).checker.trace_hash(), "seed {seed}");
    }
}
