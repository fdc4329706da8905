//! External accounts: bank accounts and wallets elsewhere (specification 2.8, 2.9, 4.7 to 4.9;
//! contract 6.7).

pub mod one;

use std::collections::BTreeMap;

use axum::extract::Query;
use axum::response::Response;
use domain::account_info::{
    AccountInfo, AccountType, BeneficiaryDraft, FieldError, FieldValue, Rule, types,
};
use domain::customer::Customer;
use domain::external_account::ExternalAccount;
use domain::id::Owner;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value, json};
use service::App;
use service::error::AccountError;
use service::external_accounts::{self, NewExternalAccount};
use store::error::StoreError;
use store::external_accounts::AccountsOf;
use store::reader::View;
use utoipa::{IntoParams, ToSchema};

use crate::auth::Caller;
use crate::error::{ApiError, Code, ErrorBody, Problem};
use crate::extract::{Acting, Json, Once, ok, respond};
use crate::page::{Cursors, List};
use crate::strict;
use crate::validate::{Checks, schema_of};
use crate::wire::{AddressBody, currency};

/// Stands for the schema that the one table of account types writes into the document.
#[derive(ToSchema)]
pub struct ExternalAccountInfo {}

/// A new external account.
#[derive(Debug, Clone, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub struct CreateExternalAccount {
    /// The currency that it holds.
    #[schema(min_length = 1, max_length = 10, example = "USD")]
    currency: String,
    /// Its identifiers on its rail, and its holder.
    #[schema(value_type = ExternalAccountInfo)]
    account_info: Map<String, Value>,
    /// Whose it is; the platform's own when left out.
    #[serde(default)]
    #[schema(nullable = false, max_length = 80)]
    customer_id: Option<String>,
    /// The platform's own name for it.
    #[serde(default)]
    #[schema(nullable = false, max_length = 255)]
    platform_account_id: Option<String>,
    /// Whether incoming UMA payments of the customer go on to it. Takes the flag from the account
    /// that had it.
    #[serde(default)]
    default_uma_deposit_account: bool,
    /// The blockchain of a wallet: required for every type of wallet whose name ends in `_WALLET`,
    /// to be left out for a bank account.
    #[serde(default)]
    #[schema(nullable = false, max_length = 64, example = "SOLANA_MAINNET")]
    crypto_network: Option<String>,
}

/// A new external account of the platform itself.
#[derive(Debug, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub struct CreatePlatformExternalAccount {
    /// The currency that it holds.
    #[schema(min_length = 1, max_length = 10, example = "USD")]
    currency: String,
    /// Its identifiers on its rail, and its holder.
    #[schema(value_type = ExternalAccountInfo)]
    account_info: Map<String, Value>,
    /// The platform's own name for it.
    #[serde(default)]
    #[schema(nullable = false, max_length = 255)]
    platform_account_id: Option<String>,
    /// The blockchain of a wallet: required for every type of wallet whose name ends in `_WALLET`,
    /// to be left out for a bank account.
    #[serde(default)]
    #[schema(nullable = false, max_length = 64)]
    crypto_network: Option<String>,
}

schema_of!(CreateExternalAccount, CreatePlatformExternalAccount);

impl From<CreatePlatformExternalAccount> for CreateExternalAccount {
    fn from(body: CreatePlatformExternalAccount) -> Self {
        Self {
            currency: body.currency,
            account_info: body.account_info,
            customer_id: None,
            platform_account_id: body.platform_account_id,
            default_uma_deposit_account: false,
            crypto_network: body.crypto_network,
        }
    }
}

/// A beneficiary, both ways.
#[derive(Debug, Default, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct BeneficiaryBody {
    #[serde(skip_serializing_if = "Option::is_none")]
    beneficiary_type: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    full_name: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    legal_name: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    birth_date: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    nationality: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    registration_number: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    tax_id: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    email: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    phone_number: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    country_of_residence: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    address: Option<AddressBody>,
}

impl From<BeneficiaryBody> for BeneficiaryDraft {
    fn from(body: BeneficiaryBody) -> Self {
        Self {
            beneficiary_type: body.beneficiary_type,
            full_name: body.full_name,
            legal_name: body.legal_name,
            birth_date: body.birth_date,
            nationality: body.nationality,
            registration_number: body.registration_number,
            tax_id: body.tax_id,
            email: body.email,
            phone_number: body.phone_number,
            country_of_residence: body.country_of_residence,
            address: body.address.map(Into::into),
        }
    }
}

