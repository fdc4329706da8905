//! The two sides of a payment: accounts, deposits and UMA addresses.

use std::collections::BTreeMap;
use std::fmt;

use super::RateDetails;
use crate::counterparty_field::CounterpartyField;
use crate::currency::Currency;
use crate::id::{ExternalAccountId, InternalAccountId, TransactionId};
use crate::money::Money;
use crate::rate::Rate;
use crate::uma_address::UmaAddress;

/// An account that money comes from or goes to.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum AccountRef {
    /// A balance held here.
    Internal(InternalAccountId),
    /// A bank account or wallet elsewhere.
    External(ExternalAccountId),
}

impl AccountRef {
    /// The internal account, if it is one.
    pub fn internal(self) -> Option<InternalAccountId> {
        match self {
            Self::Internal(id) => Some(id),
            Self::External(_) => None,
        }
    }

    /// The external account, if it is one.
    pub fn external(self) -> Option<ExternalAccountId> {
        match self {
            Self::Internal(_) => None,
            Self::External(id) => Some(id),
        }
    }
}

impl fmt::Display for AccountRef {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Internal(id) => id.fmt(f),
            Self::External(id) => id.fmt(f),
        }
    }
}

/// Where money comes from.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub enum Source {
    /// An account. A deposit that was simulated or received without an account on our side has no
    /// source at all.
    Account {
        /// The account.
        account: AccountRef,
        /// Its currency.
        currency: Currency,
    },
    /// A deposit that is made for one quote, just in time (contract 6.9.1).
    RealtimeFunding {
        /// Currency of the deposit.
        currency: Currency,
        /// The blockchain that it comes over, if one was named (`cryptoNetwork`).
        network: Option<&'static str>,
    },
    /// The holder of a UMA address, here or at another institution; of incoming payments.
    Uma {
        /// The address.
        address: UmaAddress,
    },
}

impl Source {
    /// The currency that is paid in; unknown where another institution converts.
    pub fn currency(&self) -> Option<Currency> {
        match self {
            Self::Account { currency, .. } | Self::RealtimeFunding { currency, .. } => {
                Some(*currency)
            }
            Self::Uma { .. } => None,
        }
    }

    /// The account, if the source is one of ours to name.
    pub fn account(&self) -> Option<AccountRef> {
        match self {
            Self::Account { account, .. } => Some(*account),
            Self::RealtimeFunding { .. } | Self::Uma { .. } => None,
        }
    }
}

/// Where money goes.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub enum Destination {
    /// An account.
    Account {
        /// The account.
        account: AccountRef,
        /// Its currency.
        currency: Currency,
    },
    /// The holder of a UMA address, here or at another institution; of outgoing payments.
    Uma {
        /// The address.
        address: UmaAddress,
        /// The currency that arrives.
        currency: Currency,
    },
}

impl Destination {
    /// The currency that arrives.
    pub fn currency(&self) -> Currency {
        match self {
            Self::Account { currency, .. } | Self::Uma { currency, .. } => *currency,
        }
    }

    /// The account, if the destination is one of ours to name.
    pub fn account(&self) -> Option<AccountRef> {
        match self {
            Self::Account { account, .. } => Some(*account),
            Self::Uma { .. } => None,
        }
    }
}

/// Facts about the other side of a payment, by the names of
/// [`crate::platform::COUNTERPARTY_FIELDS`].
pub type Facts = BTreeMap<&'static str, String>;

/// How money gets from one UMA address to another.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Settlement {
    /// Both are customers of this server, and each side has its transaction. The one of the
    /// incoming side begins when the outgoing one is executed, and names it.
    Here {
        /// The payer's transaction; on incoming payments.
        outgoing: Option<TransactionId>,
    },
    /// Over Lightning, from or to another institution.
    Lightning {
        /// The amount, in millisatoshi.
        msat: Money,
    },
}

impl Settlement {
    /// The names of the ways in storage.
    pub const NAMES: [&str; 2] = ["HERE", "LIGHTNING"];

    /// The name in storage.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Here { .. } => Self::NAMES[0],
            Self::Lightning { .. } => Self::NAMES[1],
        }
    }

    /// The amount over Lightning, if there is one.
    pub const fn msat(self) -> Option<Money> {
        match self {
            Self::Here { .. } => None,
            Self::Lightning { msat } => Some(msat),
        }
    }
}

/// UMA data of a payment, besides its accounts.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Uma {
    /// The payer.
    pub sender: UmaAddress,
    /// The payee.
    pub receiver: UmaAddress,
    /// Facts about the other side: the receiver of an outgoing, the sender of an incoming
    /// payment (specification 2.3 `counterpartyInformation`).
    pub counterparty: Facts,
    /// How the money gets there.
    pub settlement: Settlement,
    /// Fees of the receiver's side of an incoming payment, in the currency that arrives.
    pub rate_details: Option<RateDetails>,
    /// The conversion of an incoming payment for a deposit account in another currency than what
    /// was received.
    pub conversion: Option<Conversion>,
    /// The other side's questions about the payee of an incoming payment from another institution.
    pub payee: AboutPayee,
    /// The URL at which the other institution is notified of how the payment ended, if it gave
    /// one. It works like a secret.
    pub callback: Option<String>,
}

/// The questions of another institution about a payee, and the answers that it is given once the
/// payment is approved.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct AboutPayee {
    /// The facts that it asks for.
    pub asked: Vec<CounterpartyField>,
    /// The facts that it is given.
    pub given: Facts,
}

/// A received amount converted for a deposit account (specification 2.8; contract 13, row 36).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Conversion {
    /// The amount that reaches the account.
    pub deposited: Money,
    /// From the received currency to the account's.
    pub rate: Rate,
    /// The platform's fee, in the received currency.
    pub fees: Money,
}
