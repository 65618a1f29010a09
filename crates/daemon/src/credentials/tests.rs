//! Key files as operators have them.

use std::fs::{self, Permissions};
use std::os::unix::fs::PermissionsExt;

use flow::NodeId;
use replication::secure::Rotation;

use super::*;

/// A folder of this test's own, removed when it goes.
struct Folder(PathBuf);

impl Folder {
    fn new() -> Self {
        let path = std::env::temp_dir().join(format!("mainstay-credentials-{:016x}", random::number()));
        fs::create_dir(&path).expect("a folder can be made");
        Self(path)
    }

    fn write(&self, name: &str, text: &str, mode: u32) -> PathBuf {
        let path = self.0.join(name);
        fs::write(&path, text).expect("a file can be written");
        fs::set_permissions(&path, Permissions::from_mode(mode)).expect("its rights can be set");
        path
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}

fn with_keys(files: &[PathBuf]) -> Security {
    Security { pre_shared_keys: files.to_vec(), certificates: None, rotation: Rotation::default() }
}

fn refusal(security: &Security) -> String {
    load(security).expect_err("it is refused").to_string()
}

#[test]
fn keys_are_read_from_files_that_nobody_else_may_read() {
    let folder = Folder::new();
    let key = PreSharedKey::new([0xb3; 32]);
    let file = folder.write("cluster.key", &key.to_text(), 0o600);
    let credentials = load(&with_keys(std::slice::from_ref(&file))).expect("the key is right");
    assert_eq!(credentials.key_ids().collect::<Vec<_>>(), [key.id()]);
    for mode in [0o640, 0o604, 0o660, 0o644] {
        fs::set_permissions(&file, Permissions::from_mode(mode)).expect("its rights can be set");
        let said = refusal(&with_keys(std::slice::from_ref(&file)));
        assert!(said.contains(&format!("mode {mode:03o}")) && said.contains("chmod 600"), "{said}");
        assert!(!said.contains("b3b3"), "{said}");
    }
}

#[test]
fn what_is_no_key_is_refused_without_being_shown() {
    let folder = Folder::new();
    let password = folder.write("password", "correct horse battery staple", 0o600);
    let said = refusal(&with_keys(&[password]));
    assert!(said.contains("64 hexadecimal digits") && !said.contains("horse"), "{said}");
    let said = refusal(&with_keys(&[folder.0.join("missing")]));
    assert!(said.contains("missing") && said.contains("mainstay key"), "{said}");
    let key = PreSharedKey::new([1; 32]).to_text();
    let twice = [folder.write("a", &key, 0o400), folder.write("b", &key, 0o400)];
    assert!(refusal(&with_keys(&twice)).contains("is given twice"));
}

#[test]
fn certificates_are_read_as_openssl_writes_them() {
    let folder = Folder::new();
    let authority_key = rcgen::KeyPair::generate().expect("a key can be made");
    let mut params = rcgen::CertificateParams::default();
    params.is_ca = rcgen::IsCa::Ca(rcgen::BasicConstraints::Unconstrained);
    let authority = rcgen::CertifiedIssuer::self_signed(params, authority_key).expect("an authority can be made");
    for algorithm in [&rcgen::PKCS_ED25519, &rcgen::PKCS_ECDSA_P256_SHA256] {
        let key = rcgen::KeyPair::generate_for(algorithm).expect("a key can be made");
        let params = rcgen::CertificateParams::new(vec!["left.example".to_owned()]).expect("the name is right");
        let certificate = params.signed_by(&key, &authority).expect("a certificate can be issued");
        let files = CertificateFiles {
            certificate: folder.write("left.pem", &certificate.pem(), 0o644),
            key: folder.write("left.key", &key.serialize_pem(), 0o600),
            authority: folder.write("authority.pem", &authority.pem(), 0o644),
            peer_names: vec![(NodeId(1), "right.example".into())],
        };
        let security = Security { certificates: Some(files.clone()), ..with_keys(&[]) };
        assert_eq!(load(&security).expect("all is right").describe(), "certificates");
        fs::set_permissions(&files.key, Permissions::from_mode(0o644)).expect("its rights can be set");
        assert!(refusal(&security).contains("chmod 600"));
        let swapped = CertificateFiles { certificate: files.key.clone(), ..files.clone() };
        let said = refusal(&Security { certificates: Some(swapped), ..security.clone() });
        assert!(said.contains("chmod 600") || said.contains("no certificate"), "{said}");
        folder.write("left.key", "-----BEGIN NOTHING-----\n", 0o600);
        assert!(refusal(&security).contains("openssl genpkey"));
    }
}

#[test]
fn the_secret_of_mappings_is_looked_for_where_it_is_named() {
    let folder = Folder::new();
    let missing = mapping_key(&folder.0.join("nat.key")).expect_err("there is none").to_string();
    assert!(missing.ends_with("the path is mapping_key in [nat]"), "{missing}");
    let text = "0123456789abcdef".repeat(4);
    let [one, other] =
        [("one", &text), ("other", &text.replace('f', "0"))].map(|(name, text)| folder.write(name, text, 0o600));
    assert_eq!(mapping_key(&one).unwrap(), mapping_key(&one).unwrap());
    assert_ne!(mapping_key(&one).unwrap(), mapping_key(&other).unwrap());
}
