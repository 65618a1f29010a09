// SPDX-License-Identifier: MIT
//
// Forwards packets of established connections at the ingress of an interface, before the kernel's network layer. There are two
// programs for two hooks, with the same maps: `fast_path` for tc, and `fast_path_xdp` for XDP in the driver.
//
// For each packet a program decides once: it forwards the packet, or leaves it to user space as it came in. What it does
// not know, it leaves. The decisions are those of the connection tracker in the crate `flow`, whose straight line for plain
// segments this program repeats; tests compare both programs with it packet by packet.
//
// A gateway's packets are routed: translated, with a lower time to live, between its own link addresses. An edge's are bridged: they
// keep all but their destination link address, and are for any host. The switch in `control` has which of both the program does.
//
// The shapes of the maps are those of `src/shapes.rs`; the assertions below hold both to the same sizes. The file includes
// no headers, so that its object depends on the compiler alone. Numbers of the kernel's interface are those of
// <linux/bpf.h>, <linux/if_ether.h> and <linux/pkt_cls.h>.

typedef unsigned char u8;
typedef unsigned short u16;
typedef unsigned int u32;
typedef unsigned long long u64;
typedef int s32;

#if __BYTE_ORDER__ != __ORDER_LITTLE_ENDIAN__
#error "the object is built for little-endian processors"
#endif

#define SEC(name) __attribute__((section(name), used))
#define INLINE static __attribute__((always_inline)) inline
#define UINT(name, value) int(*name)[value]
#define TYPE(name, type) __typeof__(type) *name
#define READ_ONCE(place) (*(volatile __typeof__(place) *)&(place))
#define WRITE_ONCE(place, value) (*(volatile __typeof__(place) *)&(place) = (value))

INLINE u16 be16(u16 value) { return __builtin_bswap16(value); }
INLINE u32 be32(u32 value) { return __builtin_bswap32(value); }

// The head of `struct __sk_buff`.
struct context {
    u32 len, pkt_type, mark, queue_mapping, protocol, vlan_present, vlan_tci, vlan_proto, priority;
    u32 ingress_ifindex, ifindex, tc_index, cb[5], hash, tc_classid, data, data_end, napi_id, family;
    u32 remote_ip4, local_ip4, remote_ip6[4], local_ip6[4], remote_port, local_port, data_meta;
    u64 flow_keys, tstamp;
    u32 wire_len, gso_segs;
    u64 sk;
    u32 gso_size;
};
_Static_assert(__builtin_offsetof(struct context, data) == 76, "struct __sk_buff");
_Static_assert(__builtin_offsetof(struct context, gso_size) == 176, "struct __sk_buff");

// The head of `struct xdp_md`.
struct xdp_context {
    u32 data, data_end, data_meta, ingress_ifindex, rx_queue_index;
};

static void *(*map_lookup)(void *map, const void *key) = (void *)1;
static u64 (*ktime_get_ns)(void) = (void *)5;
static long (*l4_csum_replace)(struct context *skb, u32 offset, u64 from, u64 to, u64 flags) = (void *)11;
static long (*redirect)(u32 ifindex, u64 flags) = (void *)23; // at both hooks
static long (*skb_pull_data)(struct context *skb, u32 len) = (void *)39;
static long (*csum_update)(struct context *skb, u32 sum) = (void *)40;
static long (*redirect_peer)(u32 ifindex, u64 flags) = (void *)155;

#define ACT_UNSPEC (-1)
#define ACT_SHOT 2
#define XDP_PASS 2
#define F_PSEUDO_HDR (1 << 4)
#define F_MARK_MANGLED_0 (1 << 5)
#define MAP_HASH 1
#define MAP_ARRAY 2
#define MAP_PERCPU_ARRAY 6
#define F_MMAPABLE (1 << 10)
#define PACKET_HOST 0
#define PACKET_OTHERHOST 3

