//! Scenarios as tables: what is asked of the book, and what it answers.
//!
//! One line is one step; `->` is followed by the answer. Amounts are smallest units. Steps:
//!
//! ```text
//! deposit      RAIL TO AMOUNT CODE                       posts
//! transfer_out NAME FROM RAIL AMOUNT CODE                pends as NAME
//! transfer_in  NAME RAIL TO AMOUNT CODE                  pends as NAME
//! exchange     NAME SOURCE TARGET SENT CODE FEES RECEIVED CODE    pends as NAME; `now` posts
//! receipt      RAIL TO SENT CODE FEES RECEIVED CODE      posts
//! funding      RAIL AMOUNT CODE                          posts
//! suspense     RAIL AMOUNT CODE                          posts
//! give_back    TO AMOUNT CODE                            posts a suspense return
//! reverse      NAME                                      posts
//! post | void  NAME
//! balance      ACCOUNT -> debits pending, posted; credits pending, posted
//! ```
//!
//! Accounts: `ada`, `bo` and `acme` own internal accounts (`ada.USD`); `rail.ACH.USD`,
//! `exchange.USD`, `fees.USD`, `suspense.USD`.

use std::collections::BTreeMap;

use domain::currency::Currency;
use domain::id::{CustomerId, InternalAccountId, Owner, PlatformId};
use domain::money::{Money, Receiving, Sending};
use domain::rail::Rail;
use ledger::account::AccountKey;
use ledger::apply::Refusal;
use ledger::book::{Book, PostingRef, ResolveError};
use ledger::movements::{self, Source, Target};
use ledger::posting::{Posting, PostingError, Resolution};
use uuid::Uuid;

fn acme() -> PlatformId {
    PlatformId::from_uuid(Uuid::from_u128(1 << 16))
}

fn currency(code: &str) -> Currency {
    Currency::of_books(code).unwrap_or_else(|| panic!("no currency {code}"))
}

fn rail(name: &str) -> Rail {
    Rail::from_name(name).unwrap_or_else(|| panic!("no rail {name}"))
}

fn money(minor: &str, code: &str) -> Money {
    let minor = minor.replace('_', "").parse().unwrap_or_else(|_| panic!("no amount {minor}"));
    Money::new(minor, currency(code)).unwrap_or_else(|error| panic!("{minor} {code}: {error}"))
}

fn internal(text: &str) -> InternalAccountId {
    let (owner, code) = text.split_once('.').unwrap_or_else(|| panic!("no account {text}"));
    let owner = match owner {
        "acme" => Owner::Platform(acme()),
        "ada" => Owner::Customer(CustomerId::from_uuid(Uuid::from_u128(2 << 16))),
        "bo" => Owner::Customer(CustomerId::from_uuid(Uuid::from_u128(3 << 16))),
        _ => panic!("no owner {owner}"),
    };
    InternalAccountId::of(owner, currency(code))
}

fn account(text: &str) -> AccountKey {
    match text.split('.').collect::<Vec<_>>()[..] {
        ["rail", name, code] => {
            AccountKey::Rail { platform: acme(), rail: rail(name), currency: currency(code) }
        }
        ["exchange", code] => AccountKey::Exchange { platform: acme(), currency: currency(code) },
        ["fees", code] => AccountKey::Fees { platform: acme(), currency: currency(code) },
        ["suspense", code] => AccountKey::Suspense { platform: acme(), currency: currency(code) },
        ["transit", code] => AccountKey::Transit(currency(code)),
        _ => AccountKey::Internal(internal(text)),
    }
}

fn refusal(refusal: Refusal) -> String {
    match refusal {
        Refusal::InsufficientFunds { available, needed, .. } => {
            format!("insufficient: {available} available, {needed} needed")
        }
        Refusal::Overflow { .. } => "overflow".to_owned(),
        Refusal::NotPending { .. } => "not pending".to_owned(),
    }
}

#[derive(Default)]
struct Scenario {
    book: Book,
    names: BTreeMap<String, PostingRef>,
}

impl Scenario {
    fn post(&mut self, posting: Result<Posting, PostingError>) -> String {
        match posting {
            Err(error) => format!("error: {error}").replace(&acme().to_string(), "acme"),
            Ok(posting) => match self.book.post(posting) {
                Ok(_) => "ok".to_owned(),
                Err(refused) => refusal(refused),
            },
        }
    }

    fn pend(&mut self, name: &str, posting: Result<Posting, PostingError>) -> String {
        match posting {
            Err(error) => format!("error: {error}").replace(&acme().to_string(), "acme"),
            Ok(posting) => match self.book.pend(posting) {
                Ok(pending) => {
                    self.names.insert(name.to_owned(), pending);
                    "ok".to_owned()
                }
                Err(refused) => refusal(refused),
            },
        }
    }

