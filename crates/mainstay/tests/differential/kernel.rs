//! The kernel's connection tracking, asked by sending it segments: a router in a namespace of its own, through which each
//! segment goes, and whose rules write into the IP header of each what the tracking made of it.
//!
//! ```text
//!   end_a ──► port_a │ conntrack ─► rules: type of service := bits, time to live := timeout │ port_b ──► end_b
//! ```
//!
//! Nothing is dropped, so that "all have come out" is known for certain, and nothing has to be waited for by the clock.

use std::fmt::Write as _;
use std::io::{ErrorKind, Write as _};
use std::process::{Command, Stdio};
use std::time::Duration;

use flow::wire::MacAddress;
use flow::{Disposition, Frame, PacketBatch, PortId};
use packet_io::af_packet::{AfPacketIo, PortConfig};
use packet_io::namespace::{Namespace, NamespaceSupport, probe};
use packet_io::netlink::{Netlink, Prefix};
use packet_io::poller::{Poller, Token};
use packet_io::{IoError, PacketIo, sysctl};

use crate::comparison::Options;
use crate::observation::{Connection, Lifetime, Observation};
use crate::segment::{CLIENT, SERVER, Segment};

/// Segments in flight at once: what fits the queues of a virtual link with room to spare.
const IN_FLIGHT_MAX: usize = 256;
/// So long may the kernel take for the segments in flight, however busy the machine is.
const PATIENCE: Duration = Duration::from_secs(20);
/// Where the type of service lies in a frame.
const TYPE_OF_SERVICE_OFFSET: usize = 15;
const IDENTIFICATION_OFFSET: usize = 18;
const TIME_TO_LIVE_OFFSET: usize = 22;
/// What the rules write as time to live: this, and the number of the timeout.
const LIFETIME_BASE: u8 = 100;

mod bits {
    //! Bits of the type of service that the rules write.
    pub(super) const INVALID: u8 = 0x01;
    pub(super) const BEGAN: u8 = 0x02;
    pub(super) const ENDED: u8 = 0x04;
    pub(super) const IS_REPLY: u8 = 0x10;
    pub(super) const IS_REPLIED: u8 = 0x20;
    pub(super) const IS_ASSURED: u8 = 0x40;
    /// Set in every frame that the rules have seen.
    pub(super) const SEEN: u8 = 0x80;
}

/// Why there is no kernel to compare with.
#[derive(Debug)]
pub(crate) struct Unavailable(pub(crate) String);

impl From<IoError> for Unavailable {
    fn from(error: IoError) -> Self {
        Self(error.to_string())
    }
}

/// A router between two links whose ends are in this program's hands.
pub(crate) struct Kernel {
    io: AfPacketIo,
    poller: Poller,
    /// Link addresses of the ends and of the router's ports facing them.
    macs: [(MacAddress, MacAddress); 2],
    /// Held so that they live as long as the router does.
    _namespaces: [Namespace; 2],
}

impl Kernel {
    pub(crate) fn start(options: Options) -> Result<Self, Unavailable> {
        let support = probe();
        if support != NamespaceSupport::Available {
            return Err(Unavailable(format!("network namespaces cannot be made here: {support:?}")));
        }
        let (router, ends) = (Namespace::new()?, Namespace::new()?);
        let macs = router.run(|| cable(&ends))??;
        router.run(forward)??;
        load_rules(&router)?;
        // The parameters exist once the rules have made the kernel track.
        router.run(|| set_tracking(options))??;
        let io = ends.run(|| AfPacketIo::open(&[PortConfig::new("end_a"), PortConfig::new("end_b")]))??;
        let poller = Poller::new()?;
        for (number, descriptor) in io.descriptors().into_iter().enumerate() {
            poller.add(descriptor, Token(number as u64))?;
        }
        Ok(Self { io, poller, macs, _namespaces: [router, ends] })
    }

    /// Sends each exchange its segment. Each may have at most one.
    pub(crate) fn observe(&mut self, segments: &[(u32, Segment)]) -> Vec<Observation> {
        let mut observations = Vec::with_capacity(segments.len());
        for part in segments.chunks(IN_FLIGHT_MAX) {
            observations.extend(self.observe_part(part));
        }
        observations
    }

