//! X.509 certificates: what this node shows, and what it expects to be shown.
//!
//! A proof is a certificate chain and a signature over the handshake's hash: the owner of the certificate's key took part in
//! just this handshake. It travels under the session keys that the handshake made.

use alloc::string::{String, ToString};
use alloc::sync::Arc;
use alloc::vec::Vec;
use core::fmt;
use core::time::Duration;

use flow::NodeId;
use rustls_pki_types::{CertificateDer, ServerName, SignatureVerificationAlgorithm, TrustAnchor, UnixTime};
use webpki::ring::{ECDSA_P256_SHA256, ECDSA_P256_SHA384, ECDSA_P384_SHA256, ECDSA_P384_SHA384, ED25519};
use webpki::{EndEntityCert, KeyUsage, anchor_from_trusted_cert};

use super::resolver::HASH_BYTES;

/// Certificates in a chain, the node's own included.
pub const CHAIN_CERTIFICATES_MAX: usize = 4;
/// Bytes of a proof. One that does not fit into a frame is fragmented by IP.
pub const PROOF_BYTES_MAX: usize = 8192;

/// Algorithms with which authorities may have signed certificates.
const CERTIFICATE_ALGORITHMS: &[&dyn SignatureVerificationAlgorithm] =
    &[ED25519, ECDSA_P256_SHA256, ECDSA_P256_SHA384, ECDSA_P384_SHA256, ECDSA_P384_SHA384];

/// How a proof is signed.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[repr(u8)]
pub enum SignatureScheme {
    /// Ed25519 (RFC 8032).
    Ed25519 = 1,
    /// ECDSA over P-256 with SHA-256, in ASN.1.
    EcdsaP256Sha256 = 2,
}

impl SignatureScheme {
    fn algorithm(number: u8) -> Option<&'static dyn SignatureVerificationAlgorithm> {
        match number {
            1 => Some(ED25519),
            2 => Some(ECDSA_P256_SHA256),
            _ => None,
        }
    }
}

/// Signs with the key of the node's certificate. The owner of the key implements it: some algorithms draw randomness.
pub trait Signer: Send + Sync {
    /// How it signs.
    fn scheme(&self) -> SignatureScheme;

    /// The signature of a message; `None` when it cannot be had.
    fn sign(&self, message: &[u8]) -> Option<Vec<u8>>;
}

/// Why a node cannot authenticate by certificates as configured.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
pub enum CertificatesError {
    /// No certificate, or too many.
    #[error(
        "the certificate file holds {0} certificates: it takes 1 to {CHAIN_CERTIFICATES_MAX}, the node's own first"
    )]
    ChainLength(usize),
    /// A certificate cannot be read.
    #[error("the node's certificate cannot be used: {0}")]
    Unusable(String),
    /// Key and certificate do not go together.
    #[error("the key is not that of the certificate: give the key that the certificate was requested with")]
    KeyDiffers,
    /// The node's certificate is an authority's.
    #[error(
        "the node's certificate is that of an authority (CA:TRUE), as `openssl req -x509` makes one, and no peer accepts it: \
         issue one for the node, with basicConstraints = CA:FALSE, signed by the authority"
    )]
    OfAuthority,
    /// The chain is too large.
    #[error("the certificates take {0} bytes, more than {PROOF_BYTES_MAX}: use Ed25519 or ECDSA, and shorter chains")]
    TooLarge(usize),
    /// No authority.
    #[error("the authority file holds no certificate")]
    NoAuthority,
    /// An authority's certificate cannot be read.
    #[error("the authority's certificate cannot be used: {0}")]
    Authority(String),
    /// A name that a certificate cannot have.
    #[error("{0:?} is neither a DNS name nor an IP address: write the name that the peer's certificate was issued for")]
    Name(String),
}

/// Why a peer's proof is not believed.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
pub enum CertificateError {
    /// The proof cannot be read.
    #[error("its proof of identity is malformed; check that both nodes run the same release")]
    Malformed,
    /// Signed in an unknown way.
    #[error("it signs in way {0}, which is not spoken here: use an Ed25519 or a P-256 key")]
    Scheme(u8),
    /// Issued by another authority.
    #[error("its certificate was not issued by the authority that is configured here (replication.security.authority)")]
    UnknownIssuer,
    /// Over.
    #[error("its certificate expired {} ago: renew it on that node; or this node's clock is wrong", describe(*.0))]
    Expired(Duration),
    /// Not yet valid.
    #[error("its certificate becomes valid only in {}: check the clocks of both nodes", describe(*.0))]
    NotYetValid(Duration),
    /// Somebody else's.
    #[error(
        "its certificate is not for {expected:?}: correct certificate_name of the peer here, or the certificate there"
    )]
    Name {
        /// The name that was expected.
        expected: String,
    },
    /// Signed without the certificate's key.
    #[error("its signature is not of its certificate's key: somebody else shows its certificate")]
    Signature,
    /// It is an authority's.
    #[error(
        "its certificate is that of an authority (CA:TRUE), as `openssl req -x509` makes one: issue one for that node, with \
         basicConstraints = CA:FALSE, signed by the authority"
    )]
    OfAuthority,
    /// A certificate above it is not an authority's.
    #[error(
        "its certificate was issued by one that may not issue any (CA:FALSE): sign it by an authority's, with CA:TRUE"
    )]
    NoAuthority,
    /// Anything else.
    #[error("its certificate is not accepted: {0}")]
    Other(String),
    /// This node has no name to expect.
    #[error("no certificate_name is configured for it here")]
    NoName,
}

