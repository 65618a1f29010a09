//! What keeps a gateway from starting is said in one sentence that names it, and the process ends with a failure.

use std::fs;
use std::net::TcpListener;
use std::path::Path;
use std::process::Output;

use crate::common::program::Folder;
use crate::common::{Host, SOUND, gateway};
use packet_io::netlink::Netlink;
use packet_io::udp::{UdpOptions, UdpSocket};

/// The gateway's error when it cannot start. The check reports the same beforehand, for people and as JSON.
fn refusal(host: &Host, text: &str) -> String {
    let path = host.file(text);
    let (text, json) = host.inside(|| (check(&path, &[]), check(&path, &["--json"])));
    let refusal = host.inside(|| refusal_of(&path));
    let first = refusal.split(": ").next().unwrap_or_default();
    assert!(!text.status.success() && said(&text.stderr).contains(first), "{}", said(&text.stderr));
    assert!(!json.status.success());
    let json: serde_json::Value = serde_json::from_slice(&json.stdout).expect("one JSON object");
    let problems = json["problems"].as_array().expect("a list");
    let is_it = |problem: &&serde_json::Value| {
        problem["severity"] == "error" && problem["text"].as_str().is_some_and(|text| refusal.contains(text))
    };
    assert!(json["usable"] == false && problems.iter().any(|problem| is_it(&problem)), "{json:#}");
    refusal
}

fn check(path: &Path, more: &[&str]) -> Output {
    gateway(path).arg("--check").args(more).output().expect("the program is there")
}

