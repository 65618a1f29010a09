//! A node's peers, each found by its number in one step.

use alloc::vec::Vec;
use core::ops::{Deref, DerefMut};

use flow::NodeId;

use crate::node::NodeError;
use crate::node::peer::Peer;

/// Stands in the table of places for a node that is no peer. There are fewer peers than this: [`crate::role::PEERS_MAX`].
const NO_PLACE: u8 = u8::MAX;

/// The peers, in the order of the configuration. They stay as long as the node lives.
pub(in crate::node) struct Peers {
    list: Vec<Peer>,
    /// The place of each node in the list, by its number.
    places: [u8; 1 << u8::BITS],
}

impl Peers {
    /// # Panics
    /// With more than [`crate::role::PEERS_MAX`].
    pub(in crate::node) fn new(list: Vec<Peer>) -> Self {
        assert!(list.len() <= crate::role::PEERS_MAX);
        let mut places = [NO_PLACE; 1 << u8::BITS];
        for (place, peer) in (0..).zip(&list) {
            places[usize::from(peer.id.0)] = place;
        }
        Self { list, places }
    }

    /// Where the peer lies.
    ///
    /// # Errors
    /// There is no such peer.
    pub(in crate::node) fn place(&self, id: NodeId) -> Result<usize, NodeError> {
        match self.places[usize::from(id.0)] {
            NO_PLACE => Err(NodeError::UnknownPeer(id)),
            place => Ok(place.into()),
        }
    }

    pub(in crate::node) fn get(&self, id: NodeId) -> Option<&Peer> {
        self.list.get(self.place(id).ok()?)
    }

    pub(in crate::node) fn get_mut(&mut self, id: NodeId) -> Option<&mut Peer> {
        let place = self.place(id).ok()?;
        self.list.get_mut(place)
    }

    /// As [`Peers::get_mut`].
    ///
    /// # Errors
    /// There is no such peer.
    pub(in crate::node) fn find(&mut self, id: NodeId) -> Result<&mut Peer, NodeError> {
        let place = self.place(id)?;
        Ok(&mut self.list[place])
    }
}

impl Deref for Peers {
    type Target = [Peer];

    fn deref(&self) -> &[Peer] {
        &self.list
    }
}

impl DerefMut for Peers {
    fn deref_mut(&mut self) -> &mut [Peer] {
        &mut self.list
    }
}

impl<'a> IntoIterator for &'a Peers {
    type Item = &'a Peer;
    type IntoIter = core::slice::Iter<'a, Peer>;

    fn into_iter(self) -> Self::IntoIter {
        self.list.iter()
    }
}

impl<'a> IntoIterator for &'a mut Peers {
    type Item = &'a mut Peer;
    type IntoIter = core::slice::IterMut<'a, Peer>;

    fn into_iter(self) -> Self::IntoIter {
        self.list.iter_mut()
    }
}
