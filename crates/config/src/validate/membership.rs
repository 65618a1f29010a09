//! `[membership]`.

use std::net::SocketAddr;
use std::ops::RangeInclusive;
use std::time::Duration;

use toml::Spanned;

use super::super::diagnostic::{Diagnostics, Mistake, Text};
use super::super::raw::{RawConfig, RawMembership};
use super::super::validated::{Cluster, Etcd, Gossip, Membership, MembershipSource, Port};
use super::super::value;
use super::cluster::own_address;
use super::common::{absolute_path, choice, flag, parsed, ranged};

const SUBJECT: &str = "[membership]";
const FORGET_AFTER_DEFAULT: Duration = Duration::from_secs(600);
const FORGET_AFTER: RangeInclusive<Duration> = Duration::from_secs(1)..=Duration::from_secs(7 * 86_400);
const START_WAIT_DEFAULT: Duration = Duration::from_secs(5);
const START_WAIT: RangeInclusive<Duration> = Duration::ZERO..=Duration::from_secs(600);
const LEASE_DEFAULT: Duration = Duration::from_secs(10);
const LEASE: RangeInclusive<Duration> = Duration::from_secs(2)..=Duration::from_secs(3600);
/// Seeds, and client URLs.
const ENTRIES_MAX: usize = 16;
const PREFIX_DEFAULT: &str = "/mainstay";
const PREFIX_BYTES_MAX: usize = 128;
/// Members of a cluster whose list is not in the file.
const NODES_MAX: u8 = 64;

/// A source as it is chosen.
#[derive(Clone, Copy, PartialEq, Default)]
enum Kind {
    #[default]
    Static,
    Gossip,
    Etcd,
}

const KINDS: [(&str, Kind); 3] = [("static", Kind::Static), ("gossip", Kind::Gossip), ("etcd", Kind::Etcd)];

/// Whether the peers come from elsewhere than the file.
pub(super) fn is_dynamic(raw: &RawConfig) -> bool {
    let source = raw.membership.as_ref().and_then(|section| section.get_ref().source.as_ref());
    source.is_some_and(|source| source.get_ref() != KINDS[0].0)
}

pub(super) fn membership(
    raw: &RawConfig,
    (cluster, ports): (Option<&Cluster>, &[Port]),
    diagnostics: &mut Diagnostics<'_>,
) -> Membership {
    let defaults = RawMembership::default();
    let section = raw.membership.as_ref().map_or(&defaults, Spanned::get_ref);
    let kind = choice("membership.source", section.source.as_ref(), &KINDS, diagnostics);
    let forget_after = section.forget_after.as_ref();
    let forget_after = ranged("membership.forget_after", forget_after, FORGET_AFTER_DEFAULT, FORGET_AFTER, diagnostics);
    let start_wait = section.start_wait.as_ref();
    let start_wait = ranged("membership.start_wait", start_wait, START_WAIT_DEFAULT, START_WAIT, diagnostics);
    let lease = ranged("membership.lease", section.lease.as_ref(), LEASE_DEFAULT, LEASE, diagnostics);
    let range = format!("an absolute path of up to {PREFIX_BYTES_MAX} bytes");
    diagnostics.describe("membership.prefix", Some(format!("{PREFIX_DEFAULT:?}")), range);
    let state_file = section.state_file.as_ref();
    let state_file = state_file.and_then(|path| absolute_path("membership.state_file", path, diagnostics));
    refuse_foreign_keys(section, kind, diagnostics);
    if kind != Kind::Static {
        check_cluster(raw, cluster, kind, diagnostics);
    }
    let source = match kind {
        Kind::Static => Some(MembershipSource::Static),
        Kind::Gossip => gossip(section, raw, ports, diagnostics).map(MembershipSource::Gossip),
        Kind::Etcd => Some(MembershipSource::Etcd(etcd(section, raw, lease, diagnostics))),
    };
    Membership { source: source.unwrap_or_default(), state_file, forget_after, start_wait }
}

fn span_of(raw: &RawConfig) -> std::ops::Range<usize> {
    raw.membership.as_ref().map_or(0..0, Spanned::span)
}

