//! Work queues on the command line: every command against a real broker.

use std::time::Duration;

use serde_json::{Value, json};
use towpath_process::{BrokerProcess, Finished, Start, http};

use crate::support::{COMMAND_PATIENCE, command, dev, eventually, output_of};

fn asked(broker: &BrokerProcess, name: &str, arguments: &[&str]) -> Value {
    let all = [arguments, &["-o", "json"]].concat();
    let printed = output_of(broker, name, &all);
    serde_json::from_str(&printed).unwrap_or_else(|error| panic!("{error}: {printed}"))
}

fn stats(broker: &BrokerProcess, queue: &str) -> Value {
    let path = format!("/queues/{queue}/stats");
    http::get(broker.addresses.http, &path).unwrap().success().unwrap()
}

/// Runs a command that has to end with this code.
fn ends_with(broker: &BrokerProcess, code: i32, name: &str, arguments: &[&str]) -> Finished {
    let finished = command(broker, name, arguments);
    assert_eq!(finished.status.code(), Some(code), "towpath {name} {arguments:?}: {finished:#?}");
    finished
}

#[test]
fn a_queue_is_created_listed_configured_emptied_and_deleted() {
    let (broker, _data) = dev();
    output_of(&broker, "queue", &["create", "orders-dead"]);
    let create =
        ["create", "orders", "--dlq", "orders-dead", "--receives", "2", "--visibility", "7s"];
    assert_eq!(asked(&broker, "queue", &create)["created"][0]["name"], "orders");
    output_of(&broker, "queue", &["create", "orders", "--if-not-exists"]);
    let twice = ends_with(&broker, 1, "queue", &["create", "orders"]);
    assert!(twice.stderr.contains("towpath queue show orders"), "{}", twice.stderr);

    output_of(&broker, "send", &["orders", "a", "b", "--priority", "7", "--ttl", "1h"]);
    output_of(&broker, "send", &["orders", "c", "--after", "1h"]);
    let listed = asked(&broker, "queue", &["ls", "orders"]);
    assert_eq!(listed["queues"].as_array().unwrap().len(), 2);
    assert_eq!(
        (&listed["queues"][0]["ready"], &listed["queues"][0]["delayed"]),
        (&json!(2), &json!(1))
    );
    // Without a header in a pipe.
    let lines = output_of(&broker, "queue", &["ls", "orders"]);
    assert!(lines.starts_with("orders\tfalse\t2\t0\t1\t0\t"), "{lines}");

    output_of(&broker, "queue", &["set", "orders", "visibility_timeout_ms=9000", "delay_ms-"]);
    let shown = asked(&broker, "queue", &["show", "orders"]);
    let settings = shown["settings"].as_array().unwrap();
    let visibility = settings.iter().find(|one| one["setting"] == "visibility_timeout_ms").unwrap();
    assert_eq!((&visibility["value"], &shown["ready"]), (&json!(9_000), &json!(2)));
    let slip = ends_with(&broker, 1, "queue", &["set", "orders", "visibility_timeot_ms=1"]);
    assert!(slip.stderr.contains("did you mean visibility_timeout_ms?"), "{}", slip.stderr);
    let slip = ends_with(&broker, 1, "queue", &["show", "ordrs"]);
    assert!(slip.stderr.contains("did you mean \"orders\"?"), "{}", slip.stderr);

    // What destroys wants to be meant.
    ends_with(&broker, 2, "queue", &["purge", "orders"]);
    output_of(&broker, "queue", &["purge", "orders", "--dry-run"]);
    assert_eq!(stats(&broker, "orders")["ready"], 2);
    assert_eq!(asked(&broker, "queue", &["purge", "orders", "--yes"])["purged"], 3);
    assert_eq!(stats(&broker, "orders")["ready"], 0);
    output_of(&broker, "queue", &["rm", "orders", "--yes"]);
    output_of(&broker, "queue", &["rm", "orders", "--if-exists", "--yes"]);
    ends_with(&broker, 1, "queue", &["show", "orders"]);
}

