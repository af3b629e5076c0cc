//! A command that runs for one message: what it is told, and what it says.
//!
//! It has a process group of its own, so that signals of the terminal reach the worker alone: at the first one it
//! lets what runs finish, at the second it ends it, with all that it has started. A worker that is killed cannot:
//! what runs goes on then, and nobody extends its lease. (Linux could tell it, which takes `unsafe`.)

use std::collections::VecDeque;
use std::ffi::OsString;
use std::fmt;
use std::io::{self, ErrorKind, Write};
use std::os::unix::ffi::OsStringExt;
use std::process::{ExitStatus, Stdio};
use std::time::Duration;

use rustix::io::Errno;
use rustix::process::{Pid, Signal, kill_process_group};
use tokio::io::{AsyncBufReadExt, AsyncRead, AsyncReadExt, AsyncWriteExt, BufReader};
use tokio::process::{Child, ChildStderr, ChildStdin, Command};
use tokio::time::timeout;
use towpath_client::{QueueMessage, Work};

/// How long one that was told to end may take.
const END_PATIENCE: Duration = Duration::from_secs(5);
/// How long standard error is read after the end: somebody else may have it open.
const LAST_WORDS_PATIENCE: Duration = Duration::from_millis(500);
/// The most bytes of a variable with its name. Linux takes 128 KiB, with the zero at its end.
const VARIABLE_BYTES_MAX: usize = (128 << 10) - 1;
/// The most bytes that a message adds to the environment. Linux takes a quarter of the stack's limit, which is
/// 2 MiB where nobody has changed it, and what the worker was started with is in there too.
const ENVIRONMENT_BYTES_MAX: usize = 512 << 10;
/// A line that is longer is passed on in pieces.
const PIECE_BYTES_MAX: u64 = 64 << 10;
/// What is kept of standard error; brokers keep 1,024 bytes.
const LINES_MAX: usize = 10;
const LINE_BYTES_MAX: usize = 500;

/// What is run.
#[derive(Debug)]
pub(super) struct Program {
    queue: String,
    words: Vec<String>,
}

/// How a worker ended that was not just over.
#[derive(Debug)]
pub(super) enum Ended {
    /// Somebody wanted it to end at once.
    Interrupted,
    /// The broker did not let it go on.
    Refused(towpath_client::Error),
}

/// Why a command did not run.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum NotRun {
    /// It would be the same for every message.
    Never(String),
    /// It may run another time, or for another message.
    ThisTime(String),
}

/// How it went.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Ran {
    /// Nothing when a signal has ended it.
    pub(super) code: Option<i32>,
    /// The last lines of standard error, or how it ended.
    pub(super) words: String,
}

impl fmt::Display for Program {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.words.join(" "))
    }
}

impl Program {
    /// A line for the shell, or a command with its arguments.
    pub(super) fn new(queue: &str, exec: Option<&str>, command: &[String]) -> Program {
        let words = match exec {
            Some(line) => vec!["/bin/sh".to_owned(), "-c".to_owned(), line.to_owned()],
            None => command.to_vec(),
        };
        Program { queue: queue.to_owned(), words }
    }

    /// Runs it for a message; ends it when somebody else may have the message.
    ///
    /// # Errors
    /// When it does not run.
    pub(super) async fn run(&self, mut work: Work) -> Result<Ran, NotRun> {
        let message = work.message.clone();
        self.run_while_held(&message, work.lease_lost()).await
    }

