//! The packets that cost most in each parser of first bytes, in instructions: these are the same on every machine, however busy it is.

use serde_json::Value;

use crate::common::program::mainstay;

/// Parsers, and how many times as many instructions as an ordinary packet the one that costs most takes at most. Where a segment is parsed together
/// with those before it, it takes three times as many as that.
const TIMES_MAX: [(&str, f64); 5] = [("tls", 20.0), ("http", 9.0), ("quic", 3.0), ("dns", 21.0), ("ftp", 37.0)];

#[test]
fn the_packet_that_costs_most_stays_in_proportion_to_an_ordinary_one() {
    let output = mainstay(&["bench", "worst-packet", "--json"]).output().expect("the program can be run");
    let error = String::from_utf8_lossy(&output.stderr);
    let result: Value = serde_json::from_slice(&output.stdout).unwrap_or_else(|_| panic!("no JSON: {error}"));
    let rows = result["rows"].as_array().expect("rows");
    if rows.iter().any(|row| row["unit"] != "instructions") {
        packet_io::namespace::skip("there is no valgrind");
        return;
    }
    for (parser, times_max) in TIMES_MAX {
        let row = rows.iter().find(|row| row["parser"] == parser).unwrap_or_else(|| panic!("{parser}: {result:#}"));
        let [ordinary, worst, limit] =
            ["ordinary", "worst", "limit"].map(|cost| row[cost].as_f64().unwrap_or_default());
        println!("{parser}: {ordinary:.0} instructions, at most {worst:.0}: {:.1} times", worst / ordinary);
        assert!(ordinary > 0.0 && worst <= times_max * ordinary && worst <= limit, "{row:#}");
    }
}
