//! Shared by the tests of the store: rows of every kind, and a small service that moves money the
//! way the real one does.

#![allow(dead_code, reason = "each test binary uses its part")]

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use domain::account_info::{AccountInfo, AccountType, BeneficiaryDraft, FieldValue};
use domain::address::{Address, AddressDraft};
use domain::approval::Approval;
use domain::attention::{self, Attention, Notice, Resolution};
use domain::bulk_import::{self, BulkImport, NewRow, Part, PartContent, Refusal};
use domain::clock::Ahead;
use domain::code::{CODE_LENGTH, Code};
use domain::country::Country;
use domain::currency::Currency;
use domain::customer::{
    BeneficialOwner, Business, Contact, Customer, Identity, Individual, KycStatus,
};
use domain::event::{Event, EventKind, event_id};
use domain::external_account::{self, ExternalAccount, Verification};
use domain::id::{
    CustomerId, ExternalAccountId, InternalAccountId, JobId, LookupId, Owner, PlatformId, QuoteId,
    TokenId, TransactionId,
};
use domain::invitation::{self, Invitation};
use domain::kyc::{self, CheckDraft, IdentityCheck, Kyc};
use domain::lookup::{LIFETIME_MILLIS, Lookup, Offer, PayWay, Receiver};
use domain::money::{Money, Receiving, Sending};
use domain::platform::{
    BasisPoints, CorridorRule, CounterpartyField, Mode, Platform, SupportedCurrency,
};
use domain::pricing::{Fees, Locked, Multipliers, price};
use domain::quote::{self, Quote};
use domain::rail::Rail;
use domain::rate::Rate;
use domain::rate_basis::{PriceRule, RateBasis, RateSource};
use domain::signing::Generations;
use domain::time::{Date, Timestamp};
use domain::token::{Permissions, Token};
use domain::transaction::{
    self, AboutPayee, AccountRef, Conversion, Destination, Direction, Facts, RailRequest,
    RateDetails, Settlement, Source, Terms, Transaction,
};
use domain::transition::Moved;
use domain::uma_address::{UmaAddress, UmaDomain};
use domain::uma_peer::{Exchange, PeerKeys, Rule, UmaPeer};
use rust_decimal::Decimal;
use store::Store;
use store::books::BookError;
use store::error::StoreError;
use store::keyring::{KEY_LENGTH, Keyring};
use store::open_payments::is_counted;
use store::origin::{Actor, Origin};
use store::reader::View;
use store::timers::{Timer, TimerKind};
use store::uma_domains::DomainClaim;
use store::unit::Unit;
use testbed::postgres::Database;
use uuid::Uuid;

/// Text that must never stand in a plain column.
pub const CANARY: &str = "CANARY7f3a";

/// Why a unit of work of a test ended.
#[derive(Debug, PartialEq, Eq)]
pub enum Refused {
    /// The store failed.
    Store(StoreError),
    /// The books refused.
    Book(BookError),
    /// The test wanted it.
    Wanted,
}

impl From<StoreError> for Refused {
    fn from(error: StoreError) -> Self {
        Self::Store(error)
    }
}

impl From<BookError> for Refused {
    fn from(error: BookError) -> Self {
        Self::Book(error)
    }
}

pub type Result<T = ()> = std::result::Result<T, Refused>;

pub fn keyring() -> Keyring {
    Keyring::new(&[7; KEY_LENGTH])
}

/// Seconds after the beginning of the test's time.
pub fn at(seconds: i64) -> Timestamp {
    Timestamp::from_millis(1_760_000_000_000 + seconds * 1_000)
}

/// An id that was drawn at a second and is greater than those of that second with smaller numbers.
/// Its lowest 16 bits are zero: it may own internal accounts, and its reference is its own.
fn drawn(seconds: i64, number: u128) -> Uuid {
    let millis = at(seconds).millis() as u128;
    Uuid::from_u128(millis << 80 | 0x7000_8000_0000_0000_0000 | number << 16)
}

/// The id of what was made in the second with this number.
pub fn uuid(number: u128) -> Uuid {
    drawn(number as i64, number)
}

pub fn platform_id(number: u128) -> PlatformId {
    PlatformId::from_uuid(drawn(0, number))
}

pub fn customer_id(number: u128) -> CustomerId {
    CustomerId::from_uuid(drawn(number as i64, 0x1000 + number))
}

pub fn account_id(number: u128) -> ExternalAccountId {
    ExternalAccountId::from_uuid(uuid(number))
}

pub fn transaction_id(number: u128) -> TransactionId {
    TransactionId::from_uuid(uuid(number))
}

pub fn quote_id(number: u128) -> QuoteId {
    QuoteId::from_uuid(drawn(number as i64, 0x1_0000 + number))
}

