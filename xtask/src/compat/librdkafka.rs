//! librdkafka's own tests, from the crate `rdkafka-sys`, which carries the library's whole source tree.
//!
//! They are one C program that takes the number of a test. A number can stand for several tests, which
//! would disturb each other: they are one run, under the name of the first. Tests that need no broker (they run against the library's own mock) are left
//! out: they say nothing about us. Some call Kafka's scripts, for which thin ones are written here
//! that run the same Java classes.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitStatus};
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use serde::Deserialize;

use super::kafka_scripts::script;
use super::suite::{Outcome, Prepared, Suite};
use crate::clients::kit::{finish, with};

pub(super) const SUITE: Suite = Suite {
    name: "librdkafka",
    // The last is of Debian's package rapidjson-dev: without it, four tests are compiled to nothing.
    needs: &["gcc", "g++", "make", "java", "mvn", "/usr/include/rapidjson/schema.h"],
    nodes: 3,
    at_once: 6,
    wait: Duration::from_secs(900),
    prepare,
};

/// The version of `rdkafka-sys`; this one carries librdkafka 2.12.1.
const CRATE_VERSION: &str = "4.10.0";

/// What is built: changed whenever a tree that was built before would not do.
const BUILD: &str = "4.10.0 with RapidJSON";

/// What the tests believe they talk to: they leave out what their broker would not have.
const KAFKA_VERSION: &str = "4.4.0";

/// The test of the admin client, which gives up at its first part that fails, and so at ACLs: those of
/// its parts that come later and are about something else also run by themselves, as
/// `0081_admin/DeleteRecords` and so on.
const ADMIN: &str = "0081_admin";
const ADMIN_PARTS: &[&str] = &[
    "AlterConfigs",
    "IncrementalAlterConfigs",
    "DescribeConfigs",
    "DescribeConfigs_groups",
    "DeleteRecords",
    "ListConsumerGroups",
    "DescribeConsumerGroups",
    "DescribeTopics",
    "DescribeCluster",
    "DeleteGroups",
    "DeleteConsumerGroupOffsets",
    "ListOffsets",
    "AlterConsumerGroupOffsets",
    "ListConsumerGroupOffsets",
];

/// Scenario of the tests that want topics never to be created by use.
const NO_AUTO_CREATE: &str = "noautocreate";

struct Librdkafka {
    made: PathBuf,
    tests: Vec<Test>,
}

#[derive(Debug, PartialEq, Eq)]
struct Test {
    name: String,
    scenario: &'static str,
}

fn prepare(made: &Path) -> Result<Box<dyn Prepared>> {
    let tree = made.join("librdkafka");
    let stamp = made.join("version");
    if fs::read_to_string(&stamp).ok().as_deref() != Some(BUILD) {
        if tree.exists() {
            fs::remove_dir_all(&tree)?;
        }
        let source = fetch(&made.join("fetch"))?.join("librdkafka");
        finish(with("cp", ["-r", "--no-preserve=timestamps"]).arg(source).arg(&tree))?;
        finish(with("chmod", ["-R", "u+w"]).arg(&tree))?;
        build(&tree)?;
        fs::write(stamp, BUILD)?;
    }
    script(&made.join("kafka/bin"), "kafka-topics.sh", "org.apache.kafka.tools.TopicCommand")?;
    let table = fs::read_to_string(tree.join("tests/test.c"))?;
    let tests = tests_of(&table).context("test.c has no table of tests")?;
    Ok(Box::new(Librdkafka { made: made.to_owned(), tests }))
}

#[derive(Deserialize)]
struct Metadata {
    packages: Vec<Package>,
}

#[derive(Deserialize)]
struct Package {
    name: String,
    manifest_path: PathBuf,
}

/// Has cargo download the crate, as a dependency of an empty package; returns where it lies.
fn fetch(dir: &Path) -> Result<PathBuf> {
    fs::create_dir_all(dir.join("src"))?;
    fs::write(dir.join("src/lib.rs"), "")?;
    let manifest = dir.join("Cargo.toml");
    let text = format!(
        "[package]\nname = \"fetch\"\nedition = \"2024\"\n\n[workspace]\n\n\
         [dependencies]\nrdkafka-sys = {{ version = \"={CRATE_VERSION}\", default-features = false }}\n"
    );
    fs::write(&manifest, text)?;
    let cargo = std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into());
    let output = Command::new(cargo)
        .args(["metadata", "--format-version", "1", "--manifest-path"])
        .arg(&manifest)
        .output()?;
    ensure!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let metadata: Metadata = serde_json::from_slice(&output.stdout)?;
    let package = metadata.packages.into_iter().find(|package| package.name == "rdkafka-sys");
    let manifest = package.context("cargo does not know the crate")?.manifest_path;
    Ok(manifest.parent().context("a manifest lies in a directory")?.to_owned())
}

