//! The files of the URL filter's lists.

use std::fs::File;
use std::io::{self, Read};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use config::validated::{UrlFilter, UrlList};
use flow::{Instant, NodeId};
use network_functions::inspect::HostName;
use network_functions::shared_values::{SharedValues, SharingError};
use network_functions::url_filter::lists::{self, ListError};
use network_functions::url_filter::path::NormalPath;
use network_functions::url_filter::rules::{RulesError, UrlFilterRules};
use network_functions::url_filter::server::{Categories, Lookup};
use network_functions::url_filter::store::StoreError;

/// Largest file of a list that is read.
pub const LIST_BYTES_MAX: u64 = 256 << 20;

/// Mistakes of a file that are listed.
const MISTAKES_MAX: usize = 20;

/// Why a list cannot be used.
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
    /// A file has more mistakes than are listed.
    #[error("{}: further mistakes are not listed: correct these first", .0.display())]
    More(PathBuf),
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

/// All that is wrong with the lists.
#[derive(Debug, thiserror::Error)]
#[error("{}", .0.iter().map(ToString::to_string).collect::<Vec<_>>().join("; "))]
pub struct UrlListsErrors(pub Vec<UrlListsError>);

impl From<UrlListsError> for UrlListsErrors {
    fn from(error: UrlListsError) -> Self {
        Self(vec![error])
    }
}

/// The rules as configured, with the lists as their files hold them now, and the server that is asked about other hosts, if one is configured.
/// `key` is that of the store's hash. Counters continue from `previous`.
///
/// # Errors
/// Lists cannot be read or used; each error names the file, the line and the remedy.
pub fn load(
    config: &UrlFilter,
    server: Option<Arc<dyn Categories>>,
    key: [u64; 2],
    previous: Option<&UrlFilterRules>,
) -> Result<UrlFilterRules, UrlListsErrors> {
    let (mut texts, mut errors) = (Vec::new(), Vec::new());
    for list in &config.lists {
        match read(&list.path) {
            Ok(text) => texts.push((list, text)),
            Err(error) => errors.push(error),
        }
    }
    if errors.is_empty() {
        let lists = texts.iter().map(|(list, text)| (&list.config, text.as_slice()));
        let names = config.server.as_ref().map_or(&[][..], |server| &server.config.categories);
        let served = server.map(|server| (names, server));
        let path = |index: usize| config.lists.get(index).map(|list| list.path.clone()).unwrap_or_default();
        match UrlFilterRules::new(&config.rules, lists, served, key, previous) {
            Ok(rules) => return Ok(rules),
            // It is found again below, with those behind it.
            Err(RulesError::List(..)) => {}
            Err(RulesError::NoRoom { index, line, error }) => {
                return Err(UrlListsError::NoRoom { path: path(index), line, error }.into());
            }
            Err(error) => return Err(UrlListsError::Rules(error).into()),
        }
    }
    texts.iter().for_each(|(list, text)| errors.extend(mistakes_of(list, text)));
    Err(UrlListsErrors(errors))
}

/// The mistakes of a list, so many as are worth reading.
fn mistakes_of(list: &UrlList, text: &[u8]) -> Vec<UrlListsError> {
    let found = lists::mistakes(list.config.format, text, MISTAKES_MAX + 1);
    let shown = found.iter().take(MISTAKES_MAX).cloned();
    let mut errors: Vec<_> = shown.map(|error| UrlListsError::List { path: list.path.clone(), error }).collect();
    if found.len() > MISTAKES_MAX {
        errors.push(UrlListsError::More(list.path.clone()));
    }
    errors
}

/// Whether the rules and lists can be used. The server is not asked. Returns the [fingerprint](UrlFilterRules::fingerprint) of the lists.
///
/// # Errors
/// As [`load`].
pub fn check(config: &UrlFilter) -> Result<u64, UrlListsErrors> {
    load(config, Some(Arc::new(NoServer)), [0; 2], None).map(|rules| rules.fingerprint())
}

/// Stands for a server while rules are only checked.
#[derive(Debug)]
struct NoServer;

impl Categories for NoServer {
    fn look_up(&self, _: Instant, _: &HostName, _: Option<&NormalPath>) -> Lookup {
        Lookup::Pass
    }
}

impl SharedValues for NoServer {
    fn run(&self) -> u64 {
        1
    }

    fn handle(&self, _: Instant, _: NodeId, _: &[u8]) -> Result<(), SharingError> {
        Ok(())
    }

    fn poll(&self, _: Instant, _: (NodeId, u64), _: &mut Vec<u8>) -> bool {
        false
    }
}

fn read(path: &Path) -> Result<Vec<u8>, UrlListsError> {
    let unreadable = |source| UrlListsError::Unreadable { path: path.to_owned(), source };
    let mut text = Vec::new();
    File::open(path).map_err(unreadable)?.take(LIST_BYTES_MAX + 1).read_to_end(&mut text).map_err(unreadable)?;
    if text.len() as u64 > LIST_BYTES_MAX { Err(UrlListsError::TooLarge(path.to_owned())) } else { Ok(text) }
}

#[cfg(test)]
mod tests {
    use std::fs;

    use packet_io::random;

    use super::*;

    #[test]
    fn all_mistakes_of_all_lists_are_reported_at_once() {
        let folder = std::env::temp_dir().join(format!("mainstay-lists-{:016x}", random::number()));
        fs::create_dir(&folder).expect("a folder can be made");
        let text = "chain = [\"url_filter\"]\n[node]\nid = 0\n[[port]]\nname = \"inside\"\ninterface = \"eth0\"\n\
                    addresses = [\"10.1.0.1/24\"]\n[[port]]\nname = \"outside\"\ninterface = \"eth1\"\n\
                    addresses = [\"192.0.2.1/24\"]\n[[url_filter.rule]]\nname = \"ads\"\nblock = [\"ads\"]\n";
        let many = "two words\n".repeat(MISTAKES_MAX + 5);
        let files =
            [("good", "ads.example\n"), ("bad", "ads.example\nx y\nfine.example\na b\n"), ("many", many.as_str())];
        let mut lists = String::new();
        for (name, content) in files.iter().chain([&("absent", "")]) {
            if *name != "absent" {
                fs::write(folder.join(name), content).expect("a file can be written");
            }
            let path = folder.join(name);
            lists += &format!("[[url_filter.list]]\ncategory = \"ads\"\npath = {:?}\n", path.display().to_string());
        }
        let config = config::parse("test.toml", &format!("{text}{lists}")).expect("it is right").config.url_filter;
        let UrlListsErrors(errors) = check(&config).expect_err("three of the lists are wrong");
        fs::remove_dir_all(&folder).expect("it is ours");
        let said: Vec<String> = errors.iter().map(ToString::to_string).collect();
        let of = |name: &str| said.iter().filter(|said| said.contains(&format!("/{name}: "))).collect::<Vec<_>>();
        assert_eq!((of("good").len(), of("absent").len(), of("many").len()), (0, 1, MISTAKES_MAX + 1), "{said:?}");
        assert!(of("bad")[0].contains("line 2") && of("bad")[1].contains("line 4") && of("bad").len() == 2, "{said:?}");
        assert!(of("many").last().is_some_and(|said| said.contains("further mistakes are not listed")), "{said:?}");
    }
}
