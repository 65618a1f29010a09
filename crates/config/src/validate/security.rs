//! `[replication.security]`.

use std::net::SocketAddr;
use std::path::PathBuf;

use flow::NodeId;
use replication::secure::{OVERHEAD_BYTES, PRE_SHARED_KEYS_MAX, Rotation};
use toml::Spanned;

use super::super::diagnostic::{Diagnostics, Mistake};
use super::super::raw::{RawFailureDetection, RawReplication, Text};
use super::super::security::{CertificateFiles, ROTATE_DATAGRAMS, ROTATE_INTERVAL, RawSecurity, Security};
use super::super::validated::{Peer, Replication};
use super::common::{DATAGRAM_BYTES, quoted, ranged, within};
use super::one_of;

const SUBJECT: &str = "[replication.security]";

/// Checks what depends on the other settings, too. `None` is plain text.
pub(super) fn security(
    raw: &RawReplication,
    replication: &Replication,
    diagnostics: &mut Diagnostics<'_>,
) -> Option<Security> {
    let Some(written) = &raw.security else {
        check_absence(raw, &replication.peers, diagnostics);
        return None;
    };
    let section = written.get_ref();
    let has_credentials = !section.pre_shared_keys.is_empty() || section.certificate.is_some();
    if is_plain("replication.security.mode", section.mode.as_ref(), diagnostics) {
        if has_credentials || section.key.is_some() || section.authority.is_some() {
            diagnostics.error(written.span(), SUBJECT, plain_with_keys());
        }
        return None;
    }
    if !has_credentials {
        let mistake = Mistake::new(
            "there is neither a pre-shared key nor a certificate",
            "write pre_shared_keys = [\"/etc/mainstay/cluster.key\"] and make the file with `mainstay key`",
        );
        diagnostics.error(written.span(), SUBJECT, mistake);
    }
    check_transport(raw, replication, diagnostics);
    Some(Security {
        pre_shared_keys: key_files(section, diagnostics),
        certificates: certificates(written, raw, diagnostics),
        rotation: rotation(section, diagnostics),
    })
}

/// Whether plain text is chosen explicitly.
fn is_plain(subject: &str, mode: Option<&Text>, diagnostics: &mut Diagnostics<'_>) -> bool {
    let modes = [("encrypted", true), ("plain", false)];
    diagnostics.describe(subject, Some(format!("{:?}", modes[0].0)), quoted(&modes));
    mode.and_then(|text| one_of(subject, text, &modes, diagnostics)) == Some(false)
}

/// Keys are named that would not be used.
fn plain_with_keys() -> Mistake {
    Mistake::new("mode is \"plain\", yet keys are given", "remove either")
}

/// Plain text between machines is a decision, not an oversight: `section` is missing. `None`: the peer is on this machine.
pub(super) fn absence(peer: SocketAddr, section: &str) -> Option<Mistake> {
    let mistake = || {
        Mistake::new(
            format!("{peer} receives everything in plain text, and believes anyone who can reach it"),
            format!(
                "add {section} with pre_shared_keys (`mainstay key` makes one), or with mode = \"plain\" if nobody \
                 else can reach the link"
            ),
        )
    };
    (!peer.ip().is_loopback()).then(mistake)
}

/// Edges authenticate themselves by pre-shared keys: certificates do not name them.
pub(super) fn check_edges(raw: &RawFailureDetection, security: Option<&Security>, diagnostics: &mut Diagnostics<'_>) {
    let has_certificates_only = security.is_some_and(|security| security.pre_shared_keys.is_empty());
    let written = raw.edges_max.as_ref().filter(|written| *written.get_ref() > 0);
    if let Some(written) = written.filter(|_| has_certificates_only && raw.plain_edges != Some(true)) {
        let mistake = Mistake::new(
            "edges authenticate themselves by a pre-shared key, and [replication.security] has none",
            "add pre_shared_keys there and to [security] of the edges, or write plain_edges = true",
        );
        diagnostics.error(written.span(), "failure_detection.edges_max", mistake);
    }
}