/// A duration for people.
fn describe(duration: Duration) -> String {
    use alloc::format;
    match duration.as_secs() {
        seconds @ ..120 => format!("{seconds} s"),
        seconds @ ..7200 => format!("{} min", seconds / 60),
        seconds @ ..172_800 => format!("{} h", seconds / 3600),
        seconds => format!("{} days", seconds / 86_400),
    }
}

/// Who took which part in a handshake; a proof of the one is none of the other.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[repr(u8)]
pub(super) enum Part {
    Initiator = 1,
    Responder = 2,
}

/// What this node shows, and what it expects to be shown.
pub struct Certificates {
    chain: Vec<CertificateDer<'static>>,
    signer: Arc<dyn Signer>,
    authorities: Vec<TrustAnchor<'static>>,
    peer_names: Vec<PeerName>,
}

/// The name that a peer's certificate is to be for, as it was written and as certificates know it.
#[derive(Debug)]
struct PeerName {
    peer: NodeId,
    text: String,
    name: ServerName<'static>,
}

impl fmt::Debug for Certificates {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Certificates").field("peer_names", &self.peer_names).finish_non_exhaustive()
    }
}

impl Certificates {
    /// `chain` begins with the node's own certificate, whose key `signer` has. Peers' certificates must lead to one of
    /// `authorities` and be for the peers' names.
    ///
    /// # Errors
    /// What is wrong with them.
    pub fn new(
        chain: Vec<CertificateDer<'static>>,
        signer: Arc<dyn Signer>,
        authorities: &[CertificateDer<'static>],
        peer_names: &[(NodeId, String)],
    ) -> Result<Self, CertificatesError> {
        let own = chain.first().filter(|_| chain.len() <= CHAIN_CERTIFICATES_MAX);
        let own = own.ok_or(CertificatesError::ChainLength(chain.len()))?;
        let own = EndEntityCert::try_from(own).map_err(|error| CertificatesError::Unusable(error.to_string()))?;
        let signature = signer.sign(b"a trial").ok_or(CertificatesError::KeyDiffers)?;
        let is_its_own = SignatureScheme::algorithm(signer.scheme() as u8)
            .is_some_and(|algorithm| own.verify_signature(algorithm, b"a trial", &signature).is_ok());
        if !is_its_own {
            return Err(CertificatesError::KeyDiffers);
        }
        if authorities.is_empty() {
            return Err(CertificatesError::NoAuthority);
        }
        let anchor = |authority| {
            let anchor = anchor_from_trusted_cert(authority);
            anchor.map(|anchor| anchor.to_owned()).map_err(|error| CertificatesError::Authority(error.to_string()))
        };
        let authorities = authorities.iter().map(anchor).collect::<Result<Vec<TrustAnchor<'static>>, _>>()?;
        if is_of_authority(&own, &authorities) {
            return Err(CertificatesError::OfAuthority);
        }
        let named = |(id, name): &(NodeId, String)| {
            let parsed = ServerName::try_from(name.clone()).map_err(|_| CertificatesError::Name(name.clone()))?;
            Ok(PeerName { peer: *id, text: name.clone(), name: parsed })
        };
        let peer_names = peer_names.iter().map(named).collect::<Result<_, _>>()?;
        let certificates = Self { chain, signer, authorities, peer_names };
        let length_bytes = certificates.prove(Part::Initiator, &[0; HASH_BYTES]).map_or(0, |proof| proof.len());
        if length_bytes > PROOF_BYTES_MAX {
            return Err(CertificatesError::TooLarge(length_bytes));
        }
        Ok(certificates)
    }

    /// Whatever two equal configurations have in common.
    pub(super) fn public_bytes(&self) -> impl Iterator<Item = &[u8]> {
        let anchors = self.authorities.iter().flat_map(|anchor| [&*anchor.subject, &*anchor.subject_public_key_info]);
        self.chain.iter().map(|certificate| &**certificate).chain(anchors)
    }

    /// The names that peers' certificates are to be for.
    pub(super) fn peer_names(&self) -> impl Iterator<Item = (NodeId, &str)> {
        self.peer_names.iter().map(|expected| (expected.peer, expected.text.as_str()))
    }

    /// This node's proof that it took `part` in the handshake of this hash.
    pub(super) fn prove(&self, part: Part, hash: &[u8; HASH_BYTES]) -> Option<Vec<u8>> {
        let signature = self.signer.sign(&signed_text(part, hash))?;
        let mut proof = Vec::new();
        proof.push(self.signer.scheme() as u8);
        put(&mut proof, &signature)?;
        self.chain.iter().try_for_each(|certificate| put(&mut proof, certificate))?;
        Some(proof)
    }

    /// Whether a proof shows that the peer took `part` in the handshake of this hash. `unix_time` is the time since 1970.
    pub(super) fn verify(
        &self,
        peer: NodeId,
        part: Part,
        hash: &[u8; HASH_BYTES],
        proof: &[u8],
        unix_time: Duration,
    ) -> Result<String, CertificateError> {
        let expected = self.peer_names.iter().find(|expected| expected.peer == peer);
        let expected = expected.ok_or(CertificateError::NoName)?;
        let (scheme, mut rest) = proof.split_first().ok_or(CertificateError::Malformed)?;
        let signature = take(&mut rest)?;
        let mut chain = Vec::new();
        while !rest.is_empty() && chain.len() < CHAIN_CERTIFICATES_MAX {
            chain.push(CertificateDer::from(take(&mut rest)?));
        }
        let (own, intermediates) = chain.split_first().ok_or(CertificateError::Malformed)?;
        let own = EndEntityCert::try_from(own).map_err(refused)?;
        own.verify_for_usage(
            CERTIFICATE_ALGORITHMS,
            &self.authorities,
            intermediates,
            UnixTime::since_unix_epoch(unix_time),
            // Certificates without an extended key usage, or made for servers.
            KeyUsage::server_auth(),
            None,
            None,
        )
        .map_err(refused)?;
        let name = expected.text.clone();
        own.verify_is_valid_for_subject_name(&expected.name)
            .map_err(|_| CertificateError::Name { expected: name.clone() })?;
        let algorithm = SignatureScheme::algorithm(*scheme).ok_or(CertificateError::Scheme(*scheme))?;
        own.verify_signature(algorithm, &signed_text(part, hash), signature)
            .map_err(|_| CertificateError::Signature)?;
        Ok(name)
    }
}

/// Whether a certificate is an authority's, which peers refuse as a node's. Its own time counts: there is no clock here.
fn is_of_authority(own: &EndEntityCert<'_>, authorities: &[TrustAnchor<'static>]) -> bool {
    let verify = |time| {
        let usage = KeyUsage::server_auth();
        own.verify_for_usage(CERTIFICATE_ALGORITHMS, authorities, &[], time, usage, None, None).map(drop)
    };
    let mut result = verify(UnixTime::since_unix_epoch(Duration::ZERO));
    if let Err(webpki::Error::CertNotValidYet { not_before, .. }) = result {
        result = verify(not_before);
    }
    result == Err(webpki::Error::CaUsedAsEndEntity)
}