    async fn run_while_held(
        &self,
        message: &QueueMessage,
        lease_lost: impl Future<Output = ()>,
    ) -> Result<Ran, NotRun> {
        let mut child = self.start(message)?;
        let group = Group::of(&child);
        let value = message.value.clone().unwrap_or_default();
        let (stdin, stderr) = (child.stdin.take(), child.stderr.take());
        let mut lines = Lines::default();
        let ran = async {
            let finishing = finish(&mut child, stderr, &mut lines);
            tokio::pin!(finishing);
            // Somebody whom it has left behind may have the other end of the pipe, and not read.
            tokio::select! {
                status = &mut finishing => status,
                () = feed(stdin, &value) => finishing.await,
            }
        };
        let status = tokio::select! {
            status = ran => status.map_err(|error| {
                NotRun::ThisTime(format!("{self} cannot be waited for: {error}"))
            })?,
            () = lease_lost => {
                group.tell(Signal::TERM);
                // If that takes too long, its end comes with the group's.
                let _ = timeout(END_PATIENCE, child.wait()).await;
                return Ok(Ran { code: None, words: "the lease was lost".to_owned() });
            }
        };
        group.let_go();
        Ok(Ran { code: status.code(), words: lines.words(status) })
    }

    fn start(&self, message: &QueueMessage) -> Result<Child, NotRun> {
        let nothing = || NotRun::Never("there is nothing to run".to_owned());
        let (program, arguments) = self.words.split_first().ok_or_else(nothing)?;
        let mut command = Command::new(program);
        command.args(arguments).stdin(Stdio::piped()).stderr(Stdio::piped()).process_group(0);
        command.envs(environment(&self.queue, message));
        command.spawn().map_err(|error| {
            let why = format!("{program} cannot be run: {error}");
            match is_of_the_program(&error) {
                true => NotRun::Never(why),
                false => NotRun::ThisTime(why),
            }
        })
    }
}

/// Whether a program cannot be started whatever the message is. All else may pass, such as too many processes or
/// open files, or lies in the message, such as more than an environment takes.
fn is_of_the_program(error: &io::Error) -> bool {
    let kind = error.kind();
    matches!(kind, ErrorKind::NotFound | ErrorKind::PermissionDenied | ErrorKind::NotADirectory)
        || Errno::from_io_error(error) == Some(Errno::NOEXEC)
}

/// What a command is told beside the value. What no environment can hold is left out: zeros, what is too long by
/// itself, and what is too much with those before.
fn environment(queue: &str, message: &QueueMessage) -> Vec<(String, OsString)> {
    let mut told: Vec<(String, OsString)> = vec![
        ("TOWPATH_QUEUE".to_owned(), queue.into()),
        ("TOWPATH_MESSAGE_ID".to_owned(), message.id.as_str().into()),
        ("TOWPATH_RECEIVES".to_owned(), message.receives.to_string().into()),
        ("TOWPATH_SENT_MS".to_owned(), message.sent_ms.to_string().into()),
    ];
    let mut left = ENVIRONMENT_BYTES_MAX;
    let mut say = |name: String, value: Option<&bytes::Bytes>| {
        let Some(value) = value.filter(|value| !value.contains(&0)) else { return };
        let bytes = name.len() + "=".len() + value.len();
        // Each one costs its zero and a pointer besides.
        let cost = bytes + 1 + size_of::<usize>();
        if bytes <= VARIABLE_BYTES_MAX && cost <= left {
            left -= cost;
            told.push((name, OsString::from_vec(value.to_vec())));
        }
    };
    say("TOWPATH_KEY".to_owned(), message.group.as_ref());
    for header in &message.headers {
        let upper = |c: char| if c.is_ascii_alphanumeric() { c.to_ascii_uppercase() } else { '_' };
        let name: String = header.key.chars().map(upper).collect();
        say(format!("TOWPATH_HEADER_{name}"), header.value.as_ref());
    }
    told
}

async fn feed(stdin: Option<ChildStdin>, value: &[u8]) {
    let Some(mut stdin) = stdin else { return };
    // Whoever does not read the value is free not to.
    let _ = stdin.write_all(value).await;
    let _ = stdin.shutdown().await;
}

async fn finish(
    child: &mut Child,
    stderr: Option<ChildStderr>,
    lines: &mut Lines,
) -> io::Result<ExitStatus> {
    let Some(stderr) = stderr else { return child.wait().await };
    let mut own = io::stderr();
    let reading = read(stderr, &mut own, lines);
    tokio::pin!(reading);
    let status = tokio::select! {
        status = child.wait() => status?,
        () = &mut reading => return child.wait().await,
    };
    // What it said last may still be on its way.
    let _ = timeout(LAST_WORDS_PATIENCE, reading).await;
    Ok(status)
}

