//! Receiver lookups (specification 2.14, 4.11, 4.12; contract 6.8).

use axum::extract::{Path, Query};
use axum::response::Response;
use domain::id::ExternalAccountId;
use domain::lookup::{Offer, Receiver};
use domain::money::Money;
use domain::rate::Rate;
use domain::uma_address::UmaAddress;
use ports::uma::PeerFailure;
use serde::{Deserialize, Serialize};
use service::error::{PeerStage, UmaError};
use service::lookups::{self, Asked, Looked, Wanted};
use utoipa::{IntoParams, ToSchema};

use crate::auth::Caller;
use crate::config::CounterpartyFieldBody;
use crate::error::{ApiError, Code, ErrorBody};
use crate::extract::{Acting, ok};
use crate::query;
use crate::validate::Checks;
use crate::wire::{CurrencyBody, Number};

/// A currency in which a receiver can be paid.
#[derive(Debug, Serialize, ToSchema)]
#[serde(rename_all = "camelCase")]
#[schema(as = ReceiverCurrency)]
pub struct ReceiverCurrencyBody {
    /// The currency.
    currency: CurrencyBody,
    /// Major units of the first currency that the platform can send, per one major unit of this
    /// one. Without obligation and without fees.
    #[schema(value_type = f64, example = 1.08695652)]
    estimated_exchange_rate: Number,
    /// Least that may arrive, in the smallest unit.
    #[schema(minimum = 1)]
    min: i64,
    /// Most that may arrive, in the smallest unit.
    max: i64,
}

impl From<&(Offer, Rate)> for ReceiverCurrencyBody {
    fn from((offer, rate): &(Offer, Rate)) -> Self {
        Self {
            currency: offer.currency.into(),
            estimated_exchange_rate: Number(rate.value()),
            min: offer.min_minor,
            max: offer.max_minor,
        }
    }
}

/// A lookup of a receiver.
#[derive(Debug, Serialize, ToSchema)]
#[serde(rename_all = "camelCase")]
#[schema(as = ReceiverLookup)]
pub struct LookupBody {
    /// The address that was looked up.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(nullable = false, example = "$ada@example.com")]
    receiver_uma_address: Option<String>,
    /// The account that was looked up.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(nullable = false)]
    account_id: Option<String>,
    /// How the receiver can be paid, in the order of its preference.
    supported_currencies: Vec<ReceiverCurrencyBody>,
    /// Facts about the payer that its institution asks for; mandatory ones must be given with the
    /// quote.
    required_payer_data_fields: Vec<CounterpartyFieldBody>,
    /// Names the lookup in the quote, for 15 minutes.
    #[schema(example = "Lookup:019542f5-b3e7-7d02-8000-000000000009")]
    lookup_id: String,
}

impl From<&Looked> for LookupBody {
    fn from(Looked { lookup, offers }: &Looked) -> Self {
        let account = match lookup.receiver {
            Receiver::Account(id) => Some(id.to_string()),
            Receiver::Customer { .. } | Receiver::Peer { .. } => None,
        };
        Self {
            receiver_uma_address: lookup.receiver.address().map(ToString::to_string),
            account_id: account,
            supported_currencies: offers.iter().map(Into::into).collect(),
            required_payer_data_fields: lookup.payer_fields.iter().map(Into::into).collect(),
            lookup_id: lookup.id.to_string(),
        }
    }
}

/// The payer.
#[derive(Debug, Deserialize, IntoParams)]
#[serde(rename_all = "camelCase")]
#[into_params(parameter_in = Query)]
pub struct Sender {
    /// The customer's UMA address; may be left out with a `customerId`.
    sender_uma_address: Option<String>,
    /// The customer; may be left out with a `senderUmaAddress`.
    customer_id: Option<String>,
}

impl From<UmaError> for ApiError {
    fn from(error: UmaError) -> Self {
        let plain = |code| Self::new(code, error.to_string()).about("umaAddress");
        match &error {
            UmaError::InvalidAddress { address, .. } => {
                plain(Code::InvalidUmaAddress).with("umaAddress", address.as_str())
            }
            UmaError::SenderNotFound { address } => {
                plain(Code::UserNotFound).with("umaAddress", address.as_str())
            }
            UmaError::NotFound { address } => {
                plain(Code::UmaNotFound).with("umaAddress", address.as_str())
            }
            UmaError::PayeeNotReady { address } => {
                plain(Code::UserNotReady).with("umaAddress", address.as_str())
            }
            UmaError::Peer { address, stage, failure } => {
                plain(code_of_peer(*stage, *failure)).with("umaAddress", address.as_str())
            }
            UmaError::PayerDataMissing { fields } => plain(Code::MissingMandatoryUserInfo)
                .about("senderCustomerInfo")
                .with("missingFields", fields.clone()),
            UmaError::PayeeDataMissing { address, fields } => plain(Code::InvalidPayreqResponse)
                .with("umaAddress", address.as_str())
                .with("missingFields", fields.clone()),
            UmaError::InvoiceTaken { address } => plain(Code::InvalidPayreqResponse)
                .with("umaAddress", address.as_str())
                .with("reason", "INVOICE_ALREADY_USED"),
            UmaError::CostDiffers { address, promised, asked, max, .. } => {
                let minor = |amount: Option<Money>| amount.map(Money::minor);
                plain(Code::InvalidPayreqResponse)
                    .with("umaAddress", address.as_str())
                    .with("reason", "COST_DIFFERS")
                    .with("lookedUpSendingAmount", minor(*promised))
                    .with("askedSendingAmount", minor(*asked))
                    .with("maxBasisPoints", max.get())
            }
            UmaError::NotOffered { address, .. } => {
                plain(Code::InvalidCurrency).about("currency").with("umaAddress", address.as_str())
            }
            UmaError::NothingInCommon { address, .. } => {
                plain(Code::InvalidCurrency).with("umaAddress", address.as_str())
            }
            UmaError::LookupNotFound { id } => {
                plain(Code::LookupRequestNotFound).with("lookupId", id.as_str())
            }
        }
    }
}

