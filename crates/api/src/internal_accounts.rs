//! Internal accounts: balances held here (specification 2.10, 4.10; contract 6.6).

use std::sync::Arc;

use axum::extract::Query;
use axum::response::Response;
use domain::currency::Currency;
use domain::customer::Customer;
use domain::id::{CustomerId, InternalAccountId, Owner};
use domain::internal_account::Status;
use domain::platform::Platform;
use domain::time::Timestamp;
use ledger::account::AccountKey;
use ports::rail::Deposit;
use ports::rails::Rails;
use serde::{Deserialize, Serialize};
use service::owners::Holder;
use service::presenter::ChangedAccount;
use store::books::LedgerAccount;
use store::error::StoreError;
use store::list::COUNT_MAX;
use store::reader::View;
use store::unit::Unit;
use utoipa::{IntoParams, ToSchema};

use crate::auth::Caller;
use crate::error::ApiError;
use crate::extract::{Acting, ok};
use crate::instructions::{InstructionsBody, of_rails};
use crate::page::{Cursors, List};
use crate::validate::Checks;
use crate::wire::{AmountBody, Text, currency};

/// An internal account.
#[derive(Debug, Serialize, ToSchema)]
#[serde(rename_all = "camelCase")]
#[schema(as = InternalAccount)]
pub struct InternalAccountBody {
    /// System id.
    #[schema(value_type = String, example = "InternalAccount:019542f5-b3e7-7d02-8000-000000000348")]
    id: Text<InternalAccountId>,
    /// Whether its money moves.
    status: &'static str,
    /// The available balance.
    balance: AmountBody,
    /// The balance with what is set aside for payments under way, and what is on its way here.
    total_balance: AmountBody,
    /// How to pay in.
    funding_payment_instructions: Vec<InstructionsBody>,
    /// When it was made.
    #[schema(value_type = String, format = DateTime)]
    created_at: Text<Timestamp>,
    /// When its balance last changed.
    #[schema(value_type = String, format = DateTime)]
    updated_at: Text<Timestamp>,
    /// Whose it is; absent on the platform's own.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<String>, nullable = false)]
    customer_id: Option<Text<CustomerId>>,
}

/// An internal account with its balance, as it is read.
#[derive(Debug, Clone)]
pub struct AccountView {
    id: InternalAccountId,
    currency: Currency,
    owner: Owner,
    status: Status,
    available: i64,
    total: i64,
    created_at: Timestamp,
    updated_at: Timestamp,
}

impl AccountView {
    /// Reads an owner's account. It exists from when its owner was made, whether or not anything
    /// was ever posted to it.
    pub fn read(
        view: &mut View<'_>,
        holder: &Holder,
        platform: &Platform,
        currency: Currency,
    ) -> Result<Self, StoreError> {
        let id = InternalAccountId::of(holder.owner(), currency);
        let row = view.ledger_account(&AccountKey::Internal(id))?;
        Ok(Self::new(holder, platform, currency, row.as_deref()))
    }

    /// The same account as a unit of work leaves it.
    pub fn after(
        unit: &mut Unit<'_, '_>,
        holder: &Holder,
        platform: &Platform,
        currency: Currency,
    ) -> Result<Self, StoreError> {
        let id = InternalAccountId::of(holder.owner(), currency);
        let row = unit.get::<LedgerAccount>(&AccountKey::Internal(id))?;
        Ok(Self::new(holder, platform, currency, row.as_deref()))
    }

    fn new(
        holder: &Holder,
        platform: &Platform,
        currency: Currency,
        row: Option<&LedgerAccount>,
    ) -> Self {
        let (owner, created_at) = (holder.owner(), holder.created_at(platform));
        Self {
            id: InternalAccountId::of(owner, currency),
            currency,
            owner,
            status: match holder {
                Holder::Platform(_) => Status::Open,
                Holder::Customer(customer) => Status::of(customer),
            },
            available: row.map_or(0, |row| row.balance.held_minor()),
            total: row.map_or(0, |row| row.balance.total_minor()),
            created_at,
            updated_at: row.map_or(created_at, |row| row.updated_at.max(created_at)),
        }
    }
}

