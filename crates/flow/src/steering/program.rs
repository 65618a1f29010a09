//! The steering function as a classic BPF program, to be attached to a group of packet sockets (`PACKET_FANOUT_CBPF`,
//! packet(7)): its result is the number of the socket in the group.
//!
//! Bytes are loaded relative to the network header (`SKF_NET_OFF`), wherever the link header and its tags end. The outermost
//! VLAN tag is out of the frame when the program runs; one more may be in it. Jumps go forward only, by the rules of BPF.
//! A load beyond the packet ends the program with 0.

use alloc::vec::Vec;

use super::{MIX_FACTORS, MIX_SHIFTS, PORT_FACTOR, Steering};
use crate::wire::ethernet::ether_type;
use crate::wire::{icmp, icmpv6, ip_protocol};

/// One instruction of classic BPF, as the kernel's `struct sock_filter` has it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Instruction {
    /// The operation.
    pub code: u16,
    /// Instructions to skip when a condition holds.
    pub jump_true: u8,
    /// Instructions to skip when it does not.
    pub jump_false: u8,
    /// The operand.
    pub operand: u32,
}

pub(super) mod code {
    //! Operation codes (`linux/bpf_common.h`).
    pub(in super::super) const LOAD_WORD: u16 = 0x20;
    pub(in super::super) const LOAD_HALF: u16 = 0x28;
    pub(in super::super) const LOAD_WORD_INDEXED: u16 = 0x40;
    pub(in super::super) const LOAD_HALF_INDEXED: u16 = 0x48;
    pub(in super::super) const LOAD_BYTE_INDEXED: u16 = 0x50;
    pub(in super::super) const LOAD_MEMORY: u16 = 0x60;
    pub(in super::super) const LOAD_INDEX: u16 = 0x01;
    pub(in super::super) const LOAD_INDEX_MEMORY: u16 = 0x61;
    pub(in super::super) const STORE: u16 = 0x02;
    pub(in super::super) const STORE_INDEX: u16 = 0x03;
    pub(in super::super) const ADD: u16 = 0x04;
    pub(in super::super) const ADD_INDEX: u16 = 0x0c;
    pub(in super::super) const MULTIPLY: u16 = 0x24;
    pub(in super::super) const AND: u16 = 0x54;
    pub(in super::super) const SHIFT_LEFT: u16 = 0x64;
    pub(in super::super) const SHIFT_RIGHT: u16 = 0x74;
    pub(in super::super) const MODULO: u16 = 0x94;
    pub(in super::super) const XOR_INDEX: u16 = 0xac;
    pub(in super::super) const JUMP: u16 = 0x05;
    pub(in super::super) const JUMP_EQUAL: u16 = 0x15;
    pub(in super::super) const JUMP_GREATER: u16 = 0x25;
    pub(in super::super) const JUMP_SET: u16 = 0x45;
    pub(in super::super) const RETURN: u16 = 0x06;
    pub(in super::super) const RETURN_ACCUMULATOR: u16 = 0x16;
    pub(in super::super) const TO_INDEX: u16 = 0x07;
    pub(in super::super) const FROM_INDEX: u16 = 0x87;
}

/// Loads from here on are relative to the network header (`SKF_NET_OFF`).
pub(super) const NETWORK: u32 = 0xfff0_0000;
/// The frame's ether type, behind tags that were taken out (`SKF_AD_OFF + SKF_AD_PROTOCOL`).
pub(super) const ETHER_TYPE: u32 = 0xffff_f000;

/// Where the index of the network header is kept.
const HEADER: u32 = 0;
/// Where the folded addresses are kept.
const ADDRESSES: u32 = 1;
/// Where the folded ports are kept.
const PORTS: u32 = 2;

/// Fragment offset or more fragments (RFC 791).
const FRAGMENT_BITS: u32 = 0x3fff;
/// An ICMP header, behind which the quoted packet lies.
const QUOTE_OFFSET_BYTES: u32 = 8;
const IPV6_HEADER_BYTES: u32 = 40;

