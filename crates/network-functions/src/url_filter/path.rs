//! Paths of HTTP requests in one form, so that a prefix is found however a client writes it.

use core::mem;

use arrayvec::ArrayVec;

/// The longest path in bytes that is looked at. Of a longer one, the beginning counts.
pub const PATH_BYTES_MAX: usize = 512;
/// The segments of a path that are looked at, from its beginning.
pub const PATH_SEGMENTS_MAX: usize = 16;
/// The longest dot segment in bytes, with its slash.
const DOTS_BYTES: usize = b"/..".len();

/// A path in normal form (RFC 3986 section 6.2.2): it begins with a slash and ends with none, has no query, no empty segment and no dot
/// segment. Printable characters are not percent-encoded but `%`, `?` and `#`, all other bytes are. An encoded slash is a slash, as servers have it that
/// decode a path before they look at its segments.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct NormalPath(ArrayVec<u8, PATH_BYTES_MAX>);

impl NormalPath {
    /// The normal form of a path, without a slash in front, too.
    #[must_use]
    pub fn new(path: &[u8]) -> Self {
        Self::read(path).0
    }

    /// As [`NormalPath::new`], of a path that is looked at to its end. `None` for longer ones, too.
    #[must_use]
    pub fn whole(path: &[u8]) -> Option<Self> {
        let (path, is_whole) = Self::read(path);
        let is_found = path.is_root() || path.prefixes().next() == Some(path.as_bytes());
        (is_whole && is_found).then_some(path)
    }

