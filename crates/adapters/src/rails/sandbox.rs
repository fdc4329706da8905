//! The rails of the sandbox but Lightning: no network, no memory, no chance.
//!
//! Its answers follow from the order, the table of scenarios and the time alone, so a restart
//! changes nothing and a test can be repeated. [`markdown`] prints what steers it.

use std::future::ready;

use domain::account_info::{AccountType, Field, Presence, types};
use domain::external_account::Verification;
use domain::money::AMOUNT_MAX;
use domain::rail::Rail;
use domain::time::Timestamp;
use ports::rail::{
    AccountInquiry, AccountReport, Deposit, FundingInstruction, Instruction, NetworkFee, NoReport,
    PaymentRail, Pending, RailFailure, RailReply,
};
use ports::rails::Leg;

use super::lightning::invoice;
use super::scenarios::{self, AccountState, Tables};

/// How long an order takes to settle unless it is configured: long enough that a client sees
/// in its first answers that payments take time, and well within the second in which the sandbox
/// promises completion.
pub const SETTLES_AFTER_MILLIS: i64 = 200;

/// The field by which a deposit is recognised.
const REFERENCE: &str = "reference";

/// The field of a request to pay over Lightning.
const INVOICE: &str = "invoice";

/// The port of every rail of sandbox platforms but Lightning. Stateless: clones and restarts answer
/// alike.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct SandboxRail {
    settles_after_millis: i64,
}

impl Default for SandboxRail {
    fn default() -> Self {
        Self::new(SETTLES_AFTER_MILLIS)
    }
}

impl SandboxRail {
    /// A rail on which orders settle `settles_after_millis` after they were first due; with 0 or
    /// less, at once.
    pub const fn new(settles_after_millis: i64) -> Self {
        Self { settles_after_millis }
    }
}

impl PaymentRail for SandboxRail {
    fn amount_max(&self, leg: &Leg) -> Option<i64> {
        (leg.rail != Rail::Lightning).then_some(AMOUNT_MAX)
    }

    /// Fees of these networks on a quiet day; the same every day.
    fn network_fee(&self, rail: Rail) -> Option<NetworkFee> {
        let fee = |amount, asset| Some(NetworkFee { amount, asset });
        match rail {
            Rail::Solana => fee(5_000, "SOL"),
            Rail::Tron => fee(1_000_000, "TRX"),
            Rail::Polygon => fee(1_000_000_000_000_000, "POL"),
            Rail::Base => fee(2_000_000_000_000, "ETH"),
            Rail::Ethereum => fee(500_000_000_000_000, "ETH"),
            Rail::Spark => fee(0, "BTC"),
            _ => None,
        }
    }

    fn instructions(&self, deposit: &Deposit<'_>) -> Vec<FundingInstruction> {
        instructions(self, deposit)
    }

    fn check<'a>(&'a self, order: &'a Instruction) -> Pending<'a, Result<(), RailFailure>> {
        let refusal = Tables::of(order.settings.as_deref()).refusal(order);
        Box::pin(ready(refusal.map_or(Ok(()), Err)))
    }

    /// Every outcome is a row of the scenarios, however late.
    fn deadline(&self, _: &Instruction) -> Option<Timestamp> {
        None
    }

    /// Nothing is decided before, so nothing is asked.
    fn gives_after_millis(&self) -> i64 {
        self.settles_after_millis.max(0)
    }

    fn ask<'a>(&'a self, order: &'a Instruction, now: Timestamp) -> Pending<'a, RailReply> {
        let tables = Tables::of(order.settings.as_deref());
        Box::pin(ready(tables.reply(order, self.settles_after_millis, now)))
    }

    fn inspect<'a>(
        &'a self,
        inquiry: &'a AccountInquiry,
        now: Timestamp,
    ) -> Pending<'a, Result<AccountReport, NoReport>> {
        Box::pin(ready(report(inquiry, now)))
    }
}

/// Every account type that holds the currency and that the port serves, with made-up numbers and
/// the reference.
pub(super) fn instructions(
    port: &dyn PaymentRail,
    deposit: &Deposit<'_>,
) -> Vec<FundingInstruction> {
    let Deposit { currency, reference, .. } = *deposit;
    let is_served = |account_type: &&'static AccountType| {
        let account_type = *account_type;
        let leg = |rail: &Rail| Leg { rail: *rail, account_type: Some(account_type), currency };
        account_type.rails.iter().any(|rail| port.amount_max(&leg(rail)).is_some())
    };
    let field = |field: &Field| {
        let value = match field.name {
            REFERENCE => reference.to_owned(),
            "assetType" => currency.code().to_owned(),
            INVOICE => invoice::of(deposit)?,
            _ => field.example.to_owned(),
        };
        Some((field.name, value))
    };
    let instruction = |account_type: &'static AccountType| {
        let is_made_up = |field: &&Field| field.name != REFERENCE;
        let fields = account_type.instruction_fields;
        let required = fields.iter().filter(|field| field.presence == Presence::Required);
        let can_be_made = required.map(field).all(|field| field.is_some());
        can_be_made.then(|| FundingInstruction {
            account_type,
            fields: fields
                .iter()
                .filter(is_made_up)
                .filter_map(field)
                .chain([(REFERENCE, reference.to_owned())])
                .collect(),
            notes: format!("Put {reference} in the reference of the payment."),
        })
    };
    types()
        .iter()
        .filter(|account_type| account_type.holds(currency))
        .filter(|account_type| !account_type.instruction_fields.is_empty())
        .filter(is_served)
        .filter_map(instruction)
        .collect()
}

