//! The exact store of the lists: names, and paths of names, with the lists that they are in.
//!
//! ```text
//!   slots   [ · | 17 | · | 0 | … ]      open addressing by a keyed hash; at most three quarters are used
//!                 │      │
//!   arena   [ length, policy, bytes | length, policy, bytes | … ]      one allocation for all names
//!                        │
//!   policies             └─► lists that have the name, and lists that exempt it, alone and for the names in it
//! ```
//!
//! A name takes its length and 4 bytes, and 5 to 11 bytes of slots. Names with the same lists share a policy, so there are few.

use alloc::collections::BTreeMap;
use alloc::vec;
use alloc::vec::Vec;
use core::hash::Hasher;

use siphasher::sip::SipHasher13;

use super::lists::{ListEntry, Scope};
use super::path::NormalPath;
use crate::inspect::HostName;

/// Lists at most: each has a bit.
pub const LISTS_MAX: usize = 64;
/// Entries of all lists together.
pub const ENTRIES_MAX: usize = 8 << 20;
/// Bytes of all names together.
const ARENA_BYTES_MAX: usize = 1 << 30;
/// Sets of lists that names are in.
const POLICIES_MAX: usize = 1 << 16;
const EMPTY: u32 = u32::MAX;
const RECORD_HEADER_BYTES: usize = 4;
const SLOTS_MIN: usize = 64;

/// Why an entry finds no room.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
pub enum StoreError {
    /// More than [`ENTRIES_MAX`], or names that are too long together.
    #[error(
        "the lists have more than {ENTRIES_MAX} entries: leave lists out, or write domains in place of their hosts"
    )]
    TooManyEntries,
    /// More than 65,536 sets of lists.
    #[error("names are in too many different sets of lists: use fewer lists")]
    TooManyPolicies,
}

/// Lists, a bit each: those that have a name, and those that exempt it.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug, Default)]
struct Lists {
    listed: u64,
    exempt: u64,
}

/// What lists hold of a name.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug, Default)]
struct Policy {
    /// For the name itself.
    host: Lists,
    /// For the names in it.
    below: Lists,
    /// There are entries for paths of the name.
    has_paths: bool,
}

impl Policy {
    const fn with(mut self, list: u64, scope: Scope, is_exempt: bool) -> Self {
        let (host, below) = if is_exempt {
            (&mut self.host.exempt, &mut self.below.exempt)
        } else {
            (&mut self.host.listed, &mut self.below.listed)
        };
        if !matches!(scope, Scope::Below) {
            *host |= list;
        }
        if !matches!(scope, Scope::Host) {
            *below |= list;
        }
        self
    }
}

/// What the lists hold of a host, or of a path of it.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Found {
    /// The lists that it is in, a bit each.
    pub lists: u64,
    /// There are entries for paths of the host, so another path may be in other lists.
    pub has_paths: bool,
}

/// The store.
#[derive(Debug)]
pub struct Store {
    key: [u64; 2],
    arena: Vec<u8>,
    slots: Vec<u32>,
    names: usize,
    entries: usize,
    policies: Vec<Policy>,
    /// The index of each policy, while lists are added.
    known: BTreeMap<Policy, u16>,
}

impl Store {
    /// An empty store, whose hash has this key.
    #[must_use]
    pub fn new(key: [u64; 2]) -> Self {
        Self {
            key,
            arena: Vec::new(),
            slots: Vec::new(),
            names: 0,
            entries: 0,
            policies: Vec::new(),
            known: BTreeMap::new(),
        }
    }

    /// Adds an entry of the list with this index, below [`LISTS_MAX`].
    ///
    /// # Errors
    /// There is no room. The store is then of no use.
    pub fn add(&mut self, list: usize, entry: &ListEntry) -> Result<(), StoreError> {
        let bit = 1 << list;
        self.entries += 1;
        if self.entries > ENTRIES_MAX {
            return Err(StoreError::TooManyEntries);
        }
        let name = entry.name.as_str().as_bytes();
        let Some(path) = &entry.path else {
            return self.change(name, &[], |policy| policy.with(bit, entry.scope, entry.is_exempt));
        };
        self.change(name, &[], |policy| Policy { has_paths: true, ..policy })?;
        self.change(name, path.as_bytes(), |policy| policy.with(bit, entry.scope, entry.is_exempt))
    }

