//! `towpath work`: runs a command for each message of a queue.
//!
//! How the command ends is the verdict, as mailers have it: 0 is done, 75 (`EX_TEMPFAIL` of sysexits.h) is
//! another time, anything else has failed.

mod child;
mod stop;

use std::sync::{Arc, Mutex};
use std::time::Duration;

use clap::Args;
use clap_complete::engine::ArgValueCompleter;
use towpath_client::{
    BreakerConfig, BreakerState, HandlerError, HttpCluster, HttpConfig, Queue, QueueWorker, Work,
    WorkerConfig, WorkerStats,
};

use crate::broker_api::BrokerApi;
use crate::complete;
use crate::failure::{Exit, Failure, Outcome};
use crate::output::{Format, Report};
use crate::session::Session;
use crate::units::{parse_duration, plural};
use child::{Ended, NotRun, Program};
use stop::StopSignals;

/// How long a receive waits, when the worker ends with the queue.
const LAST_WAIT: Duration = Duration::from_secs(1);

/// Flags of `work`.
#[derive(Debug, Args)]
#[command(after_help = "Examples:
  towpath work emails --parallel 8 -- ./send-mail --html
  towpath work emails --exec 'jq -r .to | xargs ./send-mail' --once

The value is on standard input. In the environment: TOWPATH_QUEUE, TOWPATH_MESSAGE_ID,
TOWPATH_RECEIVES, TOWPATH_SENT_MS, TOWPATH_KEY (the message group), and TOWPATH_HEADER_NAME for
each header. A key or header with a zero byte or of 128 KiB or more is left out, and so is what
would make them more than 512 KiB together.
0 deletes the message, 75 gives it back for another time, anything else is a failure: the last
lines of standard error are kept with the message.

SIGTERM, Ctrl-C, SIGQUIT and SIGHUP let what runs finish and then end the worker; the second one
ends what runs too. A worker that is killed (SIGKILL) leaves its commands running with leases that
nobody extends: others get the messages when those have run out. To stop all at once, kill the
commands as well; service managers and containers do.")]
pub(crate) struct WorkArgs {
    /// The queue
    #[arg(add = ArgValueCompleter::new(complete::queues))]
    queue: String,
    /// What to run, by the shell
    #[arg(long, value_name = "COMMAND", conflicts_with = "command")]
    exec: Option<String>,
    /// What to run, as it is
    #[arg(last = true, required_unless_present = "exec", value_name = "COMMAND")]
    command: Vec<String>,
    /// Most messages at once
    #[arg(long, default_value_t = 1, value_parser = parse_parallel)]
    parallel: usize,
    /// How long a message is hidden while nobody extends; as the queue has it if not given
    #[arg(long, value_parser = parse_duration, value_name = "DURATION")]
    visibility: Option<Duration>,
    /// Who works, for people who look; host and process if not given
    #[arg(long)]
    holder: Option<String>,
    /// A subscription instead of the queue itself
    #[arg(long)]
    subscription: Option<String>,
    /// End when nothing is left that could be received
    #[arg(long)]
    once: bool,
    /// End after so many messages
    #[arg(short = 'n', long, value_name = "COUNT", value_parser = clap::value_parser!(u64).range(1..))]
    count: Option<u64>,
    /// A failure is for good: the message goes to the dead-letter queue
    #[arg(long)]
    reject_on_failure: bool,
    /// When a message comes back; when the queue's retry policy says if not given
    #[arg(long, value_parser = parse_duration, value_name = "DURATION")]
    retry_after: Option<Duration>,
    /// Rest after so many failures in a row; 0 never does
    #[arg(long, default_value_t = 20, value_name = "FAILURES")]
    rest_after: u32,
    /// For so long; then one message is tried
    #[arg(long, default_value = "30s", value_parser = parse_duration, value_name = "DURATION")]
    rest: Duration,
}

