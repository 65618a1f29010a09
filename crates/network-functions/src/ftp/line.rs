//! Lines of an FTP control connection: parsing and writing of announcements.
//!
//! | line | sender | announces | source |
//! |---|---|---|---|
//! | `PORT h1,h2,h3,h4,p1,p2` | client | address and port that the client listens on | RFC 959 section 5.3.2 |
//! | `EPRT \|1\|address\|port\|` (2 for IPv6) | client | the same, for both families | RFC 2428 section 2 |
//! | `227 … h1,h2,h3,h4,p1,p2 …` | server | address and port that the server listens on, after `PASV` | RFC 959, RFC 1123 section 4.1.2.6 |
//! | `229 … (\|\|\|port\|) …` | server | the port alone, after `EPSV` | RFC 2428 section 3 |

use core::fmt::Write;
use core::net::{IpAddr, Ipv4Addr};
use core::ops::Range;

use arrayvec::ArrayString;

/// The maximum length of an announcing line, in bytes with its end: longer lines are ignored.
pub(super) const LINE_BYTES_MAX: usize = 127;
/// The longest announcement in bytes: an `EPRT` argument with an IPv6 address.
pub(super) const TEXT_BYTES_MAX: usize = 56;

const CODE_BYTES: usize = 3;

/// The form of an announcement.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Form {
    /// Six numbers with commas between them.
    Numbers,
    /// `|1|address|port|`, with this delimiter.
    Extended(u8),
    /// The port alone.
    PortAlone,
}

/// An announced end point.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Announcement {
    pub(super) form: Form,
    /// `None`: that of the control connection.
    pub(super) address: Option<IpAddr>,
    pub(super) port: u16,
    /// Its position in the line.
    pub(super) place: Range<usize>,
}

impl Announcement {
    /// The announcement of another end point in the same form.
    pub(super) fn with(&self, address: IpAddr, port: u16) -> ArrayString<TEXT_BYTES_MAX> {
        let mut text = ArrayString::new();
        let written = match (self.form, address) {
            (Form::Numbers, IpAddr::V4(address)) => {
                let ([a, b, c, d], [high, low]) = (address.octets(), port.to_be_bytes());
                write!(text, "{a},{b},{c},{d},{high},{low}")
            }
            // Only IPv4 is announced in this form.
            (Form::Numbers, IpAddr::V6(_)) => Ok(()),
            (Form::Extended(delimiter), _) => {
                let (delimiter, family) = (char::from(delimiter), if address.is_ipv4() { 1 } else { 2 });
                write!(text, "{delimiter}{family}{delimiter}{address}{delimiter}{port}{delimiter}")
            }
            (Form::PortAlone, _) => write!(text, "{port}"),
        };
        debug_assert!(written.is_ok(), "the longest announcement fits");
        text
    }
}

/// A command of a client.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Command {
    /// `PORT` or `EPRT`.
    Announces(Announcement),
    /// `PASV` or `EPSV`.
    AsksToListen,
    /// Another command.
    Other,
}

/// A reply of a server.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Reply {
    /// The first line of a multi-line reply (RFC 959 section 4.2).
    Begins(u16),
    /// The last or only line of a reply.
    Ends(u16, Option<Announcement>),
    /// A line in the middle of a multi-line reply, or no reply.
    Other,
}

/// Parses a line of the client, its end included.
pub(super) fn command(line: &[u8]) -> Command {
    if line.len() > LINE_BYTES_MAX {
        return Command::Other;
    }
    let (verb, argument_at) = verb_of(line);
    let announcement = match &verb {
        b"PORT" => numbers(line, argument_at).filter(|found| is_end(&line[found.place.end..])),
        b"EPRT" => extended(line, argument_at).filter(|found| is_end(&line[found.place.end..])),
        b"PASV" | b"EPSV" => return Command::AsksToListen,
        _ => None,
    };
    announcement.map_or(Command::Other, Command::Announces)
}