/// Without TLS, SASL and HTTP, which need libraries of the system; unoptimised, which halves the time.
fn build(tree: &Path) -> Result<()> {
    let without = ["--disable-ssl", "--disable-sasl", "--disable-curl", "--disable-optimization"];
    finish(with("./configure", without).current_dir(tree))?;
    let jobs = std::thread::available_parallelism().map_or(1, std::num::NonZero::get);
    let jobs = format!("-j{jobs}");
    finish(with("make", [&*jobs, "libs"]).current_dir(tree))?;
    finish(with("make", [&*jobs, "-C", "tests", "build"]).current_dir(tree))
}

/// The tests that need a broker, out of the C table: `_TEST(0001_multiobj, flags, …),`.
fn tests_of(source: &str) -> Option<Vec<Test>> {
    let (_, table) = source.split_once("struct test tests[] = {")?;
    let (table, _) = table.split_once("{NULL}")?;
    let tests = table.split("_TEST(").skip(1).filter_map(|entry| {
        let (name, rest) = entry.split_once(',')?;
        let is_left_out = rest.contains("TEST_F_LOCAL") || rest.contains("TEST_F_MANUAL");
        let scenario = if rest.contains(NO_AUTO_CREATE) { NO_AUTO_CREATE } else { "default" };
        (!is_left_out).then(|| Test { name: name.to_owned(), scenario })
    });
    let parts = ADMIN_PARTS
        .iter()
        .map(|part| Test { name: format!("{ADMIN}/{part}"), scenario: "default" });
    Some(tests.chain(parts).collect())
}

impl Librdkafka {
    fn scenario(&self, test: &str) -> &'static str {
        self.tests.iter().find(|t| t.name == test).map_or("default", |t| t.scenario)
    }

    /// The tests that run together with this one, and itself.
    fn siblings(&self, test: &str) -> impl Iterator<Item = &Test> {
        let run = |test: &Test| {
            (number(&test.name).to_owned(), test.scenario, part(&test.name).map(str::to_owned))
        };
        let own = self.tests.iter().find(|other| other.name == test).map(run);
        self.tests.iter().filter(move |other| Some(run(other)) == own)
    }
}

impl Prepared for Librdkafka {
    fn tests(&self) -> Result<Vec<String>> {
        let is_first = |test: &&Test| self.siblings(&test.name).next() == Some(*test);
        Ok(self.tests.iter().filter(is_first).map(|test| test.name.clone()).collect())
    }

    fn settings(&self, test: &str) -> &'static [&'static str] {
        match self.scenario(test) {
            NO_AUTO_CREATE => &["auto.create.topics.enable=false"],
            // They expect all members in a group's first round, as with Kafka's default of three
            // seconds; the first makes so many groups that it gets less.
            _ if number(test) == "0113" => &["group.initial.rebalance.delay.ms=500"],
            _ if number(test) == "0118" => &["group.initial.rebalance.delay.ms=3000"],
            _ => &[],
        }
    }

    /// 0101 looks for these names, and fetches from the replica in the consumer's rack.
    fn flags(&self, broker: u8) -> Vec<String> {
        vec!["--rack".to_owned(), format!("RACK{broker}")]
    }

    fn command(&self, test: &str, bootstrap: &str) -> Result<Command> {
        let configuration = self.made.join(format!("{}.conf", test.replace('/', "_")));
        // Topics of earlier runs at a broker that lives on would be in the way, and most machines
        // are slower than the one that the time limits were made for.
        let text = format!(
            "bootstrap.servers={bootstrap}\ntest.topic.random=true\n\
             test.timeout.multiplier=3\n"
        );
        fs::write(&configuration, text)?;
        // Not in the quick mode (-Q): there most tests of groups pass without doing anything.
        let mut command = with("./test-runner", ["-p1", "-L"]);
        command
            .current_dir(self.made.join("librdkafka/tests"))
            .env("LD_LIBRARY_PATH", "../src:../src-cpp")
            .env("RDKAFKA_TEST_CONF", configuration)
            .env("TESTS", number(test))
            .env("TEST_SCENARIO", self.scenario(test))
            .env("TEST_KAFKA_VERSION", KAFKA_VERSION)
            .env("KAFKA_PATH", self.made.join("kafka"))
            .env("BROKERS", bootstrap);
        if let Some(part) = part(test) {
            command.env("SUBTESTS", format!("do_test_{part}:"));
        }
        Ok(command)
    }

    /// The program ends with a table: `| 0001_multiobj | PASSED | 1.2s | why not`, with colours.
    fn judge(&self, test: &str, status: ExitStatus, printed: &str) -> Vec<(String, Outcome)> {
        let printed: Vec<String> = printed.lines().map(plain).collect();
        let outcome = |test: &Test| {
            let name = test.name.split('/').next().unwrap_or_default();
            let row = printed.iter().filter_map(|line| row(line, name)).next_back();
            // Told to run a part that it does not have, a test passes without having done anything.
            let has_run = part(&test.name).is_none_or(|part| {
                let begin = format!("[ do_test_{part}:");
                printed.iter().any(|line| line.contains(&begin) && line.contains(": PASS"))
            });
            match row.as_ref().map(|(state, why)| (state.as_str(), why)) {
                Some(("PASSED", _)) if has_run => Outcome::Passed,
                Some(("SKIPPED", why)) => Outcome::Skipped(why.clone()),
                _ => Outcome::Failed(
                    failure(&printed).unwrap_or_else(|| format!("ended ({status})")),
                ),
            }
        };
        self.siblings(test).map(|test| (test.name.clone(), outcome(test))).collect()
    }
}

