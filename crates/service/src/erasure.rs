//! Erasing a customer for good: everything that could tell who the person was goes from records,
//! events and answers, and then the data key with which the journal keeps what they said before.
//!
//! Only what tells of the person stands in the journal under the data key. So the order makes it
//! safe: when the key goes, all that was under it was written anew without it, and the tables are
//! what the journal says. A command that was stopped is run again from the start.

use std::collections::HashSet;
use std::ops::AddAssign;
use std::sync::Arc;

use domain::approval::Approval;
use domain::customer::Customer;
use domain::delivery::{Delivery, Draft, Plan};
use domain::erasure::Erase;
use domain::event::{Event, EventKind};
use domain::external_account::ExternalAccount;
use domain::id::{
    CustomerId, DeliveryId, ExternalAccountId, Id, IdentityCheckId, InvitationId, Kind, LookupId,
    Owner, PlatformId, QuoteId, TransactionId,
};
use domain::invitation::Invitation;
use domain::kyc::{IdentityCheck, Kyc};
use domain::lookup::Lookup;
use domain::platform::Platform;
use domain::quote::Quote;
use domain::transaction::Transaction;
use store::erasure::EventResource;
use store::error::StoreError;
use store::events::{Numbered, Place};
use store::external_accounts::{AccountsOf, Fingerprint, fingerprint};
use store::idempotency::Scope;
use store::list::{Order, Page, PageRequest};
use store::quotes::QuoteFilter;
use store::reader::View;
use store::record::Record;
use store::transactions::TransactionFilter;
use store::unit::{Unit, Writable};

use crate::app::App;
use crate::error::{CustomerError, Error};
use crate::owners;
use crate::presenter::Subject;

/// Rows that are changed by one unit: few enough that payments beside it do not wait.
const ROWS_AT_ONCE: usize = 200;

/// Records of a list that are read at once.
const PAGE: u32 = 500;

/// Events whose resources are read at once.
const EVENTS_AT_ONCE: u32 = 10_000;

/// How much was changed.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Erased {
    /// Records: the customer, accounts, quotes, payments and the like.
    pub records: usize,
    /// Events.
    pub events: usize,
    /// Answers to requests with an idempotency key.
    pub answers: usize,
}

impl AddAssign for Erased {
    fn add_assign(&mut self, more: Self) {
        self.records += more.records;
        self.events += more.events;
        self.answers += more.answers;
    }
}

/// Erases a customer who was deleted before. Refused for one who was not, whose money moves yet.
pub async fn erase(app: &App, id: CustomerId) -> Result<Erased, Error> {
    let customer = app.store().get::<Customer>(id).await.map_err(Error::Store)?;
    let customer = customer.ok_or(Error::Customer(CustomerError::NotFound { id }))?;
    if !customer.is_deleted {
        return Err(Error::Conflict(format!(
            "{id} is not deleted: only a deleted customer is erased"
        )));
    }
    let mut erased = redact(app, &customer).await?;
    app.write(move |unit| {
        unit.erase_key(id.uuid());
        Ok(())
    })
    .await?;
    // A payment that came back meanwhile has left an event with the person's data.
    erased += redact(app, &customer).await?;
    Ok(erased)
}

/// Everything that is about a customer.
struct Found {
    accounts: Vec<ExternalAccountId>,
    quotes: Vec<QuoteId>,
    transactions: Vec<TransactionId>,
    lookups: Vec<LookupId>,
    invitations: Vec<InvitationId>,
    checks: Vec<IdentityCheckId>,
    answers: Vec<Scope>,
}

fn find(view: &mut View<'_>, platform: PlatformId, id: CustomerId) -> Result<Found, StoreError> {
    let owner = Some(Owner::Customer(id));
    let quotes = QuoteFilter { owner, ..QuoteFilter::default() };
    let transactions = TransactionFilter { owner, ..TransactionFilter::default() };
    let accounts = AccountsOf::Customer(id);
    Ok(Found {
        accounts: whole(|page| view.external_accounts(platform, &accounts, None, page))?,
        quotes: whole(|page| view.quotes(platform, &quotes, page))?,
        transactions: whole(|page| view.transactions(platform, &transactions, page))?,
        lookups: view.lookups_of(id)?,
        invitations: view.invitations_of(id)?,
        checks: view.identity_checks_of(id)?,
        answers: view.answers_about(id)?,
    })
}

