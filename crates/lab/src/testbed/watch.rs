//! Waiting for conditions, with a deadline and an ear for Ctrl-C.

use std::time::{Duration, Instant};

use packet_io::IoError;
use packet_io::poller::{Poller, Token};
use packet_io::signal::{Signal, Signals};

/// How often a condition is looked at.
const LOOK_EVERY: Duration = Duration::from_millis(5);

/// How waiting ended.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Waited {
    /// The condition holds.
    Met,
    /// It did not before the deadline.
    TooLate,
}

/// Why waiting was broken off.
#[derive(Debug, thiserror::Error)]
pub enum WatchError {
    /// Ctrl-C, or the service manager.
    #[error("interrupted; everything that was made is removed again")]
    Interrupted,
    /// The system cannot wait.
    #[error(transparent)]
    System(#[from] IoError),
}

/// Waits, and listens for signals meanwhile.
#[derive(Debug)]
pub struct Watch {
    poller: Poller,
    signals: Signals,
}

impl Watch {
    /// To be made before any thread is started: see [`Signals::new`].
    ///
    /// # Errors
    /// The system is out of descriptors.
    pub fn new() -> Result<Self, IoError> {
        let (poller, signals) = (Poller::new()?, Signals::new()?);
        poller.add(&signals, Token(0))?;
        Ok(Self { poller, signals })
    }

    /// Looks every few milliseconds whether `condition` holds, until `deadline`.
    ///
    /// # Errors
    /// A signal came, or the condition's own error.
    pub fn until<E: From<WatchError>>(
        &self,
        deadline: Instant,
        mut condition: impl FnMut() -> Result<bool, E>,
    ) -> Result<Waited, E> {
        let mut ready = Vec::new();
        loop {
            if matches!(self.signals.receive(), Some(Signal::Interrupt | Signal::Terminate)) {
                return Err(WatchError::Interrupted.into());
            }
            if condition()? {
                return Ok(Waited::Met);
            }
            let left = deadline.saturating_duration_since(Instant::now());
            if left.is_zero() {
                return Ok(Waited::TooLate);
            }
            self.poller.wait(&mut ready, Some(left.min(LOOK_EVERY))).map_err(WatchError::from)?;
        }
    }

    /// Lets time pass until `moment`.
    ///
    /// # Errors
    /// A signal came.
    pub fn pass_until(&self, moment: Instant) -> Result<(), WatchError> {
        self.until(moment, || Ok(false)).map(drop)
    }
}
