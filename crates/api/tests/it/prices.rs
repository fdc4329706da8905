//! The arithmetic of quotes and exchange rates (contract 6.9.5, 6.14), calculated a second time
//! from what the answers say, in whole numbers.

use domain::currency::Currency;
use domain::platform::{CorridorRule, Mode};
use rust_decimal::Decimal;
use serde_json::{Value, json};
use service::platforms;

use crate::pay::{Payer, from, locked, sending, to};
use crate::support::{Answer, Client, Server, text};

const MOST: i128 = 9_000_000_000_000_000;

/// The digits of a number as they stand in the answer, not as a float reads them.
fn digits(answer: &Answer, field: &str) -> Decimal {
    let body = std::str::from_utf8(&answer.bytes).expect("text");
    let name = format!("\"{field}\":");
    let start = body.find(&name).unwrap_or_else(|| panic!("no {field}")) + name.len();
    let digits = body[start..].split([',', '}']).next().expect("digits");
    digits.parse().unwrap_or_else(|_| panic!("{field}: {digits}"))
}

fn whole(value: &Value) -> i128 {
    i128::from(value.as_i64().unwrap_or_else(|| panic!("{value} is not whole")))
}

fn currency(code: &str) -> Currency {
    Currency::from_code(code).expect("known")
}

/// A price of a corridor, as a client works it out.
#[derive(Debug, Clone, Copy)]
struct Terms {
    /// Smallest sending units per smallest receiving unit, as a fraction.
    k: (i128, i128),
    fixed: i128,
    /// Millionths.
    variable: i128,
}

/// A quote's amounts: sent, variable fee, received.
type Amounts = (i128, i128, i128);

impl Terms {
    fn new(rate: Decimal, sending: Currency, receiving: Currency, fixed: i128, v: Decimal) -> Self {
        let ten = |power: u32| 10_i128.pow(power);
        let (send, receive) = (u32::from(sending.decimals()), u32::from(receiving.decimals()));
        // rate x 10^send / 10^receive
        let k = (rate.mantissa() * ten(send), ten(rate.scale()) * ten(receive));
        let variable = v * Decimal::from(1_000_000);
        assert!(variable.fract().is_zero(), "{v}");
        Self { k: reduced(k), fixed, variable: variable.normalize().mantissa() }
    }

    fn variable_fee(&self, sent: i128) -> i128 {
        (sent * self.variable + 500_000) / 1_000_000
    }

    fn of_sent(&self, sent: i128) -> Amounts {
        let fee = self.variable_fee(sent);
        let net = (sent - self.fixed - fee).max(0);
        (sent, fee, net * self.k.1 / self.k.0)
    }

    /// The smallest amount whose own figures give as much.
    fn of_received(&self, received: i128) -> Amounts {
        // ceil((R k + F) / (1 - v)), but for the rounding of the fee.
        let top = (received * self.k.0 + self.fixed * self.k.1) * 1_000_000;
        let bottom = self.k.1 * (1_000_000 - self.variable);
        let about = (top + bottom - 1) / bottom;
        let delivers = |sent: &i128| self.of_sent(*sent).2 >= received;
        let sent = (about - 3..about + 3).find(delivers).expect("it is near");
        assert!(!delivers(&(about - 4)), "{about} is far from the smallest");
        (sent, self.variable_fee(sent), received)
    }

    fn is_payable(&self, (sent, fee, received): Amounts) -> bool {
        received > 0 && self.fixed + fee < sent && sent <= MOST && received <= MOST
    }
}

fn reduced((num, den): (i128, i128)) -> (i128, i128) {
    let (mut a, mut b) = (num, den);
    while b != 0 {
        (a, b) = (b, a % b);
    }
    (num / a, den / a)
}

/// The terms that a quote shows.
fn shown(answer: &Answer, sending: &str, receiving: &str) -> Terms {
    let details = &answer.body["rateDetails"];
    let rate = digits(answer, "exchangeRate");
    assert!(rate.mantissa() < 1_000_000_000_000_000, "more digits than a double holds: {rate}");
    let variable = digits(answer, "serviceApiVariableFeeRate");
    let fixed = whole(&details["serviceApiFixedFee"]);
    Terms::new(rate, currency(sending), currency(receiving), fixed, variable)
}

async fn ask(payer: &Payer, side: &str, source: &str, destination: &str, amount: i128) -> Answer {
    let amount = i64::try_from(amount).expect("in range");
    let body = locked(side, &from(source), &to(destination), amount);
    payer.client.post("/quotes", &body).await
}