fn said(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

/// The errors of a check that looks at the host.
fn errors(host: &Host, text: &str) -> String {
    let path = host.file(text);
    let checked = host.inside(|| check(&path, &[]));
    assert!(!checked.status.success(), "{}", said(&checked.stdout));
    let alone = host.inside(|| check(&path, &["--config-only"]));
    assert!(alone.status.success(), "the file itself is right: {}", said(&alone.stderr));
    said(&checked.stderr)
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
fn the_check_warns_of_interfaces_that_belong_to_a_bridge_or_lead_nowhere_else() {
    let Some(host) = Host::new("warned") else { return };
    host.inside(|| {
        let mut netlink = Netlink::open().expect("netlink");
        netlink.create_bridge("br0").expect("a bridge");
        netlink.attach_to_bridge("in0", "br0").expect("a port of it");
    });
    let path = host.file(&SOUND.replace("interface = \"out0\"", "interface = \"out0\"\nredirect_peer = true"));
    let json = host.inside(|| check(&path, &["--json"]));
    assert!(json.status.success(), "{}", said(&json.stdout));
    let json: serde_json::Value = serde_json::from_slice(&json.stdout).expect("one JSON object");
    for (key, part) in
        [("port inside", "in0 belongs to a bridge or bond"), ("port outside", "redirect_peer has no effect")]
    {
        let is_it = |problem: &serde_json::Value| {
            problem["key"] == key && problem["text"].as_str().is_some_and(|text| text.contains(part))
        };
        assert!(json["problems"].as_array().expect("a list").iter().any(is_it), "{part}: {json:#}");
    }
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
    let folder = Folder::new("mistake");
    let said = refusal_of(&folder.join("nowhere.toml"));
    assert!(said.contains("nowhere.toml"), "{said}");
    let path = folder.join("mistaken.toml");
    fs::write(&path, SOUND.replace("CONTROL", "/run/mainstay.sock").replace("id = 0", "id = 7"))
        .expect("a temporary file");
    let said = refusal_of(&path);
    assert!(said.contains("mistaken.toml:4:"), "{said}");
}

#[test]
fn a_host_that_has_all_is_found_to() {
    let Some(host) = Host::new("sound") else { return };
    let path = host.file(SOUND);
    let checked = host.inside(|| check(&path, &["--json"]));
    let json: serde_json::Value = serde_json::from_slice(&checked.stdout).expect("one JSON object");
    assert!(checked.status.success() && json["usable"] == true, "{json:#} {}", said(&checked.stderr));
    // Nothing was left behind that would keep it from starting: a second check finds the same.
    assert!(host.inside(|| check(&path, &[])).status.success());
}

#[test]
fn a_check_finds_all_that_the_host_lacks_at_once() {
    let Some(host) = Host::new("lacks") else { return };
    let _others = host.inside(|| {
        let udp = ["10.99.0.1:3781", "10.99.0.1:3784"].map(|address| {
            UdpSocket::bind(address.parse().expect("an address"), &UdpOptions::default()).expect("a free port")
        });
        let tcp = ["127.0.0.1:9464", "127.0.0.1:9465"].map(|address| TcpListener::bind(address).expect("a free port"));
        (udp, tcp)
    });
    let tokens = host.folder.join("tokens");
    let text = SOUND.replace("out0", "eth7").replace("nodes = 2", "nodes = 2\nmetrics = \"127.0.0.1:9464\"").replace(
        "[replication]\n",
        &format!("[control]\nlisten = \"127.0.0.1:9465\"\ntokens = {tokens:?}\n[replication]\n"),
    );
    let found = errors(&host, &text);
    for expected in [
        "port outside: there is no interface \"eth7\"",
        "replication.local: UDP port 3781 of 10.99.0.1 is taken",
        "failure_detection.local: UDP port 3784 of 10.99.0.1 is taken",
        "node.metrics: metrics cannot be served at 127.0.0.1:9464",
        "control.listen: control.listen: 127.0.0.1:9465",
        "[control]: cannot read",
    ] {
        assert!(found.contains(expected), "{expected}: {found}");
    }
    assert_eq!(found.lines().count(), 6, "{found}");
}

#[test]
fn a_shared_address_that_the_kernel_has_is_named_by_the_check() {
    use packet_io::netlink::{Netlink, Prefix};
    let Some(host) = Host::new("kernel") else { return };
    host.inside(|| {
        let mut netlink = Netlink::open().expect("netlink");
        netlink.add_address("in0", Prefix::new([10, 1, 0, 1].into(), 24)).expect("an address");
    });
    let found = errors(&host, SOUND);
    assert!(found.starts_with("port inside: the kernel has 10.1.0.1 on in0, too"), "{found}");
    assert!(found.trim_end().ends_with("ip address del 10.1.0.1/24 dev in0"), "{found}");
}

#[test]
fn files_of_keys_that_a_start_would_refuse_are_named_by_the_check() {
    use std::os::unix::fs::PermissionsExt;
    let Some(host) = Host::new("keys") else { return };
    let [open, missing, sound] = ["open.key", "missing.key", "sound.key"].map(|name| host.folder.join(name));
    let key = "0123456789abcdef".repeat(4);
    for (path, mode) in [(&open, 0o644), (&sound, 0o600)] {
        fs::write(path, &key).expect("a temporary file");
        fs::set_permissions(path, fs::Permissions::from_mode(mode)).expect("it is ours");
    }
    let with = |keys: &[&Path]| SOUND.replace("mode = \"plain\"", &format!("pre_shared_keys = {keys:?}"));
    let found = errors(&host, &with(&[&open, &missing]));
    assert!(found.contains(&format!("chmod 600 {}", open.display())), "{found}");
    assert!(found.contains(&format!("cannot read {}", missing.display())), "{found}");
    let path = host.file(&with(&[&sound]));
    let checked = host.inside(|| check(&path, &[]));
    assert!(checked.status.success(), "{}", said(&checked.stderr));
    // It is not of the user that the service runs as.
    let checked = host.inside(|| check(&path, &["--user", "54321"]));
    let found = said(&checked.stderr);
    assert!(!checked.status.success() && found.contains(&format!("chown 54321 {}", sound.display())), "{found}");
}

/// [`SOUND`] of three nodes behind edges, with the edges' secret in this file.
fn with_backups(key: &Path) -> String {
    let groups = "[[group]]\nname = \"one\"\n[[group]]\nname = \"two\"\n";
    let of_groups = |network: &str| {
        let of = |group: &str, last: u8| {
            format!("[[port.group]]\nname = \"{group}\"\naddresses = [\"{network}.{last}/24\"]\n")
        };
        of("one", 1) + &of("two", 2)
    };
    let text = SOUND
        .replace("nodes = 2", "nodes = 3")
        .replacen("[[port]]", &format!("{groups}[[port]]"), 1)
        .replace("addresses = [\"10.1.0.1/24\"]\n", &of_groups("10.1.0"))
        .replace("addresses = [\"198.51.100.1/24\"]\n", &of_groups("198.51.100"));
    format!(
        "{text}[[replication.peer]]\nid = 2\naddress = \"10.99.0.2:3782\"\n\
         [replication.backups]\nedge_hash_key = {key:?}\n[failure_detection]\nedges_max = 4\n"
    )
}

#[test]
fn all_files_of_secrets_and_certificates_that_a_start_reads_are_read_by_the_check() {
    let Some(host) = Host::new("files") else { return };
    let missing = host.folder.join("missing");
    let named = format!("cannot read {}", missing.display());
    let found = errors(&host, &with_backups(&missing));
    assert!(found.contains("replication.backups.edge_hash_key") && found.contains(&named), "{found}");

    let etcd = "[membership]\nsource = \"etcd\"\nendpoints = [\"https://10.99.0.2:2379\"]\n";
    let found = errors(&host, &format!("{SOUND}{etcd}authority = {missing:?}\n"));
    assert!(found.contains(&format!("membership: {}", missing.display())), "{found}");

    let service = "[[service]]\nname = \"web\"\naddress = \"198.51.100.1\"\nprotocol = \"tcp\"\nports = [443]\n\
         [[service.backend]]\naddress = \"10.1.0.5:8443\"\n[service.check]\nkind = \"https\"\n\
         server_name = \"web.example\"\nsource = \"10.99.0.1\"\n";
    let balancing = SOUND.replace("chain = [\"firewall\"]", "chain = [\"firewall\", \"load_balancer\"]");
    let found = errors(&host, &format!("{balancing}{service}authorities = {missing:?}\n"));
    assert!(found.contains(&named), "{found}");
}

#[test]
fn where_a_gateway_runs_the_check_names_it_and_not_its_ports() {
    let Some(host) = Host::new("running") else { return };
    let _other = host.inside(|| std::os::unix::net::UnixListener::bind(host.control_socket()).expect("a free name"));
    let found = errors(&host, SOUND);
    assert!(found.contains("another gateway answers at") && found.contains("reload --check "), "{found}");
    assert_eq!(found.lines().count(), 1, "{found}");
}

#[test]
fn a_wrong_file_is_one_json_object_with_all_its_problems() {
    let folder = Folder::new("problems");
    let path = folder.join("mistaken.toml");
    let text = SOUND.replace("CONTROL", "/run/mainstay.sock").replace("id = 0", "id = 7\nmetricss = \"x\"");
    fs::write(&path, text.replace("action = \"accept\"", "action = 3")).expect("a temporary file");
    let checked = check(&path, &["--config-only", "--json"]);
    let json: serde_json::Value = serde_json::from_slice(&checked.stdout).expect("one JSON object");
    assert!(!checked.status.success() && json["usable"] == false);
    let place = |problem: &serde_json::Value| (problem["line"].as_u64(), problem["key"].as_str().map(str::to_owned));
    let places: Vec<_> = json["problems"].as_array().expect("a list").iter().map(place).collect();
    let place = |line: u64, key: &str| (Some(line), Some(key.to_owned()));
    for expected in [place(4, "node.id"), place(5, "syntax"), place(20, "syntax")] {
        assert!(places.contains(&expected), "{places:?}");
    }
    assert_eq!(json["problems"][1]["remedy"], "did you mean `metrics`? If not, remove it", "{json:#}");
}
