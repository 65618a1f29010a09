//! `mainstay flows`.

use clap::Args;

use super::SocketArgs;
use super::looking::stream_seconds;
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
    /// Only those that the node is master or backup of
    #[arg(long, value_name = "master|backup")]
    pub role: Option<String>,
    /// At most so many
    #[arg(long, value_name = "COUNT", default_value_t = flows_limit_default())]
    pub limit: u64,
    /// Only how many there are, by protocol, state and role
    #[arg(long, conflicts_with_all = ["limit", "follow"])]
    pub count: bool,
    /// As they begin, change and end, from now on
    #[arg(long, conflicts_with_all = ["state", "role"])]
    pub follow: bool,
    /// Follow for so long
    #[arg(long, requires = "follow", default_value_t = 3600.0, value_parser = stream_seconds)]
    pub seconds: f64,
    /// Print one JSON object
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