/// Asks for quotes of a corridor on both sides and calculates each again.
async fn check(server: &Server, payer: &Payer, sending: &str, receiving: &str) {
    let (source, destination) = (payer.account(sending).await, payer.account(receiving).await);
    let example = ask(payer, "SENDING", &source, &destination, 1_000_000_000_000).await;
    let terms = shown(&example, sending, receiving);
    let mut made = 0;
    for (side, amount) in amounts() {
        let answer = ask(payer, side, &source, &destination, amount).await;
        let expected =
            if side == "SENDING" { terms.of_sent(amount) } else { terms.of_received(amount) };
        let what = format!("{side} {amount} {sending} to {receiving}");
        if !terms.is_payable(expected) {
            assert_eq!(answer.body["code"], "AMOUNT_OUT_OF_RANGE", "{what}: {expected:?}");
            continue;
        }
        let quote = answer.expect(201);
        made += 1;
        let (sent, fee, received) = expected;
        let details = &quote["rateDetails"];
        assert_eq!(whole(&quote["totalSendingAmount"]), sent, "{what}");
        assert_eq!(whole(&quote["totalReceivingAmount"]), received, "{what}");
        assert_eq!(whole(&details["serviceApiVariableFeeAmount"]), fee, "{what}");
        assert_eq!(whole(&quote["feesIncluded"]), terms.fixed + fee, "{what}");
        assert_eq!(details["counterpartyFixedFee"], 0, "{what}");
        assert_eq!(digits(&answer, "exchangeRate"), digits(&example, "exchangeRate"), "{what}");
        multipliers(&answer, terms, &what);
        rate_is_made_of_its_basis(&answer, &what);
    }
    assert!(made > 20, "{sending} to {receiving}: {made} quotes");
    server.verify();
}

/// The middle of the market, made worse by the spread, is the rate.
fn rate_is_made_of_its_basis(answer: &Answer, what: &str) {
    let basis = &answer.body["rateDetails"]["rateBasis"];
    let [mid, spread] = ["midRate", "spread"].map(|field| digits(answer, field));
    assert!(mid.normalize().mantissa() < 1_000_000_000_000_000, "{what}: {mid}");
    let offered = domain::rate::round_to_shown(mid * (Decimal::ONE + spread));
    assert_eq!(offered, digits(answer, "exchangeRate"), "{what}");
    assert_eq!(basis["midRateSource"], "BUILT_IN", "{what}");
    let rule = text(&basis["priceRule"]);
    assert!(["PLATFORM", "DEFAULT"].contains(&rule.as_str()), "{what}: {rule}");
}

/// Has the platform support these currencies without limits.
async fn support(client: &Client, codes: &[&str]) {
    let supported: Vec<_> = codes
        .iter()
        .map(|code| {
            json!({
                "currencyCode": code,
                "minAmount": 1,
                "maxAmount": 9_000_000_000_000_000_i64,
                "enabledTransactionTypes": ["OUTGOING", "INCOMING"],
            })
        })
        .collect();
    client.patch("/config", &json!({ "supportedCurrencies": supported })).await.expect(200);
}

/// (S - F) x serviceApiMultiplier / counterpartyMultiplier is what arrives, but for rounding.
fn multipliers(answer: &Answer, terms: Terms, what: &str) {
    let quote = &answer.body;
    let ours = digits(answer, "serviceApiMultiplier");
    let theirs = digits(answer, "counterpartyMultiplier");
    assert!(ours > Decimal::ZERO && theirs > Decimal::ZERO, "{what}");
    let f = |number: Decimal| number.to_string().parse::<f64>().expect("a number");
    let net = (whole(&quote["totalSendingAmount"]) - terms.fixed) as f64;
    let arrives = net * f(ours) / f(theirs);
    let received = whole(&quote["totalReceivingAmount"]) as f64;
    // What is charged is rounded up, the fee half-up, what arrives down; and the multiplier takes
    // the variable fee of what is left after the fixed one.
    let units = 1.5 + terms.fixed as f64 * terms.variable as f64 * 1e-6;
    let allowed = 1.0 + units * terms.k.1 as f64 / terms.k.0 as f64 + received * 1e-9;
    assert!((arrives - received).abs() <= allowed, "{what}: {arrives} and {received}");
}

