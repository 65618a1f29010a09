//! The sending end: which headers the other end is known to remember.

use alloc::vec;
use alloc::vec::Vec;

use flow::Segmentation;
use flow::random::mix;

use super::layout::{Image, Layout, segmentation_bytes};
use super::{PLACES, VERSIONS, put_number};

/// Places that a flow may have.
const WAYS: usize = 4;

/// Headers that the other end is to remember.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Remembered {
    /// Where.
    pub(crate) place: u16,
    /// Under which version.
    pub(crate) version: u8,
}

/// How headers are to be sent.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum HeaderForm {
    /// As they are.
    Whole,
    /// As they are, and the other end is to remember them.
    First(Remembered),
    /// As it was written; the other end may have to remember them.
    Small(Option<Remembered>),
}

#[derive(Clone, Debug)]
struct Place {
    /// What does not change, and how the headers are laid out.
    flow: Image,
    /// What the other end remembers.
    known: Option<(u8, Image)>,
    /// What it is to remember and has not acknowledged yet.
    unconfirmed: Option<(u8, Image)>,
    used_at: u64,
}

/// The sending end.
#[derive(Clone, Debug)]
pub(crate) struct Compressor {
    places: Vec<Option<Place>>,
    /// Outlives a place's flow, so that a record in flight is not taken for one of the next flow.
    versions: Vec<u8>,
    packets: u64,
    key: u64,
}

impl Compressor {
    /// An end that remembers nothing. The key is at random: no sender can choose which flows share a place.
    pub(crate) fn new(key: u64) -> Self {
        Self { places: vec![None; PLACES], versions: vec![0; PLACES], packets: 0, key }
    }

    /// Takes the headers of a packet with so many bytes of payload. Appends them to `out` if they are small.
    pub(crate) fn compress(
        &mut self,
        header: &[u8],
        segmentation: &Segmentation,
        payload_bytes: usize,
        out: &mut Vec<u8>,
    ) -> HeaderForm {
        let Some((layout, image)) = image_of(header, segmentation, payload_bytes) else { return HeaderForm::Whole };
        let Some(index) = self.place(layout, &image) else { return HeaderForm::Whole };
        let Some(place) = self.places.get_mut(index).and_then(Option::as_mut) else { return HeaderForm::Whole };
        let to_remember = place.unconfirmed.is_none().then(|| {
            let version = &mut self.versions[index];
            *version = (*version + 1) % VERSIONS;
            place.unconfirmed = Some((*version, image.clone()));
            Remembered { place: index as u16, version: *version }
        });
        let Some((version, known)) = &place.known else {
            return to_remember.map_or(HeaderForm::Whole, HeaderForm::First);
        };
        put_number(out, (index as u32) << 4 | u32::from(*version) << 1 | u32::from(to_remember.is_some()));
        out.extend(to_remember.map(|remembered| remembered.version));
        put_differences(layout, known, &image, out);
        HeaderForm::Small(to_remember)
    }

    /// The place of a flow, which is made if there is none. `None`: all that it may have wait for an acknowledgement, and
    /// versions of two flows must not be mistaken for one another.
    fn place(&mut self, layout: Layout, image: &Image) -> Option<usize> {
        let mut flow = image.clone();
        layout.clear_derived(&mut flow);
        for field in layout.fields() {
            // The length of TCP's header lies beside its flags, and is a property of the flow: all lengths are by themselves.
            field.write(&mut flow, 0);
        }
        let hash = flow
            .chunks(8)
            .fold(self.key, |hash, chunk| mix(hash ^ chunk.iter().fold(0, |word, byte| word << 8 | u64::from(*byte))));
        let first = (hash as usize % (PLACES / WAYS)) * WAYS;
        self.packets += 1;
        let ways = first..first + WAYS;
        let is_of_flow = |index: &usize| self.places[*index].as_ref().is_some_and(|place| place.flow == flow);
        let index = ways.clone().find(is_of_flow).or_else(|| {
            let waits = |index: &usize| self.places[*index].as_ref().is_some_and(|place| place.unconfirmed.is_some());
            let used_at = |index: &usize| self.places[*index].as_ref().map_or(0, |place| place.used_at);
            let index = ways.filter(|index| !waits(index)).min_by_key(used_at)?;
            self.places[index] = Some(Place { flow, known: None, unconfirmed: None, used_at: 0 });
            Some(index)
        })?;
        if let Some(place) = &mut self.places[index] {
            place.used_at = self.packets;
        }
        Some(index)
    }

    /// Handles that what was to be remembered has arrived, or was lost on the path.
    pub(crate) fn settle(&mut self, remembered: Remembered, has_arrived: bool) {
        let place = self.places.get_mut(usize::from(remembered.place)).and_then(Option::as_mut);
        let Some(place) = place else { return };
        // Another flow may have the place by now; then the version is another's, too.
        if let Some(unconfirmed) = place.unconfirmed.take_if(|(version, _)| *version == remembered.version)
            && has_arrived
        {
            place.known = Some(unconfirmed);
        }
    }

    /// The other end does not remember what it was thought to.
    pub(crate) fn forget(&mut self, place: u16) {
        if let Some(place) = self.places.get_mut(usize::from(place)).and_then(Option::as_mut) {
            place.known = None;
        }
    }
}

/// The headers as one piece with how the packet is cut. `None`: they travel as they are.
fn image_of(header: &[u8], segmentation: &Segmentation, payload_bytes: usize) -> Option<(Layout, Image)> {
    let layout = Layout::of(header)?;
    let mut image = Image::try_from(header).ok()?;
    layout.complete(&mut image, payload_bytes);
    let follows = image[..] == *header;
    image.try_extend_from_slice(&segmentation_bytes(segmentation)).ok()?;
    follows.then_some((layout, image))
}

fn put_differences(layout: Layout, known: &Image, image: &Image, out: &mut Vec<u8>) {
    let fields = layout.fields();
    let distance = |field: &super::layout::Field| field.distance(field.read(known), field.read(image));
    let mask = fields.iter().rev().fold(0, |mask, field| mask << 1 | u32::from(distance(field) != 0));
    put_number(out, mask);
    for distance in fields.iter().map(distance).filter(|distance| *distance != 0) {
        put_number(out, (distance << 1 ^ distance >> 31).cast_unsigned());
    }
    if let Some(checksum) = layout.checksum() {
        out.extend_from_slice(&(checksum.read(image) as u16).to_be_bytes());
    }
}
