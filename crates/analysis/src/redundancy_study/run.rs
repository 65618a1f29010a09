//! Going over captures: one reader, several threads that study the same packets, several sites at once.

use std::collections::VecDeque;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread;

use redundancy::limits::{CACHE_BYTES_MAX, CACHE_BYTES_MIN};

use super::StudyError;
use super::classify::Classifier;
use super::limits::{BATCHES_WAITING_MAX, JOBS_TOGETHER_MAX};
use super::options::{Options, Site};
use super::outcome::{AnyAnalysis, Outcome};
use super::packet::Batch;
use super::plan::{Job, jobs};
use super::source::Source;
use super::state::State;

/// Opens a site's packets from their beginning.
pub type Open<'a> = dyn Fn(&Site) -> Result<Box<dyn Source>, StudyError> + Sync + 'a;

/// How far a study is.
#[derive(Clone, Debug)]
pub struct Progress {
    /// The site that this is about, by its place.
    pub site: usize,
    /// Jobs of it that are finished.
    pub jobs_finished: usize,
    /// Jobs that it has in all.
    pub jobs: usize,
    /// Bytes of its captures read for the jobs at hand, and of how many, as far as that is known.
    pub read_bytes: [Option<u64>; 2],
}

/// A study's progress report, and its request to stop.
pub struct Watch<'a> {
    /// Called often, from several threads.
    pub progress: &'a (dyn Fn(&Progress) + Sync),
    /// Set, it stops the study at once; what is finished is kept.
    pub stop: &'a AtomicBool,
}

impl std::fmt::Debug for Watch<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Watch").field("stop", &self.stop).finish_non_exhaustive()
    }
}