/// Sides and amounts, small, large, even and odd.
fn amounts() -> Vec<(&'static str, i128)> {
    let mut amounts = vec![1, 2, 7, 49, 50, 51, 52, 99, 100, 166, 167, 500, 501, 999, 1_001];
    for power in 4..16 {
        let ten = 10_i128.pow(power);
        amounts.extend([ten, ten / 3 * 2 + 1]);
    }
    amounts.extend([123_456_789, 4_999_999_999, MOST - 1, MOST]);
    amounts.retain(|amount| *amount <= MOST);
    let both = |amount: i128| [("SENDING", amount), ("RECEIVING", amount)];
    amounts.into_iter().flat_map(both).collect()
}

#[tokio::test]
async fn quotes_between_currencies_of_all_decimals_are_exact() {
    let server = Server::new();
    let payer = Payer::with(&server, 0).await;
    for (sending, receiving) in [
        ("USD", "EUR"),
        ("EUR", "USD"),
        ("USD", "VND"),
        ("VND", "USD"),
        ("USDC", "VND"),
        ("VND", "USDC"),
        ("USD", "BTC"),
        ("BTC", "USD"),
        ("USDT", "BTC"),
        ("BTC", "VND"),
        ("VND", "BTC"),
        ("EUR", "XOF"),
        ("XOF", "VND"),
        ("USDC", "USDT"),
        ("IDR", "GBP"),
    ] {
        check(&server, &payer, sending, receiving).await;
    }
}

#[tokio::test]
async fn quotes_of_every_pair_cost_the_least_that_delivers() {
    let server = Server::new();
    let payer = Payer::with(&server, 0).await;
    let rates = server.app.env().rates(Mode::Sandbox);
    let codes: Vec<_> = Currency::all().filter(|it| rates.names(*it)).map(Currency::code).collect();
    assert!(codes.len() > 50);
    support(&payer.client, &codes).await;
    let mut accounts = Vec::new();
    for code in &codes {
        accounts.push(payer.account(code).await);
    }
    for (from, sending) in codes.iter().enumerate() {
        // Each with a fifth of all others, so that every second pair is tried one way or the other.
        for (to, receiving) in codes.iter().enumerate().filter(|(to, _)| (from + to) % 5 == 1) {
            if from == to {
                continue;
            }
            let (source, destination) = (&accounts[from], &accounts[to]);
            let example = ask(&payer, "SENDING", source, destination, 1_000_000_000).await;
            example.expect(201);
            let terms = shown(&example, sending, receiving);
            let amount = 1_000 + 37 * (from as i128) + to as i128;
            let answer = ask(&payer, "RECEIVING", source, destination, amount).await;
            let (sent, fee, received) = terms.of_received(amount);
            let quote = answer.expect(201);
            let figures = ["totalSendingAmount", "feesIncluded", "totalReceivingAmount"];
            let figures = figures.map(|field| whole(&quote[field]));
            assert_eq!(figures, [sent, terms.fixed + fee, received], "{sending} to {receiving}");
            assert_eq!(digits(&answer, "exchangeRate"), digits(&example, "exchangeRate"));
        }
    }
    server.verify();
}

#[tokio::test]
async fn the_rates_are_those_of_the_table() {
    let server = Server::new();
    let payer = Payer::with(&server, 0).await;
    for (sending, receiving, rate) in [
        // Mid rate of the built-in table, half a percent worse, eight digits.
        ("USD", "EUR", "1.160775"),
        ("EUR", "USD", "0.87012987"),
        ("USD", "BTC", "100500"),
        ("BTC", "USD", "0.00001005"),
        ("USD", "VND", "0.00003813975"),
        ("VND", "USD", "26482.21343874"),
        ("USDC", "USDT", "1.005"),
    ] {
        let (source, destination) = (payer.account(sending).await, payer.account(receiving).await);
        let answer = ask(&payer, "SENDING", &source, &destination, 1_000_000_000).await;
        answer.expect(201);
        let shown = digits(&answer, "exchangeRate");
        assert_eq!(shown.to_string(), rate, "{sending} to {receiving}");
    }
}

