//! The addresses of the sandbox: one table of how lookups and pay requests go, and who gives the
//! addresses out. [`markdown`] prints it for people.

use std::fmt::Write as _;

use domain::currency::Currency;
use domain::platform::CounterpartyField;
use domain::uma_address::UmaAddress;
use ports::uma::{PeerFailure, Provider};

use crate::rails::scenarios::of_user;

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
pub(super) struct Address {
    /// The user part without its `$`.
    pub(super) user: &'static str,
    /// The currency in which it is paid.
    pub(super) currency: &'static str,
    /// The facts about a payer that it asks for, or how a lookup of it fails.
    pub(super) answer: Result<&'static [CounterpartyField], PeerFailure>,
    /// Its fee in smallest units, or how a pay request to it fails.
    pub(super) invoice: Result<i64, PeerFailure>,
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
pub(super) const ADDRESSES: &[Address] = &[
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
pub(super) const BLOCKED: &str = "sandbox.blocked.uma.money";

/// The institutions of the sandbox that a list shows: name, domain, countries, and whether we deal
/// with them. Other hosts of the sandbox answer like the first.
const INSTITUTIONS: [(&str, &str, &[&str], bool); 2] = [
    ("Sandbox Bank", "sandbox.uma.money", &["BR", "DE", "FR", "GB", "IN", "MX", "PH", "US"], true),
    ("Blocked Sandbox Bank", BLOCKED, &["US"], false),
];

/// Whether a domain is one of the sandbox's (contract 6.18).
pub(crate) fn is_ours(domain: &str) -> bool {
    let rest = domain.strip_prefix("sandbox.");
    rest.is_some_and(|rest| rest == "uma.money" || rest.ends_with(".uma.money"))
}

/// The name of the institution at a domain of the sandbox.
pub(super) fn name_of(domain: &str) -> &'static str {
    let [first, ..] = INSTITUTIONS;
    let at_domain = INSTITUTIONS.into_iter().find(|(_, known, ..)| *known == domain);
    at_domain.unwrap_or(first).0
}

/// The row of an address that gives lookups and pay requests an answer at all.
pub(super) fn row(user: &str, domain: &str) -> Result<&'static Address, PeerFailure> {
    if domain == BLOCKED {
        return Err(PeerFailure::NotAllowed);
    }
    let mut rows = ADDRESSES.iter().filter(|_| is_ours(domain));
    rows.find(|row| row.user == user).ok_or(PeerFailure::UnknownAddress)
}

/// Whether an address can pay and be paid: what becomes of that, the scenarios of the rail say.
pub(crate) fn is_known(address: &UmaAddress) -> bool {
    let row = row(address.user(), address.domain());
    row.is_ok_and(|row| row.answer.is_ok() && row.invoice.is_ok())
}

/// The institutions of the sandbox that a list shows.
pub(super) fn providers() -> Vec<Provider> {
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
         Written from the table in `crates/adapters/src/uma/sandbox/addresses.rs`. The addresses \
         exist at `sandbox.uma.money` and every other host that begins with `sandbox.` and ends in \
         `.uma.money`. Their institutions speak the UMA protocol inside the server: a sandbox \
         platform needs no network for them. They can be paid, and they pay with \
         `POST /sandbox/uma/receive`.\n\n\
         A payment to any other address is settled with the server of its domain: the invoice goes \
         to `POST /uma/settle` there, and the answer is the preimage. No money moves between the \
         two. A server that does not settle this way is not paid: the payment fails if it says so in \
         a code of the protocol, and else [waits for a person](uma.md#settlement).\n\n\
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
