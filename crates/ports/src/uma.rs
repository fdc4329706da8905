//! UMA peers: other institutions that give out addresses, as reached over the protocol.

use domain::currency::Currency;
use domain::lookup::Offer;
use domain::money::Money;
use domain::platform::CounterpartyField;
use domain::time::Timestamp;
use domain::transaction::Facts;
use domain::uma_address::UmaAddress;

use rust_decimal::Decimal;

use crate::rail::Pending;

/// The payee, and the institution that asks.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Inquiry {
    /// The address that shall be paid.
    pub receiver: UmaAddress,
    /// The address of the customer who wants to pay.
    pub sender: UmaAddress,
}

/// An institution's answer about a payee of its own.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Payee {
    /// How it can be paid, in the order of its preference, each with its price in millisatoshi.
    /// Currencies that we do not know are left out.
    pub offers: Vec<Offer>,
    /// Facts about the payer that the institution asks for.
    pub payer_fields: Vec<CounterpartyField>,
    /// A value for the pay request; opaque to us.
    pub callback: String,
}

/// A request for an invoice. It is always asked with the amount that
/// shall arrive, so that what arrives is what the quote says, on whichever side is rounded.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PayRequest {
    /// The value from the lookup.
    pub callback: String,
    /// The address that shall be paid.
    pub receiver: UmaAddress,
    /// The address of the customer who pays.
    pub sender: UmaAddress,
    /// The amount that shall arrive.
    pub amount: Money,
    /// Facts about the payer that the institution asked for.
    pub payer: Facts,
    /// Facts about the payee that we ask for.
    pub payee_fields: Vec<CounterpartyField>,
}

/// An invoice, and what stands behind its amount.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Invoice {
    /// An invoice over Lightning.
    pub text: String,
    /// Its amount, in [`domain::currency::Currency::MSAT`].
    pub msat: Money,
    /// Millisatoshi for one smallest unit of the currency that arrives.
    pub msat_per_unit: Decimal,
    /// The institution's fee, in the smallest unit of the currency that arrives.
    pub fee_minor: i64,
    /// From when on it cannot be paid.
    pub expires_at: Timestamp,
    /// Facts about the payee that the institution states.
    pub payee: Facts,
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

/// An institution that gives out addresses, as people choose among them (contract 6.15).
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Provider {
    /// Its name.
    pub name: &'static str,
    /// The domain of its addresses.
    pub domain: &'static str,
    /// The countries that it serves, by their ISO 3166-1 codes.
    pub regions: &'static [&'static str],
    /// Currencies in which its customers can be paid.
    pub currencies: Vec<Currency>,
    /// Where a picture of it is.
    pub logo_url: Option<&'static str>,
    /// Its legal entity identifier.
    pub lei: Option<&'static str>,
    /// Whether we deal with it.
    pub is_allowed: bool,
}

/// The other institutions of the network. Every call crosses it, so none is made within a unit of
/// work.
pub trait UmaPeer: Send + Sync {
    /// Whether this server takes part in the network. If not, no address elsewhere can be paid.
    fn is_connected(&self) -> bool {
        true
    }

    /// The institutions that are known, those that we do not deal with among them.
    fn providers(&self) -> Vec<Provider>;

    /// Whether a domain is that of institutions which answer here, so that no platform can give out
    /// addresses of it.
    fn owns(&self, _domain: &str) -> bool {
        false
    }

    /// Asks the institution of an address about it. Nothing moves and nothing is promised.
    fn look_up<'a>(
        &'a self,
        inquiry: &'a Inquiry,
        now: Timestamp,
    ) -> Pending<'a, Result<Payee, PeerFailure>>;

    /// Asks the institution of an address for an invoice. Nothing moves: what is not paid expires.
    fn request_payment<'a>(
        &'a self,
        request: &'a PayRequest,
        now: Timestamp,
    ) -> Pending<'a, Result<Invoice, PeerFailure>>;
}
