//! Capture files.

use packet_io::pcap::{PcapReader, SNAPSHOT_BYTES_MAX};

/// One file.
pub fn run(data: &[u8]) {
    let Ok(mut reader) = PcapReader::new(data) else { return };
    let mut frame = Vec::new();
    let mut total = 0;
    while let Ok(Some(_)) = reader.read(&mut frame) {
        assert!(frame.len() <= SNAPSHOT_BYTES_MAX as usize);
        total += frame.len();
        assert!(total <= data.len(), "a file does not hold more than it has bytes");
    }
}
