//! `[redundancy]`, checked.

use std::net::{IpAddr, SocketAddr};
use std::ops::RangeInclusive;
use std::time::Duration;

use ::redundancy::limits::{CACHE_BYTES_MAX, CACHE_BYTES_MIN};
use toml::Spanned;
use tunnel::TunnelConfig;
use tunnel::limits::{DATAGRAM_BYTES_MAX, DATAGRAM_BYTES_MIN};
use tunnel::mirror::MirrorConfig;

use super::super::diagnostic::{Diagnostics, Mistake};
use super::super::raw::{RawRedundancy, RawRedundancyRule};
use super::super::security::Security;
use super::super::validated::{Port, Redundancy, RedundancyRule};
use super::super::value;
use super::cluster::setting;
use super::common::{flag, ranged, within};
use super::security::{absence, keys_alone};
use crate::compression::Library;

const GATHER: RangeInclusive<Duration> = Duration::ZERO..=Duration::from_millis(10);
const RECOVER_WITHIN: RangeInclusive<Duration> = Duration::ZERO..=Duration::from_secs(2);
const PEER_TIMEOUT: RangeInclusive<Duration> = Duration::from_millis(500)..=Duration::from_secs(60);
const MIRROR_BITS_PER_SECOND: RangeInclusive<u64> = 1_000_000..=100_000_000_000;
/// Rules, at most: each packet is held against them one by one.
const RULES_MAX: usize = 64;

pub(super) fn redundancy(
    raw: Option<&Spanned<RawRedundancy>>,
    (ports, workers): (&[Port], u8),
    diagnostics: &mut Diagnostics<'_>,
) -> Option<Redundancy> {
    let section = raw?;
    let raw = section.get_ref();
    if workers > 1 {
        let mistake = Mistake::new(
            format!("a tunnel is one stream, and {workers} workers would have to share it"),
            "write count = 1 under [workers], or remove [redundancy]",
        );
        diagnostics.error(section.span(), "[redundancy]", mistake);
    }
    let local = end("redundancy.local", &raw.local, diagnostics);
    let peer = end("redundancy.peer", &raw.peer, diagnostics);
    let defaults = TunnelConfig::default();
    let is_ipv6 = peer.is_some_and(|peer| peer.is_ipv6());
    // Every IPv6 path takes 1280 bytes; most IPv4 paths take 1500, and what they take is found out.
    let datagram_default = defaults.datagram_bytes_max - if is_ipv6 { 20 } else { 0 };
    let redundancy = Redundancy {
        local: local.unwrap_or(STAND_IN),
        peer: peer.unwrap_or(STAND_IN),
        cache_bytes: cache(raw, defaults.cache_bytes, diagnostics),
        gather: setting!("redundancy", raw.gather => ranged(defaults.sender.gather, GATHER), diagnostics),
        rate_bits_per_second: setting!("redundancy", raw.rate_bits_per_second => within(None, 64_000..=100_000_000_000), diagnostics),
        recover_within: setting!("redundancy", raw.recover_within => ranged(defaults.sender.recover_within, RECOVER_WITHIN), diagnostics),
        recovery_per_mille: setting!("redundancy", raw.recovery_per_mille => within(defaults.sender.recovery_per_mille, 0..=500), diagnostics),
        copies_per_mille: setting!("redundancy", raw.copies_per_mille => within(defaults.sender.copies_per_mille, 0..=1000), diagnostics),
        second_stage: second_stage(raw, diagnostics),
        datagram_bytes_max: setting!("redundancy", raw.datagram_bytes_max => within(datagram_default, DATAGRAM_BYTES_MIN..=DATAGRAM_BYTES_MAX), diagnostics),
        peer_timeout: setting!("redundancy", raw.peer_timeout => ranged(defaults.peer_timeout, PEER_TIMEOUT), diagnostics),
        mirror_bits_per_second: mirror(raw, diagnostics),
        security: security(raw, peer, diagnostics),
        rules: rules(raw, diagnostics),
    };
    if let (Some(local), Some(peer)) = (local, peer) {
        check_ends(raw, (local, peer), ports, diagnostics);
    }
    Some(redundancy)
}

/// Stands in for an end that was reported.
const STAND_IN: SocketAddr = SocketAddr::new(IpAddr::V4(std::net::Ipv4Addr::UNSPECIFIED), 0);

fn end(subject: &str, text: &Spanned<String>, diagnostics: &mut Diagnostics<'_>) -> Option<SocketAddr> {
    let end = value::socket_address(text.get_ref());
    end.map_err(|mistake| diagnostics.error(text.span(), subject, mistake)).ok()
}

