//! Attacks by packets that pass the gateway, or are to it.

use std::net::{IpAddr, Ipv4Addr, SocketAddr};

use super::report::Observed;
use super::site::{PLAIN, Site, of_reasons, words};
use super::tracked::LINK_BYTES;
use crate::demo::run::RunError;
use crate::testbed::cluster::guarded;
use crate::testbed::stranger::{Stranger, forged_control_frames};
use crate::testbed::topology::{CLIENT, INSIDE, OUTSIDE, SERVER, v4};
use api::EventKind;
use flow::Tuple;
use flow::random::SplitMix64;
use flow::wire::build::{Envelope, IcmpHeader, Tcp};
use flow::wire::ipv6::FragmentHeader;
use flow::wire::{build, ip_protocol, tcp_flags};

/// Forged packets of each kind.
const FORGED: u64 = 200;
/// Packets of a flood.
const FLOOD: u64 = 20_000;
/// Flows that are begun at once.
const FLOWS_AT_ONCE: u32 = 5_000;
/// As far as no window is large.
const FAR: u32 = 1 << 30;
/// The inside host that strangers send as, which there is not.
const NOBODY: IpAddr = v4(10, 1, 0, 200);
/// A host outside that there is not.
const NOBODY_OUTSIDE: IpAddr = v4(198, 51, 100, 66);
/// ICMP: destination unreachable, and its code "fragmentation needed".
const UNREACHABLE: u8 = 3;
const FRAGMENTATION_NEEDED: u8 = 4;

fn at(address: IpAddr, port: u16) -> SocketAddr {
    SocketAddr::new(address, port)
}

fn tcp(source: SocketAddr, destination: SocketAddr) -> Tuple {
    Tuple::new(ip_protocol::TCP, source, destination)
}

fn udp(source: SocketAddr, destination: SocketAddr) -> Tuple {
    Tuple::new(ip_protocol::UDP, source, destination)
}

/// Resets in the name of both ends, with numbers out of the window.
pub(super) fn forged_reset(site: &mut Site<'_>) -> Result<Observed, RunError> {
    let (mut inside, mut outside) = (site.stranger(0)?, site.stranger(1)?);
    let mut tracked = site.tracked(&mut inside, PLAIN)?;
    let before_attack = tracked.exchange(b"before").is_some();
    let client_outside = site.servers.plain.last_peer().unwrap_or(at(OUTSIDE[0], 0));
    let before = site.drops()?;
    for number in 0..FORGED as u32 {
        let reset = |sequence: u32| Tcp { flags: tcp_flags::RST, sequence, ..Tcp::default() };
        let far = FAR + number * 65_537;
        let of_client = inside.envelope().tcp(&tracked.tuple, reset(tracked.next.wrapping_add(far)), b"");
        inside.send(&of_client);
        let from_server = tcp(at(SERVER[0], PLAIN), client_outside);
        let of_server = outside.envelope().tcp(&from_server, reset(tracked.acknowledgement.wrapping_add(far)), b"");
        outside.send(&of_server);
    }
    let reasons = ["invalid_reset", "out_of_window"];
    let drops = site.dropped_since(&before, &reasons, 2 * FORGED)?;
    let goes_on = tracked.exchange(b"after").is_some();
    let dropped: u64 = drops.values().sum();
    Ok(Observed {
        held: before_attack && goes_on && dropped >= 2 * FORGED,
        observed: format!("{dropped} of {} resets dropped; the connection goes on: {goes_on}", 2 * FORGED),
        operator_sees: words(&drops),
    })
}

/// ICMP errors that quote numbers out of the window, other connections, and packets of others.
pub(super) fn forged_icmp_error(site: &mut Site<'_>) -> Result<Observed, RunError> {
    let (mut inside, mut outside) = (site.stranger(0)?, site.stranger(1)?);
    let mut tracked = site.tracked(&mut inside, PLAIN)?;
    let before_attack = tracked.exchange(b"before").is_some();
    let client_outside = site.servers.plain.last_peer().unwrap_or(at(OUTSIDE[0], 0));
    let server = at(SERVER[0], PLAIN);
    let before = site.drops()?;
    let error = |code, parameter| IcmpHeader { kind: UNREACHABLE, code, parameter };
    let quoted = |tuple: &Tuple, sequence: u32| {
        let segment = Tcp { flags: tcp_flags::ACK, sequence, ..Tcp::default() };
        build::tcp(tuple, segment, b"")[LINK_BYTES..].to_vec()
    };
    for number in 0..FORGED as u32 {
        let far = tracked.next.wrapping_add(FAR + number * 65_537);
        let own = quoted(&tcp(client_outside, server), far);
        let unknown = quoted(&tcp(at(OUTSIDE[0], 1 + number as u16), server), far);
        for about in [own, unknown] {
            for header in [error(1, 0), error(FRAGMENTATION_NEEDED, 68)] {
                let frame = outside.envelope().icmp_error(NOBODY_OUTSIDE, header, &about);
                frame.iter().for_each(|frame| outside.send(frame));
            }
        }
    }
    let reasons = ["unrelated_icmp_error", "misdirected_icmp_error", "out_of_window"];
    let drops = site.dropped_since(&before, &reasons, 2 * FORGED)?;
    let goes_on = tracked.exchange(&[7; 16_384]).is_some();
    let dropped: u64 = drops.values().sum();
    Ok(Observed {
        held: before_attack && goes_on && dropped >= 2 * FORGED,
        observed: format!(
            "{dropped} of {} errors dropped, which quote no connection of the gateway, or numbers that no \
                           host has sent; 16 kB pass afterwards: {goes_on}",
            4 * FORGED
        ),
        operator_sees: words(&drops),
    })
}