    fn resolve(&mut self, name: &str, resolution: Resolution) -> String {
        match self.book.resolve(self.names[name], resolution) {
            Ok(()) => "ok".to_owned(),
            Err(ResolveError::Refused(refused)) => refusal(refused),
            Err(error) => error.to_string(),
        }
    }

    fn step(&mut self, step: &str) -> String {
        match step.split_whitespace().collect::<Vec<_>>()[..] {
            ["deposit", over, to, amount, code] => {
                self.post(movements::deposit(acme(), rail(over), internal(to), money(amount, code)))
            }
            ["transfer_out", name, from, over, amount, code] => {
                let amount = money(amount, code);
                self.pend(name, movements::transfer_out(acme(), internal(from), rail(over), amount))
            }
            ["transfer_in", name, over, to, amount, code] => {
                let amount = money(amount, code);
                self.pend(name, movements::transfer_in(acme(), rail(over), internal(to), amount))
            }
            ["exchange", name, source, target, sent, sent_code, fees, received, code] => {
                let source = match source {
                    "suspense" => Source::Suspense,
                    from => Source::Internal(internal(from)),
                };
                let target = match (target, Rail::from_name(target)) {
                    ("transit", _) => Target::Transit,
                    (_, Some(rail)) => Target::Rail(rail),
                    (target, None) => Target::Internal(internal(target)),
                };
                let sent = Sending(money(sent, sent_code));
                let fees = money(fees, sent_code);
                let received = Receiving(money(received, code));
                let posting = movements::exchange(source, target, acme(), sent, fees, received);
                if name == "now" { self.post(posting) } else { self.pend(name, posting) }
            }
            ["receipt", over, to, sent, sent_code, fees, received, code] => {
                let sent = Sending(money(sent, sent_code));
                let (fees, received) = (money(fees, code), Receiving(money(received, code)));
                let (over, to) = (rail(over), internal(to));
                self.post(movements::receipt(over, to, acme(), sent, fees, received))
            }
            ["delivery", to, amount, code] => {
                self.post(movements::delivery(internal(to), money(amount, code)))
            }
            ["funding", over, amount, code] => {
                self.post(movements::funding(acme(), rail(over), money(amount, code)))
            }
            ["suspense", over, amount, code] => {
                self.post(movements::suspense(acme(), rail(over), money(amount, code)))
            }
            ["give_back", to, amount, code] => {
                self.post(movements::suspense_return(acme(), internal(to), money(amount, code)))
            }
            ["reverse", name] => {
                let settled = self.book.posting(self.names[name]).expect("named").posting.clone();
                self.post(Ok(movements::reverse(&settled)))
            }
            ["post", name] => self.resolve(name, Resolution::Post),
            ["void", name] => self.resolve(name, Resolution::Void),
            ["balance", key] => {
                let balance = self.book.balance_of(&account(key));
                format!(
                    "{} {} {} {}",
                    balance.debits_pending(),
                    balance.debits_posted(),
                    balance.credits_pending(),
                    balance.credits_posted()
                )
            }
            _ => panic!("no step '{step}'"),
        }
    }
}

/// Runs every line, and then holds the book against its own history.
fn check(table: &str) {
    let mut scenario = Scenario::default();
    for line in table.lines().map(str::trim).filter(|line| !line.is_empty()) {
        let (step, expected) = line.split_once("->").unwrap_or((line, "ok"));
        let before = scenario.book.clone();
        let answer = scenario.step(step);
        let expected: Vec<_> = expected.split_whitespace().collect();
        assert_eq!(answer, expected.join(" "), "at: {line}");
        if answer != "ok" {
            assert_eq!(scenario.book, before, "a refused step changed the book: {line}");
        }
    }
    assert_eq!(scenario.book.audit(), []);
}

#[test]
fn deposit() {
    check(
        "
        balance ada.USD                 ->  0  0  0     0
        deposit ACH ada.USD 10000 USD   -> ok
        balance ada.USD                 ->  0  0  0 10000
        balance rail.ACH.USD            ->  0 10000 0   0
        deposit ACH ada.USD 10000 EUR   -> error: 100.00 EUR cannot be posted to \
            internal InternalAccount:00000000-0000-0000-0000-000000020348 USD
        deposit ACH ada.USD 0 USD       -> error: an entry of 0 on rail acme ACH USD moves nothing
        ",
    );
}

