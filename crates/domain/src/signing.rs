//! Which keys a platform's deliveries are signed with (design decision 11).

use crate::time::Timestamp;

/// How long deliveries are signed with the keys before a change too, in milliseconds: a day, in
/// which a receiver learns the new ones.
const OVERLAP_MILLIS: i64 = 86_400_000;

/// The generations of a platform's keys. The keys themselves follow from the secret of the database
/// and a generation's number, so that nothing keeps them.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Generations {
    /// The number of the newest, from 1.
    pub newest: u32,
    /// When it took the place of the one before; never for the first.
    pub rotated_at: Option<Timestamp>,
}

impl Generations {
    /// The keys of a new platform.
    pub const FIRST: Self = Self { newest: 1, rotated_at: None };

    /// New keys from now on.
    #[must_use]
    pub fn rotated(self, now: Timestamp) -> Self {
        Self { newest: self.newest.saturating_add(1), rotated_at: Some(now) }
    }

    /// The generation that is in use until the newest begins, `delay_millis` after it was made, and
    /// when that is; the newest and nothing once it has begun. Those who keep public keys for no
    /// longer than the delay never miss the change.
    pub fn in_use(self, now: Timestamp, delay_millis: i64) -> (u32, Option<Timestamp>) {
        match self.rotated_at.map(|at| at.plus_millis(delay_millis)) {
            Some(begins) if now < begins => (self.newest.saturating_sub(1), Some(begins)),
            Some(_) | None => (self.newest, None),
        }
    }

    /// The generation before the newest and until when it signs, while it does.
    pub fn previous(self, now: Timestamp) -> Option<(u32, Timestamp)> {
        let until = self.rotated_at?.plus_millis(OVERLAP_MILLIS);
        (now < until).then_some((self.newest.saturating_sub(1), until))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_keys_before_sign_for_a_day() {
        let at = Timestamp::from_millis;
        assert_eq!(Generations::FIRST.previous(at(0)), None);
        let rotated = Generations::FIRST.rotated(at(5));
        assert_eq!(rotated, Generations { newest: 2, rotated_at: Some(at(5)) });
        let until = at(5 + OVERLAP_MILLIS);
        assert_eq!(rotated.previous(at(5)), Some((1, until)));
        assert_eq!(rotated.previous(until), None);
        assert_eq!(rotated.in_use(at(9), 5), (1, Some(at(10))));
        assert_eq!(rotated.in_use(at(10), 5), (2, None));
        assert_eq!(Generations::FIRST.in_use(at(0), 5), (1, None));
        assert_eq!(rotated.rotated(at(6)).previous(at(7)).map(|(number, _)| number), Some(2));
    }
}
