//! What becomes of configurations of conntrackd.

use proptest::prelude::*;

use super::parse::SyntaxError;
use super::translate::Translation;
use super::{parse, translate, write};
use config::sync::SyncConfig;
use config::sync::validated::{ConntrackdPeer, Injection};
use flow::netfilter::TcpState;

fn translated(text: &str) -> Translation {
    translate(text).expect("conntrackd would read it").expect("it has a Sync section")
}

fn imported(text: &str) -> (SyncConfig, Translation) {
    let translation = translated(text);
    let file = write::toml(&translation, "conntrackd.conf");
    let checked = config::sync::parse("imported.toml", &file).unwrap_or_else(|error| panic!("{error}\n{file}"));
    (checked.config, translation)
}

fn has_remark(translation: &Translation, line: usize, text: &str) -> bool {
    translation.remarks.iter().any(|remark| remark.line == line && remark.text.contains(text))
}

/// Where Debian's package of conntrackd has its examples.
const EXAMPLES: &str = "/usr/share/doc/conntrackd/examples";

#[test]
fn every_example_of_the_package_is_translated_or_has_nothing_to_replicate() {
    let mut imported_files = 0;
    for name in ["sync/ftfw", "sync/alarm", "sync/notrack", "stats"] {
        let path = format!("{EXAMPLES}/{name}/conntrackd.conf");
        let Ok(text) = std::fs::read_to_string(&path) else {
            packet_io::namespace::skip(format_args!("{path} is not there: install the package conntrackd"));
            continue;
        };
        if name == "stats" {
            assert_eq!(translate(&text).expect("conntrackd would read it"), None, "{name}");
            continue;
        }
        let translation = translated(&text);
        let file = write::toml(&translation, &path);
        match config::sync::parse("imported.toml", &file) {
            Ok(checked) => {
                let addresses = &checked.config.filter.ignore[0].addresses;
                assert!(
                    addresses.contains(&"192.168.0.100/32".parse().unwrap()),
                    "an address that the nodes share: {file}"
                );
                assert_eq!(checked.config.filter.protocols, Some(vec![6, 132]), "{file}");
                assert_eq!(checked.config.conntrackd.is_some(), name == "sync/ftfw", "{file}");
            }
            // A group does not name the other node, which the native protocol needs.
            Err(error) => {
                assert!(name != "sync/ftfw", "{error}\n{file}");
                assert!(error.to_string().lines().all(|line| line.contains("there is no peer")), "{error}\n{file}");
            }
        }
        imported_files += 1;
    }
    println!("{imported_files} files imported");
}

#[test]
fn a_filter_of_the_kernels_is_said_to_look_at_other_addresses() {
    let text = UNICAST.replace("From Userspace", "From Kernelspace");
    assert!(has_remark(&translated(&text), 29, "two end points"), "{:?}", translated(&text).remarks);
    assert!(!translated(UNICAST).remarks.iter().any(|remark| remark.text.contains("end points")));
}

const UNICAST: &str = "\
Sync {
    Mode FTFW {
        ResendQueueSize 65536
        ACKWindowSize 200
        DisableExternalCache yes
        CommitTimeout 180
    }
    UDP {
        IPv4_address 172.16.0.2
        IPv4_Destination_Address 172.16.0.1
        Port 3790
        Interface eth3
        SndSocketBuffer 1249280
        Checksum on
    }
    Options {
        TCPWindowTracking On
        ExpectationSync {
            ftp
        }
    }
}
General {
    Systemd on
    HashLimit 262144
    LockFile /var/lock/conntrack.lock   # one only
    NetlinkBufferSize 4194304
    NetlinkBufferSizeMaxGrowth 16777216
    Filter From Userspace {
        Protocol Accept { TCP UDP IPv6-ICMP }
        Address Ignore {
            IPv4_address 127.0.0.1 # loopback
            IPv4_address 192.168.0.1/24
            IPv6_address ::1
        }
        State Accept {
            ESTABLISHED CLOSED TIME_WAIT CLOSE_WAIT for TCP
        }
    }
}
";

