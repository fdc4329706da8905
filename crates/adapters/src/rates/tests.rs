use domain::account_info::has_rail;
use domain::money::{Money, Receiving, Sending};
use domain::pricing::{Fees, Locked, price};
use rust_decimal::prelude::ToPrimitive as _;

use super::*;

/// By the survey of the Bank for International Settlements, but for those that are euros by now.
const MOST_TRADED: [&str; 40] = [
    "USD", "EUR", "JPY", "GBP", "CNY", "AUD", "CAD", "CHF", "HKD", "SGD", "SEK", "KRW", "NOK",
    "NZD", "INR", "MXN", "TWD", "ZAR", "BRL", "DKK", "PLN", "THB", "ILS", "IDR", "CZK", "AED",
    "TRY", "HUF", "CLP", "SAR", "PHP", "MYR", "COP", "RUB", "RON", "PEN", "BHD", "ARS", "KWD",
    "VND",
];

const NOW: Timestamp = Timestamp::from_millis(1_763_683_200_000);

fn currency(code: &str) -> Currency {
    Currency::from_code(code).expect("known currency")
}

fn decimal(text: &str) -> Decimal {
    text.parse().expect("decimal")
}

/// The currencies of the built-in table.
fn named() -> Vec<Currency> {
    builtin_table().currencies().collect()
}

fn pairs() -> impl Iterator<Item = (Currency, Currency)> {
    let receivers = named();
    let pairs_of = move |sending| receivers.clone().into_iter().map(move |it| (sending, it));
    named().into_iter().flat_map(pairs_of)
}

fn worth(table: &PriceTable, currency: Currency) -> Decimal {
    table.asset(currency).expect("the table names it").usd_per_unit
}

fn mid(rates: &FixedRates, sending: Currency, receiving: Currency) -> Decimal {
    rates.mid(sending, receiving, NOW).expect("a fixed table has every rate").value
}

/// The smallest units of `currency` in one whole unit.
fn units(currency: Currency) -> Decimal {
    Decimal::from(10_u64.pow(currency.decimals().into()))
}

/// The table says `spread`, `fixed_fee_minor` and `variable_fee_rate` of a corridor.
fn check(rates: &FixedRates, from: &str, to: &str, expected: (&str, i64, &str)) {
    let (spread, fixed_fee_minor, variable_fee_rate) = expected;
    let expected = CorridorTerms {
        spread: decimal(spread),
        fixed_fee_minor,
        variable_fee_rate: decimal(variable_fee_rate),
    };
    let terms = rates.terms(currency(from), currency(to));
    assert_eq!(terms, Ok(expected), "{from} to {to}");
}

#[test]
fn the_built_in_table_has_what_rails_move_and_what_is_traded_most() {
    // Reading it without a table below fails when anything is missing.
    PriceTable::read(include_str!("builtin.json"), None).expect("complete");
    let rates = FixedRates::builtin();
    assert_eq!(rates.corridors.len(), named().len().pow(2));
    for currency in Currency::all().filter(|currency| has_rail(*currency)) {
        assert!(rates.names(currency), "{currency}");
    }
    for code in MOST_TRADED {
        assert!(rates.names(currency(code)), "{code}");
    }
    assert_eq!(FixedRates::builtin().written_at().to_string(), "2025-11-21T00:00:00.000Z");
}

#[test]
fn built_in_fixed_fees_are_worth_about_half_a_dollar() {
    let table = builtin_table();
    let dollars = currency("USD");
    for sending in named().into_iter().filter(|sending| *sending != dollars) {
        let terms = table.terms(sending, dollars);
        let worth =
            Decimal::from(terms.fixed_fee_minor) / units(sending) * self::worth(&table, sending);
        assert!((decimal("0.45")..decimal("0.55")).contains(&worth), "{sending}: {worth}");
    }
}

#[test]
fn terms_are_the_defaults_and_nothing_within_one_currency() {
    let rates = FixedRates::builtin();
    check(&rates, "USD", "EUR", ("0.005", 50, "0.003"));
    check(&rates, "BTC", "USD", ("0.005", 500, "0.003"));
    for same in named() {
        check(&rates, same.code(), same.code(), ("0", 0, "0"));
        assert_eq!(mid(&rates, same, same), Decimal::ONE);
    }
}

