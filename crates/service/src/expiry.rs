//! Reads that follow the clock: what is over by a platform's clock is ended before it is read.
//!
//! Jobs end things soon after their time. A read that comes first does it itself, by the same
//! transitions, so that status, lists, totals and events agree however they are read. Ending
//! something twice changes nothing.

use domain::customer::{Customer, KycStatus};
use domain::id::{CustomerId, IdentityCheckId, InvitationId, PlatformId, QuoteId, TransactionId};
use domain::quote::{self, Quote};
use domain::time::Timestamp;
use domain::transaction::{self, Transaction};
use store::error::StoreError;
use store::timers::{Timer, TimerKind};
use store::unit::Unit;

use crate::app::App;
use crate::error::Error;
use crate::{identity, incoming, invitations, owners, quotes};

/// Timers that one read works off together, and the most that it waits for.
const TOGETHER_MAX: u32 = 256;

/// Ends what is over by the clock of a platform, before something of it is read. A row that cannot
/// be read keeps nobody from reading others; if nothing can be written, reads show what is stored.
pub async fn catch_up(app: &App, platform: PlatformId) -> Result<(), Error> {
    let server_now = app.server_now();
    let due = app
        .store()
        .ask(move |view| view.due_ends(platform, server_now, TOGETHER_MAX))
        .await
        .map_err(Error::Store)?;
    if due.is_empty() {
        return Ok(());
    }
    let unit_app = app.clone();
    let ended = app
        .write(move |unit| {
            let mut waits = false;
            for timer in &due {
                match end(&unit_app, unit, timer, server_now) {
                    Ok(()) => {}
                    // All are gone through, so that what they wait for is fetched together.
                    Err(Error::Store(StoreError::NotFetched)) => waits = true,
                    Err(error) if error.is_of_a_row() => {
                        tracing::warn!(subject = %timer.subject, %error, "not ended by a read");
                    }
                    Err(error) => return Err(error),
                }
            }
            if waits { Err(StoreError::NotFetched.into()) } else { Ok(()) }
        })
        .await;
    if let Err(error) = ended {
        tracing::warn!(%error, "what is over could not be ended before a read");
    }
    Ok(())
}

/// The quote as it is now: over, if its time is.
pub async fn quote(app: &App, platform: PlatformId, id: QuoteId) -> Result<Quote, Error> {
    let read = || async {
        let read = move |view: &mut store::readers::View<'_>| view.get::<Quote>(&id);
        let found = app.store().look::<_, StoreError, _>(read).await?;
        let found = found.filter(|quote| quote.draft().platform == platform);
        Ok::<_, Error>(Quote::clone(&*found.ok_or(Error::QuoteNotFound { id })?))
    };
    let quote = read().await?;
    if quote.status() != quote::Status::Pending {
        return Ok(quote);
    }
    catch_up(app, platform).await?;
    read().await
}

/// The transaction as it is now: over, if the time of its quote or of the decision on it is.
pub async fn transaction(
    app: &App,
    platform: PlatformId,
    id: TransactionId,
) -> Result<Transaction, Error> {
    let read = || async {
        let found = app.store().get::<Transaction>(id).await?;
        let found = found.filter(|it| it.draft().platform == platform);
        Ok::<_, Error>(Transaction::clone(&*found.ok_or(Error::TransactionNotFound { id })?))
    };
    let transaction = read().await?;
    let draft = transaction.draft();
    let can_end = transaction.status() == transaction::Status::Pending
        && (draft.terms.is_some() || draft.uma.is_some());
    if !can_end {
        return Ok(transaction);
    }
    catch_up(app, platform).await?;
    read().await
}

/// The customer as it is now: expired, if the time of the link by which it is known is over.
pub async fn customer(app: &App, platform: PlatformId, id: CustomerId) -> Result<Customer, Error> {
    let read = || async {
        let found = app.store().get::<Customer>(id).await?;
        let found = found.filter(|customer| customer.platform == platform);
        Ok::<_, Error>(Customer::clone(&*found.ok_or(Error::CustomerNotFound { id })?))
    };
    let customer = read().await?;
    if customer.kyc.status() != KycStatus::PendingReview {
        return Ok(customer);
    }
    catch_up(app, platform).await?;
    read().await
}

/// Does what a timer is for, by the platform's clock.
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
        TimerKind::AskRail | TimerKind::ImportCustomers | TimerKind::AskAccount => return Ok(()),
    }
    unit.clear_timer(timer.key());
    Ok(())
}
