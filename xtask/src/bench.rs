//! `cargo xtask bench [kafka|queues] [ROW…]`: measures Towpath, and Kafka or other work queues beside it.
//!
//! The work is done by `towpath-bench`, a program of its own; this builds both, finds Kafka, and
//! says which commit is measured. Rows that are finished are kept in `target/bench`, so that a run
//! that was interrupted goes on where it stopped; `bench/README.md` says more.

use std::process::Command;

use anyhow::{Context, Result, bail};

use crate::{oracle, product, root};

/// Builds, and measures. `args`: `kafka` first, for both brokers, or `queues`, for ElasticMQ (from Maven),
/// RabbitMQ and NATS (which have to be installed); the others are those of `towpath-bench` (`--list`, `--quick`, `--all`, `--again`, `--pairs N`, rows). `--save` writes
/// the report to `bench/results`.
pub(crate) fn run(args: &[String]) -> Result<()> {
    let (name, mut args) = match args.split_first() {
        Some((first, rest)) if ["kafka", "queues"].contains(&first.as_str()) => {
            (first.as_str(), rest.to_vec())
        }
        _ => ("alone", args.to_vec()),
    };
    let is_quick = args.iter().any(|arg| arg == "--quick");
    let kept = if is_quick { format!("{name}-quick") } else { name.to_owned() };
    let saves = args.iter().position(|arg| arg == "--save");
    if let Some(at) = saves {
        args.remove(at);
    }
    // The broker as it ships; only that is compared with anything.
    crate::test::cargo(&["build", "--profile", "dist", "--package", "towpath"])?;
    crate::test::cargo(&["build", "--release", "--package", "towpath-bench"])?;
    let towpath = product::target().join("dist/towpath");

    let work = root().join("target/bench");
    let mut bench = Command::new(product::binary().with_file_name("towpath-bench"));
    bench
        .arg("--towpath")
        .arg(towpath)
        .args(["--commit", &commit()?])
        .arg("--keep")
        .arg(work.join(&kept))
        .arg("--data")
        .arg(work.join("data"));
    match name {
        "kafka" => drop(bench.args(["--kafka", &oracle::kafka_class_path()?])),
        "queues" => {
            let pom = root().join("bench/peers/pom.xml");
            let elasticmq = oracle::class_path(&pom, &work.join("elasticmq.txt"))?;
            bench.args(["--peers", "--elasticmq", &elasticmq]);
        }
        _ => {}
    }
    if saves.is_some() {
        bench.arg("--save").arg(root().join("bench/results").join(&kept));
    }
    let status = bench.args(args).status().context("towpath-bench did not start")?;
    if !status.success() {
        bail!("towpath-bench: {status}");
    }
    Ok(())
}

/// What is measured, with a `+` when the work tree has changes.
fn commit() -> Result<String> {
    let git = |arguments: &[&str]| -> Result<String> {
        let output = Command::new("git").args(arguments).current_dir(root()).output();
        Ok(String::from_utf8_lossy(&output.context("git is needed")?.stdout).trim().to_owned())
    };
    let is_changed = !git(&["status", "--porcelain", "--untracked-files=no"])?.is_empty();
    let mark = if is_changed { "+" } else { "" };
    Ok(format!("{}{mark}", git(&["rev-parse", "--short", "HEAD"])?))
}
