//! Strands: the rows of a list that agree in everything that its filters ask for, in the order of
//! their ids.
//!
//! Each strand is one run of an index, so that a page of it costs the same wherever it starts, and
//! a filter is a set of strands that are merged. Ids start with the time at which they were drawn,
//! so that a filter by creation is a range of ids. What strands hold is counted by
//! [`crate::tallies`].

use domain::time::Timestamp;
use domain::transaction::referenced;
use uuid::Uuid;

use crate::sql::Value;

/// Bits of an id below its milliseconds.
const TIME_SHIFT: u32 = 80;

/// An index of a table whose columns end in `id`: a strand is all of them but that one.
pub(crate) struct Index {
    /// Tells its tallies from those of other indexes. Stored: never changed, never used again.
    pub(crate) tag: u8,
    /// The table.
    pub(crate) table: &'static str,
    /// The columns in front of the id: first the leader, a uuid, then those of the facet.
    pub(crate) columns: &'static [&'static str],
    /// Which rows the index has, if not all.
    pub(crate) condition: Option<&'static str>,
    /// The parts that it is in, if it is not one index in the database.
    pub(crate) parts: Option<Parts>,
    /// Which rows have an index of their own instead.
    pub(crate) brief: Option<Brief>,
    /// Whether the embedded engine has its lasting part in a table that it keeps itself
    /// (`sqlite/listed.rs`).
    pub(crate) is_kept_apart: bool,
    /// What the columns of the facet hold.
    pub(crate) values: fn(Facet) -> Vec<Value>,
    /// States that rows soon leave. Their strands are short and counted on the index, so that a
    /// row which passes through changes no tally.
    pub(crate) passing: &'static [u16],
    /// The state in which most rows end. It is what the others leave of all, so that a row which
    /// ends as usual changes no tally either.
    pub(crate) usual: Option<u16>,
    /// How many states there are, numbered from 0, if its tallies of all states together lag behind
    /// its rows ([`crate::tallies::lag`]); 0 if they do not.
    pub(crate) lagging: u16,
    /// How long the times are for which there are tallies, as powers of two in milliseconds,
    /// longest first.
    pub(crate) spans: &'static [u32],
}

/// An index in two parts, each with its own pages. A row that passes through has entries in the
/// first only, which is small: all rows under way share its pages. Where its leader has its other
/// rows, which is another page for almost every row, it is written once, when it stays.
///
/// The texts stand in the migrations word by word: SQLite takes a partial index only for a
/// statement that repeats its condition.
#[derive(Clone, Copy)]
pub(crate) struct Parts {
    /// Which rows are in a passing state.
    pub(crate) passing: &'static str,
    /// Which are not.
    pub(crate) lasting: &'static str,
}

/// Rows that are in a state for a moment only. They stand in the order of their ids, with all their
/// leaders, so that new ones share a page and those that leave share another, whoever's they are
/// (docs/decisions/0030). A strand of them is a run of all of them, of which it takes its own.
#[derive(Clone, Copy)]
pub(crate) struct Brief {
    /// The facet that they have.
    pub(crate) facet: Facet,
    /// Which rows they are, which says what the facet says.
    pub(crate) is: &'static str,
    /// Which rows they are not.
    pub(crate) is_not: &'static str,
}

impl Index {
    /// The index of their own that rows with a facet have, if they do.
    pub(crate) fn brief(&self, facet: Facet) -> Option<Brief> {
        self.brief.filter(|brief| brief.facet == facet)
    }

    /// What the rows with a facet have in common: they are in the same index in the database.
    fn conditions(&self, facet: Facet) -> Vec<&'static str> {
        if let Some(brief) = self.brief(facet) {
            // Rows of all leaders share one index, which has no other condition.
            return vec![brief.is];
        }
        let is_not = self.brief.map(|brief| brief.is_not);
        let parts = match self.parts {
            None => [None, is_not],
            Some(Parts { passing, .. }) if self.passing.contains(&facet.state) => {
                [Some(passing), is_not]
            }
            Some(Parts { lasting, .. }) => [Some(lasting), None],
        };
        self.condition.into_iter().chain(parts.into_iter().flatten()).collect()
    }

    /// Whether its tallies of all states together lag behind its rows.
    pub(crate) fn lags(&self) -> bool {
        self.lagging > 0
    }

    /// Whether the rows of a state have a tally of their own.
    pub(crate) fn tallies(&self, state: u16) -> bool {
        !self.passing.contains(&state) && self.usual != Some(state)
    }
}

