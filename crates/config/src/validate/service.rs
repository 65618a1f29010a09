//! `[[service]]`.

use std::net::IpAddr;
use std::ops::RangeInclusive;
use std::path::Path;
use std::time::Duration;

use network_functions::load_balancer::{
    Affinity, BACKENDS_MAX, BackendConfig, Mode, OnFailure, SERVICES_MAX, SOURCES_MAX, Scheduler, ServiceConfig,
    WEIGHT_MAX, service_id,
};
use network_functions::port_range::PortRange;
use toml::Spanned;

use super::super::diagnostic::{Diagnostics, Mistake, Text};
use super::super::raw::{RawCheck, RawService, RawServiceBackend};
use super::super::validated::{CheckKind, DestinationNat, HealthCheck, Port, Service};
use super::super::value;
use super::common::{absolute_path, choice, flag, ranged, within};
use super::direct_return;
use super::firewall::port_ranges;
use super::nat::{server, warn_if_nobody_answers};
use super::quic;
use super::{family_name, named, parsed};

const SCHEDULERS: [(&str, Scheduler); 2] =
    [("maglev", Scheduler::Maglev), ("least-connections", Scheduler::LeastConnections)];
const AFFINITIES: [(&str, Affinity); 2] = [("connection", Affinity::Connection), ("source", Affinity::Source)];
const ON_FAILURE: [(&str, OnFailure); 2] = [("keep", OnFailure::Keep), ("end", OnFailure::End)];
const MODES: [(&str, Translation); 3] =
    [("nat", Translation::Destination), ("full-nat", Translation::Both), ("direct_return", Translation::None)];

/// What is translated of packets to a backend.
#[derive(Clone, Copy, PartialEq, Eq, Default)]
enum Translation {
    #[default]
    Destination,
    Both,
    /// Nothing: a tunnel leads to the backend.
    None,
}

const WEIGHT_DEFAULT: u8 = 1;
const INTERVAL: RangeInclusive<Duration> = Duration::from_millis(100)..=Duration::from_secs(3600);
const INTERVAL_DEFAULT: Duration = Duration::from_secs(2);
const TIMEOUT: RangeInclusive<Duration> = Duration::from_millis(10)..=Duration::from_secs(60);
const TIMEOUT_DEFAULT: Duration = Duration::from_secs(1);
const RISE_DEFAULT: u8 = 2;
const FALL_DEFAULT: u8 = 3;
const PATH_BYTES_MAX: usize = 1024;
const JITTER_PERCENT_DEFAULT: u8 = 10;
const JITTER_PERCENT_MAX: u8 = 50;
const SLOW_START: RangeInclusive<Duration> = Duration::ZERO..=Duration::from_secs(3600);
/// A program and its arguments, and the bytes of each.
const COMMAND_WORDS_MAX: usize = 32;
const WORD_BYTES_MAX: usize = 1024;

/// The services, none of which matches a packet of another one or of a forwarded port.
pub(super) fn services(
    raw: &[Spanned<RawService>],
    (ports, forwarded): (&[Port], &[DestinationNat]),
    diagnostics: &mut Diagnostics<'_>,
) -> Vec<Service> {
    describe(diagnostics);
    if let Some(beyond) = raw.get(SERVICES_MAX) {
        let mistake = Mistake::new(
            format!("there are more than {SERVICES_MAX} services"),
            "merge services of one address by listing their ports, or divide them between two clusters",
        );
        diagnostics.error(beyond.span(), "[[service]]", mistake);
    }
    let mut services: Vec<Service> = Vec::new();
    for written in raw.iter().take(SERVICES_MAX) {
        let Some(service) = service(written, ports, diagnostics) else { continue };
        check_others(written, &service.config, (&services, forwarded), diagnostics);
        services.push(service);
    }
    services
}

/// The defaults and ranges of keys, for a file without services.
fn describe(diagnostics: &mut Diagnostics<'_>) {
    choice("service.scheduler", None, &SCHEDULERS, diagnostics);
    choice("service.affinity", None, &AFFINITIES, diagnostics);
    choice("service.mode", None, &MODES, diagnostics);
    direct_return::describe(diagnostics);
    quic::describe(diagnostics);
    choice("service.on_failure", None, &ON_FAILURE, diagnostics);
    slow_start(None, diagnostics);
    within("service.backend.weight", None, WEIGHT_DEFAULT, 0..=WEIGHT_MAX, diagnostics);
    times(None, diagnostics);
    flag("service.check.verify", None, true, diagnostics);
    diagnostics.describe("service.check.path", Some("\"/\"".to_owned()), path_range());
}

