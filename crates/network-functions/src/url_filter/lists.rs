//! Lists of hosts and path prefixes, as they are written: pure parsers, line by line.
//!
//! | format | a line | lists |
//! |---|---|---|
//! | plain | `host`, `*.host` or `host/path`; `#` begins a comment | the host and all names in it; with `*.`, the names in it alone |
//! | hosts | an address and names, as in `hosts(5)`; `#` begins a comment | each name alone, where the address is unspecified or a loopback one |
//! | RPZ | `owner CNAME target` of a response policy zone; `;` begins a comment | the owner alone; `*.owner`: the names in it |
//!
//! In a response policy zone, the target `rpz-passthru.` exempts the name; every other target lists it. Records that are no such policy
//! (`SOA`, `NS`, other types, triggers by address or name server) are counted and skipped.

use alloc::string::String;
use alloc::vec::Vec;
use core::convert::Infallible;
use core::net::IpAddr;

use arrayvec::ArrayVec;

use super::path::{NormalPath, PATH_BYTES_MAX, PATH_SEGMENTS_MAX};
use crate::inspect::{HOST_NAME_BYTES_MAX, HostName};

/// The longest line in bytes.
pub const LINE_BYTES_MAX: usize = 4096;
/// Words of a line that are read; a line of a hosts file has an address and names.
const WORDS_MAX: usize = 64;
/// Names of each hosts file that are those of the machine itself.
const LOCAL_NAMES: [&str; 9] = [
    "localhost",
    "localhost.localdomain",
    "local",
    "broadcasthost",
    "ip6-localhost",
    "ip6-loopback",
    "ip6-localnet",
    "ip6-mcastprefix",
    "0.0.0.0",
];

/// How a list is written.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default)]
pub enum ListFormat {
    /// A host, or a host and a path prefix, a line.
    #[default]
    Plain,
    /// A hosts file.
    Hosts,
    /// A response policy zone.
    Rpz,
}

impl ListFormat {
    /// All formats, with their names.
    pub const ALL: [(&'static str, Self); 3] = [("plain", Self::Plain), ("hosts", Self::Hosts), ("rpz", Self::Rpz)];
}

/// Which names an entry stands for.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Scope {
    /// The host alone.
    Host,
    /// All names in the domain, but not the domain itself.
    Below,
    /// Both.
    Both,
}

/// An entry of a list.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct ListEntry {
    /// The host, or the domain.
    pub name: HostName,
    /// The names that it stands for.
    pub scope: Scope,
    /// The paths that begin with this; `None`: the whole host.
    pub path: Option<NormalPath>,
    /// The name is not listed but exempt: from this list and from those after it.
    pub is_exempt: bool,
}

/// A mistake in a list.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
#[error("line {line}: {mistake}")]
pub struct ListError {
    /// The line, from 1.
    pub line: usize,
    /// What is wrong with it.
    pub mistake: ListMistake,
}

/// What is wrong with a line.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
pub enum ListMistake {
    /// It is too long.
    #[error("it is longer than {LINE_BYTES_MAX} bytes: is this a list of hosts?")]
    TooLong,
    /// Its name is none.
    #[error("{0:?} is no host name: write letters, digits, hyphens and dots, as in \"ads.example.org\"")]
    Host(String),
    /// It has a scheme.
    #[error("{0:?} has a scheme: write the host, or the host and a path, without it")]
    Scheme(String),
    /// Its path is none.
    #[error(
        "{0:?} is no path prefix: write it without a query, at most {PATH_BYTES_MAX} bytes and {PATH_SEGMENTS_MAX} segments"
    )]
    Path(String),
    /// A line of a plain list has several words.
    #[error("there is more than one word: write one host a line, or choose format = \"hosts\"")]
    Words,
    /// A line of a hosts file begins with no address.
    #[error("{0:?} is no address: a hosts file has an address and names, as in \"0.0.0.0 ads.example.org\"")]
    Address(String),
    /// A line of a hosts file has no names.
    #[error("there is no name behind the address: write one, or remove the line")]
    NoName,
    /// The owner of a record is not in the zone.
    #[error("{0:?} is not in the zone: write names relative to it, or $ORIGIN above them")]
    Owner(String),
    /// A record is incomplete.
    #[error("the record has no type, or no value: write \"name CNAME .\"")]
    Record,
    /// Parentheses of a record do not end.
    #[error("a parenthesis is opened, and never closed")]
    Parenthesis,
}

/// What is read of a list, beside its entries.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct ListSummary {
    /// Entries.
    pub entries: usize,
    /// Lines and records that are well-formed, and list nothing.
    pub skipped: usize,
}

/// Reads a list, and gives each entry to `take` in the order of the lines, until that fails.
///
/// # Errors
/// The first mistake, or what `take` returned for an entry, with the line.
pub fn read<E>(
    format: ListFormat,
    text: &[u8],
    mut take: impl FnMut(ListEntry) -> Result<(), E>,
) -> Result<ListSummary, ReadError<E>> {
    let (mut summary, mut zone, mut lines) = (ListSummary::default(), Zone::default(), 0);
    for (line, bytes) in lines_of(text) {
        lines = line;
        read_line(format, (line, bytes), &mut zone, &mut summary, &mut take)?;
    }
    zone.end(lines).map_err(ReadError::List)?;
    summary.skipped += zone.skipped;
    Ok(summary)
}

