//! The institutions of the sandbox: no network, no memory, no chance.
//!
//! Every host `sandbox.*uma.money` gives out the addresses of one table, `ADDRESSES`; there is no
//! other host. Its answers to lookups and pay requests are data, and the path of payments is a
//! table of scenarios; [`markdown`] prints both for people.

use std::fmt::Write as _;
use std::future::ready;
use std::sync::Arc;

use domain::currency::Currency;
use domain::lookup::Offer;
use domain::money::Money;
use domain::platform::CounterpartyField;
use domain::rate::round_to_digits;
use domain::time::Timestamp;
use domain::transaction::Facts;
use domain::uma_address::UmaAddress;
use ports::rail::Pending;
use ports::rates::Rates;
use ports::uma::{Inquiry, Invoice, PayRequest, Payee, PeerFailure, Provider, UmaPeer};
use rust_decimal::{Decimal, RoundingStrategy};

use crate::rails::scenarios::of_user;

/// Millisatoshi in one bitcoin.
const MSAT_PER_BITCOIN: i64 = 100_000_000_000;

/// Most that an address of the sandbox takes at once, in smallest units: enough for every test that
/// a person makes up, and little enough that the limit can be tested too.
const RECEIVED_MAX: i64 = 1_000_000_000;

/// How long an invoice of the sandbox can be paid, in milliseconds: longer than quotes are open, so
/// that the quote's own time decides.
const INVOICE_LIFETIME_MILLIS: i64 = 3_600_000;

/// Optional facts about a payer that every institution of the sandbox asks for.
const WANTED: &[CounterpartyField] = &[
    CounterpartyField { name: "FULL_NAME", mandatory: false },
    CounterpartyField { name: "BIRTH_DATE", mandatory: false },
    CounterpartyField { name: "NATIONALITY", mandatory: false },
];

/// Facts that an institution with strict rules asks for.
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
    /// Its facts about itself.
    answer: Result<&'static [CounterpartyField], PeerFailure>,
    /// Its fee in the answer to a pay request, in smallest units.
    invoice: Result<i64, PeerFailure>,
}

/// An address that is found and gives invoices.
const fn found(user: &'static str, currency: &'static str) -> Address {
    Address { user, currency, answer: Ok(WANTED), invoice: Ok(0) }
}

/// An address that a lookup does not find.
const fn hidden(user: &'static str, failure: PeerFailure) -> Address {
    let answer = Err(failure);
    Address { answer, ..found(user, "USD") }
}

/// An address that is found and gives no invoice.
const fn mute(user: &'static str, failure: PeerFailure) -> Address {
    let invoice = Err(failure);
    Address { invoice, ..found(user, "USD") }
}

/// The addresses of contract 6.18, and one for every other way in which a lookup can go. A further
/// behaviour is a further row.
const ADDRESSES: &[Address] = &[
    found("success.usd", "USD"),
    found("success.eur", "EUR"),
    found("success.mxn", "MXN"),
    found("success.inr", "INR"),
    found("success.gbp", "GBP"),
    found("success.brl", "BRL"),
    found("success.php", "PHP"),
    found("pending.long.usd", "USD"),
    found("fail.compliance.usd", "USD"),
    found("fail.timeout.usd", "USD"),
    found("fail.payment.usd", "USD"),
    Address { answer: Ok(DEMANDED), ..found("identity.usd", "USD") },
    Address { invoice: Ok(25), ..found("fee.eur", "EUR") },
    mute("fail.payreq.usd", PeerFailure::Unreachable),
    mute("fail.payreq.parse.usd", PeerFailure::Unreadable),
    hidden("non.existent.usd", PeerFailure::UnknownAddress),
    hidden("fail.blocked.usd", PeerFailure::NotAllowed),
    hidden("fail.notready.usd", PeerFailure::PayeeNotReady),
    hidden("fail.lookup.usd", PeerFailure::Unreachable),
    hidden("fail.keys.usd", PeerFailure::KeysUnavailable),
    hidden("fail.parse.usd", PeerFailure::Unreadable),
    hidden("fail.version.usd", PeerFailure::UnsupportedVersion),
    hidden("fail.noversion.usd", PeerFailure::NoCommonVersion),
];

