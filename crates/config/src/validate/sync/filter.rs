//! `[filter]`.

use flow::netfilter::TcpState;
use toml::Spanned;

use super::super::super::diagnostic::{Diagnostics, Mistake};
use super::super::super::raw::Text;
use super::super::super::raw::sync::{RawFilter, RawIgnore};
use super::super::super::validated::sync::{Filter, Ignore, Mark, Others, TCP_STATES_DEFAULT};
use super::super::super::value;
use super::super::common::choice;
use super::super::{parsed, parsed_list};

/// Entries of `[[filter.ignore]]` at most: each connection is held against all of them.
const IGNORE_MAX: usize = 256;
const TCP: u8 = 6;

/// Beside a conntrackd (`is_beside_conntrackd`), connections of other protocols than TCP are replicated from their first packet on, as
/// conntrackd does.
pub(super) fn filter(raw: &RawFilter, is_beside_conntrackd: bool, diagnostics: &mut Diagnostics<'_>) -> Filter {
    let others = choice("filter.others", raw.others.as_ref(), &Others::ALL, diagnostics);
    let others = if raw.others.is_none() && is_beside_conntrackd { Others::Begun } else { others };
    let tcp_states = raw.tcp_states.as_ref().map(|list| {
        check_not_empty("filter.tcp_states", list, "name the states that are replicated, or remove it", diagnostics);
        states("filter.tcp_states", list.get_ref(), diagnostics)
    });
    let protocols = raw.protocols.as_ref().map(|list| {
        check_not_empty("filter.protocols", list, "name the protocols that are replicated, or remove it", diagnostics);
        parsed_list("filter.protocols", list.get_ref(), value::protocol, diagnostics)
    });
    let addresses = raw.addresses.as_ref().map(|list| {
        check_not_empty(
            "filter.addresses",
            list,
            "name the networks whose connections are replicated, or remove it",
            diagnostics,
        );
        parsed_list("filter.addresses", list.get_ref(), |text| value::network(text), diagnostics)
    });
    if let Some(excess) = raw.ignore.get(IGNORE_MAX) {
        let mistake = Mistake::new(
            format!("there are more than {IGNORE_MAX} entries, and every connection is held against all of them"),
            "put addresses together in one entry",
        );
        diagnostics.error(excess.span(), "[[filter.ignore]]", mistake);
    }
    Filter {
        tcp_states: tcp_states.unwrap_or_else(|| TCP_STATES_DEFAULT.to_vec()),
        others,
        protocols,
        addresses,
        ignore: raw.ignore.iter().map(|entry| ignore(entry, diagnostics)).collect(),
    }
}

/// A list that is there but empty would let nothing through, which cannot be intended.
fn check_not_empty<T>(subject: &str, list: &Spanned<Vec<T>>, remedy: &str, diagnostics: &mut Diagnostics<'_>) {
    if list.get_ref().is_empty() {
        diagnostics.error(list.span(), subject, Mistake::new("the list is empty: nothing would be replicated", remedy));
    }
}

fn ignore(entry: &Spanned<RawIgnore>, diagnostics: &mut Diagnostics<'_>) -> Ignore {
    const SUBJECT: &str = "[[filter.ignore]]";
    let raw = entry.get_ref();
    let protocol = raw.protocol.as_ref();
    let protocol_number = protocol.and_then(|written| {
        let number = value::protocol(written.get_ref());
        number.map_err(|mistake| diagnostics.error(written.span(), SUBJECT, mistake)).ok()
    });
    if let Some(state) = raw.states.first().filter(|_| protocol_number.is_some_and(|number| number != TCP)) {
        let mistake = Mistake::new("only TCP has these states", "write protocol = \"tcp\", or remove either");
        diagnostics.error(state.span(), SUBJECT, mistake);
    }
    let has_condition = !raw.addresses.is_empty()
        || protocol.is_some()
        || !raw.states.is_empty()
        || raw.mark.is_some()
        || raw.zone.is_some();
    if !has_condition {
        let mistake = Mistake::new(
            "it has no condition, so that nothing would be replicated",
            "add addresses, protocol, states, mark or zone",
        );
        diagnostics.error(entry.span(), SUBJECT, mistake);
    }
    Ignore {
        addresses: parsed_list(SUBJECT, &raw.addresses, |text| value::network(text), diagnostics),
        protocol: protocol_number,
        states: states(SUBJECT, &raw.states, diagnostics),
        mark: raw.mark.as_ref().and_then(|text| parsed(SUBJECT, text, mark, diagnostics)),
        zone: raw.zone.as_ref().map(|zone| *zone.get_ref()),
    }
}

/// A state, as the file spells it.
fn state(text: &str) -> Result<TcpState, Mistake> {
    let found = TcpState::ALL.into_iter().find(|state| state.name().eq_ignore_ascii_case(text));
    found.filter(|state| *state != TcpState::None).ok_or_else(|| {
        let names: Vec<_> = TcpState::ALL[1..].iter().map(|state| state.name().to_ascii_lowercase()).collect();
        Mistake::new(format!("{text:?} is not a state of TCP"), format!("write one of {}", names.join(", ")))
    })
}

fn states(subject: &str, list: &[Text], diagnostics: &mut Diagnostics<'_>) -> Vec<TcpState> {
    parsed_list(subject, list, |text| state(text), diagnostics)
}

/// `0x1/0xff`: a mark and which of its bits count; without the mask, all of them.
fn mark(text: &str) -> Result<Mark, Mistake> {
    let number = |text: &str| {
        let text = text.trim();
        text.strip_prefix("0x").map_or_else(|| text.parse().ok(), |digits| u32::from_str_radix(digits, 16).ok())
    };
    let (value, mask) = text.split_once('/').map_or((text, None), |(value, mask)| (value, Some(mask)));
    let (Some(value), Some(mask)) = (number(value), mask.map_or(Some(u32::MAX), number)) else {
        return Err(Mistake::new(
            format!("{text:?} is not a mark"),
            "write one like \"0x1/0xff\": the mark, and the bits that count",
        ));
    };
    if value & !mask != 0 {
        return Err(Mistake::new(
            format!("{text:?} has bits set that the mask does not count: no connection would match"),
            format!("write \"{:#x}/{mask:#x}\", or widen the mask", value & mask),
        ));
    }
    Ok(Mark { value, mask })
}
