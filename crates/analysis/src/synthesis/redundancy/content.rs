//! Bytes that were never sent before, of several kinds, and the headers of HTTP around them.

use rand::rngs::SmallRng;
use rand::{Rng, RngCore};

/// Words of the text's language.
const WORDS: usize = 4096;
/// The header of a TLS record of application data, without its length (RFC 8446 section 5.2).
const TLS_APPLICATION_DATA: [u8; 3] = [0x17, 0x03, 0x03];

/// What all requests have behind their first line and the host's name.
const REQUEST: &str = "\r\nUser-Agent: Mozilla/5.0 (X11; Linux x86_64; rv:128.0) Gecko/20100101 Firefox/128.0\r\n\
    Accept: text/html,application/xhtml+xml,application/xml;q=0.9,*/*;q=0.8\r\nAccept-Encoding: identity\r\n\r\n";
/// What all responses begin with.
const TEXT_RESPONSE: &str = "HTTP/1.1 200 OK\r\nServer: nginx\r\nContent-Type: text/html; charset=utf-8\r\n\
    Cache-Control: max-age=3600\r\nConnection: keep-alive\r\nContent-Length: ";
const BINARY_RESPONSE: &str = "HTTP/1.1 200 OK\r\nServer: nginx\r\nAccept-Ranges: bytes\r\n\
    Content-Type: application/octet-stream\r\nConnection: keep-alive\r\nContent-Length: ";

/// Where fresh bytes come from.
pub(super) struct Content {
    words: Vec<String>,
}

impl Content {
    pub(super) fn new(random: &mut SmallRng) -> Self {
        let word = |random: &mut SmallRng| {
            let characters = random.random_range(3..10);
            (0..characters).map(|_| char::from(random.random_range(b'a'..=b'z'))).collect()
        };
        Self { words: (0..WORDS).map(|_| word(random)).collect() }
    }

    /// Text: five words in a window have more meanings than a cache has bytes, so no run of it comes twice.
    pub(super) fn text(&self, random: &mut SmallRng, out: &mut Vec<u8>, bytes: usize) {
        let end = out.len() + bytes;
        while out.len() < end {
            out.extend_from_slice(self.words[random.random_range(0..WORDS)].as_bytes());
            out.push(b' ');
        }
        out.truncate(end);
    }

    #[allow(clippy::unused_self, reason = "beside the other kinds")]
    pub(super) fn binary(&self, random: &mut SmallRng, out: &mut Vec<u8>, bytes: usize) {
        let from = out.len();
        out.resize(from + bytes, 0);
        random.fill_bytes(&mut out[from..]);
    }

    /// A record of TLS.
    pub(super) fn cipher(&self, random: &mut SmallRng, out: &mut Vec<u8>, bytes: usize) {
        let body_bytes = bytes.saturating_sub(5).max(1);
        out.extend_from_slice(&TLS_APPLICATION_DATA);
        out.extend_from_slice(&(body_bytes as u16).to_be_bytes());
        self.binary(random, out, body_bytes);
    }

    /// A request: what is its own, and what all have.
    #[allow(clippy::unused_self, reason = "beside the response")]
    pub(super) fn request(&self, random: &mut SmallRng, server: u32) -> (String, &'static str) {
        let (high, low): (u64, u64) = (random.random(), random.random());
        (format!("GET /objects/{high:016x}{low:016x} HTTP/1.1\r\nHost: {server}.example"), REQUEST)
    }

    /// The header of a response: what all have, and what is its own.
    #[allow(clippy::unused_self, reason = "beside the request")]
    pub(super) fn response(&self, random: &mut SmallRng, is_text: bool, body_bytes: u32) -> (&'static str, String) {
        let known = if is_text { TEXT_RESPONSE } else { BINARY_RESPONSE };
        let tag: u64 = random.random();
        (known, format!("{body_bytes}\r\nETag: \"{tag:016x}\"\r\n\r\n"))
    }
}
