//! TLS for remote clients: version 1.3 alone, by rustls.

use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use rustls::crypto::ring::default_provider;
use rustls::pki_types::pem::{self, PemObject};
use rustls::pki_types::{CertificateDer, PrivateKeyDer, ServerName};
use rustls::server::WebPkiClientVerifier;
use rustls::{ClientConfig, RootCertStore, ServerConfig, version};

use api::Role;
use config::remote::Identity;
use config::secret_file::{self, SecretFileError};

/// Why certificates cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum TlsError {
    /// The file of the private key.
    #[error(transparent)]
    Secret(#[from] SecretFileError),
    /// The operating system would not give a file.
    #[error("cannot read {}: {source}", path.display())]
    Unreadable {
        /// The file.
        path: PathBuf,
        /// What the operating system said.
        source: io::Error,
    },
    /// A file holds something else.
    #[error("{} holds no {expected} in PEM form ({problem}): name the right file", path.display())]
    NotPem {
        /// The file.
        path: PathBuf,
        /// What it should hold.
        expected: &'static str,
        /// What was found.
        problem: pem::Error,
    },
    /// Certificate and key do not go together, or are of a kind that is not known.
    #[error("{} and its key cannot be used: {problem}", path.display())]
    Unusable {
        /// The certificate.
        path: PathBuf,
        /// The library's error.
        problem: String,
    },
}

/// Why a connection over TLS failed, in words where the library has none.
#[must_use]
pub fn describe_tls(error: &io::Error) -> String {
    use rustls::CertificateError as Certificate;
    let found = error.get_ref().and_then(|source| source.downcast_ref::<rustls::Error>());
    let Some(rustls::Error::InvalidCertificate(reason)) = found else { return error.to_string() };
    match reason {
        // An error of the library below, of which nothing but its name is known here.
        Certificate::Other(other) if format!("{other:?}").contains("CaUsedAsEndEntity") => {
            "the certificate is that of an authority (CA:TRUE), as `openssl req -x509` makes one: issue one for the server, with \
             basicConstraints = CA:FALSE, signed by the authority"
                .to_owned()
        }
        Certificate::UnknownIssuer => "the certificate was not issued by the authority that is named here".to_owned(),
        Certificate::Expired | Certificate::ExpiredContext { .. } => {
            "the certificate has expired: renew it; or a clock is wrong".to_owned()
        }
        Certificate::NotValidYet | Certificate::NotValidYetContext { .. } => {
            "the certificate is not valid yet: check the clocks".to_owned()
        }
        Certificate::NotValidForName | Certificate::NotValidForNameContext { .. } => {
            format!("the certificate is for another name ({error})")
        }
        _ => error.to_string(),
    }
}

/// The certificates in a file, the subject's own first.
pub(crate) fn certificates(path: &Path) -> Result<Vec<CertificateDer<'static>>, TlsError> {
    let bytes = std::fs::read(path).map_err(|source| TlsError::Unreadable { path: path.to_owned(), source })?;
    let not_pem = |problem| TlsError::NotPem { path: path.to_owned(), expected: "certificate", problem };
    let found = CertificateDer::pem_slice_iter(&bytes).collect::<Result<Vec<_>, _>>().map_err(not_pem)?;
    if found.is_empty() { Err(not_pem(pem::Error::NoItemsFound)) } else { Ok(found) }
}

fn private_key(path: &Path) -> Result<PrivateKeyDer<'static>, TlsError> {
    let bytes = secret_file::read(path)?;
    PrivateKeyDer::from_pem_slice(&bytes).map_err(|problem| TlsError::NotPem {
        path: path.to_owned(),
        expected: "private key",
        problem,
    })
}

fn authority(path: &Path) -> Result<Arc<RootCertStore>, TlsError> {
    let mut store = RootCertStore::empty();
    for certificate in certificates(path)? {
        store
            .add(certificate)
            .map_err(|error| TlsError::Unusable { path: path.to_owned(), problem: error.to_string() })?;
    }
    Ok(Arc::new(store))
}

/// What a gateway shows to clients, and whose certificates it takes from them, if any; a client may have none and a
/// token instead.
///
/// # Errors
/// [`TlsError`].
pub(super) fn server(identity: &Identity, clients: Option<&Path>) -> Result<Arc<ServerConfig>, TlsError> {
    let unusable = |problem: String| TlsError::Unusable { path: identity.certificate.clone(), problem };
    let builder = ServerConfig::builder_with_provider(Arc::new(default_provider()))
        .with_protocol_versions(&[&version::TLS13])
        .map_err(|error| unusable(error.to_string()))?;
    let builder = match clients {
        None => builder.with_no_client_auth(),
        Some(path) => {
            let verifier = WebPkiClientVerifier::builder_with_provider(authority(path)?, Arc::new(default_provider()))
                .allow_unauthenticated()
                .build()
                .map_err(|error| TlsError::Unusable { path: path.to_owned(), problem: error.to_string() })?;
            builder.with_client_cert_verifier(verifier)
        }
    };
    let config = builder
        .with_single_cert(certificates(&identity.certificate)?, private_key(&identity.key)?)
        .map_err(|error| unusable(error.to_string()))?;
    Ok(Arc::new(config))
}

/// Whom a client trusts, and what it shows.
///
/// # Errors
/// [`TlsError`].
pub(crate) fn client(trusted: &Path, identity: Option<&Identity>) -> Result<Arc<ClientConfig>, TlsError> {
    let unusable = |path: &Path, problem: String| TlsError::Unusable { path: path.to_owned(), problem };
    let builder = ClientConfig::builder_with_provider(Arc::new(default_provider()))
        .with_protocol_versions(&[&version::TLS13])
        .map_err(|error| unusable(trusted, error.to_string()))?
        .with_root_certificates(authority(trusted)?);
    let config = match identity {
        None => builder.with_no_client_auth(),
        Some(identity) => builder
            .with_client_auth_cert(certificates(&identity.certificate)?, private_key(&identity.key)?)
            .map_err(|error| unusable(&identity.certificate, error.to_string()))?,
    };
    Ok(Arc::new(config))
}

/// Which of the configured clients a verified certificate is for.
pub(super) fn role_of(certificate: &CertificateDer<'_>, clients: &[(String, Role)]) -> Option<(String, Role)> {
    let certificate = rustls::server::ParsedCertificate::try_from(certificate).ok()?;
    let is_for = |name: &str| {
        let name = ServerName::try_from(name).ok()?;
        rustls::client::verify_server_name(&certificate, &name).ok()
    };
    clients.iter().find(|(name, _)| is_for(name).is_some()).cloned()
}
