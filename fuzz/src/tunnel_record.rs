//! Records of the tunnel between two sites, out of whatever pieces.

use tunnel::limits::RECORD_BYTES_MAX;
use tunnel::record::{Reassembly, Record};

/// Bodies of datagrams: each is a byte of what is done, its length, and it.
pub fn run(data: &[u8]) {
    let mut reassembly = Reassembly::default();
    let mut rest = data;
    while let Some(([what, length], after)) = rest.split_first_chunk::<2>() {
        let (body, after) = after.split_at(after.len().min(usize::from(*length)));
        rest = after;
        if what & 1 == 1 {
            reassembly.tear();
        }
        let first_record = (what & 2 == 2).then_some(u16::from(what >> 2));
        reassembly.handle_body(first_record, body);
        while let Some(record) = reassembly.poll() {
            check(&record);
        }
    }
    let mut bytes = data;
    while let Some(record) = Record::take(&mut bytes) {
        check(&record);
    }
}

/// What was read can be written, and is then read as it was.
fn check(record: &Record<'_>) {
    let mut written = Vec::new();
    record.write(&mut written);
    // Its kind and the length of its body come before it.
    assert!(written.len() <= RECORD_BYTES_MAX + 4);
    assert_eq!(Record::take(&mut &written[..]).as_ref(), Some(record));
}