/// The gateway's own addresses as sources, from both sides.
pub(super) fn own_source(site: &mut Site<'_>) -> Result<Observed, RunError> {
    let before = site.drops()?;
    let mut sent = 0;
    for side in [0, 1] {
        let mut stranger = site.stranger(side)?;
        for source in [INSIDE[0], OUTSIDE[0]] {
            for port in 0..FORGED as u16 {
                let tuple = udp(at(source, 1024 + port), at(SERVER[0], 7600));
                let frame = stranger.envelope().udp(&tuple, b"forged");
                stranger.send(&frame);
                sent += 1;
            }
        }
    }
    let drops = site.dropped_since(&before, &["martian_address"], sent)?;
    Ok(all_dropped(&drops, sent))
}

/// Packets from outside with the sources of inside hosts, for which a rule of the inside would let connections begin.
pub(super) fn inside_source_from_outside(site: &mut Site<'_>) -> Result<Observed, RunError> {
    let mut stranger = site.stranger(1)?;
    let before = site.drops()?;
    for port in 0..FORGED as u16 {
        let tuple = udp(at(CLIENT[0], 1024 + port), at(SERVER[0], 7600));
        let frame = stranger.envelope().udp(&tuple, b"forged");
        stranger.send(&frame);
    }
    let drops = site.dropped_since(&before, &["reverse_path"], FORGED)?;
    Ok(all_dropped(&drops, FORGED))
}

fn all_dropped(drops: &super::site::Drops, sent: u64) -> Observed {
    let dropped: u64 = drops.values().sum();
    Observed {
        held: dropped >= sent,
        observed: format!("{dropped} of {sent} packets dropped"),
        operator_sees: words(drops),
    }
}

/// SYNs whose source is their destination: the gateway's addresses, and a host's.
pub(super) fn land(site: &mut Site<'_>) -> Result<Observed, RunError> {
    let before = site.drops()?;
    let mut sent = 0;
    for (side, address) in [(0, INSIDE[0]), (1, OUTSIDE[0]), (1, SERVER[0]), (0, CLIENT[0])] {
        let mut stranger = site.stranger(side)?;
        for _ in 0..FORGED {
            let end = at(address, 80);
            let frame = stranger.envelope().tcp(&tcp(end, end), Tcp { flags: tcp_flags::SYN, ..Tcp::default() }, b"");
            stranger.send(&frame);
            sent += 1;
        }
    }
    let drops = site.dropped_since(&before, &[], sent)?;
    Ok(all_dropped(&drops, sent))
}

/// Packets of each kind, truncated at each length, and with each byte of their headers changed.
pub(super) fn malformed(site: &mut Site<'_>) -> Result<Observed, RunError> {
    let mut stranger = site.stranger(0)?;
    let before = site.drops()?;
    let mut sent: u64 = 0;
    for frame in ordinary(&stranger) {
        for length_bytes in LINK_BYTES..frame.len() {
            stranger.send(&frame[..length_bytes]);
            sent += 1;
        }
        for place in LINK_BYTES..frame.len().min(LINK_BYTES + 60) {
            for bits in [0x01, 0x10, 0x80, 0xff] {
                let mut changed = frame.clone();
                changed[place] ^= bits;
                stranger.send(&changed);
                sent += 1;
            }
        }
    }
    // Packets behind them, that are wrong in one known way: what came before has been looked at.
    for _ in 0..FORGED {
        let mut last = stranger.envelope().udp(&udp(at(NOBODY, 5000), at(SERVER[0], 7600)), b"last");
        last[LINK_BYTES + 10] ^= 0xff;
        stranger.send(&last);
        sent += 1;
    }
    let drops = site.dropped_since(&before, &["bad_ip_checksum"], FORGED)?;
    let all = of_reasons(&before, &site.drops()?, &[]);
    let (last, dropped) = (drops.values().sum::<u64>(), all.values().sum::<u64>());
    Ok(Observed {
        held: last >= FORGED && dropped > sent / 2 && all.len() >= 5,
        observed: format!("{dropped} of {sent} packets dropped, for {} reasons", all.len()),
        operator_sees: words(&all),
    })
}

