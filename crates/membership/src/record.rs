//! What a member publishes of itself, and the settings that all members have in common.
//!
//! A record is one line: words of the form `key=value`, separated by spaces, in any order. Unknown keys are ignored, so that later
//! versions can add some.
//!
//! ```text
//! name=gw-b replication=192.0.2.2:3780 detection=192.0.2.2:3784 state=active version=1780000000000
//! backups=2 edge_nodes=0,1,2,3 configuration=7 version=3
//! ```

use alloc::string::{String, ToString};
use core::cmp::Ordering;
use core::fmt;
use core::net::SocketAddr;
use core::str::FromStr;

use flow::{NodeId, NodeSet};

/// Members of a cluster. Their numbers are below this.
pub const MEMBERS_MAX: usize = 64;
/// Backups of each connection.
pub const BACKUPS_MAX: u8 = 8;
/// Bytes of a member's name.
pub const NAME_BYTES_MAX: usize = 63;
/// The versions of records and settings are below this, so that every one in use but the last can be superseded.
pub const VERSION_END: u64 = 1 << 63;
/// Bytes of a record.
pub const RECORD_BYTES_MAX: usize = 512;

/// Why a record cannot be used. It was written by another node or by an operator.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
pub enum RecordError {
    /// It is longer than any record.
    #[error("a record has at most {RECORD_BYTES_MAX} bytes")]
    TooLong,
    /// It is not UTF-8.
    #[error("a record is text in UTF-8")]
    NotText,
    /// A word has no value.
    #[error("a record consists of words of the form key=value")]
    NotAPair,
    /// A key is missing.
    #[error("the record lacks {0}=")]
    Missing(&'static str),
    /// A value cannot be read.
    #[error("the value of {0}= cannot be read")]
    Value(&'static str),
    /// The number of backups is none that nodes can have.
    #[error("the value of backups= is a number from 1 to {BACKUPS_MAX}")]
    Backups,
    /// The version is none that could be superseded.
    #[error("the value of version= is a number below 2^63: write it again with a lower one")]
    Version,
    /// A key occurs twice.
    #[error("the record has {0}= twice")]
    Twice(&'static str),
    /// The number is not that of a member.
    #[error("node {} is none of {MEMBERS_MAX} members, which are numbered from 0", .0.0)]
    Number(NodeId),
}

/// What a member wants to be to the others.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug, Default)]
pub enum MemberState {
    /// A peer.
    #[default]
    Active,
    /// A peer that holds no addresses, because an operator drains it.
    Draining,
    /// It has left: it is no peer any more.
    Left,
}

impl MemberState {
    /// All of them.
    pub const ALL: [Self; 3] = [Self::Active, Self::Draining, Self::Left];

    /// Its name in records.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Active => "active",
            Self::Draining => "draining",
            Self::Left => "left",
        }
    }
}

/// What a member publishes of itself.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Member {
    /// Its number, below [`MEMBERS_MAX`].
    pub id: NodeId,
    /// Its name for people: at most [`NAME_BYTES_MAX`] bytes, without spaces and control characters.
    pub name: String,
    /// Its address and UDP port for replication.
    pub replication: SocketAddr,
    /// Its address and UDP port for failure detection.
    pub detection: SocketAddr,
    /// What it wants to be.
    pub state: MemberState,
    /// Which of two records of the member is newer: the higher one. For records that gateways make, milliseconds since 1970 at the
    /// record's making, or one more than the newest version that the gateway has seen of its number. Below [`VERSION_END`].
    pub version: u64,
}

impl Member {
    /// Reads a record.
    ///
    /// # Errors
    /// What is wrong with it.
    pub fn parse(id: NodeId, text: &str) -> Result<Self, RecordError> {
        if usize::from(id.0) >= MEMBERS_MAX {
            return Err(RecordError::Number(id));
        }
        let mut name = None;
        let mut addresses = [None; 2];
        let (mut state, mut version) = (None, None);
        for pair in pairs(text)? {
            let (key, value) = pair?;
            match key {
                "name" => once("name", &mut name, parse_name(value))?,
                "replication" => once("replication", &mut addresses[0], parsed("replication", value))?,
                "detection" => once("detection", &mut addresses[1], parsed("detection", value))?,
                "state" => {
                    let known = MemberState::ALL.into_iter().find(|known| known.name() == value);
                    once("state", &mut state, known.ok_or(RecordError::Value("state")))?;
                }
                "version" => once("version", &mut version, parse_version(value))?,
                _ => {}
            }
        }
        let [replication, detection] = addresses;
        Ok(Self {
            id,
            name: name.unwrap_or_default(),
            replication: replication.ok_or(RecordError::Missing("replication"))?,
            detection: detection.ok_or(RecordError::Missing("detection"))?,
            state: state.unwrap_or_default(),
            version: version.ok_or(RecordError::Missing("version"))?,
        })
    }

