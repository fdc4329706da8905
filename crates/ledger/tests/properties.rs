//! What holds for every sequence of movements, and what the audit finds in every damaged one.

use std::collections::BTreeMap;

use domain::currency::Currency;
use domain::id::{CustomerId, InternalAccountId, Owner, PlatformId};
use domain::money::{AMOUNT_MAX, Money, Receiving, Sending};
use domain::rail::Rail;
use ledger::account::{AccountKey, Balance, Counters, Side};
use ledger::apply::{self, ApplyError, Balances, Refusal};
use ledger::audit::{Audit, Break, RawEntry};
use ledger::book::{Book, PostingRef, ResolveError};
use ledger::movements::{self, Movement, Source, Target};
use ledger::posting::{Phase, Posting, PostingError, Resolution};
use proptest::prelude::*;
use proptest::sample::Index;
use uuid::Uuid;

/// One thing that the business asks of the ledger.
#[derive(Debug, Clone)]
enum Request {
    Move { movement: Movement, parts: Parts, pended: bool },
    Resolve { posting: Index, resolution: Resolution },
    Reverse { posting: Index },
}

/// What movements are made of; each takes what it needs.
#[derive(Debug, Clone, Copy)]
struct Parts {
    from: Owner,
    to: Owner,
    rail: Rail,
    amount: Money,
    fees: i64,
    received: Money,
    from_suspense: bool,
    to_rail: bool,
}

fn platform() -> PlatformId {
    PlatformId::from_uuid(Uuid::from_u128(1 << 16))
}

fn fees_of(parts: &Parts, currency: Currency) -> Result<Money, PostingError> {
    Ok(Money::new(parts.fees, currency)?)
}

fn posting(movement: Movement, parts: &Parts) -> Result<Posting, PostingError> {
    let &Parts { rail, amount, received, .. } = parts;
    let from = InternalAccountId::of(parts.from, amount.currency());
    let to = InternalAccountId::of(parts.to, amount.currency());
    let receiver = InternalAccountId::of(parts.to, received.currency());
    match movement {
        Movement::Deposit => movements::deposit(platform(), rail, to, amount),
        Movement::TransferOut => movements::transfer_out(platform(), from, rail, amount),
        Movement::TransferIn => movements::transfer_in(platform(), rail, to, amount),
        Movement::Exchange => {
            let source =
                if parts.from_suspense { Source::Suspense } else { Source::Internal(from) };
            let target =
                if parts.to_rail { Target::Rail(rail) } else { Target::Internal(receiver) };
            let fees = fees_of(parts, amount.currency())?;
            let (sent, received) = (Sending(amount), Receiving(received));
            movements::exchange(source, target, platform(), sent, fees, received)
        }
        Movement::Receipt => {
            let fees = fees_of(parts, received.currency())?;
            let (sent, received) = (Sending(amount), Receiving(received));
            movements::receipt(rail, receiver, platform(), sent, fees, received)
        }
        Movement::Delivery => movements::delivery(to, amount),
        Movement::Payout => {
            let (fees, amount) = (fees_of(parts, amount.currency())?, Receiving(amount));
            movements::payout(from, rail, platform(), amount, fees, received)
        }
        Movement::Funding => movements::funding(platform(), rail, amount),
        Movement::Suspense => movements::suspense(platform(), rail, amount),
        Movement::SuspenseReturn => movements::suspense_return(platform(), to, amount),
        Movement::Return => {
            movements::deposit(platform(), rail, to, amount).map(|it| movements::reverse(&it))
        }
    }
}

fn owners() -> impl Strategy<Value = Owner> {
    prop_oneof![
        Just(Owner::Platform(platform())),
        (2..4_u128).prop_map(|n| Owner::Customer(CustomerId::from_uuid(Uuid::from_u128(n << 16)))),
    ]
}

