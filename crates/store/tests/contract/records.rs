//! Asks: does a record come back as it was written, with optional parts and without?

use std::fmt::Debug;
use std::sync::Arc;

use domain::attention::Kind;
use domain::customer::Customer;
use domain::external_account::{self, ExternalAccount};
use domain::id::Owner;
use domain::lookup::{Lookup, Receiver};
use domain::platform::Platform;
use domain::quote::{self, Quote};
use domain::rail::Rail;
use domain::token::{Permissions, Token};
use domain::transaction::{self, AccountRef, FailureReason, Source, StatusReason, Transaction};
use domain::uma_peer::{Rule, UmaPeer};
use ledger::account::AccountKey;
use ledger::movements;
use store::books::{LedgerAccount, Notified};
use store::customers::UmaClaim;
use store::external_accounts::Fingerprint;
use store::idempotency::{Given, Scope};
use store::payment_hashes::PaymentHash;
use store::reader::View;
use store::record::Record;
use store::unit::Unit;

use crate::support::*;
use crate::units::hold;
use crate::{Opened, Provider, open, open_with_platform};

/// Writes a record, closes the store, and reads it in a view, in a unit and for itself.
async fn check<P, R>(
    opened: Opened<P>,
    record: R,
    put: impl Fn(&mut Unit<'_, '_>, R) + Send + 'static,
) -> Opened<P>
where
    P: Provider,
    R: Record<Key: 'static> + PartialEq + Debug,
{
    let written = record.clone();
    opened
        .write(move |unit| {
            put(unit, written.clone());
            Ok(())
        })
        .await;
    let opened = opened.reopen();
    let key = record.key();
    let found = opened.read(move |view| Ok(view.get::<R>(&key)?)).await;
    assert_eq!(found.as_deref(), Some(&record));
    let key = record.key();
    let found: Option<Arc<R>> = opened.write(move |unit| Ok(unit.get::<R>(&key)?)).await;
    assert_eq!(found.as_deref(), Some(&record));
    let found = opened.store.get::<R>(record.key()).await.unwrap();
    assert_eq!(found.as_deref(), Some(&record));
    opened
}

pub async fn every_record_comes_back_as_it_was_written<P: Provider>() {
    let mut opened = open::<P>();
    for record in [platform(1), bare_platform(2)] {
        opened = check(opened, record, |unit, record| unit.put(record)).await;
    }
    opened = check(opened, domain_claim(1), |unit, record| unit.put(record)).await;
    let mut revoked = token(2, 1);
    revoked.revoked = true;
    revoked.permissions = Permissions::default();
    for record in [token(1, 1), revoked] {
        opened = check(opened, record, |unit, record| unit.put(record)).await;
    }
    let mut whole = customer(1, 1);
    whole.default_uma_deposit_account = Some(account_id(1));
    whole.is_deleted = true;
    for (number, record) in (1..).zip([whole, bare_customer(2, 1), business(3, 1)]) {
        let claim = UmaClaim { address: [number; 32], customer: record.id };
        opened = check(opened, record, |unit, record| unit.put(record)).await;
        opened = check(opened, claim, |unit, record| unit.put(record)).await;
    }
    opened = invitations(opened).await;
    opened = identities(opened).await;
    opened = imports(opened).await;
    opened = approvals(opened).await;
    opened = external_accounts(opened).await;
    opened = payments(opened).await;
    let claim = PaymentHash { hash: [9; 32], payment: transaction_id(1) };
    opened = check(opened, claim, |unit, record| unit.put(record)).await;
    books_and_answers(opened).await;
}

async fn imports<P: Provider>(mut opened: Opened<P>) -> Opened<P> {
    use domain::bulk_import::{Counts, Event};
    let (import, parts) = bulk_import(1);
    let counts = Counts { successful: 1, failed: 0 };
    let begun = import.clone().apply(Event::Progressed(counts), at(9)).unwrap().into_now();
    let ended = begun.clone().apply(Event::Finished(counts), at(10)).unwrap().into_now();
    for record in [import, begun, ended] {
        opened = check(opened, record, |unit, record| {
            // Read, because all of them are one.
            let _ = unit.get::<domain::bulk_import::BulkImport>(&record.id());
            unit.put(record);
        })
        .await;
    }
    let done = done_part(bulk_import(2).1[0].clone());
    for record in parts.into_iter().chain([done]) {
        opened = check(opened, record, |unit, record| unit.put(record)).await;
    }
    opened
}

