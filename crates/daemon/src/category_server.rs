//! The server that the URL filter asks for categories, as the workers of a gateway and the thread that asks it share it.

use std::fmt;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use config::secret_file::{self, SecretFileError};
use config::validated::{UrlServer, UrlServerTls};
use flow::{Instant, NodeId};
use network_functions::inspect::HostName;
use network_functions::shared_values::{SharedValues, SharingError};
use network_functions::url_filter::path::NormalPath;
use network_functions::url_filter::server::protocol;
use network_functions::url_filter::server::{Categories, CategoryClient, Lookup, ShapeError, View};
use packet_io::clock;
use rustls::crypto::ring::default_provider;
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer, ServerName};
use rustls::{ClientConfig, RootCertStore, version};
use zeroize::Zeroizing;

/// How often answers whose lifetime is over are removed while nothing is asked. Without answers the thread waits for a question alone.
const EXPIRY_INTERVAL: Duration = Duration::from_secs(30);

/// Why a categorisation server cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum CategoryServerError {
    /// Its token cannot be read.
    #[error("url_filter.server.token: {0}")]
    Token(#[from] SecretFileError),
    /// Its token cannot be sent.
    #[error("url_filter.server.token: {} holds no token: write one line of printable ASCII without spaces", .0.display())]
    NoToken(PathBuf),
    /// A file of certificates cannot be used.
    #[error("url_filter.server: {}: {problem}", .path.display())]
    Certificates {
        /// The file.
        path: PathBuf,
        /// What is wrong with it.
        problem: String,
    },
    /// The key of its certificate cannot be read.
    #[error("url_filter.server.key: {0}")]
    Key(SecretFileError),
    /// Its cache cannot be made.
    #[error("url_filter.server.cache_entries: {0}")]
    Cache(#[from] ShapeError),
}

/// A categorisation server, for the workers and the thread that asks it.
pub struct CategoryServer {
    pub(crate) address: SocketAddr,
    token: Option<Zeroizing<String>>,
    /// How it is asked over TLS, if it is.
    pub(crate) tls: Option<CategoryTls>,
    pub(crate) config: UrlServer,
    client: Mutex<CategoryClient>,
    /// There is something to ask, or the thread is to look around.
    has_questions: Condvar,
    /// The thread is to look around: for a stop, or a reload. Changed under the lock of `client`.
    is_woken: AtomicBool,
}

impl fmt::Debug for CategoryServer {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "CategoryServer({})", self.address)
    }
}

impl CategoryServer {
    /// The server as configured; `previous` with its cache, if it is the same one. `key` is that of the cache's hash.
    ///
    /// # Errors
    /// The token cannot be read, or the cache cannot be made.
    pub fn new(
        config: &UrlServer,
        key: [u64; 2],
        previous: Option<&Arc<Self>>,
    ) -> Result<Arc<Self>, CategoryServerError> {
        let token = config.token.as_deref().map(category_token).transpose()?;
        let tls = config.tls.as_ref().map(|tls| CategoryTls::read(tls, config.address)).transpose()?;
        let is_same = |previous: &&Arc<Self>| {
            let files = |tls: &Option<CategoryTls>| tls.as_ref().map(|tls| tls.files.clone());
            previous.config == *config && previous.token == token && files(&previous.tls) == files(&tls)
        };
        if let Some(previous) = previous.filter(is_same) {
            return Ok(Arc::clone(previous));
        }
        // 0 stands for none.
        let run = packet_io::random::number().max(1);
        let client = Mutex::new(CategoryClient::new(config.config.clone(), key, run)?);
        let config = config.clone();
        let (has_questions, is_woken) = (Condvar::new(), AtomicBool::new(false));
        Ok(Arc::new(Self { address: config.address, token, tls, config, client, has_questions, is_woken }))
    }

    pub(crate) fn lock(&self) -> MutexGuard<'_, CategoryClient> {
        self.client.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// What is known of it.
    pub(crate) fn view(&self) -> View {
        self.lock().view()
    }

    /// Has [`CategoryServer::await_request`] return.
    pub(crate) fn wake(&self) {
        let _client = self.lock();
        self.is_woken.store(true, Ordering::Relaxed);
        self.has_questions.notify_all();
    }

