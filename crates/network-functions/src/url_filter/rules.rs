//! The rules of the URL filter, the lists that they refer to, and what is counted.
//!
//! One value serves all workers of a node, without a lock.

use alloc::string::{String, ToString};
use alloc::sync::Arc;
use alloc::vec::Vec;
use core::hash::Hasher;
use core::net::IpAddr;
use core::sync::atomic::{AtomicU64, Ordering};

use flow::{Instant, Tuple, ip_protocol};
use siphasher::sip::SipHasher13;

use super::lists::{self, ListError, ListFormat, ListSummary, ReadError};
use super::path::NormalPath;
use super::server::cache::CATEGORIES_MAX;
use super::server::{Categories, Lookup};
use super::store::{LISTS_MAX, Store, StoreError};
use crate::address::{Prefix, from_tuple_bytes};
use crate::inspect::HostName;
use crate::port_range::PortRange;

/// Rules at most.
pub const RULES_MAX: usize = 64;
/// The category of hosts that no list has.
pub const UNCATEGORISED: &str = "uncategorised";
/// The category of connections that show no host.
pub const UNDECIDED: &str = "undecided";
/// The category of hosts about which a server gave no answer.
pub const UNANSWERED: &str = "unanswered";
/// The category of requests that recipients read in different ways, or refuse.
pub const MALFORMED: &str = "malformed";
/// The names of categories that no list and no server has.
pub const RESERVED: [&str; 4] = [UNCATEGORISED, UNDECIDED, UNANSWERED, MALFORMED];
/// The port of DNS.
pub(super) const DNS_PORT: u16 = 53;
/// The port of HTTP/3.
const QUIC_PORT: u16 = 443;

/// What is done about a connection of a blocked category.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default)]
pub enum Action {
    /// Both ends are reset.
    #[default]
    Reset,
    /// The client of an HTTP request is sent a page, and the server is reset. Other connections are reset.
    BlockPage,
    /// It is counted, and continues.
    Log,
}

