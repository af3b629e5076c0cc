//! Kills a broker under load, so many times, and checks that it kept its word. `cargo xtask kill`
//! runs it.

use std::path::PathBuf;
use std::process::ExitCode;

use clap::Parser;
use towpath_process::kill::{Plan, run};

/// Kills after which a fresh data directory is used: reading everything back stays quick, and a
/// failure is found close to where it happened.
const ROUND_MAX: u64 = 50;

#[derive(Parser)]
#[command(about = "Kill a broker with -9 under load, restart it, and check what it promised")]
struct Arguments {
    /// How often to kill.
    #[arg(long, default_value_t = 50)]
    times: u64,
    /// Where chance starts; rounds of 50 kills use this seed and those after it.
    #[arg(long)]
    seed: Option<u64>,
    /// Keep the data here, in one directory per round.
    #[arg(long)]
    data: Option<PathBuf>,
}

fn main() -> ExitCode {
    let arguments = Arguments::parse();
    let first = arguments.seed.unwrap_or_else(|| fastrand::u64(..1 << 32));
    let mut left = arguments.times;
    for seed in first.. {
        if left == 0 {
            break;
        }
        let times = left.min(ROUND_MAX);
        let data = arguments.data.as_ref().map(|directory| directory.join(format!("seed-{seed}")));
        match run(&Plan { times, seed, data }) {
            Ok(summary) => println!("{summary}"),
            Err(error) => {
                eprintln!("error: {error:#}");
                eprintln!("again: cargo xtask kill --times {times} --seed {seed}");
                return ExitCode::FAILURE;
            }
        }
        left -= times;
    }
    ExitCode::SUCCESS
}
