//! Values that configurations spell as text: durations, prefixes, port ranges, protocols, socket addresses.

use std::net::{IpAddr, SocketAddr};
use std::ops::RangeInclusive;
use std::time::Duration;

use cluster::forwarding::MssClamp;
pub use network_functions::address::Prefix;
use network_functions::port_range::PortRange;
use serde::Deserialize;

use super::diagnostic::{Mistake, Text};

/// IP protocol numbers that have names in configurations and in output (IANA).
pub const PROTOCOLS: [(&str, u8); 8] =
    [("icmp", 1), ("tcp", 6), ("udp", 17), ("gre", 47), ("esp", 50), ("ah", 51), ("icmpv6", 58), ("sctp", 132)];

/// The longest duration that makes sense anywhere.
pub const DURATION_MAX: Duration = Duration::from_secs(365 * 86_400);

/// Reads a prefix, `10.0.0.0/8`, or a bare address, as configurations spell it, of a command line or a command.
pub fn parse_prefix(text: &str) -> Result<Prefix, String> {
    prefix(text).map_err(|mistake| format!("{}: {}", mistake.problem, mistake.remedy))
}

/// A duration as written: a whole number and a unit, `"10ms"`.
pub type DurationText = Text;
/// An IP address as written: `"192.0.2.1"`.
pub type AddressText = Text;
/// An IP address with a port as written: `"192.0.2.1:3781"`.
pub type SocketAddressText = Text;
/// An address with a prefix length as written: `"10.0.0.0/8"`.
pub type PrefixText = Text;
/// The path of a file as written.
pub type PathText = Text;

/// A port or a range of ports as written: `443` or `"1024-65535"`.
#[derive(Clone, PartialEq, Eq, Debug, Deserialize)]
#[serde(untagged, expecting = "expected a port like 443 or a range like \"1024-65535\"")]
pub enum PortText {
    /// One port.
    Number(u16),
    /// A range or a port in quotes.
    Text(String),
}

/// A protocol as written: a name or a number.
#[derive(Clone, PartialEq, Eq, Debug, Deserialize)]
#[serde(untagged, expecting = "expected a protocol like \"tcp\" or an IP protocol number from 0 to 255")]
pub enum ProtocolText {
    /// The IP protocol number.
    Number(u8),
    /// One of [`PROTOCOLS`].
    Text(String),
}

/// To what the maximum segment size is lowered, as written: `"mtu"` or a number of bytes.
#[derive(Clone, PartialEq, Eq, Debug, Deserialize)]
#[serde(untagged, expecting = "expected \"mtu\" or a number of bytes like 1360")]
pub enum MssText {
    /// Bytes of payload.
    Number(u16),
    /// "mtu".
    Text(String),
}

/// A size as written: bytes, or `"2MiB"`.
#[derive(Clone, PartialEq, Eq, Debug, Deserialize)]
#[serde(untagged, expecting = "expected a size like \"2MiB\" or a number of bytes")]
pub enum SizeText {
    /// Bytes.
    Number(u64),
    /// A number and its unit.
    Text(String),
}

/// The smallest segment size that may be asked for: what every IPv4 host takes (RFC 9293 section 3.7.1).
const MSS_BYTES_MIN: u16 = 536;
/// The largest one: what fits the longest IPv4 packet.
const MSS_BYTES_MAX: u16 = 65_495;

/// Reads a duration that a command line or a command spells as configurations do.
pub fn parse_duration(text: &str) -> Result<Duration, String> {
    duration(text).map_err(|mistake| format!("{}: {}", mistake.problem, mistake.remedy))
}

/// Reads a duration of a command line, a number with a unit: `5s`, `0.5s`, `20ms`.
///
/// # Errors
/// The text is no duration, or outside of the bounds, which are both allowed.
pub fn parse_duration_within(text: &str, allowed: RangeInclusive<Duration>) -> Result<Duration, String> {
    let unit = text.trim_start_matches(|c: char| c.is_ascii_digit() || c == '.');
    let number = text[..text.len() - unit.len()].parse::<f64>().ok();
    let of_unit = duration(&format!("1{unit}")).ok();
    let read =
        number.zip(of_unit).and_then(|(number, unit)| Duration::try_from_secs_f64(number * unit.as_secs_f64()).ok());
    read.filter(|duration| allowed.contains(duration)).ok_or_else(|| {
        let [least, most] = [*allowed.start(), *allowed.end()].map(written_duration);
        let [least, most] = [least.trim_matches('"'), most.trim_matches('"')];
        format!("write a number and a unit, such as 500ms, 2.5s or 1m, from {least} to {most}")
    })
}