/// The ids of all records of a list.
fn whole<K: Kind, R: Record<Key = Id<K>>>(
    mut list: impl FnMut(PageRequest) -> Result<Page<R>, StoreError>,
) -> Result<Vec<Id<K>>, StoreError> {
    let (mut ids, mut after) = (Vec::new(), None);
    loop {
        let page = list(PageRequest { limit: PAGE, after, order: Order::Ascending })?;
        ids.extend(page.rows.iter().map(|row| row.key()));
        after = page.rows.last().map(|row| row.key().uuid());
        if !page.has_more {
            return Ok(ids);
        }
    }
}

/// Takes the person out of everything that the tables have.
async fn redact(app: &App, customer: &Customer) -> Result<Erased, Error> {
    let (platform, id) = (customer.platform, customer.id);
    let mut records = customer_itself(app, id).await?;
    let found = app.store().read(move |view| find(view, platform, id)).await?;
    records += all(app, &found.accounts, forget_identifiers).await?;
    records += all::<Quote>(app, &found.quotes, |_, _| Ok(())).await?;
    records += all::<Transaction>(app, &found.transactions, |_, _| Ok(())).await?;
    records += all::<Approval>(app, &found.transactions, |_, _| Ok(())).await?;
    records += all::<Lookup>(app, &found.lookups, |_, _| Ok(())).await?;
    records += all::<Invitation>(app, &found.invitations, |_, _| Ok(())).await?;
    records += all::<IdentityCheck>(app, &found.checks, |_, _| Ok(())).await?;
    let answers = answers(app, id, &found.answers).await?;
    let events = events(app, customer, &found).await?;
    Ok(Erased { records, events, answers })
}

/// Takes the person out of some records. `also` sees each one that is changed, as it was.
async fn all<R: Writable + Erase>(
    app: &App,
    keys: &[R::Key],
    also: fn(&mut Unit<'_, '_>, &R) -> Result<(), StoreError>,
) -> Result<usize, Error> {
    let mut changed = 0;
    for keys in keys.chunks(ROWS_AT_ONCE) {
        let keys = keys.to_vec();
        let redact = move |unit: &mut Unit<'_, '_>| {
            let mut changed = 0;
            for record in unit.get_all::<R>(&keys)?.into_iter().flatten() {
                let erased = record.erased();
                if erased != *record {
                    also(unit, &record)?;
                    unit.put(erased);
                    changed += 1;
                }
            }
            Ok(changed)
        };
        changed += app.write_behind(redact).await?;
    }
    Ok(changed)
}

/// Frees the identifiers of an account that loses them.
fn forget_identifiers(
    unit: &mut Unit<'_, '_>,
    account: &ExternalAccount,
) -> Result<(), StoreError> {
    let key = fingerprint(unit.keyring(), account.owner, &account.info, account.currency);
    let user = unit.get::<Fingerprint>(&key)?.map(|found| found.external_account);
    if user == Some(account.id) {
        unit.remove::<Fingerprint>(key);
    }
    Ok(())
}

/// Takes the person out of the customer, who keeps an address that says nothing.
async fn customer_itself(app: &App, id: CustomerId) -> Result<usize, Error> {
    let server_now = app.server_now();
    app.write_behind(move |unit| {
        let customer = unit.get::<Customer>(&id)?;
        let customer = customer.ok_or(Error::Customer(CustomerError::NotFound { id }))?;
        let mut erased = customer.erased();
        if erased == *customer {
            return Ok(0);
        }
        let now = owners::platform(unit, customer.platform)?.ahead.shows(server_now);
        unit.put_claim(&erased.uma_address, id);
        erased.touch(now);
        unit.put(erased);
        Ok(1)
    })
    .await
}

/// Replaces answers: a request that is repeated hears that its customer was deleted.
async fn answers(app: &App, id: CustomerId, scopes: &[Scope]) -> Result<usize, Error> {
    let deleted = Error::Customer(CustomerError::Deleted { id });
    let (status, body) = app.env().presenter.refusal(&deleted);
    for scopes in scopes.chunks(ROWS_AT_ONCE) {
        let (scopes, body) = (scopes.to_vec(), body.clone());
        app.write_behind(move |unit| {
            for scope in &scopes {
                unit.change_answer(*scope, status, &body)?;
            }
            Ok(())
        })
        .await?;
    }
    Ok(scopes.len())
}

