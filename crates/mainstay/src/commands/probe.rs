//! Whether this host gives a program what it takes to start: files of keys, addresses and ports. Sockets are bound as at a
//! start, and closed at once.

use std::fs;
use std::net::SocketAddr;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use flow::WorkerId;
use packet_io::udp::{UdpOptions, UdpSocket};

use super::problem::Problem;
use config::secret_file::{self, SecretFileError};
use config::validated::{Cluster, MembershipSource, Security, Service, UrlServer, replication_address};
use control::remote::RemoteAccess;
use control::{Credentials, server};
use daemon::credentials;

/// Where users and their numbers are (passwd(5)).
const PASSWD: &str = "/etc/passwd";

/// The user that a service runs as, whose own the files of keys must be.
pub(super) struct ServiceUser {
    name: String,
    /// Its number; none if this host has no such user.
    number: Option<u32>,
}

impl ServiceUser {
    /// A user by its name or number.
    pub(super) fn named(name: &str) -> Self {
        let passwd = fs::read_to_string(PASSWD).unwrap_or_default();
        let number = name.parse().ok().or_else(|| number_of(name, &passwd));
        Self { name: name.to_owned(), number }
    }

    fn problem(&self, key: &str, path: &Path) -> Option<Problem> {
        let Self { name, number } = self;
        let Some(number) = number else {
            let sentence = format!("there is no user {name} who could own {}: useradd --system {name}", path.display());
            return Some(Problem::error(key, &sentence));
        };
        // That it is not there is found where it is read.
        let owner = fs::metadata(path).ok()?.uid();
        let path = path.display();
        let sentence = format!("{path} is not of the user {name} that the service runs as: chown {name} {path}");
        (owner != *number).then(|| Problem::error(key, &sentence))
    }
}

fn number_of(name: &str, passwd: &str) -> Option<u32> {
    let mut lines = passwd.lines().map(|line| line.split(':'));
    lines.find_map(|mut fields| (fields.next() == Some(name)).then(|| fields.nth(1)?.parse().ok()).flatten())
}

/// The files of secrets that a configuration names, each with its key: all that is wrong with them.
pub(super) struct Secrets<'a> {
    service_user: Option<&'a ServiceUser>,
    problems: Vec<Problem>,
}

impl<'a> Secrets<'a> {
    pub(super) const fn new(service_user: Option<&'a ServiceUser>) -> Self {
        Self { service_user, problems: Vec::new() }
    }

