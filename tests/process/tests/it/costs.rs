//! What a broker costs that has nothing to do. Only a build for speed is held to the promise; an
//! unoptimised one gets a bound that still finds a blunder.

use std::time::Duration;

use towpath_process::{BrokerProcess, is_optimised, towpath_binary};

use crate::support::dev;

/// The promise, or the bound of an unoptimised build.
fn bound<T>(promised: T, unoptimised: T) -> T {
    if is_optimised(towpath_binary().unwrap()) { promised } else { unoptimised }
}

#[test]
fn the_binary_is_small_once_it_is_stripped() {
    let path = towpath_binary().unwrap();
    let loaded = loaded_bytes(&std::fs::read(path).unwrap());
    let most = bound(30_000_000, 120_000_000);
    println!("{loaded} bytes without symbols");
    assert!(loaded < most, "{} is {loaded} bytes without symbols", path.display());
}

/// What `strip` leaves of an ELF file: the sections that are loaded. (Release builds keep line
/// tables, which the packages do not.)
fn loaded_bytes(elf: &[u8]) -> u64 {
    const ALLOCATED: u64 = 2;
    const WITHOUT_BYTES: u32 = 8;
    let word = |at: usize| u64::from_le_bytes(elf[at..at + 8].try_into().unwrap());
    let half = |at: usize| u32::from_le_bytes(elf[at..at + 4].try_into().unwrap());
    let short = |at: usize| usize::from(u16::from_le_bytes(elf[at..at + 2].try_into().unwrap()));
    assert_eq!(&elf[..5], b"\x7fELF\x02", "not a 64-bit ELF file");
    let (sections, size, count) = (word(40) as usize, short(58), short(60));
    (0..count)
        .map(|index| sections + index * size)
        .filter(|at| word(at + 8) & ALLOCATED != 0 && half(at + 4) != WITHOUT_BYTES)
        .map(|at| word(at + 32))
        .sum()
}

/// The cheapest of several starts: others use the machine as well.
fn best<T: Ord>(measure: impl Fn(&BrokerProcess) -> T) -> T {
    let starts = (0..5).map(|_| {
        let (broker, _data) = dev();
        measure(&broker)
    });
    starts.min().unwrap()
}

#[test]
fn a_start_takes_little_processor_time() {
    let cpu = best(|broker| broker.cost().unwrap().cpu);
    let most = bound(Duration::from_millis(30), Duration::from_millis(400));
    println!("{cpu:?} of processor time until ready");
    assert!(cpu <= most, "a start took {cpu:?} of processor time");
}

#[test]
fn an_idle_broker_takes_little_memory_and_no_time() {
    let (broker, _data) = dev();
    std::thread::sleep(Duration::from_millis(500));
    let before = broker.cost().unwrap();
    std::thread::sleep(Duration::from_secs(3));
    let after = broker.cost().unwrap();
    let most = bound(20_000_000, 60_000_000);
    assert!(after.resident_bytes < most, "{after:?}");
    // Time of threads that ended meanwhile is told in steps of 10 ms, so it may seem to go back.
    let cpu = after.cpu.saturating_sub(before.cpu);
    println!("idle: {after:?}, {cpu:?} of processor time in 3 s");
    let most = bound(Duration::from_millis(15), Duration::from_millis(60));
    assert!(cpu < most, "3 s of nothing took {cpu:?} of processor time");
    assert!(after.threads < 24 && after.open_files < 64, "{after:?}");
}