fn service(written: &Spanned<RawService>, ports: &[Port], diagnostics: &mut Diagnostics<'_>) -> Option<Service> {
    let raw = written.get_ref();
    let name = named("service.name", &raw.name, diagnostics);
    let address = parsed("service.address", &raw.address, value::address, diagnostics);
    if let Some(address) = address {
        warn_if_nobody_answers("service.address", address, raw.address.span(), ports, diagnostics);
    }
    let protocol = protocol(raw, diagnostics);
    let scheduler = choice("service.scheduler", raw.scheduler.as_ref(), &SCHEDULERS, diagnostics);
    let affinity = choice("service.affinity", raw.affinity.as_ref(), &AFFINITIES, diagnostics);
    if let (Affinity::Source, Scheduler::LeastConnections, Some(text)) = (affinity, scheduler, &raw.affinity) {
        let mistake = Mistake::new(
            "affinity by source is by hashing, but the scheduler is not",
            "write scheduler = \"maglev\" or leave out affinity",
        );
        diagnostics.error(text.span(), "service.affinity", mistake);
    }
    let service_ports = port_ranges("service.ports", &raw.ports, diagnostics);
    let mode = mode(raw, address, ports, diagnostics);
    let family = address.filter(|_| !matches!(mode, Mode::DirectReturn(_)));
    let config = ServiceConfig {
        backends: backends(written, family, &service_ports, diagnostics),
        mode,
        ports: service_ports,
        slow_start: slow_start(raw.slow_start.as_ref(), diagnostics),
        quic: quic::quic(raw, protocol, diagnostics),
        on_failure: choice("service.on_failure", raw.on_failure.as_ref(), &ON_FAILURE, diagnostics),
        name,
        address: address?,
        protocol: protocol?,
        scheduler,
        affinity,
    };
    let service = Service { check: raw.check.as_ref().map(|raw| check(raw, diagnostics)), config };
    check_ends(raw, &service, diagnostics);
    if let Mode::DirectReturn(_) = service.config.mode {
        direct_return::check_tunnels(raw, &service.config, diagnostics);
    }
    Some(service)
}

fn slow_start(text: Option<&Text>, diagnostics: &mut Diagnostics<'_>) -> Option<Duration> {
    let lasts = ranged("service.slow_start", text, Duration::ZERO, SLOW_START, diagnostics);
    (!lasts.is_zero()).then_some(lasts)
}

fn protocol(raw: &RawService, diagnostics: &mut Diagnostics<'_>) -> Option<u8> {
    let checked = value::protocol(raw.protocol.get_ref()).and_then(|protocol| {
        if value::has_ports(protocol) {
            return Ok(protocol);
        }
        Err(Mistake::new("services have ports, and the protocol has none", "write \"tcp\", \"udp\" or \"sctp\""))
    });
    checked.map_err(|mistake| diagnostics.error(raw.protocol.span(), "service.protocol", mistake)).ok()
}

fn mode(raw: &RawService, service: Option<IpAddr>, ports: &[Port], diagnostics: &mut Diagnostics<'_>) -> Mode {
    const SUBJECT: &str = "service.source";
    let mut sources = Vec::with_capacity(raw.source.len());
    for text in &raw.source {
        let Some(address) = parsed(SUBJECT, text, value::address, diagnostics) else { continue };
        check_family(SUBJECT, text, (service, address), diagnostics);
        warn_if_nobody_answers(SUBJECT, address, text.span(), ports, diagnostics);
        sources.push(address);
    }
    let translation = choice("service.mode", raw.mode.as_ref(), &MODES, diagnostics);
    match (translation, raw.source.first(), &raw.mode) {
        (Translation::Destination | Translation::None, Some(first), _) => {
            let mistake = Mistake::new(
                "the source is not translated, so no address is needed for it",
                "write mode = \"full-nat\" or leave out source",
            );
            diagnostics.error(first.span(), SUBJECT, mistake);
        }
        (Translation::Both, None, Some(text)) => {
            let mistake = Mistake::new(
                "the source is translated, but to no address",
                "write source = [\"10.0.0.1\"] with a shared address that backends answer to",
            );
            diagnostics.error(text.span(), "service.mode", mistake);
        }
        _ => {}
    }
    if let Some(beyond) = raw.source.get(SOURCES_MAX) {
        let mistake = Mistake::new(format!("there are more than {SOURCES_MAX} addresses"), "leave some out");
        diagnostics.error(beyond.span(), SUBJECT, mistake);
    }
    let encapsulation = direct_return::encapsulation(raw, translation == Translation::None, diagnostics);
    match translation {
        Translation::Destination => Mode::Nat,
        Translation::Both => Mode::FullNat(sources),
        Translation::None => Mode::DirectReturn(encapsulation),
    }
}