#[test]
fn a_rate_is_what_the_receiving_unit_costs_in_sending_units() {
    let rates = FixedRates::builtin();
    let (dollars, euros, bitcoin) = (currency("USD"), currency("EUR"), currency("BTC"));
    assert_eq!(mid(&rates, dollars, euros), decimal("1.155"));
    assert_eq!(mid(&rates, dollars, bitcoin), decimal("100000"));
    assert_eq!(mid(&rates, bitcoin, dollars), decimal("0.00001"));
    let as_of = rates.mid(dollars, euros, NOW.plus_millis(5)).map(|mid| mid.as_of);
    assert_eq!(as_of, Ok(NOW), "of the table, and not of now");
}

#[test]
fn there_and_back_is_one() {
    let rates = FixedRates::builtin();
    for (sending, receiving) in pairs() {
        let product = mid(&rates, sending, receiving) * mid(&rates, receiving, sending);
        let error = (product - Decimal::ONE).abs();
        assert!(error < decimal("0.000000000000001"), "{sending} to {receiving}: {product}");
    }
}

#[test]
fn a_hundred_dollars_have_a_price_in_every_corridor() {
    let rates = FixedRates::builtin();
    let table = builtin_table();
    let usd_per_unit = |currency: Currency| worth(&table, currency);
    for (sending, receiving) in pairs() {
        let terms = rates.terms(sending, receiving).expect("a price");
        let offered = mid(&rates, sending, receiving) * (Decimal::ONE + terms.spread);
        let rate = Rate::new(offered, sending, receiving).expect("rate");
        let fees = Fees::new(terms.fixed_fee_minor, terms.variable_fee_rate).expect("fees");
        let minor = decimal("100") / usd_per_unit(sending) * units(sending);
        let minor = minor.trunc().to_i64().expect("a hundred dollars are not much");
        let locked = Locked::Sending(Sending(Money::positive(minor, sending).expect("amount")));
        let price = price(locked, rate, fees)
            .unwrap_or_else(|error| panic!("{sending} to {receiving}: {error}"));
        let received =
            Decimal::from(price.received.minor()) / units(receiving) * usd_per_unit(receiving);
        let (least, most) = if sending == receiving { ("99.99", "100") } else { ("98.4", "98.8") };
        let expected = decimal(least)..=decimal(most);
        assert!(expected.contains(&received), "{sending} to {receiving}: {received}");
    }
}

#[test]
fn a_file_changes_only_what_it_names() {
    let rates = FixedRates::from_json(
        r#"{
            "asOf": "2026-01-02T03:04:05Z",
            "defaults": { "variableFeeRate": "0.01" },
            "currencies": { "EUR": { "usdPerUnit": "1.25" }, "GBP": { "fixedFee": 7 } }
        }"#,
    )
    .expect("valid");
    assert_eq!(rates.written_at().to_string(), "2026-01-02T03:04:05.000Z");
    assert_eq!(mid(&rates, currency("USD"), currency("EUR")), decimal("1.25"));
    check(&rates, "EUR", "USD", ("0.005", 45, "0.01"));
    check(&rates, "GBP", "USD", ("0.005", 7, "0.01"));
    check(&rates, "EUR", "EUR", ("0", 0, "0"));
    let same = FixedRates::from_json("{}").expect("a table");
    assert!(same.corridors == FixedRates::builtin().corridors && !same.is_dated());
}

#[test]
fn the_first_corridor_that_says_something_decides_each_field() {
    let rates = FixedRates::from_json(
        r#"{ "corridors": [
            { "from": "USD", "to": "EUR", "spread": "0.001" },
            { "from": "USD", "spread": "0.002", "fixedFee": 10 },
            { "to": "EUR", "variableFeeRate": "0", "spread": "0.004" },
            { "from": "USD", "to": "EUR", "fixedFee": 99, "variableFeeRate": "0.5" },
            { "spread": "0.006" },
            { "from": "GBP", "to": "GBP", "fixedFee": 3 }
        ] }"#,
    )
    .expect("valid");
    check(&rates, "USD", "EUR", ("0.001", 10, "0"));
    check(&rates, "USD", "MXN", ("0.002", 10, "0.003"));
    check(&rates, "MXN", "EUR", ("0.004", 900, "0"));
    check(&rates, "MXN", "BRL", ("0.006", 900, "0.003"));
    check(&rates, "GBP", "GBP", ("0", 3, "0"));
    check(&rates, "USD", "USD", ("0", 0, "0"));
}

