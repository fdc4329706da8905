//! Bloom filters of scopes: one of a part of the answers, and many asked at once
//! (docs/decisions/0037).

use crate::idempotency::Scope;

/// Bits of a filter for each answer of its part, and how many of them each scope sets. One scope in
/// 700,000 seems to be in a part in which it is not. Such a scope is looked for on pages that are
/// mostly not in memory, one for each segment of the part: with one in 15,000, those who wait for
/// them had a tenth fewer payments a second among 10^7. For as many answers, filters take 37 MB.
const BITS_PER_ANSWER: usize = 28;
const BITS_SET: u64 = 19;

/// Bits of a filter of a part with so many answers.
const fn bits_for(answers: usize) -> usize {
    answers * BITS_PER_ANSWER
}

/// A Bloom filter of scopes. These are keyed hashes, so that their own bits choose those of the
/// filter, and nobody can choose scopes that fill it.
pub(super) struct Filter(Box<[u8]>);

impl Filter {
    /// An empty one for so many scopes.
    pub(super) fn new(scopes: usize) -> Self {
        Self(vec![0; bits_for(scopes) / 8].into())
    }

    /// The filter for so many scopes with these bits, if there are as many as it has.
    pub(super) fn of(bits: Vec<u8>, scopes: usize) -> Option<Self> {
        (bits.len() == bits_for(scopes) / 8).then(|| Self(bits.into()))
    }

    /// Its bits.
    pub(super) fn bits(&self) -> &[u8] {
        &self.0
    }

    /// Adds a scope.
    pub(super) fn add(&mut self, scope: &Scope) {
        places(scope, self.0.len()).for_each(|(byte, bit)| self.0[byte] |= 1 << bit);
    }

    /// Whether a scope may have been added.
    pub(super) fn may_have(&self, scope: &Scope) -> bool {
        places(scope, self.0.len()).all(|(byte, bit)| self.0[byte] & 1 << bit != 0)
    }
}

/// The bits of a scope in a filter of so many bytes: the byte of each, and which bit in it. Two
/// independent numbers make as many as are needed (Kirsch and Mitzenmacher, "Less Hashing, Same
/// Performance", 2006).
fn places(scope: &Scope, bytes: usize) -> impl Iterator<Item = (usize, u32)> + use<> {
    let number = u128::from_be_bytes(*scope);
    // The halves; cutting is meant.
    let (first, step) = ((number >> 64) as u64, number as u64 | 1);
    (0..BITS_SET).map(move |number| {
        let hash = first.wrapping_add(step.wrapping_mul(number));
        // The part of all numbers that the hash is at, as a part of all bits.
        let bit = ((u128::from(hash) * (8 * bytes) as u128) >> 64) as usize;
        (bit / 8, (bit % 8) as u32)
    })
}

/// Filters of a group: as many as a word has bits.
const GROUP: usize = u16::BITS as usize;

/// Bits of a group's word.
const WORD: u32 = u16::BITS;

/// Many filters, all for as many scopes, that are asked at once. The bits that stand at one place
/// in each of 16 filters are one word here, so that one read of memory asks 16 filters, and some
/// six are needed until none of them may have a scope.
#[derive(Default)]
pub(super) struct Filters {
    /// For each byte of the filters of a group eight words, the lowest one of its lowest bit.
    groups: Vec<Box<[u128]>>,
    count: usize,
}

impl Filters {
    /// How many there are.
    pub(super) fn count(&self) -> usize {
        self.count
    }

    /// Adds one behind the others.
    pub(super) fn push(&mut self, filter: &Filter) {
        let (group, place) = (self.count / GROUP, self.count % GROUP);
        if group == self.groups.len() {
            self.groups.push(vec![0; filter.0.len()].into());
        }
        for (words, byte) in self.groups[group].iter_mut().zip(&filter.0) {
            *words |= SPREAD[usize::from(*byte)] << place;
        }
        self.count += 1;
    }

    /// The places of those that may have a scope, the last first.
    pub(super) fn that_may_have(&self, scope: &Scope) -> impl Iterator<Item = usize> {
        self.groups.iter().enumerate().rev().flat_map(|(group, words)| {
            let mut left = u16::MAX;
            for (byte, bit) in places(scope, words.len()) {
                // The word of that bit; cutting is meant.
                left &= (words[byte] >> (bit * WORD)) as u16;
                if left == 0 {
                    break;
                }
            }
            (0..GROUP)
                .rev()
                .filter(move |place| left >> place & 1 == 1)
                .map(move |place| group * GROUP + place)
        })
    }
}

/// The bits of each byte, as the lowest bit of a word each.
static SPREAD: [u128; 256] = {
    let mut spread = [0; 256];
    let mut byte = 0;
    while byte < spread.len() {
        let mut bit = 0;
        while bit < u8::BITS {
            spread[byte] |= ((byte >> bit & 1) as u128) << (bit * WORD);
            bit += 1;
        }
        byte += 1;
    }
    spread
};

#[cfg(test)]
mod tests {
    use sha2::{Digest as _, Sha256};

    use super::*;

    const SCOPES: u32 = 65_536;

    fn scope(number: u32) -> Scope {
        *Sha256::digest(number.to_be_bytes()).first_chunk().expect("a hash is longer")
    }

    fn filter(scopes: std::ops::Range<u32>) -> Filter {
        let mut filter = Filter::new(scopes.len());
        scopes.for_each(|number| filter.add(&scope(number)));
        filter
    }

    #[test]
    fn a_full_filter_has_all_that_it_was_given_and_hardly_anything_else() {
        let filter = filter(0..SCOPES);
        assert!((0..SCOPES).all(|number| filter.may_have(&scope(number))));
        let others = SCOPES..SCOPES + 3_000_000;
        let others = others.filter(|number| filter.may_have(&scope(*number))).count();
        // One in 700,000 would be 4.
        assert!((1..=15).contains(&others), "{others}");
    }

    #[test]
    fn many_filters_say_what_each_of_them_says() {
        const EACH: u32 = 16;
        let all: Vec<_> = (0..37).map(|part| filter(part * EACH..(part + 1) * EACH)).collect();
        let mut filters = Filters::default();
        let mut in_none = 0;
        for (place, filter) in all.iter().enumerate() {
            assert_eq!(filters.count(), place);
            filters.push(filter);
            for number in 0..40 * EACH {
                let scope = scope(number);
                let asked = all.iter().take(place + 1).enumerate().rev();
                let each: Vec<_> =
                    asked.filter(|(_, it)| it.may_have(&scope)).map(|(at, _)| at).collect();
                assert_eq!(filters.that_may_have(&scope).collect::<Vec<_>>(), each);
                in_none += u32::from(each.is_empty());
            }
        }
        assert!(in_none > 37 * EACH, "{in_none}");
    }
}
