//! Looking into a running gateway, as an operator does: packets traced, frames captured, connections followed.

use std::fs::File;
use std::net::Ipv4Addr;
use std::process::{Output, Stdio};
use std::thread;

use crate::common::Host;
use crate::common::program::{Program, mainstay, wait_for, wait_until};
use flow::wire::build::{Envelope, Tcp};
use flow::wire::{MacAddress, ip_protocol, tcp_flags};
use flow::{Frame, PortId, Tuple};
use packet_io::PacketIo;
use packet_io::af_packet::{AfPacketIo, PortConfig};
use packet_io::netlink::Netlink;
use packet_io::pcap::CaptureReader;
use packet_io::signal::{self, Signal};

const CLIENT: Ipv4Addr = Ipv4Addr::new(10, 1, 0, 10);
const SERVER: Ipv4Addr = Ipv4Addr::new(198, 51, 100, 10);

const CONFIGURATION: &str = r#"
chain = ["firewall", "nat"]
[node]
id = 0
name = "a"
nodes = 1
control_socket = "CONTROL"
[workers]
count = WORKERS
[[port]]
name = "inside"
interface = "in0"
addresses = ["10.1.0.1/24"]
[[port]]
name = "outside"
interface = "out0"
addresses = ["198.51.100.1/24"]
[[firewall.rule]]
name = "no-telnet"
protocol = "tcp"
destination_ports = [23]
action = "drop"
[[firewall.rule]]
name = "out"
from = "inside"
action = "accept"
[[nat.source]]
source = ["10.1.0.0/24"]
to = ["198.51.100.1"]
"#;

/// A gateway that holds its addresses, alone, and the wire of the network inside.
struct Running {
    gateway: Program,
    wire: AfPacketIo,
    mac: MacAddress,
    /// The client's port in its next SYN.
    client_port: u16,
    host: Host,
}

impl Running {
    fn start(name: &str, workers: u8) -> Option<Self> {
        let host = Host::new(name)?;
        let gateway = host.start(&CONFIGURATION.replace("WORKERS", &workers.to_string()));
        let (wire, mac) = host.inside(|| {
            let mut netlink = Netlink::open().expect("netlink");
            ["in1", "out1"].iter().for_each(|end| netlink.set_up(end, true).expect("up"));
            let wire = AfPacketIo::open(&[PortConfig::new("in1")]).expect("a socket");
            (wire, MacAddress(netlink.interface("in0").expect("it is there").mac))
        });
        gateway.wait_for_role("active");
        Some(Self { gateway, wire, mac, client_port: 40_000, host })
    }

    /// A host inside begins another connection.
    fn send_syn(&mut self, port: u16) {
        let tuple = Tuple::v4(ip_protocol::TCP, (CLIENT, self.client_port), (SERVER, port));
        self.client_port += 1;
        let source = MacAddress([2, 0, 0, 0, 0, 0xc]);
        let envelope = Envelope { source, destination: self.mac, ..Envelope::default() };
        let segment = Tcp { flags: tcp_flags::SYN, sequence: 1000, window: 64_000, ..Tcp::default() };
        let mut bytes = envelope.tcp(&tuple, segment, b"");
        let length_bytes = bytes.len();
        let frame = Frame::new(&mut bytes, 0, length_bytes, PortId(0)).expect("it fits");
        // Should the wire be full, the next one passes.
        let _ = self.wire.transmit(PortId(0), &frame);
    }

    /// Runs a command that looks on, while SYNs to `port` come in until it has seen enough.
    fn look(&mut self, arguments: &[&str], port: u16) -> Output {
        let mut command = mainstay(arguments);
        command.arg("--socket").arg(self.gateway.socket());
        let mut looking = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().expect("it can be run");
        wait_for("the command to have seen enough", || {
            self.send_syn(port);
            looking.try_wait().expect("it is ours").is_some()
        });
        let output = looking.wait_with_output().expect("it has ended");
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
        output
    }
}

