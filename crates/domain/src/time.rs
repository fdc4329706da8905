//! Instants and calendar dates. Nothing here reads a clock: time is an argument.

use std::fmt;

/// An instant in UTC, in whole milliseconds: what a client reads is exactly what is stored, so an
/// inclusive filter on a time that was read back finds what carried it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Timestamp(i64);

/// A text that is not an ISO 8601 date-time with an offset, or not a real date.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("'{0}' is not {1}")]
pub struct InvalidTime(String, &'static str);

impl Timestamp {
    /// An instant from milliseconds since 1970-01-01T00:00:00Z.
    pub const fn from_millis(millis: i64) -> Self {
        Self(millis)
    }

    /// Milliseconds since 1970-01-01T00:00:00Z.
    pub const fn millis(self) -> i64 {
        self.0
    }

    /// This instant and `millis` milliseconds; stays at the ends of the range instead of wrapping.
    #[must_use]
    pub const fn plus_millis(self, millis: i64) -> Self {
        Self(self.0.saturating_add(millis))
    }

    /// Reads an ISO 8601 date-time with `Z` or an offset. Parts of a millisecond are cut off.
    pub fn parse(text: &str) -> Result<Self, InvalidTime> {
        text.parse::<jiff::Timestamp>().map(|at| Self(at.as_millisecond())).map_err(|_| {
            InvalidTime(shown(text), "an ISO 8601 date-time such as 2025-10-13T09:30:00Z")
        })
    }
}

impl Timestamp {
    /// The day in UTC.
    pub fn date(self) -> Date {
        let at = jiff::Timestamp::from_millisecond(self.0).unwrap_or_default();
        Date(at.to_zoned(jiff::tz::TimeZone::UTC).date())
    }

    /// The instant as people write it: `13 October 2025, 09:30 UTC`. Seconds are cut off.
    pub fn in_words(self) -> String {
        let at = jiff::Timestamp::from_millisecond(self.0).unwrap_or_default();
        at.strftime("%-d %B %Y, %H:%M UTC").to_string()
    }
}

/// ISO 8601, UTC, milliseconds: `2025-10-13T09:30:00.000Z`.
impl fmt::Display for Timestamp {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let at = jiff::Timestamp::from_millisecond(self.0).map_err(|_| fmt::Error)?;
        write!(f, "{at:.3}")
    }
}

/// A calendar date without a time of day.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Date(jiff::civil::Date);

impl Date {
    /// Reads `YYYY-MM-DD`; the date must exist.
    pub fn parse(text: &str) -> Result<Self, InvalidTime> {
        /// Other ISO 8601 notations (week dates, `20251013`) are refused: the API has one.
        const LENGTH: usize = "YYYY-MM-DD".len();
        Some(text)
            .filter(|text| text.len() == LENGTH)
            .and_then(|text| text.parse::<jiff::civil::Date>().ok())
            .map(Self)
            .ok_or_else(|| InvalidTime(shown(text), "a date that exists, as YYYY-MM-DD"))
    }
}

impl fmt::Display for Date {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

fn shown(text: &str) -> String {
    text.chars().take(40).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn instants_are_read_with_offsets_and_printed_in_utc() {
        let at = Timestamp::parse("2025-10-13T09:30:00.1239+02:00").expect("valid");
        assert_eq!(at.to_string(), "2025-10-13T07:30:00.123Z");
        assert_eq!(Timestamp::parse(&at.to_string()), Ok(at));
        for wrong in ["", "2025-10-13", "2025-10-13T09:30:00", "2025-02-30T00:00:00Z", "now", "1e9"]
        {
            assert!(Timestamp::parse(wrong).is_err(), "{wrong}");
        }
    }

    #[test]
    fn people_read_days_and_minutes() {
        let at = Timestamp::parse("2025-03-01T23:05:59.999-01:00").expect("valid");
        assert_eq!(at.in_words(), "2 March 2025, 00:05 UTC");
        assert_eq!(at.date().to_string(), "2025-03-02");
    }

    #[test]
    fn dates_must_exist() {
        assert_eq!(Date::parse("2024-02-29").map(|date| date.to_string()), Ok("2024-02-29".into()));
        for wrong in
            ["2025-02-29", "2025-2-1", "20250201", "2025-13-01", "1990-01-01T00:00:00Z", ""]
        {
            assert!(Date::parse(wrong).is_err(), "{wrong}");
        }
    }
}
