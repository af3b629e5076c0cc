//! What a command holds while it runs: the connection, and how to talk to its caller.

use std::collections::BTreeMap;
use std::io::{self, IsTerminal, Write};
use std::sync::Arc;

use towpath_client::{
    Admin, ClientConfig, Cluster, Error, FoundOffset, LogDir, Offset, OffsetSpec, Topic,
    TopicPartition,
};

use crate::cli::Global;
use crate::failure::{Failure, Outcome};
use crate::output::{Format, Report, write_out};
use crate::suggest::closest;

/// A command at work.
pub(crate) struct Session {
    pub(crate) global: Global,
    pub(crate) cluster: Cluster,
    pub(crate) admin: Admin,
}

/// First and next offset of every partition that was asked for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Extent {
    pub(crate) start: Offset,
    pub(crate) end: Offset,
}

impl Extent {
    /// How many offsets lie between; on a compacted topic there may be fewer records.
    pub(crate) fn records(self) -> i64 {
        (self.end - self.start).max(0)
    }
}

impl Session {
    /// Reaches the server, or says why not.
    pub(crate) async fn open(global: &Global) -> Outcome<Session> {
        let cluster = Cluster::connect(client_config(global)?).await?;
        Ok(Session { global: global.clone(), admin: Admin::new(cluster.clone()), cluster })
    }

    pub(crate) fn format(&self) -> Format {
        Format::or_by_terminal(self.global.output)
    }

    /// Prints data to standard output.
    pub(crate) fn print(&self, report: &Report) -> Outcome<()> {
        let text = report.render(self.format(), use_color(&self.global, &io::stdout()));
        write_out(text.as_bytes())?;
        Ok(())
    }

    /// Says something to a person, unless that is not wanted. That nobody listens any more is no reason to end.
    pub(crate) fn say(&self, words: impl AsRef<str>) {
        if !self.global.quiet {
            let _ = writeln!(io::stderr(), "{}", words.as_ref());
        }
    }

    /// The topic, or an error that knows similar names.
    pub(crate) async fn topic(&self, name: &str) -> Outcome<Arc<Topic>> {
        match self.admin.topic(name).await {
            Ok(topic) => Ok(topic),
            Err(Error::UnknownTopic { .. }) => Err(self.unknown_topic(name).await),
            Err(error) => Err(error.into()),
        }
    }

    /// Topics by name, internal ones only if they are named.
    pub(crate) async fn topics(&self, names: &[String]) -> Outcome<Vec<Arc<Topic>>> {
        let mut topics = Vec::new();
        for name in names {
            topics.push(self.topic(name).await?);
        }
        Ok(topics)
    }

    pub(crate) async fn unknown_topic(&self, name: &str) -> Failure {
        let failure = Failure::from(Error::UnknownTopic { topic: name.to_owned() })
            .with_try(format!("towpath topic create {name}"));
        let Ok(topics) = self.admin.topics().await else { return failure };
        match closest(name, topics.keys().map(|name| &**name)) {
            Some(meant) => failure.with_help(format!("did you mean {meant:?}?")),
            None => failure,
        }
    }

    pub(crate) async fn unknown_group(&self, name: &str) -> Failure {
        let mut failure = Failure::new(format!("group {name:?} does not exist"));
        failure.code = "UNKNOWN_GROUP".to_owned();
        let Ok(groups) = self.admin.groups().await else { return failure };
        match closest(name, groups.iter().map(|group| group.group.as_str())) {
            Some(meant) => failure.with_help(format!("did you mean {meant:?}?")),
            None => failure,
        }
    }

    /// Start and end of these partitions.
    pub(crate) async fn extents(
        &self,
        partitions: &[TopicPartition],
    ) -> Outcome<BTreeMap<TopicPartition, Extent>> {
        let all = |spec| partitions.iter().map(|p| (p.clone(), spec)).collect::<BTreeMap<_, _>>();
        let starts = self.admin.list_offsets(&all(OffsetSpec::Earliest)).await?;
        let ends = self.admin.list_offsets(&all(OffsetSpec::Latest)).await?;
        let offset = |found: Option<&FoundOffset>| found.map_or(Offset::ZERO, |f| f.offset);
        Ok(partitions
            .iter()
            .map(|p| {
                let extent = Extent { start: offset(starts.get(p)), end: offset(ends.get(p)) };
                (p.clone(), extent)
            })
            .collect())
    }

    /// Bytes on all brokers' disks, per partition, one replica counted.
    pub(crate) async fn stored_bytes(
        &self,
        topic: Option<&str>,
    ) -> Outcome<BTreeMap<TopicPartition, u64>> {
        Ok(stored_bytes(&self.admin.log_dirs(topic).await?))
    }
}

/// Bytes per partition in these directories, one replica counted.
pub(crate) fn stored_bytes(dirs: &[LogDir]) -> BTreeMap<TopicPartition, u64> {
    let mut bytes: BTreeMap<TopicPartition, u64> = BTreeMap::new();
    for stored in dirs.iter().flat_map(|dir| &dir.partitions) {
        let largest = bytes.entry(stored.partition.clone()).or_default();
        *largest = stored.bytes.max(*largest);
    }
    bytes
}

/// The client's settings for these flags.
pub(crate) fn client_config(global: &Global) -> Outcome<ClientConfig> {
    let mut config = ClientConfig::new(&global.server)?;
    config.client_id = "towpath-cli".to_owned();
    config.request_timeout = global.timeout;
    config.connect_timeout = config.connect_timeout.min(global.timeout);
    Ok(config)
}

/// Every partition of a topic.
pub(crate) fn partitions_of(topic: &Topic) -> Vec<TopicPartition> {
    let partitions = topic.partitions.iter();
    partitions.map(|p| TopicPartition { topic: topic.name.clone(), partition: p.index }).collect()
}

/// Whether to colour what goes there.
pub(crate) fn use_color(global: &Global, stream: &impl IsTerminal) -> bool {
    let is_refused = std::env::var_os("NO_COLOR").is_some_and(|value| !value.is_empty());
    !global.no_color && !is_refused && stream.is_terminal()
}
