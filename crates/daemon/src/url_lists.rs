//! The files of the URL filter's lists.

use std::fs::File;
use std::io::{self, Read};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use config::validated::UrlFilter;
use flow::Instant;
use network_functions::inspect::HostName;
use network_functions::url_filter::lists::ListError;
use network_functions::url_filter::path::NormalPath;
use network_functions::url_filter::rules::{RulesError, UrlFilterRules};
use network_functions::url_filter::server::{Categories, Lookup};
use network_functions::url_filter::store::StoreError;

/// Largest file of a list that is read.
pub const LIST_BYTES_MAX: u64 = 256 << 20;

/// Why lists cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum UrlListsError {
    /// A file cannot be read.
    #[error("{}: {source}: correct the path, or make the file readable", path.display())]
    Unreadable {
        /// The file.
        path: PathBuf,
        /// Why.
        source: io::Error,
    },
    /// A file is too large.
    #[error("{}: it is larger than {LIST_BYTES_MAX} bytes: divide it", .0.display())]
    TooLarge(PathBuf),
    /// A line of a file has a mistake.
    #[error("{}: {error}", path.display())]
    List {
        /// The file.
        path: PathBuf,
        /// The mistake.
        error: ListError,
    },
    /// A file's entries do not fit.
    #[error("{}: line {line}: {error}", path.display())]
    NoRoom {
        /// The file.
        path: PathBuf,
        /// The line.
        line: usize,
        /// Why.
        error: StoreError,
    },
    /// The rules cannot be used.
    #[error(transparent)]
    Rules(RulesError),
}

/// The rules as configured, with the lists as their files hold them now, and the server that is asked about other hosts, if one is configured.
/// `key` is that of the store's hash. Counters continue from `previous`.
///
/// # Errors
/// A list cannot be read or used; the error names the file, the line and the remedy.
pub fn load(
    config: &UrlFilter,
    server: Option<Arc<dyn Categories>>,
    key: [u64; 2],
    previous: Option<&UrlFilterRules>,
) -> Result<UrlFilterRules, UrlListsError> {
    let texts = config.lists.iter().map(|list| read(&list.path)).collect::<Result<Vec<_>, _>>()?;
    let lists = config.lists.iter().zip(&texts).map(|(list, text)| (&list.config, text.as_slice()));
    let path = |index: usize| config.lists.get(index).map(|list| list.path.clone()).unwrap_or_default();
    let names = config.server.as_ref().map_or(&[][..], |server| &server.config.categories);
    let served = server.map(|server| (names, server));
    UrlFilterRules::new(&config.rules, lists, served, key, previous).map_err(|error| match error {
        RulesError::List(index, error) => UrlListsError::List { path: path(index), error },
        RulesError::NoRoom { index, line, error } => UrlListsError::NoRoom { path: path(index), line, error },
        error => UrlListsError::Rules(error),
    })
}

/// Whether the rules and lists can be used. The server is not asked.
///
/// # Errors
/// As [`load`].
pub fn check(config: &UrlFilter) -> Result<(), UrlListsError> {
    load(config, Some(Arc::new(NoServer)), [0; 2], None).map(drop)
}

/// Stands for a server while rules are only checked.
#[derive(Debug)]
struct NoServer;

impl Categories for NoServer {
    fn look_up(&self, _: Instant, _: &HostName, _: Option<&NormalPath>) -> Lookup {
        Lookup::Pass
    }
}

fn read(path: &Path) -> Result<Vec<u8>, UrlListsError> {
    let unreadable = |source| UrlListsError::Unreadable { path: path.to_owned(), source };
    let mut text = Vec::new();
    File::open(path).map_err(unreadable)?.take(LIST_BYTES_MAX + 1).read_to_end(&mut text).map_err(unreadable)?;
    if text.len() as u64 > LIST_BYTES_MAX { Err(UrlListsError::TooLarge(path.to_owned())) } else { Ok(text) }
}
