//! What keeps a gateway from starting is said in one sentence that names it, and the process ends with a failure.

mod common;

use std::fs;
use std::net::TcpListener;
use std::path::Path;
use std::process::Output;

use common::{Host, SOUND, gateway};
use packet_io::udp::{UdpOptions, UdpSocket};

/// What the gateway says when it cannot start.
fn refusal(host: &Host, text: &str) -> String {
    let path = host.file(text);
    host.inside(|| refusal_of(&path))
}

fn refusal_of(path: &Path) -> String {
    let Output { status, stderr, .. } = gateway(path).output().expect("the program is there");
    assert!(!status.success());
    let text = String::from_utf8(stderr).expect("text");
    let last = text.trim_end().lines().last().unwrap_or_default().to_owned();
    assert!(!last.contains("panicked"), "{text}");
    last
}

#[test]
fn an_interface_that_is_not_there_is_named() {
    let Some(host) = Host::new("interface") else { return };
    let said = refusal(&host, &SOUND.replace("out0", "eth7"));
    assert!(said.starts_with("there is no interface \"eth7\""), "{said}");
}

#[test]
fn an_address_that_no_interface_has_is_named() {
    let Some(host) = Host::new("address") else { return };
    let said = refusal(&host, &SOUND.replace("10.99.0.1", "10.98.0.1"));
    assert!(said.contains("no interface of this network namespace has the address 10.98.0.1"), "{said}");
}

#[test]
fn a_replication_port_that_is_taken_is_named() {
    let Some(host) = Host::new("port") else { return };
    let address = "10.99.0.1:3781".parse().expect("an address");
    let _other = host.inside(|| UdpSocket::bind(address, &UdpOptions::default()).expect("a free port"));
    let said = refusal(&host, SOUND);
    assert!(said.starts_with("UDP port 3781 of 10.99.0.1 is taken by another program"), "{said}");
}

#[test]
fn a_metrics_port_that_is_taken_is_named() {
    let Some(host) = Host::new("metrics") else { return };
    let _other = host.inside(|| TcpListener::bind("127.0.0.1:9464").expect("a free port"));
    let said = refusal(&host, &SOUND.replace("nodes = 2", "nodes = 2\nmetrics = \"127.0.0.1:9464\""));
    assert!(said.contains("127.0.0.1:9464") && said.contains("node.metrics"), "{said}");
}

#[test]
fn a_missing_file_and_a_mistake_in_it_are_named() {
    let folder = std::env::temp_dir().join(format!("mainstay-mistake-{}", std::process::id()));
    fs::create_dir_all(&folder).expect("a temporary directory");
    let said = refusal_of(&folder.join("nowhere.toml"));
    assert!(said.contains("nowhere.toml"), "{said}");
    let path = folder.join("mistaken.toml");
    fs::write(&path, SOUND.replace("CONTROL", "/run/mainstay.sock").replace("id = 0", "id = 7"))
        .expect("a temporary file");
    let said = refusal_of(&path);
    assert!(said.contains("mistaken.toml:4:"), "{said}");
    fs::remove_dir_all(&folder).expect("it is ours");
}
