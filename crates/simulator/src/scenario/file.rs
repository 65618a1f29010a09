//! The stored form of a scenario: a plain copy of [`Scenario`] in numbers and text, for any format of serde.

use std::net::SocketAddr;
use std::time::Duration;

use flow::Instant;
use replication::representation::Selection;
use replication::representation::selection::TcpStates;
use serde::{Deserialize, Serialize};

use super::{Closing, Episode, Fault, Kind, Scenario, Transfer};
use crate::link::LinkConfig;
use crate::topology::HOSTS;

/// A stored scenario.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ScenarioFile {
    seed: u64,
    eager: bool,
    hold_first_reply_ms: u64,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    representation: Option<String>,
    #[serde(default)]
    deferral_ms: u64,
    waits_for_expiry: bool,
    damaged_datagrams_pass: bool,
    calm_at_ms: u64,
    ends_at_ms: u64,
    data_link: LinkFile,
    replication_link: LinkFile,
    #[serde(default)]
    episodes: Vec<Episode>,
    #[serde(default)]
    transfers: Vec<TransferFile>,
}

#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct LinkFile {
    delay_us: u64,
    jitter_us: u64,
    #[serde(default)]
    loss_per_mille: u32,
    #[serde(default)]
    duplicate_per_mille: u32,
    #[serde(default)]
    reorder_per_mille: u32,
    #[serde(default)]
    corrupt_per_mille: u32,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
enum KindFile {
    Tcp,
    Udp,
    Echo,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
enum ClosingFile {
    Fin,
    HalfClose,
    Reset,
}

#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct TransferFile {
    number: u32,
    kind: KindFile,
    client: usize,
    target: SocketAddr,
    begins_at_ms: u64,
    bytes: [u64; 2],
    burst_bytes: u64,
    interval_ms: u64,
    requests: u32,
    closing: ClosingFile,
    window_bytes: u32,
    window_shift: u8,
    segment_bytes: u16,
}

/// A mistake in a scenario file.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
pub enum ScenarioError {
    /// The host does not exist.
    #[error("there is no host {0}: give one from 0 to {last}", last = HOSTS - 1)]
    NoHost(usize),
    /// Two transfers have the same number.
    #[error("two transfers have number {0}: number them differently")]
    SameNumber(u32),
    /// A port derives from this number.
    #[error("transfer number {0} is too large: give one below 50000")]
    NumberTooLarge(u32),
    /// The representation is unknown.
    #[error(transparent)]
    Representation(#[from] super::UnknownRepresentation),
    /// A clock that does not advance.
    #[error("a clock's speed of {0} thousandths cannot be played: give one from 100 to 10000")]
    Speed(u64),
}

const TRANSFER_NUMBER_MAX: u32 = 50_000;

impl From<&Scenario> for ScenarioFile {
    fn from(scenario: &Scenario) -> Self {
        Self {
            seed: scenario.seed,
            eager: scenario.selection == Selection::Eager,
            hold_first_reply_ms: millis(scenario.hold_first_reply),
            representation: scenario.representation.map(|representation| representation.name().to_owned()),
            deferral_ms: millis(scenario.deferral),
            waits_for_expiry: scenario.waits_for_expiry,
            damaged_datagrams_pass: scenario.damaged_datagrams_pass,
            calm_at_ms: since_start_ms(scenario.calm_at),
            ends_at_ms: since_start_ms(scenario.ends_at),
            data_link: LinkFile::from(scenario.data_link),
            replication_link: LinkFile::from(scenario.replication_link),
            episodes: scenario.episodes.clone(),
            transfers: scenario.transfers.iter().map(TransferFile::from).collect(),
        }
    }
}

impl TryFrom<ScenarioFile> for Scenario {
    type Error = ScenarioError;

