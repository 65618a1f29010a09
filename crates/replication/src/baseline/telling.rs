//! What a peer is to be told, in the order in which it happened, without any memory of what it was told.

use alloc::collections::VecDeque;
use alloc::vec;
use alloc::vec::Vec;

use arrayvec::ArrayVec;
use flow::Instant;

use crate::message::{DELETE, Kind, begin, finish};
use crate::session::{DELETION_BYTES_MAX, Handle, SessionConfig, Store};

/// Connections that a full tell looks at in one go.
const WALK_STEPS_MAX: u32 = 512;

/// The connection waits to be told.
const QUEUED: u8 = 1;
/// A message about the connection was written since its slot was taken.
const TOLD: u8 = 2;

type Attributes = ArrayVec<u8, DELETION_BYTES_MAX>;

enum Item {
    Change(Handle),
    Deletion(Attributes),
}

/// How the attempt to write a message ended.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Written {
    /// A message was appended.
    Message,
    /// There is one, which goes into the next datagram.
    NoRoom,
    /// There is none at present.
    Nothing,
}

/// What to write into, and up to where.
pub(super) struct Room<'a> {
    pub(super) out: &'a mut Vec<u8>,
    /// The length that `out` has without messages.
    pub(super) empty_bytes: usize,
    /// The length that it may have.
    pub(super) bytes_max: usize,
}

/// The queue of changes, and the full tell.
///
/// While it is closed nothing is kept: whoever opens it begins a full tell.
pub(super) struct Telling {
    entries: Vec<u8>,
    queue: VecDeque<Item>,
    queued_max: usize,
    is_open: bool,
    /// The connections from this handle on are still to be told in the full tell under way.
    walk: Option<Handle>,
    /// Messages about connections written.
    pub(super) messages: u64,
    /// Changes that found the queue full: a full tell follows.
    pub(super) left_out: u64,
    /// Connections whose attributes fit into no message.
    pub(super) too_long: u64,
    /// Full tells begun.
    pub(super) rounds: u64,
}

impl Telling {
    pub(super) fn new(config: &SessionConfig) -> Self {
        Self {
            entries: vec![0; config.connections_max as usize],
            queue: VecDeque::new(),
            queued_max: config.changes_queued_max as usize,
            is_open: false,
            walk: None,
            messages: 0,
            left_out: 0,
            too_long: 0,
            rounds: 0,
        }
    }

    pub(super) fn queued(&self) -> usize {
        self.queue.len()
    }

    pub(super) const fn is_walking(&self) -> bool {
        self.walk.is_some()
    }

    /// From now on changes are kept until they are written.
    pub(super) const fn open(&mut self) {
        self.is_open = true;
    }

    /// Nothing is kept any more.
    pub(super) fn close(&mut self) {
        self.is_open = false;
        self.walk = None;
        self.clear();
    }

    fn clear(&mut self) {
        for item in self.queue.drain(..) {
            if let Item::Change(handle) = item {
                self.entries[handle.0 as usize] &= !QUEUED;
            }
        }
    }

    /// Tells all connections from the first one on.
    pub(super) const fn begin_walk(&mut self) {
        self.walk = Some(Handle(0));
        self.rounds += 1;
    }

    pub(super) fn mark_changed(&mut self, handle: Handle) {
        let Some(entry) = self.entries.get_mut(handle.0 as usize).filter(|_| self.is_open) else { return };
        if *entry & QUEUED == 0 {
            *entry |= QUEUED;
            self.push(Item::Change(handle));
        }
    }

    pub(super) fn mark_deleted(&mut self, handle: Handle, attributes: &[u8]) {
        let was_told = self.entries.get(handle.0 as usize).is_some_and(|entry| entry & TOLD != 0);
        self.forget(handle);
        if let Some(attributes) = Attributes::try_from(attributes).ok().filter(|_| was_told && self.is_open) {
            self.push(Item::Deletion(attributes));
        }
    }

    /// The slot is free. What the queue has of it stays: it is written as whatever is there then, in the queue's order.
    pub(super) fn forget(&mut self, handle: Handle) {
        if let Some(entry) = self.entries.get_mut(handle.0 as usize) {
            *entry = 0;
        }
    }

    /// A full queue is thrown away, as a full tell says all that it would have said but for the ends of connections.
    fn push(&mut self, item: Item) {
        self.queue.push_back(item);
        if self.queue.len() > self.queued_max {
            self.left_out += self.queue.len() as u64;
            self.clear();
            self.begin_walk();
        }
    }

    /// Writes the next change.
    pub(super) fn write_change(&mut self, now: Instant, store: &mut impl Store, room: &mut Room<'_>) -> Written {
        while let Some(item) = self.queue.front() {
            let written = match item {
                Item::Change(handle) => {
                    let handle = *handle;
                    let written = self.write(now, handle, store, room);
                    if written != Written::NoRoom {
                        self.entries[handle.0 as usize] &= !QUEUED;
                    }
                    written
                }
                Item::Deletion(attributes) => {
                    let at = begin(room.out, DELETE);
                    room.out.extend_from_slice(attributes);
                    let written = self.close_message(at, room);
                    self.messages += u64::from(written == Written::Message);
                    written
                }
            };
            if written == Written::NoRoom {
                return written;
            }
            self.queue.pop_front();
            if written == Written::Message {
                return written;
            }
        }
        Written::Nothing
    }

    /// Writes the next connection of the full tell. `Nothing` with the walk still under way means: again, another time.
    pub(super) fn write_walked(&mut self, now: Instant, store: &mut impl Store, room: &mut Room<'_>) -> Written {
        for _ in 0..WALK_STEPS_MAX {
            let Some(cursor) = self.walk else { break };
            let next = store.next_for_resync(cursor).filter(|handle| (handle.0 as usize) < self.entries.len());
            let Some(handle) = next else {
                self.walk = None;
                break;
            };
            let written = self.write(now, handle, store, room);
            self.walk = Some(if written == Written::NoRoom { handle } else { Handle(handle.0 + 1) });
            if written != Written::Nothing {
                return written;
            }
        }
        Written::Nothing
    }

    fn write(&mut self, now: Instant, handle: Handle, store: &mut impl Store, room: &mut Room<'_>) -> Written {
        let is_told = self.entries[handle.0 as usize] & TOLD != 0;
        let kind = if is_told { Kind::Update } else { Kind::New };
        let at = begin(room.out, kind.message_type());
        if !store.encode(now, handle, room.out) {
            room.out.truncate(at);
            return Written::Nothing;
        }
        let written = self.close_message(at, room);
        if written == Written::Message {
            self.entries[handle.0 as usize] |= TOLD;
            self.messages += 1;
        }
        written
    }

    /// A message that is too long for an empty datagram is left out.
    fn close_message(&mut self, at: usize, room: &mut Room<'_>) -> Written {
        if finish(room.out, at) && room.out.len() <= room.bytes_max {
            return Written::Message;
        }
        room.out.truncate(at);
        if at > room.empty_bytes {
            return Written::NoRoom;
        }
        self.too_long += 1;
        Written::Nothing
    }
}
