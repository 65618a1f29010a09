//! etcd over TLS, each side with a certificate.

use std::fs::{self, Permissions};
use std::os::unix::fs::PermissionsExt;
use std::path::PathBuf;

use lab::testbed::etcd::EtcdTls;
use rcgen::{BasicConstraints, CertificateParams, CertifiedIssuer, ExtendedKeyUsagePurpose, IsCa, KeyPair};

use super::*;

/// An authority with its certificate in a file.
struct Authority {
    issuer: CertifiedIssuer<'static, KeyPair>,
    file: PathBuf,
}

impl Authority {
    fn new(folder: &Folder, name: &str) -> Self {
        let mut params = CertificateParams::default();
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        let key = KeyPair::generate().expect("a key can be made");
        let issuer = CertifiedIssuer::self_signed(params, key).expect("an authority can be made");
        let file = write(folder, name, &issuer.pem());
        Self { issuer, file }
    }

    /// A certificate for a name or an address, and its key.
    fn issue(&self, folder: &Folder, name: &str, usages: &[ExtendedKeyUsagePurpose]) -> [PathBuf; 2] {
        let mut params = CertificateParams::new(vec![name.to_owned()]).expect("the name is right");
        params.extended_key_usages = usages.to_vec();
        let key = KeyPair::generate().expect("a key can be made");
        let certificate = params.signed_by(&key, &self.issuer).expect("a certificate can be issued");
        let files = [("pem", certificate.pem()), ("key", key.serialize_pem())];
        files.map(|(kind, text)| write(folder, &format!("{name}.{kind}"), &text))
    }
}

fn write(folder: &Folder, name: &str, text: &str) -> PathBuf {
    let path = folder.join(name);
    fs::write(&path, text).expect("it can be written");
    fs::set_permissions(&path, Permissions::from_mode(0o600)).expect("its rights can be set");
    path
}

#[test]
fn a_gateway_joins_over_tls_and_one_without_a_certificate_or_with_another_authority_is_kept_out() {
    if packet_io::namespace::for_tests().is_none() {
        return;
    }
    let _turn = crate::take_turn();
    let (site, folder) = (Site::build(), Folder::new("etcd-tls"));
    folder.make_key("key");
    let (authority, stranger) = (Authority::new(&folder, "authority.pem"), Authority::new(&folder, "stranger.pem"));
    let both = [ExtendedKeyUsagePurpose::ServerAuth, ExtendedKeyUsagePurpose::ClientAuth];
    let [certificate, key] = authority.issue(&folder, &HUB.to_string(), &both);
    let [own, own_key] = authority.issue(&folder, "gateway.example", &both[1..]);
    let tls = EtcdTls { authority: authority.file.clone(), certificate, key };
    let hub = site.hub.run(Namespace::current).unwrap().expect("it is there");
    let etcd = match EtcdCluster::start_with(hub, HUB, &folder.join("etcd"), Some(tls)) {
        Ok(etcd) => etcd,
        Err(error) => return packet_io::namespace::skip(error),
    };
    let urls = etcd.endpoints().join("\", \"");
    assert!(urls.starts_with("https://"), "{urls}");
    let section = |authority: &Authority, own: &str| {
        let authority = authority.file.display();
        format!("source = \"etcd\"\nendpoints = [\"{urls}\"]\nauthority = \"{authority}\"\nlease = \"2s\"\n{own}")
    };
    let with_own = format!("certificate = \"{}\"\nkey = \"{}\"\n", own.display(), own_key.display());
    let keeps_out = |node: usize, section: &str, reason: &str| {
        let gateway = site.start(&folder, node, section);
        wait_for("the source is unreachable", &gateway, |status| {
            let membership = status.membership.as_ref().expect("its members come from etcd");
            let error = membership.error.as_deref().unwrap_or_default().to_lowercase();
            !membership.reachable && error.contains(reason)
        });
        let record = etcd.get(&format!("/mainstay/members/{node}")).expect("etcd answers");
        assert_eq!(record, None, "{}", gateway.log());
    };
    keeps_out(1, &section(&authority, ""), "certificate");
    keeps_out(2, &section(&stranger, &with_own), "certificate");

    let a = site.start(&folder, 0, &section(&authority, &with_own));
    let b = site.start(&folder, 1, &section(&authority, &with_own));
    wait_for_peers(&a, &[1], 0);
    wait_for_peers(&b, &[0], 0);
    assert!(membership(&a).reachable && membership(&b).reachable, "{}", a.log());
    assert!(etcd.get("/mainstay/members/0").expect("etcd answers").is_some());
}
