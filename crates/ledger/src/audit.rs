//! Folds the recorded history again and compares it with what the balances say.
//!
//! The audit shares no arithmetic with [`crate::apply`]: it takes rows as they were found, however
//! damaged, sums them in i128 and believes nothing. Rows are pushed into it one by one, so that
//! their reader may stream; it holds one sum per account and the entries of postings that
//! are still pending. It names identifiers, never amounts, and repairs nothing.
//!
//! First every posting with its changes of phase ([`Audit::pended`], [`Audit::posted`],
//! [`Audit::voided`], [`Audit::resolved`]), then every stored balance ([`Audit::cached`]), then
//! [`Audit::finish`].

use std::collections::BTreeMap;
use std::fmt;

use domain::currency::Currency;
use domain::money::AMOUNT_MAX;

use crate::account::{AccountKey, Balance, Counters, Side};
use crate::posting::{Entry, Resolution};

/// The predicates that the audit checks.
pub mod predicate {
    /// Every posting has two sides and balances in every currency.
    pub const POSTING_BALANCES: &str = "L1";
    /// The sum over all accounts of a currency is zero, in the history and in the balances.
    pub const BOOK_BALANCES: &str = "L2";
    /// A stored balance counts as posted what its entries say.
    pub const BALANCE_IS_ITS_HISTORY: &str = "L3";
    /// No account that must stay covered has less than nothing available.
    pub const COVERED: &str = "L4";
    /// Every amount and counter is inside its limits.
    pub const WITHIN_LIMITS: &str = "L5";
    /// Every account has a currency.
    pub const ACCOUNT_HAS_CURRENCY: &str = "L6";
    /// Every posting is recorded once and resolved at most once.
    pub const RESOLVED_ONCE: &str = "H1";
    /// A stored balance counts as pending what the unresolved postings say.
    pub const PENDING_IS_UNRESOLVED: &str = "H2";
}

/// One entry as it was found.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct RawEntry {
    /// The account.
    pub account: AccountKey,
    /// The side.
    pub side: Side,
    /// The amount in smallest units, whatever it is.
    pub minor: i64,
}

impl From<&Entry> for RawEntry {
    fn from(entry: &Entry) -> Self {
        Self { account: entry.account(), side: entry.side(), minor: entry.amount().minor() }
    }
}

/// One predicate that does not hold.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct Break {
    /// Which one, of [`predicate`].
    pub predicate: &'static str,
    /// Where and how, by identifiers only.
    pub what: String,
}

impl fmt::Display for Break {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.predicate, self.what)
    }
}

/// The four counters without a limit, in smallest units.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Sums {
    /// Debits that wait for their resolution.
    pub debits_pending: i128,
    /// Debits that count.
    pub debits_posted: i128,
    /// Credits that wait for their resolution.
    pub credits_pending: i128,
    /// Credits that count.
    pub credits_posted: i128,
}

impl Sums {
    fn pending(&mut self, side: Side) -> &mut i128 {
        match side {
            Side::Debit => &mut self.debits_pending,
            Side::Credit => &mut self.credits_pending,
        }
    }

    fn posted(&mut self, side: Side) -> &mut i128 {
        match side {
            Side::Debit => &mut self.debits_posted,
            Side::Credit => &mut self.credits_posted,
        }
    }

    /// Adds each counter of `other`.
    pub fn add(&mut self, other: Self) {
        self.debits_pending += other.debits_pending;
        self.debits_posted += other.debits_posted;
        self.credits_pending += other.credits_pending;
        self.credits_posted += other.credits_posted;
    }

    /// Whether there is a credit for every debit.
    pub fn balances(&self) -> bool {
        self.debits_pending == self.credits_pending && self.debits_posted == self.credits_posted
    }

    fn covered(&self) -> bool {
        self.credits_posted >= self.debits_posted + self.debits_pending
    }
}

impl From<Counters> for Sums {
    fn from(counters: Counters) -> Self {
        Self {
            debits_pending: counters.debits_pending,
            debits_posted: counters.debits_posted,
            credits_pending: counters.credits_pending,
            credits_posted: counters.credits_posted,
        }
    }
}

/// An audit under way. `R` is what names a posting, printed when it is at fault.
#[derive(Debug)]
pub struct Audit<R> {
    folded: BTreeMap<AccountKey, Sums>,
    unresolved: BTreeMap<R, Vec<RawEntry>>,
    history: BTreeMap<Currency, Sums>,
    cached: BTreeMap<Currency, Sums>,
    breaks: Vec<Break>,
}