async fn approvals<P: Provider>(mut opened: Opened<P>) -> Opened<P> {
    use domain::approval::Event;
    let all = Event::ALL.into_iter().chain([
        Event::AnsweredNo(Some(CANARY.to_owned())),
        Event::AnsweredIncomplete(vec!["TAX_ID", "EMAIL"]),
    ]);
    opened = check(opened, approval(1, 1), |unit, record| unit.put(record)).await;
    for (number, event) in (2..).zip(all) {
        let moved = approval(number, 1).apply(event, at(231)).unwrap().into_now();
        opened = check(opened, moved, |unit, record| unit.put(record)).await;
    }
    opened
}

async fn identities<P: Provider>(mut opened: Opened<P>) -> Opened<P> {
    use domain::kyc::{CheckDraft, CheckEvent, IdentityCheck};
    let open = identity_check(1, 1);
    let bare = CheckDraft { redirect_uri: None, ..identity_check(2, 1).draft().clone() };
    for record in [open, IdentityCheck::open(bare)] {
        opened = check(opened, record, |unit, record| unit.put(record)).await;
    }
    for (number, event) in (3..).zip(CheckEvent::ALL) {
        let ended = identity_check(number, 1).apply(event).unwrap().into_now();
        opened = check(opened, ended, |unit, record| unit.put(record)).await;
    }
    let mut refused = refused_customer(9);
    refused.identity_check = Some(identity_check(1, 9).id());
    check(opened, refused, |unit, record| unit.put(record)).await
}

async fn invitations<P: Provider>(mut opened: Opened<P>) -> Opened<P> {
    use domain::invitation::Event;
    for record in [invitation(1), bare_invitation(2)] {
        opened = check(opened, record, |unit, record| unit.put(record)).await;
    }
    for (number, event) in (3..).zip(Event::all(uma_address(7))) {
        let moved = ended_invitation(number, event).into_now();
        opened = check(opened, moved, |unit, record| unit.put(record)).await;
    }
    opened
}

async fn external_accounts<P: Provider>(mut opened: Opened<P>) -> Opened<P> {
    let customer = Owner::Customer(customer_id(1));
    let own = Owner::Platform(platform_id(1));
    for record in [usd_account(1, 1, customer), eur_account(2, 1, own), wallet(3, 1, customer)] {
        opened = check(opened, record, |unit, record| unit.put(record)).await;
    }
    for status in external_account::Status::ALL {
        let account = ExternalAccount { status, ..wallet(10 + status as u128, 1, own) };
        opened = check(opened, account, |unit, record| unit.put(record)).await;
    }
    let of_account = Receiver::Account(account_id(1));
    let of_customer = Receiver::Customer { address: uma_address(1), customer: customer_id(1) };
    let (offers, payer_fields) = (Vec::new(), Vec::new());
    let bare = Lookup { receiver: of_account, offers, payer_fields, ..lookup(21, 1, 1) };
    for record in [lookup(20, 1, 1), bare, Lookup { receiver: of_customer, ..lookup(22, 1, 1) }] {
        opened = check(opened, record, |unit, record| unit.put(record)).await;
    }
    let bare = UmaPeer { keys: None, last: None, rule: Rule::Unset, ..uma_peer(2, 1) };
    for record in [uma_peer(1, 1), bare] {
        opened = check(opened, record, |unit, record| unit.put(record)).await;
    }
    let open = attention(Kind::LateReturn, 1);
    let resolved = attention(Kind::UnknownOutcome, 1).apply(resolved_matter()).unwrap().into_now();
    for record in [open, resolved] {
        opened = check(opened, record, |unit, record| unit.put(record)).await;
    }
    let fingerprint = Fingerprint { fingerprint: [3; 32], external_account: account_id(1) };
    check(opened, fingerprint, |unit, record| unit.put(record)).await
}

/// Where the store must be asked first, the unit waits for it and is run again.
fn add_quote(unit: &mut Unit<'_, '_>, quote: Quote) {
    unit.put(quote);
}

/// The same for a transaction.
fn add_transaction(unit: &mut Unit<'_, '_>, transaction: Transaction) {
    unit.put(transaction);
}