pub fn currency(code: &str) -> Currency {
    Currency::from_code(code).unwrap()
}

pub fn money(minor: i64, code: &str) -> Money {
    Money::new(minor, currency(code)).unwrap()
}

pub fn internal(owner: Owner, code: &str) -> InternalAccountId {
    InternalAccountId::of(owner, currency(code))
}

pub fn customer_account(number: u128, code: &str) -> InternalAccountId {
    internal(Owner::Customer(customer_id(number)), code)
}

/// A platform with everything that is optional.
pub fn platform(number: u128) -> Platform {
    Platform {
        id: platform_id(number),
        name: format!("Platform {number}"),
        mode: Mode::Sandbox,
        uma_domain: UmaDomain::parse("uma.example.com").unwrap(),
        proxy_uma_subdomain: "one".to_owned(),
        webhook_endpoint: Some("https://example.com/hook".to_owned()),
        event_names: domain::event::EventNames::Dotted,
        is_regulated: true,
        currencies: vec![SupportedCurrency {
            currency: currency("USD"),
            min_minor: 1,
            max_minor: 10_000_000,
            required_counterparty_fields: vec![
                CounterpartyField { name: "FULL_NAME", mandatory: true },
                CounterpartyField { name: "BIRTH_DATE", mandatory: false },
            ],
            provider_required_customer_fields: vec!["FULL_NAME"],
            enabled: vec![Direction::Incoming, Direction::Outgoing],
        }],
        corridors: vec![
            CorridorRule {
                sending: Some(currency("USD")),
                receiving: Some(currency("EUR")),
                spread: Some(Decimal::new(25, 4)),
                fixed_fee_minor: Some(100),
                variable_fee_rate: Some(Decimal::new(3, 3)),
            },
            CorridorRule {
                sending: None,
                receiving: None,
                spread: None,
                fixed_fee_minor: None,
                variable_fee_rate: None,
            },
        ],
        signing: Generations { newest: 2, rotated_at: Some(at(1)) },
        uma_keys: Generations { newest: 3, rotated_at: Some(at(2)) },
        manager_tokens: 2,
        ahead: Ahead::from_millis(86_400_000).unwrap(),
        rail_settings: Some("payments = []".into()),
        cost_drift_max: BasisPoints::WHOLE,
        created_at: at(0),
        updated_at: at(1),
    }
}

/// A platform with nothing that is optional.
pub fn bare_platform(number: u128) -> Platform {
    Platform {
        mode: Mode::Live,
        webhook_endpoint: None,
        event_names: domain::event::EventNames::Plain,
        is_regulated: false,
        currencies: Vec::new(),
        corridors: Vec::new(),
        ahead: Ahead::NONE,
        rail_settings: None,
        cost_drift_max: BasisPoints::DRIFT,
        signing: Generations::FIRST,
        uma_keys: Generations::FIRST,
        ..platform(number)
    }
}

/// A timer of the first platform, by the server's clock.
/// The origin of what a test changes.
pub fn origin() -> Origin {
    Origin { actor: Actor::job("TEST"), request: None, at: at(0) }
}

pub fn timer(subject: Uuid, kind: TimerKind, due_at: Timestamp, since: Timestamp) -> Timer {
    Timer { subject, kind, platform: platform_id(1), due_at, since, attempts: 0 }
}

pub fn token(number: u128, platform: u128) -> Token {
    Token {
        id: TokenId::from_uuid(uuid(number)),
        platform: platform_id(platform),
        name: format!("Token {number}"),
        permissions: Permissions::ALL,
        client_id: format!("client-{number}"),
        secret_hash: [number as u8; 32],
        created_at: at(number as i64),
        updated_at: at(number as i64 + 1),
        revoked: false,
    }
}

pub fn address() -> AddressDraft {
    AddressDraft {
        line1: Some(format!("Street {CANARY}")),
        line2: Some("Flat 2".to_owned()),
        city: Some("Berlin".to_owned()),
        state: Some("BE".to_owned()),
        postal_code: Some("10115".to_owned()),
        country: Some("DE".to_owned()),
    }
}

fn person() -> Individual {
    Individual {
        full_name: Some(format!("Ada {CANARY}")),
        birth_date: Some(Date::parse("1990-05-17").unwrap()),
        nationality: Some(Country::parse("DE").unwrap()),
        address: Some(Address::new(&address()).unwrap()),
        contact: contact(),
    }
}

fn contact() -> Contact {
    Contact {
        email: Some(format!("{CANARY}@example.com")),
        phone_number: Some("+4930123456".to_owned()),
        currencies: vec![Currency::from_code("EUR").unwrap()],
    }
}

