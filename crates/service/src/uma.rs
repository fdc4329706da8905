//! The UMA part of a quote: the lookup that it stands on, what is said about
//! the payer, and the invoice of the payee's institution (contract 6.8, 6.9). The modules below
//! speak the protocol itself.

mod callback;
pub mod keys;
pub(crate) mod payees;
mod open_invoices;
pub mod peers;
pub mod post_transaction;
pub mod receive;
pub(crate) mod send;
pub mod settle;
pub mod tester;
mod texts;

use std::sync::Arc;

use domain::currency::Currency;
use domain::customer::Customer;
use domain::id::{CustomerId, LookupId, PlatformId, TransactionId};
use domain::lookup::{Lookup, Offer, PayWay, Receiver};
use domain::money::{Money, Receiving};
use domain::platform::{CounterpartyField, Platform};
use domain::pricing::{Locked, Price};
use domain::quote;
use domain::rate_basis::RateBasis;
use domain::time::Timestamp;
use domain::transaction::{self, AboutPayee, Direction, Facts, Settlement, Transaction};
use domain::uma_address::UmaAddress;
use ports::rates::WhyNoRate;
use store::payment_hashes::PaymentHash;
use store::unit::Unit;

use crate::app::App;
use crate::error::{AccountError, Error, PeerStage, UmaError};
use crate::owners::Holder;
use crate::{limits, lookups, owners, pricing};

pub use self::callback::PAY_PATH;
pub(crate) use self::send::Invoice;

/// A UMA address as the destination of a quote.
#[derive(Debug, Clone)]
pub struct ToUma {
    /// The address.
    pub address: UmaAddress,
    /// The currency that shall arrive; the one that the receiver likes best, when absent.
    pub currency: Option<Currency>,
    /// Facts about the receiver that the platform knows.
    pub counterparty: Facts,
}

/// How often another institution is asked for an invoice: once with the rate of the lookup, and
/// again when its answer has another rate or a fee. A rate that moves each time is none.
const ASKS_MAX: usize = 3;

/// The payee and the way to it.
#[derive(Debug, Clone)]
pub(crate) enum Payee {
    /// A customer of this server.
    Here {
        /// The customer.
        customer: Arc<Customer>,
    },
    /// The one that another institution names.
    Peer {
        /// How its institution takes the pay request.
        way: PayWay,
    },
}

/// A quote to a UMA address that stands on its lookup.
#[derive(Debug, Clone)]
pub(crate) struct Plan {
    /// The lookup.
    pub lookup: LookupId,
    /// The payer.
    pub sender: Arc<Customer>,
    /// How the receiver can be paid in the currency that was chosen.
    pub offer: Offer,
    /// The facts about the payer.
    pub payer: Facts,
    /// The payee.
    pub payee: Payee,
    /// Facts about the receiver that the payer's platform asks for.
    pub payee_fields: Vec<CounterpartyField>,
}

/// An invoice for an amount.
#[derive(Debug, Clone)]
pub(crate) struct Agreed {
    amount: Money,
    invoice: Invoice,
}

/// The lookup that a quote names: of this platform, and still good.
pub(crate) fn lookup(
    unit: &mut Unit<'_, '_>,
    platform: PlatformId,
    id: LookupId,
    now: Timestamp,
) -> Result<Arc<Lookup>, Error> {
    unit.get::<Lookup>(&id)?
        .filter(|lookup| lookup.platform == platform && !lookup.is_over(now))
        .ok_or_else(|| Error::Uma(UmaError::LookupNotFound { id: id.to_string() }))
}

/// Refuses a lookup that another customer asked for.
pub(crate) fn is_senders(lookup: &Lookup, sender: CustomerId) -> Result<(), Error> {
    if lookup.sender == sender {
        return Ok(());
    }
    Err(Error::field("lookupId", "was asked for by another customer than the one who pays"))
}

/// Refuses what is said about the payer if something is missing that the receiver's side insists
/// on.
pub(crate) fn is_complete(lookup: &Lookup, payer: &Facts) -> Result<(), Error> {
    let fields = missing(&lookup.payer_fields, payer);
    if fields.is_empty() { Ok(()) } else { Err(Error::Uma(UmaError::PayerDataMissing { fields })) }
}