fn report(inquiry: &AccountInquiry, now: Timestamp) -> Result<AccountReport, NoReport> {
    let account = &inquiry.account;
    if account.account_type().is_wallet() {
        return Ok(AccountReport::usable());
    }
    let tables = Tables::of(inquiry.settings.as_deref());
    let (AccountState { status, verification }, ask_again_at) =
        tables.account(account, inquiry.since, now)?;
    let given = account.beneficiary().map(|beneficiary| beneficiary.name());
    let holder_name = match verification {
        Verification::Matched => given.map(str::to_owned),
        // A bank that knows the account under nearly that name: the first name is only a letter.
        Verification::PartialMatch => given.map(|name| match name.split_once(' ') {
            Some((first, rest)) => format!("{}. {rest}", first.chars().take(1).collect::<String>()),
            None => format!("{name} Jr."),
        }),
        Verification::NotMatched
        | Verification::Unsupported
        | Verification::CheckedByReceivingFi
        | Verification::Pending => None,
    };
    let verification = Some(verification);
    Ok(AccountReport { status, verification, holder_name, ask_again_at })
}

/// The table of scenarios in Markdown, for documents.
pub fn markdown() -> String {
    "# Steering the sandbox\n\n\
     Written from `crates/adapters/src/rails/scenarios/builtin.toml`.\n\n"
        .to_owned()
        + &scenarios::markdown()
        + "\n## Time\n\n\
         `POST /sandbox/clock` with `{\"advanceBySeconds\": 60}` or \
         `{\"advanceTo\": \"2030-01-01T00:00:00Z\"}` moves the clock of the calling platform on, \
         never back, and `GET /sandbox/clock` shows it. What is due by then has happened when the \
         call is answered: what is pending for 30 seconds above takes a millisecond. The answer \
         waits five seconds at most; what takes longer goes on behind it. No other platform is \
         affected (`docs/decisions/0013`).\n"
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::rails::tests::{account, answer_of, order};
    use ports::rail::{Cause, Flow, Party, Proof, RailAnswer};

    /// How long the suffix 005 takes (contract 6.18: about 30 seconds).
    const TIMES_OUT_AFTER_MILLIS: i64 = 30_000;

    const SINCE: Timestamp = Timestamp::from_millis(1_763_683_200_000);

    fn ask(rail: SandboxRail, order: &Instruction, after_millis: i64) -> RailAnswer {
        reply(rail, order, after_millis).answer
    }

    fn reply(rail: SandboxRail, order: &Instruction, after_millis: i64) -> RailReply {
        answer_of(rail.ask(order, SINCE.plus_millis(after_millis)))
    }

    fn pending(until_millis: i64) -> RailAnswer {
        RailAnswer::Pending { ask_again_at: SINCE.plus_millis(until_millis) }
    }

    /// The answers at once, after the usual time, and just before and at the time-out.
    fn check(
        cause: Cause,
        suffix: &str,
        taken: Result<(), RailFailure>,
        expected: [RailAnswer; 4],
    ) {
        let rail = SandboxRail::default();
        let order = order("USD_ACCOUNT", "accountNumber", &format!("123456789{suffix}"), cause);
        assert_eq!(answer_of(rail.check(&order)), taken, "{cause:?} {suffix}");
        let times = [0, SETTLES_AFTER_MILLIS, TIMES_OUT_AFTER_MILLIS - 1, TIMES_OUT_AFTER_MILLIS];
        let answers = times.map(|millis| ask(rail, &order, millis));
        assert_eq!(answers, expected, "{cause:?} {suffix}");
        assert_eq!(times.map(|millis| ask(rail, &order, millis)), answers, "the same again");
    }

    fn always(answer: RailAnswer) -> [RailAnswer; 4] {
        [answer.clone(), answer.clone(), answer.clone(), answer]
    }

    fn comes_back() -> [RailAnswer; 4] {
        let back_at = SETTLES_AFTER_MILLIS + 60_000;
        let settled = RailAnswer::SettledForNow { ask_again_at: SINCE.plus_millis(back_at) };
        [pending(SETTLES_AFTER_MILLIS), settled.clone(), settled.clone(), settled]
    }

    fn settles() -> [RailAnswer; 4] {
        let settled = RailAnswer::Settled;
        [pending(SETTLES_AFTER_MILLIS), settled.clone(), settled.clone(), settled]
    }

    fn times_out() -> [RailAnswer; 4] {
        let pending = pending(TIMES_OUT_AFTER_MILLIS);
        let failed = RailAnswer::Failed(RailFailure::TimedOut, Proof::OtherSide);
        [pending.clone(), pending.clone(), pending, failed]
    }

    #[test]
    fn suffixes_steer_transfers_and_quotes_as_the_contract_says() {
        use Cause::{Quote, Transfer};
        use RailFailure::{AccountInvalid, InsufficientFunds};
        let failed = |failure| always(RailAnswer::Failed(failure, Proof::OtherSide));
        check(Transfer, "002", Ok(()), failed(InsufficientFunds));
        check(Quote, "002", Err(InsufficientFunds), failed(InsufficientFunds));
        for cause in [Transfer, Quote] {
            check(cause, "003", Ok(()), failed(AccountInvalid));
            check(cause, "004", Ok(()), always(RailAnswer::Refused));
            check(cause, "005", Ok(()), times_out());
            check(cause, "185", Ok(()), comes_back());
            for suffix in ["000", "001", "006", "007", "008", "009", "102", "999"] {
                check(cause, suffix, Ok(()), settles());
            }
        }
    }

    #[test]
    fn the_suffix_is_that_of_the_own_number_of_any_account_type() {
        for (kind, field, identifier) in [
            ("INR_ACCOUNT", "vpa", "testuser.004@okbank"),
            ("MXN_ACCOUNT", "clabeNumber", "123456789012345004"),
            ("EUR_ACCOUNT", "iban", "DE89370400440532013004"),
            ("SOLANA_WALLET", "address", "7EcDhSYGxXyscszYEp35KHN8vvw3svAuLKTzXwCF004"),
        ] {
            let order = order(kind, field, identifier, Cause::Transfer);
            assert_eq!(ask(SandboxRail::default(), &order, 0), RailAnswer::Refused, "{kind}");
        }
        let order = order("INR_ACCOUNT", "vpa", "testuser@okbank004", Cause::Transfer);
        assert_eq!(ask(SandboxRail::default(), &order, 0), pending(SETTLES_AFTER_MILLIS));
    }

    #[test]
    fn the_time_until_settlement_is_configured() {
        let order = order("USD_ACCOUNT", "accountNumber", "123456789012", Cause::Quote);
        assert_eq!(ask(SandboxRail::new(0), &order, 0), RailAnswer::Settled);
        assert_eq!(ask(SandboxRail::new(-5), &order, 0), RailAnswer::Settled);
        assert_eq!(ask(SandboxRail::new(5_000), &order, 4_999), pending(5_000));
        assert_eq!(ask(SandboxRail::new(5_000), &order, 5_000), RailAnswer::Settled);
        // A clock that was set back does not settle early and does not move the promised time.
        assert_eq!(ask(SandboxRail::new(5_000), &order, -60_000), pending(5_000));
    }

    #[test]
    fn what_was_paid_out_comes_back_and_what_was_pulled_in_does_not() {
        let order = order("USD_ACCOUNT", "accountNumber", "123456789185", Cause::Transfer);
        let back_after = SETTLES_AFTER_MILLIS + 60_000;
        assert_eq!(ask(SandboxRail::default(), &order, back_after), RailAnswer::Returned);
        let order = Instruction { flow: Flow::PullIn, ..order };
        for after in [SETTLES_AFTER_MILLIS, back_after] {
            assert_eq!(ask(SandboxRail::default(), &order, after), RailAnswer::Settled);
        }
    }

    #[test]
    fn the_rail_has_a_reference_for_each_order_and_says_what_a_row_says() {
        let rows = "[[payments]]\nsuffix = '789'\n\
            path = [{ state = 'FAILED', reason = 'ACCOUNT_INVALID', code = 'R03', \
            text = 'No account' }]\n";
        let order = Instruction {
            settings: Some(rows.into()),
            ..order("USD_ACCOUNT", "accountNumber", "123456789", Cause::Transfer)
        };
        let out = reply(SandboxRail::default(), &order, 0).words;
        assert_eq!((out.code(), out.text()), (Some("R03"), Some("No account")));
        let pulled = Instruction { flow: Flow::PullIn, ..order };
        let pulled = reply(SandboxRail::default(), &pulled, 0).words;
        assert!(out.reference().is_some() && pulled.reference().is_some());
        assert_ne!(out.reference(), pulled.reference());
    }

    #[test]
    fn an_operators_rows_come_first_and_the_built_in_ones_stay() {
        let rows = "[[payments]]\nsuffix = '789'\npath = [{ state = 'REFUSED' }]\n\
            [[payments]]\namount = 1000\ncause = 'quote'\n\
            path = [{ state = 'NOT_TAKEN', reason = 'INSUFFICIENT_FUNDS' }]\n";
        let with = |suffix: &str, cause| Instruction {
            settings: Some(rows.into()),
            ..order("USD_ACCOUNT", "accountNumber", &format!("123456{suffix}"), cause)
        };
        let rail = SandboxRail::default();
        assert_eq!(ask(rail, &with("789", Cause::Transfer), 0), RailAnswer::Refused);
        assert_eq!(ask(rail, &with("789", Cause::Quote), 0), RailAnswer::Refused);
        let failed = RailAnswer::Failed(RailFailure::AccountInvalid, Proof::OtherSide);
        assert_eq!(ask(rail, &with("003", Cause::Transfer), 0), failed);
        let refusal = answer_of(rail.check(&with("555", Cause::Quote)));
        assert_eq!(refusal, Err(RailFailure::InsufficientFunds));
        // An unreadable setting does not change anything.
        let unread = Instruction { settings: Some("x".into()), ..with("789", Cause::Transfer) };
        assert_eq!(ask(rail, &unread, 0), pending(SETTLES_AFTER_MILLIS));
    }

    #[test]
    fn an_account_is_what_its_suffix_says_and_changes_with_time() {
        let report = |suffix: &str, after_millis: i64| {
            let account = account("USD_ACCOUNT", "accountNumber", &format!("123456{suffix}"));
            let inquiry = AccountInquiry { account, since: SINCE, settings: None };
            answer_of(SandboxRail::default().inspect(&inquiry, SINCE.plus_millis(after_millis)))
        };
        for (suffix, verification, holder) in [
            ("789", Verification::Matched, Some("Maria da Silva")),
            ("102", Verification::NotMatched, None),
            ("103", Verification::PartialMatch, Some("M. da Silva")),
            ("104", Verification::Pending, None),
            ("106", Verification::Unsupported, None),
            ("107", Verification::CheckedByReceivingFi, None),
        ] {
            let expected = AccountReport {
                verification: Some(verification),
                holder_name: holder.map(str::to_owned),
                ..AccountReport::usable()
            };
            assert_eq!(report(suffix, 0), Ok(expected), "{suffix}");
        }
        assert_eq!(report("105", 0), Err(NoReport::NoSuchAccount));
        assert_eq!(report("109", 0), Err(NoReport::Failed));
        let states = |suffix| {
            [0, 59_999, 60_000].map(|after| report(suffix, after).expect("an account").status)
        };
        use domain::external_account::Status::{Active, Inactive, Pending, UnderReview};
        assert_eq!(states("181"), [Pending, Pending, Active]);
        assert_eq!(states("182"), [UnderReview, UnderReview, Active]);
        assert_eq!(states("183"), [Active, Active, UnderReview]);
        assert_eq!(states("184"), [Active, Active, Inactive]);
        let due = report("181", 5).expect("an account").ask_again_at;
        assert_eq!(due, Some(SINCE.plus_millis(60_000)));
        let address = "7EcDhSYGxXyscszYEp35KHN8vvw3svAuLKTzXwCF102";
        let account = account("SOLANA_WALLET", "address", address);
        let inquiry = AccountInquiry { account, since: SINCE, settings: None };
        let report = answer_of(SandboxRail::default().inspect(&inquiry, SINCE));
        assert_eq!(report, Ok(AccountReport::usable()));
    }

    #[test]
    fn addresses_are_paid_as_their_users_say() {
        let paid = |address: &str, after_millis: i64| {
            let address = domain::uma_address::UmaAddress::parse(address).expect("an address");
            let order = Instruction {
                party: Party::Uma { address, invoice: None },
                ..order("USD_ACCOUNT", "accountNumber", "123456789002", Cause::Quote)
            };
            ask(SandboxRail::default(), &order, after_millis)
        };
        let at = |user: &str, after| paid(&format!("${user}@sandbox.uma.money"), after);
        assert_eq!(at("success.usd", SETTLES_AFTER_MILLIS), RailAnswer::Settled);
        assert_eq!(at("pending.long.usd", 359_999), pending(360_000));
        assert_eq!(at("pending.long.usd", 360_000), RailAnswer::Settled);
        assert_eq!(at("fail.compliance.usd", 0), RailAnswer::Refused);
        let unknown = RailAnswer::Failed(RailFailure::AccountInvalid, Proof::OtherSide);
        assert_eq!(at("non.existent.usd", 0), unknown);
        assert_eq!(paid("$success.usd@elsewhere.test", 0), unknown);
        assert_eq!(paid("$fail.compliance.usd@elsewhere.test", 0), unknown);
    }
}
