//! Paths of HTTP requests in one form, so that a prefix is found however a client writes it.

use arrayvec::ArrayVec;

/// The longest path in bytes that is looked at. Of a longer one, the beginning counts.
pub const PATH_BYTES_MAX: usize = 512;
/// The segments of a path that are looked at, from its beginning.
pub const PATH_SEGMENTS_MAX: usize = 16;

/// A path in normal form (RFC 3986 section 6.2.2): it begins with a slash and ends with none, has no query, no empty segment and no dot
/// segment, and percent-encodings only of what must have one.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct NormalPath(ArrayVec<u8, PATH_BYTES_MAX>);

impl NormalPath {
    /// The normal form of a path. `None` if it does not begin with a slash.
    #[must_use]
    pub fn new(path: &[u8]) -> Option<Self> {
        Self::read(path).map(|(path, _)| path)
    }

    /// As [`NormalPath::new`], of a path that is looked at to its end. `None` for longer ones, too.
    #[must_use]
    pub fn whole(path: &[u8]) -> Option<Self> {
        let (path, is_whole) = Self::read(path)?;
        let is_found = path.is_root() || path.prefixes().next() == Some(path.as_bytes());
        (is_whole && is_found).then_some(path)
    }

    /// The normal form, and whether all of the path is in it.
    fn read(path: &[u8]) -> Option<(Self, bool)> {
        let path = path.split(|byte| matches!(byte, b'?' | b'#')).next().unwrap_or_default();
        let mut normal: ArrayVec<u8, PATH_BYTES_MAX> = ArrayVec::new();
        for segment in path.strip_prefix(b"/")?.split(|byte| *byte == b'/') {
            let start = normal.len();
            let is_whole = normal.try_push(b'/').is_ok() && decode(segment, &mut normal);
            match &normal[(start + 1).min(normal.len())..] {
                _ if !is_whole => {
                    normal.truncate(start);
                    return Some((Self(normal), false));
                }
                b"" | b"." => normal.truncate(start),
                b".." => {
                    let above = normal[..start].iter().rposition(|byte| *byte == b'/').unwrap_or(0);
                    normal.truncate(above);
                }
                _ => {}
            }
        }
        Some((Self(normal), true))
    }

    /// Whether it stands for all paths.
    #[must_use]
    pub fn is_root(&self) -> bool {
        self.0.is_empty()
    }

    /// Its bytes; empty for the root.
    #[must_use]
    pub fn as_bytes(&self) -> &[u8] {
        &self.0
    }

    /// The path, and each path above it, the longest first, without the root.
    pub fn prefixes(&self) -> impl Iterator<Item = &[u8]> {
        let mut ends: ArrayVec<usize, PATH_SEGMENTS_MAX> = ArrayVec::new();
        let slashes = self.0.iter().enumerate().skip(1).filter(|(_, byte)| **byte == b'/').map(|(at, _)| at);
        for end in slashes.chain((!self.0.is_empty()).then_some(self.0.len())) {
            if ends.try_push(end).is_err() {
                break;
            }
        }
        ends.into_iter().rev().map(|end| &self.0[..end])
    }
}

/// Appends a segment with unnecessary percent-encodings decoded, and the digits of others in upper case. False if it does not fit.
fn decode(segment: &[u8], out: &mut ArrayVec<u8, PATH_BYTES_MAX>) -> bool {
    let mut rest = segment;
    while let Some((first, behind)) = rest.split_first() {
        let encoded = behind.first_chunk::<2>().filter(|_| *first == b'%');
        let value = encoded.and_then(|[high, low]| Some(digit(*high)? << 4 | digit(*low)?));
        let is_fitting = match (value, encoded) {
            (Some(byte), _) if is_unreserved(byte) => out.try_push(byte).is_ok(),
            (Some(_), Some(digits)) => {
                let upper = [b'%', digits[0].to_ascii_uppercase(), digits[1].to_ascii_uppercase()];
                out.try_extend_from_slice(&upper).is_ok()
            }
            // A percent sign that begins no encoding stands for itself.
            _ if *first == b'%' => out.try_extend_from_slice(b"%25").is_ok(),
            _ => out.try_push(*first).is_ok(),
        };
        if !is_fitting {
            return false;
        }
        rest = if value.is_some() { &behind[2..] } else { behind };
    }
    true
}

const fn is_unreserved(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'.' | b'_' | b'~')
}

fn digit(byte: u8) -> Option<u8> {
    char::from(byte).to_digit(16).map(|digit| digit as u8)
}

#[cfg(test)]
mod tests {
    use std::format;
    use std::vec::Vec;

    use proptest::prelude::*;

    use super::*;

    fn normal(path: &str) -> Option<std::string::String> {
        NormalPath::new(path.as_bytes()).map(|path| std::string::String::from_utf8(path.as_bytes().to_vec()).unwrap())
    }

    #[test]
    fn spellings_of_a_path_have_one_form() {
        for path in ["/ads/top", "/ads/top/", "//ads//top", "/./ads/x/../top", "/%61ds/t%6Fp?q=1#a", "/../ads/top"] {
            assert_eq!(normal(path).as_deref(), Some("/ads/top"), "{path}");
        }
        assert_eq!(normal("/a%2fb").as_deref(), Some("/a%2Fb"), "an encoded slash is no boundary");
        assert_eq!(normal("/").as_deref(), Some(""));
        assert_eq!(normal("/100%").as_deref(), Some("/100%25"));
        assert_eq!(normal("*"), None);
    }

    #[test]
    fn prefixes_end_with_segments() {
        let path = NormalPath::new(b"/a/bc/d?x").unwrap();
        assert_eq!(path.prefixes().collect::<Vec<_>>(), [&b"/a/bc/d"[..], b"/a/bc", b"/a"]);
        assert_eq!(NormalPath::new(b"/").unwrap().prefixes().count(), 0);
        let long = "/x".repeat(1000);
        assert_eq!(NormalPath::new(long.as_bytes()).unwrap().prefixes().count(), PATH_SEGMENTS_MAX);
    }

    /// An entry with a longer path would be found by no request, or by more requests than it names.
    #[test]
    fn a_path_is_whole_if_all_of_it_is_looked_at() {
        let of_segments = |count: usize| NormalPath::whole("/x".repeat(count).as_bytes());
        assert!(of_segments(PATH_SEGMENTS_MAX).is_some() && of_segments(PATH_SEGMENTS_MAX + 1).is_none());
        let of_bytes = |count: usize| NormalPath::whole(format!("/{}", "x".repeat(count - 1)).as_bytes());
        assert!(of_bytes(PATH_BYTES_MAX).is_some() && of_bytes(PATH_BYTES_MAX + 1).is_none());
    }

    proptest! {
        #[test]
        fn a_normal_path_is_its_own_normal_form(path in "/[a-c./%2-5eE?]{0,40}") {
            let once = NormalPath::new(path.as_bytes()).unwrap();
            if !once.is_root() {
                prop_assert_eq!(NormalPath::new(once.as_bytes()).unwrap(), once);
            }
        }
    }
}
