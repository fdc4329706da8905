//! `switchyard ledger`: the ledger's accounts, and the trial balance.
//!
//! Both read the balances of one snapshot. The trial balance has a line for the customers of a
//! platform, and one for each other account: a reader sees all of it.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use domain::currency::Currency;
use domain::customer::Customer;
use domain::id::{CustomerId, PlatformId};
use domain::money::in_major_units;
use ledger::account::AccountKey;
use ledger::audit::Sums;
use serde_json::{Value, json};
use service::App;
use store::books::LedgerAccount;
use store::error::StoreError;
use store::reader::View;

use super::{Done, existing_platform, on};
use crate::command::{Failure, aligned};
use crate::config::{Config, LedgerCommand, LedgerOf};

/// Accounts that are read at once.
const ACCOUNTS_AT_ONCE: u32 = 2_000;

/// `switchyard ledger …`.
pub async fn run(config: &Config, command: &LedgerCommand) -> Result<u8, Failure> {
    match command {
        LedgerCommand::Accounts(of) => {
            let name = "ledger accounts";
            on(config, name, async |app| accounts(app, of).await).await?.tell(name)
        }
        LedgerCommand::Balances(of) => {
            let name = "ledger balances";
            let mut totals = Vec::new();
            let done = on(config, name, async |app| {
                let (done, sums) = balances(app, of).await?;
                totals = sums;
                Ok(done)
            });
            let code = done.await?.tell(name)?;
            match totals.iter().find(|(_, sums)| !sums.balances()) {
                None => Ok(code),
                Some((currency, _)) => Err(Failure::new(format!(
                    "debits and credits in {currency} are not equal: run switchyard verify"
                ))),
            }
        }
    }
}

/// A ledger account with the platform that it belongs to; none has that of transit.
struct Found {
    account: Arc<LedgerAccount>,
    platform: Option<PlatformId>,
}

impl Found {
    fn currency(&self) -> Option<Currency> {
        self.account.account.currency()
    }
}

/// Reads all accounts, or those of a platform, in the order of their keys.
fn each(
    view: &mut View<'_>,
    wanted: Option<PlatformId>,
    of_each: &mut dyn FnMut(Found),
) -> Result<(), StoreError> {
    let mut after = None;
    loop {
        let accounts = view.ledger_accounts(after.as_ref(), ACCOUNTS_AT_ONCE)?;
        let Some(last) = accounts.last() else { return Ok(()) };
        after = Some(last.account);
        let owner = |account: &Arc<LedgerAccount>| match account.account {
            AccountKey::Internal(id) => Some(CustomerId::from_uuid(id.owner_uuid())),
            _ => None,
        };
        let owners: BTreeSet<_> = accounts.iter().filter_map(owner).collect();
        let customers = view.get_all::<Customer>(owners)?;
        for account in accounts {
            let platform = match account.account {
                AccountKey::Internal(id) => {
                    let customer = customers.get(&CustomerId::from_uuid(id.owner_uuid()));
                    let itself = || PlatformId::from_uuid(id.owner_uuid());
                    Some(customer.map_or_else(itself, |customer| customer.platform))
                }
                AccountKey::Rail { platform, .. }
                | AccountKey::Exchange { platform, .. }
                | AccountKey::Fees { platform, .. }
                | AccountKey::Suspense { platform, .. } => Some(platform),
                AccountKey::Transit(_) => None,
            };
            if wanted.is_none() || platform == wanted {
                of_each(Found { account, platform });
            }
        }
    }
}

/// Debits less credits, as far as they are final.
fn balance(sums: Sums) -> i128 {
    sums.debits_posted - sums.credits_posted
}

/// The four sums and the balance for people.
fn cells(sums: Sums, currency: Currency) -> [String; 5] {
    let amount = |minor| in_major_units(minor, currency);
    let balance = match balance(sums) {
        0 => amount(0),
        debit if debit > 0 => format!("{} Dr", amount(debit)),
        credit => format!("{} Cr", amount(-credit)),
    };
    let sums = [sums.debits_posted, sums.credits_posted, sums.debits_pending, sums.credits_pending];
    let [debits, credits, pending_debits, pending_credits] = sums.map(amount);
    [debits, credits, pending_debits, pending_credits, balance]
}

/// The same for programs, in the smallest unit: as texts, because a sum can have 128 bits.
fn value(sums: Sums) -> Value {
    json!({
        "debitsPosted": sums.debits_posted.to_string(),
        "creditsPosted": sums.credits_posted.to_string(),
        "debitsPending": sums.debits_pending.to_string(),
        "creditsPending": sums.credits_pending.to_string(),
        "balance": balance(sums).to_string(),
    })
}

/// The columns of [`cells`].
const COLUMNS: [&str; 5] = ["debits", "credits", "pending debits", "pending credits", "balance"];

async fn refuse_unknown(app: &App, of: &LedgerOf) -> Result<(), Failure> {
    match of.platform {
        Some(id) => existing_platform(app, id).await.map(drop),
        None => Ok(()),
    }
}