impl InternalAccountBody {
    /// The body of an account of a platform whose money moves on `rails`.
    pub fn new(rails: &Rails, account: &AccountView) -> Self {
        let reference = reference(account.id);
        let is_platforms = matches!(account.owner, Owner::Platform(_));
        Self {
            id: Text(account.id),
            status: account.status.name(),
            balance: AmountBody::new(account.available, account.currency),
            total_balance: AmountBody::new(account.total, account.currency),
            funding_payment_instructions: of_rails(
                rails,
                &Deposit {
                    currency: account.currency,
                    reference: &reference,
                    amount: None,
                    since: account.created_at,
                },
                None,
                Some(is_platforms),
            ),
            created_at: Text(account.created_at),
            updated_at: Text(account.updated_at),
            customer_id: account.owner.customer().map(Text),
        }
    }
}

/// The event of an account whose balance has changed (contract 7.2).
#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
pub struct ChangedAccountBody {
    #[serde(flatten)]
    account: InternalAccountBody,
    old_balance: AmountBody,
    new_balance: AmountBody,
}

impl ChangedAccountBody {
    /// The account after the change, and what could be spent before and after.
    pub fn new(rails: &Rails, changed: &ChangedAccount) -> Self {
        let ChangedAccount { platform, owner, change } = changed;
        let currency = change.account.currency().expect("only a currency's account has a balance");
        let account = AccountView::new(owner, platform, currency, Some(&change.row));
        Self {
            account: InternalAccountBody::new(rails, &account),
            old_balance: AmountBody::new(change.before, currency),
            new_balance: AmountBody::new(account.available, currency),
        }
    }
}

/// The reference by which a deposit to an account is recognised: made from its id, so that it is
/// the same for ever.
fn reference(id: InternalAccountId) -> String {
    format!("SYA-{}", id.uuid().simple()).to_uppercase()
}

/// Which of the platform's accounts are listed.
#[derive(Debug, Deserialize, IntoParams)]
#[serde(rename_all = "camelCase")]
#[into_params(parameter_in = Query)]
pub struct ListPlatformAccounts {
    /// In this currency.
    currency: Option<String>,
    /// Rows of a page; all rows when left out.
    #[param(value_type = Option<u32>, minimum = 1, maximum = 100)]
    limit: Option<String>,
    /// The `nextCursor` of the page before.
    cursor: Option<String>,
}

/// List platform internal accounts.
///
/// The platform's own, one per supported currency: all of them unless `limit` says how many a page
/// has.
#[utoipa::path(get, path = "/platform/internal-accounts",
    operation_id = "listPlatformInternalAccounts", tag = "Internal accounts",
    params(ListPlatformAccounts),
    responses((status = 200, description = "A page of accounts.",
        body = List<InternalAccountBody>)))]
pub async fn list_of_platform(
    Acting(app): Acting,
    caller: Caller,
    Query(query): Query<ListPlatformAccounts>,
) -> Result<Response, ApiError> {
    let mut checks = Checks::new();
    let platform = caller.platform;
    let cursors = Cursors::new(&app, platform.id, "platform internal accounts");
    let page = cursors.request_all(&mut checks, query.limit.as_deref(), query.cursor.as_deref());
    checks.done()?;
    let wanted = query.currency.as_deref().map(currency).transpose()?;
    let currencies = shown(&platform, wanted);
    let (holder, of) = (Holder::Platform(platform.id), platform.clone());
    let page = app
        .store()
        .read(move |view| {
            let after = page.after.map(|last| InternalAccountId::from_uuid(last).currency());
            let behind = after.and_then(|last| position(&currencies, last)).map_or(0, |at| at + 1);
            let total = Some(currencies.len() as u64);
            let mut rest = currencies.into_iter().skip(behind);
            let read = |currency| AccountView::read(view, &holder, &of, currency).map(Arc::new);
            let rows = rest.by_ref().take(page.limit as usize).map(read);
            let rows = rows.collect::<Result<Vec<_>, StoreError>>()?;
            Ok::<_, StoreError>(store::list::Page { rows, has_more: rest.next().is_some(), total })
        })
        .await?;
    let rails = app.env().rails(platform.mode);
    let body = |account: &AccountView| InternalAccountBody::new(rails, account);
    Ok(ok(&cursors.list(page, |account| account.id.uuid(), body)))
}