impl Action {
    /// All actions, with their names.
    pub const ALL: [(&'static str, Self); 3] =
        [("reset", Self::Reset), ("block-page", Self::BlockPage), ("log", Self::Log)];
}

/// What is done about a connection that shows no host.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default)]
pub enum Undecided {
    /// It continues.
    #[default]
    Allow,
    /// Both ends are reset.
    Block,
}

impl Undecided {
    /// Both choices, with their names.
    pub const ALL: [(&'static str, Self); 2] = [("allow", Self::Allow), ("block", Self::Block)];
}

/// What is done about a DNS question for a blocked name.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default)]
pub enum DnsAction {
    /// Questions are not looked at.
    #[default]
    Off,
    /// The response is that the name does not exist.
    NxDomain,
    /// The question is dropped.
    Drop,
}

impl DnsAction {
    /// All actions, with their names.
    pub const ALL: [(&'static str, Self); 3] = [("off", Self::Off), ("nxdomain", Self::NxDomain), ("drop", Self::Drop)];
}

/// A list as configured.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub struct ListConfig {
    /// The category of what it lists.
    pub category: String,
    /// How it is written.
    pub format: ListFormat,
}

/// A rule as configured. An empty list of conditions is no condition.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub struct RuleConfig {
    /// Its name in status and metrics.
    pub name: String,
    /// Where connections come from.
    pub sources: Vec<Prefix>,
    /// Where they go to, as clients know it.
    pub destinations: Vec<Prefix>,
    /// Their destination ports over TCP.
    pub ports: Vec<PortRange>,
    /// Categories that are blocked.
    pub block: Vec<String>,
    /// Categories that are allowed, also where a host is in a blocked one.
    pub allow: Vec<String>,
    /// What is done about blocked ones.
    pub action: Action,
    /// What is done about a connection that shows no host.
    pub undecided: Undecided,
    /// What is done about DNS questions.
    pub dns: DnsAction,
    /// Whether QUIC connections are decided about, too: UDP to its ports, or to port 443 if it names none.
    pub quic: bool,
    /// Whether blocked connections are logged.
    pub log: bool,
}

impl RuleConfig {
    fn matches(&self, tuple: &Tuple) -> bool {
        let is_within = |prefixes: &[Prefix], address| {
            let address: IpAddr = from_tuple_bytes(address, tuple.family());
            prefixes.is_empty() || prefixes.iter().any(|prefix| prefix.contains(&address))
        };
        let port = tuple.destination_port;
        let is_concerned = match tuple.protocol {
            ip_protocol::TCP if port == DNS_PORT && self.dns != DnsAction::Off => true,
            ip_protocol::TCP => self.ports.is_empty() || self.ports.iter().any(|range| range.contains(port)),
            ip_protocol::UDP if port == DNS_PORT => self.dns != DnsAction::Off,
            ip_protocol::UDP if self.ports.is_empty() => self.quic && port == QUIC_PORT,
            ip_protocol::UDP => self.quic && self.ports.iter().any(|range| range.contains(port)),
            _ => false,
        };
        is_concerned && is_within(&self.sources, tuple.source) && is_within(&self.destinations, tuple.destination)
    }
}

/// A mistake in rules and lists.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
pub enum RulesError {
    /// There are too many rules.
    #[error("{0} rules are too many: it takes {RULES_MAX}")]
    TooManyRules(usize),
    /// A server has too many categories.
    #[error("{0} categories of the server are too many: it takes {CATEGORIES_MAX}")]
    TooManyCategories(usize),
    /// There are too many lists.
    #[error("{0} lists are too many: it takes {LISTS_MAX}; join lists of a category")]
    TooManyLists(usize),
    /// Two categories cannot be distinguished in connections' states.
    #[error("the categories {0:?} and {1:?} have the same identifier: rename one of them")]
    SameIdentifier(String, String),
    /// A rule refers to a category without a list.
    #[error("rule {rule:?}: no list has the category {category:?}: add one, or remove the category from the rule")]
    NoList {
        /// The rule.
        rule: String,
        /// The category.
        category: String,
    },
    /// The list with this index has a mistake.
    #[error("list {0}: {1}")]
    List(usize, ListError),
    /// The entries do not fit.
    #[error("list {index}, line {line}: {error}")]
    NoRoom {
        /// The index of the list.
        index: usize,
        /// The line.
        line: usize,
        /// Why.
        error: StoreError,
    },
}

/// The identifier of a category in connections' states, from its name: the same on all nodes. It is neither
/// [`UNCATEGORISED_ID`] nor one of the identifiers from [`MALFORMED_ID`] on.
#[must_use]
pub fn category_id(name: &str) -> u16 {
    match name {
        UNCATEGORISED => return UNCATEGORISED_ID,
        UNDECIDED => return UNDECIDED_ID,
        UNANSWERED => return UNANSWERED_ID,
        MALFORMED => return MALFORMED_ID,
        _ => {}
    }
    let hash = name.bytes().fold(0x811c_9dc5_u32, |hash, byte| (hash ^ u32::from(byte)).wrapping_mul(0x0100_0193));
    ((hash ^ hash >> 16) as u16).clamp(1, MALFORMED_ID - 1)
}

/// The identifier of hosts that no list has.
pub const UNCATEGORISED_ID: u16 = 0;
/// The identifier of connections that show no host.
pub const UNDECIDED_ID: u16 = u16::MAX;
/// The identifier of hosts about which a server gave no answer.
pub const UNANSWERED_ID: u16 = u16::MAX - 1;
/// The identifier of requests that recipients read in different ways.
pub const MALFORMED_ID: u16 = u16::MAX - 2;

/// What was decided, as it is counted.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Decided {
    /// The connection, or question, passes.
    Allowed,
    /// It is refused.
    Blocked,
    /// It would be refused, if the rule did not only log.
    Logged,
}

impl Decided {
    /// All, in the order of the counters.
    pub const ALL: [Self; 3] = [Self::Allowed, Self::Blocked, Self::Logged];

    /// Its name in status and metrics.
    #[must_use]
    pub const fn label(self) -> &'static str {
        match self {
            Self::Allowed => "allowed",
            Self::Blocked => "blocked",
            Self::Logged => "logged",
        }
    }
}

/// Answers of the gateway in the place of servers.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Answer {
    /// A page.
    Page,
    /// A reset of the client.
    Reset,
    /// A DNS response that the name does not exist.
    NxDomain,
}

impl Answer {
    /// All, in the order of the counters.
    pub const ALL: [Self; 3] = [Self::Page, Self::Reset, Self::NxDomain];