    fn observe_part(&mut self, segments: &[(u32, Segment)]) -> Vec<Observation> {
        for (number, (exchange, segment)) in segments.iter().enumerate() {
            // The client is at the first end, the server at the second.
            let end = segment.direction.index();
            let mut bytes = segment.frame(*exchange, self.macs[end], number as u16);
            let length_bytes = bytes.len();
            let frame = Frame::new(&mut bytes, 0, length_bytes, PortId(end as u8)).expect("it is all of its buffer");
            self.io.transmit(PortId(end as u8), &frame).expect("the link is up and takes the frame");
        }
        let mut observations = vec![None; segments.len()];
        let mut missing = segments.len();
        while missing > 0 {
            let mut came = Vec::new();
            let received = self.io.poll(&mut |batch| take(batch, &mut came)).expect("the links stay up");
            if received == 0 {
                self.wait();
            }
            for (number, observation) in came {
                if let Some(slot @ None) = observations.get_mut(usize::from(number)) {
                    *slot = Some(observation);
                    missing -= 1;
                }
            }
        }
        observations.into_iter().flatten().collect()
    }

    fn wait(&self) {
        let mut ready = Vec::new();
        self.poller.wait(&mut ready, Some(PATIENCE)).expect("the descriptors are open");
        assert!(!ready.is_empty(), "the kernel lost a segment: none came out for {PATIENCE:?}");
    }
}

fn take(batch: &mut PacketBatch<'_>, came: &mut Vec<(u16, Observation)>) {
    for frame in batch {
        frame.disposition = Disposition::Consumed;
        came.extend(read(frame.bytes()));
    }
}

/// Which segment it is, and what the rules wrote into it. `None`: the frame is none of ours.
fn read(frame: &[u8]) -> Option<(u16, Observation)> {
    let is_tcp = frame.get(12..14)? == [0x08, 0x00] && *frame.get(23)? == flow::wire::ip_protocol::TCP;
    let mark = *frame.get(TYPE_OF_SERVICE_OFFSET)?;
    if !is_tcp || mark & bits::SEEN == 0 {
        return None;
    }
    let number = u16::from_be_bytes([frame[IDENTIFICATION_OFFSET], frame[IDENTIFICATION_OFFSET + 1]]);
    let has = |bit: u8| mark & bit != 0;
    let lifetime = frame[TIME_TO_LIVE_OFFSET].wrapping_sub(LIFETIME_BASE);
    let observation = if has(bits::INVALID) {
        Observation::Invalid
    } else if has(bits::ENDED) {
        Observation::Passed(Connection::Ended)
    } else if has(bits::BEGAN) {
        Observation::Passed(Connection::Began)
    } else {
        Observation::Passed(Connection::GoesOn {
            is_reply: has(bits::IS_REPLY),
            is_replied: has(bits::IS_REPLIED),
            is_assured: has(bits::IS_ASSURED),
            lifetime: Lifetime::ALL.get(usize::from(lifetime)).copied(),
        })
    };
    Some((number, observation))
}

/// Joins the router to both ends. Returns, for each end, its own link address and the router's.
fn cable(ends: &Namespace) -> Result<[(MacAddress, MacAddress); 2], IoError> {
    sysctl::quieten_ipv6()?;
    ends.run(sysctl::quieten_ipv6)??;
    let mut macs = Vec::new();
    for (port, end, network, address) in [("port_a", "end_a", 1, CLIENT), ("port_b", "end_b", 2, SERVER)] {
        let mut netlink = Netlink::open()?;
        netlink.create_veth(port, end, ends)?;
        let end_mac = ends.run(|| -> Result<_, IoError> {
            let mut netlink = Netlink::open()?;
            netlink.set_up(end, true)?;
            Ok(netlink.interface(end)?.mac)
        })??;
        netlink.set_up(port, true)?;
        netlink.add_address(port, Prefix::new(std::net::Ipv4Addr::new(10, network, 0, 1).into(), 24))?;
        netlink.add_neighbour(port, address.into(), end_mac)?;
        macs.push((MacAddress(end_mac), MacAddress(netlink.interface(port)?.mac)));
    }
    Ok([macs[0], macs[1]])
}

