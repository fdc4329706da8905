//! Quotes: made, executed, expired (specification 2.5, 3.2, 4.13; contract 6.9).

use std::sync::Arc;

use domain::clock::Ahead;
use domain::currency::Currency;
use domain::external_account::ExternalAccount;
use domain::id::{CustomerId, ExternalAccountId, LookupId, PlatformId, QuoteId, TransactionId};
use domain::lookup::Receiver;
use domain::money::{Money, Receiving, Sending};
use domain::platform::Platform;
use domain::pricing::Locked;
use domain::quote::{self, Quote, Route, Status};
use domain::rail::Rail;
use domain::time::Timestamp;
use domain::transaction::{
    AccountRef, Destination, Direction, Draft, Event, Facts, Source, Terms, Transaction, reference,
};
use ledger::movements::{self, Target};
use ports::rail::{Cause, Deposit, Flow, Instruction, Party, RailFailure};
use store::readers::View;
use store::unit::Unit;

use crate::app::App;
use crate::error::{Error, Missing};
use crate::external_accounts::{self, Duplicate, NewExternalAccount, Report};
use crate::once::{Keyed, Render, Reply, answered, once};
use crate::owners::{self, Holder};
use crate::uma::{self, Agreed, Plan, Question, ToUma};
use crate::{incoming, lifecycle, limits, pricing};

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
        /// The blockchain that it comes over, if one was named.
        network: Option<&'static str>,
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
    /// A UMA address that was looked up.
    Uma(ToUma),
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
    /// The lookup of the receiver; needed for UMA addresses.
    pub lookup: Option<LookupId>,
    /// What is said about the payer.
    pub payer: Facts,
}

impl NewQuote {
    /// Whether money comes from or goes to an account elsewhere.
    fn uses_rail(&self) -> bool {
        let comes = match &self.from {
            From::Account { account, .. } => account.external().is_some(),
            // Refused by its currency, which no rail takes.
            From::RealtimeFunding { .. } => false,
        };
        let goes = match &self.to {
            To::Account(account) => account.external().is_some(),
            To::Details(_) => true,
            To::Uma(_) => false,
        };
        comes || goes
    }
}

/// Identifiers that are drawn before a quote is made.
#[derive(Debug, Clone, Copy)]
pub struct Drawn {
    quote: QuoteId,
    transaction: TransactionId,
    external_account: ExternalAccountId,
    /// By the server's clock: the payee's platform may have another.
    other_side: TransactionId,
    now: Timestamp,
}