    /// Its name in status and metrics.
    #[must_use]
    pub const fn label(self) -> &'static str {
        match self {
            Self::Page => "page",
            Self::Reset => "reset",
            Self::NxDomain => "nxdomain",
        }
    }
}

pub(super) type Counts = Arc<[AtomicU64; 3]>;

/// Names of categories that a server answers, and the server.
pub type Served<'n> = (&'n [String], Arc<dyn Categories>);

/// A category, with the lists that have it.
#[derive(Debug)]
struct Category {
    name: String,
    id: u16,
    /// A bit each.
    lists: u64,
    entries: usize,
    /// Its bit, if the server has it.
    served: u128,
}

/// A rule.
#[derive(Debug)]
pub struct Rule {
    pub(super) config: RuleConfig,
    /// Lists of categories that are blocked and allowed.
    block: Selection,
    allow: Selection,
    /// Decisions of each category, in the order of the categories; then of hosts in none; then of no host; then of no answer; then of
    /// malformed requests.
    pub(super) decided: Vec<Counts>,
    pub(super) answers: Counts,
}

/// Categories of a rule.
#[derive(Clone, Copy, Debug, Default)]
struct Selection {
    /// Their lists.
    lists: u64,
    /// Of the server's categories.
    served: u128,
    /// Hosts in no list, of which the server knows no category.
    uncategorised: bool,
}

impl Selection {
    const fn has(self, lists: u64, served: u128) -> bool {
        if lists == 0 && served == 0 {
            return self.uncategorised;
        }
        self.lists & lists != 0 || self.served & served != 0
    }
}

/// The bit of a server's category, from 1; 0 for none.
const fn served_bit(category: u8) -> u128 {
    if category == 0 { 0 } else { 1 << (category - 1) }
}

/// What a rule decides about a host, if it is known.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Decision {
    /// It is known.
    Made(MadeDecision),
    /// A server has been asked; the request waits until then.
    Wait(Instant),
}

/// What a rule decides about a host.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct MadeDecision {
    pub(super) is_blocked: bool,
    /// The index of the category that decided, as [`Rule::decided`] has them.
    pub(super) category: usize,
    /// Another path of the host may be decided otherwise.
    pub(super) has_paths: bool,
}

impl Rule {
    pub(super) fn count(&self, category: usize, decided: Decided) {
        if let Some(counts) = self.decided.get(category) {
            counts[decided as usize].fetch_add(1, Ordering::Relaxed);
        }
    }

    pub(super) fn count_answer(&self, answer: Answer) {
        self.answers[answer as usize].fetch_add(1, Ordering::Relaxed);
    }
}

/// Rules and lists of a node.
#[derive(Debug)]
pub struct UrlFilterRules {
    pub(super) rules: Vec<Rule>,
    categories: Vec<Category>,
    store: Store,
    /// Asked about hosts that no list has.
    server: Option<Arc<dyn Categories>>,
    /// Lines and records of lists that list nothing.
    skipped: usize,
    /// A number that differs where lists do.
    fingerprint: u64,
}

