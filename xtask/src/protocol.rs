//! Makes `crates/protocol` out of message schemas.
//!
//! ```text
//!   kafka-clients.jar ──import──▶ crates/protocol/schemas/*.schema ──generate──▶ src/generated/*.rs
//!                                                                        └────▶ tests/support/samples.rs
//! ```
//!
//! `import` runs when we move to another Kafka version; it keeps facts only: names, types,
//! versions. `generate` runs after every change of a schema or of the generator; `check` fails if
//! it has not been run. `compare` has Kafka's own classes read and rewrite what the codec writes.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, bail};

mod compare;
mod emit;
mod import;
mod layout;
mod samples;
mod schema;

use schema::Message;

const USAGE: &str = "usage: cargo xtask protocol import JAR... | generate | check | compare JAR...";

/// Runs `cargo xtask protocol …`.
pub(crate) fn run(args: &[String]) -> Result<()> {
    let root = workspace_root()?;
    let args: Vec<&str> = args.iter().map(String::as_str).collect();
    match args.as_slice() {
        ["import", jars @ ..] if !jars.is_empty() => import::run(jars, &schema_dir(&root)),
        ["generate"] => generate(&root),
        ["check"] => check(&root),
        ["compare", jars @ ..] if !jars.is_empty() => compare::run(jars, &root),
        _ => bail!(USAGE),
    }
}

fn workspace_root() -> Result<PathBuf> {
    let here = std::env::current_dir()?;
    let root = here.ancestors().find(|dir| dir.join("crates/protocol/Cargo.toml").is_file());
    Ok(root.context("not inside the Towpath work tree")?.to_owned())
}

fn schema_dir(root: &Path) -> PathBuf {
    root.join("crates/protocol/schemas")
}

/// A schema file: its name without ending, and the messages in it.
pub(crate) struct Api {
    name: String,
    messages: Vec<Message>,
}

fn read_schemas(root: &Path) -> Result<Vec<Api>> {
    let mut apis = Vec::new();
    for entry in std::fs::read_dir(schema_dir(root))? {
        let path = entry?.path();
        let Some(name) = path.file_stem().and_then(|name| name.to_str()) else { continue };
        if path.extension().is_none_or(|ending| ending != "schema") {
            continue;
        }
        let text = std::fs::read_to_string(&path)?;
        let messages = schema::parse(&text).with_context(|| path.display().to_string())?;
        apis.push(Api { name: name.to_owned(), messages });
    }
    apis.sort_by(|a, b| a.name.cmp(&b.name));
    Ok(apis)
}

/// Every generated file, by its path below the root.
fn outputs(root: &Path) -> Result<BTreeMap<PathBuf, String>> {
    let apis = read_schemas(root)?;
    let types = layout::Types::of(&apis)?;
    let mut files = emit::files(&apis, &types)?;
    files.insert(
        PathBuf::from("crates/protocol/tests/support/samples.rs"),
        samples::file(&apis, &types),
    );
    files.into_iter().map(|(path, text)| Ok((path, format(root, &text)?))).collect()
}

fn generate(root: &Path) -> Result<()> {
    let files = outputs(root)?;
    for path in stale(root, &files)? {
        std::fs::remove_file(path)?;
    }
    for (path, text) in files {
        let path = root.join(path);
        std::fs::create_dir_all(path.parent().context("a generated file has a directory")?)?;
        if std::fs::read_to_string(&path).is_ok_and(|old| old == text) {
            continue;
        }
        std::fs::write(&path, text)?;
        println!("{}", path.display());
    }
    Ok(())
}

fn check(root: &Path) -> Result<()> {
    let files = outputs(root)?;
    let mut wrong = stale(root, &files)?;
    for (path, text) in &files {
        let path = root.join(path);
        if std::fs::read_to_string(&path).is_ok_and(|old| old == *text) {
            continue;
        }
        wrong.push(path);
    }
    if wrong.is_empty() {
        return Ok(());
    }
    let names: Vec<_> = wrong.iter().map(|path| path.display().to_string()).collect();
    bail!("not what the schemas say, run `cargo xtask protocol generate`:\n{}", names.join("\n"))
}

/// Files among the generated ones that nothing generates any more.
fn stale(root: &Path, files: &BTreeMap<PathBuf, String>) -> Result<Vec<PathBuf>> {
    let Ok(entries) = std::fs::read_dir(root.join("crates/protocol/src/generated")) else {
        return Ok(Vec::new());
    };
    let mut stale = Vec::new();
    for entry in entries {
        let path = entry?.path();
        let is_current = path.strip_prefix(root).is_ok_and(|path| files.contains_key(path));
        if !is_current {
            stale.push(path);
        }
    }
    Ok(stale)
}

fn format(root: &Path, text: &str) -> Result<String> {
    use std::io::Write;
    use std::process::{Command, Stdio};

    let mut rustfmt = Command::new("rustfmt")
        .args(["--edition", "2024", "--config-path"])
        .arg(root.join("rustfmt.toml"))
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .context("rustfmt")?;
    let mut stdin = rustfmt.stdin.take().context("rustfmt takes its input from us")?;
    let input = text.to_owned();
    let writer = std::thread::spawn(move || stdin.write_all(input.as_bytes()));
    let output = rustfmt.wait_with_output()?;
    writer.join().map_err(|_| anyhow::anyhow!("the writer to rustfmt panicked"))??;
    if !output.status.success() {
        bail!("rustfmt refuses generated code:\n{text}");
    }
    Ok(String::from_utf8(output.stdout)?)
}

#[cfg(test)]
mod tests {
    #[test]
    fn generated_code_is_what_the_schemas_say() {
        let root = super::workspace_root().expect("tests run inside the work tree");
        super::check(&root).expect("generated code is current");
    }
}
