//! ElasticMQ: SQS in the memory of one JVM.

use std::fs;
use std::path::Path;
use std::process::Command;

use anyhow::{Context, Result};

use super::path_text;
use crate::broker::{JVM_OPTIONS, Lab, tied};

pub(super) fn command(lab: &Lab, home: &Path, port: u16) -> Result<Command> {
    let class_path = lab.elasticmq().context("--elasticmq says where it is")?;
    let config = home.join("elasticmq.conf");
    fs::write(
        &config,
        format!(
            "include classpath(\"application.conf\")\n\
             node-address {{ host = \"127.0.0.1\", port = {port} }}\n\
             rest-sqs {{ enabled = true, bind-hostname = \"127.0.0.1\", bind-port = {port} }}\n\
             rest-stats {{ enabled = false }}\n"
        ),
    )?;
    let mut command = tied(Path::new("java"));
    command
        .args(JVM_OPTIONS.split(' '))
        .arg(format!("-Dconfig.file={}", path_text(&config)))
        .args(["-cp", class_path, "org.elasticmq.server.Main"]);
    Ok(command)
}
