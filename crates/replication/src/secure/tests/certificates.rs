//! Nodes that authenticate by certificates.

use std::string::{String, ToString};

use rcgen::{
    BasicConstraints, CertificateParams, CertifiedIssuer, IsCa, KeyPair, PKCS_ECDSA_P256_SHA256, PKCS_ED25519,
};
use ring::signature::{ECDSA_P256_SHA256_ASN1_SIGNING, EcdsaKeyPair, Ed25519KeyPair};
use rustls_pki_types::CertificateDer;

use super::*;

enum Key {
    Ed25519(Ed25519KeyPair),
    P256(EcdsaKeyPair),
}

impl Signer for Key {
    fn scheme(&self) -> SignatureScheme {
        match self {
            Self::Ed25519(_) => SignatureScheme::Ed25519,
            Self::P256(_) => SignatureScheme::EcdsaP256Sha256,
        }
    }

    fn sign(&self, message: &[u8]) -> Option<Vec<u8>> {
        match self {
            Self::Ed25519(key) => Some(key.sign(message).as_ref().to_vec()),
            Self::P256(key) => {
                let signature = key.sign(&ring::rand::SystemRandom::new(), message).ok()?;
                Some(signature.as_ref().to_vec())
            }
        }
    }
}

fn signer(pair: &KeyPair) -> Arc<dyn Signer> {
    let der = pair.serialize_der();
    if pair.is_compatible(&PKCS_ED25519) {
        return Arc::new(Key::Ed25519(Ed25519KeyPair::from_pkcs8_maybe_unchecked(&der).unwrap()));
    }
    let random = ring::rand::SystemRandom::new();
    Arc::new(Key::P256(EcdsaKeyPair::from_pkcs8(&ECDSA_P256_SHA256_ASN1_SIGNING, &der, &random).unwrap()))
}

type Authority = CertifiedIssuer<'static, KeyPair>;

fn authority() -> Authority {
    let mut params = CertificateParams::default();
    params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
    CertifiedIssuer::self_signed(params, KeyPair::generate_for(&PKCS_ECDSA_P256_SHA256).unwrap()).unwrap()
}

/// A node's certificate and its key, valid for the given days from the beginning of 2027 on.
fn issue(authority: &Authority, name: &str, days: i64, key: KeyPair) -> (CertificateDer<'static>, KeyPair) {
    let mut params = CertificateParams::new(vec![name.to_string()]).unwrap();
    params.not_before = rcgen::date_time_ymd(2027, 1, 1);
    params.not_after = params.not_before + Duration::from_secs(86_400 * u64::try_from(days).unwrap());
    (params.signed_by(&key, authority).unwrap().der().clone(), key)
}

fn ed25519() -> KeyPair {
    KeyPair::generate_for(&PKCS_ED25519).unwrap()
}

/// A certificate as `openssl req -x509` makes one: signed by itself, and an authority's.
fn self_signed_authority(name: &str) -> (CertificateDer<'static>, KeyPair) {
    let key = KeyPair::generate_for(&PKCS_ECDSA_P256_SHA256).unwrap();
    let mut params = CertificateParams::new(vec![name.to_string()]).unwrap();
    params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
    params.not_before = rcgen::date_time_ymd(2027, 1, 1);
    params.not_after = rcgen::date_time_ymd(2028, 1, 1);
    (params.self_signed(&key).unwrap().der().clone(), key)
}

#[test]
fn a_certificate_of_an_authority_as_a_nodes_is_refused_in_words() {
    let site = Site::new();
    let own = self_signed_authority("node-0.example");
    let error = site.certificates(&own, 1, "node-1.example").expect_err("no peer would accept it").to_string();
    assert!(error.contains("that of an authority (CA:TRUE)") && error.contains("CA:FALSE"), "{error}");
}

struct Site {
    authority: Authority,
}

impl Site {
    fn new() -> Self {
        Self { authority: authority() }
    }

