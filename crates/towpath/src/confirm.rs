//! The question before something is destroyed.

use std::io::{self, BufRead, IsTerminal, Write};

use crate::failure::{Failure, Outcome};
use crate::session::Session;

/// What the caller decided.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Decision {
    Go,
    /// A dry run: everything was said, nothing is to be done.
    SayOnly,
}

/// Says what will happen, and goes on only with `--yes`, or when a person types `word`.
pub(crate) fn confirm(session: &Session, what: &str, word: &str) -> Outcome<Decision> {
    if session.global.dry_run {
        session.say(format!("would {what}"));
        return Ok(Decision::SayOnly);
    }
    if session.global.yes {
        session.say(format!("will {what}"));
        return Ok(Decision::Go);
    }
    if !io::stdin().is_terminal() || !io::stderr().is_terminal() {
        return Err(Failure::usage(format!("this would {what}"))
            .with_help("add --yes to do it, or --dry-run to look only"));
    }
    eprint!("This will {what}.\nType {word} to go on: ");
    io::stderr().flush()?;
    let mut typed = String::new();
    io::stdin().lock().read_line(&mut typed)?;
    if typed.trim() == word {
        Ok(Decision::Go)
    } else {
        Err(Failure::new("nothing was changed: the words differ"))
    }
}