/// A packet of each kind, from a host that there is not.
fn ordinary(stranger: &Stranger) -> Vec<Vec<u8>> {
    let (nobody, server) = (at(NOBODY, 5000), at(SERVER[0], 7600));
    let envelope = stranger.envelope();
    let fragment = FragmentHeader { offset_bytes: 0, more: true, identification: 77 };
    let syn =
        Tcp { flags: tcp_flags::SYN, timestamps: Some((1, 0)), maximum_segment_bytes: Some(1460), ..Tcp::default() };
    let echo = IcmpHeader { kind: 8, code: 0, parameter: 1 };
    vec![
        envelope.tcp(&tcp(nobody, server), syn, b"data"),
        envelope.udp(&udp(nobody, server), b"data of a datagram"),
        envelope.icmp(&Tuple::new(ip_protocol::ICMP, at(NOBODY, 0), at(SERVER[0], 0)), echo, b"data"),
        Envelope { fragment: Some(fragment), ..envelope }.raw(&udp(nobody, server), &[0; 64]),
        Envelope { ipv4_options: &[7, 7, 4, 0, 0, 0, 0, 0], ..envelope }.udp(&udp(nobody, server), b"with options"),
    ]
}

/// First fragments without their transport header, and fragments that overlap each other.
pub(super) fn bad_fragments(site: &mut Site<'_>) -> Result<Observed, RunError> {
    let mut stranger = site.stranger(0)?;
    let before = site.drops()?;
    let tuple = tcp(at(NOBODY, 5000), at(SERVER[0], 80));
    let mut send = |identification, offset_bytes, more, bytes: &[u8]| {
        let fragment = FragmentHeader { offset_bytes, more, identification };
        let frame = Envelope { fragment: Some(fragment), ..stranger.envelope() }.raw(&tuple, bytes);
        stranger.send(&frame);
    };
    for identification in 0..FORGED as u32 {
        send(identification, 0, true, &[0; 8]);
        send(identification, 8, false, &[0; 8]);
        send(1000 + identification, 64, true, &[0; 64]);
        send(1000 + identification, 96, true, &[1; 64]);
    }
    let reasons = ["tiny_fragment", "overlapping_fragment"];
    let drops = site.dropped_since(&before, &reasons, 2 * FORGED)?;
    let has_both = reasons.iter().all(|reason| drops.contains_key(*reason));
    let dropped: u64 = drops.values().sum();
    Ok(Observed {
        held: has_both && dropped >= 2 * FORGED,
        observed: format!("{dropped} of {} fragments dropped", 4 * FORGED),
        operator_sees: words(&drops),
    })
}

/// Later fragments of packets whose first fragment never comes.
pub(super) fn fragment_flood(site: &mut Site<'_>) -> Result<Observed, RunError> {
    let mut stranger = site.stranger(0)?;
    let before = site.drops()?;
    for number in 0..FLOOD as u32 {
        let tuple = udp(at(v4(10, 1, 0, 100 + (number % 50) as u8), 5000), at(SERVER[0], 7600));
        let fragment = FragmentHeader { offset_bytes: 1024, more: true, identification: number };
        let frame = Envelope { fragment: Some(fragment), ..stranger.envelope() }.raw(&tuple, &[0; 1024]);
        stranger.send(&frame);
    }
    let reasons = ["fragment_table_full", "fragment_source_limit", "fragment_timeout"];
    let drops = site.dropped_since(&before, &reasons, FLOOD / 2)?;
    let dropped: u64 = drops.values().sum();
    Ok(Observed {
        held: dropped >= FLOOD / 2,
        observed: format!("{dropped} of {FLOOD} fragments dropped so far; the others are held within the limit"),
        operator_sees: words(&drops),
    })
}

