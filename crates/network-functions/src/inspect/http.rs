//! The heads of HTTP/1 messages (RFC 9112): as much of them as names a site or a kind of content.
//!
//! A request is read as the most lenient of the common recipients reads it (nginx, Apache, HAProxy, Python's), so that none of them sees another host:
//!
//! | form | read as |
//! |---|---|
//! | empty lines and white space before the request (RFC 9112 section 2.2) | skipped |
//! | lines that end with LF alone | lines |
//! | several spaces, or tabs, between the words of the request line, and behind them | one space |
//! | methods of any printable characters, and of any length | methods |
//! | any version of letters and a slash (`HTTP/1.1`, also `ICAP/1.0`) | HTTP |
//! | no version behind `GET` (HTTP/0.9), also with fields on the next lines | HTTP |
//! | a field that continues on the next line (RFC 9112 section 5.2) | one field |
//!
//! Where recipients differ, the request is [`Inspected::Malformed`]: white space before the colon of `Host`, or before the first field; a host in
//! several words, or with characters that names and addresses do not have; a target with another host than `Host`; a CR inside a line; control characters
//! in a request line, or a version that is not its last word. So is a head of which a reader has had to stop before its host ([`RequestReader::given_up`]).

use core::mem;
use core::ops::Range;

use arrayvec::ArrayVec;

use super::inspected::starts_with;
use super::{HostName, Inspected};

/// The longest media type in bytes that is kept.
pub const MEDIA_TYPE_BYTES_MAX: usize = 64;
const RESPONSE_VERSION: &[u8] = b"HTTP/1.";
const HTTP: &[u8] = b"HTTP/";
/// The method that HTTP/0.9 has.
const SIMPLE_METHOD: &[u8] = b"GET";

/// The head of a request.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Request<'a> {
    /// The method, for example `GET`.
    pub method: &'a [u8],
    /// The target as the client sent it: usually the path with its query.
    pub target: &'a [u8],
    /// The host that is asked, of the target or of the `Host` field (RFC 9112 section 3.2.2). `None` without either, and for an IPv6 address.
    pub host: Option<HostName>,
}

impl Request<'_> {
    /// The path of the target with its query; `None` where the target has none (`CONNECT`, `OPTIONS *`). Recipients that take one without a slash in front
    /// take it from the root.
    #[must_use]
    pub fn path(&self) -> Option<&[u8]> {
        match authority_and_path(self.target) {
            Some((_, path)) => Some(if path.is_empty() { b"/" } else { path }),
            None => (self.target != b"*" && !is_connect(self.method)).then_some(self.target),
        }
    }
}

/// The head of a response.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Response {
    /// The status code.
    pub status: u16,
    /// The media type in lower case without parameters, for example `video/mp4`. `None` without one.
    pub media_type: Option<ArrayVec<u8, MEDIA_TYPE_BYTES_MAX>>,
}

/// A line, and what is behind it.
struct Line<'a> {
    text: &'a [u8],
    rest: &'a [u8],
}

/// The first line; `None` if its end is not there.
fn line(bytes: &[u8]) -> Option<Line<'_>> {
    let end = bytes.iter().position(|byte| *byte == b'\n')?;
    let text = &bytes[..end];
    Some(Line { text: text.strip_suffix(b"\r").unwrap_or(text), rest: &bytes[end + 1..] })
}

/// The request that a stream of a client begins with. It is found when its `Host` field is complete, or its head.
#[must_use]
pub fn request(prefix: &[u8]) -> Inspected<Request<'_>> {
    RequestReader::default().read(prefix)
}

/// What a reader looks for.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
enum Stage {
    /// The first byte that is no white space.
    #[default]
    Begin,
    /// The end of the method.
    Method,
    /// The end of the request line.
    RequestLine,
    /// The end of the first field.
    FirstField,
    /// The end of a further field's line.
    Field,
    /// A line that does not continue the host.
    Host,
}

/// Where the words of a request line are.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
struct RequestLine {
    method: Range<usize>,
    target: Range<usize>,
}