/// Mandatory fields that nothing is said about.
pub(crate) fn missing(asked: &[CounterpartyField], given: &Facts) -> Vec<&'static str> {
    let mandatory = asked.iter().filter(|field| field.mandatory);
    mandatory.map(|field| field.name).filter(|name| !says(given, name)).collect()
}

/// Whether facts say something by this name: an empty text says nothing.
pub(crate) fn says(facts: &Facts, name: &str) -> bool {
    facts.get(name).is_some_and(|value| !value.trim().is_empty())
}

/// The facts that a platform asks about the other side of a payment in some of its currencies: what
/// it asks for one of them.
pub(crate) fn asked_by(
    platform: &Platform,
    currencies: impl IntoIterator<Item = Currency>,
) -> Vec<CounterpartyField> {
    let supported = currencies.into_iter().filter_map(|currency| platform.supported(currency));
    CounterpartyField::asked_for(supported)
}

/// The facts about the receiver that the payer's platform asks for: it sends in one currency, and
/// pays out in another.
pub(crate) fn asked_by_payer(
    unit: &mut Unit<'_, '_>,
    outgoing: &Transaction,
) -> Result<Vec<CounterpartyField>, Error> {
    let draft = outgoing.draft();
    let platform = owners::platform(unit, draft.platform)?;
    let sent = draft.sent.map(|sent| sent.currency());
    Ok(asked_by(&platform, sent.into_iter().chain([draft.received.currency()])))
}

/// The field under which an address is sent.
pub(crate) const IDENTIFIER: &str = "IDENTIFIER";

/// The facts that count of those that a platform states about its customer. A regulated one answers
/// for its customers and may say otherwise what is known of them; for the others we have checked
/// them (contract 6.3). No other address than the customer's is accepted.
pub(crate) fn stated(platform: &Platform, customer: &Customer, said: &Facts) -> Facts {
    let known = customer.facts();
    let is_said = |name: &str| name != IDENTIFIER && says(said, name);
    let counts = said.iter().filter(|(name, _)| is_said(name)).map(|(name, value)| {
        let checked = known.get(name).filter(|_| !platform.is_regulated);
        (*name, checked.unwrap_or(value).clone())
    });
    counts.collect()
}

/// Holds a quote to a UMA address against its lookup.
pub(crate) fn plan(
    unit: &mut Unit<'_, '_>,
    platform: &Platform,
    (sending, to): (Option<Currency>, &ToUma),
    (lookup_id, payer): (Option<LookupId>, &Facts),
    holder: &Holder,
    now: Timestamp,
) -> Result<Plan, Error> {
    let Some(id) = lookup_id else {
        return Err(Error::field("lookupId", "is required for a UMA address: look it up first"));
    };
    let lookup = lookup(unit, platform.id, id, now)?;
    let Holder::Customer(sender) = holder else {
        let message = "is required: a payment to a UMA address comes from a customer's address";
        return Err(Error::field("source.customerId", message));
    };
    is_senders(&lookup, sender.id)?;
    let mut theirs = None;
    let payee = match &lookup.receiver {
        Receiver::Customer { address, customer } if *address == to.address => {
            if *customer == sender.id {
                return Err(Error::Account(AccountError::SelfPayment));
            }
            let local = lookups::local(unit, platform, address)?;
            let local =
                local.ok_or_else(|| Error::Uma(UmaError::NotFound { address: address.clone() }))?;
            theirs = Some(local.platform);
            Payee::Here { customer: local.customer }
        }
        Receiver::Peer { address, way } if *address == to.address => {
            Payee::Peer { way: way.clone() }
        }
        Receiver::Customer { .. } | Receiver::Peer { .. } | Receiver::Account(_) => {
            return Err(Error::field("lookupId", "is the lookup of another receiver"));
        }
    };
    is_complete(&lookup, payer)?;
    // The known ones of the requested facts, and those of the quote for the rest (contract 6.9.1).
    let mut facts = about(sender, &lookup.payer_fields);
    facts.extend(stated(platform, sender, payer));
    let mut offers = lookup.offers.iter();
    let offer = match to.currency {
        Some(currency) => offers.find(|offer| offer.currency == currency),
        None => offers.next(),
    };
    // The payee here may have turned the currency off since it was looked up.
    let is_taken = |offer: &&Offer| match &theirs {
        Some(platform) => limits::enabled(platform, offer.currency, Direction::Incoming).is_ok(),
        None => true,
    };
    let offer = *offer.filter(is_taken).ok_or_else(|| {
        Error::Uma(UmaError::NotOffered { address: to.address.clone(), currency: to.currency })
    })?;
    Ok(Plan {
        lookup: id,
        sender: Arc::clone(sender),
        offer,
        payer: facts,
        payee,
        payee_fields: asked_by(platform, sending.into_iter().chain([offer.currency])),
    })
}

