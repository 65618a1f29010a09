//! Expectations, as attributes.

use std::net::IpAddr;

use flow::netfilter::{Discriminator, Expectation, ExpectationNat, Tuple};

use super::attributes::{Writer, for_each_attribute, u16_of, u32_of};
use super::entry::decode_name;
use super::numbers::expectation as numbers;
use super::tuple;

/// An expectation from the attributes of a message; `None` where they are invalid.
pub(super) fn decode(attributes: &[u8]) -> Option<Expectation> {
    let (mut master, mut expected, mut mask) = (None, None, None);
    let mut expectation = Expectation {
        master: super::NO_TUPLE,
        expected: super::NO_TUPLE,
        mask: super::NO_TUPLE,
        zone: 0,
        timeout_s: None,
        flags: 0,
        class: 0,
        helper: None,
        function: None,
        nat: None,
    };
    for_each_attribute(attributes, |kind, value| {
        match kind {
            numbers::MASTER => master = Some(tuple::decode(value)?.0),
            numbers::TUPLE => expected = Some(tuple::decode(value)?.0),
            numbers::MASK => mask = Some(tuple::decode(value)?.0),
            numbers::TIMEOUT => expectation.timeout_s = Some(u32_of(value)?),
            numbers::HELPER => expectation.helper = decode_name(value),
            numbers::ZONE => expectation.zone = u16_of(value)?,
            numbers::FLAGS => expectation.flags = u32_of(value)?,
            numbers::CLASS => expectation.class = u32_of(value)?,
            numbers::NAT => expectation.nat = Some(decode_nat(value)?),
            numbers::FUNCTION => expectation.function = decode_name(value),
            _ => {}
        }
        Some(())
    })?;
    (expectation.master, expectation.expected, expectation.mask) = (master?, expected?, mask?);
    Some(expectation)
}

fn decode_nat(value: &[u8]) -> Option<ExpectationNat> {
    let (mut direction, mut translated) = (None, None);
    for_each_attribute(value, |kind, value| {
        match kind {
            numbers::NAT_DIRECTION => direction = Some(u32_of(value)?),
            numbers::NAT_TUPLE => translated = Some(tuple::decode(value)?.0),
            _ => {}
        }
        Some(())
    })?;
    let translated = translated?;
    let (port, _) = translated.ports();
    Some(ExpectationNat { direction: direction?, address: translated.source, protocol: translated.protocol, port })
}

/// Adds the attributes of an expectation.
pub(super) fn encode(writer: &mut Writer<'_>, expectation: &Expectation) {
    tuple::encode(writer, numbers::MASTER, &expectation.master);
    encode_name(writer, expectation);
    tuple::encode(writer, numbers::MASK, &expectation.mask);
    if let Some(timeout_s) = expectation.timeout_s {
        writer.put_u32(numbers::TIMEOUT, timeout_s);
    }
    writer.put_u32(numbers::FLAGS, expectation.flags);
    writer.put_u32(numbers::CLASS, expectation.class);
    if let Some(name) = &expectation.helper {
        writer.put_name(numbers::HELPER, name.as_str());
    }
    if let Some(name) = &expectation.function {
        writer.put_name(numbers::FUNCTION, name.as_str());
    }
    if let Some(nat) = &expectation.nat {
        writer.nest(numbers::NAT, |writer| {
            writer.put_u32(numbers::NAT_DIRECTION, nat.direction);
            tuple::encode(writer, numbers::NAT_TUPLE, &nat_tuple(nat));
        });
    }
}

/// Appends the attributes that identify an expectation.
pub(super) fn encode_name(writer: &mut Writer<'_>, expectation: &Expectation) {
    tuple::encode(writer, numbers::TUPLE, &expectation.expected);
    if expectation.zone != 0 {
        writer.put_u16(numbers::ZONE, expectation.zone);
    }
}

/// Only its source is significant.
fn nat_tuple(nat: &ExpectationNat) -> Tuple {
    let nowhere = match nat.address {
        IpAddr::V4(_) => IpAddr::V4(std::net::Ipv4Addr::UNSPECIFIED),
        IpAddr::V6(_) => IpAddr::V6(std::net::Ipv6Addr::UNSPECIFIED),
    };
    let discriminator = Discriminator::Ports { source: nat.port, destination: 0 };
    Tuple { source: nat.address, destination: nowhere, protocol: nat.protocol, discriminator }
}