/// Datagrams of many flows, until the connection table is full. A flow is entered only once its packet leaves, so the first ones may wait for the
/// server's link address in vain.
pub(super) fn udp_exhaustion(site: &mut Site<'_>) -> Result<Observed, RunError> {
    let mut stranger = site.stranger(0)?;
    let before = site.drops()?;
    let mut begun = 0_u32;
    let is_full = site.until(|| {
        for number in begun..begun + FLOWS_AT_ONCE {
            let source = at(v4(10, 1, 0, 100 + (number % 100) as u8), 1024 + (number / 100 % 60_000) as u16);
            let frame = stranger.envelope().udp(&udp(source, at(SERVER[0], 7600)), b"flood");
            stranger.send(&frame);
        }
        begun += FLOWS_AT_ONCE;
        let connections = site.status(0)?.connections;
        Ok(connections.count * 10 >= connections.max * 9)
    })?;
    let mut tracked = site.tracked(&mut stranger, PLAIN)?;
    let begins = tracked.exchange(b"a new connection").is_some();
    let status = site.status(0)?.connections;
    let drops = of_reasons(&before, &site.drops()?, &["table_full"]);
    let seen = [format!("connections {} of {}", status.count, status.max), words(&drops)];
    Ok(Observed {
        held: is_full && begins && status.count <= status.max,
        observed: format!("{begun} flows were begun at a table of {}; a client connects: {begins}", status.max),
        operator_sees: seen.into_iter().filter(|part| !part.is_empty()).collect::<Vec<_>>().join("; "),
    })
}

/// SYNs with spoofed sources to a server behind the SYN proxy, and cookies that nobody was given.
pub(super) fn syn_flood(site: &mut Site<'_>) -> Result<Observed, RunError> {
    let mut stranger = site.stranger(0)?;
    let counts = |site: &Site<'_>| -> Result<(u64, u64), RunError> {
        let rules = site.status(0)?.syn_proxy;
        let answered = rules.iter().map(|rule| rule.answered).sum();
        let rejected = rules.iter().flat_map(|rule| &rule.rejected).map(|rejected| rejected.segments).sum();
        Ok((answered, rejected))
    };
    let before = counts(site)?;
    let connections_before = site.status(0)?.connections.count;
    let mut random = SplitMix64::new(1);
    for number in 0..FLOOD {
        let drawn = random.between(0, u64::MAX - 1);
        let source = IpAddr::V4(Ipv4Addr::new(10, 1, 0, 100 + (drawn % 100) as u8));
        let tuple = tcp(at(source, 1024 + (drawn >> 16) as u16 % 60_000), at(SERVER[0], guarded::PROXIED));
        let is_cookie = number % 4 == 3;
        let segment = Tcp {
            flags: if is_cookie { tcp_flags::ACK } else { tcp_flags::SYN },
            sequence: (drawn >> 32) as u32,
            acknowledgement: if is_cookie { (drawn >> 8) as u32 } else { 0 },
            ..Tcp::default()
        };
        let frame = stranger.envelope().tcp(&tuple, segment, b"");
        stranger.send(&frame);
    }
    let mut now = before;
    site.until(|| {
        now = counts(site)?;
        Ok(now.0 - before.0 >= FLOOD / 2 && now.1 - before.1 >= FLOOD / 8)
    })?;
    let mut tracked = site.tracked(&mut stranger, guarded::PROXIED)?;
    let begins = tracked.exchange(b"a legitimate client").is_some();
    let (answered, rejected) = (now.0 - before.0, now.1 - before.1);
    let grown = site.status(0)?.connections.count.saturating_sub(connections_before);
    Ok(Observed {
        held: begins && answered >= FLOOD / 2 && rejected >= FLOOD / 8 && grown < FORGED,
        observed: format!(
            "{answered} SYNs answered with cookies and {rejected} cookies refused take {grown} places in the table; a client \
             connects: {begins}"
        ),
        operator_sees: format!("syn_proxy: answered {answered}, rejected {rejected}"),
    })
}

/// Heartbeats and frames of edges in the name of nodes, from a host on the link of both nodes.
pub(super) fn forged_heartbeats(site: &mut Site<'_>) -> Result<Observed, RunError> {
    let mut stranger = site.stranger(0)?;
    let before = site.drops()?;
    let frames = forged_control_frames();
    for _ in 0..FORGED {
        frames.iter().for_each(|frame| stranger.send(frame));
    }
    let drops = site.dropped_since(&before, &["control_unauthenticated"], FORGED)?;
    let dropped: u64 = drops.values().sum();
    let events = site.cluster.events_of(0);
    let is_loss = |kind| matches!(kind, EventKind::PeerDown | EventKind::BecameStandby);
    let losses = events.iter().filter(|event| is_loss(event.kind)).count();
    Ok(Observed {
        held: dropped >= FORGED && losses == 0,
        observed: format!(
            "{} frames sent, {dropped} dropped at node a; {losses} events of a lost peer or role",
            FORGED * frames.len() as u64
        ),
        operator_sees: words(&drops),
    })
}