/// Small amounts meet often; large ones find the limits.
fn amounts() -> impl Strategy<Value = Money> {
    let minor = prop_oneof![8 => 0..200_i64, 1 => 0..=AMOUNT_MAX, 1 => Just(AMOUNT_MAX)];
    (minor, prop::sample::select(vec!["USD", "EUR", "BTC"])).prop_map(|(minor, code)| {
        let currency = Currency::from_code(code).expect("known currency");
        Money::new(minor, currency).expect("in range")
    })
}

fn parts() -> impl Strategy<Value = Parts> {
    let rails = prop::sample::select(vec![Rail::Ach, Rail::Sepa]);
    let fees = prop_oneof![3 => 0..5_i64, 1 => 0..300_i64];
    (owners(), owners(), rails, amounts(), fees, amounts(), any::<bool>(), any::<bool>()).prop_map(
        |(from, to, rail, amount, fees, received, from_suspense, to_rail)| Parts {
            from,
            to,
            rail,
            amount,
            fees,
            received,
            from_suspense,
            to_rail,
        },
    )
}

fn resolutions() -> impl Strategy<Value = Resolution> {
    prop_oneof![Just(Resolution::Post), Just(Resolution::Void)]
}

fn requests() -> impl Strategy<Value = Vec<Request>> {
    let movement = (prop::sample::select(Movement::ALL), parts(), any::<bool>())
        .prop_map(|(movement, parts, pended)| Request::Move { movement, parts, pended });
    let resolve = (any::<Index>(), resolutions())
        .prop_map(|(posting, resolution)| Request::Resolve { posting, resolution });
    let reverse = any::<Index>().prop_map(|posting| Request::Reverse { posting });
    prop::collection::vec(prop_oneof![6 => movement, 3 => resolve, 1 => reverse], 1..60)
}

/// A row of history as a store would keep it.
#[derive(Debug, Clone)]
enum Row {
    Pended(PostingRef, Vec<RawEntry>),
    Posted(PostingRef, Vec<RawEntry>),
    Resolved(PostingRef, Resolution),
}

impl Row {
    fn entries(&mut self) -> Option<&mut Vec<RawEntry>> {
        match self {
            Self::Pended(_, entries) | Self::Posted(_, entries) => Some(entries),
            Self::Resolved(..) => None,
        }
    }
}

/// A book with the rows that were recorded while it was kept.
#[derive(Debug, Clone, Default)]
struct Kept {
    book: Book,
    rows: Vec<Row>,
}

fn raw(posting: &Posting) -> Vec<RawEntry> {
    posting.entries().iter().map(RawEntry::from).collect()
}

impl Kept {
    /// Runs one request. Whatever is refused must have changed nothing.
    fn run(&mut self, request: &Request) {
        let before = self.book.clone();
        let changed = match request {
            Request::Move { movement, parts, pended } => match posting(*movement, parts) {
                Ok(posting) => self.book_posting(posting, *pended),
                Err(_) => false,
            },
            Request::Reverse { posting } => match self.pick(posting) {
                Some(name) => {
                    let settled = self.book.posting(name).expect("picked").posting.clone();
                    self.book_posting(movements::reverse(&settled), false)
                }
                None => false,
            },
            Request::Resolve { posting, resolution } => match self.pick(posting) {
                Some(name) => self.resolve(name, *resolution),
                None => false,
            },
        };
        assert_eq!(changed, self.book != before, "{request:?}");
    }

    fn pick(&self, index: &Index) -> Option<PostingRef> {
        let count = self.book.postings().count();
        (count > 0).then(|| PostingRef(index.index(count)))
    }

    fn book_posting(&mut self, posting: Posting, pended: bool) -> bool {
        let entries = raw(&posting);
        let booked = if pended { self.book.pend(posting) } else { self.book.post(posting) };
        match booked {
            Ok(name) if pended => self.rows.push(Row::Pended(name, entries)),
            Ok(name) => self.rows.push(Row::Posted(name, entries)),
            Err(Refusal::NotPending { account }) => panic!("{account} was not resolved"),
            Err(_) => {}
        }
        booked.is_ok()
    }

