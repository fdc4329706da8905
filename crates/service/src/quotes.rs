//! Quotes: made, executed, expired (specification 2.5, 3.2, 4.13; contract 6.9).

use std::sync::Arc;

use domain::clock::Ahead;
use domain::currency::Currency;
use domain::external_account::ExternalAccount;
use domain::id::{CustomerId, ExternalAccountId, PlatformId, QuoteId, TransactionId};
use domain::money::{Receiving, Sending};
use domain::platform::Platform;
use domain::pricing::Locked;
use domain::quote::{self, Quote, Status};
use domain::time::Timestamp;
use domain::transaction::{
    AccountRef, Destination, Direction, Draft, Event, Source, Terms, Transaction,
};
use ledger::movements::{self, Target};
use ports::rail::{Cause, Flow, Instruction, RailFailure};
use store::readers::View;
use store::unit::Unit;

use crate::app::App;
use crate::error::Error;
use crate::external_accounts::{self, Duplicate, NewExternalAccount};
use crate::once::{Keyed, Render, Reply, answered, once};
use crate::owners::{self, Holder};
use crate::{lifecycle, limits, pricing};

/// Where a quote's money shall come from.
#[derive(Debug, Clone)]
pub enum From {
    /// An internal account. With a customer, the platform's own account pays for that customer.
    Account {
        /// The account.
        account: AccountRef,
        /// The customer who sends.
        customer_id: Option<CustomerId>,
    },
    /// A deposit that is made for this quote.
    RealtimeFunding {
        /// Currency of the deposit.
        currency: Currency,
        /// The customer who sends; the platform itself without one.
        customer_id: Option<CustomerId>,
    },
}

/// Where a quote's money shall go.
#[derive(Debug, Clone)]
pub enum To {
    /// An account that exists.
    Account(AccountRef),
    /// An account that is made with the quote and stays.
    Details(Box<NewExternalAccount>),
}

/// The side whose amount is given.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Side {
    /// What is charged.
    Sending,
    /// What arrives.
    Receiving,
}

/// What a client asks a price for.
#[derive(Debug, Clone)]
pub struct NewQuote {
    /// Where money comes from.
    pub from: From,
    /// Where it goes.
    pub to: To,
    /// Which side's amount is given.
    pub locked_side: Side,
    /// The amount, in the smallest unit of that side's currency.
    pub locked_minor: i64,
    /// Whether the quote is executed with its creation.
    pub immediately_execute: bool,
    /// The memo.
    pub description: Option<String>,
    /// What the payment is for, one of [`quote::PURPOSES`].
    pub purpose: Option<&'static str>,
}

/// Identifiers that are drawn before a quote is made.
#[derive(Debug, Clone, Copy)]
pub struct Drawn {
    quote: QuoteId,
    transaction: TransactionId,
    external_account: ExternalAccountId,
    now: Timestamp,
}

/// Draws what a new quote needs.
pub fn draw(app: &App, ahead: Ahead) -> Drawn {
    let now = app.now(ahead);
    Drawn {
        quote: app.new_id(ahead, now),
        transaction: app.new_id(ahead, now),
        external_account: app.new_id(ahead, now),
        now,
    }
}

/// A quote with the platform that it belongs to, which decides how its deposit is made.
#[derive(Debug, Clone)]
pub struct Quoted {
    /// The quote.
    pub quote: Quote,
    /// Its platform.
    pub platform: Arc<Platform>,
}

/// Makes a quote and, if asked, executes it.
pub async fn create<R: Render<Quoted>>(
    app: &App,
    keyed: Keyed,
    new: NewQuote,
    render: R,
) -> Result<Reply, Error> {
    if let Some(reply) = answered(app, keyed).await? {
        return Ok(reply);
    }
    let drawn = draw(app, keyed.ahead);
    let objection = if new.immediately_execute {
        ask_before(app, keyed.platform, &new.to, new.locked_minor, drawn).await?
    } else {
        None
    };
    let unit_app = app.clone();
    once(app, keyed, render, move |unit| {
        let quote = make(&unit_app, unit, keyed.platform, &new, drawn)?;
        let quote = if new.immediately_execute {
            start(&unit_app, unit, quote, objection, drawn.now)?
        } else {
            quote
        };
        Ok(Quoted { quote, platform: owners::platform(unit, keyed.platform)? })
    })
    .await
}