/// The keys of a section that has keys alone. `None` is plain text.
pub(super) fn keys_alone(
    (section, subject): (&Spanned<impl Sized>, &str),
    (mode, keys): (Option<&Text>, &[Text]),
    diagnostics: &mut Diagnostics<'_>,
) -> Option<Security> {
    let mode_subject = format!("{}.mode", subject.trim_matches(['[', ']']));
    if is_plain(&mode_subject, mode, diagnostics) {
        if !keys.is_empty() {
            diagnostics.error(section.span(), subject, plain_with_keys());
        }
        return None;
    }
    if !(1..=PRE_SHARED_KEYS_MAX).contains(&keys.len()) {
        let mistake = Mistake::new(
            format!("{} keys are named", keys.len()),
            format!("name from 1 to {PRE_SHARED_KEYS_MAX} files in pre_shared_keys, as `mainstay key` writes them"),
        );
        diagnostics.error(section.span(), subject, mistake);
        return None;
    }
    let pre_shared_keys = keys.iter().map(path).collect();
    Some(Security { pre_shared_keys, certificates: None, rotation: Rotation::default() })
}

fn check_absence(raw: &RawReplication, peers: &[Peer], diagnostics: &mut Diagnostics<'_>) {
    let mistake = peers.iter().find_map(|peer| absence(peer.address, SUBJECT));
    mistake.into_iter().for_each(|mistake| diagnostics.error(raw.local.span(), "[replication]", mistake));
}

fn check_transport(raw: &RawReplication, replication: &Replication, diagnostics: &mut Diagnostics<'_>) {
    let least = *DATAGRAM_BYTES.start() as usize + OVERHEAD_BYTES;
    let written = raw.datagram_bytes_max.as_ref();
    if let Some(written) = written.filter(|_| usize::from(replication.datagram_bytes_max) < least) {
        let mistake = Mistake::new(
            format!(
                "encryption takes {OVERHEAD_BYTES} bytes of each datagram, so that {} are too few",
                written.get_ref()
            ),
            format!("write at least {least}"),
        );
        diagnostics.error(written.span(), "replication.datagram_bytes_max", mistake);
    }
}

fn key_files(section: &RawSecurity, diagnostics: &mut Diagnostics<'_>) -> Vec<PathBuf> {
    let files = &section.pre_shared_keys;
    for (index, text) in files.iter().enumerate() {
        let is_repeated = files[..index].iter().any(|other| other.get_ref() == text.get_ref());
        let mistake = if is_repeated {
            Some(Mistake::new(format!("{:?} is named twice", text.get_ref()), "remove one of the two"))
        } else if index == PRE_SHARED_KEYS_MAX {
            Some(Mistake::new(format!("there are more than {PRE_SHARED_KEYS_MAX} keys"), "remove the oldest"))
        } else {
            None
        };
        if let Some(mistake) = mistake {
            diagnostics.error(text.span(), "replication.security.pre_shared_keys", mistake);
        }
    }
    files.iter().map(path).collect()
}

fn path(text: &Text) -> PathBuf {
    PathBuf::from(text.get_ref())
}

fn certificates(
    written: &Spanned<RawSecurity>,
    raw: &RawReplication,
    diagnostics: &mut Diagnostics<'_>,
) -> Option<CertificateFiles> {
    let section = written.get_ref();
    let [certificate, key, authority] = match [&section.certificate, &section.key, &section.authority] {
        [None, None, None] => return None,
        [Some(certificate), Some(key), Some(authority)] => [certificate, key, authority].map(path),
        _ => {
            let mistake = Mistake::new("certificate, key and authority go together", "write all three of them");
            diagnostics.error(written.span(), SUBJECT, mistake);
            return None;
        }
    };
    let mut peer_names = Vec::new();
    for raw in &raw.peer {
        let id = NodeId(*raw.get_ref().id.get_ref());
        match &raw.get_ref().certificate_name {
            Some(name) => peer_names.push((id, name.get_ref().clone())),
            None => {
                let mistake = Mistake::new(
                    "the name in the peer's certificate is missing",
                    "write certificate_name = the DNS name or IP address that its certificate was issued for",
                );
                diagnostics.error(raw.span(), &format!("replication peer {}", id.0), mistake);
            }
        }
    }
    Some(CertificateFiles { certificate, key, authority, peer_names })
}

fn rotation(section: &RawSecurity, diagnostics: &mut Diagnostics<'_>) -> Rotation {
    let defaults = Rotation::default();
    let interval = section.rotate_interval.as_ref();
    let datagrams = section.rotate_datagrams.as_ref();
    Rotation {
        interval: ranged(
            "replication.security.rotate_interval",
            interval,
            defaults.interval,
            ROTATE_INTERVAL,
            diagnostics,
        ),
        datagrams: within(
            "replication.security.rotate_datagrams",
            datagrams,
            defaults.datagrams,
            ROTATE_DATAGRAMS,
            diagnostics,
        ),
    }
}
