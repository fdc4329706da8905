//! Events as they are sent (specification 6; design decision 10). The bytes are made once, with the
//! change that they tell of.

use domain::event::Event;
use serde::Serialize;
use service::Env;
use service::app::Subject;

use crate::approvals::QuestionBody;
use crate::bulk::BulkImportBody;
use crate::customers::CustomerBody;
use crate::invitations::InvitationBody;
use crate::transactions::TransactionBody;

/// The envelope of every event.
#[derive(Serialize)]
struct Envelope<'a, D> {
    id: String,
    #[serde(rename = "type")]
    kind: &'static str,
    timestamp: String,
    data: &'a D,
}

/// What an event tells that is about nothing.
#[derive(Serialize)]
struct Empty {}

/// The bytes of an event.
pub fn render(env: &Env, event: &Event, subject: Subject<'_>) -> Vec<u8> {
    match subject {
        Subject::Transaction(transaction, mode) => {
            envelope(event, &TransactionBody::new(transaction, env.rail(mode)))
        }
        Subject::Approval(transaction, mode, asked) => {
            let transaction = TransactionBody::new(transaction, env.rail(mode));
            envelope(event, &QuestionBody::new(transaction, asked))
        }
        Subject::Invitation(invitation) => {
            envelope(event, &InvitationBody::new(invitation, &env.public_url, event.at))
        }
        Subject::Import(import, refused) => envelope(event, &BulkImportBody::new(import, refused)),
        Subject::Customer(customer) => envelope(event, &CustomerBody::from(customer)),
        Subject::Nothing => envelope(event, &Empty {}),
    }
}

fn envelope<D: Serialize>(event: &Event, data: &D) -> Vec<u8> {
    let envelope = Envelope {
        id: event.id.to_string(),
        kind: event.kind.name(),
        timestamp: event.at.to_string(),
        data,
    };
    serde_json::to_vec(&envelope).expect("bodies have text keys only")
}
