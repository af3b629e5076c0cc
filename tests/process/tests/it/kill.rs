//! A few kills under load, on every run of the tests. `cargo xtask kill` does it properly.

use towpath_process::kill::{Plan, run};

#[test]
fn what_was_promised_under_load_is_there_after_kills() {
    let summary = run(&Plan { times: 6, seed: 1, data: None }).unwrap_or_else(|e| panic!("{e:#}"));
    println!("{summary}");
    assert!(6 < summary.kills.0 + summary.kills.1);
    assert!(0 < summary.report.acked && 0 < summary.resumed);
}
