//! Asks: does everything move to another database, all of it or nothing, and is that proven?

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::Path;

use domain::approval;
use domain::attention::Kind;
use domain::delivery::{self, Attempt, Delivery, Draft, Outcome, Plan};
use domain::id::Owner;
use domain::kyc::CheckEvent;
use domain::rail::Rail;
use domain::transaction::{AccountRef, Event};
use ledger::movements;
use store::SqliteFile;
use store::Store;
use store::catalogue;
use store::copy::{CopyError, Proof, Step, copy};
use store::engine::Engine;
use store::error::StoreError;
use store::events::{Endpoint, Outbox};
use store::external_accounts::{Fingerprint, fingerprint};
use store::idempotency::{Given, scope};
use store::keyring::{KEY_LENGTH, Keyring};
use store::leases::{Lease, LeaseName};
use store::payment_hashes::PaymentHash;
use store::sql::Value;
use store::timers::TimerKind;
use store::unit::Unit;
use store::verify::verify;
use tokio::sync::OnceCell;

use crate::support::*;
use crate::{Provider, Sqlite, open, open_again};

/// Deposits with which the transactions take more than one chunk.
const DEPOSITS: u128 = 2_100;

/// The transfer that is under way.
const UNDER_WAY: u128 = 9_001;

/// The deposit that is under way.
const ON_ITS_WAY: u128 = 9_002;

fn parties(unit: &mut Unit<'_, '_>) {
    unit.put(platform(1));
    unit.put(token(1, 1));
    for customer in [customer(1, 1), business(2, 1)] {
        let (address, id) = (customer.uma_address.clone(), customer.id);
        unit.put_claim(&address, id);
        unit.put(customer);
    }
    let owner = Owner::Customer(customer_id(1));
    let account = usd_account(1, 1, owner);
    let fingerprint = fingerprint(unit.keyring(), owner, &account.info, account.currency);
    unit.put(Fingerprint { fingerprint, external_account: account.id });
    unit.put(account);
    let scope = scope(unit.keyring(), platform_id(1), "POST", "/quotes", "key");
    unit.keep_answer(scope, at(1), &Given::new(201, CANARY));
    unit.put(lookup(1, 1, 1));
    unit.put(uma_peer(1, 1));
    unit.put(Lease {
        name: LeaseName::FirstStart,
        holder: uuid(1),
        epoch: 1,
        until: at(1),
        address: None,
    });
}

fn invited(unit: &mut Unit<'_, '_>) {
    let invitation = invitation(1);
    let subject = invitation.id().uuid();
    unit.set_timer(timer(subject, TimerKind::ExpireInvitation, at(9_300), at(9_100)));
    unit.put(invitation);
    let check = identity_check(1, 1).apply(CheckEvent::Completed).unwrap();
    unit.put_moved(check);
    let (import, parts) = bulk_import(1);
    let subject = import.id().uuid();
    unit.set_timer(timer(subject, TimerKind::ImportCustomers, at(9_300), at(9_100)));
    unit.put(import);
    parts.into_iter().for_each(|part| unit.put(part));
}

/// A delivery with a failed attempt.
fn delivered(unit: &mut Unit<'_, '_>) -> Result {
    let event = event(&deposit(1_001, 1, 1, 100, "USD"));
    let delivery = Delivery::pending(Draft::new(&event, 1, Plan::Retried), at(9_000));
    let outcome = Outcome::Answered { status: 500, body: CANARY.as_bytes().to_vec() };
    let peer = Some(std::net::Ipv4Addr::LOCALHOST.into());
    let attempt = Attempt { at: at(9_000), millis: 7, peer, outcome };
    let failed = delivery::Event::Failed(attempt, at(9_500));
    unit.put_moved(delivery.apply(failed, at(9_000)).unwrap());
    let outbox = unit.outbox(platform_id(1))?;
    unit.put(Outbox { taken: 1, endpoint: Endpoint::Gone, ..outbox });
    Ok(())
}

fn deposited(unit: &mut Unit<'_, '_>, number: u128) -> Result {
    begin(unit, deposit(number, 1, 1, 100, "USD"))?;
    advance(unit, number, &[Event::Started, Event::Settled], at(5_000))?;
    let posting = movements::deposit(
        platform_id(1),
        Rail::Ach,
        customer_account(1, "USD"),
        money(100, "USD"),
    )
    .unwrap();
    Ok(unit.post(transaction_id(number), &posting, at(5_000))?)
}

