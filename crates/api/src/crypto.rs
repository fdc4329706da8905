//! The cost of a withdrawal to a wallet (contract 6.17).

use std::collections::BTreeMap;

use axum::response::Response;
use domain::account_info::{AccountInfo, AccountType, FieldValue, types};
use domain::currency::Currency;
use domain::id::InternalAccountId;
use domain::money::Money;
use ports::rail::NetworkFee;
use ports::rails::Leg;
use serde::{Deserialize, Serialize};
use service::error::{Missing, MoneyError};
use service::{Error, owners};
use utoipa::ToSchema;

use crate::auth::Caller;
use crate::error::{ApiError, Code, ErrorBody};
use crate::extract::{Acting, Json, Once};
use crate::validate::{Checks, schema_of};
use crate::wire::currency;

/// The field of a wallet that says where it is.
const ADDRESS: &str = "address";

/// A withdrawal that may be made.
#[derive(Debug, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub struct EstimateWithdrawalFee {
    /// The account that would pay.
    #[schema(max_length = 80)]
    internal_account_id: String,
    /// Its currency.
    #[schema(max_length = 10, example = "USDC")]
    currency: String,
    /// The network of the wallet.
    #[schema(max_length = 64, example = "SOLANA_MAINNET")]
    crypto_network: String,
    /// Smallest units that would leave the account.
    #[schema(minimum = 1, maximum = 9_000_000_000_000_000_i64, example = 1_000_000)]
    amount: i64,
    /// The wallet.
    #[schema(max_length = 255)]
    destination_address: String,
}

schema_of!(EstimateWithdrawalFee);

/// Its cost.
#[derive(Debug, Serialize, ToSchema)]
#[serde(rename_all = "camelCase")]
#[schema(as = WithdrawalFee)]
pub struct WithdrawalFeeBody {
    /// The network's fee, in the smallest unit of its own asset. For information: it is not
    /// charged to the account.
    #[schema(minimum = 0)]
    network_fee: i64,
    /// The network's own asset.
    #[schema(example = "SOL")]
    network_fee_asset: &'static str,
    /// This server's fee, in the smallest unit of the currency.
    #[schema(minimum = 0)]
    application_fee: i64,
    /// The amount that is charged to the account in all, in the smallest unit of the currency.
    #[schema(minimum = 0)]
    total_fee: i64,
    /// The amount that would arrive.
    #[schema(minimum = 0)]
    net_amount: i64,
}

/// A request that was checked.
#[derive(Clone)]
struct Withdrawal {
    account: InternalAccountId,
    amount: Money,
    wallet: &'static AccountType,
}

/// The kind of wallet that holds a currency on a network.
pub(crate) fn wallet(currency: Currency, network: &str) -> Option<&'static AccountType> {
    types().iter().find(|kind| {
        let has_address = kind.fields.iter().any(|field| field.name == ADDRESS);
        has_address && kind.holds(currency) && kind.networks.contains(&network)
    })
}

impl Withdrawal {
    fn of(body: &EstimateWithdrawalFee) -> Result<Self, ApiError> {
        let mut checks = Checks::new();
        let account: Option<InternalAccountId> =
            checks.id("internalAccountId", &body.internal_account_id);
        let currency = currency(&body.currency)?;
        let wallet = wallet(currency, &body.crypto_network);
        match wallet {
            None => {
                let message = format!("no wallet on it holds {}", currency.code());
                checks.refuse("cryptoNetwork", message);
            }
            Some(kind) => {
                let address = FieldValue::Text(body.destination_address.clone());
                let fields = BTreeMap::from([(ADDRESS.to_owned(), address)]);
                if let Err(errors) = AccountInfo::new(kind, fields, None, None) {
                    for error in errors {
                        checks.refuse("destinationAddress", error.message);
                    }
                }
            }
        }
        let amount = Money::positive(body.amount, currency).map_err(|error| {
            ApiError::new(Code::InvalidAmount, error.to_string()).with("field", "amount")
        })?;
        let (account, wallet) = checks.finish(account.zip(wallet))?;
        Ok(Self { account, amount, wallet })
    }
}

/// Estimate a withdrawal fee.
///
/// The likely cost of a withdrawal to a wallet. Nothing is promised and nothing moves.
#[utoipa::path(post, path = "/crypto/estimate-withdrawal-fee",
    operation_id = "estimateWithdrawalFee", tag = "Transfers",
    request_body = EstimateWithdrawalFee,
    responses(
        (status = 200, description = "The fees.", body = WithdrawalFeeBody),
        (status = 404, description = "There is no such account.", body = ErrorBody),
    ))]
pub async fn estimate_withdrawal_fee(
    Acting(app): Acting,
    caller: Caller,
    request: Once,
    Json(body): Json<EstimateWithdrawalFee>,
) -> Response {
    let withdrawal = match body.and_then(|body| Withdrawal::of(&body)) {
        Ok(withdrawal) => withdrawal,
        Err(refusal) => return request.refuse(refusal).await,
    };
    let platform = caller.platform;
    let rails = app.env().rails(platform.mode);
    let (account_type, currency) = (Some(withdrawal.wallet), withdrawal.amount.currency());
    let mut legs =
        withdrawal.wallet.rails.iter().map(|rail| Leg { rail: *rail, account_type, currency });
    let served = legs.find(|leg| rails.port(leg).is_some());
    let (is_served, fee) = (served.is_some(), served.and_then(|leg| rails.network_fee(&leg)));
    let minor = withdrawal.amount.minor();
    // Within one currency nothing is charged, as with every transfer out.
    let shape = move |fee: &NetworkFee| WithdrawalFeeBody {
        network_fee: fee.amount,
        network_fee_asset: fee.asset,
        application_fee: 0,
        total_fee: 0,
        net_amount: minor,
    };
    let work = move |unit: &mut store::unit::Unit<'_, '_>| {
        let account = owners::internal_account(unit, &platform, withdrawal.account)?;
        let (left, right) = (account.currency, withdrawal.amount.currency());
        if left != right {
            let what = "the account and the withdrawal";
            return Err(Error::Money(MoneyError::CurrencyMismatch { what, left, right }));
        }
        if !is_served {
            return Err(Error::NotConnected { missing: Missing::PaymentRail });
        }
        fee.ok_or_else(|| {
            Error::field("cryptoNetwork", "no partner is connected that pays out over it")
        })
    };
    request.run(200, shape, work).await
}
