//! One interface's packet sockets: opening, binding, and detection of a lost and restored interface.

use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::time::Duration;
use std::{io, mem};

use flow::Instant;

use super::{Fanout, PortConfig, TAGGED_MARK};
use crate::packet_io::PortCounters;
use crate::poller::{Poller, Token};
use crate::system::{attach_filter, check, own, set_buffers, set_option, zeroed};
use crate::{IoError, clock};

/// The interval of checks of a port that is down.
const RECOVERY_INTERVAL: Duration = Duration::from_millis(100);

/// The sockets of a port, which receive nothing yet: those that receive, and the one that sends if none of them does.
fn open_sockets(config: &PortConfig) -> Result<(Vec<Socket>, Option<Socket>), IoError> {
    let open = |protocol: u16| Ok(Socket { descriptor: open_socket(&config.interface)?, protocol, is_busy: false });
    match &config.ether_types[..] {
        [] => Ok((vec![open(libc::ETH_P_ALL as u16)?], None)),
        ether_types => {
            let receiving = ether_types.iter().map(|ether_type| open(*ether_type)).collect::<Result<_, IoError>>()?;
            Ok((receiving, Some(open(NOTHING_RECEIVED)?)))
        }
    }
}

fn open_socket(interface: &str) -> Result<OwnedFd, IoError> {
    let kind = libc::SOCK_RAW | libc::SOCK_NONBLOCK | libc::SOCK_CLOEXEC;
    // SAFETY: socket takes no pointers. Protocol 0: nothing is received before `bind` names the interface.
    own(unsafe { libc::socket(libc::AF_PACKET, kind, 0) }).map_err(|error| {
        let operation = format!("opening a packet socket on {interface}");
        match error.raw_os_error() {
            Some(libc::EPERM | libc::EACCES) => IoError::NotPermitted { operation, capability: "CAP_NET_RAW" },
            _ => IoError::from_io(error, operation),
        }
    })
}

/// The protocol of a socket that only sends (packet(7)). The kernel reads the EtherType of what it sends from each frame.
const NOTHING_RECEIVED: u16 = 0;

/// While the first socket of a port is busy, each of the others is looked at once in so many turns.
const BUSY_PERIOD_TURNS: usize = 16;

/// Frames that are for this host, by their kind (`SKF_AD_PKTTYPE`): not `PACKET_OTHERHOST`, which also marks frames with the
/// number of a VLAN whose tag the kernel has taken off.
const FOR_THIS_HOST: [libc::sock_filter; 4] = all_but(0xffff_f004, libc::PACKET_OTHERHOST as u32);
/// Frames for any host, by their mark (`SKF_AD_MARK`): not those with the number of such a VLAN.
const FOR_ANY_HOST: [libc::sock_filter; 4] = all_but(0xffff_f014, TAGGED_MARK);

/// A filter that passes frames of which a property, which the kernel reads at an offset, has not this value.
const fn all_but(offset: u32, value: u32) -> [libc::sock_filter; 4] {
    const fn filter(code: u32, jf: u8, k: u32) -> libc::sock_filter {
        libc::sock_filter { code: code as u16, jt: 0, jf, k }
    }
    [
        filter(libc::BPF_LD | libc::BPF_W | libc::BPF_ABS, 0, offset),
        filter(libc::BPF_JMP | libc::BPF_JEQ | libc::BPF_K, 1, value),
        filter(libc::BPF_RET | libc::BPF_K, 0, 0),
        filter(libc::BPF_RET | libc::BPF_K, 0, u32::MAX),
    ]
}

/// A packet socket bound to an interface.
struct Socket {
    descriptor: OwnedFd,
    /// What it receives: an EtherType, `ETH_P_ALL` or [`NOTHING_RECEIVED`].
    protocol: u16,
    /// Frames were pending when it was looked at last.
    is_busy: bool,
}