fn check_ends(
    raw: &RawRedundancy,
    (local, peer): (SocketAddr, SocketAddr),
    ports: &[Port],
    diagnostics: &mut Diagnostics<'_>,
) {
    let is_shared =
        |address: IpAddr| ports.iter().flat_map(|port| &port.addresses).any(|own| own.prefix.addr() == address);
    if !is_shared(local.ip()) {
        let mistake = Mistake::new(
            format!("{} is none of the shared addresses of this gateway", local.ip()),
            "write the address of the port that leads to the other site, as under [[port]]",
        );
        diagnostics.error(raw.local.span(), "redundancy.local", mistake);
    }
    if is_shared(peer.ip()) {
        let mistake = Mistake::new(
            format!("{} is this gateway's own address", peer.ip()),
            "write the shared address of the other site's gateway",
        );
        diagnostics.error(raw.peer.span(), "redundancy.peer", mistake);
    }
    if local.is_ipv4() != peer.is_ipv4() {
        let mistake = Mistake::new("the two ends are of different families", "write both as IPv4 or both as IPv6");
        diagnostics.error(raw.peer.span(), "redundancy.peer", mistake);
    }
}

fn cache(raw: &RawRedundancy, default: usize, diagnostics: &mut Diagnostics<'_>) -> usize {
    let subject = "redundancy.cache";
    let range = "\"64KiB\" to \"256MiB\"";
    diagnostics.describe(subject, Some(value::written_size(default)), range.to_owned());
    let Some(written) = &raw.cache else { return default };
    let bytes = match value::size(written.get_ref()) {
        Ok(bytes) => usize::try_from(bytes).unwrap_or(usize::MAX),
        Err(mistake) => {
            diagnostics.error(written.span(), subject, mistake);
            return default;
        }
    };
    if !(CACHE_BYTES_MIN..=CACHE_BYTES_MAX).contains(&bytes) {
        let mistake = Mistake::new(format!("{bytes} bytes are out of range"), format!("choose from {range}"));
        diagnostics.error(written.span(), subject, mistake);
        return default;
    }
    bytes
}

/// The rate of updates to mirrors; `None`: there is no mirror.
fn mirror(raw: &RawRedundancy, diagnostics: &mut Diagnostics<'_>) -> Option<u64> {
    let default = MirrorConfig::default().bits_per_second;
    let rate =
        setting!("redundancy", raw.mirror_bits_per_second => within(default, MIRROR_BITS_PER_SECOND), diagnostics);
    flag("redundancy.mirror", raw.mirror, true, diagnostics).then_some(rate)
}

/// What encrypts the tunnel, by the rule of `[replication.security]`. `None` is plain text.
fn security(raw: &RawRedundancy, peer: Option<SocketAddr>, diagnostics: &mut Diagnostics<'_>) -> Option<Security> {
    let subject = "[redundancy.security]";
    let Some(section) = &raw.security else {
        let mistake = peer.and_then(|peer| absence(peer, subject));
        mistake.into_iter().for_each(|mistake| diagnostics.error(raw.peer.span(), "[redundancy]", mistake));
        return None;
    };
    let raw = section.get_ref();
    keys_alone((section, subject), (raw.mode.as_ref(), &raw.pre_shared_keys), diagnostics)
}

fn second_stage(raw: &RawRedundancy, diagnostics: &mut Diagnostics<'_>) -> Option<Library> {
    let names = Library::ALL.map(|library| format!(" or {:?}", library.name())).concat();
    diagnostics.describe("redundancy.second_stage", Some("\"none\"".to_owned()), format!("\"none\"{names}"));
    let written = raw.second_stage.as_ref()?;
    let name = written.get_ref();
    let library = Library::ALL.into_iter().find(|library| library.name() == name);
    if library.is_none() && name != "none" {
        let mistake = Mistake::new(format!("{name:?} is no library"), "write \"none\", \"lz4\" or \"zstd\"");
        diagnostics.error(written.span(), "redundancy.second_stage", mistake);
    }
    library
}

fn rules(raw: &RawRedundancy, diagnostics: &mut Diagnostics<'_>) -> Vec<RedundancyRule> {
    if let Some(beyond) = raw.rule.get(RULES_MAX) {
        let mistake = Mistake::new(format!("there are more than {RULES_MAX} rules"), "put prefixes together in fewer");
        diagnostics.error(beyond.span(), "[[redundancy.rule]]", mistake);
    }
    raw.rule.iter().take(RULES_MAX).map(|written| rule(written, diagnostics)).collect()
}

fn rule(written: &Spanned<RawRedundancyRule>, diagnostics: &mut Diagnostics<'_>) -> RedundancyRule {
    let subject = "[[redundancy.rule]]";
    let raw = written.get_ref();
    let mut network = |text: Option<&Spanned<String>>| {
        let text = text?;
        value::network(text.get_ref()).map_err(|mistake| diagnostics.error(text.span(), subject, mistake)).ok()
    };
    let (source, destination) = (network(raw.source.as_ref()), network(raw.destination.as_ref()));
    let protocol = raw.protocol.as_ref().and_then(|text| {
        value::protocol(text.get_ref()).map_err(|mistake| diagnostics.error(text.span(), subject, mistake)).ok()
    });
    RedundancyRule { source, destination, protocol, port: raw.port.as_ref().map(|port| *port.get_ref()) }
}

