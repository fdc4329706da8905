//! Requests of other institutions are bounded: anybody can send them, and each costs a signature
//! check, and a signed one rows.
//!
//! Every request counts for its address. A signed request, and an invoice that is shown to settle
//! it, count for the institution too, so that no other institution can use its share up. Each
//! process counts for itself.

use std::sync::{Mutex, PoisonError};

use domain::time::Timestamp;
use domain::uma_address::UmaDomain;
use uma::error::{ErrorCode, Refusal};

use crate::guesses::Network;
use crate::windows::Windows;

/// Requests of an address within a minute: 50 a second. Many institutions may share a proxy.
const OF_ADDRESS_MAX: u32 = 3_000;

/// Signed requests of an institution within a minute: 20 a second, two for each payment. Each nonce
/// is kept for 15 minutes, so that one institution has 18,000 rows at most.
const OF_INSTITUTION_MAX: u32 = 1_200;

/// A kind of request, which has a share of its own: a payment is settled however many lookups its
/// institution makes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) enum Kind {
    /// A lookup, a pay request or a callback.
    Message,
    /// An invoice that is shown to settle it.
    Settle,
}

/// The requests of the last minute.
#[derive(Default)]
pub(crate) struct Strangers {
    addresses: Mutex<Windows<(Kind, Network)>>,
    institutions: Mutex<Windows<(Kind, UmaDomain)>>,
}

impl Strangers {
    /// Counts a request of an address. Refuses one too many.
    pub(crate) fn called(&self, kind: Kind, from: Network, now: Timestamp) -> Result<(), Refusal> {
        if from == Network::UNKNOWN {
            return Ok(());
        }
        let mut addresses = self.addresses.lock().unwrap_or_else(PoisonError::into_inner);
        within(&mut addresses, (kind, from), OF_ADDRESS_MAX, now)
    }

    /// Counts a request that can only be an institution's. Refuses one too many.
    pub(crate) fn proven(&self, kind: Kind, by: &UmaDomain, now: Timestamp) -> Result<(), Refusal> {
        let mut institutions = self.institutions.lock().unwrap_or_else(PoisonError::into_inner);
        within(&mut institutions, (kind, by.clone()), OF_INSTITUTION_MAX, now)
    }
}

fn within<K: Clone + Eq + std::hash::Hash>(
    windows: &mut Windows<K>,
    key: K,
    max: u32,
    now: Timestamp,
) -> Result<(), Refusal> {
    let window = windows.count(key, now);
    if window.count <= max {
        return Ok(());
    }
    let wait_seconds = window.wait(now).0;
    let reason =
        format!("more than {max} requests within a minute; try again in {wait_seconds} seconds");
    Err(Refusal::new(ErrorCode::VelocityLimitExceeded, reason))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_institution_does_not_use_up_the_share_of_another() {
        let strangers = Strangers::default();
        let domain = |name: &str| UmaDomain::parse(name).expect("a domain");
        let at = Timestamp::from_millis;
        for number in 0..OF_INSTITUTION_MAX {
            assert_eq!(
                strangers.proven(Kind::Message, &domain("a.example"), at(number.into())),
                Ok(())
            );
        }
        let refusal = strangers
            .proven(Kind::Message, &domain("a.example"), at(2_000))
            .expect_err("one too many");
        assert_eq!(refusal.code, ErrorCode::VelocityLimitExceeded);
        assert!(refusal.reason.ends_with("try again in 58 seconds"), "{refusal}");
        assert_eq!(strangers.proven(Kind::Message, &domain("b.example"), at(2_000)), Ok(()));
        assert_eq!(strangers.proven(Kind::Settle, &domain("a.example"), at(2_000)), Ok(()));
        assert_eq!(strangers.proven(Kind::Message, &domain("a.example"), at(60_000)), Ok(()));
    }
}