/// A place that jumps lead to.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Label {
    Ipv4,
    Ipv6,
    Tagged,
    Icmp,
    Icmpv6,
    QuotedIpv4,
    QuotedIpv6,
    QuotedIcmp,
    QuotedIcmpv6,
    Ports,
    Identifier,
    Finish,
    Lead,
}

/// The program for `steering`.
///
/// # Panics
/// Never: the tests verify that the jumps are within reach.
#[must_use]
pub fn program(steering: Steering) -> Vec<Instruction> {
    let mut text = Text::default();
    text.find_network_header();
    text.ipv4();
    text.ipv6();
    text.icmp();
    text.icmpv6();
    text.transport();
    text.finish(steering.workers());
    text.resolve()
}

/// Instructions with unresolved jumps.
#[derive(Default)]
struct Text {
    instructions: Vec<Instruction>,
    jumps: Vec<(usize, Label)>,
    labels: Vec<(Label, usize)>,
}

impl Text {
    fn put(&mut self, code: u16, operand: u32) {
        self.instructions.push(Instruction { code, jump_true: 0, jump_false: 0, operand });
    }

    fn label(&mut self, label: Label) {
        self.labels.push((label, self.instructions.len()));
    }

    /// To `label` if the condition holds, else on.
    fn jump_if(&mut self, code: u16, operand: u32, label: Label) {
        self.jumps.push((self.instructions.len(), label));
        self.put(code, operand);
    }

    fn jump_if_one_of(&mut self, values: &[u8], label: Label) {
        values.iter().for_each(|value| self.jump_if(code::JUMP_EQUAL, (*value).into(), label));
    }

    fn jump(&mut self, label: Label) {
        self.jump_if(code::JUMP, 0, label);
    }

    fn find_network_header(&mut self) {
        self.put(code::LOAD_INDEX, 0);
        self.put(code::STORE_INDEX, PORTS);
        self.put(code::STORE_INDEX, HEADER);
        self.put(code::LOAD_WORD, ETHER_TYPE);
        self.jump_if(code::JUMP_EQUAL, ether_type::IPV4.into(), Label::Ipv4);
        self.jump_if(code::JUMP_EQUAL, ether_type::IPV6.into(), Label::Ipv6);
        self.jump_if(code::JUMP_EQUAL, ether_type::VLAN.into(), Label::Tagged);
        self.jump_if(code::JUMP_EQUAL, ether_type::SERVICE_VLAN.into(), Label::Tagged);
        self.jump(Label::Lead);
        // A second tag: its control information, then the ether type, then the packet.
        self.label(Label::Tagged);
        self.put(code::LOAD_INDEX, 4);
        self.put(code::STORE_INDEX, HEADER);
        self.put(code::LOAD_HALF, NETWORK.wrapping_add(2));
        self.jump_if(code::JUMP_EQUAL, ether_type::IPV4.into(), Label::Ipv4);
        self.jump_if(code::JUMP_EQUAL, ether_type::IPV6.into(), Label::Ipv6);
        self.jump(Label::Lead);
    }

    /// Folds the words from `first` up to `end` of the header at the index into [`ADDRESSES`].
    fn fold_addresses(&mut self, first: u32, end: u32) {
        self.put(code::STORE_INDEX, HEADER);
        self.put(code::LOAD_WORD_INDEXED, NETWORK.wrapping_add(first));
        self.put(code::STORE, ADDRESSES);
        for at in (first + 4..end).step_by(4) {
            self.put(code::LOAD_WORD_INDEXED, NETWORK.wrapping_add(at));
            self.put(code::LOAD_INDEX_MEMORY, ADDRESSES);
            self.put(code::XOR_INDEX, 0);
            self.put(code::STORE, ADDRESSES);
            self.put(code::LOAD_INDEX_MEMORY, HEADER);
        }
    }

