//! Events as they are sent (specification 6; design decision 10). The bytes are made once, with the
//! change that they tell of.

use domain::event::Event;
use domain::transaction::Transaction;
use ports::rail::PaymentRail;
use serde::Serialize;

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

/// The bytes of an event about a transaction whose platform has its money moved on `rail`.
pub fn render(event: &Event, transaction: &Transaction, rail: &dyn PaymentRail) -> Vec<u8> {
    let data = TransactionBody::new(transaction, rail);
    let envelope = Envelope {
        id: event.id.to_string(),
        kind: event.kind.name(),
        timestamp: event.at.to_string(),
        data: &data,
    };
    serde_json::to_vec(&envelope).expect("bodies have text keys only")
}