    /// The normal form, and whether all of the path is in it.
    fn read(path: &[u8]) -> (Self, bool) {
        let mut rest = path.split(|byte| matches!(byte, b'?' | b'#')).next().unwrap_or_default();
        let mut reading = Reading::default();
        while let Some((first, behind)) = rest.split_first() {
            let encoded = behind.first_chunk::<2>().filter(|_| *first == b'%');
            let decoded = encoded.and_then(|[high, low]| Some(digit(*high)? << 4 | digit(*low)?));
            // A percent sign that begins no encoding stands for itself.
            reading.push(decoded.unwrap_or(*first));
            rest = if decoded.is_some() { &behind[2..] } else { behind };
        }
        reading.end_segment();
        (Self(reading.normal.iter().copied().collect()), reading.beyond == 0)
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

/// A path that is read.
#[derive(Default)]
struct Reading {
    /// Segments that have ended, each behind a slash, and the begun one.
    normal: ArrayVec<u8, { PATH_BYTES_MAX + DOTS_BYTES }>,
    /// Where the begun segment's slash is to be.
    start: usize,
    /// The begun segment does not fit.
    is_too_long: bool,
    /// Segments behind those in `normal`, for which there is no room. A dot segment removes the last of them first.
    beyond: usize,
}

impl Reading {
    /// The next decoded byte.
    fn push(&mut self, byte: u8) {
        if byte == b'/' {
            return self.end_segment();
        }
        if self.is_too_long {
            return;
        }
        let slash: &[u8] = if self.normal.len() == self.start { b"/" } else { b"" };
        let digits = [byte >> 4, byte & 0xf].map(|digit| b"0123456789ABCDEF"[usize::from(digit)]);
        let encoded = [b'%', digits[0], digits[1]];
        let is_plain = byte.is_ascii_graphic() && !matches!(byte, b'%' | b'?' | b'#');
        let bytes: &[u8] = if is_plain { &[byte] } else { &encoded };
        self.is_too_long =
            self.normal.try_extend_from_slice(slash).is_err() || self.normal.try_extend_from_slice(bytes).is_err();
    }

    fn end_segment(&mut self) {
        let is_too_long = mem::take(&mut self.is_too_long) || self.normal.len() > PATH_BYTES_MAX;
        let kept_bytes = match self.normal.get(self.start + 1..).unwrap_or_default() {
            b"" | b"." => self.start,
            b".." if self.beyond > 0 => {
                self.beyond -= 1;
                self.start
            }
            b".." => self.normal[..self.start].iter().rposition(|byte| *byte == b'/').unwrap_or(0),
            _ if is_too_long || self.beyond > 0 => {
                self.beyond += 1;
                self.start
            }
            _ => self.normal.len(),
        };
        self.normal.truncate(kept_bytes);
        self.start = kept_bytes;
    }
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

    fn normal(path: &str) -> std::string::String {
        std::string::String::from_utf8(NormalPath::new(path.as_bytes()).as_bytes().to_vec()).unwrap()
    }

    #[test]
    fn spellings_of_a_path_have_one_form() {
        for path in [
            "/ads/top",
            "ads/top",
            "/ads/top/",
            "//ads//top",
            "/./ads/x/../top",
            "/%61ds/t%6Fp?q=1#a",
            "/../ads/top",
            "/ads%2ftop",
            "/x/..%2Fads/%2e/top",
        ] {
            assert_eq!(normal(path), "/ads/top", "{path}");
        }
        assert_eq!(normal("/"), "");
        assert_eq!(normal("/100%"), "/100%25");
        assert_eq!(normal("/%21:%40%3f%0a%ff%2561"), "/!:@%3F%0A%FF%2561");
    }

    /// What has no room may be removed by dot segments, and what comes behind it then has.
    #[test]
    fn a_long_segment_does_not_hide_what_comes_behind_it() {
        let long = "x".repeat(PATH_BYTES_MAX);
        assert_eq!(normal(&format!("/{long}/../ads")), "/ads");
        assert_eq!(normal(&format!("/{}{}ads", "x/".repeat(400), "../".repeat(400))), "/ads");
        assert_eq!(normal(&format!("/a/{long}/b/c/../../../ads")), "/a/ads");
        assert_eq!(normal(&format!("/a/{long}/./b")), "/a");
        assert_eq!(normal(&format!("/{}%41%2e", "y".repeat(PATH_BYTES_MAX - 4))).len(), PATH_BYTES_MAX - 1);
        assert_eq!(normal(&format!("/{}", "%0a".repeat(PATH_BYTES_MAX / 3 + 1))), "");
    }

    #[test]
    fn prefixes_end_with_segments() {
        let path = NormalPath::new(b"/a/bc/d?x");
        assert_eq!(path.prefixes().collect::<Vec<_>>(), [&b"/a/bc/d"[..], b"/a/bc", b"/a"]);
        assert_eq!(NormalPath::new(b"/").prefixes().count(), 0);
        let long = "/x".repeat(1000);
        assert_eq!(NormalPath::new(long.as_bytes()).prefixes().count(), PATH_SEGMENTS_MAX);
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
        fn a_normal_path_is_its_own_normal_form(path in "[a-c./%2-5eEfF?\n\u{ff}]{0,40}") {
            let once = NormalPath::new(path.as_bytes());
            prop_assert_eq!(NormalPath::new(once.as_bytes()), once);
        }

        /// Against all segments at once, of paths longer than what is kept.
        #[test]
        fn a_path_is_the_longest_beginning_of_its_segments_that_fits(segments in proptest::collection::vec("\\.{1,2}|x{0,300}|[ab]{1,3}", 0..30)) {
            let mut stack: Vec<&str> = Vec::new();
            for segment in &segments {
                match segment.as_str() {
                    "" | "." => {}
                    ".." => drop(stack.pop()),
                    other => stack.push(other),
                }
            }
            let normal = normal(&segments.join("/"));
            let whole: std::string::String = stack.iter().map(|segment| format!("/{segment}")).collect();
            prop_assert!(whole.starts_with(&normal));
            let next = whole[normal.len()..].split('/').nth(1);
            prop_assert!(next.is_none_or(|next| normal.len() + 1 + next.len() > PATH_BYTES_MAX), "{} of {}", normal, whole);
        }
    }
}
