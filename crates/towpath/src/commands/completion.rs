//! `towpath completion SHELL`: the script that a shell sources. It calls back for names, so topics
//! and groups complete from the server.

use clap::{Args, ValueEnum};
use clap_complete::env::{Bash, Elvish, EnvCompleter, Fish, Powershell, Zsh};

use crate::failure::{Exit, Outcome};
use crate::output::write_out;

/// Flags of `completion`.
#[derive(Debug, Args)]
pub(crate) struct CompletionArgs {
    /// Which shell
    #[arg(value_enum)]
    shell: Shell,
}

#[derive(Debug, Clone, Copy, ValueEnum)]
enum Shell {
    /// source <(towpath completion bash)
    Bash,
    /// source <(towpath completion zsh)
    Zsh,
    /// towpath completion fish | source
    Fish,
    /// towpath completion powershell | Out-String | Invoke-Expression
    Powershell,
    /// eval (towpath completion elvish | slurp)
    Elvish,
}

pub(crate) fn run(args: &CompletionArgs) -> Outcome {
    let shell: &dyn EnvCompleter = match args.shell {
        Shell::Bash => &Bash,
        Shell::Zsh => &Zsh,
        Shell::Fish => &Fish,
        Shell::Powershell => &Powershell,
        Shell::Elvish => &Elvish,
    };
    let mut script = Vec::new();
    shell.write_registration("COMPLETE", "towpath", "towpath", "towpath", &mut script)?;
    write_out(&script)?;
    Ok(Exit::Ok)
}
