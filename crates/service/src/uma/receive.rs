//! The receiving side: answers to lookups, and to pay requests, within which the payee's platform
//! decides (UMAD-03 to UMAD-06). Every refusal has the protocol's code and leaves no money moved.

mod refusal;

use std::sync::Arc;
use std::time::Duration;

use domain::approval::{Approval, Status as Decided};
use domain::customer::Customer;
use domain::id::TransactionId;
use domain::platform::Platform;
use domain::time::Timestamp;
use domain::transaction::{FailureReason, Status, Transaction};
use domain::uma_address::{UmaAddress, UmaDomain};
use ports::lightning::{INVOICE_MILLIS, NewInvoice};
use rust_decimal::prelude::ToPrimitive as _;
use rust_decimal::{Decimal, RoundingStrategy};
use store::unit::Unit;
use uma::address::Address;
use uma::configuration::Configuration;
use uma::currency::CurrencyCode;
use uma::data::Demands;
use uma::error::{ErrorCode, Refusal};
use uma::lnurlp::{Lookup, LookupRequest, LookupResponse, ReceiverCompliance};
use uma::pay_request::{Amount, PayRequest};
use uma::pay_response::{Converted, PayResponse, PayeeCompliance};
use uma::version::Form;

use self::refusal::{lacks, refusal};
use super::callback::Callback;
use super::keys::{self, Keys};
use super::open_invoices::has_place;
use super::peers::{Contact, RECEIVED_LOOKUP};
use super::send::{demands, known_fields, kyc_status, to_protocol};
use super::{post_transaction, texts};
use crate::app::App;
use crate::error::Error;
use crate::guesses::Network;
use crate::incoming::{self, PayIn, Wanted};
use crate::strangers::Kind;
use crate::{lookups, pricing};

/// How long an answer to a lookup can be paid on, in milliseconds: a person chooses an amount.
const LOOKUP_MILLIS: i64 = 10 * 60_000;

/// The server as an institution, for others to look at.
const NAME: &str = "Switchyard";

/// The configuration document, as JSON (UMAD-08).
pub fn configuration() -> String {
    Configuration::ours(NAME).to_json()
}

/// A platform whose domain or proxy subdomain a request was sent to. A server with one domain
/// answers for it under every host name, as a proxy in front of it may not keep the first one.
pub async fn platform_at(app: &App, host: &str) -> Result<Option<Arc<Platform>>, Error> {
    let all = app.store().read(|view| view.platforms()).await.map_err(Error::Store)?;
    let host = host.to_ascii_lowercase();
    let label = host.split('.').next().unwrap_or_default();
    let is_asked =
        |it: &&Arc<Platform>| it.uma_domain.as_str() == host || it.proxy_uma_subdomain == label;
    if let Some(platform) = all.iter().find(is_asked) {
        return Ok(Some(Arc::clone(platform)));
    }
    let only = all.first().filter(|first| all.iter().all(|it| it.uma_domain == first.uma_domain));
    Ok(only.cloned())
}

/// An internal failure as a peer sees it.
pub(super) fn failed(error: &Error) -> Refusal {
    tracing::error!(%error, "a request of an institution could not be answered");
    Refusal::new(ErrorCode::InternalError, "the request could not be answered; try again later")
}

/// The customer at an address and its platform.
async fn payee(
    app: &App,
    address: &UmaAddress,
) -> Result<Result<(Arc<Customer>, Arc<Platform>), Refusal>, Error> {
    let unknown =
        || Refusal::new(ErrorCode::UserNotFound, format!("the address {address} does not exist"));
    let key = address.clone();
    let found = app.store().read(move |view| {
        let Some(customer) = view.claim(&key)? else { return Ok::<_, Error>(None) };
        let Some(customer) = view.get::<Customer>(&customer)? else { return Ok(None) };
        let platform = view.get::<Platform>(&customer.platform)?;
        Ok(platform.map(|platform| (customer, platform)))
    });
    let Some((customer, platform)) = found.await? else { return Ok(Err(unknown())) };
    if customer.is_deleted || customer.uma_address != *address {
        return Ok(Err(unknown()));
    }
    if !customer.kyc.status().may_move_money() {
        let reason = format!("{address} cannot be paid yet");
        return Ok(Err(Refusal::new(ErrorCode::UserNotReady, reason)));
    }
    Ok(Ok((customer, platform)))
}

