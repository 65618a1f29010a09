//! Arguments of `mainstay gateway`, and of checks.

use std::path::PathBuf;

use clap::Args;

/// `mainstay gateway`.
#[derive(Debug, Args)]
pub struct GatewayArgs {
    /// Configuration file (docs/configuration.md)
    #[arg(long, value_name = "FILE")]
    pub config: PathBuf,
    /// Whether it is only checked.
    #[command(flatten)]
    pub check: CheckArgs,
}

/// Checks of a configuration and of the host.
#[derive(PartialEq, Eq, Debug, Default, Args)]
pub struct CheckArgs {
    /// Report all that would keep the program from starting on this host, and start nothing
    #[arg(long)]
    pub check: bool,
    /// With --check, check the file alone, for use on another host
    #[arg(long, requires = "check")]
    pub config_only: bool,
    /// With --check, the user that the service runs as, who must own the files of keys (mainstay, as packaged)
    #[arg(long, value_name = "USER", requires = "check", conflicts_with = "config_only")]
    pub user: Option<String>,
    /// With --check, print one JSON object
    #[arg(long, requires = "check")]
    pub json: bool,
}