/// Draws what a new quote needs.
pub fn draw(app: &App, ahead: Ahead) -> Drawn {
    let now = app.now(ahead);
    Drawn {
        quote: app.new_id(ahead, now),
        transaction: app.new_id(ahead, now),
        external_account: app.new_id(ahead, now),
        other_side: app.new_id(Ahead::NONE, app.server_now()),
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
    let agreed = ask_institution(app, keyed.platform, &new, drawn).await;
    let objection = if new.immediately_execute {
        let amount = match (new.locked_side, &new.from) {
            (Side::Sending, From::Account { account, .. }) => {
                Known::Leaves(new.locked_minor, *account)
            }
            (Side::Sending | Side::Receiving, _) => Known::Arrives(new.locked_minor),
        };
        ask_before(app, keyed.platform, &new.to, amount, drawn.transaction, drawn.now).await?
    } else {
        None
    };
    let report = match &new.to {
        To::Details(details) => {
            let info = &details.info;
            Some(external_accounts::inspect(app, keyed.platform, info, None).await?)
        }
        To::Account(_) | To::Uma(_) => None,
    };
    let unit_app = app.clone();
    once(app, keyed, render, move |unit| {
        let agreed = agreed.clone()?;
        if new.uses_rail() {
            unit_app.env().needs_rail(owners::platform(unit, keyed.platform)?.mode)?;
        }
        let quote =
            make(&unit_app, unit, keyed.platform, &new, agreed.as_ref(), report.as_ref(), drawn)?;
        let quote = if new.immediately_execute {
            start(&unit_app, unit, quote, objection, drawn.other_side, drawn.now)?
        } else {
            quote
        };
        Ok(Quoted { quote, platform: owners::platform(unit, keyed.platform)? })
    })
    .await
}

/// Asks the institution of a UMA address for an invoice, if it is another one. What is refused here
/// is the answer to the request.
async fn ask_institution(
    app: &App,
    platform: PlatformId,
    new: &NewQuote,
    drawn: Drawn,
) -> Result<Option<Agreed>, Error> {
    let To::Uma(to) = &new.to else { return Ok(None) };
    let (receiver, new, unit_app) = (to.address.clone(), new.clone(), app.clone());
    let question = app
        .store()
        .write(move |unit| {
            let Asked { platform, source, locked, plan, .. } =
                asked(&unit_app, unit, platform, &new, None, drawn)?;
            let sending = source.currency().ok_or_else(|| no_currency(&new))?;
            let Some(plan) = plan else { return Ok(None) };
            let receiver = receiver.clone();
            Ok::<_, Error>(Some(Question { platform, sending, locked, receiver, plan }))
        })
        .await?;
    match question {
        Some(question) => uma::agree(app, question, drawn.now).await,
        None => Ok(None),
    }
}

fn no_currency(new: &NewQuote) -> Error {
    Error::Internal(format!("{:?} has no currency", new.from))
}

/// What a quote is asked for, held against what there is.
struct Asked {
    platform: Arc<Platform>,
    holder: Holder,
    source: Source,
    destination: Destination,
    locked: Locked,
    /// Of a quote to a UMA address.
    plan: Option<Plan>,
}

fn asked(
    app: &App,
    unit: &mut Unit<'_, '_>,
    platform: PlatformId,
    new: &NewQuote,
    report: Option<&Report>,
    drawn: Drawn,
) -> Result<Asked, Error> {
    let platform = owners::platform(unit, platform)?;
    let (source, holder) = source(unit, &platform, &new.from)?;
    can_be_funded(app, &platform, &source, drawn.transaction)?;
    holder.may_move_money()?;
    if let Some(currency) = source.currency() {
        holder.is_known_enough(&platform, currency)?;
    }
    let (destination, plan) = match &new.to {
        To::Uma(to) => {
            let said = (new.lookup, &new.payer);
            let way = (source.currency(), to);
            let plan = uma::plan(unit, &platform, way, said, &holder, drawn.now)?;
            let (address, currency) = (to.address.clone(), plan.offer.currency);
            (Destination::Uma { address, currency }, Some(plan))
        }
        To::Account(_) | To::Details(_) => {
            let destination = destination(unit, &platform, new, &holder, report, drawn)?;
            is_looked_up(unit, &platform, new, &destination, &holder, drawn.now)?;
            (destination, None)
        }
    };
    if source.account().is_some() && source.account() == destination.account() {
        return Err(Error::SelfPayment);
    }
    if new.immediately_execute && matches!(source, Source::RealtimeFunding { .. }) {
        return Err(Error::field(
            "immediatelyExecute",
            "a quote that is funded in real time is executed when its deposit arrives",
        ));
    }
    let sending = source.currency().ok_or_else(|| no_currency(new))?;
    are_on(&platform, sending, &destination)?;
    let receiving = destination.currency();
    let locked = match new.locked_side {
        Side::Sending => Locked::Sending(Sending(limits::amount(new.locked_minor, sending)?)),
        Side::Receiving => {
            Locked::Receiving(Receiving(limits::amount(new.locked_minor, receiving)?))
        }
    };
    Ok(Asked { platform, holder, source, destination, locked, plan })
}

/// Refuses a deposit in real time where the platform's rails give no instructions for it (contract
/// 6.9.1): nobody could make it.
fn can_be_funded(
    app: &App,
    platform: &Platform,
    source: &Source,
    transaction: TransactionId,
) -> Result<(), Error> {
    let Source::RealtimeFunding { currency, network } = source else { return Ok(()) };
    let rail = app.env().rail(platform.mode);
    let reference = reference(transaction);
    let since = transaction.created_at();
    let deposit = Deposit { currency: *currency, reference: &reference, amount: None, since };
    let ways = rail.instructions(&deposit);
    let is_on = |network: &str| ways.iter().any(|way| way.account_type.is_on(network));
    match network {
        None if ways.is_empty() => {
            let message = format!(
                "no rail of this platform takes deposits in {currency}: pay from an account"
            );
            Err(Error::field("source.currency", message))
        }
        Some(network) if !is_on(network) => {
            let message = format!("no rail of this platform takes deposits over {network}");
            Err(Error::field("source.cryptoNetwork", message))
        }
        None | Some(_) => Ok(()),
    }
}

/// Refuses a payment of which the platform has turned a currency off. What leaves the platform is
/// an outgoing payment in both of its currencies; whether an address can be paid in one is for its
/// own platform to say.
fn are_on(platform: &Platform, sending: Currency, destination: &Destination) -> Result<(), Error> {
    if let Some(account) = destination.account() {
        let stays = account.internal().is_some();
        let way = if stays { Direction::Incoming } else { Direction::Outgoing };
        limits::enabled(platform, destination.currency(), way)?;
    }
    limits::enabled(platform, sending, Direction::Outgoing)
}

/// A lookup that is named must be good, also where none is needed.
fn is_looked_up(
    unit: &mut Unit<'_, '_>,
    platform: &Platform,
    new: &NewQuote,
    destination: &Destination,
    holder: &Holder,
    now: Timestamp,
) -> Result<(), Error> {
    let Some(id) = new.lookup else { return Ok(()) };
    let lookup = uma::lookup(unit, platform.id, id, now)?;
    let looked_up = match lookup.receiver {
        Receiver::Account(id) => Some(AccountRef::External(id)),
        Receiver::Customer { .. } | Receiver::Peer { .. } => None,
    };
    if looked_up.is_none() || looked_up != destination.account() {
        return Err(Error::field("lookupId", "is the lookup of another receiver"));
    }
    if let Some(customer) = holder.owner().customer() {
        uma::is_senders(&lookup, customer)?;
    }
    uma::is_complete(&lookup, &new.payer)
}

fn make(
    app: &App,
    unit: &mut Unit<'_, '_>,
    platform: PlatformId,
    new: &NewQuote,
    agreed: Option<&Agreed>,
    report: Option<&Report>,
    drawn: Drawn,
) -> Result<Quote, Error> {
    let Asked { platform, holder, source, destination, locked, plan } =
        asked(app, unit, platform, new, report, drawn)?;
    let now = drawn.now;
    let (sending, receiving) =
        (source.currency().ok_or_else(|| no_currency(new))?, destination.currency());
    let rates = app.env().rates.as_ref();
    let mut expires_at = now.plus_millis(app.env().quote_lifetime_millis);
    let (price, rate_details, of_quote, of_transaction) = match (plan, &new.to) {
        (Some(plan), To::Uma(to)) => {
            let what = (sending, locked);
            let priced = uma::price(app, &platform, what, to, plan, agreed, now)?;
            // An invoice that cannot be paid any more is no use, however long the quote is open.
            expires_at = priced.expires_at.map_or(expires_at, |end| end.min(expires_at));
            let (of_quote, of_transaction) = (priced.of_quote, priced.of_transaction);
            (priced.price, priced.rate_details, Some(of_quote), Some(of_transaction))
        }
        (_, _) => {
            let corridor = pricing::corridor(rates, &platform, sending, receiving, now)?;
            let price = pricing::quote(&platform, corridor, locked, 0)?;
            (price, pricing::rate_details(rates, &price, None, now), None, None)
        }
    };
    let quote = Quote::pending(quote::Draft {
        id: drawn.quote,
        platform: platform.id,
        owner: holder.owner(),
        transaction: drawn.transaction,
        source: source.clone(),
        destination: destination.clone(),
        locked,
        price,
        rate_details,
        expires_at,
        purpose: new.purpose,
        uma: of_quote,
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
        uma: of_transaction,
        description: new.description.clone(),
    });
    lifecycle::begin(app, unit, transaction)?;
    lifecycle::begin_quote(unit, &platform, quote.clone(), now)?;
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
        From::RealtimeFunding { currency, network, customer_id } => {
            let holder = owners::holder(unit, platform.id, *customer_id)?;
            Ok((Source::RealtimeFunding { currency: *currency, network: *network }, holder))
        }
    }
}

