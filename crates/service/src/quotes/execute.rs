//! A quote starts: its money is debited, exchanged and sent on (contract 6.9.2).

use domain::clock::Ahead;
use domain::id::{QuoteId, TransactionId};
use domain::money::{Money, Receiving};
use domain::quote::{self, Quote, Route, Status};
use domain::time::Timestamp;
use domain::transaction::{AccountRef, Destination, Event, Source, Transaction};
use ledger::movements::{self, Target};
use ports::rail::RailFailure;
use ports::rails::Leg;
use store::unit::Unit;

use super::rail_check::{Known, ask_before, refuse_objection};
use super::{Quoted, To, are_on};
use crate::app::App;
use crate::error::{Error, QuoteError};
use crate::once::{Keyed, Render, Reply, answered, once};
use crate::{incoming, lifecycle, limits, owners, uma};

/// Executes a quote: the source is debited and the transfer starts.
pub async fn execute<R: Render<Quoted>>(
    app: &App,
    keyed: Keyed,
    id: QuoteId,
    render: R,
) -> Result<Reply, Error> {
    if let Some(reply) = answered(app, keyed).await? {
        return Ok(reply);
    }
    let now = app.now(keyed.ahead);
    let other_side = app.new_id(Ahead::NONE, app.server_now());
    let platform = keyed.platform;
    let found = app.store().get::<Quote>(id).await?;
    let objection = match found.filter(|quote| quote.draft().platform == platform) {
        Some(quote) if quote.status() == Status::Pending => {
            let draft = quote.draft();
            let minor = draft.price.received.minor();
            match draft.destination.account() {
                Some(account) => {
                    let amount = Known::Arrives(minor);
                    let transaction = app.store().get::<Transaction>(draft.transaction).await;
                    let transaction = transaction.map_err(Error::Store)?;
                    let request = transaction.map(|it| it.draft().rail_request.clone());
                    let to = (&To::Account(account), &request.unwrap_or_default());
                    ask_before(app, platform, to, amount, draft.transaction, now).await?
                }
                None => None,
            }
        }
        Some(_) | None => None,
    };
    let unit_app = app.clone();
    once(app, keyed, render, move |unit| {
        let quote = unit
            .get::<Quote>(&id)?
            .filter(|quote| quote.draft().platform == platform)
            .ok_or(Error::Quote(QuoteError::NotFound { id }))?;
        let quote = Quote::clone(&quote);
        let quote = start(&unit_app, unit, quote, objection, other_side, now)?;
        unit.answers_with(&quote);
        Ok(Quoted { quote, platform: owners::platform(unit, platform)? })
    })
    .await
}

/// Starts the transfer of a quote: an internal source is debited at once, an external one is asked
/// for the money first.
pub(super) fn start(
    app: &App,
    unit: &mut Unit<'_, '_>,
    quote: Quote,
    objection: Option<RailFailure>,
    other_side: TransactionId,
    now: Timestamp,
) -> Result<Quote, Error> {
    let draft = quote.draft();
    let Source::Account { account: source, .. } = draft.source else {
        return Err(Error::Quote(QuoteError::FundedInRealTime { id: quote.id() }));
    };
    may_start(&quote, now)?;
    let platform = owners::platform(unit, draft.platform)?;
    let holder = owners::holder(unit, draft.platform, draft.owner.customer())?;
    holder.may_move_money()?;
    refuse_objection(&quote, source.to_string(), objection)?;
    match source {
        AccountRef::Internal(id) => {
            owners::internal_account(unit, &platform, id)?.owner.may_move_money()?;
            run(app, unit, quote, movements::Source::Internal(id), other_side, now)
        }
        AccountRef::External(id) => {
            let account = owners::external_account(unit, platform.id, id)?;
            owners::usable_by(unit, &account, &holder, "source.accountId")?;
            let sent = draft.price.sent.money();
            let leg = app.env().route(platform.mode, &account.info, sent, None)?;
            // Nothing is pulled that could not go on.
            target(app, unit, &quote)?;
            let (transaction, quote) = begin(app, unit, quote, now)?;
            lifecycle::ask_rail(app, unit, transaction, leg, now)?;
            Ok(quote)
        }
    }
}

/// Refuses a quote that is not open any more.
pub(crate) fn may_start(quote: &Quote, now: Timestamp) -> Result<(), Error> {
    let (id, expires_at) = (quote.id(), quote.draft().expires_at);
    match quote.status() {
        Status::Pending if quote.is_over(now) => {
            Err(Error::Quote(QuoteError::Expired { id, expires_at }))
        }
        Status::Pending => Ok(()),
        Status::Expired => Err(Error::Quote(QuoteError::Expired { id, expires_at })),
        status @ (Status::Processing | Status::Completed | Status::Failed) => {
            Err(Error::Quote(QuoteError::NotPending { id, status }))
        }
    }
}

