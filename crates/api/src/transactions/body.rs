//! A transaction as it is shown.

use std::collections::BTreeMap;

use domain::id::Owner;
use domain::id::{QuoteId, TransactionId};
use domain::money::Sending;
use domain::platform::Platform;
use domain::quote;
use domain::rail::{Rail, RailWords};
use domain::rate_basis::RateBasis;
use domain::time::Timestamp;
use domain::transaction::{
    AccountRef, Conversion, Destination, Direction, RateDetails, Source, Status, StatusReason,
    Terms, Transaction,
};
use ports::rail::Deposit;
use ports::rails::Rails;
use rust_decimal::Decimal;
use serde::Serialize;
use service::App;
use utoipa::ToSchema;

use crate::instructions::{InstructionsBody, of_rails};
use crate::wire::{AmountBody, Number, Text};

/// Fee parts and multipliers (specification 2.4). Amounts are in the smallest unit of the sending
/// currency; multipliers are in millisatoshi per smallest unit.
#[derive(Debug, Clone, Serialize, ToSchema)]
#[serde(rename_all = "camelCase")]
#[schema(as = RateDetails)]
pub struct RateDetailsBody {
    /// Millisatoshi per smallest sending unit, after the variable fee.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<f64>, nullable = false)]
    service_api_multiplier: Option<Number>,
    /// Fixed fee.
    #[schema(minimum = 0)]
    service_api_fixed_fee: i64,
    /// Variable fee as a fraction of the sending amount.
    #[schema(value_type = f64, minimum = 0)]
    service_api_variable_fee_rate: Number,
    /// Variable fee.
    #[schema(minimum = 0)]
    service_api_variable_fee_amount: i64,
    /// Millisatoshi per smallest receiving unit.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<f64>, nullable = false)]
    counterparty_multiplier: Option<Number>,
    /// Fee of the counterparty, in the smallest receiving unit; on quotes and outgoing payments.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(nullable = false, minimum = 0)]
    counterparty_fixed_fee: Option<i64>,
    /// The basis of the exchange rate; on quotes.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(nullable = false, required = false)]
    rate_basis: Option<RateBasisBody>,
}

/// The basis of an exchange rate: `midRate` made worse by `spread` is the `exchangeRate`,
/// rounded half-up to the digits that are shown.
#[derive(Debug, Clone, Serialize, ToSchema)]
#[serde(rename_all = "camelCase")]
#[schema(as = RateBasis)]
pub struct RateBasisBody {
    /// The middle of the market: sending major units per one receiving major unit.
    #[schema(value_type = f64, exclusive_minimum = 0)]
    mid_rate: Number,
    /// When the market was there.
    #[schema(value_type = String, format = DateTime)]
    mid_rate_at: Text<Timestamp>,
    /// Where the middle of the market comes from.
    mid_rate_source: &'static str,
    /// Fraction by which the rate is worse.
    #[schema(value_type = f64)]
    spread: Number,
    /// Whose rule decided spread and fees: the platform's own, or the default.
    price_rule: &'static str,
}

impl From<&RateBasis> for RateBasisBody {
    fn from(basis: &RateBasis) -> Self {
        Self {
            mid_rate: Number(basis.mid),
            mid_rate_at: Text(basis.as_of),
            mid_rate_source: basis.source.name(),
            spread: Number(basis.spread),
            price_rule: basis.rule.name(),
        }
    }
}

impl RateDetailsBody {
    /// The fields of a quote: also the basis of its rate.
    pub fn of_quote(quote: &quote::Draft) -> Self {
        Self { rate_basis: Some((&quote.basis).into()), ..(&quote.rate_details).into() }
    }

    /// The fields of an incoming payment: the fees of its receiver's side.
    fn of_incoming(details: &RateDetails) -> Self {
        let both: Self = details.into();
        Self { counterparty_multiplier: None, counterparty_fixed_fee: None, ..both }
    }
}

/// Facts about the other side of a payment, by names such as `FULL_NAME`.
#[derive(ToSchema)]
pub struct Facts(pub BTreeMap<String, String>);

