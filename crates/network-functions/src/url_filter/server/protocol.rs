//! What a gateway and a categorisation server exchange, over HTTP/1.1 (RFC 9112).
//!
//! The body of a request has a target a line, at most [`TARGETS_MAX`]. The body of the response has an answer a line, in the same order:
//!
//! ```text
//!   POST /categorise HTTP/1.1            HTTP/1.1 200 OK
//!   Host: 192.0.2.10:8080                Content-Length: 20
//!   Content-Length: 29
//!                                        ads host
//!   ads.example                          news path
//!   big.example/news/top
//! ```
//!
//! An answer is the name of a category, or `-` for none, and what it holds for: `host` for the host with all of its paths, `path` for the target
//! alone. A target is a host, or a host and a path in normal form; bytes that are no printable ASCII are percent-encoded.

use alloc::format;
use alloc::string::String;
use alloc::vec::Vec;

use crate::inspect::{HostName, Inspected};
use crate::url_filter::path::NormalPath;

/// Targets of a request.
pub const TARGETS_MAX: usize = 64;
/// The longest response in bytes, with its head.
pub const RESPONSE_BYTES_MAX: usize = 16 << 10;
/// The longest name of a category in bytes.
pub const NAME_BYTES_MAX: usize = 64;

/// What an answer holds for.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Scope {
    /// The host, with all of its paths.
    Host,
    /// The target alone.
    Path,
}

/// An answer: a category's name, empty for none, and what it holds for.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Answer<'b> {
    /// The name of the category; empty for none.
    pub category: &'b str,
    /// What it holds for.
    pub scope: Scope,
}

/// Why a response cannot be used: the server's fault.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
pub enum ResponseError {
    /// It is no HTTP/1.1, or has no length.
    #[error("its response is no HTTP/1.1 response with a Content-Length")]
    NotHttp,
    /// It is too long.
    #[error("its response is longer than {RESPONSE_BYTES_MAX} bytes")]
    TooLong,
    /// It has another status than 200.
    #[error("it responded with status {0}")]
    Status(u16),
    /// The number of answers is not that of the targets.
    #[error("it responded with {answers} answers to {targets} targets")]
    Count {
        /// Answers.
        answers: usize,
        /// Targets.
        targets: usize,
    },
    /// An answer cannot be read.
    #[error("answer {0} of its response is not a category and \"host\" or \"path\"")]
    Answer(usize),
}

/// The target of a host, or of a path of it.
#[must_use]
pub fn target(host: &HostName, path: Option<&NormalPath>) -> String {
    let mut target = String::from(host.as_str());
    for byte in path.map_or(&[][..], NormalPath::as_bytes) {
        if byte.is_ascii_graphic() {
            target.push(char::from(*byte));
        } else {
            target.push_str(&format!("%{byte:02X}"));
        }
    }
    target
}

/// A request for these targets. `server` is the value of `Host`, `token` that of a bearer token (RFC 6750), if the server wants one.
#[must_use]
pub fn request<'t>(server: &str, token: Option<&str>, targets: impl Iterator<Item = &'t str>) -> String {
    let mut body = String::new();
    for target in targets {
        body.push_str(target);
        body.push('\n');
    }
    let authorization = token.map(|token| format!("Authorization: Bearer {token}\r\n")).unwrap_or_default();
    format!(
        "POST /categorise HTTP/1.1\r\nHost: {server}\r\n{authorization}Content-Type: text/plain\r\nContent-Length: {}\r\n\r\n{body}",
        body.len()
    )
}

/// A response whose body is complete.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Response<'b> {
    /// Its body.
    pub body: &'b [u8],
    /// Whether the connection takes a further request.
    pub keeps_open: bool,
}