/// Takes quote and transaction into processing.
fn begin(
    app: &App,
    unit: &mut Unit<'_, '_>,
    quote: Quote,
    now: Timestamp,
) -> Result<(Transaction, Quote), Error> {
    let transaction = unit
        .get::<Transaction>(&quote.draft().transaction)?
        .ok_or_else(|| Error::Internal(format!("{} has no transaction", quote.id())))?;
    let transaction = Transaction::clone(&transaction);
    let transaction = lifecycle::advance(app, unit, transaction, Event::Started, now)?;
    let quote = lifecycle::advance_quote(unit, quote, quote::Event::Executed, now)?;
    Ok((transaction, quote))
}

/// Starts a quote whose money is here and posts its exchange.
pub(crate) fn run(
    app: &App,
    unit: &mut Unit<'_, '_>,
    quote: Quote,
    source: movements::Source,
    other_side: TransactionId,
    now: Timestamp,
) -> Result<Quote, Error> {
    let (transaction, quote) = begin(app, unit, quote, now)?;
    exchange(app, unit, transaction, quote, source, other_side, now)
}

/// Posts a quote's exchange and moves quote and transaction: to their end where the destination is
/// an account here, else until the rail or the payee's platform answers. The payee's side of a
/// payment within this server has the id that was drawn for it by the server's clock.
pub(crate) fn exchange(
    app: &App,
    unit: &mut Unit<'_, '_>,
    transaction: Transaction,
    quote: Quote,
    source: movements::Source,
    other_side: TransactionId,
    now: Timestamp,
) -> Result<Quote, Error> {
    let draft = quote.draft().clone();
    let (target, leg) = target(app, unit, &quote)?;
    let price = &draft.price;
    let fees = price.own_fees();
    let leaves = Receiving(leaves(&draft));
    let posting = movements::exchange(source, target, draft.platform, price.sent, fees, leaves)?;
    match (target, leg) {
        (Target::Internal(_), _) => {
            unit.post(draft.transaction, &posting, now)?;
            lifecycle::advance(app, unit, transaction, Event::Settled, now)?;
            lifecycle::advance_quote(unit, quote, quote::Event::Delivered, now)
        }
        (Target::Rail(_), Some(leg)) => {
            unit.pend(draft.transaction, &posting, now)?;
            lifecycle::ask_rail(app, unit, transaction, leg, now)?;
            Ok(quote)
        }
        (Target::Rail(_), None) => Err(Error::Internal(format!("{} has no leg", draft.id))),
        (Target::Transit, _) => {
            unit.pend(draft.transaction, &posting, now)?;
            incoming::begin_here(app, unit, &transaction, &quote, other_side, now)?;
            let quote = unit.get::<Quote>(&draft.id)?;
            let quote = quote.ok_or_else(|| Error::Internal(format!("{} is gone", draft.id)))?;
            Ok(Quote::clone(&quote))
        }
    }
}

/// The amount that leaves the exchange: the one that arrives, or that of the institution's invoice.
fn leaves(draft: &quote::Draft) -> Money {
    match draft.uma.as_ref().map(|uma| &uma.route) {
        Some(Route::Lightning { msat, .. }) => *msat,
        Some(Route::Here { .. }) | None => draft.price.received.money(),
    }
}

/// Where a quote's money goes, if it can still go there, and on which leg it leaves.
pub(crate) fn target(
    app: &App,
    unit: &mut Unit<'_, '_>,
    quote: &Quote,
) -> Result<(Target, Option<Leg>), Error> {
    let over = |leg: Leg| (Target::Rail(leg.rail), Some(leg));
    let draft = quote.draft();
    // Currencies that were turned off since the quote was made are off at once (contract 6.1).
    let platform = owners::platform(unit, draft.platform)?;
    are_on(&platform, draft.price.sent.currency(), &draft.destination)?;
    let account = match (&draft.destination, &draft.uma) {
        (Destination::Account { account, .. }, _) => *account,
        (Destination::Uma { address, .. }, Some(uma)) => {
            return match &uma.route {
                Route::Lightning { .. } => {
                    uma::peers::refuse_blocked(unit, draft.platform, address)?;
                    app.env().route_to_institution(platform.mode).map(over)
                }
                Route::Here { customer } => {
                    uma::can_be_paid(unit, *customer, draft.price.received.money())?;
                    Ok((Target::Transit, None))
                }
            };
        }
        (Destination::Uma { address, .. }, None) => {
            return Err(Error::Internal(format!("{} cannot reach {address}", draft.id)));
        }
    };
    match account {
        AccountRef::Internal(id) => {
            owners::internal_account(unit, &platform, id)?.owner.may_move_money()?;
            limits::has_room(unit, id, draft.price.received.money())?;
            Ok((Target::Internal(id), None))
        }
        AccountRef::External(id) => {
            let account = owners::external_account(unit, draft.platform, id)?;
            let holder = owners::holder(unit, draft.platform, draft.owner.customer())?;
            owners::usable_by(unit, &account, &holder, "destination.accountId")?;
            let arrives = draft.price.received.money();
            let transaction = unit.get::<Transaction>(&draft.transaction)?;
            let wanted = transaction.and_then(|it| it.draft().rail_request.rail);
            app.env().route(platform.mode, &account.info, arrives, wanted).map(over)
        }
    }
}
