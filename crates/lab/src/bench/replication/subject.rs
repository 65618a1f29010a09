//! What is compared.

use clap::ValueEnum;
use replication::Transport;

use super::conntrackd::{self, ConntrackdPair, ConntrackdPlan, Mode};
use super::gateways::Gateways;
use super::network::Network;
use super::pair::Pair;
use crate::bench::BenchError;

/// A pair of gateways of which the active one is killed.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, ValueEnum)]
pub enum Subject {
    /// Nodes that speak the native protocol, and let first replies through at once
    Native,
    /// The same, whose first replies wait until the standby has the connection
    NativeHeld,
    /// Nodes that say every change once, over plain UDP
    Udp,
    /// Nodes that say every change, in order, over TCP
    Tcp,
    /// Linux routers with conntrackd, which speaks its reliable protocol (FTFW)
    Conntrackd,
    /// The same, which says every change once, over UDP (NOTRACK)
    ConntrackdUdp,
    /// The same, over TCP
    ConntrackdTcp,
}

impl Subject {
    /// What is compared unless something else is asked for.
    pub const ALL: [Self; 5] = [Self::Native, Self::NativeHeld, Self::Udp, Self::Tcp, Self::Conntrackd];

    /// As it is called in tables and arguments.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Native => "native",
            Self::NativeHeld => "native-held",
            Self::Udp => "udp",
            Self::Tcp => "tcp",
            Self::Conntrackd => "conntrackd",
            Self::ConntrackdUdp => "conntrackd-udp",
            Self::ConntrackdTcp => "conntrackd-tcp",
        }
    }

    /// Why it cannot be measured on this machine, or with both gateways at work, if it cannot.
    #[must_use]
    pub fn hindrance(self, both_active: bool) -> Option<String> {
        match self {
            Self::Native | Self::NativeHeld | Self::Udp | Self::Tcp => None,
            Self::Conntrackd | Self::ConntrackdUdp | Self::ConntrackdTcp => {
                let one_active = || "with both gateways at work it is not set up here".to_owned();
                if both_active { Some(one_active()) } else { conntrackd::available().err() }
            }
        }
    }

    /// Starts it.
    ///
    /// # Errors
    /// A process cannot be started.
    pub fn start(self, network: &Network) -> Result<Box<dyn Pair>, BenchError> {
        let conntrackd = |mode| -> Result<Box<dyn Pair>, BenchError> {
            let plan = ConntrackdPlan { mode, ..ConntrackdPlan::default() };
            Ok(Box::new(ConntrackdPair::start(network, plan)?))
        };
        let transport = match self {
            Self::Native | Self::NativeHeld => Transport::Native,
            Self::Udp => Transport::Udp,
            Self::Tcp => Transport::Tcp,
            Self::Conntrackd => return conntrackd(Mode::Ftfw),
            Self::ConntrackdUdp => return conntrackd(Mode::Notrack),
            Self::ConntrackdTcp => return conntrackd(Mode::Tcp),
        };
        Ok(Box::new(Gateways::start(network, transport, self == Self::NativeHeld)?))
    }
}
