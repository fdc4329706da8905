//! The state machines as a page of the documents.

use std::fmt::Write as _;

use crate::customer::KycStatus;
use crate::uma_address::UmaAddress;
use crate::{bulk_import, external_account, invitation, kyc, quote, transaction};

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
            let Some(to) = from.after(event) else { continue };
            let (from, to, name) = (from.name(), to.name(), event.name());
            // Writing to a string cannot fail.
            let _ = writeln!(page, "| `{from}` | {name} | `{to}` | {} |", event.money());
        }
    }
    page.push_str("\n## Quote\n\n| from | event | to |\n|---|---|---|\n");
    for from in quote::Status::ALL {
        for event in quote::Event::ALL {
            let Some(to) = from.after(event) else { continue };
            let (from, to, name) = (from.name(), to.name(), event.name());
            let _ = writeln!(page, "| `{from}` | {name} | `{to}` |");
        }
    }
    page.push_str("\n## External account\n\n| from | event | to |\n|---|---|---|\n");
    for from in external_account::Status::ALL {
        for event in external_account::Event::ALL {
            let Some(to) = from.after(event) else { continue };
            let (from, to, name) = (from.name(), to.name(), event.name());
            let _ = writeln!(page, "| `{from}` | {name} | `{to}` |");
        }
    }
    page.push_str(
        "\n## Identity\n\nRegulated platforms know their customers themselves: what they state \
         leads from every status to the one that they say.\n\n\
         | from | event | to |\n|---|---|---|\n",
    );
    for from in KycStatus::ALL {
        for event in kyc::Event::ALL {
            let Some(to) = from.after(event) else { continue };
            let (from, to, name) = (from.name(), to.name(), event.name());
            let _ = writeln!(page, "| `{from}` | {name} | `{to}` |");
        }
    }
    page.push_str("\n## Identity check\n\n| from | event | to |\n|---|---|---|\n");
    for from in kyc::CheckStatus::ALL {
        for event in kyc::CheckEvent::ALL {
            let Some(to) = kyc::check_arrow(from, event) else { continue };
            let (from, to, name) = (from.name(), to.name(), event.name());
            let _ = writeln!(page, "| `{from}` | {name} | `{to}` |");
        }
    }
    page.push_str("\n## Bulk import\n\n| from | event | to |\n|---|---|---|\n");
    for from in bulk_import::Status::ALL {
        for event in bulk_import::Event::ALL {
            let Some(to) = from.after(event) else { continue };
            let (from, to, name) = (from.name(), to.name(), event.name());
            let _ = writeln!(page, "| `{from}` | {name} | `{to}` |");
        }
    }
    page.push_str("\n## Invitation\n\n| from | event | to |\n|---|---|---|\n");
    let invitee = UmaAddress::parse("$invitee@example.com").expect("it is of the right form");
    for from in invitation::Status::ALL {
        for event in invitation::Event::all(invitee.clone()) {
            let Some(to) = from.after(&event) else { continue };
            let (from, to, name) = (from.name(), to.name(), event.name());
            let _ = writeln!(page, "| `{from}` | {name} | `{to}` |");
        }
    }
    page
}