/// The data of a pay request, which comes before the quote.
#[derive(Debug, Clone)]
pub(crate) struct InvoiceRequest {
    pub platform: Arc<Platform>,
    pub sending: Currency,
    pub locked: Locked,
    pub receiver: UmaAddress,
    pub plan: Plan,
    pub comment: Option<String>,
}

/// Asks the payee's institution for an invoice, outside any unit of work. Nothing moves: an invoice
/// that is not paid expires.
///
/// A payer who fixes what is sent has it asked for in millisatoshi, which the institution converts.
/// If its rate or its fee is another than the lookup said, it is asked once more for the amount
/// that then arrives. So what arrives is what the quote says, on whichever side is rounded.
pub(crate) async fn agree(
    app: &App,
    request: InvoiceRequest,
    now: Timestamp,
) -> Result<Option<Agreed>, Error> {
    let InvoiceRequest { platform, sending, locked, receiver, plan, comment } = request;
    let Payee::Peer { way } = &plan.payee else { return Ok(None) };
    let rates = app.env().rates(platform.mode);
    let rates = rates.as_ref();
    let (mut offer, mut fee_minor) = (plan.offer, 0);
    let mut agreed: Option<Agreed> = None;
    for attempt in 0..=ASKS_MAX {
        let corridor = pricing::corridor_to(rates, &platform, sending, &offer, now)?;
        let price = pricing::quote(&platform, corridor, locked, fee_minor)?;
        let amount = price.received.money();
        is_offered(&offer, amount)?;
        if let Some(agreed) = agreed.filter(|agreed| agreed.amount == amount) {
            return Ok(Some(agreed));
        }
        let order = send::Order {
            way,
            receiver: &receiver,
            sender: &plan.sender,
            amount: match (locked, msat(&offer, amount)) {
                (Locked::Sending(_), Some(msat)) if attempt == 0 && !way.is_legacy() => {
                    send::Fixed::Paid(msat)
                }
                (Locked::Sending(_) | Locked::Receiving(_), _) => send::Fixed::Arrives(amount),
            },
            offer: plan.offer,
            payer: &plan.payer,
            payee_fields: &plan.payee_fields,
            comment: comment.as_deref(),
        };
        let invoice = send::request_invoice(app, &platform, &order).await?;
        let invoice = invoice.map_err(|failure| {
            let (address, stage) = (receiver.clone(), PeerStage::PayRequest);
            Error::Uma(UmaError::Peer { address, stage, failure })
        })?;
        let is_rounded = matches!(order.amount, send::Fixed::Paid(_));
        is_as_promised(app, (&platform, sending), &receiver, (&plan.offer, &invoice), is_rounded)?;
        (offer.msat_per_unit, fee_minor) = (Some(invoice.msat_per_unit), invoice.fee_minor);
        agreed = Some(Agreed { amount: invoice.arrives, invoice });
    }
    Err(pricing::no_rate(sending, offer.currency, WhyNoRate::Moved))
}

