//! Connections that another one has announced.

use core::net::IpAddr;

use super::{HelperName, Tuple};

/// A connection that a helper expects on behalf of another one.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Expectation {
    /// The original tuple of the connection that announced it.
    pub master: Tuple,
    /// Packets of the expected connection: where the mask has zeros, anything.
    pub expected: Tuple,
    /// Which bits of `expected` count. Its protocol is `expected`'s.
    pub mask: Tuple,
    /// The zone.
    pub zone: u16,
    /// Seconds until it is given up; `None` was not said.
    pub timeout_s: Option<u32>,
    /// `NF_CT_EXPECT_*`: 1 permanent, 2 inactive, 4 userspace.
    pub flags: u32,
    /// The class within the helper (SIP's signalling and media, say).
    pub class: u32,
    /// The helper, where it is not the master's.
    pub helper: Option<HelperName>,
    /// What the kernel is to call when it comes (`nat-follow-master`).
    pub function: Option<HelperName>,
    /// How it will be translated.
    pub nat: Option<ExpectationNat>,
}

/// How an expected connection will be translated.
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
