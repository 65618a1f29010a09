//! Numbers of the kernel's interface (`linux/netlink.h`, `linux/netfilter/nfnetlink.h`, `nfnetlink_conntrack.h`).

/// The length of a netlink header, in bytes: length, type, flags, sequence number, port.
pub(super) const NETLINK_HEADER_BYTES: usize = 16;
/// The length of netfilter's header in every message, in bytes: address family, version, resource.
pub(super) const NETFILTER_HEADER_BYTES: usize = 4;
/// Both.
pub(super) const HEADERS_BYTES: usize = NETLINK_HEADER_BYTES + NETFILTER_HEADER_BYTES;

/// Offsets within the netlink header.
pub(super) const TYPE_OFFSET: usize = 4;
pub(super) const PORT_OFFSET: usize = 12;

/// Flags of requests.
pub(super) const NLM_F_REQUEST: u16 = 0x01;
pub(super) const NLM_F_ACK: u16 = 0x04;
pub(super) const NLM_F_DUMP_INTR: u16 = 0x10;
pub(super) const NLM_F_DUMP: u16 = 0x300;
pub(super) const NLM_F_EXCL: u16 = 0x200;
pub(super) const NLM_F_CREATE: u16 = 0x400;

/// Messages of netlink itself.
pub(super) const NLMSG_ERROR: u16 = 2;
pub(super) const NLMSG_DONE: u16 = 3;

/// Subsystems of netfilter: the higher byte of a message's type.
pub(super) const CONNECTIONS: u8 = 1;
pub(super) const EXPECTATIONS: u8 = 2;

/// The message kind: the lower byte of its type, the same for connections and expectations.
pub(super) const NEW: u8 = 0;
pub(super) const GET: u8 = 1;
pub(super) const DELETE: u8 = 2;
/// The number of connections.
pub(super) const GET_STATISTICS: u8 = 5;

/// Multicast groups.
pub(super) mod group {
    pub(in super::super) const NEW: u32 = 1;
    pub(in super::super) const UPDATE: u32 = 2;
    pub(in super::super) const DESTROY: u32 = 3;
    pub(in super::super) const EXPECTATION_NEW: u32 = 4;
    pub(in super::super) const EXPECTATION_DESTROY: u32 = 6;
}

/// The flag in an attribute's type that marks nested attributes.
pub(super) const NESTED: u16 = 0x8000;
/// Flags in an attribute's type.
pub(super) const ATTRIBUTE_FLAGS: u16 = 0xc000;

/// Attributes of a connection.
pub(super) mod connection {
    pub(in super::super) const TUPLE_ORIGINAL: u16 = 1;
    pub(in super::super) const TUPLE_REPLY: u16 = 2;
    pub(in super::super) const STATUS: u16 = 3;
    pub(in super::super) const PROTOCOL_INFO: u16 = 4;
    pub(in super::super) const HELPER: u16 = 5;
    pub(in super::super) const NAT_SOURCE: u16 = 6;
    pub(in super::super) const TIMEOUT: u16 = 7;
    pub(in super::super) const MARK: u16 = 8;
    pub(in super::super) const ID: u16 = 12;
    pub(in super::super) const NAT_DESTINATION: u16 = 13;
    pub(in super::super) const TUPLE_MASTER: u16 = 14;
    pub(in super::super) const SEQUENCE_ADJUST_ORIGINAL: u16 = 15;
    pub(in super::super) const SEQUENCE_ADJUST_REPLY: u16 = 16;
    pub(in super::super) const ZONE: u16 = 18;
    pub(in super::super) const MARK_MASK: u16 = 21;
    pub(in super::super) const LABELS: u16 = 22;
    pub(in super::super) const SYN_PROXY: u16 = 24;
    pub(in super::super) const STATUS_MASK: u16 = 26;
}

/// Attributes of a tuple.
pub(super) mod tuple {
    pub(in super::super) const IP: u16 = 1;
    pub(in super::super) const PROTOCOL: u16 = 2;
    pub(in super::super) const ZONE: u16 = 3;
}

