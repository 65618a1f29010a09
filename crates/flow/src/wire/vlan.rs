//! 802.1Q tags.

use alloc::vec::Vec;

use crate::DropReason;

/// Bytes that a tag adds to a frame.
pub const VLAN_TAG_BYTES: usize = 4;

/// A checked view of the bytes behind the ether type of a tag: tag control information, then the next ether type.
#[derive(Clone, Copy, Debug)]
pub struct VlanView<'a> {
    tag: &'a [u8; VLAN_TAG_BYTES],
    payload: &'a [u8],
}

impl<'a> VlanView<'a> {
    /// Views the bytes behind an ether type that announces a tag.
    ///
    /// # Errors
    /// [`DropReason::Truncated`].
    pub fn new_checked(bytes: &'a [u8]) -> Result<Self, DropReason> {
        let (tag, payload) = bytes.split_first_chunk().ok_or(DropReason::Truncated)?;
        Ok(Self { tag, payload })
    }

    /// The VLAN's number, 0–4095.
    #[must_use]
    pub const fn id(&self) -> u16 {
        u16::from_be_bytes([self.tag[0], self.tag[1]]) & 0x0fff
    }

    /// The priority code point, 0–7.
    #[must_use]
    pub const fn priority(&self) -> u8 {
        self.tag[0] >> 5
    }

    /// The frame may be dropped first under congestion.
    #[must_use]
    pub const fn is_drop_eligible(&self) -> bool {
        self.tag[0] & 0x10 != 0
    }

    /// The bytes behind the tag.
    #[must_use]
    pub const fn ether_type(&self) -> u16 {
        u16::from_be_bytes([self.tag[2], self.tag[3]])
    }

    /// All behind the tag.
    #[must_use]
    pub const fn payload(&self) -> &'a [u8] {
        self.payload
    }
}

/// Appends a tag's control information (priority 0) and the ether type behind it.
pub fn emit(out: &mut Vec<u8>, id: u16, ether_type: u16) {
    out.extend_from_slice(&(id & 0x0fff).to_be_bytes());
    out.extend_from_slice(&ether_type.to_be_bytes());
}
