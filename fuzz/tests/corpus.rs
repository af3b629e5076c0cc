//! Every target on everything that is known, and on a few thousand mutants: on every run of the
//! tests, the same ones each time.

use std::path::Path;
use std::time::{Duration, Instant};

use towpath_fuzz::{Campaign, targets};

/// Mutants per target; `cargo xtask fuzz` makes as many as there is time for.
const MUTANTS: u64 = 2_000;
/// A target that is slow, in an unoptimised build, gets fewer.
const SHARE: Duration = Duration::from_secs(3);

#[test]
fn no_parser_breaks_on_known_inputs_and_their_mutants() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let (corpus, regressions) = (root.join("corpus"), root.join("regressions"));
    for target in targets::ALL {
        let known = Campaign::begin(*target, &[&corpus], &regressions, 1).unwrap();
        let ended = known.and_then(|mut campaign| {
            campaign.go_on(Instant::now() + SHARE, MUTANTS)?;
            Ok(campaign)
        });
        let campaign = ended.unwrap_or_else(|failure| {
            let path = failure.write(&std::env::temp_dir().join("fuzz-failures")).unwrap();
            panic!("{}: {}\ninput: {}", failure.target, failure.what, path.display());
        });
        let outcome = campaign.outcome();
        println!("{}: {outcome:?}", target.name);
        assert!(1 < outcome.corpus, "{} never does anything new", target.name);
    }
}

#[test]
fn the_committed_corpus_belongs_to_targets_that_exist() {
    let corpus = Path::new(env!("CARGO_MANIFEST_DIR")).join("corpus");
    for entry in std::fs::read_dir(corpus).unwrap() {
        let entry = entry.unwrap();
        let bytes = entry.metadata().unwrap().len();
        assert!(bytes <= 100_000, "{:?} has {bytes} bytes", entry.file_name());
        let name = entry.file_name().into_string().unwrap();
        let is_its = |target: &&towpath_fuzz::Target| name == format!("{}.hex", target.name);
        assert!(targets::ALL.iter().any(|target| is_its(&target)), "no target for {name:?}");
    }
}