/// Renders events about the customer and the customer's payments anew.
async fn events(app: &App, customer: &Customer, found: &Found) -> Result<usize, Error> {
    let resources = found.transactions.iter().map(|it| it.uuid());
    let resources = resources.chain(found.invitations.iter().map(|it| it.uuid()));
    let resources: HashSet<_> = resources.chain([customer.id.uuid()]).collect();
    let platform = app.store().get::<Platform>(customer.platform).await.map_err(Error::Store)?;
    let missing = || Error::Internal(format!("{} is not there", customer.platform));
    let platform = platform.ok_or_else(missing)?;
    let (id, mut changed, mut after) = (platform.id, 0, 0);
    loop {
        let read = app.store().read(move |view| view.event_resources(id, after, EVENTS_AT_ONCE));
        let all: Vec<EventResource> = read.await.map_err(Error::Store)?;
        let Some(last) = all.last() else { return Ok(changed) };
        after = last.place.ordinal;
        let about = all.iter().filter(|it| resources.contains(&it.resource));
        let places: Vec<_> = about.map(|it| it.place).collect();
        for places in places.chunks(ROWS_AT_ONCE) {
            changed += render_anew(app, &platform, places.to_vec()).await?;
        }
    }
}

/// Renders events from what their resources are now.
async fn render_anew(
    app: &App,
    platform: &Arc<Platform>,
    places: Vec<Place>,
) -> Result<usize, Error> {
    let (reading_app, of) = (app.clone(), Arc::clone(platform));
    let read = app.store().read(move |view| {
        let (mut rendered, mut deliveries) = (Vec::new(), Vec::new());
        for place in places {
            let Some(event) = view.event(place)? else { continue };
            deliveries.push(Draft::new(&event, place.ordinal, Plan::of(event.kind)).id);
            let body = match anew(&reading_app, view, &of, &event)? {
                Some(body) if body != event.body => body,
                Some(_) | None => continue,
            };
            rendered.push(Numbered { ordinal: place.ordinal, event: Event { body, ..event } });
        }
        Ok::<_, Error>((rendered, deliveries))
    });
    let (rendered, deliveries) = read.await?;
    app.write_behind(move |unit| forget_answers(unit, &deliveries)).await?;
    let count = rendered.len();
    if count > 0 {
        app.write_behind(move |unit| {
            rendered.iter().for_each(|event| unit.change_event(event));
            Ok(())
        })
        .await?;
    }
    Ok(count)
}

/// Takes what endpoints have answered out of deliveries.
fn forget_answers(unit: &mut Unit<'_, '_>, ids: &[DeliveryId]) -> Result<(), Error> {
    for delivery in unit.get_all::<Delivery>(ids)?.into_iter().flatten() {
        let draft = delivery.draft();
        // The customer's own key goes when everything was written anew.
        if draft.kind != EventKind::KycStatus && !delivery.progress().attempts.is_empty() {
            unit.erase_key(draft.resource);
        }
        let erased = delivery.erased();
        if erased != *delivery {
            unit.put(erased);
        }
    }
    Ok(())
}

/// The bytes of an event, from what its resource is now and was at that change.
fn anew(
    app: &App,
    view: &mut View<'_>,
    platform: &Platform,
    event: &Event,
) -> Result<Option<Vec<u8>>, Error> {
    let render = |subject: Subject<'_>| app.env().rendered(platform, event.clone(), subject).body;
    let id = event.resource;
    Ok(match event.kind {
        EventKind::IncomingPayment | EventKind::OutgoingPayment => {
            let transaction = view.get::<Transaction>(&Id::from_uuid(id))?;
            transaction.map(|it| render(Subject::Transaction(&it.at_version(event.number))))
        }
        EventKind::InvitationClaimed => {
            let invitation = view.get::<Invitation>(&Id::from_uuid(id))?;
            invitation.map(|it| render(Subject::Invitation(&it)))
        }
        EventKind::KycStatus => view.get::<Customer>(&Id::from_uuid(id))?.map(|customer| {
            let status = app.env().presenter.identity_status(event);
            let status = status.unwrap_or(customer.kyc.status());
            let kyc = Kyc::restore(status, event.number);
            render(Subject::Customer(&Customer { kyc, ..Customer::clone(&customer) }))
        }),
        EventKind::AccountStatus | EventKind::Test | EventKind::BulkUpload => None,
    })
}
