//! Source translations that are computed: `mapping` and `block_ports` of `[[nat.source]]`, `mapping_key` of `[nat]`.

use std::path::PathBuf;

use network_functions::load_balancer::Mode;
use network_functions::nat::{Algorithm, BLOCK_PORTS_MIN, ENDPOINT_ADDRESSES_MAX, Mapping, MappingKey};
use network_functions::port_range::PortRange;
use toml::Spanned;

use super::super::diagnostic::{Diagnostics, Mistake};
use super::super::raw::{RawConfig, RawNat, RawSourceNat};
use super::super::validated::{Config, NatMapping, SourceNat};
use super::common::quoted;
use super::one_of;

const SUBJECT: &str = "nat.source";

/// How a rule chooses the outside address and port.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Kind {
    Dynamic,
    EndpointIndependent,
    Computed { is_keyed: bool },
}

const MAPPINGS: [(&str, Kind); 4] = [
    ("dynamic", Kind::Dynamic),
    ("endpoint-independent", Kind::EndpointIndependent),
    ("deterministic", Kind::Computed { is_keyed: false }),
    ("deterministic-keyed", Kind::Computed { is_keyed: true }),
];

/// The mapping of a rule, if it is computed, and whether it is endpoint-independent.
pub(super) fn mapping(raw: &RawSourceNat, diagnostics: &mut Diagnostics<'_>) -> (Option<NatMapping>, bool) {
    diagnostics.describe("nat.source.mapping", Some(format!("{:?}", MAPPINGS[0].0)), quoted(&MAPPINGS));
    let kind = raw.mapping.as_ref().and_then(|text| one_of("nat.source.mapping", text, &MAPPINGS, diagnostics));
    let chosen = match kind {
        Some(Kind::Computed { is_keyed }) => Some(is_keyed),
        Some(Kind::Dynamic | Kind::EndpointIndependent) | None => None,
    };
    let block_ports = raw.block_ports.as_ref();
    if let (None, Some(written)) = (chosen, block_ports) {
        let mistake = Mistake::new(
            "ports are given out in blocks only where the mapping is computed",
            "add mapping = \"deterministic\", or remove it",
        );
        diagnostics.error(written.span(), "nat.source.block_ports", mistake);
    }
    if let Some(written) = block_ports.filter(|written| *written.get_ref() < BLOCK_PORTS_MIN) {
        let mistake = Mistake::new(
            format!("blocks of {} ports are too small", written.get_ref()),
            format!("write {BLOCK_PORTS_MIN} or more, and add outside addresses if they do not suffice"),
        );
        diagnostics.error(written.span(), "nat.source.block_ports", mistake);
    }
    let block_ports = block_ports.map(|written| *written.get_ref());
    (chosen.map(|is_keyed| NatMapping { is_keyed, block_ports }), kind == Some(Kind::EndpointIndependent))
}

/// Finds endpoint-independent mappings that the nodes or the other functions would break.
pub(super) fn check_endpoints(raw: &RawConfig, config: &Config, diagnostics: &mut Diagnostics<'_>) {
    let Some(raw) = raw.nat.as_ref().map(Spanned::get_ref) else { return };
    let written = raw.source.iter().zip(&config.source_nat).filter(|(_, rule)| rule.is_endpoint_independent);
    let mut addresses = 0;
    for (written, rule) in written {
        let span = || written.get_ref().mapping.as_ref().map_or_else(|| written.span(), Spanned::span);
        if config.cluster.as_ref().is_some_and(|cluster| cluster.replication.backups.is_some()) {
            let mistake = Mistake::new(
                "with [replication.backups], an inside host's connections lie on several nodes, none of which knows all of its mappings",
                "write mapping = \"deterministic\", which all nodes compute alike, or remove [replication.backups]",
            );
            diagnostics.error(span(), "nat.source.mapping", mistake);
        }
        let sources = config.services.iter().filter_map(|service| match &service.config.mode {
            Mode::FullNat(sources) => Some(sources),
            Mode::Nat | Mode::DirectReturn(_) => None,
        });
        if let Some(shared) = sources.flatten().find(|address| rule.to.contains(address)) {
            let mistake = Mistake::new(
                format!("the source of a service is {shared}, too, and would take ports of mappings"),
                "give the service another shared address as its source",
            );
            diagnostics.error(written.get_ref().to.span(), SUBJECT, mistake);
        }
        addresses += rule.to.len();
        if addresses > ENDPOINT_ADDRESSES_MAX {
            let mistake = Mistake::new(
                format!("endpoint-independent mappings to more than {ENDPOINT_ADDRESSES_MAX} addresses"),
                "translate to fewer: each has 64,512 ports for each protocol",
            );
            diagnostics.error(written.get_ref().to.span(), SUBJECT, mistake);
            return;
        }
    }
}

