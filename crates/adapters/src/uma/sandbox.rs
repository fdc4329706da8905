//! The institutions of the sandbox: no network, no memory, no chance.
//!
//! Every host `sandbox.*uma.money` gives out the addresses of one table, [`ADDRESSES`]; there is
//! nobody else. What each does is data; [`markdown`] prints it for people.

use std::fmt::Write as _;
use std::future::ready;
use std::sync::Arc;

use domain::currency::Currency;
use domain::lookup::Offer;
use domain::platform::CounterpartyField;
use domain::rate::round_to_digits;
use domain::time::Timestamp;
use domain::uma_address::UmaAddress;
use ports::rail::Pending;
use ports::rates::Rates;
use ports::uma::{Inquiry, Payee, PeerFailure, UmaPeer};
use rust_decimal::Decimal;

/// Millisatoshi in one bitcoin.
const MSAT_PER_BITCOIN: i64 = 100_000_000_000;

/// Most that an address of the sandbox takes at once, in smallest units: enough for every test that
/// a person makes up, and little enough that the limit can be tested too.
const RECEIVED_MAX: i64 = 1_000_000_000;

/// What every institution of the sandbox asks about a payer, and does not insist on.
const WANTED: &[CounterpartyField] = &[
    CounterpartyField { name: "FULL_NAME", mandatory: false },
    CounterpartyField { name: "BIRTH_DATE", mandatory: false },
    CounterpartyField { name: "NATIONALITY", mandatory: false },
];

/// What an institution asks that has to know who pays.
const DEMANDED: &[CounterpartyField] = &[
    CounterpartyField { name: "FULL_NAME", mandatory: true },
    CounterpartyField { name: "BIRTH_DATE", mandatory: true },
    CounterpartyField { name: "NATIONALITY", mandatory: false },
];

/// One address of the sandbox.
struct Address {
    /// The user part without its `$`.
    user: &'static str,
    /// The currency in which it is paid.
    currency: &'static str,
    /// What it says about itself.
    answer: Result<&'static [CounterpartyField], PeerFailure>,
}

const fn pays(user: &'static str, currency: &'static str) -> Address {
    Address { user, currency, answer: Ok(WANTED) }
}

const fn refuses(user: &'static str, failure: PeerFailure) -> Address {
    Address { user, currency: "USD", answer: Err(failure) }
}

/// The addresses of contract 6.18, and one for every other way in which a lookup can go. A further
/// behaviour is a further row.
const ADDRESSES: &[Address] = &[
    pays("success.usd", "USD"),
    pays("success.eur", "EUR"),
    pays("success.mxn", "MXN"),
    pays("success.inr", "INR"),
    pays("success.gbp", "GBP"),
    pays("success.brl", "BRL"),
    pays("success.php", "PHP"),
    pays("pending.long.usd", "USD"),
    pays("fail.compliance.usd", "USD"),
    pays("fail.timeout.usd", "USD"),
    Address { answer: Ok(DEMANDED), ..pays("identity.usd", "USD") },
    refuses("non.existent.usd", PeerFailure::UnknownAddress),
    refuses("fail.blocked.usd", PeerFailure::NotAllowed),
    refuses("fail.notready.usd", PeerFailure::PayeeNotReady),
    refuses("fail.lookup.usd", PeerFailure::Unreachable),
    refuses("fail.keys.usd", PeerFailure::KeysUnavailable),
    refuses("fail.parse.usd", PeerFailure::Unreadable),
    refuses("fail.version.usd", PeerFailure::UnsupportedVersion),
    refuses("fail.noversion.usd", PeerFailure::NoCommonVersion),
];

/// Whether a domain is one of the sandbox's (contract 6.18).
fn is_ours(domain: &str) -> bool {
    let rest = domain.strip_prefix("sandbox.");
    rest.is_some_and(|rest| rest == "uma.money" || rest.ends_with(".uma.money"))
}

/// The row of an address, if it is one of the sandbox's.
fn row(address: &UmaAddress) -> Option<&'static Address> {
    let user = address.user();
    ADDRESSES.iter().find(|row| is_ours(address.domain()) && row.user == user)
}

/// The UMA network of sandbox platforms. Prices are the middle of the market.
#[derive(Clone)]
pub struct SandboxPeer {
    rates: Arc<dyn Rates>,
}

impl SandboxPeer {
    /// Institutions that convert at these rates.
    pub fn new(rates: Arc<dyn Rates>) -> Self {
        Self { rates }
    }

    /// What an address says about itself.
    fn answer(&self, address: &UmaAddress, now: Timestamp) -> Result<Payee, PeerFailure> {
        let row = row(address).ok_or(PeerFailure::UnknownAddress)?;
        let payer_fields = row.answer?.to_vec();
        let offer = self.offer(row, now).ok_or(PeerFailure::Unreachable)?;
        Ok(Payee { offers: vec![offer], payer_fields, callback: row.user.to_owned() })
    }

    /// How an address is paid; nothing without a rate.
    fn offer(&self, row: &Address, now: Timestamp) -> Option<Offer> {
        let currency = Currency::from_code(row.currency)?;
        let bitcoin = Currency::from_code("BTC")?;
        let per_bitcoin = self.rates.mid(currency, bitcoin, now).ok()?.value;
        let units = Decimal::from(10_i64.checked_pow(u32::from(currency.decimals()))?);
        let msat = Decimal::from(MSAT_PER_BITCOIN).checked_div(per_bitcoin.checked_mul(units)?)?;
        Some(Offer {
            currency,
            min_minor: 1,
            max_minor: RECEIVED_MAX,
            msat_per_unit: Some(round_to_digits(msat)),
        })
    }
}

