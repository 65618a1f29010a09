//! A session's limits and times.

use core::time::Duration;

use crate::message::{ACK_RANGES_MAX, HEADER_BYTES};

/// The smallest [`SessionConfig::datagram_bytes_max`]: a full acknowledgement and a message of any connection fit.
pub const DATAGRAM_BYTES_MIN: usize = 1024;

const _: () = assert!(HEADER_BYTES + 12 + ACK_RANGES_MAX * 8 + 256 <= DATAGRAM_BYTES_MIN);

/// Bytes of memory that a session takes for each connection that it may replicate, before any is there.
pub const BYTES_PER_CONNECTION: usize = 16;

/// Limits and times of a session; [`super::Session::new`] checks them.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct SessionConfig {
    /// Handles are below this. [`BYTES_PER_CONNECTION`] of memory each.
    pub connections_max: u32,
    /// Changed connections that wait to be sent. When full, further changes are left to a new resynchronisation.
    pub changes_queued_max: u32,
    /// Ended connections that wait to be sent or acknowledged. When full, further ones are left to a new resynchronisation.
    pub deletions_max: u32,
    /// Messages sent and not acknowledged. When full, changes wait in their queue, where newer state replaces older.
    pub in_flight_messages_max: u16,
    /// As `in_flight_messages_max`, for the walk of a resynchronisation, so that it leaves room for changes.
    pub resync_in_flight_messages_max: u16,
    /// Bytes of a datagram: the link's MTU less the IP and UDP headers.
    pub datagram_bytes_max: usize,
    /// An acknowledgement is due after so many messages,
    pub ack_every_messages: u16,
    /// or after so long, whichever is first.
    pub ack_delay: Duration,
    /// How long changes may wait for more to share their datagram; zero sends whatever there is when asked.
    pub batch_delay: Duration,
    /// A message that was not acknowledged for two round trips, but at least this long, and `ack_delay` is asked after.
    pub probe_timeout_min: Duration,
    /// Asking again backs off up to this.
    pub probe_timeout_max: Duration,
    /// Something is sent at least this often.
    pub alive_interval: Duration,
    /// A peer is away once nothing was received from it for so long.
    pub peer_timeout: Duration,
    /// Replicas are compared with what the peer sent, and repaired. The peer is answered in any case.
    pub compares_copies: bool,
    /// Time from the first Hello to the second; doubles from then on
    pub hello_interval_min: Duration,
    /// up to this.
    pub hello_interval_max: Duration,
}

impl Default for SessionConfig {
    fn default() -> Self {
        Self {
            connections_max: 1 << 20,
            changes_queued_max: 1 << 18,
            deletions_max: 1 << 16,
            in_flight_messages_max: 1024,
            resync_in_flight_messages_max: 256,
            datagram_bytes_max: 1472,
            ack_every_messages: 32,
            ack_delay: Duration::from_millis(2),
            batch_delay: Duration::ZERO,
            probe_timeout_min: Duration::from_millis(4),
            probe_timeout_max: Duration::from_millis(100),
            alive_interval: Duration::from_millis(100),
            peer_timeout: Duration::from_secs(1),
            compares_copies: true,
            hello_interval_min: Duration::from_millis(10),
            hello_interval_max: Duration::from_secs(1),
        }
    }
}

/// Why a session cannot be had with a configuration: misuse, to be corrected by its author.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
pub enum ConfigError {
    /// Some limit or time is zero.
    #[error("{0} must not be zero")]
    Zero(&'static str),
    /// Handles would not fit.
    #[error("connections_max must be at most 2^31")]
    TooManyConnections,
    /// A datagram would not hold what it must.
    #[error("datagram_bytes_max must be from {DATAGRAM_BYTES_MIN} to 65507")]
    DatagramBytes,
    /// Senders would wait for the delay of acknowledgements instead of their number.
    #[error(
        "resync_in_flight_messages_max must be at least twice ack_every_messages and at most in_flight_messages_max"
    )]
    Windows,
    /// The first is more than the second.
    #[error("{0} must not be more than {1}")]
    Order(&'static str, &'static str),
}

impl SessionConfig {
    /// Checks the limits and their relations.
    ///
    /// # Errors
    /// The first thing that is wrong.
    pub fn check(&self) -> Result<(), ConfigError> {
        let positive = [
            ("connections_max", self.connections_max == 0),
            ("changes_queued_max", self.changes_queued_max == 0),
            ("deletions_max", self.deletions_max == 0),
            ("ack_every_messages", self.ack_every_messages == 0),
            ("probe_timeout_min", self.probe_timeout_min.is_zero()),
            ("alive_interval", self.alive_interval.is_zero()),
            ("hello_interval_min", self.hello_interval_min.is_zero()),
        ];
        if let Some((name, _)) = positive.iter().find(|(_, is_zero)| *is_zero) {
            return Err(ConfigError::Zero(name));
        }
        if self.connections_max > 1 << 31 {
            return Err(ConfigError::TooManyConnections);
        }
        if !(DATAGRAM_BYTES_MIN..=65507).contains(&self.datagram_bytes_max) {
            return Err(ConfigError::DatagramBytes);
        }
        let resync_window = self.resync_in_flight_messages_max;
        if resync_window / 2 < self.ack_every_messages || resync_window > self.in_flight_messages_max {
            return Err(ConfigError::Windows);
        }
        let ordered = [
            ("probe_timeout_min", self.probe_timeout_min, "probe_timeout_max", self.probe_timeout_max),
            ("hello_interval_min", self.hello_interval_min, "hello_interval_max", self.hello_interval_max),
            ("alive_interval", self.alive_interval.saturating_mul(2), "half of peer_timeout", self.peer_timeout),
            ("batch_delay", self.batch_delay, "probe_timeout_min", self.probe_timeout_min),
        ];
        match ordered.iter().find(|(_, smaller, _, larger)| smaller > larger) {
            Some((smaller, _, larger, _)) => Err(ConfigError::Order(smaller, larger)),
            None => Ok(()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_default_is_sound() {
        assert_eq!(SessionConfig::default().check(), Ok(()));
    }

    #[test]
    fn each_wrong_relation_is_named() {
        let sound = SessionConfig::default();
        let second = Duration::from_secs(1);
        let cases = [
            (SessionConfig { connections_max: 0, ..sound }, ConfigError::Zero("connections_max")),
            (SessionConfig { connections_max: u32::MAX, ..sound }, ConfigError::TooManyConnections),
            (SessionConfig { datagram_bytes_max: 500, ..sound }, ConfigError::DatagramBytes),
            (SessionConfig { ack_every_messages: 200, ..sound }, ConfigError::Windows),
            (SessionConfig { in_flight_messages_max: 100, ..sound }, ConfigError::Windows),
            (SessionConfig { batch_delay: second, ..sound }, ConfigError::Order("batch_delay", "probe_timeout_min")),
            (
                SessionConfig { alive_interval: second, ..sound },
                ConfigError::Order("alive_interval", "half of peer_timeout"),
            ),
        ];
        for (config, error) in cases {
            assert_eq!(config.check(), Err(error));
        }
    }
}
