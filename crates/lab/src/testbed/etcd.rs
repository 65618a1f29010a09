//! A cluster of etcd in a namespace: what the demo and tests have as the source of members.

use std::fs::{self, File};
use std::io::{self, Read, Write};
use std::net::{IpAddr, Ipv4Addr, SocketAddr, TcpStream};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use packet_io::IoError;
use packet_io::namespace::Namespace;
use packet_io::signal::die_with_parent;
use serde_json::{Value, json};

/// Members of the cluster: one can fail.
pub const MEMBERS: usize = 3;
/// TCP port of the first member for clients; that for other members is one more, the next member's two more.
const FIRST_PORT: u16 = 2379;
/// How long the cluster may take until it has a leader.
const READY_WITHIN: Duration = Duration::from_secs(30);
/// How often that is looked at.
const LOOK_EVERY: Duration = Duration::from_millis(50);
/// How long a request takes at most.
const REQUEST_MAX: Duration = Duration::from_secs(5);

/// Why there is no cluster of etcd, or it does not answer.
#[derive(Debug, thiserror::Error)]
pub enum EtcdError {
    /// The program is not installed, or cannot be started.
    #[error("etcd cannot be started: {0}: install Debian's etcd-server")]
    Start(#[source] IoError),
    /// Its files cannot be written.
    #[error("cannot write in {}: {source}", directory.display())]
    Files {
        /// Where.
        directory: PathBuf,
        /// What the system reports.
        source: io::Error,
    },
    /// It does not get ready.
    #[error("etcd had no leader for too long: {0}")]
    NotReady(String),
    /// A request failed.
    #[error("etcd does not answer: {0}")]
    Request(String),
}

/// Files with which etcd authenticates itself to clients, and clients have to authenticate themselves.
#[derive(Clone, Debug)]
pub struct EtcdTls {
    /// The authority that has signed the clients' certificates.
    pub authority: PathBuf,
    /// etcd's own certificate, for both directions: etcd's JSON gateway is a client of etcd.
    pub certificate: PathBuf,
    /// Its key.
    pub key: PathBuf,
}

/// Whether etcd can be started here.
#[must_use]
pub fn is_installed() -> bool {
    Command::new("etcd").arg("--version").stdout(Stdio::null()).stderr(Stdio::null()).status().is_ok()
}

/// A running cluster of etcd. Its processes end with it.
pub struct EtcdCluster {
    namespace: Namespace,
    address: IpAddr,
    directory: PathBuf,
    tls: Option<EtcdTls>,
    members: Vec<Option<Child>>,
}

impl EtcdCluster {
    /// Starts the members on an address of the namespace, with their files below `directory`, and waits until they have a leader.
    ///
    /// # Errors
    /// etcd cannot be started, or does not get ready.
    pub fn start(namespace: Namespace, address: IpAddr, directory: &Path) -> Result<Self, EtcdError> {
        Self::start_with(namespace, address, directory, None)
    }

    /// As [`EtcdCluster::start`]. With TLS, clients reach the members by `https` only, except from within the namespace.
    ///
    /// # Errors
    /// etcd cannot be started, or does not get ready.
    pub fn start_with(
        namespace: Namespace,
        address: IpAddr,
        directory: &Path,
        tls: Option<EtcdTls>,
    ) -> Result<Self, EtcdError> {
        let members = (0..MEMBERS).map(|_| None).collect();
        let mut cluster = Self { namespace, address, directory: directory.to_owned(), tls, members };
        (0..MEMBERS).try_for_each(|member| cluster.start_member(member))?;
        cluster.wait_until_ready()?;
        Ok(cluster)
    }

    /// The members' URLs for clients.
    #[must_use]
    pub fn endpoints(&self) -> Vec<String> {
        let urls = endpoints_at(self.address);
        if self.tls.is_none() { urls } else { urls.iter().map(|url| url.replacen("http", "https", 1)).collect() }
    }

    /// Kills a member as a power cut would.
    pub fn kill_member(&mut self, member: usize) {
        if let Some(mut child) = self.members.get_mut(member).and_then(Option::take) {
            // It may have ended already.
            let _ = child.kill();
            let _ = child.wait();
        }
    }

    /// Starts a member that was killed, with the data that it had.
    ///
    /// # Errors
    /// etcd cannot be started.
    pub fn start_member(&mut self, member: usize) -> Result<(), EtcdError> {
        let name = |member: usize| format!("m{member}");
        let peers = (0..MEMBERS).map(|member| format!("{}=http://{}", name(member), self.peer_address(member)));
        let peers = peers.collect::<Vec<_>>().join(",");
        let (client, peer) = (self.client_address(member), self.peer_address(member));
        let log = self.directory.join(name(member)).with_extension("log");
        let files = |source| EtcdError::Files { directory: self.directory.clone(), source };
        fs::create_dir_all(&self.directory).map_err(files)?;
        let log = File::options().create(true).append(true).open(log).map_err(files)?;
        let mut command = Command::new("etcd");
        command.args(["--name", &name(member), "--data-dir"]).arg(self.directory.join(name(member)));
        let url = match &self.tls {
            None => format!("http://{client}"),
            Some(tls) => {
                command.arg("--client-cert-auth").arg("--trusted-ca-file").arg(&tls.authority);
                command.arg("--cert-file").arg(&tls.certificate).arg("--key-file").arg(&tls.key);
                format!("https://{}", client_address(self.address, member))
            }
        };
        let own = if self.tls.is_some() { format!("{url},http://{client}") } else { url.clone() };
        command.args(["--listen-client-urls", &own, "--advertise-client-urls", &url]);
        command.args(["--listen-peer-urls", &format!("http://{peer}")]);
        command.args(["--initial-advertise-peer-urls", &format!("http://{peer}")]);
        command.args(["--initial-cluster", &peers, "--initial-cluster-state", "new"]);
        command.args(["--heartbeat-interval", "100", "--election-timeout", "1000", "--logger", "zap"]);
        command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(log);
        die_with_parent(&mut command);
        let child = self.namespace.spawn_command(command).map_err(EtcdError::Start)?;
        self.members[member] = Some(child);
        Ok(())
    }