/// `0045_subscribe_update` is run by its number.
fn number(test: &str) -> &str {
    test.split_once('_').map_or(test, |(number, _)| number)
}

/// `DeleteRecords` of `0081_admin/DeleteRecords`.
fn part(test: &str) -> Option<&str> {
    test.split_once('/').map(|(_, part)| part)
}

/// The line without its terminal colours.
fn plain(line: &str) -> String {
    let mut out = String::new();
    let mut rest = line;
    while let Some((before, after)) = rest.split_once('\u{1b}') {
        out.push_str(before);
        rest = after.split_once('m').map_or("", |(_, after)| after);
    }
    out + rest
}

/// State and reason.
fn row(line: &str, test: &str) -> Option<(String, String)> {
    let mut cells = line.strip_prefix('|')?.splitn(4, '|').map(str::trim);
    if cells.next()? != test {
        return None;
    }
    let state = cells.next()?.to_owned();
    Some((state, cells.nth(1).unwrap_or_default().to_owned()))
}

/// Why the first test failed, from the two lines `### Test "NAME" failed at FILE:LINE` and the reason;
/// the table is missing when the program gives up on itself.
fn failure(printed: &[String]) -> Option<String> {
    let at = printed.iter().position(|line| line.starts_with("### Test "))?;
    Some(printed[at..].iter().take(2).map(String::as_str).collect::<Vec<_>>().join(" "))
}

#[cfg(test)]
mod tests {
    use std::os::unix::process::ExitStatusExt;

    use super::*;

    const TABLE: &str = r#"
struct test tests[] = {
    {.name = "<MAIN>", .flags = TEST_F_LOCAL},
    _TEST(0001_multiobj, 0),
    _TEST(0004_conf, TEST_F_LOCAL),
    _TEST(0107_topic_recreate,
          0,
          .scenario = "noautocreate"),
    _TEST(8000_idle, TEST_F_MANUAL),
    {NULL}};
"#;

    #[test]
    fn the_table_says_which_tests_need_a_broker() {
        let tests = tests_of(TABLE).expect("a table");
        let named = |name: &str, scenario| Test { name: name.to_owned(), scenario };
        let expected =
            [named("0001_multiobj", "default"), named("0107_topic_recreate", NO_AUTO_CREATE)];
        assert_eq!(tests[..2], expected);
        assert_eq!(tests[2], named("0081_admin/AlterConfigs", "default"));
    }

    #[test]
    fn the_row_of_the_test_decides() {
        let tests = tests_of(TABLE).expect("a table");
        let suite = Librdkafka { made: PathBuf::new(), tests };
        let judge = |printed: &str| {
            suite.judge("0001_multiobj", ExitStatus::from_raw(0), printed).remove(0).1
        };
        let row = |state: &str, why: &str| {
            format!(
                "|\u{1b}[32m 0001_multiobj        |   {state} |   1.2s \u{1b}[0m|\u{1b}[31m {why}\u{1b}[0m\n"
            )
        };
        assert_eq!(judge(&row("PASSED", "")), Outcome::Passed);
        assert_eq!(judge(&row("SKIPPED", "no TLS")), Outcome::Skipped("no TLS".to_owned()));
        let failed =
            format!("### Test \"0001_multiobj\" failed at a.c:1\nlate\n{}", row("FAILED", "late"));
        let why = "### Test \"0001_multiobj\" failed at a.c:1 late".to_owned();
        assert_eq!(judge(&failed), Outcome::Failed(why));
        assert!(matches!(
            judge(&row("PASSED", "").replace("_multiobj", "_other")),
            Outcome::Failed(_)
        ));
        assert!(matches!(judge(""), Outcome::Failed(_)));
    }
}
