//! The ledger of the story: its postings, and the accounts after them.

use domain::id::{CustomerId, InternalAccountId, Owner, PlatformId};
use domain::transaction::Transaction;
use ledger::account::{AccountKey, Balance, Side};
use ledger::posting::Resolution;
use ledger::t_accounts;
use service::App;
use store::books::{PostingRow, RowPhase};
use store::error::StoreError;
use store::list::{Order, PageRequest};
use store::reader::View;
use store::transactions::TransactionFilter;

use crate::command::{Failure, aligned};

/// Transactions of the story, and some.
const TRANSACTIONS_MAX: u32 = 100;

/// Names for the accounts of the story.
#[derive(Clone, Copy)]
pub(super) struct Names {
    customer: Owner,
    name: &'static str,
}

impl Names {
    /// The names of a platform's accounts, whose one customer has this id and this name.
    pub(super) fn new(customer: &str, name: &'static str) -> Result<Self, Failure> {
        let customer = CustomerId::parse(customer)
            .map_err(|error| Failure::new(format!("the customer's id is none: {error}")))?;
        Ok(Self { customer: Owner::Customer(customer), name })
    }

    fn of(self, account: &AccountKey) -> String {
        let is_customers = |id: InternalAccountId| id.owner_uuid() == self.customer.uuid();
        match (account, account.currency()) {
            (AccountKey::Internal(id), Some(currency)) if is_customers(*id) => {
                format!("{} {currency}", self.name)
            }
            // One platform has the whole story, so its id says nothing.
            (AccountKey::Rail { rail, currency, .. }, _) => format!("rail {rail} {currency}"),
            (AccountKey::Exchange { currency, .. }, _) => format!("exchange {currency}"),
            (AccountKey::Fees { currency, .. }, _) => format!("fees {currency}"),
            (AccountKey::Suspense { currency, .. }, _) => format!("suspense {currency}"),
            (account, _) => account.to_string(),
        }
    }
}

/// The ledger of a platform: its postings, and the accounts with their balances.
pub(super) async fn books(
    app: &App,
    platform: PlatformId,
    names: Names,
) -> Result<String, Failure> {
    let (transactions, accounts) = app
        .store()
        .read::<_, StoreError, _>(move |view| {
            let page =
                PageRequest { limit: TRANSACTIONS_MAX, after: None, order: Order::Ascending };
            let all = view.transactions(platform, &TransactionFilter::default(), page)?;
            let mut transactions = Vec::new();
            for transaction in all.rows {
                let postings = view.postings(transaction.id())?;
                transactions.push((transaction, postings));
            }
            let accounts = balances(view, &transactions)?;
            Ok((transactions, accounts))
        })
        .await?;
    let mut text = String::new();
    for (_, postings) in &transactions {
        for posting in postings {
            text += &format!("  {}\n", said(posting, names));
        }
    }
    let rows: Vec<_> = accounts
        .into_iter()
        .map(|(account, balance)| (names.of(&account), account, balance))
        .collect();
    Ok(text + "\n" + &for_terminals(&t_accounts::table(&rows)))
}

/// Every account that the postings touch, with its balance.
fn balances(
    view: &mut View<'_>,
    transactions: &[(std::sync::Arc<Transaction>, Vec<PostingRow>)],
) -> Result<Vec<(AccountKey, Balance)>, StoreError> {
    let entries =
        transactions.iter().flat_map(|(_, postings)| postings).flat_map(|row| &row.entries);
    let keys: std::collections::BTreeSet<_> = entries.map(|entry| entry.account()).collect();
    let mut balances = Vec::new();
    for key in keys {
        let account = view.ledger_account(&key)?;
        balances.push((key, account.map_or(Balance::ZERO, |account| account.balance)));
    }
    Ok(balances)
}

/// A posting as a bookkeeper says it.
fn said(posting: &PostingRow, names: Names) -> String {
    let phase = match posting.phase {
        RowPhase::Posted => "posted",
        RowPhase::Pending => "pending",
        RowPhase::Resolves(_, Resolution::Post) => "settled: what was pending is posted",
        RowPhase::Resolves(_, Resolution::Void) => "refused: what was pending is void",
    };
    let entry = |entry: &ledger::posting::Entry| {
        let side = match entry.side() {
            Side::Debit => "Dr",
            Side::Credit => "Cr",
        };
        // The account's name ends with the currency already.
        let amount = entry.amount().to_string();
        let digits = amount.split(' ').next().unwrap_or_default();
        format!("{side} {} {digits}", names.of(&entry.account()))
    };
    let entries: Vec<_> = posting.entries.iter().map(entry).collect();
    format!("{:<13} {phase:<9} {}", posting.movement.name(), entries.join(", "))
        .trim_end()
        .to_owned()
}

/// A Markdown table with columns that are aligned where no renderer does it.
fn for_terminals(markdown: &str) -> String {
    let is_rule = |line: &&str| !line.starts_with("|--");
    let row = |line: &str| {
        let mut cells = line.trim_matches('|').split('|').map(str::trim);
        std::array::from_fn(|_| cells.next().unwrap_or_default().to_owned())
    };
    let rows: Vec<[String; 6]> = markdown.lines().filter(is_rule).map(row).collect();
    aligned(&rows)
}
