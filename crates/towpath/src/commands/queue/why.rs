//! `towpath queue why`: why a queue does not move, in plain words.
//!
//! What is said follows from statistics and from a look at some messages, so it is about this moment.

use std::collections::BTreeMap;

use clap::Args;
use clap_complete::engine::ArgValueCompleter;
use serde_json::Value;

use crate::broker_api::BrokerApi;
use crate::complete;
use crate::failure::{Exit, Outcome};
use crate::output::{Cell, Format, Report, Table};
use crate::queue_api::{LOOK_MAX, PeekedMessage, QueueStats, ShownQueue};
use crate::session::Session;
use crate::units::{plural, seconds_in_words};

/// Flags of `queue why`.
#[derive(Debug, Args)]
#[command(after_help = "Example: towpath queue why orders --check || page somebody")]
pub(crate) struct WhyArgs {
    /// The queue
    #[arg(add = ArgValueCompleter::new(complete::queues))]
    queue: String,
    /// End with 5 when something stands in the way
    #[arg(long)]
    check: bool,
}

/// What is known of a queue.
struct Facts {
    queue: ShownQueue,
    stats: QueueStats,
    held: Vec<PeekedMessage>,
    delayed: Vec<PeekedMessage>,
    /// Messages that can be received, or wait for others of their group.
    waiting: Vec<PeekedMessage>,
}

/// Why a message came back that could not be moved.
const MOVE_FAILED: &str = "move failed";

/// Something that is so.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Verdict {
    code: String,
    /// Whether somebody should do something.
    is_problem: bool,
    words: String,
    /// A command that shows more, or helps.
    command: Option<String>,
}

pub(crate) async fn run(session: &Session, args: &WhyArgs) -> Outcome {
    let api = BrokerApi::of_any(session).await;
    let queue = api.queue(&args.queue).await?;
    let verdicts = match api.queue_stats(&args.queue).await {
        Err(failure) if failure.code == "UNAVAILABLE" => vec![without_leader(&args.queue, None)],
        stats => {
            let stats = stats?;
            let look = async |state: &'static str, is_there: bool| match is_there {
                true => {
                    api.peek(&args.queue, Some(state), LOOK_MAX).await.map(|seen| seen.messages)
                }
                false => Ok(Vec::new()),
            };
            let held = look("held", 0 < stats.in_flight).await?;
            let delayed = look("delayed", 0 < stats.delayed).await?;
            let waiting = look("ready", 0 < stats.ready).await?;
            verdicts(&Facts { queue, stats, held, delayed, waiting })
        }
    };
    print(session, &args.queue, &verdicts)?;
    let is_stuck = verdicts.iter().any(|verdict| verdict.is_problem);
    Ok(if args.check && is_stuck { Exit::CheckHolds } else { Exit::Ok })
}

fn print(session: &Session, queue: &str, verdicts: &[Verdict]) -> Outcome<()> {
    if session.format() == Format::Table {
        for verdict in verdicts {
            let text = match &verdict.command {
                Some(command) => format!("{}\n  try: {command}\n", verdict.words),
                None => format!("{}\n", verdict.words),
            };
            crate::output::write_out(text.as_bytes())?;
        }
        return Ok(());
    }
    let mut table = Table::new("verdicts", &["queue", "code", "is_problem", "words", "try"]);
    for verdict in verdicts {
        table.row(vec![
            queue.into(),
            verdict.code.as_str().into(),
            verdict.is_problem.into(),
            verdict.words.as_str().into(),
            Cell::or_none(verdict.command.clone()),
        ]);
    }
    session.print(&Report::new().table(table))
}

fn problem(code: &str, words: String, command: Option<String>) -> Verdict {
    Verdict { code: code.to_owned(), is_problem: true, words, command }
}

fn remark(code: &str, words: String) -> Verdict {
    Verdict { code: code.to_owned(), is_problem: false, words, command: None }
}