fn check_family(
    subject: &str,
    text: &Text,
    (service, address): (Option<IpAddr>, IpAddr),
    diagnostics: &mut Diagnostics<'_>,
) {
    let Some(service) = service.filter(|service| service.is_ipv4() != address.is_ipv4()) else { return };
    let mistake = Mistake::new(
        format!("the address is {}, and the service's is {}", family_name(address), family_name(service)),
        "write a service for each family",
    );
    diagnostics.error(text.span(), subject, mistake);
}

fn backends(
    service: &Spanned<RawService>,
    address: Option<IpAddr>,
    ports: &[PortRange],
    diagnostics: &mut Diagnostics<'_>,
) -> Vec<BackendConfig> {
    let raw = &service.get_ref().backend;
    if raw.is_empty() {
        let mistake = Mistake::new("the service has no backend", "add [[service.backend]] with an address below it");
        diagnostics.error(service.span(), "service.backend", mistake);
    }
    if let Some(beyond) = raw.get(BACKENDS_MAX) {
        let mistake = Mistake::new(
            format!("the service has more than {BACKENDS_MAX} backends"),
            "divide it into two services with an address each",
        );
        diagnostics.error(beyond.span(), "service.backend", mistake);
    }
    let mut backends: Vec<BackendConfig> = Vec::with_capacity(raw.len());
    for written in raw.iter().map(Spanned::get_ref) {
        let Some(backend) = backend(written, address, ports, diagnostics) else { continue };
        let is_same = |other: &BackendConfig| (other.address, other.port) == (backend.address, backend.port);
        if backends.iter().any(is_same) {
            let mistake = Mistake::new("another backend of the service is the same server", "list it once");
            diagnostics.error(written.address.span(), "service.backend.address", mistake);
        }
        backends.push(backend);
    }
    if !backends.is_empty() && backends.iter().all(|backend| backend.weight == 0) {
        let mistake = Mistake::new(
            "all backends of the service are drained: it takes no new connections",
            "give a backend a weight above 0",
        );
        diagnostics.warning(service.span(), "service.backend.weight", mistake);
    }
    backends
}

fn backend(
    raw: &RawServiceBackend,
    service: Option<IpAddr>,
    ports: &[PortRange],
    diagnostics: &mut Diagnostics<'_>,
) -> Option<BackendConfig> {
    const SUBJECT: &str = "service.backend.address";
    let weight = within("service.backend.weight", raw.weight.as_ref(), WEIGHT_DEFAULT, 0..=WEIGHT_MAX, diagnostics);
    let (address, port) = parsed(SUBJECT, &raw.address, server, diagnostics)?;
    check_family(SUBJECT, &raw.address, (service, address), diagnostics);
    let has_one_port = matches!(ports, [range] if range.count() == 1);
    if port.is_some() && !has_one_port {
        let mistake = Mistake::new(
            "the backend has a port, and the service has not exactly one",
            "leave out the backend's port, or write a service for each port",
        );
        diagnostics.error(raw.address.span(), SUBJECT, mistake);
    }
    Some(BackendConfig { address, port, weight })
}

fn check_others(
    written: &Spanned<RawService>,
    service: &ServiceConfig,
    (services, forwarded): (&[Service], &[DestinationNat]),
    diagnostics: &mut Diagnostics<'_>,
) {
    let raw = written.get_ref();
    if services.iter().any(|other| service_id(&other.config.name) == service_id(&service.name)) {
        let mistake = Mistake::new("another service has this name", "give each service its own name");
        diagnostics.error(raw.name.span(), &format!("service {:?}", service.name), mistake);
    }
    if let Some(other) = services.iter().find(|other| other.config.overlaps(service)) {
        let mistake = Mistake::new(
            format!("service {:?} matches packets to {} too", other.config.name, service.address),
            "make addresses, protocols or ports of the two differ",
        );
        diagnostics.error(raw.address.span(), &format!("service {:?}", service.name), mistake);
    }
    let is_forwarded = |rule: &DestinationNat| {
        let as_service = ServiceConfig {
            address: rule.destination,
            protocol: rule.protocol.unwrap_or(service.protocol),
            ports: rule.ports.into_iter().collect(),
            ..service.clone()
        };
        as_service.overlaps(service)
    };
    if forwarded.iter().any(is_forwarded) {
        let mistake = Mistake::new(
            format!("a [[nat.destination]] forwards packets to {} too", service.address),
            "make addresses, protocols or ports of the two differ",
        );
        diagnostics.error(raw.address.span(), &format!("service {:?}", service.name), mistake);
    }
}