    fn certificates(
        &self,
        (certificate, key): &(CertificateDer<'static>, KeyPair),
        peer: u8,
        peer_name: &str,
    ) -> Result<Certificates, CertificatesError> {
        let authorities = [self.authority.der().clone()];
        let names = [(NodeId(peer), String::from(peer_name))];
        Certificates::new(vec![certificate.clone()], signer(key), &authorities, &names)
    }

    /// The credentials of a node that is called `node-0` or `node-1`, and expects the other.
    fn credentials(&self, node: u8, issued: &(CertificateDer<'static>, KeyPair), keys: &[u8]) -> Arc<Credentials> {
        let name = std::format!("node-{}.example", 1 - node);
        let certificates = self.certificates(issued, 1 - node, &name).unwrap();
        let keys = keys.iter().map(|number| key(*number)).collect();
        Arc::new(Credentials::new(keys, Some(certificates)).unwrap())
    }

    fn issue(&self, node: u8) -> (CertificateDer<'static>, KeyPair) {
        let key = if node == 0 { ed25519() } else { KeyPair::generate_for(&PKCS_ECDSA_P256_SHA256).unwrap() };
        issue(&self.authority, &std::format!("node-{node}.example"), 365, key)
    }

    fn pair(&self) -> Pair {
        let credentials = [0, 1].map(|node| self.credentials(node, &self.issue(node), &[]));
        Pair::new(credentials, Rotation { interval: Duration::from_secs(2), datagrams: u64::MAX })
    }

    /// How node 1 refuses a node 0 that shows this instead of its own.
    fn refusal(&self, issued: &(CertificateDer<'static>, KeyPair)) -> CertificateError {
        let left = self.credentials(0, issued, &[]);
        let right = self.credentials(1, &self.issue(1), &[]);
        let mut pair = Pair::new([left, right], Rotation::default());
        pair.run(Duration::from_secs(5));
        assert!(!pair.channels[0].is_ready() && !pair.channels[1].is_ready());
        assert!(pair.received.iter().all(Vec::is_empty));
        assert!(pair.refused(1, Refusal::Certificate) > 0);
        let errors = pair.errors.into_iter().filter(|(node, _)| *node == 1);
        let mut errors = errors.filter_map(|(_, error)| match error {
            ChannelError::Certificate(error) => Some(error),
            _ => None,
        });
        errors.next().expect("it gives a reason")
    }
}

#[test]
fn two_nodes_with_certificates_of_one_authority_connect_within_milliseconds() {
    let mut pair = Site::new().pair();
    pair.run_until("both to be ready", Pair::are_ready);
    assert!(pair.now <= Instant::from_millis(5));
    pair.run(Duration::from_secs(9));
    for node in 0..2 {
        let expected: Vec<u64> = (0..pair.sent_numbers[1 - node]).collect();
        assert_eq!(pair.received[node], expected, "also while keys were exchanged");
        let status = pair.channels[node].status();
        assert!(status.handshakes >= 4, "{}", status.handshakes);
        let keys = status.keys.unwrap();
        assert_eq!(keys.peer_name, Some(std::format!("node-{}.example", 1 - node)));
        assert_eq!(keys.key, None, "there is no secret key");
    }
}

#[test]
fn loss_delays_certificates_too_and_no_more() {
    for seed in 0..10 {
        let mut random = SeededRandom { seed: Seed::new([seed; 32]), next: 0 };
        let mut pair = Site::new().pair();
        let mut draw = move || random.number() % 10 < 6;
        pair.delivery = Box::new(move || if draw() { vec![Duration::from_millis(1)] } else { Vec::new() });
        pair.run_until("both to be ready", Pair::are_ready);
        pair.delivery = Box::new(|| vec![Duration::from_millis(1)]);
        pair.run(Duration::from_secs(3));
        let received = pair.received.each_ref().map(Vec::len);
        pair.run(Duration::from_secs(3));
        assert_eq!(pair.received.each_ref().map(Vec::len), received.map(|before| before + 3000));
    }
}

#[test]
fn a_restarted_node_shows_its_certificate_once_more() {
    let site = Site::new();
    let mut pair = site.pair();
    pair.run(Duration::from_millis(500));
    pair.restart(1, &site.credentials(1, &site.issue(1), &[]));
    let before = pair.received[0].len();
    let restarted_at = pair.now;
    pair.run_until("the first word", |pair| pair.received[0].len() > before + 5);
    assert!(pair.now.saturating_since(restarted_at) < Duration::from_millis(50));
}

#[test]
fn the_error_for_an_expired_certificate_names_its_expiry() {
    // Today is the 15th of January 2027.
    let site = Site::new();
    let refusal = site.refusal(&issue(&site.authority, "node-0.example", 1, ed25519()));
    assert!(matches!(refusal, CertificateError::Expired(_)), "{refusal:?}");
    let sent_numbers = refusal.to_string();
    assert!(
        sent_numbers.contains("expired 13 days ago") && sent_numbers.contains("renew it on that node"),
        "{sent_numbers}"
    );
}

#[test]
fn a_certificate_of_another_authority_or_another_name_is_refused() {
    let site = Site::new();
    let refusal = site.refusal(&issue(&authority(), "node-0.example", 365, ed25519()));
    assert_eq!(refusal, CertificateError::UnknownIssuer);
    let refusal = site.refusal(&issue(&site.authority, "node-7.example", 365, ed25519()));
    assert_eq!(refusal, CertificateError::Name { expected: "node-0.example".into() });
    assert!(refusal.to_string().contains("certificate_name"), "{refusal}");
}

#[test]
fn a_key_that_is_not_the_certificates_is_noticed_at_the_start() {
    let site = Site::new();
    let (certificate, _) = site.issue(0);
    let refusal = site.certificates(&(certificate, ed25519()), 1, "node-1.example").unwrap_err();
    assert_eq!(refusal, CertificatesError::KeyDiffers);
    let refusal = site.certificates(&site.issue(0), 1, "no name").unwrap_err();
    assert_eq!(refusal, CertificatesError::Name("no name".into()));
}

#[test]
fn a_proof_is_of_one_handshake_and_one_part_in_it() {
    let site = Site::new();
    let shown = site.certificates(&site.issue(0), 1, "node-1.example").unwrap();
    let expecting = site.certificates(&site.issue(1), 0, "node-0.example").unwrap();
    let proof = shown.prove(Part::Initiator, &[1; 32]).unwrap();
    let verify = |part, hash, proof: &[u8]| expecting.verify(NodeId(0), part, &[hash; 32], proof, TODAY);
    assert_eq!(verify(Part::Initiator, 1, &proof), Ok("node-0.example".into()));
    assert_eq!(verify(Part::Responder, 1, &proof), Err(CertificateError::Signature));
    assert_eq!(verify(Part::Initiator, 2, &proof), Err(CertificateError::Signature));
    assert_eq!(expecting.verify(NodeId(5), Part::Initiator, &[1; 32], &proof, TODAY), Err(CertificateError::NoName));
    for length_bytes in 0..proof.len() {
        assert!(verify(Part::Initiator, 1, &proof[..length_bytes]).is_err());
    }
}

#[test]
fn with_a_key_as_well_both_are_needed() {
    let site = Site::new();
    let [left, right] = [0, 1].map(|node| site.issue(node));
    let with = |left_keys: &[u8], right_keys: &[u8]| {
        let credentials = [site.credentials(0, &left, left_keys), site.credentials(1, &right, right_keys)];
        let mut pair = Pair::new(credentials, Rotation::default());
        pair.run(Duration::from_secs(3));
        pair
    };
    assert!(with(&[1], &[1]).are_ready());
    let strangers = with(&[1], &[2]);
    assert!(!strangers.channels[0].is_ready() && strangers.refused(1, Refusal::UnknownKey) > 0);
    let different = with(&[1], &[]);
    assert!(!different.channels[0].is_ready());
    let sent_numbers = different.errors[0].1.to_string();
    assert!(sent_numbers.contains("certificates") && sent_numbers.contains("a pre-shared key"), "{sent_numbers}");
}

#[test]
fn strangers_without_a_key_to_stop_them_are_still_limited() {
    let site = Site::new();
    let mut pair = site.pair();
    pair.run_until("both to be ready", Pair::are_ready);
    let before = pair.channels[0].status();
    let outsider = site.credentials(1, &issue(&authority(), "node-1.example", 365, ed25519()), &[]);
    for number in 0..500_u64 {
        let mut stranger = channel(1, &outsider, Rotation::default(), (number % 251) as u8, pair.now);
        stranger.set_unix_time(pair.now, TODAY + Duration::from_secs(1_000_000 + number));
        stranger.handle_timeout(pair.now);
        let (mut datagram, mut content) = (Vec::new(), Vec::new());
        assert!(stranger.poll_transmit(&mut datagram));
        pair.hand_in(0, &datagram);
        // It goes on as far as it can get.
        while pair.channels[0].poll_transmit(&mut datagram) {
            let _ = stranger.handle_datagram(pair.now, &datagram, &mut content);
        }
        while stranger.poll_transmit(&mut datagram) {
            pair.hand_in(0, &datagram);
        }
        if number % 100 == 0 {
            pair.step();
        }
    }
    let after = pair.channels[0].status();
    assert!(after.multiplications - before.multiplications <= 50, "{}", after.multiplications);
    assert_eq!(after.keys, before.keys);
    assert!(pair.refused(0, Refusal::Certificate) > 10 && pair.refused(0, Refusal::RateLimited) > 400);
    // The stranger's stamps are of the future: they must not shut the peer out.
    pair.run(Duration::from_secs(10));
    assert!(pair.channels[0].status().handshakes >= 3);
    assert_eq!(pair.received[0].len() as u64, pair.sent_numbers[1]);
}