/// A person with everything that is optional.
pub fn customer(number: u128, platform: u128) -> Customer {
    Customer {
        id: customer_id(number),
        platform: platform_id(platform),
        platform_customer_id: format!("user-{number}"),
        uma_address: uma_address(number),
        kyc: Kyc::first(KycStatus::Approved),
        identity_check: None,
        identity: Identity::Individual(person()),
        default_uma_deposit_account: None,
        is_deleted: false,
        created_at: at(number as i64),
        updated_at: at(number as i64 + 1),
    }
}

pub fn uma_address(number: u128) -> UmaAddress {
    UmaAddress::parse(&format!("$user{number}@uma.example.com")).unwrap()
}

/// An address on another server.
pub fn peer() -> UmaAddress {
    UmaAddress::parse(&format!("$bo.{CANARY}@peer.example")).unwrap()
}

/// A person of whom nothing is known.
pub fn bare_customer(number: u128, platform: u128) -> Customer {
    Customer {
        identity: Identity::Individual(Individual::default()),
        kyc: Kyc::first(KycStatus::PendingReview),
        ..customer(number, platform)
    }
}

/// A business with everything that is optional, one owner with and one without.
pub fn business(number: u128, platform: u128) -> Customer {
    let bare = BeneficialOwner {
        full_name: format!("Bo {CANARY}"),
        individual_type: "DIRECTOR",
        email_address: None,
        phone_number: None,
        tax_id: None,
        birth_date: None,
        nationality: None,
        address: None,
        percentage_ownership: None,
        title: None,
    };
    let person = person();
    let whole = BeneficialOwner {
        individual_type: "TRUSTEE",
        email_address: Some(format!("{CANARY}@example.com")),
        phone_number: Some("+4930123456".to_owned()),
        tax_id: Some(format!("T-{CANARY}")),
        birth_date: person.birth_date,
        nationality: person.nationality,
        address: person.address.clone(),
        percentage_ownership: Some(Decimal::new(255, 1)),
        title: Some("Chair".to_owned()),
        ..bare.clone()
    };
    Customer {
        identity: Identity::Business(Business {
            legal_name: format!("Works {CANARY}"),
            registration_number: Some(format!("HRB-{CANARY}")),
            tax_id: Some("DE1".to_owned()),
            address: person.address,
            beneficial_owners: vec![bare, whole],
            contact: contact(),
        }),
        ..customer(number, platform)
    }
}

fn info(
    kind: &str,
    fields: &[(&str, &str)],
    rails: Option<&[&str]>,
    beneficiary: Option<BeneficiaryDraft>,
) -> AccountInfo {
    let mut fields: BTreeMap<_, _> =
        fields.iter().map(|(name, text)| ((*name).to_owned(), FieldValue::from(*text))).collect();
    let tags = FieldValue::List(vec!["a".to_owned(), CANARY.to_owned()]);
    fields.insert("tags".to_owned(), tags);
    let rails = rails.map(|rails| rails.iter().map(|rail| (*rail).to_owned()).collect());
    AccountInfo::new(AccountType::from_name(kind).unwrap(), fields, rails, beneficiary).unwrap()
}

fn beneficiary() -> BeneficiaryDraft {
    BeneficiaryDraft {
        beneficiary_type: Some("INDIVIDUAL".to_owned()),
        full_name: Some(format!("Bea {CANARY}")),
        birth_date: Some("1985-01-02".to_owned()),
        nationality: Some("US".to_owned()),
        tax_id: Some(format!("X-{CANARY}")),
        email: Some(format!("{CANARY}@mail.example")),
        phone_number: Some("+12025550123".to_owned()),
        country_of_residence: Some("US".to_owned()),
        address: Some(address()),
        ..BeneficiaryDraft::default()
    }
}

/// An account number that no plain column may show.
pub const ACCOUNT_NUMBER: &str = "73190046281";

/// A bank account with everything that is optional.
pub fn usd_account(number: u128, platform: u128, owner: Owner) -> ExternalAccount {
    let fields = [
        ("accountNumber", ACCOUNT_NUMBER),
        ("routingNumber", "021000021"),
        ("accountCategory", "CHECKING"),
    ];
    ExternalAccount {
        id: account_id(number),
        platform: platform_id(platform),
        owner,
        status: external_account::Status::Active,
        currency: currency("USD"),
        platform_account_id: Some(format!("own-{CANARY}")),
        info: info("USD_ACCOUNT", &fields, Some(&["WIRE", "ACH"]), Some(beneficiary())),
        is_removed: false,
        crypto_network: None,
        verification: Some(Verification::Matched),
        holder_name: Some(format!("Ada {CANARY}")),
        created_at: at(number as i64),
        updated_at: at(number as i64),
    }
}