#[tokio::test]
async fn a_currency_without_a_rail_is_held_quoted_and_limited() {
    let server = Server::new();
    let payer = Payer::with(&server, 0).await;
    let client = &payer.client;
    support(client, &["USD", "JPY", "KWD", "CHF"]).await;
    // 1,000,000 yen at 0.0064 dollars buy dinars of 3.256, half a percent worse, after fees.
    let yen = client.funded(&payer.customer, "JPY", 1_000_000).await;
    let dinars = payer.account("KWD").await;
    let quote = client.quote(&sending(&from(&yen), &to(&dinars), 1_000_000)).await;
    assert_eq!(quote["feesIncluded"], 3_080);
    assert_eq!(quote["totalReceivingAmount"], 1_949_798);
    assert_eq!(quote["receivingCurrency"]["decimals"], 3);
    assert_eq!(quote["sendingCurrency"]["decimals"], 0);
    client.execute(&quote).await.expect(200);
    assert_eq!((client.balance(&yen).await, client.balance(&dinars).await), (0, 1_949_798));
    let rates = client.get("/exchange-rates?sourceCurrency=USD&destinationCurrency=CHF").await;
    let rates = rates.expect(200)["data"].clone();
    assert_eq!(rates.as_array().map(Vec::len), Some(1));
    assert!(rates[0].get("destinationPaymentRail").is_none());
    // Limits are in the smallest unit.
    let limited = json!({ "supportedCurrencies": [
        { "currencyCode": "JPY", "minAmount": 500, "maxAmount": 9_999 },
        { "currencyCode": "KWD", "minAmount": 1_000, "maxAmount": 2_000_000 },
    ] });
    client.patch("/config", &limited).await.expect(200);
    for (source, destination, amount, is_within) in [
        (&yen, &dinars, 499, false),
        (&yen, &dinars, 500, true),
        (&yen, &dinars, 9_999, true),
        (&yen, &dinars, 10_000, false),
        (&dinars, &yen, 999, false),
        (&dinars, &yen, 2_000_000, true),
        (&dinars, &yen, 2_000_001, false),
    ] {
        let answer =
            client.post("/quotes", &sending(&from(source), &to(destination), amount)).await;
        if is_within {
            answer.expect(201);
        } else {
            answer.refused(400, "AMOUNT_OUT_OF_RANGE");
        }
    }
    // A currency without a rate cannot be turned on.
    let mut unpriced = limited.clone();
    let krona = json!({ "currencyCode": "ISK", "minAmount": 1, "maxAmount": 9 });
    unpriced["supportedCurrencies"].as_array_mut().expect("a list").push(krona);
    let answer = client.patch("/config", &unpriced).await;
    assert_eq!(answer.refused(400, "INVALID_CURRENCY")["currency"], "ISK");
    server.verify();
}

#[tokio::test]
async fn within_one_currency_the_rate_is_one_and_nothing_is_charged() {
    let server = Server::new();
    let payer = Payer::with(&server, 1_000).await;
    let other = payer.client.customer().await;
    let theirs = payer.client.account(Some(&other), "USD").await;
    for side in ["SENDING", "RECEIVING"] {
        let answer = ask(&payer, side, &payer.usd, &theirs, 500).await;
        let quote = answer.expect(201);
        assert_eq!(digits(&answer, "exchangeRate"), Decimal::ONE);
        assert_eq!(quote["totalSendingAmount"], 500);
        assert_eq!(quote["totalReceivingAmount"], 500);
        assert_eq!(quote["feesIncluded"], 0);
        assert_eq!(payer.client.execute(quote).await.expect(200)["status"], "COMPLETED");
    }
    assert_eq!((payer.balance().await, payer.client.balance(&theirs).await), (0, 1_000));
    server.verify();
}

#[tokio::test]
async fn what_a_quote_says_is_what_moves() {
    let server = Server::new();
    let payer = Payer::with(&server, 0).await;
    for (sending_code, receiving_code, amount) in
        [("USD", "VND", 123_457), ("XOF", "BTC", 98_765_433), ("USDC", "IDR", 7_654_321)]
    {
        let source = payer.client.funded(&payer.customer, sending_code, amount).await;
        let destination = payer.account(receiving_code).await;
        let body = sending(&from(&source), &to(&destination), amount);
        let quote = payer.client.quote(&body).await;
        payer.client.execute(&quote).await.expect(200);
        let received = payer.client.balance(&destination).await;
        assert_eq!(quote["totalReceivingAmount"], received, "{sending_code}");
        assert_eq!(payer.client.balance(&source).await, 0, "{sending_code}");
        server.verify();
    }
}

async fn price_of(client: &Client, usd: &str, eur: &str) -> (Value, Answer) {
    let answer = client.post("/quotes", &sending(&from(usd), &to(eur), 100_000)).await;
    (answer.expect(201)["rateDetails"].clone(), answer)
}