impl<R> Default for Audit<R> {
    fn default() -> Self {
        Self {
            folded: BTreeMap::new(),
            unresolved: BTreeMap::new(),
            history: BTreeMap::new(),
            cached: BTreeMap::new(),
            breaks: Vec::new(),
        }
    }
}

impl<R: Ord + fmt::Display> Audit<R> {
    /// An audit that has seen nothing.
    pub fn new() -> Self {
        Self::default()
    }

    /// A posting was recorded as pending.
    pub fn pended<I>(&mut self, posting: R, entries: I)
    where
        I: IntoIterator<Item: Into<RawEntry>>,
    {
        let entries = self.checked(&posting, entries);
        if self.unresolved.contains_key(&posting) {
            self.found(predicate::RESOLVED_ONCE, format!("{posting} is recorded twice"));
            return;
        }
        for entry in &entries {
            *self.sums(entry.account).pending(entry.side) += i128::from(entry.minor);
        }
        self.unresolved.insert(posting, entries);
    }

    /// A posting was recorded as final.
    pub fn posted<I>(&mut self, posting: R, entries: I)
    where
        I: IntoIterator<Item: Into<RawEntry>>,
    {
        for entry in self.checked(&posting, entries) {
            *self.sums(entry.account).posted(entry.side) += i128::from(entry.minor);
        }
    }

    /// A posting was found that is voided: it must balance, and counts nowhere.
    pub fn voided<I>(&mut self, posting: R, entries: I)
    where
        I: IntoIterator<Item: Into<RawEntry>>,
    {
        self.checked(&posting, entries);
    }

    /// A posting that was recorded as pending became final or undone.
    pub fn resolved(&mut self, posting: R, resolution: Resolution) {
        let Some(entries) = self.unresolved.remove(&posting) else {
            let what = format!("{posting} is resolved but not pending");
            self.found(predicate::RESOLVED_ONCE, what);
            return;
        };
        for entry in entries {
            let amount = i128::from(entry.minor);
            let sums = self.sums(entry.account);
            *sums.pending(entry.side) -= amount;
            match resolution {
                Resolution::Post => *sums.posted(entry.side) += amount,
                Resolution::Void => {}
            }
        }
    }

    /// Every account with entries and what they come to; call it when the history is complete.
    pub fn folded(&self) -> impl Iterator<Item = (AccountKey, Sums)> {
        self.folded.iter().map(|(account, sums)| (*account, *sums))
    }

    /// A stored balance, compared with everything recorded; call it when the history is complete.
    pub fn cached(&mut self, account: AccountKey, counters: Counters) {
        let folded = self.folded.remove(&account).unwrap_or_default();
        let cached = Sums::from(counters);
        if let Err(invalid) = Balance::from_counters(counters) {
            let which = match invalid {
                crate::account::InvalidBalance::Negative { name, .. } => name,
                crate::account::InvalidBalance::TooLarge { side, .. } => side,
            };
            let what = format!("{account} has {which} outside their limits");
            self.found(predicate::WITHIN_LIMITS, what);
        }
        self.compare(account, folded, cached);
        match account.currency() {
            Some(currency) => {
                self.history.entry(currency).or_default().add(folded);
                self.cached.entry(currency).or_default().add(cached);
            }
            None => self.found(predicate::ACCOUNT_HAS_CURRENCY, account.to_string()),
        }
    }

    /// Everything that does not hold, in the order of the predicates.
    pub fn finish(mut self) -> Vec<Break> {
        // Accounts without a stored balance must have come to nothing.
        for account in self.folded.keys().copied().collect::<Vec<_>>() {
            self.cached(account, Counters::default());
        }
        let mut breaks = self.breaks;
        for (of, totals) in [("entries", &self.history), ("balances", &self.cached)] {
            for (currency, _) in totals.iter().filter(|(_, sums)| !sums.balances()) {
                let what = format!("debits and credits of all {of} in {currency} differ");
                breaks.push(Break { predicate: predicate::BOOK_BALANCES, what });
            }
        }
        breaks.sort();
        breaks.dedup();
        breaks
    }

