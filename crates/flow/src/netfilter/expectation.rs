//! Expected connections.

use core::net::IpAddr;

use super::{HelperName, Tuple};

/// A connection that a helper expects on behalf of another one.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Expectation {
    /// The original tuple of the master connection.
    pub master: Tuple,
    /// The tuple of the expected connection: zeros in the mask are wildcards.
    pub expected: Tuple,
    /// The significant bits of `expected`. Its protocol is `expected`'s.
    pub mask: Tuple,
    /// The zone.
    pub zone: u16,
    /// Seconds until it expires; `None` if not stated.
    pub timeout_s: Option<u32>,
    /// `NF_CT_EXPECT_*`: 1 permanent, 2 inactive, 4 userspace.
    pub flags: u32,
    /// The class within the helper (for example SIP's signalling and media).
    pub class: u32,
    /// The helper, if it differs from the master connection's.
    pub helper: Option<HelperName>,
    /// The kernel function to call when it matches (`nat-follow-master`).
    pub function: Option<HelperName>,
    /// Its future translation.
    pub nat: Option<ExpectationNat>,
}

/// The future translation of an expected connection.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct ExpectationNat {
    /// 0: its original direction has the address and the port, 1: its reply.
    pub direction: u32,
    /// The address.
    pub address: IpAddr,
    /// The protocol.
    pub protocol: u8,
    /// The port.
    pub port: u16,
}