fn forward() -> Result<(), IoError> {
    sysctl::write("net/ipv4/ip_forward", "1")?;
    for scope in ["all", "default", "port_a", "port_b"] {
        sysctl::write(&format!("net/ipv4/conf/{scope}/rp_filter"), "0")?;
        sysctl::write(&format!("net/ipv4/conf/{scope}/send_redirects"), "0")?;
    }
    Ok(())
}

fn set_tracking(options: Options) -> Result<(), IoError> {
    let set = |name: &str, value: u64| sysctl::write(&format!("net/netfilter/nf_conntrack_{name}"), &value.to_string());
    set("tcp_loose", options.loose.into())?;
    set("tcp_be_liberal", options.liberal.into())?;
    set("checksum", 1)?;
    for (name, lifetime) in [
        ("syn_sent", Lifetime::SynSent),
        ("syn_recv", Lifetime::SynRecv),
        ("established", Lifetime::Established),
        ("fin_wait", Lifetime::FinWait),
        ("close_wait", Lifetime::CloseWait),
        ("last_ack", Lifetime::LastAck),
        ("time_wait", Lifetime::TimeWait),
        ("close", Lifetime::Close),
        ("unacknowledged", Lifetime::Unacknowledged),
        ("max_retrans", Lifetime::Retransmission),
    ] {
        set(&format!("tcp_timeout_{name}"), lifetime.seconds())?;
    }
    Ok(())
}

/// The rules that write what the kernel knows of a packet into its type of service.
fn rules() -> String {
    let mut rules = format!(
        "ip protocol != tcp accept
        @nh,8,8 set {:#x}
        ct state invalid @nh,8,8 set {:#x} accept
        ct status ! confirmed @nh,8,8 set @nh,8,8 | {:#x}
        ct status dying @nh,8,8 set @nh,8,8 | {:#x}
        ct direction reply @nh,8,8 set @nh,8,8 | {:#x}
        ct status seen-reply @nh,8,8 set @nh,8,8 | {:#x}
        ct status assured @nh,8,8 set @nh,8,8 | {:#x}
        ip ttl set {LIFETIME_BASE}\n",
        bits::SEEN,
        bits::SEEN | bits::INVALID,
        bits::BEGAN,
        bits::ENDED,
        bits::IS_REPLY,
        bits::IS_REPLIED,
        bits::IS_ASSURED,
    );
    for lifetime in Lifetime::ALL {
        let whole_s = lifetime.seconds();
        let least_s = whole_s - Lifetime::SLACK_S;
        let mark = LIFETIME_BASE + lifetime as u8;
        writeln!(rules, "ct expiration {least_s}s-{whole_s}s ip ttl set {mark}").expect("text has room");
    }
    format!(
        "table ip differential {{\n chain forward {{\n type filter hook forward priority filter; policy accept;\n {rules} }}\n }}\n"
    )
}

fn load_rules(router: &Namespace) -> Result<(), Unavailable> {
    let mut nft = Command::new("nft");
    nft.args(["-f", "-"]).stdin(Stdio::piped()).stdout(Stdio::null()).stderr(Stdio::piped());
    let mut child = router.spawn_command(nft).map_err(|error| match error {
        IoError::System { source, .. } if source.kind() == ErrorKind::NotFound => {
            Unavailable("nft is not installed (Debian's package nftables has it)".into())
        }
        error => error.into(),
    })?;
    let written = child.stdin.take().map_or(Ok(()), |mut stdin| stdin.write_all(rules().as_bytes()));
    let output = child.wait_with_output().map_err(|error| Unavailable(format!("nft: {error}")))?;
    if !output.status.success() {
        let said = String::from_utf8_lossy(&output.stderr);
        return Err(Unavailable(format!("this kernel takes no stateful rules: nft: {}", said.trim())));
    }
    written.map_err(|error| Unavailable(format!("nft: {error}")))
}
