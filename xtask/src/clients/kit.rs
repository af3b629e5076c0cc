//! What the client programs need around them: interpreters of the system, packages installed under
//! `target/clients`. Installing again happens only when a lock file is newer than what is there.

use std::ffi::OsStr;
use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result, ensure};

use super::program::last_lines;
use crate::oracle::{is_older, kafka_class_path};

/// What a program needs around it.
#[derive(Clone, Copy)]
pub(super) enum Kit {
    /// Plain Python and a program of the system.
    System(&'static str),
    Python,
    Go,
    Node,
    /// A Java source file.
    Java,
    /// A Python program that starts Java tools.
    JavaTools,
    /// A Python program that reads message descriptions out of Kafka's client library.
    Oracle,
}

impl Kit {
    /// Programs of the system that it cannot do without.
    pub(super) fn needs(self) -> Vec<&'static str> {
        match self {
            Kit::System(program) => vec!["python3", program],
            Kit::Python => vec!["python3"],
            Kit::Go => vec!["go"],
            Kit::Node => vec!["node", "npm"],
            Kit::Java => vec!["java", "mvn"],
            Kit::JavaTools => vec!["python3", "java", "mvn"],
            Kit::Oracle => vec!["python3", "mvn"],
        }
    }

    /// Installs what is missing and returns the command that runs `program`.
    pub(super) fn command(self, root: &Path, program: &str) -> Result<Command> {
        let sources = root.join("tests/clients");
        let made = root.join("target/clients");
        fs::create_dir_all(&made)?;
        match self {
            Kit::System(_) => Ok(with("python3", [sources.join("python").join(program)])),
            Kit::Python => {
                let python = python(&sources.join("python"), &made.join("python"))?;
                Ok(with(python, [sources.join("python").join(program)]))
            }
            Kit::Go => {
                let built = made.join("go");
                fs::create_dir_all(&built)?;
                let mut build = Command::new("go");
                build.current_dir(sources.join("go")).env("GOTOOLCHAIN", "local");
                finish(build.args(["build", "-mod=readonly", "-o"]).arg(&built).arg("./..."))?;
                Ok(Command::new(built.join(program)))
            }
            Kit::Node => {
                let modules = node(&sources.join("js"), &made.join("js"))?;
                Ok(with("node", [modules.join(program)]))
            }
            Kit::Java => {
                // Short programs: compiling little and collecting simply starts twice as fast.
                let mut java = with("java", ["-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1"]);
                java.arg(sources.join("java").join(program)).env("CLASSPATH", kafka_class_path()?);
                Ok(java)
            }
            Kit::JavaTools => {
                let mut tools = with("python3", [sources.join("java").join(program)]);
                tools.env("CLASSPATH", kafka_class_path()?);
                Ok(tools)
            }
            Kit::Oracle => {
                let class_path = kafka_class_path()?;
                let library = class_path.split(':').find(|jar| jar.contains("/kafka-clients-"));
                let library = library.context("Kafka's client library is not installed")?;
                let mut oracle = with("python3", [sources.join("oracle").join(program)]);
                oracle.env("KAFKA_CLIENTS_JAR", library);
                Ok(oracle)
            }
        }
    }
}

/// A command with its first arguments.
pub(crate) fn with<A: AsRef<OsStr>, const N: usize>(
    program: impl AsRef<OsStr>,
    args: [A; N],
) -> Command {
    let mut command = Command::new(program);
    command.args(args);
    command
}

/// A virtual environment with the packages of `requirements.txt`; returns its interpreter.
pub(crate) fn python(sources: &Path, made: &Path) -> Result<PathBuf> {
    let requirements = sources.join("requirements.txt");
    let (interpreter, stamp) = (made.join("bin/python"), made.join("installed"));
    if is_older(&stamp, &requirements) {
        finish(with("python3", ["-m", "venv", "--clear"]).arg(made))?;
        finish(with(&interpreter, ["-m", "pip", "install", "-q", "-r"]).arg(&requirements))?;
        File::create(stamp)?;
    }
    Ok(interpreter)
}

/// A directory with `node_modules` and the programs beside it, where their imports find it.
fn node(sources: &Path, made: &Path) -> Result<PathBuf> {
    fs::create_dir_all(made)?;
    for entry in fs::read_dir(sources)? {
        let path = entry?.path();
        fs::copy(&path, made.join(path.file_name().expect("a directory's entries have names")))?;
    }
    let (lock, stamp) = (sources.join("package-lock.json"), made.join("installed"));
    if is_older(&stamp, &lock) {
        finish(
            with("npm", ["ci", "--no-audit", "--no-fund", "--loglevel=error"]).current_dir(made),
        )?;
        File::create(stamp)?;
    }
    Ok(made.to_path_buf())
}

/// Runs a command that installs or builds; its words are shown only if it fails.
pub(crate) fn finish(command: &mut Command) -> Result<()> {
    let shown = format!("{command:?}");
    let output = command.output().with_context(|| format!("could not start {shown}"))?;
    ensure!(
        output.status.success(),
        "{shown} failed: {}",
        last_lines(&String::from_utf8_lossy(&output.stderr), 3)
    );
    Ok(())
}

/// Whether the machine has a program of that name, or the file of that absolute path.
pub(crate) fn is_on_path(program: &str) -> bool {
    let path = std::env::var_os("PATH").unwrap_or_default();
    std::env::split_paths(&path).any(|dir| dir.join(program).is_file())
}
