//! What a tunnel did so far, for operators.

use redundancy::decoder::DecoderCounters;
use redundancy::encoder::EncoderCounters;

use super::receiver::ReceiverCounters;
use super::sender::SenderCounters;

/// Why a packet that the rules choose goes past the tunnel.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Bypass {
    /// Nothing is received from the other site's gateway, or it receives nothing from this one.
    PeerAway,
    /// The path does not take datagrams of the least size.
    PathTooSmall,
    /// There is no processor time for it.
    Processor,
    /// The packet is longer than any record.
    TooLong,
}

impl Bypass {
    /// All, in the order of their numbers.
    pub const ALL: [Self; 4] = [Self::PeerAway, Self::PathTooSmall, Self::Processor, Self::TooLong];

    /// As a metric label.
    #[must_use]
    pub const fn label(self) -> &'static str {
        match self {
            Self::PeerAway => "peer_away",
            Self::PathTooSmall => "path_too_small",
            Self::Processor => "processor",
            Self::TooLong => "too_long",
        }
    }
}

/// What a tunnel did so far.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct TunnelCounters {
    /// Packets that were taken into the tunnel.
    pub packets_in: u64,
    /// Their bytes, from the IP header on.
    pub bytes_in: u64,
    /// Bytes of all datagrams sent, with their IP and UDP headers.
    pub bytes_out: u64,
    /// Packets that went past the tunnel, by [`Bypass`].
    pub bypassed: [u64; Bypass::ALL.len()],
    /// Packets whose headers were sent as their differences from earlier ones.
    pub headers_small: u64,
    /// Bytes that these headers had and what was sent of them had not.
    pub header_bytes_saved: u64,
    /// Bytes of records that were compressed together.
    pub bundled_bytes_in: u64,
    /// Bytes that they became.
    pub bundled_bytes_out: u64,
    /// Packets dropped because too much waited for the path.
    pub backlog_drops: u64,
    /// Packets that came out of the tunnel.
    pub packets_restored: u64,
    /// Their bytes, from the IP header on.
    pub bytes_restored: u64,
    /// Bytes of all datagrams that came, with their IP and UDP headers.
    pub bytes_received: u64,
    /// Packets that came out of the tunnel and found no room to wait for being routed on.
    pub restored_drops: u64,
    /// Packets that came out of the tunnel with a wrong checksum, and were dropped.
    pub broken: u64,
    /// Datagrams that were none, or of no present session.
    pub refused: u64,
    /// Sessions begun.
    pub sessions: u64,
    /// The stream's sending end.
    pub sender: SenderCounters,
    /// The stream's receiving end.
    pub receiver: ReceiverCounters,
    /// The encoder.
    pub encoder: EncoderCounters,
    /// The decoder.
    pub decoder: DecoderCounters,
}

impl TunnelCounters {
    /// Bytes that packets had and datagrams did not. Less than none when nothing is redundant.
    #[must_use]
    pub const fn bytes_saved(&self) -> i64 {
        self.bytes_in as i64 - self.bytes_out as i64
    }

    /// Adds what the codecs did.
    pub(super) fn add_codecs(&mut self, encoder: EncoderCounters, decoder: DecoderCounters) {
        add_encoder(&mut self.encoder, encoder);
        add_decoder(&mut self.decoder, decoder);
    }

    /// Adds what the parts of a session that is over did.
    pub(super) const fn add_parts(&mut self, sender: SenderCounters, receiver: ReceiverCounters) {
        self.sender.datagrams += sender.datagrams;
        self.sender.datagrams_retransmitted += sender.datagrams_retransmitted;
        self.sender.datagrams_copied += sender.datagrams_copied;
        self.sender.datagrams_given_up += sender.datagrams_given_up;
        self.receiver.datagrams += receiver.datagrams;
        self.receiver.datagrams_useless += receiver.datagrams_useless;
        self.receiver.datagrams_recovered += receiver.datagrams_recovered;
        self.receiver.datagrams_lost += receiver.datagrams_lost;
    }
}

fn add_encoder(to: &mut EncoderCounters, of: EncoderCounters) {
    // Every field is named, so that a new one cannot be forgotten.
    let EncoderCounters {
        blocks_plain,
        blocks_literal,
        blocks_encoded,
        bytes_in,
        bytes_out,
        pointers,
        bytes_matched,
        blocks_cautious,
        granules_filled,
        granules_gone,
        hellos_sent,
        blocks_plain_cached,
    } = of;
    to.blocks_plain += blocks_plain;
    to.blocks_literal += blocks_literal;
    to.blocks_encoded += blocks_encoded;
    to.bytes_in += bytes_in;
    to.bytes_out += bytes_out;
    to.pointers += pointers;
    to.bytes_matched += bytes_matched;
    to.blocks_cautious += blocks_cautious;
    to.granules_filled += granules_filled;
    to.granules_gone += granules_gone;
    to.hellos_sent += hellos_sent;
    to.blocks_plain_cached += blocks_plain_cached;
}

fn add_decoder(to: &mut DecoderCounters, of: DecoderCounters) {
    let DecoderCounters {
        blocks_literal,
        blocks_encoded,
        blocks_waited,
        blocks_abandoned,
        blocks_unknown,
        check_failures,
        blocks_stale,
        granules_filled,
        blocks_plain_cached,
    } = of;
    to.blocks_literal += blocks_literal;
    to.blocks_encoded += blocks_encoded;
    to.blocks_waited += blocks_waited;
    to.blocks_abandoned += blocks_abandoned;
    to.blocks_unknown += blocks_unknown;
    to.check_failures += check_failures;
    to.blocks_stale += blocks_stale;
    to.granules_filled += granules_filled;
    to.blocks_plain_cached += blocks_plain_cached;
}
