//! Instants and calendar dates. Nothing here reads a clock: time is an argument.

use std::fmt;

use jiff::SignedDuration;
use jiff::civil::DateTime;
use jiff::fmt::temporal::Pieces;

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

    /// Reads an ISO 8601 date-time with `Z` or an offset, of the years 0000 to 9999 in UTC. Parts
    /// of a millisecond are cut off.
    pub fn parse(text: &str) -> Result<Self, InvalidTime> {
        read(text).ok_or_else(|| {
            InvalidTime(shown(text), "an ISO 8601 date-time such as 2025-10-13T09:30:00Z")
        })
    }

    /// The date in UTC.
    pub fn date(self) -> Date {
        Date(self.civil().date())
    }

    /// The date and time in UTC; the first or last instant that can be written, if this is beyond.
    fn civil(self) -> DateTime {
        let millis = self.0.clamp(FIRST_MILLIS, LAST_MILLIS);
        let at = EPOCH.checked_add(SignedDuration::from_millis(millis));
        at.expect("the years 0000 to 9999 are within the range")
    }
}

impl Timestamp {
    /// The instant as people write it: `13 October 2025, 09:30 UTC`. Seconds are cut off.
    pub fn in_words(self) -> String {
        self.civil().strftime("%-d %B %Y, %H:%M UTC").to_string()
    }
}

const EPOCH: DateTime = DateTime::constant(1970, 1, 1, 0, 0, 0, 0);

/// The first instant of year 0000 and the last of year 9999: others have no ISO 8601 text of four
/// digits for the year.
const FIRST_MILLIS: i64 = -62_167_219_200_000;
const LAST_MILLIS: i64 = 253_402_300_799_999;

/// Reads a date-time by its parts, because an instant of the library ends a day before year 9999.
fn read(text: &str) -> Option<Timestamp> {
    let pieces = Pieces::parse(text).ok()?;
    let at = pieces.date().to_datetime(pieces.time()?);
    let offset = pieces.to_numeric_offset()?;
    let since = at.duration_since(EPOCH) - SignedDuration::from_secs(offset.seconds().into());
    let millis = i64::try_from(since.as_nanos().div_euclid(NANOS_PER_MILLI)).ok()?;
    (FIRST_MILLIS..=LAST_MILLIS).contains(&millis).then_some(Timestamp(millis))
}

const NANOS_PER_MILLI: i128 = 1_000_000;

/// ISO 8601, UTC, milliseconds: `2025-10-13T09:30:00.000Z`.
impl fmt::Display for Timestamp {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:.3}Z", self.civil())
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

/// Why a date is no date of birth.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum InvalidBirth {
    /// It is still to come.
    #[error("is in the future: today is {0}")]
    Future(Date),
    /// No living person was born then.
    #[error("is before {FIRST_BIRTH_YEAR}")]
    LongAgo,
}

/// The oldest person whose age was ever proved lived 122 years.
const FIRST_BIRTH_YEAR: i16 = 1900;

impl Date {
    /// Refuses a date on which no customer was born, as seen `today`.
    pub fn check_birth(self, today: Self) -> Result<(), InvalidBirth> {
        if self > today {
            return Err(InvalidBirth::Future(today));
        }
        if self.0.year() < FIRST_BIRTH_YEAR { Err(InvalidBirth::LongAgo) } else { Ok(()) }
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
    fn the_years_0000_to_9999_can_be_written() {
        for (text, shown) in [
            ("9999-12-31T23:59:59Z", "9999-12-31T23:59:59.000Z"),
            ("9999-12-31T23:59:59.999999999Z", "9999-12-31T23:59:59.999Z"),
            ("9999-12-31T23:59:59+01:00", "9999-12-31T22:59:59.000Z"),
            ("0000-01-01T00:00:00Z", "0000-01-01T00:00:00.000Z"),
            ("0001-01-01T00:00:00-00:30", "0001-01-01T00:30:00.000Z"),
            ("1969-12-31T23:59:59.9999Z", "1969-12-31T23:59:59.999Z"),
            ("2025-10-13T09:30:00.1239+02:00", "2025-10-13T07:30:00.123Z"),
        ] {
            assert_eq!(Timestamp::parse(text).expect(text).to_string(), shown);
        }
        for beyond in [
            "9999-12-31T23:59:59-01:00",
            "0000-01-01T00:00:00+00:01",
            "+010000-01-01T00:00:00Z",
            "-000001-12-31T00:00:00Z",
            "10000-01-01T00:00:00Z",
        ] {
            assert!(Timestamp::parse(beyond).is_err(), "{beyond}");
        }
        // Saturates at an instant that can be shown.
        assert_eq!(Timestamp::from_millis(i64::MAX).to_string(), "9999-12-31T23:59:59.999Z");
        assert_eq!(Timestamp::from_millis(i64::MIN).to_string(), "0000-01-01T00:00:00.000Z");
        let last = Timestamp::parse("9999-12-31T23:59:59.999Z").expect("valid");
        assert_eq!(last.plus_millis(i64::MAX).date().to_string(), "9999-12-31");
    }

    #[test]
    fn a_birth_is_neither_to_come_nor_before_1900() {
        let today = Timestamp::parse("2025-10-13T23:59:59Z").expect("valid").date();
        let check = |text| Date::parse(text).expect("a date").check_birth(today);
        for right in ["2025-10-13", "1900-01-01", "1985-12-10"] {
            assert_eq!(check(right), Ok(()), "{right}");
        }
        for wrong in ["2025-10-14", "9999-12-31", "1899-12-31", "0000-01-01"] {
            assert!(check(wrong).is_err(), "{wrong}");
        }
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