#[test]
fn a_packet_is_traced_from_the_wire_to_the_rule_that_drops_it() {
    for workers in [1, 2] {
        let Some(mut running) = Running::start("trace", workers) else { return };
        let traced = ["trace", "--source", "10.1.0.0/24", "--dropped", "firewall_denied", "--count", "1"];
        let output = running.look(&[&traced[..], &["--json"]].concat(), 23);
        let trace: serde_json::Value = serde_json::from_slice(&output.stdout).expect("one line of JSON");
        assert_eq!(
            (&trace["ingress"], &trace["packet"]["destination"]),
            (&"inside".into(), &"198.51.100.10:23".into())
        );
        assert_eq!(trace["outcome"], serde_json::json!({ "outcome": "dropped", "reason": "firewall_denied" }));
        let steps = trace["steps"].as_array().expect("steps");
        let firewall = steps.iter().find(|step| step["name"] == "firewall").expect("it was asked");
        assert_eq!(firewall["counted"], serde_json::json!(["rule/drop/no-telnet"]));

        let output = running.look(&traced, 23);
        let text = String::from_utf8(output.stdout).expect("it is text");
        assert!(text.contains("  inside  tcp 10.1.0.10:4"), "{text}");
        assert!(text.contains(" → 198.51.100.10:23 SYN seq 1000, ttl 64"), "{text}");
        assert!(text.contains("connection: drop: firewall_denied (rule no-telnet: drop)"), "{text}");
    }
}

#[test]
fn frames_are_captured_as_they_came_and_as_nat_made_them() {
    let Some(mut running) = Running::start("capture", 1) else { return };
    let file = running.host.folder.join("capture.pcapng");
    let write = file.to_string_lossy().into_owned();
    let mut capture = |at: &str, port: u16| {
        running.look(&["capture", "--at", at, "--source", "10.1.0.10", "--write", &write, "--count", "1"], port);
        let bytes = std::fs::read(&file).expect("it was written");
        let mut reader = CaptureReader::new(File::open(&file).expect("it was written")).expect("a capture");
        let mut frame = Vec::new();
        let record = reader.read(&mut frame).expect("it is whole").expect("a frame");
        assert!(reader.read(&mut Vec::new()).expect("it is whole").is_none(), "one alone");
        let source = Ipv4Addr::new(frame[26], frame[27], frame[28], frame[29]);
        (source, record.interface, bytes)
    };
    let (source, interface, _) = capture("ingress", 80);
    assert_eq!((source, interface), (CLIENT, 0));
    let (source, ..) = capture("after:nat", 80);
    assert_eq!(source, Ipv4Addr::new(198, 51, 100, 1));
    let (source, _, bytes) = capture("drop", 23);
    assert_eq!(source, CLIENT);
    let comment = b"dropped: firewall_denied";
    assert!(bytes.windows(comment.len()).any(|window| window == comment), "the reason stands beside the packet");
}

#[test]
fn a_capture_that_is_interrupted_has_all_frames_and_counts_them() {
    let Some(mut running) = Running::start("interrupt", 1) else { return };
    let file = running.host.folder.join("interrupted.pcapng");
    for signal in [Signal::Interrupt, Signal::Terminate] {
        let mut command = mainstay(&["capture", "--source", "10.1.0.10", "--duration", "1h", "--output"]);
        command.arg(&file).arg("--socket").arg(running.gateway.socket()).stderr(Stdio::piped());
        let capture = command.spawn().expect("it can be run");
        let frames = || {
            let mut reader = CaptureReader::new(File::open(&file).ok()?).ok()?;
            let mut frames = 0;
            while reader.read(&mut Vec::new()).ok()?.is_some() {
                frames += 1;
            }
            Some(frames)
        };
        wait_for("frames to be in the file while the capture runs", || {
            running.send_syn(80);
            frames() >= Some(2)
        });
        signal::send(capture.id(), signal).expect("it runs");
        let output = capture.wait_with_output().expect("it has ended");
        let said = String::from_utf8_lossy(&output.stderr).into_owned();
        assert!(output.status.success(), "{said}");
        let whole = frames().expect("the file is complete to its last block");
        assert_eq!(said, format!("{whole} frames captured\n"));
        std::fs::remove_file(&file).expect("it is ours");
    }
}

