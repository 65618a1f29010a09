//! The program as an operator runs it: what it prints, where, and with which status it ends.

use std::fs;
use std::path::Path;
use std::process::{Command, Output};

fn mainstay(arguments: &[&str]) -> Output {
    let directory = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    Command::new(env!("CARGO_BIN_EXE_mainstay"))
        .args(arguments)
        .current_dir(directory)
        .output()
        .expect("the program can be run")
}

fn text(bytes: &[u8]) -> &str {
    std::str::from_utf8(bytes).expect("it is text")
}

#[test]
fn a_right_configuration_is_summed_up() {
    let output = mainstay(&["gateway", "--config", "examples/active.toml", "--check", "--config-only"]);
    assert_eq!(text(&output.stderr), "");
    assert_eq!(
        text(&output.stdout),
        "examples/active.toml: right. Node 0 of 2: 2 ports, 2 routes, 3 firewall rules, 3 translations, 1 peer.\n"
    );
    assert!(output.status.success());
}

#[test]
fn a_conntrackd_is_followed_up_by_what_its_configuration_becomes() {
    let folder = std::env::temp_dir().join(format!("mainstay-import-{}", std::process::id()));
    std::fs::create_dir_all(&folder).expect("a temporary directory");
    let (old, new) = (folder.join("conntrackd.conf"), folder.join("sync.toml"));
    let written = "Sync {\n Mode FTFW {\n }\n UDP {\n  IPv4_address 10.0.0.1\n  IPv4_Destination_Address 10.0.0.2\n }\n}\n\
                General {\n PollSecs 15\n}\n";
    std::fs::write(&old, written).expect("a temporary file");
    let output = mainstay(&["sync", "import", &old.to_string_lossy()]);
    assert!(output.status.success());
    let remarks = text(&output.stderr);
    assert!(remarks.contains("conntrackd.conf:10: PollSecs 15: not translated"), "{remarks}");
    std::fs::write(&new, &output.stdout).expect("a temporary file");
    let output = mainstay(&["sync", "--check", "--config-only", "--config", &new.to_string_lossy()]);
    let summary = text(&output.stdout);
    assert!(summary.contains("right. Node 0: 1 peer, 0 filters; one peer is conntrackd."), "{summary}");
    let output = mainstay(&["sync", "import", &new.to_string_lossy()]);
    assert!(!output.status.success());
    let shipped = std::path::Path::new("/usr/share/doc/conntrackd/examples/sync");
    for mode in ["ftfw", "alarm", "notrack"] {
        let path = shipped.join(mode).join("conntrackd.conf");
        if !path.exists() {
            packet_io::namespace::skip("conntrackd's examples are not installed");
            continue;
        }
        let output = mainstay(&["sync", "import", &path.to_string_lossy()]);
        assert!(output.status.success(), "{}", text(&output.stderr));
        let file = text(&output.stdout);
        assert_eq!(file.contains("\n[conntrackd]\n"), mode == "ftfw", "{file}");
        assert!(file.contains("192.168.100.100:37"), "{file}");
    }
    std::fs::remove_dir_all(&folder).expect("it is ours");
}

#[test]
fn what_the_host_can_do_is_listed_port_by_port() {
    let output = mainstay(&["gateway", "--config", "examples/active.toml", "--check", "--json"]);
    let host: serde_json::Value = serde_json::from_slice(&output.stdout).expect("JSON");
    assert_eq!(host["ports"].as_array().map(Vec::len), Some(2));
    for port in host["ports"].as_array().expect("an array") {
        assert_eq!(port["backend"], "af_packet");
        // An interface that this machine does not have is named as such.
        let is_named = host["problems"].as_array().expect("an array").iter().any(|problem| {
            problem["text"].as_str().is_some_and(|text| text.contains(port["interface"].as_str().expect("a name")))
        });
        assert!(port["exists"] == true || is_named, "{host}");
    }
    assert_eq!(output.status.success(), host["usable"] == true, "{host}");
}

#[test]
fn a_wrong_configuration_is_reported_on_standard_error() {
    let output = mainstay(&["gateway", "--config", "Cargo.toml", "--check"]);
    assert_eq!(text(&output.stdout), "");
    let error = text(&output.stderr);
    assert!(error.starts_with("Cargo.toml:") && error.contains(": syntax: unknown field `"), "{error}");
    assert_eq!(output.status.code(), Some(1));
}