/// Parses a line of the server, its end included. `within`: the code of the multi-line reply that it is part of.
pub(super) fn reply(line: &[u8], within: Option<u16>) -> Reply {
    let Some(code) = code_of(line) else { return Reply::Other };
    match (line.get(CODE_BYTES), within) {
        (Some(b'-'), None) => Reply::Begins(code),
        (Some(b'-'), Some(_)) => Reply::Other,
        (_, Some(first)) if first != code => Reply::Other,
        (Some(b' '), _) if line.len() <= LINE_BYTES_MAX => {
            let announcement = match code {
                227 => first_numbers(line),
                229 => port_in_parentheses(line),
                _ => None,
            };
            Reply::Ends(code, announcement)
        }
        (Some(b' ' | b'\r' | b'\n'), _) => Reply::Ends(code, None),
        _ => Reply::Other,
    }
}

/// Whether `part`, the beginning of a line, may become a client's announcement or its request for one.
pub(super) fn may_become_command(part: &[u8]) -> bool {
    let (verb, _) = verb_of(part);
    let verb_bytes = part.len().min(4);
    part.len() <= LINE_BYTES_MAX
        && [b"PORT", b"EPRT", b"PASV", b"EPSV"].iter().any(|known| known[..verb_bytes] == verb[..verb_bytes])
}

/// Whether `part`, the beginning of a line, may become a server's reply to a request to listen.
pub(super) fn may_become_reply(part: &[u8]) -> bool {
    let code_bytes = part.len().min(CODE_BYTES);
    let known = [b"227", b"229"].iter().any(|known| known[..code_bytes] == part[..code_bytes]);
    part.len() <= LINE_BYTES_MAX && known && part.get(CODE_BYTES).is_none_or(|byte| *byte == b' ')
}

/// The first four bytes in capitals, with zeros where the verb is shorter, and the offset of the argument.
fn verb_of(line: &[u8]) -> ([u8; 4], usize) {
    let mut verb = [0; 4];
    for (place, byte) in verb.iter_mut().zip(line) {
        *place = byte.to_ascii_uppercase();
    }
    if line.get(verb.len()).is_some_and(u8::is_ascii_alphanumeric) {
        return ([0; 4], 0);
    }
    let spaces = line.iter().skip(verb.len()).take_while(|byte| **byte == b' ').count();
    (verb, verb.len() + spaces)
}

fn code_of(line: &[u8]) -> Option<u16> {
    let digits = line.get(..CODE_BYTES).filter(|digits| digits.iter().all(u8::is_ascii_digit))?;
    Some(digits.iter().fold(0, |code, digit| code * 10 + u16::from(digit - b'0')))
}

/// The rest behind an argument: the line's end, possibly after spaces.
fn is_end(rest: &[u8]) -> bool {
    let rest = rest.trim_ascii_start();
    rest.is_empty()
}

/// Six numbers from the first digit behind the code on: the text before them differs between servers.
fn first_numbers(line: &[u8]) -> Option<Announcement> {
    let at = line.iter().skip(CODE_BYTES).position(u8::is_ascii_digit)? + CODE_BYTES;
    numbers(line, at)
}

/// `h1,h2,h3,h4,p1,p2` at `at`.
fn numbers(line: &[u8], at: usize) -> Option<Announcement> {
    let mut values = [0u8; 6];
    let mut end = at;
    for (index, value) in values.iter_mut().enumerate() {
        if index > 0 {
            (line.get(end) == Some(&b',')).then_some(())?;
            end += 1;
        }
        let (number, behind) = number(line, end, 3)?;
        *value = u8::try_from(number).ok()?;
        end = behind;
    }
    let [a, b, c, d, high, low] = values;
    let (address, port) = (Ipv4Addr::new(a, b, c, d), u16::from_be_bytes([high, low]));
    (port != 0).then_some(Announcement { form: Form::Numbers, address: Some(address.into()), port, place: at..end })
}

/// `|1|address|port|` at `at`, with any delimiter of RFC 2428.
fn extended(line: &[u8], at: usize) -> Option<Announcement> {
    let delimiter = *line.get(at).filter(|byte| is_delimiter(**byte))?;
    let family = *line.get(at + 1)?;
    (line.get(at + 2) == Some(&delimiter)).then_some(())?;
    let address_at = at + 3;
    let address_bytes = line.get(address_at..)?.iter().position(|byte| *byte == delimiter)?;
    let text = core::str::from_utf8(&line[address_at..address_at + address_bytes]).ok()?;
    let address: IpAddr = text.parse().ok()?;
    (family == if address.is_ipv4() { b'1' } else { b'2' }).then_some(())?;
    let (port, end) = number(line, address_at + address_bytes + 1, 5)?;
    (line.get(end) == Some(&delimiter)).then_some(())?;
    let form = Form::Extended(delimiter);
    (port != 0).then_some(Announcement { form, address: Some(address), port, place: at..end + 1 })
}

