//! Outcomes by job, those of several sites added up.

use std::ops::Range;

use crate::redundancy_study::end_hosts::EndHostsOutcome;
use crate::redundancy_study::http::HttpOutcome;
use crate::redundancy_study::ledger::LedgerOutcome;
use crate::redundancy_study::microscope::MicroscopeOutcome;
use crate::redundancy_study::options::Codec;
use crate::redundancy_study::outcome::{Outcome, StagesOutcome};
use crate::redundancy_study::plan::Job;
use crate::redundancy_study::state::State;
use crate::redundancy_study::tally::{Savings, Tally};
use crate::redundancy_study::trained::TrainedOutcome;

/// What is asked for is what all of the sites have; where one of them lacks it, there is none.
#[derive(Clone, Debug)]
pub(super) struct Book<'a> {
    sites: Range<usize>,
    state: &'a State,
}

impl<'a> Book<'a> {
    pub(super) const fn new(sites: usize, state: &'a State) -> Self {
        Self { sites: 0..sites, state }
    }

    /// Of one site alone.
    pub(super) const fn of_site(&self, site: usize) -> Self {
        Self { sites: site..site + 1, state: self.state }
    }

    fn sum<T: Default>(&self, job: &Job, add: impl Fn(&mut T, &'a Outcome)) -> Option<T> {
        self.sites.clone().try_fold(T::default(), |mut sum, site| {
            add(&mut sum, self.state.outcome(site, *job)?);
            Some(sum)
        })
    }

    pub(super) fn ledger(&self) -> LedgerOutcome {
        let add = |sum: &mut LedgerOutcome, outcome: &Outcome| {
            if let Outcome::Ledger(ledger) = outcome {
                sum.merge(ledger);
            }
        };
        self.sum(&Job::Ledger, add).unwrap_or_default()
    }

    pub(super) fn savings(&self, job: &Job) -> Option<Savings> {
        self.sum(job, |sum: &mut Savings, outcome| match outcome {
            Outcome::Savings(savings) => sum.merge(savings),
            Outcome::Bound(bound) => sum.merge(&bound.between),
            _ => {}
        })
    }

    /// The bound with what repeats within packets.
    pub(super) fn bound_with_own(&self, job: &Job) -> Option<f64> {
        let with_own = self.sum(job, |sum: &mut Tally, outcome| {
            if let Outcome::Bound(bound) = outcome {
                sum.merge(&bound.with_own);
            }
        });
        with_own.map(|tally| tally.saved())
    }

    pub(super) fn trained(&self, job: &Job) -> Option<TrainedOutcome> {
        self.sum(job, |sum: &mut TrainedOutcome, outcome| {
            if let Outcome::Trained(trained) = outcome {
                sum.merge(trained);
            }
        })
    }

    pub(super) fn end_hosts(&self) -> EndHostsOutcome {
        let add = |sum: &mut EndHostsOutcome, outcome: &Outcome| {
            if let Outcome::EndHosts(end_hosts) = outcome {
                sum.merge(end_hosts);
            }
        };
        self.sum(&Job::EndHosts, add).unwrap_or_default()
    }

    pub(super) fn saved(&self, job: &Job) -> Option<f64> {
        self.savings(job).map(|savings| savings.total().saved())
    }

    /// The savings with a cache; of a site whose captures are so small that it was not tried, those with the largest that was.
    pub(super) fn savings_with_cache(&self, codec: &Codec, cache_bytes: usize, sizes: &[usize]) -> Option<Savings> {
        let mut sum = Savings::default();
        for site in self.sites.clone() {
            let tried = sizes.iter().rev().filter(|size| **size <= cache_bytes);
            let mut outcomes =
                tried.filter_map(|size| self.state.outcome(site, Job::Savings(Codec { cache_bytes: *size, ..*codec })));
            match outcomes.next()? {
                Outcome::Savings(savings) => sum.merge(savings),
                _ => return None,
            }
        }
        Some(sum)
    }

    pub(super) fn has(&self, job: &Job) -> bool {
        self.sites.clone().any(|site| self.state.outcome(site, *job).is_some())
    }

    pub(super) fn stages(&self, job: &Job) -> Option<StagesOutcome> {
        self.sum(job, |sum: &mut StagesOutcome, outcome| {
            if let Outcome::Stages(stages) = outcome {
                sum.merge(stages);
            }
        })
    }

    pub(super) fn microscope(&self, codec: &Codec) -> MicroscopeOutcome {
        let add = |sum: &mut MicroscopeOutcome, outcome: &Outcome| {
            if let Outcome::Microscope(microscope) = outcome {
                sum.merge(microscope);
            }
        };
        self.sum(&Job::Microscope(*codec), add).unwrap_or_default()
    }

    pub(super) fn http(&self, codec: &Codec) -> HttpOutcome {
        let add = |sum: &mut HttpOutcome, outcome: &Outcome| {
            if let Outcome::Http(http) = outcome {
                sum.merge(http);
            }
        };
        self.sum(&Job::Http(*codec), add).unwrap_or_default()
    }
}
