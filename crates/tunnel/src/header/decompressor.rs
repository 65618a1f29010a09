//! The receiving end: the headers that it remembers.

use alloc::vec;
use alloc::vec::Vec;

use flow::Segmentation;

use super::compressor::Remembered;
use super::layout::{Image, Layout, SEGMENTATION_BYTES, segmentation_bytes, segmentation_of};
use super::{PLACES, VERSIONS, take_number};

/// Why a small header cannot be read.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum HeaderError {
    /// Nothing, or something else, is remembered at this place.
    Unknown(u16),
    /// It makes no sense.
    Malformed,
}

/// A header that was small.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct SmallHeader<'a> {
    /// The headers, but for what follows from the payload: see [`complete`].
    pub(crate) header: Vec<u8>,
    /// How the packet is segmented.
    pub(crate) segmentation: Segmentation,
    /// What follows the headers.
    pub(crate) payload: &'a [u8],
}

/// The last two headers that are remembered, each with its version.
type Versions = [Option<(u8, Image)>; 2];

/// The receiving end.
#[derive(Clone, Debug)]
pub(crate) struct Decompressor {
    places: Vec<Versions>,
}

impl Decompressor {
    /// An end that remembers nothing.
    pub(crate) fn new() -> Self {
        Self { places: vec![[const { None }; 2]; PLACES] }
    }

    /// Headers came as they are, to be remembered.
    ///
    /// # Errors
    /// They cannot be.
    pub(crate) fn remember(
        &mut self,
        remembered: Remembered,
        header: &[u8],
        segmentation: &Segmentation,
    ) -> Result<(), HeaderError> {
        let place = self.places.get_mut(usize::from(remembered.place)).ok_or(HeaderError::Malformed)?;
        let mut image = Image::try_from(header).map_err(|_| HeaderError::Malformed)?;
        image.try_extend_from_slice(&segmentation_bytes(segmentation)).map_err(|_| HeaderError::Malformed)?;
        Layout::of(header).ok_or(HeaderError::Malformed)?;
        *place = [Some((remembered.version % VERSIONS, image)), None];
        Ok(())
    }

    /// Reads a small header, and what follows it.
    ///
    /// # Errors
    /// Why it cannot be read.
    pub(crate) fn decompress<'a>(&mut self, bytes: &'a [u8]) -> Result<SmallHeader<'a>, HeaderError> {
        let mut rest = bytes;
        let head = take_number(&mut rest).ok_or(HeaderError::Malformed)?;
        let (index, version) = ((head >> 4) as usize, (head >> 1) as u8 % VERSIONS);
        let to_remember = if head & 1 == 1 { Some(take_byte(&mut rest)? % VERSIONS) } else { None };
        let place = self.places.get_mut(index).ok_or(HeaderError::Malformed)?;
        let known = place.iter().flatten().find(|(known, _)| *known == version);
        let known = known.ok_or(HeaderError::Unknown(index as u16))?.clone();
        let (_, base) = &known;
        let header_bytes = base.len() - SEGMENTATION_BYTES;
        let layout = Layout::of(&base[..header_bytes]).ok_or(HeaderError::Malformed)?;
        let mut image = base.clone();
        read_differences(layout, &mut image, &mut rest)?;
        let (header, segmentation) = image.split_last_chunk().ok_or(HeaderError::Malformed)?;
        // What changed must not have changed how it is laid out.
        if Layout::of(header) != Some(layout) {
            return Err(HeaderError::Malformed);
        }
        let segmentation = segmentation_of(*segmentation).ok_or(HeaderError::Malformed)?;
        let header = header.to_vec();
        if let Some(version) = to_remember {
            *place = [Some((version, image)), Some(known)];
        }
        Ok(SmallHeader { header, segmentation, payload: rest })
    }
}

fn read_differences(layout: Layout, image: &mut Image, rest: &mut &[u8]) -> Result<(), HeaderError> {
    let fields = layout.fields();
    let mask = take_number(rest).filter(|mask| mask >> fields.len() == 0).ok_or(HeaderError::Malformed)?;
    for (number, field) in fields.iter().enumerate() {
        if mask >> number & 1 == 1 {
            let folded = take_number(rest).ok_or(HeaderError::Malformed)?;
            let distance = folded >> 1 ^ (folded & 1).wrapping_neg();
            let value = field.read(image).wrapping_add(distance);
            field.write(image, value);
        }
    }
    if let Some(checksum) = layout.checksum() {
        let [high, low] = [take_byte(rest)?, take_byte(rest)?];
        checksum.write(image, u16::from_be_bytes([high, low]).into());
    }
    Ok(())
}

fn take_byte(rest: &mut &[u8]) -> Result<u8, HeaderError> {
    let (first, after) = rest.split_first().ok_or(HeaderError::Malformed)?;
    *rest = after;
    Ok(*first)
}

/// Fills in what follows from the payload: its length, and what depends on that. `packet` begins with headers that were small.
pub(crate) fn complete(packet: &mut [u8], header_bytes: usize) {
    let Some((header, payload)) = packet.split_at_mut_checked(header_bytes) else { return };
    if let Some(layout) = Layout::of(header) {
        layout.complete(header, payload.len());
    }
}
