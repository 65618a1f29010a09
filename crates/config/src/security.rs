//! `[replication.security]`: what the channels between nodes are secured by.

use std::path::PathBuf;
use std::time::Duration;

use flow::NodeId;
use replication::secure::Rotation;
use serde::Deserialize;
use toml::Spanned;

use super::diagnostic::Text;
use super::value::{DurationText, PathText};

/// The section configures the secure channel between nodes. It is required where a peer's address is not a loopback address. All nodes
/// authenticate in the same way: by pre-shared keys, by certificates, or by both.
#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct RawSecurity {
    /// Protection of datagrams between nodes. `"plain"` is for links that no other host can reach.
    pub mode: Option<Text>,
    /// Paths of up to 4 files with a pre-shared key each (`mainstay key`), mode 0600. This node begins handshakes with the first key and
    /// accepts all.
    #[serde(default)]
    pub pre_shared_keys: Vec<PathText>,
    /// PEM file with this node's certificate, followed by intermediate certificates.
    pub certificate: Option<PathText>,
    /// PEM file (PKCS #8) with the certificate's private key, Ed25519 or P-256, mode 0600.
    pub key: Option<PathText>,
    /// PEM file with the certificates of the authorities that issue peers' certificates.
    pub authority: Option<PathText>,
    /// Time after which session keys are exchanged.
    pub rotate_interval: Option<DurationText>,
    /// Number of sent datagrams after which session keys are exchanged, if that is earlier.
    pub rotate_datagrams: Option<Spanned<u64>>,
}

/// What the channels between nodes are secured by: files, which are read when the gateway starts or is reloaded.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Security {
    /// Files that hold a pre-shared key each.
    pub pre_shared_keys: Vec<PathBuf>,
    /// Files of certificates, if there are any.
    pub certificates: Option<CertificateFiles>,
    /// When session keys are exchanged.
    pub rotation: Rotation,
}

/// Files of certificates.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct CertificateFiles {
    /// This node's certificate, and those between it and the authority's.
    pub certificate: PathBuf,
    /// Its key.
    pub key: PathBuf,
    /// The authorities' certificates.
    pub authority: PathBuf,
    /// The names that peers' certificates are for.
    pub peer_names: Vec<(NodeId, String)>,
}

impl Security {
    /// The settings with their names, as a comparison lists them. Nothing of them is secret.
    #[must_use]
    pub fn entries(&self) -> [(&'static str, String); 4] {
        let Self { pre_shared_keys, certificates, rotation: Rotation { interval, datagrams } } = self;
        let certificates = certificates.as_ref().map(|files| {
            let CertificateFiles { certificate, key, authority, peer_names } = files;
            format!("{}, {}, {}, {peer_names:?}", certificate.display(), key.display(), authority.display())
        });
        [
            ("pre_shared_keys", format!("{pre_shared_keys:?}")),
            ("certificate", certificates.unwrap_or_else(|| "none".into())),
            ("rotate_interval", format!("{interval:?}")),
            ("rotate_datagrams", datagrams.to_string()),
        ]
    }
}

/// The shortest and the longest time between two exchanges of session keys.
pub(super) const ROTATE_INTERVAL: std::ops::RangeInclusive<Duration> =
    Duration::from_secs(5)..=Duration::from_secs(86_400);
/// The least and the most datagrams between two exchanges of session keys.
pub(super) const ROTATE_DATAGRAMS: std::ops::RangeInclusive<u64> = 10_000..=1 << 32;