async fn payments<P: Provider>(mut opened: Opened<P>) -> Opened<P> {
    let here = AccountRef::Internal(customer_account(1, "USD"));
    let there = AccountRef::External(account_id(2));
    let in_time = Source::RealtimeFunding { currency: currency("USD"), network: None };
    for (number, source) in [(1, from(here, "USD")), (2, in_time.clone()), (3, from(there, "USD"))]
    {
        let (quote, transaction) = quote(number, 1, source, there);
        opened = check(opened, quote, add_quote).await;
        opened = check(opened, transaction, add_transaction).await;
    }
    let mut bare = quote(4, 1, in_time, here).0.draft().clone();
    bare.purpose = None;
    bare.rate_details.multipliers = None;
    bare.locked = domain::pricing::Locked::Receiving(bare.price.received);
    opened = check(opened, Quote::pending(bare), add_quote).await;
    for (number, payee) in [(5, Some(2)), (6, None)] {
        let (quote, transaction) = uma_quote(number, 1, from(here, "USD"), payee);
        opened = check(opened, quote, add_quote).await;
        opened = check(opened, transaction, add_transaction).await;
    }
    for (number, outgoing) in [(13, Some(5)), (14, None)] {
        let record = uma_in(number, 1, 1, money(7, "EUR"), outgoing);
        opened = check(opened, record, add_transaction).await;
    }
    for (number, converted) in [(15, None), (16, Some(money(540, "USD")))] {
        let record = into_account(uma_in(number, 1, 1, money(500, "EUR"), None), 1, converted);
        opened = check(opened, record, add_transaction).await;
    }
    for record in [deposit(11, 1, 1, 5, "USD"), transfer_out(12, 1, 2, 9_000_000_000_000_000)] {
        opened = check(opened, record, add_transaction).await;
    }
    opened
}

async fn books_and_answers<P: Provider>(opened: Opened<P>) {
    opened
        .write(|unit| {
            let to = customer_account(1, "USD");
            let posting =
                movements::deposit(platform_id(1), Rail::Ach, to, money(7, "USD")).unwrap();
            unit.post(transaction_id(11), &posting, at(30))?;
            tell_balances(unit)
        })
        .await;
    let opened = opened.reopen();
    let account = AccountKey::Internal(customer_account(1, "USD"));
    let found = opened.read(move |view| Ok(view.ledger_account(&account)?)).await.unwrap();
    let expected = LedgerAccount {
        account,
        updated_at: at(30),
        balance: found.balance,
        notified: Notified { times: 1, available: 7 },
    };
    assert_eq!((&*found, found.balance.credits_posted()), (&expected, 7));
    for (number, status, body) in [(1, 200, &b""[..]), (2, 499, &[0, 255, 7][..])] {
        for request in [None, Some([number; 16])] {
            let given = Given { status, body: body.to_vec(), request };
            an_answer_comes_back::<P>([number; 16], given).await;
        }
    }
}

async fn an_answer_comes_back<P: Provider>(scope: Scope, given: Given) {
    let opened = open_with_platform::<P>().await;
    let expected = Some(given.clone());
    opened
        .write(move |unit| {
            unit.keep_answer(scope, at(1), &given);
            Ok(())
        })
        .await;
    // Remembered by the writer, then from the journal.
    assert_eq!(opened.write(move |unit| Ok(unit.answer(&scope, at(1))?)).await, expected);
    let opened = opened.reopen();
    assert_eq!(opened.read(move |view| Ok(view.answer(&scope, at(1))?)).await, expected);
    assert_eq!(opened.write(move |unit| Ok(unit.answer(&scope, at(1))?)).await, expected);
    assert_eq!(opened.write(move |unit| Ok(unit.answer(&scope, at(2))?)).await, None);
}

/// An answer that says what the event of its unit says.
pub fn answer_like_event(unit: &mut Unit<'_, '_>, number: u8) -> Result {
    let transaction = transfer_out(number.into(), 1, 1, 10);
    let said = event(&transaction);
    begin(unit, transaction)?;
    unit.keep_answer([number; 16], at(1), &Given::new(201, said_in(&said.body)));
    Ok(())
}

/// The content of an envelope.
pub fn said_in(body: &[u8]) -> &[u8] {
    body.strip_prefix(b"{").and_then(|rest| rest.strip_suffix(b"}")).unwrap()
}

