//! Datagrams of the encrypted channel between nodes.

use flow::Instant;
use replication::secure::{Channel, Content};

use super::operation::{Made, Operation};
use crate::bench::BenchError;
use crate::bench::encryption::cipher;

/// Content of the largest datagram in an Ethernet frame.
const CONTENT_BYTES: usize = 1439;
const DATAGRAMS: usize = 256;
const NOW: Instant = Instant::from_millis(2);

#[derive(Clone, Copy, PartialEq)]
enum Part {
    Seal,
    Open,
}

struct Sealed {
    channels: [Channel; 2],
    datagrams: Vec<Vec<u8>>,
    content: Vec<u8>,
    part: Part,
}

impl Sealed {
    fn operation(part: Part) -> Made {
        let mut channels = cipher::channels(0);
        cipher::shake_hands(&mut channels);
        let datagrams = (0..DATAGRAMS).map(|_| Vec::with_capacity(2048)).collect();
        Ok(Some(Box::new(Self { channels, datagrams, content: Vec::with_capacity(2048), part })))
    }

    fn seal(&mut self) -> Result<(), BenchError> {
        for datagram in &mut self.datagrams {
            self.content.clear();
            self.content.resize(CONTENT_BYTES, 0x5a);
            if !self.channels[0].seal(NOW, Content::Replication, &mut self.content, datagram) {
                return Err(BenchError::NotSynchronised);
            }
        }
        Ok(())
    }

    fn open(&mut self) -> Result<(), BenchError> {
        for datagram in &self.datagrams {
            let opened = self.channels[1].handle_datagram(NOW, datagram, &mut self.content);
            if opened != Ok(Some(Content::Replication)) {
                return Err(BenchError::NotSynchronised);
            }
        }
        Ok(())
    }
}

impl Operation for Sealed {
    fn times(&self) -> u64 {
        DATAGRAMS as u64
    }

    fn prepare(&mut self) -> Result<(), BenchError> {
        if self.part == Part::Open { self.seal() } else { Ok(()) }
    }

    fn run(&mut self) -> Result<(), BenchError> {
        if self.part == Part::Seal { self.seal() } else { self.open() }
    }
}

pub(super) fn seal() -> Made {
    Sealed::operation(Part::Seal)
}

pub(super) fn open() -> Made {
    Sealed::operation(Part::Open)
}