/// The host of an institution that we do not deal with, whatever its address.
const BLOCKED: &str = "sandbox.blocked.uma.money";

/// The institutions of the sandbox that a list shows: name, domain, countries, and whether we deal
/// with them. Other hosts of the sandbox answer like the first.
const INSTITUTIONS: [(&str, &str, &[&str], bool); 2] = [
    ("Sandbox Bank", "sandbox.uma.money", &["BR", "DE", "FR", "GB", "IN", "MX", "PH", "US"], true),
    ("Blocked Sandbox Bank", BLOCKED, &["US"], false),
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

/// Whether an address can pay and be paid: what becomes of that, the scenarios of the rail say.
pub(crate) fn is_known(address: &UmaAddress) -> bool {
    row(address).is_some_and(|row| row.answer.is_ok() && row.invoice.is_ok())
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

    /// The facts of an address about itself.
    fn answer(&self, address: &UmaAddress, now: Timestamp) -> Result<Payee, PeerFailure> {
        if address.domain() == BLOCKED {
            return Err(PeerFailure::NotAllowed);
        }
        let row = row(address).ok_or(PeerFailure::UnknownAddress)?;
        let payer_fields = row.answer?.to_vec();
        let offer = self.offer(row, now).ok_or(PeerFailure::Unreachable)?;
        Ok(Payee { offers: vec![offer], payer_fields, callback: row.user.to_owned() })
    }

    /// The answer to a pay request. The invoice names what it is for, so that it is the same
    /// however often it is asked for.
    fn invoice(&self, request: &PayRequest, now: Timestamp) -> Result<Invoice, PeerFailure> {
        let mut rows = ADDRESSES.iter();
        let row = rows.find(|row| row.user == request.callback);
        let row = row.ok_or(PeerFailure::UnknownAddress)?;
        let fee_minor = row.invoice?;
        let offer = self.offer(row, now).ok_or(PeerFailure::Unreachable)?;
        let msat_per_unit = offer.msat_per_unit.ok_or(PeerFailure::Unreachable)?;
        let units = Decimal::from(request.amount.minor()).checked_add(Decimal::from(fee_minor));
        let msat = units
            .and_then(|units| units.checked_mul(msat_per_unit))
            .map(|msat| msat.round_dp_with_strategy(0, RoundingStrategy::ToPositiveInfinity))
            .and_then(|msat| i64::try_from(msat).ok())
            .and_then(|msat| Money::positive(msat, Currency::MSAT).ok())
            .ok_or(PeerFailure::Unreadable)?;
        let asked = request.payee_fields.iter();
        let known = |name| Some((name, about_payee(name)?.to_owned()));
        Ok(Invoice {
            text: format!("lnbcrt-{}-{}", row.user, msat.minor()),
            msat,
            msat_per_unit,
            fee_minor,
            expires_at: now.plus_millis(INVOICE_LIFETIME_MILLIS),
            payee: asked.filter_map(|field| known(field.name)).collect::<Facts>(),
        })
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

/// Facts of the institutions of the sandbox about their customers.
fn about_payee(field: &str) -> Option<&'static str> {
    match field {
        "FULL_NAME" => Some("Sandbox Receiver"),
        "BIRTH_DATE" => Some("1990-01-01"),
        "NATIONALITY" => Some("US"),
        _ => None,
    }
}

impl UmaPeer for SandboxPeer {
    fn owns(&self, domain: &str) -> bool {
        is_ours(domain)
    }

    fn providers(&self) -> Vec<Provider> {
        let paid = |row: &Address| Currency::from_code(row.currency);
        let mut currencies: Vec<_> = ADDRESSES.iter().filter_map(paid).collect();
        currencies.sort_by_key(|currency| currency.code());
        currencies.dedup();
        let provider = |(name, domain, regions, is_allowed)| Provider {
            name,
            domain,
            regions,
            currencies: currencies.clone(),
            logo_url: None,
            lei: None,
            is_allowed,
        };
        INSTITUTIONS.into_iter().map(provider).collect()
    }

    fn look_up<'a>(
        &'a self,
        inquiry: &'a Inquiry,
        now: Timestamp,
    ) -> Pending<'a, Result<Payee, PeerFailure>> {
        Box::pin(ready(self.answer(&inquiry.receiver, now)))
    }

    fn request_payment<'a>(
        &'a self,
        request: &'a PayRequest,
        now: Timestamp,
    ) -> Pending<'a, Result<Invoice, PeerFailure>> {
        Box::pin(ready(self.invoice(request, now)))
    }
}

