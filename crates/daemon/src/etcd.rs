//! A client of etcd, by its JSON gateway (`/v3/…`).

mod json;

use std::io::{BufRead, BufReader, Read};
use std::sync::Arc;
use std::time::Duration;

use membership::{Member, RECORD_BYTES_MAX};
use ureq::Agent;
use ureq::tls::{Certificate, ClientCert, PemItem, PrivateKey, RootCerts, TlsConfig, parse_pem};

pub(crate) use self::json::Answer;
pub use self::json::MalformedAnswer;
use self::json::WatchEvent;
use config::secret_file::{self, SecretFileError};
use config::validated::Etcd;

/// How long a request takes at most. A member of etcd without a quorum answers later than this, or never.
const REQUEST_MAX: Duration = Duration::from_secs(2);
/// How long a watch lasts at most: so often the list is asked for even if nothing has changed, and changes of the own record are written.
const WATCH_MAX: Duration = Duration::from_secs(1);
/// The longest answer: as many records as there are members, in base64, and what etcd adds to each.
const ANSWER_BYTES_MAX: u64 = 64 * (2 * RECORD_BYTES_MAX as u64 + 512) + 4096;

/// Why etcd is not used, or does not answer.
#[derive(Debug, thiserror::Error)]
pub enum EtcdError {
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

/// Reads the files of certificates and of the key, as a start does.
///
/// # Errors
/// One of them cannot be used.
pub fn check(config: &Etcd) -> Result<(), EtcdError> {
    tls(config).map(drop)
}

/// Requests to one of the members of etcd.
pub(crate) struct Client {
    agent: Agent,
    endpoints: Vec<String>,
    /// The one that is used.
    used: usize,
    prefix: String,
}

impl Client {
    pub(crate) fn new(config: &Etcd) -> Result<Self, EtcdError> {
        let builder = Agent::config_builder()
            .timeout_global(Some(REQUEST_MAX))
            .timeout_connect(Some(REQUEST_MAX / 2))
            .http_status_as_error(false)
            .max_redirects(0)
            .proxy(None);
        let agent = Agent::new_with_config(builder.tls_config(tls(config)?).build());
        Ok(Self { agent, endpoints: config.endpoints.clone(), used: 0, prefix: config.prefix.clone() })
    }

    pub(crate) fn use_next(&mut self) {
        self.used = (self.used + 1) % self.endpoints.len().max(1);
    }

    /// How many members are known.
    pub(crate) fn endpoints(&self) -> usize {
        self.endpoints.len()
    }

    fn endpoint(&self) -> &str {
        self.endpoints.get(self.used).map_or("", String::as_str)
    }

    fn failed(&self, problem: impl ToString) -> EtcdError {
        EtcdError::Request { endpoint: self.endpoint().to_owned(), problem: problem.to_string() }
    }

    fn malformed(&self, source: MalformedAnswer) -> EtcdError {
        EtcdError::Malformed { endpoint: self.endpoint().to_owned(), source }
    }

    /// Sends a request and returns the whole answer.
    fn ask(&self, path: &str, body: &str) -> Result<String, EtcdError> {
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

    pub(crate) fn grant(&self, ttl: Duration) -> Result<i64, EtcdError> {
        let answer = self.ask("/v3/lease/grant", &json::grant(ttl))?;
        json::lease_of(&answer).map_err(|error| self.malformed(error))
    }

    /// Whether the lease lives.
    pub(crate) fn keep_alive(&self, lease: i64) -> Result<bool, EtcdError> {
        let answer = self.ask("/v3/lease/keepalive", &json::keep_alive(lease))?;
        json::lives(&answer).map_err(|error| self.malformed(error))
    }

    pub(crate) fn put(&self, own: &Member, lease: i64) -> Result<(), EtcdError> {
        self.ask("/v3/kv/put", &json::put(&self.prefix, own, lease)).map(drop)
    }

    pub(crate) fn range(&self) -> Result<Answer, EtcdError> {
        let answer = self.ask("/v3/kv/range", &json::range(&self.prefix))?;
        json::records_of(&self.prefix, &answer).map_err(|error| self.malformed(error))
    }

    /// Waits until something changes after the revision before `from`, for at most [`WATCH_MAX`].
    pub(crate) fn watch(&self, from: i64) -> Result<(), EtcdError> {
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

fn tls(config: &Etcd) -> Result<TlsConfig, EtcdError> {
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
            let key = PrivateKey::from_pem(&pem).map_err(|error| EtcdError::Certificates {
                path: key.display().to_string(),
                problem: error.to_string(),
            })?;
            Some(ClientCert::new_with_certs(&chain, key))
        }
    };
    Ok(builder.root_certs(RootCerts::new_with_certs(&roots)).client_cert(client).build())
}

fn certificates(path: &std::path::Path) -> Result<Vec<Certificate<'static>>, EtcdError> {
    let failed = |problem: String| EtcdError::Certificates { path: path.display().to_string(), problem };
    let pem = std::fs::read(path).map_err(|error| failed(error.to_string()))?;
    let mut found = Vec::new();
    for item in parse_pem(&pem) {
        if let PemItem::Certificate(certificate) = item.map_err(|error| failed(error.to_string()))? {
            found.push(certificate);
        }
    }
    if found.is_empty() { Err(failed("it holds no certificate in PEM".to_owned())) } else { Ok(found) }
}