#define ETHERNET_BYTES 14
#define IPV4_BYTES 20
#define IPV6_BYTES 40
#define TCP_BYTES 20
#define TIMESTAMPS_BYTES 12
#define UDP_BYTES 8
#define TCP_OPTIONS_BYTES_MAX 40
// Ethernet, IPv6, TCP with as many options as fit.
#define HEADERS_BYTES_MAX (ETHERNET_BYTES + IPV6_BYTES + TCP_BYTES + TCP_OPTIONS_BYTES_MAX)
#define TYPE_IPV4 0x0800
#define TYPE_IPV6 0x86dd
#define TYPE_VLAN 0x8100
#define TYPE_SERVICE_VLAN 0x88a8
#define PROTOCOL_TCP 6
#define PROTOCOL_UDP 17
#define TCP_CHECKSUM_OFFSET 16
#define UDP_CHECKSUM_OFFSET 6
#define FLAGS_DECISIVE 0x37 // FIN, SYN, RST, ACK, URG
#define FLAG_ACK 0x10
// NOP, NOP, timestamps of ten bytes (RFC 7323 appendix A).
#define TIMESTAMPS 0x0a080101
// NOP, NOP, SACK (RFC 2018), before the option's length.
#define SACK 0x050101
#define SACK_BLOCKS_MAX 4
#define WINDOW_BYTES_MAX (1u << 30)
// The minimum by which acknowledgements may lag behind sent data, as in the tracker.
#define ACKNOWLEDGEMENT_LAG_BYTES_MIN 66000
#define RAISE_ATTEMPTS 8
#define PORTS_MAX 256
// Notes on a bridged frame that the kernel has taken a VLAN tag off. Its socket receives frames for other hosts, too, among which the
// kernel counts this one once it has forgotten the tag. That of `packet_io::af_packet::TAGGED_MARK`.
#define TAGGED_MARK 0x6d567461

// The outcome of a packet; an index of `counters`. The order is that of `Outcome` in src/outcome.rs.
enum outcome {
    FORWARDED,
    DISABLED,   // switched off
    HEARTBEAT,  // the loader's heartbeat is too old
    HOST,       // routed: the frame is for another link address; or it is for a group
    TAGGED,     // the frame has a VLAN tag
    LINK,       // neither IPv4 nor IPv6 in Ethernet
    NETWORK,    // options, extension headers, a fragment, or a malformed header
    TTL,        // routed: the packet may go no further
    TRANSPORT,  // neither TCP nor UDP, or a malformed header
    FLAGS,      // SYN, FIN, RST, URG, no ACK, or a closed window
    OPTIONS,    // TCP options other than timestamps and selective acknowledgements
    MISS,       // no flow
    TORN,       // the flow or the next hop was replaced while it was read
    GENERATION, // the flow is of another generation
    NEXT_HOP,   // the next hop is not valid
    MTU,        // longer than the next hop's MTU
    WINDOW,     // outside the windows
    CONTENDED,  // too many processors changed the windows at once
    PARTIAL,    // at XDP: somebody is yet to complete the transport checksum
    FAILED,     // dropped: the kernel refused a change half-way
    OUTCOMES,
};

// A tuple of one direction, as packets come in. IPv4 addresses are mapped (::ffff:a.b.c.d); all in network order.
struct key {
    u32 source[4];
    u32 destination[4];
    u16 source_port;
    u16 destination_port;
    u32 ifindex;
    u8 version;
    u8 protocol;
    u8 unused[6];
};

#define FLOW_LIBERAL 1
#define FLOW_SACK 2 // the receiver permits selective acknowledgements
#define FLOW_LINK 4 // bridged: for the link address in the first six bytes of `source` alone

struct flow {
    u64 seal; // of the other words and of the key
    u32 connection;
    u32 next_hop;
    u32 generation;
    u16 flags;
    u8 direction;    // 0 original, 1 reply
    u8 window_scale; // of the windows that packets of this direction advertise
    u32 source[4];   // as packets go out, if they are routed
    u32 destination[4];
    u16 source_port;
    u16 destination_port;
    u16 address_delta; // of the ones-complement sum, new minus old
    u16 port_delta;
};

// One side of a connection as a sender. Every number only rises, in serial number arithmetic.
struct side {
    u32 end;
    u32 end_max;
    u32 window_max;
    u32 acknowledged_max;
};

// One cache line. Element i begins at 64 i bytes of a page-aligned area.
struct connection {
    struct side sides[2];
    u64 last_packet_ns;
    u64 bytes[2];
    u32 packets[2];
};

#define NEXT_HOP_VALID 1
#define NEXT_HOP_PEER 2

struct next_hop {
    u64 seal; // of the other words
    u32 ifindex;
    u32 mtu_bytes;
    u16 destination[3]; // bridged: all zero, the frame's own stays
    u16 source[3];
    u32 flags;
};

// An interface to which the XDP program is attached.
struct port {
    u16 address[3];
    u16 unused;
};

#define SWITCH_ENABLED 1
#define SWITCH_BRIDGED 2

struct control {
    u64 heartbeat_ns;
    u64 heartbeat_age_max_ns;
    u64 allow_without_heartbeat_until_ns;
    u32 generation;
    u32 switches;
};

// The loader's own description of a connection, for a loader that takes over. The program does not read it.
struct record {
    u16 length_bytes; // 0: none
    u8 bytes[254];
};