/// Passes on what a command says, line by line, and keeps its end. Nobody may listen any more: the command goes
/// on all the same.
async fn read(said: impl AsyncRead + Unpin, to: &mut impl Write, lines: &mut Lines) {
    let mut reader = BufReader::new(said);
    let mut line = Vec::new();
    while let Ok(1..) = (&mut reader).take(PIECE_BYTES_MAX).read_until(b'\n', &mut line).await {
        let text = String::from_utf8_lossy(&line).trim_end().to_owned();
        let _ = to.write_all(format!("{text}\n").as_bytes());
        lines.put(&text);
        line.clear();
    }
}

/// The end of what somebody said.
#[derive(Debug, Default)]
struct Lines(VecDeque<String>);

impl Lines {
    fn put(&mut self, line: &str) {
        if line.trim().is_empty() {
            return;
        }
        if self.0.len() == LINES_MAX {
            self.0.pop_front();
        }
        self.0.push_back(line[..line.floor_char_boundary(LINE_BYTES_MAX)].to_owned());
    }

    /// The last lines that fit; how it ended where it said nothing.
    fn words(&self, status: ExitStatus) -> String {
        const BYTES_MAX: usize = 1_000;
        let mut bytes = 0;
        let last = self.0.iter().rev().take_while(|line| {
            bytes += line.len() + 1;
            bytes <= BYTES_MAX
        });
        let mut last: Vec<&str> = last.map(String::as_str).collect();
        last.reverse();
        if last.is_empty() { status.to_string() } else { last.join("\n") }
    }
}

/// The processes of a command. Dropped before they are let go, they are ended.
struct Group(Option<Pid>);

impl Group {
    fn of(child: &Child) -> Group {
        let id = child.id().and_then(|id| i32::try_from(id).ok());
        Group(id.and_then(Pid::from_raw))
    }

    fn tell(&self, signal: Signal) {
        if let Some(group) = self.0 {
            // Who is gone need not be told.
            let _ = kill_process_group(group, signal);
        }
    }

    fn let_go(mut self) {
        self.0 = None;
    }
}

