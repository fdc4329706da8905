//! Chance: the system's, and one that repeats itself.

use std::sync::atomic::{AtomicU64, Ordering};

use ports::entropy::Entropy;

/// The random source of the operating system.
#[derive(Debug, Clone, Copy, Default)]
pub struct SystemEntropy;

impl Entropy for SystemEntropy {
    fn fill(&self, bytes: &mut [u8]) {
        #[expect(clippy::disallowed_methods, reason = "this is the source of chance")]
        let filled = getrandom::fill(bytes);
        filled.expect(
            "every supported system has a random source once it has started; without one, tokens \
             and keys could be guessed, so nothing may go on",
        );
    }
}

/// Bytes that look random and follow from a seed, for tests and the simulator: the same seed and
/// the same order of calls give the same bytes. Anyone who knows the seed can predict them.
#[derive(Debug)]
pub struct SeededEntropy {
    state: AtomicU64,
}

/// Step of the SplitMix64 generator (Steele, Lea and Flood, 2014): a few lines that pass the usual
/// tests of randomness.
const STEP: u64 = 0x9e37_79b9_7f4a_7c15;

impl SeededEntropy {
    /// Chance that follows from `seed`.
    pub fn new(seed: u64) -> Self {
        Self { state: AtomicU64::new(seed) }
    }

    fn next(&self) -> u64 {
        let state = self.state.fetch_add(STEP, Ordering::Relaxed).wrapping_add(STEP);
        let mixed = (state ^ (state >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ (mixed >> 31)
    }
}

impl Entropy for SeededEntropy {
    fn fill(&self, bytes: &mut [u8]) {
        for chunk in bytes.chunks_mut(size_of::<u64>()) {
            let random = self.next().to_le_bytes();
            chunk.copy_from_slice(&random[..chunk.len()]);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_system_fills_every_byte() {
        let mut seen = [0_u8; 40];
        // A byte stays zero in all of 64 draws once in 2^512 runs.
        for _ in 0..64 {
            let mut bytes = [0; 40];
            SystemEntropy.fill(&mut bytes);
            seen.iter_mut().zip(bytes).for_each(|(seen, byte)| *seen |= byte);
        }
        assert!(!seen.contains(&0), "{seen:?}");
        assert_ne!(SystemEntropy.number(), SystemEntropy.number());
    }

    #[test]
    fn a_seed_gives_the_published_sequence() {
        let entropy = SeededEntropy::new(1_234_567);
        let numbers = [entropy.number(), entropy.number(), entropy.number()];
        assert_eq!(
            numbers,
            [6_457_827_717_110_365_317, 3_203_168_211_198_807_973, 9_817_491_932_198_370_423]
        );
    }

    #[test]
    fn the_same_seed_gives_the_same_bytes_and_another_seed_others() {
        let bytes = |seed| {
            let mut bytes = [0; 21];
            SeededEntropy::new(seed).fill(&mut bytes);
            bytes
        };
        assert_eq!(bytes(7), bytes(7));
        assert_ne!(bytes(7), bytes(8));
        assert_ne!(bytes(7)[16..], [0; 5]);
    }
}