_Static_assert(sizeof(struct key) == 48, "FlowKey");
_Static_assert(sizeof(struct flow) == 64, "FlowValue");
_Static_assert(sizeof(struct connection) == 64, "ConnectionCell");
_Static_assert(sizeof(struct next_hop) == 32, "NextHopEntry");
_Static_assert(sizeof(struct port) == 8, "PortEntry");
_Static_assert(sizeof(struct control) == 32, "ControlCell");
_Static_assert(sizeof(struct record) == 256, "RecordEntry");
_Static_assert(OUTCOMES == 20, "Outcome");

// The loader sets the numbers of entries of the first four.
struct {
    UINT(type, MAP_HASH);
    UINT(max_entries, 1);
    TYPE(key, struct key);
    TYPE(value, struct flow);
} flows SEC(".maps");

struct {
    UINT(type, MAP_ARRAY);
    UINT(max_entries, 1);
    UINT(map_flags, F_MMAPABLE);
    TYPE(key, u32);
    TYPE(value, struct connection);
} connections SEC(".maps");

struct {
    UINT(type, MAP_ARRAY);
    UINT(max_entries, 1);
    TYPE(key, u32);
    TYPE(value, struct next_hop);
} next_hops SEC(".maps");

struct {
    UINT(type, MAP_ARRAY);
    UINT(max_entries, 1);
    TYPE(key, u32);
    TYPE(value, struct record);
} records SEC(".maps");

struct {
    UINT(type, MAP_ARRAY);
    UINT(max_entries, 1);
    UINT(map_flags, F_MMAPABLE);
    TYPE(key, u32);
    TYPE(value, struct control);
} control SEC(".maps");

struct {
    UINT(type, MAP_PERCPU_ARRAY);
    UINT(max_entries, OUTCOMES);
    TYPE(key, u32);
    TYPE(value, u64);
} counters SEC(".maps");

struct {
    UINT(type, MAP_HASH);
    UINT(max_entries, PORTS_MAX);
    TYPE(key, u32);
    TYPE(value, struct port);
} ports SEC(".maps");

INLINE void count(u32 outcome) {
    u64 *counter = map_lookup(&counters, &outcome);
    if (counter)
        *counter += 1;
}

// A frame at a hook.
struct frame {
    void *data, *data_end;
    u32 bytes;
    u32 ifindex;
    u32 segment_bytes; // payload of each segment that it stands for; 0: it stands for itself
    u32 is_whole;      // its transport checksum is to be complete, for there is no note of a partial one
    u32 is_bridged;
};

// A packet as far as the program looks at it.
struct packet {
    struct key key;
    u32 l4_offset;
    u32 header_bytes; // IP and transport
    u32 l3_bytes;     // as the IP header states
    u32 sequence, acknowledgement, payload_bytes;
    u32 sack; // the highest selective acknowledgement, or the acknowledgement
    u16 window;
};

INLINE u32 fold(u64 sum) {
    sum = (sum & 0xffffffff) + (sum >> 32);
    sum = (sum & 0xffff) + (sum >> 16);
    sum = (sum & 0xffff) + (sum >> 16);
    sum = (sum & 0xffff) + (sum >> 16);
    return sum;
}

struct ipv4 {
    u8 version_and_length, service;
    u16 total_bytes, identification, fragment;
    u8 ttl, protocol;
    u16 checksum;
    u32 source, destination;
};

struct ipv6 {
    u8 version_and_class, class_and_label[3];
    u16 payload_bytes;
    u8 next_header, hop_limit;
    u32 source[4], destination[4];
};

struct tcp {
    u16 source_port, destination_port;
    u32 sequence, acknowledgement;
    u8 offset, flags;
    u16 window, checksum, urgent;
};

struct udp {
    u16 source_port, destination_port, length_bytes, checksum;
};

struct ethernet {
    u16 destination[3], source[3], type;
};

INLINE enum outcome parse_ipv4(const struct ipv4 *ip, const struct frame *frame, u32 available, struct packet *packet) {
    if ((void *)(ip + 1) > frame->data_end || ip->version_and_length != 0x45)
        return NETWORK;
    // More fragments, or an offset.
    if (ip->fragment & be16(0x3fff))
        return NETWORK;
    const u32 *words = (const u32 *)ip;
    if (fold((u64)words[0] + words[1] + words[2] + words[3] + words[4]) != 0xffff)
        return NETWORK;
    packet->l3_bytes = be16(ip->total_bytes);
    if (packet->l3_bytes < IPV4_BYTES || packet->l3_bytes > available)
        return NETWORK;
    if (ip->ttl <= 1 && !frame->is_bridged)
        return TTL;
    packet->key.source[2] = packet->key.destination[2] = be32(0xffff);
    packet->key.source[3] = ip->source;
    packet->key.destination[3] = ip->destination;
    packet->key.version = 4;
    return FORWARDED;
}