/// What a filter can ask of a row besides whose it is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Facet {
    /// What never changes.
    pub(crate) group: u8,
    /// What may change.
    pub(crate) state: u16,
}

/// A state's place in the code of a facet; 0 stands for all states of a group.
const GROUP_SHIFT: u32 = 17;

impl Facet {
    /// The number under which it is tallied.
    pub(crate) fn code(self) -> i64 {
        Self::all_of(self.group) + i64::from(self.state) + 1
    }

    /// The number under which all states of a group are tallied.
    pub(crate) fn all_of(group: u8) -> i64 {
        i64::from(group) << GROUP_SHIFT
    }

    /// What a number stands for: a group, and a state unless it is all of them.
    pub(crate) fn decode(code: i64) -> Option<(u8, Option<u16>)> {
        let group = u8::try_from(code >> GROUP_SHIFT).ok()?;
        match code - Self::all_of(group) {
            0 => Some((group, None)),
            state => Some((group, Some(u16::try_from(state - 1).ok()?))),
        }
    }
}

/// One run of an index.
#[derive(Clone, Copy)]
pub struct Strand {
    pub(crate) index: &'static Index,
    pub(crate) leader: Uuid,
    pub(crate) facet: Facet,
}

impl Strand {
    /// Whether both differ in nothing but the state.
    pub(crate) fn is_of_group(&self, other: &Self) -> bool {
        let group = |strand: &Self| (strand.index.tag, strand.leader, strand.facet.group);
        group(self) == group(other)
    }

    /// The conditions that a row of it meets, with `?` for each value.
    pub(crate) fn conditions(&self) -> (String, Vec<Value>) {
        let mut values = vec![Value::from(self.leader)];
        if self.index.brief(self.facet).is_none() {
            values.extend((self.index.values)(self.facet));
        }
        let columns = self.index.columns.iter().take(values.len());
        let columns = columns.map(|column| format!("{column} = ?"));
        let conditions = self.index.conditions(self.facet).into_iter().map(str::to_owned);
        let texts: Vec<_> = columns.chain(conditions).collect();
        (texts.join(" and "), values)
    }
}

impl Strand {
    /// Whether the embedded engine has it in a table that it keeps itself.
    pub(crate) fn is_kept_apart(&self) -> bool {
        self.index.is_kept_apart && !self.index.passing.contains(&self.facet.state)
    }

    /// What tells it from the leader's others in that table. Stored: never changed.
    pub(crate) fn kind(&self) -> u16 {
        u16::from(self.index.tag) << 5 | u16::from(self.facet.group) << 4 | self.facet.state
    }
}

/// A row came into a strand that the embedded engine keeps apart, or left it.
pub struct Membership {
    pub(crate) strand: Strand,
    pub(crate) id: Uuid,
    pub(crate) is_in: bool,
}

impl PartialEq for Strand {
    fn eq(&self, other: &Self) -> bool {
        self.is_of_group(other) && self.facet == other.facet
    }
}

/// A range of ids, both ends in it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Ids {
    /// The first.
    pub(crate) from: u128,
    /// The last.
    pub(crate) to: u128,
}

impl Ids {
    /// Every id.
    pub(crate) const ALL: Self = Self { from: 0, to: u128::MAX };

