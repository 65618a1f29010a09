//! `mainstay key`.

use std::path::PathBuf;

use clap::Args;

/// `mainstay key`.
#[derive(Debug, Args)]
#[command(after_help = "\
Copy the key to both nodes over a confidential channel (scp, a secrets store), as a file of mode 600 that
[replication.security] pre_shared_keys names. The key is printed only with `--output -`.")]
pub struct KeyArgs {
    /// File that the key is written to, which must not exist; - is standard output
    #[arg(long, short, value_name = "FILE")]
    pub output: PathBuf,
}