/// Everything that stands in the way, the worst first; what is well if nothing does.
fn verdicts(facts: &Facts) -> Vec<Verdict> {
    let Facts { queue, stats, .. } = facts;
    let name = &queue.name;
    let mut found = Vec::new();
    if !stats.partitions_missing.is_empty() {
        found.push(without_leader(name, Some(&stats.partitions_missing)));
    }
    found.extend(nobody_receives(name, stats));
    found.extend(all_held(facts));
    found.extend(limit_of_held(facts));
    found.extend(order(facts));
    found.extend(all_delayed(facts));
    found.extend(not_moved(facts));
    found.extend(failing(facts));
    found.extend(stats.notices.iter().map(|notice| {
        problem(
            &notice.code,
            capitalised(&notice.message),
            Some(format!("towpath queue show {name}")),
        )
    }));
    found.extend(growing(stats));
    if found.is_empty() {
        found.push(match stats.depth() {
            0 => remark("EMPTY", format!("Nothing is in {name}.")),
            depth => remark(
                "MOVES",
                format!(
                    "{name} moves: {} in it, {} held, {:.1} done each second.",
                    messages(depth),
                    stats.in_flight,
                    stats.served_per_second
                ),
            ),
        });
    }
    found
}

fn without_leader(queue: &str, partitions: Option<&[i32]>) -> Verdict {
    let which = match partitions {
        Some(partitions) => {
            let list: Vec<String> = partitions.iter().map(ToString::to_string).collect();
            format!("Partitions {} of {queue} have", list.join(", "))
        }
        None => format!("No partition of {queue} has"),
    };
    let words =
        format!("{which} no leader that answers: what is in them waits until a replica leads.");
    problem("NO_LEADER", words, Some(format!("towpath topic show {queue}")))
}

fn nobody_receives(name: &str, stats: &QueueStats) -> Option<Verdict> {
    let is_idle = stats.receivers == 0 && stats.in_flight == 0 && stats.served_per_second < 0.01;
    (0 < stats.ready && is_idle).then(|| {
        let since = since(stats.oldest_waiting_ms);
        let words = format!(
            "Nobody receives from {name}: {} could be worked{since}.",
            messages(stats.ready)
        );
        problem("NO_RECEIVERS", words, Some(format!("towpath work {name} -- COMMAND")))
    })
}

fn since(oldest_ms: Option<u64>) -> String {
    oldest_ms.map_or_else(String::new, |ms| {
        format!(", the oldest since {}", seconds_in_words(ms / 1_000))
    })
}

/// Everything that is there is held.
fn all_held(facts: &Facts) -> Option<Verdict> {
    let Facts { queue, stats, held, .. } = facts;
    if stats.in_flight == 0 || 0 < stats.ready {
        return None;
    }
    let longest = held.iter().max_by_key(|message| message.held_ms)?;
    let holder = |message: &PeekedMessage| {
        message
            .holder
            .clone()
            .filter(|name| !name.is_empty())
            .unwrap_or_else(|| "somebody without a name".to_owned())
    };
    let words = format!(
        "All {} that could be worked are held, {}. The longest is {}, by {} for {}; it comes back in {} if \
         nobody extends it.",
        messages(stats.in_flight),
        most(held.iter().map(holder)),
        longest.id,
        holder(longest),
        seconds_in_words(longest.held_ms.unwrap_or(0) / 1_000),
        seconds_in_words(longest.left_ms.unwrap_or(0) / 1_000),
    );
    let command = Some(format!("towpath peek {} --state held", queue.name));
    // Work that goes on is no problem; work that does not end is.
    let is_problem = stats.served_per_second < 0.01 && 60_000 <= longest.held_ms.unwrap_or(0);
    Some(Verdict { is_problem, ..problem("ALL_HELD", words, command) })
}

/// Receivers hold as many as they may.
fn limit_of_held(facts: &Facts) -> Option<Verdict> {
    let Facts { queue, stats, .. } = facts;
    let max = queue.settings.get("in_flight_max")?.as_u64().filter(|max| 0 < *max)?;
    (max <= stats.in_flight && 0 < stats.ready).then(|| {
        let words = format!(
            "Receivers hold {}, and each partition allows {max}: one that is full gives out no more until \
             some are deleted.",
            messages(stats.in_flight)
        );
        problem("HELD_LIMIT", words, Some(format!("towpath queue set {} in_flight_max={}", queue.name, 2 * max)))
    })
}

