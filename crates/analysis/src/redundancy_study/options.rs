//! What is studied, and how.

use std::fs::File;
use std::io::{self, Read, Seek, SeekFrom};
use std::net::IpAddr;
use std::num::NonZeroUsize;
use std::path::{Path, PathBuf};
use std::str::FromStr;
use std::time::UNIX_EPOCH;

use redundancy::{Matcher, Method, Period, Window};
use ring::digest;
use serde::{Deserialize, Serialize};

use super::limits::MEMORY_BYTES_DEFAULT;
use crate::trace::Admission;

/// What is kept between runs has this version; another begins anew.
const STATE_VERSION: u32 = 2;
/// Bytes at a capture's beginning and end that its digest is of, beside its length and the time of its last change.
const SAMPLED_BYTES: u64 = 1 << 16;
/// The name that stands for standard input.
pub const STANDARD_INPUT: &str = "-";

/// The addresses of one network.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Network {
    address: IpAddr,
    prefix_bits: u32,
}

impl Network {
    /// Whether the address is one of the network's.
    #[must_use]
    pub fn contains(&self, address: IpAddr) -> bool {
        let (own, other, width) = match (self.address, address) {
            (IpAddr::V4(own), IpAddr::V4(other)) => (own.to_bits().into(), other.to_bits().into(), 32),
            (IpAddr::V6(own), IpAddr::V6(other)) => (own.to_bits(), other.to_bits(), 128),
            _ => return false,
        };
        let differing: u128 = own ^ other;
        differing.checked_shr(width - self.prefix_bits).unwrap_or(0) == 0
    }
}

impl std::fmt::Display for Network {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}/{}", self.address, self.prefix_bits)
    }
}

/// A text that names no network.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
#[error("{0:?} is no network: write an address and the length of its prefix, as in 10.0.0.0/8 or 2001:db8::/32")]
pub struct NetworkError(String);

impl FromStr for Network {
    type Err = NetworkError;

    fn from_str(text: &str) -> Result<Self, NetworkError> {
        let error = || NetworkError(text.to_owned());
        let (address, bits) = text.split_once('/').map_or((text, None), |(address, bits)| (address, Some(bits)));
        let address: IpAddr = address.parse().map_err(|_| error())?;
        let width = if address.is_ipv4() { 32 } else { 128 };
        let prefix_bits = bits.map_or(Ok(width), str::parse).map_err(|_| error())?;
        if prefix_bits > width { Err(error()) } else { Ok(Self { address, prefix_bits }) }
    }
}

/// How the study is done.
#[derive(Clone, Debug)]
pub struct Options {
    /// How blocks are sampled where methods are not compared.
    pub method: Method,
    /// The window w.
    pub window: Window,
    /// The period p.
    pub period: Period,
    /// The cache in bytes where sizes are not compared.
    pub cache_bytes: usize,
    /// Networks at the site's side of the link. None: where private addresses are, else where clients are.
    pub inside: Vec<Network>,
    /// Encrypted packets are left out of the caches, as a rule at a gateway would.
    pub skips_encrypted: bool,
    /// What is studied although a gateway would drop it.
    pub admission: Admission,
    /// Only what answers the main question: no series of periods and windows.
    pub is_quick: bool,
    /// Threads that study.
    pub threads: NonZeroUsize,
    /// Bytes that caches and indexes may take, of all threads together.
    pub memory_bytes: u64,
}

impl Default for Options {
    /// SAMPLEBYTE with w = p = 32 and 10 MB: what is used between gateways, and the knee of the seed's figure 4.7.
    fn default() -> Self {
        Self {
            method: Method::SampleByte,
            window: Window::DEFAULT,
            period: Period::DEFAULT,
            cache_bytes: 10 << 20,
            inside: Vec::new(),
            skips_encrypted: false,
            admission: Admission::default(),
            is_quick: false,
            threads: std::thread::available_parallelism().unwrap_or(NonZeroUsize::MIN),
            memory_bytes: MEMORY_BYTES_DEFAULT,
        }
    }
}

/// One place whose traffic is studied by itself: the captures of one link, merged by time.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Site {
    /// How it is called: its captures' names.
    pub name: String,
    /// Its captures.
    pub captures: Vec<PathBuf>,
}

impl Site {
    /// A site of these captures.
    #[must_use]
    pub fn of(captures: Vec<PathBuf>) -> Self {
        let name = |path: &PathBuf| match path.file_name() {
            Some(name) if path.as_os_str() != STANDARD_INPUT => name.to_string_lossy().into_owned(),
            _ => "standard input".to_owned(),
        };
        let name = captures.iter().map(name).collect::<Vec<_>>().join(" + ");
        Self { name, captures }
    }

    /// Whether it is read from standard input, which can be read but once.
    #[must_use]
    pub fn is_standard_input(&self) -> bool {
        self.captures.iter().any(|path| path.as_os_str() == STANDARD_INPUT)
    }

    /// Bytes of its captures; none if that cannot be known.
    #[must_use]
    pub fn bytes(&self) -> Option<u64> {
        let length =
            |path: &PathBuf| std::fs::metadata(path).ok().filter(|found| found.is_file()).map(|found| found.len());
        self.captures.iter().map(length).sum()
    }
}

