//! UMA peers: other institutions that give out addresses, as reached over the protocol.

use domain::lookup::Offer;
use domain::platform::CounterpartyField;
use domain::time::Timestamp;
use domain::uma_address::UmaAddress;

use crate::rail::Pending;

/// Who is asked about, and who asks.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Inquiry {
    /// The address that shall be paid.
    pub receiver: UmaAddress,
    /// The address of the customer who wants to pay.
    pub sender: UmaAddress,
}

/// What an institution says about a payee of its own.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Payee {
    /// How it can be paid, in the order of its preference, each with its price in millisatoshi.
    /// Currencies that we do not know are left out.
    pub offers: Vec<Offer>,
    /// What the institution asks about the payer.
    pub payer_fields: Vec<CounterpartyField>,
    /// What it wants to see again in the pay request; opaque to us.
    pub callback: String,
}

/// Why there is no answer that can be used.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum PeerFailure {
    /// The institution has no such address.
    UnknownAddress,
    /// The payee exists and cannot be paid yet.
    PayeeNotReady,
    /// We or the institution do not deal with the other.
    NotAllowed,
    /// The institution could not be reached, or its answer is not one that may be believed.
    Unreachable,
    /// The institution's keys could not be had, so that nothing it says can be checked.
    KeysUnavailable,
    /// The answer cannot be read.
    Unreadable,
    /// The institution does not support the version of the protocol that we asked with.
    UnsupportedVersion,
    /// There is no version that both sides support.
    NoCommonVersion,
}

/// The other institutions of the network. Every call crosses it, so none is made within a unit of
/// work.
pub trait UmaPeer: Send + Sync {
    /// Asks the institution of an address about it. Nothing moves and nothing is promised.
    fn look_up<'a>(
        &'a self,
        inquiry: &'a Inquiry,
        now: Timestamp,
    ) -> Pending<'a, Result<Payee, PeerFailure>>;
}
