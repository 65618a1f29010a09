//! The classifier's configuration.

use alloc::string::String;
use alloc::vec::Vec;

use crate::class::Class;
use crate::port_range::PortRange;

/// The default of [`ClassifierConfig::packets_max`].
pub const PACKETS_MAX_DEFAULT: u8 = 8;
/// The most packets with payload that can be inspected of a connection.
pub const PACKETS_MAX_LIMIT: u8 = 64;
/// The maximum number of rules.
pub const CLASS_RULES_MAX: usize = 256;
/// The maximum number of names in all rules together.
pub const CLASS_NAMES_MAX: usize = 65_536;
/// The largest DSCP (RFC 2474 section 3).
pub const DSCP_MAX: u8 = 63;

/// A rule: these names and ports belong to a class.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub struct ClassRule {
    /// The class.
    pub class: Class,
    /// Domains of servers; each stands for itself and all names in it. The longest one that matches decides.
    pub names: Vec<String>,
    /// The IP protocol of `ports`: TCP or UDP, or SCTP. `None` for all of them.
    pub protocol: Option<u8>,
    /// Destination ports. The first rule that matches decides, before the built-in ports.
    pub ports: Vec<PortRange>,
}

/// The configuration.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub struct ClassifierConfig {
    /// The operator's rules, which come before the built-in ones.
    pub rules: Vec<ClassRule>,
    /// Whether the built-in names and ports apply.
    pub has_built_in: bool,
    /// Packets with payload of a connection that are inspected at most, 1 to [`PACKETS_MAX_LIMIT`].
    pub packets_max: u8,
    /// The DSCP that packets of each class leave with, by [`Class::index`]; `None` leaves it as it is.
    pub dscp: [Option<u8>; Class::COUNT],
}

impl Default for ClassifierConfig {
    fn default() -> Self {
        Self { rules: Vec::new(), has_built_in: true, packets_max: PACKETS_MAX_DEFAULT, dscp: [None; Class::COUNT] }
    }
}

/// A mistake in the configuration.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
pub enum ClassifierError {
    /// A name of a rule is no domain.
    #[error("{0:?} is no domain: write letters, digits, hyphens and dots, as in \"example.org\"")]
    Name(String),
    /// More than [`CLASS_RULES_MAX`].
    #[error("there are {0} class rules, {CLASS_RULES_MAX} are allowed: write one rule for each class")]
    TooManyRules(usize),
    /// More than [`CLASS_NAMES_MAX`].
    #[error("the class rules list {0} names, {CLASS_NAMES_MAX} are allowed: write domains in place of their hosts")]
    TooManyNames(usize),
    /// A DSCP above [`DSCP_MAX`].
    #[error("{0} is no DSCP: choose a number from 0 to {DSCP_MAX}")]
    Dscp(u8),
    /// [`ClassifierConfig::packets_max`] is out of range.
    #[error("{0} packets cannot be inspected: choose a number from 1 to {PACKETS_MAX_LIMIT}")]
    Packets(u8),
}

impl ClassifierConfig {
    pub(super) fn validate(&self) -> Result<(), ClassifierError> {
        if self.rules.len() > CLASS_RULES_MAX {
            return Err(ClassifierError::TooManyRules(self.rules.len()));
        }
        let names = self.rules.iter().map(|rule| rule.names.len()).sum::<usize>();
        if names > CLASS_NAMES_MAX {
            return Err(ClassifierError::TooManyNames(names));
        }
        if let Some(dscp) = self.dscp.iter().flatten().find(|dscp| **dscp > DSCP_MAX) {
            return Err(ClassifierError::Dscp(*dscp));
        }
        if self.packets_max == 0 || self.packets_max > PACKETS_MAX_LIMIT {
            return Err(ClassifierError::Packets(self.packets_max));
        }
        Ok(())
    }
}
