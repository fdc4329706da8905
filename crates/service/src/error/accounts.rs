//! Refusals about accounts.

use domain::account_info::FieldError;
use domain::external_account;
use domain::id::{ExternalAccountId, InternalAccountId};

/// A refusal about an internal or external account.
#[derive(Debug, Clone, PartialEq, thiserror::Error)]
pub enum AccountError {
    /// Bank details that are not acceptable, all of them.
    #[error("the account details are not valid")]
    InvalidDetails(Vec<FieldError>),
    /// There is no such account, or it is another platform's.
    #[error("there is no account {id}")]
    NotFound {
        /// The id as given.
        id: String,
    },
    /// An owner has each external account once.
    #[error("this account exists already as {existing}")]
    Duplicate {
        /// The one that exists.
        existing: ExternalAccountId,
    },
    /// The external account is not active.
    #[error("{id} is {} and cannot pay or be paid", status.name())]
    NotActive {
        /// The account.
        id: ExternalAccountId,
        /// Its status.
        status: external_account::Status,
    },
    /// Money cannot be pulled from this kind of account.
    #[error("money cannot be pulled from {id}; send it with the account's funding instructions")]
    NotPullable {
        /// The account.
        id: ExternalAccountId,
    },
    /// The rail says that the account cannot be paid.
    #[error("the rail cannot reach {id}: the account is closed or does not exist")]
    Unreachable {
        /// The account.
        id: ExternalAccountId,
    },
    /// The account would hold more than an account may.
    #[error("{account} would hold more than {max} smallest units")]
    Full {
        /// The account.
        account: InternalAccountId,
        /// Most, in smallest units.
        max: i64,
    },
    /// The rail could not say whether an account exists.
    #[error(
        "the bank did not answer whether the account exists; nothing was changed, try again later"
    )]
    NoReport,
    /// Sender and receiver are the same account or the same customer.
    #[error("source and destination are the same")]
    SelfPayment,
}
