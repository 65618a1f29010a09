//! Savings over time, and burstiness. These are of one link, and of several sites' links there is no sum.

use std::collections::BTreeMap;

use serde::Serialize;

use crate::redundancy_study::SiteDirection;
use crate::redundancy_study::microscope::{BIN_NANOS, MicroscopeOutcome, Scale, UsageSaved};
use crate::redundancy_study::options::{Codec, Site};
use crate::redundancy_study::outcome::Outcome;
use crate::redundancy_study::plan::Job;
use crate::redundancy_study::state::State;
use crate::redundancy_study::tally::rounded;

/// Steps of a volume over time.
const VOLUME_STEPS: usize = 240;

/// One site's.
#[derive(Clone, PartialEq, Debug, Serialize)]
pub struct OverTime {
    /// The site.
    pub site: String,
    /// Its ways that carry anything.
    #[serde(flatten)]
    pub ways: BTreeMap<&'static str, WayOverTime>,
}

/// One way's.
#[derive(Clone, PartialEq, Debug, Serialize)]
pub struct WayOverTime {
    /// What is saved of mean, median, 95th percentile and peak, by how long usage is taken over (figure 2.4).
    pub usage_saved: Vec<UsageSaved>,
    /// The volume (figure 2.3).
    pub volume: Vec<Volume>,
    /// The energy by scale (figure 2.5).
    pub energy: Vec<Energy>,
}

/// A moment.
#[derive(Clone, Copy, PartialEq, Debug, Serialize)]
pub struct Volume {
    /// Seconds from the first packet.
    pub seconds: u64,
    /// Megabits a second without redundancy elimination.
    pub mbit_per_s: f64,
    /// With it.
    pub mbit_per_s_sent: f64,
}

/// A scale.
#[derive(Clone, Copy, PartialEq, Debug, Serialize)]
pub struct Energy {
    /// How long it is.
    pub seconds: f64,
    /// The binary logarithm of the energy of the traffic as it is.
    pub log2_energy: f64,
    /// With redundancy elimination.
    pub log2_energy_sent: Option<f64>,
    /// If all of the traffic shrank alike.
    pub log2_energy_uniform: Option<f64>,
}

pub(super) fn of_largest(sites: &[Site], state: &State, base: &Codec) -> Option<OverTime> {
    let microscope = |site: usize| match state.outcome(site, Job::Microscope(*base))? {
        Outcome::Microscope(microscope) => Some((site, microscope)),
        _ => None,
    };
    // Of those that are alike, the first.
    let found = (0..sites.len()).rev().filter_map(microscope);
    let (site, microscope) = found.max_by_key(|(_, microscope)| microscope.savings.total().bytes)?;
    let ways = SiteDirection::ALL.into_iter().filter(|way| microscope.savings.way(*way).bytes > 0);
    Some(OverTime {
        site: sites[site].name.clone(),
        ways: ways.map(|way| (way.name(), WayOverTime::of(microscope, way))).collect(),
    })
}

impl WayOverTime {
    fn of(microscope: &MicroscopeOutcome, way: SiteDirection) -> Self {
        let timeline = &microscope.timelines[way as usize];
        let volume = |(seconds, bytes_per_s): (u64, [f64; 2])| {
            let [mbit_per_s, mbit_per_s_sent] = bytes_per_s.map(|bytes| rounded(bytes * 8.0 / 1e6));
            Volume { seconds, mbit_per_s, mbit_per_s_sent }
        };
        let kept = 1.0 - microscope.savings.way(way).saved();
        let [as_is, sent] = &microscope.scales[way as usize];
        let energy = |(scale, (as_is, sent)): (usize, (&Scale, &Scale))| {
            let log2_energy = as_is.log2_energy()?;
            Some(Energy {
                seconds: BIN_NANOS as f64 / 1e9 * (scale as f64 + 1.0).exp2(),
                log2_energy: rounded(log2_energy),
                log2_energy_sent: sent.log2_energy().map(rounded),
                log2_energy_uniform: (kept > 0.0).then(|| rounded(log2_energy + 2.0 * kept.log2())),
            })
        };
        Self {
            usage_saved: timeline.usage_saved(),
            volume: timeline.steps(VOLUME_STEPS).into_iter().map(volume).collect(),
            energy: as_is.iter().zip(sent).enumerate().filter_map(energy).collect(),
        }
    }
}