/// Finishes all jobs of all sites that are not finished. Returns, by site, the jobs that were left out because they do not fit
/// the memory.
///
/// # Errors
/// A capture cannot be opened, the state cannot be written, or the study was stopped. Outcomes of finished jobs are kept.
pub fn run(
    sites: &[Site],
    options: &Options,
    state: &mut State,
    open: &Open<'_>,
    watch: &Watch<'_>,
) -> Result<Vec<Vec<Job>>, StudyError> {
    if !(CACHE_BYTES_MIN..=CACHE_BYTES_MAX).contains(&options.cache_bytes) {
        return Err(StudyError::Cache(options.cache_bytes));
    }
    let lanes = sites.len().clamp(1, options.threads.get());
    let workers = (options.threads.get() / lanes).max(1);
    let plans: Vec<Plan> =
        sites.iter().enumerate().map(|(site, of)| Plan::new(site, of, options, state, lanes as u64)).collect();
    let left_out = plans.iter().map(|plan| plan.left_out.clone()).collect();
    let shared = Shared {
        plans: Mutex::new(plans.into()),
        memory: Memory { free: Mutex::new(options.memory_bytes), changed: Condvar::new() },
        finished: Mutex::new(Vec::new()),
        failure: Mutex::new(None),
    };
    let kept = &*state;
    thread::scope(|scope| {
        for _ in 0..lanes {
            scope.spawn(|| {
                // The lock is given back before the plan is carried out.
                let next = || lock(&shared.plans).pop_front();
                while let Some(plan) = next() {
                    let context = Context { sites, options, state: kept, open, watch, shared: &shared, workers };
                    if let Err(error) = context.site(plan) {
                        lock(&shared.plans).clear();
                        lock(&shared.failure).get_or_insert(error);
                    }
                }
            });
        }
    });
    let finished = shared.finished.into_inner().unwrap_or_else(PoisonError::into_inner);
    finished.into_iter().for_each(|(site, outcomes)| state.add(site, outcomes));
    match shared.failure.into_inner().unwrap_or_else(PoisonError::into_inner) {
        Some(error) => Err(error),
        None => Ok(left_out),
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// What is still to be done at a site, in turns of jobs that go over its captures together.
struct Plan {
    site: usize,
    turns: VecDeque<Vec<Job>>,
    jobs: usize,
    finished: usize,
    left_out: Vec<Job>,
}

impl Plan {
    fn new(site: usize, of: &Site, options: &Options, state: &State, lanes: u64) -> Self {
        let jobs = jobs(options, of.bytes());
        let (mut turns, mut left_out) = (VecDeque::<Vec<Job>>::new(), Vec::new());
        let (mut turn_bytes, mut finished) = (0, 0);
        // What can be read but once has one turn, and what does not fit it is left out.
        let is_single = of.is_standard_input();
        let turn_bytes_max = if is_single { options.memory_bytes } else { options.memory_bytes / lanes };
        for job in &jobs {
            let bytes = job.memory_bytes();
            let fits = turn_bytes + bytes <= turn_bytes_max;
            if state.outcome(site, *job).is_some() {
                finished += 1;
            } else if bytes > options.memory_bytes || (is_single && !fits) {
                left_out.push(*job);
            } else {
                match turns.back_mut() {
                    Some(turn) if fits && (is_single || turn.len() < JOBS_TOGETHER_MAX) => turn.push(*job),
                    _ => {
                        turn_bytes = 0;
                        turns.push_back(vec![*job]);
                    }
                }
                turn_bytes += bytes;
            }
        }
        Self { site, turns, jobs: jobs.len() - left_out.len(), finished, left_out }
    }
}

/// What came of the jobs of a turn.
type Outcomes = Vec<(Job, Outcome)>;

/// Memory that turns take and give back.
struct Memory {
    free: Mutex<u64>,
    changed: Condvar,
}

impl Memory {
    fn take(&self, bytes: u64) {
        let mut free = lock(&self.free);
        while *free < bytes {
            free = self.changed.wait(free).unwrap_or_else(PoisonError::into_inner);
        }
        *free -= bytes;
    }

    fn give_back(&self, bytes: u64) {
        *lock(&self.free) += bytes;
        self.changed.notify_all();
    }
}

struct Shared {
    plans: Mutex<VecDeque<Plan>>,
    memory: Memory,
    /// Of turns: the site, and what came of each job.
    finished: Mutex<Vec<(usize, Outcomes)>>,
    failure: Mutex<Option<StudyError>>,
}

struct Context<'a> {
    sites: &'a [Site],
    options: &'a Options,
    state: &'a State,
    open: &'a Open<'a>,
    watch: &'a Watch<'a>,
    shared: &'a Shared,
    workers: usize,
}

impl Context<'_> {
    fn site(&self, mut plan: Plan) -> Result<(), StudyError> {
        while let Some(turn) = plan.turns.pop_front() {
            let bytes = turn.iter().map(Job::memory_bytes).sum();
            self.shared.memory.take(bytes);
            let outcomes = self.turn(&plan, &turn);
            self.shared.memory.give_back(bytes);
            let outcomes = outcomes?;
            self.state.keep(plan.site, &outcomes)?;
            plan.finished += outcomes.len();
            lock(&self.shared.finished).push((plan.site, outcomes));
        }
        Ok(())
    }

    /// Goes over the site's captures once.
    fn turn(&self, plan: &Plan, turn: &[Job]) -> Result<Outcomes, StudyError> {
        let mut source = (self.open)(&self.sites[plan.site])?;
        let shares = shares(turn, self.workers);
        let (outcomes, is_whole) = thread::scope(|scope| {
            let (senders, threads): (Vec<_>, Vec<_>) = shares
                .into_iter()
                .map(|jobs| {
                    let (sender, receiver) = sync_channel(BATCHES_WAITING_MAX);
                    (sender, scope.spawn(move || work(jobs, &receiver, self.options)))
                })
                .unzip();
            let is_whole = self.read(plan, source.as_mut(), &senders);
            drop(senders);
            let outcomes: Vec<_> = threads.into_iter().map(|thread| thread.join()).collect();
            (outcomes, is_whole)
        });
        if !is_whole {
            return Err(StudyError::Stopped);
        }
        let mut outcomes: Outcomes =
            outcomes.into_iter().collect::<Result<Vec<_>, _>>().map_err(|_| StudyError::Panicked)?.concat();
        for (_, outcome) in &mut outcomes {
            if let Outcome::Ledger(ledger) = outcome {
                (ledger.skipped, ledger.damaged) = (source.skipped(), source.damaged());
            }
        }
        Ok(outcomes)
    }

    /// Returns false if the study is to stop.
    fn read(&self, plan: &Plan, source: &mut dyn Source, to: &[SyncSender<Arc<Batch>>]) -> bool {
        let mut classifier = Classifier::new(&self.options.inside);
        let mut batch = Batch::default();
        loop {
            let has_more = source.feed(&mut |observed| {
                let known = classifier.look(observed);
                batch.push(observed, known);
            });
            if batch.is_full() || (!has_more && !batch.is_empty()) {
                let full = Arc::new(std::mem::take(&mut batch));
                // One that is gone has panicked, which is seen when it is joined.
                if to.iter().any(|sender| sender.send(Arc::clone(&full)).is_err()) {
                    return true;
                }
                let Plan { site, finished, jobs, .. } = *plan;
                let read_bytes = source.read_bytes();
                (self.watch.progress)(&Progress { site, jobs_finished: finished, jobs, read_bytes });
            }
            if self.watch.stop.load(Ordering::Relaxed) || lock(&self.shared.failure).is_some() {
                return false;
            }
            if !has_more {
                return true;
            }
        }
    }
}

/// Deals jobs to threads so that all have about as much to do: the longest first, each to who has the least.
fn shares(turn: &[Job], workers: usize) -> Vec<Vec<Job>> {
    let mut sorted = turn.to_vec();
    sorted.sort_by_key(|job| std::cmp::Reverse(job.work()));
    let mut shares = vec![(0, Vec::new()); workers.min(turn.len()).max(1)];
    for job in sorted {
        if let Some((work, jobs)) = shares.iter_mut().min_by_key(|(work, _)| *work) {
            *work += job.work();
            jobs.push(job);
        }
    }
    shares.into_iter().map(|(_, jobs)| jobs).collect()
}

fn work(jobs: Vec<Job>, batches: &Receiver<Arc<Batch>>, options: &Options) -> Outcomes {
    let mut begun: Vec<(Job, Box<dyn AnyAnalysis>)> = jobs.into_iter().map(|job| (job, job.begin(options))).collect();
    for batch in batches {
        // Job by job, so that each finds its cache where the processor has it.
        for (_, analysis) in &mut begun {
            batch.iter().for_each(|(packet, payload)| analysis.handle(packet, payload));
        }
    }
    begun.into_iter().map(|(job, analysis)| (job, analysis.finish())).collect()
}