    /// Loads the protocol into the accumulator, and the offset of the transport header into the index.
    fn behind_ipv4(&mut self) {
        const PROTOCOL: u32 = 3;
        self.put(code::LOAD_BYTE_INDEXED, NETWORK.wrapping_add(9));
        self.put(code::STORE, PROTOCOL);
        self.put(code::LOAD_BYTE_INDEXED, NETWORK);
        self.put(code::AND, 0x0f);
        self.put(code::SHIFT_LEFT, 2);
        self.put(code::ADD_INDEX, 0);
        self.put(code::TO_INDEX, 0);
        self.put(code::LOAD_MEMORY, PROTOCOL);
    }

    /// As [`Text::behind_ipv4`]. Extension headers are not followed: their packets are steered by addresses alone.
    fn behind_ipv6(&mut self) {
        const NEXT_HEADER: u32 = 3;
        self.put(code::LOAD_BYTE_INDEXED, NETWORK.wrapping_add(6));
        self.put(code::STORE, NEXT_HEADER);
        self.skip(IPV6_HEADER_BYTES);
        self.put(code::LOAD_MEMORY, NEXT_HEADER);
    }

    fn skip(&mut self, bytes: u32) {
        self.put(code::FROM_INDEX, 0);
        self.put(code::ADD, bytes);
        self.put(code::TO_INDEX, 0);
    }

    fn ipv4(&mut self) {
        self.label(Label::Ipv4);
        self.put(code::LOAD_INDEX_MEMORY, HEADER);
        self.fold_addresses(12, 20);
        self.put(code::LOAD_HALF_INDEXED, NETWORK.wrapping_add(6));
        self.jump_if(code::JUMP_SET, FRAGMENT_BITS, Label::Finish);
        self.behind_ipv4();
        self.jump_if_one_of(&[ip_protocol::TCP, ip_protocol::UDP, ip_protocol::SCTP], Label::Ports);
        self.jump_if_one_of(&[ip_protocol::ICMP], Label::Icmp);
        self.jump(Label::Finish);
    }

    fn ipv6(&mut self) {
        self.label(Label::Ipv6);
        self.put(code::LOAD_INDEX_MEMORY, HEADER);
        self.fold_addresses(8, 40);
        self.behind_ipv6();
        self.jump_if_one_of(&[ip_protocol::TCP, ip_protocol::UDP, ip_protocol::SCTP], Label::Ports);
        self.jump_if_one_of(&[ip_protocol::ICMPV6], Label::Icmpv6);
        self.jump(Label::Finish);
    }

    fn icmp(&mut self) {
        use icmp::kind;
        const QUERIES: [u8; 4] = [kind::ECHO_REQUEST, kind::ECHO_REPLY, kind::TIMESTAMP, kind::TIMESTAMP_REPLY];
        const ERRORS: [u8; 4] =
            [kind::DESTINATION_UNREACHABLE, kind::SOURCE_QUENCH, kind::TIME_EXCEEDED, kind::PARAMETER_PROBLEM];
        self.label(Label::Icmp);
        self.put(code::LOAD_BYTE_INDEXED, NETWORK);
        self.jump_if_one_of(&QUERIES, Label::Identifier);
        self.jump_if_one_of(&ERRORS, Label::QuotedIpv4);
        self.jump(Label::Finish);
        // Routers may quote a first fragment: its ports are there.
        self.label(Label::QuotedIpv4);
        self.skip(QUOTE_OFFSET_BYTES);
        self.fold_addresses(12, 20);
        self.behind_ipv4();
        self.jump_if_one_of(&[ip_protocol::TCP, ip_protocol::UDP, ip_protocol::SCTP], Label::Ports);
        self.jump_if_one_of(&[ip_protocol::ICMP], Label::QuotedIcmp);
        self.jump(Label::Finish);
        self.label(Label::QuotedIcmp);
        self.put(code::LOAD_BYTE_INDEXED, NETWORK);
        self.jump_if_one_of(&QUERIES, Label::Identifier);
        self.jump(Label::Finish);
    }

