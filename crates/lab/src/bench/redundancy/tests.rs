//! The measured operations happen, and all of them are reported.

use super::*;

#[test]
fn a_small_measurement_has_all_its_figures() {
    let args = BenchRedundancyArgs { megabytes: 2, cache_megabytes: 1, rounds: 1, json: true };
    let report = measure(&args).expect("what is encoded is decoded");
    let json = serde_json::to_value(&report).expect("it can be written");
    for what in ["mark", "encode", "decode"] {
        for method in Method::ALL {
            for block in BLOCK_BYTES {
                let figure = &json["gb_per_s"][what][method.name()][block.to_string()];
                assert!(figure.as_f64().is_some_and(|figure| figure > 0.0), "{what} {} {block}: {json}", method.name());
            }
        }
    }
    for block in BLOCK_BYTES {
        let figure = &json["gb_per_s"]["memcpy_kept"][block.to_string()];
        assert!(figure.as_f64().is_some_and(|figure| figure > 0.0), "{block}: {json}");
    }
    for what in ["memcpy", "zstd_long", "lz4", "fastcdc"] {
        assert!(json["gb_per_s"][what].as_f64().is_some_and(|figure| figure > 0.0), "{what}: {json}");
    }
    assert_eq!(json["ratios"].as_object().map(serde_json::Map::len), Some(9), "{json}");
    assert!(report.describe().contains("encoding, samplebyte, 1460 bytes"));
}

#[test]
fn savings_come_near_the_optimum_and_a_second_stage_adds_to_them() {
    let traffic = traffic::half_redundant(3 << 20);
    let Savings { half_redundant, pages } = Savings::measure(&traffic, 8 << 20).expect("it can be encoded");
    for shares in [&half_redundant, &pages] {
        for method in ["maxp", "samplebyte"] {
            assert!(shares.max_match[method] >= 0.8 * shares.optimal, "{method}: {shares:?}");
        }
        assert!(shares.max_match["fixed"] < shares.max_match["samplebyte"], "{shares:?}");
    }
    let stages = &pages.second_stage;
    assert!(stages["then_zstd"] > pages.max_match["samplebyte"] + 0.05, "{pages:?}");
    assert!(stages["then_zstd_10ms"] > stages["zstd_alone_10ms"], "{pages:?}");
}