impl From<&RateDetails> for RateDetailsBody {
    fn from(details: &RateDetails) -> Self {
        let multiplier = |value: Decimal| Some(Number(value));
        Self {
            service_api_multiplier: details.multipliers.and_then(|two| multiplier(two.service_api)),
            service_api_fixed_fee: details.fixed_fee.minor(),
            service_api_variable_fee_rate: Number(details.variable_fee_rate),
            service_api_variable_fee_amount: details.variable_fee.minor(),
            counterparty_multiplier: details
                .multipliers
                .and_then(|two| multiplier(two.counterparty)),
            counterparty_fixed_fee: Some(details.counterparty_fee.minor()),
            rate_basis: None,
        }
    }
}

/// Where money comes from.
#[derive(Debug, Clone, Serialize, ToSchema)]
#[serde(tag = "sourceType")]
#[schema(as = TransactionSource)]
pub enum SourceBody {
    /// An account.
    #[serde(rename = "ACCOUNT")]
    Account(AccountSourceBody),
    /// A deposit that was made for the payment.
    #[serde(rename = "REALTIME_FUNDING")]
    RealtimeFunding(RealtimeSourceBody),
    /// The holder of a UMA address.
    #[serde(rename = "UMA_ADDRESS")]
    UmaAddress(UmaSourceBody),
}

/// The holder of a UMA address that money comes from.
#[derive(Debug, Clone, Serialize, ToSchema)]
#[serde(rename_all = "camelCase")]
#[schema(as = UmaTransactionSource)]
pub struct UmaSourceBody {
    /// The address.
    uma_address: String,
}

/// An account that money comes from.
#[derive(Debug, Clone, Serialize, ToSchema)]
#[serde(rename_all = "camelCase")]
#[schema(as = AccountTransactionSource)]
pub struct AccountSourceBody {
    /// An internal or external account.
    #[schema(value_type = String)]
    account_id: Text<AccountRef>,
    /// Its currency.
    currency: &'static str,
}

/// A deposit that was made for the payment.
#[derive(Debug, Clone, Serialize, ToSchema)]
#[serde(rename_all = "camelCase")]
#[schema(as = RealtimeFundingTransactionSource)]
pub struct RealtimeSourceBody {
    /// Currency of the deposit.
    currency: &'static str,
    /// The sender.
    #[schema(value_type = String)]
    customer_id: Text<Owner>,
}

impl SourceBody {
    fn new(source: &Source, owner: Owner) -> Self {
        match source {
            Source::Account { account, currency } => Self::Account(AccountSourceBody {
                account_id: Text(*account),
                currency: currency.code(),
            }),
            Source::RealtimeFunding { currency, .. } => Self::RealtimeFunding(RealtimeSourceBody {
                currency: currency.code(),
                customer_id: Text(owner),
            }),
            Source::Uma { address } => {
                Self::UmaAddress(UmaSourceBody { uma_address: address.to_string() })
            }
        }
    }
}

/// Where money goes.
#[derive(Debug, Clone, Serialize, ToSchema)]
#[serde(tag = "destinationType")]
#[schema(as = TransactionDestination)]
pub enum DestinationBody {
    /// An account.
    #[serde(rename = "ACCOUNT")]
    Account(AccountDestinationBody),
    /// The holder of a UMA address.
    #[serde(rename = "UMA_ADDRESS")]
    UmaAddress(UmaDestinationBody),
}

/// The holder of a UMA address that money goes to.
#[derive(Debug, Clone, Serialize, ToSchema)]
#[serde(rename_all = "camelCase")]
#[schema(as = UmaTransactionDestination)]
pub struct UmaDestinationBody {
    /// The address.
    uma_address: String,
    /// The currency that arrives.
    currency: &'static str,
}