/// The packet sockets of an interface.
pub(super) struct Port {
    /// They receive.
    sockets: Vec<Socket>,
    /// It sends, and receives nothing; `None`: the first socket sends. The kernel takes every frame for one of the EtherType to which the
    /// sending socket is bound, and by it refuses segmented frames of another.
    sender: Option<Socket>,
    /// How often the sockets were looked at.
    turns: usize,
    config: PortConfig,
    index: libc::c_int,
    /// The time of the next check whether the interface is back; `None` while it is up.
    recovery_at: Option<Instant>,
    /// Stays registered when the socket is replaced, so that the caller's poller keeps working.
    poller: Option<Poller>,
    pub(super) counters: PortCounters,
}

impl Port {
    pub(super) fn open(config: &PortConfig) -> Result<Self, IoError> {
        let interface = &config.interface;
        let poller = (config.fanout.is_some() || !config.ether_types.is_empty()).then(Poller::new).transpose()?;
        let (sockets, sender) = open_sockets(config)?;
        let mut port = Self {
            sockets,
            sender,
            turns: 0,
            config: config.clone(),
            index: 0,
            recovery_at: None,
            poller,
            counters: PortCounters::default(),
        };
        port.set_options().map_err(|error| {
            IoError::from_io(error, format!("setting the options of the packet socket on {interface}"))
        })?;
        port.index = port.interface_index()?;
        port.check_ethernet()?;
        port.attach()?;
        Ok(port)
    }

    /// Binds the socket to the interface and adds it to its group, if configured.
    fn attach(&mut self) -> Result<(), IoError> {
        let interface = &self.config.interface;
        let Some(fanout) = &self.config.fanout else {
            self.bind().map_err(|error| IoError::from_io(error, format!("binding a packet socket to {interface}")))?;
            return self.poller.iter().try_for_each(|poller| {
                self.sockets.iter().try_for_each(|socket| poller.add(&socket.descriptor, Token(0)))
            });
        };
        let receiving = || self.sockets.iter().map(|socket| socket.descriptor.as_fd());
        let joined = receiving()
            .try_for_each(Fanout::hold_back)
            .and_then(|()| self.bind())
            .and_then(|()| fanout.join(receiving(), self.index))
            .and_then(|is_member| self.let_go_if(is_member));
        let is_member = joined.map_err(|error| {
            let operation = format!("sharing {interface} among packet sockets (PACKET_FANOUT, Linux 5.17)");
            IoError::from_io(error, operation)
        })?;
        if let Some(poller) = &self.poller {
            receiving().try_for_each(|socket| poller.add(socket, Token(0)))?;
        }
        if !is_member {
            // Earlier members of the group have not found the interface yet.
            self.index = 0;
            self.recovery_at = Some(clock::now() + RECOVERY_INTERVAL);
        }
        Ok(())
    }

    /// The frames that sockets of single EtherTypes receive.
    const fn wanted(&self) -> [libc::sock_filter; 4] {
        if self.config.any_host { FOR_ANY_HOST } else { FOR_THIS_HOST }
    }

    /// Has the sockets of a member of a group receive: all frames, or those for this host.
    fn let_go_if(&self, is_member: bool) -> io::Result<bool> {
        for socket in self.sockets.iter().filter(|_| is_member) {
            let socket = socket.descriptor.as_fd();
            if self.config.ether_types.is_empty() {
                Fanout::let_go(socket)?;
            } else {
                attach_filter(socket, &mut self.wanted())?;
            }
        }
        Ok(is_member)
    }

    /// A member of a group cannot be bound again: a new socket replaces it. It is opened in the namespace of the
    /// calling thread.
    fn replace_socket(&mut self, index: libc::c_int) -> Result<(), IoError> {
        (self.sockets, self.sender) = open_sockets(&self.config)?;
        self.set_options().map_err(|error| IoError::from_io(error, "setting the options of a packet socket"))?;
        self.index = index;
        self.attach()
    }