fn make(
    app: &App,
    unit: &mut Unit<'_, '_>,
    platform: PlatformId,
    new: &NewQuote,
    drawn: Drawn,
) -> Result<Quote, Error> {
    let platform = owners::platform(unit, platform)?;
    let now = drawn.now;
    let (source, holder) = source(unit, &platform, &new.from)?;
    holder.may_move_money()?;
    let destination = destination(unit, &platform, new, &holder, drawn)?;
    if source.account() == Some(destination.account) {
        return Err(Error::SelfPayment);
    }
    if new.immediately_execute && matches!(source, Source::RealtimeFunding { .. }) {
        return Err(Error::field(
            "immediatelyExecute",
            "a quote that is funded in real time is executed when its deposit arrives",
        ));
    }
    let (sending, receiving) = (source.currency(), destination.currency);
    limits::enabled(&platform, sending, Direction::Outgoing)?;
    limits::enabled(&platform, receiving, Direction::Incoming)?;
    let locked = match new.locked_side {
        Side::Sending => Locked::Sending(Sending(limits::amount(new.locked_minor, sending)?)),
        Side::Receiving => {
            Locked::Receiving(Receiving(limits::amount(new.locked_minor, receiving)?))
        }
    };
    let rates = app.env().rates.as_ref();
    let corridor = pricing::corridor(rates, &platform, sending, receiving, now)?;
    let price = pricing::quote(&platform, corridor, locked)?;
    let rate_details = pricing::rate_details(rates, &price, now);
    let quote = Quote::pending(quote::Draft {
        id: drawn.quote,
        platform: platform.id,
        owner: holder.owner(),
        transaction: drawn.transaction,
        source,
        destination,
        locked,
        price,
        rate_details,
        expires_at: now.plus_millis(app.env().quote_lifetime_millis),
        purpose: new.purpose,
    });
    let transaction = Transaction::pending(Draft {
        id: drawn.transaction,
        platform: platform.id,
        owner: holder.owner(),
        platform_customer_id: holder.platform_customer_id(),
        direction: Direction::Outgoing,
        source: Some(source),
        destination,
        sent: Some(price.sent),
        received: price.received,
        terms: Some(Terms {
            quote: drawn.quote,
            rate: price.rate,
            fees: price.total_fees(),
            rate_details,
        }),
        description: new.description.clone(),
    });
    lifecycle::begin(app, unit, transaction)?;
    lifecycle::begin_quote(unit, &platform, quote.clone(), now);
    Ok(quote)
}

fn source(
    unit: &mut Unit<'_, '_>,
    platform: &Platform,
    from: &From,
) -> Result<(Source, Holder), Error> {
    match from {
        From::Account { account: AccountRef::Internal(id), customer_id } => {
            let account = owners::internal_account(unit, platform, *id)?;
            let source = Source::Account {
                account: AccountRef::Internal(account.id),
                currency: account.currency,
            };
            let holder = match (customer_id, account.owner) {
                (None, owner) => owner,
                // The platform's own account may pay on behalf of any of its customers.
                (Some(id), Holder::Platform(_)) => {
                    Holder::Customer(owners::customer(unit, platform.id, *id)?)
                }
                (Some(id), Holder::Customer(customer)) if customer.id == *id => {
                    Holder::Customer(customer)
                }
                (Some(_), Holder::Customer(_)) => {
                    let message = "is not the customer who owns the source account";
                    return Err(Error::field("source.customerId", message));
                }
            };
            Ok((source, holder))
        }
        From::Account { account: AccountRef::External(id), customer_id } => {
            let account = owners::external_account(unit, platform.id, *id)?;
            if !account.info.account_type().can_pull {
                return Err(Error::NotPullable { id: *id });
            }
            let customer_id = customer_id.or(account.owner.customer());
            let holder = owners::holder(unit, platform.id, customer_id)?;
            owners::usable_by(unit, &account, &holder, "source.accountId")?;
            let currency = account.currency;
            let account = AccountRef::External(account.id);
            Ok((Source::Account { account, currency }, holder))
        }
        From::RealtimeFunding { currency, customer_id } => {
            let holder = owners::holder(unit, platform.id, *customer_id)?;
            Ok((Source::RealtimeFunding { currency: *currency }, holder))
        }
    }
}