fn under_way(unit: &mut Unit<'_, '_>) -> Result {
    begin(unit, transfer_out(UNDER_WAY, 1, 1, 70))?;
    let source = customer_account(1, "USD");
    let posting =
        movements::transfer_out(platform_id(1), source, Rail::Ach, money(70, "USD")).unwrap();
    let id = transaction_id(UNDER_WAY);
    unit.pend(id, &posting, id.created_at())?;
    unit.set_timer(timer(uuid(UNDER_WAY), TimerKind::AskRail, at(9_200), at(9_100)));
    begin(unit, deposit(ON_ITS_WAY, 1, 1, 30, "USD"))?;
    unit.set_timer(timer(uuid(ON_ITS_WAY), TimerKind::AskRail, at(9_200), at(9_100)));
    let in_time =
        domain::transaction::Source::RealtimeFunding { currency: currency("USD"), network: None };
    let (quote, transaction) = quote(1, 1, in_time, AccountRef::External(account_id(1)));
    let subject = quote.id().uuid();
    unit.put(quote);
    begin(unit, transaction)?;
    unit.set_timer(timer(subject, TimerKind::ExpireQuote, at(9_300), at(9_100)));
    Ok(())
}

/// A sound database with something in every table, closed.
async fn filled() -> Sqlite {
    // Made once: it takes longer than most of what is done with it.
    static BYTES: OnceCell<[Vec<u8>; 2]> = OnceCell::const_new();
    let files = |place: &Sqlite| [place.path(), journal_of(&place.path())];
    let fill = async || files(&fill().await).map(|file| std::fs::read(file).unwrap());
    let bytes = BYTES.get_or_init(fill).await;
    let provider = Sqlite::new();
    for (file, bytes) in files(&provider).iter().zip(bytes) {
        std::fs::write(file, bytes).unwrap();
    }
    provider
}

async fn fill() -> Sqlite {
    let opened = open::<Sqlite>();
    opened
        .write(|unit| {
            parties(unit);
            invited(unit);
            for number in 1..=DEPOSITS {
                deposited(unit, 1_000 + number)?;
            }
            let asked = approval(1_001, 1).apply(approval::Event::AnsweredYes, at(5_000));
            unit.put_moved(asked.unwrap());
            unit.put(PaymentHash { hash: [9; 32], payment: transaction_id(1_001) });
            unit.put(attention(Kind::LateReturn, 1_001));
            unit.put(domain_claim(1));
            under_way(unit)?;
            tell_balances(unit)?;
            delivered(unit)
        })
        .await;
    opened.close()
}

fn moved(from: &dyn Engine, to: &dyn Engine) -> std::result::Result<(Proof, Vec<Step>), CopyError> {
    let mut steps = Vec::new();
    let proof = copy(from, to, &keyring(), origin(), &mut |step| steps.push(step))?;
    Ok((proof, steps))
}

/// Copies until the given number of chunks is in the target, and is then torn away from it.
fn interrupted(from: &dyn Engine, to: &dyn Engine, chunks: usize) {
    let mut left = chunks;
    let mut on_step = |step| {
        if matches!(step, Step::Copied { .. }) {
            left -= 1;
            if left == 0 {
                std::panic::resume_unwind(Box::new("interrupted"));
            }
        }
    };
    let run = catch_unwind(AssertUnwindSafe(|| copy(from, to, &keyring(), origin(), &mut on_step)));
    assert!(run.is_err(), "it ended before it was interrupted");
}

fn chunks(steps: &[Step]) -> usize {
    steps.iter().filter(|step| matches!(step, Step::Copied { .. })).count()
}

fn text_of(refused: impl std::fmt::Display) -> String {
    refused.to_string()
}

/// Brings a database to the schema and runs a statement behind the store's back.
fn prepared<P: Provider>(provider: &P, sql: &str, parameters: &[Value]) {
    let _schema = provider.engine().whole(&keyring()).unwrap();
    let mut connection = provider.engine().projector().unwrap();
    connection.begin().unwrap();
    connection.execute(sql, parameters).unwrap();
    connection.commit().unwrap();
}

