//! Bulk data passes through the kernel; the report's text.

use super::*;

#[test]
fn bulk_data_passes_through_the_kernel_in_the_nodes_place() {
    let Some(()) = packet_io::namespace::for_tests() else { return };
    let topology = Topology::build().unwrap();
    KernelRules::install(&topology.nodes[0]).unwrap();
    let watch = Watch::new().unwrap();
    for ipv6 in [false, true] {
        let args = BenchBulkArgs { seconds: 0.1, rounds: 1, ipv6, json: true };
        for case in Case::ALL {
            case.set_offload(&topology).unwrap();
            let mut readings = 0;
            let passed = Stage { watch: &watch, args: &args }.pass(&topology, case, || readings += 1).unwrap();
            assert!(passed.gbit_per_s() > 0.0);
            assert_eq!(readings, 2);
        }
    }
}

#[test]
fn the_report_has_both_sides_and_the_kernels_rules() {
    let mut figures = Case::ALL.map(|_| Figures::default());
    for (figures, factor) in figures.iter_mut().zip([1.0, 2.0, 3.0]) {
        for (mainstay, kernel) in [(8.0, 10.0), (9.0, 11.0), (7.0, 30.0)] {
            figures.mainstay_gbit_per_s.push(factor * mainstay);
            figures.kernel_gbit_per_s.push(kernel);
            figures.mainstay_cpu_s_per_gigabyte.push(0.5);
        }
    }
    let args = BenchBulkArgs { seconds: 1.0, rounds: 3, ipv6: false, json: false };
    let report = Report::new(&args, &figures, KernelRules::Nftables);
    assert_eq!(report.spans_gbit_per_s.offload_4.kernel, [10.0, 30.0]);
    let json = serde_json::to_value(&report).unwrap();
    assert_eq!(json["ratio"], serde_json::json!({"offload_1": 0.8, "offload_4": 1.6, "no_offload_1": 2.4}));
    assert_eq!(json["gbit_per_s"]["offload_1"], serde_json::json!({"mainstay": 8.0, "kernel": 11.0}));
    assert_eq!(json["kernel_rules"], "nftables");
    let plain = Report::new(&args, &figures, KernelRules::None { reason: "nft is not installed".into() });
    assert!(plain.describe().contains("nft is not installed"), "{}", plain.describe());
}