impl UrlFilterRules {
    /// Rules, with the texts of the lists in the order of `lists`, and the server that is asked about hosts in none. `key` is that of the store's
    /// hash. Counters of rules and categories with the same names continue from `previous`.
    ///
    /// # Errors
    /// [`RulesError`].
    pub fn new<'t>(
        rules: &[RuleConfig],
        lists: impl ExactSizeIterator<Item = (&'t ListConfig, &'t [u8])>,
        server: Option<Served<'_>>,
        key: [u64; 2],
        previous: Option<&Self>,
    ) -> Result<Self, RulesError> {
        if rules.len() > RULES_MAX {
            return Err(RulesError::TooManyRules(rules.len()));
        }
        if lists.len() > LISTS_MAX {
            return Err(RulesError::TooManyLists(lists.len()));
        }
        let mut new = Self {
            rules: Vec::new(),
            categories: Vec::new(),
            store: Store::new(key),
            server: None,
            skipped: 0,
            fingerprint: 0,
        };
        // The same on every node: it is compared between nodes.
        let mut texts = SipHasher13::new_with_keys(0, 0);
        for (index, (config, text)) in lists.enumerate() {
            let summary = new.read(index, config.format, text)?;
            new.skipped += summary.skipped;
            texts.write_u64(text.len() as u64);
            texts.write(text);
            let category = new.category_mut(&config.category)?;
            category.lists |= 1 << index;
            category.entries += summary.entries;
        }
        if let Some((names, server)) = server {
            if names.len() > CATEGORIES_MAX {
                return Err(RulesError::TooManyCategories(names.len()));
            }
            for (number, name) in (1_u8..).zip(names) {
                new.category_mut(name)?.served = served_bit(number);
            }
            new.server = Some(server);
        }
        new.store.finish();
        new.fingerprint = texts.finish();
        new.rules = rules.iter().map(|config| new.rule(config, previous)).collect::<Result<_, _>>()?;
        Ok(new)
    }

    fn read(&mut self, index: usize, format: ListFormat, text: &[u8]) -> Result<ListSummary, RulesError> {
        lists::read(format, text, |entry| self.store.add(index, &entry)).map_err(|error| match error {
            ReadError::List(error) => RulesError::List(index, error),
            ReadError::Entry { line, error } => RulesError::NoRoom { index, line, error },
        })
    }

    fn category_mut(&mut self, name: &str) -> Result<&mut Category, RulesError> {
        let id = category_id(name);
        let place = match self.categories.iter().position(|category| category.id == id) {
            Some(place) if self.categories[place].name != name => {
                return Err(RulesError::SameIdentifier(self.categories[place].name.clone(), name.to_string()));
            }
            Some(place) => place,
            None => {
                self.categories.push(Category { name: name.to_string(), id, lists: 0, entries: 0, served: 0 });
                self.categories.len() - 1
            }
        };
        Ok(&mut self.categories[place])
    }

    fn rule(&self, config: &RuleConfig, previous: Option<&Self>) -> Result<Rule, RulesError> {
        let before = previous.and_then(|previous| {
            previous.rules.iter().find(|rule| rule.config.name == config.name).map(|rule| (previous, rule))
        });
        let continued = |name: &str| {
            let (previous, rule) = before?;
            let place = previous.category_names().position(|known| known == name)?;
            rule.decided.get(place).map(Arc::clone)
        };
        Ok(Rule {
            block: self.selection(&config.name, &config.block)?,
            allow: self.selection(&config.name, &config.allow)?,
            decided: self.category_names().map(|name| continued(name).unwrap_or_default()).collect(),
            answers: before.map(|(_, rule)| Arc::clone(&rule.answers)).unwrap_or_default(),
            config: config.clone(),
        })
    }

    fn selection(&self, rule: &str, names: &[String]) -> Result<Selection, RulesError> {
        let mut selection = Selection::default();
        for name in names {
            if name == UNCATEGORISED {
                selection.uncategorised = true;
                continue;
            }
            let category = self
                .categories
                .iter()
                .find(|category| category.name == *name)
                .ok_or_else(|| RulesError::NoList { rule: rule.to_string(), category: name.clone() })?;
            selection.lists |= category.lists;
            selection.served |= category.served;
        }
        Ok(selection)
    }

    /// The names of the categories, in the order of a rule's counters.
    pub(super) fn category_names(&self) -> impl Iterator<Item = &str> {
        self.categories.iter().map(|category| category.name.as_str()).chain(RESERVED)
    }

    /// The name of a category by its index.
    pub(super) fn category_name(&self, index: usize) -> &str {
        self.category_names().nth(index).unwrap_or(UNDECIDED)
    }

    /// The identifier of a category by its index.
    pub(super) fn category_id(&self, index: usize) -> u16 {
        category_id(self.category_name(index))
    }

    /// The first rule that a connection matches.
    pub(super) fn find(&self, tuple: &Tuple) -> Option<&Rule> {
        self.rules.iter().find(|rule| rule.config.matches(tuple))
    }

    /// The server that is asked about hosts in no list.
    pub(super) fn server(&self) -> Option<&dyn Categories> {
        self.server.as_deref()
    }

    /// The names of the categories that lists have a host in, or a path of it.
    pub(super) fn listed(&self, host: &HostName, path: Option<&NormalPath>) -> impl Iterator<Item = &str> {
        let lists = self.store.find(host, path).lists;
        self.categories
            .iter()
            .filter(move |category| category.lists & lists != 0)
            .map(|category| category.name.as_str())
    }

    /// What a rule decides about a host, or a path of it. Lists decide first; the server is asked about hosts in none.
    pub(super) fn decide(&self, now: Instant, rule: &Rule, host: &HostName, path: Option<&NormalPath>) -> Decision {
        let found = self.store.find(host, path);
        let (served, has_paths) = match &self.server {
            Some(server) if found.lists == 0 => match server.look_up(now, host, path) {
                Lookup::Known { category, has_paths } => (served_bit(category), has_paths || found.has_paths),
                Lookup::Wait(until) => return Decision::Wait(until),
                lookup => {
                    let category = self.categories.len() + 2;
                    let is_blocked = lookup == Lookup::Block;
                    return Decision::Made(MadeDecision { is_blocked, category, has_paths: found.has_paths });
                }
            },
            _ => (0, found.has_paths),
        };
        let is_allowed = rule.allow.has(found.lists, served);
        let is_blocked = !is_allowed && rule.block.has(found.lists, served);
        let deciding = match (is_allowed, is_blocked) {
            (true, _) => found.lists & rule.allow.lists,
            (_, true) => found.lists & rule.block.lists,
            _ => found.lists,
        };
        let is_deciding = |category: &Category| category.lists & deciding != 0 || category.served & served != 0;
        let category = self.categories.iter().position(is_deciding).unwrap_or(self.categories.len());
        Decision::Made(MadeDecision { is_blocked, category, has_paths })
    }

    /// The index of connections that show no host.
    pub(super) fn undecided(&self) -> usize {
        self.categories.len() + 1
    }

    /// The index of requests that are malformed.
    pub(super) fn malformed(&self) -> usize {
        self.categories.len() + 3
    }

    /// Whether a rule blocks connections of the category with this identifier now. A category that is not known any more blocks nothing.
    pub(super) fn blocks(&self, rule: &Rule, id: u16) -> bool {
        let (lists, served) = match id {
            UNDECIDED_ID => return rule.config.undecided == Undecided::Block,
            // The host is not kept, so the server cannot be asked now.
            UNANSWERED_ID => return false,
            MALFORMED_ID => return rule.config.action != Action::Log,
            UNCATEGORISED_ID => (0, 0),
            id => match self.categories.iter().find(|category| category.id == id) {
                Some(category) => (category.lists, category.served),
                None => return false,
            },
        };
        rule.config.action != Action::Log && rule.block.has(lists, served) && !rule.allow.has(lists, served)
    }

    /// Categories with the number of entries in their lists.
    pub fn categories(&self) -> impl Iterator<Item = (&str, usize)> {
        self.categories.iter().map(|category| (category.name.as_str(), category.entries))
    }

    /// Lines and records of lists that are well-formed, and list nothing.
    #[must_use]
    pub const fn skipped(&self) -> usize {
        self.skipped
    }

    /// A number that differs where the texts of the lists do. Nodes with the same lists have the same.
    #[must_use]
    pub const fn fingerprint(&self) -> u64 {
        self.fingerprint
    }

    /// Entries of all lists.
    #[must_use]
    pub const fn entries(&self) -> usize {
        self.store.entries()
    }

    /// Bytes that the lists take.
    #[must_use]
    pub const fn memory_bytes(&self) -> usize {
        self.store.memory_bytes()
    }
}
