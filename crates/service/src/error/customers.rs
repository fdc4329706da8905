//! Refusals about customers and their identity.

use domain::currency::Currency;
use domain::customer::KycStatus;
use domain::id::CustomerId;
use domain::uma_address::UmaAddress;

/// A refusal about a customer.
#[derive(Debug, Clone, PartialEq, thiserror::Error)]
pub enum CustomerError {
    /// There is no such customer, or it is another platform's.
    #[error("there is no customer {id}")]
    NotFound {
        /// The id.
        id: CustomerId,
    },
    /// The link of an identity check was used before, or its time is over.
    #[error("the link was used before, or its time is over")]
    IdentityCheckOver,
    /// The customer was deleted: its money does not move.
    #[error("{id} was deleted")]
    Deleted {
        /// The customer.
        id: CustomerId,
    },
    /// The customer's identity does not allow money to move.
    #[error("{id} cannot move money while its identity check is {}", status.name())]
    NotReady {
        /// The customer.
        id: CustomerId,
        /// Its status.
        status: KycStatus,
    },
    /// The platform's configuration asks for facts that the customer lacks.
    #[error("{id} lacks {}, which {currency} asks of a customer; add them to the customer",
        fields.join(", "))]
    DataMissing {
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
}
