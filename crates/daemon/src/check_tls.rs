//! TLS of the checks of backends.

use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use config::validated::{CheckKind, Service};
use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use rustls::crypto::ring::default_provider;
use rustls::pki_types::pem::{self, PemObject};
use rustls::pki_types::{CertificateDer, ServerName, UnixTime};
use rustls::{ClientConfig, DigitallySignedStruct, RootCertStore, SignatureScheme, version};

/// Why the certificates of authorities cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum AuthoritiesError {
    /// The operating system would not give the file.
    #[error("service.check.authorities: cannot read {}: {source}", path.display())]
    Unreadable {
        /// The file.
        path: PathBuf,
        /// What the operating system reported.
        source: io::Error,
    },
    /// The file holds something else.
    #[error("service.check.authorities: {} holds no certificate in PEM form ({problem}): name the right file", path.display())]
    NotPem {
        /// The file.
        path: PathBuf,
        /// What was found.
        problem: pem::Error,
    },
    /// The library does not take a certificate.
    #[error("service.check.authorities: {} cannot be used: {problem}", path.display())]
    Unusable {
        /// The file.
        path: PathBuf,
        /// What the library reported.
        problem: rustls::Error,
    },
}

/// Of each service how its checks use TLS, if they do.
///
/// # Errors
/// A file with certificates cannot be used.
pub fn clients(services: &[Service]) -> Result<Arc<[Option<Arc<ClientConfig>>]>, AuthoritiesError> {
    let of = |service: &Service| {
        let check = service.check.as_ref().filter(|check| check.kind == CheckKind::Https);
        check.map(|check| client(check.authorities.as_deref())).transpose()
    };
    services.iter().map(of).collect()
}

/// How to check a server over TLS 1.2 or 1.3, verified by the certificates in a file, or not at all.
fn client(authorities: Option<&Path>) -> Result<Arc<ClientConfig>, AuthoritiesError> {
    let builder = ClientConfig::builder_with_provider(Arc::new(default_provider()))
        .with_protocol_versions(&[&version::TLS13, &version::TLS12])
        .expect("the library has both versions");
    let builder = match authorities {
        Some(path) => builder.with_root_certificates(roots(path)?),
        None => builder.dangerous().with_custom_certificate_verifier(Arc::new(Unverified)),
    };
    Ok(Arc::new(builder.with_no_client_auth()))
}

fn roots(path: &Path) -> Result<RootCertStore, AuthoritiesError> {
    let bytes = std::fs::read(path).map_err(|source| AuthoritiesError::Unreadable { path: path.to_owned(), source })?;
    let not_pem = |problem| AuthoritiesError::NotPem { path: path.to_owned(), problem };
    let mut roots = RootCertStore::empty();
    for certificate in CertificateDer::pem_slice_iter(&bytes) {
        roots
            .add(certificate.map_err(not_pem)?)
            .map_err(|problem| AuthoritiesError::Unusable { path: path.to_owned(), problem })?;
    }
    if roots.is_empty() { Err(not_pem(pem::Error::NoItemsFound)) } else { Ok(roots) }
}

/// Takes every certificate: a check asks whether the server works, and sends it no secret.
#[derive(Debug)]
struct Unverified;

impl ServerCertVerifier for Unverified {
    fn verify_server_cert(
        &self,
        _: &CertificateDer<'_>,
        _: &[CertificateDer<'_>],
        _: &ServerName<'_>,
        _: &[u8],
        _: UnixTime,
    ) -> Result<ServerCertVerified, rustls::Error> {
        Ok(ServerCertVerified::assertion())
    }

    fn verify_tls12_signature(
        &self,
        _: &[u8],
        _: &CertificateDer<'_>,
        _: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        Ok(HandshakeSignatureValid::assertion())
    }

    fn verify_tls13_signature(
        &self,
        _: &[u8],
        _: &CertificateDer<'_>,
        _: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        Ok(HandshakeSignatureValid::assertion())
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        default_provider().signature_verification_algorithms.supported_schemes()
    }
}
