//! Both sides, the same segments, and what differs.

use crate::exchange;
use crate::explanation::Past;
use crate::kernel::Kernel;
use crate::observation::Observation;
use crate::pipeline::{Gateway, Outcome};
use crate::report::{Report, Unexplained};
use crate::segment::Segment;

/// Scripts of unexplained differences that are kept to be shown.
const UNEXPLAINED_SHOWN_MAX: usize = 12;

/// How both sides are set.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Options {
    /// Connections are picked up in their middle.
    pub(crate) loose: bool,
    /// Only RSTs outside the window are refused.
    pub(crate) liberal: bool,
}

/// An exchange that is running on both sides.
struct Running {
    number: u32,
    segments: Vec<Segment>,
    /// What both sides made of the segments so far.
    history: Vec<(Observation, Outcome)>,
    past: Past,
    /// The sides have parted: what follows is a consequence.
    has_parted: bool,
}

/// One run.
pub(crate) struct Comparison {
    options: Options,
    running: Vec<Running>,
    report: Report,
}

impl Comparison {
    pub(crate) fn new(options: Options, seed: u64, exchanges: u32) -> Self {
        let running = (0..exchanges).map(|number| Running {
            number,
            segments: exchange::segments(seed, number),
            history: Vec::new(),
            past: Past::default(),
            has_parted: false,
        });
        Self { options, running: running.collect(), report: Report::new(options, seed, exchanges) }
    }

    /// Plays all exchanges, a segment of each at a time.
    pub(crate) fn run(mut self, mut kernel: Kernel) -> Report {
        let mut gateway = Gateway::new(self.options);
        let longest = self.running.iter().map(|running| running.segments.len()).max().unwrap_or(0);
        for at in 0..longest {
            let present: Vec<usize> =
                (0..self.running.len()).filter(|index| self.running[*index].segments.len() > at).collect();
            let segments: Vec<(u32, Segment)> =
                present.iter().map(|index| (self.running[*index].number, self.running[*index].segments[at])).collect();
            let observations = kernel.observe(&segments);
            for ((index, (number, segment)), observed) in present.into_iter().zip(segments).zip(observations) {
                let outcome = gateway.handle(number, &segment);
                self.running[index].history.push((observed, outcome));
                self.compare(index, segment, observed, outcome);
            }
        }
        self.report
    }

    fn compare(&mut self, index: usize, segment: Segment, kernel: Observation, outcome: Outcome) {
        let running = &mut self.running[index];
        if running.has_parted {
            self.report.after_parting += 1;
            return;
        }
        self.report.packets += 1;
        self.report.count(&segment, kernel);
        if kernel == outcome.observation {
            self.report.agreeing += 1;
            running.past.note(&segment, &outcome);
            return;
        }
        running.has_parted = true;
        match running.past.explain(&segment, kernel, &outcome) {
            Some(explanation) => self.report.explained[explanation as usize] += 1,
            None => {
                self.report.unexplained_total += 1;
                if self.report.unexplained.len() < UNEXPLAINED_SHOWN_MAX {
                    self.report.unexplained.push(Unexplained { script: running.script() });
                }
            }
        }
    }
}

impl Running {
    /// The exchange so far, as a script that replays it.
    fn script(&self) -> String {
        let mut script = format!("exchange {}:\n", self.number);
        for (segment, (kernel, outcome)) in self.segments.iter().zip(&self.history) {
            let reason = outcome.reason.map_or(String::new(), |reason| format!(" ({})", reason.label()));
            let ours = if *kernel == outcome.observation && reason.is_empty() {
                String::new()
            } else {
                format!(" | mainstay: {}{reason}", outcome.observation)
            };
            script.push_str(&format!("  {segment:<70} : {kernel}{ours}\n"));
        }
        if let Some((_, Outcome { before: Some((state, direction)), .. })) = self.history.last() {
            script.push_str(&format!("  before, {direction:?}: {state:?}\n"));
        }
        script
    }
}
