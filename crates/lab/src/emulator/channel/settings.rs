//! What a direction of a link can be set to, and how that is written.

use std::fmt;
use std::time::Duration;

use config::value::parse_duration;

/// The longest delay, jitter or hold: beyond it an outage is better.
const DELAY_MAX: Duration = Duration::from_secs(60);
/// The slowest rate: slower ones would keep a packet of 64 KB for minutes.
const RATE_BITS_PER_S_MIN: u64 = 8_000;

/// How a direction treats what it carries.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct Settings {
    /// Time that every packet takes behind the transmitter.
    pub delay: Duration,
    /// Up to so much more, evenly spread. What is given in order arrives in order.
    pub jitter: Duration,
    /// Bits that the transmitter sends a second, counted from the IP header (or Ethernet's) on; `None`: it takes no time,
    /// and nothing queues.
    pub rate_bits_per_s: Option<u64>,
    /// Packets that wait for the transmitter or are being sent, at most; the newest is dropped. A run of segments is one
    /// packet.
    pub queue_packets: usize,
    /// The same in bytes.
    pub queue_bytes: Option<u64>,
    /// Share of packets lost, 0 to 1.
    pub loss: f64,
    /// Share of packets delivered twice, 0 to 1.
    pub duplicate: f64,
    /// Share of packets held up, so that others overtake them, 0 to 1.
    pub reorder: f64,
    /// For how long these are held up.
    pub hold: Duration,
}

impl Default for Settings {
    /// A cable: everything arrives at once. A queue, if a rate is set, holds 1000 packets.
    fn default() -> Self {
        Self {
            delay: Duration::ZERO,
            jitter: Duration::ZERO,
            rate_bits_per_s: None,
            queue_packets: 1000,
            queue_bytes: None,
            loss: 0.0,
            duplicate: 0.0,
            reorder: 0.0,
            hold: Duration::from_millis(5),
        }
    }
}

/// One setting and its value.
#[derive(Clone, Copy, PartialEq, Debug)]
pub enum Change {
    /// See [`Settings::delay`].
    Delay(Duration),
    /// See [`Settings::jitter`].
    Jitter(Duration),
    /// See [`Settings::rate_bits_per_s`].
    Rate(Option<u64>),
    /// See [`Settings::queue_packets`].
    QueuePackets(usize),
    /// See [`Settings::queue_bytes`].
    QueueBytes(Option<u64>),
    /// See [`Settings::loss`].
    Loss(f64),
    /// See [`Settings::duplicate`].
    Duplicate(f64),
    /// See [`Settings::reorder`].
    Reorder(f64),
    /// See [`Settings::hold`].
    Hold(Duration),
}

impl Change {
    /// Reads a setting; `None` when there is none of this name.
    pub fn parse(name: &str, value: &str) -> Option<Result<Self, String>> {
        Some(match name {
            "delay" => duration(value).map(Self::Delay),
            "jitter" => duration(value).map(Self::Jitter),
            "rate" => rate(value).map(Self::Rate),
            "queue" => number(value).map(Self::QueuePackets),
            "queue-bytes" => match value {
                "none" => Ok(Self::QueueBytes(None)),
                _ => number(value).map(|bytes| Self::QueueBytes(Some(bytes))),
            },
            "loss" => share(value).map(Self::Loss),
            "duplicate" => share(value).map(Self::Duplicate),
            "reorder" => share(value).map(Self::Reorder),
            "hold" => duration(value).map(Self::Hold),
            _ => return None,
        })
    }
}

impl Settings {
    /// These settings with one changed.
    #[must_use]
    pub const fn with(self, change: Change) -> Self {
        match change {
            Change::Delay(delay) => Self { delay, ..self },
            Change::Jitter(jitter) => Self { jitter, ..self },
            Change::Rate(rate_bits_per_s) => Self { rate_bits_per_s, ..self },
            Change::QueuePackets(queue_packets) => Self { queue_packets, ..self },
            Change::QueueBytes(queue_bytes) => Self { queue_bytes, ..self },
            Change::Loss(loss) => Self { loss, ..self },
            Change::Duplicate(duplicate) => Self { duplicate, ..self },
            Change::Reorder(reorder) => Self { reorder, ..self },
            Change::Hold(hold) => Self { hold, ..self },
        }
    }
}

