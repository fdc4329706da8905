//! What a use case can answer instead of doing what was asked. `api` gives each its code and
//! status; a refusal has left nothing behind.

use domain::account_info::FieldError;
use domain::currency::Currency;
use domain::customer::KycStatus;
use domain::external_account;
use domain::id::{
    CustomerId, DeliveryId, ExternalAccountId, InternalAccountId, QuoteId, TransactionId,
};
use domain::invitation;
use domain::money::Money;
use domain::quote;
use domain::time::Timestamp;
use domain::token::Permissions;
use domain::transaction;
use domain::uma_address::UmaAddress;
use ledger::account::AccountKey;
use ledger::apply::Refusal;
use ledger::posting::PostingError;
use ports::outbound::OutboundFailure;
use ports::uma::PeerFailure;
use store::books::BookError;
use store::error::StoreError;

/// A connection to the outside world that a platform does not have.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum Missing {
    /// Nobody moves its money to or from accounts elsewhere.
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

/// A refusal or a failure.
#[derive(Debug, Clone, PartialEq, thiserror::Error)]
pub enum Error {
    /// Fields of the request that are not acceptable, all of them.
    #[error("the request has fields that are not valid")]
    Invalid(Vec<FieldError>),
    /// Bank details that are not acceptable, all of them.
    #[error("the account details are not valid")]
    InvalidAccountDetails(Vec<FieldError>),
    /// An address outside the platform's domain, or not an address.
    #[error("{reason}")]
    InvalidUmaAddress {
        /// The address as given.
        address: String,
        /// What is wrong with it.
        reason: String,
    },
    /// There is no such account, or it is another platform's.
    #[error("there is no account {id}")]
    AccountNotFound {
        /// The id as given.
        id: String,
    },
    /// There is no such customer, or it is another platform's.
    #[error("there is no customer {id}")]
    CustomerNotFound {
        /// The id.
        id: CustomerId,
    },
    /// There is no such quote, or it is another platform's.
    #[error("there is no quote {id}")]
    QuoteNotFound {
        /// The id.
        id: QuoteId,
    },
    /// There is no such token, or it is another platform's.
    #[error("there is no such token")]
    TokenNotFound,
    /// No customer of the platform has this address.
    #[error("no customer has the UMA address {address}")]
    SenderNotFound {
        /// The address.
        address: UmaAddress,
    },
    /// Nobody can be paid at this address.
    #[error("there is nobody at {address}")]
    UmaNotFound {
        /// The address.
        address: UmaAddress,
    },
    /// The address is somebody's who cannot be paid yet. Says nothing about who and why: that is
    /// another platform's.
    #[error("{address} cannot be paid yet")]
    PayeeNotReady {
        /// The address.
        address: UmaAddress,
    },
    /// Another institution did not give an answer that can be used.
    #[error("{}", peer_failure(address, *stage, *failure))]
    Peer {
        /// The address that it was asked about.
        address: UmaAddress,
        /// What it was asked.
        stage: PeerStage,
        /// Why there is no answer.
        failure: PeerFailure,
    },
    /// The receiver's side insists on facts about the payer that are not given.
    #[error("senderCustomerInfo lacks {}, which the receiver's side insists on", fields.join(", "))]
    PayerDataMissing {
        /// Their names.
        fields: Vec<&'static str>,
    },
    /// The payer's platform insists on facts about the receiver that its institution does not give.
    #[error("the institution of {address} does not say {}, on which this platform insists",
        fields.join(", "))]
    PayeeDataMissing {
        /// The address.
        address: UmaAddress,
        /// Their names.
        fields: Vec<&'static str>,
    },
    /// The receiver cannot be paid in this currency, or in none.
    #[error("{address} cannot be paid in {}", currency.map_or("any currency", |one| one.code()))]
    NotOffered {
        /// The address.
        address: UmaAddress,
        /// The currency, if one was named.
        currency: Option<Currency>,
    },
    /// There is no such transaction, or it is another platform's.
    #[error("there is no transaction {id}")]
    TransactionNotFound {
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
    /// There is no such lookup, or it has expired.
    #[error("there is no lookup {id}, or it has expired; look the receiver up again")]
    LookupNotFound {
        /// The id as given.
        id: String,
    },
    /// There is no invitation with this code. The code is not repeated: it is a secret.
    #[error("there is no invitation with this code")]
    InvitationNotFound,
    /// The invitation was made by another platform.
    #[error("only the platform that made an invitation can cancel it")]
    InvitationOfAnother,
    /// The invitation has ended before.
    #[error("the invitation is {} and can neither be claimed nor cancelled", status.name())]
    InvitationOver {
        /// How.
        status: invitation::Status,
        /// Who has claimed it, if somebody has.
        invitee: Option<UmaAddress>,
        /// Until when it could be claimed, if there was such a time.
        expires_at: Option<Timestamp>,
    },
    /// The link of an identity check was used before, or its time is over.
    #[error("the link was used before, or its time is over")]
    IdentityCheckOver,
    /// The customer was deleted: its money does not move.
    #[error("{id} was deleted")]
    CustomerDeleted {
        /// The customer.
        id: CustomerId,
    },
    /// The customer's identity does not allow money to move.
    #[error("{id} cannot move money while its identity check is {}", status.name())]
    CustomerNotReady {
        /// The customer.
        id: CustomerId,
        /// Its status.
        status: KycStatus,
    },
    /// The platform's configuration asks for facts that nobody has given about the customer.
    #[error("{id} lacks {}, which {currency} asks of a customer; add them to the customer",
        fields.join(", "))]
    CustomerDataMissing {
        /// The customer.
        id: CustomerId,
        /// The currency.
        currency: Currency,
        /// The names of the facts.
        fields: Vec<&'static str>,
    },
    /// The address belongs, or once belonged, to another customer.
    #[error("the UMA address {address} is taken")]
    UmaAddressTaken {
        /// The address.
        address: UmaAddress,
    },
    /// An owner has each external account once.
    #[error("this account exists already as {existing}")]
    DuplicateExternalAccount {
        /// The one that exists.
        existing: ExternalAccountId,
    },
    /// The external account is not active.
    #[error("{id} is {} and cannot pay or be paid", status.name())]
    AccountNotActive {
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
    /// A partner that this would need is not connected. Nothing was begun; it can be done once one
    /// is.
    #[error("{missing}; docs/operating.md says what a live platform can do without")]
    NotConnected {
        /// What is missing.
        missing: Missing,
    },
    /// The rail says that the account cannot be paid.
    #[error("the rail cannot reach {id}: the account is closed or does not exist")]
    AccountUnreachable {
        /// The account.
        id: ExternalAccountId,
    },
    /// The source has less money than would leave it.
    #[error(
        "{account} has {available} smallest units of {currency} available, {needed} are needed"
    )]
    InsufficientBalance {
        /// The source.
        account: String,
        /// Its currency.
        currency: Currency,
        /// What it has, in smallest units.
        available: i64,
        /// What would leave it, in smallest units.
        needed: i64,
    },
    /// Outside what the platform allows for the currency.
    #[error("{amount} is outside the limits of {min} to {max} smallest units")]
    AmountOutOfRange {
        /// The amount.
        amount: Money,
        /// Least, in smallest units.
        min: i64,
        /// Most, in smallest units.
        max: i64,
    },
    /// No amount would arrive, or an amount would be too large.
    #[error("{reason}")]
    Unpriceable {
        /// Why.
        reason: String,
    },
    /// Zero or less, or larger than any payment may be.
    #[error("{reason}")]
    InvalidAmount {
        /// Why.
        reason: String,
    },
    /// The account would hold more than an account may.
    #[error("{account} would hold more than {max} smallest units")]
    AccountFull {
        /// The account.
        account: InternalAccountId,
        /// Most, in smallest units.
        max: i64,
    },
    /// A ledger account has counted as much as it can count.
    #[error("the ledger account '{account}' cannot count another payment of this size")]
    BooksFull {
        /// The account.
        account: String,
    },
    /// The platform does not support the currency, or not in this direction.
    #[error("{currency} is not enabled for {what} payments on this platform")]
    CurrencyNotEnabled {
        /// The currency.
        currency: Currency,
        /// Which payments.
        what: &'static str,
    },
    /// The rates of this server do not name the currency.
    #[error("there are no rates for {currency} on this server; its operator can add them")]
    CurrencyUnpriced {
        /// The currency.
        currency: Currency,
    },
    /// Two currencies where there must be one.
    #[error("{what}: {left} and {right} are different currencies")]
    CurrencyMismatch {
        /// What the currencies are of.
        what: &'static str,
        /// One.
        left: Currency,
        /// The other.
        right: Currency,
    },
    /// There is no current rate.
    #[error("there is no current rate from {sending} to {receiving}; try again later")]
    NoRate {
        /// The currency that pays.
        sending: Currency,
        /// The currency that is paid.
        receiving: Currency,
    },
    /// Nobody could say whether an account exists.
    #[error(
        "the bank did not answer whether the account exists; nothing was changed, try again later"
    )]
    NoReport,
    /// Sender and receiver are the same account or the same customer.
    #[error("source and destination are the same")]
    SelfPayment,
    /// The quote is past its time.
    #[error("{id} expired at {expires_at}; ask for a new quote")]
    QuoteExpired {
        /// The quote.
        id: QuoteId,
        /// When.
        expires_at: Timestamp,
    },
    /// The quote was executed before, or has ended.
    #[error("{id} is {} and cannot be executed", status.name())]
    QuoteNotPending {
        /// The quote.
        id: QuoteId,
        /// Its status.
        status: quote::Status,
    },
    /// The quote is executed by its deposit, not by a call.
    #[error("{id} is funded in real time: it is executed when its deposit arrives")]
    QuoteFundedInRealTime {
        /// The quote.
        id: QuoteId,
    },
    /// The quote takes its money from an account, not from a deposit.
    #[error("{id} takes its money from an account and cannot be funded by a deposit")]
    QuoteNotFundedInRealTime {
        /// The quote.
        id: QuoteId,
    },
    /// Something is in a state that does not allow it.
    #[error("{0}")]
    Conflict(String),
    /// A token may not grant what it does not hold.
    #[error("a token can only grant permissions that it holds itself")]
    CannotGrant {
        /// What it lacks.
        missing: Permissions,
    },
    /// The last token that can manage a platform stays.
    #[error("the last token with MANAGE cannot be deleted: nobody could make another")]
    LastManager,
    /// A currency in which there is money cannot be taken away.
    #[error("{currency} cannot be removed while accounts hold it")]
    CurrencyInUse {
        /// The currency.
        currency: Currency,
    },
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
        /// What was asked for.
        id: DeliveryId,
    },
    /// More events than one request sends again.
    #[error(
        "there are more than {max} events in this time: ask for a shorter one, or for some types",
        max = crate::webhooks::again::REPLAYED_MAX
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