    fn compare(&mut self, account: AccountKey, folded: Sums, cached: Sums) {
        for (name, predicate, folded, cached) in [
            (
                "debits_pending",
                predicate::PENDING_IS_UNRESOLVED,
                folded.debits_pending,
                cached.debits_pending,
            ),
            (
                "credits_pending",
                predicate::PENDING_IS_UNRESOLVED,
                folded.credits_pending,
                cached.credits_pending,
            ),
            (
                "debits_posted",
                predicate::BALANCE_IS_ITS_HISTORY,
                folded.debits_posted,
                cached.debits_posted,
            ),
            (
                "credits_posted",
                predicate::BALANCE_IS_ITS_HISTORY,
                folded.credits_posted,
                cached.credits_posted,
            ),
        ] {
            if folded != cached {
                self.found(predicate, format!("{name} of {account} differ from its entries"));
            }
        }
        if account.must_stay_covered() && !(folded.covered() && cached.covered()) {
            self.found(predicate::COVERED, format!("{account} has less than 0 available"));
        }
    }

    /// Checks the entries of one posting by themselves and hands them back.
    fn checked<I>(&mut self, posting: &R, entries: I) -> Vec<RawEntry>
    where
        I: IntoIterator<Item: Into<RawEntry>>,
    {
        let entries: Vec<RawEntry> = entries.into_iter().map(Into::into).collect();
        if entries.len() < 2 {
            let what = format!("{posting} has fewer than 2 entries");
            self.found(predicate::POSTING_BALANCES, what);
        }
        let mut nets: BTreeMap<Currency, i128> = BTreeMap::new();
        for entry in &entries {
            let account = entry.account;
            if !(1..=AMOUNT_MAX).contains(&entry.minor) {
                let what = format!("{posting} moves an amount outside its limits on {account}");
                self.found(predicate::WITHIN_LIMITS, what);
            }
            let Some(currency) = account.currency() else {
                let what = format!("{posting} has an entry on {account}");
                self.found(predicate::ACCOUNT_HAS_CURRENCY, what);
                continue;
            };
            let net = nets.entry(currency).or_default();
            match entry.side {
                Side::Debit => *net += i128::from(entry.minor),
                Side::Credit => *net -= i128::from(entry.minor),
            }
        }
        for (currency, _) in nets.into_iter().filter(|(_, net)| *net != 0) {
            let what = format!("{posting} does not balance in {currency}");
            self.found(predicate::POSTING_BALANCES, what);
        }
        entries
    }

    fn sums(&mut self, account: AccountKey) -> &mut Sums {
        self.folded.entry(account).or_default()
    }

