//! Attributes: written, and read with every check that does not need to know what they are.

use alloc::vec::Vec;
use core::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use flow::netfilter::{HELPER_NAME_BYTES_MAX, HelperName};

use super::ObjectError;

/// Bytes of an attribute's header.
pub const ATTRIBUTE_HEADER_BYTES: usize = 4;

/// Appends an attribute.
pub(super) fn put(out: &mut Vec<u8>, kind: u16, value: &[u8]) {
    let length = ATTRIBUTE_HEADER_BYTES + value.len();
    debug_assert!(length <= usize::from(u8::MAX), "attributes are small");
    out.extend_from_slice(&(length as u16).to_be_bytes());
    out.extend_from_slice(&kind.to_be_bytes());
    out.extend_from_slice(value);
    out.resize(out.len().next_multiple_of(4), 0);
}

/// Appends 32-bit numbers as one attribute.
pub(super) fn put_words<const WORDS: usize>(out: &mut Vec<u8>, kind: u16, words: [u32; WORDS]) {
    let bytes = words.map(u32::to_be_bytes);
    put(out, kind, bytes.as_flattened());
}

/// Appends two addresses of one family, as the first of the types for IPv4 and the second for IPv6. False, with nothing
/// appended, if they are of two.
pub(super) fn put_addresses(out: &mut Vec<u8>, [v4, v6]: [u16; 2], addresses: [IpAddr; 2]) -> bool {
    match addresses {
        [IpAddr::V4(source), IpAddr::V4(destination)] => {
            put(out, v4, [source.octets(), destination.octets()].as_flattened());
        }
        [IpAddr::V6(source), IpAddr::V6(destination)] => {
            put(out, v6, [source.octets(), destination.octets()].as_flattened());
        }
        _ => return false,
    }
    true
}

/// Appends an address, as the first of the types for IPv4 and the second for IPv6.
pub(super) fn put_address(out: &mut Vec<u8>, [v4, v6]: [u16; 2], address: IpAddr) {
    match address {
        IpAddr::V4(address) => put(out, v4, &address.octets()),
        IpAddr::V6(address) => put(out, v6, &address.octets()),
    }
}

/// Appends two ports as one attribute.
pub(super) fn put_ports(out: &mut Vec<u8>, kind: u16, (source, destination): (u16, u16)) {
    put(out, kind, [source.to_be_bytes(), destination.to_be_bytes()].as_flattened());
}

/// Appends a helper's name with its NUL.
pub(super) fn put_name(out: &mut Vec<u8>, kind: u16, name: HelperName) {
    let mut bytes = [0; HELPER_NAME_BYTES_MAX + 1];
    let name = name.as_str().as_bytes();
    bytes[..name.len()].copy_from_slice(name);
    put(out, kind, &bytes[..=name.len()]);
}

/// The attributes in `bytes`, one after another. After an error the iterator ends.
pub(super) const fn read(bytes: &[u8]) -> Attributes<'_> {
    Attributes { rest: bytes }
}

/// See [`read`].
pub(super) struct Attributes<'a> {
    rest: &'a [u8],
}

impl<'a> Iterator for Attributes<'a> {
    type Item = Result<Attribute<'a>, ObjectError>;

    fn next(&mut self) -> Option<Self::Item> {
        if self.rest.is_empty() {
            return None;
        }
        let split = split(self.rest);
        self.rest = split.map_or(&[], |(_, rest)| rest);
        Some(split.map(|(attribute, _)| attribute).ok_or(ObjectError::Length))
    }
}

fn split(bytes: &[u8]) -> Option<(Attribute<'_>, &[u8])> {
    let header = bytes.first_chunk::<ATTRIBUTE_HEADER_BYTES>()?;
    let length = usize::from(u16::from_be_bytes([header[0], header[1]]));
    let value = bytes.get(ATTRIBUTE_HEADER_BYTES..length)?;
    let rest = bytes.get(length.next_multiple_of(4)..)?;
    Some((Attribute { kind: u16::from_be_bytes([header[2], header[3]]), value }, rest))
}

/// An attribute whose value has not been looked at.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Attribute<'a> {
    pub(super) kind: u16,
    pub(super) value: &'a [u8],
}

impl Attribute<'_> {
    fn sized<const BYTES: usize>(&self) -> Result<[u8; BYTES], ObjectError> {
        self.value.try_into().map_err(|_| ObjectError::ValueSize(self.kind))
    }

    pub(super) fn u8(&self) -> Result<u8, ObjectError> {
        Ok(self.sized::<1>()?[0])
    }

    pub(super) fn u16(&self) -> Result<u16, ObjectError> {
        Ok(u16::from_be_bytes(self.sized()?))
    }

    /// What conntrackd leaves as its host has it.
    pub(super) fn u16_swapped(&self) -> Result<u16, ObjectError> {
        Ok(u16::from_le_bytes(self.sized()?))
    }

    pub(super) fn u32(&self) -> Result<u32, ObjectError> {
        Ok(u32::from_be_bytes(self.sized()?))
    }

    pub(super) fn words<const WORDS: usize>(&self) -> Result<[u32; WORDS], ObjectError> {
        let mut words = [0; WORDS];
        if self.value.len() != WORDS * 4 {
            return Err(ObjectError::ValueSize(self.kind));
        }
        for (word, bytes) in words.iter_mut().zip(self.value.as_chunks::<4>().0) {
            *word = u32::from_be_bytes(*bytes);
        }
        Ok(words)
    }

    pub(super) fn ports(&self) -> Result<(u16, u16), ObjectError> {
        let [a, b, c, d] = self.sized()?;
        Ok((u16::from_be_bytes([a, b]), u16::from_be_bytes([c, d])))
    }

    pub(super) fn address_v4(&self) -> Result<IpAddr, ObjectError> {
        Ok(Ipv4Addr::from(self.sized::<4>()?).into())
    }

    pub(super) fn address_v6(&self) -> Result<IpAddr, ObjectError> {
        Ok(Ipv6Addr::from(self.sized::<16>()?).into())
    }

    pub(super) fn addresses_v4(&self) -> Result<[IpAddr; 2], ObjectError> {
        let bytes = self.sized::<8>()?;
        let (halves, _) = bytes.as_chunks::<4>();
        Ok([Ipv4Addr::from(halves[0]).into(), Ipv4Addr::from(halves[1]).into()])
    }

    pub(super) fn addresses_v6(&self) -> Result<[IpAddr; 2], ObjectError> {
        let bytes = self.sized::<32>()?;
        let (halves, _) = bytes.as_chunks::<16>();
        Ok([Ipv6Addr::from(halves[0]).into(), Ipv6Addr::from(halves[1]).into()])
    }

    /// A name up to its NUL; what follows that must be NULs too.
    pub(super) fn name(&self) -> Result<HelperName, ObjectError> {
        let end = self.value.iter().position(|byte| *byte == 0).unwrap_or(self.value.len());
        let (name, rest) = self.value.split_at(end);
        let is_clean = rest.iter().all(|byte| *byte == 0);
        HelperName::new(name).filter(|_| is_clean).ok_or(ObjectError::Value(self.kind))
    }

    pub(super) const fn wrong(&self) -> ObjectError {
        ObjectError::Value(self.kind)
    }
}