/// A bank account of a business.
pub fn eur_account(number: u128, platform: u128, owner: Owner) -> ExternalAccount {
    let holder = BeneficiaryDraft {
        beneficiary_type: Some("BUSINESS".to_owned()),
        legal_name: Some(format!("Works {CANARY}")),
        registration_number: Some("HRB1".to_owned()),
        ..BeneficiaryDraft::default()
    };
    let fields = [("iban", "DE89370400440532013000")];
    ExternalAccount {
        currency: currency("EUR"),
        platform_account_id: None,
        info: info("EUR_ACCOUNT", &fields, None, Some(holder)),
        verification: None,
        holder_name: None,
        ..usd_account(number, platform, owner)
    }
}

/// A wallet without a beneficiary.
pub fn wallet(number: u128, platform: u128, owner: Owner) -> ExternalAccount {
    let fields =
        [("address", "spark1pgssy7d7vel0nh9m4326qc54e6rskpczn07dktww9rv4nu5ptvt0s9uc489gg2")];
    ExternalAccount {
        currency: currency("BTC"),
        status: external_account::Status::Inactive,
        is_removed: true,
        info: info("SPARK_WALLET", &fields, None, None),
        crypto_network: Some("SPARK_MAINNET".to_owned()),
        ..eur_account(number, platform, owner)
    }
}

pub fn lookup_id(number: u128) -> LookupId {
    LookupId::from_uuid(drawn(number as i64, 0x2_0000 + number))
}

/// A lookup of an address at another institution by the platform's customer.
pub fn lookup(number: u128, platform: u128, sender: u128) -> Lookup {
    let offer = |code, msat_per_unit| Offer {
        currency: currency(code),
        min_minor: 1,
        max_minor: 9_000,
        msat_per_unit,
    };
    let address = peer();
    Lookup {
        id: lookup_id(number),
        platform: platform_id(platform),
        sender: customer_id(sender),
        receiver: Receiver::Peer {
            address,
            way: PayWay {
                callback: format!("https://peer.example/{CANARY}"),
                version: "1.0".to_owned(),
                is_subject_to_travel_rule: true,
                comment_max: 500,
            },
        },
        offers: vec![offer("EUR", Some(Decimal::new(115_500_007, 4))), offer("USD", None)],
        payer_fields: vec![
            CounterpartyField { name: "FULL_NAME", mandatory: true },
            CounterpartyField { name: "BIRTH_DATE", mandatory: false },
        ],
        expires_at: at(number as i64).plus_millis(LIFETIME_MILLIS),
    }
}

/// An account that holds nothing but a currency, as a source.
pub fn from(account: AccountRef, code: &str) -> Source {
    Source::Account { account, currency: currency(code) }
}

pub fn to(account: AccountRef, code: &str) -> Destination {
    Destination::Account { account, currency: currency(code) }
}

/// A deposit to a customer's account: what has no source, no fees and no memo.
pub fn deposit(
    number: u128,
    platform: u128,
    customer: u128,
    minor: i64,
    code: &str,
) -> Transaction {
    let owner = Owner::Customer(customer_id(customer));
    let draft = transaction::Draft {
        id: transaction_id(number),
        platform: platform_id(platform),
        owner,
        platform_customer_id: format!("user-{customer}"),
        direction: Direction::Incoming,
        source: None,
        destination: to(AccountRef::Internal(internal(owner, code)), code),
        sent: None,
        received: Receiving(money(minor, code)),
        terms: None,
        uma: None,
        description: None,
        rail_request: RailRequest::default(),
    };
    Transaction::pending(draft)
}

/// A transfer to an external account, with a memo.
pub fn transfer_out(number: u128, customer: u128, account: u128, minor: i64) -> Transaction {
    let owner = Owner::Customer(customer_id(customer));
    let draft = transaction::Draft {
        direction: Direction::Outgoing,
        source: Some(from(AccountRef::Internal(internal(owner, "USD")), "USD")),
        destination: to(AccountRef::External(account_id(account)), "USD"),
        sent: Some(Sending(money(minor, "USD"))),
        description: Some(format!("memo {CANARY}")),
        rail_request: RailRequest {
            remittance: Some(format!("invoice {CANARY}")),
            purpose: Some("GOODS_OR_SERVICES"),
            rail: Some(Rail::Ach),
        },
        ..deposit(number, 1, customer, minor, "USD").draft().clone()
    };
    Transaction::pending(draft)
}

/// When quotes of the tests are over, in seconds after they were made.
pub const QUOTE_SECONDS: i64 = 300;