    /// The ids of what was made in a time, both ends in it.
    pub(crate) fn made(after: Option<Timestamp>, before: Option<Timestamp>) -> Self {
        /// The last millisecond that an id can name.
        const LATEST: i64 = (1 << (u128::BITS - TIME_SHIFT)) - 1;
        let from = match after.map(Timestamp::millis) {
            Some(after) if after > LATEST => return Self::NONE,
            after => u128::try_from(after.unwrap_or(0)).unwrap_or(0) << TIME_SHIFT,
        };
        let to = match before.map(|before| u128::try_from(before.millis().min(LATEST))) {
            Some(Ok(millis)) => millis << TIME_SHIFT | ((1 << TIME_SHIFT) - 1),
            Some(Err(_)) => return Self::NONE,
            None => u128::MAX,
        };
        Self { from, to }
    }

    /// The ids of what was made at a time or later.
    pub(crate) fn since(time: i64) -> Self {
        Self::made(Some(Timestamp::from_millis(time)), None)
    }

    /// The ids of what was made before a time.
    pub(crate) fn before(time: i64) -> Self {
        Self::made(None, Some(Timestamp::from_millis(time - 1)))
    }

    /// The ids that a reconciliation reference leads back to.
    pub(crate) fn referenced(text: &str) -> Self {
        referenced(text).map_or(Self::NONE, |(first, last)| Self {
            from: first.uuid().as_u128(),
            to: last.uuid().as_u128(),
        })
    }

    /// The ids in both.
    pub(crate) fn and(self, other: Self) -> Self {
        Self { from: self.from.max(other.from), to: self.to.min(other.to) }
    }

    const NONE: Self = Self { from: 1, to: 0 };

    /// Whether no id is in it.
    pub(crate) fn is_empty(self) -> bool {
        self.from > self.to
    }

    /// Those above `id` as well.
    pub(crate) fn above(self, id: Uuid) -> Self {
        match id.as_u128().checked_add(1) {
            Some(next) => Self { from: self.from.max(next), ..self },
            None => Self::NONE,
        }
    }

    /// Those below `id` as well.
    pub(crate) fn below(self, id: Uuid) -> Self {
        match id.as_u128().checked_sub(1) {
            Some(next) => Self { to: self.to.min(next), ..self },
            None => Self::NONE,
        }
    }

    /// Its ends.
    pub(crate) fn values(self) -> [Value; 2] {
        [self.from, self.to].map(|id| Uuid::from_u128(id).into())
    }

    /// Cuts it into whole spans of time, for which there are tallies, and the ends that remain.
    pub(crate) fn parts(self, spans: &[u32]) -> Vec<Part> {
        let mut parts = Vec::new();
        match spans {
            [longest, ..] if self == Self::ALL => {
                parts.push(Part::Spans { span: *longest, from: 0, to: i64::MAX, ids: self });
            }
            _ => self.cut(spans, &mut parts),
        }
        parts
    }

    fn cut(self, spans: &[u32], parts: &mut Vec<Part>) {
        if self.is_empty() {
            return;
        }
        let Some((span, shorter)) = spans.split_first() else {
            return parts.push(Part::Ids(self));
        };
        let Some(shift) = (TIME_SHIFT + span < u128::BITS).then_some(TIME_SHIFT + span) else {
            return self.cut(shorter, parts);
        };
        // The first span that starts in it, and the first that does not end in it.
        let first = (self.from >> shift) + u128::from(self.from & ((1 << shift) - 1) != 0);
        let end = match self.to.checked_add(1) {
            Some(next) => next >> shift,
            None => 1 << (u128::BITS - shift),
        };
        if first >= end {
            return self.cut(shorter, parts);
        }
        let ids = Self { from: first << shift, to: ((end - 1) << shift) | ((1 << shift) - 1) };
        if let Some(last) = ids.from.checked_sub(1) {
            Self { from: self.from, to: last }.cut(shorter, parts);
        }
        parts.push(Part::Spans { span: *span, from: first as i64, to: (end - 1) as i64, ids });
        if let Some(next) = ids.to.checked_add(1) {
            Self { from: next, to: self.to }.cut(shorter, parts);
        }
    }
}

/// The number of the span of `2^span` milliseconds in which an id was drawn.
pub(crate) fn bucket(id: Uuid, span: u32) -> i64 {
    let millis = id.as_u128() >> TIME_SHIFT;
    millis.checked_shr(span).unwrap_or(0) as i64
}

