//! What passes the caches of the tunnel's end, for those who mirror them.

use alloc::vec::Vec;

use redundancy::Encoding;
use redundancy::wire::control::Control;

use super::wire::{Entry, Side};

/// Entries that were not sent yet. It is emptied after whatever the link was given, so it holds no more than that
/// brought.
#[derive(Clone, Debug, Default)]
pub(crate) struct Tap {
    /// Somebody wants to know.
    is_open: bool,
    bytes: Vec<u8>,
    ends: Vec<usize>,
}

impl Tap {
    pub(super) const fn set_open(&mut self, is_open: bool) {
        self.is_open = is_open;
    }

    fn push(&mut self, entry: Entry<'_>) {
        entry.write(&mut self.bytes);
        self.ends.push(self.bytes.len());
    }

    /// A block was sent.
    pub(crate) fn note_sent(&mut self, encoding: Encoding, epoch: u32, block: &[u8]) {
        let side = Side::Sent;
        match encoding {
            _ if !self.is_open => {}
            // The cache does not have it.
            Encoding::Plain => {}
            Encoding::PlainCached => self.push(Entry::Plain { side, epoch, block }),
            Encoding::Literal | Encoding::Encoded => self.push(Entry::Block { side, epoch, block }),
        }
    }

    /// A block came, and was restored.
    pub(crate) fn note_received(&mut self, epoch: Option<u32>, block: &[u8]) {
        if let Some(epoch) = epoch.filter(|_| self.is_open) {
            self.push(Entry::Block { side: Side::Received, epoch, block });
        }
    }

    /// A block came plain, and is remembered.
    pub(crate) fn note_received_plain(&mut self, epoch: Option<u32>, block: &[u8]) {
        if let Some(epoch) = epoch.filter(|_| self.is_open) {
            self.push(Entry::Plain { side: Side::Received, epoch, block });
        }
    }

    /// The other end's encoder said something: what it gave, mirrors lack too.
    pub(crate) fn note_word(&mut self, message: &[u8]) {
        if self.is_open && matches!(Control::parse(message), Ok(Control::Fill { .. })) {
            self.push(Entry::Word { side: Side::Received, message });
        }
    }

    pub(super) fn entries(&self) -> impl Iterator<Item = &[u8]> {
        let begins = core::iter::once(0).chain(self.ends.iter().copied());
        begins.zip(&self.ends).filter_map(|(begin, end)| self.bytes.get(begin..*end))
    }

    pub(super) fn clear(&mut self) {
        self.bytes.clear();
        self.ends.clear();
    }
}
