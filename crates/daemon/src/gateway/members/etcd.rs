//! etcd as the source of members, by its JSON gateway (`/v3/…`), in a thread of its own.
//!
//! ```text
//!   lease/grant ─► kv/put of the own record ─► kv/range of all records ─► watch: a change, or some time ─┐
//!                     ▲ own record changed, or missing        ▲                                          │
//!                     └──────────── lease/keepalive ◄─────────┴──────────────────────────────────────────┘
//! ```
//! What counts is always the whole list, by a range that etcd answers with a quorum. The watch only shows when to ask for it, so a watch that
//! ends, or whose revision was compacted, loses nothing. A member of etcd that does not answer is replaced by the next one. When none answers,
//! the list stays as it was, and the source is reported unreachable.

mod json;

use std::io::{BufRead, BufReader, Read};
use std::sync::Arc;
use std::sync::atomic::{AtomicI64, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use membership::{Member, RECORD_BYTES_MAX};
use ureq::Agent;
use ureq::tls::{Certificate, ClientCert, PemItem, PrivateKey, RootCerts, TlsConfig, parse_pem};

use self::json::{Answer, MalformedAnswer, WatchEvent};
use super::{List, Members};
use crate::error::ProcessError;
use config::secret_file::{self, SecretFileError};
use config::validated::Etcd;

/// How long a request takes at most. A member of etcd without a quorum answers later than this, or never.
const REQUEST_MAX: Duration = Duration::from_secs(2);
/// How long a watch lasts at most: so often the list is asked for even if nothing has changed, and changes of the own record are written.
const WATCH_MAX: Duration = Duration::from_secs(1);
/// etcd counts as unreachable when its members have failed for this time: the choice of a new leader takes less.
const UNREACHABLE_AFTER: Duration = Duration::from_secs(5);
/// A pause after all members of etcd have failed.
const PAUSE: Duration = Duration::from_millis(500);
/// The longest answer: as many records as there are members, in base64, and what etcd adds to each.
const ANSWER_BYTES_MAX: u64 = 64 * (2 * RECORD_BYTES_MAX as u64 + 512) + 4096;

/// Why etcd is not used, or does not answer.
#[derive(Debug, thiserror::Error)]
pub enum MembershipError {
    /// A file of certificates cannot be used.
    #[error("membership: {path}: {problem}")]
    Certificates {
        /// The file.
        path: String,
        /// What is wrong with it.
        problem: String,
    },
    /// The file of the client's key.
    #[error("membership.key: {0}")]
    Key(#[from] SecretFileError),
    /// It did not answer, or refused.
    #[error("{endpoint}: {problem}")]
    Request {
        /// The member of etcd.
        endpoint: String,
        /// What happened.
        problem: String,
    },
    /// It answered with something else.
    #[error("{endpoint}: {source}: is it etcd 3.4 or later?")]
    Malformed {
        /// The member of etcd.
        endpoint: String,
        /// What is wrong with it.
        source: MalformedAnswer,
    },
}

/// The thread that talks to etcd.
pub(super) struct EtcdSource {
    /// The lease of the own record; 0: there is none.
    lease: Arc<AtomicI64>,
    leaving: Client,
}

impl EtcdSource {
    pub(super) fn start(members: Arc<Members>, config: &Etcd) -> Result<Self, ProcessError> {
        let (client, leaving) = (Client::new(config)?, Client::new(config)?);
        let lease = Arc::new(AtomicI64::new(0));
        let mut follower =
            Etcds { members, client, config: config.clone(), lease: Arc::clone(&lease), put: None, kept_at: None };
        let thread = thread::Builder::new().name("etcd".to_owned()).spawn(move || follower.run());
        thread.map_err(ProcessError::GatewayThread)?;
        Ok(Self { lease, leaving })
    }

    /// Writes that this node has left, as far as etcd is reachable. The record disappears with its lease.
    pub(super) fn leave(&mut self, members: &Members) {
        let lease = self.lease.load(Ordering::Acquire);
        if lease == 0 {
            return;
        }
        let own = members.own();
        for _ in 0..self.leaving.endpoints.len() {
            match self.leaving.put(&own, lease) {
                Ok(()) => return,
                Err(error) => {
                    tracing::debug!("this node's record is not changed: {error}");
                    self.leaving.use_next();
                }
            }
        }
    }
}

/// Follows the records in etcd, and keeps the own one there.
struct Etcds {
    members: Arc<Members>,
    client: Client,
    config: Etcd,
    lease: Arc<AtomicI64>,
    /// The own record as it was written last.
    put: Option<Member>,
    /// When the lease was kept alive last.
    kept_at: Option<Instant>,
}

impl Etcds {
    fn run(&mut self) {
        let (mut failed, mut succeeded_at) = (0, Instant::now());
        while !self.members.is_stopping() {
            match self.turn() {
                Ok(()) => (failed, succeeded_at) = (0, Instant::now()),
                Err(error) => {
                    tracing::debug!("{error}");
                    self.client.use_next();
                    failed += 1;
                    if failed >= self.config.endpoints.len() {
                        if succeeded_at.elapsed() >= UNREACHABLE_AFTER {
                            self.members.note_unreachable(&error.to_string());
                        }
                        thread::sleep(PAUSE);
                    }
                }
            }
        }
    }

    /// Once around.
    fn turn(&mut self) -> Result<(), MembershipError> {
        self.keep_lease()?;
        let own = self.members.own();
        if self.put.as_ref() != Some(&own) && !self.members.is_stopping() {
            self.client.put(&own, self.lease.load(Ordering::Acquire))?;
            self.put = Some(own);
        }
        let answer = self.client.range()?;
        let own = self.members.own();
        match answer.members.iter().find(|(id, _)| *id == own.id) {
            None => self.put = None,
            Some((_, Ok(recorded))) if recorded.version > own.version && recorded.replication == own.replication => {
                self.members.supersede(recorded.version);
            }
            Some(_) => {}
        }
        let revision = answer.revision;
        self.members.handle_list(List { members: answer.members, settings: answer.settings });
        if self.put.is_some() {
            self.client.watch(revision + 1)?;
        }
        Ok(())
    }

    /// The lease lives on, or there is a new one.
    fn keep_lease(&mut self) -> Result<(), MembershipError> {
        let lease = self.lease.load(Ordering::Acquire);
        let is_fresh = self.kept_at.is_some_and(|kept_at| kept_at.elapsed() < self.config.lease / 3);
        if lease != 0 && (is_fresh || self.client.keep_alive(lease)?) {
            if !is_fresh {
                self.kept_at = Some(Instant::now());
            }
            return Ok(());
        }
        self.lease.store(self.client.grant(self.config.lease)?, Ordering::Release);
        (self.kept_at, self.put) = (Some(Instant::now()), None);
        Ok(())
    }
}

/// Requests to one of the members of etcd.
struct Client {
    agent: Agent,
    endpoints: Vec<String>,
    /// The one that is used.
    used: usize,
    prefix: String,
}

impl Client {
    fn new(config: &Etcd) -> Result<Self, MembershipError> {
        let builder = Agent::config_builder()
            .timeout_global(Some(REQUEST_MAX))
            .timeout_connect(Some(REQUEST_MAX / 2))
            .http_status_as_error(false)
            .max_redirects(0)
            .proxy(None);
        let agent = Agent::new_with_config(builder.tls_config(tls(config)?).build());
        Ok(Self { agent, endpoints: config.endpoints.clone(), used: 0, prefix: config.prefix.clone() })
    }

    fn use_next(&mut self) {
        self.used = (self.used + 1) % self.endpoints.len().max(1);
    }

    fn endpoint(&self) -> &str {
        self.endpoints.get(self.used).map_or("", String::as_str)
    }

    fn failed(&self, problem: impl ToString) -> MembershipError {
        MembershipError::Request { endpoint: self.endpoint().to_owned(), problem: problem.to_string() }
    }

    fn malformed(&self, source: MalformedAnswer) -> MembershipError {
        MembershipError::Malformed { endpoint: self.endpoint().to_owned(), source }
    }

    /// Sends a request and returns the whole answer.
    fn ask(&self, path: &str, body: &str) -> Result<String, MembershipError> {
        let url = format!("{}{path}", self.endpoint());
        let mut response =
            self.agent.post(url).content_type("application/json").send(body).map_err(|error| self.failed(error))?;
        let status = response.status();
        let text = response.body_mut().with_config().limit(ANSWER_BYTES_MAX).read_to_string();
        let text = text.map_err(|error| self.failed(error))?;
        if status.is_success() {
            Ok(text)
        } else {
            Err(self.failed(json::error_of(&text).unwrap_or_else(|| format!("HTTP status {status}"))))
        }
    }

    fn grant(&self, ttl: Duration) -> Result<i64, MembershipError> {
        let answer = self.ask("/v3/lease/grant", &json::grant(ttl))?;
        json::lease_of(&answer).map_err(|error| self.malformed(error))
    }

    /// Whether the lease lives.
    fn keep_alive(&self, lease: i64) -> Result<bool, MembershipError> {
        let answer = self.ask("/v3/lease/keepalive", &json::keep_alive(lease))?;
        json::lives(&answer).map_err(|error| self.malformed(error))
    }

    fn put(&self, own: &Member, lease: i64) -> Result<(), MembershipError> {
        self.ask("/v3/kv/put", &json::put(&self.prefix, own, lease)).map(drop)
    }

    fn range(&self) -> Result<Answer, MembershipError> {
        let answer = self.ask("/v3/kv/range", &json::range(&self.prefix))?;
        json::records_of(&self.prefix, &answer).map_err(|error| self.malformed(error))
    }

    /// Waits until something changes after the revision before `from`, for at most [`WATCH_MAX`].
    fn watch(&self, from: i64) -> Result<(), MembershipError> {
        let url = format!("{}/v3/watch", self.endpoint());
        let request = self.agent.post(url).content_type("application/json");
        let request = request.config().timeout_global(None).timeout_recv_response(Some(REQUEST_MAX));
        let request = request.timeout_recv_body(Some(WATCH_MAX)).build();
        let mut response = request.send(json::watch(&self.prefix, from)).map_err(|error| self.failed(error))?;
        if !response.status().is_success() {
            return Err(self.failed(format!("HTTP status {}", response.status())));
        }
        let mut lines = BufReader::new(response.body_mut().as_reader()).take(ANSWER_BYTES_MAX);
        let mut line = String::new();
        // The end of the time is an error of the reader. Any other is found by the next request.
        while matches!(lines.read_line(&mut line), Ok(1..)) {
            match json::watch_event(&line) {
                Ok(WatchEvent::Created) => line.clear(),
                Ok(WatchEvent::Changed) => return Ok(()),
                Err(error) => return Err(self.malformed(error)),
            }
        }
        Ok(())
    }
}

fn tls(config: &Etcd) -> Result<TlsConfig, MembershipError> {
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let builder = TlsConfig::builder().unversioned_rustls_crypto_provider(provider);
    let Some(authority) = &config.authority else {
        return Ok(builder.root_certs(RootCerts::Specific(Arc::new(Vec::new()))).build());
    };
    let roots = certificates(authority)?;
    let client = match &config.identity {
        None => None,
        Some((certificate, key)) => {
            let chain = certificates(certificate)?;
            let pem = secret_file::read(key)?;
            let key = PrivateKey::from_pem(&pem).map_err(|error| MembershipError::Certificates {
                path: key.display().to_string(),
                problem: error.to_string(),
            })?;
            Some(ClientCert::new_with_certs(&chain, key))
        }
    };
    Ok(builder.root_certs(RootCerts::new_with_certs(&roots)).client_cert(client).build())
}

fn certificates(path: &std::path::Path) -> Result<Vec<Certificate<'static>>, MembershipError> {
    let failed = |problem: String| MembershipError::Certificates { path: path.display().to_string(), problem };
    let pem = std::fs::read(path).map_err(|error| failed(error.to_string()))?;
    let mut found = Vec::new();
    for item in parse_pem(&pem) {
        if let PemItem::Certificate(certificate) = item.map_err(|error| failed(error.to_string()))? {
            found.push(certificate);
        }
    }
    if found.is_empty() { Err(failed("it holds no certificate in PEM".to_owned())) } else { Ok(found) }
}
