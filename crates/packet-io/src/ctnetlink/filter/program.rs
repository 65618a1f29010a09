//! The BPF program of a filter.
//!
//! A message is a netlink header, netfilter's header and attributes, some of which contain attributes. The kernel's BPF
//! extensions for netlink find an attribute by its kind. Values that several conditions use are looked up once and kept
//! in the program's memory.

use std::net::IpAddr;

use super::super::numbers::{
    CONNECTIONS, DELETE, HEADERS_BYTES, PORT_OFFSET, TYPE_OFFSET, connection, ip, protocol, protocol_info, tuple,
};
use super::assembler::{Assembler, INSTRUCTIONS_MAX, Label};
use super::{EventFilter, Ignore, TcpStates};
use flow::Prefix;
use flow::netfilter::TcpState;

/// An attribute's value begins after its length and type.
const VALUE_OFFSET: usize = 4;
/// Offsets of the bytes of the message's type: netlink writes numbers in the machine's order.
const SUBSYSTEM_OFFSET: usize = TYPE_OFFSET + cfg!(target_endian = "little") as usize;
const KIND_OFFSET: usize = TYPE_OFFSET + cfg!(target_endian = "big") as usize;
/// No state of TCP.
const NO_STATE: u32 = 0xff;

/// Cells of the program's memory. All are set before the filter's own part begins.
mod cell {
    /// Offset of the original tuple.
    pub(super) const TUPLE: u32 = 0;
    pub(super) const PROTOCOL: u32 = 1;
    pub(super) const TCP_STATE: u32 = 2;
    /// Offset of the mark's attribute; 0 where absent.
    pub(super) const MARK: u32 = 3;
    pub(super) const ZONE: u32 = 4;
    /// Offsets of the attributes of the two end points, by family: the source of the original and that of the reply tuple. Of
    /// one family, both are 0.
    pub(super) const V4: [u32; 2] = [5, 6];
    pub(super) const V6: [u32; 2] = [7, 8];
    /// Offset of a tuple's addresses.
    pub(super) const ADDRESSES: u32 = 9;
}

/// A compiled filter.
#[derive(Clone, Debug)]
pub(crate) struct Program {
    instructions: Vec<libc::sock_filter>,
    left_out: usize,
}

impl Program {
    /// The filter's program; events that the programs in `ignored_programs` caused are ignored, too.
    pub(crate) fn new(filter: &EventFilter, ignored_programs: &[u32]) -> Self {
        let (mut assembler, mut left_out) = (Assembler::default(), 0);
        let pass = assembler.label();
        ignore_programs(&mut assembler, filter.programs.iter().chain(ignored_programs));
        let ignores: Vec<_> = filter.ignore.iter().filter(|ignore| ignore.has_conditions()).collect();
        if !ignores.is_empty() || filter.tcp_states.is_some() || filter.protocols.is_some() {
            assembler.load_byte(SUBSYSTEM_OFFSET);
            assembler.jump_unless(u32::from(CONNECTIONS), pass);
            look_up(&mut assembler, pass);
            admit_protocols(&mut assembler, filter.protocols.as_deref());
            admit_states(&mut assembler, filter.tcp_states);
            for ignore in ignores {
                let before = assembler.clone();
                ignore_connections(&mut assembler, ignore);
                // One more is reserved to pass all other events.
                if assembler.len() >= INSTRUCTIONS_MAX {
                    (assembler, left_out) = (before, left_out + 1);
                }
            }
        }
        assembler.place(pass);
        assembler.pass();
        Self { instructions: assembler.finish(), left_out }
    }

    pub(crate) fn instructions_mut(&mut self) -> &mut [libc::sock_filter] {
        &mut self.instructions
    }

    /// The number of rules that did not fit.
    pub(crate) const fn left_out(&self) -> usize {
        self.left_out
    }
}