INLINE enum outcome parse_ipv6(const struct ipv6 *ip, const struct frame *frame, u32 available, struct packet *packet) {
    if ((void *)(ip + 1) > frame->data_end || ip->version_and_class >> 4 != 6)
        return NETWORK;
    packet->l3_bytes = IPV6_BYTES + be16(ip->payload_bytes);
    if (packet->l3_bytes > available)
        return NETWORK;
    if (ip->hop_limit <= 1 && !frame->is_bridged)
        return TTL;
    for (int i = 0; i < 4; i++) {
        packet->key.source[i] = ip->source[i];
        packet->key.destination[i] = ip->destination[i];
    }
    packet->key.version = 6;
    return FORWARDED;
}

INLINE int is_before(u32 a, u32 b) { return (s32)(a - b) < 0; }
INLINE int is_after(u32 a, u32 b) { return is_before(b, a); }

// Reads `bytes` bytes of options: timestamps, selective acknowledgements, or both, as most stacks write them. Zero: they are others.
INLINE int parse_options(const u32 *option, u32 bytes, const void *data_end, struct packet *packet) {
    if (bytes >= TIMESTAMPS_BYTES && (const void *)(option + 1) <= data_end && *option == TIMESTAMPS) {
        option += TIMESTAMPS_BYTES / 4;
        bytes -= TIMESTAMPS_BYTES;
    }
    if (bytes == 0)
        return 1;
    // NOPs, kind and length, then blocks of two edges.
    if ((const void *)(option + 1) > data_end || bytes < 12 || bytes % 8 != 4)
        return 0;
    if (*option != (SACK | (bytes - 2) << 24))
        return 0;
#pragma unroll
    for (int i = 0; i < SACK_BLOCKS_MAX; i++) {
        const u32 *right = option + 2 + 2 * i;
        if (bytes < 12u + 8 * i)
            break;
        if ((const void *)(right + 1) > data_end)
            return 0;
        u32 edge = be32(*right);
        // Half the circle ahead is not later, as in the parser.
        if ((s32)(edge - packet->sack) > 0)
            packet->sack = edge;
    }
    return 1;
}

// `available`: bytes of the packet from the transport header on.
INLINE enum outcome parse_tcp(const struct tcp *tcp, const void *data_end, u32 available, struct packet *packet) {
    if ((const void *)(tcp + 1) > data_end || available < TCP_BYTES)
        return TRANSPORT;
    u32 header_bytes = tcp->offset >> 4 << 2;
    if (header_bytes < TCP_BYTES || header_bytes > available)
        return TRANSPORT;
    if ((tcp->flags & FLAGS_DECISIVE) != FLAG_ACK || tcp->window == 0)
        return FLAGS;
    packet->sack = be32(tcp->acknowledgement);
    if (header_bytes != TCP_BYTES && !parse_options((const u32 *)(tcp + 1), header_bytes - TCP_BYTES, data_end, packet))
        return OPTIONS;
    packet->key.source_port = tcp->source_port;
    packet->key.destination_port = tcp->destination_port;
    packet->sequence = be32(tcp->sequence);
    packet->acknowledgement = be32(tcp->acknowledgement);
    packet->window = be16(tcp->window);
    packet->payload_bytes = available - header_bytes;
    packet->header_bytes += header_bytes;
    return FORWARDED;
}

INLINE enum outcome parse_udp(const struct udp *udp, const void *data_end, u32 available, struct packet *packet) {
    if ((const void *)(udp + 1) > data_end)
        return TRANSPORT;
    u32 length_bytes = be16(udp->length_bytes);
    if (length_bytes < UDP_BYTES || length_bytes > available)
        return TRANSPORT;
    packet->key.source_port = udp->source_port;
    packet->key.destination_port = udp->destination_port;
    packet->header_bytes += UDP_BYTES;
    return FORWARDED;
}

// Reads the headers into `packet`, which is zero. The result FORWARDED: they are plain.
INLINE enum outcome parse(const struct frame *frame, struct packet *packet) {
    void *data = frame->data, *data_end = frame->data_end;
    u32 bytes = frame->bytes;
    struct ethernet *link = data;
    if ((void *)(link + 1) > data_end)
        return LINK;
    u32 available = bytes - ETHERNET_BYTES;
    enum outcome outcome;
    u16 type = link->type;
    // A register of its own: the compiler would read the byte again, and the verifier forgets its bound.
    u32 protocol;
    if (type == be16(TYPE_IPV4)) {
        struct ipv4 *ip = (void *)(link + 1);
        outcome = parse_ipv4(ip, frame, available, packet);
        if (outcome != FORWARDED)
            return outcome;
        protocol = READ_ONCE(ip->protocol);
        packet->l4_offset = ETHERNET_BYTES + IPV4_BYTES;
    } else if (type == be16(TYPE_IPV6)) {
        struct ipv6 *ip = (void *)(link + 1);
        outcome = parse_ipv6(ip, frame, available, packet);
        if (outcome != FORWARDED)
            return outcome;
        protocol = READ_ONCE(ip->next_header);
        packet->l4_offset = ETHERNET_BYTES + IPV6_BYTES;
    } else {
        return LINK;
    }
    packet->key.ifindex = frame->ifindex;
    packet->key.protocol = protocol;
    packet->header_bytes = packet->l4_offset - ETHERNET_BYTES;
    available = packet->l3_bytes - packet->header_bytes;
    void *transport = data + packet->l4_offset;
    switch (protocol) {
    case PROTOCOL_TCP:
        return parse_tcp(transport, data_end, available, packet);
    case PROTOCOL_UDP:
        return parse_udp(transport, data_end, available, packet);
    default:
        // Extension headers are the network layer's.
        return packet->key.version == 6 && (protocol == 0 || protocol == 43 || protocol == 44 || protocol == 60)
                   ? NETWORK
                   : TRANSPORT;
    }
}