fn parse_parallel(text: &str) -> Result<usize, String> {
    let parallel: Option<usize> = text.parse().ok().filter(|count| (1..=500).contains(count));
    parallel.ok_or_else(|| "1 to 500 messages are worked at once".to_owned())
}

/// How messages are worked.
#[derive(Debug)]
struct Plan {
    program: Program,
    reject_on_failure: bool,
    retry_after: Option<Duration>,
    /// Why nothing can be run at all.
    failure: Mutex<Option<String>>,
}

pub(crate) async fn run(session: &Session, args: WorkArgs) -> Outcome {
    let http = HttpCluster::new(HttpConfig::of(&session.cluster).await?);
    let queue = Queue::new(http, args.queue.as_str());
    // A slip in the name is told at once.
    if let Err(error) = queue.visibility_timeout().await {
        return Err(explain(session, &args.queue, error).await);
    }
    let program = Program::new(&args.queue, args.exec.as_deref(), &args.command);
    if session.global.dry_run {
        session.say(format!("would run {program} for each message of {}", args.queue));
        return Ok(Exit::Ok);
    }
    let plan = Arc::new(Plan {
        program,
        reject_on_failure: args.reject_on_failure,
        retry_after: args.retry_after,
        failure: Mutex::default(),
    });
    let worker = QueueWorker::new(queue, config(&args))?;
    let stats = work(session, worker, &plan).await;
    if let Some(why) = plan.failure.lock().expect("nothing panics while it holds this lock").take()
    {
        return Err(Failure::new(why).with_help("messages were given back at once"));
    }
    let stats = match stats {
        Ok(stats) => stats,
        Err(Ended::Interrupted) => {
            return Err(Failure::new("interrupted: what ran was ended, and comes back"));
        }
        Err(Ended::Refused(error)) => return Err(explain(session, &args.queue, error).await),
    };
    tell(session, &stats)?;
    let has_failed = stats.done < stats.begun || 0 < stats.settle_errors;
    let is_a_batch = args.once || args.count.is_some();
    Ok(if is_a_batch && has_failed { Exit::Failed } else { Exit::Ok })
}

fn config(args: &WorkArgs) -> WorkerConfig {
    let defaults = WorkerConfig::default();
    let host = || {
        let name = rustix::system::uname().nodename().to_string_lossy().into_owned();
        format!("{name} {}", std::process::id())
    };
    WorkerConfig {
        parallel: args.parallel,
        visibility: args.visibility,
        wait: if args.once { LAST_WAIT } else { defaults.wait },
        subscription: args.subscription.clone(),
        holder: Some(args.holder.clone().unwrap_or_else(host)),
        messages_max: args.count,
        stops_when_empty: args.once,
        breaker: BreakerConfig {
            failures: args.rest_after,
            pause: args.rest,
            ..BreakerConfig::default()
        },
        ..defaults
    }
}

/// Works until it is over, or told to stop: once, and what runs may finish; twice, and it is ended.
async fn work(
    session: &Session,
    worker: QueueWorker,
    plan: &Arc<Plan>,
) -> Result<WorkerStats, Ended> {
    let handle = worker.handle();
    let (mut news, stopping) = (handle.clone(), handle.clone());
    let running = worker.run(|work| work_one(Arc::clone(plan), stopping.clone(), work));
    tokio::pin!(running);
    let mut signals = StopSignals::listen().map_err(|_| Ended::Interrupted)?;
    let (mut stops, mut told) = (0, BreakerState::Closed);
    loop {
        tokio::select! {
            ended = &mut running => return ended.map_err(Ended::Refused),
            () = signals.wait() => stops += 1,
            true = news.changed() => {
                tell_breaker(session, &handle.stats(), &mut told);
                continue;
            }
        }
        if 1 < stops {
            return Err(Ended::Interrupted);
        }
        handle.stop();
        let left = handle.stats().running;
        session.say(format!("finishing {left} that run; once more ends them"));
    }
}