fn ignore_programs<'a>(assembler: &mut Assembler, ports: impl Iterator<Item = &'a u32>) {
    for (number, port) in ports.take(PROGRAMS_MAX).enumerate() {
        if number == 0 {
            assembler.load_word(PORT_OFFSET);
        }
        let next = assembler.label();
        // BPF reads words with the highest byte first; the header has the machine's order.
        assembler.jump_unless(u32::from_be_bytes(port.to_ne_bytes()), next);
        assembler.ignore();
        assembler.place(next);
    }
}

/// The maximum number of ignored programs: events of further ones pass.
const PROGRAMS_MAX: usize = 64;

/// Looks up all values that a filter may use. A message without a tuple passes.
fn look_up(assembler: &mut Assembler, pass: Label) {
    assembler.load(HEADERS_BYTES as u32);
    assembler.find_attribute(connection::TUPLE_ORIGINAL);
    assembler.jump_if(0, pass);
    assembler.store(cell::TUPLE);
    assembler.find_nested_attribute(tuple::PROTOCOL);
    assembler.jump_if(0, pass);
    assembler.find_nested_attribute(protocol::NUMBER);
    assembler.jump_if(0, pass);
    assembler.keep_as_index();
    assembler.load_byte_behind(VALUE_OFFSET);
    assembler.store(cell::PROTOCOL);
    look_up_addresses(assembler, pass);
    look_up_state(assembler);
    look_up_zone(assembler);
    assembler.load(HEADERS_BYTES as u32);
    assembler.find_attribute(connection::MARK);
    assembler.store(cell::MARK);
}

fn look_up_addresses(assembler: &mut Assembler, pass: Label) {
    for (end, kind) in [connection::TUPLE_ORIGINAL, connection::TUPLE_REPLY].into_iter().enumerate() {
        assembler.load(HEADERS_BYTES as u32);
        assembler.find_attribute(kind);
        assembler.jump_if(0, pass);
        assembler.find_nested_attribute(tuple::IP);
        assembler.jump_if(0, pass);
        assembler.store(cell::ADDRESSES);
        for (kind, cell) in [(ip::V4_SOURCE, cell::V4[end]), (ip::V6_SOURCE, cell::V6[end])] {
            assembler.load_cell(cell::ADDRESSES);
            assembler.find_nested_attribute(kind);
            assembler.store(cell);
        }
    }
}

/// Newer kernels report the last state at the end of a connection; the filter ignores it.
fn look_up_state(assembler: &mut Assembler) {
    let (none, done) = (assembler.label(), assembler.label());
    assembler.load_byte(KIND_OFFSET);
    assembler.jump_if(u32::from(DELETE), none);
    assembler.load(HEADERS_BYTES as u32);
    assembler.find_attribute(connection::PROTOCOL_INFO);
    assembler.jump_if(0, none);
    assembler.find_nested_attribute(protocol_info::TCP);
    assembler.jump_if(0, none);
    assembler.find_nested_attribute(protocol_info::TCP_STATE);
    assembler.jump_if(0, none);
    assembler.keep_as_index();
    assembler.load_byte_behind(VALUE_OFFSET);
    assembler.jump(done);
    assembler.place(none);
    assembler.load(NO_STATE);
    assembler.place(done);
    assembler.store(cell::TCP_STATE);
}

/// A zone of both directions has an attribute, a zone of one direction is in its tuple, and zone 0 is absent.
fn look_up_zone(assembler: &mut Assembler) {
    let (found, done) = (assembler.label(), assembler.label());
    assembler.load(HEADERS_BYTES as u32);
    assembler.find_attribute(connection::ZONE);
    assembler.jump_unless(0, found);
    assembler.load_cell(cell::TUPLE);
    assembler.find_nested_attribute(tuple::ZONE);
    assembler.jump_unless(0, found);
    assembler.load(HEADERS_BYTES as u32);
    assembler.find_attribute(connection::TUPLE_REPLY);
    assembler.jump_if(0, done);
    assembler.find_nested_attribute(tuple::ZONE);
    assembler.jump_if(0, done);
    assembler.place(found);
    assembler.keep_as_index();
    assembler.load_half_behind(VALUE_OFFSET);
    // An absent zone is 0, and so is the default zone.
    assembler.place(done);
    assembler.store(cell::ZONE);
}

