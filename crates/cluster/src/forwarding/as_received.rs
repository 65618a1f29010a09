//! A packet as it came in.

use flow::Tuple;
use flow::wire::{Packet, TcpHeader};

/// What functions have changed of a packet, as it came in: an error about it quotes this.
#[derive(Clone, Copy, Debug)]
pub struct AsReceived {
    /// Its tuple.
    pub tuple: Tuple,
    /// Its TCP header, before the tuple is put back; `None` if no function has changed it otherwise.
    pub tcp_header: Option<TcpHeader>,
}

impl From<Tuple> for AsReceived {
    fn from(tuple: Tuple) -> Self {
        Self { tuple, tcp_header: None }
    }
}

impl AsReceived {
    pub(super) fn restore(&self, packet: &mut Packet<'_, '_>) {
        if let Some(header) = &self.tcp_header {
            packet.set_tcp_header(header);
        }
        if packet.headers.tuple != self.tuple {
            packet.rewrite(&self.tuple);
        }
    }
}
