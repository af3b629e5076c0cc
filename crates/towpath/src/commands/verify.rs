//! `towpath verify DIR`: checks the files of a node that does not run, and changes none of them.

use std::path::PathBuf;

use clap::Args;
use towpath_server::verify::{LastStop, Verified, VerifiedLog, VerifyError, verify_directory};

use crate::cli::Global;
use crate::failure::{Exit, Failure, Outcome};
use crate::output::{Cell, Format, Report, Table, write_out};
use crate::session::use_color;

/// Flags of `verify`.
#[derive(Debug, Args)]
pub(crate) struct VerifyArgs {
    /// The data directory of a node that does not run
    #[arg(value_name = "DIR")]
    directory: PathBuf,
}

pub(crate) fn run(global: &Global, args: &VerifyArgs) -> Outcome {
    let progress = |log: &std::path::Path| {
        if 0 < global.verbose && !global.quiet {
            eprintln!("reading {}", log.display());
        }
    };
    let found = verify_directory(&args.directory, progress).map_err(|error| refused(&error))?;
    let format = Format::or_by_terminal(global.output);
    let text = report(&found).render(format, use_color(global, &std::io::stdout()));
    write_out(text.as_bytes())?;
    Ok(if found.is_fine() { Exit::Ok } else { Exit::Failed })
}

fn refused(error: &VerifyError) -> Failure {
    let failure = Failure::new(error.to_string());
    match error {
        VerifyError::Locked(_) => failure.with_help(
            "only the files of a stopped node can be checked; a running one checks its own, and \
             `towpath status` says what it has found",
        ),
        VerifyError::NoFormat(_) => failure.with_help("give the directory that --data names"),
        _ => failure,
    }
}

fn report(found: &Verified) -> Report {
    let stop = match found.last_stop {
        LastStop::Never => "nothing was written yet",
        LastStop::Clean => "clean",
        LastStop::ProcessEnded | LastStop::SystemEnded => {
            "not clean: the next start replays and checks"
        }
    };
    let mut logs = Table::new(
        "partitions",
        &[
            "topic",
            "partition",
            "start_offset",
            "end_offset",
            "segments",
            "batches",
            "bytes",
            "state",
        ],
    );
    let mut problems = Table::new("problems", &["topic", "partition", "what", "where", "detail"]);
    for log in &found.logs {
        let partition = || -> [Cell; 2] { [name_of(log).into(), number_of(log)] };
        let [topic, index] = partition();
        logs.row(vec![
            topic,
            index,
            log.log_start_offset.0.into(),
            log.log_end_offset.0.into(),
            Cell::count(count(log.segments)),
            Cell::count(count(log.batches)),
            Cell::bytes(log.bytes),
            if log.is_fine() { "ok" } else { "damaged" }.into(),
        ]);
        for (what, place, detail) in problems_of(log) {
            let [topic, index] = partition();
            problems.row(vec![topic, index, what.into(), place.into(), detail.into()]);
        }
    }
    let damaged = found.logs.iter().filter(|log| !log.is_fine()).count();
    Report::new()
        .field("cluster_id", found.identity.cluster_id.as_str())
        .field("node_id", found.identity.node_id.0)
        .field("last_stop", stop)
        .field("frames_to_replay", Cell::count(count(found.frames)))
        .field("damaged_frames", Cell::count(count(found.damaged_frames)))
        .field("damaged_partitions", damaged)
        .field("set_aside", Cell::list(found.quarantined.iter().cloned()))
        .field("being_deleted", Cell::list(found.being_deleted.iter().cloned()))
        .field("state", if found.is_fine() { "ok" } else { "damaged" })
        .table(logs)
        .table(problems)
}

fn count(number: u64) -> i64 {
    i64::try_from(number).unwrap_or(i64::MAX)
}

fn name_of(log: &VerifiedLog) -> String {
    log.topic.clone().unwrap_or_else(|| "(metadata)".to_owned())
}

/// A partition's number; of a delivery log a name.
fn number_of(log: &VerifiedLog) -> Cell {
    match log.partition.is_delivery_log() {
        true => log.partition.partition.to_string().into(),
        false => log.partition.partition.0.into(),
    }
}

/// What, where, and what that means.
fn problems_of(log: &VerifiedLog) -> Vec<(&'static str, String, String)> {
    let mut problems = Vec::new();
    for range in &log.damage {
        let offsets = format!("[{}, {})", range.offsets.start, range.offsets.end);
        problems.push(("damaged records", offsets, range.cause.to_string()));
    }
    for file in &log.wrong_files {
        problems.push(("damaged file", file.name.clone(), file.remedy.to_owned()));
    }
    if let Some(cut) = log.cut.as_ref().filter(|cut| cut.is_suspect) {
        let detail = "the next start cuts the end of the log here: it is no torn write, and nothing \
                      says that it was acknowledged";
        problems.push(("suspect end", cut.at.to_string(), detail.to_owned()));
    }
    if let Some(error) = &log.error {
        problems.push(("unreadable", log.path.display().to_string(), error.clone()));
    }
    problems
}
