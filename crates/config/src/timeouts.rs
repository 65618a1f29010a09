//! How long connections live without a packet, by protocol and state.

use std::time::Duration;

use serde::Deserialize;
use toml::Spanned;

use super::diagnostic::{Diagnostics, Mistake};
use super::value;

macro_rules! timeouts {
    ($($(#[$doc:meta])* $name:ident = $seconds:literal,)*) => {
        /// The `[timeouts]` section as written.
        #[derive(Debug, Default, Deserialize)]
        #[serde(deny_unknown_fields)]
        pub struct RawTimeouts { $($(#[$doc])* pub $name: Option<Spanned<String>>,)* }

        /// How long a connection lives without a packet. The defaults are those of Linux's connection tracking.
        #[derive(Clone, PartialEq, Eq, Debug)]
        pub struct Timeouts { $($(#[$doc])* pub $name: Duration,)* }

        impl Default for Timeouts {
            fn default() -> Self {
                Self { $($name: Duration::from_secs($seconds),)* }
            }
        }

        impl Timeouts {
            /// Every timeout with its key, in the order of the documentation.
            #[must_use]
            pub fn entries(&self) -> Vec<(&'static str, Duration)> {
                vec![$((stringify!($name), self.$name),)*]
            }

            pub(super) fn validate(raw: &RawTimeouts, diagnostics: &mut Diagnostics<'_>) -> Self {
                let mut timeouts = Self::default();
                $(
                    let default = value::written_duration(timeouts.$name);
                    diagnostics.describe(concat!("timeouts.", stringify!($name)), Some(default), "\"1s\" or more".to_owned());
                    if let Some(text) = &raw.$name {
                        timeouts.$name = timeout(stringify!($name), text, diagnostics).unwrap_or(timeouts.$name);
                    }
                )*
                timeouts
            }
        }
    };
}

timeouts! {
    /// TCP: SYN seen.
    tcp_syn_sent = 120,
    /// TCP: SYN and SYN/ACK seen.
    tcp_syn_recv = 60,
    /// TCP: established.
    tcp_established = 432_000,
    /// TCP: the first FIN seen.
    tcp_fin_wait = 120,
    /// TCP: the first FIN acknowledged.
    tcp_close_wait = 60,
    /// TCP: both FINs seen.
    tcp_last_ack = 30,
    /// TCP: both FINs acknowledged.
    tcp_time_wait = 120,
    /// TCP: reset.
    tcp_close = 10,
    /// TCP: SYNs from both sides (simultaneous open).
    tcp_syn_sent2 = 120,
    /// TCP: the same segment retransmitted too often.
    tcp_retransmission = 300,
    /// TCP: data that is not acknowledged.
    tcp_unacknowledged = 300,
    /// UDP: packets in one direction only.
    udp = 30,
    /// UDP: packets in both directions.
    udp_stream = 120,
    /// SCTP: INIT seen.
    sctp_cookie_wait = 3,
    /// SCTP: COOKIE ECHO seen.
    sctp_cookie_echoed = 3,
    /// SCTP: the association stands.
    sctp_established = 210,
    /// SCTP: the initiator asked for the end.
    sctp_shutdown_sent = 3,
    /// SCTP: the other side asked for the end.
    sctp_shutdown_recd = 3,
    /// SCTP: SHUTDOWN ACK seen.
    sctp_shutdown_ack_sent = 3,
    /// SCTP: the association is over.
    sctp_closed = 10,
    /// SCTP: a HEARTBEAT on a further path seen.
    sctp_heartbeat_sent = 30,
    /// ICMP and ICMPv6 queries.
    icmp = 30,
    /// All other protocols.
    generic = 600,
}

fn timeout(key: &str, text: &Spanned<String>, diagnostics: &mut Diagnostics<'_>) -> Option<Duration> {
    let subject = format!("timeouts.{key}");
    let checked = value::duration(text.get_ref()).and_then(|duration| {
        if duration < Duration::from_secs(1) {
            return Err(Mistake::new(
                format!("{:?} is shorter than a second", text.get_ref()),
                "connections would end between two packets: write at least \"1s\"",
            ));
        }
        Ok(duration)
    });
    checked.map_err(|mistake| diagnostics.error(text.span(), &subject, mistake)).ok()
}
