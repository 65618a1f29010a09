//! Traffic classes (\[MLCBF\] section 3.2: a connection moves between nine states as its payload shows more).
//!
//! The paper draws no table of its nine states. It names the Web, peer-to-peer, Skype and instant messaging, and a state "port 80" for
//! what only the port suggests. Here the nine classes are what operators shape and bill; what only the port suggests is a flag beside the
//! class ([`crate::classifier::ClassState::is_settled`]).

use core::fmt;
use core::str::FromStr;

/// The class of a connection's traffic. The numbers are those of replicated states and are never reused.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Default)]
#[repr(u8)]
pub enum Class {
    /// None of the others, or not known yet.
    #[default]
    Unknown = 0,
    /// Web pages and interfaces over HTTP, also encrypted.
    Web = 1,
    /// Films, broadcasts and music that are played while they arrive.
    Video = 2,
    /// Calls and conferences.
    Voice = 3,
    /// Text messages, and what phones are woken by.
    Messaging = 4,
    /// Electronic mail.
    Mail = 5,
    /// Peer-to-peer file sharing.
    PeerToPeer = 6,
    /// Transfers and backups of files.
    Transfer = 7,
    /// Terminals and desktops of other machines.
    Remote = 8,
    /// What the network itself needs: names, time, addresses, routes.
    Network = 9,
}

/// A text that names no class.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
#[error("it is none of the traffic classes")]
pub struct NoClass;

impl Class {
    /// The number of values: the nine classes and [`Class::Unknown`].
    pub const COUNT: usize = 10;

    /// All values in the order of their numbers.
    pub const ALL: [Self; Self::COUNT] = [
        Self::Unknown,
        Self::Web,
        Self::Video,
        Self::Voice,
        Self::Messaging,
        Self::Mail,
        Self::PeerToPeer,
        Self::Transfer,
        Self::Remote,
        Self::Network,
    ];

    /// The class with this number; a number of a later version is [`Class::Unknown`].
    #[must_use]
    pub const fn from_number(number: u8) -> Self {
        if (number as usize) < Self::COUNT { Self::ALL[number as usize] } else { Self::Unknown }
    }

    /// Its number, which is also its index in [`Class::ALL`].
    #[must_use]
    pub const fn number(self) -> u8 {
        self as u8
    }

    /// Its index in arrays with an element for each class.
    #[must_use]
    pub const fn index(self) -> usize {
        self as usize
    }

    /// Its name in configurations, metrics and tables.
    #[must_use]
    pub const fn label(self) -> &'static str {
        match self {
            Self::Unknown => "unknown",
            Self::Web => "web",
            Self::Video => "video",
            Self::Voice => "voice",
            Self::Messaging => "messaging",
            Self::Mail => "mail",
            Self::PeerToPeer => "p2p",
            Self::Transfer => "transfer",
            Self::Remote => "remote",
            Self::Network => "network",
        }
    }
}

impl fmt::Display for Class {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(self.label())
    }
}

impl FromStr for Class {
    type Err = NoClass;

    fn from_str(text: &str) -> Result<Self, NoClass> {
        Self::ALL.into_iter().find(|class| class.label() == text).ok_or(NoClass)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_and_names_identify_classes() {
        for (index, class) in Class::ALL.into_iter().enumerate() {
            assert_eq!((class.index(), Class::from_number(class.number())), (index, class));
            assert_eq!(class.label().parse(), Ok(class));
        }
        assert_eq!(Class::from_number(10), Class::Unknown);
        assert_eq!("films".parse::<Class>(), Err(NoClass));
    }
}