impl From<BeneficiaryDraft> for BeneficiaryBody {
    fn from(draft: BeneficiaryDraft) -> Self {
        Self {
            beneficiary_type: draft.beneficiary_type,
            full_name: draft.full_name,
            legal_name: draft.legal_name,
            birth_date: draft.birth_date,
            nationality: draft.nationality,
            registration_number: draft.registration_number,
            tax_id: draft.tax_id,
            email: draft.email,
            phone_number: draft.phone_number,
            country_of_residence: draft.country_of_residence,
            address: draft.address.map(Into::into),
        }
    }
}

impl From<AccountError> for ApiError {
    fn from(error: AccountError) -> Self {
        let plain = |code| Self::new(code, error.to_string());
        let unusable = || plain(Code::InvalidBankAccount).about("accountId");
        match &error {
            AccountError::NotFound { id } => {
                plain(Code::AccountNotFound).with("accountId", id.as_str())
            }
            AccountError::InvalidDetails(errors) => {
                Self::fields(Code::InvalidBankAccount, errors.iter().map(Problem::from).collect())
            }
            AccountError::Duplicate { existing } => {
                plain(Code::Conflict).with("accountId", existing.to_string())
            }
            AccountError::NotActive { id, status } => {
                unusable().with("accountId", id.to_string()).with("status", status.name())
            }
            AccountError::NotPullable { id } | AccountError::Unreachable { id } => {
                unusable().with("accountId", id.to_string())
            }
            AccountError::Full { account, max } => plain(Code::AmountOutOfRange)
                .about("amount")
                .with("accountId", account.to_string())
                .with("maxBalance", *max),
            AccountError::SelfPayment => plain(Code::SelfPayment).about("destination"),
            AccountError::NoReport => plain(Code::InternalError),
        }
    }
}

/// The code that goes with problems of account details: what is missing or of the wrong type is
/// input, what breaks a rule of the rail is bank data (contract 3.3).
fn code(account_type: &AccountType, errors: &[FieldError]) -> Code {
    let is_bank_rule = |error: &FieldError| {
        !matches!(error.rule, Rule::Required | Rule::Type(_))
            && !error.field.starts_with("beneficiary")
            && error.field != "paymentRails"
    };
    if !account_type.is_wallet() && errors.iter().all(is_bank_rule) {
        Code::InvalidBankAccount
    } else {
        Code::InvalidInput
    }
}

/// Reads and checks `accountInfo`. Its errors have the codes that they have alone.
fn account_info(mut info: Map<String, Value>) -> Result<AccountInfo, (Code, Vec<FieldError>)> {
    let problem =
        |field: &str, rule, message: String| FieldError { field: field.to_owned(), rule, message };
    let name = info.remove("accountType");
    let account_type = name.as_ref().and_then(Value::as_str).and_then(AccountType::from_name);
    let Some(account_type) = account_type else {
        let names: Vec<_> = types().iter().map(|kind| kind.name).collect();
        let message = match name {
            Some(_) => format!("must be one of {}", names.join(", ")),
            None => "is required".to_owned(),
        };
        let rule = if name.is_some() { Rule::Enum(names) } else { Rule::Required };
        return Err((Code::InvalidInput, vec![problem("accountType", rule, message)]));
    };
    let mut errors = Vec::new();
    let wrong_type = |field: &str, wanted: &'static str| {
        problem(field, Rule::Type(wanted), format!("must be of type {wanted}"))
    };
    let rails = info.remove("paymentRails").and_then(|rails| {
        let rails = serde_json::from_value::<Vec<String>>(rails).ok();
        if rails.is_none() {
            errors.push(wrong_type("paymentRails", "array"));
        }
        rails
    });
    let beneficiary = info.remove("beneficiary").and_then(|body| {
        match serde_path_to_error::deserialize::<_, BeneficiaryBody>(body) {
            Ok(body) => Some(BeneficiaryDraft::from(body)),
            Err(error) => {
                let field = strict::field(error.path());
                errors.push(match field.as_str() {
                    "" => wrong_type("beneficiary", "object"),
                    "address" => wrong_type("beneficiary.address", "object"),
                    field => wrong_type(&format!("beneficiary.{field}"), "string"),
                });
                None
            }
        }
    });
    let mut fields = BTreeMap::new();
    for (name, value) in info {
        let value = match value {
            Value::String(text) => FieldValue::Text(text),
            Value::Array(_) => match serde_json::from_value(value) {
                Ok(list) => FieldValue::List(list),
                Err(_) => {
                    errors.push(wrong_type(&name, "array"));
                    continue;
                }
            },
            Value::Null | Value::Bool(_) | Value::Number(_) | Value::Object(_) => {
                errors.push(wrong_type(&name, "string"));
                continue;
            }
        };
        fields.insert(name, value);
    }
    match AccountInfo::new(account_type, fields, rails, beneficiary) {
        Ok(info) if errors.is_empty() => Ok(info),
        Ok(_) => Err((code(account_type, &errors), errors)),
        Err(more) => {
            // A field of the wrong type was left out above and is not missing.
            let known: Vec<_> = errors.iter().map(|error| error.field.clone()).collect();
            errors.extend(more.into_iter().filter(|error| !known.contains(&error.field)));
            Err((code(account_type, &errors), errors))
        }
    }
}

