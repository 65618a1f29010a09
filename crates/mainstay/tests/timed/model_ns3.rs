//! The model of TCP across a failover, beside flows in ns-3.

use serde_json::Value;

use crate::common::program::{Folder, mainstay};
use lab::ns3::Ns3;

/// Runs the model beside ns-3, without random losses, and returns what it printed.
fn compare(folder: &Folder, (schedule, rtt): (&str, &str), outage: &str) -> Value {
    let options = ["--json", "--seeds", "5", "--loss", "0", "--syn-loss", "0", "--recovery", "all"];
    let mut command = mainstay(&["model", "failover", "--ns3", "--schedule", schedule, "--outage", outage]);
    let output = command
        .args(options)
        .args(["--rtt", rtt])
        .arg("--ns3-dir")
        .arg(folder.join("ns3"))
        .output()
        .expect("it starts");
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    serde_json::from_slice(&output.stdout).expect("one JSON object")
}

/// ns-3 is a large package that few machines have. Where it is missing, the test is of the remedy that the command names.
#[test]
fn model_agrees_with_flows_in_ns3_or_names_what_is_not_installed() {
    let _turn = crate::take_turn();
    if let Err(missing) = Ns3::installed_version() {
        let output = mainstay(&["model", "failover", "--ns3"]).output().expect("it starts");
        let said = String::from_utf8_lossy(&output.stderr);
        assert!(!output.status.success() && said.contains(&missing.to_string()), "{said}");
        assert!(said.contains("apt-get install --no-install-recommends libns3-dev g++ pkg-config"), "{said}");
        return;
    }
    let folder = Folder::new("ns3");
    // Over 100 ms a short flow of Linux's schedule takes one round trip less than in ns-3, which does not count acknowledgements.
    for (schedule, rtt) in [("doubling", "20ms"), ("thesis", "100ms")] {
        for outage in ["0.3", "1", "3"] {
            let printed = compare(&folder, (schedule, rtt), outage);
            let rows = printed["ns3"]["rows"].as_array().expect("rows");
            assert_eq!(rows.len(), 4, "{printed}");
            for row in rows {
                assert!(row["ns3"]["completion_s"]["without"].as_f64() > row["ns3"]["undisturbed_s"].as_f64(), "{row}");
                // Of five runs the median stall of a SYN is a coarse one: retransmissions are seconds apart. All else agrees.
                let disagrees = row["disagrees"].as_array().expect("names");
                let is_syn = row["kind"].as_str().is_some_and(|kind| kind.starts_with("syn"));
                let beyond = disagrees.iter().filter(|name| !is_syn || name.as_str() != Some("stall_s.without"));
                assert_eq!(beyond.count(), 0, "{schedule}: {row}");
            }
        }
    }
}
