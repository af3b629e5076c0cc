//! The words of the command line. What they do is in `commands/`, one file per command.

use std::time::Duration;

use clap::builder::styling::{AnsiColor, Styles};
use clap::{Args, Parser, Subcommand};

use crate::commands::{
    cluster, completion, config, dev, dlq, doctor, group, node, peek, queue, read, send, serve,
    status, tail, task, topic, verify, work,
};
use crate::output::Format;
use crate::units::parse_duration;

const STYLES: Styles = Styles::styled()
    .header(AnsiColor::Green.on_default().bold())
    .usage(AnsiColor::Green.on_default().bold())
    .literal(AnsiColor::Cyan.on_default().bold())
    .placeholder(AnsiColor::Cyan.on_default());

/// A log and a work queue in one program.
#[derive(Debug, Parser)]
#[command(name = "towpath", version, styles = STYLES, max_term_width = 100)]
#[command(
    after_help = "First minute:  towpath dev   ·   towpath send hello \"it works\"   ·   towpath read hello"
)]
pub(crate) struct Cli {
    #[command(flatten)]
    pub(crate) global: Global,
    #[command(subcommand)]
    pub(crate) command: Command,
}

/// Flags that every command takes.
#[derive(Debug, Clone, Args)]
#[command(next_help_heading = "Everywhere")]
pub(crate) struct Global {
    /// Address of the Kafka listener to talk to; several are separated by commas
    #[arg(
        short,
        long,
        global = true,
        env = "TOWPATH_SERVER",
        default_value = "127.0.0.1:9092",
        value_name = "HOST:PORT"
    )]
    pub(crate) server: String,
    /// How to print: a table on a terminal and tsv in a pipe if not given
    #[arg(short, long, global = true, value_enum, value_name = "FORMAT")]
    pub(crate) output: Option<Format>,
    /// How long to wait for the server
    #[arg(long, global = true, default_value = "10s", value_parser = parse_duration, value_name = "DURATION")]
    pub(crate) timeout: Duration,
    /// Do what would otherwise be asked about
    #[arg(short, long, global = true)]
    pub(crate) yes: bool,
    /// Say what would happen, and change nothing
    #[arg(long, global = true)]
    pub(crate) dry_run: bool,
    /// Print data only
    #[arg(short, long, global = true)]
    pub(crate) quiet: bool,
    /// Print more; twice for what the client does on the wire
    #[arg(short, long, global = true, action = clap::ArgAction::Count)]
    pub(crate) verbose: u8,
    /// Print without colours (also: NO_COLOR in the environment)
    #[arg(long, global = true)]
    pub(crate) no_color: bool,
}

#[derive(Debug, Subcommand)]
pub(crate) enum Command {
    /// Run one node for development: loopback, topics appear when they are used
    Dev(dev::DevArgs),
    /// Run a server
    Serve(Box<serve::ServeArgs>),
    /// Send records: from the command line, or lines from standard input
    #[command(alias = "produce")]
    Send(send::SendArgs),
    /// Read a range of records, then stop
    #[command(alias = "consume")]
    Read(read::ReadArgs),
    /// Follow topics as records arrive
    #[command(alias = "follow")]
    Tail(tail::TailArgs),
    /// Run a command for each message of a queue
    Work(Box<work::WorkArgs>),
    /// Look at the messages of a queue without taking any
    Peek(peek::PeekArgs),
    /// Show the state of the cluster on one screen
    Status(status::StatusArgs),
    /// Topics: ls, show, create, set, rm, partitions, trim, accept-loss
    #[command(subcommand, alias = "topics")]
    Topic(topic::TopicCommand),
    /// Work queues: ls, show, create, set, rm, purge, why
    #[command(subcommand, alias = "queues")]
    Queue(queue::QueueCommand),
    /// Consumer groups: ls, show, lag, seek, rm
    #[command(subcommand, alias = "groups")]
    Group(group::GroupCommand),
    /// Dead-letter queues: ls, redrive, drop
    #[command(subcommand)]
    Dlq(dlq::DlqCommand),
    /// Long work on queues: ls, show, pause, resume, cancel
    #[command(subcommand, alias = "tasks")]
    Task(task::TaskCommand),
    /// The cluster as a whole: show, moves, balance, restart, upgrade, losses
    #[command(subcommand)]
    Cluster(cluster::ClusterCommand),
    /// Nodes of the cluster: ls, show, drain, undrain, rm
    #[command(subcommand, alias = "nodes")]
    Node(node::NodeCommand),
    /// Configuration of the cluster and its brokers: ls, set
    #[command(subcommand, alias = "configs")]
    Config(config::ConfigCommand),
    /// Find out what is wrong
    #[command(subcommand)]
    Doctor(doctor::DoctorCommand),
    /// Check the files of a node that does not run; changes nothing, ends with 1 when it finds damage
    Verify(verify::VerifyArgs),
    /// Print a completion script for a shell
    Completion(completion::CompletionArgs),
}

#[cfg(test)]
mod tests {
    use clap::CommandFactory;

    use super::*;

    #[test]
    fn the_command_line_is_consistent() {
        Cli::command().debug_assert();
    }

    #[test]
    fn other_tools_words_are_understood() {
        for words in [
            "towpath topic list",
            "towpath topic describe t",
            "towpath topic new t",
            "towpath topic delete t",
            "towpath topics get",
            "towpath group describe g",
            "towpath node list",
            "towpath nodes describe 1",
            "towpath cluster info",
            "towpath dlq list",
            "towpath dlq replay dead --dead-before -30d --rate 5",
            "towpath tasks describe -x",
            "towpath read t --from -15m",
            "towpath queue describe q",
            "towpath queues list",
            "towpath peek q --state inflight",
            "towpath work q -- cat -n",
            "towpath work q --exec true --once",
            "towpath group seek g --by -10",
            "towpath -s other:1 topic ls -o json",
            "towpath topic ls -s other:1",
        ] {
            let parsed = Cli::try_parse_from(words.split(' '));
            assert!(parsed.is_ok(), "{words}: {}", parsed.unwrap_err());
        }
    }
}
