//! A forwarder between two ports, and the frames that hosts and routers send.

use super::*;

pub(super) const INSIDE: PortId = PortId(0);
pub(super) const OUTSIDE: PortId = PortId(1);
pub(super) const INSIDE_MAC: MacAddress = MacAddress([2, 0xaa, 0, 0, 0, 1]);
pub(super) const OUTSIDE_MAC: MacAddress = MacAddress([2, 0xaa, 0, 0, 0, 2]);
pub(super) const HOST_MAC: MacAddress = MacAddress([2, 0xbb, 0, 0, 0, 1]);
pub(super) const GATEWAY_MAC: MacAddress = MacAddress([2, 0xcc, 0, 0, 0, 1]);
pub(super) const HOST: Ipv4Addr = Ipv4Addr::new(10, 0, 0, 9);
pub(super) const INSIDE_SHARED: Ipv4Addr = Ipv4Addr::new(10, 0, 0, 1);
pub(super) const OUTSIDE_SHARED: Ipv4Addr = Ipv4Addr::new(192, 0, 2, 1);
pub(super) const GATEWAY: Ipv4Addr = Ipv4Addr::new(192, 0, 2, 254);
pub(super) const SERVER: Ipv4Addr = Ipv4Addr::new(198, 51, 100, 7);
pub(super) const HOST6: Ipv6Addr = Ipv6Addr::new(0x2001, 0xdb8, 1, 0, 0, 0, 0, 9);
pub(super) const INSIDE6: Ipv6Addr = Ipv6Addr::new(0x2001, 0xdb8, 1, 0, 0, 0, 0, 1);
pub(super) const OUTSIDE6: Ipv6Addr = Ipv6Addr::new(0x2001, 0xdb8, 2, 0, 0, 0, 0, 1);
pub(super) const GATEWAY6: Ipv6Addr = Ipv6Addr::new(0x2001, 0xdb8, 2, 0, 0, 0, 0, 0xfe);
pub(super) const SERVER6: Ipv6Addr = Ipv6Addr::new(0x2001, 0xdb8, 0xffff, 0, 0, 0, 0, 7);

pub(super) fn config() -> Config {
    let port = |mac, v4: Ipv4Addr, v6: Ipv6Addr| Port {
        mac,
        mtu_bytes: 1500,
        own: vec![],
        shared: vec![Prefix::new(v4.into(), 24).into(), Prefix::new(v6.into(), 64).into()],
        mss_clamp: None,
    };
    let everywhere =
        |address: IpAddr, gateway: IpAddr| Route { destination: Prefix::new(address, 0), gateway, port: OUTSIDE };
    Config {
        ports: vec![port(INSIDE_MAC, INSIDE_SHARED, INSIDE6), port(OUTSIDE_MAC, OUTSIDE_SHARED, OUTSIDE6)],
        routes: vec![
            everywhere(Ipv4Addr::UNSPECIFIED.into(), GATEWAY.into()),
            everywhere(Ipv6Addr::UNSPECIFIED.into(), GATEWAY6.into()),
        ],
        seed: 1,
    }
}

/// What a fed frame came to.
pub(super) struct Fed {
    pub(super) disposition: Disposition,
    pub(super) bytes: Vec<u8>,
}

pub(super) struct Bench {
    pub(super) now: Instant,
    pub(super) forwarder: Forwarder,
}

impl Bench {
    pub(super) fn standby() -> Self {
        Self { now: Instant::from_millis(1_000_000), forwarder: Forwarder::new(config()).unwrap() }
    }

    pub(super) fn active() -> Self {
        let mut bench = Self::standby();
        bench.forwarder.set_held(bench.now, GroupSet::ALL);
        bench
    }

    /// Active, with the gateways and the inside host known, and nothing left to send.
    pub(super) fn settled() -> Self {
        let mut bench = Self::active();
        bench.drain();
        bench.feed(OUTSIDE, arp_reply(GATEWAY_MAC, GATEWAY, (OUTSIDE_MAC, OUTSIDE_SHARED)));
        let flags = advertisement_flags::SOLICITED;
        let to = (OUTSIDE_MAC, OUTSIDE6);
        bench.feed(OUTSIDE, build::neighbour_advertisement(GATEWAY_MAC, GATEWAY6, to, flags));
        bench.feed(INSIDE, build::arp_request(HOST_MAC, HOST, INSIDE_SHARED));
        bench.drain();
        bench
    }

