//! The institutions of the sandbox as payers: they look an address of ours up, and ask to pay it.

use domain::time::Timestamp;
use domain::uma_address::UmaAddress;
use ports::uma::{PayOrder, PeerFailure};
use serde_json::json;

use ::uma::address::{Address, PeerDomain};
use ::uma::currency::CurrencyCode;
use ::uma::data::{Demands, Facts, protocol_key};
use ::uma::keys::PeerKeys;
use ::uma::kyc_status::KycStatus;
use ::uma::lnurlp::{LookupRequest, LookupResponse};
use ::uma::pay_request::{Amount, PayRequest, PayerCompliance, PayerData};
use ::uma::travel_rule::{self, EncryptionKey};
use ::uma::version::Version;

use super::{SandboxInstitutions, addresses};

/// The name of every customer who pays.
const PAYER_NAME: &str = "Sandbox Sender";

/// Facts that the institutions of the sandbox state about their customers who pay, whether it is
/// asked or not.
const PAYER: [(&str, &str); 5] = [
    ("FULL_NAME", PAYER_NAME),
    ("BIRTH_DATE", "1990-01-01"),
    ("NATIONALITY", "US"),
    ("COUNTRY_OF_RESIDENCE", "US"),
    ("USER_TYPE", "INDIVIDUAL"),
];

/// Facts that they state if asked, beside the address that pays: a platform that insists on
/// anything can try how it is paid.
const PAYER_ASKED: [(&str, &str); 10] = [
    ("PHONE_NUMBER", "+12025550100"),
    ("EMAIL", "sender@sandbox.example"),
    ("POSTAL_ADDRESS", "1 Sandbox Street, Springfield, 00000, US"),
    ("TAX_ID", "000-00-0000"),
    ("REGISTRATION_NUMBER", "00000000"),
    ("ACCOUNT_IDENTIFIER", "000000000"),
    ("FI_LEGAL_ENTITY_NAME", "Sandbox Bank"),
    ("FI_ADDRESS", "2 Sandbox Street, Springfield, 00000, US"),
    ("PURPOSE_OF_PAYMENT", "GOODS_OR_SERVICES"),
    ("ULTIMATE_INSTITUTION_COUNTRY", "US"),
];

impl SandboxInstitutions {
    /// The URL of the lookup that begins a payment of `payer`.
    pub(super) fn lookup_url(
        &self,
        payer: &UmaAddress,
        payee: &UmaAddress,
        now: Timestamp,
    ) -> Result<String, PeerFailure> {
        addresses::row(payer.user(), payer.domain())?.answer?;
        // Every domain of the sandbox that an address can have is one of the protocol's.
        let domain = PeerDomain::parse(payer.domain()).map_err(|_| PeerFailure::UnknownAddress)?;
        let payee = Address::from(payee);
        let stamp = self.stamp(now);
        let version = Version::CURRENT;
        let request = LookupRequest::new(&self.signing, payee, version, domain, true, stamp);
        Ok(request.url())
    }

    /// The pay request that follows the answer to that lookup.
    pub(super) fn pay_request(
        &self,
        order: &PayOrder<'_>,
        now: Timestamp,
    ) -> Result<Vec<u8>, PeerFailure> {
        let answer = LookupResponse::read(order.answer).map_err(|_| PeerFailure::Unreadable)?;
        let keys = PeerKeys::read(order.keys, now).map_err(|_| PeerFailure::KeysUnavailable)?;
        let (payer, payee) = (Address::from(order.payer), Address::from(order.payee));
        answer.verify(&keys.verifying_key, &payee).map_err(|_| PeerFailure::Unreachable)?;
        let receiving = CurrencyCode::parse(order.amount.currency().code())
            .filter(|code| answer.currencies.iter().any(|offer| offer.code == *code))
            .ok_or(PeerFailure::Unreadable)?;
        let mut compliance =
            PayerCompliance::new(&self.signing, &payer, KycStatus::Verified, self.stamp(now));
        let travel_rule =
            json!({ "originator": { "name": PAYER_NAME, "address": order.payer.as_str() } });
        compliance.encrypted_travel_rule_info =
            Some(self.encrypted(travel_rule.to_string().as_bytes(), &keys.encryption_key)?);
        let request = PayRequest {
            form: answer.version.form(),
            amount: Amount::Receiving { minor: order.amount.minor(), code: receiving.clone() },
            receiving,
            payer: PayerData { identifier: payer, facts: facts(&answer.payer_demands), compliance },
            payee_demands: Demands::default(),
            comment: None,
            invoice_uuid: None,
        };
        request.to_json().map(String::into_bytes).map_err(|_| PeerFailure::Unreadable)
    }

    /// Encrypts to the payee's institution. One draw in 2^128 is no key: the tester asks again.
    fn encrypted(&self, plain: &[u8], to: &EncryptionKey) -> Result<String, PeerFailure> {
        let (mut ephemeral, mut nonce) = ([0; 32], [0; 16]);
        self.entropy.fill(&mut ephemeral);
        self.entropy.fill(&mut nonce);
        let entropy = travel_rule::Entropy { ephemeral: ephemeral.into(), nonce };
        travel_rule::seal(plain, to, &entropy).map_err(|_| PeerFailure::Unreachable)
    }
}

/// The facts about every payer, and those that were asked for.
fn facts(demands: &Demands) -> Facts {
    let is_asked = |(name, _): &(&str, &str)| demands.0.contains_key(&protocol_key(name));
    let stated = PAYER.into_iter().chain(PAYER_ASKED.into_iter().filter(is_asked));
    Facts(stated.map(|(name, fact)| (protocol_key(name), fact.to_owned())).collect())
}