pub(super) fn duration(text: &str) -> Result<Duration, Mistake> {
    let mistake = || {
        Mistake::new(
            format!("{text:?} is not a duration"),
            "write a whole number and a unit: \"10ms\", \"30s\", \"5m\", \"2h\" or \"5d\"",
        )
    };
    let digits = text.bytes().take_while(u8::is_ascii_digit).count();
    let number: u64 = text[..digits].parse().map_err(|_| mistake())?;
    let unit_nanos: u64 = match &text[digits..] {
        "us" => 1_000,
        "ms" => 1_000_000,
        "s" => 1_000_000_000,
        "m" => 60_000_000_000,
        "h" => 3_600_000_000_000,
        "d" => 86_400_000_000_000,
        _ => return Err(mistake()),
    };
    number
        .checked_mul(unit_nanos)
        .map(Duration::from_nanos)
        .filter(|duration| *duration <= DURATION_MAX)
        .ok_or_else(|| Mistake::new(format!("{text:?} is longer than a year"), "write a shorter duration"))
}

/// A duration as it is written in a file: in the largest unit that it is a whole number of.
pub(super) fn written_duration(duration: Duration) -> String {
    let nanos = duration.as_nanos();
    let units = [("d", 86_400_000_000_000), ("h", 3_600_000_000_000), ("m", 60_000_000_000), ("s", 1_000_000_000)];
    let whole = units.into_iter().find(|(_, unit_nanos)| nanos > 0 && nanos.is_multiple_of(*unit_nanos));
    // What a microsecond does not divide is no bound of any setting.
    let fraction = if nanos.is_multiple_of(1_000_000) { ("ms", 1_000_000) } else { ("us", 1_000) };
    let (unit, unit_nanos) = whole.unwrap_or(fraction);
    format!("\"{}{unit}\"", nanos / unit_nanos)
}

/// Bytes, with a binary prefix where there is one.
pub(super) fn size(size: &SizeText) -> Result<u64, Mistake> {
    let text = match size {
        SizeText::Number(bytes) => return Ok(*bytes),
        SizeText::Text(text) => text,
    };
    let mistake = || {
        Mistake::new(
            format!("{text:?} is not a size"),
            "write a whole number and a unit: \"64KiB\", \"2MiB\" or \"1GiB\"; or bytes, without quotes",
        )
    };
    let digits = text.bytes().take_while(u8::is_ascii_digit).count();
    let number: u64 = text[..digits].parse().map_err(|_| mistake())?;
    let unit_bytes: u64 = match &text[digits..] {
        "B" => 1,
        "KiB" => 1 << 10,
        "MiB" => 1 << 20,
        "GiB" => 1 << 30,
        _ => return Err(mistake()),
    };
    number.checked_mul(unit_bytes).ok_or_else(mistake)
}

/// Bytes as they are written in a file: in the largest binary unit that they are a whole number of.
pub(super) fn written_size(bytes: usize) -> String {
    let units = [("GiB", 1 << 30), ("MiB", 1 << 20), ("KiB", 1 << 10)];
    let whole = units.into_iter().find(|(_, unit_bytes)| bytes > 0 && bytes.is_multiple_of(*unit_bytes));
    let (unit, unit_bytes) = whole.unwrap_or(("B", 1));
    format!("\"{}{unit}\"", bytes / unit_bytes)
}

/// The longest name of a host (RFC 1035 section 2.3.4), in bytes.
const HOST_NAME_BYTES_MAX: usize = 253;

/// The name of a host, as TLS and requests can have it.
pub(super) fn host_name(text: &str) -> Result<String, Mistake> {
    let is_allowed = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'.' | b'_');
    let has_labels = text.split('.').all(|label| !label.is_empty() && label.len() <= 63);
    if text.len() <= HOST_NAME_BYTES_MAX && has_labels && text.bytes().all(is_allowed) {
        return Ok(text.to_owned());
    }
    Err(Mistake::new(format!("{text:?} is no name of a host"), "write a name such as \"www.example.com\""))
}

pub(super) fn address(text: &str) -> Result<IpAddr, Mistake> {
    text.parse()
        .map_err(|_| Mistake::new(format!("{text:?} is not an IP address"), "write one like 192.0.2.1 or 2001:db8::1"))
}

/// Whether an address is of IPv6 and counts on its link alone (RFC 4291 section 2.5.6).
pub(super) const fn is_link_local(address: IpAddr) -> bool {
    matches!(address, IpAddr::V6(address) if address.is_unicast_link_local())
}