pub async fn answers_come_back<P: Provider>() {
    const ANSWERS: u8 = 5;
    let opened = open_with_platform::<P>().await;
    for number in 1..=ANSWERS {
        opened.write(move |unit| answer_like_event(unit, number)).await;
    }
    let opened = opened.reopen();
    // They come together, and one is for something that is new in their batch.
    let held = hold(&opened).await;
    let new = opened.store.write(origin(), |unit| answer_like_event(unit, ANSWERS + 1));
    let mut answers = tokio::task::JoinSet::new();
    let asking = async {
        for number in (1..=ANSWERS + 1).chain(1..=ANSWERS + 2) {
            let store = opened.store.clone();
            answers.spawn(async move {
                let asked = store.write_once(Some([number; 16]), origin(), move |unit| {
                    Ok::<_, Refused>(unit.answer(&[number; 16], at(0))?)
                });
                (number, asked.await.unwrap())
            });
        }
        drop(held);
    };
    let (new, ()) = tokio::join!(biased; new, asking);
    new.unwrap();
    let expected = |number: u8| {
        let said = event(&transfer_out(number.into(), 1, 1, 10)).body;
        (number <= ANSWERS + 1).then(|| Given::new(201, said_in(&said)))
    };
    while let Some(done) = answers.join_next().await {
        let (number, answer) = done.unwrap();
        assert_eq!(answer, expected(number), "{number}");
    }
    for number in 1..=ANSWERS + 2 {
        let answer = opened.read(move |view| Ok(view.answer(&[number; 16], at(0))?)).await;
        assert_eq!(answer, expected(number), "{number}");
    }
}

/// Units whose keys were answered before the start, so that no cache has the answers. They change
/// nothing again, and the other units of their batch commit.
pub async fn a_key_that_is_not_cached_has_its_answer<P: Provider>() {
    const ANSWERS: u8 = 4;
    let answer_of = |number: u8| {
        let said = event(&transfer_out(number.into(), 1, 1, 10)).body;
        said_in(&said).to_vec()
    };
    let mut opened = open_with_platform::<P>().await;
    for number in 1..=ANSWERS {
        opened.write(move |unit| answer_like_event(unit, number)).await;
    }
    for repeated in 1..=ANSWERS {
        opened = opened.reopen();
        // The first batch after a start finds out whether another process has written.
        let new_platform = move |unit: &mut Unit<'_, '_>| {
            unit.put(platform((1 + repeated).into()));
            Ok(())
        };
        opened.write(new_platform).await;
        // A unit without changes has nothing that the database could refuse.
        let other = repeated % ANSWERS + 1;
        let looks = move |unit: &mut Unit<'_, '_>| {
            let answer = unit.answer(&[other; 16], at(0))?.map(|given| given.body);
            answer.ok_or(Refused::Wanted)
        };
        assert_eq!(opened.write(looks).await, answer_of(other));
        let held = hold(&opened).await;
        let mut units = tokio::task::JoinSet::new();
        let new = ANSWERS + repeated;
        for number in [new, repeated, new] {
            let store = opened.store.clone();
            let once = move |unit: &mut Unit<'_, '_>| {
                let answer = unit.answer(&[number; 16], at(0))?;
                match answer {
                    Some(given) => Ok::<_, Refused>(given.body),
                    None => answer_like_event(unit, number).map(|()| answer_of(number)),
                }
            };
            units.spawn(async move { (number, store.write(origin(), once).await.unwrap()) });
        }
        drop(held);
        while let Some(done) = units.join_next().await {
            let (number, answer) = done.unwrap();
            assert_eq!(answer, answer_of(number), "{number}");
        }
        let feed = opened.read(|view| Ok(view.feed(platform_id(1), 0, None, u32::MAX)?)).await;
        assert_eq!(feed.events.len(), usize::from(new));
    }
}

pub async fn changed_records_come_back_as_they_were_changed<P: Provider>() {
    let opened = open_with_platform::<P>().await;
    opened
        .write(|unit| {
            unit.put(token(1, 1));
            unit.put(customer(1, 1));
            let there = AccountRef::External(account_id(2));
            let in_time = Source::RealtimeFunding { currency: currency("USD"), network: None };
            let (quote, transaction) = quote(1, 1, in_time, there);
            unit.put(quote);
            begin(unit, transaction)?;
            Ok(())
        })
        .await;
    let mismatch = StatusReason::FUNDING_AMOUNT_MISMATCH;
    let failed = transaction::Event::Failed(FailureReason::QuoteExecutionFailed, mismatch.clone());
    for (seconds, event) in [(5, failed), (6, transaction::Event::Refunded)] {
        opened.write(move |unit| advance(unit, 1, std::slice::from_ref(&event), at(seconds))).await;
    }
    opened.write(|unit| advance_quote(unit, 1, &[quote::Event::Failed], at(5))).await;
    opened
        .write(|unit| {
            unit.get::<Platform>(&platform_id(1))?;
            unit.put(Platform { name: "New".to_owned(), ..bare_platform(1) });
            let old = unit.get::<Token>(&token(1, 1).id)?.unwrap();
            unit.put(Token { revoked: true, ..Token::clone(&old) });
            let old = unit.get::<Customer>(&customer_id(1))?.unwrap();
            unit.put(Customer { is_deleted: true, ..Customer::clone(&old) });
            Ok(())
        })
        .await;
    let opened = opened.reopen();
    let (platform, token, customer) = opened
        .read(|view| {
            let token = view.get::<Token>(&token(1, 1).id)?.unwrap();
            let platform = view.get::<Platform>(&platform_id(1))?.unwrap();
            Ok((platform, token, view.get::<Customer>(&customer_id(1))?.unwrap()))
        })
        .await;
    assert_eq!(*platform, Platform { name: "New".to_owned(), ..bare_platform(1) });
    assert!(token.revoked && customer.is_deleted);
    let (transaction, quote) = opened
        .read(|view| {
            Ok((view.get::<Transaction>(&transaction_id(1))?, view.get::<Quote>(&quote_id(1))?))
        })
        .await;
    let transaction = transaction.unwrap();
    let statuses: Vec<_> = transaction.history().iter().map(|step| step.status.name()).collect();
    assert_eq!(statuses, ["PENDING", "FAILED", "REFUNDED"]);
    assert_eq!(transaction.failure(), Some(FailureReason::QuoteExecutionFailed));
    assert_eq!(transaction.reason(), Some(&mismatch));
    assert_eq!((transaction.created_at(), transaction.updated_at()), (at(1), at(6)));
    let quote = quote.unwrap();
    assert_eq!((quote.status(), quote.updated_at()), (quote::Status::Failed, at(5)));
}