fn admit_protocols(assembler: &mut Assembler, admitted: Option<&[u8]>) {
    let Some(admitted) = admitted else { return };
    let on = assembler.label();
    assembler.load_cell(cell::PROTOCOL);
    for protocol in (0..=u8::MAX).filter(|protocol| admitted.contains(protocol)) {
        assembler.jump_if(u32::from(protocol), on);
    }
    assembler.ignore();
    assembler.place(on);
}

fn admit_states(assembler: &mut Assembler, admitted: Option<TcpStates>) {
    let Some(admitted) = admitted else { return };
    assembler.load_cell(cell::TCP_STATE);
    for state in TcpState::ALL.into_iter().filter(|state| !admitted.contains(*state)) {
        let next = assembler.label();
        assembler.jump_unless(state as u32, next);
        assembler.ignore();
        assembler.place(next);
    }
}

/// Ignores the message if it matches all conditions.
fn ignore_connections(assembler: &mut Assembler, ignore: &Ignore) {
    let next = assembler.label();
    if let Some(protocol) = ignore.protocol {
        assembler.load_cell(cell::PROTOCOL);
        assembler.jump_unless(u32::from(protocol), next);
    }
    if let Some(zone) = ignore.zone {
        assembler.load_cell(cell::ZONE);
        assembler.jump_unless(u32::from(zone), next);
    }
    if let Some((value, mask)) = ignore.mark {
        assembler.load_cell(cell::MARK);
        assembler.jump_if(0, next);
        assembler.keep_as_index();
        assembler.load_word_behind(VALUE_OFFSET);
        assembler.mask(mask);
        assembler.jump_unless(value & mask, next);
    }
    if let Some(states) = ignore.tcp_states {
        let on = assembler.label();
        assembler.load_cell(cell::TCP_STATE);
        for state in TcpState::ALL.into_iter().filter(|state| states.contains(*state)) {
            assembler.jump_if(state as u32, on);
        }
        assembler.jump(next);
        assembler.place(on);
    }
    if !ignore.addresses.is_empty() {
        let on = assembler.label();
        for prefix in &ignore.addresses {
            find_prefix(assembler, prefix, on);
        }
        assembler.jump(next);
        assembler.place(on);
    }
    assembler.ignore();
    assembler.place(next);
}

/// Jumps if an end point lies in the network.
fn find_prefix(assembler: &mut Assembler, prefix: &Prefix, found: Label) {
    let cells = if prefix.address.is_ipv4() { cell::V4 } else { cell::V6 };
    let (network, mask) = (words(prefix.address), mask(prefix));
    for cell in cells {
        let next = assembler.label();
        assembler.load_cell(cell);
        assembler.jump_if(0, next);
        assembler.keep_as_index();
        for (at, (word, mask)) in network.iter().zip(&mask).enumerate().filter(|(_, (_, mask))| **mask != 0) {
            assembler.load_word_behind(VALUE_OFFSET + 4 * at);
            assembler.mask(*mask);
            assembler.jump_unless(word & mask, next);
        }
        assembler.jump(found);
        assembler.place(next);
    }
}

/// An address as words, the highest first.
fn words(address: IpAddr) -> Vec<u32> {
    match address {
        IpAddr::V4(address) => vec![u32::from(address)],
        IpAddr::V6(address) => address
            .octets()
            .chunks_exact(4)
            .map(|word| u32::from_be_bytes([word[0], word[1], word[2], word[3]]))
            .collect(),
    }
}

/// The mask of a prefix as words, the highest first.
fn mask(prefix: &Prefix) -> Vec<u32> {
    let word = |at: usize| {
        let bits = usize::from(prefix.length_bits).saturating_sub(32 * at).min(32) as u32;
        u32::MAX.checked_shl(32 - bits).unwrap_or_default()
    };
    (0..words(prefix.address).len()).map(word).collect()
}
