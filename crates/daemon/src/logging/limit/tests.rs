//! Limits on a clock of the tests' own.

use std::io;
use std::sync::atomic::AtomicU64;

use tracing_subscriber::fmt::MakeWriter;
use tracing_subscriber::layer::SubscriberExt;

use super::*;

/// What was written.
#[derive(Clone, Default)]
struct Page(Arc<Mutex<Vec<u8>>>);

impl io::Write for Page {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.0.lock().expect("nobody panicked").write(bytes)
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

impl<'a> MakeWriter<'a> for Page {
    type Writer = Self;

    fn make_writer(&'a self) -> Self {
        self.clone()
    }
}

impl Page {
    /// Takes the lines.
    fn lines(&self) -> Vec<String> {
        let bytes = std::mem::take(&mut *self.0.lock().expect("nobody panicked"));
        String::from_utf8(bytes).expect("text").lines().map(str::to_owned).collect()
    }
}

/// Runs `work` with limits on a clock that `work` sets, in milliseconds, and a page that is logged to.
fn with_limits(entries_per_s: Option<u32>, work: impl FnOnce(&PlaceLimits, &AtomicU64, &Page)) {
    let millis = Arc::new(AtomicU64::new(1000));
    let clock = Arc::clone(&millis);
    let limits = PlaceLimits::new(entries_per_s, move || Instant::from_millis(clock.load(Ordering::Relaxed)));
    let limits = Arc::new(limits);
    let page = Page::default();
    let writer = tracing_subscriber::fmt::layer().with_writer(page.clone()).with_ansi(false);
    let subscriber = tracing_subscriber::registry().with(LimitLayer(Arc::clone(&limits))).with(writer);
    tracing::subscriber::with_default(subscriber, || work(&limits, &millis, &page));
}

fn one_place(number: u32) {
    tracing::info!(number, "one");
}

fn another_place() {
    tracing::error!("another");
}

#[test]
fn each_place_has_its_own_limit_and_suppressed_entries_are_reported() {
    with_limits(Some(10), |limits, millis, page| {
        (0..1000).for_each(one_place);
        another_place();
        let lines = page.lines();
        assert_eq!(lines.len(), 51);
        assert!(lines[49].contains("number=49") && lines[50].contains("another"), "{lines:?}");

        limits.report_suppressed(Instant::from_millis(1999), false);
        assert_eq!(page.lines(), Vec::<String>::new(), "it is not time yet");
        limits.report_suppressed(Instant::from_millis(2000), false);
        let lines = page.lines();
        assert_eq!(lines.len(), 1, "{lines:?}");
        for part in ["WARN", "suppressed=950", "level=INFO", "logging/limit/tests.rs", "were not logged"] {
            assert!(lines[0].contains(part), "{part} in {lines:?}");
        }
        limits.report_suppressed(Instant::from_millis(9000), false);
        assert_eq!(page.lines(), Vec::<String>::new(), "it is reported once");

        millis.store(1300, Ordering::Relaxed);
        (0..10).for_each(one_place);
        assert_eq!(page.lines().len(), 3);
        limits.report_suppressed(Instant::from_millis(1300), true);
        assert!(page.lines()[0].contains("suppressed=7"), "the last call waits for nothing");
    });
}

#[test]
fn what_is_limited_elsewhere_passes_and_no_limit_lets_all_through() {
    with_limits(Some(1), |_, _, page| {
        for number in 0..100 {
            tracing::info!(target: UNLIMITED_TARGET, number, "a rule's");
        }
        assert_eq!(page.lines().len(), 100);
    });
    with_limits(None, |limits, _, page| {
        (0..1000).for_each(one_place);
        assert_eq!(page.lines().len(), 1000);
        limits.report_suppressed(Instant::FAR_FUTURE, true);
        assert_eq!(page.lines(), Vec::<String>::new());
    });
}
