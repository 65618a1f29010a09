//! Rules by which the kernel makes fewer events.
//!
//! Making an event costs the path of the packet that causes it about 3 µs, even if it is not read, and a short TCP connection
//! causes six. Three of them are needed: that the handshake is over (the connection is assured), that the connection is being
//! closed, and that it has left the table, minutes later. A connection's own mask selects its events; rules of
//! nftables set it (`ct event set`) on every TCP packet, right after tracking has seen it and before the packet's events are
//! delivered. A FIN of the client, or a reset, lets the change of state pass that it has caused; on any other packet
//! changes of state are left out. So the peers know of each end when it happens, at the price of one event.
//!
//! The rules lie in a table of their own, which is removed at the end. A replacement of the whole ruleset removes them, too:
//! events of beginnings show that, and the rules are put back.

use std::io::Write;
use std::process::{Command, Stdio};
use std::time::Duration;

use flow::Instant;

/// The table that holds the rules.
pub(super) const TABLE: &str = "inet mainstay_sync";
/// Events that the rules leave: ended (2), assured (4), helper (6), mark (7), numbers shifted (8), labels (10), SYN proxy (11);
/// the bits are `IPCT_*` of the kernel. Not all of them have names that every version of nft takes here.
const EVENTS_LEFT: u32 = 1 << 2 | 1 << 4 | 1 << 6 | 1 << 7 | 1 << 8 | 1 << 10 | 1 << 11;
/// On a packet that closes a connection, the state as well (5).
const EVENTS_CLOSING: u32 = EVENTS_LEFT | 1 << 5;
/// Events of new TCP connections that the rules should have suppressed, until it is checked whether the rules are there.
const SURPRISES_MAX: u32 = 16;
/// How often that is asked at most.
const LOOK_INTERVAL: Duration = Duration::from_secs(5);

/// The rules, in force until dropped.
pub(super) struct EventRules {
    surprises: u32,
    look_at: Instant,
    /// How often they were found gone.
    pub(super) put_back: u64,
}

impl EventRules {
    /// Puts the rules in force in the calling thread's namespace.
    ///
    /// # Errors
    /// Why they are not, and what to do about it.
    pub(super) fn install() -> Result<Self, String> {
        nft(&["-f", "-"], &ruleset()).map(|()| Self { surprises: 0, look_at: Instant::ZERO, put_back: 0 })
    }

    /// The kernel sent an event of a new TCP connection that the rules should have suppressed.
    pub(super) const fn note_surprise(&mut self) {
        self.surprises = self.surprises.saturating_add(1);
    }

    /// Puts the rules back if there is reason to believe that they are gone, and they are.
    pub(super) fn look_after(&mut self, now: Instant) {
        if self.surprises < SURPRISES_MAX || now < self.look_at {
            return;
        }
        (self.surprises, self.look_at) = (0, now + LOOK_INTERVAL);
        let is_there = nft(&["list", "table", "inet", "mainstay_sync"], "").is_ok();
        if is_there {
            return;
        }
        self.put_back += 1;
        match nft(&["-f", "-"], &ruleset()) {
            Ok(()) => tracing::warn!("the table {TABLE} was removed (by `flush ruleset`?); it is there again"),
            Err(error) => tracing::warn!("the table {TABLE} was removed and cannot be put back: {error}"),
        }
    }
}

impl Drop for EventRules {
    fn drop(&mut self) {
        if let Err(error) = nft(&["delete", "table", "inet", "mainstay_sync"], "") {
            tracing::debug!("the table {TABLE} was not removed: {error}");
        }
    }
}

/// The rules, which take the place of those that an earlier process may have left.
fn ruleset() -> String {
    // The server's FIN makes no event: the client's does, before or after it. A reset of either side is the end.
    let closing = format!(
        "  chain closing {{\n    ct direction original ct event set {EVENTS_CLOSING:#x} accept\n    \
         tcp flags & rst != 0x0 ct event set {EVENTS_CLOSING:#x}\n  }}\n"
    );
    // After tracking (-200), which makes the connection, and before anything that could decide on its packet. One rule a
    // packet: a mask that is as it should be is not written.
    let chain = |name: &str, hook: &str| {
        format!(
            "  chain {name} {{\n    type filter hook {hook} priority -199; policy accept;\n    \
             meta l4proto tcp ct event set {EVENTS_LEFT:#x} tcp flags & (fin | rst) != 0x0 goto closing\n  }}\n"
        )
    };
    let chains = closing + &chain("forwarded", "prerouting") + &chain("own", "output");
    format!("add table {TABLE}\ndelete table {TABLE}\ntable {TABLE} {{\n{chains}}}\n")
}

/// Runs nft, which shares this thread's namespace.
fn nft(arguments: &[&str], input: &str) -> Result<(), String> {
    let mut command = Command::new("nft");
    command.args(arguments).stdin(Stdio::piped()).stdout(Stdio::null()).stderr(Stdio::piped());
    let mut child = command.spawn().map_err(|error| format!("nft cannot be run ({error}): install nftables"))?;
    if let Some(mut standard_input) = child.stdin.take() {
        // Should nft have ended already, its own message explains more than the broken pipe.
        let _ = standard_input.write_all(input.as_bytes());
    }
    let output = child.wait_with_output().map_err(|error| format!("nft cannot be waited for: {error}"))?;
    if output.status.success() {
        return Ok(());
    }
    let words = String::from_utf8_lossy(&output.stderr);
    let first = words.lines().next().unwrap_or("it gives no reason");
    Err(format!("nft refuses ({first}): is the process permitted (CAP_NET_ADMIN), and has the kernel nf_tables?"))
}

#[cfg(test)]
mod tests {
    use packet_io::namespace::{Namespace, NamespaceSupport, probe};

    use super::*;

    fn listed(namespace: &Namespace) -> Option<String> {
        let mut command = Command::new("nft");
        command.args(["list", "ruleset"]).stdout(Stdio::piped());
        let output = namespace.spawn_command(command).ok()?.wait_with_output().ok()?;
        Some(String::from_utf8_lossy(&output.stdout).into_owned())
    }

    #[test]
    fn the_rules_are_there_while_they_are_wanted_and_come_back_when_somebody_flushes_them() {
        if probe() != NamespaceSupport::Available || Command::new("nft").arg("-v").output().is_err() {
            packet_io::namespace::skip(format_args!("{:?}, or nft is not installed", probe()));
            return;
        }
        let namespace = Namespace::new().expect("a namespace");
        let mut rules = namespace.run(EventRules::install).expect("in the namespace").expect("nft takes the rules");
        let ruleset = listed(&namespace).expect("nft lists");
        assert!(["assured", "destroy", "protoinfo"].iter().all(|event| ruleset.contains(event)), "{ruleset}");
        // A second process, after the first one was killed, takes them over.
        drop(namespace.run(EventRules::install).expect("in the namespace").expect("nft takes the rules"));

        namespace.run(|| nft(&["flush", "ruleset"], "")).expect("in the namespace").expect("nft flushes");
        for _ in 0..SURPRISES_MAX {
            rules.note_surprise();
        }
        let rules = namespace
            .run(move || {
                rules.look_after(Instant::from_millis(1));
                rules
            })
            .expect("in the namespace");
        assert_eq!(rules.put_back, 1);
        assert!(listed(&namespace).expect("nft lists").contains("assured"));
        namespace.run(move || drop(rules)).expect("in the namespace");
        assert!(!listed(&namespace).expect("nft lists").contains("mainstay_sync"));
    }
}
