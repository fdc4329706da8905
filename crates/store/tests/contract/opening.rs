//! Asks: what is refused when a database is opened, and what does it show to who has no key?

use domain::customer::Customer;
use domain::id::Owner;
use domain::transaction::{AccountRef, Source, Transaction};
use store::Store;
use store::error::StoreError;
use store::idempotency::{Given, scope};
use store::keyring::{KEY_LENGTH, Keyring};
use store::leases::{Lease, LeaseName};

use crate::support::*;
use crate::{Opened, Provider, open, open_again};

pub async fn another_key_is_refused<P: Provider>() {
    let provider = open::<P>().close();
    let another = Keyring::new(&[8; KEY_LENGTH]);
    let refused = Store::open(&*provider.engine(), another).err().unwrap();
    assert!(refused.to_string().contains("the key is not the one"), "{refused}");
    assert!(Store::open(&*provider.engine(), keyring()).is_ok());
}

pub async fn a_database_of_an_earlier_build_is_refused<P: Provider>() {
    let provider = open::<P>().close();
    provider.run(testbed::place::AS_EARLIER_BUILD);
    let refused = Store::open(&*provider.engine(), keyring()).err().unwrap().to_string();
    assert!(refused.contains("made by an earlier build"), "{refused}");
    assert!(
        refused.contains("start with an empty database") && !refused.contains('\n'),
        "{refused}"
    );
}

pub async fn a_newer_schema_is_refused<P: Provider>() {
    let provider = open::<P>().close();
    provider.run(
        "insert into refinery_schema_history (version, name, applied_on, checksum) \
         select 99, name, applied_on, checksum from refinery_schema_history where version = 1",
    );
    let refused = Store::open(&*provider.engine(), keyring()).err().unwrap();
    assert!(refused.to_string().contains("start the newer program"), "{refused}");
}

/// Something in every column that is sealed.
async fn filled<P: Provider>() -> Opened<P> {
    let opened = open::<P>();
    opened
        .write(|unit| {
            unit.put(platform(1));
            unit.put(customer(1, 1));
            unit.put(business(2, 1));
            let owner = Owner::Customer(customer_id(1));
            unit.put(usd_account(1, 1, owner));
            unit.put(eur_account(2, 1, owner));
            let in_time = Source::RealtimeFunding { currency: currency("USD"), network: None };
            let (quote, transaction) = quote(1, 1, in_time, AccountRef::External(account_id(1)));
            unit.put(quote);
            begin(unit, transaction)?;
            begin(unit, transfer_out(2, 1, 1, 10))?;
            let scope = scope(unit.keyring(), platform_id(1), "POST", "/quotes", CANARY);
            let body = format!("{{\"name\": \"{CANARY}\"}}").into_bytes();
            unit.keep_answer(scope, at(1), &Given::new(201, body));
            unit.put(lease(LeaseName::FirstStart, 1));
            Ok(())
        })
        .await;
    opened
}

fn lease(name: LeaseName, server: u128) -> Lease {
    let address = Some(format!("http://{CANARY}-{server}:8080"));
    Lease { name, holder: uuid(server), epoch: 1, until: at(1), address }
}

pub async fn reopening_keeps_everything<P: Provider>() {
    let opened = filled::<P>().await.reopen().reopen();
    let (customer, transaction, events) = opened
        .read(|view| {
            Ok((
                view.get::<Customer>(&customer_id(1))?,
                view.get::<Transaction>(&transaction_id(2))?,
                events_of(view, uuid(2))?,
            ))
        })
        .await;
    assert_eq!(customer.as_deref(), Some(&crate::support::customer(1, 1)));
    assert_eq!(transaction.as_deref(), Some(&transfer_out(2, 1, 1, 10)));
    assert_eq!(events, [event(&transfer_out(2, 1, 1, 10))]);
}

/// Other servers send there what clients are authorized by.
pub async fn the_address_of_a_server_counts_for_no_other<P: Provider>() {
    let opened = filled::<P>().await;
    opened
        .write(|unit| {
            unit.put(lease(LeaseName::Jobs, 2));
            Ok(())
        })
        .await;
    let leases = async |opened: &Opened<P>| {
        let both = [LeaseName::FirstStart, LeaseName::Jobs];
        opened.read(move |view| Ok(both.map(|name| view.get::<Lease>(&name)))).await
    };
    let [first_start, jobs] = leases(&opened).await.map(|lease| lease.unwrap().unwrap());
    assert_eq!(
        (&*first_start, &*jobs),
        (&lease(LeaseName::FirstStart, 1), &lease(LeaseName::Jobs, 2))
    );
    let provider = opened.close();
    provider.run(
        "update leases set address = (select address from leases where name = 'FIRST_START') \
         where name = 'JOBS'",
    );
    let [first_start, jobs] =
        leases(&open_again(provider)).await.map(|lease| lease.unwrap().unwrap());
    assert_eq!(*first_start, lease(LeaseName::FirstStart, 1));
    assert_eq!(*jobs, Lease { address: None, ..lease(LeaseName::Jobs, 2) });
}

/// A copy of the main part after a clean stop is complete.
pub async fn a_closed_database_is_complete_in_its_main_part<P: Provider>() {
    let provider = filled::<P>().await.close();
    provider.lose_side_files();
    let opened = open_again(provider);
    let customer = opened.read(|view| Ok(view.get::<Customer>(&customer_id(1))?)).await;
    assert_eq!(customer.as_deref(), Some(&crate::support::customer(1, 1)));
}

pub async fn sealed_columns_show_no_plain_text<P: Provider>() {
    let opened = filled::<P>().await;
    let holds = |bytes: &[u8], text: &str| {
        bytes.windows(text.len()).any(|window| window.eq_ignore_ascii_case(text.as_bytes()))
    };
    // While it is open, what was written last is beside the database, once the tables have
    // followed; closed, it is inside.
    opened.read(|_| Ok(())).await;
    let open = opened.provider.bytes();
    let closed = opened.close().bytes();
    for bytes in [open, closed] {
        // A plain value that is found shows that the search works.
        assert!(holds(&bytes, "PENDING_REVIEW") || holds(&bytes, "APPROVED"));
        let address = uma_address(1);
        let person = ["user-1", address.as_str(), CANARY, ACCOUNT_NUMBER, "1990-05-17", "10115"];
        for text in person.into_iter().chain(["DE89370400440532013000"]) {
            assert!(!holds(&bytes, text), "{text}");
        }
    }
}

pub async fn an_edited_row_is_named_by_its_table_and_key<P: Provider>() {
    let provider = filled::<P>().await.close();
    provider.run("update customers set kyc_status = 'FINE'");
    let opened = crate::open_again(provider);
    let refused = opened
        .store
        .read(|view| Ok::<_, StoreError>(view.get::<Customer>(&customer_id(1))?.is_some()))
        .await
        .unwrap_err();
    let StoreError::Sealed { place } = refused else { panic!("{refused}") };
    assert_eq!(place, format!("customers {}", customer_id(1).uuid()));
}