/// Reads the head of a request that comes in parts. Each byte is searched once.
#[derive(Clone, Debug, Default)]
pub struct RequestReader {
    stage: Stage,
    /// Where the present line begins.
    line: usize,
    /// The bytes of the prefix that have been searched.
    searched: usize,
    words: RequestLine,
    /// The value of the `Host` field.
    value: Range<usize>,
    /// The outcome once it is settled, with the host.
    settled: Option<Inspected<Option<HostName>>>,
}

impl RequestReader {
    /// The request, of which `prefix` has more than at the last call.
    pub fn read<'p>(&mut self, prefix: &'p [u8]) -> Inspected<Request<'p>> {
        while self.settled.is_none()
            && let Some(rest @ [_, ..]) = prefix.get(self.searched..)
        {
            match self.stage {
                Stage::Begin => self.skip_space(rest),
                Stage::Method => self.find_method(rest),
                Stage::Host if self.searched == self.line && !matches!(rest[0], b' ' | b'\t') => {
                    self.settled = Some(self.host(prefix, Some(host_of_field(&prefix[self.value.clone()]))));
                }
                _ => self.find_line(prefix, rest),
            }
        }
        let words = &self.words;
        match &self.settled {
            None => Inspected::Partial,
            Some(settled) => settled.clone().map(|host| Request {
                method: &prefix[words.method.clone()],
                target: &prefix[words.target.clone()],
                host,
            }),
        }
    }

    /// What a prefix is of which no more will be read, and which has shown no host. Recipients read on, so the head of a request is malformed.
    #[must_use]
    pub fn given_up(&self, prefix: &[u8]) -> Inspected<()> {
        let behind_method = prefix.get(self.words.method.end..).unwrap_or_default();
        let is_head = match self.stage {
            Stage::Begin | Stage::FirstField | Stage::Field | Stage::Host => true,
            Stage::Method => false,
            Stage::RequestLine => {
                let target = words(behind_method).next().map_or(&[][..], |word| &behind_method[word]);
                target.is_empty() || may_be_simple_target(target)
            }
        };
        if is_head { Inspected::Malformed } else { Inspected::Other }
    }

    fn skip_space(&mut self, rest: &[u8]) {
        let space_bytes = rest.iter().take_while(|byte| is_space(**byte) || **byte == b'\n').count();
        self.searched += space_bytes;
        self.line = self.searched;
        if space_bytes < rest.len() {
            self.stage = Stage::Method;
        }
    }

    fn find_method(&mut self, rest: &[u8]) {
        let method_bytes = rest.iter().take_while(|byte| byte.is_ascii_graphic()).count();
        self.searched += method_bytes;
        match rest.get(method_bytes) {
            None => {}
            Some(byte) if is_space(*byte) => {
                self.words.method = self.line..self.searched;
                self.stage = Stage::RequestLine;
            }
            Some(_) => self.settled = Some(Inspected::Other),
        }
    }

    /// Searches the end of a line, and reads the line that ends.
    fn find_line(&mut self, prefix: &[u8], rest: &[u8]) {
        let Some(text_bytes) = rest.iter().position(|byte| *byte == b'\n') else {
            self.searched = prefix.len();
            return;
        };
        let line = self.line..self.searched + text_bytes;
        self.searched = line.end + 1;
        self.line = self.searched;
        let text = &prefix[line.clone()];
        let text = text.strip_suffix(b"\r").unwrap_or(text);
        match self.stage {
            Stage::RequestLine => self.handle_request_line(prefix, line.start, text),
            Stage::Host => self.value.end = line.end,
            _ => self.handle_field(prefix, line.start, text),
        }
    }

    fn handle_request_line(&mut self, prefix: &[u8], start: usize, line: &[u8]) {
        let mut words = words(line).skip(1);
        let Some(first) = words.next() else {
            self.settled = Some(Inspected::Other);
            return;
        };
        let names_http = |word: &Range<usize>| line[word.clone()].get(..HTTP.len()).is_some_and(is_http);
        let (mut before, mut last, mut versions) = (first.clone(), first.clone(), usize::from(names_http(&first)));
        for word in words {
            versions += usize::from(names_http(&word));
            before = mem::replace(&mut last, word);
        }
        let is_alone = first == last;
        let has_version = is_version(&line[last.clone()]) && !is_alone;
        let is_last = versions == usize::from(has_version && names_http(&last));
        let end = if has_version { before.end } else { last.end };
        self.words.target = start + first.start..start + end;
        self.stage = Stage::FirstField;
        let target = &prefix[self.words.target.clone()];
        let is_simple = prefix[self.words.method.clone()] == *SIMPLE_METHOD && is_alone && may_be_simple_target(target);
        self.settled = match () {
            () if !is_last => Some(Inspected::Malformed),
            () if !has_version && !is_simple => Some(Inspected::Other),
            () if line.iter().any(|byte| byte.is_ascii_control() && *byte != b'\t') => Some(Inspected::Malformed),
            () => None,
        };
    }

    /// The host that the target and the `Host` field name, which must not differ.
    fn host(&self, prefix: &[u8], field: Option<Inspected<Option<HostName>>>) -> Inspected<Option<HostName>> {
        let target = &prefix[self.words.target.clone()];
        let authority = match authority_and_path(target) {
            Some((authority, _)) if !authority.is_empty() => Some(authority),
            _ => Some(target).filter(|_| is_connect(&prefix[self.words.method.clone()])),
        };
        match (authority.map(host_of_authority), field) {
            (None, None) => Inspected::Found(None),
            (Some(host), None) | (None, Some(host)) => host,
            (Some(of_target), Some(of_field)) if of_target == of_field => of_target,
            (Some(_), Some(_)) => Inspected::Malformed,
        }
    }

    fn handle_field(&mut self, prefix: &[u8], start: usize, line: &[u8]) {
        let is_first = self.stage == Stage::FirstField;
        self.stage = Stage::Field;
        if line.is_empty() {
            self.settled = Some(self.host(prefix, None));
        } else if line.contains(&b'\r') || (is_first && is_space(line[0])) {
            self.settled = Some(Inspected::Malformed);
        } else if let Some(colon) = line.iter().position(|byte| *byte == b':') {
            let name = &line[..colon];
            if name.eq_ignore_ascii_case(b"host") {
                self.value = start + colon + 1..start + line.len();
                self.stage = Stage::Host;
            } else if name.trim_ascii_end().eq_ignore_ascii_case(b"host") {
                self.settled = Some(Inspected::Malformed);
            }
        }
    }
}