/// Every checked backend must have a port to check, and the source its family.
fn check_ends(raw: &RawService, service: &Service, diagnostics: &mut Diagnostics<'_>) {
    let Some(check) = raw.check.as_ref() else { return };
    if (0..service.config.backends.len()).any(|backend| service.checked_end(backend).is_none()) {
        let mistake = Mistake::new(
            "backends have no port of their own, so none is known to check",
            "write port = 80 with the TCP port of the backends that answers checks",
        );
        diagnostics.error(check.span(), "service.check.port", mistake);
    }
    if let (Some(source), Some(text)) = (service.check.as_ref().and_then(|it| it.source), &check.get_ref().source) {
        // The backends of one family are those of the service, but for tunnels.
        let end = service.config.backends.first().map_or(service.config.address, |backend| backend.address);
        check_family("service.check.source", text, (Some(end), source), diagnostics);
    }
}

fn check(written: &Spanned<RawCheck>, diagnostics: &mut Diagnostics<'_>) -> HealthCheck {
    let raw = written.get_ref();
    let mut check = times(Some(raw), diagnostics);
    if check.timeout > check.interval {
        let mistake = Mistake::new(
            "a check would begin before the one before it has ended",
            "choose an interval of at least the timeout",
        );
        let span = raw.timeout.as_ref().or(raw.interval.as_ref()).map_or_else(|| written.span(), Spanned::span);
        diagnostics.error(span, "service.check.timeout", mistake);
    }
    if let Some(text) = &raw.path {
        check.path = parsed("service.check.path", text, path, diagnostics).unwrap_or_default();
    }
    check_request(written, &mut check, diagnostics);
    check_command(written, &mut check, diagnostics);
    check_unused(raw, check.kind, diagnostics);
    check.source =
        raw.source.as_ref().and_then(|text| parsed("service.check.source", text, value::address, diagnostics));
    check.port = raw.port.as_ref().map(|port| *port.get_ref());
    if let Some(port) = raw.port.as_ref().filter(|port| *port.get_ref() == 0) {
        let mistake = Mistake::new("no server listens on port 0", "write a port from 1 to 65535");
        diagnostics.error(port.span(), "service.check.port", mistake);
    }
    check
}

/// The name of the server, and whose signature its certificate must have.
fn check_request(written: &Spanned<RawCheck>, check: &mut HealthCheck, diagnostics: &mut Diagnostics<'_>) {
    let raw = written.get_ref();
    if let Some(text) = &raw.server_name {
        check.server_name = parsed("service.check.server_name", text, value::host_name, diagnostics);
    }
    if let Some(text) = &raw.authorities {
        check.authorities = absolute_path("service.check.authorities", text, diagnostics);
    }
    let verifies =
        flag("service.check.verify", raw.verify.as_ref().map(|written| *written.get_ref()), true, diagnostics);
    let (span, mistake) = match &raw.authorities {
        None if verifies && check.kind == CheckKind::Https => {
            let remedy = "name the file with their authorities in authorities (\"/etc/ssl/certs/ca-certificates.crt\" for the public ones), \
                          or write verify = false";
            (written.span(), Mistake::new("nothing verifies the certificates of the backends", remedy))
        }
        Some(text) if !verifies && check.kind == CheckKind::Https => {
            (text.span(), Mistake::new("authorities are of no use with verify = false", "leave out one of them"))
        }
        _ => return,
    };
    diagnostics.error(span, "service.check.authorities", mistake);
}

/// The program of a check by command.
fn check_command(written: &Spanned<RawCheck>, check: &mut HealthCheck, diagnostics: &mut Diagnostics<'_>) {
    const SUBJECT: &str = "service.check.command";
    let raw = &written.get_ref().command;
    match raw.first() {
        None if check.kind == CheckKind::Command => {
            let remedy = "write command = [\"/usr/local/bin/check\"] with the program and its arguments";
            diagnostics.error(written.span(), SUBJECT, Mistake::new("no program is named", remedy));
        }
        Some(program) => {
            if !Path::new(program.get_ref()).is_absolute() {
                let mistake =
                    Mistake::new(format!("{:?} is not an absolute path", program.get_ref()), "begin it with /");
                diagnostics.error(program.span(), SUBJECT, mistake);
            }
            let is_wrong = |word: &&Text| word.get_ref().len() > WORD_BYTES_MAX || word.get_ref().contains('\0');
            if let Some(word) = raw.get(COMMAND_WORDS_MAX).or_else(|| raw.iter().find(is_wrong)) {
                let mistake = Mistake::new(
                    format!(
                        "more than {COMMAND_WORDS_MAX} words, or one with a NUL or more than {WORD_BYTES_MAX} bytes"
                    ),
                    "call a script that has the rest",
                );
                diagnostics.error(word.span(), SUBJECT, mistake);
            }
        }
        None => {}
    }
    check.command = raw.iter().map(|word| word.get_ref().clone()).collect();
}