/// Keys of a source that is not chosen have no effect.
fn refuse_foreign_keys(section: &RawMembership, kind: Kind, diagnostics: &mut Diagnostics<'_>) {
    let RawMembership { listen, seeds, endpoints, prefix, lease, authority, plain, certificate, key, .. } = section;
    let span = |text: Option<&Text>| text.map(Spanned::span);
    let keys = [
        ("membership.listen", Kind::Gossip, span(listen.as_ref())),
        ("membership.seeds", Kind::Gossip, span(seeds.first())),
        ("membership.endpoints", Kind::Etcd, span(endpoints.first())),
        ("membership.prefix", Kind::Etcd, span(prefix.as_ref())),
        ("membership.lease", Kind::Etcd, span(lease.as_ref())),
        ("membership.authority", Kind::Etcd, span(authority.as_ref())),
        ("membership.plain", Kind::Etcd, plain.as_ref().map(Spanned::span)),
        ("membership.certificate", Kind::Etcd, span(certificate.as_ref())),
        ("membership.key", Kind::Etcd, span(key.as_ref())),
    ];
    for (subject, of, span) in keys {
        if let Some(span) = span.filter(|_| of != kind) {
            let name = KINDS.iter().find(|(_, known)| *known == of).map_or("", |(name, _)| name);
            let mistake = Mistake::new(
                format!("the key is for source = {name:?}"),
                format!("write source = {name:?} or remove the key"),
            );
            diagnostics.error(span, subject, mistake);
        }
    }
}

/// What a list of peers that changes depends on.
fn check_cluster(raw: &RawConfig, cluster: Option<&Cluster>, kind: Kind, diagnostics: &mut Diagnostics<'_>) {
    let nodes = raw.node.as_ref().and_then(|node| node.get_ref().nodes.as_ref());
    match nodes {
        None => {
            let problem = "the number of nodes is not known: they divide the NAT ports among them";
            let mistake = Mistake::new(problem, "write node.nodes = the largest number of nodes, up to 64");
            diagnostics.error(span_of(raw), SUBJECT, mistake);
        }
        Some(nodes) if *nodes.get_ref() > NODES_MAX => {
            let problem = format!("a cluster whose list is not in the file has at most {NODES_MAX} nodes");
            diagnostics.error(nodes.span(), "node.nodes", Mistake::new(problem, "lower it"));
        }
        Some(_) => {}
    }
    let Some(cluster) = cluster else {
        if raw.replication.is_none() {
            let mistake = Mistake::new("there is no section [replication]", "add [replication] with local");
            diagnostics.error(span_of(raw), SUBJECT, mistake);
        }
        return;
    };
    let replication = &cluster.replication;
    if replication.representation.is_compact() {
        let problem = "peers cannot be added or removed under compact replication";
        let mistake = Mistake::new(problem, "write source = \"static\", or another replication.representation");
        diagnostics.error(span_of(raw), SUBJECT, mistake);
    }
    let security = replication.security.as_ref();
    if security.is_some_and(|security| security.certificates.is_some()) {
        let problem = "certificates of peers are known by the names in the file";
        let mistake = Mistake::new(problem, "authenticate by pre_shared_keys alone, or write source = \"static\"");
        diagnostics.error(span_of(raw), SUBJECT, mistake);
    }
    let is_plain = raw.replication.as_ref().is_some_and(|section| section.get_ref().security.is_none());
    if is_plain && !replication.local.ip().is_loopback() {
        let problem = "members would receive everything in plain text, and believe anyone who can reach them";
        let remedy = "add [replication.security] with pre_shared_keys, or with mode = \"plain\" if nobody else can reach the link";
        diagnostics.error(span_of(raw), "[replication]", Mistake::new(problem, remedy));
    }
    if kind == Kind::Gossip && security.is_none_or(|security| security.pre_shared_keys.is_empty()) {
        let problem = "gossip is authenticated by the pre-shared key of the cluster, and there is none";
        let mistake =
            Mistake::new(problem, "add [replication.security] with pre_shared_keys (`mainstay key` makes one)");
        diagnostics.error(span_of(raw), SUBJECT, mistake);
    }
}

fn gossip(
    section: &RawMembership,
    raw: &RawConfig,
    ports: &[Port],
    diagnostics: &mut Diagnostics<'_>,
) -> Option<Gossip> {
    let Some(listen) = &section.listen else {
        let mistake = Mistake::new("the address to gossip on is missing", "write listen = \"ADDRESS:PORT\"");
        diagnostics.error(span_of(raw), SUBJECT, mistake);
        return None;
    };
    let listen = own_address("membership.listen", listen, ports, diagnostics)?;
    check_count("membership.seeds", &section.seeds, diagnostics);
    let seeds = section.seeds.iter().take(ENTRIES_MAX);
    let seeds = seeds.filter_map(|text| parsed("membership.seeds", text, value::socket_address, diagnostics));
    // A node may be among its own seeds: then all nodes have the same file.
    let seeds = seeds.filter(|seed| *seed != listen).collect();
    Some(Gossip { listen, seeds })
}