/// The mistakes of a list in the order of its lines, at most `mistakes_max`.
#[must_use]
pub fn mistakes(format: ListFormat, text: &[u8], mistakes_max: usize) -> Vec<ListError> {
    let (mut summary, mut zone, mut lines) = (ListSummary::default(), Zone::default(), 0);
    let mut mistakes = Vec::new();
    for (line, bytes) in lines_of(text) {
        if mistakes.len() >= mistakes_max {
            return mistakes;
        }
        lines = line;
        let found = read_line(format, (line, bytes), &mut zone, &mut summary, &mut |_| Ok::<(), Infallible>(()));
        if let Err(ReadError::List(mistake)) = found {
            mistakes.push(mistake);
        }
    }
    mistakes.extend(zone.end(lines).err());
    mistakes
}

fn lines_of(text: &[u8]) -> impl Iterator<Item = (usize, &[u8])> {
    (1..).zip(text.split(|byte| *byte == b'\n'))
}

fn read_line<E>(
    format: ListFormat,
    (line, bytes): (usize, &[u8]),
    zone: &mut Zone,
    summary: &mut ListSummary,
    take: &mut impl FnMut(ListEntry) -> Result<(), E>,
) -> Result<(), ReadError<E>> {
    let mistake = |mistake| ReadError::List(ListError { line, mistake });
    if bytes.len() > LINE_BYTES_MAX {
        return Err(mistake(ListMistake::TooLong));
    }
    let comment = if format == ListFormat::Rpz { b';' } else { b'#' };
    let content = bytes.split(|byte| *byte == comment).next().unwrap_or_default();
    let mut add = |entry: ListEntry| {
        summary.entries += 1;
        take(entry).map_err(|error| ReadError::Entry { line, error })
    };
    let skipped = match format {
        ListFormat::Plain => plain(content).map_err(mistake)?.map_or(Ok(0), |entry| add(entry).map(|()| 0))?,
        ListFormat::Hosts => hosts(content, mistake, add)?,
        ListFormat::Rpz => zone.line(content).map_err(mistake)?.map_or(Ok(0), |entry| add(entry).map(|()| 0))?,
    };
    summary.skipped += skipped;
    Ok(())
}

/// Why reading a list ended.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum ReadError<E> {
    /// A mistake in the list.
    List(ListError),
    /// An entry was not taken.
    Entry {
        /// Its line, from 1.
        line: usize,
        /// What the caller returned for it.
        error: E,
    },
}

fn shown(bytes: &[u8]) -> String {
    String::from_utf8_lossy(&bytes[..bytes.len().min(HOST_NAME_BYTES_MAX)]).into_owned()
}

fn words(line: &[u8]) -> ArrayVec<&[u8], WORDS_MAX> {
    line.split(u8::is_ascii_whitespace).filter(|word| !word.is_empty()).take(WORDS_MAX).collect()
}

/// The name and the names that it stands for, where `alone` is what a name without `*.` stands for.
fn name_and_scope(text: &[u8], alone: Scope) -> Result<(HostName, Scope), ListMistake> {
    let (name, scope) = match text.strip_prefix(b"*.") {
        Some(name) => (name, Scope::Below),
        None => (text, alone),
    };
    Ok((host_name(name).ok_or_else(|| ListMistake::Host(shown(text)))?, scope))
}

/// A name that a list may have: clients ask for names without a letter or digit, but nobody lists one.
fn host_name(text: &[u8]) -> Option<HostName> {
    HostName::new(text).filter(|name| name.as_str().bytes().any(|byte| byte.is_ascii_alphanumeric()))
}

fn plain(line: &[u8]) -> Result<Option<ListEntry>, ListMistake> {
    let words = words(line);
    let [word] = words[..] else {
        return if words.is_empty() { Ok(None) } else { Err(ListMistake::Words) };
    };
    if word.windows(3).any(|window| window == b"://") {
        return Err(ListMistake::Scheme(shown(word)));
    }
    let host_bytes = word.iter().position(|byte| *byte == b'/').unwrap_or(word.len());
    let (host, path) = word.split_at(host_bytes);
    let (name, scope) = name_and_scope(host, Scope::Both)?;
    let path = match path {
        b"" | b"/" => None,
        path if path.iter().any(|byte| matches!(byte, b'?' | b'#')) => return Err(ListMistake::Path(shown(path))),
        path => Some(NormalPath::whole(path).ok_or_else(|| ListMistake::Path(shown(path)))?),
    };
    Ok(Some(ListEntry { name, scope, path: path.filter(|path| !path.is_root()), is_exempt: false }))
}

