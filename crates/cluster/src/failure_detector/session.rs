//! The session: RFC 5880's state variables (section 6.8.1) and the rules that move them.

use alloc::collections::VecDeque;
use alloc::vec::Vec;
use core::time::Duration;

use flow::Instant;
use flow::random::SplitMix64;

use super::TIME_TO_LIVE;
use super::config::{Config, micros};
use super::diagnostic::Diagnostic;
use super::error::BfdError;
use super::packet::ControlPacket;
use super::state::{Input, State, transition};

/// Events that wait to be polled. When there are more, the oldest two go: with one `Up` and one `Down` gone, the rest still
/// shows the state.
pub const EVENTS_PENDING_MAX: usize = 16;

/// Events of a session.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Event {
    /// Both sides receive each other's packets.
    Up,
    /// They did, and no longer do.
    Down {
        /// Why.
        diagnostic: Diagnostic,
    },
}

/// How a session stands.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Status {
    /// This side's state.
    pub state: State,
    /// Why it last changed.
    pub diagnostic: Diagnostic,
    /// The state that the peer last said.
    pub remote_state: State,
    /// The peer's name for the session; 0 when the peer is not known.
    pub remote_discriminator: u32,
    /// The interval at which this side sends, before jitter. `None`: the peer asked for no periodic packets.
    pub transmit_interval: Option<Duration>,
    /// How long the peer may be silent. Zero when no packet has come yet.
    pub detection_time: Duration,
}

/// A poll sequence: a change of parameters that the peer must confirm (RFC 5880 section 6.5).
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Poll {
    /// None in progress.
    Idle,
    /// P is set until F comes.
    Polling {
        /// The parameters changed once more meanwhile: another sequence must follow.
        is_repeated: bool,
    },
    /// One packet without P must go before the next sequence, so that a late F does not end it.
    Pausing,
}

/// How often a session sends while it is up.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum Pace {
    /// At the configured interval.
    #[default]
    Configured,
    /// At this interval, if that is longer: another path watches the peer. A packet of the peer that is missing is asked for at the
    /// configured interval.
    Slow(Duration),
    /// At the configured interval. A peer that sends more slowly is polled by each packet, which it answers at once (RFC 5880 section
    /// 6.8.6). It is down if it has answered nothing for the detection time since then.
    Urgent {
        /// When the peer was last received on another path.
        since: Instant,
    },
}

/// One BFD session with one peer.
#[derive(Clone, Debug)]
pub struct Session {
    config: Config,
    random: SplitMix64,
    local_discriminator: u32,
    state: State,
    diagnostic: Diagnostic,
    poll: Poll,
    /// The values in packets, and those in use until the peer has confirmed them (section 6.8.3).
    desired_min_tx_us: u32,
    desired_min_tx_us_in_use: u32,
    required_min_rx_us: u32,
    required_min_rx_us_in_use: u32,
    remote_state: State,
    remote_discriminator: u32,
    remote_min_rx_us: u32,
    remote_desired_min_tx_us: u32,
    remote_detect_multiplier: u8,
    received_at: Option<Instant>,
    transmitted_at: Option<Instant>,
    transmit_at: Instant,
    /// When a poll came that is not answered yet.
    final_since: Option<Instant>,
    /// Nothing has come since this side was last away.
    is_excused: bool,
    pace: Pace,
    /// The peer is polled until it answers, or is down: since when an answer is awaited.
    answer_awaited_since: Option<Instant>,
    events: VecDeque<Event>,
}

