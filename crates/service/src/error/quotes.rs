//! Refusals about quotes.

use domain::id::QuoteId;
use domain::quote;
use domain::time::Timestamp;

/// A refusal about a quote.
#[derive(Debug, Clone, PartialEq, thiserror::Error)]
pub enum QuoteError {
    /// There is no such quote, or it is another platform's.
    #[error("there is no quote {id}")]
    NotFound {
        /// The id.
        id: QuoteId,
    },
    /// The quote is past its time.
    #[error("{id} expired at {expires_at}; ask for a new quote")]
    Expired {
        /// The quote.
        id: QuoteId,
        /// When.
        expires_at: Timestamp,
    },
    /// The quote was executed before, or has ended.
    #[error("{id} is {} and cannot be executed", status.name())]
    NotPending {
        /// The quote.
        id: QuoteId,
        /// Its status.
        status: quote::Status,
    },
    /// The quote is executed by its deposit, not by a call.
    #[error("{id} is funded in real time: it is executed when its deposit arrives")]
    FundedInRealTime {
        /// The quote.
        id: QuoteId,
    },
    /// The quote takes its money from an account, not from a deposit.
    #[error("{id} takes its money from an account and cannot be funded by a deposit")]
    NotFundedInRealTime {
        /// The quote.
        id: QuoteId,
    },
}
