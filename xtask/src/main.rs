//! Chores of the work tree: `cargo xtask …`.

use anyhow::{Result, bail};

mod protocol;

const USAGE: &str = "usage: cargo xtask protocol ...";

fn main() -> Result<()> {
    let args: Vec<String> = std::env::args().skip(1).collect();
    match args.split_first() {
        Some((chore, rest)) if chore == "protocol" => protocol::run(rest),
        _ => bail!(USAGE),
    }
}