/// The outcome of a lookup of an address, for people.
fn lookup_sentence(row: &Address) -> String {
    let failure = match row.answer {
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

/// The outcome of a payment to an address or from it, for people.
fn payment_sentence(row: &Address) -> String {
    match (row.answer, row.invoice) {
        (Err(_), _) => String::new(),
        (_, Err(PeerFailure::Unreadable)) => {
            "the quote is refused: 400 `PARSE_PAYREQ_RESPONSE_ERROR`".to_owned()
        }
        (_, Err(_)) => "the quote is refused: 424 `PAYREQ_REQUEST_FAILED`".to_owned(),
        (_, Ok(0)) => of_user(row.user),
        (_, Ok(fee)) => format!("{}; takes {fee} smallest units for it", of_user(row.user)),
    }
}

/// The addresses as a section in Markdown, for documents.
pub fn markdown() -> String {
    let mut page = String::from(
        "\n## UMA addresses\n\n\
         Written from the table in `crates/adapters/src/uma/sandbox.rs`. The addresses exist at \
         `sandbox.uma.money` and every other host that begins with `sandbox.` and ends in \
         `.uma.money`; any other address outside this server does not exist. They can be paid, and \
         they pay with `POST /sandbox/uma/receive`.\n\n\
         | Address | Currency | Lookup | Payment |\n|---|---|---|---|\n",
    );
    for row in ADDRESSES {
        let (user, currency) = (row.user, row.currency);
        let (lookup, payment) = (lookup_sentence(row), payment_sentence(row));
        writeln!(page, "| `${user}` | {currency} | {lookup} | {payment} |")
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
        let answer = look_up("$unknown@sandbox.uma.money");
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
    fn an_invoice_asks_for_what_arrives_and_the_fee() {
        let address = |text| UmaAddress::parse(text).expect("an address");
        let eur = Currency::from_code("EUR").expect("a currency");
        let request = |callback: &str| PayRequest {
            callback: callback.to_owned(),
            receiver: address("$fee.eur@sandbox.uma.money"),
            sender: address("$ada@uma.test"),
            amount: Money::positive(1_000, eur).expect("an amount"),
            payer: Facts::new(),
            payee_fields: WANTED[..1].to_vec(),
        };
        let peer = SandboxPeer::new(Arc::new(FixedRates::builtin()));
        let ask = |callback| answer_of(peer.request_payment(&request(callback), NOW));
        let invoice = ask("fee.eur").expect("an invoice");
        let msat = Decimal::from(1_025).checked_mul(invoice.msat_per_unit).expect("small");
        assert_eq!(Decimal::from(invoice.msat.minor()), msat.ceil());
        assert_eq!((invoice.fee_minor, invoice.payee.len()), (25, 1));
        assert_eq!(ask("fee.eur"), Ok(invoice), "the same again");
        assert_eq!(ask("fail.payreq.usd"), Err(PeerFailure::Unreachable));
        assert_eq!(ask("unknown"), Err(PeerFailure::UnknownAddress));
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
