//! A connection that another one has announced, as attributes.

use alloc::vec::Vec;
use core::net::IpAddr;

use flow::netfilter::{Expectation, ExpectationNat, HelperName};
use flow::wire::tlv::{self, TlvError};

use super::attribute::{put_original, read_original, sized, u32_at};
use crate::session::ApplyError;

const MASTER: [u16; 2] = [1, 2];
const EXPECTED: [u16; 2] = [3, 4];
const MASK: [u16; 2] = [5, 6];
const RECORD: u16 = 7;
const HELPER: u16 = 8;
const FUNCTION: u16 = 9;
const NAT_V4: u16 = 10;
const NAT_V6: u16 = 11;

pub(super) fn encode(expectation: &Expectation, out: &mut Vec<u8>) {
    let zone = expectation.zone;
    put_original(MASTER, &expectation.master, zone, out);
    put_original(EXPECTED, &expectation.expected, zone, out);
    put_original(MASK, &expectation.mask, zone, out);
    let mut record = [0; 16];
    record[..4].copy_from_slice(&expectation.timeout_s.unwrap_or(0).to_be_bytes());
    record[4..8].copy_from_slice(&expectation.flags.to_be_bytes());
    record[8..12].copy_from_slice(&expectation.class.to_be_bytes());
    record[12] = u8::from(expectation.timeout_s.is_some());
    tlv::put(out, RECORD, &record);
    for (kind, name) in [(HELPER, &expectation.helper), (FUNCTION, &expectation.function)] {
        name.iter().for_each(|name| tlv::put(out, kind, name.as_str().as_bytes()));
    }
    if let Some(nat) = &expectation.nat {
        let mut value = Vec::with_capacity(24);
        value.extend_from_slice(&nat.direction.to_be_bytes());
        let kind = match nat.address {
            IpAddr::V4(address) => {
                value.extend_from_slice(&address.octets());
                NAT_V4
            }
            IpAddr::V6(address) => {
                value.extend_from_slice(&address.octets());
                NAT_V6
            }
        };
        value.extend_from_slice(&[nat.protocol, 0]);
        value.extend_from_slice(&nat.port.to_be_bytes());
        tlv::put(out, kind, &value);
    }
}

pub(super) fn decode(attributes: &[u8]) -> Result<Expectation, ApplyError> {
    let (mut master, mut expected, mut mask, mut record) = (None, None, None, None);
    let (mut helper, mut function, mut nat) = (None, None, None);
    for attribute in tlv::read(attributes) {
        let (kind, value) = attribute?;
        match kind {
            1 | 2 => master = Some(read_original(kind, kind == MASTER[1], value)?),
            3 | 4 => expected = Some(read_original(kind, kind == EXPECTED[1], value)?.0),
            5 | 6 => mask = Some(read_original(kind, kind == MASK[1], value)?.0),
            RECORD => record = Some(sized::<16>(kind, value)?),
            HELPER => helper = Some(HelperName::new(value).ok_or(ApplyError::Value(kind))?),
            FUNCTION => function = Some(HelperName::new(value).ok_or(ApplyError::Value(kind))?),
            NAT_V4 | NAT_V6 => nat = Some(read_nat(kind, value)?),
            _ => {}
        }
    }
    let (master, zone) = master.ok_or(ApplyError::Missing(MASTER[0]))?;
    let record = record.ok_or(ApplyError::Missing(RECORD))?;
    Ok(Expectation {
        master,
        expected: expected.ok_or(ApplyError::Missing(EXPECTED[0]))?,
        mask: mask.ok_or(ApplyError::Missing(MASK[0]))?,
        zone,
        timeout_s: (record[12] != 0).then(|| u32_at(&record, 0)),
        flags: u32_at(&record, 4),
        class: u32_at(&record, 8),
        helper,
        function,
        nat,
    })
}

fn read_nat(kind: u16, value: &[u8]) -> Result<ExpectationNat, ApplyError> {
    let address_bytes = if kind == NAT_V4 { 4 } else { 16 };
    if value.len() != 8 + address_bytes {
        return Err(TlvError::ValueSize(kind).into());
    }
    let (address, rest) = value[4..].split_at(address_bytes);
    let address = match <[u8; 4]>::try_from(address) {
        Ok(octets) => IpAddr::from(octets),
        Err(_) => IpAddr::from(sized::<16>(kind, address)?),
    };
    let port = u16::from_be_bytes([rest[2], rest[3]]);
    Ok(ExpectationNat { direction: u32_at(value, 0), address, protocol: rest[0], port })
}