/// The answer to a lookup, as JSON. `path` and `query` are those of the request.
pub async fn look_up(app: &App, host: &str, path: &str, query: &str) -> Result<String, Refusal> {
    let asked = platform_at(app, host).await.map_err(|error| failed(&error))?;
    let unknown =
        || Refusal::new(ErrorCode::UserNotFound, format!("{host} is no domain of this server"));
    let platform = asked.ok_or_else(unknown)?;
    looked_up(app, &platform, &platform.uma_domain, path, query).await
}

/// Refuses a request from an address that has sent too many of late. This machine is no stranger
/// while no other one reaches the server.
pub fn admit(app: &App, from: Network) -> Result<(), Refusal> {
    called(app, Kind::Message, from)
}

/// Counts a request of an address. Refuses one too many.
pub(super) fn called(app: &App, kind: Kind, from: Network) -> Result<(), Refusal> {
    if from.is_loopback() && app.env().locality.is_local() {
        return Ok(());
    }
    app.strangers().called(kind, from, app.server_now())
}

/// The answer to a lookup of an address of `domain`, which `asked` was sent for. The signature is
/// checked before anything is looked up, so that no stranger learns who is a customer.
pub(crate) async fn looked_up(
    app: &App,
    asked: &Platform,
    domain: &UmaDomain,
    path: &str,
    query: &str,
) -> Result<String, Refusal> {
    let internal = |error: Error| failed(&error);
    let peer_domain = uma::address::PeerDomain::parse(domain.as_str())
        .map_err(|error| internal(Error::Internal(error.to_string())))?;
    let request = match Lookup::read(path, query, &peer_domain)? {
        Lookup::Uma(request) => request,
        Lookup::Plain { .. } => {
            let reason = "plain LNURL is not paid here: sign the request as UMA does";
            return Err(Refusal::new(ErrorCode::NonUmaLnurlNotSupported, reason));
        }
    };
    let version = request.version.negotiate()?;
    let now = app.server_now();
    keys::check_time(app, &request.signed.stamp)?;
    let asker = request.vasp_domain.as_str();
    let mut contact = Contact::new(app, asked, asker, RECEIVED_LOOKUP).await.map_err(internal)?;
    if contact.is_blocked() {
        return Err(not_allowed(asker));
    }
    contact.version = Some(version.to_string());
    contact.verify(|key| request.verify(key)).await?;
    contact.count()?;
    let found = payee_for(app, &request, asker).await.map_err(internal)?;
    let outcome = found.as_ref().map_or_else(|refusal| refusal.code.name(), |_| "OK");
    let kept = contact.keep(outcome, Some(&request.signed.stamp)).await;
    kept.map_err(internal)??;
    let (customer, platform) = found?;
    let callback = Callback {
        platform: platform.id,
        customer: customer.id,
        payer_domain: asker.to_owned(),
        expires_at: now.plus_millis(LOOKUP_MILLIS),
        nonce: request.signed.stamp.nonce.to_string(),
    };
    let answer = response(app, &platform, &customer, version, &callback, now).map_err(internal)?;
    answer.to_json().map_err(|it| internal(Error::Internal(it.to_string())))
}

/// The payee of a lookup that was signed, if its platform can be paid by the one who asks.
async fn payee_for(
    app: &App,
    request: &LookupRequest,
    asker: &str,
) -> Result<Result<(Arc<Customer>, Arc<Platform>), Refusal>, Error> {
    let address = match UmaAddress::parse(request.receiver.as_written()) {
        Ok(address) => address,
        Err(error) => return Ok(Err(Refusal::new(ErrorCode::UserNotFound, error.to_string()))),
    };
    let (customer, platform) = match payee(app, &address).await? {
        Ok(found) => found,
        Err(refusal) => return Ok(Err(refusal)),
    };
    if app.env().lightning(platform.mode).is_none() {
        let reason = "this institution is not connected to Lightning";
        return Ok(Err(Refusal::new(ErrorCode::NotImplemented, reason)));
    }
    // Platforms may share a domain, and each has rules of its own.
    if Contact::new(app, &platform, asker, RECEIVED_LOOKUP).await?.is_blocked() {
        return Ok(Err(not_allowed(asker)));
    }
    Ok(Ok((customer, platform)))
}