/// Reads a response from its beginning.
///
/// # Errors
/// [`ResponseError`]: whatever follows, it cannot be used.
pub fn response(bytes: &[u8]) -> Result<Option<Response<'_>>, ResponseError> {
    let Some(head_bytes) = bytes.windows(4).position(|window| window == b"\r\n\r\n") else {
        return if bytes.len() < RESPONSE_BYTES_MAX { Ok(None) } else { Err(ResponseError::TooLong) };
    };
    let head = core::str::from_utf8(&bytes[..head_bytes]).map_err(|_| ResponseError::NotHttp)?;
    let mut lines = head.split("\r\n");
    let status = status(lines.next().unwrap_or_default()).ok_or(ResponseError::NotHttp)?;
    if status != 200 {
        return Err(ResponseError::Status(status));
    }
    let (mut length_bytes, mut keeps_open) = (None, true);
    for (name, value) in lines.filter_map(|line| line.split_once(':')) {
        let value = value.trim();
        if name.eq_ignore_ascii_case("content-length") {
            length_bytes = Some(value.parse::<usize>().map_err(|_| ResponseError::NotHttp)?);
        } else if name.eq_ignore_ascii_case("connection") {
            keeps_open &= !value.eq_ignore_ascii_case("close");
        }
    }
    let length_bytes = length_bytes.ok_or(ResponseError::NotHttp)?;
    let start = head_bytes + 4;
    if length_bytes > RESPONSE_BYTES_MAX - start.min(RESPONSE_BYTES_MAX) {
        return Err(ResponseError::TooLong);
    }
    Ok(bytes.get(start..start + length_bytes).map(|body| Response { body, keeps_open }))
}

fn status(line: &str) -> Option<u16> {
    let (version, rest) = line.split_once(' ')?;
    let code = rest.get(..3).filter(|code| code.bytes().all(|byte| byte.is_ascii_digit()))?;
    if version == "HTTP/1.1" { code.parse().ok() } else { None }
}

/// The answers in the body of a response to `targets` targets.
///
/// # Errors
/// There are more or fewer, or one is malformed.
pub fn answers(body: &[u8], targets: usize) -> Result<Vec<Answer<'_>>, ResponseError> {
    let body = body.strip_suffix(b"\n").unwrap_or(body);
    let lines = body.split(|byte| *byte == b'\n');
    let count = lines.clone().count();
    if count != targets {
        return Err(ResponseError::Count { answers: count, targets });
    }
    lines.enumerate().map(|(index, line)| answer(line).ok_or(ResponseError::Answer(index))).collect()
}

fn answer(line: &[u8]) -> Option<Answer<'_>> {
    let line = core::str::from_utf8(line.strip_suffix(b"\r").unwrap_or(line)).ok()?;
    let (category, scope) = line.split_once(' ')?;
    let scope = match scope {
        "host" => Scope::Host,
        "path" => Scope::Path,
        _ => return None,
    };
    let is_name =
        !category.is_empty() && category.len() <= NAME_BYTES_MAX && category.bytes().all(|b| b.is_ascii_graphic());
    is_name.then_some(Answer { category: if category == "-" { "" } else { category }, scope })
}

/// Reads a request, for a server: the targets, and how many bytes it has. [`Inspected::Other`]: it is no such request.
#[must_use]
pub fn read_request(bytes: &[u8]) -> Inspected<(Vec<&str>, usize)> {
    let Some(head_bytes) = bytes.windows(4).position(|window| window == b"\r\n\r\n") else {
        return Inspected::Partial;
    };
    let Ok(head) = core::str::from_utf8(&bytes[..head_bytes]) else { return Inspected::Other };
    let mut lines = head.split("\r\n");
    let is_known = lines.next() == Some("POST /categorise HTTP/1.1");
    let length = lines
        .filter_map(|line| line.split_once(':'))
        .find(|(name, _)| name.eq_ignore_ascii_case("content-length"))
        .and_then(|(_, value)| value.trim().parse::<usize>().ok());
    let (Some(length_bytes), true) = (length.filter(|bytes| *bytes <= 1 << 20), is_known) else {
        return Inspected::Other;
    };
    let end = head_bytes + 4 + length_bytes;
    let Some(body) = bytes.get(head_bytes + 4..end) else { return Inspected::Partial };
    match core::str::from_utf8(body) {
        Ok(body) => Inspected::Found((body.lines().collect(), end)),
        Err(_) => Inspected::Other,
    }
}

