//! Lets things happen to a cluster of real brokers under load, and checks that it keeps its word.
//! `cargo xtask cluster` runs it.

use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Duration;

use clap::Parser;
use towpath_process::cluster::{Kind, Plan, missing, run, sweep_after};

#[derive(Parser)]
#[command(about = "Kill, pause, cut off, fill and damage three real brokers under load")]
struct Arguments {
    /// How often something goes wrong; with --rolling or --restarts, rounds; with --flips, bits
    #[arg(long, default_value_t = 24)]
    times: u64,
    /// Kills, pauses, cuts, full and slow disks; this is the default
    #[arg(long)]
    faults: bool,
    /// Instead, restart one broker after the other, under clients with default settings
    #[arg(long)]
    rolling: bool,
    /// Instead, run `towpath cluster restart` again and again, under clients with default settings
    #[arg(long, conflicts_with = "rolling")]
    restarts: bool,
    /// Instead, have brokers drained and stopped in turn, and take how long clients wait
    #[arg(long, conflicts_with_all = ["rolling", "restarts"])]
    moves: bool,
    /// Instead, flip bits in the files of one broker at a time
    #[arg(long, conflicts_with_all = ["rolling", "restarts", "moves"])]
    flips: bool,
    /// Instead, kill leaders of work queues under load, and look at what workers are given
    #[arg(long, conflicts_with_all = ["rolling", "restarts", "moves", "flips"])]
    queues: bool,
    /// Where chance starts; every round of 24 uses the next seed
    #[arg(long)]
    seed: Option<u64>,
    /// The longest a fault lasts, in seconds
    #[arg(long, default_value_t = 20)]
    hold: u64,
    /// Go on with the campaign whose ledger is in this directory, also after failures
    #[arg(long)]
    campaign: Option<PathBuf>,
    /// Where logs and data of a failed round are copied
    #[arg(long, default_value = "target/cluster")]
    keep: PathBuf,
    /// Say whether it can run here, and nothing else
    #[arg(long)]
    probe: bool,
    /// Take down what a run has built, once standard input ends
    #[arg(long, hide = true)]
    sweep_after: Option<u32>,
}

fn main() -> ExitCode {
    let arguments = Arguments::parse();
    if let Some(run) = arguments.sweep_after {
        return finish(sweep_after(run).map(|()| String::new()));
    }
    if let Some(why) = missing() {
        println!("{why}");
        return ExitCode::from(2);
    }
    if arguments.probe {
        return ExitCode::SUCCESS;
    }
    let kinds = [
        (arguments.rolling, Kind::Rolling),
        (arguments.restarts, Kind::Restarts),
        (arguments.moves, Kind::Moves),
        (arguments.flips, Kind::Flips),
        (arguments.queues, Kind::Queues),
    ];
    let kind = kinds.into_iter().find(|(is_meant, _)| *is_meant).map_or(Kind::Faults, |(_, k)| k);
    finish(run(&Plan {
        kind,
        times: arguments.times,
        seed: arguments.seed.unwrap_or_else(|| fastrand::u64(..1 << 32)),
        hold_max: Duration::from_secs(arguments.hold),
        campaign: arguments.campaign,
        keep: arguments.keep,
    }))
}

fn finish(outcome: anyhow::Result<String>) -> ExitCode {
    match outcome {
        Ok(report) => {
            println!("{report}");
            ExitCode::SUCCESS
        }
        Err(error) => {
            eprintln!("error: {error:#}");
            ExitCode::FAILURE
        }
    }
}
