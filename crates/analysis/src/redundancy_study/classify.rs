//! What is found out about a packet before it is studied: which way it goes, its protocol, whether it is encrypted, and whether
//! its bytes were sent before.

use std::hash::{DefaultHasher, Hash, Hasher};
use std::net::IpAddr;

use flow::wire::tcp_flags;

use super::limits::FLOWS_MAX;
use super::options::Network;
use super::packet::{Known, Observed, Secrecy, SiteDirection};
use super::protocol::ProtocolId;

/// Payloads shorter than this are not classified by their bytes.
const ENTROPY_BYTES_MIN: usize = 512;
/// Of evenly spread bytes, Pearson's sum over 256 values has mean 255 and deviation 22.6; beyond four deviations it is not
/// chance. Text has tens of thousands.
const CHI_SQUARE_MAX: u64 = 345;

#[derive(Clone, Copy, Debug, Default)]
struct Flow {
    /// No flow has zero.
    tag: u64,
    /// The lower of the two ends, in the order of addresses and ports, is the client.
    low_is_client: bool,
    /// What follows the last byte seen, from the lower end and from the higher, once there was one.
    next: [Option<u32>; 2],
}

/// Looks at packets in order.
#[derive(Debug)]
pub(super) struct Classifier {
    inside: Vec<Network>,
    flows: Box<[Flow]>,
}

impl Classifier {
    pub(super) fn new(inside: &[Network]) -> Self {
        Self { inside: inside.to_vec(), flows: vec![Flow::default(); FLOWS_MAX].into_boxed_slice() }
    }

    pub(super) fn look(&mut self, packet: &Observed<'_>) -> Known {
        let protocol = ProtocolId::of(packet.ip_protocol, [packet.source_port, packet.destination_port]);
        let (is_from_client, is_repeated) = self.follow(packet);
        let way = self.way(packet, is_from_client);
        let secrecy = match () {
            () if protocol.protocol().is_encrypted && !packet.payload.is_empty() => Secrecy::ByPort,
            () if looks_random(packet.payload) => Secrecy::ByEntropy,
            () => Secrecy::Open,
        };
        Known { way, protocol, secrecy, is_repeated, is_from_client }
    }

    /// The site is where the configured networks are; else where private addresses are; else where clients are.
    fn way(&self, packet: &Observed<'_>, is_from_client: bool) -> SiteDirection {
        let is_inside = |address: IpAddr| self.inside.iter().any(|network| network.contains(address));
        let configured = [is_inside(packet.source), is_inside(packet.destination)];
        let guessed = [is_private(packet.source), is_private(packet.destination)];
        let is_outbound = match (configured, guessed) {
            ([true, false], _) => true,
            ([false, true], _) => false,
            (_, [true, false]) if self.inside.is_empty() => true,
            (_, [false, true]) if self.inside.is_empty() => false,
            _ => is_from_client,
        };
        if is_outbound { SiteDirection::Outbound } else { SiteDirection::Inbound }
    }

    /// Whether the client of the packet's flow sent it, and whether all of its bytes were sent before.
    fn follow(&mut self, packet: &Observed<'_>) -> (bool, bool) {
        let ends = [(packet.source, packet.source_port), (packet.destination, packet.destination_port)];
        let is_from_low = ends[0] <= ends[1];
        let mut hasher = DefaultHasher::new();
        (packet.ip_protocol, ends[0].min(ends[1]), ends[0].max(ends[1])).hash(&mut hasher);
        let hash = hasher.finish();
        let flow = &mut self.flows[hash as usize % FLOWS_MAX];
        let is_syn = packet.tcp.is_some_and(|(_, flags)| flags & (tcp_flags::SYN | tcp_flags::ACK) == tcp_flags::SYN);
        if flow.tag != hash | 1 || is_syn {
            // Who opens is the client; of a flow that began before the capture, who has the higher port.
            let is_from_client = is_syn || packet.source_port >= packet.destination_port;
            *flow = Flow { tag: hash | 1, low_is_client: is_from_client == is_from_low, next: [None; 2] };
        }
        let is_from_client = flow.low_is_client == is_from_low;
        let Some((sequence, flags)) = packet.tcp else { return (is_from_client, false) };
        let begin = sequence.wrapping_add(u32::from(flags & tcp_flags::SYN != 0));
        let end = begin.wrapping_add(packet.payload.len() as u32);
        let next = &mut flow.next[usize::from(!is_from_low)];
        let is_repeated = !packet.payload.is_empty() && next.is_some_and(|next| end.wrapping_sub(next) as i32 <= 0);
        if next.is_none_or(|next| end.wrapping_sub(next) as i32 > 0) {
            *next = Some(end);
        }
        (is_from_client, is_repeated)
    }
}

