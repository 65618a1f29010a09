//! Keys and certificates from their files.

use std::fs::File;
use std::io::{self, Read};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use flow::HashKey;
use network_functions::nat::MappingKey;
use network_functions::syn_cookie::CookieKey;
use packet_io::{clock, random};
use replication::secure::{
    self, Certificates, CertificatesError, Credentials, CredentialsError, NotAKey, PreSharedKey, Seed, SignatureScheme,
    Signer,
};
use ring::rand::SystemRandom;
use ring::signature::{ECDSA_P256_SHA256_ASN1_SIGNING, EcdsaKeyPair, Ed25519KeyPair};
use rustls_pki_types::pem::PemObject;
use rustls_pki_types::{CertificateDer, PrivatePkcs8KeyDer};
use tunnel::SealingConfig;
use zeroize::Zeroizing;

use config::secret_file::{self, SecretFileError};
use config::validated::{CertificateFiles, Cluster, Security};

/// The purpose of the secret of SYN cookies, by which it differs from all others of the same key.
const SYN_COOKIES: &[u8] = b"syn cookies";
/// The purpose of the secret under which free ports of source NAT are chosen.
const NAT_PORTS: &[u8] = b"nat ports";
/// The purpose of the secret under which connections are spread over backends.
const BACKENDS: &[u8] = b"choice of backends";
/// The purpose of the secret that gossip is authenticated by.
const GOSSIP: &[u8] = b"gossip of members";
/// The largest file that can hold certificates.
const FILE_BYTES_MAX: u64 = 64 << 10;

