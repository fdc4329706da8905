//! Days that the journal proves: how long ago a row was appended, whatever the clock says now.
//!
//! A clock can be wrong by any amount. Rows of many different days, one behind the other, are only
//! there if a server has worked on as many days. Times of rows that went back with a clock may hide
//! days, and never add one.

use domain::time::Timestamp;

use super::tail;
use crate::error::StoreError;
use crate::reader::View;

/// A day in milliseconds.
const DAY_MILLIS: i64 = 24 * 60 * 60 * 1_000;

/// The last row that rows of so many different later days follow; nothing if the journal has not
/// that many. `at` tells when a row was appended.
fn followed_by_days(
    days: u32,
    end: u64,
    mut at: impl FnMut(u64) -> Result<Timestamp, StoreError>,
) -> Result<Option<u64>, StoreError> {
    if end == 0 {
        return Ok(None);
    }
    let mut day_of = |seq| Ok::<_, StoreError>(at(seq)?.millis().div_euclid(DAY_MILLIS));
    let (mut seq, mut day) = (end, day_of(end)?);
    for _ in 0..days {
        // A search by halves, as if times only grew. Each row that it finds was read, so that the
        // chain of days holds also where they did not.
        let (mut low, mut high, mut found) = (0, seq, None);
        while high - low > 1 {
            let middle = low + (high - low) / 2;
            let earlier = day_of(middle)?;
            if earlier < day {
                (low, found) = (middle, Some(earlier));
            } else {
                high = middle;
            }
        }
        let Some(earlier) = found else { return Ok(None) };
        (seq, day) = (low, earlier);
    }
    Ok(Some(seq))
}

impl View<'_> {
    /// The number of the journal's last row, 0 if it has none, and the time of that row.
    pub fn journal_end(&mut self) -> Result<(u64, Option<Timestamp>), StoreError> {
        let last = tail::last(self.connection)?;
        Ok(last.map_or((0, None), |row| (row.seq, Some(row.at))))
    }

    /// The time of a row of the journal, if it has it.
    pub fn appended_at(&mut self, seq: u64) -> Result<Option<Timestamp>, StoreError> {
        Ok(tail::row(self.connection, seq)?.map(|row| row.at))
    }

    /// The last row of the journal that rows of so many different later days follow, if there is
    /// one.
    pub fn row_before_days(&mut self, days: u32) -> Result<Option<u64>, StoreError> {
        let (end, _) = self.journal_end()?;
        followed_by_days(days, end, |seq| {
            let missing = || StoreError::Corrupt {
                place: format!("row {seq} of the journal"),
                what: "it is missing".to_owned(),
            };
            self.appended_at(seq)?.ok_or_else(missing)
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The last row behind which rows of so many days are, where rows are of these days.
    fn check(rows: &[i64], days: u32, expected: Option<u64>) {
        let at = |seq: u64| Ok(Timestamp::from_millis(rows[seq as usize - 1] * DAY_MILLIS + 5));
        let found = followed_by_days(days, rows.len() as u64, at);
        assert_eq!(found.expect("rows"), expected, "{days} days behind {rows:?}");
    }

    #[test]
    fn only_days_with_rows_count() {
        check(&[], 1, None);
        check(&[7], 0, Some(1));
        check(&[7], 1, None);
        check(&[1, 1, 2, 2, 2, 3], 1, Some(5));
        check(&[1, 1, 2, 2, 2, 3], 2, Some(2));
        check(&[1, 1, 2, 2, 2, 3], 3, None);
        check(&[1, 90], 1, Some(1));
        check(&[1, 90], 2, None);
    }

    #[test]
    fn a_clock_that_was_wrong_adds_at_most_a_day() {
        // Ahead by 40 days once.
        check(&[1, 2, 3, 43], 1, Some(3));
        check(&[1, 2, 3, 43], 3, Some(1));
        check(&[1, 2, 3, 43], 4, None);
        // And set right: the days before are hidden or found, and there are none besides.
        check(&[1, 2, 43, 43, 3, 4], 1, Some(2));
        check(&[1, 2, 43, 43, 3, 4], 2, Some(1));
        check(&[1, 2, 43, 43, 3, 4], 3, None);
        // Behind by 40 days for a while.
        check(&[51, 52, 13, 13, 53], 1, Some(4));
        check(&[51, 52, 13, 13, 53], 3, None);
    }
}
