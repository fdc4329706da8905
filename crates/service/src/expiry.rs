//! Reads that follow the clock: a resource whose time is over is ended before it is read.
//!
//! Jobs end resources soon after their time. A read that comes first does it itself, by the same
//! transitions, so that status, lists, totals and events agree however they are read. Ending
//! something twice changes nothing. While nothing can be written, reads show what is stored.

use domain::approval::Approval;
use domain::customer::{Customer, KycStatus};
use domain::id::{CustomerId, IdentityCheckId, InvitationId, PlatformId, QuoteId, TransactionId};
use domain::kyc::IdentityCheck;
use domain::platform::Platform;
use domain::quote::{self, Quote};
use domain::time::Timestamp;
use domain::transaction::{self, Transaction};
use store::error::StoreError;
use store::timers::{Timer, TimerKind};
use store::unit::Unit;

use crate::app::App;
use crate::error::{CustomerError, Error, QuoteError, TransactionError};
use crate::{identity, incoming, invitations, owners, quotes};

/// Timers that are ended in one unit of work.
const TOGETHER_MAX: u32 = 256;

/// Units of work that one read of a list waits for, about a second. More are left to the jobs.
const ROUNDS_MAX: u32 = 40;

/// Ends what is over by the clock of a platform, before a list of it is read. A row that cannot be
/// read keeps no others from being read.
pub async fn catch_up(app: &App, platform: PlatformId) -> Result<(), Error> {
    let server_now = app.server_now();
    for _ in 0..ROUNDS_MAX {
        let due = app
            .store()
            .read(move |view| view.due_ends(platform, server_now, TOGETHER_MAX))
            .await
            .map_err(Error::Store)?;
        let is_last = due.len() < TOGETHER_MAX as usize;
        if due.is_empty() || !end_all(app, due, server_now).await || is_last {
            break;
        }
    }
    Ok(())
}

/// Ends what timers are for, and says whether it could.
async fn end_all(app: &App, due: Vec<Timer>, server_now: Timestamp) -> bool {
    let unit_app = app.clone();
    before_read(app, move |unit| {
        let mut waits = false;
        for timer in &due {
            match end(&unit_app, unit, timer, server_now) {
                Ok(()) => {}
                // All are gone through, so that what they wait for is fetched together.
                Err(Error::Store(StoreError::NotFetched)) => waits = true,
                Err(error) if error.is_of_a_row() => {
                    let subject = timer.subject;
                    tracing::warn!(%subject, %error, "a read could not write an expiry");
                }
                Err(error) => return Err(error),
            }
        }
        if waits { Err(StoreError::NotFetched.into()) } else { Ok(()) }
    })
    .await
}

/// Does `work` before a read, and says whether it could.
async fn before_read<F>(app: &App, work: F) -> bool
where
    F: FnMut(&mut Unit<'_, '_>) -> Result<(), Error> + Send + 'static,
{
    match app.write(work).await {
        Ok(()) => true,
        Err(error) => {
            tracing::warn!(%error, "a read could not write expiries");
            false
        }
    }
}

/// The quote as it is now: over, if its time is.
pub async fn quote(app: &App, platform: &Platform, id: QuoteId) -> Result<Quote, Error> {
    let read = async || {
        let read = move |view: &mut store::reader::View<'_>| view.get::<Quote>(&id);
        let found = app.store().read::<_, StoreError, _>(read).await?;
        let found = found.filter(|quote| quote.draft().platform == platform.id);
        Ok::<_, Error>(Quote::clone(&*found.ok_or(Error::Quote(QuoteError::NotFound { id }))?))
    };
    let (quote, now) = (read().await?, app.now(platform.ahead));
    if quote.status() != quote::Status::Pending || !quote.is_over(now) {
        return Ok(quote);
    }
    let unit_app = app.clone();
    before_read(app, move |unit| quotes::expire(&unit_app, unit, id, now)).await;
    read().await
}

/// The transaction as it is now: over, if the time of its quote or of the decision on it is.
pub async fn transaction(
    app: &App,
    platform: &Platform,
    id: TransactionId,
) -> Result<Transaction, Error> {
    let read = async || {
        let found = app.store().get::<Transaction>(id).await?;
        let found = found.filter(|it| it.draft().platform == platform.id);
        Ok::<_, Error>(Transaction::clone(
            &*found.ok_or(Error::Transaction(TransactionError::NotFound { id }))?,
        ))
    };
    let (transaction, now) = (read().await?, app.now(platform.ahead));
    if transaction.status() != transaction::Status::Pending {
        return Ok(transaction);
    }
    let draft = transaction.draft();
    let (quote, is_over) = match &draft.terms {
        Some(terms) => {
            let quote = app.store().get::<Quote>(terms.quote).await?;
            (Some(terms.quote), quote.is_some_and(|quote| quote.is_over(now)))
        }
        None if draft.uma.is_some() => {
            let approval = app.store().get::<Approval>(id).await?;
            (None, approval.is_some_and(|approval| !approval.is_open(now)))
        }
        None => (None, false),
    };
    if !is_over {
        return Ok(transaction);
    }
    let unit_app = app.clone();
    before_read(app, move |unit| match quote {
        Some(quote) => quotes::expire(&unit_app, unit, quote, now),
        None => incoming::time_out(&unit_app, unit, id, now),
    })
    .await;
    read().await
}

/// The customer as it is now: expired, if the time of its identity check is over.
pub async fn customer(app: &App, platform: &Platform, id: CustomerId) -> Result<Customer, Error> {
    let read = async || {
        let found = app.store().get::<Customer>(id).await?;
        let found = found.filter(|customer| customer.platform == platform.id);
        Ok::<_, Error>(Customer::clone(
            &*found.ok_or(Error::Customer(CustomerError::NotFound { id }))?,
        ))
    };
    let (customer, now) = (read().await?, app.now(platform.ahead));
    let check =
        customer.identity_check.filter(|_| customer.kyc.status() == KycStatus::PendingReview);
    let Some(check) = check else { return Ok(customer) };
    let found = app.store().get::<IdentityCheck>(check).await?;
    if !found.is_some_and(|check| check.is_over(now)) {
        return Ok(customer);
    }
    let unit_app = app.clone();
    before_read(app, move |unit| identity::expire(&unit_app, unit, check, now)).await;
    read().await
}

/// Ends the resource that a timer is about, by the platform's clock.
pub(crate) fn end(
    app: &App,
    unit: &mut Unit<'_, '_>,
    timer: &Timer,
    server_now: Timestamp,
) -> Result<(), Error> {
    let now = owners::platform(unit, timer.platform)?.ahead.shows(server_now);
    let subject = timer.subject;
    match timer.kind {
        TimerKind::ExpireQuote => quotes::expire(app, unit, QuoteId::from_uuid(subject), now)?,
        TimerKind::ExpireInvitation => {
            invitations::expire(unit, InvitationId::from_uuid(subject), now)?;
        }
        TimerKind::ExpireIdentityCheck => {
            identity::expire(app, unit, IdentityCheckId::from_uuid(subject), now)?;
        }
        TimerKind::DecidePayment => {
            unit.clear_timer(timer.key());
            return incoming::time_out(app, unit, TransactionId::from_uuid(subject), now);
        }
        TimerKind::AskRail
        | TimerKind::ImportCustomers
        | TimerKind::AskAccount
        | TimerKind::NotifyPeer => return Ok(()),
    }
    unit.clear_timer(timer.key());
    Ok(())
}