#[test]
fn a_unicast_pair_goes_on_talking_with_its_conntrackd() {
    let (config, translation) = imported(UNICAST);
    let conntrackd = config.conntrackd.expect("it is spoken with");
    assert_eq!(conntrackd.local.to_string(), "172.16.0.2:3790");
    assert_eq!(conntrackd.peer, ConntrackdPeer::Unicast("172.16.0.1:3790".parse().unwrap()));
    assert_eq!((conntrackd.ack_window_messages, conntrackd.resend_queue_max), (200, 65_536));
    assert_eq!((conntrackd.interface.as_deref(), conntrackd.window_tracking), (Some("eth3"), true));
    assert_eq!(
        (config.node.id.0, conntrackd.peer_id.0),
        (1, 0),
        "both nodes number themselves alike, by their addresses"
    );
    assert_eq!((config.kernel.injection, config.kernel.expectations), (Injection::Direct, true));
    assert_eq!(config.kernel.connections_max, 262_144);
    assert_eq!((config.kernel.receive_buffer_bytes, config.kernel.receive_buffer_bytes_max), (4 << 20, 16 << 20));
    assert_eq!(config.filter.protocols, Some(vec![6, 17, 58]));
    let states = [TcpState::Established, TcpState::CloseWait, TcpState::TimeWait, TcpState::Close];
    assert_eq!(config.filter.tcp_states, states);
    let ignored: Vec<String> = config.filter.ignore[0].addresses.iter().map(ToString::to_string).collect();
    assert_eq!(ignored, ["127.0.0.1/32", "192.168.0.0/24", "::1/128"]);
    assert!(has_remark(&translation, 6, "not needed"), "{:?}", translation.remarks);
    assert!(has_remark(&translation, 18, "of all helpers"));
    assert!(has_remark(&translation, 33, "beyond the prefix length"), "{:?}", translation.remarks);
    assert!(!translation.remarks.iter().any(|remark| remark.line == 5), "nothing is lost with the cache");
}

#[test]
fn a_group_is_joined_and_the_missing_peer_reported() {
    let text = "Sync {\n Mode FTFW {\n }\n Multicast {\n IPv4_address 225.0.0.50\n Group 3780\n \
                IPv4_interface 192.168.100.100\n Interface eth2\n Checksum on\n }\n Multicast Default {\n \
                IPv4_address 225.0.0.51\n Group 3781\n IPv4_interface 192.168.101.100\n Interface eth3\n }\n}\n";
    let (config, translation) = imported(text);
    let conntrackd = config.conntrackd.expect("it is spoken with");
    assert_eq!(conntrackd.peer, ConntrackdPeer::Multicast("225.0.0.51:3781".parse().unwrap()), "the default link");
    assert_eq!(conntrackd.local.to_string(), "192.168.101.100:3781");
    assert!(has_remark(&translation, 4, "bond"), "{:?}", translation.remarks);
    assert!(has_remark(&translation, 2, "nothing to commit"));
}

#[test]
fn unsupported_modes_become_a_native_pair_with_a_remark() {
    for (mode, transport) in [("ALARM { RefreshTime 15 \n CacheTimeout 180 }", "UDP"), ("NOTRACK {}", "TCP")] {
        let text = format!(
            "Sync {{\n Mode {mode}\n {transport} {{\n IPv6_address fd00::1\n IPv6_Destination_Address fd00::2\n Port 3781\n }}\n}}"
        );
        let (config, translation) = imported(&text);
        let native = config.replication.expect("the only way that is left").replication;
        assert_eq!(native.local.to_string(), "[fd00::1]:3782", "beside conntrackd's port");
        assert_eq!(native.peers[0].address.to_string(), "[fd00::2]:3782");
        assert!(native.security.is_some() && config.conntrackd.is_none());
        assert!(has_remark(&translation, 2, "only FTFW is spoken"), "{:?}", translation.remarks);
    }
}

#[test]
fn nothing_is_left_out_in_silence() {
    let text = "Sync {\n Mode FTFW { Unheard Of }\n UDP {\n IPv4_address 10.0.0.1\n IPv4_Destination_Address 10.0.0.2\n \
                Port high\n Colour blue\n }\n}\nGeneral {\n Nice -20\n HashLimit many\n Filter {\n Protocol Ignore { DCCP \
                SCTP 99x }\n Address Accept { IPv4_address nowhere }\n Colour Accept { blue }\n Address {}\n }\n PollSecs 15\n}\nStats {\n}\n";
    let (config, translation) = imported(text);
    let expected = [
        (2, "not known"),
        (6, "not a port"),
        (7, "not known"),
        (11, "Nice="),
        (12, "not a number"),
        (14, "DCCP"),
        (14, "protocol is not known"),
        (15, "not an address"),
        (16, "not known"),
        (17, "neither Accept nor Ignore"),
        (19, "never by polling"),
        (21, "not translated"),
    ];
    for (line, text) in expected {
        assert!(has_remark(&translation, line, text), "{line} {text}: {:#?}", translation.remarks);
    }
    assert_eq!(config.filter.ignore[0].protocol, Some(132));
    let file = write::toml(&translation, "conntrackd.conf");
    for remark in &translation.remarks {
        assert!(file.contains(&remark.text), "{} is not in the file", remark.text);
    }
}

