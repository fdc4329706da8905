//! The entries of a posting, as they stand in its row. They are written with it, never change, and
//! no caller reads one without the others. A row of its own for each would be mostly key.
//!
//! Each is a side, an amount and an account's key. Its currency is the account's.

use domain::money::Money;
use ledger::account::{AccountKey, Side};
use ledger::audit::RawEntry;
use ledger::posting::Entry;

const DEBIT: u8 = 0;
const CREDIT: u8 = 1;

/// The bytes of entries.
pub(crate) fn encode(entries: &[Entry]) -> Vec<u8> {
    let mut bytes = Vec::new();
    for entry in entries {
        let account = entry.account().encode();
        bytes.push(match entry.side() {
            Side::Debit => DEBIT,
            Side::Credit => CREDIT,
        });
        bytes.extend_from_slice(&entry.amount().minor().to_be_bytes());
        bytes.push(u8::try_from(account.len()).expect("a key has twenty bytes at most"));
        bytes.extend_from_slice(&account);
    }
    bytes
}

/// Reads entries, whatever they say; nothing if these bytes are none.
pub(crate) fn decode(mut bytes: &[u8]) -> Option<Vec<RawEntry>> {
    let mut entries = Vec::new();
    while let Some((side, rest)) = bytes.split_first() {
        let side = match *side {
            DEBIT => Side::Debit,
            CREDIT => Side::Credit,
            _ => return None,
        };
        let (minor, rest) = rest.split_first_chunk()?;
        let (length, rest) = rest.split_first()?;
        let (account, rest) = rest.split_at_checked(usize::from(*length))?;
        let account = AccountKey::decode(account).ok()?;
        entries.push(RawEntry { account, side, minor: i64::from_be_bytes(*minor) });
        bytes = rest;
    }
    Some(entries)
}

/// The entry that was found, if there can be one like it.
pub(crate) fn checked(found: RawEntry) -> Option<Entry> {
    let RawEntry { account, side, minor } = found;
    let amount = Money::positive(minor, account.currency()?).ok()?;
    Entry::new(account, side, amount).ok()
}

#[cfg(test)]
mod tests {
    use domain::currency::Currency;
    use domain::id::PlatformId;
    use domain::rail::Rail;
    use uuid::Uuid;

    use super::*;

    fn entries() -> [Entry; 2] {
        let currency = Currency::from_code("USD").unwrap();
        let amount = Money::new(1_250, currency).unwrap();
        let platform = PlatformId::from_uuid(Uuid::from_u128(1 << 16));
        let rail = AccountKey::Rail { platform, rail: Rail::Ach, currency };
        let suspense = AccountKey::Suspense { platform, currency };
        [Entry::debit(suspense, amount), Entry::credit(rail, amount)].map(Result::unwrap)
    }

    #[test]
    fn entries_come_back_the_same() {
        let bytes = encode(&entries());
        let read: Option<Vec<_>> = decode(&bytes).unwrap().into_iter().map(checked).collect();
        assert_eq!(read.as_deref(), Some(&entries()[..]));
        assert_eq!(decode(&[]), Some(Vec::new()));
    }

    #[test]
    fn what_are_no_entries_is_refused() {
        let bytes = encode(&entries());
        let first = encode(&entries()[..1]).len();
        for cut in (1..bytes.len()).filter(|cut| *cut != first) {
            assert_eq!(decode(&bytes[..cut]), None, "{cut}");
        }
        let mut other_side = bytes;
        other_side[0] = 2;
        assert_eq!(decode(&other_side), None);
    }

    #[test]
    fn an_entry_of_nothing_is_read_and_is_none() {
        let raw = RawEntry { minor: 0, ..RawEntry::from(&entries()[0]) };
        assert_eq!(checked(raw), None);
        assert_eq!(checked(RawEntry { minor: -1, ..raw }), None);
    }
}