/// A span that is longer than ids can tell: all of time.
pub(crate) const ALL_TIME: u32 = u128::BITS;

/// Spans of tallies that few rows share out: three days, 17 minutes and 4 seconds. Each is 256
/// times the next, so that a time is a few hundred tallies of each, and what is left to count was
/// made in 4 seconds.
pub(crate) const SPANS_OF_PLATFORM: &[u32] = &[ALL_TIME, 28, 20, 12];

/// Spans of tallies of which there are as many as there are owners and accounts: three days.
/// Shorter ones would be a row for almost every payment.
pub(crate) const SPANS_OF_PARTY: &[u32] = &[28];

/// A part of a range of ids.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Part {
    /// Whole spans of time, and the ids that they hold.
    Spans {
        /// How long each is.
        span: u32,
        /// The first.
        from: i64,
        /// The last.
        to: i64,
        /// What is in them.
        ids: Ids,
    },
    /// Less than the shortest span.
    Ids(Ids),
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn facets_are_numbers_and_back() {
        for (group, state) in [(0, 0), (0, u16::MAX), (1, 7), (u8::MAX, 978)] {
            let facet = Facet { group, state };
            assert_eq!(Facet::decode(facet.code()), Some((group, Some(state))));
            assert_eq!(Facet::decode(Facet::all_of(group)), Some((group, None)));
        }
        assert_eq!(Facet::decode(-1), None);
    }

    #[test]
    fn times_are_ranges_of_ids() {
        let at = Timestamp::from_millis;
        let id = |millis: u128, low: u128| millis << TIME_SHIFT | low;
        let low = (1 << TIME_SHIFT) - 1;
        assert_eq!(Ids::made(None, None), Ids::ALL);
        let made = Ids::made(Some(at(5)), Some(at(7)));
        assert_eq!(made, Ids { from: id(5, 0), to: id(7, low) });
        assert_eq!(Ids::made(Some(at(-5)), Some(at(i64::MAX))), Ids::ALL);
        for (after, before) in [(None, Some(-1)), (Some(i64::MAX), None), (Some(2), Some(1))] {
            assert!(Ids::made(after.map(at), before.map(at)).is_empty(), "{after:?} {before:?}");
        }
        assert_eq!(Ids::ALL.above(Uuid::from_u128(7)).below(Uuid::from_u128(9)).from, 8);
        assert!(Ids::ALL.above(Uuid::max()).is_empty());
        assert!(Ids::ALL.below(Uuid::nil()).is_empty());
    }

    #[test]
    fn all_of_time_is_one_part() {
        for spans in [&[ALL_TIME, 28, 20][..], &[28]] {
            let parts = Ids::ALL.parts(spans);
            let [Part::Spans { span, from: 0, to: i64::MAX, .. }] = parts[..] else {
                panic!("{parts:?}")
            };
            assert_eq!(span, spans[0]);
        }
    }

    proptest! {
        #[test]
        fn parts_are_the_range_and_few(from: u128, length: u128, shift in 0_u32..128) {
            let ids = Ids { from, to: from.saturating_add(length >> shift) };
            let parts = ids.parts(&[ALL_TIME, 28, 20, 12]);
            prop_assert!(parts.len() <= 7);
            let mut next = Some(ids.from);
            for part in parts {
                let ids = match part {
                    Part::Ids(ids) => {
                        prop_assert!((ids.to - ids.from) >> TIME_SHIFT <= 2 << 12);
                        ids
                    }
                    Part::Spans { span, from, to, ids } => {
                        let millis = |id: u128| bucket(Uuid::from_u128(id), span);
                        prop_assert_eq!((millis(ids.from), millis(ids.to)), (from, to));
                        prop_assert!(ids.from == 0 || millis(ids.from - 1) < from);
                        prop_assert!(ids.to == u128::MAX || millis(ids.to + 1) > to);
                        ids
                    }
                };
                prop_assert_eq!(Some(ids.from), next);
                next = ids.to.checked_add(1);
            }
            prop_assert_eq!(next, ids.to.checked_add(1));
        }
    }
}