    /// As [`Member::parse`], of bytes that another program wrote.
    ///
    /// # Errors
    /// What is wrong with them.
    pub fn parse_bytes(id: NodeId, bytes: &[u8]) -> Result<Self, RecordError> {
        Self::parse(id, text(bytes)?)
    }

    /// A name as records can carry it: what does not belong into one is replaced by `-`.
    #[must_use]
    pub fn clean_name(name: &str) -> String {
        let mut clean = String::new();
        for character in name.chars() {
            let character = if is_in_name(character) { character } else { '-' };
            if clean.len() + character.len_utf8() > NAME_BYTES_MAX {
                break;
            }
            clean.push(character);
        }
        clean
    }

    /// Which of two records of one member counts: the greater one. Of one version, the content decides, so that all nodes choose the
    /// same record whichever comes first.
    #[must_use]
    pub fn precedence(&self, other: &Self) -> Ordering {
        let key = |member: &Self| (member.version, member.state, member.replication, member.detection);
        key(self).cmp(&key(other)).then_with(|| self.name.cmp(&other.name))
    }
}

impl fmt::Display for Member {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if !self.name.is_empty() {
            write!(f, "name={} ", self.name)?;
        }
        let Self { replication, detection, state, version, .. } = self;
        write!(f, "replication={replication} detection={detection} state={} version={version}", state.name())
    }
}

/// What all members have in common.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug, Default)]
pub struct Settings {
    /// Which of two settings is newer: the higher one.
    pub version: u64,
    /// Backups of each connection; `None`: as each node's configuration has it.
    pub backups: Option<u8>,
    /// The nodes that the edges distribute packets to; `None`: as each node's configuration has it.
    pub edge_nodes: Option<NodeSet>,
    /// Version of the configuration file: when it rises, the gateways read their files again.
    pub configuration: u64,
}

impl Settings {
    /// Reads settings.
    ///
    /// # Errors
    /// What is wrong with them.
    pub fn parse(text: &str) -> Result<Self, RecordError> {
        let (mut version, mut backups, mut edge_nodes, mut configuration) = (None, None, None, None);
        for pair in pairs(text)? {
            let (key, value) = pair?;
            match key {
                "version" => once("version", &mut version, parse_version(value))?,
                "backups" => {
                    let count = value.parse().ok().filter(|count| (1..=BACKUPS_MAX).contains(count));
                    once("backups", &mut backups, count.ok_or(RecordError::Backups))?;
                }
                "edge_nodes" => once("edge_nodes", &mut edge_nodes, parse_nodes(value))?,
                "configuration" => once("configuration", &mut configuration, parsed("configuration", value))?,
                _ => {}
            }
        }
        let (version, configuration) = (version.unwrap_or_default(), configuration.unwrap_or_default());
        Ok(Self { version, backups, edge_nodes, configuration })
    }

    /// As [`Settings::parse`], of bytes that another program wrote.
    ///
    /// # Errors
    /// What is wrong with them.
    pub fn parse_bytes(bytes: &[u8]) -> Result<Self, RecordError> {
        Self::parse(text(bytes)?)
    }
}

impl fmt::Display for Settings {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if let Some(backups) = self.backups {
            write!(f, "backups={backups} ")?;
        }
        if let Some(nodes) = self.edge_nodes {
            for (place, node) in nodes.iter().enumerate() {
                write!(f, "{}{}", if place == 0 { "edge_nodes=" } else { "," }, node.0)?;
            }
            f.write_str(" ")?;
        }
        write!(f, "configuration={} version={}", self.configuration, self.version)
    }
}

fn text(bytes: &[u8]) -> Result<&str, RecordError> {
    if bytes.len() > RECORD_BYTES_MAX {
        return Err(RecordError::TooLong);
    }
    core::str::from_utf8(bytes).map_err(|_| RecordError::NotText)
}

fn pairs(text: &str) -> Result<impl Iterator<Item = Result<(&str, &str), RecordError>>, RecordError> {
    if text.len() > RECORD_BYTES_MAX {
        return Err(RecordError::TooLong);
    }
    Ok(text.split_ascii_whitespace().map(|word| word.split_once('=').ok_or(RecordError::NotAPair)))
}

fn once<T>(key: &'static str, place: &mut Option<T>, value: Result<T, RecordError>) -> Result<(), RecordError> {
    match place.replace(value?) {
        Some(_) => Err(RecordError::Twice(key)),
        None => Ok(()),
    }
}

fn parsed<T: FromStr>(key: &'static str, value: &str) -> Result<T, RecordError> {
    value.parse().map_err(|_| RecordError::Value(key))
}

fn parse_version(value: &str) -> Result<u64, RecordError> {
    parsed("version", value)
        .and_then(|version| if version < VERSION_END { Ok(version) } else { Err(RecordError::Version) })
}

