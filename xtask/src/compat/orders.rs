//! Stops and starts brokers while tests run, because a test asks for it.
//!
//! A test knows a command to call (a script in its suite's directory). That puts an empty file `stop-N`
//! or `start-N` into a directory and waits until the file is gone. The brokers stay processes of ours.

use std::fs;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::Duration;

use anyhow::{Context, Result};

use super::brokers::Brokers;

/// How often somebody looks for orders.
const POLL: Duration = Duration::from_millis(20);

/// Does `work`, and meanwhile what is ordered in the directory, if there is one.
pub(super) fn obeying<T>(
    orders: Option<PathBuf>,
    brokers: &Brokers,
    work: impl FnOnce() -> Result<T>,
) -> Result<T> {
    let Some(orders) = orders else { return work() };
    if orders.exists() {
        fs::remove_dir_all(&orders)?;
    }
    fs::create_dir_all(&orders)?;
    let is_done = AtomicBool::new(false);
    thread::scope(|scope| {
        scope.spawn(|| {
            while !is_done.load(Ordering::Relaxed) {
                if let Err(error) = obey(&orders, brokers) {
                    eprintln!("error: {error:#}");
                }
                thread::sleep(POLL);
            }
        });
        let result = work();
        is_done.store(true, Ordering::Relaxed);
        result
    })
}

/// Does what is ordered now. A broker that does not come up is told once: its order is gone as well.
fn obey(orders: &Path, brokers: &Brokers) -> Result<()> {
    for entry in fs::read_dir(orders)? {
        let file = entry?.path();
        let done =
            file.file_name().and_then(|name| name.to_str()).map(|order| carry_out(order, brokers));
        fs::remove_file(&file)?;
        done.transpose()?;
    }
    Ok(())
}

fn carry_out(order: &str, brokers: &Brokers) -> Result<()> {
    let (verb, broker) = order.split_once('-').with_context(|| format!("no order: {order}"))?;
    let broker = broker.parse().with_context(|| format!("no broker's number: {order}"))?;
    match verb {
        "stop" => brokers.stop(broker),
        "start" => brokers.start_again(broker),
        _ => anyhow::bail!("unknown order {order}"),
    }
}