    /// Frees what only adding needs.
    pub fn finish(&mut self) {
        self.known = BTreeMap::new();
        self.arena.shrink_to_fit();
        self.policies.shrink_to_fit();
    }

    /// Entries that were added.
    #[must_use]
    pub const fn entries(&self) -> usize {
        self.entries
    }

    /// Bytes that the store takes.
    #[must_use]
    pub const fn memory_bytes(&self) -> usize {
        self.arena.capacity()
            + self.slots.capacity() * size_of::<u32>()
            + self.policies.capacity() * size_of::<Policy>()
    }

    /// What the lists hold of a host, and of the path where one is given.
    ///
    /// In each list, the entry that fits best decides: that of the longest domain, and of a domain's paths the longest. An exempting
    /// entry takes the name out of its list and of those behind it.
    #[must_use]
    pub fn find(&self, host: &HostName, path: Option<&NormalPath>) -> Found {
        let mut found = Found::default();
        let (mut decided, mut exempt) = (0u64, 0u64);
        let mut apply = |policy: Policy, is_host: bool| {
            let Lists { listed, exempt: exempting } = if is_host { policy.host } else { policy.below };
            let new = (listed | exempting) & !decided;
            decided |= new;
            exempt |= exempting & new;
            found.lists |= listed & !exempting & new;
        };
        let mut has_paths = false;
        for (depth, domain) in host.domains().enumerate() {
            let Some(policy) = self.policy(domain.as_bytes(), &[]) else { continue };
            has_paths |= policy.has_paths;
            if policy.has_paths {
                for prefix in path.into_iter().flat_map(NormalPath::prefixes) {
                    if let Some(policy) = self.policy(domain.as_bytes(), prefix) {
                        apply(policy, depth == 0);
                    }
                }
            }
            apply(policy, depth == 0);
        }
        if exempt != 0 {
            // Those before the first list that exempts it.
            found.lists &= (exempt & exempt.wrapping_neg()) - 1;
        }
        Found { has_paths, ..found }
    }

    fn policy(&self, name: &[u8], path: &[u8]) -> Option<Policy> {
        let slot = self.slot(name, path)?;
        let offset = self.slots[slot];
        (offset != EMPTY).then(|| self.policies[usize::from(self.policy_index(offset as usize))])
    }

    /// The slot of a name and path, or the empty one that it would take. `None` without slots.
    fn slot(&self, name: &[u8], path: &[u8]) -> Option<usize> {
        let mask = self.slots.len().checked_sub(1)?;
        let mut slot = self.hash(name, path) as usize & mask;
        // A quarter is empty, so the search ends.
        while self.slots[slot] != EMPTY {
            let (known, rest) = self.text(self.slots[slot] as usize).split_at_checked(name.len()).unwrap_or_default();
            if known == name && rest == path && !known.is_empty() {
                break;
            }
            slot = (slot + 1) & mask;
        }
        Some(slot)
    }

    fn hash(&self, name: &[u8], path: &[u8]) -> u64 {
        let mut hasher = SipHasher13::new_with_keys(self.key[0], self.key[1]);
        hasher.write(name);
        hasher.write(path);
        hasher.finish()
    }

    fn text(&self, offset: usize) -> &[u8] {
        let length_bytes = u16::from_le_bytes([self.arena[offset], self.arena[offset + 1]]);
        &self.arena[offset + RECORD_HEADER_BYTES..][..usize::from(length_bytes)]
    }

    fn policy_index(&self, offset: usize) -> u16 {
        u16::from_le_bytes([self.arena[offset + 2], self.arena[offset + 3]])
    }

    fn change(&mut self, name: &[u8], path: &[u8], change: impl FnOnce(Policy) -> Policy) -> Result<(), StoreError> {
        if (self.names + 1) * 4 > self.slots.len() * 3 {
            self.grow();
        }
        let slot = self.slot(name, path).ok_or(StoreError::TooManyEntries)?;
        let offset = self.slots[slot];
        let before = if offset == EMPTY {
            Policy::default()
        } else {
            self.policies[usize::from(self.policy_index(offset as usize))]
        };
        let index = self.index_of(change(before))?.to_le_bytes();
        if offset != EMPTY {
            self.arena[offset as usize + 2..offset as usize + 4].copy_from_slice(&index);
            return Ok(());
        }
        let length_bytes = name.len() + path.len();
        if self.arena.len() + RECORD_HEADER_BYTES + length_bytes > ARENA_BYTES_MAX {
            return Err(StoreError::TooManyEntries);
        }
        self.slots[slot] = self.arena.len() as u32;
        self.names += 1;
        self.arena.extend_from_slice(&(length_bytes as u16).to_le_bytes());
        self.arena.extend_from_slice(&index);
        self.arena.extend_from_slice(name);
        self.arena.extend_from_slice(path);
        Ok(())
    }