/// The version of what replaces something of this version.
#[must_use]
pub const fn version_above(version: u64) -> u64 {
    if version < VERSION_END - 1 { version + 1 } else { VERSION_END - 1 }
}

/// Numbers of at least two nodes, each once.
fn parse_nodes(value: &str) -> Result<NodeSet, RecordError> {
    const ERROR: RecordError = RecordError::Value("edge_nodes");
    let mut nodes = NodeSet::EMPTY;
    for number in value.split(',') {
        let number = number.parse().map_err(|_| ERROR)?;
        if !nodes.insert(NodeId(number)) {
            return Err(ERROR);
        }
    }
    if nodes.len() < 2 { Err(ERROR) } else { Ok(nodes) }
}

fn parse_name(value: &str) -> Result<String, RecordError> {
    let is_name = value.len() <= NAME_BYTES_MAX && value.chars().all(is_in_name);
    is_name.then(|| value.to_string()).ok_or(RecordError::Value("name"))
}

fn is_in_name(character: char) -> bool {
    !character.is_whitespace() && !character.is_control() && character != '='
}

#[cfg(test)]
mod tests {
    use std::format;

    use super::*;

    const RECORD: &str = "name=gw-b replication=192.0.2.2:3780 detection=[2001:db8::2]:3784 state=draining version=7";

    #[test]
    fn a_record_is_read_and_written_and_unknown_keys_are_ignored() {
        let member = Member::parse(NodeId(1), &format!("{RECORD} colour=blue")).unwrap();
        assert_eq!((member.name.as_str(), member.state, member.version), ("gw-b", MemberState::Draining, 7));
        assert_eq!(format!("{member}"), RECORD);
        let minimal = Member::parse(NodeId(1), "version=1 detection=192.0.2.2:2 replication=192.0.2.2:1").unwrap();
        assert_eq!((minimal.name.as_str(), minimal.state), ("", MemberState::Active));
    }

    #[test]
    fn a_wrong_record_is_refused_with_its_key() {
        let refused = |text: &str| Member::parse(NodeId(1), text).unwrap_err();
        assert_eq!(refused(""), RecordError::Missing("replication"));
        assert_eq!(refused("gibberish"), RecordError::NotAPair);
        assert_eq!(refused("version=1 version=2"), RecordError::Twice("version"));
        assert_eq!(refused("replication=here"), RecordError::Value("replication"));
        assert_eq!(refused("state=dancing"), RecordError::Value("state"));
        assert_eq!(refused("version=-1"), RecordError::Value("version"));
        for version in [VERSION_END, u64::MAX] {
            assert_eq!(refused(&format!("version={version}")), RecordError::Version);
            assert_eq!(Settings::parse(&format!("version={version}")), Err(RecordError::Version));
        }
        assert!(Settings::parse(&format!("version={}", VERSION_END - 1)).is_ok());
        assert_eq!(refused(&"a".repeat(RECORD_BYTES_MAX + 1)), RecordError::TooLong);
        assert_eq!(Member::parse(NodeId(64), RECORD), Err(RecordError::Number(NodeId(64))));
        assert_eq!(Member::parse_bytes(NodeId(1), b"name=\xff"), Err(RecordError::NotText));
    }

    #[test]
    fn settings_are_read_and_written() {
        let settings = Settings::parse("backups=2 configuration=7 version=3").unwrap();
        assert_eq!(settings, Settings { version: 3, backups: Some(2), edge_nodes: None, configuration: 7 });
        assert_eq!(format!("{settings}"), "backups=2 configuration=7 version=3");
        assert_eq!(Settings::parse(""), Ok(Settings::default()));
        for text in ["backups=0", "backups=9", "backups=two"] {
            assert_eq!(Settings::parse(text), Err(RecordError::Backups), "{text}");
        }
        let settings = Settings::parse("version=4 edge_nodes=3,0,63").unwrap();
        assert_eq!(settings.edge_nodes, Some([0, 3, 63].map(NodeId).into_iter().collect()));
        assert_eq!(format!("{settings}"), "edge_nodes=0,3,63 configuration=0 version=4");
        for text in ["edge_nodes=", "edge_nodes=1", "edge_nodes=1,1", "edge_nodes=1,64", "edge_nodes=1,a"] {
            assert_eq!(Settings::parse(text), Err(RecordError::Value("edge_nodes")), "{text}");
        }
    }

    #[test]
    fn a_name_is_cleaned_and_shortened_for_records() {
        assert_eq!(Member::clean_name("gate way=1\n"), "gate-way-1-");
        let long = Member::clean_name(&"ü".repeat(100));
        assert_eq!(long.len(), 62);
        assert!(parse_name(&long).is_ok());
    }
}
