//! Why a packet was not passed on. Every drop names one of these, and each is a counter.

macro_rules! drop_reasons {
    ($($(#[$doc:meta])* $name:ident = $label:literal,)*) => {
        /// Why a packet was not passed on.
        #[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
        #[repr(u8)]
        pub enum DropReason { $($(#[$doc])* $name,)* }

        impl DropReason {
            /// All reasons, in the order of their numbers.
            pub const ALL: &'static [Self] = &[$(Self::$name,)*];

            /// The reason as a metric label.
            #[must_use]
            pub const fn label(self) -> &'static str {
                match self { $(Self::$name => $label,)* }
            }
        }
    };
}

drop_reasons! {
    /// The node left the frame undecided (a defect of the node).
    Undecided = "undecided",

    // Link and network headers.
    /// The frame ends within a header.
    Truncated = "truncated",
    /// A header contradicts itself or another (lengths, versions, offsets).
    Malformed = "malformed",
    /// The IPv4 header's checksum is wrong.
    BadIpChecksum = "bad_ip_checksum",
    /// The transport checksum is wrong.
    BadTransportChecksum = "bad_transport_checksum",
    /// An address that no packet may carry there (RFC 1122 section 3.2.1.3: a multicast or zero source, say).
    MartianAddress = "martian_address",
    /// A link-layer protocol that the node does not forward.
    UnsupportedLinkProtocol = "unsupported_link_protocol",
    /// A network-layer feature that the node does not pass (source routing, for example).
    UnsupportedNetworkFeature = "unsupported_network_feature",
    /// A fragment of what may not be fragmented (an ICMP error, neighbour discovery: RFC 6980), or an ICMP error about a
    /// fragment that is not the first of its packet and so names no connection.
    Fragment = "fragment",
    /// A first fragment without its whole transport header, or a later one that could replace a part of it (RFC 1858,
    /// RFC 7112).
    TinyFragment = "tiny_fragment",
    /// A fragment that overlaps another of its packet, or any other of that packet afterwards (RFC 5722).
    OverlappingFragment = "overlapping_fragment",
    /// A fragment that was seen before.
    DuplicateFragment = "duplicate_fragment",
    /// A fragment that ends behind the longest packet that there is.
    FragmentTooLong = "fragment_too_long",
    /// A fragment whose packet's first fragment did not come in time.
    FragmentTimeout = "fragment_timeout",
    /// There is no room to keep the fragment, or another packet's fragments needed its room.
    FragmentTableFull = "fragment_table_full",
    /// The fragment's source has as many packets or bytes in pieces under way as one source may.
    FragmentSourceLimit = "fragment_source_limit",
    /// Link-layer broadcast or multicast that is not for forwarding.
    LinkBroadcast = "link_broadcast",

    /// The frame is for another host on the link (the port sees all frames).
    OtherHost = "other_host",

    // Connection tracking.
    /// TCP flags that no stack sends (SYN with FIN, none at all).
    InvalidTcpFlags = "invalid_tcp_flags",
    /// A TCP segment that begins no connection and belongs to none.
    NoConnection = "no_connection",
    /// A TCP segment that the connection's state does not allow.
    InvalidTcpState = "invalid_tcp_state",
    /// A TCP segment outside the window.
    OutOfWindow = "out_of_window",
    /// A RST that is not within the window (RFC 5961 section 3).
    InvalidReset = "invalid_reset",
    /// An SCTP packet whose verification tag is not its association's (RFC 9260 section 8.5).
    InvalidSctpTag = "invalid_sctp_tag",
    /// An SCTP packet that the association's state does not allow.
    InvalidSctpState = "invalid_sctp_state",
    /// An ICMP error about a connection that the node does not have.
    UnrelatedIcmpError = "unrelated_icmp_error",
    /// An ICMP error to another address than the source of the packet that it quotes, where alone errors go (RFC 792, RFC
    /// 4443 section 3). As Linux since 5.1, which calls it invalid.
    MisdirectedIcmpError = "misdirected_icmp_error",
    /// An ICMP message of a kind that neither begins nor answers a query.
    UnsupportedIcmp = "unsupported_icmp",

    // The connection table.
    /// The connection table is full and the packet would begin a new connection.
    TableFull = "table_full",
    /// The translated tuple is already that of another connection.
    TupleInUse = "tuple_in_use",
    /// The packet would begin a new connection and its source has as many as one source may.
    SourceLimit = "source_limit",
    /// The packet would begin a new connection and its source has begun as many in this second as one source may.
    SourceRate = "source_rate",

    // Recovery of what was told compactly.
    /// The source has sent too much of connections that no filter names.
    RecoverySourceLimit = "recovery_source_limit",
    /// All sources together have sent so many packets of no connection that their work is over its budget; senders repeat them.
    RecoveryWorkLimit = "recovery_work_limit",
    /// A segment that no filter names, dropped to see whether it comes again.
    RecoveryBlocked = "recovery_blocked",
    /// An answer that may be to several connections behind one outside port; those inside were asked whose it is.
    RecoveryAmbiguous = "recovery_ambiguous",
    /// An end point's reset in answer to such a question: the answer was not for it.
    RecoveryDenial = "recovery_denial",

    // Functions.
    /// A firewall rule says so, or none allows it.
    FirewallDenied = "firewall_denied",
    /// No free port is left for source NAT.
    NatPortsExhausted = "nat_ports_exhausted",
    /// The inside address has used up its block of ports towards the destination.
    NatBlockExhausted = "nat_block_exhausted",
    /// A packet that NAT cannot translate.
    NatUntranslatable = "nat_untranslatable",
    /// A packet announces a further connection, and there is no room for it among those expected.
    ExpectationRefused = "expectation_refused",
    /// Part of a line that a helper must see whole: its sender repeats it, with the rest as a rule.
    PartialLine = "partial_line",
    /// A payload that must be changed cannot be now: the frame has no room, or an earlier change is not acknowledged yet.
    PayloadUnchangeable = "payload_unchangeable",

    // Forwarding.
    /// The time to live or hop limit ran out.
    TtlExceeded = "ttl_exceeded",
    /// No route to the destination.
    NoRoute = "no_route",
    /// The next hop does not say its link address, or too many next hops are being asked for theirs.
    NeighbourUnresolved = "neighbour_unresolved",
    /// The next hop is being asked for its link address, and as much waits for the answer as may wait.
    NeighbourQueueFull = "neighbour_queue_full",
    /// The packet is larger than the outgoing link takes and must not be fragmented.
    PacketTooBig = "packet_too_big",
    /// The node does not hold the addresses at present (it stands by), or is not sure of it: after a pause it begins no
    /// connection before its peers have answered.
    NotActive = "not_active",
    /// The packet was for one of the node's own addresses and asked for nothing that it offers.
    LocalUnhandled = "local_unhandled",

    // Workers.
    /// The packet belongs to another worker, whose mailbox is full.
    MailboxFull = "mailbox_full",
    /// Another worker handed the packet over for a connection that this one no longer has.
    StrayHandOver = "stray_hand_over",

    // Sending.
    /// Too much waits for the path of the tunnel that the packet would have gone through.
    TunnelBacklog = "tunnel_backlog",
    /// The outgoing port would not take it.
    TransmitFailed = "transmit_failed",
}
