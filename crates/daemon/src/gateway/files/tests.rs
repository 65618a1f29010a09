//! Which files count for the fingerprint of a configuration.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::PathBuf;

use packet_io::random;
use replication::secure::PreSharedKey;

use super::super::build;
use crate::url_lists;

/// A folder of one node, removed when it goes.
struct Node(PathBuf);

impl Node {
    fn new() -> Self {
        let path = std::env::temp_dir().join(format!("mainstay-files-{:016x}", random::number()));
        fs::create_dir(&path).expect("a folder can be made");
        Self(path)
    }

    fn write(&self, name: &str, content: &str) {
        let path = self.0.join(name);
        fs::write(&path, content).expect("a file can be written");
        fs::set_permissions(&path, fs::Permissions::from_mode(0o600)).expect("its mode can be set");
    }

    /// The node's fingerprint with this text as its configuration, `FOLDER` in it being its folder.
    fn fingerprint(&self, text: &str) -> u64 {
        let text = text.replace("FOLDER", &self.0.display().to_string());
        let config = config::parse("mainstay.toml", &text).expect("it is right").config;
        let lists = url_lists::check(&config.url_filter).expect("the lists are right");
        build::fingerprint(&config, super::digest(&config, lists))
    }
}

impl Drop for Node {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}

fn certificate(name: &str) -> String {
    rcgen::generate_simple_self_signed([name.to_owned()]).expect("it can be made").cert.pem()
}

/// Asserts that the fingerprint follows the content of a file: it is the same for the same content and differs for another.
fn assert_counts(text: &str, file: &str, [content, other]: [&str; 2]) {
    let (left, right) = (Node::new(), Node::new());
    left.write(file, content);
    right.write(file, content);
    assert_eq!(left.fingerprint(text), right.fingerprint(text), "{file}: the same content at another path");
    right.write(file, other);
    assert_ne!(left.fingerprint(text), right.fingerprint(text), "{file}: another content");
}

const BASE: &str = r#"
chain = ["CHAIN"]
[node]
id = 0
nodes = 2
[[port]]
name = "inside"
interface = "eth0"
addresses = ["10.1.0.1/24"]
[[port]]
name = "outside"
interface = "eth1"
addresses = ["192.0.2.1/24"]
"#;

const ALL: &str = "[[firewall.rule]]\nname = \"all\"\naction = \"accept\"\n";

fn with(chain: &str, section: &str) -> String {
    BASE.replace("CHAIN", chain) + section
}

#[test]
fn nodes_with_different_url_lists_have_different_fingerprints() {
    let list = "[[url_filter.list]]\ncategory = \"ads\"\npath = \"FOLDER/ads\"\n\
                [[url_filter.rule]]\nname = \"ads\"\nblock = [\"ads\"]\n";
    assert_counts(&with("url_filter", list), "ads", ["ads.example\n", "ads.example\nmore.example\n"]);
}

#[test]
fn nodes_with_different_authorities_have_different_fingerprints() {
    let [one, other] = ["one.example", "other.example"].map(certificate);
    let pair = [one.as_str(), other.as_str()];
    let server = "[url_filter.server]\naddress = \"192.0.2.9:8080\"\ncategories = [\"ads\"]\n\
                  authority = \"FOLDER/authority.pem\"\nserver_name = \"url.example\"\n\
                  [[url_filter.rule]]\nname = \"ads\"\nblock = [\"ads\"]\n";
    assert_counts(&with("url_filter", server), "authority.pem", pair);
    let service = "[[service]]\nname = \"web\"\naddress = \"192.0.2.1\"\nprotocol = \"tcp\"\nports = [443]\n\
                   [service.check]\nkind = \"https\"\nserver_name = \"web.example\"\nauthorities = \"FOLDER/authority.pem\"\n\
                   [[service.backend]]\naddress = \"10.1.0.10\"\n";
    assert_counts(&with("load_balancer", service), "authority.pem", pair);
    let peer = "[replication]\nlocal = \"10.9.0.1:3781\"\n[[replication.peer]]\nid = 1\naddress = \"10.9.0.2:3781\"\n\
                certificate_name = \"b.example\"\n[replication.security]\ncertificate = \"FOLDER/own.pem\"\n\
                key = \"FOLDER/own.key\"\nauthority = \"FOLDER/authority.pem\"\n";
    assert_counts(&with("firewall", &format!("{ALL}{peer}")), "authority.pem", pair);

    let (left, right) = (Node::new(), Node::new());
    left.write("authority.pem", &format!("{one}{other}"));
    right.write("authority.pem", &format!("# Comments are none of it.\n{other}\n{one}"));
    right.write("own.pem", &certificate("right.example"));
    right.write("own.key", "each node has its own");
    let text = with("firewall", &format!("{ALL}{peer}"));
    assert_eq!(left.fingerprint(&text), right.fingerprint(&text), "certificates of nodes differ by nature");
}

#[test]
fn nodes_with_different_shared_keys_have_different_fingerprints() {
    let [one, other] = [[1; 32], [2; 32]].map(|key| PreSharedKey::new(key).to_text());
    let pair = [one.as_str(), other.as_str()];
    let tunnel = "[redundancy]\nlocal = \"192.0.2.1:3785\"\npeer = \"198.51.100.1:3785\"\n\
                  [redundancy.security]\npre_shared_keys = [\"FOLDER/tunnel.key\"]\n";
    assert_counts(&with("firewall", &format!("{ALL}{tunnel}")), "tunnel.key", pair);
    let proxy = "[syn_proxy]\nkey = \"FOLDER/cookies.key\"\n[[syn_proxy.rule]]\nname = \"all\"\n";
    assert_counts(&with("syn_proxy", proxy), "cookies.key", pair);
    let nat = "[nat]\nmapping_key = \"FOLDER/mapping.key\"\n\
               [[nat.source]]\nsource = [\"10.1.0.0/24\"]\nto = [\"192.0.2.1\"]\nmapping = \"deterministic-keyed\"\n";
    assert_counts(&with("nat", nat), "mapping.key", pair);
}