fn not_allowed(domain: &str) -> Refusal {
    let reason = format!("{domain} is not dealt with here");
    Refusal::new(ErrorCode::CounterpartyNotAllowed, reason)
}

/// The answer to a lookup: in which currencies a customer is paid, and what must be said of the
/// payer.
fn response(
    app: &App,
    platform: &Platform,
    customer: &Customer,
    version: uma::version::Version,
    callback: &Callback,
    now: Timestamp,
) -> Result<LookupResponse, Error> {
    let rates = app.env().rates(platform.mode);
    let rates = rates.as_ref();
    let at = app.now(platform.ahead);
    let mut currencies = Vec::new();
    let (mut least, mut most) = (i64::MAX, 0);
    for offer in lookups::offers_of(platform) {
        let currency = offer.currency;
        // A currency without a rate, or with more decimals than the protocol has, is not offered.
        let Ok(msat_per_unit) = pricing::msat_of(rates, platform, currency, at) else { continue };
        let Some(code) = CurrencyCode::parse(currency.code()) else { continue };
        let theirs = uma::currency::Currency {
            code,
            name: currency.name().to_owned(),
            symbol: currency.symbol().to_owned(),
            msat_per_unit,
            decimals: currency.decimals(),
            min_minor: offer.min_minor,
            max_minor: offer.max_minor,
        };
        if theirs.check().is_err() {
            continue;
        }
        let msat = |minor: i64| pricing::msat_for(minor, msat_per_unit);
        least = least.min(msat(offer.min_minor).unwrap_or(i64::MAX).max(1));
        most = most.max(msat(offer.max_minor).unwrap_or(SENDABLE_MAX_MSAT).min(SENDABLE_MAX_MSAT));
        currencies.push(theirs);
    }
    let address = keys::address(&customer.uma_address);
    let compliance = ReceiverCompliance::new(
        &Keys::of(app, platform, now).signing,
        address.clone(),
        kyc_status(customer),
        platform.is_regulated,
        keys::stamp(app),
    );
    Ok(LookupResponse {
        version,
        callback: callback.url(app, address.domain()),
        min_sendable_msat: least.min(most),
        max_sendable_msat: most,
        metadata: metadata(&address),
        currencies,
        left_out: Vec::new(),
        payer_demands: demands(&lookups::fields_of(platform)),
        comment_max: Some(texts::TEXT_MAX),
        compliance,
    })
}

/// The most that an answer to a lookup says can be sent, in millisatoshi: every reader of JSON
/// holds it exactly.
const SENDABLE_MAX_MSAT: i64 = (1 << 53) - 1;