/// A quote of the first platform that sends dollars for euros, with its transaction.
pub fn quote(
    number: u128,
    customer: u128,
    source: Source,
    destination: AccountRef,
) -> (Quote, Transaction) {
    let (usd, eur) = (currency("USD"), currency("EUR"));
    let sent = Sending(money(10_000, "USD"));
    let fees = Fees::new(100, Decimal::new(5, 3)).unwrap();
    let rate = Rate::new(Decimal::new(108_695_652, 8), usd, eur).unwrap();
    let locked = Locked::Sending(sent);
    let price = price(locked, rate, fees).unwrap();
    let owner = Owner::Customer(customer_id(customer));
    let rate_details = RateDetails {
        fixed_fee: price.fixed_fee,
        variable_fee: price.variable_fee,
        variable_fee_rate: fees.variable_rate(),
        counterparty_fee: money(0, "EUR"),
        multipliers: Multipliers::of(rate, fees, Decimal::new(10_000, 0)),
    };
    let destination = Destination::Account { account: destination, currency: eur };
    let quote = quote::Draft {
        id: quote_id(number),
        platform: platform_id(1),
        owner,
        transaction: transaction_id(number),
        source: source.clone(),
        destination: destination.clone(),
        locked,
        price,
        rate_details,
        basis: RateBasis {
            mid: rate.value(),
            as_of: at(number as i64),
            source: RateSource::RatesFile,
            spread: Decimal::ZERO,
            rule: PriceRule::Platform,
        },
        expires_at: at(number as i64 + QUOTE_SECONDS),
        purpose: Some("GIFT"),
        uma: None,
    };
    let transaction = transaction::Draft {
        id: transaction_id(number),
        platform: platform_id(1),
        owner,
        platform_customer_id: format!("user-{customer}"),
        direction: Direction::Outgoing,
        source: Some(source),
        destination,
        sent: Some(price.sent),
        received: price.received,
        terms: Some(Terms {
            quote: quote_id(number),
            rate,
            fees: price.total_fees(),
            rate_details,
        }),
        uma: None,
        description: Some(format!("memo {CANARY}")),
        rail_request: RailRequest::default(),
    };
    (Quote::pending(quote), Transaction::pending(transaction))
}

/// The code of an invitation.
pub fn code(number: u8) -> Code {
    Code::of_random([number; CODE_LENGTH])
}

/// The claim of a platform to a domain of its own.
pub fn domain_claim(platform: u128) -> DomainClaim {
    let domain = UmaDomain::parse(&format!("platform{platform}.example")).unwrap();
    DomainClaim { domain, platform: platform_id(platform) }
}

/// An institution that a platform knows, with everything about it.
pub fn uma_peer(number: u128, platform: u128) -> UmaPeer {
    let domain = UmaDomain::parse(&format!("bank{number}.example")).unwrap();
    UmaPeer {
        rule: Rule::Blocked,
        keys: Some(PeerKeys {
            signing_hex: "04aa".to_owned(),
            encryption_hex: "04bb".to_owned(),
            until: at(900),
        }),
        open_payments: 3,
        last: Some(Exchange {
            request: "PAY_REQUEST",
            outcome: "INVALID_NONCE".to_owned(),
            at: at(800),
            millis: 12,
            version: Some("1.0".to_owned()),
        }),
        ..UmaPeer::new(platform_id(platform), domain, at(700))
    }
}

/// A matter about a payment of the first platform.
pub fn attention(kind: attention::Kind, payment: u128) -> Attention {
    let notice = Notice { at: at(700), count: 2, note: format!("silent {CANARY}") };
    Attention::open(kind, transaction_id(payment).uuid(), platform_id(1), notice)
}

/// The end of a matter.
pub fn resolved_matter() -> attention::Event {
    attention::Event::Resolved(Resolution {
        at: at(800),
        by: format!("ops {CANARY}"),
        reason: format!("asked the bank {CANARY}"),
        outcome: attention::Outcome::Settled,
    })
}

/// An invitation of the first platform's first customer, with everything that is optional.
pub fn invitation(number: u8) -> Invitation {
    Invitation::pending(invitation::Draft {
        id: keyring().invitation(&code(number)),
        code: code(number),
        platform: platform_id(1),
        inviter: customer_id(1),
        inviter_uma: uma_address(1),
        first_name: Some(format!("Ada {CANARY}")),
        amount_to_send: Some(money(5_000, "USD")),
        expires_at: Some(at(900)),
        created_at: at(700),
    })
}

/// An invitation with nothing that is optional.
pub fn bare_invitation(number: u8) -> Invitation {
    let draft = invitation(number).draft().clone();
    Invitation::pending(invitation::Draft {
        first_name: None,
        amount_to_send: None,
        expires_at: None,
        ..draft
    })
}

/// An invitation after one event.
pub fn ended_invitation(number: u8, event: invitation::Event) -> Moved<Invitation> {
    invitation(number).apply(event, at(800)).unwrap()
}