#[cfg(test)]
mod tests {
    use std::vec::Vec;

    use proptest::prelude::*;

    use super::*;

    fn host(name: &str) -> HostName {
        HostName::new(name.as_bytes()).expect("a name")
    }

    #[test]
    fn a_request_names_its_targets_and_is_read_by_a_server() {
        let path = NormalPath::new(b"/news/top?x=1");
        let odd = NormalPath::new(b"/a\x01\xffb");
        let targets = [
            target(&host("ads.example"), None),
            target(&host("big.example"), Some(&path)),
            target(&host("c"), Some(&odd)),
        ];
        assert_eq!(targets, ["ads.example", "big.example/news/top", "c/a%01%FFb"]);
        let request = request("192.0.2.10:80", Some("secret"), targets.iter().map(String::as_str));
        assert!(request.contains("\r\nHost: 192.0.2.10:80\r\nAuthorization: Bearer secret\r\n"), "{request}");
        let bytes = request.as_bytes();
        let Inspected::Found((read, end)) = read_request(bytes) else { panic!("a request: {request}") };
        assert_eq!((read, end), (targets.iter().map(String::as_str).collect::<Vec<_>>(), bytes.len()));
        assert_eq!(read_request(&bytes[..bytes.len() - 1]), Inspected::Partial);
        assert_eq!(read_request(b"GET / HTTP/1.1\r\n\r\n"), Inspected::Other);
    }

    #[test]
    fn a_response_is_complete_with_its_length() {
        let bytes = b"HTTP/1.1 200 OK\r\ncontent-length: 19\r\nConnection: close\r\n\r\nads host\nnews path\nHTTP";
        let complete = bytes.len() - 4;
        for length in 0..complete {
            assert_eq!(response(&bytes[..length]), Ok(None), "{length}");
        }
        let found = response(bytes).unwrap().expect("it is complete");
        assert!(!found.keeps_open);
        let answers = answers(found.body, 2).unwrap();
        assert_eq!(
            answers,
            [Answer { category: "ads", scope: Scope::Host }, Answer { category: "news", scope: Scope::Path }]
        );
    }

    #[test]
    fn unusable_responses_have_an_error_of_their_own() {
        for (bytes, expected) in [
            (&b"HTTP/1.1 503 Busy\r\nContent-Length: 0\r\n\r\n"[..], ResponseError::Status(503)),
            (b"HTTP/1.1 200 OK\r\n\r\n", ResponseError::NotHttp),
            (b"SSH-2.0\r\n\r\n", ResponseError::NotHttp),
            (b"HTTP/1.1 200 OK\r\nContent-Length: 99999\r\n\r\n", ResponseError::TooLong),
            (b"HTTP/1.1 200 OK\r\nContent-Length: -1\r\n\r\n", ResponseError::NotHttp),
        ] {
            assert_eq!(response(bytes), Err(expected));
        }
        assert_eq!(response(&[b'x'; RESPONSE_BYTES_MAX]), Err(ResponseError::TooLong));
        assert_eq!(answers(b"ads host\n", 2), Err(ResponseError::Count { answers: 1, targets: 2 }));
        assert_eq!(answers(b"ads host\nads", 2), Err(ResponseError::Answer(1)));
        assert_eq!(answers(b"- host", 1).unwrap()[0].category, "");
    }

    proptest! {
        #[test]
        fn any_bytes_are_read_without_harm(bytes: Vec<u8>, targets in 0_usize..4) {
            let _ = response(&bytes).map(|found| found.map(|found| found.body.len()));
            let _ = answers(&bytes, targets);
            let _ = read_request(&bytes);
        }
    }
}