pub async fn everything_moves_there_and_back<P: Provider>() {
    let (source, there, back) = (filled().await, P::new(), Sqlite::new());
    let (out, steps) = moved(&*source.engine(), &*there.engine()).unwrap();
    assert!(out.holds(), "{out:?}");
    assert_eq!(out.tables.len(), catalogue::tables().len());
    for table in &out.tables {
        assert!(table.source.rows > 0, "{} is empty and proves nothing", table.table);
    }
    assert!(chunks(&steps) > catalogue::tables().len(), "no table takes two chunks: {steps:?}");
    let all: u64 = out.tables.iter().map(|table| table.target.rows).sum();
    let Some(Step::Copied { all_rows, of_all_rows, .. }) =
        steps.iter().rfind(|step| matches!(step, Step::Copied { .. }))
    else {
        panic!("nothing was copied: {steps:?}");
    };
    assert_eq!((*all_rows, *of_all_rows), (all, all));
    let (accounts, sums) = out.totals()[&currency("USD")];
    assert_eq!(accounts, 2);
    assert_eq!((sums.credits_posted, sums.debits_pending), (100 * DEPOSITS as i128, 70));

    let (home, _) = moved(&*there.engine(), &*back.engine()).unwrap();
    assert!(home.holds(), "{home:?}");
    // The journal says who moved it.
    let [journal, longer] =
        [&out, &home].map(|it| it.tables.iter().find(|it| it.table == "journal").unwrap().target);
    assert_eq!(longer.rows, journal.rows + 1);
    let digests = |proof: &Proof| {
        let tables = proof.tables.iter().filter(|it| it.table != "journal");
        tables.map(|it| it.target).collect::<Vec<_>>()
    };
    assert_eq!(digests(&out), digests(&home));
    assert_eq!(out.accounts, home.accounts);

    // The moved database is served, and payments under way go on.
    let opened = open_again(there);
    opened
        .write(|unit| {
            unit.resolve(transaction_id(UNDER_WAY), ledger::posting::Resolution::Post, at(9_200))?;
            unit.clear_timer((uuid(UNDER_WAY), TimerKind::AskRail));
            advance(unit, UNDER_WAY, &[Event::Started, Event::Settled], at(9_200))
        })
        .await;
    let report = verify(&*opened.close().engine(), Some(&keyring())).unwrap();
    assert!(report.is_sound(), "{report:?}");
}

/// At every so many places the copy is opened, which must be refused.
const REFUSED_EVERY: usize = 5;

pub async fn a_copy_goes_on_from_where_it_was_interrupted<P: Provider>() {
    let (source, target) = (filled().await, P::new());
    let (from, to) = (source.engine(), target.engine());
    let (_, whole) = moved(&*from, &*P::new().engine()).unwrap();
    let mut before = 0;
    while before < chunks(&whole) - 1 {
        // Two tables a try, one at last: each try verifies the source.
        let more = 2.min(chunks(&whole) - 1 - before);
        interrupted(&*from, &*to, more);
        before += more;
        if before % REFUSED_EVERY != 0 {
            continue;
        }
        let refused = Store::open(&*to, keyring()).err().map(text_of).unwrap();
        assert!(refused.contains("a copy into this database is not finished"), "{refused}");
        let refused = verify(&*to, Some(&keyring())).err().map(text_of).unwrap();
        assert!(refused.contains("a copy into this database is not finished"), "{refused}");
        // No start makes a new key for it.
        assert!(to.holds_data().unwrap());
    }
    let (proof, rest) = moved(&*from, &*to).unwrap();
    assert!(proof.holds(), "{proof:?}");
    assert_eq!((before, chunks(&rest)), (chunks(&whole) - 1, 1));
    assert!(rest.iter().any(|step| matches!(step, Step::Resuming { .. })), "{rest:?}");
    open_again(target).close();
}

pub async fn a_source_that_changed_is_copied_anew<P: Provider>() {
    let (source, target) = (filled().await, P::new());
    interrupted(&*source.engine(), &*target.engine(), 12);
    let opened = open_again(source);
    let more = |unit: &mut Unit<'_, '_>| deposited(unit, 3_900).and_then(|()| tell_balances(unit));
    opened.write(more).await;
    let source = opened.close();
    let (proof, steps) = moved(&*source.engine(), &*target.engine()).unwrap();
    assert!(steps.contains(&Step::StartingOver), "{steps:?}");
    assert!(proof.holds(), "{proof:?}");
}