#[test]
fn a_command_works_messages_and_its_exit_code_is_the_verdict() {
    let (broker, directory) = dev();
    output_of(&broker, "queue", &["create", "dead"]);
    output_of(
        &broker,
        "queue",
        &["create", "mail", "--dlq", "dead", "-c", "queue.retry.first.ms=0"],
    );
    output_of(&broker, "send", &["mail", "one", "-k", "ada", "-H", "trace-id=7"]);
    let seen = directory.path().join("seen");
    let script = format!(
        "echo \"$(cat) $TOWPATH_QUEUE $TOWPATH_MESSAGE_ID $TOWPATH_RECEIVES $TOWPATH_KEY $TOWPATH_HEADER_TRACE_ID\" >> {}",
        seen.display()
    );
    let worked = asked(&broker, "work", &["mail", "--once", "--exec", &script]);
    assert_eq!(worked["worked"], 1);
    assert_eq!(std::fs::read_to_string(&seen).unwrap(), "one mail 0-0 1 ada 7\n");
    let empty = stats(&broker, "mail");
    assert_eq!((&empty["ready"], &empty["in_flight"]), (&json!(0), &json!(0)));

    // 75 is another time; another code is a failure, with the last words.
    output_of(&broker, "send", &["mail", "two"]);
    let work = ["mail", "-n", "1", "--retry-after", "0s", "--exec", "exit 75"];
    ends_with(&broker, 1, "work", &work);
    let work = ["mail", "-n", "1", "--reject-on-failure", "--exec", "echo no route >&2; exit 1"];
    ends_with(&broker, 1, "work", &work);
    let dead = eventually(Duration::from_secs(30), || {
        let seen = asked(&broker, "peek", &["mail", "--state", "dead"]);
        seen["messages"].get(0).cloned()
    });
    let expected = (&json!("two"), &json!("rejected"), &json!("no route"));
    assert_eq!((&dead["value"], &dead["reason"], &dead["note"]), expected);

    let listed = asked(&broker, "dlq", &["ls"]);
    let row = &listed["queues"][0];
    assert_eq!((&row["queue"], &row["ready"]), (&json!("dead"), &json!(1)));
    assert_eq!((&row["sources"], &row["reasons"]), (&json!(["mail"]), &json!(["rejected:1"])));
    ends_with(&broker, 5, "dlq", &["ls", "--check"]);

    let unknown = ends_with(&broker, 1, "work", &["mial", "--once", "--exec", "true"]);
    assert!(unknown.stderr.contains("did you mean \"mail\"?"), "{}", unknown.stderr);
    output_of(&broker, "send", &["mail", "three"]);
    let server = broker.addresses.kafka.to_string();
    let missing = Start::command("work")
        .arguments(["mail", "--server", &server, "--", "/no/such/command"])
        .run(COMMAND_PATIENCE)
        .unwrap();
    assert_eq!(missing.status.code(), Some(1), "{missing:#?}");
    assert!(missing.stderr.contains("/no/such/command cannot be run"), "{}", missing.stderr);
    assert_eq!(stats(&broker, "mail")["in_flight"], 0);
}

#[test]
fn a_worker_that_is_told_to_stop_finishes_what_runs() {
    let (broker, directory) = dev();
    output_of(&broker, "queue", &["create", "slow", "--visibility", "2s"]);
    output_of(&broker, "send", &["slow", "a", "b", "c"]);
    let (pid, done) = (directory.path().join("pid"), directory.path().join("done"));
    // Longer than its lease, which is extended meanwhile.
    let script = format!("echo $PPID > {}; sleep 4; cat >> {}", pid.display(), done.display());
    let server = broker.addresses.kafka.to_string();
    let worker = std::thread::spawn(move || {
        let arguments = ["slow", "--holder", "tester", "--exec", &script, "--server", &server];
        Start::command("work").arguments(arguments).run(Duration::from_secs(60)).unwrap()
    });
    let pid: String = eventually(Duration::from_secs(30), || {
        std::fs::read_to_string(&pid).ok().filter(|pid| pid.ends_with('\n'))
    });
    std::thread::sleep(Duration::from_secs(3));
    let held = asked(&broker, "peek", &["slow", "--state", "held"]);
    assert_eq!(held["messages"][0]["holder"], "tester");
    let pid = rustix::process::Pid::from_raw(pid.trim().parse().unwrap()).unwrap();
    rustix::process::kill_process(pid, rustix::process::Signal::TERM).unwrap();
    let finished = worker.join().unwrap();
    assert!(finished.status.success(), "{finished:#?}");
    assert_eq!(std::fs::read_to_string(&done).unwrap().len(), 1);
    let left = stats(&broker, "slow");
    assert_eq!((&left["ready"], &left["in_flight"]), (&json!(2), &json!(0)));
}

#[test]
fn why_a_queue_does_not_move_is_said_in_plain_words() {
    let (broker, _data) = dev();
    output_of(&broker, "queue", &["create", "q", "--fifo"]);
    let why = |code| {
        let finished = ends_with(&broker, code, "queue", &["why", "q", "--check", "-o", "json"]);
        let said: Value = serde_json::from_str(&finished.stdout).unwrap();
        said["verdicts"][0].clone()
    };
    assert_eq!(why(0)["code"], "EMPTY");
    output_of(&broker, "send", &["q", "a", "b", "-k", "g"]);
    assert_eq!(why(5)["code"], "NO_RECEIVERS");
    let received = http::post(
        broker.addresses.http,
        "/queues/q/receive",
        &json!({"holder": "ada", "visibility_ms": 600_000}),
    );
    assert_eq!(received.unwrap().success().unwrap()["messages"].as_array().unwrap().len(), 1);
    let blocked = why(5);
    assert_eq!(blocked["code"], "ORDER_BLOCKS");
    let words = blocked["words"].as_str().unwrap();
    assert!(words.contains("group \"g\": ada has 0-0 of it"), "{words}");
}