/// Refuses an invoice that costs more than its lookup promised, or less, by more than the platform
/// lets it differ: nothing in it is signed, and no person sees a quote that is executed at once.
fn is_as_promised(
    app: &App,
    (platform, sending): (&Platform, Currency),
    receiver: &UmaAddress,
    (offer, invoice): (&Offer, &Invoice),
    is_rounded: bool,
) -> Result<(), Error> {
    let max = platform.cost_drift_max;
    let (arrives, paid) = (invoice.arrives, (invoice.arrives.minor(), invoice.msat));
    let promised = offer.msat_per_unit.unwrap_or(invoice.msat_per_unit);
    if pricing::costs_as_promised(paid, promised, is_rounded, max) {
        return Ok(());
    }
    tracing::info!(
        domain = receiver.domain(),
        "the invoice of an institution costs another amount than its lookup said"
    );
    let (rates, now) = (app.env().rates(platform.mode), app.now(platform.ahead));
    let charged = |offer: &Offer, fee_minor| {
        pricing::charged(rates.as_ref(), platform, sending, (offer, arrives, fee_minor), now)
    };
    let asked = Offer { msat_per_unit: Some(invoice.msat_per_unit), ..*offer };
    Err(Error::Uma(UmaError::CostDiffers {
        address: receiver.clone(),
        arrives,
        promised: charged(offer, 0),
        asked: charged(&asked, invoice.fee_minor),
        max,
    }))
}

/// The millisatoshi that buy an amount at the price of an offer, rounded up.
fn msat(offer: &Offer, amount: Money) -> Option<Money> {
    let msat = pricing::msat_for(amount.minor(), offer.msat_per_unit?)?;
    Money::positive(msat, Currency::MSAT).ok()
}

/// Refuses an amount that the receiver does not take.
fn is_offered(offer: &Offer, amount: Money) -> Result<(), Error> {
    limits::within(amount, offer.min_minor, offer.max_minor)
}

/// Keeps the exchange that the invoice of a payment comes from. Refuses an answer that was given
/// before, and an invoice that is another payment's: who gave it names it as often as it likes.
pub(crate) fn keep(
    unit: &mut Unit<'_, '_>,
    to: &ToUma,
    payment: TransactionId,
    agreed: Option<&Agreed>,
) -> Result<(), Error> {
    let Some(Agreed { invoice, .. }) = agreed else { return Ok(()) };
    let address = || to.address.clone();
    invoice.keep(unit)?.map_err(|failure| {
        let stage = PeerStage::PayRequest;
        Error::Uma(UmaError::Peer { address: address(), stage, failure })
    })?;
    if claim_payment_hash(unit, invoice.payment_hash, payment)? {
        return Ok(());
    }
    Err(Error::Uma(UmaError::InvoiceTaken { address: address() }))
}

/// Claims a payment hash for a payment, for ever. False if it is another payment's.
pub(crate) fn claim_payment_hash(
    unit: &mut Unit<'_, '_>,
    hash: [u8; 32],
    payment: TransactionId,
) -> Result<bool, Error> {
    if let Some(claim) = unit.get::<PaymentHash>(&hash)? {
        return Ok(claim.payment == payment);
    }
    unit.put(PaymentHash { hash, payment });
    Ok(true)
}

/// A quote to a UMA address with its price.
pub(crate) struct Priced {
    /// Its price.
    pub price: Price,
    /// Fee parts as shown.
    pub rate_details: transaction::RateDetails,
    /// The basis of its rate.
    pub basis: RateBasis,
    /// The part that the quote keeps.
    pub of_quote: quote::Uma,
    /// The part that its transaction keeps.
    pub of_transaction: transaction::Uma,
    /// From when on it cannot be paid.
    pub expires_at: Option<Timestamp>,
}

