//! Host names that clients send.

use core::fmt;
use core::net::Ipv6Addr;

use arrayvec::ArrayVec;

use super::Inspected;

/// The longest host name in bytes, without the final dot (RFC 1035 section 2.3.4).
pub const HOST_NAME_BYTES_MAX: usize = 253;

/// A host name in lower case, without a final dot: letters, digits, hyphens, underscores and dots, no label empty. It is also an
/// address where a client sends one (`192.0.2.1`).
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct HostName(ArrayVec<u8, HOST_NAME_BYTES_MAX>);

impl HostName {
    /// The name in these bytes; `None` if they are none.
    #[must_use]
    pub fn new(bytes: &[u8]) -> Option<Self> {
        let bytes = bytes.strip_suffix(b".").unwrap_or(bytes);
        if bytes.len() > HOST_NAME_BYTES_MAX || bytes.split(|byte| *byte == b'.').any(<[u8]>::is_empty) {
            return None;
        }
        let is_allowed = |byte: &u8| byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'_' | b'.');
        bytes.iter().all(is_allowed).then(|| Self(bytes.iter().map(u8::to_ascii_lowercase).collect()))
    }

    /// The name in these bytes; found as `None` if they are an IPv6 address, without brackets. All else is malformed.
    pub(super) fn of_name_or_address(bytes: &[u8]) -> Inspected<Option<Self>> {
        let is_address = |bytes| core::str::from_utf8(bytes).is_ok_and(|text| text.parse::<Ipv6Addr>().is_ok());
        match Self::new(bytes) {
            Some(name) => Inspected::Found(Some(name)),
            None if bytes.split(|byte| *byte == b'%').next().is_some_and(is_address) => Inspected::Found(None),
            None => Inspected::Malformed,
        }
    }

    /// The name of an authority `host` or `host:port` (RFC 3986 section 3.2). `None` for IPv6 literals and names that are none.
    #[must_use]
    pub fn of_authority(bytes: &[u8]) -> Option<Self> {
        let host = bytes.split(|byte| *byte == b':').next().unwrap_or_default();
        Self::new(host)
    }

    /// The name as text.
    #[must_use]
    pub fn as_str(&self) -> &str {
        core::str::from_utf8(&self.0).expect("only ASCII bytes are let in")
    }

    /// The name, then each domain above it: `a.b.c`, `b.c`, `c`.
    pub fn domains(&self) -> impl Iterator<Item = &str> {
        let name = self.as_str();
        let above = name.match_indices('.').map(|(dot, _)| &name[dot + 1..]);
        core::iter::once(name).chain(above)
    }
}

impl fmt::Display for HostName {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(self.as_str())
    }
}

impl fmt::Debug for HostName {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Debug::fmt(self.as_str(), formatter)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::vec::Vec;

    #[test]
    fn names_are_lower_case_without_the_final_dot() {
        let name = HostName::new(b"WWW.Example.ORG.").unwrap();
        assert_eq!(name.as_str(), "www.example.org");
        assert_eq!(name.domains().collect::<Vec<_>>(), ["www.example.org", "example.org", "org"]);
        assert_eq!(HostName::of_authority(b"example.org:8080"), HostName::new(b"example.org"));
    }

    #[test]
    fn other_bytes_are_no_names() {
        for bytes in
            [&b""[..], b".", b"a..b", b".a", b"a b", b"a\0", b"b\xc3\xbccher.example", b"[2001:db8::1]", &[b'a'; 254]]
        {
            assert_eq!(HostName::new(bytes), None, "{bytes:?}");
        }
        assert!(HostName::new(&[b'a'; 253]).is_some());
        assert_eq!(HostName::of_authority(b"[2001:db8::1]:80"), None);
    }
}