    pub(super) fn feed(&mut self, port: PortId, bytes: Vec<u8>) -> Fed {
        self.feed_with(port, bytes, |_| {})
    }

    pub(super) fn feed_with(&mut self, port: PortId, mut bytes: Vec<u8>, adjust: impl Fn(&mut Frame<'_>)) -> Fed {
        let length_bytes = bytes.len();
        let mut frame = Frame::new(&mut bytes, 0, length_bytes, port).unwrap();
        adjust(&mut frame);
        let disposition = match parse(&frame) {
            Err(reason) => Disposition::Drop(reason),
            Ok(Parsed::Arp(offset)) => self.forwarder.handle_arp(self.now, &frame, offset),
            Ok(Parsed::Ip(mut headers)) => {
                let as_received = headers.tuple;
                let mut packet = Packet { frame: &mut frame, headers: &mut headers };
                let disposition = match self.forwarder.admit(self.now, &packet) {
                    Admission::Transit => self.forwarder.forward(self.now, &mut packet),
                    Admission::Local | Admission::Own => self.forwarder.handle_local(self.now, &mut packet),
                    Admission::Refused(reason) => Disposition::Drop(reason),
                };
                if !matches!(disposition, Disposition::Transmit(_)) {
                    self.forwarder.note_not_sent(self.now, &mut packet, &as_received.into());
                }
                disposition
            }
        };
        Fed { disposition, bytes }
    }

    /// All that is to be sent now.
    pub(super) fn drain(&mut self) -> Vec<(OutFrame, Vec<u8>)> {
        self.forwarder.handle_timeout(self.now);
        let mut bytes = Vec::new();
        core::iter::from_fn(|| {
            let out = self.forwarder.poll_transmit(self.now, &mut bytes)?;
            Some((out, core::mem::take(&mut bytes)))
        })
        .collect()
    }

    /// Lets time pass from timer to timer, and returns what was sent when, in milliseconds.
    pub(super) fn run_ms(&mut self, ms: u64) -> Vec<(u64, OutFrame, Vec<u8>)> {
        let start = self.now;
        let end = start + Duration::from_millis(ms);
        let mut sent = Vec::new();
        while self.now < end {
            let at_ms = self.now.saturating_since(start).as_millis() as u64;
            sent.extend(self.drain().into_iter().map(|(out, bytes)| (at_ms, out, bytes)));
            let next = self.forwarder.poll_timeout().unwrap_or(end);
            assert!(next > self.now, "nothing is left to do now");
            self.now = next.min(end);
        }
        sent
    }
}

pub(super) fn arp_reply(mac: MacAddress, ip: Ipv4Addr, to: (MacAddress, Ipv4Addr)) -> Vec<u8> {
    build::arp_reply(mac, ip, to)
}

pub(super) fn to_server() -> Vec<u8> {
    let envelope = Envelope { source: HOST_MAC, destination: INSIDE_MAC, ..Envelope::default() };
    envelope.udp(&Tuple::v4(ip_protocol::UDP, (HOST, 4000), (SERVER, 53)), b"question")
}

pub(super) fn to_server6() -> Vec<u8> {
    let envelope = Envelope { source: HOST_MAC, destination: INSIDE_MAC, ..Envelope::default() };
    envelope.udp(&Tuple::v6(ip_protocol::UDP, (HOST6, 4000), (SERVER6, 53)), b"question")
}

pub(super) fn link(bytes: &[u8]) -> (MacAddress, MacAddress) {
    let view = EthernetView::new_checked(bytes).unwrap();
    (view.source(), view.destination())
}

pub(super) fn headers(bytes: &[u8]) -> Headers {
    let mut copy = bytes.to_vec();
    let frame = Frame::new(&mut copy, 0, bytes.len(), INSIDE).unwrap();
    match parse(&frame) {
        Ok(Parsed::Ip(headers)) => headers,
        other => panic!("not an IP packet: {other:?}"),
    }
}

pub(super) fn arp(bytes: &[u8]) -> ArpView<'_> {
    assert_eq!(EthernetView::new_checked(bytes).unwrap().ether_type(), ether_type::ARP);
    ArpView::new_checked(&bytes[14..]).unwrap()
}

pub(super) fn neighbour_message(bytes: &[u8]) -> NeighbourMessage {
    NeighbourMessage::parse(&bytes[usize::from(headers(bytes).l4_offset)..]).unwrap().unwrap()
}