    fn index_of(&mut self, policy: Policy) -> Result<u16, StoreError> {
        if let Some(index) = self.known.get(&policy) {
            return Ok(*index);
        }
        if self.policies.len() >= POLICIES_MAX {
            return Err(StoreError::TooManyPolicies);
        }
        let index = self.policies.len() as u16;
        self.policies.push(policy);
        self.known.insert(policy, index);
        Ok(index)
    }

    fn grow(&mut self) {
        let slots = (self.slots.len() * 2).max(SLOTS_MIN);
        let offsets = core::mem::replace(&mut self.slots, vec![EMPTY; slots]);
        for offset in offsets.into_iter().filter(|offset| *offset != EMPTY) {
            let mask = slots - 1;
            let mut slot = self.hash(self.text(offset as usize), &[]) as usize & mask;
            while self.slots[slot] != EMPTY {
                slot = (slot + 1) & mask;
            }
            self.slots[slot] = offset;
        }
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap as Map;
    use std::string::String;
    use std::vec::Vec;

    use proptest::prelude::*;

    use super::*;
    use crate::url_filter::lists::{self, ListFormat};

    fn store(lists: &[(ListFormat, &str)]) -> Store {
        let mut store = Store::new([1, 2]);
        for (index, (format, text)) in lists.iter().enumerate() {
            lists::read(*format, text.as_bytes(), |entry| store.add(index, &entry)).expect("a good list");
        }
        store.finish();
        store
    }

    fn find(store: &Store, url: &str) -> u64 {
        let (host, path) = url.split_at(url.find('/').unwrap_or(url.len()));
        store.find(&HostName::new(host.as_bytes()).unwrap(), Some(&NormalPath::new(path.as_bytes()))).lists
    }

    #[test]
    fn each_format_has_its_scope() {
        let store = store(&[
            (ListFormat::Plain, "ads.example\n*.only.example # those in it\n"),
            (ListFormat::Hosts, "0.0.0.0 host.example other.example\n127.0.0.1 localhost\n192.0.2.1 real.example"),
            (
                ListFormat::Rpz,
                "$TTL 60\n@ IN SOA a. b. (\n 1 2\n 3 4 5 )\nzone.example CNAME .\n*.zone.example 60 IN CNAME *.\n",
            ),
        ]);
        let expected = [
            ("ads.example", 1),
            ("x.ads.example", 1),
            ("bads.example", 0),
            ("only.example", 0),
            ("a.b.only.example", 1),
            ("host.example", 2),
            ("x.host.example", 0),
            ("real.example", 0),
            ("localhost", 0),
            ("zone.example", 4),
            ("x.zone.example", 4),
        ];
        for (name, lists) in expected {
            assert_eq!(find(&store, name), lists, "{name}");
        }
        assert_eq!(store.entries(), 6);
    }

    #[test]
    fn paths_are_more_exact_than_their_hosts() {
        let store = store(&[
            (ListFormat::Plain, "big.example/ads\nbig.example/%61ds/top\n"),
            (ListFormat::Plain, "big.example"),
        ]);
        for (url, lists) in [
            ("big.example/ads", 3),
            ("big.example/ads/x", 3),
            ("www.big.example/ads?q", 3),
            ("big.example/adserver", 2),
            ("big.example/", 2),
            ("big.example", 2),
        ] {
            assert_eq!(find(&store, url), lists, "{url}");
        }
        assert!(store.find(&HostName::new(b"a.big.example").unwrap(), None).has_paths);
        assert!(!store.find(&HostName::new(b"small.example").unwrap(), None).has_paths);
    }

    #[test]
    fn an_exempting_entry_ends_the_search_in_later_lists() {
        let store = store(&[
            (ListFormat::Plain, "bad.example"),
            (ListFormat::Rpz, "good.bad.example CNAME rpz-passthru.\nbad.example CNAME .\n*.bad.example CNAME .\n"),
            (ListFormat::Plain, "bad.example"),
        ]);
        assert_eq!(find(&store, "bad.example"), 0b111);
        assert_eq!(find(&store, "x.bad.example"), 0b111);
        assert_eq!(find(&store, "good.bad.example"), 0b001, "the list before it goes on to apply");
    }

    proptest! {
        #[test]
        fn the_store_finds_what_a_map_finds(
            entries in prop::collection::vec(("[a-c]{1,2}(\\.[a-c]{1,2}){0,2}", 0usize..4), 0..300),
            asked in prop::collection::vec("[a-c]{1,2}(\\.[a-c]{1,2}){0,3}", 1..40),
        ) {
            let mut store = Store::new([3, 4]);
            let mut map: Map<String, u64> = Map::new();
            for (name, list) in entries {
                let host = HostName::new(name.as_bytes()).unwrap();
                store.add(list, &ListEntry { name: host, scope: Scope::Both, path: None, is_exempt: false }).unwrap();
                *map.entry(name).or_default() |= 1 << list;
            }
            for name in asked {
                let host = HostName::new(name.as_bytes()).unwrap();
                let expected = host.domains().filter_map(|domain| map.get(domain)).fold(0, |lists, more| lists | more);
                prop_assert_eq!(store.find(&host, None).lists, expected);
            }
        }
    }

    #[test]
    fn a_name_takes_its_length_and_nine_to_fifteen_bytes() {
        for names in [20_000, 30_000, 50_000] {
            let text: String = (0..names).map(|number| std::format!("host-{number:06}.example\n")).collect();
            let bytes = store(&[(ListFormat::Plain, &text)]).memory_bytes() as f64 / f64::from(names);
            let beside = bytes - 19.0;
            assert!((9.0..=15.0).contains(&beside), "{names}: {beside} bytes");
        }
    }

    #[test]
    fn mistakes_name_the_line_and_the_remedy() {
        let mistake = |format, text: &str| {
            let read = lists::read(format, text.as_bytes(), |_| Ok::<(), ()>(()));
            match read {
                Err(lists::ReadError::List(error)) => std::format!("{error}"),
                other => panic!("{text}: {other:?}"),
            }
        };
        let long = "x".repeat(5000);
        for (format, text, expected) in [
            (ListFormat::Plain, "a.example\nb example", "line 2: there is more than one word"),
            (ListFormat::Plain, "http://a.example/", "has a scheme"),
            (ListFormat::Plain, "a_b!.example", "is no host name"),
            (ListFormat::Plain, "a.example\n-\n", "line 2: \"-\" is no host name"),
            (ListFormat::Hosts, "0.0.0.0 -.-", "is no host name"),
            (ListFormat::Plain, "a.example/x?q", "without a query"),
            (ListFormat::Plain, &long, "is this a list of hosts?"),
            (ListFormat::Hosts, "a.example", "is no address"),
            (ListFormat::Hosts, "0.0.0.0", "no name behind the address"),
            (ListFormat::Rpz, "a.example.rpz. CNAME .", "$ORIGIN"),
            (ListFormat::Rpz, "a.example CNAME", "the record has no type"),
            (ListFormat::Rpz, "@ SOA a. b. (\n1", "never closed"),
        ] {
            let text = mistake(format, text);
            assert!(text.contains(expected), "{expected}: {text}");
        }
    }

    #[test]
    fn owners_of_a_zone_are_relative_or_absolute() {
        let text = "$ORIGIN rpz.example.\n@ SOA . . 1 2 3 4 5\n  NS ns.\na.example CNAME .\nB.Example.RPZ.example. IN CNAME rpz-drop.\n\
                    32.1.2.0.192.rpz-ip CNAME .\nc.example A 192.0.2.1 ; data of its own\n";
        let mut names = Vec::new();
        let summary = lists::read(ListFormat::Rpz, text.as_bytes(), |entry| {
            names.push(String::from(entry.name.as_str()));
            Ok::<(), ()>(())
        });
        assert_eq!(summary.unwrap(), lists::ListSummary { entries: 2, skipped: 4 });
        assert_eq!(names, ["a.example", "b.example"]);
    }
}
