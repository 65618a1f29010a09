//! The measured operations happen, and all of them are reported.

use super::*;

#[test]
fn a_small_measurement_has_all_its_figures() {
    let args = BenchEncryptionArgs { connections: 300, rounds: 2, json: true };
    let report = measure(&args).expect("the nodes connect");
    for way in [&report.together, &report.alone] {
        let figures = [way.cpu_us_per_message.plain, way.cpu_us_per_message.encrypted, way.ratio];
        assert!(figures.iter().all(|figure| *figure > 0.0 && figure.is_finite()), "{report:?}");
    }
    assert!(report.together.messages_per_datagram > 2.0, "{report:?}");
    assert!(report.alone.messages_per_datagram < report.together.messages_per_datagram, "{report:?}");
    assert!(report.in_memory.seal_ns_full_datagram > 0.0 && report.in_memory.handshake_us > 0.0, "{report:?}");
    let json = serde_json::to_value(&report).expect("it can be written");
    assert!(json["cpu_us_per_message"]["plain"].is_number() && json["ratio"].is_number(), "{json}");
    assert!(report.describe().contains("encrypted, packets one at a time"));
}