/// An import of the first platform with two parts of one row each; one of the rows is wrong.
pub fn bulk_import(number: u128) -> (BulkImport, [Part; 2]) {
    let id = JobId::from_uuid(uuid(number));
    let draft = bulk_import::Draft { id, platform: platform_id(1), total: 2, parts: 2 };
    let right = NewRow {
        platform_customer_id: format!("name-{CANARY}"),
        uma_address: "$x@uma.example.com".to_owned(),
        identity: business(1, 1).identity,
    };
    let wrong = Err(format!("{{\"code\":\"{CANARY}\"}}"));
    let part = |number, content| {
        let rows = vec![bulk_import::Row { label: format!("row-{CANARY}"), content }];
        Part { import: id, number, content: PartContent::Waiting(rows) }
    };
    (BulkImport::pending(draft), [part(0, Ok(right)), part(1, wrong)])
}

/// A part after it was gone through.
pub fn done_part(part: Part) -> Part {
    let refused = Refusal { label: format!("row-{CANARY}"), body: "{}".to_owned() };
    Part { content: PartContent::Done(vec![refused]), ..part }
}

/// The event about the end of an import.
pub fn event_of_import(import: &BulkImport) -> Event {
    let (resource, number) = (import.id().uuid(), 1);
    Event {
        id: event_id(resource, number),
        platform: import.draft().platform,
        kind: EventKind::BulkUpload,
        resource,
        number,
        at: import.progress().updated_at,
        body: body(resource, number),
    }
}

/// An approval request to a platform about an incoming payment.
pub fn approval(number: u128, platform: u128) -> Approval {
    Approval::asked(transaction_id(number), platform_id(platform), at(230))
}

/// An open check of a customer of the first platform, with everything that is optional.
pub fn identity_check(number: u8, customer: u128) -> IdentityCheck {
    IdentityCheck::open(CheckDraft {
        id: keyring().identity_check(&code(number)),
        code: code(number),
        platform: platform_id(1),
        customer: customer_id(customer),
        redirect_uri: Some(format!("https://example.com/{CANARY}")),
        expires_at: at(900),
        created_at: at(700),
    })
}

/// A person whose identity the operator has refused, after a check had.
pub fn refused_customer(number: u128) -> Customer {
    let first = Kyc::first(KycStatus::PendingReview);
    let rejected = first.apply(kyc::Event::Rejected).unwrap().into_now();
    let kyc = rejected.apply(kyc::Event::ManuallyRejected).unwrap().into_now();
    Customer { kyc, ..customer(number, 1) }
}

/// An event about what is known of a customer.
pub fn event_of_kyc(customer: &Customer, number: u32) -> Event {
    let resource = customer.id.uuid();
    Event {
        id: event_id(resource, number),
        platform: customer.platform,
        kind: EventKind::KycStatus,
        resource,
        number,
        at: at(800),
        body: body(resource, number),
    }
}

/// The event about the claim of an invitation.
pub fn event_of_claim(invitation: &Invitation) -> Event {
    let (resource, number) = (invitation.id().uuid(), 1);
    Event {
        id: event_id(resource, number),
        platform: invitation.draft().platform,
        kind: EventKind::InvitationClaimed,
        resource,
        number,
        at: invitation.claim().unwrap().1,
        body: body(resource, number),
    }
}

/// The amount of the invoice over Lightning.
pub const MSAT: i64 = 927_000_000;

/// A quote of the first platform to a UMA address, over Lightning or to the customer here, with its
/// transaction. It stands on a lookup with its number.
pub fn uma_quote(
    number: u128,
    customer: u128,
    source: Source,
    payee: Option<u128>,
) -> (Quote, Transaction) {
    let nowhere = AccountRef::Internal(customer_account(customer, "EUR"));
    let (quote, transaction) = quote(number, customer, source, nowhere);
    let (mut quote, mut transaction) = (quote.draft().clone(), transaction.draft().clone());
    let (address, route, settlement) = match payee {
        Some(payee) => (
            uma_address(payee),
            quote::Route::Here { customer: customer_id(payee) },
            Settlement::Here { outgoing: None },
        ),
        None => {
            let msat = Money::new(MSAT, Currency::MSAT).unwrap();
            let invoice = format!("lnbc-{CANARY}");
            let address = peer();
            let route = quote::Route::Lightning { invoice, msat };
            (address, route, Settlement::Lightning { msat })
        }
    };
    let payer = Facts::from([("FULL_NAME", format!("Ada {CANARY}"))]);
    let destination = Destination::Uma { address: address.clone(), currency: currency("EUR") };
    (quote.destination, transaction.destination) = (destination.clone(), destination);
    quote.uma = Some(quote::Uma {
        lookup: lookup_id(number),
        sender: uma_address(customer),
        payer: payer.clone(),
        route,
    });
    transaction.uma = Some(transaction::Uma {
        sender: uma_address(customer),
        receiver: address,
        counterparty: payer,
        settlement,
        rate_details: None,
        conversion: None,
        payee: AboutPayee::default(),
        callback: Some(format!("https://peer.example/{CANARY}")),
    });
    (Quote::pending(quote), Transaction::pending(transaction))
}

