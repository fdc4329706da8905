//! The state machines as a page of the documents.

use std::fmt::Write as _;

use crate::{
    approval, attention, bulk_import, delivery, external_account, failure, invitation, kyc, quote,
    transaction,
};

/// Writes the arrows of a machine as a table.
fn table(page: &mut String, title: &str, note: &str, arrows: &[[&'static str; 3]]) {
    // Writing to a string cannot fail.
    let _ = write!(page, "\n## {title}\n\n{note}| from | event | to |\n|---|---|---|\n");
    for [from, event, to] in arrows {
        let _ = writeln!(page, "| `{from}` | {event} | `{to}` |");
    }
}

/// Every arrow of every machine, from the tables that the machines themselves use.
pub fn markdown() -> String {
    let mut page = String::from(
        "# States\n\n\
         Written from the machines in `crates/domain/src/transaction.rs` and its neighbours. A \
         status without an arrow out of it is final.\n\n\
         ## Transaction\n\n\
         | from | event | to | money |\n|---|---|---|---|\n",
    );
    for from in transaction::Status::ALL {
        for event in transaction::Event::ALL {
            let Some(to) = from.after(&event) else { continue };
            let (from, to, name) = (from.name(), to.name(), event.name());
            // Writing to a string cannot fail.
            let _ = writeln!(page, "| `{from}` | {name} | `{to}` | {} |", event.money());
        }
    }
    let note = "An approval request asks the platform whether an incoming payment may go on.\n\n";
    table(&mut page, "Approval", note, &approval::arrows());
    table(&mut page, "Quote", "", &quote::arrows());
    table(&mut page, "External account", "", &external_account::arrows());
    let note = "Regulated platforms know their customers themselves: what they state leads from \
                every status to the one that they say.\n\n";
    table(&mut page, "Identity", note, &kyc::arrows());
    table(&mut page, "Identity check", "", &kyc::check_arrows());
    table(&mut page, "Bulk import", "", &bulk_import::arrows());
    table(&mut page, "Invitation", "", &invitation::arrows());
    table(&mut page, "Delivery", "", &delivery::arrows());
    let note = "A matter that only a person can settle: `switchyard attention`.\n\n";
    table(&mut page, "Attention", note, &attention::arrows());
    failure::markdown(&mut page);
    page
}