impl CreateExternalAccount {
    /// Checks the body, which stands at `path`.
    pub fn checked(self, path: &'static str) -> Result<NewExternalAccount, ApiError> {
        let at = |field: &str| match path {
            "" => field.to_owned(),
            path => format!("{path}.{field}"),
        };
        let mut checks = Checks::new();
        let customer_id = checks.id_if(&at("customerId"), self.customer_id.as_deref());
        if self.default_uma_deposit_account && self.customer_id.is_none() {
            let message = "only a customer's account can receive UMA payments; give a customerId";
            checks.refuse(&at("defaultUmaDepositAccount"), message);
        }
        // Held against the type, so that it is named together with what is wrong in `accountInfo`.
        let account_type = self.account_info.get("accountType").and_then(Value::as_str);
        let account_type = account_type.and_then(AccountType::from_name);
        let network = account_type.map(|kind| kind.network(self.crypto_network.as_deref()));
        let network = match network.transpose() {
            Ok(network) => network.flatten(),
            Err(error) => {
                checks.part(path, [Problem::from(&error)]);
                None
            }
        };
        let is_clean = checks.is_clean();
        let info = account_info(self.account_info).map_err(|(code, errors)| {
            checks.part(&at("accountInfo"), errors.iter().map(Problem::from));
            code
        });
        let info = match info {
            Ok(info) => checks.finish(Some(info))?,
            Err(code) => {
                let refuse = |refusal| ApiError {
                    code: if is_clean { code } else { Code::InvalidInput },
                    ..refusal
                };
                checks.finish(None).map_err(refuse)?
            }
        };
        let currency = currency(&self.currency)?;
        let account_type = info.account_type();
        if !account_type.holds(currency) {
            let holds = account_type.currencies.join(" or ");
            let message = format!("a {} holds {holds}, not {currency}", account_type.name);
            return Err(ApiError::new(Code::InvalidCurrency, message)
                .about("currency")
                .with("currency", currency.code()));
        }
        let named_inside = info.text("platformAccountId").map(str::to_owned);
        Ok(NewExternalAccount {
            customer_id,
            path,
            currency,
            platform_account_id: self.platform_account_id.or(named_inside),
            info,
            default_uma_deposit_account: self.default_uma_deposit_account,
            crypto_network: network,
        })
    }
}

/// The receiving side's report on the holder of an account (specification 2.8).
#[derive(Debug, Serialize, ToSchema)]
#[serde(rename_all = "camelCase")]
#[schema(as = BeneficiaryVerifiedData)]
pub struct VerifiedDataBody {
    /// The name under which it knows the holder.
    full_name: String,
}

