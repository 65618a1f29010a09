//! Established connections forwarded in the kernel.
//!
//! A program at the ingress of an interface (tcx, or clsact on kernels before 6.6), or in its driver (XDP), forwards the packets of
//! installed connections: it translates addresses and ports, checks TCP windows as [`flow::conntrack`] does, and redirects the packet
//! to another interface. All other packets go on to user space as they came in. `docs/fast-path.md` describes what goes
//! where.
//!
//! [`FastPath`] loads and attaches the program and owns its maps:
//!
//! ```text
//!  map           entries                             an entry holds
//!  flows         two a connection (hash)             the translation of one direction, with deltas of checksums
//!  connections   one a connection (array, mapped)    64 bytes: TCP windows, time of the last packet, packets, bytes
//!  next_hops     by index (array)                    interface, link addresses, MTU
//!  control       one (array, mapped)                 generation, heartbeat, switch
//!  counters      one an outcome (per processor)      packets
//!  ports         one an interface with XDP (hash)    its link address
//! ```
//!
//! Several threads use the maps as [shares](Share), each with indices of its own ([`FastPath::divide`]).
//!
//! A [`Plan`] describes a connection to install; [`Share::read`] returns its [`Activity`] without a system call. The
//! program forwards only while its loader gives a heartbeat ([`Share::beat`]).
//!
//! ```no_run
//! use std::time::Duration;
//! use fast_path::{Config, FastPath, NextHop};
//!
//! # fn main() -> Result<(), fast_path::Error> {
//! let mut fast_path = FastPath::load(&Config::default())?;
//! fast_path.attach("eth0")?;
//! let egress = NextHop::new(fast_path::interface_index("eth1")?, [2, 0, 0, 0, 0, 1], [2, 0, 0, 0, 0, 2], 1500);
//! fast_path.set_next_hop(0, Some(&egress))?;
//! fast_path.set_enabled(true);
//! // Repeat before `Config::heartbeat_age_max` has passed.
//! fast_path.beat(fast_path::now());
//! # let plans: Vec<fast_path::Plan> = vec![];
//! let installed = fast_path.install_many(&plans)?;
//! for (connection, activity) in fast_path.activities() {
//!     println!("{connection:?}: {:?} packets", activity.packets);
//! }
//! # Ok(())
//! # }
//! ```
//!
//! The crate decides nothing: which connections are installed, when they expire and what becomes of their other packets is
//! its caller's.

mod error;
mod fast_path;
mod mapping;
mod outcome;
mod pins;
mod programs;
mod shapes;
mod share;
mod system;
mod test_run;

pub use error::Error;
pub use fast_path::{Config, FastPath};
pub use flow::fast_path::{Activity, DirectionPlan, Hook, NextHop, Plan, Side, Windows};
pub use outcome::{Counters, Outcome};
pub use share::{ConnectionIndex, Share};
pub use system::{interface_index, now};
pub use test_run::{TestContext, TestRun};