fn destination(
    unit: &mut Unit<'_, '_>,
    platform: &Platform,
    new: &NewQuote,
    holder: &Holder,
    report: Option<&Report>,
    drawn: Drawn,
) -> Result<Destination, Error> {
    let external = |unit: &mut Unit<'_, '_>, account: &ExternalAccount, field: &str| {
        owners::usable_by(unit, account, holder, field)?;
        let (account, currency) = (AccountRef::External(account.id), account.currency);
        Ok(Destination::Account { account, currency })
    };
    match &new.to {
        To::Account(AccountRef::Internal(id)) => {
            let account = owners::internal_account(unit, platform, *id)?;
            account.owner.may_move_money()?;
            account.owner.is_known_enough(platform, account.currency)?;
            let (account, currency) = (AccountRef::Internal(account.id), account.currency);
            Ok(Destination::Account { account, currency })
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
                report.ok_or_else(|| Error::Internal("no rail was asked".to_owned()))?,
                drawn.now,
            )?;
            external(unit, &account, "destination.externalAccountDetails.customerId")
        }
        To::Uma(to) => Err(Error::Internal(format!("{} is no account", to.address))),
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
    let other_side = app.new_id(Ahead::NONE, app.server_now());
    let platform = keyed.platform;
    let found = app.store().get::<Quote>(id).await?;
    let objection = match found.filter(|quote| quote.draft().platform == platform) {
        Some(quote) if quote.status() == Status::Pending => {
            let draft = quote.draft();
            let minor = draft.price.received.minor();
            match draft.destination.account() {
                Some(account) => {
                    let to = To::Account(account);
                    let amount = Known::Arrives(minor);
                    ask_before(app, platform, &to, amount, draft.transaction, now).await?
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
            .ok_or(Error::QuoteNotFound { id })?;
        let quote = Quote::clone(&quote);
        let quote = start(&unit_app, unit, quote, objection, other_side, now)?;
        Ok(Quoted { quote, platform: owners::platform(unit, platform)? })
    })
    .await
}

/// What is known of the amount of a payment, in smallest units.
#[derive(Debug, Clone, Copy)]
enum Known {
    /// What arrives.
    Arrives(i64),
    /// What leaves this account, all fees in it.
    Leaves(i64, AccountRef),
}

/// Asks the rail of an external destination whether it would take the payment at all.
async fn ask_before(
    app: &App,
    platform: PlatformId,
    to: &To,
    amount: Known,
    key: TransactionId,
    now: Timestamp,
) -> Result<Option<RailFailure>, Error> {
    let id = match to {
        // An institution that gave an invoice will take its payment.
        To::Account(AccountRef::Internal(_)) | To::Uma(_) => return Ok(None),
        To::Account(AccountRef::External(id)) => Some(*id),
        To::Details(_) => None,
    };
    let pulled = match amount {
        Known::Leaves(_, source) => source.external(),
        Known::Arrives(_) => None,
    };
    let read = move |view: &mut View<'_>| {
        let mut account = |id: Option<ExternalAccountId>| {
            Ok::<_, Error>(id.map(|id| view.get::<ExternalAccount>(&id)).transpose()?.flatten())
        };
        let (account, source) = (account(id)?, account(pulled)?);
        Ok::<_, Error>((account, source, view.get::<Platform>(&platform)?))
    };
    let (account, source, platform) = app.store().look(read).await?;
    let Some(platform) = platform else { return Ok(None) };
    let account = account.filter(|account| account.platform == platform.id);
    let (info, currency) = match (to, &account) {
        (To::Details(details), _) => (&details.info, details.currency),
        (To::Account(_), Some(account)) => (&account.info, account.currency),
        (To::Account(_) | To::Uma(_), _) => return Ok(None),
    };
    let amount = match amount {
        Known::Arrives(minor) => limits::amount(minor, currency)?,
        Known::Leaves(minor, from) => {
            let sending = match from {
                AccountRef::Internal(id) => id.currency(),
                AccountRef::External(_) => source.map(|account| account.currency),
            };
            // What cannot be priced is refused with the quote.
            let Some(sending) = sending else { return Ok(None) };
            let locked = Locked::Sending(Sending(limits::amount(minor, sending)?));
            let rates = app.env().rates.as_ref();
            let corridor = pricing::corridor(rates, &platform, sending, currency, now);
            let price = corridor.and_then(|it| pricing::quote(&platform, it, locked, 0));
            let Ok(price) = price else { return Ok(None) };
            price.received.money()
        }
    };
    let order = Instruction {
        key,
        flow: Flow::PayOut,
        cause: Cause::Quote,
        rail: info.rails()[0],
        amount,
        party: Party::Account(Box::new(info.clone())),
        since: now,
        settings: platform.rail_settings.clone(),
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
    other_side: TransactionId,
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
            run(app, unit, quote, movements::Source::Internal(id), other_side, now)
        }
        AccountRef::External(id) => {
            let account = owners::external_account(unit, platform.id, id)?;
            owners::usable_by(unit, &account, &holder, "source.accountId")?;
            // Nothing is pulled that could not go on.
            target(unit, &quote)?;
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
    let account = draft.destination.account().and_then(AccountRef::external);
    let Some(id) = account else { return Ok(()) };
    match objection {
        None => Ok(()),
        Some(RailFailure::InsufficientFunds) => Err(Error::InsufficientBalance {
            account: source,
            currency: draft.price.sent.currency(),
            available: 0,
            needed: draft.price.sent.minor(),
        }),
        Some(RailFailure::NotConnected) => {
            Err(Error::NotConnected { missing: Missing::PaymentRail })
        }
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
    let target = target(unit, &quote)?;
    let price = &draft.price;
    let fees = price.own_fees();
    let leaves = Receiving(leaves(&draft));
    let posting = movements::exchange(source, target, draft.platform, price.sent, fees, leaves)?;
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
        Target::Transit => {
            unit.pend(draft.transaction, &posting, now)?;
            incoming::begin_here(app, unit, &transaction, &quote, other_side, now)?;
            let quote = unit.get::<Quote>(&draft.id)?;
            let quote = quote.ok_or_else(|| Error::Internal(format!("{} is gone", draft.id)))?;
            Ok(Quote::clone(&quote))
        }
    }
}

/// What leaves the exchange: what arrives, or what the invoice of the payee's institution asks for.
fn leaves(draft: &quote::Draft) -> Money {
    match draft.uma.as_ref().map(|uma| &uma.route) {
        Some(Route::Lightning { msat, .. }) => *msat,
        Some(Route::Here { .. }) | None => draft.price.received.money(),
    }
}

/// Where a quote's money goes, if it can still go there.
pub(crate) fn target(unit: &mut Unit<'_, '_>, quote: &Quote) -> Result<Target, Error> {
    let draft = quote.draft();
    // What was turned off since the quote was made is off at once (contract 6.1).
    let platform = owners::platform(unit, draft.platform)?;
    are_on(&platform, draft.price.sent.currency(), &draft.destination)?;
    let account = match (&draft.destination, &draft.uma) {
        (Destination::Account { account, .. }, _) => *account,
        (Destination::Uma { .. }, Some(uma)) => {
            return match &uma.route {
                Route::Lightning { .. } => Ok(Target::Rail(Rail::Lightning)),
                Route::Here { customer } => {
                    uma::can_be_paid(unit, *customer, draft.price.received.money())?;
                    Ok(Target::Transit)
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