// The multiplier of word `i`: odd, and unlike those of other words.
#define GOLDEN 0x9e3779b97f4a7c15ull
#define FACTOR(i) ((GOLDEN * ((i) + 1) ^ (GOLDEN * ((i) + 1)) >> 29) | 1)

// A value that the kernel reuses for another entry while it is read has another seal: a hash of all words, each with a
// factor of its own.
#define SEALED(words, i, n) ((words)[i] * FACTOR(n))

INLINE u64 seal_of_flow(const u64 *flow, const u64 *key) {
    return SEALED(flow, 1, 0) + SEALED(flow, 2, 1) + SEALED(flow, 3, 2) + SEALED(flow, 4, 3) + SEALED(flow, 5, 4) +
           SEALED(flow, 6, 5) + SEALED(flow, 7, 6) + SEALED(key, 0, 7) + SEALED(key, 1, 8) + SEALED(key, 2, 9) +
           SEALED(key, 3, 10) + SEALED(key, 4, 11) + SEALED(key, 5, 12);
}

INLINE u64 seal_of_next_hop(const u64 *hop) { return SEALED(hop, 1, 13) + SEALED(hop, 2, 14) + SEALED(hop, 3, 15); }

// Raises a number to `value` unless it is there already. Numbers only rise, and each may be raised by itself: whatever the
// order in which processors do so, the result is the highest. Hence no lock, and no need to exchange several at once.
INLINE int raise(u32 *place, u32 value) {
    u32 known = READ_ONCE(*place);
#pragma unroll
    for (int i = 0; i < RAISE_ATTEMPTS; i++) {
        if (!is_after(value, known))
            return 1;
        u32 found = __sync_val_compare_and_swap(place, known, value);
        if (found == known)
            return 1;
        known = found;
    }
    return 0;
}

// The window check of the tracker for segments that end within the window, and its changes. A number that another processor is raising makes the
// check stricter at worst: the packet then goes to user space. It is stricter in one more way: beside a selective acknowledgement the
// plain one must acknowledge sent data, too.
INLINE enum outcome track(struct connection *connection, const struct flow *flow, const struct packet *packet) {
    u32 direction = flow->direction & 1;
    struct side *sender = &connection->sides[direction], *receiver = &connection->sides[direction ^ 1];
    u32 sender_end = READ_ONCE(sender->end), sender_end_max = READ_ONCE(sender->end_max);
    u32 sender_window = READ_ONCE(sender->window_max);
    u32 receiver_end = READ_ONCE(receiver->end), receiver_window = READ_ONCE(receiver->window_max);
    u32 end = packet->sequence + packet->payload_bytes;
    u32 window = (u32)packet->window << (flow->window_scale & 15);
    u32 lag = sender_window > ACKNOWLEDGEMENT_LAG_BYTES_MIN ? sender_window : ACKNOWLEDGEMENT_LAG_BYTES_MIN;
    // Several blocks may lead half the circle ahead, where nothing is later.
    int has_sack = flow->flags & FLOW_SACK && is_after(packet->sack, packet->acknowledgement);
    u32 sack = has_sack ? packet->sack : packet->acknowledgement;
    // Less than 2^31 behind the acknowledgement, so the sum fits.
    u32 window_max = window + (sack - packet->acknowledgement);
    if (window_max > WINDOW_BYTES_MAX)
        window_max = WINDOW_BYTES_MAX;
    int is_inside = !is_after(packet->sequence, sender_end_max) && !is_after(end, sender_end_max) &&
                    is_after(end, sender_end - receiver_window - 1) && !is_after(sack, receiver_end) &&
                    !is_after(packet->acknowledgement, receiver_end) &&
                    is_after(sack, receiver_end - lag - 1);
    if (!is_inside)
        return flow->flags & FLOW_LIBERAL ? FORWARDED : WINDOW;
    int is_noted = raise(&sender->window_max, window_max) && raise(&sender->end, end) &&
                   raise(&receiver->end_max, sack + window) &&
                   raise(&sender->acknowledged_max, packet->acknowledgement);
    // Raising again in user space changes nothing, so a part is no harm.
    return is_noted ? FORWARDED : CONTENDED;
}

