//! The files that a configuration names and that nodes which back each other up must have alike, by their contents.
//!
//! Private keys, certificates of nodes and the key of replication are not among them: they differ by nature, or keys are being
//! exchanged. A file that cannot be read is reported where it is used.

use std::fs::File;
use std::io::Read;
use std::path::Path;

use ring::digest::{Context, SHA256};
use rustls_pki_types::CertificateDer;
use rustls_pki_types::pem::PemObject;

use crate::credentials;
use config::validated::{Config, MembershipSource};

/// The largest file with certificates that counts; it is used nowhere if it is larger.
const FILE_BYTES_MAX: u64 = 4 << 20;

/// A number that nodes have in common if the files hold the same. `lists` is that of the URL filter's lists.
pub(super) fn digest(config: &Config, lists: u64) -> u64 {
    let mut digest = Digest(Context::new(&SHA256));
    digest.add("url_filter.list", &lists.to_be_bytes());
    authorities(config, &mut digest);
    keys(config, &mut digest);
    let found = digest.0.finish();
    found.as_ref().first_chunk().map_or(0, |first| u64::from_be_bytes(*first))
}

/// Certificates that others are verified by.
fn authorities(config: &Config, digest: &mut Digest) {
    let replication = config.cluster.as_ref().and_then(|cluster| cluster.replication.security.as_ref());
    let replication = replication.and_then(|security| security.certificates.as_ref());
    let server = config.url_filter.server.as_ref().and_then(|server| server.tls.as_ref());
    let etcd = match &config.membership.source {
        MembershipSource::Etcd(etcd) => etcd.authority.as_deref(),
        _ => None,
    };
    let checks = config.services.iter().map(|service| service.check.as_ref()?.authorities.as_deref());
    let named = [
        ("replication.security.authority", replication.map(|files| files.authority.as_path())),
        ("url_filter.server.authority", server.map(|tls| tls.authority.as_path())),
        ("membership.etcd.authority", etcd),
    ];
    let all = named.into_iter().chain(checks.map(|path| ("service.check.authorities", path)));
    all.for_each(|(name, path)| digest.add_certificates(name, path));
}

/// Secrets that nodes share: each counts as a value that is derived from it and does not reveal it.
fn keys(config: &Config, digest: &mut Digest) {
    let backups = config.cluster.as_ref().and_then(|cluster| cluster.replication.backups.as_ref());
    let tunnel = config.redundancy.as_ref().and_then(|redundancy| redundancy.security.as_ref());
    let named = [
        ("nat.mapping_key", config.nat_mapping_key.as_deref()),
        ("syn_proxy.key", config.syn_proxy.key.as_deref()),
        ("replication.backups.edge_hash_key", backups.map(|backups| backups.edge_hash_key.as_path())),
    ];
    let tunnel = tunnel.iter().flat_map(|security| &security.pre_shared_keys);
    let all = named.into_iter().chain(tunnel.map(|path| ("redundancy.security.pre_shared_keys", Some(path.as_path()))));
    for (name, path) in all {
        let derived = path.and_then(|path| credentials::comparable(path).ok());
        digest.add(name, &derived.unwrap_or_default().map(u64::to_be_bytes).concat());
    }
}

struct Digest(Context);

impl Digest {
    fn add(&mut self, name: &str, content: &[u8]) {
        for part in [name.as_bytes(), content] {
            self.0.update(&(part.len() as u64).to_be_bytes());
            self.0.update(part);
        }
    }

    /// The certificates of a file in any order, without what stands between them.
    fn add_certificates(&mut self, name: &str, path: Option<&Path>) {
        let mut certificates = path.map(certificates).unwrap_or_default();
        certificates.sort();
        self.add(name, &(certificates.len() as u64).to_be_bytes());
        certificates.iter().for_each(|certificate| self.add(name, certificate));
    }
}

fn certificates(path: &Path) -> Vec<Vec<u8>> {
    let mut pem = Vec::new();
    let read = File::open(path).and_then(|file| file.take(FILE_BYTES_MAX).read_to_end(&mut pem));
    if read.is_err() {
        return Vec::new();
    }
    CertificateDer::pem_slice_iter(&pem)
        .filter_map(|found| found.ok().map(|certificate| certificate.to_vec()))
        .collect()
}

#[cfg(test)]
mod tests;
