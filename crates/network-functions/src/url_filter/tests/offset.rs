//! Where the filter stops waiting for a client's first bytes.

use super::*;
use crate::inspect::assembly::ASSEMBLY_BYTES_MAX;

#[test]
fn a_segment_beyond_what_is_read_ends_the_wait_and_one_before_it_does_not() {
    for (offset, expected) in [(1, Phase::Reading), (ASSEMBLY_BYTES_MAX - 1, Phase::Reading)] {
        let mut talk = Talk::web(rule());
        let offset = u32::try_from(offset).expect("some thousand");
        talk.send(Direction::Original, tcp_flags::ACK, offset, b"x");
        assert_eq!(talk.phase(), expected, "offset {offset}");
    }
    for offset in [ASSEMBLY_BYTES_MAX, ASSEMBLY_BYTES_MAX + 1, 60_000] {
        let mut talk = Talk::web(rule());
        let offset = u32::try_from(offset).expect("some thousand");
        talk.send(Direction::Original, tcp_flags::ACK, offset, b"x");
        assert_ne!(talk.phase(), Phase::Reading, "offset {offset}: its first bytes will not be read");
        let undecided = talk.gateway.counter("url_filter.undecided");
        assert_eq!(undecided, 1, "offset {offset}");
    }
}
