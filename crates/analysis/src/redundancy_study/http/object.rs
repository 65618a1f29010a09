//! HTTP/1 responses in a stream of bytes (RFC 9112, section 6): where their bodies begin and end.

use crate::redundancy_study::limits::{HTTP_HEAD_BYTES_MAX, HTTP_PIECE_BYTES_MAX};

/// What begins every response.
const BEGINNING: &[u8] = b"HTTP/1.";
/// A line of a chunk's length is shorter, extensions and all.
const CHUNK_LINE_BYTES_MAX: usize = 1024;

/// What comes out.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Found<'a> {
    /// Bytes of a body, all of it or a piece.
    Piece(&'a [u8]),
    /// A body is whole.
    End {
        /// Its bytes.
        bytes: u64,
        /// It was compressed by the server (Content-Encoding).
        is_compressed: bool,
    },
    /// A body breaks off.
    Lost,
}

/// How a body's end is known.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Rest {
    /// So many bytes are missing.
    Length(u64),
    /// Until the server closes.
    Close,
    /// A chunk's length comes next.
    ChunkLength,
    /// So many bytes of a chunk are missing, and the end of its line.
    Chunk(u64),
    /// The line behind a chunk is missing.
    ChunkEnd,
    /// Fields behind the last chunk, up to an empty line.
    Trailer,
}

/// ```text
///             BEGINNING            empty line
///   Seeking ────────────► Head ────────────────► Body
///      ▲                                           │ its end, or a gap
///      └───────────────────────────────────────────┘
/// ```
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
enum State {
    #[default]
    Seeking,
    Head,
    Body(Rest),
}

/// Finds objects. It holds a head or a piece of a body at most.
#[derive(Debug, Default)]
pub(super) struct Objects {
    state: State,
    /// Bytes that are not understood yet: of a head or of a chunk's line.
    pending: Vec<u8>,
    piece: Vec<u8>,
    bytes: u64,
    is_compressed: bool,
}

impl Objects {
    /// Whether a body is incomplete.
    pub(super) const fn is_within(&self) -> bool {
        matches!(self.state, State::Body(_))
    }

