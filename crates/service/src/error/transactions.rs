//! Refusals about transactions.

use domain::id::TransactionId;
use domain::transaction;

/// A refusal about a transaction.
#[derive(Debug, Clone, PartialEq, thiserror::Error)]
pub enum TransactionError {
    /// There is no such transaction, or it is another platform's.
    #[error("there is no transaction {id}")]
    NotFound {
        /// The id.
        id: TransactionId,
    },
    /// The transaction does not wait for its platform's decision, or not any more.
    #[error("{id} is {} and does not wait for a decision", status.name())]
    NotPendingApproval {
        /// The transaction.
        id: TransactionId,
        /// Its status.
        status: transaction::Status,
    },
}