/// Runs the command for one message.
async fn work_one(
    plan: Arc<Plan>,
    stopping: towpath_client::WorkerHandle,
    work: Work,
) -> Result<(), HandlerError> {
    let ran = plan.program.run(work).await;
    let ran = match ran {
        Ok(ran) => ran,
        Err(NotRun::ThisTime(why)) => {
            return Err(HandlerError::Retry { delay: plan.retry_after, note: Some(why) });
        }
        Err(NotRun::Never(why)) => {
            *plan.failure.lock().expect("nothing panics while it holds this lock") = Some(why);
            stopping.stop();
            return Err(HandlerError::Retry { delay: Some(Duration::ZERO), note: None });
        }
    };
    verdict(&plan, ran.code, ran.words)
}

/// `EX_TEMPFAIL` of sysexits.h.
const ANOTHER_TIME: i32 = 75;

/// What an exit code means; none: a signal has ended it, or the lease was lost.
fn verdict(plan: &Plan, code: Option<i32>, words: String) -> Result<(), HandlerError> {
    match code {
        Some(0) => Ok(()),
        Some(ANOTHER_TIME) => Err(HandlerError::Retry { delay: plan.retry_after, note: None }),
        Some(_) if plan.reject_on_failure => Err(HandlerError::Reject { reason: words }),
        _ => Err(HandlerError::Retry { delay: plan.retry_after, note: Some(words) }),
    }
}

fn tell_breaker(session: &Session, stats: &WorkerStats, told: &mut BreakerState) {
    if stats.breaker == *told {
        return;
    }
    *told = stats.breaker;
    session.say(match stats.breaker {
        BreakerState::Open => "work fails again and again: nothing is received for a while",
        BreakerState::HalfOpen => "one message is tried",
        BreakerState::Closed => "work succeeds again",
    });
}

fn tell(session: &Session, stats: &WorkerStats) -> Outcome<()> {
    let words = |count: u64| plural(i64::try_from(count).unwrap_or(i64::MAX), "message");
    let mut text = format!("worked {}", words(stats.done));
    let rest = [
        (stats.retried, "given back"),
        (stats.rejected, "rejected"),
        (stats.leases_lost, "lost to others"),
        (stats.settle_errors, "not settled in time, which come back"),
    ];
    for (count, what) in rest.into_iter().filter(|(count, _)| 0 < *count) {
        text += &format!(", {count} {what}");
    }
    session.say(text);
    if matches!(session.global.output, Some(Format::Json | Format::Jsonl | Format::Tsv)) {
        let report = Report::new()
            .field("worked", stats.done)
            .field("given_back", stats.retried)
            .field("rejected", stats.rejected)
            .field("leases_lost", stats.leases_lost)
            .field("not_settled", stats.settle_errors);
        session.print(&report)?;
    }
    Ok(())
}

async fn explain(session: &Session, queue: &str, error: towpath_client::Error) -> Failure {
    BrokerApi::of_any(session).await.explain(queue, error.into()).await
}

#[cfg(test)]
mod tests {
    use super::*;

    fn plan(reject_on_failure: bool) -> Plan {
        Plan {
            program: Program::new("q", Some("true"), &[]),
            reject_on_failure,
            retry_after: None,
            failure: Mutex::default(),
        }
    }

    #[test]
    fn an_exit_code_is_a_verdict() {
        let words = || "no route".to_owned();
        let verdict = |rejects, code| verdict(&plan(rejects), code, words());
        assert_eq!(verdict(false, Some(0)), Ok(()));
        let later = HandlerError::Retry { delay: None, note: None };
        assert_eq!(verdict(true, Some(75)), Err(later));
        assert_eq!(verdict(false, Some(1)), Err(HandlerError::retry("no route")));
        assert_eq!(verdict(true, Some(1)), Err(HandlerError::reject("no route")));
        // Killed by a signal: likely not the message's fault.
        assert_eq!(verdict(true, None), Err(HandlerError::retry("no route")));
    }
}
