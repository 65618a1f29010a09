//! The heads of HTTP/1 messages (RFC 9112): as much of them as names a site or a kind of content.
//!
//! Lines end with CRLF, or with LF alone (RFC 9112 section 2.2). A head that is longer than the caller's limit stays partial.

use arrayvec::ArrayVec;

use super::{HostName, Inspected};

/// The longest method in bytes that is followed. All registered methods are shorter.
const METHOD_BYTES_MAX: usize = 24;
/// The longest media type in bytes that is kept.
pub const MEDIA_TYPE_BYTES_MAX: usize = 64;
const VERSION: &[u8] = b"HTTP/1.";

/// The head of a request.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Request<'a> {
    /// The method, for example `GET`.
    pub method: &'a [u8],
    /// The target as the client sent it: usually the path with its query.
    pub target: &'a [u8],
    /// The host that is asked: of the target if that has one (RFC 9112 section 3.2.2), or of the `Host` field. `None` without either.
    pub host: Option<HostName>,
}

impl Request<'_> {
    /// The path of the target with its query; `None` where the target has none (`CONNECT`, `OPTIONS *`).
    #[must_use]
    pub fn path(&self) -> Option<&[u8]> {
        match authority_and_path(self.target) {
            Some((_, path)) => Some(if path.is_empty() { b"/" } else { path }),
            None => self.target.starts_with(b"/").then_some(self.target),
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
    match method(prefix) {
        Inspected::Found(()) => {}
        Inspected::Other => return Inspected::Other,
        Inspected::Partial => return Inspected::Partial,
    }
    let Some(first) = line(prefix) else {
        return if may_be_request_line(prefix) { Inspected::Partial } else { Inspected::Other };
    };
    if !may_be_request_line(first.text) {
        return Inspected::Other;
    }
    let mut words = first.text.split(|byte| *byte == b' ');
    let (Some(method), Some(target), Some(version), None) = (words.next(), words.next(), words.next(), words.next())
    else {
        return Inspected::Other;
    };
    if target.is_empty() || !version.starts_with(VERSION) {
        return Inspected::Other;
    }
    let of_target = match authority_and_path(target) {
        Some((authority, _)) => HostName::of_authority(authority),
        None if method == b"CONNECT" => HostName::of_authority(target),
        None => None,
    };
    if of_target.is_some() {
        return Inspected::Found(Request { method, target, host: of_target });
    }
    field(first.rest, b"host").map(|host| Request { method, target, host: host.and_then(HostName::of_authority) })
}

/// Whether a request line holds nothing that none holds.
fn may_be_request_line(line: &[u8]) -> bool {
    line.iter().all(|byte| !byte.is_ascii_control() || *byte == b'\r')
}

/// Whether a method and a space come first.
fn method(prefix: &[u8]) -> Inspected<()> {
    let upper_bytes = prefix.iter().take_while(|byte| byte.is_ascii_uppercase() || **byte == b'-').count();
    match prefix.get(upper_bytes) {
        _ if upper_bytes > METHOD_BYTES_MAX => Inspected::Other,
        None => Inspected::Partial,
        Some(b' ') if upper_bytes > 0 => Inspected::Found(()),
        Some(_) => Inspected::Other,
    }
}

/// The authority and the path of a target in absolute form (`http://host:port/path`).
fn authority_and_path(target: &[u8]) -> Option<(&[u8], &[u8])> {
    let scheme_end = target.windows(3).position(|window| window == b"://")?;
    let is_scheme = target[..scheme_end].iter().all(u8::is_ascii_alphabetic) && scheme_end > 0;
    let rest = is_scheme.then_some(&target[scheme_end + 3..])?;
    let authority_bytes = rest.iter().position(|byte| matches!(byte, b'/' | b'?')).unwrap_or(rest.len());
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
    match super::starts_with(prefix, VERSION) {
        Inspected::Found(()) => {}
        Inspected::Other => return Inspected::Other,
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