/// What names the state of a study between runs: the same captures studied in the same way have the same.
///
/// # Errors
/// A capture cannot be read: its name and why.
pub fn digest_of(sites: &[Site], options: &Options) -> Result<String, (PathBuf, io::Error)> {
    let mut context = digest::Context::new(&digest::SHA256);
    context.update(format!("redundancy study {STATE_VERSION} of {}\n", env!("CARGO_PKG_VERSION")).as_bytes());
    context.update(options.described().as_bytes());
    for site in sites {
        context.update(b"site\n");
        for capture in &site.captures {
            update(&mut context, capture).map_err(|error| (capture.clone(), error))?;
        }
    }
    Ok(context.finish().as_ref()[..12].iter().map(|byte| format!("{byte:02x}")).collect())
}

fn update(context: &mut digest::Context, capture: &Path) -> io::Result<()> {
    let mut file = File::open(capture)?;
    let metadata = file.metadata()?;
    let changed = metadata.modified()?.duration_since(UNIX_EPOCH).unwrap_or_default().as_nanos();
    context.update(format!("{}\n{} {changed}\n", capture.display(), metadata.len()).as_bytes());
    let mut sample = Vec::new();
    (&mut file).take(SAMPLED_BYTES).read_to_end(&mut sample)?;
    file.seek(SeekFrom::Start(metadata.len().saturating_sub(SAMPLED_BYTES)))?;
    file.take(SAMPLED_BYTES).read_to_end(&mut sample)?;
    context.update(&sample);
    Ok(())
}

impl Options {
    /// All that result depend on. The memory is among it: what does not fit is left out.
    fn described(&self) -> String {
        let inside: Vec<String> = self.inside.iter().map(Network::to_string).collect();
        format!(
            "method {} w {} p {} cache {} inside {inside:?} skips_encrypted {} {:?} quick {} memory {}\n",
            self.method.name(),
            self.window.bytes(),
            self.period.bytes(),
            self.cache_bytes,
            self.skips_encrypted,
            self.admission,
            self.is_quick,
            self.memory_bytes
        )
    }
}

/// An encoder's parameters.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Serialize, Deserialize)]
pub struct Codec {
    pub(super) method: MethodName,
    pub(super) is_chunk_match: bool,
    /// The window w in bytes.
    pub window_bytes: usize,
    /// The period p in bytes.
    pub period_bytes: usize,
    /// The cache in bytes.
    pub cache_bytes: usize,
}

#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub(super) enum MethodName {
    Modp,
    Maxp,
    Fixed,
    SampleByte,
}

impl Codec {
    /// As the options choose.
    #[must_use]
    pub const fn of(options: &Options) -> Self {
        Self {
            method: MethodName::of(options.method),
            is_chunk_match: false,
            window_bytes: options.window.bytes(),
            period_bytes: options.period.bytes(),
            cache_bytes: options.cache_bytes,
        }
    }

    /// The same with another method and matcher.
    #[must_use]
    pub const fn with(self, method: Method, matcher: Matcher) -> Self {
        Self { method: MethodName::of(method), is_chunk_match: matches!(matcher, Matcher::ChunkMatch), ..self }
    }

    /// How it samples.
    #[must_use]
    pub const fn method(&self) -> Method {
        match self.method {
            MethodName::Modp => Method::Modp,
            MethodName::Maxp => Method::Maxp,
            MethodName::Fixed => Method::Fixed,
            MethodName::SampleByte => Method::SampleByte,
        }
    }

    /// How it finds matches.
    #[must_use]
    pub const fn matcher(&self) -> Matcher {
        if self.is_chunk_match { Matcher::ChunkMatch } else { Matcher::MaxMatch }
    }

    /// Bytes of memory of an encoder for both ways, about.
    #[must_use]
    pub const fn memory_bytes(&self) -> u64 {
        let cache = self.cache_bytes as u64;
        let index = if self.is_chunk_match { cache * 3 / 8 } else { cache + 4 * cache / self.period_bytes as u64 };
        2 * (index + cache / 64 / 4)
    }
}

impl MethodName {
    const fn of(method: Method) -> Self {
        match method {
            Method::Modp => Self::Modp,
            Method::Maxp => Self::Maxp,
            Method::Fixed => Self::Fixed,
            Method::SampleByte => Self::SampleByte,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_network_is_written_with_its_prefix_and_contains_what_begins_with_it() {
        let network = |text: &str| text.parse::<Network>();
        let has = |text: &str, address: &str| {
            network(text).expect("a network").contains(address.parse().expect("an address"))
        };
        assert!(has("10.1.0.0/16", "10.1.255.1") && !has("10.1.0.0/16", "10.2.0.1"));
        assert!(has("0.0.0.0/0", "203.0.113.9") && !has("0.0.0.0/0", "::1"));
        assert!(has("2001:db8::/33", "2001:db8:7fff::1") && !has("2001:db8::/33", "2001:db8:8000::1"));
        assert!(has("192.0.2.1", "192.0.2.1") && !has("192.0.2.1", "192.0.2.0"));
        assert_eq!(network("10.0.0.0/33"), Err(NetworkError("10.0.0.0/33".into())));
        assert!(network("home").is_err() && network("10.0.0.0/").is_err());
    }
}
