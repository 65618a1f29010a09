//! Numbers, dates and text as pages show them.

/// Text as it may stand in a page.
#[must_use]
pub fn escaped(text: &str) -> String {
    text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;").replace('"', "&quot;")
}

/// Date and time of day in UTC, from the seconds since 1970 (the civil calendar, counted in years that begin in March).
#[must_use]
pub fn date(unix_s: u64) -> String {
    let (days, second) = (unix_s / 86_400 + 719_468, unix_s % 86_400);
    let (era, day_of_era) = (days / 146_097, days % 146_097);
    let year_of_era = (day_of_era - day_of_era / 1460 + day_of_era / 36_524 - day_of_era / 146_096) / 365;
    let day_of_year = day_of_era - (365 * year_of_era + year_of_era / 4 - year_of_era / 100);
    let month_from_march = (5 * day_of_year + 2) / 153;
    let day = day_of_year - (153 * month_from_march + 2) / 5 + 1;
    let month = if month_from_march < 10 { month_from_march + 3 } else { month_from_march - 9 };
    let year = era * 400 + year_of_era + u64::from(month <= 2);
    format!("{year}-{month:02}-{day:02} {:02}:{:02} UTC", second / 3600, second / 60 % 60)
}

/// The next value with which four grid lines have round labels.
#[must_use]
pub fn round_up(peak: f64) -> f64 {
    let mut power = 4.0;
    while power * 10.0 < peak {
        power *= 10.0;
    }
    let steps = [1.0, 1.5, 2.0, 2.5, 3.0, 4.0, 5.0, 6.0, 8.0, 10.0];
    steps.into_iter().map(|step| step * power).find(|top| *top >= peak).unwrap_or(power * 10.0)
}

/// A count with its thousands apart.
pub(super) fn grouped(count: u64) -> String {
    let digits = count.to_string();
    let mut text = String::with_capacity(digits.len() * 4 / 3);
    for (index, digit) in digits.chars().enumerate() {
        if index > 0 && (digits.len() - index).is_multiple_of(3) {
            text.push('\u{202f}');
        }
        text.push(digit);
    }
    text
}

/// A figure in the room that an axis has: three digits, and thousands as k, M, G.
#[must_use]
pub fn short(figure: f64) -> String {
    let (scaled, suffix) = match figure.abs() {
        size if size >= 1e9 => (figure / 1e9, " G"),
        size if size >= 1e6 => (figure / 1e6, " M"),
        size if size >= 1e3 => (figure / 1e3, " k"),
        _ => (figure, ""),
    };
    let digits = match scaled.abs() {
        0.0 => return "0".into(),
        size if size < 1e-3 => return format!("{figure:.0e}"),
        size if size < 0.1 => 4,
        size if size < 1.0 => 3,
        size if size < 10.0 => 2,
        size if size < 100.0 => 1,
        _ => 0,
    };
    let text = format!("{scaled:.digits$}");
    let text = if text.contains('.') { text.trim_end_matches('0').trim_end_matches('.') } else { &text };
    format!("{text}{suffix}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn axes_end_on_round_numbers_above_the_peak() {
        for (peak, top) in [(0.0, 4.0), (4.0, 4.0), (4.1, 6.0), (39.0, 40.0), (230.0, 240.0), (256.0, 320.0)] {
            assert!((round_up(peak) - top).abs() < 1e-9, "{peak}: {}", round_up(peak));
        }
    }

    #[test]
    fn figures_are_short_and_counts_are_grouped() {
        for (figure, text) in
            [(0.0, "0"), (0.25, "0.25"), (20.0, "20"), (1500.0, "1.5 k"), (2e6, "2 M"), (1e-5, "1e-5")]
        {
            assert_eq!(short(figure), text);
        }
        assert_eq!(grouped(1_234_567), "1\u{202f}234\u{202f}567");
        assert_eq!(grouped(12), "12");
    }
}