#[test]
fn what_is_no_configuration_is_refused_with_its_place() {
    let problem = |text: &str| parse::parse(text).expect_err(text);
    assert_eq!(problem("Sync {\n}\n}\n").line, 3);
    assert_eq!(problem("Sync {\n Mode FTFW {\n").line, 2);
    assert_eq!(problem("{\n").line, 1);
    assert!(matches!(problem(&"a {".repeat(100)), SyntaxError { line: 1, .. }));
    assert_eq!(translate("General {\n}\n"), Ok(None), "nothing is replicated");
}

#[test]
fn a_brace_may_stand_on_a_line_of_its_own() {
    let statements = parse::parse("Sync\n{\n Mode \"FTFW\"\n {\n }\n}\n").expect("it is read");
    assert_eq!(statements[0].find("Mode").map(parse::Statement::value), Some("FTFW"));
}

/// Configurations that are nearly right.
fn nearly() -> impl Strategy<Value = String> {
    let word = prop_oneof![
        Just("Sync".to_owned()),
        Just("General".to_owned()),
        Just("Mode".to_owned()),
        Just("FTFW".to_owned()),
        Just("NOTRACK".to_owned()),
        Just("Multicast".to_owned()),
        Just("UDP".to_owned()),
        Just("Default".to_owned()),
        Just("IPv4_address".to_owned()),
        Just("IPv4_Destination_Address".to_owned()),
        Just("IPv4_interface".to_owned()),
        Just("10.0.0.1".to_owned()),
        Just("10.0.0.2/8".to_owned()),
        Just("225.0.0.50".to_owned()),
        Just("::1".to_owned()),
        Just("Filter".to_owned()),
        Just("Protocol".to_owned()),
        Just("Address".to_owned()),
        Just("State".to_owned()),
        Just("Accept".to_owned()),
        Just("Ignore".to_owned()),
        Just("TCP".to_owned()),
        Just("ESTABLISHED".to_owned()),
        Just("for".to_owned()),
        Just("Interface".to_owned()),
        Just("Port".to_owned()),
        Just("Group".to_owned()),
        Just("HashLimit".to_owned()),
        Just("NetlinkBufferSizeMaxGrowth".to_owned()),
        Just("NetlinkBufferSize".to_owned()),
        Just("ACKWindowSize".to_owned()),
        Just("ResendQueueSize".to_owned()),
        Just("Options".to_owned()),
        Just("TCPWindowTracking".to_owned()),
        Just("ExpectationSync".to_owned()),
        Just("on".to_owned()),
        Just("{".to_owned()),
        Just("{".to_owned()),
        Just("}".to_owned()),
        Just("}".to_owned()),
        Just("\n".to_owned()),
        Just("\n".to_owned()),
        Just("\n".to_owned()),
        any::<u64>().prop_map(|number| number.to_string()),
        "\\PC{0,8}",
    ];
    prop::collection::vec(word, 0..60).prop_map(|words| words.join(" "))
}

proptest! {
    /// The translation of any file can be read, apart from the one thing that the operator has to fill in.
    #[test]
    fn what_is_written_can_be_read(inner in nearly(), general in nearly()) {
        for text in [inner.clone(), format!("Sync {{\n{inner}\n}}\nGeneral {{\n{general}\n}}\n")] {
            let Ok(Some(translation)) = translate(&text) else { continue };
            let file = write::toml(&translation, &text);
            if let Err(error) = config::sync::parse("imported.toml", &file) {
                let lines = error.to_string();
                prop_assert!(lines.lines().all(|line| line.contains("there is no peer")), "{lines}\n{file}");
            }
        }
    }

    #[test]
    fn no_text_makes_the_reader_panic(text in "(\\PC|\n|[{}#\"]){0,200}") {
        if let Ok(Some(translation)) = translate(&text) {
            let file = write::toml(&translation, "conntrackd.conf");
            prop_assert!(!file.is_empty());
        }
    }
}