impl Session {
    /// A session that begins down and sends at once. `seed` is for the jitter.
    ///
    /// # Panics
    /// On a configuration that [`Config::check`] rejects, and on a discriminator of 0.
    #[must_use]
    pub fn new(config: Config, local_discriminator: u32, seed: u64) -> Self {
        config.check().expect("the configuration was checked");
        assert_ne!(local_discriminator, 0, "RFC 5880 section 6.8.1: the local discriminator is not 0");
        let desired_min_tx_us = micros(config.desired_min_tx.max(config.interval_while_down));
        let required_min_rx_us = micros(config.required_min_rx);
        Self {
            config,
            random: SplitMix64::new(seed),
            local_discriminator,
            state: State::Down,
            diagnostic: Diagnostic::None,
            poll: Poll::Idle,
            desired_min_tx_us,
            desired_min_tx_us_in_use: desired_min_tx_us,
            required_min_rx_us,
            required_min_rx_us_in_use: required_min_rx_us,
            remote_state: State::Down,
            remote_discriminator: 0,
            remote_min_rx_us: 1,
            remote_desired_min_tx_us: 0,
            remote_detect_multiplier: 0,
            received_at: None,
            transmitted_at: None,
            transmit_at: Instant::ZERO,
            final_since: None,
            is_excused: false,
            pace: Pace::Configured,
            answer_awaited_since: None,
            events: VecDeque::new(),
        }
    }

    /// A datagram from the peer in plain text, with the time to live that it arrived with (RFC 5880 section 6.8.6).
    ///
    /// # Errors
    /// Why it was discarded. The session is unchanged then, except that an administratively down session still
    /// takes note of the peer's parameters.
    pub fn handle_packet(&mut self, now: Instant, bytes: &[u8], ttl: u8) -> Result<(), BfdError> {
        if ttl != TIME_TO_LIVE {
            return Err(BfdError::TimeToLive(ttl));
        }
        self.take_packet(now, bytes, false)
    }

    /// As [`Session::handle_packet`], for a packet that keys have shown to be the peer's. One of a peer that was restarted is believed at
    /// once.
    ///
    /// # Errors
    /// As there.
    pub fn handle_authentic_packet(&mut self, now: Instant, bytes: &[u8]) -> Result<(), BfdError> {
        self.take_packet(now, bytes, true)
    }

    fn take_packet(&mut self, now: Instant, bytes: &[u8], is_authentic: bool) -> Result<(), BfdError> {
        let packet = ControlPacket::decode(bytes)?;
        if packet.your_discriminator != 0 && packet.your_discriminator != self.local_discriminator {
            return Err(BfdError::UnknownDiscriminator(packet.your_discriminator));
        }
        if packet.authentication_present {
            return Err(BfdError::UnexpectedAuthentication);
        }
        // A session whose time ran out before this packet came went down first, however late the call.
        self.handle_timeout(now);
        if !is_authentic && self.is_of_another_sender(&packet) {
            return Err(BfdError::OtherSender(packet.my_discriminator));
        }
        self.note_remote(now, &packet);
        if packet.is_final {
            self.end_poll(now);
        }
        if self.state == State::AdminDown {
            return Err(BfdError::AdministrativelyDown);
        }
        self.received_at = Some(now);
        self.is_excused = false;
        if matches!(self.pace, Pace::Slow(_)) {
            self.answer_awaited_since = None;
        }
        self.advance(now, Input::Received(packet.state));
        if packet.poll {
            self.final_since.get_or_insert(now);
        }
        Ok(())
    }

    /// In plain text, a packet that names no session is selected by its sender's discriminator while the session is up (RFC 5880 section
    /// 6.8.6 leaves the choice of fields to the receiver). So a stranger, who does not know that number, cannot take the session down. A
    /// peer that was restarted is down once the detection time of its former incarnation is over.
    fn is_of_another_sender(&self, packet: &ControlPacket) -> bool {
        let is_unnamed = packet.your_discriminator == 0 && self.state == State::Up;
        is_unnamed && self.remote_discriminator != packet.my_discriminator
    }

    /// Time has passed: the detection time may have run out (RFC 5880 section 6.8.4).
    pub fn handle_timeout(&mut self, now: Instant) {
        if self.detection_deadline().is_some_and(|deadline| deadline <= now) {
            self.forget_remote();
            self.advance(now, Input::DetectionTimeExpired);
        } else if self.is_slow() && self.missing_at().is_some_and(|at| at <= now) {
            self.await_answer(now, now);
        }
    }