pub async fn what_was_damaged_on_its_way_is_found_and_never_opened<P: Provider>() {
    let (source, target) = (filled().await, P::new());
    let damage = "update ledger_accounts set credits_posted = credits_posted + 1 \
                  where must_stay_covered = 1";
    let proof = copy(&*source.engine(), &*target.engine(), &keyring(), origin(), &mut |step| {
        if matches!(step, Step::Copied { table: "timers", .. }) {
            target.run(damage);
        }
    })
    .unwrap();
    assert!(!proof.holds());
    let tables: Vec<_> = proof.tables.iter().filter(|it| !it.holds()).map(|it| it.table).collect();
    assert_eq!(tables, ["ledger_accounts"]);
    let accounts: Vec<_> =
        proof.accounts.iter().filter(|it| !it.holds()).map(|it| it.account).collect();
    assert_eq!(accounts, [ledger::account::AccountKey::Internal(customer_account(1, "USD"))]);
    assert!(!proof.report.is_sound());
    assert!(Store::open(&*target.engine(), keyring()).is_err());

    let (proof, steps) = moved(&*source.engine(), &*target.engine()).unwrap();
    assert!(steps.contains(&Step::StartingOver), "{steps:?}");
    assert!(proof.holds(), "{proof:?}");
}

pub async fn a_target_that_holds_anything_is_refused<P: Provider>() {
    let source = filled().await;
    let served = open::<P>().close();
    let refused = moved(&*source.engine(), &*served.engine()).unwrap_err();
    assert!(matches!(refused, CopyError::TargetHolds("meta")), "{refused}");
    open_again(served).close();

    let foreign = P::new();
    prepared(
        &foreign,
        "insert into uma_addresses (address_hash, customer) values ($1, $2)",
        &[Value::Bytes(vec![1]), Value::Bytes(Vec::new())],
    );
    let refused = moved(&*source.engine(), &*foreign.engine()).unwrap_err();
    assert!(matches!(refused, CopyError::TargetHolds("uma_addresses")), "{refused}");

    let target = P::new();
    moved(&*source.engine(), &*target.engine()).unwrap();
    let again = moved(&*source.engine(), &*target.engine()).unwrap_err();
    assert!(matches!(again, CopyError::TargetHolds(_)), "{again}");
}

/// Renews the lease of a server, as one does that runs.
fn renewed(unit: &mut Unit<'_, '_>, second: i64) -> Result {
    let until = at(second);
    unit.put(Lease { name: LeaseName::Jobs, holder: uuid(1), epoch: 1, until, address: None });
    Ok(())
}

pub async fn a_source_that_is_used_empty_unsound_or_sealed_otherwise_is_refused<P: Provider>() {
    let target = Sqlite::new();
    let check = |source: &P, keyring: &Keyring| {
        copy(&*source.engine(), &*target.engine(), keyring, origin(), &mut |_| {}).unwrap_err()
    };
    let opened = open::<P>();
    let refused = {
        // A server that is there keeps its lease.
        opened.write(|unit| renewed(unit, 0)).await;
        let serving = async {
            for second in 1.. {
                opened.write(move |unit| renewed(unit, second)).await;
            }
        };
        let copying = tokio::task::spawn_blocking({
            let source = opened.provider.engine();
            let target = target.engine();
            move || copy(&*source, &*target, &keyring(), origin(), &mut |_| {}).unwrap_err()
        });
        tokio::select! {
            refused = copying => refused.unwrap(),
            () = serving => unreachable!("it serves for ever"),
        }
    };
    assert!(matches!(refused, CopyError::SourceInUse(_)), "{refused}");
    let source = opened.close();
    let another = Keyring::new(&[8; KEY_LENGTH]);
    assert!(check(&source, &another).to_string().contains("the key is not the one"));
    prepared(
        &source,
        "insert into timers (subject, kind, platform, due_at, since, attempts) \
         values ($1, $2, $1, $3, $3, $3)",
        &[Value::Bytes(Vec::new()), Value::name("LUNCH"), Value::Int(0)],
    );
    let refused = check(&source, &keyring());
    assert!(matches!(refused, CopyError::SourceUnsound(_)), "{refused}");

    let never_served = P::new();
    drop(never_served.engine().prepare(&keyring()).unwrap());
    let refused = check(&never_served, &keyring());
    assert!(matches!(refused, CopyError::SourceEmpty), "{refused}");
    assert_eq!(target.bytes(), b"", "a refused source made a target");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn no_server_opens_a_file_that_is_being_moved() {
    let (source, target) = (filled().await, Sqlite::new());
    let mut refused = None;
    copy(&*source.engine(), &*target.engine(), &keyring(), origin(), &mut |step| {
        if step == Step::CheckingSource {
            refused = source.engine().alone().err();
        }
    })
    .unwrap();
    assert!(matches!(refused, Some(StoreError::Conflict(_))), "{refused:?}");
    let missing = SqliteFile::new(Path::new("no/such/folder/a.db")).alone().err();
    assert!(matches!(missing, Some(StoreError::Engine(_))), "{missing:?}");
}