/// `(|||port|)`.
fn port_in_parentheses(line: &[u8]) -> Option<Announcement> {
    let open = line.iter().position(|byte| *byte == b'(')?;
    let delimiter = *line.get(open + 1).filter(|byte| is_delimiter(**byte))?;
    (line.get(open + 2..open + 4)? == [delimiter; 2]).then_some(())?;
    let (port, end) = number(line, open + 4, 5)?;
    (line.get(end..end + 2)? == [delimiter, b')']).then_some(())?;
    (port != 0).then_some(Announcement { form: Form::PortAlone, address: None, port, place: open + 4..end })
}

/// RFC 2428 section 2: printable ASCII; a digit would not delimit.
const fn is_delimiter(byte: u8) -> bool {
    byte.is_ascii_graphic() && !byte.is_ascii_digit()
}

/// A decimal number of at most `digits_max` digits at `at`, and where it ends.
fn number(line: &[u8], at: usize, digits_max: usize) -> Option<(u16, usize)> {
    let digits = line.get(at..)?.iter().take_while(|byte| byte.is_ascii_digit());
    let (mut value, mut count) = (0u32, 0);
    for digit in digits {
        count += 1;
        if count > digits_max {
            return None;
        }
        value = value * 10 + u32::from(digit - b'0');
    }
    (count > 0).then_some((u16::try_from(value).ok()?, at + count))
}

#[cfg(test)]
mod tests {
    use std::format;
    use std::vec::Vec;

    use proptest::prelude::*;

    use super::*;

    fn announced(line: &str) -> Option<(Option<IpAddr>, u16)> {
        let found = match command(line.as_bytes()) {
            Command::Announces(found) => Some(found),
            _ => match reply(line.as_bytes(), None) {
                Reply::Ends(_, found) => found,
                _ => None,
            },
        };
        found.map(|found| (found.address, found.port))
    }

    fn v4(a: u8, b: u8, c: u8, d: u8) -> Option<IpAddr> {
        Some(Ipv4Addr::new(a, b, c, d).into())
    }

    #[test]
    fn announcements_of_common_clients_and_servers_are_parsed() {
        for (line, expected) in [
            ("PORT 10,0,0,2,19,136\r\n", (v4(10, 0, 0, 2), 5000)),
            ("port 10,0,0,2,19,136\n", (v4(10, 0, 0, 2), 5000)),
            ("PORT  10,0,0,002,0,21 \r\n", (v4(10, 0, 0, 2), 21)),
            ("EPRT |1|10.0.0.2|5000|\r\n", (v4(10, 0, 0, 2), 5000)),
            ("Eprt !2!2001:db8::1!65535!\r\n", (Some("2001:db8::1".parse().unwrap()), 65535)),
            ("227 Entering Passive Mode (192,0,2,1,19,136).\r\n", (v4(192, 0, 2, 1), 5000)),
            ("227 Entering Passive Mode 192,0,2,1,19,136\r\n", (v4(192, 0, 2, 1), 5000)),
            ("227 =192,0,2,1,19,136\r\n", (v4(192, 0, 2, 1), 5000)),
            ("229 Entering Extended Passive Mode (|||6446|)\r\n", (None, 6446)),
            ("229 ok (!!!1024!) go\r\n", (None, 1024)),
        ] {
            assert_eq!(announced(line), Some(expected), "{line}");
        }
    }