    fn icmpv6(&mut self) {
        use icmpv6::kind;
        const QUERIES: [u8; 2] = [kind::ECHO_REQUEST, kind::ECHO_REPLY];
        const ERRORS: [u8; 4] =
            [kind::DESTINATION_UNREACHABLE, kind::PACKET_TOO_BIG, kind::TIME_EXCEEDED, kind::PARAMETER_PROBLEM];
        self.label(Label::Icmpv6);
        self.put(code::LOAD_BYTE_INDEXED, NETWORK);
        self.jump_if_one_of(&QUERIES, Label::Identifier);
        self.jump_if_one_of(&ERRORS, Label::QuotedIpv6);
        // Those of super::is_link_local_control.
        self.jump_if_one_of(&[143], Label::Lead);
        self.jump_if(code::JUMP_GREATER, 137, Label::Finish);
        self.jump_if(code::JUMP_GREATER, 129, Label::Lead);
        self.jump(Label::Finish);
        self.label(Label::QuotedIpv6);
        self.skip(QUOTE_OFFSET_BYTES);
        self.fold_addresses(8, 40);
        self.behind_ipv6();
        self.jump_if_one_of(&[ip_protocol::TCP, ip_protocol::UDP, ip_protocol::SCTP], Label::Ports);
        self.jump_if_one_of(&[ip_protocol::ICMPV6], Label::QuotedIcmpv6);
        self.jump(Label::Finish);
        self.label(Label::QuotedIcmpv6);
        self.put(code::LOAD_BYTE_INDEXED, NETWORK);
        self.jump_if_one_of(&QUERIES, Label::Identifier);
        self.jump(Label::Finish);
    }

    fn transport(&mut self) {
        self.label(Label::Ports);
        self.put(code::LOAD_HALF_INDEXED, NETWORK);
        self.put(code::STORE, PORTS);
        self.put(code::LOAD_HALF_INDEXED, NETWORK.wrapping_add(2));
        self.put(code::LOAD_INDEX_MEMORY, PORTS);
        self.put(code::XOR_INDEX, 0);
        self.put(code::STORE, PORTS);
        self.jump(Label::Finish);
        self.label(Label::Identifier);
        self.put(code::LOAD_HALF_INDEXED, NETWORK.wrapping_add(icmp::ICMP_IDENTIFIER_OFFSET as u32));
        self.put(code::STORE, PORTS);
    }

    fn finish(&mut self, workers: u8) {
        self.label(Label::Finish);
        self.put(code::LOAD_MEMORY, PORTS);
        self.put(code::MULTIPLY, PORT_FACTOR);
        self.put(code::LOAD_INDEX_MEMORY, ADDRESSES);
        self.put(code::ADD_INDEX, 0);
        for (shift, factor) in MIX_SHIFTS.into_iter().zip(MIX_FACTORS.map(Some).into_iter().chain([None])) {
            self.put(code::TO_INDEX, 0);
            self.put(code::SHIFT_RIGHT, shift);
            self.put(code::XOR_INDEX, 0);
            factor.into_iter().for_each(|factor| self.put(code::MULTIPLY, factor));
        }
        self.put(code::MODULO, workers.into());
        self.put(code::RETURN_ACCUMULATOR, 0);
        self.label(Label::Lead);
        self.put(code::RETURN, 0);
    }

    fn resolve(self) -> Vec<Instruction> {
        let Self { mut instructions, jumps, labels } = self;
        for (at, label) in jumps {
            let found = labels.iter().find(|(known, _)| *known == label).expect("every label is set");
            let distance = found.1.checked_sub(at + 1).expect("jumps go forward");
            let instruction = &mut instructions[at];
            if instruction.code == code::JUMP {
                instruction.operand = distance as u32;
            } else {
                instruction.jump_true = u8::try_from(distance).expect("conditional jumps are short");
            }
        }
        instructions
    }
}
