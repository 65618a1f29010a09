//! The files of `examples/keepalived`, as the demo and the tests run them: with the names and addresses of the demo's
//! network in place of the example's.

use std::path::Path;

use super::network;
use crate::testbed::topology::{INSIDE, INTERFACES, OUTSIDE, PREFIX_BITS};

/// The rules.
pub const RULES: &str = include_str!("../../../../../examples/keepalived/nftables.conf");
/// keepalived's configurations, by router.
pub const KEEPALIVED: [&str; 2] = [
    include_str!("../../../../../examples/keepalived/left.conf"),
    include_str!("../../../../../examples/keepalived/right.conf"),
];
/// The line of [`RULES`] that ends its definitions.
const RULES_BEGIN: &str = "# --- rules ---";

/// The rules of the demo's routers.
#[must_use]
pub fn rules() -> String {
    let rules = RULES.split_once(RULES_BEGIN).map_or("", |(_, rules)| rules);
    network::definitions() + rules
}

/// The configuration of a router's keepalived: the example's, with other names. `options` replaces pieces of the text, and
/// panics where one is not there.
///
/// # Panics
/// The example does not contain what is to be replaced.
#[must_use]
pub fn keepalived(number: usize, program: &Path, control_socket: &Path, options: &[(&str, &str)]) -> String {
    let [inside, outside, _] = INTERFACES;
    let shared = |index: usize| [INSIDE, OUTSIDE].map(|both| format!("{}/{}", both[index], PREFIX_BITS[index]));
    let ([inside_v4, outside_v4], [inside_v6, outside_v6]) = (shared(0), shared(1));
    let (program, control_socket) = (program.to_string_lossy(), control_socket.to_string_lossy());
    let names = [
        ("eth0", inside),
        ("eth1", outside),
        ("10.0.0.1/24", &inside_v4),
        ("fd00::1/64", &inside_v6),
        ("192.0.2.10/24", &outside_v4),
        ("2001:db8::10/64", &outside_v6),
        ("/usr/bin/mainstay", &program),
        ("/run/mainstay/sync.sock", &control_socket),
    ];
    names.iter().chain(options).fold(KEEPALIVED[number].to_owned(), |text, (from, to)| {
        assert!(text.contains(from), "the example does not contain {from:?}");
        text.replace(from, to)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nothing_of_the_examples_names_is_left() {
        for number in [0, 1] {
            let text = keepalived(number, Path::new("/p"), Path::new("/s"), &[("interval 1", "interval 2")]);
            for name in ["eth0", "eth1", "10.0.0.", "192.0.2.", "/usr/bin", "/run/"] {
                assert!(!text.contains(name), "{name} in {text}");
            }
            assert!(
                text.contains("198.51.100.1/24 dev outside") && text.contains("\"/p sync ready --socket /s\""),
                "{text}"
            );
        }
    }

    #[test]
    fn the_two_examples_differ_in_names_and_priorities_only() {
        let differing = KEEPALIVED[0].lines().zip(KEEPALIVED[1].lines()).filter(|(left, right)| left != right);
        let differing: Vec<&str> = differing.map(|(left, _)| left.trim()).collect();
        assert_eq!(KEEPALIVED[0].lines().count(), KEEPALIVED[1].lines().count());
        let [first, second, router, priority] = differing[..] else { panic!("{differing:?}") };
        assert!(first.starts_with('#') && second.starts_with('#'), "{first} {second}");
        assert_eq!((router, priority), ("router_id left", "priority 150"));
    }

    #[test]
    fn the_rules_are_whole_without_the_examples_definitions() {
        let rules = rules();
        assert!(rules.contains("define published_port = 8000") && rules.contains("chain source_nat"), "{rules}");
        assert!(!rules.contains("eth0") && !rules.contains("192.0.2.10"), "{rules}");
    }
}