    #[test]
    fn similar_lines_are_no_announcements() {
        for line in [
            "PORT 10,0,0,2,19\r\n",
            "PORT 10,0,0,256,19,136\r\n",
            "PORT 10,0,0,2,19,136,7\r\n",
            "PORT 10,0,0,2,0,0\r\n",
            "PORT 10,0,0,0002,1,1\r\n",
            "PORT10,0,0,2,19,136\r\n",
            "PORTS 10,0,0,2,19,136\r\n",
            "STOR PORT 10,0,0,2,19,136\r\n",
            " PORT 10,0,0,2,19,136\r\n",
            "EPRT |2|10.0.0.2|5000|\r\n",
            "EPRT |1|2001:db8::1|5000|\r\n",
            "EPRT |1|10.0.0.2|5000\r\n",
            "EPRT |1|10.0.0.2|65536|\r\n",
            "EPRT |1||5000|\r\n",
            "EPRT 1|10.0.0.2|5000|\r\n",
            "227-Entering Passive Mode (192,0,2,1,19,136)\r\n",
            " 227 Entering Passive Mode (192,0,2,1,19,136)\r\n",
            "226 Entering Passive Mode (192,0,2,1,19,136)\r\n",
            "2270 (192,0,2,1,19,136)\r\n",
            "229 Entering Extended Passive Mode (|1|192.0.2.1|6446|)\r\n",
            "229 Entering Extended Passive Mode |||6446|\r\n",
            "229 (|||0|)\r\n",
        ] {
            assert_eq!(announced(line), None, "{line}");
        }
    }

    #[test]
    fn lines_within_a_multi_line_reply_are_no_announcements() {
        assert_eq!(reply(b"211-Status\r\n", None), Reply::Begins(211));
        assert_eq!(reply(b"227 (192,0,2,1,19,136)\r\n", Some(211)), Reply::Other);
        assert_eq!(reply(b"211-more\r\n", Some(211)), Reply::Other);
        assert_eq!(reply(b"211 End\r\n", Some(211)), Reply::Ends(211, None));
        assert_eq!(reply(b"211\r\n", Some(211)), Reply::Ends(211, None));
    }

    #[test]
    fn every_prefix_of_a_relevant_line_may_become_one() {
        for line in ["PORT 10,0,0,2,19,136\r", "eprt |1|10.0.0.2|5000|\r", "PASV\r", "EPSV\r"] {
            assert!((1..line.len()).all(|bytes| may_become_command(&line.as_bytes()[..bytes])), "{line}");
        }
        for line in ["227 Entering Passive Mode (192,0,2,1,19,136).\r", "229 Extended (|||6446|)\r"] {
            assert!((1..line.len()).all(|bytes| may_become_reply(&line.as_bytes()[..bytes])), "{line}");
        }
        for line in ["RETR a", "PO\r", "PW", "PORTS", "STOR PORT"] {
            assert!(!may_become_command(line.as_bytes()), "{line}");
        }
        for line in ["226", "220 ", "227-"] {
            assert!(!may_become_reply(line.as_bytes()), "{line}");
        }
    }

    proptest! {
        #[test]
        fn a_written_announcement_is_parsed_back(
            v4: [u8; 4], v6: [u8; 16], is_ipv4: bool, port in 1u16.., delimiter in "[!-/:-~]", form in 0usize..3,
        ) {
            let address = if is_ipv4 || form == 0 { IpAddr::from(v4) } else { IpAddr::from(v6) };
            // A delimiter that is part of the address does not delimit.
            prop_assume!(!format!("{address}").contains(&delimiter));
            let form = [Form::Numbers, Form::Extended(delimiter.as_bytes()[0]), Form::PortAlone][form];
            let written = Announcement { form, address: None, port, place: 0..0 }.with(address, port);
            let line = match form {
                Form::Numbers => format!("PORT {written}\r\n"),
                Form::Extended(_) => format!("EPRT {written}\r\n"),
                Form::PortAlone => format!("229 ok (|||{written}|)\r\n"),
            };
            let expected = (form != Form::PortAlone).then_some(address);
            prop_assert_eq!(announced(&line), Some((expected, port)));
        }

        #[test]
        fn any_bytes_are_parsed_with_positions_within_the_line(
            bytes in prop::collection::vec(prop_oneof![any::<u8>(), prop::sample::select(b"PORT 1,|()29\r\n".to_vec())], 0..140),
            prefix in prop::sample::select(std::vec!["", "PORT ", "EPRT |2|", "227 ", "229 (|||"]),
        ) {
            let line: Vec<u8> = prefix.bytes().chain(bytes).collect();
            let _ = (may_become_command(&line), may_become_reply(&line));
            let in_command = match command(&line) { Command::Announces(found) => Some(found), _ => None };
            let in_reply = match reply(&line, None) { Reply::Ends(_, found) => found, _ => None };
            for found in in_command.into_iter().chain(in_reply) {
                prop_assert!(found.place.start < found.place.end && found.place.end <= line.len() && found.port != 0);
            }
        }
    }
}