async fn accounts(app: &App, of: &LedgerOf) -> Result<Done, Failure> {
    refuse_unknown(app, of).await?;
    let wanted = of.platform;
    let read = move |view: &mut View<'_>| {
        let mut all = Vec::new();
        each(view, wanted, &mut |found| all.push(found))?;
        Ok(all)
    };
    let all = app.store().read::<_, StoreError, _>(read).await?;
    let [debits, credits, pending_debits, pending_credits, balance] = COLUMNS.map(str::to_owned);
    let header = [
        "account".to_owned(),
        debits,
        credits,
        pending_debits,
        pending_credits,
        balance,
        "changed".to_owned(),
    ];
    let (mut rows, mut values) = (vec![header], Vec::with_capacity(all.len()));
    for found in &all {
        let (account, sums) = (&found.account, Sums::from(found.account.balance.counters()));
        let Some(currency) = found.currency() else { continue };
        let [debits, credits, pending_debits, pending_credits, balance] = cells(sums, currency);
        let (name, changed) = (account.account.to_string(), account.updated_at.to_string());
        rows.push([
            name.clone(),
            debits,
            credits,
            pending_debits,
            pending_credits,
            balance,
            changed.clone(),
        ]);
        let mut value = value(sums);
        value["account"] = json!(name);
        value["platform"] = json!(found.platform.map(|id| id.to_string()));
        value["currency"] = json!(currency.code());
        value["updatedAt"] = json!(changed);
        values.push(value);
    }
    Ok(Done { text: aligned(&rows), value: json!({ "accounts": values }), changed: None })
}

/// A line of the trial balance: whose, its kind, and the currency.
type Line = (Option<PlatformId>, String, Currency);

/// The kind of an account, of which the trial balance has a line for each platform.
fn kind(found: &Found) -> String {
    match found.account.account {
        AccountKey::Internal(id) => {
            let is_own = found.platform.is_some_and(|platform| platform.uuid() == id.owner_uuid());
            if is_own { "internal, its own" } else { "internal, of customers" }.to_owned()
        }
        AccountKey::Rail { rail, .. } => format!("rail {rail}"),
        AccountKey::Exchange { .. } => "exchange".to_owned(),
        AccountKey::Fees { .. } => "fees".to_owned(),
        AccountKey::Suspense { .. } => "suspense".to_owned(),
        AccountKey::Transit(_) => "transit".to_owned(),
    }
}

async fn balances(app: &App, of: &LedgerOf) -> Result<(Done, Vec<(Currency, Sums)>), Failure> {
    refuse_unknown(app, of).await?;
    let wanted = of.platform;
    let read = move |view: &mut View<'_>| {
        let mut lines = BTreeMap::<Line, (u64, Sums)>::new();
        each(view, wanted, &mut |found| {
            let Some(currency) = found.currency() else { return };
            let line = (found.platform, kind(&found), currency);
            let (accounts, sums) = lines.entry(line).or_default();
            *accounts += 1;
            sums.add(found.account.balance.counters().into());
        })?;
        Ok(lines)
    };
    let lines = app.store().read::<_, StoreError, _>(read).await?;
    let mut totals = BTreeMap::<Currency, Sums>::new();
    let [debits, credits, pending_debits, pending_credits, balance] = COLUMNS.map(str::to_owned);
    let named = |name: &str| name.to_owned();
    let header = [
        named("platform"),
        named("accounts"),
        named("currency"),
        debits,
        credits,
        pending_debits,
        pending_credits,
        balance,
    ];
    let row = |platform: String, kind: String, currency: Currency, sums: Sums| {
        let [debits, credits, pending_debits, pending_credits, balance] = cells(sums, currency);
        let code = currency.code().to_owned();
        [platform, kind, code, debits, credits, pending_debits, pending_credits, balance]
    };
    let (mut rows, mut values) = (vec![header], Vec::with_capacity(lines.len()));
    for ((platform, kind, currency), (accounts, sums)) in lines {
        totals.entry(currency).or_default().add(sums);
        let platform = platform.map_or_else(|| "all".to_owned(), |id| id.to_string());
        let mut value = value(sums);
        value["platform"] = json!(platform);
        value["kind"] = json!(kind);
        value["currency"] = json!(currency.code());
        value["accounts"] = json!(accounts);
        values.push(value);
        rows.push(row(platform, format!("{kind} ({accounts})"), currency, sums));
    }
    let mut total_values = Vec::with_capacity(totals.len());
    for (currency, sums) in &totals {
        rows.push(row("total".to_owned(), String::new(), *currency, *sums));
        let mut value = value(*sums);
        value["currency"] = json!(currency.code());
        total_values.push(value);
    }
    let value = json!({ "lines": values, "totals": total_values });
    // A payment from one platform of this server to another is in the books of both.
    let totals = if wanted.is_none() { totals.into_iter().collect() } else { Vec::new() };
    Ok((Done { text: aligned(&rows), value, changed: None }, totals))
}
