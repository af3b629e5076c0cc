//! The program from outside, as far as that needs no server: exit codes, errors, completion.

use std::net::TcpListener;
use std::process::{Command, Output};

fn towpath(args: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_towpath"))
        .args(args)
        .env_remove("TOWPATH_SERVER")
        .output()
        .expect("the program was built for this test")
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

/// An address where nobody listens.
fn closed() -> String {
    let listener = TcpListener::bind("127.0.0.1:0").expect("loopback has free ports");
    listener.local_addr().expect("it is bound").to_string()
}

#[test]
fn words_that_make_no_sense_end_with_2() {
    for args in [
        &["topic", "bogus"][..],
        &["send"],
        &["read", "t", "--from", "yesterday"],
        &["read", "t", "-f", "%z"],
        &["group", "seek", "g"],
        &["group", "lag", "--fail-if", "seconds<1"],
        &["topic", "ls", "-o", "xml"],
        &["-s", "http://x", "topic", "ls"],
    ] {
        let output = towpath(args);
        assert_eq!(output.status.code(), Some(2), "{args:?}: {}", text(&output.stderr));
        assert!(text(&output.stderr).contains("error:"), "{args:?}");
    }
}

#[test]
fn an_unreachable_server_ends_with_3_and_advice() {
    let address = closed();
    let output = towpath(&["-s", &address, "topic", "ls"]);
    assert_eq!(output.status.code(), Some(3));
    let stderr = text(&output.stderr);
    assert!(stderr.starts_with(&format!("error: cannot reach {address}")), "{stderr}");
    assert!(stderr.contains("help: "), "{stderr}");
    assert!(output.stdout.is_empty());
}

#[test]
fn errors_are_json_where_json_was_asked_for() {
    let output = towpath(&["-s", &closed(), "read", "orders", "-o", "json"]);
    assert_eq!(output.status.code(), Some(3));
    let json: serde_json::Value =
        serde_json::from_slice(&output.stdout).expect("standard output is one JSON object");
    assert_eq!(json["error"]["code"], "UNREACHABLE");
    assert_eq!(json["error"]["exit"], 3);
    assert!(json["error"]["message"].as_str().is_some_and(|message| !message.is_empty()));
}

#[test]
fn the_doctor_names_the_step_that_failed() {
    let address = closed();
    let output = towpath(&["doctor", "connect", &address, "-o", "tsv"]);
    assert_eq!(output.status.code(), Some(3));
    let steps = text(&output.stdout);
    assert!(steps.starts_with("resolve\t127.0.0.1\ttrue\t"), "{steps}");
    assert!(steps.contains(&format!("connect\t{address}\tfalse\t")), "{steps}");
    assert!(text(&output.stderr).contains("help: start the server"), "{}", text(&output.stderr));
}

#[test]
fn every_shell_gets_a_script() {
    for shell in ["bash", "zsh", "fish", "powershell"] {
        let output = towpath(&["completion", shell]);
        assert_eq!(output.status.code(), Some(0), "{shell}");
        assert!(text(&output.stdout).contains("towpath"), "{shell}");
    }
}

#[test]
fn help_lists_the_everyday_words() {
    let output = towpath(&["--help"]);
    assert_eq!(output.status.code(), Some(0));
    let help = text(&output.stdout);
    for word in ["dev", "serve", "send", "read", "tail", "status", "topic", "group", "doctor"] {
        assert!(help.contains(&format!("\n  {word} ")), "{word} is missing:\n{help}");
    }
}