    /// It sends slowly, and awaits no answer.
    const fn is_slow(&self) -> bool {
        matches!(self.pace, Pace::Slow(_)) && self.answer_awaited_since.is_none()
    }

    /// Sends at another pace from now on. The peer is asked to agree before the pace slackens (RFC 5880 section 6.8.3).
    pub fn set_pace(&mut self, now: Instant, pace: Pace) {
        if self.pace == pace {
            return;
        }
        self.pace = pace;
        match pace {
            Pace::Urgent { since } => self.await_answer(now, since),
            Pace::Configured | Pace::Slow(_) => self.answer_awaited_since = None,
        }
        self.apply_intervals(now);
    }

    fn await_answer(&mut self, now: Instant, since: Instant) {
        self.answer_awaited_since = Some(since);
        self.hasten_transmission(now);
    }

    /// When the next packet of a peer that is up counts as missing: half an interval after it was due at the latest.
    #[must_use]
    pub fn missing_at(&self) -> Option<Instant> {
        let received_at = self.received_at.filter(|_| self.state == State::Up)?;
        Some(received_at + self.receive_interval() * 3 / 2)
    }

    /// When the peer was last received, if it is up and its next packet is missing.
    #[must_use]
    pub fn missing_since(&self, now: Instant) -> Option<Instant> {
        self.missing_at().filter(|at| *at <= now).and(self.received_at)
    }

    /// How long the peer may be silent while it is polled.
    #[must_use]
    pub fn polled_detection_time(&self) -> Duration {
        let interval_us = micros(self.config.desired_min_tx).max(self.remote_min_rx_us);
        Duration::from_micros(u64::from(interval_us)) * u32::from(self.remote_detect_multiplier)
    }

    /// This side did not run for `absence` (its process stood still, or its clock leapt), which is handled before anything
    /// else. It cannot know how long the peer was silent: what came meanwhile waits to be read. So the detection time begins
    /// again; but only once until something comes, or a side that is always late would never notice anything.
    pub fn handle_absence(&mut self, now: Instant, absence: Duration) {
        let is_long = self.received_at.is_some() && absence * 2 >= self.detection_time();
        if is_long && !self.is_excused {
            self.received_at = Some(now);
            self.is_excused = true;
        }
    }

    /// When [`Session::handle_timeout`] or [`Session::poll_transmit`] next has something to do.
    #[must_use]
    pub fn poll_timeout(&self) -> Option<Instant> {
        let periodic = (self.remote_min_rx_us != 0).then_some(self.transmit_at);
        let missing_at = self.missing_at().filter(|_| self.is_slow());
        [periodic, self.final_since, self.detection_deadline(), missing_at].into_iter().flatten().min()
    }

    /// Replaces `packet` by the control packet that is due now; false if there is none (section 6.8.7).
    pub fn poll_transmit(&mut self, now: Instant, packet: &mut Vec<u8>) -> bool {
        packet.clear();
        if self.final_since.take().is_some() {
            self.encode(packet, false, true);
            return true;
        }
        if self.remote_min_rx_us == 0 || now < self.transmit_at {
            return false;
        }
        if self.poll == Poll::Pausing {
            self.encode(packet, false, false);
            self.poll = Poll::Polling { is_repeated: false };
        } else {
            let polls = matches!(self.poll, Poll::Polling { .. }) || self.polls_slow_peer();
            self.encode(packet, polls, false);
        }
        self.transmitted_at = Some(now);
        self.transmit_at = now + self.jittered_interval();
        true
    }

    /// What has happened since last asked.
    pub fn poll_event(&mut self) -> Option<Event> {
        self.events.pop_front()
    }

