//! Real TCP and UDP traffic between two kernels, checked byte for byte, with a clock on every pause.
//!
//! [`server::Server`] and [`client::Client`] each run one thread with an event loop. A TCP connection begins with a
//! [`Preamble`] that names its kind; both ends then make and check the same [`stream::Stream`].

pub mod client;
pub mod connection;
pub mod outcome;
pub mod pace;
pub mod server;
pub mod stream;
#[cfg(test)]
mod tests;

/// What a connection does.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, serde::Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Kind {
    /// The server sends all the time.
    Download,
    /// The client sends all the time; the server reports how much it has checked.
    Upload,
    /// A small request every few milliseconds, each after the last answer.
    Ticks,
    /// One request at the beginning, then silence until after the failover, then another.
    Idle,
    /// As `Idle`; opened at a steady rate around the failover.
    Ramp,
    /// Datagrams at a steady rate, echoed.
    Udp,
}

impl Kind {
    /// All kinds, in the order in which they are shown.
    pub const ALL: [Self; 6] = [Self::Download, Self::Upload, Self::Ticks, Self::Idle, Self::Ramp, Self::Udp];

    /// The name in tables.
    #[must_use]
    pub const fn label(self) -> &'static str {
        match self {
            Self::Download => "download",
            Self::Upload => "upload",
            Self::Ticks => "ticks",
            Self::Idle => "idle",
            Self::Ramp => "ramp",
            Self::Udp => "udp",
        }
    }

    const fn code(self) -> u8 {
        self as u8
    }

    fn from_code(code: u8) -> Option<Self> {
        Self::ALL.into_iter().find(|kind| kind.code() == code)
    }
}

/// Bytes of a request and of its echo.
pub const REQUEST_BYTES: usize = 64;
/// Bytes of an upload between two reports of the server; a report is the count of bytes checked, u64 big-endian.
pub const UPLOAD_REPORT_EVERY_BYTES: u64 = 1024;

/// The first bytes of a connection: what it is and which stream it carries.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Preamble {
    /// What the connection does.
    pub kind: Kind,
    /// Seed of the stream.
    pub seed: u64,
    /// How fast the sender of a bulk transfer may send, in bytes a second.
    pub bytes_per_s: u64,
}

impl Preamble {
    /// Bytes on the wire.
    pub const BYTES: usize = 24;
    const MAGIC: [u8; 4] = *b"mstd";

    /// As it goes on the wire.
    #[must_use]
    pub fn to_bytes(self) -> [u8; Self::BYTES] {
        let mut bytes = [0; Self::BYTES];
        bytes[..4].copy_from_slice(&Self::MAGIC);
        bytes[4] = self.kind.code();
        bytes[8..16].copy_from_slice(&self.seed.to_be_bytes());
        bytes[16..].copy_from_slice(&self.bytes_per_s.to_be_bytes());
        bytes
    }

    /// Reads what [`Preamble::to_bytes`] wrote; `None` when it is nothing of the kind.
    #[must_use]
    pub fn from_bytes(bytes: &[u8; Self::BYTES]) -> Option<Self> {
        let (magic, rest) = bytes.split_first_chunk::<4>()?;
        let (kind, rest) = rest.split_first_chunk::<4>()?;
        let (seed, rest) = rest.split_first_chunk::<8>()?;
        let rate = rest.first_chunk::<8>()?;
        (*magic == Self::MAGIC).then_some(())?;
        Some(Self {
            kind: Kind::from_code(kind[0])?,
            seed: u64::from_be_bytes(*seed),
            bytes_per_s: u64::from_be_bytes(*rate),
        })
    }
}