fn destination(
    unit: &mut Unit<'_, '_>,
    platform: &Platform,
    new: &NewQuote,
    holder: &Holder,
    drawn: Drawn,
) -> Result<Destination, Error> {
    let external = |unit: &mut Unit<'_, '_>, account: &ExternalAccount, field: &str| {
        owners::usable_by(unit, account, holder, field)?;
        Ok(Destination { account: AccountRef::External(account.id), currency: account.currency })
    };
    match &new.to {
        To::Account(AccountRef::Internal(id)) => {
            let account = owners::internal_account(unit, platform, *id)?;
            account.owner.may_move_money()?;
            Ok(Destination {
                account: AccountRef::Internal(account.id),
                currency: account.currency,
            })
        }
        To::Account(AccountRef::External(id)) => {
            let account = owners::external_account(unit, platform.id, *id)?;
            external(unit, &account, "destination.accountId")
        }
        To::Details(details) => {
            let mut details = NewExternalAccount::clone(details);
            details.customer_id = details.customer_id.or(holder.owner().customer());
            let account = external_accounts::create(
                unit,
                platform.id,
                &details,
                drawn.external_account,
                Duplicate::Used,
                drawn.now,
            )?;
            external(unit, &account, "destination.externalAccountDetails.customerId")
        }
    }
}

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
    let platform = keyed.platform;
    let found = app.store().look(move |view| view.get::<Quote>(&id)).await?;
    let objection = match found.filter(|quote| quote.draft().platform == platform) {
        Some(quote) if quote.status() == Status::Pending => {
            let draft = quote.draft();
            let drawn = Drawn {
                quote: id,
                transaction: draft.transaction,
                external_account: ExternalAccountId::from_uuid(id.uuid()),
                now,
            };
            let minor = draft.price.received.minor();
            let to = To::Account(draft.destination.account);
            ask_before(app, platform, &to, minor, drawn).await?
        }
        Some(_) | None => None,
    };
    let unit_app = app.clone();
    once(app, keyed, render, move |unit| {
        let quote = unit
            .get::<Quote>(&id)?
            .filter(|quote| quote.draft().platform == platform)
            .ok_or(Error::QuoteNotFound { id })?;
        let quote = start(&unit_app, unit, Quote::clone(&quote), objection, now)?;
        Ok(Quoted { quote, platform: owners::platform(unit, platform)? })
    })
    .await
}

/// Asks the rail of an external destination whether it would take the payment at all.
async fn ask_before(
    app: &App,
    platform: PlatformId,
    to: &To,
    minor: i64,
    drawn: Drawn,
) -> Result<Option<RailFailure>, Error> {
    let id = match to {
        To::Account(AccountRef::Internal(_)) => return Ok(None),
        To::Account(AccountRef::External(id)) => Some(*id),
        To::Details(_) => None,
    };
    let read = move |view: &mut View<'_>| {
        let account = id.map(|id| view.get::<ExternalAccount>(&id)).transpose()?.flatten();
        Ok::<_, Error>((account, view.get::<Platform>(&platform)?))
    };
    let (account, platform) = app.store().look(read).await?;
    let Some(platform) = platform else { return Ok(None) };
    let account = account.filter(|account| account.platform == platform.id);
    let (info, currency) = match (to, &account) {
        (To::Details(details), _) => (&details.info, details.currency),
        (To::Account(_), Some(account)) => (&account.info, account.currency),
        (To::Account(_), None) => return Ok(None),
    };
    let order = Instruction {
        key: drawn.transaction,
        flow: Flow::PayOut,
        cause: Cause::Quote,
        rail: info.rails()[0],
        amount: limits::amount(minor, currency)?,
        account: info.clone(),
        since: drawn.now,
    };
    Ok(app.env().rail(platform.mode).check(&order).await.err())
}

/// Starts the transfer of a quote: an internal source is debited at once, an external one is asked
/// for the money first.
fn start(
    app: &App,
    unit: &mut Unit<'_, '_>,
    quote: Quote,
    objection: Option<RailFailure>,
    now: Timestamp,
) -> Result<Quote, Error> {
    let draft = quote.draft();
    let Source::Account { account: source, .. } = draft.source else {
        return Err(Error::QuoteFundedInRealTime { id: quote.id() });
    };
    may_start(&quote, now)?;
    let platform = owners::platform(unit, draft.platform)?;
    let holder = owners::holder(unit, draft.platform, draft.owner.customer())?;
    holder.may_move_money()?;
    refuse_objection(&quote, source.to_string(), objection)?;
    match source {
        AccountRef::Internal(id) => {
            owners::internal_account(unit, &platform, id)?.owner.may_move_money()?;
            run(app, unit, quote, movements::Source::Internal(id), now)
        }
        AccountRef::External(id) => {
            let account = owners::external_account(unit, platform.id, id)?;
            owners::usable_by(unit, &account, &holder, "source.accountId")?;
            let (transaction, quote) = begin(app, unit, quote, now)?;
            lifecycle::ask_rail(app, unit, &transaction, now)?;
            Ok(quote)
        }
    }
}