    /// Takes the session down, or lets it come up again. The peer learns so, and does not take it for a failure.
    pub fn set_enabled(&mut self, now: Instant, enabled: bool) {
        self.advance(now, if enabled { Input::Enable } else { Input::Disable });
    }

    /// Changes the intervals of a running session; the peer is asked to confirm (section 6.8.3).
    ///
    /// # Errors
    /// The configuration cannot be used; nothing is changed.
    pub fn set_config(&mut self, now: Instant, config: Config) -> Result<(), super::ConfigError> {
        config.check()?;
        self.config = config;
        self.apply_intervals(now);
        Ok(())
    }

    /// How the session stands.
    #[must_use]
    pub fn status(&self) -> Status {
        Status {
            state: self.state,
            diagnostic: self.diagnostic,
            remote_state: self.remote_state,
            remote_discriminator: self.remote_discriminator,
            transmit_interval: (self.remote_min_rx_us != 0).then(|| self.transmit_interval()),
            detection_time: self.detection_time(),
        }
    }

    /// The interval at which the peer sends, before jitter. Zero when no packet has come yet.
    #[must_use]
    pub fn receive_interval(&self) -> Duration {
        let interval_us = self.required_min_rx_us_in_use.max(self.remote_desired_min_tx_us);
        Duration::from_micros(u64::from(interval_us))
    }

    fn note_remote(&mut self, now: Instant, packet: &ControlPacket) {
        self.remote_discriminator = packet.my_discriminator;
        self.remote_state = packet.state;
        self.remote_desired_min_tx_us = packet.desired_min_tx_us;
        self.remote_detect_multiplier = packet.detect_multiplier;
        let interval_before = self.transmit_interval();
        let was_silenced = self.remote_min_rx_us == 0;
        self.remote_min_rx_us = packet.required_min_rx_us;
        if was_silenced || self.transmit_interval() < interval_before {
            self.hasten_transmission(now);
        }
    }

    /// The peer is gone, and the next session begins anew (section 6.8.1: bfd.RemoteDiscr). Its demand for
    /// silence goes with it, or a peer that restarts would wait for packets that never come.
    fn forget_remote(&mut self) {
        self.remote_discriminator = 0;
        self.remote_state = State::Down;
        self.remote_min_rx_us = 1;
        self.received_at = None;
        self.final_since = None;
        self.poll = Poll::Idle;
    }

    fn advance(&mut self, now: Instant, input: Input) {
        let Some((next, diagnostic)) = transition(self.state, input) else { return };
        let before = self.state;
        (self.state, self.diagnostic) = (next, diagnostic);
        match (before, next) {
            (_, State::Up) => self.push_event(Event::Up),
            (State::Up, _) => self.push_event(Event::Down { diagnostic }),
            _ => {}
        }
        self.apply_intervals(now);
        // The peer learns of a new state at once rather than at the next interval (section 6.8.7, last paragraph).
        self.transmit_at = now;
    }

    fn push_event(&mut self, event: Event) {
        if self.events.len() == EVENTS_PENDING_MAX {
            self.events.drain(..2);
        }
        self.events.push_back(event);
    }

    /// Sets the intervals that the state asks for. While up, a slower pace waits until the peer knows of it, since
    /// its detection time still rests on the old one (section 6.8.3).
    fn apply_intervals(&mut self, now: Instant) {
        let is_up = self.state == State::Up;
        let down = if is_up { Duration::ZERO } else { self.config.interval_while_down };
        let slow = if let Pace::Slow(interval) = self.pace { down.max(interval) } else { down };
        let desired_min_tx_us = micros(self.config.desired_min_tx.max(slow));
        let required_min_rx_us = micros(self.config.required_min_rx);
        if (desired_min_tx_us, required_min_rx_us) == (self.desired_min_tx_us, self.required_min_rx_us) {
            return;
        }
        self.desired_min_tx_us = desired_min_tx_us;
        self.required_min_rx_us = required_min_rx_us;
        if !is_up || desired_min_tx_us < self.desired_min_tx_us_in_use {
            self.desired_min_tx_us_in_use = desired_min_tx_us;
        }
        if !is_up || required_min_rx_us > self.required_min_rx_us_in_use {
            self.required_min_rx_us_in_use = required_min_rx_us;
        }
        if self.remote_discriminator != 0 {
            self.poll = match self.poll {
                Poll::Idle => Poll::Polling { is_repeated: false },
                Poll::Polling { .. } => Poll::Polling { is_repeated: true },
                Poll::Pausing => Poll::Pausing,
            };
        }
        self.hasten_transmission(now);
    }