const fn is_private(address: IpAddr) -> bool {
    match address {
        IpAddr::V4(address) => address.is_private() || address.is_link_local(),
        IpAddr::V6(address) => address.is_unique_local() || address.is_unicast_link_local(),
    }
}

/// Whether bytes are spread as evenly over their values as chance would.
fn looks_random(payload: &[u8]) -> bool {
    if payload.len() < ENTROPY_BYTES_MIN {
        return false;
    }
    let mut counts = [0_u64; 256];
    payload.iter().for_each(|byte| counts[usize::from(*byte)] += 1);
    let length = payload.len() as u64;
    let squares: u64 = counts.iter().map(|count| count * count).sum();
    squares * 256 <= (CHI_SQUARE_MAX + length) * length
}

#[cfg(test)]
mod tests {
    use super::*;
    use flow::Instant;

    fn packet<'a>(source: &str, destination: &str, tcp: (u32, u8), payload: &'a [u8]) -> Observed<'a> {
        let end = |text: &str| text.parse::<std::net::SocketAddr>().expect("an address and a port");
        let (source, destination) = (end(source), end(destination));
        Observed {
            at: Instant::ZERO,
            source: source.ip(),
            destination: destination.ip(),
            source_port: source.port(),
            destination_port: destination.port(),
            ip_protocol: 6,
            tcp: Some(tcp),
            ip_bytes: payload.len() as u32 + 40,
            payload,
        }
    }

    #[test]
    fn the_site_is_where_it_is_configured_or_where_private_addresses_or_clients_are() {
        let configured: Network = "192.0.2.0/24".parse().expect("a network");
        let mut classifier = Classifier::new(&[configured]);
        let ack = (0, tcp_flags::ACK);
        assert_eq!(classifier.look(&packet("192.0.2.1:80", "10.0.0.1:4000", ack, b"")).way, SiteDirection::Outbound);
        assert_eq!(classifier.look(&packet("10.0.0.1:4000", "192.0.2.1:80", ack, b"")).way, SiteDirection::Inbound);
        let mut classifier = Classifier::new(&[]);
        assert_eq!(classifier.look(&packet("10.0.0.1:80", "198.51.100.1:4000", ack, b"")).way, SiteDirection::Outbound);
        assert_eq!(classifier.look(&packet("198.51.100.1:80", "[fd00::1]:4000", ack, b"")).way, SiteDirection::Inbound);
        // Both are private: the client's side counts, by its SYN although its port is lower, or by its port.
        let syn = (0, tcp_flags::SYN);
        assert_eq!(classifier.look(&packet("10.0.0.1:1000", "10.0.0.2:8080", syn, b"")).way, SiteDirection::Outbound);
        assert_eq!(classifier.look(&packet("10.0.0.2:8080", "10.0.0.1:1000", ack, b"")).way, SiteDirection::Inbound);
        assert_eq!(classifier.look(&packet("10.0.0.2:80", "10.0.0.3:1000", ack, b"")).way, SiteDirection::Inbound);
    }

    #[test]
    fn retransmitted_bytes_are_known_across_the_end_of_sequence_numbers() {
        let mut classifier = Classifier::new(&[]);
        let mut is_repeated = |sequence: u32, payload: &[u8]| {
            let ack = (sequence, tcp_flags::ACK);
            classifier.look(&packet("10.0.0.1:80", "10.0.0.2:4000", ack, payload)).is_repeated
        };
        assert!(!is_repeated(u32::MAX - 50, &[0; 100]));
        assert!(is_repeated(u32::MAX - 50, &[0; 100]));
        assert!(!is_repeated(49, &[0; 100]));
        assert!(!is_repeated(100, &[0; 100]), "its second half is new");
        assert!(is_repeated(0, &[0; 200]), "cut otherwise");
        assert!(!is_repeated(0, &[]), "an acknowledgement repeats nothing");
    }

    #[test]
    fn random_bytes_differ_from_text_and_from_counting() {
        let mut state = 1_u64;
        let random: Vec<u8> = (0..1400)
            .map(|_| {
                state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
                (state >> 56) as u8
            })
            .collect();
        let text: Vec<u8> =
            b"The quick brown fox jumps over the lazy dog. ".iter().copied().cycle().take(1400).collect();
        assert!(looks_random(&random) && !looks_random(&text) && !looks_random(&random[..400]));
        let mut classifier = Classifier::new(&[]);
        let mut secrecy = |from: &str, payload: &[u8]| {
            classifier.look(&packet(from, "10.0.0.2:4000", (0, tcp_flags::ACK), payload)).secrecy
        };
        assert_eq!(secrecy("10.0.0.1:443", &text), Secrecy::ByPort);
        assert_eq!(secrecy("10.0.0.1:80", &random), Secrecy::ByEntropy);
        assert_eq!(secrecy("10.0.0.1:80", &text), Secrecy::Open);
    }
}