#[test]
fn asking_a_gateway_that_is_not_there_ends_with_one_sentence() {
    for command in ["status", "flows"] {
        let output = mainstay(&[command, "--socket", "/nonexistent/socket", "--json"]);
        assert_eq!(text(&output.stdout), "");
        assert_eq!(
            text(&output.stderr),
            "no gateway answers at /nonexistent/socket: is it running? (mainstay gateway --config …)\n"
        );
        assert_eq!(output.status.code(), Some(3));
    }
}

#[test]
fn a_mistyped_command_ends_with_status_2() {
    for line in [&["gatewya"][..], &["trace", "--duration", "5"], &["man", "gatewya"], &["--color", "red", "status"]] {
        let output = mainstay(line);
        assert_eq!((output.status.code(), text(&output.stdout)), (Some(2), ""), "{line:?}");
        assert!(!output.stderr.is_empty(), "{line:?}");
    }
}

#[test]
fn asking_a_sync_daemon_that_is_not_there_names_it() {
    for command in ["status", "flows", "events"] {
        let output = mainstay(&["sync", command, "--socket", "/nonexistent/socket"]);
        let error = text(&output.stderr);
        assert!(error.starts_with("no mainstay sync answers at /nonexistent/socket"), "{error}");
        assert_eq!(output.status.code(), Some(3));
    }
}

#[test]
fn the_help_names_groups_and_exit_codes_and_goes_to_standard_output() {
    let output = mainstay(&["--help"]);
    let help = text(&output.stdout);
    assert!(output.status.success() && output.stderr.is_empty());
    for part in
        ["Run:\n  gateway ", "Inspect:\n  status ", "Operate:\n  reload ", "Plan:\n  replay ", "  3  the gateway"]
    {
        assert!(help.contains(part), "{part:?}: {help}");
    }
    assert!(!help.contains('\x1b') && !help.contains("  bench "), "{help}");
    assert!(text(&mainstay(&["--color", "always", "--help"]).stdout).contains("\x1b["));
    // Without any command the help is what is wrong.
    let output = mainstay(&[]);
    assert_eq!((output.status.code(), text(&output.stdout)), (Some(2), ""));
    assert!(text(&output.stderr).contains("Inspect:\n"));
}

#[test]
fn failures_are_red_only_where_colors_are_asked_for() {
    let failure = |arguments: &[&str]| {
        text(&mainstay(&[&["status", "--socket", "/nonexistent/socket"], arguments].concat()).stderr).to_owned()
    };
    assert!(failure(&["--color", "always"]).starts_with("\x1b[31mno gateway answers"));
    assert!(failure(&[]).starts_with("no gateway answers"), "standard error is no terminal");
    assert!(failure(&["--color", "never"]).starts_with("no gateway answers"));
}

#[test]
fn completions_and_manual_pages_know_every_command() {
    for shell in ["bash", "zsh", "fish"] {
        let output = mainstay(&["completions", shell]);
        let script = text(&output.stdout);
        assert!(output.status.success() && script.contains("undrain") && script.contains("snapshot-bytes"), "{shell}");
    }
    let page = mainstay(&["man"]);
    let page = text(&page.stdout);
    assert!(page.contains(".SH \"EXIT STATUS\"") && page.contains("undrain"), "{page}");
    let page = mainstay(&["man", "sync", "ready"]);
    let page = text(&page.stdout);
    assert!(page.contains("mainstay\\-sync\\-ready") && page.contains(".SH \"EXIT STATUS\""), "{page}");
}

#[test]
fn a_package_has_the_program_its_units_completions_and_manual_pages() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    let folder = std::env::temp_dir().join(format!("mainstay-package-{}", std::process::id()));
    let mut install = Command::new("sh");
    install.arg(root.join("packaging/install.sh")).arg(env!("CARGO_BIN_EXE_mainstay")).env("DESTDIR", &folder);
    let output = install.output().expect("there is a shell");
    assert!(output.status.success(), "{}", text(&output.stderr));
    let files = [
        "bin/mainstay",
        "lib/systemd/system/mainstay.service",
        "lib/systemd/system/mainstay-sync.service",
        "share/bash-completion/completions/mainstay",
        "share/zsh/site-functions/_mainstay",
        "share/fish/vendor_completions.d/mainstay.fish",
        "share/man/man1/mainstay.1",
        "share/man/man1/mainstay-sync-ready.1",
        "share/doc/mainstay/examples/active.toml",
    ];
    for file in files {
        let size = fs::metadata(folder.join("usr").join(file)).unwrap_or_else(|error| panic!("{file}: {error}")).len();
        assert!(size > 0, "{file} is empty");
    }
    fs::remove_dir_all(folder).expect("it is ours");
}

