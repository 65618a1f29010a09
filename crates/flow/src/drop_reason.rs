//! Reasons of drops. Every drop has one, and each is a counter.

macro_rules! drop_reasons {
    ($($(#[$doc:meta])* $name:ident = $label:literal,)*) => {
        /// Why a packet was dropped.
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
    /// An address that no packet may carry in that field (RFC 1122 section 3.2.1.3), such as a multicast or zero source, the
    /// gateway's own address as source, or the destination as source.
    MartianAddress = "martian_address",
    /// The source lies behind another port than the one that the packet came in by, or behind none: it is forged, or
    /// `port.reverse_path` is too strict for the routes (RFC 3704).
    ReversePath = "reverse_path",
    /// A link-layer protocol that the node does not forward.
    UnsupportedLinkProtocol = "unsupported_link_protocol",
    /// A network-layer feature that the node does not pass (source routing, for example).
    UnsupportedNetworkFeature = "unsupported_network_feature",
    /// A fragment of a packet that must not be fragmented (an ICMP error, neighbour discovery: RFC 6980). Or an ICMP
    /// error about a later fragment, which identifies no connection.
    Fragment = "fragment",
    /// A first fragment without its whole transport header, or a later one that could overwrite a part of it (RFC 1858,
    /// RFC 7112).
    TinyFragment = "tiny_fragment",
    /// A fragment that overlaps another of its packet, or a later one of that packet (RFC 5722).
    OverlappingFragment = "overlapping_fragment",
    /// A fragment that was seen before.
    DuplicateFragment = "duplicate_fragment",
    /// A fragment that ends beyond the maximum length of a packet.
    FragmentTooLong = "fragment_too_long",
    /// A fragment whose first fragment did not arrive in time.
    FragmentTimeout = "fragment_timeout",
    /// No room to hold the fragment, or it was evicted for another packet.
    FragmentTableFull = "fragment_table_full",
    /// The fragment's source has reached its limit of fragmented packets or bytes.
    FragmentSourceLimit = "fragment_source_limit",
    /// Broadcast or multicast, of the link or of the network layer, that is not for forwarding (RFC 2644).
    LinkBroadcast = "link_broadcast",

    /// The frame is for another host on the link (the port sees all frames).
    OtherHost = "other_host",

    /// A frame between nodes and edges that came from where only hosts are: a stranger's.
    ControlFromHost = "control_from_host",
    /// A frame in the name of an edge or of a node that the cluster's key does not authenticate, or from another link address than that of
    /// the edge.
    ControlUnauthenticated = "control_unauthenticated",

    // Connection tracking.
    /// TCP flags that no stack sends (SYN with FIN, none at all).
    InvalidTcpFlags = "invalid_tcp_flags",
    /// A TCP segment that begins no connection and belongs to none.
    NoConnection = "no_connection",
    /// A packet that begins no connection, and whose connection no node has, as far as the state service could find.
    UnknownConnection = "unknown_connection",
    /// A packet of a connection that other nodes may have: too many such packets wait, or the rate of pulls or queries is reached.
    LookupLimit = "lookup_limit",
    /// A TCP segment that the connection's state does not allow.
    InvalidTcpState = "invalid_tcp_state",
    /// A TCP segment outside the window.
    OutOfWindow = "out_of_window",
    /// A RST that is not within the window (RFC 5961 section 3).
    InvalidReset = "invalid_reset",
    /// An SCTP packet with a verification tag of another association (RFC 9260 section 8.5).
    InvalidSctpTag = "invalid_sctp_tag",
    /// An SCTP packet that the association's state does not allow.
    InvalidSctpState = "invalid_sctp_state",
    /// An ICMP error about a connection that the node does not have.
    UnrelatedIcmpError = "unrelated_icmp_error",
    /// An ICMP error to another address than the source of the packet that it quotes, which alone may receive it (RFC
    /// 792, RFC 4443 section 3). Linux since 5.1 treats it as invalid.
    MisdirectedIcmpError = "misdirected_icmp_error",
    /// An ICMP message of a kind that is neither a query nor a reply.
    UnsupportedIcmp = "unsupported_icmp",

    // The connection table.
    /// The connection table is full and the packet would begin a new connection.
    TableFull = "table_full",
    /// The translated tuple is already that of another connection.
    TupleInUse = "tuple_in_use",
    /// The packet would begin a new connection, and its source has reached its limit of connections.
    SourceLimit = "source_limit",
    /// The packet would begin a new connection, and its source has reached its rate limit.
    SourceRate = "source_rate",

    // Recovery from peer filters.
    /// The source has sent too many packets of connections that no filter contains.
    RecoverySourceLimit = "recovery_source_limit",
    /// Packets of no connection exceed the recovery's work budget; their senders will retransmit.
    RecoveryWorkLimit = "recovery_work_limit",
    /// A segment that no filter contains, dropped to wait for its retransmission.
    RecoveryBlocked = "recovery_blocked",
    /// A reply that matches several connections behind one outside port; the inside hosts were probed.
    RecoveryAmbiguous = "recovery_ambiguous",
    /// An end point's reset in answer to such a probe: the reply was not for it.
    RecoveryDenial = "recovery_denial",

    // Functions.
    /// Denied by a firewall rule, or allowed by none.
    FirewallDenied = "firewall_denied",
    /// No free port is left for source NAT.
    NatPortsExhausted = "nat_ports_exhausted",
    /// The inside address has used up its block of ports towards the destination.
    NatBlockExhausted = "nat_block_exhausted",
    /// A packet that NAT cannot translate.
    NatUntranslatable = "nat_untranslatable",
    /// The packet would begin a connection to a service, and none of its backends takes new connections.
    NoBackend = "no_backend",
    /// The connection's backend has failed, and its service ends connections then.
    BackendFailed = "backend_failed",
    /// A datagram of a flow that a reload has ended: its backend or its translation is not configured any more.
    TranslationReplaced = "translation_replaced",
    /// The packet would begin a connection to a service with direct return, and another function translates it: the backend would answer
    /// an address that is not the client's.
    TunnelTranslated = "tunnel_translated",
    /// The connection's backend is reached in a tunnel, and this node's configuration does not have it.
    TunnelUnknown = "tunnel_unknown",
    /// The port that leads to a tunnel's end has no address of its family for the tunnel to begin at, or the packet does not fit the tunnel.
    TunnelUnusable = "tunnel_unusable",
    /// A SYN that the SYN proxy answers with a cookie. It counts as dropped only if its frame has no room for the answer.
    SynProxied = "syn_proxied",
    /// A segment of no connection, to a rule of the SYN proxy that is active: it acknowledges no cookie of this cluster.
    SynCookieInvalid = "syn_cookie_invalid",
    /// A segment of no connection, to a rule of the SYN proxy that is active: the cookie that it acknowledges is too old.
    SynCookieExpired = "syn_cookie_expired",
    /// A reset of no connection, to a rule of the SYN proxy that is active.
    SynProxyReset = "syn_proxy_reset",
    /// A client's segment on a connection whose server has not answered the SYN proxy yet.
    SynProxyAwaiting = "syn_proxy_awaiting",
    /// A packet of a connection, or a question for a name, that the URL filter refuses.
    UrlFiltered = "url_filtered",
    /// The URL filter waits for the category of the host, and there is no room to hold the packet.
    UrlAwaiting = "url_awaiting",
    /// Bytes that differ from those which the URL filter has read in their place: a receiver keeps the first copy, or the last.
    UrlCopyDiffers = "url_copy_differs",
    /// A packet of a connection that the URL filter is reading, and whose receiver may ignore it or read it otherwise: too far ahead, or unlike the
    /// connection's handshake.
    UrlUnreadable = "url_unreadable",
    /// The packet, or the connection that it would begin, is beyond a rate limit.
    RateLimited = "rate_limited",
    /// The packet is beyond a quota.
    QuotaExceeded = "quota_exceeded",
    /// A packet announces a connection, and the table of expectations is full.
    ExpectationRefused = "expectation_refused",
    /// Part of a line that a helper must see whole: its sender retransmits it, usually with the rest.
    PartialLine = "partial_line",
    /// A payload change that is impossible now: the frame has no room, or an earlier change is unacknowledged.
    PayloadUnchangeable = "payload_unchangeable",

    // Forwarding.
    /// The time to live or hop limit expired.
    TtlExceeded = "ttl_exceeded",
    /// No route to the destination.
    NoRoute = "no_route",
    /// The next hop did not answer address resolution, or too many resolutions are in progress.
    NeighbourUnresolved = "neighbour_unresolved",
    /// The next hop is being resolved, and its queue of waiting packets is full.
    NeighbourQueueFull = "neighbour_queue_full",
    /// The packet is larger than the outgoing link takes and must not be fragmented.
    PacketTooBig = "packet_too_big",
    /// The node does not hold the addresses at present (it stands by), or is unsure: after a pause it begins no
    /// connection before its peers have answered.
    NotActive = "not_active",
    /// The packet was for an address of the node and for none of its services.
    LocalUnhandled = "local_unhandled",

    // Workers.
    /// The packet belongs to another worker, whose mailbox is full.
    MailboxFull = "mailbox_full",
    /// Another worker handed the packet over for a connection that this one no longer has.
    StrayHandOver = "stray_hand_over",

    // Sending.
    /// The queue of the tunnel's path is full.
    TunnelBacklog = "tunnel_backlog",
    /// The outgoing port would not take it.
    TransmitFailed = "transmit_failed",
}
