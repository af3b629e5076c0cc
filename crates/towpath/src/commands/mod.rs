//! One file per command: its words, and what it does.

pub(crate) mod cluster;
pub(crate) mod completion;
pub(crate) mod config;
pub(crate) mod dev;
pub(crate) mod dlq;
pub(crate) mod doctor;
pub(crate) mod group;
pub(crate) mod node;
pub(crate) mod peek;
pub(crate) mod queue;
pub(crate) mod read;
pub(crate) mod send;
pub(crate) mod serve;
pub(crate) mod status;
pub(crate) mod tail;
pub(crate) mod task;
pub(crate) mod topic;
pub(crate) mod verify;
pub(crate) mod work;

use std::io;
use std::process::ExitCode;

use crate::cli::{Cli, Command, Global};
use crate::failure::{Exit, Failure, Outcome};
use crate::output::{Format, write_out};
use crate::session::{Session, use_color};

/// Runs the command, prints its failure if it fails, and says how the process ends.
pub(crate) fn run(cli: Cli) -> ExitCode {
    let global = cli.global;
    let outcome = match cli.command {
        Command::Dev(args) => dev::run(&global, args),
        Command::Serve(args) => serve::run(&global, *args),
        Command::Completion(args) => completion::run(&args),
        Command::Verify(args) => {
            log_to_stderr(&global);
            verify::run(&global, &args)
        }
        command => {
            log_to_stderr(&global);
            block_on(&global, command)
        }
    };
    match outcome {
        Ok(exit) => exit.into(),
        Err(failure) => end_badly(&global, &failure),
    }
}

fn end_badly(global: &Global, failure: &Failure) -> ExitCode {
    failure.print(use_color(global, &io::stderr()));
    let json = match global.output {
        Some(Format::Json) => format!("{:#}\n", failure.as_json()),
        Some(Format::Jsonl) => format!("{}\n", failure.as_json()),
        _ => String::new(),
    };
    // The failure was told on standard error; when standard output is gone, that has to do.
    let _ = write_out(json.as_bytes());
    failure.exit.into()
}

/// One thread is enough for a tool, and starts in no time.
fn block_on(global: &Global, command: Command) -> Outcome {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    // Whoever follows a topic ends it this way, and a worker finishes what runs.
    let is_interruption_the_end = matches!(command, Command::Tail(_));
    if matches!(command, Command::Work(_)) {
        return runtime.block_on(run_tool(global, command));
    }
    runtime.block_on(async {
        tokio::select! {
            outcome = run_tool(global, command) => outcome,
            interrupted = tokio::signal::ctrl_c() => {
                interrupted?;
                if is_interruption_the_end { Ok(Exit::Ok) } else { Err(Failure::new("interrupted")) }
            }
        }
    })
}

async fn run_tool(global: &Global, command: Command) -> Outcome {
    // What a connection looks like from outside is found out without a session.
    if let Command::Doctor(command) = command {
        return doctor::run(global, command).await;
    }
    let session = Session::open(global).await?;
    match command {
        Command::Send(args) => send::run(&session, args).await,
        Command::Read(args) => read::run(&session, args).await,
        Command::Tail(args) => tail::run(&session, args).await,
        Command::Work(args) => work::run(&session, *args).await,
        Command::Peek(args) => peek::run(&session, &args).await,
        Command::Status(args) => status::run(&session, &args).await,
        Command::Queue(command) => queue::run(&session, command).await,
        Command::Topic(command) => topic::run(&session, command).await,
        Command::Group(command) => group::run(&session, command).await,
        Command::Dlq(command) => dlq::run(&session, command).await,
        Command::Task(command) => task::run(&session, command).await,
        Command::Cluster(command) => cluster::run(&session, command).await,
        Command::Node(command) => node::run(&session, command).await,
        Command::Config(command) => config::run(&session, command).await,
        Command::Dev(_)
        | Command::Serve(_)
        | Command::Completion(_)
        | Command::Doctor(_)
        | Command::Verify(_) => Ok(Exit::Ok),
    }
}

fn log_to_stderr(global: &Global) {
    let level = match global.verbose {
        0 => tracing::Level::ERROR,
        1 => tracing::Level::WARN,
        _ => tracing::Level::DEBUG,
    };
    tracing_subscriber::fmt()
        .with_max_level(level)
        .with_writer(io::stderr)
        .with_ansi(use_color(global, &io::stderr()))
        .without_time()
        .init();
}
