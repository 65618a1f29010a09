//! The configuration of `mainstay edge`: a file of its own, of which `[node]` and `[control]` are written as a gateway's.
//! `docs/reference/edge-configuration.md` lists every key.

pub use super::raw::edge as raw;
pub use super::validate::edge::CONTROL_SOCKET_DEFAULT;
pub use super::validated::edge::{EdgeFastPath, EdgeNode, EdgeSettings, RecoveryPolicy};

use std::path::Path;

use super::diagnostic::Diagnostic;
use super::{ConfigError, parse_as, read_file, validate};

/// A configuration that can be run, and what looks doubtful in it.
#[derive(Debug)]
pub struct Checked {
    /// The configuration.
    pub config: EdgeSettings,
    /// Warnings, in the order of the file.
    pub warnings: Vec<Diagnostic>,
}

/// Reads and checks a file.
///
/// # Errors
/// [`ConfigError`], whose text is meant for the operator.
pub fn load(path: &Path) -> Result<Checked, ConfigError> {
    parse(&path.display().to_string(), &read_file(path)?)
}

/// Checks the text of a configuration; `file` is what messages call it.
///
/// # Errors
/// [`ConfigError::Invalid`].
pub fn parse(file: &str, text: &str) -> Result<Checked, ConfigError> {
    let (config, warnings) = parse_as(file, text, validate::edge::validate)?;
    Ok(Checked { config, warnings })
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use ::edge::{Affinity, CachePolicy, Capacity};
    use flow::NodeId;
    use flow::fast_path::Hook;

    use super::*;

    const LEAST: &str = "[node]\nid = 201\n[edge]\nnetwork = \"net\"\n[[edge.node]]\nid = 0\ninterface = \"a\"\n";

    fn errors(text: &str) -> String {
        parse("edge.toml", text).expect_err(text).to_string()
    }

    #[test]
    fn the_least_file_has_the_defaults() {
        let config = parse("edge.toml", LEAST).expect("it is right").config;
        assert_eq!(config.nodes, [EdgeNode { id: NodeId(0), interface: "a".to_owned() }]);
        assert_eq!((config.node.id, config.node.control_socket.to_str()), (NodeId(201), Some(CONTROL_SOCKET_DEFAULT)));
        assert_eq!((config.affinity, config.rate_control), (Affinity::Learned, None));
        assert_eq!(config.recovery.map(|recovery| recovery.policy), Some(CachePolicy::Always));
        assert_eq!(config.failure_detection.desired_min_tx, Duration::from_millis(10));
    }

    #[test]
    fn every_key_is_read() {
        let text = LEAST.to_owned()
            + "[[edge.node]]\nid = 5\ninterface = \"b\"\n[recovery]\npolicy = \"heavy-hitters\"\nheavy_hitters = 7\n\
               memory = \"1MiB\"\nresends_per_s = 9\n[rate_control]\ncapacity_bits_per_s = 8000\nalpha = 0.5\ndelta = 0.9\n\
               granularity = \"50ms\"\nwindow_min = 3000\n[failure_detection]\ninterval = \"20ms\"\nmultiplier = 4\n";
        let config = parse("edge.toml", &text).expect("it is right").config;
        let recovery = config.recovery.expect("it is configured");
        assert_eq!(recovery.policy, CachePolicy::HeavyHitters { connections_max: 7 });
        assert_eq!((recovery.memory_bytes_max, recovery.resends_per_s_max), (1 << 20, 9));
        let rates = config.rate_control.expect("it is configured");
        assert_eq!((rates.capacity, rates.window_bytes_min), (Capacity::Configured(1000), 3000));
        assert_eq!((rates.alpha, rates.delta, rates.granularity), (0.5, 0.9, Duration::from_millis(50)));
        assert_eq!(config.failure_detection.detect_multiplier, 4);
    }

    #[test]
    fn the_fast_path_is_off_by_default_and_warns_of_what_keeps_flows_from_it() {
        let plain = LEAST.to_owned() + "[security]\nmode = \"plain\"\n";
        let enabled = |more: &str| plain.clone() + more + "[fast_path]\nenabled = true\nconnections_max = 5\n";
        let warnings = |text: &str| {
            let checked = parse("edge.toml", text).expect("it is right");
            checked.warnings.iter().map(ToString::to_string).collect::<Vec<_>>().join("\n")
        };
        assert!(!parse("edge.toml", LEAST).expect("it is right").config.fast_path.enabled);
        assert_eq!(warnings(&plain), "");
        let text = enabled("[recovery]\npolicy = \"syn-only\"\n");
        let config = parse("edge.toml", &text).expect("it is right").config;
        assert_eq!(config.fast_path, EdgeFastPath { enabled: true, hook: Hook::Tc, connections_max: 5 });
        assert_eq!(warnings(&text), "");
        assert!(warnings(&enabled("")).contains("needs every segment of TCP"));
        let hashed = enabled("").replace("network", "affinity = \"tuple\"\nhash_key = \"/k\"\nnetwork");
        assert!(warnings(&hashed).contains("with this affinity none is"), "{}", warnings(&hashed));
        let xdp = enabled("").replace("network", "backend = \"af_xdp\"\nnetwork");
        assert!(warnings(&xdp).contains("no fast path"), "{}", warnings(&xdp));
    }

    #[test]
    fn frames_are_secured_by_keys_and_plain_text_is_a_decision() {
        let with = |section: &str| LEAST.to_owned() + "[security]\n" + section;
        let checked = parse("edge.toml", &with("pre_shared_keys = [\"/etc/a\", \"/etc/b\"]\n")).expect("it is right");
        let keys = checked.config.security.map(|security| security.pre_shared_keys);
        assert_eq!(keys, Some(vec!["/etc/a".into(), "/etc/b".into()]));
        assert!(checked.warnings.is_empty());
        let plain = parse("edge.toml", &with("mode = \"plain\"\n")).expect("it is right");
        assert!(plain.config.security.is_none() && plain.warnings.is_empty());
        let missing = parse("edge.toml", LEAST).expect("it is right");
        assert!(missing.config.security.is_none());
        let text: String = missing.warnings.iter().map(ToString::to_string).collect();
        assert!(text.contains("in plain text") && text.contains("add [security]"), "{text}");
        for (text, part) in [
            (with(""), "name from 1 to 4 files"),
            (with("mode = \"plain\"\npre_shared_keys = [\"/etc/a\"]\n"), "remove either"),
            (with("pre_shared_keys = [\"/etc/a\"]\n").replace("id = 201", "id = 63"), "choose a number from 64 to 255"),
        ] {
            let found = errors(&text);
            assert!(found.contains(part), "{found}\nlacks {part:?}");
        }
    }

    #[test]
    fn each_mistake_is_named_with_its_remedy() {
        for (text, part) in [
            ("[node]\nid = 1\n".to_owned(), "add [edge] with network"),
            (LEAST.replace("id = 0", "id = 64"), "choose a number from 0 to 63"),
            (LEAST.replace("\"a\"", "\"net\""), "interface \"net\" is named twice"),
            (LEAST.to_owned() + "[[edge.node]]\nid = 0\ninterface = \"b\"\n", "another node has this id"),
            (LEAST.replace("network = \"net\"", "network = \"net\"\naffinity = \"tuple\""), "`mainstay key` makes one"),
            (LEAST.to_owned() + "[rate_control]\ncapacity_bits_per_s = 1\n", "1000000000 is 1 Gbit/s"),
            (LEAST.replace("id = 201", "id = 201\nnodes = 2"), "[[edge.node]]"),
        ] {
            let found = errors(&text);
            assert!(found.contains(part), "{found}\nlacks {part:?}");
        }
    }
}