/// Messages wait for others of their group.
fn order(facts: &Facts) -> Option<Verdict> {
    let Facts { queue, stats, held, delayed, waiting } = facts;
    let is_capped = queue.is_fifo() && 0 < stats.ready && stats.ready_groups == 0;
    if !is_capped {
        return None;
    }
    let blocked = waiting.iter().filter(|message| message.state == "blocked");
    let (group, count) = counted(blocked.map(group_of)).into_iter().next()?;
    let first = held.iter().chain(delayed).find(|message| group_of(message) == group);
    let why = first.map_or_else(String::new, |message| match message.holder.as_deref() {
        Some(holder) => format!(
            ": {} has {} of it",
            if holder.is_empty() { "somebody" } else { holder },
            message.id
        ),
        None => format!(
            ": {} of it comes in {}",
            message.id,
            seconds_in_words(message.left_ms.unwrap_or(0) / 1_000)
        ),
    });
    let words = format!(
        "Order limits how many work: each message group has one receiver at a time, and all {} waiting \
         are behind others of theirs. Most of those looked at, {count}, wait in group {group:?}{why}.",
        messages(stats.ready),
    );
    Some(problem("ORDER_BLOCKS", words, Some(format!("towpath peek {} --state held", queue.name))))
}

fn group_of(message: &PeekedMessage) -> String {
    message.group.clone().unwrap_or_default()
}

/// Everything that is there comes later.
fn all_delayed(facts: &Facts) -> Option<Verdict> {
    let Facts { stats, delayed, queue, .. } = facts;
    if stats.delayed == 0 || 0 < stats.ready + stats.in_flight {
        return None;
    }
    let next = delayed.iter().filter_map(|message| message.left_ms).min();
    let when = next.map_or_else(String::new, |ms| {
        format!("; the next of those looked at comes in {}", seconds_in_words(ms / 1_000))
    });
    let retried = delayed.iter().filter(|message| 0 < message.receives).count();
    let retries = match retried {
        0 => String::new(),
        count => format!("; {count} of them failed before and wait for their retry"),
    };
    let words =
        format!("All {} in {} are delayed{when}{retries}.", messages(stats.delayed), queue.name);
    Some(remark("ALL_DELAYED", words))
}

/// Another queue does not take what is to go there.
fn not_moved(facts: &Facts) -> Option<Verdict> {
    let Facts { queue, stats, delayed, waiting, .. } = facts;
    if stats.unmovable == 0 {
        return None;
    }
    let seen = delayed.iter().chain(waiting).filter_map(|message| message.history.last());
    let mut failed = seen.filter(|attempt| attempt.why == MOVE_FAILED);
    let note = failed.find_map(|attempt| attempt.note.as_deref());
    let to = queue.settings.get("dead_letter_queue").and_then(Value::as_str).unwrap_or_default();
    let words = format!(
        "{} cannot be moved{}, and that is tried again, ever later{}.",
        messages(stats.unmovable),
        if to.is_empty() { String::new() } else { format!(" (dead letters go to {to})") },
        note.map_or_else(String::new, |note| format!("; one of them: {note:?}")),
    );
    Some(problem("NOT_MOVED", words, Some(format!("towpath peek {} --state delayed", queue.name))))
}

