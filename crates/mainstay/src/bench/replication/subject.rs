//! What is compared.

use clap::ValueEnum;
use replication::Transport;

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
}

impl Subject {
    /// All of them.
    pub const ALL: [Self; 4] = [Self::Native, Self::NativeHeld, Self::Udp, Self::Tcp];

    /// As it is called in tables and arguments.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Native => "native",
            Self::NativeHeld => "native-held",
            Self::Udp => "udp",
            Self::Tcp => "tcp",
        }
    }

    /// Why it cannot be measured on this machine, if it cannot.
    #[must_use]
    pub const fn hindrance(self) -> Option<String> {
        match self {
            Self::Native | Self::NativeHeld | Self::Udp | Self::Tcp => None,
        }
    }

    /// Starts it.
    ///
    /// # Errors
    /// A process cannot be started.
    pub fn start(self, network: &Network) -> Result<Box<dyn Pair>, BenchError> {
        let transport = match self {
            Self::Native | Self::NativeHeld => Transport::Native,
            Self::Udp => Transport::Udp,
            Self::Tcp => Transport::Tcp,
        };
        Ok(Box::new(Gateways::start(network, transport, self == Self::NativeHeld)?))
    }
}
