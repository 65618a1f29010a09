//! A link with an encoder at either end.

use redundancy::{Encoder, EncoderConfig, Period, SampleTable, Sampling, Trust, Window};

use super::options::Codec;
use super::packet::{Packet, SiteDirection};

/// The study's encoders hide nothing, and their result are to be the same each time.
const KEY: [u64; 2] = [0x243f_6a88_85a3_08d3, 0x1319_8a2e_0370_7344];

/// Encoders of both ways, made when the first packet goes that way.
#[derive(Debug)]
pub(super) struct Link {
    codec: Codec,
    skips_encrypted: bool,
    encoders: [Option<Box<Encoder>>; 2],
    tables: [SampleTable; 2],
    wire: Vec<u8>,
}

impl Link {
    pub(super) const fn new(codec: Codec, skips_encrypted: bool) -> Self {
        Self {
            codec,
            skips_encrypted,
            encoders: [const { None }; 2],
            tables: [SampleTable::PAPER; 2],
            wire: Vec::new(),
        }
    }

    /// Encodes a packet. Returns the bytes that go over the link for its payload, and how many are saved.
    pub(super) fn encode<'a>(&'a mut self, packet: &Packet, payload: &'a [u8]) -> (&'a [u8], i64) {
        let is_left_out = packet.is_left_out(self.skips_encrypted);
        let Self { codec, encoders, tables, wire, .. } = self;
        let slot = &mut encoders[packet.way as usize];
        if slot.is_none() && !is_left_out {
            *slot = encoder(codec, tables[packet.way as usize]).map(Box::new);
        }
        match slot {
            Some(encoder) if !is_left_out => {
                let sent: &[u8] = if encoder.encode_block(payload, wire).has_shim() { wire } else { payload };
                (sent, payload.len() as i64 - sent.len() as i64)
            }
            _ => (payload, 0),
        }
    }

    /// SAMPLEBYTE's table of a way on which nothing was encoded yet.
    pub(super) const fn set_table(&mut self, way: SiteDirection, table: SampleTable) {
        self.tables[way as usize] = table;
    }

    /// The encoder that encoded last on this way.
    pub(super) fn encoder(&self, way: SiteDirection) -> Option<&Encoder> {
        self.encoders[way as usize].as_deref()
    }
}

/// Sizes out of bounds have been refused before; what would be out of bounds all the same saves nothing.
pub(super) fn sampling(codec: &Codec) -> Option<Sampling> {
    let window = Window::new(codec.window_bytes).ok()?;
    let period = Period::new(codec.period_bytes).ok()?;
    Some(Sampling { method: codec.method(), window, period, ..Sampling::default() })
}

fn encoder(codec: &Codec, table: SampleTable) -> Option<Encoder> {
    let sampling = Sampling { table, ..sampling(codec)? };
    Encoder::open_at_once(EncoderConfig {
        cache_bytes: codec.cache_bytes,
        sampling,
        matcher: codec.matcher(),
        trust: Trust::Sent,
        flows_max: 1,
        epoch: 1,
        key: KEY,
        // As in the tunnel between gateways.
        caches_plain: true,
    })
    .ok()
}