    /// Waits for the next request; returns it with the number of its targets. `None` after [`CategoryServer::wake`].
    pub(crate) fn await_request(&self) -> Option<(String, usize)> {
        let mut client = self.lock();
        while !client.has_targets() {
            if self.is_woken.swap(false, Ordering::Relaxed) {
                return None;
            }
            client = if client.view().entries == 0 {
                self.has_questions.wait(client).unwrap_or_else(PoisonError::into_inner)
            } else {
                let waited = self.has_questions.wait_timeout(client, EXPIRY_INTERVAL);
                waited.unwrap_or_else(PoisonError::into_inner).0
            };
            client.handle_timeout(clock::now());
        }
        let targets = client.poll_targets();
        let token = self.token.as_ref().map(|token| token.as_str());
        (!targets.is_empty()).then(|| {
            let name = self.config.tls.as_ref().and_then(|tls| tls.server_name.clone());
            let host = name.unwrap_or_else(|| self.address.to_string());
            let request = protocol::request(&host, token, targets.iter().map(String::as_str));
            (request, targets.len())
        })
    }
}

impl Categories for CategoryServer {
    fn look_up(&self, now: Instant, host: &HostName, path: Option<&NormalPath>) -> Lookup {
        let mut client = self.lock();
        let lookup = client.look_up(now, host, path);
        if client.has_targets() {
            self.has_questions.notify_one();
        }
        lookup
    }
}

impl SharedValues for CategoryServer {
    fn run(&self) -> u64 {
        self.lock().sharing_run()
    }

    fn handle(&self, now: Instant, from: NodeId, datagram: &[u8]) -> Result<(), SharingError> {
        self.lock().handle_shared(now, from, datagram)
    }

    fn poll(&self, now: Instant, to: (NodeId, u64), out: &mut Vec<u8>) -> bool {
        self.lock().poll_shared(now, to, out)
    }
}

/// How a categorisation server is asked over TLS 1.2 or 1.3.
pub struct CategoryTls {
    pub(crate) client: Arc<ClientConfig>,
    /// What the server's certificate must name.
    pub(crate) name: ServerName<'static>,
    /// What the files held: after a reload, other contents make another server.
    files: Zeroizing<Vec<u8>>,
}

impl CategoryTls {
    /// Reads the files.
    ///
    /// # Errors
    /// A file cannot be read, or holds something else.
    pub fn read(config: &UrlServerTls, address: SocketAddr) -> Result<Self, CategoryServerError> {
        let mut files = Zeroizing::new(Vec::new());
        let failed =
            |path: &Path, problem: String| CategoryServerError::Certificates { path: path.to_owned(), problem };
        let mut certificates = |path: &Path| -> Result<Vec<CertificateDer<'static>>, CategoryServerError> {
            let bytes = std::fs::read(path).map_err(|error| failed(path, error.to_string()))?;
            files.extend_from_slice(&bytes);
            let found: Result<Vec<_>, _> = CertificateDer::pem_slice_iter(&bytes).collect();
            match found {
                Ok(found) if found.is_empty() => Err(failed(path, "it holds no certificate in PEM form".to_owned())),
                found => found.map_err(|error| failed(path, error.to_string())),
            }
        };
        let mut roots = RootCertStore::empty();
        for certificate in certificates(&config.authority)? {
            roots.add(certificate).map_err(|error| failed(&config.authority, error.to_string()))?;
        }
        let chain = config.identity.as_ref().map(|(path, _)| certificates(path)).transpose()?;
        let builder = ClientConfig::builder_with_provider(Arc::new(default_provider()))
            .with_protocol_versions(&[&version::TLS13, &version::TLS12])
            .expect("the library has both versions")
            .with_root_certificates(roots);
        let client = match config.identity.as_ref().zip(chain) {
            Some(((certificate, key), chain)) => {
                let bytes = secret_file::read(key).map_err(CategoryServerError::Key)?;
                files.extend_from_slice(&bytes);
                let pem = PrivateKeyDer::from_pem_slice(&bytes).map_err(|error| failed(key, error.to_string()))?;
                builder.with_client_auth_cert(chain, pem).map_err(|error| failed(certificate, error.to_string()))?
            }
            None => builder.with_no_client_auth(),
        };
        let name = match &config.server_name {
            Some(name) => {
                ServerName::try_from(name.clone()).map_err(|error| failed(&config.authority, error.to_string()))?
            }
            None => address.ip().into(),
        };
        Ok(Self { client: Arc::new(client), name, files })
    }
}

/// The token in a file.
///
/// # Errors
/// The file cannot be read, or holds no token.
pub fn category_token(path: &Path) -> Result<Zeroizing<String>, CategoryServerError> {
    let bytes = secret_file::read(path)?;
    let text = std::str::from_utf8(&bytes).map(str::trim).unwrap_or_default();
    if text.is_empty() || !text.bytes().all(|byte| byte.is_ascii_graphic()) {
        return Err(CategoryServerError::NoToken(path.to_owned()));
    }
    Ok(Zeroizing::new(text.to_owned()))
}
