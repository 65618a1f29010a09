//! The only crate with system access: packet sockets, namespaces, links, clocks, signals and memory.
//!
//! A node uses its ports as one [`PacketIo`]: [`memory`] (tests, simulator, benchmark), [`pcap`] (captures),
//! [`af_packet`] or [`af_xdp`] (real interfaces), or [`tun`] (the kernel's routing).
//!
//! The other modules provide Linux interfaces for daemons and their tests: [`namespace`] and [`netlink`] to build
//! networks, [`udp`] for the links between nodes, [`tcp`] for checks, [`poller`] and [`signal`] to wait, [`ctnetlink`] for the kernel's
//! connection tracking, [`service_manager`] for supervision, [`clock`], [`random`], [`usage`], [`affinity`] and
//! [`huge_pages`].
//!
//! The crate knows no packets beyond a frame's boundaries and the work that its sender left to hardware. It parses no
//! header (except [`tun`], which answers neighbour requests on an emulated link) and decides nothing.
//!
//! All `unsafe` code of the workspace is here, except for prefetching and processor instructions in a few files that
//! `xtask` lists; each block states why it is sound.
//!
//! ```
//! use flow::{Disposition, PortId};
//! use packet_io::{PacketIo, memory::MemoryIo};
//!
//! let mut io = MemoryIo::new(2);
//! io.inject(PortId(0), b"a frame").unwrap();
//! io.poll(&mut |batch| {
//!     for frame in batch {
//!         frame.disposition = Disposition::Transmit(PortId(1));
//!     }
//! })
//! .unwrap();
//! assert_eq!(io.take_sent(PortId(1)).unwrap().bytes(), b"a frame");
//! ```

pub mod af_packet;
pub mod af_xdp;
pub mod affinity;
pub mod capabilities;
pub mod clock;
pub mod ctnetlink;
pub mod error;
mod fixed;
pub mod huge_pages;
pub mod interface;
pub mod limits;
pub mod memory;
pub mod namespace;
pub mod netlink;
pub mod packet_io;
pub mod pcap;
pub mod ping;
pub mod poller;
pub mod processors;
pub mod random;
pub mod service_manager;
pub mod signal;
pub mod sysctl;
mod system;
pub mod tcp;
pub mod tun;
pub mod udp;
pub mod usage;
mod virtio;
pub mod xdp_features;

pub use error::{IoError, TransmitFailure};
pub use packet_io::{PacketIo, PortCounters, TransmitFailureCounters};
