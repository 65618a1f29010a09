//! `mainstay flows`.

use clap::Args;

use super::SocketArgs;
use super::inspect::stream_seconds;
use api::{FlowFilterText, flows_limit_default};

/// `mainstay flows`.
#[derive(Debug, Args)]
pub struct FlowsArgs {
    /// The gateway.
    #[command(flatten)]
    pub socket: SocketArgs,
    /// Only this protocol (tcp, udp, icmp, …, or a number)
    #[arg(long)]
    pub protocol: Option<String>,
    /// Only this state (ESTABLISHED, SYN_SENT, …)
    #[arg(long)]
    pub state: Option<String>,
    /// Only sources in this prefix, before or after translation
    #[arg(long, value_name = "PREFIX")]
    pub source: Option<String>,
    /// Only destinations in this prefix, before or after translation
    #[arg(long, value_name = "PREFIX")]
    pub destination: Option<String>,
    /// Only with this port at either end, before or after translation
    #[arg(long)]
    pub port: Option<u16>,
    /// Only connections that this node owns (master), or holds a replica of (backup)
    #[arg(long, value_name = "master|backup")]
    pub role: Option<String>,
    /// Show at most so many connections
    #[arg(long, value_name = "COUNT", default_value_t = flows_limit_default())]
    pub limit: u64,
    /// Show their number by protocol, state and role instead
    #[arg(long, conflicts_with_all = ["limit", "follow"])]
    pub count: bool,
    /// Show connections as they begin, change and end, from now on
    #[arg(long, conflicts_with_all = ["state", "role"])]
    pub follow: bool,
    /// With --follow, for so long
    #[arg(long = "duration", value_name = "TIME", requires = "follow", default_value = "1h", value_parser = stream_seconds)]
    pub seconds: f64,
    /// Print one JSON object; with --follow, one a line for each change
    #[arg(long)]
    pub json: bool,
}

impl FlowsArgs {
    /// The conditions on flows.
    #[must_use]
    pub fn filter(&self) -> FlowFilterText {
        FlowFilterText {
            protocol: self.protocol.clone(),
            state: self.state.clone(),
            source: self.source.clone(),
            destination: self.destination.clone(),
            port: self.port,
            role: self.role.clone(),
        }
    }
}
