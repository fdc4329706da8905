//! The reconciliation reference of a transaction, which leads back to its id.

use crate::id::TransactionId;

/// Crockford's base 32: no I, L, O, U, so that it survives being read aloud.
const REFERENCE_DIGITS: &[u8; 32] = b"0123456789ABCDEFGHJKMNPQRSTVWXYZ";

/// The prefix of every reference.
const REFERENCE_PREFIX: &str = "SY-";

/// Digits of a reference, five bits each: 42 bits of milliseconds (until the year 2109), the 12
/// bits of the counter, and 46 of the 62 random bits of an id.
const REFERENCE_LENGTH: u32 = 20;

/// Random bits of an id that its reference does not hold.
const UNREFERENCED_BITS: u32 = 16;

/// The reconciliation reference of a transaction: 20 letters and digits that a bank statement
/// carries whole, made from the id. It leads back to the id ([`referenced`]), so nothing has to be
/// looked up by it.
pub fn reference(id: TransactionId) -> String {
    let id = id.uuid().as_u128();
    let (millis, counter) = (id >> 80, (id >> 64) & 0xfff);
    let random = (id & ((1 << 62) - 1)) >> UNREFERENCED_BITS;
    let bits = (millis << 58 | counter << 46 | random) & ((1 << 100) - 1);
    let digits = (0..REFERENCE_LENGTH).rev().map(|index| {
        let digit = (bits >> (5 * index)) & 0x1f;
        char::from(REFERENCE_DIGITS[digit as usize])
    });
    REFERENCE_PREFIX.chars().chain(digits).collect()
}

/// The ids that have this reference: all from the first to the last. Nothing that is drawn on one
/// server or on several shares its reference with another (46 random bits in one millisecond). None
/// if this is no reference.
pub fn referenced(text: &str) -> Option<(TransactionId, TransactionId)> {
    let digits = text.strip_prefix(REFERENCE_PREFIX)?;
    if digits.len() != REFERENCE_LENGTH as usize {
        return None;
    }
    let bits = digits.bytes().try_fold(0_u128, |bits, byte| {
        let digit = REFERENCE_DIGITS.iter().position(|digit| *digit == byte)?;
        Some(bits << 5 | digit as u128)
    })?;
    let (millis, counter, random) = (bits >> 58, (bits >> 46) & 0xfff, bits & ((1 << 46) - 1));
    let first = millis << 80 | 0x7 << 76 | counter << 64 | 0b10 << 62 | random << UNREFERENCED_BITS;
    let last = first | ((1 << UNREFERENCED_BITS) - 1);
    let id = |bits| TransactionId::from_uuid(uuid::Uuid::from_u128(bits));
    Some((id(first), id(last)))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::time::Timestamp;

    #[test]
    fn references_are_readable_and_differ() {
        let mut ids = crate::id::IdSequence::default();
        let now = Timestamp::from_millis(1_760_000_000_000);
        let first = reference(TransactionId::from_uuid(ids.next(now, 0)));
        let second = reference(TransactionId::from_uuid(ids.next(now, 0)));
        assert_ne!(first, second);
        assert_eq!(first.len(), 23);
    }

    #[test]
    fn references_lead_back_to_their_ids() {
        let mut ids = crate::id::IdSequence::default();
        for (millis, random) in [(0, 0), (1_760_000_000_000, u64::MAX), (4_398_046_511_103, 77)] {
            let id = ids.next(Timestamp::from_millis(millis), random);
            let reference = reference(TransactionId::from_uuid(id));
            let (first, last) = referenced(&reference).expect("a reference");
            assert!((first.uuid()..=last.uuid()).contains(&id), "{reference}");
            assert_eq!(super::reference(first), reference);
            assert_eq!(super::reference(last), reference);
        }
        for wrong in ["", "SY-", "SY-1", "SY-0000000000000000000I", "sy-00000000000000000000"] {
            assert_eq!(referenced(wrong), None, "{wrong}");
        }
    }
}
