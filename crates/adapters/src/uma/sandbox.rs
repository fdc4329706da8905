//! The institutions of the sandbox, which speak the UMA protocol inside this process.
//!
//! Every host `sandbox.*uma.money` gives out the addresses of one table; there is no other host.
//! Requests reach it behind the outbound port, as bytes: no code of a payment knows that it is
//! here. Its answers follow from the request, the table, the rates and the time. The path of the
//! money is a table of scenarios.
//!
//! It is lenient in one point: it does not verify signatures of ours. A sandbox platform may have
//! any made-up domain, whose keys cannot be fetched. It checks everything else.

mod addresses;
mod paying;
mod receiving;

use std::sync::Arc;

use domain::time::Timestamp;
use domain::uma_address::UmaAddress;
use ports::clock::Clock;
use ports::entropy::Entropy;
use ports::rates::RateFeed;
use ports::uma::{Institutions, PayOrder, PeerFailure, Provider};

use ::uma::nonce::{Nonce, Stamp};
use ::uma::signature::SigningKey;
use ::uma::travel_rule::DecryptionKey;

use crate::lightning::{LightningNode, Network};

pub use self::addresses::markdown;
pub(crate) use self::addresses::{is_known, is_ours};

/// Secrets of the institutions. They may be public: nothing real is signed with them, encrypted to
/// them or paid to their node.
const SIGNING_SECRET: [u8; 32] = [0x5c; 32];
const ENCRYPTION_SECRET: [u8; 32] = [0x5d; 32];
const NODE_SECRET: [u8; 32] = [0x5e; 32];

/// The institutions of the sandbox. Prices are the middle of the market.
pub struct SandboxInstitutions {
    rates: Arc<dyn RateFeed>,
    clock: Arc<dyn Clock>,
    entropy: Arc<dyn Entropy>,
    signing: SigningKey,
    encryption: DecryptionKey,
    node: LightningNode,
}

impl SandboxInstitutions {
    /// Institutions that convert at these rates.
    pub fn new(rates: Arc<dyn RateFeed>, clock: Arc<dyn Clock>, entropy: Arc<dyn Entropy>) -> Self {
        let below_order = "32 times one byte below 0xff is below the order of the curve";
        Self {
            rates,
            clock,
            entropy,
            signing: SigningKey::from_bytes(&SIGNING_SECRET).expect(below_order),
            encryption: DecryptionKey::from_bytes(&ENCRYPTION_SECRET).expect(below_order),
            node: LightningNode::new(NODE_SECRET, Network::Regtest),
        }
    }

    /// A stamp for a signature of theirs.
    fn stamp(&self, now: Timestamp) -> Stamp {
        Stamp::new(Nonce::from_random(self.entropy.number()), now)
    }
}

impl Institutions for SandboxInstitutions {
    fn providers(&self) -> Vec<Provider> {
        addresses::providers()
    }

    fn owns(&self, domain: &str) -> bool {
        addresses::is_ours(domain)
    }

    fn look_up(
        &self,
        payer: &UmaAddress,
        payee: &UmaAddress,
        now: Timestamp,
    ) -> Result<String, PeerFailure> {
        self.lookup_url(payer, payee, now)
    }

    fn pay(&self, order: &PayOrder<'_>, now: Timestamp) -> Result<Vec<u8>, PeerFailure> {
        self.pay_request(order, now)
    }
}

#[cfg(test)]
mod tests;