/// The purpose of an invoice. An address has no character that JSON would escape.
fn metadata(address: &Address) -> String {
    format!(r#"[["text/plain","Pay {address}"],["text/identifier","{address}"]]"#)
}

/// A pay request that was read and belongs to a lookup of ours.
struct Read {
    request: PayRequest,
    callback: Callback,
    platform: Arc<Platform>,
    pay_in: PayIn,
}

/// The answer to a pay request, as JSON: an invoice, once the payee's platform has agreed. `token`
/// is the last part of the callback's path. A request that the payer's institution did not sign
/// leaves nothing behind; any other is a payment from now on, whatever becomes of it.
pub async fn pay(app: &App, token: &str, body: &[u8]) -> Result<String, Refusal> {
    let (read, contact) = signed(app, token, body).await?;
    let now = app.now(read.platform.ahead);
    let id: TransactionId = app.new_id(read.platform.ahead, now);
    create(app, &contact, &read, (id, now)).await?;
    if read.callback.is_over(app.server_now()) {
        let reason = "the lookup has expired: look the receiver up again";
        let refusal = Refusal::new(ErrorCode::RequestNotFound, reason);
        return Err(end(app, &read, id, FailureReason::LnurlpFailed, refusal).await);
    }
    if let Err(refusal) = ask(app, &contact, &read, id).await {
        return Err(end(app, &read, id, FailureReason::PayRequestFailed, refusal).await);
    }
    match decided(app, &read.platform, id).await.map_err(|error| failed(&error))? {
        Some(decided) => answer(app, &read, &decided).await,
        None => Err(Refusal::new(ErrorCode::InternalError, UNDECIDED)),
    }
}

/// How often a pay request waits for its platform to decide: for its answer, for a call after a
/// 202, and for wake-ups that decided nothing.
const WAITS_MAX: usize = 8;

/// The reason of a refusal because of a platform that was silent.
const UNDECIDED: &str = "the payee's platform did not decide in time";

/// The payment that a pay request is about, once it is known who wants to make it.
pub(crate) async fn requested(app: &App, token: &str, body: &[u8]) -> Result<PayIn, Refusal> {
    signed(app, token, body).await.map(|(read, _)| read.pay_in)
}

/// A pay request that the payer's institution has signed, and the exchange with it.
async fn signed(app: &App, token: &str, body: &[u8]) -> Result<(Read, Contact), Refusal> {
    let read = read(app, token, body).await?;
    let domain = &read.callback.payer_domain;
    let contact = Contact::new(app, &read.platform, domain, "RECEIVED_PAY_REQUEST").await;
    let mut contact = contact.map_err(|error| failed(&error))?;
    checked(app, &mut contact, &read).await?;
    contact.count()?;
    Ok((read, contact))
}

/// Reads a pay request and finds the lookup that it belongs to.
async fn read(app: &App, token: &str, body: &[u8]) -> Result<Read, Refusal> {
    let unknown = || Refusal::new(ErrorCode::RequestNotFound, "there is no such lookup");
    let callback = Callback::open(app, token).ok_or_else(unknown)?;
    let request = PayRequest::read(body)?;
    let (platform, customer) = (callback.platform, callback.customer);
    let store = app.store();
    let found = tokio::try_join!(store.get::<Platform>(platform), store.get::<Customer>(customer));
    let found = found.map_err(|error| failed(&Error::Store(error)))?;
    let (Some(platform), Some(customer)) = found else {
        return Err(unknown());
    };
    let code = ErrorCode::ParsePayreqRequestError;
    let mut facts = texts::facts(&request.payer.facts, code)?;
    let description = texts::comment(request.comment.as_deref(), code)?;
    let payer = &request.payer.identifier;
    if payer.domain().as_str() != callback.payer_domain {
        let reason = format!(
            "payerData.identifier is {payer}, but {} has looked the receiver up",
            callback.payer_domain
        );
        return Err(Refusal::new(ErrorCode::SenderNotAccepted, reason));
    }
    let unknown_key =
        request.payee_demands.0.iter().find(|(key, mandatory)| **mandatory && !is_known(key));
    if let Some((key, _)) = unknown_key {
        let reason = format!("payeeData.{key} is not known here");
        return Err(Refusal::new(ErrorCode::UnrecognizedMandatoryPayeeDataKey, reason));
    }
    let code = request.receiving.as_str();
    let currency = domain::currency::Currency::from_code(code);
    let currency = currency.filter(|currency| {
        lookups::offers_of(&platform).iter().any(|offer| offer.currency == *currency)
    });
    let currency = currency.ok_or_else(|| {
        Refusal::new(ErrorCode::InvalidCurrency, format!("{code} is not one that was offered"))
    })?;
    let sender = UmaAddress::parse(payer.as_written());
    let sender = sender
        .map_err(|error| Refusal::new(ErrorCode::ParsePayreqRequestError, error.to_string()))?;
    let asked = super::asked_by(&platform, [currency]);
    if asked.iter().any(|field| field.name == super::IDENTIFIER) {
        facts.insert(super::IDENTIFIER, sender.to_string());
    }
    let pay_in = PayIn {
        sender,
        payer: facts,
        receiver: None,
        customer_id: Some(customer.id),
        currency,
        amount: match &request.amount {
            Amount::Receiving { minor, .. } => Wanted::Arrives(*minor),
            Amount::Msat(msat) => Wanted::Paid(*msat),
        },
        asked: known_fields(&request.payee_demands),
        description,
        callback: post_transaction::given(request.payer.compliance.utxo_callback.as_deref()),
    };
    Ok(Read { request, callback, platform, pay_in })
}

/// Whether a key of the protocol is one of data that we may have; the two that every payee states
/// are no facts.
fn is_known(key: &str) -> bool {
    let demands = Demands([(key.to_owned(), true)].into());
    ["identifier", "compliance"].contains(&key) || !known_fields(&demands).is_empty()
}

/// Uses up the request's nonce, and adds the payment, which is `CREATED` until its platform is
/// asked (specification 3.1).
async fn create(
    app: &App,
    contact: &Contact,
    read: &Read,
    (id, now): (TransactionId, Timestamp),
) -> Result<(), Refusal> {
    let (unit_app, platform) = (app.clone(), read.platform.id);
    let pay_in = read.pay_in.clone();
    let peer = contact.peer_key();
    let seen = contact.seen("OK", Some(&read.request.payer.compliance.signed.stamp));
    let created = app.write(move |unit: &mut Unit<'_, '_>| {
        if let Err(refusal) = has_place(unit, peer, pay_in.customer_id)? {
            return Ok(Err(refusal));
        }
        if let Err(refusal) = seen.keep(unit)? {
            return Ok(Err(refusal));
        }
        incoming::create(&unit_app, unit, platform, &pay_in, id, now).map(Ok)
    });
    created.await.map_err(|error| refusal(&error))?
}

/// Refuses a pay request that the payer's institution did not sign, or not now.
async fn checked(app: &App, contact: &mut Contact, read: &Read) -> Result<(), Refusal> {
    if contact.is_blocked() {
        return Err(not_allowed(&read.callback.payer_domain));
    }
    let compliance = &read.request.payer.compliance;
    keys::check_time(app, &compliance.signed.stamp)?;
    contact.verify(|key| read.request.verify(key)).await?;
    if let Some(sealed) = &compliance.encrypted_travel_rule_info {
        keys::decrypt(app, &read.platform, sealed)?;
    }
    Ok(())
}

/// Asks the platform, or goes on without.
async fn ask(app: &App, contact: &Contact, read: &Read, id: TransactionId) -> Result<(), Refusal> {
    let (unit_app, platform, peer) = (app.clone(), read.platform.id, contact.peer_key());
    let (pay_in, now) = (read.pay_in.clone(), app.now(read.platform.ahead));
    let asked = app.write(move |unit: &mut Unit<'_, '_>| {
        // Others of its institution may have been accepted since this one was created.
        if let Err(refusal) = has_place(unit, peer, pay_in.customer_id)? {
            return Ok(Err(refusal));
        }
        incoming::accept(&unit_app, unit, platform, &pay_in, id, now).map(|_| Ok(()))
    });
    asked.await.map_err(|error| refusal(&error))?
}

/// Ends a payment whose request is refused, and gives the refusal back.
async fn end(
    app: &App,
    read: &Read,
    id: TransactionId,
    reason: FailureReason,
    refusal: Refusal,
) -> Refusal {
    let (unit_app, now) = (app.clone(), app.now(read.platform.ahead));
    let reason = match refusal.code {
        ErrorCode::MissingMandatoryPayeeData => FailureReason::MissingMandatoryPayeeData,
        _ => reason,
    };
    let ended =
        app.write(move |unit| incoming::fail_created(&unit_app, unit, id, reason, now)).await;
    match ended {
        Ok(()) => refusal,
        // The payment's timer ends it.
        Err(error) => failed(&error),
    }
}

/// The payment once its platform has decided, or its time is over. The end of the time does not
/// wait for the jobs, which may be busy: the payer waits.
async fn decided(
    app: &App,
    platform: &Platform,
    id: TransactionId,
) -> Result<Option<Arc<Transaction>>, Error> {
    // Registered before the first read, so that no decision is missed.
    let waiting = app.decisions().wait_for(id);
    for _ in 0..WAITS_MAX {
        let found = app.store().get::<Transaction>(id).await.map_err(Error::Store)?;
        let found = found.ok_or_else(|| Error::Internal(format!("{id} has vanished")))?;
        if !matches!(found.status(), Status::Created | Status::Pending) {
            return Ok(Some(found));
        }
        let approval = app.store().get::<Approval>(id).await.map_err(Error::Store)?;
        let decide_by = approval.map_or(Timestamp::from_millis(0), |it| it.decide_by());
        let left = decide_by.millis().saturating_sub(app.now(platform.ahead).millis());
        let left = Duration::from_millis(u64::try_from(left).unwrap_or_default());
        if tokio::time::timeout(left, waiting.decided()).await.is_err() {
            let (unit_app, now) = (app.clone(), app.now(platform.ahead));
            app.write(move |unit| incoming::time_out(&unit_app, unit, id, now)).await?;
        }
    }
    Ok(None)
}

/// The answer to a pay request whose payment was decided on.
async fn answer(app: &App, read: &Read, transaction: &Transaction) -> Result<String, Refusal> {
    match transaction.status() {
        Status::Processing | Status::Completed => {
            let response = paid(app, read, transaction).map_err(|error| failed(&error))?;
            response.to_json().map_err(|it| failed(&Error::Internal(it.to_string())))
        }
        Status::Rejected => {
            let reason = "the payee's platform does not want this payment";
            Err(Refusal::new(ErrorCode::SenderNotAccepted, reason))
        }
        Status::Created | Status::Pending | Status::Failed | Status::Refunded | Status::Expired => {
            Err(why_failed(app, transaction).await)
        }
    }
}

/// Why a payment was not approved, for the payer's institution.
async fn why_failed(app: &App, transaction: &Transaction) -> Refusal {
    let approval = app.store().get::<Approval>(transaction.id()).await.ok().flatten();
    let wants_more = approval.filter(|it| it.status() == Decided::AnsweredIncomplete);
    if let Some(approval) = wants_more {
        return lacks(&approval.remark().required_fields);
    }
    match transaction.failure() {
        Some(FailureReason::MissingMandatoryPayeeData) => {
            let reason = "payeeData that was insisted on is not given";
            Refusal::new(ErrorCode::MissingMandatoryPayeeData, reason)
        }
        Some(FailureReason::OfframpFailed) => {
            Refusal::new(ErrorCode::UserNotReady, "the payee cannot be paid")
        }
        Some(FailureReason::PaymentApprovalTimedOut) => {
            Refusal::new(ErrorCode::InternalError, UNDECIDED)
        }
        _ => Refusal::new(ErrorCode::InternalError, "the payee's platform could not be asked"),
    }
}

/// The invoice of an approved payment, and the facts about the payee that go with it.
fn paid(app: &App, read: &Read, transaction: &Transaction) -> Result<PayResponse, Error> {
    let broken = || Error::Internal(format!("{} has no invoice", transaction.id()));
    let (draft, now) = (transaction.draft(), app.server_now());
    let about = draft.uma.as_ref().ok_or_else(broken)?;
    let (Some(msat), Some(details)) = (about.settlement.msat(), about.rate_details) else {
        return Err(broken());
    };
    let multiplier = details.multipliers.ok_or_else(broken)?.counterparty;
    let payee = keys::address(&about.receiver);
    let node = app.env().lightning(read.platform.mode).ok_or_else(broken)?;
    let made_at = read.platform.ahead.on_server(transaction.created_at());
    let invoice = node.create_invoice(&NewInvoice {
        payment: transaction.id(),
        msat,
        description: metadata(&payee).as_bytes(),
        made_at,
        expires_at: made_at.plus_millis(INVOICE_MILLIS),
    });
    let compliance = match read.request.form {
        Form::V0 => PayeeCompliance::unsigned(),
        Form::V1 => PayeeCompliance::new(
            &Keys::of(app, &read.platform, now).signing,
            &read.request.payer.identifier,
            &payee,
            keys::stamp(app),
        ),
    };
    let fee_msat = Decimal::from(details.variable_fee.minor())
        .checked_mul(multiplier)
        .and_then(|fee| fee.round_dp_with_strategy(0, RoundingStrategy::ToZero).to_i64());
    Ok(PayResponse {
        invoice: invoice.ok_or_else(broken)?,
        converted: Converted {
            amount_minor: Some(draft.received.minor()),
            code: read.request.receiving.clone(),
            decimals: draft.received.currency().decimals(),
            msat_per_unit: multiplier,
            fee_msat: fee_msat.ok_or_else(broken)?,
        },
        payee: Some(payee),
        facts: to_protocol(&about.payee.given),
        compliance: PayeeCompliance {
            node_pub_key: Some(node.node()),
            utxo_callback: Some(post_transaction::url(
                app,
                &read.platform,
                &read.callback.payer_domain,
            )?),
            ..compliance
        },
    })
}