    /// The descriptor that becomes readable when frames are pending.
    pub(super) fn descriptor(&self) -> BorrowedFd<'_> {
        self.poller.as_ref().map_or(self.socket(), Poller::as_fd)
    }

    /// The socket that sends.
    pub(super) fn socket(&self) -> BorrowedFd<'_> {
        self.sender.as_ref().unwrap_or(&self.sockets[0]).descriptor.as_fd()
    }

    pub(super) fn sockets(&self) -> usize {
        self.sockets.len()
    }

    pub(super) fn receiving_socket(&self, number: usize) -> BorrowedFd<'_> {
        self.sockets[number].descriptor.as_fd()
    }

    /// Whether a socket is to be looked at. The first, and those with frames of late, are each time. The others are in turns, so that
    /// a frame wakes a quiet port a few times at most, and each look at a busy one is not four.
    pub(super) fn is_due(&self, number: usize) -> bool {
        let quiet_period = self.sockets.len();
        let period = if self.sockets[0].is_busy { quiet_period.max(BUSY_PERIOD_TURNS) } else { quiet_period };
        number == 0 || self.sockets[number].is_busy || self.turns % period == number
    }

    /// So many frames were pending on a socket.
    pub(super) fn note_received(&mut self, number: usize, frames: usize) {
        self.sockets[number].is_busy = frames > 0;
        self.turns = self.turns.wrapping_add(usize::from(number == 0));
    }

    fn set_options(&self) -> io::Result<()> {
        for Socket { descriptor, .. } in self.sockets.iter().chain(&self.sender) {
            let socket = descriptor.as_fd();
            for option in [libc::PACKET_VNET_HDR, libc::PACKET_AUXDATA, libc::PACKET_IGNORE_OUTGOING] {
                set_option(socket, libc::SOL_PACKET, option, &1_i32)?;
            }
            set_option(socket, libc::SOL_PACKET, libc::PACKET_QDISC_BYPASS, &i32::from(self.config.bypass_queueing))?;
            set_buffers(socket, self.config.socket_buffer_bytes)?;
            if !self.config.ether_types.is_empty() {
                attach_filter(socket, &mut self.wanted())?;
            }
        }
        Ok(())
    }

    /// Queries the kernel about the interface by name, in the socket's namespace.
    fn request(&self, request: libc::c_ulong) -> io::Result<libc::ifreq> {
        // SAFETY: all-zero bytes are a valid ifreq.
        let mut answer: libc::ifreq = unsafe { zeroed() };
        let name = self.config.interface.as_bytes();
        if name.len() >= answer.ifr_name.len() {
            return Err(io::Error::from_raw_os_error(libc::ENODEV));
        }
        for (to, from) in answer.ifr_name.iter_mut().zip(name) {
            *to = *from as libc::c_char;
        }
        // SAFETY: the requests used here read and write one ifreq, which stays valid.
        check(unsafe { libc::ioctl(self.socket().as_raw_fd(), request as _, &raw mut answer) })?;
        Ok(answer)
    }

    fn interface_index(&self) -> Result<libc::c_int, IoError> {
        let answer = self
            .request(libc::SIOCGIFINDEX as _)
            .map_err(|_| IoError::NoSuchInterface { interface: self.config.interface.clone() })?;
        // SAFETY: SIOCGIFINDEX fills in this member of the union.
        Ok(unsafe { answer.ifr_ifru.ifru_ifindex })
    }

    fn check_ethernet(&self) -> Result<(), IoError> {
        let interface = &self.config.interface;
        let answer = self
            .request(libc::SIOCGIFHWADDR as _)
            .map_err(|error| IoError::from_io(error, format!("asking for the kind of {interface}")))?;
        // SAFETY: SIOCGIFHWADDR fills in this member of the union.
        let kind = unsafe { answer.ifr_ifru.ifru_hwaddr.sa_family };
        if kind == libc::ARPHRD_ETHER || kind == libc::ARPHRD_LOOPBACK {
            return Ok(());
        }
        Err(IoError::Misuse(format!("{interface} is not an Ethernet interface: choose one that is")))
    }

    fn is_up(&self) -> bool {
        // SAFETY: SIOCGIFFLAGS fills in this member of the union.
        self.request(libc::SIOCGIFFLAGS as _)
            .is_ok_and(|answer| i32::from(unsafe { answer.ifr_ifru.ifru_flags }) & libc::IFF_UP != 0)
    }

    /// Binds to the interface `index`, and makes it promiscuous where configured.
    fn bind(&self) -> io::Result<()> {
        for Socket { descriptor, protocol, .. } in self.sockets.iter().chain(&self.sender) {
            // SAFETY: all-zero bytes are a valid sockaddr_ll.
            let mut address: libc::sockaddr_ll = unsafe { zeroed() };
            address.sll_family = libc::AF_PACKET as _;
            address.sll_protocol = protocol.to_be();
            address.sll_ifindex = self.index;
            let length = mem::size_of_val(&address) as libc::socklen_t;
            // SAFETY: `address` is a sockaddr_ll of the stated length.
            check(unsafe { libc::bind(descriptor.as_raw_fd(), (&raw const address).cast(), length) })?;
        }
        if self.config.promiscuous {
            // SAFETY: all-zero bytes are a valid packet_mreq.
            let mut membership: libc::packet_mreq = unsafe { zeroed() };
            membership.mr_ifindex = self.index;
            membership.mr_type = libc::PACKET_MR_PROMISC as _;
            set_option(self.socket(), libc::SOL_PACKET, libc::PACKET_ADD_MEMBERSHIP, &membership)?;
        }
        Ok(())
    }

    /// Handles a receive error. Returns whether it was transient, so that receiving may continue.
    pub(super) fn note_receive_error(&mut self, error: &io::Error) -> bool {
        match error.raw_os_error() {
            // The kernel dropped a frame whose offload does not fit a virtio-net header.
            Some(libc::EINVAL) => {
                self.counters.received_unsupported_offload += 1;
                true
            }
            Some(libc::EINTR) => true,
            Some(libc::ENETDOWN | libc::ENXIO | libc::ENODEV) => {
                if self.recovery_at.is_none() {
                    self.counters.went_down += 1;
                }
                self.recovery_at = Some(clock::now() + RECOVERY_INTERVAL);
                false
            }
            _ => false,
        }
    }

    /// Checks whether a lost interface is back, possibly with another index.
    pub(super) fn recover(&mut self) {
        let Some(recovery_at) = self.recovery_at else { return };
        let now = clock::now();
        if now < recovery_at {
            return;
        }
        self.recovery_at = Some(now + RECOVERY_INTERVAL);
        let Ok(index) = self.interface_index() else { return };
        if index != self.index {
            // Recreated: the old index is invalid.
            let is_bound = if self.config.fanout.is_some() {
                self.replace_socket(index).is_ok()
            } else {
                self.index = index;
                self.bind().is_ok()
            };
            if !is_bound {
                self.index = 0;
            }
            if self.index == 0 {
                return;
            }
        }
        if self.is_up() {
            self.recovery_at = None;
        }
    }

    /// The number of frames that the kernel dropped since the last call because a receive buffer was full.
    pub(super) fn take_kernel_drops(&self) -> u64 {
        self.sockets.iter().map(Socket::take_kernel_drops).sum()
    }
}

impl Socket {
    fn take_kernel_drops(&self) -> u64 {
        let mut statistics = libc::tpacket_stats { tp_packets: 0, tp_drops: 0 };
        let mut length = mem::size_of_val(&statistics) as libc::socklen_t;
        // SAFETY: `statistics` is writable and as long as stated.
        let result = unsafe {
            libc::getsockopt(
                self.descriptor.as_raw_fd(),
                libc::SOL_PACKET,
                libc::PACKET_STATISTICS,
                (&raw mut statistics).cast(),
                &raw mut length,
            )
        };
        if result == 0 { u64::from(statistics.tp_drops) } else { 0 }
    }
}