/// An external account.
#[derive(Debug, Serialize, ToSchema)]
#[serde(rename_all = "camelCase")]
#[schema(as = ExternalAccount)]
pub struct ExternalAccountBody {
    /// System id.
    #[schema(example = "ExternalAccount:019542f5-b3e7-7d02-8000-000000000004")]
    id: String,
    /// Whether it can be used.
    status: &'static str,
    /// The currency that it holds.
    currency: &'static str,
    /// Its identifiers on its rail, and its holder.
    #[schema(value_type = ExternalAccountInfo)]
    account_info: Map<String, Value>,
    /// Whose it is; absent on the platform's own.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(nullable = false)]
    customer_id: Option<String>,
    /// The platform's own name for it.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(nullable = false)]
    platform_account_id: Option<String>,
    /// Whether incoming UMA payments of the customer go on to it.
    default_uma_deposit_account: bool,
    /// The rail's check of the beneficiary's name.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(nullable = false)]
    beneficiary_verification_status: Option<&'static str>,
    /// The receiving side's data about the holder, if it shares them.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(nullable = false, required = false)]
    beneficiary_verified_data: Option<VerifiedDataBody>,
    /// The blockchain of a wallet.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(nullable = false)]
    crypto_network: Option<String>,
}

impl ExternalAccountBody {
    /// The body of an account that does or does not receive the UMA payments of its customer.
    pub fn new(account: &ExternalAccount, is_default: bool) -> Self {
        Self {
            id: account.id.to_string(),
            status: account.status.name(),
            currency: account.currency.code(),
            account_info: info_body(&account.info),
            customer_id: account.owner.customer().map(|id| id.to_string()),
            platform_account_id: account.platform_account_id.clone(),
            default_uma_deposit_account: is_default,
            beneficiary_verification_status: account.verification.map(|result| result.name()),
            beneficiary_verified_data: account
                .holder_name
                .clone()
                .map(|full_name| VerifiedDataBody { full_name }),
            crypto_network: account.crypto_network.clone(),
        }
    }
}

fn info_body(info: &AccountInfo) -> Map<String, Value> {
    let mut body = Map::new();
    body.insert("accountType".to_owned(), json!(info.account_type().name));
    let rails: Vec<_> = info.rails().iter().map(|rail| rail.name()).collect();
    body.insert("paymentRails".to_owned(), json!(rails));
    for (name, value) in info.fields() {
        let value = match value {
            FieldValue::Text(text) => json!(text),
            FieldValue::List(list) => json!(list),
        };
        body.insert(name.clone(), value);
    }
    if let Some(beneficiary) = info.beneficiary() {
        let beneficiary = BeneficiaryBody::from(beneficiary.to_draft());
        body.insert("beneficiary".to_owned(), json!(beneficiary));
    }
    body
}

/// Add an external account.
///
/// Of a customer when `customerId` is given, else of the platform.
#[utoipa::path(post, path = "/customers/external-accounts",
    operation_id = "createCustomerExternalAccount", tag = "External accounts",
    request_body = CreateExternalAccount,
    responses(
        (status = 201, description = "The account.", body = ExternalAccountBody),
        (status = 404, description = "There is no such customer.", body = ErrorBody),
        (status = 409, description = "The owner has this account already.", body = ErrorBody),
        (status = 410, description = "The customer was deleted.", body = ErrorBody),
    ))]
pub async fn create_of_customer(
    Acting(app): Acting,
    request: Once,
    Json(body): Json<CreateExternalAccount>,
) -> Response {
    create(app, request, body).await
}

/// Add a platform external account.
///
/// An account of the platform itself.
#[utoipa::path(post, path = "/platform/external-accounts",
    operation_id = "createPlatformExternalAccount", tag = "External accounts",
    request_body = CreatePlatformExternalAccount,
    responses(
        (status = 201, description = "The account.", body = ExternalAccountBody),
        (status = 409, description = "The platform has this account already.", body = ErrorBody),
    ))]
pub async fn create_of_platform(
    Acting(app): Acting,
    request: Once,
    Json(body): Json<CreatePlatformExternalAccount>,
) -> Response {
    create(app, request, body.map(CreateExternalAccount::from)).await
}

async fn create(
    app: App,
    request: Once,
    body: Result<CreateExternalAccount, ApiError>,
) -> Response {
    let new = match body.and_then(|body| body.checked("")) {
        Ok(new) => new,
        Err(refusal) => return request.refuse(refusal).await,
    };
    let is_default = new.default_uma_deposit_account;
    let body = move |account: &ExternalAccount| ExternalAccountBody::new(account, is_default);
    let render = request.renderer(201, body);
    respond(external_accounts::add(&app, request.keyed(), new, render).await)
}

