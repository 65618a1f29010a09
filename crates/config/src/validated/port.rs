//! `[[port]]`: where packets come in and leave.

use ::cluster::GroupId;
use ::cluster::forwarding::{MssClamp, ReversePath, RouterAdvertisements};
use flow::PortId;

use crate::value::Prefix;

/// How packets are taken from an interface and given to it.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum Backend {
    /// A packet socket with virtio-net headers (packet(7)).
    #[default]
    AfPacket,
    /// `AF_XDP` sockets, one for each queue: past the kernel.
    AfXdp,
    /// A tunnel device that the host's kernel routes into and out of.
    Tun,
}

impl Backend {
    /// All backends, with their names.
    pub const ALL: [(&'static str, Self); 3] =
        [("af_packet", Self::AfPacket), ("af_xdp", Self::AfXdp), ("tun", Self::Tun)];

    /// The backend's name.
    #[must_use]
    pub fn name(self) -> &'static str {
        Self::ALL[self as usize].0
    }
}

/// A port.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Port {
    /// Its index in [`Config::ports`](super::Config::ports).
    pub id: PortId,
    /// What other sections and metrics call it.
    pub name: String,
    /// The system's interface.
    pub interface: String,
    /// How packets are taken from it and given to it.
    pub backend: Backend,
    /// Shared addresses, announced by whichever node holds their group.
    pub addresses: Vec<SharedAddress>,
    /// To what the maximum segment size of TCP connections through the port is lowered, if at all.
    pub mss_clamp: Option<MssClamp>,
    /// Which sources are believed of packets that come in by it.
    pub reverse_path: ReversePath,
    /// How its shared link-local addresses are advertised as routers, if they are.
    pub router_advertisements: Option<RouterAdvertisements>,
    /// The fast path hands packets to the other end of the port's virtual cable, which is in another network namespace.
    pub redirect_peer: bool,
}

/// A shared address.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct SharedAddress {
    /// The address, with the length of its network.
    pub prefix: Prefix,
    /// Its group.
    pub group: GroupId,
}
