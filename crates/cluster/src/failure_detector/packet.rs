//! The BFD control packet (RFC 5880 section 4.1), without authentication.

use alloc::vec::Vec;

use super::diagnostic::Diagnostic;
use super::error::BfdError;
use super::state::State;

/// Bytes of a control packet without authentication.
pub const CONTROL_PACKET_BYTES: usize = 24;
/// The least length that a packet with the A bit can have: the header and an authentication section's first two bytes.
const AUTHENTICATED_PACKET_BYTES_MIN: usize = 26;
const VERSION: u8 = 1;

const POLL: u8 = 0x20;
const FINAL: u8 = 0x10;
const AUTHENTICATION: u8 = 0x04;
const DEMAND: u8 = 0x02;
const MULTIPOINT: u8 = 0x01;

/// A control packet's fields. Intervals are in microseconds, as on the wire.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct ControlPacket {
    /// Why the sender last changed its state.
    pub diagnostic: Diagnostic,
    /// The sender's state.
    pub state: State,
    /// P: the sender asks for an answer with F.
    pub poll: bool,
    /// F: this answers a poll.
    pub is_final: bool,
    /// A: an authentication section follows, which is left unread.
    pub authentication_present: bool,
    /// D: the sender wants the periodic packets to stop (never so here).
    pub demand: bool,
    /// How many intervals without a packet mean that the sender is gone.
    pub detect_multiplier: u8,
    /// The sender's name for the session; never 0.
    pub my_discriminator: u32,
    /// The receiver's name for the session; 0 while the sender does not know it.
    pub your_discriminator: u32,
    /// The shortest interval at which the sender would like to send.
    pub desired_min_tx_us: u32,
    /// The shortest interval at which the sender can receive; 0: do not send periodic packets.
    pub required_min_rx_us: u32,
    /// The shortest interval at which the sender can receive echo packets; 0: none.
    pub required_min_echo_rx_us: u32,
}

impl ControlPacket {
    /// Reads a packet, with those checks of RFC 5880 section 6.8.6 that need no session, in its order.
    ///
    /// # Errors
    /// The first check that fails. Never panics, whatever the bytes.
    pub fn decode(bytes: &[u8]) -> Result<Self, BfdError> {
        let Some(header) = bytes.first_chunk::<CONTROL_PACKET_BYTES>() else {
            return Err(BfdError::Truncated { length_bytes: bytes.len() });
        };
        let version = header[0] >> 5;
        if version != VERSION {
            return Err(BfdError::Version(version));
        }
        let flags = header[1];
        let authenticated = flags & AUTHENTICATION != 0;
        let length_min = if authenticated { AUTHENTICATED_PACKET_BYTES_MIN } else { CONTROL_PACKET_BYTES };
        if usize::from(header[3]) < length_min {
            return Err(BfdError::LengthTooSmall(header[3]));
        }
        if usize::from(header[3]) > bytes.len() {
            return Err(BfdError::LengthBeyondPayload { claimed: header[3], length_bytes: bytes.len() });
        }
        if header[2] == 0 {
            return Err(BfdError::ZeroDetectMultiplier);
        }
        if flags & MULTIPOINT != 0 {
            return Err(BfdError::Multipoint);
        }
        let word = |at: usize| u32::from_be_bytes([header[at], header[at + 1], header[at + 2], header[at + 3]]);
        let packet = Self {
            diagnostic: Diagnostic::from_number(header[0]),
            state: State::from_number(flags >> 6),
            poll: flags & POLL != 0,
            is_final: flags & FINAL != 0,
            authentication_present: authenticated,
            demand: flags & DEMAND != 0,
            detect_multiplier: header[2],
            my_discriminator: word(4),
            your_discriminator: word(8),
            desired_min_tx_us: word(12),
            required_min_rx_us: word(16),
            required_min_echo_rx_us: word(20),
        };
        if packet.my_discriminator == 0 {
            return Err(BfdError::ZeroMyDiscriminator);
        }
        if packet.your_discriminator == 0 && !matches!(packet.state, State::Down | State::AdminDown) {
            return Err(BfdError::ZeroYourDiscriminator(packet.state));
        }
        Ok(packet)
    }

    /// Appends the packet to `out`, always without authentication section.
    pub fn encode(&self, out: &mut Vec<u8>) {
        let flag = |set: bool, bit: u8| if set { bit } else { 0 };
        out.extend_from_slice(&[
            VERSION << 5 | self.diagnostic.number(),
            self.state.number() << 6 | flag(self.poll, POLL) | flag(self.is_final, FINAL) | flag(self.demand, DEMAND),
            self.detect_multiplier,
            24,
        ]);
        for word in [
            self.my_discriminator,
            self.your_discriminator,
            self.desired_min_tx_us,
            self.required_min_rx_us,
            self.required_min_echo_rx_us,
        ] {
            out.extend_from_slice(&word.to_be_bytes());
        }
    }
}
