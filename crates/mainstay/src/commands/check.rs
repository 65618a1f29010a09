//! `mainstay gateway --check`: whether a gateway would start with a configuration on this host, without running it.

use std::path::Path;

use replication::deferral;
use serde::Serialize;

use super::CommandError;
use super::host::Host;
use super::probe::{Secrets, ServiceUser};
use super::problem::{self, Problem};
use crate::cli::{CheckArgs, GatewayArgs};
use config::Config;
use config::compact::promise;
use config::validate::mapping::formulas;
use config::validated::{MembershipSource, Redundancy, Replication};
use console::counted;
use daemon::url_lists::{self, UrlListsErrors};

/// What `--json` prints of a file that can be used.
#[derive(Serialize)]
struct Checked {
    /// Whether a start on this host would succeed, as far as can be known without one.
    usable: bool,
    problems: Vec<Problem>,
    #[serde(flatten)]
    host: Option<Host>,
}

/// Checks whether a gateway can start with a file on this host. Errors go to standard error; warnings, and what the host
/// offers to each port, go to standard output. With `--config-only` it looks at the file alone.
///
/// # Errors
/// The file cannot be read or is wrong, or a start on this host would fail.
pub fn run(args: &GatewayArgs) -> Result<(), CommandError> {
    let GatewayArgs { config: path, check: CheckArgs { config_only, user, json, .. } } = args;
    let checked = match config::load(path) {
        Ok(checked) => checked,
        Err(error) => return problem::refuse(error, path, *json),
    };
    let config = &checked.config;
    let mut problems: Vec<Problem> = checked.warnings.iter().map(Problem::from).collect();
    let host = (!config_only).then(|| {
        let (host, found) = Host::look(config);
        problems.extend(secrets(config, user.as_deref()));
        problems.extend(found);
        if let Err(UrlListsErrors(errors)) = url_lists::check(&config.url_filter) {
            problems.extend(errors.iter().map(|error| Problem::error("[url_filter]", &error.to_string())));
        }
        host
    });
    if *json {
        let usable = !problems.iter().any(Problem::is_error);
        console::print_json(&Checked { usable, problems: problems.clone(), host })?;
    } else {
        console::print(&describe(path, config, &problems, host.as_ref()))?;
    }
    problem::conclude(&problems)
}

/// What is wrong with the files of keys, tokens and certificates.
fn secrets(config: &Config, user: Option<&str>) -> Vec<Problem> {
    let user = user.map(ServiceUser::named);
    let mut secrets = Secrets::new(user.as_ref());
    let replication = config.cluster.as_ref().map(|cluster| &cluster.replication);
    secrets.security("[replication.security]", replication.and_then(|replication| replication.security.as_ref()));
    let backups = replication.and_then(|replication| replication.backups.as_ref());
    secrets.edge_hash_key("replication.backups.edge_hash_key", backups.map(|backups| &backups.edge_hash_key));
    let redundancy = config.redundancy.as_ref();
    secrets.security("[redundancy.security]", redundancy.and_then(|redundancy| redundancy.security.as_ref()));
    secrets.mapping_key(config.nat_mapping_key.as_ref());
    secrets.nat_key(config.nat_key.as_ref());
    secrets.syn_proxy_key(config.syn_proxy.key.as_ref());
    secrets.category_token(config.url_filter.server.as_ref().and_then(|server| server.token.as_ref()));
    secrets.category_tls(config.url_filter.server.as_ref());
    secrets.etcd(&config.membership.source);
    secrets.check_authorities(&config.services);
    secrets.control(config.control.as_ref());
    secrets.problems()
}

/// What the file configures and this host offers, for people; errors are not among it.
fn describe(path: &Path, config: &Config, problems: &[Problem], host: Option<&Host>) -> String {
    let cluster = config.cluster.as_ref();
    let peers = counted(cluster.map_or(0, |cluster| cluster.replication.peers.len()), "peer");
    let peers = match &config.membership.source {
        MembershipSource::Static => peers,
        source => format!("{peers} until {} is reached", source.name()),
    };
    let summary = format!(
        "{}: right. Node {} of {}: {}, {}, {}, {}, {}.\n",
        path.display(),
        config.node.id.0,
        config.node.nodes,
        counted(config.ports.len(), "port"),
        counted(config.routes.len(), "route"),
        counted(config.firewall.len(), "firewall rule"),
        counted(config.source_nat.len() + config.destination_nat.len(), "translation"),
        peers,
    );
    let formulas = formulas(config).into_iter();
    let mappings: String = formulas
        .map(|(index, formula)| format!("Source NAT rule {index} computes its mapping, {formula}.\n"))
        .collect();
    let replication = cluster.map_or_else(String::new, |cluster| {
        describe_filter(&cluster.replication, config.workers.count) + &describe_lazy(&cluster.replication)
    });
    let tunnel = config.redundancy.as_ref().map_or_else(String::new, describe_tunnel);
    let host = host.map_or_else(String::new, Host::describe);
    let doubtful = problems.iter().filter(|problem| !problem.is_error()).map(|problem| format!("{problem}\n"));
    let doubtful: String = doubtful.collect();
    let ending = match (problems.is_empty(), host.is_empty()) {
        (true, false) => "\nNothing stands in the way on this host.\n".to_owned(),
        _ if doubtful.is_empty() => String::new(),
        _ => format!("\n{doubtful}"),
    };
    summary + &mappings + &replication + &tunnel + &host + &ending
}

/// What a failover loses, where replication is deferred.
fn describe_lazy(replication: &Replication) -> String {
    let threshold = match &replication.lazy {
        None => return String::new(),
        Some(deferral::Config::Fixed(threshold)) => console::duration(*threshold),
        Some(deferral::Config::Dynamic(dynamic)) => {
            let [least, most] = [dynamic.threshold_min, dynamic.threshold_max].map(console::duration);
            format!("{least} to {most} while the load demands it")
        }
    };
    format!("Connections are replicated from an age of {threshold}: a failover loses those that are still deferred.\n")
}

/// What goes through the tunnel, and what that takes.
#[allow(clippy::cast_precision_loss, reason = "three digits are shown")]
fn describe_tunnel(redundancy: &Redundancy) -> String {
    let chosen = match redundancy.rules.len() {
        0 => "all that leaves by its port".to_owned(),
        rules => format!("what {} chooses", counted(rules, "rule")),
    };
    let cache = console::scaled(redundancy.cache_bytes as f64, "B");
    format!("A tunnel to {} takes {chosen}, with a cache of {cache} for either direction.\n", redundancy.peer)
}

/// What a filter takes and promises, where connections are replicated by one.
#[allow(clippy::cast_precision_loss, reason = "three digits are shown")]
fn describe_filter(replication: &Replication, workers: u8) -> String {
    let Some(compact) = &replication.compact else { return String::new() };
    let stream = compact.stream([0; 2], replication.datagram_bytes_max.into(), workers);
    let bytes = stream.filter_bytes().unwrap_or_default() * usize::from(workers.max(1));
    format!(
        "Connections are replicated as {}, a filter of {} for {} entries: {}.\n",
        compact.representation.name(),
        console::scaled(bytes as f64, "B"),
        console::count(compact.entries_max),
        promise(compact.representation),
    )
}