#[test]
fn more_failures_than_a_simulated_cluster_has_nodes_end_with_status_2_and_a_remedy() {
    let output = mainstay(&["simulate", "--nodes", "6", "--failures", "5"]);
    assert_eq!(output.status.code(), Some(2));
    assert!(text(&output.stderr).contains("choose 1 to 4"), "{}", text(&output.stderr));
}

/// Of commands that need neither privileges nor a gateway, those that take `--json`.
#[test]
fn json_is_one_object_on_standard_output_and_all_else_is_on_standard_error() {
    let folder = std::env::temp_dir().join(format!("mainstay-json-{}", std::process::id()));
    std::fs::create_dir_all(&folder).expect("a temporary directory");
    let capture = folder.join("made.pcap").to_string_lossy().into_owned();
    let synthesize = |output: &str| {
        let options = ["--duration", "1s", "--connections-per-second", "100", "--json", "--output", output];
        mainstay(&[&["lab", "synthesize", "replication"][..], &options].concat())
    };
    let object = |output: &Output| {
        let json: serde_json::Value = serde_json::from_slice(&output.stdout).expect("one JSON value");
        assert!(output.status.success() && json.is_object(), "{json} {}", text(&output.stderr));
    };
    object(&synthesize(&capture));
    // Where the capture is on standard output the object is not.
    let piped = synthesize("-");
    assert!(piped.stdout.starts_with(&0xa1b2_3c4d_u32.to_le_bytes()));
    assert!(serde_json::from_slice::<serde_json::Value>(&piped.stderr).expect("JSON").is_object());
    let lines = [
        &["gateway", "--config", "examples/active.toml", "--check", "--config-only", "--json"][..],
        &["sync", "--config", "examples/sync-left.toml", "--check", "--config-only", "--json"],
        &["replay", &capture, "--config", "examples/active.toml", "--json"],
        &["study", "replication", &capture, "--connections", "2000", "--methods", "precise-eager", "--json"],
        &["study", "redundancy", &capture, "--quick", "--cache-megabytes", "1", "--json"],
        &["lab", "simulate", "--seeds", "2", "--json"],
        &["simulate", "--seed", "1", "--json"],
        &["simulate", "--nodes", "6", "--failures", "2", "--connections", "300", "--json"],
    ];
    for line in lines {
        object(&mainstay(line));
    }
    std::fs::remove_dir_all(&folder).expect("it is ours");
}

/// What a measurement reports, or `None` (said aloud) where the machine forbids namespaces.
fn measured(arguments: &[&str]) -> Option<serde_json::Value> {
    let support = packet_io::namespace::probe();
    if let packet_io::namespace::NamespaceSupport::Forbidden(why) = support {
        packet_io::namespace::skip(format_args!("{why}"));
        return None;
    }
    let output = mainstay(arguments);
    assert!(output.status.success(), "{}", text(&output.stderr));
    Some(serde_json::from_slice(&output.stdout).expect("it is JSON"))
}

#[test]
fn bulk_data_is_measured_through_a_node_and_through_the_kernel() {
    let Some(report) = measured(&["bench", "bulk", "--seconds", "0.2", "--rounds", "1", "--json"]) else { return };
    for case in ["offload_1", "offload_4", "no_offload_1"] {
        let figures = &report["gbit_per_s"][case];
        let [mainstay, kernel] = ["mainstay", "kernel"].map(|side| figures[side].as_f64().expect("a figure"));
        assert!(mainstay > 0.0 && kernel > 0.0, "{report}");
        assert!((report["ratio"][case].as_f64().expect("a figure") - mainstay / kernel).abs() < 0.1, "{report}");
    }
}