    /// Writes a value as an operator does with `etcdctl put`.
    ///
    /// # Errors
    /// No member that runs takes it.
    pub fn put(&self, key: &str, value: &str) -> Result<(), EtcdError> {
        let body = json!({ "key": STANDARD.encode(key), "value": STANDARD.encode(value) });
        self.ask("/v3/kv/put", &body).map(drop)
    }

    /// The value of a key, if there is one.
    ///
    /// # Errors
    /// No member that runs answers.
    pub fn get(&self, key: &str) -> Result<Option<String>, EtcdError> {
        let answer = self.ask("/v3/kv/range", &json!({ "key": STANDARD.encode(key) }))?;
        let value = answer["kvs"][0]["value"].as_str().and_then(|value| STANDARD.decode(value).ok());
        Ok(value.and_then(|value| String::from_utf8(value).ok()))
    }

    /// Deletes a key as an operator does with `etcdctl del`.
    ///
    /// # Errors
    /// No member that runs does it.
    pub fn delete(&self, key: &str) -> Result<(), EtcdError> {
        self.ask("/v3/kv/deleterange", &json!({ "key": STANDARD.encode(key) })).map(drop)
    }

    /// Waits until a value can be written.
    ///
    /// # Errors
    /// It cannot, for too long.
    pub fn wait_until_ready(&self) -> Result<(), EtcdError> {
        let deadline = Instant::now() + READY_WITHIN;
        loop {
            match self.put("ready", "yes") {
                Ok(()) => return Ok(()),
                Err(error) if deadline < Instant::now() => return Err(EtcdError::NotReady(error.to_string())),
                Err(_) => thread::sleep(LOOK_EVERY),
            }
        }
    }

    fn ask(&self, path: &str, body: &Value) -> Result<Value, EtcdError> {
        let running = (0..MEMBERS).filter(|member| self.members[*member].is_some());
        let mut problem = "no member runs".to_owned();
        for member in running {
            let address = self.client_address(member);
            let answer = self.namespace.run(|| exchange(address, path, &body.to_string()));
            match answer.map_err(|error| error.to_string()).and_then(|answer| answer) {
                Ok(answer) => return Ok(answer),
                Err(error) => problem = error,
            }
        }
        Err(EtcdError::Request(problem))
    }

    /// Where a member listens without TLS.
    fn client_address(&self, member: usize) -> SocketAddr {
        let loopback = IpAddr::V4(Ipv4Addr::LOCALHOST);
        client_address(if self.tls.is_some() { loopback } else { self.address }, member)
    }

    fn peer_address(&self, member: usize) -> SocketAddr {
        SocketAddr::new(self.address, client_address(self.address, member).port() + 1)
    }
}

impl Drop for EtcdCluster {
    fn drop(&mut self) {
        (0..MEMBERS).for_each(|member| self.kill_member(member));
    }
}

/// The URLs for clients of members at this address.
#[must_use]
pub fn endpoints_at(address: IpAddr) -> Vec<String> {
    (0..MEMBERS).map(|member| format!("http://{}", client_address(address, member))).collect()
}

fn client_address(address: IpAddr, member: usize) -> SocketAddr {
    SocketAddr::new(address, FIRST_PORT + 2 * u16::try_from(member).unwrap_or_default())
}

/// A request and its answer over a connection of its own, of the calling thread's namespace.
fn exchange(address: SocketAddr, path: &str, body: &str) -> Result<Value, String> {
    let exchanged = || -> io::Result<String> {
        let mut stream = TcpStream::connect_timeout(&address, REQUEST_MAX)?;
        stream.set_read_timeout(Some(REQUEST_MAX))?;
        let length_bytes = body.len();
        write!(stream, "POST {path} HTTP/1.0\r\nHost: {address}\r\nContent-Length: {length_bytes}\r\n\r\n{body}")?;
        let mut answer = String::new();
        stream.read_to_string(&mut answer)?;
        Ok(answer)
    };
    let answer = exchanged().map_err(|error| format!("{address}: {error}"))?;
    let (head, body) = answer.split_once("\r\n\r\n").ok_or_else(|| format!("{address} does not answer by HTTP"))?;
    let status = head.lines().next().unwrap_or_default();
    if !status.contains(" 200 ") {
        return Err(format!("{address}: {status}: {body}"));
    }
    serde_json::from_str(body).map_err(|error| format!("{address}: {error}"))
}
