//! Numbers in LEB128: seven bits a byte, the lowest first.

use alloc::vec::Vec;

use filters::ExchangeError;

/// Nine times seven bits are more than any place needs, and leave sums of two without overflow.
const BYTES_MAX: usize = 9;

pub(super) fn write(mut number: u64, out: &mut Vec<u8>) {
    while number >= 0x80 {
        out.push(number as u8 | 0x80);
        number >>= 7;
    }
    out.push(number as u8);
}

pub(super) fn read(bytes: &[u8]) -> Result<(u64, &[u8]), ExchangeError> {
    let mut number = 0;
    for (place, byte) in bytes.iter().enumerate().take(BYTES_MAX) {
        number |= u64::from(byte & 0x7f) << (7 * place);
        if byte & 0x80 == 0 {
            return Ok((number, &bytes[place + 1..]));
        }
    }
    Err(ExchangeError::Malformed("a number without end"))
}
