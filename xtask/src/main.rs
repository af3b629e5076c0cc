//! Chores of the work tree: `cargo xtask …`.

use std::path::{Path, PathBuf};
use std::process::ExitCode;

use anyhow::{Result, bail};

mod architecture;
mod attack;
mod bench;
mod clients;
mod cluster;
mod compat;
mod costs;
mod fuzz;
mod kill;
mod licences;
mod oracle;
mod product;
mod protocol;
mod sim;
mod test;

const USAGE: &str = "usage: cargo xtask CHORE

  test [--ci]      install what the tests need and run them all
  clients …        only the real clients, against the product or any broker
  compat …         other projects' own test suites against the product
  sim …            the simulator: --seeds N, --seed S, --profile P, --mutants, --shrink, --campaign
  bench …          measure the broker: rows by name, --list; `bench kafka …` measures Kafka beside it
  costs            count instructions, allocations and system calls per request, against a baseline
  kill --times N   kill the real broker under load, and check that nothing acknowledged is lost
  cluster …        kill, pause, cut off, fill, restart (--rolling) or damage (--flips) three real
                   brokers under load, or kill leaders of work queues (--queues), and compare; needs root
  attack …         frames, bombs and slow connections of strangers: --frames N, --slow N, --seed S
  fuzz …           throw mutated input at every parser
  protocol …       import schemas, generate the codec, check it
  oracle …         start and stop a real Kafka 4.4 to compare with";

fn main() -> ExitCode {
    match run() {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            // Not by returning it: a backtrace of this program would push what failed off the end
            // of a log.
            eprintln!("error: {error:#}");
            ExitCode::FAILURE
        }
    }
}

fn run() -> Result<()> {
    let args: Vec<String> = std::env::args().skip(1).collect();
    let Some((chore, rest)) = args.split_first() else { bail!(USAGE) };
    match chore.as_str() {
        "test" => test::run(rest),
        "clients" => clients::command(rest),
        "compat" => compat::command(rest),
        "sim" => sim::run(rest),
        "bench" => bench::run(rest),
        "costs" => costs::run(rest),
        "kill" => kill::run(rest),
        "cluster" => cluster::run(rest),
        "attack" => attack::run(rest),
        "fuzz" => fuzz::run(rest),
        "protocol" => protocol::run(rest),
        "oracle" => oracle::run(rest),
        _ => bail!(USAGE),
    }
}

/// The project's root directory.
fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).parent().expect("xtask lies in the root").to_owned()
}
