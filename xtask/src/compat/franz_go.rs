//! franz-go's tests of its client (`kgo`) and of its admin client (`kadm`), from the Go module proxy.
//!
//! Tests are part of a Go module. The module cache is read-only and its modules do not know each
//! other, so both are copied out and built there. Most tests of `kgo` need a broker and skip themselves
//! by what it advertises; the others cost nothing.

use std::path::{Path, PathBuf};
use std::process::{Command, ExitStatus};
use std::time::Duration;

use anyhow::{Result, ensure};

use super::go_module;
use super::suite::{Outcome, Prepared, Suite};

pub(super) const SUITE: Suite = Suite {
    name: "franz-go",
    needs: &["go"],
    nodes: 3,
    at_once: 3,
    wait: Duration::from_secs(240),
    prepare,
};

/// Package, module with version, the package's directory in it.
const PACKAGES: &[(&str, &str, &str)] = &[
    ("kgo", "github.com/twmb/franz-go@v1.22.3", "pkg/kgo"),
    ("kadm", "github.com/twmb/franz-go/pkg/kadm@v1.20.0", "."),
];

/// Per test of the group and transaction chains, unless the caller sets `KGO_TEST_RECORDS`; the suite's
/// own default is 500,000.
const RECORDS: &str = "10000";

/// Ends the name of a test that is run once more with `KGO_TEST_CHAOS`: each of its connections breaks
/// after a second or so, and the next one is made.
const CHAOS: &str = "+chaos";
/// The tests that look at that variable, but for those of share groups.
const CHAOTIC: &[&str] = &["kgo/TestGroupETL"];

struct FranzGo {
    made: PathBuf,
}

fn prepare(made: &Path) -> Result<Box<dyn Prepared>> {
    for (package, module, dir) in PACKAGES {
        go_module::build(made, package, module, &|sources| {
            let mut build = go_module::go(&sources.join(dir));
            build.args(["test", "-c", "-vet=off", "-mod=mod"]);
            build
        })?;
    }
    Ok(Box::new(FranzGo { made: made.to_owned() }))
}

impl Prepared for FranzGo {
    fn tests(&self) -> Result<Vec<String>> {
        let mut tests = Vec::new();
        for (package, _, _) in PACKAGES {
            let output = Command::new(go_module::binary(&self.made, package))
                .args(["-test.list", "^Test"])
                .output()?;
            ensure!(output.status.success(), "{package} does not list its tests");
            let listed = String::from_utf8(output.stdout)?;
            tests.extend(listed.lines().map(|test| format!("{package}/{test}")));
        }
        tests.extend(CHAOTIC.iter().map(|test| format!("{test}{CHAOS}")));
        Ok(tests)
    }

    fn command(&self, test: &str, bootstrap: &str) -> Result<Command> {
        let (package, name, mark) = split(test);
        let dir = PACKAGES.iter().find(|(known, _, _)| *known == package).map_or(".", |p| p.2);
        let records = std::env::var_os("KGO_TEST_RECORDS").unwrap_or_else(|| RECORDS.into());
        let mut command = Command::new(go_module::binary(&self.made, package));
        command
            .current_dir(self.made.join(package).join(dir))
            .args(["-test.v", "-test.run", &format!("^{name}$")])
            .envs([("KGO_SEEDS", bootstrap), ("KGO_TEST_RF", replicas(bootstrap))])
            .env("KGO_TEST_RECORDS", records);
        if mark == CHAOS {
            command.env("KGO_TEST_CHAOS", "1");
        }
        Ok(command)
    }

    fn judge(&self, test: &str, status: ExitStatus, printed: &str) -> Vec<(String, Outcome)> {
        let (package, name, mark) = split(test);
        let mut parts = go_module::judge(name, status, printed);
        for (part, _) in &mut parts {
            *part = format!("{package}/{part}{mark}");
        }
        parts
    }
}

/// How many replicas topics get: three where there are three brokers.
fn replicas(bootstrap: &str) -> &'static str {
    if bootstrap.split(',').count() < 3 { "1" } else { "3" }
}

/// Package, function, and `+chaos` or nothing.
fn split(test: &str) -> (&str, &str, &str) {
    let (package, name) = test.split_once('/').unwrap_or(("kgo", test));
    let name = name.strip_suffix(CHAOS).map_or((name, ""), |name| (name, CHAOS));
    (package, name.0, name.1)
}