#[test]
fn a_file_can_name_any_currency_of_iso_4217() {
    let [krona, dinar] = ["ISK", "TND"].map(currency);
    let builtin = FixedRates::builtin();
    assert!(!builtin.names(krona) && builtin.mid(krona, dinar, NOW).is_err());
    let why = WhyNoRate::NotNamed;
    let none = NoRate { sending: krona, receiving: dinar, why };
    assert_eq!(builtin.terms(krona, dinar), Err(none));
    let rates = FixedRates::from_json(
        r#"{ "currencies": {
            "ISK": { "usdPerUnit": "0.0078", "fixedFee": 64 },
            "TND": { "usdPerUnit": "0.339", "fixedFee": 1475 }
        } }"#,
    )
    .expect("valid");
    assert!(rates.names(krona) && rates.names(dinar));
    check(&rates, "ISK", "TND", ("0.005", 64, "0.003"));
    check(&rates, "ISK", "ISK", ("0", 0, "0"));
    assert!(rates.mid(krona, dinar, NOW).is_ok());
    refuse(
        r#"{ "currencies": { "ISK": { "usdPerUnit": "1" } } }"#,
        "currencies.ISK.fixedFee is missing",
    );
    refuse(r#"{ "currencies": { "ISK": {} } }"#, "currencies.ISK.usdPerUnit is missing");
}

#[test]
fn what_is_locked_costs_the_least_that_delivers_in_every_pair() {
    let rates = FixedRates::builtin();
    for (sending, receiving) in pairs() {
        let terms = rates.terms(sending, receiving).expect("a price");
        let offered = mid(&rates, sending, receiving) * (Decimal::ONE + terms.spread);
        let rate = Rate::new(offered, sending, receiving).expect("rate");
        let fees = Fees::new(terms.fixed_fee_minor, terms.variable_fee_rate).expect("fees");
        // The rate as it is printed, and what the figures that are shown give.
        let printed: Decimal = rate.value().to_string().parse().expect("digits");
        let k = Rate::new(printed, sending, receiving).and_then(Rate::per_smallest_unit);
        let k = k.expect("exact");
        let variable = terms.variable_fee_rate * decimal("1000000");
        let gives = |sent: i128| {
            let variable_fee =
                (sent * variable.mantissa() / 10_i128.pow(variable.scale()) + 500_000) / 1_000_000;
            (sent - i128::from(terms.fixed_fee_minor) - variable_fee) * k.den / k.num
        };
        for minor in [1, 7, 99, 1_001, 86_543, 92_000, 7_777_777, 123_456_789_012] {
            let money = Money::positive(minor, receiving).expect("amount");
            let what = format!("{minor} from {sending} to {receiving}");
            let Ok(price) = price(Locked::Receiving(Receiving(money)), rate, fees) else {
                continue;
            };
            let (sent, wanted) = (i128::from(price.sent.minor()), i128::from(minor));
            assert_eq!(price.received.minor(), minor, "{what}");
            assert!(gives(sent) >= wanted && gives(sent - 1) < wanted, "{what}: {sent}");
            let sent = Locked::Sending(price.sent);
            let same = self::price(sent, rate, fees).expect("it was a price");
            assert_eq!(
                i128::from(same.received.minor()),
                gives(price.sent.minor().into()),
                "{what}"
            );
            assert_eq!(same.total_fees(), price.total_fees(), "{what}");
        }
    }
}

/// `text` is refused with a line that has `expected` in it.
fn refuse(text: &str, expected: &str) {
    let error = FixedRates::from_json(text).expect_err(text).to_string();
    assert!(error.starts_with("rates: "), "{error}");
    assert!(error.contains(expected), "{error}\ndoes not say\n{expected}");
    assert!(!error.contains('\n'), "{error}");
}