impl UmaPeer for SandboxPeer {
    fn look_up<'a>(
        &'a self,
        inquiry: &'a Inquiry,
        now: Timestamp,
    ) -> Pending<'a, Result<Payee, PeerFailure>> {
        Box::pin(ready(self.answer(&inquiry.receiver, now)))
    }
}

/// What a lookup of an address gives, for people.
fn sentence(answer: Result<&[CounterpartyField], PeerFailure>) -> String {
    let failure = match answer {
        Ok(fields) => {
            let demanded = fields.iter().filter(|field| field.mandatory);
            let demanded: Vec<_> = demanded.map(|field| format!("`{}`", field.name)).collect();
            return match demanded.as_slice() {
                [] => "found".to_owned(),
                _ => format!("found; {} must be given with the quote", demanded.join(" and ")),
            };
        }
        Err(failure) => failure,
    };
    match failure {
        PeerFailure::UnknownAddress => "does not exist: 404 `UMA_NOT_FOUND`",
        PeerFailure::PayeeNotReady => "cannot be paid yet: 403 `USER_NOT_READY`",
        PeerFailure::NotAllowed => "is blocked: 403 `COUNTERPARTY_NOT_ALLOWED`",
        PeerFailure::Unreachable => "cannot be reached: 424 `LNURLP_REQUEST_FAILED`",
        PeerFailure::KeysUnavailable => "hides its keys: 424 `COUNTERPARTY_PUBKEY_FETCH_ERROR`",
        PeerFailure::Unreadable => "answers nonsense: 400 `PARSE_LNURLP_RESPONSE_ERROR`",
        PeerFailure::UnsupportedVersion => {
            "has another version of the protocol: 412 `UNSUPPORTED_UMA_VERSION`"
        }
        PeerFailure::NoCommonVersion => "has no version of ours: 424 `NO_COMPATIBLE_UMA_VERSION`",
    }
    .to_owned()
}

/// The addresses as a section in Markdown, for documents.
pub fn markdown() -> String {
    let mut page = String::from(
        "\n## UMA addresses\n\n\
         Written from the table in `crates/adapters/src/uma/sandbox.rs`. The addresses exist at \
         `sandbox.uma.money` and every other host that begins with `sandbox.` and ends in \
         `.uma.money`; any other address outside this server does not exist.\n\n\
         | Address | Currency | Lookup |\n|---|---|---|\n",
    );
    for Address { user, currency, answer } in ADDRESSES {
        let lookup = sentence(*answer);
        writeln!(page, "| `${user}` | {currency} | {lookup} |")
            .expect("writing to a string cannot fail");
    }
    page
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::rails::tests::answer_of;
    use crate::rates::FixedRates;
    use std::collections::BTreeSet;

    const NOW: Timestamp = Timestamp::from_millis(1_763_683_200_000);

    fn look_up(receiver: &str) -> Result<Payee, PeerFailure> {
        let address = |text| UmaAddress::parse(text).expect("an address");
        let inquiry = Inquiry { receiver: address(receiver), sender: address("$ada@uma.test") };
        answer_of(SandboxPeer::new(Arc::new(FixedRates::builtin())).look_up(&inquiry, NOW))
    }

    #[test]
    fn only_hosts_of_the_sandbox_have_its_addresses() {
        for host in ["sandbox.uma.money", "sandbox.grid.uma.money", "SANDBOX.umaaas.uma.money"] {
            assert!(look_up(&format!("$success.usd@{host}")).is_ok(), "{host}");
        }
        for host in [
            "uma.money",
            "grid.uma.money",
            "sandbox.evil.com",
            "sandbox.notuma.money",
            "sandbox.uma.money.evil.com",
            "evil.sandbox.uma.money",
            "sandbox.uma.money:8080",
        ] {
            let answer = look_up(&format!("$success.usd@{host}"));
            assert_eq!(answer, Err(PeerFailure::UnknownAddress), "{host}");
        }
        let answer = look_up("$nobody@sandbox.uma.money");
        assert_eq!(answer, Err(PeerFailure::UnknownAddress));
    }

    #[test]
    fn an_address_is_paid_in_its_currency_at_the_middle_of_the_market() {
        let payee = look_up("$success.usd@sandbox.uma.money").expect("an address");
        let [offer] = payee.offers.as_slice() else { panic!("{payee:?}") };
        assert_eq!(offer.currency.code(), "USD");
        // A bitcoin is 100,000 dollars, so a cent is 10,000 millisatoshi.
        assert_eq!(offer.msat_per_unit, Some(Decimal::from(10_000)));
        assert!(0 < offer.min_minor && offer.min_minor < offer.max_minor);
    }

    #[test]
    fn every_row_can_be_looked_up_and_stands_once() {
        let users: BTreeSet<_> = ADDRESSES.iter().map(|row| row.user).collect();
        assert_eq!(users.len(), ADDRESSES.len());
        for row in ADDRESSES {
            let answer = look_up(&format!("${}@sandbox.uma.money", row.user));
            let said = answer.as_ref().map(|payee| payee.payer_fields.as_slice());
            assert_eq!(said, row.answer.as_ref().copied(), "{}", row.user);
            assert!(markdown().contains(&format!("| `${}` | {} |", row.user, row.currency)));
        }
    }
}
