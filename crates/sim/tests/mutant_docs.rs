//! The table of planted bugs in `docs/testing.md` is the list in the code.

use std::fmt::Write as _;
use std::fs;
use std::path::Path;

use towpath_sim::mutants::{Mutant, hunts};

const BEGIN: &str = "<!-- mutants: written by UPDATE_EXPECT=1 cargo test -p towpath-sim -->\n";
const END: &str = "<!-- end of mutants -->\n";

fn table() -> String {
    let mut out = String::from("| mutant | what it does wrong | found by |\n|---|---|---|\n");
    for mutant in Mutant::ALL {
        let hunts = hunts(*mutant);
        let found_by: Vec<String> =
            hunts.iter().map(|hunt| format!("{}, {} seeds", hunt.profile, hunt.seeds)).collect();
        writeln!(out, "| {} | {} | {} |", mutant.name(), mutant.about(), found_by.join("; "))
            .expect("a string takes everything");
    }
    out
}

#[test]
fn the_table_of_mutants_is_the_list_in_the_code() {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/testing.md");
    let text = fs::read_to_string(&path).expect("the guide is there");
    let (before, rest) = text.split_once(BEGIN).expect("the guide has the table");
    let (found, after) = rest.split_once(END).expect("the table has an end");
    let expected = table();
    if std::env::var_os("UPDATE_EXPECT").is_some() {
        let renewed = [before, BEGIN, &expected, END, after].concat();
        fs::write(&path, renewed).expect("the guide can be written");
        return;
    }
    assert_eq!(found, expected, "run UPDATE_EXPECT=1 cargo test -p towpath-sim");
}
