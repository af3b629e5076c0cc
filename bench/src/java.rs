//! Kafka's own performance tools as clients of either broker.

use std::process::{Command, Stdio};

use anyhow::{Context, Result, ensure};

use crate::broker::{Broker, Lab};

/// What a tool printed last that had numbers in it.
fn run(lab: &Lab, main: &str, arguments: &[String]) -> Result<String> {
    let class_path = lab.class_path().context("the tools come with Kafka")?;
    let output = Command::new("java")
        .args(["-Xms512m", "-Xmx512m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=4"])
        .args(["-cp", class_path, main])
        .args(arguments)
        .stdin(Stdio::null())
        .output()
        .context("java is needed for Kafka's tools")?;
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    ensure!(
        output.status.success(),
        "{main} failed: {text}{}",
        String::from_utf8_lossy(&output.stderr)
    );
    Ok(text)
}

fn words(words: &[&str]) -> Vec<String> {
    words.iter().map(|word| (*word).to_owned()).collect()
}

/// `ProducerPerformance` at full speed; gives back its records per second.
pub(crate) fn produce(
    lab: &Lab,
    broker: &Broker,
    topic: &str,
    records: u64,
    batch_bytes: usize,
) -> Result<f64> {
    let mut arguments = words(&["--topic", topic, "--record-size", "1000", "--throughput", "-1"]);
    arguments.extend(["--num-records".to_owned(), records.to_string(), "--producer-props".into()]);
    arguments.extend([
        format!("bootstrap.servers={}", broker.address()),
        "acks=all".to_owned(),
        "linger.ms=5".to_owned(),
        format!("batch.size={batch_bytes}"),
        "compression.type=none".to_owned(),
        "buffer.memory=67108864".to_owned(),
        "max.request.size=4194304".to_owned(),
    ]);
    let text = run(lab, "org.apache.kafka.tools.ProducerPerformance", &arguments)?;
    let last = text.lines().rfind(|line| line.contains("records/sec")).context("no summary")?;
    let rate = last.split(',').find_map(|part| {
        part.trim().split(' ').collect::<Vec<_>>().windows(2).find_map(|pair| {
            (pair[1] == "records/sec").then(|| pair[0].parse::<f64>().ok()).flatten()
        })
    });
    rate.with_context(|| format!("no rate in: {last}"))
}

/// `ConsumerPerformance` over the first `records` of a topic; gives back its records per second.
pub(crate) fn consume(lab: &Lab, broker: &Broker, topic: &str, records: u64) -> Result<f64> {
    let arguments = [
        "--bootstrap-server".to_owned(),
        broker.address().to_string(),
        "--topic".to_owned(),
        topic.to_owned(),
        "--num-records".to_owned(),
        records.to_string(),
        "--fetch-size".to_owned(),
        "1048576".to_owned(),
        "--timeout".to_owned(),
        "60000".to_owned(),
    ];
    let text = run(lab, "org.apache.kafka.tools.ConsumerPerformance", &arguments)?;
    let (head, line) = text.trim().rsplit_once('\n').context("the tool printed no figures")?;
    let names: Vec<&str> = head.lines().next_back().unwrap_or_default().split(", ").collect();
    let at = names.iter().position(|name| name.to_ascii_lowercase().contains("nmsg.sec"));
    let values: Vec<&str> = line.split(", ").collect();
    let rate = values.get(at.context("no column for the rate")?);
    let rate = rate.and_then(|value| value.trim().parse().ok());
    rate.with_context(|| format!("no rate in: {line}"))
}
