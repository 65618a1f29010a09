//! Arguments of the commands that change a running gateway.

use clap::Args;

use super::SocketArgs;

/// `mainstay reload`.
#[derive(Debug, Args)]
pub struct ReloadArgs {
    /// The gateway.
    #[command(flatten)]
    pub socket: SocketArgs,
    /// Report what would change, and whether a reload can apply it, and change nothing
    #[arg(long, alias = "check-only")]
    pub check: bool,
    /// Print one JSON object
    #[arg(long)]
    pub json: bool,
}

/// `mainstay drain`.
#[derive(Debug, Args)]
pub struct DrainArgs {
    /// The gateway.
    #[command(flatten)]
    pub socket: SocketArgs,
    /// Even if no peer can take over: connections are lost
    #[arg(long)]
    pub force: bool,
    /// Print one JSON object
    #[arg(long)]
    pub json: bool,
}

/// `mainstay undrain`.
#[derive(Debug, Args)]
pub struct UndrainArgs {
    /// The gateway.
    #[command(flatten)]
    pub socket: SocketArgs,
    /// Print one JSON object
    #[arg(long)]
    pub json: bool,
}
