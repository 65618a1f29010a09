//! The server that the URL filter asks for categories, as the workers of a gateway and the thread that asks it share it.

use std::fmt;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use config::secret_file::{self, SecretFileError};
use config::validated::UrlServer;
use flow::Instant;
use network_functions::inspect::HostName;
use network_functions::url_filter::path::NormalPath;
use network_functions::url_filter::server::protocol;
use network_functions::url_filter::server::{Categories, CategoryClient, Lookup, ShapeError, View};
use packet_io::clock;
use zeroize::Zeroizing;

/// The longest pause of the thread: a stop, and a reload, are noticed then at the latest.
pub(crate) const PAUSE_MAX: Duration = Duration::from_millis(100);

/// Why a categorisation server cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum CategoryServerError {
    /// Its token cannot be read.
    #[error("url_filter.server.token: {0}")]
    Token(#[from] SecretFileError),
    /// Its token cannot be sent.
    #[error("url_filter.server.token: {} holds no token: write one line of printable ASCII without spaces", .0.display())]
    NoToken(PathBuf),
    /// Its cache cannot be made.
    #[error("url_filter.server.cache_entries: {0}")]
    Cache(#[from] ShapeError),
}

/// A categorisation server, for the workers and the thread that asks it.
pub struct CategoryServer {
    pub(crate) address: SocketAddr,
    token: Option<Zeroizing<String>>,
    pub(crate) config: UrlServer,
    client: Mutex<CategoryClient>,
    /// There is something to ask.
    has_questions: Condvar,
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
        if let Some(previous) = previous.filter(|previous| previous.config == *config && previous.token == token) {
            return Ok(Arc::clone(previous));
        }
        let client = Mutex::new(CategoryClient::new(config.config.clone(), key)?);
        let config = config.clone();
        Ok(Arc::new(Self { address: config.address, token, config, client, has_questions: Condvar::new() }))
    }

    pub(crate) fn lock(&self) -> MutexGuard<'_, CategoryClient> {
        self.client.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// What is known of it.
    pub(crate) fn view(&self) -> View {
        self.lock().view()
    }

    /// The next request, with the number of its targets. `None` after a pause without questions.
    pub(crate) fn await_request(&self) -> Option<(String, usize)> {
        let mut client = self.lock();
        if !client.has_targets() {
            let waited = self.has_questions.wait_timeout(client, PAUSE_MAX).unwrap_or_else(PoisonError::into_inner);
            client = waited.0;
            client.handle_timeout(clock::now());
        }
        let targets = client.poll_targets();
        let token = self.token.as_ref().map(|token| token.as_str());
        (!targets.is_empty()).then(|| {
            let request = protocol::request(&self.address.to_string(), token, targets.iter().map(String::as_str));
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