// The packet, or the segments that it stands for, fit the next hop's MTU.
INLINE int fits(const struct frame *frame, const struct packet *packet, const struct next_hop *hop) {
    u32 segment_bytes = frame->segment_bytes;
    u32 bytes = segment_bytes ? packet->header_bytes + segment_bytes : frame->bytes - ETHERNET_BYTES;
    return bytes <= hop->mtu_bytes;
}

// The transport checksum covers the pseudo-header alone: who completes it needs a note that XDP does not see, and would lose. A complete
// checksum looks like that once in 65536 times, and such a packet is left for nothing.
INLINE int is_partial(const struct frame *frame, const struct packet *packet) {
    u32 is_tcp = packet->key.protocol == PROTOCOL_TCP, is_ipv4 = packet->key.version == 4;
    u32 ip_bytes = is_ipv4 ? IPV4_BYTES : IPV6_BYTES;
    void *transport = frame->data + ETHERNET_BYTES + ip_bytes;
    u16 *field = transport + (is_tcp ? TCP_CHECKSUM_OFFSET : UDP_CHECKSUM_OFFSET);
    if ((void *)(field + 1) > frame->data_end)
        return 1;
    // The prefixes of mapped addresses sum up to nothing.
    u64 sum = (u64)be16(packet->key.protocol) + be16(packet->l3_bytes - ip_bytes);
    for (int i = 0; i < 4; i++)
        sum += (u64)packet->key.source[i] + packet->key.destination[i];
    return *field == fold(sum);
}

INLINE int is_supervised(const struct control *control, u64 now) {
    u64 heartbeat = READ_ONCE(control->heartbeat_ns), age_max = READ_ONCE(control->heartbeat_age_max_ns);
    return now <= heartbeat || now - heartbeat <= age_max || now < READ_ONCE(control->allow_without_heartbeat_until_ns);
}

// What the programs know of a packet that they forward.
struct decision {
    struct packet packet;
    struct flow flow;
    struct next_hop hop;
    struct control *order;
    struct connection *connection;
    u64 now;
    u32 is_bridged;
};

// Whether anything may be forwarded at all. `decision` is zero.
INLINE enum outcome begin(struct decision *decision) {
    u32 first = 0;
    struct control *order = map_lookup(&control, &first);
    if (!order)
        return DISABLED;
    u32 switches = READ_ONCE(order->switches);
    decision->is_bridged = switches & SWITCH_BRIDGED;
    if (!(switches & SWITCH_ENABLED))
        return DISABLED;
    decision->order = order;
    decision->now = ktime_get_ns();
    return is_supervised(order, decision->now) ? FORWARDED : HEARTBEAT;
}

// The frame is for the link address that a bridged flow demands, if it demands one.
INLINE int is_for_its_host(const struct frame *frame, const struct flow *flow) {
    const struct ethernet *link = frame->data;
    const u16 *address = (const u16 *)flow->source;
    if (!(flow->flags & FLOW_LINK))
        return 1;
    return (void *)(link + 1) <= frame->data_end && link->destination[0] == address[0] &&
           link->destination[1] == address[1] && link->destination[2] == address[2];
}

// Whether a frame is forwarded, and how. Raises the windows of its connection if so.
INLINE enum outcome decide(const struct frame *frame, struct decision *decision) {
    struct packet *packet = &decision->packet;
    enum outcome outcome = parse(frame, packet);
    if (outcome != FORWARDED)
        return outcome;
    struct flow *found = map_lookup(&flows, &packet->key);
    if (!found)
        return MISS;
    // What follows works on the copy that the seal was checked of.
    struct flow *flow = &decision->flow;
    *flow = *found;
    if (seal_of_flow((u64 *)flow, (u64 *)&packet->key) != flow->seal)
        return TORN;
    if (!is_for_its_host(frame, flow))
        return HOST;
    if (flow->generation != READ_ONCE(decision->order->generation))
        return GENERATION;
    struct next_hop *hop_found = map_lookup(&next_hops, &flow->next_hop);
    struct connection *connection = map_lookup(&connections, &flow->connection);
    if (!hop_found || !connection)
        return NEXT_HOP;
    decision->connection = connection;
    struct next_hop *hop = &decision->hop;
    *hop = *hop_found;
    if (!(hop->flags & NEXT_HOP_VALID))
        return NEXT_HOP;
    if (seal_of_next_hop((u64 *)hop) != hop->seal)
        return TORN;
    if (!fits(frame, packet, hop))
        return MTU;
    if (frame->is_whole && is_partial(frame, packet))
        return PARTIAL;
    return packet->key.protocol == PROTOCOL_TCP ? track(connection, flow, packet) : FORWARDED;
}

