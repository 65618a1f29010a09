//! `[service.quic]`, and `server_id` of the backends.

use std::collections::BTreeSet;

use flow::wire::ip_protocol;
use network_functions::load_balancer::{
    ID_AND_NONCE_BYTES_MAX, NONCE_BYTES, QUIC_CONFIG_MAX, QuicConfig, SERVER_ID_BYTES_MAX,
};
use toml::Spanned;

use super::super::diagnostic::{Diagnostics, Mistake};
use super::super::raw::{RawQuic, RawService};
use super::common::within;

const SUBJECT: &str = "service.quic";
const SERVER_ID: &str = "service.backend.server_id";
const SERVER_ID_BYTES_DEFAULT: u8 = 2;
const NONCE_BYTES_DEFAULT: u8 = 8;

/// The defaults and ranges of keys, for a file without services.
pub(super) fn describe(diagnostics: &mut Diagnostics<'_>) {
    lengths(None, diagnostics);
}

/// The number of the configuration, and the lengths of server identifier and nonce.
fn lengths(raw: Option<&RawQuic>, diagnostics: &mut Diagnostics<'_>) -> (u8, u8, u8) {
    let config = raw.and_then(|raw| raw.config.as_ref());
    let server_id = raw.and_then(|raw| raw.server_id_bytes.as_ref());
    let nonce = raw.and_then(|raw| raw.nonce_bytes.as_ref());
    (
        within("service.quic.config", config, 0, 0..=QUIC_CONFIG_MAX, diagnostics),
        within(
            "service.quic.server_id_bytes",
            server_id,
            SERVER_ID_BYTES_DEFAULT,
            1..=SERVER_ID_BYTES_MAX,
            diagnostics,
        ),
        within("service.quic.nonce_bytes", nonce, NONCE_BYTES_DEFAULT, NONCE_BYTES, diagnostics),
    )
}

/// How QUIC packets to the service name its backends, if they do.
pub(super) fn quic(raw: &RawService, protocol: Option<u8>, diagnostics: &mut Diagnostics<'_>) -> Option<QuicConfig> {
    let Some(written) = &raw.quic else {
        let named = raw.backend.iter().find_map(|backend| backend.get_ref().server_id.as_ref());
        if let Some(text) = named {
            let mistake = Mistake::new(
                "the service does not route by connection identifiers",
                "add [service.quic], or leave out server_id",
            );
            diagnostics.error(text.span(), SERVER_ID, mistake);
        }
        return None;
    };
    let (config, server_id_bytes, nonce_bytes) = lengths(Some(written.get_ref()), diagnostics);
    if protocol.is_some_and(|protocol| protocol != ip_protocol::UDP) {
        let mistake = Mistake::new("QUIC is over UDP", "write protocol = \"udp\", or remove [service.quic]");
        diagnostics.error(written.span(), SUBJECT, mistake);
    }
    if server_id_bytes + nonce_bytes > ID_AND_NONCE_BYTES_MAX {
        let mistake = Mistake::new(
            format!(
                "server identifiers of {server_id_bytes} bytes and nonces of {nonce_bytes} do not fit connection identifiers"
            ),
            format!("write lengths of at most {ID_AND_NONCE_BYTES_MAX} bytes together"),
        );
        diagnostics.error(written.span(), SUBJECT, mistake);
    }
    let server_ids = server_ids(raw, server_id_bytes, diagnostics)?;
    Some(QuicConfig { config, server_id_bytes, nonce_bytes, server_ids })
}

/// The identifiers of all backends; `None`, and reported, if one has none of its own.
fn server_ids(raw: &RawService, bytes: u8, diagnostics: &mut Diagnostics<'_>) -> Option<Vec<Vec<u8>>> {
    let (mut ids, mut known) = (Vec::with_capacity(raw.backend.len()), BTreeSet::new());
    for backend in &raw.backend {
        let text = backend.get_ref().server_id.as_ref();
        let span = text.map_or_else(|| backend.span(), Spanned::span);
        let checked = match text {
            None => Err(Mistake::new(
                "the backend has no identifier",
                "add server_id = \"0a01\" as its server is configured",
            )),
            Some(text) => server_id(text.get_ref(), bytes),
        };
        let checked = checked.and_then(|id| {
            let is_new = known.insert(id.clone());
            is_new.then_some(id).ok_or_else(|| Mistake::new("another backend has this identifier", "give each its own"))
        });
        match checked {
            Ok(id) => ids.push(id),
            Err(mistake) => diagnostics.error(span, SERVER_ID, mistake),
        }
    }
    (ids.len() == raw.backend.len()).then_some(ids)
}

/// Bytes from hexadecimal digits.
fn server_id(text: &str, bytes: u8) -> Result<Vec<u8>, Mistake> {
    let digits: Option<Vec<u32>> = text.chars().map(|digit| digit.to_digit(16)).collect();
    let digits = digits.filter(|digits| digits.len() == 2 * usize::from(bytes)).ok_or_else(|| {
        Mistake::new(
            format!("{text:?} is no identifier of {bytes} bytes"),
            format!("write {} hexadecimal digits, or change server_id_bytes", 2 * usize::from(bytes)),
        )
    })?;
    Ok(digits.chunks(2).map(|pair| pair.iter().fold(0, |byte, digit| byte << 4 | *digit as u8)).collect())
}