pub async fn what_was_never_written_is_not_there<P: Provider>() {
    let opened = open::<P>();
    let (customer, events, postings, account) = opened
        .read(|view| {
            let account = AccountKey::Internal(customer_account(1, "USD"));
            Ok((
                view.get::<Customer>(&customer_id(1))?,
                events_of(view, uuid(1))?,
                view.postings(transaction_id(1))?,
                view.ledger_account(&account)?,
            ))
        })
        .await;
    assert!(customer.is_none() && account.is_none());
    assert!(events.is_empty() && postings.is_empty());
    let balance = opened
        .write(|unit| {
            let account = AccountKey::Internal(customer_account(1, "USD"));
            Ok((unit.get::<Customer>(&customer_id(1))?, unit.balance(&account)?))
        })
        .await;
    assert_eq!(balance, (None, ledger::account::Balance::ZERO));
}

pub async fn outdated_answers_are_removed<P: Provider>() {
    let opened = open::<P>();
    let keep = |number: u8, seconds, body: &'static [u8]| {
        move |unit: &mut Unit<'_, '_>| {
            // Rows are read before they are changed.
            unit.answer(&[number; 16], at(seconds))?;
            unit.keep_answer([number; 16], at(seconds), &Given::new(201, body));
            Ok(())
        }
    };
    for number in 1..=3 {
        opened.write(keep(number, number.into(), b"said")).await;
    }
    let is_kept =
        |since| move |unit: &mut Unit<'_, '_>| Ok(unit.answer(&[1; 16], at(since))?.is_some());
    assert!(opened.write(is_kept(1)).await);
    assert!(!opened.write(is_kept(2)).await, "it is outdated, whether it was removed or not");
    let outdated = opened.read(|view| Ok(view.outdated_answers(at(3), 10)?)).await;
    let given: Vec<_> = outdated.iter().map(|it| (it.scope, it.at)).collect();
    assert_eq!(given, [([1; 16], at(1)), ([2; 16], at(2))]);
    assert!(outdated[0].seq < outdated[1].seq, "the rows that have them");
    assert_eq!(opened.read(|view| Ok(view.outdated_answers(at(3), 1)?)).await, outdated[..1]);
    // A request is made anew before the old answer is removed, and after it.
    opened.write(keep(2, 9, b"anew")).await;
    let outdated: Vec<_> = outdated.iter().map(|it| it.scope).collect();
    opened.write(move |unit| Ok(unit.remove_answers(&outdated, at(3))?)).await;
    let opened = opened.reopen();
    let answers = |view: &mut View<'_>| {
        let answer = |number| Ok(view.answer(&[number; 16], at(0))?.map(|given| given.body));
        [1, 2, 3].into_iter().map(answer).collect::<Result<Vec<_>>>()
    };
    let found = opened.read(answers).await;
    assert_eq!(found, [None, Some(b"anew".to_vec()), Some(b"said".to_vec())]);
    opened.write(keep(1, 10, b"again")).await;
    let found = opened.read(|view| Ok(view.answer(&[1; 16], at(10))?)).await;
    assert_eq!(found, Some(Given::new(201, "again")));
}