/// As a command has them.
impl fmt::Display for Settings {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let [delay, jitter, hold] = [self.delay, self.jitter, self.hold].map(|duration| duration.as_micros());
        let or_none = |number: Option<u64>, unit: &str| {
            number.map_or_else(|| "none".to_owned(), |number| format!("{number}{unit}"))
        };
        let rate = or_none(self.rate_bits_per_s, "bit");
        let queue_bytes = or_none(self.queue_bytes, "");
        let Self { queue_packets, loss, duplicate, reorder, .. } = self;
        write!(
            f,
            "delay {delay}us jitter {jitter}us rate {rate} queue {queue_packets} queue-bytes {queue_bytes} \
             loss {loss} duplicate {duplicate} reorder {reorder} hold {hold}us"
        )
    }
}

fn duration(text: &str) -> Result<Duration, String> {
    let duration = parse_duration(text)?;
    if duration > DELAY_MAX {
        return Err(format!("{text} is too long: at most {} s", DELAY_MAX.as_secs()));
    }
    Ok(duration)
}

fn number<N: std::str::FromStr>(text: &str) -> Result<N, String> {
    text.parse().map_err(|_| format!("{text:?} is not a whole number"))
}

fn share(text: &str) -> Result<f64, String> {
    let share = text.parse().ok().filter(|share| (0.0..=1.0).contains(share));
    share.ok_or_else(|| format!("{text:?} is not a share: write a number from 0 to 1"))
}

/// Reads `none`, or a whole number with a unit: `bit`, `kbit`, `mbit` or `gbit` a second.
fn rate(text: &str) -> Result<Option<u64>, String> {
    if text == "none" {
        return Ok(None);
    }
    let digits = text.bytes().take_while(u8::is_ascii_digit).count();
    let unit = match &text[digits..] {
        "bit" => Some(1),
        "kbit" => Some(1_000),
        "mbit" => Some(1_000_000),
        "gbit" => Some(1_000_000_000),
        _ => None,
    };
    let rate = text[..digits].parse::<u64>().ok().zip(unit).and_then(|(number, unit)| number.checked_mul(unit));
    match rate {
        None => Err(format!("{text:?} is not a rate: write none, or a whole number and a unit (100mbit, 64kbit)")),
        Some(rate) if rate < RATE_BITS_PER_S_MIN => {
            Err(format!("{text} is too slow: at least {RATE_BITS_PER_S_MIN}bit"))
        }
        rate => Ok(rate),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn written_settings_are_read_back() {
        let settings = Settings {
            delay: Duration::from_micros(1500),
            rate_bits_per_s: Some(3_000_000),
            queue_bytes: Some(90_000),
            loss: 0.125,
            ..Settings::default()
        };
        for settings in [settings, Settings::default()] {
            let text = settings.to_string();
            let words: Vec<&str> = text.split(' ').collect();
            let mut read = Settings { queue_packets: 1, ..Settings::default() };
            for pair in words.chunks(2) {
                read = read.with(Change::parse(pair[0], pair[1]).expect("it is a setting").expect("it is its value"));
            }
            assert_eq!(read, settings, "{text}");
        }
    }

    #[test]
    fn values_that_make_no_sense_are_refused_with_a_remedy() {
        for (name, value, part) in [
            ("delay", "25", "write a whole number and a unit"),
            ("delay", "2m", "at most 60 s"),
            ("loss", "1.5", "from 0 to 1"),
            ("rate", "100", "a unit"),
            ("rate", "1bit", "too slow"),
            ("queue", "many", "whole number"),
        ] {
            let refused = Change::parse(name, value).expect("it is a setting").unwrap_err();
            assert!(refused.contains(part), "{refused}");
        }
        assert_eq!(Change::parse("speed", "1"), None);
    }
}
