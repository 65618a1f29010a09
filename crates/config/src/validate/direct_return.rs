//! `[[service]]` with `mode = "direct_return"`: the tunnel to its backends, and what it cannot do.

use flow::wire::{Encapsulation, GUE_PORT_DEFAULT, ip_protocol};
use network_functions::address::Prefix;
use network_functions::load_balancer::{Mode, OnFailure, ServiceConfig};
use network_functions::port_range::PortRange;
use network_functions::syn_proxy::{Mode as SynProxyMode, RuleConfig};
use toml::Spanned;

use super::super::diagnostic::{Diagnostics, Mistake};
use super::super::raw::RawService;
use super::super::validated::{Config, Function, Service};
use super::common::{choice, within};

const ENCAPSULATIONS: [(&str, Wrapping); 2] = [("ipip", Wrapping::IpIp), ("gue", Wrapping::Gue)];

/// How packets are wrapped in a tunnel.
#[derive(Clone, Copy, PartialEq, Eq, Default)]
enum Wrapping {
    #[default]
    IpIp,
    Gue,
}

/// The defaults and ranges of keys, for a file without services.
pub(super) fn describe(diagnostics: &mut Diagnostics<'_>) {
    choice("service.encapsulation", None, &ENCAPSULATIONS, diagnostics);
    within("service.gue_port", None, GUE_PORT_DEFAULT, 1..=u16::MAX, diagnostics);
}

/// The tunnel to the backends, whose keys only direct return has.
pub(super) fn encapsulation(raw: &RawService, is_direct: bool, diagnostics: &mut Diagnostics<'_>) -> Encapsulation {
    let wrapping = choice("service.encapsulation", raw.encapsulation.as_ref(), &ENCAPSULATIONS, diagnostics);
    let port = within("service.gue_port", raw.gue_port.as_ref(), GUE_PORT_DEFAULT, 1..=u16::MAX, diagnostics);
    if let Some(text) = raw.encapsulation.as_ref().filter(|_| !is_direct) {
        let mistake = Mistake::new(
            "packets are translated, and reach backends without a tunnel",
            "write mode = \"direct_return\" or leave out encapsulation",
        );
        diagnostics.error(text.span(), "service.encapsulation", mistake);
    }
    let is_gue = is_direct && wrapping == Wrapping::Gue;
    if let Some(written) = raw.gue_port.as_ref().filter(|_| !is_gue) {
        let mistake = Mistake::new(
            "the port is that of a tunnel in UDP, and there is none",
            "write mode = \"direct_return\" and encapsulation = \"gue\", or leave out gue_port",
        );
        diagnostics.error(written.span(), "service.gue_port", mistake);
    }
    match wrapping {
        Wrapping::IpIp => Encapsulation::IpIp,
        Wrapping::Gue => Encapsulation::Gue { port },
    }
}

/// What a tunnel to backends cannot do.
pub(super) fn check_tunnels(raw: &RawService, service: &ServiceConfig, diagnostics: &mut Diagnostics<'_>) {
    for (written, backend) in raw.backend.iter().map(Spanned::get_ref).zip(&service.backends) {
        let remedy = "leave out the port: the backend listens on the port that the client connects to";
        if backend.port.is_some() {
            let mistake = Mistake::new("packets keep their port on the way through a tunnel", remedy);
            diagnostics.error(written.address.span(), "service.backend.address", mistake);
        }
        if backend.address == service.address {
            let mistake = Mistake::new(
                "the tunnel would lead to the service's own address",
                "write another address of the backend, which has the service's address beside it",
            );
            diagnostics.error(written.address.span(), "service.backend.address", mistake);
        }
    }
    if service.protocol == ip_protocol::SCTP {
        let mistake = Mistake::new(
            "an SCTP association cannot be followed by the packets of one side",
            "write mode = \"nat\" or mode = \"full-nat\"",
        );
        diagnostics.error(raw.protocol.span(), "service.protocol", mistake);
    }
    if let (ip_protocol::TCP, OnFailure::End, Some(text)) = (service.protocol, service.on_failure, &raw.on_failure) {
        let mistake = Mistake::new(
            "the gateway does not see what the backend sends, so it cannot reset the connections of a failed one",
            "write on_failure = \"keep\", or mode = \"nat\"",
        );
        diagnostics.error(text.span(), "service.on_failure", mistake);
    }
}

/// Functions that answer in place of servers need what the servers answer.
pub(super) fn check_functions(raw: &[Spanned<RawService>], config: &Config, diagnostics: &mut Diagnostics<'_>) {
    let is_direct = |service: &&Service| matches!(service.config.mode, Mode::DirectReturn(_));
    for service in config.services.iter().filter(is_direct) {
        let written = raw.iter().map(Spanned::get_ref).find(|raw| *raw.name.get_ref() == service.config.name);
        let Some(text) = written.and_then(|raw| raw.mode.as_ref()) else { continue };
        let is_tcp = service.config.protocol == ip_protocol::TCP;
        let proxied = config.syn_proxy.rules.iter().find(|rule| is_tcp && concerns(rule, &service.config));
        if let Some(rule) = proxied {
            let mistake = Mistake::new(
                format!(
                    "the SYN proxy's rule {:?} is for the service, too, and needs the backend's answers",
                    rule.name
                ),
                "write mode = \"nat\", or exclude the service by the rule's destination or ports",
            );
            diagnostics.error(text.span(), "service.mode", mistake);
        }
        if config.chain.contains(&Function::UrlFilter) {
            let mistake = Mistake::new(
                "the URL filter resets servers, and needs what they answer",
                "write mode = \"nat\", or leave \"url_filter\" out of the chain",
            );
            diagnostics.error(text.span(), "service.mode", mistake);
        }
    }
}

/// Whether a rule of the SYN proxy can be on for connections to the service.
fn concerns(rule: &RuleConfig, service: &ServiceConfig) -> bool {
    let is_within = |prefix: &Prefix| prefix.contains(&service.address);
    let meet = |a: &PortRange, b: &PortRange| a.first() <= b.last() && b.first() <= a.last();
    let of_ports = rule.ports.is_empty()
        || service.ports.is_empty()
        || rule.ports.iter().any(|range| service.ports.iter().any(|other| meet(range, other)));
    rule.mode != SynProxyMode::Off
        && of_ports
        && (rule.destinations.is_empty() || rule.destinations.iter().any(is_within))
}
