//! How long connections live without a packet, by protocol and state.

use std::time::Duration;

use serde::Deserialize;
use toml::Spanned;

use super::diagnostic::{Diagnostics, Mistake};
use super::value;

macro_rules! timeouts {
    ($(#![$section:meta])* $($(#[$doc:meta])* $name:ident = $seconds:literal,)*) => {
        $(#[$section])*
        #[derive(Debug, Default, Deserialize)]
        #[serde(deny_unknown_fields)]
        pub struct RawTimeouts { $($(#[$doc])* pub $name: Option<value::DurationText>,)* }

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
    //! Each key is the time after which a connection without packets ends, by its protocol and state. The defaults are those of Linux's
    //! connection tracking.

    /// A TCP connection with a SYN.
    tcp_syn_sent = 120,
    /// A TCP connection with a SYN and a SYN/ACK.
    tcp_syn_recv = 60,
    /// An established TCP connection.
    tcp_established = 432_000,
    /// A TCP connection with one FIN.
    tcp_fin_wait = 120,
    /// A TCP connection whose first FIN is acknowledged.
    tcp_close_wait = 60,
    /// A TCP connection with both FINs.
    tcp_last_ack = 30,
    /// A TCP connection whose FINs are both acknowledged.
    tcp_time_wait = 120,
    /// A TCP connection that was reset.
    tcp_close = 10,
    /// A TCP connection with SYNs of both sides (simultaneous open).
    tcp_syn_sent2 = 120,
    /// A TCP connection whose sender retransmits the same segment again and again.
    tcp_retransmission = 300,
    /// A TCP connection with unacknowledged data.
    tcp_unacknowledged = 300,
    /// A UDP connection with packets in one direction.
    udp = 30,
    /// A UDP connection with packets in both directions.
    udp_stream = 120,
    /// An SCTP association with an INIT.
    sctp_cookie_wait = 3,
    /// An SCTP association with a COOKIE ECHO.
    sctp_cookie_echoed = 3,
    /// An established SCTP association.
    sctp_established = 210,
    /// An SCTP association with a SHUTDOWN of its initiator.
    sctp_shutdown_sent = 3,
    /// An SCTP association with a SHUTDOWN of the other side.
    sctp_shutdown_recd = 3,
    /// An SCTP association with a SHUTDOWN ACK.
    sctp_shutdown_ack_sent = 3,
    /// An SCTP association with a SHUTDOWN COMPLETE or an ABORT.
    sctp_closed = 10,
    /// A further path of an SCTP association with a HEARTBEAT and no answer.
    sctp_heartbeat_sent = 30,
    /// An ICMP or ICMPv6 query.
    icmp = 30,
    /// A connection of any other protocol.
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