/// Refuses a quote that is not open any more.
pub(crate) fn may_start(quote: &Quote, now: Timestamp) -> Result<(), Error> {
    let (id, expires_at) = (quote.id(), quote.draft().expires_at);
    match quote.status() {
        Status::Pending if quote.is_over(now) => Err(Error::QuoteExpired { id, expires_at }),
        Status::Pending => Ok(()),
        Status::Expired => Err(Error::QuoteExpired { id, expires_at }),
        status @ (Status::Processing | Status::Completed | Status::Failed) => {
            Err(Error::QuoteNotPending { id, status })
        }
    }
}

fn refuse_objection(
    quote: &Quote,
    source: String,
    objection: Option<RailFailure>,
) -> Result<(), Error> {
    let draft = quote.draft();
    let Some(id) = draft.destination.account.external() else { return Ok(()) };
    match objection {
        None => Ok(()),
        Some(RailFailure::InsufficientFunds) => Err(Error::InsufficientBalance {
            account: source,
            currency: draft.price.sent.currency(),
            available: 0,
            needed: draft.price.sent.minor(),
        }),
        Some(RailFailure::NotConnected) => Err(Error::NoRail { id }),
        Some(RailFailure::AccountInvalid | RailFailure::TimedOut) => {
            Err(Error::AccountUnreachable { id })
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
    now: Timestamp,
) -> Result<Quote, Error> {
    let (transaction, quote) = begin(app, unit, quote, now)?;
    exchange(app, unit, transaction, quote, source, now)
}

/// Posts a quote's exchange and moves quote and transaction: to their end where the destination is
/// here, else until the rail answers.
pub(crate) fn exchange(
    app: &App,
    unit: &mut Unit<'_, '_>,
    transaction: Transaction,
    quote: Quote,
    source: movements::Source,
    now: Timestamp,
) -> Result<Quote, Error> {
    let draft = quote.draft().clone();
    let target = target(unit, &quote)?;
    let price = &draft.price;
    let fees = price.total_fees();
    let posting =
        movements::exchange(source, target, draft.platform, price.sent, fees, price.received)?;
    match target {
        Target::Internal(_) => {
            unit.post(draft.transaction, &posting, now)?;
            lifecycle::advance(app, unit, transaction, Event::Settled, now)?;
            lifecycle::advance_quote(unit, quote, quote::Event::Delivered, now)
        }
        Target::Rail(_) => {
            unit.pend(draft.transaction, &posting, now)?;
            lifecycle::ask_rail(app, unit, &transaction, now)?;
            Ok(quote)
        }
    }
}

/// Where a quote's money goes, if it can still go there.
pub(crate) fn target(unit: &mut Unit<'_, '_>, quote: &Quote) -> Result<Target, Error> {
    let draft = quote.draft();
    match draft.destination.account {
        AccountRef::Internal(id) => {
            let platform = owners::platform(unit, draft.platform)?;
            owners::internal_account(unit, &platform, id)?.owner.may_move_money()?;
            limits::has_room(unit, id, draft.price.received.money())?;
            Ok(Target::Internal(id))
        }
        AccountRef::External(id) => {
            let account = owners::external_account(unit, draft.platform, id)?;
            let holder = owners::holder(unit, draft.platform, draft.owner.customer())?;
            owners::usable_by(unit, &account, &holder, "destination.accountId")?;
            Ok(Target::Rail(account.info.rails()[0]))
        }
    }
}

/// Ends a quote whose time is over, with its transaction. Does nothing to a quote that is not
/// pending any more.
pub(crate) fn expire(
    app: &App,
    unit: &mut Unit<'_, '_>,
    id: QuoteId,
    now: Timestamp,
) -> Result<(), Error> {
    let Some(quote) = unit.get::<Quote>(&id)? else { return Ok(()) };
    if quote.status() != Status::Pending || !quote.is_over(now) {
        return Ok(());
    }
    if let Some(transaction) = unit.get::<Transaction>(&quote.draft().transaction)? {
        lifecycle::advance(app, unit, Transaction::clone(&transaction), Event::Expired, now)?;
    }
    lifecycle::advance_quote(unit, Quote::clone(&quote), quote::Event::Expired, now)?;
    Ok(())
}