    /// Files that only their owner may read. Whether all of them can be read.
    fn files<'p>(&mut self, key: &str, paths: impl IntoIterator<Item = &'p PathBuf>) -> bool {
        let before = self.problems.len();
        for path in paths {
            if let Err(error) = secret_file::read(path) {
                let found = Problem::error(key, &error.to_string());
                self.problems.push(match error {
                    SecretFileError::Unreadable { .. } => {
                        found.with_remedy("correct the path, or make it (mainstay key)")
                    }
                    _ => found,
                });
            }
            self.problems.extend(self.service_user.and_then(|user| user.problem(key, path)));
        }
        self.problems.len() == before
    }

    /// Those of `[replication.security]` or `[redundancy.security]`.
    pub(super) fn security(&mut self, key: &str, security: Option<&Security>) {
        let Some(security) = security else { return };
        let key_of_certificate = security.certificates.as_ref().map(|files| &files.key);
        // What they hold is looked at when all can be read.
        if self.files(key, security.pre_shared_keys.iter().chain(key_of_certificate))
            && let Err(error) = credentials::load(security)
        {
            self.problems.push(Problem::error(key, &error.to_string()));
        }
    }

    /// That of `nat.key`.
    pub(super) fn nat_key(&mut self, path: Option<&PathBuf>) {
        let Some(path) = path else { return };
        if self.files("nat.key", [path])
            && let Err(error) = credentials::nat_key(path)
        {
            self.problems.push(Problem::error("nat.key", &error.to_string()));
        }
    }

    /// That of `nat.mapping_key`.
    pub(super) fn mapping_key(&mut self, path: Option<&PathBuf>) {
        let Some(path) = path else { return };
        if self.files("nat.mapping_key", [path])
            && let Err(error) = credentials::mapping_key(path)
        {
            self.problems.push(Problem::error("nat.mapping_key", &error.to_string()));
        }
    }

    /// That of `replication.backups.edge_hash_key` or `edge.hash_key`.
    pub(super) fn edge_hash_key(&mut self, key: &str, path: Option<&PathBuf>) {
        let Some(path) = path else { return };
        if self.files(key, [path])
            && let Err(error) = credentials::edge_hash_key(path)
        {
            self.problems.push(Problem::error(key, &error.to_string()));
        }
    }

    /// That of `syn_proxy.key`.
    pub(super) fn syn_proxy_key(&mut self, path: Option<&PathBuf>) {
        let Some(path) = path else { return };
        if self.files("syn_proxy.key", [path])
            && let Err(error) = credentials::syn_proxy_key(path)
        {
            self.problems.push(Problem::error("syn_proxy.key", &error.to_string()));
        }
    }

    /// That of `url_filter.server.token`.
    pub(super) fn category_token(&mut self, path: Option<&PathBuf>) {
        let Some(path) = path else { return };
        if self.files("url_filter.server.token", [path])
            && let Err(error) = daemon::category_server::category_token(path)
        {
            self.problems.push(Problem::error("url_filter.server.token", &error.to_string()));
        }
    }

    /// The certificates of `url_filter.server`, and their key.
    pub(super) fn category_tls(&mut self, server: Option<&UrlServer>) {
        let Some((server, tls)) = server.and_then(|server| Some((server, server.tls.as_ref()?))) else { return };
        if self.files("url_filter.server.key", tls.identity.iter().map(|(_, key)| key))
            && let Err(error) = daemon::category_server::CategoryTls::read(tls, server.address)
        {
            self.problems.push(Problem::error("url_filter.server", &error.to_string()));
        }
    }

    /// The certificates of `[membership]`, and their key.
    pub(super) fn etcd(&mut self, source: &MembershipSource) {
        let MembershipSource::Etcd(etcd) = source else { return };
        if self.files("membership.key", etcd.identity.iter().map(|(_, key)| key))
            && let Err(error) = daemon::etcd::check(etcd)
        {
            self.problems.push(Problem::error("[membership]", &error.to_string()));
        }
    }

    /// The authorities of the checks of backends.
    pub(super) fn check_authorities(&mut self, services: &[Service]) {
        if let Err(error) = daemon::check_tls::clients(services) {
            self.problems.push(Problem::error("[[service]]", &error.to_string()));
        }
    }

    /// Those of `[control]`.
    pub(super) fn control(&mut self, access: Option<&RemoteAccess>) {
        let Some(access) = access else { return };
        let key = access.identity.as_ref().map(|identity| &identity.key);
        if self.files("[control]", access.tokens.iter().chain(key))
            && let Err(error) = Credentials::load(access)
        {
            self.problems.push(Problem::error("[control]", &error.to_string()));
        }
    }

    pub(super) fn problems(self) -> Vec<Problem> {
        self.problems
    }
}

/// Whether the control socket is free. Where a program answers, its other ports are its own, and not tried.
pub(super) fn control_socket(path: &Path) -> Option<Problem> {
    let error = server::refuse_if_taken(path).err()?;
    let remedy = match error {
        server::ServerError::InUse(_) => {
            " (mainstay reload --check shows what a reload would change, --config-only looks at the file alone)"
        }
        _ => "",
    };
    Some(Problem::error("node.control_socket", &format!("{error}{remedy}")))
}

/// Whether the ports for operators are free.
pub(super) fn operators_ports(metrics: Option<SocketAddr>, control: Option<SocketAddr>) -> Vec<Problem> {
    let metrics = metrics.and_then(|address| control::metrics::server::bind(address).err());
    let metrics = metrics.map(|error| Problem::error("node.metrics", &error.to_string()));
    let control = control.and_then(|address| control::remote::bind(address).err());
    let control = control.map(|error| Problem::error("control.listen", &error.to_string()));
    metrics.into_iter().chain(control).collect()
}

/// Whether the ports of replication and failure detection are free, and their addresses this host's.
pub(super) fn peers_ports(cluster: &Cluster, workers: u8) -> Vec<Problem> {
    let replication = &cluster.replication;
    let mut problems = Vec::new();
    for worker in 0..workers {
        let Some(address) = replication_address(replication.local, WorkerId(worker)) else { continue };
        problems.extend(udp_port("replication.local", address));
    }
    // Where the channels are secured, failure detection travels in them.
    if replication.security.is_none() {
        problems.extend(udp_port("failure_detection.local", cluster.failure_detection.local));
    }
    // One address that is missing is missing for all of them.
    problems.dedup_by(|later, earlier| later.text == earlier.text);
    problems
}

/// Whether a UDP port is free, and its address this host's.
pub(super) fn udp_port(key: &str, address: SocketAddr) -> Option<Problem> {
    let error = UdpSocket::bind(address, &UdpOptions::default()).err()?;
    Some(Problem::error(key, &error.to_string()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn users_are_found_by_name() {
        let passwd = "root:x:0:0:root:/root:/bin/sh\nmainstay:x:991:991::/:/usr/sbin/nologin\nbroken\n";
        assert_eq!(number_of("mainstay", passwd), Some(991));
        assert_eq!((number_of("broken", passwd), number_of("nobody", passwd)), (None, None));
    }
}