#[test]
fn what_is_wrong_is_named() {
    refuse("", "EOF while parsing a value at line 1 column 0");
    refuse(r#"{ "spread": "0.1" }"#, "unknown field `spread`");
    refuse(r#"{ "asOf": "yesterday" }"#, "asOf is \"yesterday\", but must be a date-time such as");
    refuse(r#"{ "asOf": "2025-11-21" }"#, "asOf is \"2025-11-21\", but must");
    refuse(r#"{ "defaults": { "sprad": "0" } }"#, "defaults: unknown field `sprad`");
    refuse(r#"{ "defaults": { "spread": 0.005 } }"#, "defaults.spread is 0.005, but must be a");
    for wrong in ["1", "-0.1", "0.0000001", "", "1e-3", "half"] {
        let expected = format!("defaults.spread is \"{wrong}\", but must be a decimal in quotes");
        refuse(&format!(r#"{{ "defaults": {{ "spread": "{wrong}" }} }}"#), &expected);
    }
    refuse(
        r#"{ "defaults": { "variableFeeRate": "1" } }"#,
        "defaults.variableFeeRate: fees need a fixed part from 0 to 9000000000000000 and a \
         variable rate from 0 to below 1",
    );
    refuse(r#"{ "currencies": [] }"#, "currencies: invalid type: sequence, expected a map");
    refuse(
        r#"{ "currencies": { "XXX": {} } }"#,
        "currencies.XXX must be a currency: a code of ISO 4217",
    );
    for wrong in ["0", "-1", "0.0000000001", "1000000001", "0.00000000000000000000000000000001"] {
        refuse(
            &format!(r#"{{ "currencies": {{ "EUR": {{ "usdPerUnit": "{wrong}" }} }} }}"#),
            &format!("currencies.EUR.usdPerUnit is \"{wrong}\", but must be a decimal in quotes"),
        );
    }
    refuse(
        r#"{ "currencies": { "USD": { "usdPerUnit": "2" } } }"#,
        "currencies.USD.usdPerUnit is \"2\", but must be \"1\": all prices are in US dollars",
    );
    for wrong in ["-1", "0.5", "\"50\"", "9000000000000001"] {
        refuse(
            &format!(r#"{{ "currencies": {{ "EUR": {{ "fixedFee": {wrong} }} }} }}"#),
            &format!("currencies.EUR.fixedFee is {wrong}, but must be a whole number"),
        );
    }
    refuse(r#"{ "corridors": [{}, { "to": "eur" }] }"#, "corridors[1].to is \"eur\", but must be");
    refuse(r#"{ "corridors": [{ "fee": 1 }] }"#, "corridors[0]: unknown field `fee`");
    refuse(
        r#"{ "corridors": [{ "to": "EUR", "fixedFee": 1 }] }"#,
        "corridors[0].fixedFee needs corridors[0].from beside it",
    );
    refuse("{ \"a\\nb\": 1 }", "unknown field `a b`");
    let many = vec!["{}"; 1_001].join(",");
    refuse(&format!(r#"{{ "corridors": [{many}] }}"#), "corridors has 1001 entries of at most");
}

#[test]
fn the_most_distant_prices_still_make_rates() {
    let rates = FixedRates::from_json(
        r#"{ "currencies": {
            "BTC": { "usdPerUnit": "1000000000" }, "VND": { "usdPerUnit": "0.000000001" }
        } }"#,
    )
    .expect("every pair is checked when the table is read");
    let (bitcoin, dong) = (currency("BTC"), currency("VND"));
    assert_eq!(mid(&rates, bitcoin, dong), decimal("0.000000000000000001"));
    assert_eq!(mid(&rates, dong, bitcoin), decimal("1000000000000000000"));
}

#[test]
fn a_file_is_read_and_named_in_what_is_wrong_with_it() {
    let missing = Path::new("no-such-folder/rates.json");
    let error = FixedRates::from_file(missing).expect_err("missing").to_string();
    assert!(error.starts_with("no-such-folder/rates.json: cannot be read: "), "{error}");
    let builtin = Path::new(env!("CARGO_MANIFEST_DIR")).join("src/rates/builtin.json");
    let same = FixedRates::from_file(&builtin).expect("a table");
    assert!(same.corridors == FixedRates::builtin().corridors && same.is_from_file());
    let wrong = Path::new(env!("CARGO_MANIFEST_DIR")).join("Cargo.toml");
    let error = FixedRates::from_file(&wrong).expect_err("not JSON").to_string();
    assert!(error.starts_with(&format!("{}: ", wrong.display())), "{error}");
}

#[test]
fn the_example_of_the_documents_is_a_table() {
    let page = include_str!("../../../../docs/rates.md");
    let example = page.split("```json\n").nth(1).and_then(|rest| rest.split("```").next());
    let rates = FixedRates::from_json(example.expect("an example")).expect("a table");
    assert_eq!(rates.written_at(), NOW);
    assert!(rates.is_dated() && rates.is_from_file());
    check(&rates, "USD", "EUR", ("0.002", 0, "0.003"));
    let own: Vec<_> = Currency::all().filter(|it| rates.is_priced_by_file(*it)).collect();
    let expected: Vec<_> =
        Currency::all().filter(|it| ["USD", "EUR", "BTC"].contains(&it.code())).collect();
    assert_eq!(own, expected);
}
