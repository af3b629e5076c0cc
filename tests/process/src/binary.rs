//! Finds the product's binary, and builds it when it is not there.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::OnceLock;

use anyhow::{Context, Result, bail};

/// Names the binary to test, instead of the one of this build.
const BINARY_VARIABLE: &str = "TOWPATH_BIN";

/// The binary under test: `TOWPATH_BIN`, or the one in the profile's directory of this executable.
/// In the latter case Cargo brings it up to date first, once per process.
pub fn towpath_binary() -> Result<&'static Path> {
    static BINARY: OnceLock<Result<PathBuf, String>> = OnceLock::new();
    match BINARY.get_or_init(|| find().map_err(|error| format!("{error:#}"))) {
        Ok(path) => Ok(path),
        Err(error) => bail!("no binary to test: {error}"),
    }
}

/// Whether the binary under test was built for speed: only then do its costs mean anything.
pub fn is_optimised(binary: &Path) -> bool {
    let is_named = |name: &str| binary.components().any(|part| part.as_os_str() == name);
    is_named("release") || is_named("dist")
}

fn find() -> Result<PathBuf> {
    if let Some(named) = std::env::var_os(BINARY_VARIABLE) {
        let path = std::path::absolute(named)?;
        if !path.is_file() {
            bail!("{BINARY_VARIABLE} names {}, which is no file", path.display());
        }
        return Ok(path);
    }
    let profile_directory = profile_directory()?;
    let path = profile_directory.join(format!("towpath{}", std::env::consts::EXE_SUFFIX));
    build(&profile_directory)?;
    if !path.is_file() {
        bail!("cargo has built towpath, but {} is not there", path.display());
    }
    Ok(path)
}

/// `target/debug` or `target/release`: tests live one directory below, binaries in it.
fn profile_directory() -> Result<PathBuf> {
    let me = std::env::current_exe()?;
    let directory = me.parent().context("an executable has a directory")?;
    let is_deps = directory.file_name().is_some_and(|name| name == "deps");
    let directory = if is_deps { directory.parent().unwrap_or(directory) } else { directory };
    Ok(directory.to_owned())
}

fn build(profile_directory: &Path) -> Result<()> {
    let name = profile_directory.file_name().unwrap_or_default().to_string_lossy().into_owned();
    // The directory of the profile `dev` is called `debug`.
    let profile = if name == "debug" { "dev".to_owned() } else { name };
    let target = profile_directory.parent().context("a profile directory lies in a target one")?;
    let cargo = std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into());
    let status = Command::new(cargo)
        .args(["build", "--quiet", "--package", "towpath", "--bin", "towpath"])
        .args(["--profile", &profile])
        .arg("--target-dir")
        .arg(target)
        .current_dir(Path::new(env!("CARGO_MANIFEST_DIR")))
        .status()
        .context("cargo cannot be started")?;
    if !status.success() {
        bail!("`cargo build --package towpath` failed: {status}");
    }
    Ok(())
}