    fn try_from(file: ScenarioFile) -> Result<Self, ScenarioError> {
        let mut numbers = std::collections::BTreeSet::new();
        for transfer in &file.transfers {
            if transfer.client >= HOSTS {
                return Err(ScenarioError::NoHost(transfer.client));
            }
            if transfer.number >= TRANSFER_NUMBER_MAX {
                return Err(ScenarioError::NumberTooLarge(transfer.number));
            }
            if !numbers.insert(transfer.number) {
                return Err(ScenarioError::SameNumber(transfer.number));
            }
        }
        for step in file.episodes.iter().flat_map(|episode| &episode.steps) {
            match step.fault {
                Fault::HostLink { host, .. } if host >= HOSTS => return Err(ScenarioError::NoHost(host)),
                Fault::Speed { per_mille, .. } if !(100..=10_000).contains(&per_mille) => {
                    return Err(ScenarioError::Speed(per_mille));
                }
                _ => {}
            }
        }
        Ok(Self {
            seed: file.seed,
            selection: if file.eager { Selection::Eager } else { Selection::Selective(TcpStates::THAT_MATTER) },
            hold_first_reply: Duration::from_millis(file.hold_first_reply_ms),
            representation: file.representation.as_deref().map(super::representation_named).transpose()?,
            deferral: Duration::from_millis(file.deferral_ms),
            waits_for_expiry: file.waits_for_expiry,
            damaged_datagrams_pass: file.damaged_datagrams_pass,
            calm_at: Instant::from_millis(file.calm_at_ms),
            ends_at: Instant::from_millis(file.ends_at_ms),
            data_link: file.data_link.into(),
            replication_link: file.replication_link.into(),
            episodes: file.episodes,
            transfers: file.transfers.into_iter().map(Transfer::from).collect(),
        })
    }
}

impl From<LinkConfig> for LinkFile {
    fn from(link: LinkConfig) -> Self {
        Self {
            delay_us: micros(link.delay),
            jitter_us: micros(link.jitter),
            loss_per_mille: link.loss_per_mille,
            duplicate_per_mille: link.duplicate_per_mille,
            reorder_per_mille: link.reorder_per_mille,
            corrupt_per_mille: link.corrupt_per_mille,
        }
    }
}

impl From<LinkFile> for LinkConfig {
    fn from(file: LinkFile) -> Self {
        Self {
            delay: Duration::from_micros(file.delay_us),
            jitter: Duration::from_micros(file.jitter_us),
            loss_per_mille: file.loss_per_mille,
            duplicate_per_mille: file.duplicate_per_mille,
            reorder_per_mille: file.reorder_per_mille,
            corrupt_per_mille: file.corrupt_per_mille,
        }
    }
}

impl From<&Transfer> for TransferFile {
    fn from(transfer: &Transfer) -> Self {
        Self {
            number: transfer.number,
            kind: match transfer.kind {
                Kind::Tcp => KindFile::Tcp,
                Kind::Udp => KindFile::Udp,
                Kind::Echo => KindFile::Echo,
            },
            client: transfer.client,
            target: transfer.target,
            begins_at_ms: since_start_ms(transfer.begins_at),
            bytes: transfer.bytes,
            burst_bytes: transfer.burst_bytes,
            interval_ms: millis(transfer.interval),
            requests: transfer.requests,
            closing: match transfer.closing {
                Closing::Fin => ClosingFile::Fin,
                Closing::HalfClose => ClosingFile::HalfClose,
                Closing::Reset => ClosingFile::Reset,
            },
            window_bytes: transfer.window_bytes,
            window_shift: transfer.window_shift,
            segment_bytes: transfer.segment_bytes,
        }
    }
}

impl From<TransferFile> for Transfer {
    fn from(file: TransferFile) -> Self {
        Self {
            number: file.number,
            kind: match file.kind {
                KindFile::Tcp => Kind::Tcp,
                KindFile::Udp => Kind::Udp,
                KindFile::Echo => Kind::Echo,
            },
            client: file.client,
            target: file.target,
            begins_at: Instant::from_millis(file.begins_at_ms),
            bytes: file.bytes,
            burst_bytes: file.burst_bytes,
            interval: Duration::from_millis(file.interval_ms.max(1)),
            requests: file.requests,
            closing: match file.closing {
                ClosingFile::Fin => Closing::Fin,
                ClosingFile::HalfClose => Closing::HalfClose,
                ClosingFile::Reset => Closing::Reset,
            },
            window_bytes: file.window_bytes,
            window_shift: file.window_shift,
            segment_bytes: file.segment_bytes,
        }
    }
}

fn millis(duration: Duration) -> u64 {
    u64::try_from(duration.as_millis()).unwrap_or(u64::MAX)
}

fn micros(duration: Duration) -> u64 {
    u64::try_from(duration.as_micros()).unwrap_or(u64::MAX)
}

fn since_start_ms(at: Instant) -> u64 {
    millis(at.saturating_since(Instant::ZERO))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::scenario::FaultSet;
    use crate::{Options, run, run_scenario};

    fn written_and_read(scenario: &Scenario) -> Scenario {
        let text = serde_json::to_string(&ScenarioFile::from(scenario)).unwrap();
        let file: ScenarioFile = serde_json::from_str(&text).unwrap();
        file.try_into().unwrap()
    }

    #[test]
    fn a_stored_scenario_gives_the_same_run() {
        for seed in [3, 4, 5] {
            let options = Options { faults: FaultSet::ALL, ..Options::default() };
            let scenario = written_and_read(&Scenario::generate(seed, FaultSet::ALL));
            assert_eq!(run_scenario(&scenario, options).digest, run(seed, options).digest, "seed {seed}");
        }
    }

    #[test]
    fn invalid_scenarios_are_refused() {
        let sound = ScenarioFile::from(&Scenario::generate(1, FaultSet::DEFAULT));
        let mut file = sound.clone();
        file.transfers[0].client = 9;
        assert_eq!(Scenario::try_from(file).unwrap_err(), ScenarioError::NoHost(9));
        let mut file = sound;
        file.transfers[1].number = file.transfers[0].number;
        assert!(matches!(Scenario::try_from(file), Err(ScenarioError::SameNumber(_))));
    }
}
