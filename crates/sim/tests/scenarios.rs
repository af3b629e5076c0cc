//! Runs that once failed, kept in `crates/sim/scenarios/`: none of them may fail again.

use std::fs;
use std::path::Path;

use towpath_sim::Trace;
use towpath_sim::campaign::run_traced;
use towpath_sim::scenario::Scenario;

#[test]
fn no_run_that_was_kept_fails() {
    let directory = Path::new(env!("CARGO_MANIFEST_DIR")).join("scenarios");
    let mut replayed = 0;
    for entry in fs::read_dir(&directory).expect("scenarios are kept beside the tests") {
        let path = entry.expect("a directory can be listed").path();
        let text = fs::read_to_string(&path).expect("a scenario is text");
        let scenario = Scenario::parse(&text)
            .unwrap_or_else(|problem| panic!("{}: {problem}", path.display()));
        let trace = Trace::hashing().keeping(Some(scenario.kept));
        if let Err(failure) = run_traced(scenario.profile, scenario.seed, &trace) {
            panic!("{}: {failure}", path.display());
        }
        replayed += 1;
    }
    assert!(0 < replayed, "there is at least one");
}
