//! What the checks know of each key: ranges and defaults for the reference pages, which so cannot differ from the checks.

use serde::de::DeserializeOwned;

pub use super::diagnostic::Setting;
use super::diagnostic::{Diagnostics, Source};
use super::{shape, validate};

/// Ranges and defaults of a gateway's keys, as far as the sections of this file have them checked.
#[must_use]
pub fn gateway(text: &str) -> Vec<Setting> {
    settings(text, validate::validate)
}

/// The same of a file of `mainstay sync`.
#[must_use]
pub fn sync(text: &str) -> Vec<Setting> {
    settings(text, validate::sync::validate)
}

/// The same of a file of `mainstay edge`.
#[must_use]
pub fn edge(text: &str) -> Vec<Setting> {
    settings(text, validate::edge::validate)
}

/// Checks the text for what is noted on the way; mistakes in it do not matter.
fn settings<R: DeserializeOwned, C>(text: &str, validate: impl FnOnce(&R, &mut Diagnostics<'_>) -> C) -> Vec<Setting> {
    let mut diagnostics = Diagnostics::new(Source { file: "reference", text });
    if let Some(read) = shape::read(text, &mut diagnostics) {
        validate(&read.raw, &mut diagnostics);
    }
    diagnostics.into_settings()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn found(settings: &[Setting], key: &str) -> (Option<String>, String) {
        let setting = settings.iter().find(|setting| setting.key == key).expect(key);
        (setting.default.clone(), setting.range.clone())
    }

    #[test]
    fn keys_are_described_whether_the_file_has_them_or_not() {
        for text in ["[node]\nid = 0\n", "[node]\nid = 0\nlog_per_s = 7\npriority = 3\n"] {
            let settings = gateway(text);
            assert_eq!(found(&settings, "node.priority"), (Some("100".to_owned()), "0 to 255".to_owned()));
            assert_eq!(
                found(&settings, "node.log_per_s"),
                (Some("10".to_owned()), "0 (no limit) to 100000".to_owned())
            );
            let announce_refresh = (Some("\"1m\"".to_owned()), "\"0ms\" to \"1h\"".to_owned());
            assert_eq!(found(&settings, "node.announce_refresh"), announce_refresh);
        }
    }

    #[test]
    fn a_limit_without_default_has_a_range() {
        let settings = gateway("[node]\nid = 0\n");
        assert_eq!(found(&settings, "limits.connections_per_source_max"), (None, "1 to 2147483648".to_owned()));
    }

    #[test]
    fn files_of_both_kinds_have_defaults_of_their_own() {
        let text = "[node]\nid = 0\n[replication]\nlocal = \"127.0.0.1:1\"\n";
        let (gateway, sync) = (gateway(text), sync(text));
        assert_ne!(found(&gateway, "node.control_socket"), found(&sync, "node.control_socket"));
        assert_eq!(found(&gateway, "replication.ack_delay"), found(&sync, "replication.ack_delay"));
    }
}
