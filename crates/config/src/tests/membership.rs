//! `[membership]`.

use std::time::Duration;

use super::super::validated::{Etcd, Gossip, MembershipSource};
use super::{GOOD, check, said};

const ETCD: &str = include_str!("../../../../examples/etcd.toml");
const GOSSIP: &str = include_str!("../../../../examples/gossip.toml");
const KUBERNETES: &str = include_str!("../../../../examples/kubernetes/mainstay.yaml");

fn parsed(text: &str) -> super::super::validated::Config {
    check(text).unwrap_or_else(|error| panic!("{error}")).config
}

#[test]
fn the_file_is_the_source_by_default() {
    let membership = parsed(GOOD).membership;
    assert_eq!(membership.source, MembershipSource::Static);
    assert_eq!((membership.forget_after, membership.start_wait), (Duration::from_secs(600), Duration::from_secs(5)));
    assert_eq!(parsed(&format!("{GOOD}\n[membership]\nsource = \"static\"\n")).membership, membership);
}

#[test]
fn sources_have_their_keys() {
    let MembershipSource::Etcd(etcd) = parsed(ETCD).membership.source else { panic!("etcd is the source") };
    let Etcd { endpoints, prefix, lease, authority, identity } = etcd;
    assert_eq!((endpoints.len(), prefix.as_str(), lease), (3, "/mainstay/site-1", Duration::from_secs(10)));
    assert!(authority.is_some() && identity.is_none());
    let MembershipSource::Gossip(Gossip { listen, seeds }) = parsed(GOSSIP).membership.source else {
        panic!("gossip is the source")
    };
    assert_eq!((listen.port(), seeds.len()), (3785, 1), "a node is no seed of its own");
}

#[test]
fn mistakes_have_remedies() {
    for (from, to, expected) in [
        ("nodes = 8", "", "write node.nodes"),
        ("nodes = 8", "nodes = 65", "at most 64 nodes"),
        ("lease = \"10s\"", "lease = \"1s\"", "out of range"),
        ("lease = \"10s\"", "seeds = [\"10.99.0.2:3785\"]", "the key is for source = \"gossip\""),
        ("https://10.99.0.11:2379", "10.99.0.11:2379", "is not a URL of etcd"),
        ("authority = \"/etc/mainstay/etcd-ca.pem\"", "", "no authority is named"),
        ("authority = ", "certificate = \"/c\"\nauthority = ", "certificate and key go together"),
        ("prefix = \"/mainstay/site-1\"", "prefix = \"mainstay\"", "begin it with /"),
        ("source = \"etcd\"", "source = \"consul\"", "is not known"),
        ("[replication.security]\npre_shared_keys = [\"/etc/mainstay/cluster.key\"]\n", "", "in plain text"),
        (
            "local = \"10.99.0.1:3781\"\n",
            "local = \"10.99.0.1:3781\"\nrepresentation = \"multi-level\"\n",
            "under compact replication",
        ),
    ] {
        assert!(ETCD.contains(from), "{from}");
        let found = said(&ETCD.replacen(from, to, 1));
        assert!(found.contains(expected), "{expected}: {found}");
    }
    let plain = GOSSIP.replace("pre_shared_keys = [\"/etc/mainstay/cluster.key\"]", "mode = \"plain\"");
    assert!(said(&plain).contains("gossip is authenticated"), "{}", said(&plain));
    let silent = GOSSIP.replace("listen = \"10.99.0.1:3785\"", "");
    assert!(said(&silent).contains("write listen"), "{}", said(&silent));
}

#[test]
fn plain_text_to_another_host_is_permitted_by_a_key_and_warned_of() {
    let with = |url: &str, plain: &str| ETCD.replacen("https://10.99.0.11:2379", url, 1).replacen("prefix", plain, 1);
    for url in ["http://10.99.0.11:2379", "http://etcd.example:2379", "http://[2001:db8::1]:2379", "http://10.99.0.11"]
    {
        let refused = said(&with(url, "prefix"));
        assert!(refused.contains("in plain text") && refused.contains("plain = true"), "{refused}");
        let warnings = check(&with(url, "plain = true\nprefix")).unwrap_or_else(|error| panic!("{error}")).warnings;
        assert!(warnings.iter().any(|warning| warning.to_string().contains("in plain text")), "{warnings:?}");
    }
    for url in ["http://127.0.0.1:2379", "http://localhost:2379", "http://[::1]:2379", "http://127.0.0.1"] {
        let warnings = check(&with(url, "prefix")).unwrap_or_else(|error| panic!("{error}")).warnings;
        assert!(warnings.is_empty(), "{warnings:?}");
    }
}

#[test]
fn peers_in_the_file_are_known_before_the_source_is_reached() {
    let peer = "[[replication.peer]]\nid = 3\naddress = \"10.99.0.4:3781\"\n[membership]";
    let config = parsed(&ETCD.replace("[membership]", peer));
    assert_eq!(config.cluster.expect("there is one").replication.peers.len(), 1);
}

#[test]
fn the_configuration_for_kubernetes_is_right() {
    let begin = KUBERNETES.find("mainstay.toml: |\n").expect("it is there") + "mainstay.toml: |\n".len();
    let lines = KUBERNETES[begin..].lines().take_while(|line| line.is_empty() || line.starts_with("    "));
    let text = lines.map(str::trim_start).collect::<Vec<_>>().join("\n");
    let text = text.replace("NODE_ID", "2").replace("NODE_NAME", "gw-2").replace("NODE_IP", "10.99.0.3");
    let config = parsed(&text);
    assert_eq!((config.node.id.0, config.membership.source.name()), (2, "etcd"));
    // No line has a tab, which YAML refuses, and indentation is by two.
    let is_even = |line: &str| (line.len() - line.trim_start().len()).is_multiple_of(2) && !line.contains('\t');
    assert!(KUBERNETES.lines().all(is_even));
}