    fn end_poll(&mut self, now: Instant) {
        let Poll::Polling { is_repeated } = self.poll else { return };
        if is_repeated {
            self.poll = Poll::Pausing;
            return;
        }
        self.poll = Poll::Idle;
        self.desired_min_tx_us_in_use = self.desired_min_tx_us;
        self.required_min_rx_us_in_use = self.required_min_rx_us;
        self.hasten_transmission(now);
    }

    /// After the interval has become shorter: the next packet must not wait for longer than the new one, counted
    /// from the last (section 6.8.3).
    fn hasten_transmission(&mut self, now: Instant) {
        let due = self.transmitted_at.map_or(now, |last| last + self.jittered_interval());
        self.transmit_at = self.transmit_at.min(due);
    }

    fn transmit_interval(&self) -> Duration {
        Duration::from_micros(u64::from(self.transmit_interval_us()))
    }

    fn transmit_interval_us(&self) -> u32 {
        let configured_us = if self.awaits_answer() { micros(self.config.desired_min_tx) } else { u32::MAX };
        self.desired_min_tx_us_in_use.min(configured_us).max(self.remote_min_rx_us)
    }

    /// The peer is up and is to answer.
    fn awaits_answer(&self) -> bool {
        self.state == State::Up && self.answer_awaited_since.is_some()
    }

    /// The peer does not send at the interval at which it is asked, so each packet polls it.
    fn polls_slow_peer(&self) -> bool {
        self.awaits_answer() && self.receive_interval() > self.transmit_interval()
    }

    /// The interval less a quarter at most; never more than 90 % of it when a single loss means failure (6.8.7).
    fn jittered_interval(&mut self) -> Duration {
        let interval_ns = u64::from(self.transmit_interval_us()) * 1000;
        let longest_ns = if self.config.detect_multiplier == 1 { interval_ns / 10 * 9 } else { interval_ns };
        Duration::from_nanos(self.random.between(interval_ns / 4 * 3, longest_ns))
    }

    /// How long the peer may be silent.
    fn detection_time(&self) -> Duration {
        match self.pace {
            _ if self.awaits_answer() => self.polled_detection_time(),
            Pace::Slow(_) if self.state == State::Up => self.receive_interval() * 3 / 2 + self.polled_detection_time(),
            _ => self.receive_interval() * u32::from(self.remote_detect_multiplier),
        }
    }

    fn detection_deadline(&self) -> Option<Instant> {
        let since = self.answer_awaited_since.filter(|_| self.awaits_answer()).unwrap_or(Instant::ZERO);
        self.received_at.map(|at| at.max(since) + self.detection_time())
    }

    fn encode(&self, out: &mut Vec<u8>, poll: bool, is_final: bool) {
        let packet = ControlPacket {
            diagnostic: self.diagnostic,
            state: self.state,
            poll,
            is_final,
            authentication_present: false,
            demand: false,
            detect_multiplier: self.config.detect_multiplier,
            my_discriminator: self.local_discriminator,
            your_discriminator: self.remote_discriminator,
            desired_min_tx_us: self.desired_min_tx_us,
            required_min_rx_us: self.required_min_rx_us,
            required_min_echo_rx_us: 0,
        };
        packet.encode(out);
    }
}