/// An account that money goes to.
#[derive(Debug, Clone, Serialize, ToSchema)]
#[serde(rename_all = "camelCase")]
#[schema(as = AccountTransactionDestination)]
pub struct AccountDestinationBody {
    /// An internal or external account.
    #[schema(value_type = String)]
    account_id: Text<AccountRef>,
    /// Its currency.
    currency: &'static str,
    /// The rail that was asked for.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(nullable = false)]
    payment_rail: Option<&'static str>,
}

impl DestinationBody {
    fn new(destination: &Destination, wanted: Option<Rail>) -> Self {
        match destination {
            Destination::Account { account, currency } => Self::Account(AccountDestinationBody {
                account_id: Text(*account),
                currency: currency.code(),
                payment_rail: wanted.map(Rail::name),
            }),
            Destination::Uma { address, currency } => Self::UmaAddress(UmaDestinationBody {
                uma_address: address.to_string(),
                currency: currency.code(),
            }),
        }
    }
}

/// The text that goes with the bank payment.
#[derive(Debug, Clone, Serialize, ToSchema)]
#[schema(as = ReconciliationInstructions)]
pub struct ReconciliationBody {
    /// Unique on this server.
    #[schema(example = "SY-8B3E7NT0G0000000")]
    reference: String,
}

/// Money on its way back, or back (contract 6.12).
#[derive(Debug, Clone, Serialize, ToSchema)]
#[serde(rename_all = "camelCase")]
#[schema(as = Refund)]
pub struct RefundBody {
    /// The reference of the payment.
    reference: String,
    /// `COMPLETED`: what was set aside was released, or what had come was given back.
    status: &'static str,
    /// Why.
    reason: &'static str,
    /// When it began.
    #[schema(value_type = String, format = DateTime)]
    initiated_at: Text<Timestamp>,
    /// When the money was back.
    #[schema(value_type = String, format = DateTime)]
    settled_at: Text<Timestamp>,
}

/// Why a payment failed or was rejected, or why what was received stayed in the internal account.
#[derive(Debug, Clone, Serialize, ToSchema)]
#[schema(as = StatusReason)]
pub struct StatusReasonBody {
    /// For programs: the `failureReason`, a finer code, or a rail's own. The set is open.
    #[schema(example = "FUNDING_AMOUNT_MISMATCH")]
    code: String,
    /// For people, without personal data.
    #[schema(example = "the deposit was not of the amount that the quote asks for")]
    message: String,
    /// Under which the rail knows the payment: for inquiries there.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(nullable = false, required = false, example = "SBXO8F3A5E2B41C09D76")]
    reference: Option<String>,
}

impl StatusReasonBody {
    fn new(reason: &StatusReason, rail: &RailWords) -> Self {
        Self {
            code: reason.code().to_owned(),
            message: reason.message().to_owned(),
            reference: rail.reference().map(str::to_owned),
        }
    }
}

/// The conversion of a received amount for a deposit account in another currency.
#[derive(Debug, Clone, Serialize, ToSchema)]
#[serde(rename_all = "camelCase")]
#[schema(as = DepositConversion)]
pub struct ConversionBody {
    /// The amount that reaches the account.
    deposited_amount: AmountBody,
    /// Received major units per deposited major unit.
    #[schema(value_type = f64, exclusive_minimum = 0)]
    exchange_rate: Number,
    /// The cost of the conversion, in the smallest unit of the received currency.
    #[schema(minimum = 0)]
    fees: i64,
}

impl From<&Conversion> for ConversionBody {
    fn from(conversion: &Conversion) -> Self {
        Self {
            deposited_amount: conversion.deposited.into(),
            exchange_rate: Number(conversion.rate.value()),
            fees: conversion.fees.minor(),
        }
    }
}