impl Drop for Group {
    fn drop(&mut self) {
        self.tell(Signal::KILL);
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::process::ExitStatusExt;

    use bytes::Bytes;
    use towpath_client::Header;

    use super::*;

    fn message(headers: Vec<Header>) -> QueueMessage {
        QueueMessage {
            id: "0-1".to_owned(),
            value: None,
            group: Some("cust-7".into()),
            headers,
            sent_ms: 5,
            receives: 2,
            receipt: "r".to_owned(),
            visible_again_ms: 0,
        }
    }

    fn header(key: &str, value: impl Into<Bytes>) -> Header {
        Header { key: key.into(), value: Some(value.into()) }
    }

    async fn ran(line: &str, message: &QueueMessage) -> Result<Ran, NotRun> {
        let program = Program::new("q", Some(line), &[]);
        program.run_while_held(message, std::future::pending()).await
    }

    #[tokio::test]
    async fn what_no_environment_takes_is_left_out() {
        let of = |value: usize, name: &str| header(name, vec![b'x'; value]);
        let longest = VARIABLE_BYTES_MAX - "TOWPATH_HEADER_A=".len();
        let told = "test $TOWPATH_HEADER_Z = z && test -z ${TOWPATH_HEADER_B+x} && test ${#TOWPATH_HEADER_A} = ";
        let one = message(vec![of(longest, "a"), of(longest + 1, "b"), header("z", "z")]);
        assert_eq!(ran(&format!("{told}{longest}"), &one).await.unwrap().code, Some(0));
        let many = (0..10).map(|n| of(100_000, &format!("many{n}")));
        let many = message(many.chain([header("z", "z")]).collect());
        let counted =
            "test $TOWPATH_HEADER_Z = z && test $(env | grep -c ^TOWPATH_HEADER_MANY) = 5";
        assert_eq!(ran(counted, &many).await.unwrap().code, Some(0));
    }

    #[tokio::test]
    async fn what_lies_in_the_program_is_told_from_what_passes() {
        let starts = |words: &[&str]| {
            let words: Vec<String> = words.iter().map(|word| (*word).to_owned()).collect();
            let program = Program::new("q", None, &words);
            async move { program.run_while_held(&message(vec![]), std::future::pending()).await }
        };
        for never in ["/no/such/command", "/etc/passwd", "/etc/passwd/command"] {
            let not_run = starts(&[never]).await;
            assert!(matches!(not_run, Err(NotRun::Never(_))), "{never}: {not_run:?}");
        }
        let too_long = "x".repeat(VARIABLE_BYTES_MAX + 1);
        let not_run = starts(&["true", &too_long]).await;
        assert!(matches!(not_run, Err(NotRun::ThisTime(_))), "{not_run:?}");
    }

    #[tokio::test]
    async fn one_that_has_ended_needs_the_value_no_more() {
        // More than a pipe holds.
        let value = Some(vec![b'x'; 1 << 20].into());
        let large = QueueMessage { value, ..message(vec![]) };
        let counted = ran("test $(wc -c) = 1048576", &large).await.unwrap();
        assert_eq!(counted.code, Some(0));
        let left_behind = ran("exec 3<&0; sleep 15 <&3 >/dev/null 2>&1 & exit 3", &large);
        let left_behind =
            timeout(Duration::from_secs(10), left_behind).await.expect("it has ended");
        assert_eq!(left_behind.unwrap().code, Some(3));
    }

    #[tokio::test]
    async fn what_it_says_is_heard_though_nobody_listens() {
        let long = "x".repeat(100_000);
        let said = format!("{long}\nlast\n");
        let (mut heard, mut lines) = (Vec::new(), Lines::default());
        read(said.as_bytes(), &mut heard, &mut lines).await;
        let (first, rest) = long.split_at(64 << 10);
        assert_eq!(String::from_utf8(heard).unwrap(), format!("{first}\n{rest}\nlast\n"));
        assert_eq!(lines.0.back().map(String::as_str), Some("last"));

        let (other, mut closed) = io::pipe().unwrap();
        drop(other);
        let mut lines = Lines::default();
        read(said.as_bytes(), &mut closed, &mut lines).await;
        assert_eq!(lines.0.len(), 3);
    }

    #[test]
    fn a_command_is_told_what_there_is_to_know() {
        let message = message(vec![header("trace-id", "abc"), header("bin", "a\0b")]);
        let told = environment("q", &message);
        let of = |name: &str| {
            let found = told.iter().find(|(told, _)| told == name);
            found.map(|(_, value)| value.to_string_lossy().into_owned())
        };
        assert_eq!(of("TOWPATH_MESSAGE_ID").as_deref(), Some("0-1"));
        assert_eq!(of("TOWPATH_RECEIVES").as_deref(), Some("2"));
        assert_eq!(of("TOWPATH_KEY").as_deref(), Some("cust-7"));
        assert_eq!(of("TOWPATH_HEADER_TRACE_ID").as_deref(), Some("abc"));
        assert_eq!(of("TOWPATH_HEADER_BIN"), None);
    }

    #[test]
    fn the_last_words_are_kept_or_how_it_ended() {
        let mut lines = Lines::default();
        assert_eq!(lines.words(ExitStatus::from_raw(3 << 8)), "exit status: 3");
        (0..20).for_each(|n| lines.put(&format!("line {n}")));
        lines.put("");
        let words = lines.words(ExitStatus::from_raw(0));
        assert!(words.starts_with("line 10\n") && words.ends_with("line 19"), "{words}");
        (0..20).for_each(|_| lines.put(&"x".repeat(900)));
        assert_eq!(lines.words(ExitStatus::from_raw(0)).len(), 500);
    }
}
