//! Throws at a broker what strangers who mean harm would send, while honest clients go on.
//! `cargo xtask attack` runs it.

use std::process::ExitCode;

use clap::Parser;
use towpath_process::attack::{Plan, run};

#[derive(Parser)]
#[command(about = "Attack a broker: mutated frames, bombs, oversized input, slow connections")]
struct Arguments {
    /// Mutated Kafka frames; one HTTP request for every hundred
    #[arg(long, default_value_t = 1_000_000)]
    frames: u64,
    /// Slow connections
    #[arg(long, default_value_t = 5_000)]
    slow: usize,
    /// Where chance starts
    #[arg(long)]
    seed: Option<u64>,
}

fn main() -> ExitCode {
    let Arguments { frames, slow, seed } = Arguments::parse();
    let seed = seed.unwrap_or_else(|| fastrand::u64(..1 << 32));
    match run(&Plan { frames, slow, seed }) {
        Ok(report) => {
            println!("{report}");
            ExitCode::SUCCESS
        }
        Err(error) => {
            eprintln!("error: {error:#}");
            eprintln!("again: cargo xtask attack --frames {frames} --slow {slow} --seed {seed}");
            ExitCode::FAILURE
        }
    }
}