#[tokio::test]
async fn a_platform_has_prices_of_its_own() {
    let server = Server::new();
    let payer = Payer::with(&server, 0).await;
    let other = Payer::with(&server, 0).await;
    let (eur, other_eur) = (payer.account("EUR").await, other.account("EUR").await);
    let gbp = payer.account("GBP").await;
    let (_, listed) = price_of(&other.client, &other.usd, &other_eur).await;
    let decimal = |text: &str| Some(text.parse::<Decimal>().expect("a number"));
    let rule = |sending: Option<&str>, receiving: Option<&str>| CorridorRule {
        sending: sending.map(currency),
        receiving: receiving.map(currency),
        spread: None,
        fixed_fee_minor: None,
        variable_fee_rate: None,
    };
    let set = |rule: CorridorRule| platforms::set_pricing(&server.app, payer.client.platform, rule);
    let own = CorridorRule {
        spread: decimal("0.02"),
        fixed_fee_minor: Some(0),
        ..rule(Some("USD"), Some("EUR"))
    };
    set(own).await.expect("a rule");
    // A part that the rule does not set comes from the next one that does.
    set(CorridorRule { variable_fee_rate: decimal("0.01"), ..rule(Some("USD"), None) })
        .await
        .expect("a rule");
    let (details, answer) = price_of(&payer.client, &payer.usd, &eur).await;
    assert_eq!(digits(&answer, "exchangeRate"), "1.1781".parse().expect("a number"));
    assert_eq!(details["serviceApiFixedFee"], 0);
    assert_eq!(details["serviceApiVariableFeeAmount"], 1_000);
    check(&server, &payer, "USD", "EUR").await;
    let (details, answer) = price_of(&payer.client, &payer.usd, &gbp).await;
    assert_eq!(digits(&answer, "exchangeRate"), "1.31655".parse().expect("a number"));
    assert_eq!(details["serviceApiFixedFee"], 50);
    assert_eq!(details["serviceApiVariableFeeAmount"], 1_000);
    // Within one currency nothing is charged that no rule names on both sides.
    let another = payer.client.customer().await;
    let dollars = payer.client.account(Some(&another), "USD").await;
    let (_, answer) = price_of(&payer.client, &payer.usd, &dollars).await;
    assert_eq!(
        (&answer.body["exchangeRate"], &answer.body["feesIncluded"]),
        (&json!(1), &json!(0))
    );
    // Back the other way, and for everybody else, the list holds.
    let (details, _) = price_of(&payer.client, &eur, &payer.usd).await;
    assert_eq!(details["serviceApiVariableFeeRate"], json!(0.003));
    let (details, answer) = price_of(&other.client, &other.usd, &other_eur).await;
    assert_eq!(digits(&answer, "exchangeRate"), digits(&listed, "exchangeRate"));
    assert_eq!(details, listed.body["rateDetails"]);
    // Rates show the same prices.
    let path = "/exchange-rates?sourceCurrency=USD&destinationCurrency=EUR&sendingAmount=100000";
    let rates = payer.client.get(path).await;
    assert_eq!(digits(&rates, "exchangeRate"), "1.1781".parse().expect("a number"));
    assert_eq!(rates.body["data"][0]["fees"]["fixed"], 0);
    // A new rule for the same corridor takes the place of the old one.
    set(CorridorRule { spread: decimal("0"), ..own }).await.expect("a rule");
    let (_, answer) = price_of(&payer.client, &payer.usd, &eur).await;
    assert_eq!(digits(&answer, "exchangeRate"), "1.155".parse().expect("a number"));
    server.verify();
}

#[tokio::test]
async fn a_locked_rate_outlives_a_change_of_price() {
    let server = Server::new();
    let payer = Payer::with(&server, 100_000).await;
    let eur = payer.account("EUR").await;
    let body = sending(&from(&payer.usd), &to(&eur), 100_000);
    let quote = payer.client.quote(&body).await;
    let rule = CorridorRule {
        sending: None,
        receiving: None,
        spread: Some(Decimal::ONE),
        fixed_fee_minor: Some(1_000),
        variable_fee_rate: Some("0.5".parse().expect("a number")),
    };
    platforms::set_pricing(&server.app, payer.client.platform, rule).await.expect("a rule");
    let executed = payer.client.execute(&quote).await.expect(200).clone();
    for field in ["exchangeRate", "feesIncluded", "totalReceivingAmount", "rateDetails"] {
        assert_eq!(executed[field], quote[field], "{field}");
    }
    assert_eq!(json!(payer.client.balance(&eur).await), quote["totalReceivingAmount"]);
    let again = payer.client.quote(&body).await;
    assert_ne!(text(&again["id"]), text(&quote["id"]));
    assert_ne!(again["exchangeRate"], quote["exchangeRate"]);
    server.verify();
}