#[test]
fn connections_a_second_are_measured_with_replication_and_without() {
    let arguments = ["bench", "setup-rate", "--seconds", "0.2", "--rounds", "1", "--in-flight", "16", "--json"];
    let Some(report) = measured(&arguments) else { return };
    for side in ["replication_on", "replication_off"] {
        assert!(report["per_s"][side].as_f64().expect("a figure") > 0.0, "{report}");
        assert!(report["cpu_us_per_connection"][side]["active"].as_f64().expect("a figure") > 0.0, "{report}");
    }
    assert!(report["per_s"]["kernel_nft"].as_f64().expect("a figure") > 0.0, "{report}");
    assert!(report["ratio_kernel"].as_f64().expect("a figure") > 0.0, "{report}");
}

#[test]
fn a_capture_is_replayed_and_what_the_gateway_sends_is_written() {
    use flow::wire::build::{self, Tcp};
    use flow::wire::tcp_flags;
    use packet_io::pcap::{CaptureReader, PcapWriter};

    let folder = std::env::temp_dir().join(format!("mainstay-replay-{}", std::process::id()));
    std::fs::create_dir_all(&folder).expect("a temporary directory");
    let (capture, written) = (folder.join("in.pcap"), folder.join("out.pcapng"));
    let syn = |source: &str, destination: &str| {
        let tuple = flow::Tuple::new(6, source.parse().expect("an address"), destination.parse().expect("an address"));
        build::tcp(&tuple, Tcp { flags: tcp_flags::SYN, sequence: 1, window: 8192, ..Tcp::default() }, b"")
    };
    let file = std::fs::File::create(&capture).expect("a temporary file");
    let mut writer = PcapWriter::new(file).expect("there is room");
    // The example's office lets its own hosts out, and no host in.
    let packets = [syn("10.0.0.5:40000", "203.0.113.9:443"), syn("203.0.113.9:40000", "10.0.0.5:443")];
    for (second, packet) in (1_700_000_000..).zip(&packets) {
        writer.write(flow::Instant::from_millis(1000 * second), packet).expect("there is room");
    }
    writer.finish().expect("there is room");

    let replay = |capture: &Path, more: &[&str]| {
        let capture = capture.to_string_lossy();
        mainstay(&[&["replay", &capture, "--config", "examples/active.toml"], more].concat())
    };
    let output = replay(&capture, &["--json", "--write", &written.to_string_lossy()]);
    assert!(output.status.success(), "{}", text(&output.stderr));
    let report: serde_json::Value = serde_json::from_slice(&output.stdout).expect("it is JSON");
    assert_eq!((&report["packets"], &report["forwarded"]), (&2.into(), &1.into()), "{report:#}");
    assert_eq!(report["dropped_by_reason"], serde_json::json!({ "firewall_denied": 1 }));
    assert_eq!((&report["connections"]["begun"], &report["duration_s"]), (&1.into(), &1.0.into()));
    let mut reader = CaptureReader::new(std::fs::File::open(&written).expect("it was written")).expect("a capture");
    let mut frame = Vec::new();
    let record = reader.read(&mut frame).expect("it is sound").expect("one packet was sent");
    assert_eq!(reader.interfaces()[record.interface].name.as_deref(), Some("outside"));
    assert_eq!(reader.read(&mut frame).expect("it is sound"), None);

    let output = replay(&capture, &[]);
    assert!(text(&output.stdout).starts_with("packets"), "{}", text(&output.stdout));
    let output = replay(&folder.join("nowhere.pcap"), &[]);
    assert!(text(&output.stderr).contains("nowhere.pcap: reading or writing a capture: No such file"));
    std::fs::remove_dir_all(&folder).expect("it is ours");
}

#[test]
fn what_a_packet_costs_is_measured_by_each_backend_and_by_the_kernel() {
    let af_xdp = packet_io::capabilities::missing(&["CAP_BPF", "CAP_NET_ADMIN"]);
    if !af_xdp.is_empty() {
        packet_io::namespace::skip(format_args!("AF_XDP needs {af_xdp:?}"));
        return;
    }
    let arguments =
        ["bench", "packets", "--seconds", "0.2", "--rounds", "1", "--flows", "64", "--connections", "20000", "--json"];
    let Some(report) = measured(&arguments) else { return };
    for side in ["af_xdp", "af_packet", "fast_path", "fast_path_xdp", "kernel_nft", "kernel_plain"] {
        assert!(report["ns_per_packet"][side].as_f64().is_some(), "{report}");
        assert!(report["arrived"][side].as_f64().expect("a share") > 0.5, "{report}");
    }
    assert!(report["ratio_af_xdp"].as_f64().is_some(), "{report}");
}
