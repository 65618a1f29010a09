//! Packets pass by the cable and through the kernel; the report's text.

use super::*;

fn args() -> BenchPacketsArgs {
    BenchPacketsArgs {
        seconds: 0.1,
        rounds: 3,
        packets_per_second: Some(20_000),
        flows: 100,
        connections: 1_000_000,
        json: false,
    }
}

#[test]
fn packets_pass_by_the_cable_and_through_the_kernel() {
    let Some(()) = packet_io::namespace::for_tests() else { return };
    let watch = Watch::new().unwrap();
    for way in [SideKind::Cable, SideKind::Kernel, SideKind::PlainKernel] {
        // More than one port of the receiver has.
        let mut network = Network::build(way, 16_500, &watch).unwrap();
        let is_tracked = network.kernel_rules() == Some(KernelRules::Nftables);
        let established = network.established().unwrap();
        assert_eq!(established.is_some_and(|established| established >= 16_500), is_tracked, "{way:?}");
        for packets_per_second in [Some(20_000), None] {
            let cost = network.pass(Duration::from_millis(100), packets_per_second, &watch).unwrap();
            assert!(cost.arrived > 0.9, "{way:?}: {cost:?}");
            assert!(cost.ns_per_packet > 0.0, "{way:?}: {cost:?}");
        }
    }
}

#[test]
fn what_the_cable_costs_is_taken_off_all_sides_and_ratios_are_of_rounds() {
    let (mut figures, mut full) = (AllFigures::default(), AllFigures::default());
    for disturbance in [0.0, 1000.0, 20.0] {
        let cost = |ns: f64| Cost { ns_per_packet: ns + disturbance, machine_ns_per_packet: ns, arrived: 1.0 };
        note(&mut figures, &[500.0, 1000.0, 3500.0, 800.0, 700.0, 1100.0, 1500.0, 900.0].map(|ns| Some(cost(ns))));
        let [cable, fast_path, kernel] = [600.0, 1300.0, 2000.0].map(|ns| Some(cost(ns)));
        note(&mut full, &[cable, None, None, fast_path, None, None, kernel, None]);
    }
    let report = Report::new(&args(), &figures, Ok(&full), KernelRules::Nftables);
    let json = serde_json::to_value(&report).unwrap();
    let sides = serde_json::json!({
        "af_xdp": 500.0, "af_packet": 3000.0, "fast_path": 300.0, "fast_path_peer": 200.0, "fast_path_xdp": 600.0, "kernel_nft": 1000.0, "kernel_plain": 400.0,
        "fast_path_1m": 700.0, "kernel_nft_1m": 1400.0
    });
    assert_eq!(json["ns_per_packet"], sides);
    assert_eq!((report.ratio_af_xdp, report.ratio_af_packet, report.ratio_fast_path), (0.5, 3.0, 0.3));
    assert_eq!((report.ratio_fast_path_peer, report.ratio_fast_path_1m), (0.2, Some(0.5)));
    assert_eq!(report.ratio_fast_path_xdp, Some(0.6));
    assert_eq!((report.cable_ns_per_packet, report.cable_1m_ns_per_packet), (520.0, Some(620.0)));
    assert_eq!(json["kernel_rules"], "nftables");
    let text = report.describe();
    assert!(text.contains("With 1 000 000 connections, a random one for each packet, it takes 0.500"), "{text}");
    assert!(!text.contains("lost packets"), "{text}");
}

#[test]
fn losses_and_disturbances_are_reported() {
    let mut figures = AllFigures::default();
    let cost = |ns: f64, arrived| Cost { ns_per_packet: ns, machine_ns_per_packet: 2.0 * ns, arrived };
    let sides = [(500.0, 1.0), (1000.0, 1.0), (3500.0, 0.9), (800.0, 1.0), (700.0, 1.0), (1500.0, 1.0), (900.0, 1.0)];
    let [cable, af_xdp, af_packet, fast_path, peer, kernel, plain] = sides.map(|(ns, arrived)| Some(cost(ns, arrived)));
    // Without XDP.
    note(&mut figures, &[cable, af_xdp, af_packet, fast_path, peer, None, kernel, plain]);
    let reason = "nft is not installed".to_owned();
    let rules = KernelRules::None { reason: reason.clone() };
    let report = Report::new(&args(), &figures, Err(&reason), rules);
    assert_eq!((report.ratio_fast_path_1m, report.ns_per_packet.fast_path_1m), (None, None));
    assert_eq!((report.ratio_fast_path_xdp, report.ns_per_packet.fast_path_xdp), (None, None));
    let text = report.describe();
    for part in ["lost packets", "By idle time", "nft is not installed", "90.0 %", "nothing was measured: nft is"] {
        assert!(text.contains(part), "{part}: {text}");
    }
}
