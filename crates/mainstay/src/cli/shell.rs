//! Arguments of `mainstay completions` and `mainstay man`.

use std::path::PathBuf;

use clap::Args;
use clap_complete::Shell;

/// `mainstay completions`.
#[derive(Debug, Args)]
#[command(after_help = "\
bash  mainstay completions bash > /usr/share/bash-completion/completions/mainstay
zsh   mainstay completions zsh > /usr/share/zsh/site-functions/_mainstay
fish  mainstay completions fish > /usr/share/fish/vendor_completions.d/mainstay.fish")]
pub struct CompletionsArgs {
    /// The shell
    pub shell: Shell,
}

/// `mainstay man`.
#[derive(Debug, Args)]
#[command(after_help = "\
mainstay man flows | man -l -         shows a page
mainstay man -o /usr/share/man/man1   installs all of them")]
pub struct ManArgs {
    /// The command, `flows` or `sync ready` [default: the whole program]
    #[arg(value_name = "COMMAND")]
    pub command: Vec<String>,
    /// Write the pages of all commands to this folder
    #[arg(long, short, value_name = "FOLDER", conflicts_with = "command")]
    pub output: Option<PathBuf>,
}