// Rewrites the destination link address of a bridged frame. Zero: the header is not there, and nothing is changed.
INLINE int readdress(void *data, void *data_end, const struct next_hop *hop) {
    struct ethernet *link = data;
    if ((void *)(link + 1) > data_end)
        return 0;
    if (hop->destination[0] | hop->destination[1] | hop->destination[2])
        for (int i = 0; i < 3; i++)
            link->destination[i] = hop->destination[i];
    return 1;
}

// Rewrites addresses, ports, TTL and link addresses, and the IP checksum. Zero: the headers are not there, and nothing is changed.
INLINE int rewrite(void *data, void *data_end, const struct decision *decision) {
    const struct flow *flow = &decision->flow;
    struct ethernet *link = data;
    struct udp *ports;
    if (decision->packet.key.version == 4) {
        struct ipv4 *ip = (void *)(link + 1);
        ports = (void *)(ip + 1);
        if ((void *)ports + 4 > data_end)
            return 0;
        // The time to live is the upper half of its word.
        ip->checksum = ~fold((u64)(u16)~ip->checksum + flow->address_delta + (u16)~be16(0x0100));
        ip->ttl -= 1;
        ip->source = flow->source[3];
        ip->destination = flow->destination[3];
    } else {
        struct ipv6 *ip = (void *)(link + 1);
        ports = (void *)(ip + 1);
        if ((void *)ports + 4 > data_end)
            return 0;
        ip->hop_limit -= 1;
        for (int i = 0; i < 4; i++) {
            ip->source[i] = flow->source[i];
            ip->destination[i] = flow->destination[i];
        }
    }
    ports->source_port = flow->source_port;
    ports->destination_port = flow->destination_port;
    for (int i = 0; i < 3; i++) {
        link->destination[i] = decision->hop.destination[i];
        link->source[i] = decision->hop.source[i];
    }
    return 1;
}

INLINE void note_forwarded(const struct decision *decision) {
    struct connection *connection = decision->connection;
    u32 direction = decision->flow.direction & 1;
    WRITE_ONCE(connection->last_packet_ns, decision->now);
    __sync_fetch_and_add(&connection->bytes[direction], decision->packet.l3_bytes);
    __sync_fetch_and_add(&connection->packets[direction], 1);
    count(FORWARDED);
}

// The program for tc: at the ingress hook, after the kernel has made its buffer of the frame.

INLINE int leave(enum outcome outcome) {
    count(outcome);
    return ACT_UNSPEC;
}

// Changes the transport checksum. The result FORWARDED: it is changed, or need not be. NETWORK: the kernel refused. FAILED: it refused
// half-way.
INLINE enum outcome change_checksum(struct context *skb, const struct decision *decision) {
    const struct packet *packet = &decision->packet;
    const struct flow *flow = &decision->flow;
    u32 is_tcp = packet->key.protocol == PROTOCOL_TCP;
    u32 field = packet->l4_offset + (is_tcp ? TCP_CHECKSUM_OFFSET : UDP_CHECKSUM_OFFSET);
    // UDP: zero means that there is none.
    u64 flags = is_tcp ? 0 : F_MARK_MANGLED_0;
    // A partial checksum covers the pseudo-header alone: the helper leaves the ports' change to whoever completes it.
    if (flow->address_delta && l4_csum_replace(skb, field, 0, flow->address_delta, flags | F_PSEUDO_HDR))
        return NETWORK;
    if (flow->port_delta && l4_csum_replace(skb, field, 0, flow->port_delta, flags))
        return flow->address_delta ? FAILED : NETWORK;
    // A sum of the whole packet by the receiving hardware: in IPv4 the headers' changes cancel out, but for the
    // pseudo-header's, which the helper has noted. In IPv6 addresses and checksum cancel out, and the hop limit does not.
    if (packet->key.version != 4)
        csum_update(skb, (u32)flow->address_delta + (u16)~be16(1));
    return FORWARDED;
}

