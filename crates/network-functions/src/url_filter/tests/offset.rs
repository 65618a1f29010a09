//! Segments whose stream begins elsewhere.

use super::*;
use crate::inspect::assembly::ASSEMBLY_BYTES_MAX;

#[test]
fn a_segment_beyond_what_is_read_is_undecided_if_the_handshake_was_at_another_node() {
    for offset in [1, ASSEMBLY_BYTES_MAX - 1, ASSEMBLY_BYTES_MAX, ASSEMBLY_BYTES_MAX + 1, 60_000] {
        let mut talk = Talk::web(rule());
        let is_within = offset < ASSEMBLY_BYTES_MAX;
        let offset = u32::try_from(offset).expect("some thousand");
        let verdict = talk.send(Direction::Original, tcp_flags::ACK, offset, b"x").verdict;
        let expected = if is_within { Verdict::Forward } else { Verdict::Drop(DropReason::UrlUnreadable) };
        assert_eq!((verdict, talk.phase()), (expected, Phase::Reading), "offset {offset}");

        let mut talk = Talk::web(rule());
        talk.fail_over();
        let verdict = talk.send(Direction::Original, tcp_flags::ACK, offset, b"x").verdict;
        let expected = if is_within { Phase::Reading } else { Phase::Allowed };
        assert_eq!((verdict, talk.phase()), (Verdict::Forward, expected), "offset {offset}");
        assert_eq!(talk.gateway.counter("url_filter.undecided"), u64::from(!is_within), "offset {offset}");
    }
}