/// Why keys or certificates cannot be used. It shows nothing of what the files hold.
#[derive(Debug, thiserror::Error)]
pub enum SecretError {
    /// The system does not give the file.
    #[error("cannot read {}: {source}: correct the path in [replication.security]", path.display())]
    Unreadable {
        /// The file.
        path: PathBuf,
        /// What the system said.
        source: io::Error,
    },
    /// The file is larger than any chain of certificates.
    #[error("{} is larger than {FILE_BYTES_MAX} bytes: is it a certificate?", .0.display())]
    TooLarge(PathBuf),
    /// The file of a secret.
    #[error("{0}: `mainstay key` makes keys; the paths are in pre_shared_keys")]
    Secret(#[from] SecretFileError),
    /// The file of the secret that mappings are computed under.
    #[error("{0}: `mainstay key` makes keys; the path is mapping_key in [nat]")]
    MappingKey(SecretFileError),
    /// The file of the secret under which free ports are chosen.
    #[error("{0}: `mainstay key` makes keys; the path is key in [nat]")]
    NatKey(SecretFileError),
    /// The file of the secret that flows are hashed under.
    #[error(
        "{0}: `mainstay key` makes keys; the path is hash_key in [edge], or edge_hash_key in [replication.backups]"
    )]
    HashKey(SecretFileError),
    /// The file of the secret of SYN cookies.
    #[error("{0}: `mainstay key` makes keys; the path is key in [syn_proxy]")]
    SynProxyKey(SecretFileError),
    /// It does not hold a pre-shared key.
    #[error("{}: {source}", path.display())]
    NotAKey {
        /// The file.
        path: PathBuf,
        /// What was expected.
        source: NotAKey,
    },
    /// It does not hold a certificate's key.
    #[error("{} holds no key that can be used: an Ed25519 or P-256 key in PKCS #8, as `openssl genpkey` writes it", .0.display())]
    NotAPrivateKey(PathBuf),
    /// It does not hold certificates.
    #[error("{} holds no certificate in PEM, or a damaged one", .0.display())]
    NotACertificate(PathBuf),
    /// The keys do not go together.
    #[error("[replication.security]: {0}")]
    Credentials(#[from] CredentialsError),
    /// The certificates cannot be used.
    #[error("[replication.security]: {0}")]
    Certificates(#[from] CertificatesError),
}

/// The time since 1970.
pub(crate) fn unix_time() -> Duration {
    SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default()
}

/// The secret of keyed mappings of source NAT, from a file as `mainstay key` writes it.
pub fn mapping_key(path: &Path) -> Result<MappingKey, SecretError> {
    Ok(MappingKey(derived(path, b"nat mapping", SecretError::MappingKey)?))
}

/// What two nodes compare to find whether they have the same key. It does not reveal the key.
pub(crate) fn comparable(path: &Path) -> Result<[u64; 2], SecretError> {
    derived(path, b"comparison of configurations", SecretError::Secret)
}

/// The secret under which free ports of source NAT are chosen, from a file as `mainstay key` writes it.
pub fn nat_key(path: &Path) -> Result<HashKey, SecretError> {
    Ok(HashKey(derived(path, NAT_PORTS, SecretError::NatKey)?))
}

/// The same, as it follows from the first key of the cluster; `None` without one.
pub(super) fn cluster_nat_key(cluster: Option<&Cluster>) -> Result<Option<HashKey>, SecretError> {
    cluster_hash_key(cluster, NAT_PORTS)
}

/// The secret under which connections are spread over backends, as it follows from the first key of the cluster; `None` without one.
pub(super) fn cluster_choice_key(cluster: Option<&Cluster>) -> Result<Option<HashKey>, SecretError> {
    cluster_hash_key(cluster, BACKENDS)
}

fn cluster_hash_key(cluster: Option<&Cluster>, purpose: &[u8]) -> Result<Option<HashKey>, SecretError> {
    let security = cluster.and_then(|cluster| cluster.replication.security.as_ref());
    let first = security.and_then(|security| security.pre_shared_keys.first());
    first.map(|path| Ok(HashKey(derived(path, purpose, SecretError::Secret)?))).transpose()
}

/// The secret under which an edge hashes flows, from a file as `mainstay key` writes it.
pub fn edge_hash_key(path: &Path) -> Result<HashKey, SecretError> {
    Ok(HashKey(derived(path, b"edge flows", SecretError::HashKey)?))
}

/// The secret under which the nodes behind an edge hash connections for their indexes, from the same file.
pub(crate) fn index_key(path: &Path) -> Result<[u64; 2], SecretError> {
    derived(path, b"connection indexes", SecretError::HashKey)
}

/// The secret of SYN cookies, from a file as `mainstay key` writes it.
pub fn syn_proxy_key(path: &Path) -> Result<CookieKey, SecretError> {
    Ok(CookieKey(derived(path, SYN_COOKIES, SecretError::SynProxyKey)?))
}

/// The secrets of SYN cookies that follow from the keys of the cluster, in their order; none without such keys.
pub(super) fn cluster_cookie_keys(cluster: Option<&Cluster>) -> Result<Vec<CookieKey>, SecretError> {
    let security = cluster.and_then(|cluster| cluster.replication.security.as_ref());
    let paths = security.iter().flat_map(|security| &security.pre_shared_keys);
    paths.map(|path| Ok(CookieKey(derived(path, SYN_COOKIES, SecretError::Secret)?))).collect()
}

/// The keys that gossip is authenticated by, which follow from the keys of the cluster, in their order.
pub(crate) fn gossip_keys(cluster: Option<&Cluster>) -> Result<Vec<[u8; 16]>, SecretError> {
    let security = cluster.and_then(|cluster| cluster.replication.security.as_ref());
    let paths = security.iter().flat_map(|security| &security.pre_shared_keys);
    let key = |[high, low]: [u64; 2]| ((u128::from(high) << 64) | u128::from(low)).to_be_bytes();
    paths.map(|path| Ok(key(derived(path, GOSSIP, SecretError::Secret)?))).collect()
}

/// Two words that are derived from a key for one purpose.
fn derived(
    path: &Path,
    purpose: &[u8],
    unreadable: impl FnOnce(SecretFileError) -> SecretError,
) -> Result<[u64; 2], SecretError> {
    let secret = secret_file::read(path).map_err(unreadable)?;
    let text = std::str::from_utf8(&secret).unwrap_or_default();
    let key = PreSharedKey::from_text(text)
        .map_err(|source| SecretError::NotAKey { path: path.to_owned(), source })?
        .derive(purpose);
    let half = |bytes: &[u8]| u64::from_be_bytes(bytes.try_into().unwrap_or_default());
    Ok([half(&key[..8]), half(&key[8..])])
}

/// What secures the channels of one worker, if anything does.
pub(super) fn security(cluster: Option<&Cluster>) -> Result<Option<secure::Security>, SecretError> {
    begin(cluster.and_then(|cluster| cluster.replication.security.as_ref()))
}

/// What secures the channels of a node that starts now, if anything does.
pub(crate) fn begin(security: Option<&Security>) -> Result<Option<secure::Security>, SecretError> {
    let Some(security) = security else { return Ok(None) };
    let mut seed = Zeroizing::new([0; 32]);
    random::fill(&mut *seed);
    Ok(Some(secure::Security {
        credentials: Arc::new(load(security)?),
        rotation: security.rotation,
        seed: Seed::new(*seed),
        unix_time: unix_time(),
    }))
}

/// As [`begin`], of a node that runs.
pub(crate) fn renew(security: Option<&Security>) -> Result<Option<secure::SecurityReconfiguration>, SecretError> {
    let Some(security) = security else { return Ok(None) };
    let credentials = Arc::new(load(security)?);
    Ok(Some(secure::SecurityReconfiguration { credentials, rotation: security.rotation }))
}

/// Reads and checks all that the section names.
pub fn load(security: &Security) -> Result<Credentials, SecretError> {
    let certificates = security.certificates.as_ref().map(certificates).transpose()?;
    Ok(Credentials::new(pre_shared_keys(security)?, certificates)?)
}

fn pre_shared_keys(security: &Security) -> Result<Vec<PreSharedKey>, SecretError> {
    let key = |path: &PathBuf| {
        let contents = secret_file::read(path)?;
        // What is no text is no key.
        let text = std::str::from_utf8(&contents).unwrap_or_default();
        PreSharedKey::from_text(text).map_err(|source| SecretError::NotAKey { path: path.clone(), source })
    };
    security.pre_shared_keys.iter().map(key).collect()
}

/// What encrypts the tunnel to another site. Its keys are made of those in the files, so that they are no other channel's even
/// if the same files are named twice.
pub(super) fn sealing(security: &Security, is_lower: bool) -> Result<SealingConfig, SecretError> {
    let keys = pre_shared_keys(security)?.iter().map(|key| key.for_purpose(b"redundancy tunnel")).collect();
    let mut seed = Zeroizing::new([0; 32]);
    random::fill(&mut *seed);
    Ok(SealingConfig {
        credentials: Arc::new(Credentials::new(keys, None)?),
        rotation: security.rotation,
        seed: Seed::new(*seed),
        is_lower,
        unix_time: (clock::now(), unix_time()),
    })
}

fn certificates(files: &CertificateFiles) -> Result<Certificates, SecretError> {
    let signer = FileKey::read(&files.key)?;
    let (chain, authorities) = (read_certificates(&files.certificate)?, read_certificates(&files.authority)?);
    Ok(Certificates::new(chain, Arc::new(signer), &authorities, &files.peer_names)?)
}

fn read_certificates(path: &Path) -> Result<Vec<CertificateDer<'static>>, SecretError> {
    let unreadable = |source| SecretError::Unreadable { path: path.to_owned(), source };
    let mut pem = Vec::new();
    let file = File::open(path).map_err(unreadable)?;
    file.take(FILE_BYTES_MAX + 1).read_to_end(&mut pem).map_err(unreadable)?;
    if pem.len() as u64 > FILE_BYTES_MAX {
        return Err(SecretError::TooLarge(path.to_owned()));
    }
    let found: Result<Vec<_>, _> = CertificateDer::pem_slice_iter(&pem).collect();
    let found = found.ok().filter(|found| !found.is_empty());
    found.ok_or_else(|| SecretError::NotACertificate(path.to_owned()))
}