fn etcd(section: &RawMembership, raw: &RawConfig, lease: Duration, diagnostics: &mut Diagnostics<'_>) -> Etcd {
    if section.endpoints.is_empty() {
        let mistake = Mistake::new("no member of etcd is named", "write endpoints = [\"https://ADDRESS:2379\"]");
        diagnostics.error(span_of(raw), SUBJECT, mistake);
    }
    check_count("membership.endpoints", &section.endpoints, diagnostics);
    let is_plain = flag("membership.plain", section.plain.as_ref().map(|plain| *plain.get_ref()), false, diagnostics);
    let mut endpoints = Vec::new();
    for text in section.endpoints.iter().take(ENTRIES_MAX) {
        let url = text.get_ref().trim_end_matches('/');
        let host = ["http://", "https://"].iter().find_map(|scheme| url.strip_prefix(scheme));
        if host.is_none_or(|host| host.is_empty() || host.contains(['/', '?', '#', ' '])) {
            let mistake = Mistake::new(format!("{url:?} is not a URL of etcd"), "write https://ADDRESS:2379");
            diagnostics.error(text.span(), "membership.endpoints", mistake);
        } else if url.starts_with("https://") && section.authority.is_none() {
            let mistake = Mistake::new("no authority is named for etcd's certificate", "write authority = \"/PATH\"");
            diagnostics.error(text.span(), "membership.endpoints", mistake);
        } else if url.strip_prefix("http://").is_some_and(|host| !is_this_host(host)) {
            check_plain(is_plain, text, diagnostics);
        }
        endpoints.push(url.to_owned());
    }
    let prefix = section.prefix.as_ref().map_or(PREFIX_DEFAULT, |text| text.get_ref().trim_end_matches('/'));
    if let Some(text) = section.prefix.as_ref().filter(|_| !prefix.starts_with('/') || prefix.len() > PREFIX_BYTES_MAX)
    {
        let problem = format!("{prefix:?} cannot be the beginning of keys");
        let mistake = Mistake::new(problem, format!("begin it with / and use at most {PREFIX_BYTES_MAX} bytes"));
        diagnostics.error(text.span(), "membership.prefix", mistake);
    }
    let mut path =
        |subject: &str, text: &Option<Text>| text.as_ref().and_then(|text| absolute_path(subject, text, diagnostics));
    let authority = path("membership.authority", &section.authority);
    let identity = path("membership.certificate", &section.certificate).zip(path("membership.key", &section.key));
    if let (Some(text), None) | (None, Some(text)) = (&section.certificate, &section.key) {
        let mistake = Mistake::new("certificate and key go together", "name both files");
        diagnostics.error(text.span(), SUBJECT, mistake);
    }
    Etcd { endpoints, prefix: prefix.to_owned(), lease, authority, identity }
}

/// Whether a URL's authority names the host that asks.
fn is_this_host(authority: &str) -> bool {
    let is_loopback = |address: SocketAddr| address.ip().is_loopback();
    let host = authority.rsplit_once(':').map_or(authority, |(host, _)| host);
    let address =
        authority.parse().ok().or_else(|| Some(SocketAddr::new(host.trim_matches(['[', ']']).parse().ok()?, 0)));
    host == "localhost" || address.is_some_and(is_loopback)
}

/// A URL without encryption to another host is permitted by a key of its own, and warned of.
fn check_plain(is_permitted: bool, url: &Text, diagnostics: &mut Diagnostics<'_>) {
    let problem = "the list of members would pass the network in plain text, open to changes";
    let remedy = "write https, and authority = \"/PATH\"";
    if is_permitted {
        diagnostics.warning(url.span(), "membership.endpoints", Mistake::new(problem, remedy));
    } else {
        let remedy = format!("{remedy}; or plain = true if nobody else can reach the way to etcd");
        diagnostics.error(url.span(), "membership.endpoints", Mistake::new(problem, remedy));
    }
}

fn check_count(subject: &str, list: &[Text], diagnostics: &mut Diagnostics<'_>) {
    if let Some(text) = list.get(ENTRIES_MAX) {
        let mistake = Mistake::new(format!("there are more than {ENTRIES_MAX}"), "name some of them: one is enough");
        diagnostics.error(text.span(), subject, mistake);
    }
}
