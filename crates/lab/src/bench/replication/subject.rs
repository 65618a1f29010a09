//! Whether a subject can be measured on this machine, and how it is started.

use super::conntrackd::{self, ConntrackdPair, ConntrackdPlan, Mode};
use super::gateways::Gateways;
use super::network::Network;
use super::pair::Pair;
use crate::args::replication::Subject;
use crate::bench::BenchError;

impl Subject {
    /// Why it cannot be measured on this machine, or with both gateways at work, if it cannot.
    #[must_use]
    pub fn hindrance(self, both_active: bool) -> Option<String> {
        match self {
            Self::Native | Self::NativeHeld => None,
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
        match self {
            Self::Native | Self::NativeHeld => Ok(Box::new(Gateways::start(network, self == Self::NativeHeld)?)),
            Self::Conntrackd => conntrackd(Mode::Ftfw),
            Self::ConntrackdUdp => conntrackd(Mode::Notrack),
            Self::ConntrackdTcp => conntrackd(Mode::Tcp),
        }
    }
}