#[test]
fn a_connection_is_followed_as_it_begins_and_times_are_shown() {
    let Some(mut running) = Running::start("follow", 1) else { return };
    // A connection whose packets wait for a neighbour that does not answer still begins.
    let output = running.look(&["flows", "--follow", "--port", "80", "--limit", "1", "--json"], 80);
    let event: serde_json::Value = serde_json::from_slice(&output.stdout).expect("one line of JSON");
    assert_eq!((&event["change"], &event["flow"]["state"]), (&"began".into(), &"SYN_SENT".into()));
    assert_eq!(event["flow"]["original"]["destination"], "198.51.100.10:80");

    wait_for("a batch to be measured", || {
        running.send_syn(80);
        let samples = running.gateway.client().counters().expect("it answers");
        samples.iter().any(|sample| sample.name == "mainstay_batch_seconds_count" && sample.value > 0.0)
    });
    let socket = running.gateway.socket();
    let output = mainstay(&["status", "--latency", "--socket"]).arg(socket).output().expect("it can be run");
    let text = String::from_utf8(output.stdout).expect("it is text");
    assert!(text.contains("batch"), "{text}");

    // On a busy machine an interval may pass without a packet.
    let view = wait_until("a packet passes in an interval", || {
        let output = running.look(&["top", "--once", "--json", "--interval", "0.5"], 80);
        let view: serde_json::Value = serde_json::from_slice(&output.stdout).expect("it is JSON");
        if view["talkers"][0].is_null() { Err(view.to_string()) } else { Ok(view) }
    });
    assert_eq!((&view["role"], &view["talkers"][0]["destination"]), (&"active".into(), &"198.51.100.10:80".into()));
}

#[test]
fn a_reader_that_has_seen_enough_ends_the_command_quietly() {
    use std::io::Read;
    let Some(mut running) = Running::start("head", 1) else { return };
    let commands: [&[&str]; 4] = [
        &["trace", "--count", "1000000"],
        &["flows", "--follow"],
        &["capture", "--at", "ingress", "--write", "-", "--count", "1000000"],
        &["top", "--interval", "0.1"],
    ];
    for arguments in commands {
        let mut command = mainstay(arguments);
        command.arg("--socket").arg(running.gateway.socket());
        command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
        let mut child = command.spawn().expect("it can be run");
        let mut stdout = child.stdout.take().expect("it is a pipe");
        let reader = thread::spawn(move || stdout.read_exact(&mut [0; 20]).map(|()| drop(stdout)));
        wait_for("the command to end", || {
            running.send_syn(80);
            child.try_wait().expect("it is ours").is_some()
        });
        reader.join().expect("nothing panicked").expect("there is something to read");
        let output = child.wait_with_output().expect("it has ended");
        let said = String::from_utf8_lossy(&output.stderr).into_owned();
        assert!(output.status.success() && said.is_empty(), "{arguments:?}: {said}");
    }
}

#[test]
fn events_have_the_time_of_the_wall_clock() {
    let Some(running) = Running::start("events", 1) else { return };
    let events = running.gateway.client().events().expect("it answers");
    assert!(!events.is_empty());
    for event in &events {
        let time = event.time.as_bytes();
        assert!(event.time.starts_with("20") && time.len() == 27 && time[10] == b'T' && time[26] == b'Z', "{event:?}");
    }
    assert!(events.is_sorted_by_key(|event| &event.time), "{events:?}");
}
