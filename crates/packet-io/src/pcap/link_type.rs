//! Link headers of captured frames, and their conversion to Ethernet.

/// The Ethernet header for a converted frame, in bytes.
const ETHERNET_HEADER_BYTES: usize = 14;
const ETHER_TYPE_IPV4: [u8; 2] = [0x08, 0x00];
const ETHER_TYPE_IPV6: [u8; 2] = [0x86, 0xdd];
/// Bytes of the Linux cooked headers (LINKTYPE_LINUX_SLL and LINKTYPE_LINUX_SLL2).
const COOKED_HEADER_BYTES: usize = 16;
const COOKED_2_HEADER_BYTES: usize = 20;
/// The header of BSD's loopback encapsulation, in bytes.
const LOOPBACK_HEADER_BYTES: usize = 4;
/// In a cooked header: to all hosts, and to a group of them (packet(7), `sll_pkttype`).
const TO_BROADCAST: u8 = 1;
const TO_MULTICAST: u8 = 2;

/// The type of a capture's link headers (the registry of link types at tcpdump.org).
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum LinkType {
    /// An Ethernet header (1).
    Ethernet,
    /// No link header (101; 228 and 229 for one version alone; 12 and 14 on some systems).
    RawIp,
    /// Four bytes of protocol family, then the IP header (0, and 108 in network byte order).
    Loopback,
    /// The header of Linux's `any` device (113).
    LinuxCooked,
    /// Its second version (276).
    LinuxCooked2,
    /// Another, by its number.
    Other(u32),
}

impl LinkType {
    /// The link type with this number in a capture file.
    #[must_use]
    pub const fn from_number(number: u32) -> Self {
        match number {
            1 => Self::Ethernet,
            12 | 14 | 101 | 228 | 229 => Self::RawIp,
            0 | 108 => Self::Loopback,
            113 => Self::LinuxCooked,
            276 => Self::LinuxCooked2,
            other => Self::Other(other),
        }
    }

    /// Converts a captured frame to Ethernet, in place. Addresses that the link type lacks are zero; broadcast and
    /// multicast remain so. Returns false, without changes: the link type has no recognisable IP packets, or the frame
    /// is truncated within its header.
    pub fn make_ethernet(self, frame: &mut Vec<u8>) -> bool {
        let header = match self {
            Self::Ethernet => return true,
            Self::RawIp => ip_header(frame, 0),
            Self::Loopback => ip_header(frame, LOOPBACK_HEADER_BYTES),
            Self::LinuxCooked => cooked_header(frame, COOKED_HEADER_BYTES, (1, 6, 14)),
            Self::LinuxCooked2 => cooked_header(frame, COOKED_2_HEADER_BYTES, (10, 12, 0)),
            Self::Other(_) => None,
        };
        let Some((link_bytes, header)) = header else { return false };
        frame.splice(..link_bytes, header);
        true
    }

    /// How many bytes [`LinkType::make_ethernet`] adds to a frame; negative when it takes some away.
    #[must_use]
    pub const fn added_bytes(self) -> i32 {
        let ethernet_bytes = ETHERNET_HEADER_BYTES as i32;
        match self {
            Self::Ethernet | Self::Other(_) => 0,
            Self::RawIp => ethernet_bytes,
            Self::Loopback => ethernet_bytes - LOOPBACK_HEADER_BYTES as i32,
            Self::LinuxCooked => ethernet_bytes - COOKED_HEADER_BYTES as i32,
            Self::LinuxCooked2 => ethernet_bytes - COOKED_2_HEADER_BYTES as i32,
        }
    }
}

/// The number of bytes to remove from the front, and the Ethernet header that replaces them.
type NewHeader = Option<(usize, [u8; ETHERNET_HEADER_BYTES])>;

fn ethernet(destination: [u8; 6], source: [u8; 6], ether_type: [u8; 2]) -> [u8; ETHERNET_HEADER_BYTES] {
    let mut header = [0; ETHERNET_HEADER_BYTES];
    header[..6].copy_from_slice(&destination);
    header[6..12].copy_from_slice(&source);
    header[12..].copy_from_slice(&ether_type);
    header
}

/// The packet's version is in its first four bits, whatever the link header contains.
fn ip_header(frame: &[u8], link_bytes: usize) -> NewHeader {
    let ether_type = match frame.get(link_bytes)? >> 4 {
        4 => ETHER_TYPE_IPV4,
        6 => ETHER_TYPE_IPV6,
        _ => return None,
    };
    Some((link_bytes, ethernet([0; 6], [0; 6], ether_type)))
}

/// `at`: the offsets of the low byte of the packet's kind, the sender's address and the ether type.
fn cooked_header(frame: &[u8], link_bytes: usize, at: (usize, usize, usize)) -> NewHeader {
    let header = frame.get(..link_bytes)?;
    let (kind, address, ether_type) = at;
    let destination = match header[kind] {
        TO_BROADCAST => [0xff; 6],
        // The group's address is not recorded; the kind of address decides the packet's treatment.
        TO_MULTICAST => [0x01, 0x00, 0x5e, 0, 0, 0],
        _ => [0; 6],
    };
    let source = *header[address..].first_chunk()?;
    let ether_type = *header[ether_type..].first_chunk()?;
    Some((link_bytes, ethernet(destination, source, ether_type)))
}
