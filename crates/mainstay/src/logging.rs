//! Structured logs on standard error, as text or as JSON, with a limit on how often each place in the program logs.

pub mod limit;

use std::io::{self, IsTerminal};
use std::sync::{Arc, OnceLock};

use flow::Instant;
use packet_io::clock;
use tracing_subscriber::layer::{Layer, SubscriberExt};
use tracing_subscriber::util::SubscriberInitExt;
use tracing_subscriber::{EnvFilter, Registry, fmt, reload};

use crate::config::validated::{LogFormat, LogLevel, Node};
use limit::{LimitLayer, PlaceLimits};

/// The limits of this process's log.
static LIMITS: OnceLock<Arc<PlaceLimits>> = OnceLock::new();

/// The environment variable that goes before the configured level: a level, or directives of
/// `tracing_subscriber::EnvFilter` such as `info,replication=debug`.
pub const VARIABLE: &str = "MAINSTAY_LOG";

/// Where the filter in force can be exchanged for another.
static FILTER: OnceLock<reload::Handle<EnvFilter, Registry>> = OnceLock::new();

/// Why logging cannot begin.
#[derive(Debug, thiserror::Error)]
pub enum LoggingError {
    /// The environment variable cannot be read.
    #[error(
        "{VARIABLE}={value:?} is not a log filter ({reason}): write a level like \"debug\" or \"info,replication=debug\""
    )]
    Filter {
        /// What it holds.
        value: String,
        /// What is wrong with it.
        reason: String,
    },
    /// Something else in the process logs already.
    #[error("logging has begun already")]
    AlreadyBegun,
}

/// What is logged: the environment's filter, or else the configured level.
///
/// # Errors
/// [`LoggingError::Filter`].
pub fn filter(configured: LogLevel, environment: Option<&str>) -> Result<EnvFilter, LoggingError> {
    // The netlink library warns of every attribute that a newer kernel has made longer, which harms nobody.
    let default = format!("{},netlink_packet_route=error", configured.name());
    let value = environment.filter(|value| !value.is_empty()).unwrap_or(&default);
    EnvFilter::try_new(value)
        .map_err(|error| LoggingError::Filter { value: value.to_owned(), reason: error.to_string() })
}

/// Logs to standard error from now on, as the node's configuration says.
///
/// # Errors
/// [`LoggingError`].
pub fn begin(node: &Node) -> Result<(), LoggingError> {
    let environment = std::env::var(VARIABLE).ok();
    let (filter, handle) = reload::Layer::new(filter(node.log, environment.as_deref())?);
    let limits = LIMITS.get_or_init(|| Arc::new(PlaceLimits::new(node.log_per_s, clock::now)));
    let lines = fmt::layer().with_writer(io::stderr);
    let lines = match node.log_format {
        LogFormat::Text => lines.with_ansi(io::stderr().is_terminal()).boxed(),
        LogFormat::Json => lines.json().flatten_event(true).boxed(),
    };
    tracing_subscriber::registry()
        .with(filter)
        .with(LimitLayer(Arc::clone(limits)))
        .with(lines)
        .try_init()
        .map_err(|_| LoggingError::AlreadyBegun)?;
    FILTER.set(handle).map_err(|_| LoggingError::AlreadyBegun)
}

/// Logs at another configured level from now on. False when it has no effect, because the environment goes before it or
/// nothing is logged here.
pub fn set_level(configured: LogLevel) -> bool {
    let environment = std::env::var(VARIABLE).ok().filter(|value| !value.is_empty());
    let (None, Some(handle)) = (environment, FILTER.get()) else { return false };
    filter(configured, None).is_ok_and(|filter| handle.reload(filter).is_ok())
}

/// Logs how many entries the limits have kept back, when it is time to, or if this is the `last` chance. Cheap: to be
/// called in each turn of a loop.
pub fn tell_suppressed(now: Instant, last: bool) {
    if let Some(limits) = LIMITS.get() {
        limits.tell_suppressed(now, last);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_environment_goes_before_the_configuration() {
        let chosen = |environment| filter(LogLevel::Warn, environment).map(|filter| filter.to_string());
        assert_eq!(chosen(None).ok(), chosen(Some("")).ok());
        assert!(chosen(None).expect("a level").contains("warn"));
        assert_eq!(chosen(Some("debug")).expect("a level"), "debug");
        let error = chosen(Some("flow=louder")).expect_err("no such level").to_string();
        assert!(error.starts_with("MAINSTAY_LOG=\"flow=louder\" is not a log filter"), "{error}");
    }
}