/// Work fails more often than it does not.
fn failing(facts: &Facts) -> Option<Verdict> {
    let Facts { queue, stats, held, delayed, waiting } = facts;
    let failed: u64 = stats
        .counts
        .returned
        .iter()
        .filter(|(why, _)| !["unclaimed", "move-failed"].contains(&why.as_str()))
        .map(|(_, count)| count)
        .sum();
    let is_failing = 10 <= failed && stats.counts.received < 2 * failed;
    if !is_failing {
        return None;
    }
    let seen = waiting.iter().chain(delayed).chain(held);
    let last =
        seen.filter_map(|message| message.history.last()).find(|attempt| attempt.note.is_some());
    let note = last.and_then(|attempt| attempt.note.as_deref());
    let words = format!(
        "Work fails: {failed} of {} that were received came back{}.",
        messages(stats.counts.received),
        note.map_or_else(String::new, |note| format!(", one of them with {note:?}")),
    );
    Some(problem("WORK_FAILS", words, Some(format!("towpath peek {}", queue.name))))
}

/// More comes than is done.
fn growing(stats: &QueueStats) -> Option<Verdict> {
    let growth = stats.arrivals_per_second - stats.served_per_second;
    let is_growing = 0 < stats.ready
        && 0.1 * stats.arrivals_per_second < growth
        && 0.1 < growth
        && 0.01 <= stats.served_per_second;
    is_growing.then(|| {
        let words = format!(
            "More comes than is done: {:.1} messages each second, and {:.1} are done.",
            stats.arrivals_per_second, stats.served_per_second
        );
        problem("GROWS", words, None)
    })
}

/// Names with how often they come, the most frequent first.
fn counted(names: impl Iterator<Item = String>) -> Vec<(String, usize)> {
    let mut counts: BTreeMap<String, usize> = BTreeMap::new();
    names.for_each(|name| *counts.entry(name).or_default() += 1);
    let mut counts: Vec<(String, usize)> = counts.into_iter().collect();
    counts.sort_by_key(|(_, count)| std::cmp::Reverse(*count));
    counts
}

/// The most frequent names, in words.
fn most(names: impl Iterator<Item = String>) -> String {
    const NAMED_MAX: usize = 3;
    let counts = counted(names);
    let named = counts.iter().take(NAMED_MAX).map(|(name, count)| format!("{count} by {name}"));
    let others = counts.len().saturating_sub(NAMED_MAX);
    let rest = (0 < others).then(|| format!("others by {others} more"));
    named.chain(rest).collect::<Vec<_>>().join(", ")
}

fn messages(count: u64) -> String {
    plural(i64::try_from(count).unwrap_or(i64::MAX), "message")
}

