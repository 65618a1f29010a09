//! The control API from afar.

use toml::Spanned;

use super::super::diagnostic::{Diagnostics, Mistake};
use super::super::raw::RawControl;
use super::super::value;
use super::common::{absolute_path, quoted};
use super::{one_of, parsed};
use crate::remote::{Identity, RemoteAccess};
use api::Role;

pub(super) fn remote(raw: Option<&Spanned<RawControl>>, diagnostics: &mut Diagnostics<'_>) -> Option<RemoteAccess> {
    let section = raw?;
    let raw = section.get_ref();
    let listen = parsed("control.listen", &raw.listen, value::socket_address, diagnostics);
    let identity = identity(raw, diagnostics);
    let tokens = raw.tokens.as_ref().and_then(|text| absolute_path("control.tokens", text, diagnostics));
    let client_authority =
        raw.client_authority.as_ref().and_then(|text| absolute_path("control.client_authority", text, diagnostics));
    if raw.tokens.is_none() && raw.client_authority.is_none() {
        let mistake = Mistake::new(
            "nobody could show who they are",
            "name a file of tokens, or client_authority with [[control.client]]",
        );
        diagnostics.error(section.span(), "[control]", mistake);
    }
    if let Some(text) = raw.client_authority.as_ref().filter(|_| raw.certificate.is_none()) {
        let mistake = Mistake::new("clients show certificates over TLS alone", "add certificate and key");
        diagnostics.error(text.span(), "control.client_authority", mistake);
    }
    if let Some(text) = raw.client_authority.as_ref().filter(|_| raw.client.is_empty()) {
        let mistake =
            Mistake::new("no certificate has a role", "add a [[control.client]] with the name in a certificate");
        diagnostics.error(text.span(), "control.client_authority", mistake);
    }
    if let Some(listen) = listen {
        refuse_plain(listen.ip().is_loopback(), raw, diagnostics);
    }
    Some(RemoteAccess { listen: listen?, tokens, identity, client_authority, clients: clients(raw, diagnostics) })
}

/// Without TLS, an attacker on the path reads tokens and answers, and changes orders.
fn refuse_plain(is_loopback: bool, raw: &RawControl, diagnostics: &mut Diagnostics<'_>) {
    if is_loopback || raw.certificate.is_some() {
        return;
    }
    let problem = "without TLS, whoever is on the way reads the tokens and can give orders";
    if raw.plain == Some(true) {
        let mistake = Mistake::new(problem, "be sure that nobody else can reach that link");
        diagnostics.warning(raw.listen.span(), "control.listen", mistake);
    } else {
        let mistake = Mistake::new(problem, "add certificate and key, listen on 127.0.0.1, or write plain = true");
        diagnostics.error(raw.listen.span(), "control.listen", mistake);
    }
}

fn identity(raw: &RawControl, diagnostics: &mut Diagnostics<'_>) -> Option<Identity> {
    match (&raw.certificate, &raw.key) {
        (Some(certificate), Some(key)) => Some(Identity {
            certificate: absolute_path("control.certificate", certificate, diagnostics)?,
            key: absolute_path("control.key", key, diagnostics)?,
        }),
        (None, None) => None,
        (Some(text), None) | (None, Some(text)) => {
            let mistake = Mistake::new("certificate and key go together", "name both files");
            diagnostics.error(text.span(), "[control]", mistake);
            None
        }
    }
}

fn clients(raw: &RawControl, diagnostics: &mut Diagnostics<'_>) -> Vec<(String, Role)> {
    let mut clients = Vec::new();
    for client in &raw.client {
        let client = client.get_ref();
        let name = client.name.get_ref().clone();
        if rustls_pki_types::DnsName::try_from(name.as_str()).is_err() {
            let mistake =
                Mistake::new(format!("{name:?} is no name that a certificate can have"), "write a DNS name of it");
            diagnostics.error(client.name.span(), "control.client.name", mistake);
        }
        diagnostics.describe("control.client.role", None, quoted(&Role::ALL));
        if let Some(role) = one_of("control.client.role", &client.role, &Role::ALL, diagnostics) {
            clients.push((name, role));
        }
    }
    if let Some(client) = raw.client.first().filter(|_| raw.client_authority.is_none()) {
        let mistake = Mistake::new("no authority vouches for certificates of clients", "name client_authority");
        diagnostics.error(client.span(), "[[control.client]]", mistake);
    }
    clients
}