fn refused(error: webpki::Error) -> CertificateError {
    let since =
        |later: UnixTime, earlier: UnixTime| Duration::from_secs(later.as_secs().saturating_sub(earlier.as_secs()));
    match error {
        // The latter where another authority has the same name.
        webpki::Error::UnknownIssuer | webpki::Error::InvalidSignatureForPublicKey => CertificateError::UnknownIssuer,
        webpki::Error::CertExpired { time, not_after } => CertificateError::Expired(since(time, not_after)),
        webpki::Error::CertNotValidYet { time, not_before } => CertificateError::NotYetValid(since(not_before, time)),
        webpki::Error::BadDer => CertificateError::Malformed,
        webpki::Error::CaUsedAsEndEntity => CertificateError::OfAuthority,
        webpki::Error::EndEntityUsedAsCa => CertificateError::NoAuthority,
        other => CertificateError::Other(other.to_string()),
    }
}

/// What is signed. Both nodes, their numbers and the worker's are in the handshake's hash.
fn signed_text(part: Part, hash: &[u8; HASH_BYTES]) -> Vec<u8> {
    [b"mainstay channel proof".as_slice(), &[part as u8], hash].concat()
}

fn put(out: &mut Vec<u8>, bytes: &[u8]) -> Option<()> {
    out.extend_from_slice(&u16::try_from(bytes.len()).ok()?.to_be_bytes());
    out.extend_from_slice(bytes);
    Some(())
}

fn take<'a>(bytes: &mut &'a [u8]) -> Result<&'a [u8], CertificateError> {
    let (length, rest) = bytes.split_first_chunk::<2>().ok_or(CertificateError::Malformed)?;
    let (taken, rest) = rest.split_at_checked(u16::from_be_bytes(*length).into()).ok_or(CertificateError::Malformed)?;
    *bytes = rest;
    Ok(taken)
}