fn capitalised(text: &str) -> String {
    let mut letters = text.chars();
    letters
        .next()
        .map_or_else(String::new, |first| format!("{}{}.", first.to_uppercase(), letters.as_str()))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::queue_api::{Notice, PeekedAttempt, QueueCounts};

    fn facts(stats: QueueStats) -> Facts {
        let settings = [("fifo".to_owned(), Value::Bool(true))].into();
        let queue = ShownQueue { name: "q".to_owned(), partitions: 1, settings };
        Facts { queue, stats, held: Vec::new(), delayed: Vec::new(), waiting: Vec::new() }
    }

    fn held(id: &str, holder: &str, group: &str, held_ms: u64) -> PeekedMessage {
        PeekedMessage {
            id: id.to_owned(),
            holder: Some(holder.to_owned()),
            group: Some(group.to_owned()),
            held_ms: Some(held_ms),
            left_ms: Some(5_000),
            ..PeekedMessage::default()
        }
    }

    fn codes(facts: &Facts) -> Vec<String> {
        verdicts(facts).into_iter().map(|verdict| verdict.code).collect()
    }

    #[test]
    fn what_moves_or_is_empty_is_well() {
        assert_eq!(codes(&facts(QueueStats::default())), ["EMPTY"]);
        let moving =
            QueueStats { ready: 3, in_flight: 2, served_per_second: 4.0, ..QueueStats::default() };
        let found = verdicts(&facts(moving));
        assert!(!found[0].is_problem && found[0].code == "MOVES", "{found:?}");
    }

    #[test]
    fn nobody_who_receives_is_named() {
        let stats =
            QueueStats { ready: 7, oldest_waiting_ms: Some(60_000), ..QueueStats::default() };
        let found = verdicts(&facts(stats));
        assert_eq!(
            found[0].words,
            "Nobody receives from q: 7 messages could be worked, the oldest since 1m."
        );
        assert!(found[0].is_problem);
    }

    #[test]
    fn what_another_queue_does_not_take_is_named() {
        let mut facts = facts(QueueStats { delayed: 2, unmovable: 2, ..QueueStats::default() });
        facts.queue.settings.insert("dead_letter_queue".to_owned(), Value::from("q-dead"));
        let note = Some("the message is too large".to_owned());
        let attempt = PeekedAttempt { why: MOVE_FAILED.to_owned(), note };
        facts.delayed = vec![PeekedMessage { history: vec![attempt], ..PeekedMessage::default() }];
        let found = verdicts(&facts).into_iter().find(|verdict| verdict.code == "NOT_MOVED");
        let found = found.unwrap();
        assert_eq!(
            found.words,
            "2 messages cannot be moved (dead letters go to q-dead), and that is tried again, ever later; one of \
             them: \"the message is too large\"."
        );
        assert!(found.is_problem);
    }

    #[test]
    fn who_holds_everything_is_named() {
        let mut facts = facts(QueueStats { in_flight: 3, ..QueueStats::default() });
        facts.held = vec![
            held("0-1", "a", "", 10_000),
            held("0-2", "b", "", 90_000),
            held("0-3", "b", "", 0),
        ];
        let found = verdicts(&facts);
        assert_eq!(found.len(), 1);
        for part in ["All 3 messages", "2 by b, 1 by a", "0-2, by b for 1m 30s", "back in 5s"] {
            assert!(found[0].words.contains(part), "{}", found[0].words);
        }
        assert!(found[0].is_problem);
    }

    #[test]
    fn the_group_that_keeps_others_waiting_is_named() {
        let mut facts =
            facts(QueueStats { ready: 9, in_flight: 1, receivers: 4, ..QueueStats::default() });
        facts.held = vec![held("0-1", "worker-1", "cust-7", 1_000)];
        let blocked = |group: &str| PeekedMessage {
            group: Some(group.to_owned()),
            state: "blocked".to_owned(),
            ..PeekedMessage::default()
        };
        facts.waiting = vec![blocked("cust-7"), blocked("cust-7"), blocked("cust-8")];
        let found = verdicts(&facts);
        assert_eq!(found[0].code, "ORDER_BLOCKS");
        assert!(
            found[0].words.contains("2, wait in group \"cust-7\": worker-1 has 0-1 of it"),
            "{}",
            found[0].words
        );
    }

    #[test]
    fn delays_failures_growth_leaders_and_notices_are_named() {
        let mut late = facts(QueueStats { delayed: 2, ..QueueStats::default() });
        let in_a_minute =
            PeekedMessage { left_ms: Some(61_000), receives: 1, ..PeekedMessage::default() };
        late.delayed = vec![in_a_minute];
        let found = verdicts(&late);
        assert!(
            found[0].words.contains("comes in 1m 1s; 1 of them failed before"),
            "{}",
            found[0].words
        );

        let counts = QueueCounts { received: 20, returned: [("failed".to_owned(), 15)].into() };
        let mut failing =
            facts(QueueStats { ready: 1, receivers: 1, counts, ..QueueStats::default() });
        let note = PeekedAttempt { why: "failed".to_owned(), note: Some("no route".to_owned()) };
        failing.waiting = vec![PeekedMessage { history: vec![note], ..PeekedMessage::default() }];
        failing.stats.ready_groups = 1;
        assert!(verdicts(&failing)[0].words.contains(
            "15 of 20 messages that were received came back, one of them with \"no route\""
        ));

        let notice = Notice { code: "X".to_owned(), message: "it is so".to_owned() };
        let stats = QueueStats {
            ready: 5,
            ready_groups: 1,
            receivers: 1,
            arrivals_per_second: 5.0,
            served_per_second: 1.0,
            notices: vec![notice],
            partitions_missing: vec![2],
            ..QueueStats::default()
        };
        assert_eq!(codes(&facts(stats)), ["NO_LEADER", "X", "GROWS"]);
    }
}