SEC("classifier") int fast_path(struct context *skb) {
    struct decision decision = {};
    enum outcome outcome = begin(&decision);
    // Also while it forwards nothing.
    if (decision.is_bridged && skb->vlan_present)
        skb->mark = TAGGED_MARK;
    if (outcome != FORWARDED)
        return leave(outcome);
    if (skb->pkt_type != PACKET_HOST && !(decision.is_bridged && skb->pkt_type == PACKET_OTHERHOST))
        return leave(HOST);
    if (skb->vlan_present)
        return leave(TAGGED);
    u32 bytes = skb->len, wanted = bytes < HEADERS_BYTES_MAX ? bytes : HEADERS_BYTES_MAX;
    // The headers may lie beyond the part of the packet that the program can address.
    if ((void *)(long)skb->data + wanted > (void *)(long)skb->data_end && skb_pull_data(skb, wanted))
        return leave(NETWORK);
    struct frame frame = {
        .data = (void *)(long)skb->data,
        .data_end = (void *)(long)skb->data_end,
        .bytes = bytes,
        .ifindex = skb->ifindex,
        .segment_bytes = skb->gso_size,
        .is_bridged = decision.is_bridged,
    };
    outcome = decide(&frame, &decision);
    if (outcome != FORWARDED)
        return leave(outcome);
    u32 ifindex = decision.hop.ifindex;
    if (decision.is_bridged) {
        if (!readdress((void *)(long)skb->data, (void *)(long)skb->data_end, &decision.hop))
            return leave(NETWORK);
        note_forwarded(&decision);
        return redirect(ifindex, 0);
    }
    outcome = change_checksum(skb, &decision);
    if (outcome == NETWORK)
        return leave(outcome);
    if (outcome != FORWARDED || !rewrite((void *)(long)skb->data, (void *)(long)skb->data_end, &decision)) {
        count(FAILED);
        return ACT_SHOT;
    }
    note_forwarded(&decision);
    return decision.hop.flags & NEXT_HOP_PEER ? redirect_peer(ifindex, 0) : redirect(ifindex, 0);
}

// The program for XDP: in the driver, on the frame as it came in. There are neither frames of many segments nor notes about checksums.

INLINE int leave_xdp(enum outcome outcome) {
    count(outcome);
    return XDP_PASS;
}

// The frame is for the link address of the interface on which it came in; a bridged one is for any, but not for a group.
INLINE int is_for_host(const struct ethernet *link, u32 ifindex, u32 is_bridged) {
    if (is_bridged)
        return !(link->destination[0] & 1);
    struct port *port = map_lookup(&ports, &ifindex);
    return port && link->destination[0] == port->address[0] && link->destination[1] == port->address[1] &&
           link->destination[2] == port->address[2];
}

// Changes the transport checksum, which is complete. Zero: the header is not there, and nothing is changed.
INLINE int change_whole_checksum(const struct frame *frame, const struct decision *decision) {
    const struct flow *flow = &decision->flow;
    u32 is_tcp = decision->packet.key.protocol == PROTOCOL_TCP;
    void *transport = frame->data + ETHERNET_BYTES + (decision->packet.key.version == 4 ? IPV4_BYTES : IPV6_BYTES);
    u16 *field = transport + (is_tcp ? TCP_CHECKSUM_OFFSET : UDP_CHECKSUM_OFFSET);
    if ((void *)(field + 1) > frame->data_end)
        return 0;
    u16 known = *field;
    // UDP: zero means that there is none.
    if (!is_tcp && known == 0)
        return 1;
    u16 changed = ~fold((u64)(u16)~known + flow->address_delta + flow->port_delta);
    *field = !is_tcp && changed == 0 ? 0xffff : changed;
    return 1;
}

SEC("xdp") int fast_path_xdp(struct xdp_context *xdp) {
    struct decision decision = {};
    enum outcome outcome = begin(&decision);
    if (outcome != FORWARDED)
        return leave_xdp(outcome);
    void *data = (void *)(long)xdp->data, *data_end = (void *)(long)xdp->data_end;
    struct ethernet *link = data;
    if ((void *)(link + 1) > data_end)
        return leave_xdp(LINK);
    if (!is_for_host(link, xdp->ingress_ifindex, decision.is_bridged))
        return leave_xdp(HOST);
    if (link->type == be16(TYPE_VLAN) || link->type == be16(TYPE_SERVICE_VLAN))
        return leave_xdp(TAGGED);
    struct frame frame = {
        .data = data,
        .data_end = data_end,
        .bytes = data_end - data,
        .ifindex = xdp->ingress_ifindex,
        .is_whole = 1,
        .is_bridged = decision.is_bridged,
    };
    outcome = decide(&frame, &decision);
    if (outcome != FORWARDED)
        return leave_xdp(outcome);
    // They find headers that were read already.
    if (decision.is_bridged) {
        if (!readdress(data, data_end, &decision.hop))
            return leave_xdp(NETWORK);
    } else if (!change_whole_checksum(&frame, &decision) || !rewrite(data, data_end, &decision)) {
        return leave_xdp(NETWORK);
    }
    note_forwarded(&decision);
    return redirect(decision.hop.ifindex, 0);
}

// The helpers that the programs call require no licence; the kernel notes it all the same.
char fast_path_license[] SEC("license") = "Dual MIT/GPL";
