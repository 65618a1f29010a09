//! The whole table, as a text to review, and the flags of every possible segment.

use std::fmt::Write as _;

use super::super::automaton::{are_valid_flags, step};
use super::*;

#[test]
fn every_state_direction_and_kind_is_as_reviewed() {
    let mut table = String::new();
    for state in TcpState::ALL {
        for direction in [Direction::Original, Direction::Reply] {
            write!(table, "{:<11} {:<8}", state.name(), format!("{direction:?}")).unwrap();
            for kind in Kind::ALL {
                let step = match step(state, direction, kind) {
                    Step::To(next) => next.name(),
                    Step::Ignore => "ignore",
                    Step::Invalid => "-",
                };
                write!(table, " {:<11}", step).unwrap();
            }
            table.truncate(table.trim_end().len());
            table.push('\n');
        }
    }
    let golden = include_str!("automaton.golden.txt");
    let reviewed: String = golden.lines().filter(|line| !line.starts_with('#')).flat_map(|line| [line, "\n"]).collect();
    assert_eq!(table, reviewed, "the table changed:\n{table}");
}

#[test]
fn every_state_has_its_number_in_linux_and_conntrackd() {
    for (number, state) in TcpState::ALL.into_iter().enumerate() {
        assert_eq!(state as usize, number);
        assert_eq!(TcpState::from_u8(number as u8), Some(state));
    }
    assert!((10..=u8::MAX).all(|number| TcpState::from_u8(number).is_none()));
}

/// RFC 9293 section 3.5.2 and 3.10: SYN, FIN and RST exclude each other, and all but SYN and RST carry ACK.
#[test]
fn only_flags_that_a_stack_sends_are_valid() {
    for flags in 0..=u8::MAX {
        let has = |flag: u8| flags & flag != 0;
        let (syn, fin, rst) = (has(tcp_flags::SYN), has(tcp_flags::FIN), has(tcp_flags::RST));
        let (ack, urg) = (has(tcp_flags::ACK), has(tcp_flags::URG));
        let at_most_one = u8::from(syn) + u8::from(fin) + u8::from(rst) <= 1;
        let urgent_where_data_may_be = !urg || !(rst || syn && ack);
        let expected = at_most_one && (ack || syn || rst) && urgent_where_data_may_be;
        assert_eq!(are_valid_flags(flags), expected, "flags {flags:#04x}");
    }
}

#[test]
fn segments_with_flags_that_no_stack_sends_are_dropped_in_every_state() {
    for flags in ["0", "SYN/FIN", "FIN", "SYN/RST", "URG", "PSH", "FIN/SYN/RST/ACK/URG/PSH"] {
        play(&[&format!("> {flags} : invalid_tcp_flags none")]);
        play(&[HANDSHAKE, &format!("> {flags} : invalid_tcp_flags ESTABLISHED\n < {flags} : invalid_tcp_flags")]);
    }
}