    fn resolve(&mut self, name: PostingRef, resolution: Resolution) -> bool {
        let phase = self.book.posting(name).expect("picked").phase;
        match self.book.resolve(name, resolution) {
            Ok(()) => {
                assert_eq!(phase, Phase::Pending, "{name} was resolved twice");
                self.rows.push(Row::Resolved(name, resolution));
                true
            }
            // What could be pended can be resolved: the balances refuse no legal resolution.
            Err(ResolveError::AlreadyResolved(already)) => {
                assert_ne!(phase, Phase::Pending);
                assert_eq!(phase, already.phase);
                false
            }
            Err(error) => panic!("{name}: {error}"),
        }
    }

    fn cached(&self) -> BTreeMap<AccountKey, Counters> {
        self.book.balances().map(|(account, balance)| (account, balance.counters())).collect()
    }
}

fn keep(requests: &[Request]) -> Kept {
    let mut kept = Kept::default();
    for request in requests {
        kept.run(request);
    }
    kept
}

fn audit(rows: &[Row], cached: &BTreeMap<AccountKey, Counters>) -> Vec<Break> {
    let mut audit = Audit::new();
    for row in rows.iter().cloned() {
        match row {
            Row::Pended(name, entries) => audit.pended(name, entries),
            Row::Posted(name, entries) => audit.posted(name, entries),
            Row::Resolved(name, resolution) => audit.resolved(name, resolution),
        }
    }
    for (account, counters) in cached {
        audit.cached(*account, *counters);
    }
    audit.finish()
}

/// What a disk, a hand or a bug may do to the record.
#[derive(Debug, Clone, Copy)]
enum Damage {
    AmountChanged,
    SideSwapped,
    AccountChanged,
    EntryDropped,
    RowDropped,
    ResolutionRepeated,
    CachedChanged,
    CachedDropped,
}

fn damages() -> impl Strategy<Value = Damage> {
    prop::sample::select(vec![
        Damage::AmountChanged,
        Damage::SideSwapped,
        Damage::AccountChanged,
        Damage::EntryDropped,
        Damage::RowDropped,
        Damage::ResolutionRepeated,
        Damage::CachedChanged,
        Damage::CachedDropped,
    ])
}

/// Damages the record in one place; false when it has no such place.
fn damage(
    rows: &mut Vec<Row>,
    cached: &mut BTreeMap<AccountKey, Counters>,
    damage: Damage,
    at: Index,
    by: i64,
) -> bool {
    // A void that is damaged as a whole leaves what it voided out of every sum, so the damage is
    // done to what still counts: postings that are pending or posted.
    let voided: Vec<_> = rows
        .iter()
        .filter_map(|row| match row {
            Row::Resolved(name, Resolution::Void) => Some(*name),
            _ => None,
        })
        .collect();
    let counts = |row: &Row| match row {
        Row::Pended(name, _) | Row::Posted(name, _) => !voided.contains(name),
        Row::Resolved(..) => false,
    };
    let mut entries: Vec<(usize, usize)> = Vec::new();
    for (row, recorded) in rows.iter_mut().enumerate().filter(|(_, row)| counts(row)) {
        let count = recorded.entries().map_or(0, |entries| entries.len());
        entries.extend((0..count).map(|entry| (row, entry)));
    }
    let resolved: Vec<_> =
        (0..rows.len()).filter(|index| matches!(rows[*index], Row::Resolved(..))).collect();
    let accounts: Vec<_> = cached.keys().copied().collect();
    match damage {
        Damage::AmountChanged
        | Damage::SideSwapped
        | Damage::AccountChanged
        | Damage::EntryDropped => {
            if entries.is_empty() {
                return false;
            }
            let (row, index) = entries[at.index(entries.len())];
            let entries = rows[row].entries().expect("has entries");
            let entry = &mut entries[index];
            match damage {
                Damage::AmountChanged => entry.minor = entry.minor.wrapping_add(by),
                Damage::SideSwapped => entry.side = entry.side.opposite(),
                Damage::AccountChanged => {
                    let currency = entry.account.currency().expect("booked");
                    let wire =
                        AccountKey::Rail { platform: platform(), rail: Rail::Wire, currency };
                    assert_ne!(entry.account, wire, "no request uses this rail");
                    entry.account = wire;
                }
                _ => drop(entries.remove(index)),
            }
        }
        Damage::RowDropped => {
            if entries.is_empty() {
                return false;
            }
            rows.remove(entries[at.index(entries.len())].0);
        }
        Damage::ResolutionRepeated => {
            if resolved.is_empty() {
                return false;
            }
            let row = rows[resolved[at.index(resolved.len())]].clone();
            rows.push(row);
        }
        Damage::CachedChanged | Damage::CachedDropped => {
            // An account whose pendings were all voided counts nothing and may be forgotten.
            let accounts: Vec<_> = accounts
                .into_iter()
                .filter(|account| cached[account] != Counters::default())
                .collect();
            if accounts.is_empty() {
                return false;
            }
            let account = accounts[at.index(accounts.len())];
            let counters = cached.get_mut(&account).expect("listed");
            match damage {
                Damage::CachedDropped => drop(cached.remove(&account)),
                _ => match by.rem_euclid(4) {
                    0 => counters.debits_pending += i128::from(by),
                    1 => counters.debits_posted += i128::from(by),
                    2 => counters.credits_pending += i128::from(by),
                    _ => counters.credits_posted += i128::from(by),
                },
            }
        }
    }
    true
}

