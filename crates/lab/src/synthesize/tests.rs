//! `mainstay synthesize` takes what is asked for, and refuses what cannot be.

use std::time::Duration;

use analysis::synthesis::replication::Behaviour;
use analysis::trace::Trace;

use super::*;
use crate::args::{self, LabCommand};

fn parse(line: &str) -> Result<SynthesizeCommand, String> {
    match args::parse(line).map_err(|error| error.to_string())? {
        LabCommand::Synthesize(command) => Ok(command),
        other => panic!("another command was understood: {other:?}"),
    }
}

#[test]
fn what_is_asked_for_changes_the_preset() {
    let line = "synthesize replication --preset flow-digest --connections-per-second 20000 --duration 2s --together 3 \
                --lifetimes 0:1,0.5:2,1:4 --run-out";
    let Ok(SynthesizeCommand::Replication(args)) = parse(line) else { panic!("it is right") };
    let config = replication::config(&args);
    assert_eq!((config.connections_per_second, config.duration), (20_000.0, Duration::from_secs(2)));
    assert!(config.runs_out && config.clients > 65_536, "hosts grow with the rate");
    let Behaviour::Tcp { lifetime, .. } = &config.components[0].behaviour else { panic!("it is TCP") };
    assert_eq!((lifetime.largest(), config.components[0].together), (4.0, 3.0));
}

#[test]
fn what_cannot_be_is_refused_with_what_can() {
    let refused = [
        ("replication --preset nothing", "there are mixed, ipls-1"),
        ("replication --one-way 2", "a number from 0 to 1"),
        ("replication --lifetimes 5", "in pairs"),
        ("replication --lifetimes 0:5,1:1", "values that do not fall"),
        ("redundancy --origins 1,2", "five shares"),
    ];
    for (options, remedy) in refused {
        let error = parse(&format!("synthesize {options}")).expect_err(options);
        assert!(error.contains(remedy), "{error}");
    }
    let command = parse("synthesize redundancy --redundancy 0.9 --encrypted 0.5").expect("it is understood");
    let error = run(&command).expect_err("it cannot be made").to_string();
    assert!(error.contains("what is encrypted repeats nothing"), "{error}");
}

#[test]
fn the_capture_has_what_its_summary_states() {
    let folder = std::env::temp_dir().join(format!("mainstay-synthesize-{}", std::process::id()));
    std::fs::create_dir_all(&folder).expect("there is a place for temporary files");
    for kind in ["replication --connections-per-second 200", "redundancy --mbit-per-second 5"] {
        let (capture, summary) = (folder.join("made.pcap"), folder.join("made.json"));
        let line = format!(
            "synthesize {kind} --duration 1s --json --output {} --summary {}",
            capture.display(),
            summary.display()
        );
        run(&parse(&line).expect("it is right")).expect("it is written");
        let made: serde_json::Value =
            serde_json::from_slice(&std::fs::read(&summary).expect("it is there")).expect("it is JSON");
        let mut trace = Trace::open(&[&capture]).expect("it is a capture");
        while trace.next().is_some() {}
        assert!(trace.damages().is_empty() && trace.skips().total() == 0, "{trace:?}");
        assert_eq!(Some(trace.counts().packets), made["frames"].as_u64(), "{made}");
        assert!(trace.counts().packets > 100, "{made}");
    }
    std::fs::remove_dir_all(&folder).expect("nobody else uses it");
}