/// The words of a line.
fn words(line: &[u8]) -> impl Iterator<Item = Range<usize>> + '_ {
    let mut next = 0;
    let words = line.split(|byte| is_space(*byte)).map(move |word| {
        let word = next..next + word.len();
        next = word.end + 1;
        word
    });
    words.filter(|word| !word.is_empty())
}

/// The host in the value of a `Host` field.
fn host_of_field(value: &[u8]) -> Inspected<Option<HostName>> {
    let mut words = value.split(u8::is_ascii_whitespace).filter(|word| !word.is_empty());
    match (words.next(), words.next()) {
        (None, _) => Inspected::Found(None),
        (Some(word), None) => host_of_authority(word),
        (Some(_), Some(_)) => Inspected::Malformed,
    }
}

/// The host of an authority without user information (RFC 3986 section 3.2); found as `None` for an IPv6 address.
fn host_of_authority(authority: &[u8]) -> Inspected<Option<HostName>> {
    let bracket = authority.iter().position(|byte| *byte == b']').filter(|_| authority.starts_with(b"["));
    let (host, port) = match bracket {
        Some(bracket) => (&authority[1..bracket], &authority[bracket + 1..]),
        None => authority.split_at(authority.iter().position(|byte| *byte == b':').unwrap_or(authority.len())),
    };
    let is_port = port.is_empty() || port.strip_prefix(b":").is_some_and(|port| port.iter().all(u8::is_ascii_digit));
    match HostName::of_name_or_address(host) {
        Inspected::Found(name) if is_port && name.is_none() == bracket.is_some() => Inspected::Found(name),
        _ => Inspected::Malformed,
    }
}

