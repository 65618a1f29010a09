//! The status of the secure channel to a peer.

use serde::{Deserialize, Serialize};

use crate::report::{Report, sum_by_key};

/// The secure channel to a peer.
#[derive(Clone, PartialEq, Debug, Default, Serialize, Deserialize, Report)]
#[report(with(Self::add))]
#[report(gauge("channel_secured", value = self.is_secured(), merge = least,
    help = "1 while datagrams to the peer are encrypted."))]
pub struct ChannelStatus {
    /// `plain`, `establishing`, or the authentication of the present session keys: `pre-shared key 1a2b3c4d`, `certificate
    /// right.example`, or both.
    pub secured_by: String,
    /// Time since when the session keys are in use.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub keys_since_ns: Option<u64>,
    /// Handshakes that established session keys.
    #[serde(default)]
    #[report(counter("channel_handshakes_total", merge = sum))]
    pub handshakes: u64,
    /// Refused datagrams by reason. Reasons without datagrams are left out.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub refused: Vec<RefusedCount>,
}

/// Refused datagrams of one reason.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
pub struct RefusedCount {
    /// Reason of the refusal.
    pub reason: String,
    /// Datagrams that were refused for it.
    pub datagrams: u64,
}

impl ChannelStatus {
    /// The channel is encrypted.
    #[must_use]
    pub const fn is_secured(&self) -> bool {
        self.keys_since_ns.is_some()
    }

    /// Adds another worker's channel with the same peer. The whole is as secure as the least secure of them.
    fn add(&mut self, other: &Self) {
        if self.is_secured() && !other.is_secured() {
            (self.secured_by, self.keys_since_ns) = (other.secured_by.clone(), None);
        }
        self.keys_since_ns = self.keys_since_ns.zip(other.keys_since_ns).map(|(a, b)| a.min(b));
        self.handshakes += other.handshakes;
        sum_by_key(&mut self.refused, &other.refused, |refused| &refused.reason, |refused| &mut refused.datagrams);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_channel_is_as_secure_as_the_least_secure_of_its_workers() {
        let secured = |since_ns| ChannelStatus {
            secured_by: "pre-shared key 01020304".into(),
            keys_since_ns: Some(since_ns),
            handshakes: 2,
            refused: vec![RefusedCount { reason: "replayed".into(), datagrams: 3 }],
        };
        let mut whole = secured(9);
        whole.add(&secured(7));
        assert_eq!((whole.keys_since_ns, whole.handshakes, whole.refused[0].datagrams), (Some(7), 4, 6));
        whole.add(&ChannelStatus { secured_by: "establishing".into(), ..ChannelStatus::default() });
        assert_eq!((whole.secured_by.as_str(), whole.is_secured()), ("establishing", false));
        whole.add(&secured(7));
        assert!(!whole.is_secured());
    }
}