/// Prices a quote to a UMA address with what its institution has said.
pub(crate) fn price(
    app: &App,
    platform: &Platform,
    (sending, locked): (Currency, Locked),
    to: &ToUma,
    plan: Plan,
    agreed: Option<&Agreed>,
    now: Timestamp,
) -> Result<Priced, Error> {
    let rates = app.env().rates(platform.mode);
    let rates = rates.as_ref();
    let invoice = agreed.map(|agreed| &agreed.invoice);
    let offer = Offer { msat_per_unit: invoice.map(|one| one.msat_per_unit), ..plan.offer };
    let corridor = pricing::corridor_to(rates, platform, sending, &offer, now)?;
    let fee_minor = invoice.map_or(0, |invoice| invoice.fee_minor);
    let price = pricing::quote(platform, corridor, locked, fee_minor)?;
    let Receiving(received) = price.received;
    is_offered(&offer, received)?;
    let mut counterparty = match (&plan.payee, invoice) {
        (Payee::Peer { .. }, Some(invoice)) => invoice.payee.clone(),
        // The payee here is described once its platform agrees.
        (Payee::Here { .. }, _) | (Payee::Peer { .. }, None) => Facts::new(),
    };
    counterparty.extend(to.counterparty.clone());
    let (route, settlement) = match (plan.payee, agreed) {
        (Payee::Here { customer }, _) => {
            (quote::Route::Here { customer: customer.id }, Settlement::Here { outgoing: None })
        }
        (Payee::Peer { .. }, Some(Agreed { amount, invoice })) if *amount == received => {
            let fields = missing(&plan.payee_fields, &counterparty);
            if !fields.is_empty() {
                return Err(Error::Uma(UmaError::PayeeDataMissing {
                    address: to.address.clone(),
                    fields,
                }));
            }
            let (invoice, msat) = (invoice.text.clone(), invoice.msat);
            (quote::Route::Lightning { invoice, msat }, Settlement::Lightning { msat })
        }
        // The rate has moved since the invoice was asked for.
        (Payee::Peer { .. }, Some(_) | None) => {
            return Err(pricing::no_rate(sending, offer.currency, WhyNoRate::Moved));
        }
    };
    Ok(Priced {
        price,
        rate_details: pricing::rate_details(rates, &price, invoice.map(Invoice::price), now),
        basis: corridor.basis,
        of_quote: quote::Uma {
            lookup: plan.lookup,
            sender: plan.sender.uma_address.clone(),
            payer: plan.payer,
            route,
        },
        of_transaction: transaction::Uma {
            sender: plan.sender.uma_address.clone(),
            receiver: to.address.clone(),
            counterparty,
            settlement,
            rate_details: None,
            conversion: None,
            payee: AboutPayee::default(),
            callback: invoice.and_then(|invoice| invoice.callback.clone()),
        },
        expires_at: invoice.map(|invoice| platform.ahead.shows(invoice.expires_at)),
    })
}

/// The requested facts about a customer that are known.
pub(crate) fn about(customer: &Customer, asked: &[CounterpartyField]) -> Facts {
    wanted(customer.facts(), asked)
}

/// The requested ones of some facts.
pub(crate) fn wanted(mut facts: Facts, asked: &[CounterpartyField]) -> Facts {
    facts.retain(|name, _| asked.iter().any(|field| field.name == *name));
    facts
}

/// Refuses to pay a customer of this server who cannot be paid any more, or whose account has no
/// room.
pub(crate) fn can_be_paid(
    unit: &mut Unit<'_, '_>,
    customer: CustomerId,
    amount: Money,
) -> Result<(), Error> {
    let found = unit.get::<Customer>(&customer)?;
    let found = found.ok_or_else(|| Error::Internal(format!("{customer} has vanished")))?;
    let address = &found.uma_address;
    if found.is_deleted {
        return Err(Error::Uma(UmaError::NotFound { address: address.clone() }));
    }
    if !found.kyc.status().may_move_money() {
        return Err(Error::Uma(UmaError::PayeeNotReady { address: address.clone() }));
    }
    let platform = owners::platform(unit, found.platform)?;
    if limits::enabled(&platform, amount.currency(), Direction::Incoming).is_err() {
        return Err(Error::Uma(UmaError::PayeeNotReady { address: address.clone() }));
    }
    let owner = domain::id::Owner::Customer(customer);
    let account = domain::id::InternalAccountId::of(owner, amount.currency());
    // The account is another platform's, so nothing more is said about it.
    limits::has_room(unit, account, amount).map_err(|error| match error.is_failure() {
        true => error,
        false => Error::Uma(UmaError::PayeeNotReady { address: address.clone() }),
    })
}