#[test]
fn transfer_out_sets_money_aside_until_it_is_resolved() {
    check(
        "
        deposit ACH ada.USD 100 USD
        transfer_out t1 ada.USD ACH 60 USD -> ok
        balance ada.USD                    -> 60   0  0 100
        balance rail.ACH.USD               ->  0 100 60   0
        transfer_out t2 ada.USD ACH 41 USD -> insufficient: 40 available, 41 needed
        transfer_out t2 ada.USD ACH 40 USD -> ok
        transfer_out t3 ada.USD ACH  1 USD -> insufficient: 0 available, 1 needed
        post t1                            -> ok
        void t2                            -> ok
        balance ada.USD                    ->  0  60  0 100
        balance rail.ACH.USD               ->  0 100  0  60
        post t1                            -> the posting is POSTED already
        void t1                            -> the posting is POSTED already
        post t2                            -> the posting is VOIDED already
        void t2                            -> the posting is VOIDED already
        ",
    );
}

#[test]
fn transfer_in_is_not_available_before_it_is_posted() {
    check(
        "
        transfer_in t1 ACH ada.USD 50 USD  -> ok
        balance ada.USD                    ->  0  0 50  0
        balance rail.ACH.USD               -> 50  0  0  0
        transfer_out t2 ada.USD ACH 50 USD -> insufficient: 0 available, 50 needed
        post t1                            -> ok
        transfer_out t2 ada.USD ACH 50 USD -> ok
        transfer_in t3 ACH ada.USD 50 USD  -> ok
        void t3                            -> ok
        balance ada.USD                    -> 50  0  0 50
        ",
    );
}

#[test]
fn quote_between_internal_accounts() {
    check(
        "
        deposit ACH ada.USD 10000 USD
        exchange now ada.USD bo.EUR 10001 USD 200 9000 EUR \
            -> insufficient: 10000 available, 10001 needed
        exchange now ada.USD bo.EUR 10000 USD 200 9000 EUR -> ok
        balance ada.USD      -> 0 10000 0 10000
        balance exchange.USD -> 0     0 0  9800
        balance fees.USD     -> 0     0 0   200
        balance exchange.EUR -> 0  9000 0     0
        balance bo.EUR       -> 0     0 0  9000
        ",
    );
}

#[test]
fn quote_without_fees_and_quote_that_is_all_fees() {
    check(
        "
        deposit ACH ada.USD 100 USD
        exchange now ada.USD bo.EUR 40 USD  0 36 EUR -> ok
        balance fees.USD     -> 0  0 0  0
        balance exchange.USD -> 0  0 0 40
        exchange now ada.USD bo.EUR 60 USD 60  1 EUR -> ok
        balance fees.USD     -> 0  0 0 60
        balance exchange.USD -> 0  0 0 40
        balance exchange.EUR -> 0 37 0  0
        exchange now ada.USD bo.EUR  1 USD  2  1 EUR \
            -> error: fees of 0.02 USD cannot be taken from 0.01 USD
        ",
    );
}

#[test]
fn quote_in_one_currency_shows_its_rounding() {
    check(
        "
        deposit ACH ada.USD 300 USD
        exchange now ada.USD bo.USD 100 USD 2 98 USD -> ok
        balance exchange.USD -> 0 0 0 0
        exchange now ada.USD bo.USD 100 USD 2 97 USD -> ok
        balance exchange.USD -> 0 0 0 1
        exchange now ada.USD bo.USD 100 USD 2 99 USD -> ok
        balance exchange.USD -> 0 1 0 1
        balance bo.USD       -> 0 0 0 294
        balance fees.USD     -> 0 0 0 6
        ",
    );
}

#[test]
fn several_entries_on_one_account_are_covered_together() {
    // Ada quotes from and to the same account, so what comes back covers what leaves, but only
    // when both are posted at once: a pending credit covers nothing.
    check(
        "
        deposit ACH ada.USD 2 USD
        exchange q1  ada.USD ada.USD 100 USD 2 98 USD -> insufficient: 2 available, 100 needed
        exchange now ada.USD ada.USD 100 USD 2 98 USD -> ok
        balance ada.USD -> 0 100 0 100
        exchange now ada.USD ada.USD 100 USD 2 98 USD -> insufficient: 0 available, 2 needed
        ",
    );
}

#[test]
fn quote_to_an_external_account() {
    check(
        "
        deposit ACH ada.USD 20000 USD
        exchange q1 ada.USD SEPA 10000 USD 200 9000 EUR -> ok
        exchange q2 ada.USD SEPA 10000 USD 200 9000 EUR -> ok
        exchange q3 ada.USD SEPA     1 USD   0    1 EUR -> insufficient: 0 available, 1 needed
        balance ada.USD       -> 20000     0     0 20000
        balance exchange.USD  ->     0     0 19600     0
        balance fees.USD      ->     0     0   400     0
        balance exchange.EUR  -> 18000     0     0     0
        balance rail.SEPA.EUR ->     0     0 18000     0
        post q1               -> ok
        void q2               -> ok
        balance ada.USD       ->     0 10000     0 20000
        balance exchange.USD  ->     0     0     0  9800
        balance fees.USD      ->     0     0     0   200
        balance exchange.EUR  ->     0  9000     0     0
        balance rail.SEPA.EUR ->     0     0     0  9000
        ",
    );
}

