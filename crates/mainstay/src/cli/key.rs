//! `mainstay key`.

use std::path::PathBuf;

use clap::Args;

/// `mainstay key`.
#[derive(Debug, Args)]
#[command(after_help = "\
The key goes to both nodes, by a way that nobody can listen on (scp, a secrets store), as a file of mode 600 that
[replication.security] pre_shared_keys names. It is not printed unless standard output is asked for by `--output -`.")]
pub struct KeyArgs {
    /// File to write, which must not be there yet; `-` is standard output
    #[arg(long, short, value_name = "FILE")]
    pub output: PathBuf,
}