/// Keys that the kind of check does not use.
fn check_unused(raw: &RawCheck, kind: CheckKind, diagnostics: &mut Diagnostics<'_>) {
    let requests = "\"http\" or kind = \"https\"";
    let connects = "\"tcp\", kind = \"http\" or kind = \"https\"";
    let https = kind == CheckKind::Https;
    let by_command = kind == CheckKind::Command;
    let unused = [
        ("path", raw.path.as_ref().map(Spanned::span), kind.requests(), requests),
        ("server_name", raw.server_name.as_ref().map(Spanned::span), kind.requests(), requests),
        ("authorities", raw.authorities.as_ref().map(Spanned::span), https, "\"https\""),
        ("verify", raw.verify.as_ref().map(Spanned::span), https, "\"https\""),
        ("command", raw.command.first().map(Spanned::span), by_command, "\"command\""),
        ("source", raw.source.as_ref().map(Spanned::span), !by_command, "another one than \"command\""),
        ("port", raw.port.as_ref().map(Spanned::span), kind != CheckKind::Icmp, "another one than \"icmp\""),
        ("fast_fail", raw.fast_fail.as_ref().map(Spanned::span), kind.connects(), connects),
    ];
    for (key, span, is_used, kinds) in unused {
        let Some(span) = span.filter(|_| !is_used) else { continue };
        let mistake = Mistake::new(
            format!("this kind of check has no {key}"),
            format!("write kind = {kinds}, or leave out {key}"),
        );
        diagnostics.error(span, &format!("service.check.{key}"), mistake);
    }
}

fn times(raw: Option<&RawCheck>, diagnostics: &mut Diagnostics<'_>) -> HealthCheck {
    let duration = |key: &str, text: Option<&Text>, default, range, diagnostics: &mut Diagnostics<'_>| {
        ranged(&format!("service.check.{key}"), text, default, range, diagnostics)
    };
    let interval = raw.and_then(|raw| raw.interval.as_ref());
    let timeout = raw.and_then(|raw| raw.timeout.as_ref());
    HealthCheck {
        kind: choice("service.check.kind", raw.and_then(|raw| raw.kind.as_ref()), &CheckKind::ALL, diagnostics),
        path: "/".to_owned(),
        server_name: None,
        authorities: None,
        command: Vec::new(),
        jitter_percent: within(
            "service.check.jitter",
            raw.and_then(|raw| raw.jitter.as_ref()),
            JITTER_PERCENT_DEFAULT,
            0..=JITTER_PERCENT_MAX,
            diagnostics,
        ),
        fast_fail: flag(
            "service.check.fast_fail",
            raw.and_then(|raw| raw.fast_fail.as_ref()).map(|written| *written.get_ref()),
            false,
            diagnostics,
        ),
        interval: duration("interval", interval, INTERVAL_DEFAULT, INTERVAL, diagnostics),
        timeout: duration("timeout", timeout, TIMEOUT_DEFAULT, TIMEOUT, diagnostics),
        rise: within("service.check.rise", raw.and_then(|raw| raw.rise.as_ref()), RISE_DEFAULT, 1..=100, diagnostics),
        fall: within("service.check.fall", raw.and_then(|raw| raw.fall.as_ref()), FALL_DEFAULT, 1..=100, diagnostics),
        port: None,
        source: None,
    }
}

fn path_range() -> String {
    format!("a path from / on, up to {PATH_BYTES_MAX} printable ASCII characters")
}

/// A path as a request line can have it.
fn path(text: &str) -> Result<String, Mistake> {
    let is_printable = text.bytes().all(|byte| byte.is_ascii_graphic());
    if text.starts_with('/') && text.len() <= PATH_BYTES_MAX && is_printable {
        return Ok(text.to_owned());
    }
    Err(Mistake::new(format!("{text:?} cannot be requested"), format!("write {}", path_range())))
}
