//! What the client programs need around them: interpreters of the system, packages installed under
//! `target/clients`. Installing again happens only when a lock file is newer than what is there.

use std::ffi::OsStr;
use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result, ensure};

use super::program::last_lines;
use crate::oracle::{class_path, is_older, kafka_class_path};

/// What a program needs around it.
#[derive(Clone, Copy)]
pub(super) enum Kit {
    /// Plain Python and a program of the system.
    System(&'static str),
    Python,
    /// Python with packages that do not go with those of the others, listed in that file.
    PythonWith(&'static str),
    Go,
    Node,
    /// A Java source file.
    Java,
    /// A class of `java/sqs`, with both SDKs of AWS.
    JavaSqs,
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
            Kit::Python | Kit::PythonWith(_) => vec!["python3"],
            Kit::Go => vec!["go"],
            Kit::Node => vec!["node", "npm"],
            Kit::Java => vec!["java", "mvn"],
            Kit::JavaSqs => vec!["java", "javac", "mvn"],
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
                let requirements = sources.join("python/requirements.txt");
                let python = python(&requirements, &made.join("python"))?;
                Ok(with(python, [sources.join("python").join(program)]))
            }
            Kit::PythonWith(requirements) => {
                let environment = made.join(requirements).with_extension("");
                let python = python(&sources.join("python").join(requirements), &environment)?;
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
                let mut java = with("java", QUICK_START);
                java.arg(sources.join("java").join(program)).env("CLASSPATH", kafka_class_path()?);
                Ok(java)
            }
            Kit::JavaSqs => {
                let classes = java_classes(&sources.join("java/sqs"), &made.join("java-sqs"))?;
                let mut java = with("java", QUICK_START);
                java.arg(program).env("CLASSPATH", classes);
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

/// Short programs: compiling little and collecting simply starts twice as fast.
const QUICK_START: [&str; 2] = ["-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1"];

/// A command with its first arguments.
pub(crate) fn with<A: AsRef<OsStr>, const N: usize>(
    program: impl AsRef<OsStr>,
    args: [A; N],
) -> Command {
    let mut command = Command::new(program);
    command.args(args);
    command
}

/// A virtual environment with the packages of a file; returns its interpreter.
pub(crate) fn python(requirements: &Path, made: &Path) -> Result<PathBuf> {
    let (interpreter, stamp) = (made.join("bin/python"), made.join("installed"));
    if is_older(&stamp, requirements) {
        finish(with("python3", ["-m", "venv", "--clear"]).arg(made))?;
        finish(with(&interpreter, ["-m", "pip", "install", "-q", "-r"]).arg(requirements))?;
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

/// Compiles all sources of a directory with what its `pom.xml` names; returns the class path.
fn java_classes(sources: &Path, made: &Path) -> Result<String> {
    fs::create_dir_all(made)?;
    let libraries = class_path(&sources.join("pom.xml"), &made.join("classpath.txt"))?;
    let stamp = made.join("compiled");
    let mut files = Vec::new();
    for entry in fs::read_dir(sources)? {
        files.push(entry?.path());
    }
    if files.iter().any(|file| is_older(&stamp, file)) {
        let programs = files.iter().filter(|file| file.extension().is_some_and(|e| e == "java"));
        let mut compile = with("javac", ["-cp", &libraries, "-d"]);
        finish(compile.arg(made).args(programs))?;
        File::create(stamp)?;
    }
    Ok(format!("{}:{libraries}", made.display()))
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
