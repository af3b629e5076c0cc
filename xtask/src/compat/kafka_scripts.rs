//! Scripts of the names that Kafka's have, for tests that call those: they run the same classes.

use std::fs::{self, Permissions};
use std::os::unix::fs::PermissionsExt;
use std::path::Path;

use anyhow::Result;

use crate::oracle::kafka_class_path;

/// Writes one script.
///
/// # Errors
/// When Kafka cannot be fetched or the file cannot be written.
pub(super) fn script(dir: &Path, name: &str, class: &str) -> Result<()> {
    let class_path = kafka_class_path()?;
    let text = format!(
        "#!/bin/sh\nexec java -XX:+UseSerialGC -XX:TieredStopAtLevel=1 -cp '{class_path}' {class} \"$@\"\n"
    );
    fs::create_dir_all(dir)?;
    let file = dir.join(name);
    fs::write(&file, text)?;
    fs::set_permissions(&file, Permissions::from_mode(0o755))?;
    Ok(())
}