/// The key of this node's certificate.
enum FileKey {
    Ed25519(Ed25519KeyPair),
    EcdsaP256(EcdsaKeyPair),
}

impl FileKey {
    fn read(path: &Path) -> Result<Self, SecretError> {
        let contents = secret_file::read(path)?;
        let refused = || SecretError::NotAPrivateKey(path.to_owned());
        let der = PrivatePkcs8KeyDer::from_pem_slice(&contents).map_err(|_| refused())?;
        let bytes = der.secret_pkcs8_der();
        if let Ok(key) = Ed25519KeyPair::from_pkcs8_maybe_unchecked(bytes) {
            return Ok(Self::Ed25519(key));
        }
        let key = EcdsaKeyPair::from_pkcs8(&ECDSA_P256_SHA256_ASN1_SIGNING, bytes, &SystemRandom::new());
        key.map(Self::EcdsaP256).map_err(|_| refused())
    }
}

impl Signer for FileKey {
    fn scheme(&self) -> SignatureScheme {
        match self {
            Self::Ed25519(_) => SignatureScheme::Ed25519,
            Self::EcdsaP256(_) => SignatureScheme::EcdsaP256Sha256,
        }
    }

    fn sign(&self, message: &[u8]) -> Option<Vec<u8>> {
        match self {
            Self::Ed25519(key) => Some(key.sign(message).as_ref().to_vec()),
            Self::EcdsaP256(key) => {
                let signature = key.sign(&SystemRandom::new(), message).ok()?;
                Some(signature.as_ref().to_vec())
            }
        }
    }
}

#[cfg(test)]
mod tests;
