//! Structured logs on standard error, as text or as JSON, with a limit on how often each place in the program logs.

pub mod limit;

use std::io;
use std::sync::{Arc, OnceLock};

use flow::Instant;
use packet_io::clock;
use tracing_subscriber::filter::{ParseError, Targets};
use tracing_subscriber::layer::{Layer, SubscriberExt};
use tracing_subscriber::util::SubscriberInitExt;
use tracing_subscriber::{Registry, fmt, reload};

use config::validated::{LogFormat, LogLevel, Node};
use limit::{LimitLayer, PlaceLimits};

/// The limits of this process's log.
static LIMITS: OnceLock<Arc<PlaceLimits>> = OnceLock::new();

/// The environment variable that goes before the configured level: a level, or levels of crates and modules such as
/// `info,replication=debug`.
pub const VARIABLE: &str = "MAINSTAY_LOG";
/// Levels that the variable may name.
const LEVELS: [&str; 6] = ["off", "error", "warn", "info", "debug", "trace"];
/// The crates of this program. What others log is of interest to who looks for a defect in them: below `debug`, only their
/// warnings are logged.
const CRATES: [&str; 14] = [
    "mainstay",
    "analysis",
    "cluster",
    "config",
    "control",
    "daemon",
    "filters",
    "flow",
    "lab",
    "network_functions",
    "packet_io",
    "redundancy",
    "replication",
    "simulator",
];
/// The netlink library warns of every attribute that a newer kernel has made longer, which is harmless.
const QUIETER: &str = "netlink_packet_route=error";

/// Where the filter in force can be exchanged for another.
static FILTER: OnceLock<reload::Handle<Targets, Registry>> = OnceLock::new();

/// Why logging cannot begin.
#[derive(Debug, thiserror::Error)]
pub enum LoggingError {
    /// The environment variable cannot be read.
    #[error("{VARIABLE}={value:?} is not a log filter ({reason}): write {}, or \"info,replication=debug\"", LEVELS.join(", "))]
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
pub fn filter(configured: LogLevel, environment: Option<&str>) -> Result<Targets, LoggingError> {
    let value = environment.filter(|value| !value.is_empty()).unwrap_or(configured.name());
    let wrong = |reason: String| LoggingError::Filter { value: value.to_owned(), reason };
    let mut directives = Vec::new();
    for part in value.split(',').map(str::trim).filter(|part| !part.is_empty()) {
        let level = part.split_once('=').map_or(part, |(_, level)| level).to_ascii_lowercase();
        if !LEVELS.contains(&level.as_str()) {
            return Err(wrong(format!("{level:?} is no level")));
        }
        if part.contains('[') {
            return Err(wrong("square brackets choose spans, which this program has not".to_owned()));
        }
        if part.contains('=') {
            directives.push(part.to_owned());
        } else {
            directives.splice(0..0, of_level(&level));
        }
    }
    directives.join(",").parse().map_err(|error: ParseError| wrong(error.to_string()))
}

/// What a level stands for.
fn of_level(level: &str) -> Vec<String> {
    match level {
        "warn" => vec!["warn".to_owned(), QUIETER.to_owned()],
        "info" => {
            let ours = CRATES.iter().map(|name| format!("{name}=info"));
            ["warn".to_owned(), QUIETER.to_owned()].into_iter().chain(ours).collect()
        }
        level => vec![level.to_owned()],
    }
}

/// Logs to standard error from now on, as the node is configured.
///
/// # Errors
/// [`LoggingError`].
pub fn begin(node: &Node) -> Result<(), LoggingError> {
    let environment = std::env::var(VARIABLE).ok();
    let (filter, handle) = reload::Layer::new(filter(node.log, environment.as_deref())?);
    let limits = LIMITS.get_or_init(|| Arc::new(PlaceLimits::new(node.log_per_s, clock::now)));
    let lines = fmt::layer().with_writer(io::stderr);
    let lines = match node.log_format {
        LogFormat::Text => lines.with_ansi(console::color::on_standard_error()).boxed(),
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
pub fn report_suppressed(now: Instant, last: bool) {
    if let Some(limits) = LIMITS.get() {
        limits.report_suppressed(now, last);
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
        for unknown in ["flow=louder", "verbose", "info,loud", "replication", "[connection]=debug"] {
            let error = chosen(Some(unknown)).expect_err("no such level").to_string();
            assert!(error.starts_with(&format!("MAINSTAY_LOG={unknown:?} is not a log filter")), "{error}");
            assert!(error.contains("off, error, warn, info, debug, trace"), "{error}");
        }
    }

    #[test]
    fn libraries_are_quiet_below_debug() {
        let written = |target: &'static str, environment: &str| {
            let filter = filter(LogLevel::Warn, Some(environment)).expect("a filter");
            let lines = Arc::new(std::sync::Mutex::new(Vec::new()));
            let writer = std::sync::Mutex::new(Shared(Arc::clone(&lines)));
            let subscriber = tracing_subscriber::registry().with(filter).with(fmt::layer().with_writer(writer));
            tracing::subscriber::with_default(subscriber, || match target {
                "ours" => tracing::info!(target: "replication::session", "an entry"),
                "library" => tracing::info!(target: "netlink_proto::connection", "an entry"),
                "warning" => tracing::warn!(target: "rustls::conn", "an entry"),
                _ => tracing::warn!(target: "netlink_packet_route::link", "an entry"),
            });
            let bytes = lines.lock().expect("nothing panicked").clone();
            String::from_utf8_lossy(&bytes).contains("an entry")
        };
        for (target, level, expected) in [
            ("ours", "info", true),
            ("library", "info", false),
            ("warning", "info", true),
            ("netlink", "info", false),
            ("ours", "warn", false),
            ("warning", "warn", true),
            ("netlink", "warn", false),
            ("warning", "error", false),
            ("library", "debug", true),
            ("netlink", "debug", true),
            ("library", "info,netlink_proto=info", true),
            ("ours", "info,replication=error", false),
            ("ours", "replication=error,INFO", false),
            ("ours", "off", false),
        ] {
            assert_eq!(written(target, level), expected, "{target} at {level}");
        }
    }

    /// A log in memory.
    struct Shared(Arc<std::sync::Mutex<Vec<u8>>>);

    impl io::Write for Shared {
        fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
            self.0.lock().expect("nothing panicked").write(bytes)
        }

        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }
}
