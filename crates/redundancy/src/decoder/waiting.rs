//! Blocks whose referenced bytes are not all present.

use alloc::boxed::Box;
use alloc::collections::VecDeque;

use flow::Instant;

use crate::limits::{WAITING_BLOCKS_MAX, WAITING_BYTES_MAX};

/// The caller's identifier of a block.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct Ticket(pub u64);

/// A block that waits.
#[derive(Clone, Debug)]
pub(super) struct WaitingBlock {
    pub(super) ticket: Ticket,
    pub(super) block: Box<[u8]>,
    /// How often its missing data was requested.
    pub(super) asked: u32,
    pub(super) ask_at: Instant,
}

/// All of them, the oldest first.
#[derive(Clone, Debug, Default)]
pub(super) struct Waiting {
    blocks: VecDeque<WaitingBlock>,
    bytes: usize,
}

impl Waiting {
    pub(super) fn push(&mut self, ticket: Ticket, block: &[u8], now: Instant) {
        self.bytes += block.len();
        self.blocks.push_back(WaitingBlock { ticket, block: block.into(), asked: 0, ask_at: now });
    }

    /// The oldest, if there are more than may be.
    pub(super) fn pop_excess(&mut self) -> Option<WaitingBlock> {
        let is_over = self.blocks.len() > WAITING_BLOCKS_MAX || self.bytes > WAITING_BYTES_MAX;
        if is_over { self.remove(0) } else { None }
    }

    pub(super) fn remove(&mut self, index: usize) -> Option<WaitingBlock> {
        let block = self.blocks.remove(index)?;
        self.bytes -= block.block.len();
        Some(block)
    }

    pub(super) fn get(&self, index: usize) -> Option<&WaitingBlock> {
        self.blocks.get(index)
    }

    pub(super) fn iter(&self) -> impl Iterator<Item = &WaitingBlock> {
        self.blocks.iter()
    }

    pub(super) fn iter_mut(&mut self) -> impl Iterator<Item = &mut WaitingBlock> {
        self.blocks.iter_mut()
    }

    pub(super) fn len(&self) -> usize {
        self.blocks.len()
    }
}