fn shown(platform: &Platform, wanted: Option<Currency>) -> Vec<Currency> {
    let all = platform.currencies.iter().map(|supported| supported.currency);
    all.filter(|currency| wanted.is_none_or(|wanted| wanted == *currency)).collect()
}

/// Which of the customers' accounts are listed.
#[derive(Debug, Deserialize, IntoParams)]
#[serde(rename_all = "camelCase")]
#[into_params(parameter_in = Query)]
pub struct ListCustomerAccounts {
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

/// List internal accounts of customers.
///
/// One per customer and supported currency, newest customers first.
#[utoipa::path(get, path = "/customers/internal-accounts",
    operation_id = "listCustomerInternalAccounts", tag = "Internal accounts",
    params(ListCustomerAccounts),
    responses((status = 200, description = "A page of accounts.",
        body = List<InternalAccountBody>)))]
pub async fn list_of_customers(
    Acting(app): Acting,
    caller: Caller,
    Query(query): Query<ListCustomerAccounts>,
) -> Result<Response, ApiError> {
    let mut checks = Checks::new();
    let platform = caller.platform;
    let cursors = Cursors::new(&app, platform.id, "customer internal accounts");
    let (limit, cursor) = (query.limit.as_deref(), query.cursor.as_deref());
    let page = cursors.request(&mut checks, limit, cursor, Default::default());
    let customer_id = checks.id_if("customerId", query.customer_id.as_deref());
    checks.done()?;
    let wanted = query.currency.as_deref().map(currency).transpose()?;
    let currencies = shown(&platform, wanted);
    let (id, of) = (platform.id, platform.clone());
    let accounts = app
        .store()
        .read(move |view| {
            // The last account of the page before tells the customer and the currency.
            let after = page.after.map(InternalAccountId::from_uuid);
            let customers = match customer_id {
                None => view.owners_of_accounts(id, after, page.limit)?,
                // A read of a customer by its id also finds a deleted one.
                Some(customer) => {
                    let customer = view.get::<Customer>(&customer)?;
                    let rows: Vec<_> =
                        customer.into_iter().filter(|one| one.platform == id).collect();
                    store::list::Page { total: Some(rows.len() as u64), rows, has_more: false }
                }
            };
            let mut accounts = Vec::new();
            for customer in &customers.rows {
                let owner = Owner::Customer(customer.id);
                let holder = Holder::Customer(Arc::clone(customer));
                for currency in &currencies {
                    let is_seen = after.is_some_and(|after| {
                        after.owner_uuid() == owner.uuid()
                            && position(&currencies, after.currency())
                                >= position(&currencies, Some(*currency))
                    });
                    if !is_seen && accounts.len() <= page.limit as usize {
                        accounts.push(AccountView::read(view, &holder, &of, *currency)?);
                    }
                }
            }
            // The owner that comes first may have no account left, so that the page is full
            // although there are more customers.
            let has_more = accounts.len() > page.limit as usize
                || (customers.has_more && !currencies.is_empty());
            accounts.truncate(page.limit as usize);
            let rows = accounts.into_iter().map(Arc::new).collect();
            let total = customers.total.map(|customers| customers * currencies.len() as u64);
            let total = total.filter(|total| *total <= COUNT_MAX);
            Ok::<_, StoreError>(store::list::Page { rows, has_more, total })
        })
        .await?;
    let rails = app.env().rails(platform.mode);
    let body = |account: &AccountView| InternalAccountBody::new(rails, account);
    Ok(ok(&cursors.list(accounts, |account| account.id.uuid(), body)))
}

fn position(currencies: &[Currency], currency: Option<Currency>) -> Option<usize> {
    currencies.iter().position(|one| Some(*one) == currency)
}