/// Which of the customers' accounts are listed.
#[derive(Debug, Deserialize, IntoParams)]
#[serde(rename_all = "camelCase")]
#[into_params(parameter_in = Query)]
pub struct ListCustomerExternalAccounts {
    /// In this currency.
    currency: Option<String>,
    /// Of this customer.
    customer_id: Option<String>,
    /// Rows of a page.
    #[param(value_type = Option<u32>, minimum = 1, maximum = 100, default = 20)]
    limit: Option<String>,
    /// The `nextCursor` of the page before.
    cursor: Option<String>,
}

/// An account with whether it is its customer's default.
struct Row {
    account: std::sync::Arc<ExternalAccount>,
    is_default: bool,
}

fn with_default(
    view: &mut View<'_>,
    account: std::sync::Arc<ExternalAccount>,
) -> Result<Row, StoreError> {
    let customer = match account.owner {
        Owner::Customer(id) => view.get::<Customer>(&id)?,
        Owner::Platform(_) => None,
    };
    let default = customer.and_then(|customer| customer.default_uma_deposit_account);
    Ok(Row { is_default: default == Some(account.id), account })
}

/// List external accounts of customers.
///
/// The newest come first.
#[utoipa::path(get, path = "/customers/external-accounts",
    operation_id = "listCustomerExternalAccounts", tag = "External accounts",
    params(ListCustomerExternalAccounts),
    responses((status = 200, description = "A page of accounts.",
        body = List<ExternalAccountBody>)))]
pub async fn list_of_customers(
    Acting(app): Acting,
    caller: Caller,
    Query(query): Query<ListCustomerExternalAccounts>,
) -> Result<Response, ApiError> {
    let mut checks = Checks::new();
    let platform = caller.platform.id;
    let cursors = Cursors::new(&app, platform, "customer external accounts");
    let (limit, cursor) = (query.limit.as_deref(), query.cursor.as_deref());
    let page = cursors.request(&mut checks, limit, cursor, Default::default());
    let customer = checks.id_if("customerId", query.customer_id.as_deref());
    checks.done()?;
    let wanted = query.currency.as_deref().map(currency).transpose()?;
    let of = customer.map_or(AccountsOf::Customers, AccountsOf::Customer);
    let page = app
        .store()
        .read(move |view| {
            let page = view.external_accounts(platform, &of, wanted, page)?;
            let rows = page
                .rows
                .into_iter()
                .map(|account| with_default(view, account).map(std::sync::Arc::new))
                .collect::<Result<_, _>>()?;
            let (has_more, total) = (page.has_more, page.total);
            Ok::<_, StoreError>(store::list::Page { rows, has_more, total })
        })
        .await?;
    let body = |row: &Row| ExternalAccountBody::new(&row.account, row.is_default);
    Ok(ok(&cursors.list(page, |row| row.account.id.uuid(), body)))
}

/// Which of the platform's accounts are listed.
#[derive(Debug, Deserialize, IntoParams)]
#[serde(rename_all = "camelCase")]
#[into_params(parameter_in = Query)]
pub struct ListPlatformExternalAccounts {
    /// In this currency.
    currency: Option<String>,
    /// Rows of a page; all rows when left out.
    #[param(value_type = Option<u32>, minimum = 1, maximum = 100)]
    limit: Option<String>,
    /// The `nextCursor` of the page before.
    cursor: Option<String>,
}

/// List platform external accounts.
///
/// The platform's own, newest first: all of them unless `limit` says how many a page has.
#[utoipa::path(get, path = "/platform/external-accounts",
    operation_id = "listPlatformExternalAccounts", tag = "External accounts",
    params(ListPlatformExternalAccounts),
    responses((status = 200, description = "A page of accounts.",
        body = List<ExternalAccountBody>)))]
pub async fn list_of_platform(
    Acting(app): Acting,
    caller: Caller,
    Query(query): Query<ListPlatformExternalAccounts>,
) -> Result<Response, ApiError> {
    let mut checks = Checks::new();
    let platform = caller.platform.id;
    let cursors = Cursors::new(&app, platform, "platform external accounts");
    let page = cursors.request_all(&mut checks, query.limit.as_deref(), query.cursor.as_deref());
    checks.done()?;
    let wanted = query.currency.as_deref().map(currency).transpose()?;
    let page = app
        .store()
        .read(move |view| view.external_accounts(platform, &AccountsOf::Platform, wanted, page))
        .await?;
    let body = |account: &ExternalAccount| ExternalAccountBody::new(account, false);
    Ok(ok(&cursors.list(page, |account| account.id.uuid(), body)))
}