pub(super) fn socket_address(text: &str) -> Result<SocketAddr, Mistake> {
    let address: SocketAddr = text.parse().map_err(|_| {
        Mistake::new(
            format!("{text:?} is not an IP address with a port"),
            "write one like 192.0.2.1:3781 or [2001:db8::1]:3781",
        )
    })?;
    if address.port() == 0 {
        return Err(Mistake::new(format!("{text:?} has port 0"), "choose a port from 1 to 65535"));
    }
    Ok(address)
}

pub(super) fn prefix(text: &str) -> Result<Prefix, Mistake> {
    let Some((host, length)) = text.split_once('/') else { return address(text).map(Prefix::from) };
    let address = address(host)?;
    let read = length.parse().ok().and_then(|length_bits| Prefix::new(address, length_bits).ok());
    read.ok_or_else(|| {
        Mistake::new(
            format!("{text:?} has no valid prefix length"),
            format!("write a length from 0 to {} after the slash", Prefix::from(address).max_prefix_len()),
        )
    })
}

/// A prefix none of whose bits beyond its length are set: anything else is mostly a slip of the pen.
pub(super) fn network(text: &str) -> Result<Prefix, Mistake> {
    let prefix = prefix(text)?;
    if prefix.trunc() != prefix {
        return Err(Mistake::new(
            format!("{text:?} has address bits set beyond its prefix length"),
            format!("write {} for the network or {} for the one address", prefix.trunc(), Prefix::from(prefix.addr())),
        ));
    }
    Ok(prefix)
}

pub(super) fn port_range(port: &PortText) -> Result<PortRange, Mistake> {
    let text = match port {
        PortText::Number(number) => number.to_string(),
        PortText::Text(text) => text.clone(),
    };
    let (first, last) = text.split_once('-').unwrap_or((&text, &text));
    let (Ok(first), Ok(last)) = (first.trim().parse::<u16>(), last.trim().parse::<u16>()) else {
        return Err(Mistake::new(
            format!("{text:?} is not a port or a range of ports"),
            "write one like 443 or \"1024-65535\"",
        ));
    };
    let range = PortRange::new(first, last).ok_or_else(|| {
        Mistake::new(format!("the range {text:?} ends before it begins"), format!("write \"{last}-{first}\""))
    })?;
    if first == 0 {
        return Err(Mistake::new("port 0 never appears on the wire", "begin with port 1 or higher"));
    }
    Ok(range)
}

pub(super) fn mss_clamp(clamp: &MssText) -> Result<MssClamp, Mistake> {
    match clamp {
        MssText::Number(bytes) if (MSS_BYTES_MIN..=MSS_BYTES_MAX).contains(bytes) => Ok(MssClamp::Bytes(*bytes)),
        MssText::Number(bytes) => Err(Mistake::new(
            format!("a maximum segment size of {bytes} bytes is out of range"),
            format!("write \"mtu\" or a number from {MSS_BYTES_MIN} to {MSS_BYTES_MAX}"),
        )),
        MssText::Text(text) if text == "mtu" => Ok(MssClamp::Mtu),
        MssText::Text(text) => Err(Mistake::new(
            format!("{text:?} is not something that segments can be clamped to"),
            "write \"mtu\", or a number of bytes without quotes",
        )),
    }
}

pub(super) fn protocol(protocol: &ProtocolText) -> Result<u8, Mistake> {
    match protocol {
        ProtocolText::Number(number) => Ok(*number),
        ProtocolText::Text(text) => protocol_number(text).ok_or_else(|| {
            let names: Vec<_> = PROTOCOLS.iter().map(|(name, _)| *name).collect();
            Mistake::new(format!("there is no protocol {text:?}"), format!("write one of {}", names.join(", ")))
        }),
    }
}

/// The number of a protocol given by its name (any case) or its number.
#[must_use]
pub fn protocol_number(text: &str) -> Option<u8> {
    let named = PROTOCOLS.iter().find(|(name, _)| name.eq_ignore_ascii_case(text));
    named.map(|(_, number)| *number).or_else(|| text.parse().ok())
}

/// The name of a protocol, or its number.
#[must_use]
pub fn protocol_name(number: u8) -> String {
    let named = PROTOCOLS.iter().find(|(_, listed)| *listed == number);
    named.map_or_else(|| number.to_string(), |(name, _)| (*name).to_owned())
}

/// Whether a protocol's packets carry ports that the gateway reads.
#[must_use]
pub const fn has_ports(protocol: u8) -> bool {
    matches!(protocol, 6 | 17 | 132)
}