/// A store that fails on the read after so many.
struct Failing {
    reads_left: usize,
    set: usize,
}

impl Balances for Failing {
    type Error = &'static str;

    fn balance(&mut self, _: &AccountKey) -> Result<Balance, &'static str> {
        self.reads_left = self.reads_left.checked_sub(1).ok_or("disk on fire")?;
        Ok(Balance::ZERO)
    }

    fn set(&mut self, _: AccountKey, _: Balance) {
        self.set += 1;
    }
}

/// Writes down which accounts are read.
#[derive(Default)]
struct Watched {
    read: Vec<AccountKey>,
}

impl Balances for Watched {
    type Error = std::convert::Infallible;

    fn balance(&mut self, account: &AccountKey) -> Result<Balance, Self::Error> {
        self.read.push(*account);
        Ok(Balance::ZERO)
    }

    fn set(&mut self, _: AccountKey, _: Balance) {}
}

proptest! {
    #[test]
    fn a_movement_stays_on_the_accounts_of_its_platform(
        movement in prop::sample::select(Movement::ALL),
        parts in parts(),
    ) {
        let Ok(posting) = posting(movement, &parts) else { return Ok(()) };
        for entry in posting.entries().iter().chain(movements::reverse(&posting).entries()) {
            match entry.account() {
                AccountKey::Internal(_) | AccountKey::Transit(_) => {}
                account => prop_assert_eq!(account.platform(), Some(platform()), "{}", account),
            }
        }
    }

    #[test]
    fn every_movement_balances_in_every_currency(
        movement in prop::sample::select(Movement::ALL),
        parts in parts(),
    ) {
        if let Ok(posting) = posting(movement, &parts) {
            prop_assert_eq!(posting.movement(), movement);
            let mut nets: BTreeMap<Currency, i128> = BTreeMap::new();
            for entry in posting.entries() {
                prop_assert!(entry.amount().minor() > 0);
                prop_assert_eq!(entry.account().currency(), Some(entry.amount().currency()));
                let minor = i128::from(entry.amount().minor());
                *nets.entry(entry.amount().currency()).or_default() += match entry.side() {
                    Side::Debit => minor,
                    Side::Credit => -minor,
                };
            }
            prop_assert!(nets.values().all(|net| *net == 0), "{:?}", posting);
            let reversed = movements::reverse(&posting);
            prop_assert_eq!(reversed.movement(), Movement::Return);
            let again = movements::reverse(&reversed);
            prop_assert_eq!(again.entries(), posting.entries());
        }
    }

    #[test]
    fn no_sequence_of_movements_overdraws_an_account(requests in requests()) {
        let mut kept = Kept::default();
        for request in &requests {
            kept.run(request);
            for (account, balance) in kept.book.balances() {
                if account.must_stay_covered() {
                    prop_assert!(balance.available(Side::Credit) >= 0, "{}", account);
                }
            }
        }
    }

    #[test]
    fn what_is_pending_ends_once(requests in requests(), ends in resolutions()) {
        let mut kept = keep(&requests);
        let names: Vec<_> = kept.book.postings().map(|(name, _)| name).collect();
        for name in names {
            // Refused for what is final already; never for what is pending.
            kept.resolve(name, ends);
            prop_assert!(!kept.resolve(name, Resolution::Post));
            prop_assert!(!kept.resolve(name, Resolution::Void));
        }
        for (account, balance) in kept.book.balances() {
            let pending = (balance.debits_pending(), balance.credits_pending());
            prop_assert_eq!(pending, (0, 0), "{}", account);
        }
        prop_assert_eq!(audit(&kept.rows, &kept.cached()), []);
    }

    #[test]
    fn the_audit_of_any_history_is_clean(requests in requests()) {
        let kept = keep(&requests);
        prop_assert_eq!(audit(&kept.rows, &kept.cached()), []);
        prop_assert_eq!(kept.book.audit(), []);
    }

    #[test]
    fn the_audit_finds_every_damage(
        requests in requests(),
        what in damages(),
        at in any::<Index>(),
        by in any::<i64>().prop_filter("a change", |by| *by != 0),
    ) {
        let kept = keep(&requests);
        let (mut rows, mut cached) = (kept.rows.clone(), kept.cached());
        if damage(&mut rows, &mut cached, what, at, by) {
            prop_assert_ne!(audit(&rows, &cached), []);
        }
    }

    #[test]
    fn a_store_that_fails_half_way_is_left_alone(parts in parts(), reads in 0..6_usize) {
        let parts = Parts { from_suspense: false, to_rail: true, ..parts };
        if let Ok(posting) = posting(Movement::Receipt, &parts) {
            let mut store = Failing { reads_left: reads, set: 0 };
            match apply::post(&mut store, &posting) {
                Ok(()) => prop_assert!(store.set >= 2),
                Err(error) => {
                    prop_assert_eq!(error, ApplyError::Store("disk on fire"));
                    prop_assert_eq!(store.set, 0);
                }
            }
        }
    }

    #[test]
    fn accounts_are_touched_once_in_the_order_of_their_keys(parts in parts()) {
        if let Ok(posting) = posting(Movement::Receipt, &parts) {
            let mut watched = Watched::default();
            prop_assert_eq!(apply::post(&mut watched, &posting), Ok(()));
            prop_assert!(watched.read.is_sorted_by(|one, next| one < next));
        }
    }
}

/// The generators reach what the properties are about; else they would hold of nothing.
#[test]
fn the_generated_histories_are_eventful() {
    use proptest::strategy::ValueTree;
    use proptest::test_runner::TestRunner;

    let mut runner = TestRunner::deterministic();
    let mut seen: BTreeMap<&str, usize> = BTreeMap::new();
    for _ in 0..100 {
        let requests = requests().new_tree(&mut runner).expect("generated").current();
        let mut kept = Kept::default();
        for request in &requests {
            let before = kept.rows.len();
            kept.run(request);
            let refused = kept.rows.len() == before;
            let what = match (request, refused) {
                (Request::Move { .. }, false) => "moved",
                (Request::Move { .. }, true) => "move refused",
                (Request::Resolve { .. }, false) => "resolved",
                (Request::Resolve { .. }, true) => "resolution refused",
                (Request::Reverse { .. }, false) => "reversed",
                (Request::Reverse { .. }, true) => "reversal refused",
            };
            *seen.entry(what).or_default() += 1;
        }
    }
    assert_eq!(seen.len(), 6, "{seen:?}");
    assert!(seen.values().all(|count| *count >= 10), "{seen:?}");
}