#[test]
fn quote_funded_in_real_time() {
    check(
        "
        exchange q1 suspense SEPA 10000 USD 200 9000 EUR -> insufficient: 0 available, 10000 needed
        funding RTP 10000 USD
        exchange q1 suspense SEPA 10000 USD 200 9000 EUR -> ok
        balance suspense.USD -> 10000 0 0 10000
        give_back ada.USD 1 USD -> insufficient: 0 available, 1 needed
        void q1
        give_back ada.USD 10000 USD -> ok
        balance suspense.USD -> 0 10000 0 10000
        balance ada.USD      -> 0     0 0 10000
        suspense WIRE 7 USD
        give_back bo.USD 8 USD -> insufficient: 7 available, 8 needed
        give_back bo.USD 7 USD -> ok
        ",
    );
}

#[test]
fn receipt_from_another_institution() {
    check(
        "
        receipt LIGHTNING ada.USD 100000 BTC 100 9900 USD -> ok
        balance rail.LIGHTNING.BTC -> 0 100000 0      0
        balance exchange.BTC       -> 0      0 0 100000
        balance exchange.USD       -> 0  10000 0      0
        balance fees.USD           -> 0      0 0    100
        balance ada.USD            -> 0      0 0   9900
        receipt LIGHTNING bo.BTC 500 BTC 1 498 BTC -> ok
        balance exchange.BTC       -> 0      0 0 100001
        receipt LIGHTNING bo.BTC 500 BTC 1 500 BTC -> ok
        balance exchange.BTC       -> 0      1 0 100001
        ",
    );
}

#[test]
fn return_after_settlement() {
    check(
        "
        deposit ACH ada.USD 100 USD
        transfer_out t1 ada.USD ACH 60 USD
        post t1
        reverse t1           -> ok
        balance ada.USD      -> 0  60 0 160
        balance rail.ACH.USD -> 0 160 0  60
        transfer_in t2 ACH bo.USD 30 USD
        post t2
        transfer_out t3 bo.USD ACH 10 USD
        reverse t2           -> insufficient: 20 available, 30 needed
        ",
    );
}

#[test]
fn counters_outgrow_64_bits_and_what_an_owner_has_does_not() {
    let mut table = String::new();
    // So many payments of the largest amount fit 64 bits, and no more.
    for _ in 0..1_024 {
        table.push_str("deposit ACH ada.VND 9_000_000_000_000_000 VND\n");
    }
    table.push_str(
        "
        deposit ACH ada.VND 9_000_000_000_000_000 VND         -> overflow
        deposit ACH bo.VND 9_000_000_000_000_000 VND          -> ok
        transfer_in t1 ACH bo.VND 9_000_000_000_000_000 VND   -> ok
        post t1                                               -> ok
        balance rail.ACH.VND -> 0 9234000000000000000 0 0
        transfer_out t2 ada.VND ACH 9_000_000_000_000_000 VND -> ok
        post t2                                               -> ok
        deposit ACH ada.VND 9_000_000_000_000_000 VND         -> ok
        balance ada.VND -> 0 9000000000000000 0 9225000000000000000
        balance rail.ACH.VND -> 0 9243000000000000000 0 9000000000000000
        ",
    );
    check(&table);
}

#[test]
fn what_is_in_transit_is_delivered_once_it_is_there() {
    check(
        "
        deposit ACH ada.USD 10000 USD
        exchange out ada.USD transit 10000 USD 200 9000 EUR
        balance transit.EUR -> 0 0 9000 0
        delivery bo.EUR 9000 EUR -> insufficient: 0 available, 9000 needed
        post out
        delivery bo.EUR 9000 EUR
        delivery bo.EUR 1 EUR -> insufficient: 0 available, 1 needed
        balance transit.EUR -> 0 9000 0 9000
        balance bo.EUR -> 0 0 0 9000
        balance fees.USD -> 0 0 0 200
        ",
    );
}

#[test]
fn a_payment_to_another_institution_leaves_in_millisatoshi() {
    check(
        "
        deposit ACH ada.USD 10000 USD
        exchange out ada.USD LIGHTNING 10000 USD 200 97510000 MSAT
        void out
        balance ada.USD -> 0 0 0 10000
        exchange again ada.USD LIGHTNING 10000 USD 200 97510000 MSAT
        post again
        balance exchange.MSAT -> 0 97510000 0 0
        balance rail.LIGHTNING.MSAT -> 0 0 0 97510000
        balance ada.USD -> 0 10000 0 10000
        ",
    );
}