    /// Takes the bytes that come next.
    pub(super) fn handle(&mut self, bytes: &[u8], take: &mut impl FnMut(Found<'_>)) {
        let mut rest = bytes;
        while !rest.is_empty() {
            rest = match self.state {
                State::Seeking => self.seek(rest),
                State::Head => self.read_head(rest, take),
                State::Body(body) => self.read_body(body, rest, take),
            };
        }
    }

    /// Something is missing here.
    pub(super) fn lose(&mut self, take: &mut impl FnMut(Found<'_>)) {
        if self.is_within() {
            take(Found::Lost);
        }
        *self = Self::default();
    }

    /// The server sends no more.
    pub(super) fn close(&mut self, take: &mut impl FnMut(Found<'_>)) {
        if self.state == State::Body(Rest::Close) { self.end(take) } else { self.lose(take) }
    }

    fn seek<'a>(&mut self, bytes: &'a [u8]) -> &'a [u8] {
        // The beginning may lie across two segments: what could be its first part is kept.
        for (at, byte) in bytes.iter().enumerate() {
            let wanted = BEGINNING[self.pending.len()];
            if *byte != wanted {
                self.pending.clear();
            }
            if *byte == BEGINNING[self.pending.len()] {
                self.pending.push(*byte);
            }
            if self.pending == BEGINNING {
                self.state = State::Head;
                return &bytes[at + 1..];
            }
        }
        &[]
    }

    fn read_head<'a>(&mut self, bytes: &'a [u8], take: &mut impl FnMut(Found<'_>)) -> &'a [u8] {
        let had = self.pending.len();
        self.pending.extend_from_slice(bytes);
        let from = had.saturating_sub(3);
        let end = self.pending[from..].windows(4).position(|four| four == b"\r\n\r\n").map(|at| from + at + 4);
        let Some(end) = end else {
            if self.pending.len() > HTTP_HEAD_BYTES_MAX {
                self.reset();
            }
            return &[];
        };
        let head = Head::parse(&self.pending[..end]);
        self.reset();
        let rest = &bytes[end - had..];
        // A response to HEAD has the length of a body that does not come: the next response follows at once.
        let is_empty = head.body == Some(Rest::Length(0));
        let has_no_body = head.body.is_none() || (rest.starts_with(BEGINNING) && !is_empty);
        self.is_compressed = head.is_compressed;
        match head.body {
            Some(body) if !has_no_body => {
                self.state = State::Body(body);
                if is_empty {
                    self.end(take);
                }
            }
            _ => {}
        }
        rest
    }

    fn read_body<'a>(&mut self, body: Rest, bytes: &'a [u8], take: &mut impl FnMut(Found<'_>)) -> &'a [u8] {
        match body {
            Rest::Length(missing) => {
                let (own, rest) = split(bytes, missing);
                self.keep(own, take);
                let missing = missing - own.len() as u64;
                self.state = State::Body(Rest::Length(missing));
                if missing == 0 {
                    self.end(take);
                }
                rest
            }
            Rest::Close => {
                self.keep(bytes, take);
                &[]
            }
            Rest::Chunk(missing) => {
                let (own, rest) = split(bytes, missing);
                self.keep(own, take);
                let missing = missing - own.len() as u64;
                self.state = State::Body(if missing == 0 { Rest::ChunkEnd } else { Rest::Chunk(missing) });
                rest
            }
            Rest::ChunkLength | Rest::ChunkEnd | Rest::Trailer => self.read_line(body, bytes, take),
        }
    }

    fn read_line<'a>(&mut self, body: Rest, bytes: &'a [u8], take: &mut impl FnMut(Found<'_>)) -> &'a [u8] {
        let end = bytes.iter().position(|byte| *byte == b'\n');
        let (own, rest) = bytes.split_at(end.map_or(bytes.len(), |end| end + 1));
        self.pending.extend_from_slice(own);
        if self.pending.len() > CHUNK_LINE_BYTES_MAX {
            self.lose(take);
            return rest;
        }
        if end.is_none() {
            return rest;
        }
        let line = std::mem::take(&mut self.pending);
        let line = line.trim_ascii();
        match (body, chunk_length(line)) {
            (Rest::ChunkEnd, _) => self.state = State::Body(Rest::ChunkLength),
            (Rest::ChunkLength, Some(0)) => self.state = State::Body(Rest::Trailer),
            (Rest::ChunkLength, Some(length)) => self.state = State::Body(Rest::Chunk(length)),
            (Rest::Trailer, _) if line.is_empty() => self.end(take),
            (Rest::Trailer, _) => {}
            _ => self.lose(take),
        }
        rest
    }

    fn keep(&mut self, bytes: &[u8], take: &mut impl FnMut(Found<'_>)) {
        let mut rest = bytes;
        while !rest.is_empty() {
            let (own, after) = rest.split_at(rest.len().min(HTTP_PIECE_BYTES_MAX - self.piece.len()));
            self.piece.extend_from_slice(own);
            rest = after;
            if self.piece.len() == HTTP_PIECE_BYTES_MAX {
                take(Found::Piece(&self.piece));
                self.piece.clear();
            }
        }
        self.bytes += bytes.len() as u64;
    }

    fn end(&mut self, take: &mut impl FnMut(Found<'_>)) {
        if !self.piece.is_empty() {
            take(Found::Piece(&self.piece));
        }
        take(Found::End { bytes: self.bytes, is_compressed: self.is_compressed });
        self.reset();
    }

    fn reset(&mut self) {
        self.state = State::Seeking;
        self.pending.clear();
        self.piece.clear();
        self.bytes = 0;
    }
}

fn split(bytes: &[u8], missing: u64) -> (&[u8], &[u8]) {
    bytes.split_at(usize::try_from(missing).unwrap_or(usize::MAX).min(bytes.len()))
}

fn chunk_length(line: &[u8]) -> Option<u64> {
    let digits = line.split(|byte| *byte == b';').next()?.trim_ascii();
    u64::from_str_radix(str::from_utf8(digits).ok()?, 16).ok()
}

struct Head {
    /// None if there is no body.
    body: Option<Rest>,
    is_compressed: bool,
}

impl Head {
    /// Reads what is between the version's first part and the empty line.
    fn parse(bytes: &[u8]) -> Self {
        let mut lines = bytes.split(|byte| *byte == b'\n').map(<[u8]>::trim_ascii);
        let status = lines.next().and_then(|line| line.split(|byte| *byte == b' ').nth(1)).unwrap_or_default();
        let mut head = Self { body: Some(Rest::Close), is_compressed: false };
        for line in lines {
            let Some(colon) = line.iter().position(|byte| *byte == b':') else { continue };
            let (name, value) = (&line[..colon], line[colon + 1..].trim_ascii());
            if name.eq_ignore_ascii_case(b"transfer-encoding") && value.to_ascii_lowercase().ends_with(b"chunked") {
                head.body = Some(Rest::ChunkLength);
            } else if name.eq_ignore_ascii_case(b"content-length") && head.body == Some(Rest::Close) {
                let length = str::from_utf8(value).ok().and_then(|value| value.parse().ok());
                head.body = length.map(Rest::Length).or(head.body);
            } else if name.eq_ignore_ascii_case(b"content-encoding") {
                head.is_compressed = !value.eq_ignore_ascii_case(b"identity");
            }
        }
        // RFC 9112, section 6.3: these have none, whatever their header.
        if status.starts_with(b"1") || status == b"204" || status == b"304" {
            head.body = None;
        }
        head
    }
}