    fn found(&mut self, predicate: &'static str, what: String) {
        self.breaks.push(Break { predicate, what });
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use domain::id::{InternalAccountId, PlatformId};
    use uuid::Uuid;

    fn usd() -> Currency {
        Currency::from_code("USD").expect("known currency")
    }

    fn platform() -> PlatformId {
        PlatformId::from_uuid(Uuid::from_u128(1 << 16))
    }

    fn exchange() -> AccountKey {
        AccountKey::Exchange { platform: platform(), currency: usd() }
    }

    fn suspense() -> AccountKey {
        AccountKey::Suspense { platform: platform(), currency: usd() }
    }

    fn entry(account: AccountKey, side: Side, minor: i64) -> RawEntry {
        RawEntry { account, side, minor }
    }

    /// A posting of 5 from the exchange account to suspense.
    fn good() -> [RawEntry; 2] {
        [entry(exchange(), Side::Debit, 5), entry(suspense(), Side::Credit, 5)]
    }

    fn check(tell: impl FnOnce(&mut Audit<&'static str>), expected: &[&str]) {
        let mut audit = Audit::new();
        tell(&mut audit);
        let breaks = audit.finish();
        let acme = platform().to_string();
        let breaks: Vec<_> =
            breaks.iter().map(|it| it.to_string().replace(&acme, "Acme")).collect();
        assert_eq!(breaks, expected);
    }

    fn show_good_balances(audit: &mut Audit<&'static str>) {
        let debited = Counters { debits_posted: 5, ..Counters::default() };
        let credited = Counters { credits_posted: 5, ..Counters::default() };
        audit.cached(exchange(), debited);
        audit.cached(suspense(), credited);
    }

    #[test]
    fn a_sound_book_has_no_breaks() {
        check(|_| (), &[]);
        check(
            |audit| {
                audit.posted("p1", good());
                show_good_balances(audit);
            },
            &[],
        );
        check(
            |audit| {
                audit.pended("p1", good());
                audit.pended("p2", good());
                audit.resolved("p1", Resolution::Post);
                audit.resolved("p2", Resolution::Void);
                audit.voided("p3", good());
                show_good_balances(audit);
            },
            &[],
        );
    }

    #[test]
    fn postings_that_do_not_balance_are_named() {
        let [debit, credit] = good();
        check(
            |audit| {
                audit.voided("one-sided", [debit]);
                audit.voided("uneven", [debit, entry(credit.account, Side::Credit, 4)]);
                audit.voided("overfull", [debit, entry(credit.account, Side::Credit, 6)]);
                audit.voided("empty", Vec::<RawEntry>::new());
            },
            &[
                "L1: empty has fewer than 2 entries",
                "L1: one-sided does not balance in USD",
                "L1: one-sided has fewer than 2 entries",
                "L1: overfull does not balance in USD",
                "L1: uneven does not balance in USD",
            ],
        );
    }

    #[test]
    fn entries_outside_the_limits_are_named() {
        let [debit, credit] = good();
        let unknown = AccountKey::Internal(InternalAccountId::from_uuid(Uuid::nil()));
        check(
            |audit| {
                let nothing =
                    [entry(debit.account, debit.side, 0), entry(credit.account, credit.side, 0)];
                audit.voided("nothing", nothing);
                audit.voided("nowhere", [debit, credit, entry(unknown, Side::Debit, 1)]);
            },
            &[
                "L5: nothing moves an amount outside its limits on exchange Acme USD",
                "L5: nothing moves an amount outside its limits on suspense Acme USD",
                "L6: nowhere has an entry on internal \
                 InternalAccount:00000000-0000-0000-0000-000000000000 of unknown currency",
            ],
        );
        // The largest integers of the storage must not stop the audit.
        let mut audit = Audit::new();
        for posting in ["p1", "p2", "p3"] {
            let extremes = [
                entry(debit.account, Side::Debit, i64::MIN),
                entry(credit.account, Side::Credit, i64::MAX),
            ];
            audit.pended(posting, extremes);
            audit.resolved(posting, Resolution::Post);
        }
        let counters = Counters {
            debits_posted: i64::MIN.into(),
            credits_posted: i64::MIN.into(),
            debits_pending: i128::MAX / 4,
            credits_pending: i64::MIN.into(),
        };
        audit.cached(debit.account, counters);
        audit.cached(debit.account, counters);
        assert!(!audit.finish().is_empty());
    }

    #[test]
    fn phases_are_followed() {
        check(
            |audit| {
                audit.pended("p1", good());
                audit.resolved("p1", Resolution::Post);
                audit.resolved("p1", Resolution::Post);
                audit.resolved("p2", Resolution::Void);
                show_good_balances(audit);
            },
            &["H1: p1 is resolved but not pending", "H1: p2 is resolved but not pending"],
        );
        check(
            |audit| {
                audit.pended("p1", good());
                audit.pended("p1", good());
                audit.resolved("p1", Resolution::Void);
            },
            &["H1: p1 is recorded twice"],
        );
    }

    #[test]
    fn balances_that_differ_from_their_history_are_named() {
        check(
            |audit| {
                audit.posted("p1", good());
                audit.pended("p2", good());
                show_good_balances(audit);
            },
            &[
                "H2: credits_pending of suspense Acme USD differ from its entries",
                "H2: debits_pending of exchange Acme USD differ from its entries",
            ],
        );
        let one_more = Counters { debits_posted: 6, ..Counters::default() };
        check(
            |audit| {
                audit.posted("p1", good());
                audit.cached(exchange(), one_more);
            },
            &[
                "L2: debits and credits of all balances in USD differ",
                "L3: credits_posted of suspense Acme USD differ from its entries",
                "L3: debits_posted of exchange Acme USD differ from its entries",
            ],
        );
    }

    #[test]
    fn an_account_that_is_not_covered_is_named() {
        let taken = [entry(suspense(), Side::Debit, 5), entry(exchange(), Side::Credit, 5)];
        let mut audit = Audit::new();
        audit.pended("p1", taken);
        let pending = Counters { debits_pending: 5, ..Counters::default() };
        audit.cached(suspense(), pending);
        let pending = Counters { credits_pending: 5, ..Counters::default() };
        audit.cached(exchange(), pending);
        let what = format!("{} has less than 0 available", suspense());
        assert_eq!(audit.finish(), [Break { predicate: predicate::COVERED, what }]);
    }
}
