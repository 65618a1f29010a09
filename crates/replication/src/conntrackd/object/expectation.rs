//! Expected connections.

use alloc::vec::Vec;
use core::net::IpAddr;

use flow::netfilter::{Discriminator, Expectation, ExpectationNat, HelperName, Tuple};

use super::attribute::{Attribute, put, put_addresses, put_name, put_ports, put_words, read};
use super::{EncodeError, ObjectError};

/// The types of a tuple's four attributes: IPv4 and IPv6 addresses, protocol, ports. The first is [`MASTER`], so on.
const MASTER: u16 = 0;
const EXPECTED: u16 = 4;
const MASK: u16 = 8;
const TIMEOUT: u16 = 12;
const FLAGS: u16 = 13;
const CLASS: u16 = 14;
/// Two addresses and two ports, as if of a tuple; the second of each is zero.
const NAT_ADDRESSES_V4: u16 = 15;
const NAT_PORTS: u16 = 16;
const NAT_PROTOCOL: u16 = 17;
const NAT_DIRECTION: u16 = 18;
const HELPER: u16 = 19;
const FUNCTION: u16 = 20;

/// Appends an expectation.
///
/// # Errors
/// conntrackd has no words for it; nothing is appended.
pub fn encode(expectation: &Expectation, out: &mut Vec<u8>) -> Result<(), EncodeError> {
    let at = out.len();
    let result = put_expectation(expectation, out);
    if result.is_err() {
        out.truncate(at);
    }
    result
}

fn put_expectation(expectation: &Expectation, out: &mut Vec<u8>) -> Result<(), EncodeError> {
    let tuples = [(MASTER, &expectation.master), (EXPECTED, &expectation.expected), (MASK, &expectation.mask)];
    for (first, tuple) in tuples {
        if !put_addresses(out, [first, first + 1], [tuple.source, tuple.destination]) {
            return Err(EncodeError::Families);
        }
        put(out, first + 2, &[tuple.protocol]);
        if let Discriminator::Ports { .. } = tuple.discriminator {
            put_ports(out, first + 3, tuple.ports());
        }
    }
    expectation.timeout_s.into_iter().for_each(|timeout_s| put_words(out, TIMEOUT, [timeout_s]));
    put_words(out, FLAGS, [expectation.flags]);
    put_words(out, CLASS, [expectation.class]);
    if let Some(nat) = expectation.nat {
        // There is no attribute for an address of IPv6.
        let IpAddr::V4(address) = nat.address else { return Err(EncodeError::Families) };
        put(out, NAT_ADDRESSES_V4, [address.octets(), [0; 4]].as_flattened());
        put(out, NAT_PROTOCOL, &[nat.protocol]);
        put_ports(out, NAT_PORTS, (nat.port, 0));
        put_words(out, NAT_DIRECTION, [nat.direction]);
    }
    expectation.helper.into_iter().for_each(|name| put_name(out, HELPER, name));
    expectation.function.into_iter().for_each(|name| put_name(out, FUNCTION, name));
    Ok(())
}

/// Reads an expectation.
///
/// # Errors
/// What is wrong with it.
pub fn decode(bytes: &[u8]) -> Result<Expectation, ObjectError> {
    let mut fields = Fields::default();
    for attribute in read(bytes) {
        fields.take(&attribute?)?;
    }
    fields.expectation()
}

#[derive(Default)]
struct Fields {
    /// Master, expected, mask.
    tuples: [TupleFields; 3],
    timeout_s: Option<u32>,
    flags: u32,
    class: u32,
    nat_address: Option<IpAddr>,
    nat_port: u16,
    nat_protocol: u8,
    nat_direction: u32,
    helper: Option<HelperName>,
    function: Option<HelperName>,
}

#[derive(Default)]
struct TupleFields {
    addresses: Option<[IpAddr; 2]>,
    protocol: Option<u8>,
    ports: Option<(u16, u16)>,
}

impl TupleFields {
    fn tuple(&self, first: u16) -> Result<Tuple, ObjectError> {
        let [source, destination] = self.addresses.ok_or(ObjectError::Missing(first))?;
        let protocol = self.protocol.ok_or(ObjectError::Missing(first + 2))?;
        let discriminator = self
            .ports
            .map_or(Discriminator::Nothing, |(source, destination)| Discriminator::Ports { source, destination });
        Ok(Tuple { source, destination, protocol, discriminator })
    }
}

impl Fields {
    fn take(&mut self, attribute: &Attribute<'_>) -> Result<(), ObjectError> {
        match attribute.kind {
            kind @ 0..12 => {
                let tuple = &mut self.tuples[usize::from(kind / 4)];
                match kind % 4 {
                    0 => tuple.addresses = Some(attribute.addresses_v4()?),
                    1 => tuple.addresses = Some(attribute.addresses_v6()?),
                    2 => tuple.protocol = Some(attribute.u8()?),
                    _ => tuple.ports = Some(attribute.ports()?),
                }
            }
            TIMEOUT => self.timeout_s = Some(attribute.u32()?),
            FLAGS => self.flags = attribute.u32()?,
            CLASS => self.class = attribute.u32()?,
            NAT_ADDRESSES_V4 => self.nat_address = Some(attribute.addresses_v4()?[0]),
            NAT_PORTS => self.nat_port = attribute.ports()?.0,
            NAT_PROTOCOL => self.nat_protocol = attribute.u8()?,
            NAT_DIRECTION => self.nat_direction = attribute.u32()?,
            HELPER => self.helper = Some(attribute.name()?),
            FUNCTION => self.function = Some(attribute.name()?),
            unknown => return Err(ObjectError::Unknown(unknown)),
        }
        Ok(())
    }

    fn expectation(self) -> Result<Expectation, ObjectError> {
        let [master, expected, mask] = &self.tuples;
        let (master, expected) = (master.tuple(MASTER)?, expected.tuple(EXPECTED)?);
        let mask = mask.tuple(MASK)?;
        for (tuple, kind) in [(&expected, EXPECTED), (&mask, MASK)] {
            if tuple.is_v6() != master.is_v6() {
                return Err(ObjectError::Value(kind));
            }
        }
        let nat = self.nat_address.map(|address| ExpectationNat {
            direction: self.nat_direction,
            address,
            protocol: self.nat_protocol,
            port: self.nat_port,
        });
        let Self { timeout_s, flags, class, helper, function, .. } = self;
        Ok(Expectation { master, expected, mask, zone: 0, timeout_s, flags, class, helper, function, nat })
    }
}