/// A payment (specification 2.3).
#[derive(Debug, Clone, Serialize, ToSchema)]
#[serde(rename_all = "camelCase")]
#[schema(as = Transaction)]
pub struct TransactionBody {
    /// System id.
    #[schema(value_type = String, example = "Transaction:019542f5-b3e7-7d02-8000-000000000005")]
    id: Text<TransactionId>,
    /// Where it is in its life.
    status: &'static str,
    /// Which way money moves, seen from the platform.
    #[serde(rename = "type")]
    transaction_type: &'static str,
    /// The same as an entry in the account of the customer, or of the platform for its own.
    direction: &'static str,
    /// Where money comes from; absent for a bare deposit.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(nullable = false, required = false)]
    source: Option<SourceBody>,
    /// Where it goes.
    destination: DestinationBody,
    /// Sender of an outgoing, recipient of an incoming payment; the platform itself for its own.
    #[schema(value_type = String)]
    customer_id: Text<Owner>,
    /// The platform's own name for that customer.
    platform_customer_id: String,
    /// The amount that leaves the source; on outgoing payments.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(nullable = false, required = false)]
    sent_amount: Option<AmountBody>,
    /// The amount that arrives.
    received_amount: AmountBody,
    /// Sending major units per receiving major unit, if a quote fixed it.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<f64>, nullable = false)]
    exchange_rate: Option<Number>,
    /// All fees, in the smallest unit of the sending currency.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(nullable = false, minimum = 0)]
    fees: Option<i64>,
    /// The quote that it was made from.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<String>, nullable = false)]
    quote_id: Option<Text<QuoteId>>,
    /// The payer, between UMA addresses.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(nullable = false)]
    sender_uma_address: Option<String>,
    /// The payee, between UMA addresses.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(nullable = false)]
    receiver_uma_address: Option<String>,
    /// Facts about the other side, between UMA addresses.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(nullable = false, required = false, value_type = Option<Facts>)]
    counterparty_information: Option<BTreeMap<&'static str, String>>,
    /// Fee parts; of an incoming payment in the currency that arrives.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(nullable = false, required = false)]
    rate_details: Option<RateDetailsBody>,
    /// The conversion of the received amount; on incoming payments whose deposit account is in
    /// another currency.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(nullable = false, required = false)]
    conversion: Option<ConversionBody>,
    /// When it was delivered.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<String>, nullable = false, format = DateTime)]
    settled_at: Option<Text<Timestamp>>,
    /// When it was made.
    #[schema(value_type = String, format = DateTime)]
    created_at: Text<Timestamp>,
    /// When its status last changed.
    #[schema(value_type = String, format = DateTime)]
    updated_at: Text<Timestamp>,
    /// The memo.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(nullable = false)]
    description: Option<String>,
    /// The text for the other side, which goes with the payment on its rail.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(nullable = false)]
    remittance_information: Option<String>,
    /// The purpose of the payment.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(nullable = false)]
    purpose_of_payment: Option<&'static str>,
    /// The text that goes with the bank payment; in every status but `CREATED`.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(nullable = false, required = false)]
    reconciliation_instructions: Option<ReconciliationBody>,
    /// How to make the deposit; only on payments that are funded in real time.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    #[schema(required = false)]
    payment_instructions: Vec<InstructionsBody>,
    /// Why it failed; also on payments that were refunded after they had failed.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(nullable = false)]
    failure_reason: Option<&'static str>,
    /// Why it failed or was rejected, finer than `failureReason`. On a payment that is
    /// `PROCESSING`, `OUTCOME_UNKNOWN`: its deadline has passed, and only the other side knows how
    /// it ended.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(nullable = false, required = false)]
    status_reason: Option<StatusReasonBody>,
    /// Money on its way back, or back; on outgoing payments that did not arrive.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(nullable = false, required = false)]
    refund: Option<RefundBody>,
}

impl TransactionBody {
    /// The body of a platform's transactions as use cases give them.
    pub fn of(app: &App, platform: &Platform) -> impl Fn(&Transaction) -> Self + Send + use<> {
        let (app, mode) = (app.clone(), platform.mode);
        move |transaction| Self::new(transaction, app.env().rails(mode))
    }