/// A payment to the address of a customer of a platform, over Lightning or from another payment.
pub fn uma_in(
    number: u128,
    platform: u128,
    customer: u128,
    received: Money,
    outgoing: Option<u128>,
) -> Transaction {
    let code = received.currency();
    let sender = peer();
    let msat = Money::new(MSAT, Currency::MSAT).unwrap();
    let settlement = match outgoing {
        Some(number) => Settlement::Here { outgoing: Some(transaction_id(number)) },
        None => Settlement::Lightning { msat },
    };
    let variable_fee = Money::new(20, code).unwrap();
    let draft = transaction::Draft {
        source: Some(Source::Uma { address: sender.clone() }),
        uma: Some(transaction::Uma {
            sender,
            receiver: uma_address(customer),
            counterparty: Facts::from([("FULL_NAME", format!("Bo {CANARY}"))]),
            settlement,
            rate_details: Some(RateDetails {
                fixed_fee: Money::zero(code),
                variable_fee,
                variable_fee_rate: Decimal::new(3, 3),
                counterparty_fee: Money::zero(code),
                multipliers: None,
            }),
            conversion: None,
            payee: AboutPayee {
                asked: vec![CounterpartyField { name: "FULL_NAME", mandatory: true }],
                given: Facts::from([("FULL_NAME", format!("Cy {CANARY}"))]),
            },
            callback: Some(format!("https://peer.example/{CANARY}")),
        }),
        ..deposit(number, platform, customer, received.minor(), code.code()).draft().clone()
    };
    Transaction::pending(draft)
}

/// A payment to a customer's address, into an account outside: in the currency that was received,
/// or converted, with fees.
pub fn into_account(received: Transaction, account: u128, converted: Option<Money>) -> Transaction {
    let mut draft = received.draft().clone();
    let currency = converted.map_or(draft.received.currency(), Money::currency);
    let account = AccountRef::External(account_id(account));
    draft.destination = Destination::Account { account, currency };
    let conversion = |deposited: Money| Conversion {
        deposited,
        rate: Rate::new(Decimal::new(92, 2), draft.received.currency(), currency).unwrap(),
        fees: Money::new(10, draft.received.currency()).unwrap(),
    };
    draft.uma.as_mut().unwrap().conversion = converted.map(conversion);
    Transaction::pending(draft)
}