/// A tuple's addresses.
pub(super) mod ip {
    pub(in super::super) const V4_SOURCE: u16 = 1;
    pub(in super::super) const V4_DESTINATION: u16 = 2;
    pub(in super::super) const V6_SOURCE: u16 = 3;
    pub(in super::super) const V6_DESTINATION: u16 = 4;
}

/// A tuple's protocol.
pub(super) mod protocol {
    pub(in super::super) const NUMBER: u16 = 1;
    pub(in super::super) const SOURCE_PORT: u16 = 2;
    pub(in super::super) const DESTINATION_PORT: u16 = 3;
    pub(in super::super) const ICMP_ID: u16 = 4;
    pub(in super::super) const ICMP_TYPE: u16 = 5;
    pub(in super::super) const ICMP_CODE: u16 = 6;
    pub(in super::super) const ICMP_V6_ID: u16 = 7;
    pub(in super::super) const ICMP_V6_TYPE: u16 = 8;
    pub(in super::super) const ICMP_V6_CODE: u16 = 9;
}

/// The state of a protocol's automaton.
pub(super) mod protocol_info {
    pub(in super::super) const TCP: u16 = 1;
    pub(in super::super) const DCCP: u16 = 2;
    pub(in super::super) const SCTP: u16 = 3;
    pub(in super::super) const TCP_STATE: u16 = 1;
    pub(in super::super) const TCP_WINDOW_SCALE_ORIGINAL: u16 = 2;
    pub(in super::super) const TCP_WINDOW_SCALE_REPLY: u16 = 3;
    pub(in super::super) const TCP_FLAGS_ORIGINAL: u16 = 4;
    pub(in super::super) const TCP_FLAGS_REPLY: u16 = 5;
    pub(in super::super) const DCCP_STATE: u16 = 1;
    pub(in super::super) const DCCP_ROLE: u16 = 2;
    pub(in super::super) const SCTP_STATE: u16 = 1;
    pub(in super::super) const SCTP_TAG_ORIGINAL: u16 = 2;
    pub(in super::super) const SCTP_TAG_REPLY: u16 = 3;
}

/// A connection's helper.
pub(super) mod helper {
    pub(in super::super) const NAME: u16 = 1;
}

/// The translation of one side of a connection.
pub(super) mod nat {
    pub(in super::super) const V4_MINIMUM: u16 = 1;
    pub(in super::super) const V4_MAXIMUM: u16 = 2;
    pub(in super::super) const PROTOCOL: u16 = 3;
    pub(in super::super) const V6_MINIMUM: u16 = 4;
    pub(in super::super) const V6_MAXIMUM: u16 = 5;
    pub(in super::super) const PORT_MINIMUM: u16 = 1;
    pub(in super::super) const PORT_MAXIMUM: u16 = 2;
}

/// The shift of TCP's numbers.
pub(super) mod sequence_adjust {
    pub(in super::super) const CORRECTION_POSITION: u16 = 1;
    pub(in super::super) const OFFSET_BEFORE: u16 = 2;
    pub(in super::super) const OFFSET_AFTER: u16 = 3;
}

/// The parameters of a SYN proxy.
pub(super) mod syn_proxy {
    pub(in super::super) const INITIAL_SEQUENCE: u16 = 1;
    pub(in super::super) const SERVER_INITIAL_SEQUENCE: u16 = 2;
    pub(in super::super) const TIMESTAMP_OFFSET: u16 = 3;
}

/// Attributes of an expectation.
pub(super) mod expectation {
    pub(in super::super) const MASTER: u16 = 1;
    pub(in super::super) const TUPLE: u16 = 2;
    pub(in super::super) const MASK: u16 = 3;
    pub(in super::super) const TIMEOUT: u16 = 4;
    pub(in super::super) const HELPER: u16 = 6;
    pub(in super::super) const ZONE: u16 = 7;
    pub(in super::super) const FLAGS: u16 = 8;
    pub(in super::super) const CLASS: u16 = 9;
    pub(in super::super) const NAT: u16 = 10;
    pub(in super::super) const FUNCTION: u16 = 11;
    pub(in super::super) const NAT_DIRECTION: u16 = 1;
    pub(in super::super) const NAT_TUPLE: u16 = 2;
}
