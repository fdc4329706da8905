//! Institutions that give out UMA addresses, as far as they are known without the network.

use domain::currency::Currency;
use domain::money::Money;
use domain::time::Timestamp;
use domain::uma_address::UmaAddress;

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

/// A payment that an institution of the sandbox makes.
#[derive(Debug, Clone, Copy)]
pub struct PayOrder<'a> {
    /// The address that pays, one of the institution's.
    pub payer: &'a UmaAddress,
    /// The address that is paid.
    pub payee: &'a UmaAddress,
    /// The answer to the institution's lookup.
    pub answer: &'a [u8],
    /// The key document of the payee's institution, which verifies the answer.
    pub keys: &'a [u8],
    /// The amount that shall arrive.
    pub amount: Money,
}

/// The institutions that platforms of one mode know without asking the network. Those of the
/// sandbox also answer, behind the outbound port, and pay when a tester asks them to.
pub trait Institutions: Send + Sync {
    /// All of them, those that we do not deal with too.
    fn providers(&self) -> Vec<Provider>;

    /// Whether a domain is that of institutions which answer here, so that no platform can give out
    /// addresses of it.
    fn owns(&self, _domain: &str) -> bool {
        false
    }

    /// The URL of the signed lookup with which the institution of `payer` begins a payment
    /// (UMAD-03). `now` is the server's time. Refuses a payer that cannot pay, and one that is not
    /// of the sandbox.
    fn look_up(
        &self,
        _payer: &UmaAddress,
        _payee: &UmaAddress,
        _now: Timestamp,
    ) -> Result<String, PeerFailure> {
        Err(PeerFailure::UnknownAddress)
    }

    /// The signed pay request that follows the answer to that lookup, as JSON (UMAD-05). Refuses
    /// an answer that is not signed by the keys, and one that does not offer the currency.
    fn pay(&self, _order: &PayOrder<'_>, _now: Timestamp) -> Result<Vec<u8>, PeerFailure> {
        Err(PeerFailure::UnknownAddress)
    }
}
