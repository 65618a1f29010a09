//! `[replication.security]`.

use super::{GOOD, check, said};

const PLAIN: &str = "[replication.security]\nmode = \"plain\"\n";

fn with(section: &str) -> String {
    assert!(GOOD.contains(PLAIN));
    GOOD.replace(PLAIN, section)
}

#[test]
fn plain_text_between_machines_must_be_asked_for() {
    let report = said(&with(""));
    assert!(report.contains("[replication]: 10.99.0.2:3781 receives everything in plain text"), "{report}");
    assert!(report.contains("mode = \"plain\" if nobody else can reach the link"), "{report}");
    let on_one_machine = with("").replace("10.99.0", "127.0.0");
    assert_eq!(said(&on_one_machine), "", "on one machine nobody else listens");
    assert!(check(GOOD).is_ok_and(|checked| checked.config.cluster.unwrap().replication.security.is_none()));
}

#[test]
fn keys_and_rotation_are_read() {
    let text = with(
        "[replication.security]\npre_shared_keys = [\"/a.key\", \"/b.key\"]\nrotate_interval = \"30s\"\n\
         rotate_datagrams = 1_000_000\n",
    );
    let security = check(&text).unwrap().config.cluster.unwrap().replication.security.unwrap();
    assert_eq!(security.pre_shared_keys.len(), 2);
    assert_eq!((security.rotation.interval.as_secs(), security.rotation.datagrams), (30, 1_000_000));
    assert!(security.certificates.is_none());
}

#[test]
fn certificates_need_a_key_an_authority_and_the_names_of_peers() {
    let section = "[replication.security]\ncertificate = \"/a.pem\"\nkey = \"/a.key\"\nauthority = \"/ca.pem\"\n";
    let report = said(&with(section));
    assert!(report.contains("replication peer 1: the name in the peer's certificate is missing"), "{report}");
    let named = with(section).replace("3781\"\n[failure", "3781\"\ncertificate_name = \"b.example\"\n[failure");
    let security = check(&named).unwrap().config.cluster.unwrap().replication.security.unwrap();
    assert_eq!(security.certificates.unwrap().peer_names, [(flow::NodeId(1), "b.example".to_owned())]);
    let report = said(&with("[replication.security]\ncertificate = \"/a.pem\"\n"));
    assert!(report.contains("certificate, key and authority go together"), "{report}");
}

#[test]
fn edges_need_a_pre_shared_key_or_a_decision() {
    let section = "[replication.security]\ncertificate = \"/a.pem\"\nkey = \"/a.key\"\nauthority = \"/ca.pem\"\n";
    let named = with(section).replace("3781\"\n[failure", "3781\"\ncertificate_name = \"b.example\"\n[failure");
    let edges =
        |more: &str| named.replace("interval = \"10ms\"", &format!("interval = \"10ms\"\nedges_max = 4\n{more}"));
    assert!(named != edges(""), "the section is there");
    let report = said(&edges(""));
    assert!(report.contains("edges authenticate themselves by a pre-shared key"), "{report}");
    assert!(report.contains("plain_edges = true"), "{report}");
    let plain = check(&edges("plain_edges = true\n")).expect("it is right").config.cluster.expect("there is a peer");
    assert!(plain.failure_detection.plain_edges);
    let keyed = edges("").replace(section, &(section.to_owned() + "pre_shared_keys = [\"/b.key\"]\n"));
    assert!(
        !check(&keyed).expect("it is right").config.cluster.expect("there is a peer").failure_detection.plain_edges
    );
}

#[test]
fn each_mistake_is_named() {
    let cases = [
        ("[replication.security]\n", "there is neither a pre-shared key nor a certificate"),
        ("[replication.security]\nmode = \"none\"\n", "write \"encrypted\" or \"plain\""),
        ("[replication.security]\nmode = \"plain\"\npre_shared_keys = [\"/a\"]\n", "yet keys are given: remove either"),
        ("[replication.security]\npre_shared_keys = [\"/a\", \"/a\"]\n", "\"/a\" is named twice"),
        ("[replication.security]\npre_shared_keys = [\"1\", \"2\", \"3\", \"4\", \"5\"]\n", "remove the oldest"),
        ("[replication.security]\npre_shared_keys = [\"/a\"]\nrotate_interval = \"1s\"\n", "from \"5s\" to \"1d\""),
        ("[replication.security]\npre_shared_keys = [\"/a\"]\nrotate_datagrams = 5\n", "from 10000 to 4294967296"),
    ];
    for (section, mistake) in cases {
        let report = said(&with(section));
        assert!(report.contains(mistake), "{section}: {report}");
    }
}

#[test]
fn what_encryption_does_not_go_with_is_refused() {
    let keys = "[replication.security]\npre_shared_keys = [\"/a\"]\n";
    let small =
        with(keys).replace("local = \"10.99.0.1:3781\"", "local = \"10.99.0.1:3781\"\ndatagram_bytes_max = 1030");
    assert!(said(&small).contains("write at least 1057"), "{}", said(&small));
}