/// The code of a peer's failure at a stage of a payment.
fn code_of_peer(stage: PeerStage, failure: PeerFailure) -> Code {
    match (failure, stage) {
        (PeerFailure::UnknownAddress, _) => Code::UmaNotFound,
        (PeerFailure::PayeeNotReady, _) => Code::UserNotReady,
        (PeerFailure::NotAllowed, _) => Code::CounterpartyNotAllowed,
        (PeerFailure::Unreachable, PeerStage::Lookup) => Code::LnurlpRequestFailed,
        (PeerFailure::Unreachable, PeerStage::PayRequest) => Code::PayreqRequestFailed,
        (PeerFailure::KeysUnavailable, _) => Code::CounterpartyPubkeyFetchError,
        (PeerFailure::Unreadable, PeerStage::Lookup) => Code::ParseLnurlpResponseError,
        (PeerFailure::Unreadable, PeerStage::PayRequest) => Code::ParsePayreqResponseError,
        (PeerFailure::UnsupportedVersion, _) => Code::UnsupportedUmaVersion,
        (PeerFailure::NoCommonVersion, _) => Code::NoCompatibleUmaVersion,
    }
}

/// A UMA address as a client wrote it.
pub(crate) fn address(field: &str, text: &str) -> Result<UmaAddress, ApiError> {
    let refused = |error: domain::uma_address::InvalidUma| {
        service::Error::Uma(service::error::UmaError::InvalidAddress {
            address: text.chars().take(80).collect(),
            reason: format!("{error}{}", query::hint(text)),
        })
    };
    UmaAddress::parse(text).map_err(|error| ApiError::from(refused(error)).at(field))
}

impl Sender {
    fn asks_about(&self, receiver: Wanted) -> Result<Asked, ApiError> {
        let sender = self.sender_uma_address.as_deref();
        let sender = sender.map(|text| address("senderUmaAddress", text)).transpose()?;
        let mut checks = Checks::new();
        let customer_id = checks.id_if("customerId", self.customer_id.as_deref());
        checks.finish(Some(Asked { customer_id, sender, receiver }))
    }
}

/// Look up a UMA address.
///
/// Says who has it and how it can be paid. The answer is kept for 15 minutes, for a quote to the
/// address.
#[utoipa::path(get, path = "/receiver/uma/{receiverUmaAddress}",
    operation_id = "lookUpUmaAddress", tag = "Receivers",
    params(
        ("receiverUmaAddress" = String, Path, description = "The address, `$user@domain`."),
        Sender,
    ),
    responses(
        (status = 200, description = "How the receiver can be paid.", body = LookupBody),
        (status = 400, description = "The address or a parameter is not valid, or its institution \
            offers no currency in which the platform can pay.", body = ErrorBody),
        (status = 403, description = "The token lacks the permission, or the receiver cannot be \
            paid yet, or its institution is not dealt with.", body = ErrorBody),
        (status = 404, description = "The address does not exist, or there is no such \
            customer.", body = ErrorBody),
        (status = 410, description = "The customer was deleted.", body = ErrorBody),
        (status = 412, description = "The receiver's institution has another version of UMA.",
            body = ErrorBody),
        (status = 424, description = "The receiver's institution gave no answer that can be used.",
            body = ErrorBody),
    ))]
pub async fn look_up_address(
    Acting(app): Acting,
    caller: Caller,
    Path(receiver): Path<String>,
    Query(sender): Query<Sender>,
) -> Result<Response, ApiError> {
    let asked = sender.asks_about(Wanted::Address(address("receiverUmaAddress", &receiver)?))?;
    let looked = lookups::look_up(&app, &caller.platform, asked).await?;
    Ok(ok(&LookupBody::from(&looked)))
}

/// Look up an external account.
///
/// Says how it can be paid.
#[utoipa::path(get, path = "/receiver/external-account/{accountId}",
    operation_id = "lookUpExternalAccount", tag = "Receivers",
    params(
        ("accountId" = String, Path, description = "System id of the external account."),
        Sender,
    ),
    responses(
        (status = 200, description = "How the account can be paid.", body = LookupBody),
        (status = 404, description = "There is no such account or customer.", body = ErrorBody),
        (status = 410, description = "The customer was deleted.", body = ErrorBody),
    ))]
pub async fn look_up_account(
    Acting(app): Acting,
    caller: Caller,
    Path(account): Path<String>,
    Query(sender): Query<Sender>,
) -> Result<Response, ApiError> {
    let id = ExternalAccountId::parse(&account).map_err(|_| ApiError::no_account(&account))?;
    let asked = sender.asks_about(Wanted::Account(id))?;
    let looked = lookups::look_up(&app, &caller.platform, asked).await?;
    Ok(ok(&LookupBody::from(&looked)))
}
