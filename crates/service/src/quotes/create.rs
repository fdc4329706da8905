//! A price is asked for and kept as a quote (specification 3.2; contract 6.9).

use std::sync::Arc;

use domain::external_account::ExternalAccount;
use domain::id::{PlatformId, TransactionId};
use domain::lookup::Receiver;
use domain::money::{Receiving, Sending};
use domain::platform::Platform;
use domain::pricing::Locked;
use domain::quote::{self, Quote};
use domain::time::Timestamp;
use domain::transaction::{
    AccountRef, Destination, Direction, Draft, Source, Terms, Transaction, reference,
};
use ports::rail::Deposit;
use store::unit::Unit;

use super::execute::start;
use super::rail_check::{Known, ask_before};
use super::{Drawn, From, NewQuote, Quoted, Side, To, are_on, draw};
use crate::app::App;
use crate::error::{AccountError, Error};
use crate::external_accounts::{self, Duplicate, NewExternalAccount, Report};
use crate::once::{Keyed, Render, Reply, answered, once};
use crate::owners::{self, Holder};
use crate::uma::{self, Agreed, InvoiceRequest, Plan};
use crate::{lifecycle, limits, pricing};

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
        {
            let to = (&new.to, &new.rail_request);
            ask_before(app, keyed.platform, to, amount, drawn.transaction, drawn.now).await?
        }
    } else {
        None
    };
    let report = match &new.to {
        To::Details(details) => {
            let described = (&details.info, details.currency);
            Some(external_accounts::inspect(app, keyed.platform, described, None).await?)
        }
        To::Account(_) | To::Uma(_) => None,
    };
    let unit_app = app.clone();
    once(app, keyed, render, move |unit| {
        let agreed = agreed.clone()?;
        if let To::Uma(to) = &new.to {
            uma::keep(unit, to, drawn.transaction, agreed.as_ref())?;
        }
        let quote =
            make(&unit_app, unit, keyed.platform, &new, agreed.as_ref(), report.as_ref(), drawn)?;
        let quote = if new.immediately_execute {
            start(&unit_app, unit, quote, objection, drawn.other_side, drawn.now)?
        } else {
            quote
        };
        unit.answers_with(&quote);
        Ok(Quoted { quote, platform: owners::platform(unit, keyed.platform)? })
    })
    .await
}

/// Asks the institution of a UMA address for an invoice, if it is another one. A refusal here
/// is the answer to the request.
async fn ask_institution(
    app: &App,
    platform: PlatformId,
    new: &NewQuote,
    drawn: Drawn,
) -> Result<Option<Agreed>, Error> {
    let To::Uma(to) = &new.to else { return Ok(None) };
    let (receiver, new, unit_app) = (to.address.clone(), new.clone(), app.clone());
    let request = app
        .store()
        .write(app.origin(), move |unit| {
            let Asked { platform, source, locked, plan, .. } =
                asked(&unit_app, unit, platform, &new, None, drawn)?;
            let sending = source.currency().ok_or_else(|| no_currency(&new))?;
            let Some(plan) = plan else { return Ok(None) };
            let (receiver, comment) = (receiver.clone(), new.description.clone());
            Ok::<_, Error>(Some(InvoiceRequest {
                platform,
                sending,
                locked,
                receiver,
                plan,
                comment,
            }))
        })
        .await?;
    match request {
        Some(request) => uma::agree(app, request, drawn.now).await,
        None => Ok(None),
    }
}

fn no_currency(new: &NewQuote) -> Error {
    Error::Internal(format!("{:?} has no currency", new.from))
}

/// A request for a quote, checked against the records.
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
    let (source, holder) = source(app, unit, &platform, &new.from)?;
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
            let destination = destination(app, unit, (&platform, new, &holder), report, drawn)?;
            is_looked_up(unit, &platform, new, &destination, &holder, drawn.now)?;
            (destination, None)
        }
    };
    if source.account().is_some() && source.account() == destination.account() {
        return Err(Error::Account(AccountError::SelfPayment));
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
/// 6.9.1): it could not be made.
fn can_be_funded(
    app: &App,
    platform: &Platform,
    source: &Source,
    transaction: TransactionId,
) -> Result<(), Error> {
    let Source::RealtimeFunding { currency, network } = source else { return Ok(()) };
    let rails = app.env().rails(platform.mode);
    let reference = reference(transaction);
    let since = transaction.created_at();
    let deposit = Deposit { currency: *currency, reference: &reference, amount: None, since };
    let ways = rails.instructions(&deposit);
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
    let (now, rates) = (drawn.now, app.env().rates(platform.mode));
    let (sending, receiving) =
        (source.currency().ok_or_else(|| no_currency(new))?, destination.currency());
    let mut expires_at = now.plus_millis(app.env().quote_lifetime_millis);
    let (price, (rate_details, basis), of_quote, of_transaction) = match (plan, &new.to) {
        (Some(plan), To::Uma(to)) => {
            let what = (sending, locked);
            let priced = uma::price(app, &platform, what, to, plan, agreed, now)?;
            // An invoice that cannot be paid any more is no use, however long the quote is open.
            expires_at = priced.expires_at.map_or(expires_at, |end| end.min(expires_at));
            let details = (priced.rate_details, priced.basis);
            (priced.price, details, Some(priced.of_quote), Some(priced.of_transaction))
        }
        (_, _) => {
            let corridor = pricing::corridor(&*rates, &platform, sending, receiving, now)?;
            let price = pricing::quote(&platform, corridor, locked, 0)?;
            let details = pricing::rate_details(&*rates, &price, None, now);
            (price, (details, corridor.basis), None, None)
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
        basis,
        expires_at,
        purpose: new.rail_request.purpose,
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
        rail_request: new.rail_request.clone(),
    });
    lifecycle::begin(app, unit, transaction)?;
    lifecycle::begin_quote(unit, &platform, quote.clone(), now)?;
    Ok(quote)
}

fn source(
    app: &App,
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
                return Err(Error::Account(AccountError::NotPullable { id: *id }));
            }
            app.env().needs_rail(platform.mode, &account.info, account.currency)?;
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
    app: &App,
    unit: &mut Unit<'_, '_>,
    (platform, new, holder): (&Platform, &NewQuote, &Holder),
    report: Option<&Report>,
    drawn: Drawn,
) -> Result<Destination, Error> {
    let wanted = new.rail_request.rail;
    let external = |unit: &mut Unit<'_, '_>, account: &ExternalAccount, field: &str| {
        app.env().needs_rail(platform.mode, &account.info, account.currency)?;
        owners::usable_by(unit, account, holder, field)?;
        owners::has_rail(&account.info, wanted)?;
        let (account, currency) = (AccountRef::External(account.id), account.currency);
        Ok(Destination::Account { account, currency })
    };
    match &new.to {
        To::Account(AccountRef::Internal(_)) if wanted.is_some() => {
            Err(Error::field("destination.paymentRail", "no rail leads to an internal account"))
        }
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