/// Finds mappings that cannot be computed, and the file of their secret.
pub(super) fn check(
    raw: Option<&RawNat>,
    rules: &[SourceNat],
    ports: PortRange,
    diagnostics: &mut Diagnostics<'_>,
) -> Option<PathBuf> {
    let raw = raw?;
    for (written, rule) in raw.source.iter().zip(rules) {
        // Blocks that are too small have their diagnostic already.
        let is_too_small = |mapping: NatMapping| mapping.block_ports.is_some_and(|ports| ports < BLOCK_PORTS_MIN);
        let is_computed = rule.mapping.is_some_and(|mapping| !is_too_small(mapping));
        if is_computed && !rule.to.is_empty() && !rule.source.is_empty() {
            check_rule(written, rule, ports, diagnostics);
        }
    }
    check_shared(raw, rules, diagnostics);
    let keyed = raw.source.iter().zip(rules).find(|(_, rule)| rule.mapping.is_some_and(|mapping| mapping.is_keyed));
    match (&raw.mapping_key, keyed) {
        (None, Some((written, _))) => {
            let mistake = Mistake::new(
                "the mapping is keyed, and there is no key",
                "write mapping_key = \"/etc/mainstay/nat.key\" in [nat]; `mainstay key` makes one, which all nodes need",
            );
            diagnostics.error(written.span(), SUBJECT, mistake);
        }
        (Some(text), None) => {
            let mistake = Mistake::new("no mapping is keyed", "remove it, or write mapping = \"deterministic-keyed\"");
            diagnostics.error(text.span(), "nat.mapping_key", mistake);
        }
        _ => {}
    }
    raw.mapping_key.as_ref().map(|text| PathBuf::from(text.get_ref()))
}

fn check_rule(written: &Spanned<RawSourceNat>, rule: &SourceNat, ports: PortRange, diagnostics: &mut Diagnostics<'_>) {
    if let Err(problem) = formula(rule, ports) {
        // The text behind a colon is the remedy.
        let (what, remedy) = problem.split_once(": ").unwrap_or((&problem, "change sources or addresses"));
        diagnostics.error(written.span(), SUBJECT, Mistake::new(what, remedy));
    }
}

/// How to find the host behind an outside address and port of a rule that computes its mapping.
///
/// # Errors
/// It cannot be computed; why.
fn formula(rule: &SourceNat, ports: PortRange) -> Result<String, String> {
    let Some(NatMapping { is_keyed, block_ports }) = rule.mapping else { return Ok(String::new()) };
    // The formula does not depend on the secret.
    let algorithm = if is_keyed { Algorithm::Keyed(MappingKey([0; 2])) } else { Algorithm::Sequential };
    Mapping { algorithm, block_ports }.formula(&rule.source, &rule.to, ports).map_err(|error| error.to_string())
}

/// The formulas of the rules that compute their mapping, with the rules' indices.
pub fn formulas(config: &Config) -> Vec<(usize, String)> {
    let computed = config.source_nat.iter().enumerate().filter(|(_, rule)| rule.mapping.is_some());
    computed.filter_map(|(index, rule)| Some((index, formula(rule, config.nat_ports).ok()?))).collect()
}

/// A port outside that is computed belongs to one host: no other rule may take it.
fn check_shared(raw: &RawNat, rules: &[SourceNat], diagnostics: &mut Diagnostics<'_>) {
    for (index, (written, rule)) in raw.source.iter().zip(rules).enumerate() {
        let shares = |other: &SourceNat| {
            let is_exclusive = |rule: &SourceNat| rule.mapping.is_some() || rule.is_endpoint_independent;
            (is_exclusive(rule) || is_exclusive(other)) && other.to.iter().any(|address| rule.to.contains(address))
        };
        if rules[..index].iter().any(shares) {
            let mistake = Mistake::new(
                "an earlier rule translates to the same address, and at least one of the two computes its mapping or has one for each end point",
                "give each addresses of its own, or merge their sources into one rule",
            );
            diagnostics.error(written.get_ref().to.span(), SUBJECT, mistake);
        }
    }
}
