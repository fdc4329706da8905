//! The border between use cases and the bodies that clients see: `api` implements it, the wiring
//! passes it in once. This crate knows no JSON.

use std::sync::Arc;

use domain::bulk_import::{BulkImport, Refusal};
use domain::customer::{Customer, KycStatus};
use domain::event::Event;
use domain::invitation::Invitation;
use domain::platform::{CounterpartyField, Platform};
use domain::transaction::{Facts, Transaction};
use ports::rails::Rails;
use store::books::BalanceChange;

use crate::error::Error;
use crate::owners::Holder;

/// Writes and reads the bodies that leave and reach a server beside its answers.
pub trait Presenter: Send + Sync {
    /// The bytes of an event.
    fn event(&self, context: &Context<'_>, subject: Subject<'_>) -> Vec<u8>;

    /// Reads a platform's answer to an approval request. Parts that cannot be read count as left
    /// out.
    fn approval_answer(&self, body: &[u8]) -> ApprovalAnswer;

    /// The status of which an event about a customer tells.
    fn identity_status(&self, event: &Event) -> Option<KycStatus>;

    /// Status and bytes of the answer to a refused request.
    fn refusal(&self, error: &Error) -> (u16, Vec<u8>);

    /// The reason for which a row of an import was refused, as the report keeps it.
    fn import_refusal(&self, error: &Error, row: usize) -> String;
}

/// The circumstances of an event.
#[derive(Clone, Copy)]
pub struct Context<'a> {
    /// The event, without its bytes.
    pub event: &'a Event,
    /// Its platform.
    pub platform: &'a Platform,
    /// The rails that the platform's money moves on.
    pub rails: &'a Rails,
    /// Where people reach the pages of this server.
    pub public_url: &'a str,
}

/// The resource that an event is about.
#[derive(Debug, Clone, Copy)]
pub enum Subject<'a> {
    /// A transaction.
    Transaction(&'a Transaction),
    /// A transaction that waits for its platform's approval, with the fields that are asked of it.
    Approval(&'a Transaction, &'a [CounterpartyField]),
    /// An internal account whose balance has changed.
    Account(&'a ChangedAccount),
    /// An invitation.
    Invitation(&'a Invitation),
    /// A customer.
    Customer(&'a Customer),
    /// Nothing: an endpoint is tried out.
    Nothing,
    /// An import that has ended, and the rows that were refused, as far as they are shown.
    Import(&'a BulkImport, &'a [Refusal]),
}

/// An internal account whose balance has changed.
#[derive(Debug, Clone)]
pub struct ChangedAccount {
    /// Its platform, or its owner's.
    pub platform: Arc<Platform>,
    /// Whose it is.
    pub owner: Holder,
    /// The changed resource.
    pub change: BalanceChange,
}

/// The body of a platform's answer to an approval request.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct ApprovalAnswer {
    /// Whether it is empty or as documented. A page of a proxy must not approve a payment.
    pub has_shape: bool,
    /// About the customer who is paid.
    pub receiver: Facts,
    /// Why the payment is rejected.
    pub reason: Option<String>,
    /// Facts about the payer that are needed first.
    pub required_fields: Vec<&'static str>,
}
