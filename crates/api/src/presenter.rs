//! The bodies that use cases write and read, in JSON: [`Presenter`] for this API.

use domain::customer::KycStatus;
use domain::event::{Event, EventNames};
use serde::Serialize;
use service::Error;
use service::presenter::{ApprovalAnswer, Context, Presenter, Subject};

use crate::approvals::{self, ApprovalRequestBody};
use crate::bulk::{self, BulkImportBody};
use crate::customers::{self, CustomerBody};
use crate::error::ApiError;
use crate::events::{dotted, envelope};
use crate::internal_accounts::ChangedAccountBody;
use crate::invitations::InvitationBody;
use crate::transactions::TransactionBody;

/// Writes and reads the bodies of this API.
#[derive(Debug, Clone, Copy, Default)]
pub struct JsonPresenter;

/// The data of an event about nothing.
#[derive(Serialize)]
struct Empty {}

impl Presenter for JsonPresenter {
    fn event(&self, context: &Context<'_>, subject: Subject<'_>) -> Vec<u8> {
        let Context { event, platform, rails, public_url } = *context;
        let kind = match platform.event_names {
            EventNames::Plain => event.kind.name(),
            EventNames::Dotted => dotted(subject),
        };
        match subject {
            Subject::Transaction(transaction) => {
                envelope(event, kind, &TransactionBody::new(transaction, rails))
            }
            Subject::Approval(transaction, asked) => {
                let transaction = TransactionBody::new(transaction, rails);
                envelope(event, kind, &ApprovalRequestBody::new(transaction, asked))
            }
            Subject::Account(changed) => {
                envelope(event, kind, &ChangedAccountBody::new(rails, changed))
            }
            Subject::Invitation(invitation) => {
                envelope(event, kind, &InvitationBody::new(invitation, public_url, event.at))
            }
            Subject::Import(import, refused) => {
                envelope(event, kind, &BulkImportBody::new(import, refused))
            }
            Subject::Customer(customer) => envelope(event, kind, &CustomerBody::from(customer)),
            Subject::Nothing => envelope(event, kind, &Empty {}),
        }
    }

    fn approval_answer(&self, body: &[u8]) -> ApprovalAnswer {
        approvals::read(body)
    }

    fn identity_status(&self, event: &Event) -> Option<KycStatus> {
        customers::identity_status(&event.body)
    }

    fn refusal(&self, error: &Error) -> (u16, Vec<u8>) {
        ApiError::from(error.clone()).render()
    }

    fn import_refusal(&self, error: &Error, row: usize) -> String {
        bulk::refusal(error, row)
    }
}
