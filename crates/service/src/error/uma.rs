//! Refusals about UMA addresses and their institutions.

use domain::currency::Currency;
use domain::money::Money;
use domain::platform::BasisPoints;
use domain::uma_address::UmaAddress;
use ports::uma::PeerFailure;

/// A refusal about a UMA address or its institution.
#[derive(Debug, Clone, PartialEq, thiserror::Error)]
pub enum UmaError {
    /// An address outside the platform's domain, or not an address.
    #[error("{reason}")]
    InvalidAddress {
        /// The address as given.
        address: String,
        /// The fault.
        reason: String,
    },
    /// No customer of the platform has this address.
    #[error("no customer has the UMA address {address}")]
    SenderNotFound {
        /// The address.
        address: UmaAddress,
    },
    /// No customer can be paid at this address.
    #[error("the UMA address {address} does not exist")]
    NotFound {
        /// The address.
        address: UmaAddress,
    },
    /// The customer at the address cannot be paid yet. Says nothing about who and why: that is
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
        /// The request.
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
    /// The receiver's institution has answered with an invoice that it had given before.
    #[error(
        "the institution of {address} answered with the invoice of another payment, which is \
        not paid again; quote once more for a new one"
    )]
    InvoiceTaken {
        /// The address.
        address: UmaAddress,
    },
    /// The invoice of the receiver's institution costs another amount than its lookup said.
    #[error("the institution of {address} asks {} for {arrives}, and its lookup said {}: they differ by \
        more than the {} basis points that this platform allows; look the receiver up again",
        shown(*asked), shown(*promised), max.get())]
    CostDiffers {
        /// The address.
        address: UmaAddress,
        /// The amount that would arrive.
        arrives: Money,
        /// The charge for it by the lookup; nothing if no payment may have so much.
        promised: Option<Money>,
        /// The charge for it by the invoice; as above.
        asked: Option<Money>,
        /// How much they may differ.
        max: BasisPoints,
    },
    /// The receiver cannot be paid in this currency, or in none.
    #[error("{address} cannot be paid in {}", currency.map_or("any currency", |one| one.code()))]
    NotOffered {
        /// The address.
        address: UmaAddress,
        /// The currency, if one was named.
        currency: Option<Currency>,
    },
    /// The other institution offers no currency in which this platform can pay.
    #[error(
        "{address} cannot be paid in any currency that its institution offers: {}",
        reasons(left_out)
    )]
    NothingInCommon {
        /// The address.
        address: UmaAddress,
        /// Why each currency is left out.
        left_out: Vec<String>,
    },
    /// There is no such lookup, or it has expired.
    #[error("there is no lookup {id}, or it has expired; look the receiver up again")]
    LookupNotFound {
        /// The id as given.
        id: String,
    },
}

/// An amount for people.
fn shown(amount: Option<Money>) -> String {
    amount.map_or_else(|| "more than any payment may have".to_owned(), |amount| amount.to_string())
}

/// The request to another institution.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum PeerStage {
    /// About a payee.
    Lookup,
    /// For an invoice.
    PayRequest,
}

/// Reasons that an error shows: enough to see what is wrong, too few for a peer to fill a page.
const REASONS_MAX: usize = 10;

/// Reasons in one sentence.
fn reasons(all: &[String]) -> String {
    let shown = all.iter().take(REASONS_MAX).map(String::as_str).collect::<Vec<_>>().join("; ");
    match all.len().saturating_sub(REASONS_MAX) {
        _ if all.is_empty() => "there is none".to_owned(),
        0 => shown,
        more => format!("{shown}; and {more} more"),
    }
}

/// The failure of another institution, for people.
fn peer_failure(address: &UmaAddress, stage: PeerStage, failure: PeerFailure) -> String {
    let domain = address.domain();
    let request = match stage {
        PeerStage::Lookup => "the lookup",
        PeerStage::PayRequest => "the pay request",
    };
    match failure {
        PeerFailure::UnknownAddress => format!("the UMA address {address} does not exist"),
        PeerFailure::PayeeNotReady => format!("{address} cannot be paid yet"),
        PeerFailure::NotAllowed => format!("{domain} and this server do not deal with each other"),
        PeerFailure::Unreachable => {
            format!("{domain} did not answer {request} in a way that can be used; try again later")
        }
        PeerFailure::KeysUnavailable => {
            format!("{domain} did not show the keys that its answers are signed with")
        }
        PeerFailure::Unreadable => format!("the answer of {domain} to {request} cannot be read"),
        PeerFailure::UnsupportedVersion => {
            format!("{domain} does not support the version of UMA that it was asked with")
        }
        PeerFailure::NoCommonVersion => {
            format!("{domain} and this server have no version of UMA in common")
        }
    }
}