#[cfg(test)]
mod tests {
    use crate::{Checked, ConfigError, parse};

    const NODE: &str = r#"
[node]
id = 0
[[port]]
name = "inside"
interface = "eth0"
addresses = ["10.1.0.1/24"]
[[port]]
name = "wan"
interface = "eth1"
addresses = ["192.0.2.1/24"]
"#;
    const ENDS: &str = "[redundancy]\nlocal = \"192.0.2.1:3785\"\npeer = \"198.51.100.1:3785\"\n";
    const KEYS: &str = "[redundancy.security]\npre_shared_keys = [\"/a\"]\n";

    fn check(text: &str) -> Result<Checked, ConfigError> {
        parse("test.toml", text)
    }

    #[test]
    fn a_tunnel_is_its_two_ends_and_the_rest_has_defaults() {
        let checked = check(&format!("{NODE}{ENDS}{KEYS}")).expect("it is right");
        let site = checked.config.redundancy.expect("it is there").site();
        assert_eq!(site.local.to_string(), "192.0.2.1:3785");
        assert_eq!((site.tunnel.cache_bytes, site.tunnel.datagram_bytes_max, site.rules.len()), (64 << 20, 1472, 0));
        let more = "cache = \"8MiB\"\ngather = \"5ms\"\nrate_bits_per_second = 20000000\n\
                    copies_per_mille = 250\nsecond_stage = \"zstd\"\n\
                    [[redundancy.rule]]\ndestination = \"10.2.0.0/16\"\nprotocol = \"tcp\"\nport = 80\n";
        let checked = check(&format!("{NODE}{ENDS}{more}{KEYS}")).expect("it is right");
        let site = checked.config.redundancy.expect("it is there").site();
        assert_eq!(site.tunnel.cache_bytes, 8 << 20);
        assert_eq!(site.tunnel.sender.bits_per_second, Some(20_000_000));
        assert_eq!((site.tunnel.sender.copies_per_mille, site.tunnel.second_stage.stage), (250, Some(1)));
        assert_eq!((site.rules[0].protocol, site.rules[0].port), (Some(6), Some(80)));
    }

    #[test]
    fn caches_are_mirrored_unless_it_is_said_that_they_are_not() {
        let mirror = |more: &str| {
            let checked = check(&format!("{NODE}{ENDS}{more}{KEYS}")).expect("it is right");
            checked.config.redundancy.expect("it is there").site().tunnel.mirror.map(|mirror| mirror.bits_per_second)
        };
        assert_eq!(mirror(""), Some(200_000_000));
        assert_eq!(mirror("mirror_bits_per_second = 5000000\n"), Some(5_000_000));
        assert_eq!(mirror("mirror = false\nmirror_bits_per_second = 5000000\n"), None);
    }

    #[test]
    fn mistakes_are_named_where_they_are() {
        for (more, said) in [
            ("cache = \"1GiB\"", "out of range"),
            ("gather = \"1s\"", "out of range"),
            ("recovery_per_mille = 900", "choose a number from 0 to 500"),
            ("datagram_bytes_max = 100", "choose a number from 1232"),
            ("copies_per_mille = 1001", "choose a number from 0 to 1000"),
            ("second_stage = \"brotli\"", "lz4"),
            ("mirror_bits_per_second = 1000", "choose a number from 1000000"),
            ("[redundancy.security]", "0 keys are named"),
            ("[redundancy.security]\nmode = \"none\"", "write \"encrypted\" or \"plain\""),
            (
                "[redundancy.security]\nmode = \"plain\"\npre_shared_keys = [\"/a\"]",
                "yet keys are given: remove either",
            ),
            ("[workers]\ncount = 2", "workers would have to share it"),
            ("[[redundancy.rule]]\nsource = \"nowhere\"", "nowhere"),
        ] {
            let error = check(&format!("{NODE}{ENDS}{more}\n")).expect_err(more).to_string();
            assert!(error.contains(said), "{more}: {error}");
        }
        let foreign = ENDS.replace("192.0.2.1", "192.0.2.9");
        let error = check(&format!("{NODE}{foreign}")).expect_err("not its own").to_string();
        assert!(error.contains("none of the shared addresses"), "{error}");
    }
    #[test]
    fn plain_text_between_sites_must_be_asked_for() {
        let report = check(&format!("{NODE}{ENDS}")).expect_err("nobody chose plain text").to_string();
        assert!(report.contains("[redundancy]: 198.51.100.1:3785 receives everything in plain text"), "{report}");
        assert!(report.contains("mode = \"plain\" if nobody else can reach the link"), "{report}");
        let chosen = check(&format!("{NODE}{ENDS}[redundancy.security]\nmode = \"plain\"\n")).expect("it is chosen");
        assert!(chosen.config.redundancy.expect("it is there").security.is_none());
    }
}