fn hosts<E>(
    line: &[u8],
    mistake: impl Fn(ListMistake) -> ReadError<E>,
    mut add: impl FnMut(ListEntry) -> Result<(), ReadError<E>>,
) -> Result<usize, ReadError<E>> {
    let words = words(line);
    let Some((first, names)) = words.split_first() else { return Ok(0) };
    // An address of one link has its interface behind a percent sign.
    let address = first.split(|byte| *byte == b'%').next().unwrap_or_default();
    let address = core::str::from_utf8(address).ok().and_then(|text| text.parse::<IpAddr>().ok());
    let address = address.ok_or_else(|| mistake(ListMistake::Address(shown(first))))?;
    if names.is_empty() {
        return Err(mistake(ListMistake::NoName));
    }
    if !address.is_unspecified() && !address.is_loopback() {
        return Ok(1);
    }
    let mut skipped = 0;
    for name in names {
        let name = host_name(name).ok_or_else(|| mistake(ListMistake::Host(shown(name))))?;
        if LOCAL_NAMES.contains(&name.as_str()) {
            skipped = 1;
            continue;
        }
        add(ListEntry { name, scope: Scope::Host, path: None, is_exempt: false })?;
    }
    Ok(skipped)
}

/// How far a zone has been read.
#[derive(Default)]
struct Zone {
    /// The zone's name, from `$ORIGIN`.
    origin: Option<HostName>,
    /// The owner of the last record, for one that begins with a blank.
    owner: String,
    /// Parentheses that are open: the record goes on.
    depth: usize,
    /// Records that are no policies.
    skipped: usize,
}

impl Zone {
    /// The file ends behind this line.
    const fn end(&self, line: usize) -> Result<(), ListError> {
        if self.depth > 0 { Err(ListError { line, mistake: ListMistake::Parenthesis }) } else { Ok(()) }
    }

    fn line(&mut self, line: &[u8]) -> Result<Option<ListEntry>, ListMistake> {
        let was_open = self.depth > 0;
        for byte in line {
            match byte {
                b'(' => self.depth += 1,
                b')' => self.depth = self.depth.saturating_sub(1),
                _ => {}
            }
        }
        let words = words(line);
        let Some(first) = words.first() else { return Ok(None) };
        if was_open {
            return Ok(None);
        }
        if first.eq_ignore_ascii_case(b"$ORIGIN") {
            let name = words.get(1).copied().unwrap_or_default();
            self.origin = Some(HostName::new(name).ok_or_else(|| ListMistake::Host(shown(name)))?);
            return Ok(None);
        }
        if first.first() == Some(&b'$') {
            return Ok(None);
        }
        let has_owner = !line[0].is_ascii_whitespace();
        if has_owner {
            self.owner = shown(first);
        }
        self.record(&words[usize::from(has_owner)..])
    }

    /// The record of the current owner with these words: time to live and class in any order, type, value.
    fn record(&mut self, words: &[&[u8]]) -> Result<Option<ListEntry>, ListMistake> {
        let is_number = |word: &&&[u8]| word.first().is_some_and(u8::is_ascii_digit);
        let is_class = |word: &&&[u8]| [b"IN", b"CH", b"HS"].iter().any(|class| word.eq_ignore_ascii_case(*class));
        let ahead = words.iter().take_while(|word| is_number(word) || is_class(word)).count();
        let (Some(kind), Some(value)) = (words.get(ahead), words.get(ahead + 1)) else {
            return Err(ListMistake::Record);
        };
        if !kind.eq_ignore_ascii_case(b"CNAME") || self.owner == "@" {
            self.skipped += 1;
            return Ok(None);
        }
        let owner = self.relative_owner()?;
        // A trigger by an address or a name server, or an action that lets the name pass over TCP.
        let last = owner.rsplit(|byte| *byte == b'.').next().unwrap_or_default();
        let is_other = last.to_ascii_lowercase().starts_with(b"rpz-") || value.eq_ignore_ascii_case(b"rpz-tcp-only.");
        if is_other {
            self.skipped += 1;
            return Ok(None);
        }
        let (name, scope) = name_and_scope(owner, Scope::Host)?;
        let is_exempt = value.eq_ignore_ascii_case(b"rpz-passthru.") || value.eq_ignore_ascii_case(b"rpz-passthru");
        Ok(Some(ListEntry { name, scope, path: None, is_exempt }))
    }

    /// The owner without the zone's name.
    fn relative_owner(&self) -> Result<&[u8], ListMistake> {
        let Some(absolute) = self.owner.strip_suffix('.') else { return Ok(self.owner.as_bytes()) };
        let outside = || ListMistake::Owner(self.owner.clone());
        let origin = self.origin.as_ref().ok_or_else(outside)?.as_str();
        let split = absolute.len().checked_sub(origin.len()).ok_or_else(outside)?;
        let (owner, zone) = absolute.as_bytes().split_at(split);
        let owner = owner.strip_suffix(b".").filter(|_| zone.eq_ignore_ascii_case(origin.as_bytes()));
        owner.ok_or_else(outside)
    }
}
