use super::*;

fn lists() -> Lists {
    Lists {
        file: PathBuf::new(),
        passes: passes("# about\n\ngood\nlong # slow\n").expect("well formed"),
        findings: findings(
            "# Findings\n\n- `bad`, `worse`: no TLS yet\nand `prose` counts for nothing\n",
        ),
    }
}

fn results(of: &[(&str, Outcome)]) -> Results {
    of.iter().map(|(test, outcome)| ((*test).to_owned(), outcome.clone())).collect()
}

fn failed() -> Outcome {
    Outcome::Failed("exit 1".to_owned())
}

#[test]
fn lists_are_read_line_by_line() {
    let lists = lists();
    assert!(lists.must_pass("good") && lists.is_quick("good"));
    assert!(lists.must_pass("long") && !lists.is_quick("long"));
    assert!(!lists.must_pass("bad"));
    assert_eq!(lists.findings, BTreeSet::from(["bad".to_owned(), "worse".to_owned()]));
    assert!(passes("a # quick\n").is_err());
    assert!(passes("a\na # slow\n").is_err());
}

#[test]
fn what_goes_as_listed_is_as_expected() {
    let seen = results(&[
        ("good", Outcome::Passed),
        ("long", Outcome::Passed),
        ("bad", failed()),
        ("worse", Outcome::Skipped("no TLS".to_owned())),
    ]);
    let verdict = lists().compare(&seen, true);
    assert_eq!(verdict, Verdict::default());
    assert!(verdict.is_as_expected(false));
}

#[test]
fn a_listed_test_that_fails_or_is_skipped_is_broken() {
    for outcome in [failed(), Outcome::Skipped("no broker".to_owned())] {
        let verdict = lists().compare(&results(&[("good", outcome)]), false);
        assert_eq!(verdict.broken.len(), 1);
        assert!(!verdict.is_as_expected(true));
    }
}

#[test]
fn an_unknown_test_fails_the_run_whatever_it_does() {
    let verdict = lists().compare(&results(&[("stranger", failed())]), false);
    assert!(!verdict.is_as_expected(true));
    let verdict = lists().compare(&results(&[("stranger", Outcome::Passed)]), false);
    assert!(!verdict.is_as_expected(false));
    assert!(verdict.is_as_expected(true), "--write has added it");
}

#[test]
fn an_explained_test_that_passes_is_news_and_no_failure() {
    let verdict = lists().compare(&results(&[("bad", Outcome::Passed)]), false);
    assert!(verdict.is_as_expected(false));
    assert_eq!(verdict.new, ["bad"]);
}

#[test]
fn a_listed_test_that_is_gone_fails_a_whole_run_only() {
    let seen = results(&[("good", Outcome::Passed)]);
    assert!(lists().compare(&seen, false).is_as_expected(false));
    assert_eq!(lists().compare(&seen, true).gone, ["long", "bad", "worse"]);
}
