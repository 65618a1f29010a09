//! A session's limits and times.

use core::time::Duration;

/// The smallest [`FtfwConfig::datagram_bytes_max`]: a message about any connection, and acknowledgements before it, fit.
pub const DATAGRAM_BYTES_MIN: usize = 576;

/// Limits and times of a session with a conntrackd; [`super::FtfwSession::new`] checks them.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct FtfwConfig {
    /// Handles of connections are below this. Eight bytes of memory for each that was ever used.
    pub connections_max: u32,
    /// Handles of expectations are below this.
    pub expectations_max: u32,
    /// Ended connections (and as many expectations) that wait to be sent or acknowledged. When full, the oldest is given up:
    /// the peer's replica then ends by its own timeout.
    pub deletions_max: u32,
    /// Messages sent and not acknowledged. When full, changes wait in their queue, where newer state replaces older. A
    /// conntrackd acknowledges every `ACKWindowSize` messages (300 unless configured), so several times that.
    pub in_flight_messages_max: u16,
    /// As `in_flight_messages_max`, during a full synchronisation: less, so that a conntrackd's socket buffer holds it, and
    /// changes have room.
    pub resync_in_flight_messages_max: u16,
    /// Bytes of a datagram: the link's MTU less the IP and UDP headers.
    pub datagram_bytes_max: usize,
    /// An acknowledgement is due after so many messages; else with the next keep-alive.
    pub ack_every_messages: u16,
    /// How long changes may wait for more to share their datagram; zero sends whatever there is when asked.
    pub batch_delay: Duration,
    /// Something is sent at least this often; conntrackd does it every second.
    pub alive_interval: Duration,
    /// A keep-alive follows the last message after this, so that the peer finds out at once if that was lost; and again, after
    /// four times as long each, up to [`FtfwConfig::tail_probes_max`] times.
    pub tail_probe_delay: Duration,
    /// See [`FtfwConfig::tail_probe_delay`].
    pub tail_probes_max: u8,
    /// What was not acknowledged for so long is asked after: a number is left out, and the peer answers the gap at once. A
    /// conntrackd that sends much itself acknowledges only every `ACKWindowSize` messages, however long that takes.
    pub ask_timeout: Duration,
    /// As `ask_timeout`, when nothing more may be sent before an acknowledgement.
    pub ask_timeout_window_full: Duration,
    /// What was not acknowledged for so long, although it was asked after, is sent again.
    pub resend_timeout: Duration,
    /// A peer is away once nothing was received from it for so long.
    pub peer_timeout: Duration,
    /// Time from the first HELLO to the second; doubles from then on, up to `alive_interval`.
    pub hello_interval_min: Duration,
    /// The scales of TCP's windows are replicated (conntrackd's `TCPWindowTracking`).
    pub replicates_window_scales: bool,
}

impl Default for FtfwConfig {
    fn default() -> Self {
        Self {
            connections_max: 1 << 20,
            expectations_max: 1 << 16,
            deletions_max: 1 << 16,
            in_flight_messages_max: 2048,
            resync_in_flight_messages_max: 1024,
            datagram_bytes_max: 1472,
            ack_every_messages: 100,
            batch_delay: Duration::ZERO,
            alive_interval: Duration::from_secs(1),
            tail_probe_delay: Duration::from_millis(5),
            tail_probes_max: 4,
            ask_timeout: Duration::from_millis(1500),
            ask_timeout_window_full: Duration::from_millis(20),
            resend_timeout: Duration::from_secs(4),
            peer_timeout: Duration::from_secs(5),
            hello_interval_min: Duration::from_millis(50),
            replicates_window_scales: false,
        }
    }
}

/// Why a session cannot be had with a configuration: misuse, to be corrected by its author.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
pub enum FtfwConfigError {
    /// Some limit or time is zero.
    #[error("{0} must not be zero")]
    Zero(&'static str),
    /// A datagram would not hold what it must.
    #[error("datagram_bytes_max must be from {DATAGRAM_BYTES_MIN} to 65507")]
    DatagramBytes,
    /// The first is more than the second.
    #[error("{0} must not be more than {1}")]
    Order(&'static str, &'static str),
}

impl FtfwConfig {
    /// Checks the limits and their relations.
    ///
    /// # Errors
    /// The first thing that is wrong.
    pub fn check(&self) -> Result<(), FtfwConfigError> {
        let positive = [
            ("connections_max", self.connections_max == 0),
            ("expectations_max", self.expectations_max == 0),
            ("deletions_max", self.deletions_max == 0),
            ("resync_in_flight_messages_max", self.resync_in_flight_messages_max == 0),
            ("ack_every_messages", self.ack_every_messages == 0),
            ("alive_interval", self.alive_interval.is_zero()),
            ("ask_timeout_window_full", self.ask_timeout_window_full.is_zero()),
            ("tail_probe_delay", self.tail_probe_delay.is_zero()),
            ("hello_interval_min", self.hello_interval_min.is_zero()),
        ];
        if let Some((name, _)) = positive.iter().find(|(_, is_zero)| *is_zero) {
            return Err(FtfwConfigError::Zero(name));
        }
        if !(DATAGRAM_BYTES_MIN..=65507).contains(&self.datagram_bytes_max) {
            return Err(FtfwConfigError::DatagramBytes);
        }
        if self.resync_in_flight_messages_max > self.in_flight_messages_max {
            return Err(FtfwConfigError::Order("resync_in_flight_messages_max", "in_flight_messages_max"));
        }
        let twice_alive = self.alive_interval.saturating_mul(2);
        let ordered = [
            ("hello_interval_min", self.hello_interval_min, "alive_interval", self.alive_interval),
            ("alive_interval", twice_alive, "half of peer_timeout", self.peer_timeout),
            ("alive_interval", self.alive_interval, "ask_timeout", self.ask_timeout),
            ("ask_timeout_window_full", self.ask_timeout_window_full, "ask_timeout", self.ask_timeout),
            ("ask_timeout", self.ask_timeout.saturating_mul(2), "half of resend_timeout", self.resend_timeout),
            ("batch_delay", self.batch_delay, "alive_interval", self.alive_interval),
        ];
        match ordered.iter().find(|(_, smaller, _, larger)| smaller > larger) {
            Some((smaller, _, larger, _)) => Err(FtfwConfigError::Order(smaller, larger)),
            None => Ok(()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_wrong_relation_is_named() {
        let sound = FtfwConfig::default();
        assert_eq!(sound.check(), Ok(()));
        let minute = Duration::from_secs(60);
        let cases = [
            (FtfwConfig { connections_max: 0, ..sound }, FtfwConfigError::Zero("connections_max")),
            (FtfwConfig { datagram_bytes_max: 500, ..sound }, FtfwConfigError::DatagramBytes),
            (
                FtfwConfig { in_flight_messages_max: 1, ..sound },
                FtfwConfigError::Order("resync_in_flight_messages_max", "in_flight_messages_max"),
            ),
            (
                FtfwConfig { alive_interval: minute, ..sound },
                FtfwConfigError::Order("alive_interval", "half of peer_timeout"),
            ),
            (FtfwConfig { batch_delay: minute, ..sound }, FtfwConfigError::Order("batch_delay", "alive_interval")),
        ];
        for (config, error) in cases {
            assert_eq!(config.check(), Err(error));
        }
    }
}