/// What another institution was asked.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum PeerStage {
    /// About a payee.
    Lookup,
    /// For an invoice.
    PayRequest,
}

/// What went wrong with another institution, for people.
fn peer_failure(address: &UmaAddress, stage: PeerStage, failure: PeerFailure) -> String {
    let domain = address.domain();
    let question = match stage {
        PeerStage::Lookup => "the lookup",
        PeerStage::PayRequest => "the pay request",
    };
    match failure {
        PeerFailure::UnknownAddress => format!("there is nobody at {address}"),
        PeerFailure::PayeeNotReady => format!("{address} cannot be paid yet"),
        PeerFailure::NotAllowed => format!("{domain} and this server do not deal with each other"),
        PeerFailure::Unreachable => {
            format!("{domain} did not answer {question} in a way that can be used; try again later")
        }
        PeerFailure::KeysUnavailable => {
            format!("{domain} did not show the keys that its answers are signed with")
        }
        PeerFailure::Unreadable => format!("the answer of {domain} to {question} cannot be read"),
        PeerFailure::UnsupportedVersion => {
            format!("{domain} does not support the version of UMA that it was asked with")
        }
        PeerFailure::NoCommonVersion => {
            format!("{domain} and this server have no version of UMA in common")
        }
    }
}

impl From<BookError> for Error {
    fn from(error: BookError) -> Self {
        match error {
            BookError::Store(error) => Self::Store(error),
            BookError::Refused(Refusal::InsufficientFunds { account, available, needed }) => {
                match (account, account.currency()) {
                    (AccountKey::Internal(id), Some(currency)) => Self::InsufficientBalance {
                        account: id.to_string(),
                        currency,
                        available,
                        needed,
                    },
                    (account, _) => Self::Internal(format!("{account} is not covered")),
                }
            }
            BookError::Refused(Refusal::Overflow { account }) => {
                Self::BooksFull { account: account.to_string() }
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