fn is_connect(method: &[u8]) -> bool {
    method.eq_ignore_ascii_case(b"CONNECT")
}

fn is_http(word: &[u8]) -> bool {
    word.eq_ignore_ascii_case(HTTP)
}

/// A protocol's name and a slash.
fn is_version(word: &[u8]) -> bool {
    let name = word.split(|byte| *byte == b'/').next().unwrap_or_default();
    !name.is_empty() && name.len() < word.len() && name.iter().all(u8::is_ascii_alphabetic)
}

fn may_be_simple_target(target: &[u8]) -> bool {
    target.starts_with(b"/") || authority_and_path(target).is_some()
}

/// White space within a line: that which recipients take for a space.
const fn is_space(byte: u8) -> bool {
    matches!(byte, b' ' | b'\t' | 0x0b | 0x0c | b'\r')
}

/// The authority and the path of a target in absolute form (`http://host:port/path`).
fn authority_and_path(target: &[u8]) -> Option<(&[u8], &[u8])> {
    let scheme_end = target.windows(3).position(|window| window == b"://")?;
    let is_scheme_byte = |byte: &u8| byte.is_ascii_alphanumeric() || matches!(byte, b'+' | b'-' | b'.');
    let is_scheme = target[..scheme_end].iter().all(is_scheme_byte) && scheme_end > 0;
    let rest = is_scheme.then_some(&target[scheme_end + 3..])?;
    let authority_bytes = rest.iter().position(|byte| matches!(byte, b'/' | b'?' | b'#')).unwrap_or(rest.len());
    let (authority, path) = rest.split_at(authority_bytes);
    let host = authority.rsplit(|byte| *byte == b'@').next().unwrap_or_default();
    Some((host, path))
}

/// The value of the first field with this name (in lower case); found as `None` at the end of the head.
fn field<'a>(mut head: &'a [u8], name: &[u8]) -> Inspected<Option<&'a [u8]>> {
    while let Some(Line { text, rest }) = line(head) {
        if text.is_empty() {
            return Inspected::Found(None);
        }
        let colon = text.iter().position(|byte| *byte == b':').unwrap_or(text.len());
        if text[..colon].eq_ignore_ascii_case(name) && colon < text.len() {
            return Inspected::Found(Some(text[colon + 1..].trim_ascii()));
        }
        head = rest;
    }
    Inspected::Partial
}

/// The response that a stream of a server begins with. It is found when its `Content-Type` field is complete, or its head.
#[must_use]
pub fn response(prefix: &[u8]) -> Inspected<Response> {
    match starts_with(prefix, RESPONSE_VERSION) {
        Inspected::Found(()) => {}
        Inspected::Other | Inspected::Malformed => return Inspected::Other,
        Inspected::Partial => return Inspected::Partial,
    }
    let Some(first) = line(prefix) else { return Inspected::Partial };
    let Some(status) = first.text.split(|byte| *byte == b' ').nth(1).and_then(status) else { return Inspected::Other };
    field(first.rest, b"content-type").map(|value| Response { status, media_type: value.and_then(media_type) })
}

fn status(digits: &[u8]) -> Option<u16> {
    let is_status = digits.len() == 3 && digits.iter().all(u8::is_ascii_digit);
    is_status.then(|| digits.iter().fold(0, |status, digit| status * 10 + u16::from(digit - b'0')))
}

fn media_type(value: &[u8]) -> Option<ArrayVec<u8, MEDIA_TYPE_BYTES_MAX>> {
    let kind = value.split(|byte| *byte == b';').next().unwrap_or_default().trim_ascii();
    (!kind.is_empty() && kind.len() <= MEDIA_TYPE_BYTES_MAX).then(|| kind.iter().map(u8::to_ascii_lowercase).collect())
}