    /// The body of a transaction whose platform has its money moved on `rails`.
    pub fn new(transaction: &Transaction, rails: &Rails) -> Self {
        let draft = transaction.draft();
        let terms = draft.terms.as_ref();
        let uma = draft.uma.as_ref();
        let incoming = uma.and_then(|uma| uma.rate_details.as_ref());
        Self {
            id: Text(draft.id),
            status: transaction.status().name(),
            transaction_type: draft.direction.name(),
            direction: draft.direction.entry_name(),
            source: draft.source.as_ref().map(|source| SourceBody::new(source, draft.owner)),
            destination: DestinationBody::new(&draft.destination, draft.rail_request.rail),
            customer_id: Text(draft.owner),
            platform_customer_id: draft.platform_customer_id.clone(),
            sent_amount: draft.sent.map(|sent| sent.money().into()),
            received_amount: draft.received.money().into(),
            exchange_rate: terms.map(|terms| Number(terms.rate.value())),
            fees: terms.map(|terms| terms.fees.minor()),
            quote_id: terms.map(|terms: &Terms| Text(terms.quote)),
            sender_uma_address: uma.map(|uma| uma.sender.to_string()),
            receiver_uma_address: uma.map(|uma| uma.receiver.to_string()),
            counterparty_information: uma.map(|uma| uma.counterparty.clone()),
            rate_details: terms
                .map(|terms| (&terms.rate_details).into())
                .or_else(|| incoming.map(RateDetailsBody::of_incoming)),
            conversion: uma.and_then(|uma| uma.conversion.as_ref()).map(ConversionBody::from),
            settled_at: transaction.settled_at().map(Text),
            created_at: Text(transaction.created_at()),
            updated_at: Text(transaction.updated_at()),
            description: draft.description.clone(),
            remittance_information: draft.rail_request.remittance.clone(),
            purpose_of_payment: draft.rail_request.purpose,
            reconciliation_instructions: transaction
                .reference()
                .map(|reference| ReconciliationBody { reference }),
            payment_instructions: payment_instructions(transaction, rails),
            failure_reason: transaction.failure().map(|reason| reason.name()),
            status_reason: transaction
                .reason()
                .map(|reason| StatusReasonBody::new(reason, transaction.rail_words())),
            refund: refund(transaction),
        }
    }
}

/// How to make the deposit that a payment waits for, the same as on its quote.
fn payment_instructions(transaction: &Transaction, rails: &Rails) -> Vec<InstructionsBody> {
    match (&transaction.draft().source, transaction.reference()) {
        (Some(Source::RealtimeFunding { currency, network }), Some(reference)) => {
            let deposit = Deposit {
                currency: *currency,
                reference: &reference,
                amount: transaction.draft().sent.map(Sending::money),
                since: transaction.created_at(),
            };
            of_rails(rails, &deposit, *network, None)
        }
        (Some(_) | None, _) => Vec::new(),
    }
}

/// The refund of an outgoing payment that did not arrive: whatever had been set aside for it went
/// back in the same change of state. Money that had come from outside, or comes back later, is not
/// refunded before the payment says so.
fn refund(transaction: &Transaction) -> Option<RefundBody> {
    if transaction.draft().direction == Direction::Incoming {
        return None;
    }
    let source = transaction.draft().source.as_ref().and_then(Source::account);
    let has_reached =
        |all: &[Status]| all.iter().any(|status| transaction.reached(*status).is_some());
    let was_set_aside =
        source.and_then(AccountRef::internal).is_some() && !has_reached(&[Status::Completed]);
    // A payment that the receiving side refuses has come before.
    if !was_set_aside && !has_reached(&[Status::Rejected, Status::Refunded]) {
        return None;
    }
    let ended = [Status::Failed, Status::Rejected];
    let initiated_at = ended.into_iter().find_map(|status| transaction.reached(status))?;
    let settled_at = transaction.reached(Status::Refunded).unwrap_or(initiated_at);
    Some(RefundBody {
        reference: transaction.reference()?,
        status: "COMPLETED",
        reason: "TRANSACTION_FAILED",
        initiated_at: Text(initiated_at),
        settled_at: Text(settled_at),
    })
}
