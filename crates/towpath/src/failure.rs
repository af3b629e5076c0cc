//! How a command ends badly: what a person reads, and the exit code that a script reads.

use std::io::{self, Write};
use std::process::ExitCode;

use serde_json::{Value, json};

/// How a command ended. The numbers are a promise to scripts.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Exit {
    Ok = 0,
    /// The operation, or a part of it, failed.
    Failed = 1,
    /// The words make no sense.
    Usage = 2,
    /// The server cannot be reached.
    Unreachable = 3,
    /// The server does not allow it.
    Denied = 4,
    /// A condition that was asked for with `--fail-if` or `--check` holds.
    CheckHolds = 5,
}

impl From<Exit> for ExitCode {
    fn from(exit: Exit) -> ExitCode {
        ExitCode::from(exit as u8)
    }
}

/// An error with its way out.
#[derive(Debug)]
pub(crate) struct Failure {
    pub(crate) exit: Exit,
    pub(crate) message: String,
    /// What it may be about.
    pub(crate) help: Option<String>,
    /// A command that would help.
    pub(crate) command: Option<String>,
    /// A stable name: Kafka's where the server refused.
    pub(crate) code: String,
}

/// The result of a command.
pub(crate) type Outcome<T = Exit> = Result<T, Failure>;

impl Failure {
    /// A plain failure.
    pub(crate) fn new(message: impl Into<String>) -> Failure {
        Failure {
            exit: Exit::Failed,
            message: message.into(),
            help: None,
            command: None,
            code: "FAILED".to_owned(),
        }
    }

    /// The words make no sense together.
    pub(crate) fn usage(message: impl Into<String>) -> Failure {
        Failure { exit: Exit::Usage, code: "USAGE".to_owned(), ..Failure::new(message) }
    }

    pub(crate) fn with_help(mut self, help: impl Into<String>) -> Failure {
        self.help = Some(help.into());
        self
    }

    pub(crate) fn with_try(mut self, command: impl Into<String>) -> Failure {
        self.command = Some(command.into());
        self
    }

    /// For standard error.
    pub(crate) fn print(&self, with_color: bool) {
        let (red, cyan, off) =
            if with_color { ("\x1b[1;31m", "\x1b[1;36m", "\x1b[0m") } else { ("", "", "") };
        let mut told = format!("{red}error:{off} {}\n", self.message);
        if let Some(help) = &self.help {
            told += &format!("{cyan}help:{off} {help}\n");
        }
        if let Some(command) = &self.command {
            told += &format!("{cyan}try:{off} {command}\n");
        }
        // Where nobody listens any more, the exit code says it.
        let _ = io::stderr().write_all(told.as_bytes());
    }

    /// For standard output, where the caller asked for JSON.
    pub(crate) fn as_json(&self) -> Value {
        json!({"error": {
            "code": self.code,
            "exit": self.exit as u8,
            "message": self.message,
            "help": self.help,
            "try": self.command,
        }})
    }
}

impl From<towpath_client::Error> for Failure {
    fn from(error: towpath_client::Error) -> Failure {
        use towpath_client::Error;
        let exit = match &error {
            error if error.is_unreachable() => Exit::Unreachable,
            error if error.is_denied() => Exit::Denied,
            Error::InvalidArgument(_) => Exit::Usage,
            _ => Exit::Failed,
        };
        let code = match &error {
            Error::UnknownTopic { .. } => "UNKNOWN_TOPIC",
            Error::UnknownPartition { .. } => "UNKNOWN_PARTITION",
            Error::TimedOut { .. } => "TIMED_OUT",
            Error::RecordTooLarge { .. } => "RECORD_TOO_LARGE",
            Error::NotKafka { .. } => "NOT_KAFKA",
            Error::InvalidArgument(_) => "USAGE",
            Error::HttpRefused { code, .. } => code,
            error if error.is_unreachable() => "UNREACHABLE",
            error => error.code().map_or("FAILED", towpath_client::ErrorCode::name),
        };
        Failure {
            exit,
            code: code.to_owned(),
            help: error.advice(),
            message: error.to_string(),
            command: None,
        }
    }
}

impl From<std::io::Error> for Failure {
    fn from(error: std::io::Error) -> Failure {
        Failure::new(error.to_string())
    }
}