/// The bytes of an event.
fn body(resource: Uuid, number: u32) -> Vec<u8> {
    let id = event_id(resource, number);
    format!(r#"{{"id":"{id}","change":{number},"memo":"{CANARY}"}}"#).into_bytes()
}

/// The event about a transaction's latest change.
pub fn event(transaction: &Transaction) -> Event {
    let (resource, number) = (transaction.id().uuid(), transaction.version());
    Event {
        id: event_id(resource, number),
        platform: transaction.draft().platform,
        kind: match transaction.draft().direction {
            Direction::Incoming => EventKind::IncomingPayment,
            Direction::Outgoing => EventKind::OutgoingPayment,
        },
        resource,
        number,
        at: transaction.updated_at(),
        body: body(resource, number),
    }
}

/// Every event about something of the first platform's, in the order in which they were committed.
pub fn events_of(view: &mut View<'_>, resource: Uuid) -> Result<Vec<Event>> {
    let feed = view.feed(platform_id(1), 0, None, u32::MAX)?;
    let events = feed.events.into_iter().map(|numbered| numbered.event);
    Ok(events.filter(|event| event.resource == resource).collect())
}

/// Adds a transaction and its event.
pub fn begin(unit: &mut Unit<'_, '_>, transaction: Transaction) -> Result {
    unit.add_event(event(&transaction))?;
    unit.count_payment(false, &transaction)?;
    unit.put(transaction);
    Ok(())
}

/// Adds the events of the balances that the unit has changed.
pub fn tell_balances(unit: &mut Unit<'_, '_>) -> Result {
    for change in unit.tell_balances() {
        let (resource, number) = (change.account.uuid(), change.row.notified.times);
        let elsewhere = customer_account(3, "USD").owner_uuid();
        let platform = if change.account.owner_uuid() == elsewhere { 2 } else { 1 };
        unit.add_event(Event {
            id: event_id(resource, number),
            platform: platform_id(platform),
            kind: EventKind::AccountStatus,
            resource,
            number,
            at: change.row.updated_at,
            body: body(resource, number),
        })?;
    }
    Ok(())
}

/// Moves transactions and adds their events.
pub fn advance(
    unit: &mut Unit<'_, '_>,
    number: u128,
    events: &[transaction::Event],
    now: Timestamp,
) -> Result {
    for step in events {
        let transaction = unit.get::<Transaction>(&transaction_id(number))?.unwrap();
        let moved = Transaction::clone(&transaction).apply(step.clone(), now).unwrap();
        unit.add_event(event(moved.now()))?;
        unit.count_payment(is_counted(&transaction), moved.now())?;
        unit.put_moved(moved);
    }
    Ok(())
}

/// How far a payment has come.
fn steps_of(payment: &Transaction) -> u64 {
    match payment.status() {
        transaction::Status::Pending => 0,
        transaction::Status::Processing => 1,
        _ => 2,
    }
}

/// Payments that one store changes before the next does: enough for something to be remembered.
const CHANGED_IN_A_ROW: usize = 4;

/// Makes payments of the first customer, and changes them on each of the stores in turn while
/// readers read them there. No reader sees less than what was answered before, or than it saw the
/// last time.
pub async fn change_while_read(stores: &[&Store], payments: usize, readers: usize) {
    let numbers = move || (1..).take(payments);
    let deposits = move |unit: &mut Unit<'_, '_>| {
        numbers().try_for_each(|number| begin(unit, deposit(number, 1, 1, 100, "USD")))
    };
    stores[0].write(origin(), deposits).await.unwrap();
    let answered: Arc<Vec<_>> = Arc::new((0..payments).map(|_| AtomicU64::new(0)).collect());
    let mut reading = tokio::task::JoinSet::new();
    for reader in 0..readers {
        let (store, answered) = (stores[reader % stores.len()].clone(), Arc::clone(&answered));
        reading.spawn(async move {
            let mut seen = vec![0; payments];
            while seen.iter().any(|steps| *steps < 2) {
                for place in (0..payments).map(|place| (place + 5 * reader) % payments) {
                    let least = seen[place].max(answered[place].load(Ordering::Acquire));
                    let id = transaction_id(place as u128 + 1);
                    let payment = store.get::<Transaction>(id).await.unwrap().unwrap();
                    seen[place] = steps_of(&payment);
                    assert!(seen[place] >= least, "{} and not {least}", seen[place]);
                }
            }
        });
    }
    for event in [transaction::Event::Started, transaction::Event::Settled] {
        for (place, number) in numbers().enumerate() {
            let store = stores[place / CHANGED_IN_A_ROW % stores.len()];
            let changed = {
                let event = event.clone();
                store
                    .write(origin(), move |unit| {
                        advance(unit, number, std::slice::from_ref(&event), at(2))
                    })
                    .await
            };
            changed.unwrap();
            answered[place].fetch_add(1, Ordering::AcqRel);
        }
    }
    while let Some(done) = reading.join_next().await {
        done.unwrap();
    }
}

/// Moves a quote.
pub fn advance_quote(
    unit: &mut Unit<'_, '_>,
    number: u128,
    events: &[quote::Event],
    now: Timestamp,
) -> Result {
    for step in events {
        let quote = unit.get::<Quote>(&quote_id(number))?.unwrap();
        unit.put_moved(Quote::clone(&quote).apply(*step, now).unwrap());
    }
    Ok(())
}

/// The file of the journal beside that of the tables.
pub fn journal_of(path: &std::path::Path) -> std::path::PathBuf {
    path.with_added_extension("journal")
}

/// Opens the files of a database behind the store's back.
pub fn open_files(path: &std::path::Path) -> rusqlite::Result<rusqlite::Connection> {
    let connection = rusqlite::Connection::open(path)?;
    let journal = journal_of(path);
    if journal.exists() {
        connection.execute("attach $1 as journal", [journal.to_str()])?;
    }
    Ok(connection)
}

/// The plan of a statement on a server, made once for all values of its parameters, without what is
/// `off`.
pub fn plan_on_server(database: &Database, off: &str, sql: &str) -> String {
    let parameters = sql.split('$').skip(1).map(|part| {
        let digits = part.find(|c: char| !c.is_ascii_digit()).unwrap_or(part.len());
        part[..digits].parse().unwrap()
    });
    let unknown = vec!["null"; parameters.max().unwrap_or(0)].join(", ");
    let off: String = off.split(' ').map(|name| format!("set {name} = off; ")).collect();
    let plan = format!(
        "set plan_cache_mode = force_generic_plan; set max_parallel_workers_per_gather = 0; {off} \
         prepare statement as {sql}; explain (costs off) execute statement({unknown})"
    );
    database.query(&plan).unwrap()
}
