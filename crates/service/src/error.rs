//! Refusals and failures of use cases, by resource. `api` gives each its code and status; a refusal
//! has left nothing behind.

mod accounts;
mod customers;
mod quotes;
mod transactions;
mod money;
mod uma;
mod invitations;
mod tokens;

use domain::account_info::FieldError;
use domain::id::DeliveryId;
use ledger::account::AccountKey;
use ledger::apply::Refusal;
use ledger::posting::PostingError;
use ports::outbound::OutboundFailure;
use store::books::BookError;
use store::error::StoreError;

pub use accounts::AccountError;
pub use customers::CustomerError;
pub use invitations::InvitationError;
pub use money::MoneyError;
pub use quotes::QuoteError;
pub use tokens::TokenError;
pub use transactions::TransactionError;
pub use uma::{PeerStage, UmaError};

/// A connection to the outside world that a platform does not have.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum Missing {
    /// No payment rail moves its money to or from accounts elsewhere.
    #[error(
        "this live platform is connected to no payment rail: external accounts cannot be added, \
         paid or pulled from, and no deposit can be announced"
    )]
    PaymentRail,
    /// It cannot ask other institutions.
    #[error(
        "this live platform is not connected to the UMA network: only addresses of this server \
         can be looked up and paid"
    )]
    UmaNetwork,
}

impl Missing {
    /// The name that programs read.
    pub const fn name(self) -> &'static str {
        match self {
            Self::PaymentRail => "PAYMENT_RAIL",
            Self::UmaNetwork => "UMA_NETWORK",
        }
    }
}

/// Events that one request sends again at most: some seconds of deliveries. A client that has
/// missed more asks for one time after the other.
pub const REPLAYED_MAX: usize = 10_000;

/// A refusal or a failure.
#[derive(Debug, Clone, PartialEq, thiserror::Error)]
pub enum Error {
    /// Fields of the request that are not acceptable, all of them.
    #[error("the request has fields that are not valid")]
    Invalid(Vec<FieldError>),
    /// A refusal about an internal or external account.
    #[error(transparent)]
    Account(#[from] AccountError),
    /// A refusal about a customer.
    #[error(transparent)]
    Customer(#[from] CustomerError),
    /// A refusal about a quote.
    #[error(transparent)]
    Quote(#[from] QuoteError),
    /// A refusal about a transaction.
    #[error(transparent)]
    Transaction(#[from] TransactionError),
    /// A refusal about an amount, a currency or a price.
    #[error(transparent)]
    Money(#[from] MoneyError),
    /// A refusal about a UMA address or its institution.
    #[error(transparent)]
    Uma(#[from] UmaError),
    /// A refusal about an invitation.
    #[error(transparent)]
    Invitation(#[from] InvitationError),
    /// A refusal about a token.
    #[error(transparent)]
    Token(#[from] TokenError),
    /// A partner that this would need is not connected. Nothing was begun; it can be done once one
    /// is.
    #[error("{missing}; docs/operating.md says what a live platform can do without")]
    NotConnected {
        /// The missing part.
        missing: Missing,
    },
    /// Something is in a state that does not allow it.
    #[error("{0}")]
    Conflict(String),
    /// The platform has not said where its events go.
    #[error("the platform has no webhookEndpoint: set one with PATCH /config")]
    NoWebhookEndpoint,
    /// The platform's endpoint has said that it wants no events any more.
    #[error(
        "the platform's webhookEndpoint answered 410 and gets no events any more: set it again \
         with PATCH /config"
    )]
    WebhookEndpointGone,
    /// There is no such delivery of the platform.
    #[error("there is no delivery {id}")]
    DeliveryNotFound {
        /// The requested time.
        id: DeliveryId,
    },
    /// More events than one request sends again.
    #[error(
        "there are more than {max} events in this time: ask for a shorter one, or for some types",
        max = REPLAYED_MAX
    )]
    ReplayTooLong,
    /// An endpoint did not take an event.
    #[error("{failure}")]
    WebhookDelivery {
        /// Why.
        failure: OutboundFailure,
    },
    /// The store failed; nothing was done, or (`OutcomeUnknown`) the process stops.
    #[error(transparent)]
    Store(#[from] StoreError),
    /// A job's result is not kept: this server has lost the leader lease.
    #[error("this server has lost the leader lease")]
    Superseded,
    /// Something that the code rules out.
    #[error("internal error: {0}")]
    Internal(String),
}

impl From<BookError> for Error {
    fn from(error: BookError) -> Self {
        match error {
            BookError::Store(error) => Self::Store(error),
            BookError::Refused(Refusal::InsufficientFunds { account, available, needed }) => {
                match (account, account.currency()) {
                    (AccountKey::Internal(id), Some(currency)) => {
                        let minor = |amount| i64::try_from(amount).unwrap_or(i64::MAX);
                        Self::Money(MoneyError::InsufficientBalance {
                            account: id.to_string(),
                            currency,
                            available: minor(available),
                            needed: minor(needed),
                        })
                    }
                    (account, _) => Self::Internal(format!("{account} is not covered")),
                }
            }
            BookError::Refused(Refusal::Overflow { account }) => {
                Self::Money(MoneyError::BooksFull { account: account.to_string() })
            }
            BookError::Refused(refusal) => Self::Internal(refusal.to_string()),
            BookError::NothingPending(_) => Self::Internal(error.to_string()),
        }
    }
}

impl From<PostingError> for Error {
    fn from(error: PostingError) -> Self {
        Self::Internal(error.to_string())
    }
}

impl From<domain::transition::IllegalTransition> for Error {
    fn from(error: domain::transition::IllegalTransition) -> Self {
        Self::Conflict(error.to_string())
    }
}

impl Error {
    /// One field that is not acceptable.
    pub fn field(field: impl Into<String>, message: impl Into<String>) -> Self {
        Self::Invalid(vec![FieldError {
            field: field.into(),
            rule: domain::account_info::Rule::Other,
            message: message.into(),
        }])
    }

    /// Whether it is a row that is to blame, and not the way to it.
    pub(crate) fn is_of_a_row(&self) -> bool {
        matches!(self, Self::Store(StoreError::Corrupt { .. } | StoreError::Sealed { .. }))
    }

    /// Whether this is our failure and not an answer to the request: nothing about it is kept.
    pub fn is_failure(&self) -> bool {
        matches!(
            self,
            Self::Store(_) | Self::Superseded | Self::Internal(_) | Self::NotConnected { .. }
        )
    }
}
