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
fn the_binary_is_small() {
    let path = towpath_binary().unwrap();
    let file = std::fs::read(path).unwrap();
    // As it ships. Names of functions are for whoever profiles a build of ours.
    let bytes = file.len() as u64 - symbol_bytes(&file);
    let most = bound(30_000_000, 200_000_000);
    println!("{bytes} bytes without symbols, {} as built", file.len());
    assert!(bytes < most, "{} is {bytes} bytes", path.display());
}

/// Bytes of the symbol table and its names in an ELF file of 64 bits, little endian.
fn symbol_bytes(file: &[u8]) -> u64 {
    const SYMTAB: u64 = 2;
    let number = |at: usize, len: usize| {
        let bytes = file[at..at + len].iter().rev();
        bytes.fold(0_u64, |number, byte| number << 8 | u64::from(*byte))
    };
    let (table, entry, count) = (number(0x28, 8), number(0x3a, 2), number(0x3c, 2));
    let header = |nth: u64| usize::try_from(table + nth * entry).unwrap();
    let size = |nth: u64| number(header(nth) + 0x20, 8);
    let symbols = (0..count).filter(|nth| number(header(*nth) + 4, 4) == SYMTAB);
    symbols.map(|nth| size(nth) + size(number(header(nth) + 0x28, 4))).sum()
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
