//! Rows of scenarios as an operator writes them, in TOML.

use domain::clock::AHEAD_MAX_MILLIS;
use domain::currency::Currency;
use domain::external_account::{Status, Verification};
use ports::rail::{Cause, RailFailure};
use serde::Deserialize;

use super::{Account, AccountPath, AccountState, End, Payment, PaymentPath, USABLE, Wait};

/// States of one path.
const PATH_MAX: usize = 8;

/// Characters of a suffix.
const SUFFIX_LENGTH: usize = 3;

/// A file as it is written.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct File {
    #[serde(default)]
    pub(super) payments: Vec<PaymentRow>,
    #[serde(default)]
    pub(super) accounts: Vec<AccountRow>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct PaymentRow {
    suffix: Option<String>,
    user: Option<String>,
    amount: Option<i64>,
    currency: Option<String>,
    cause: Option<String>,
    path: Vec<PaymentStep>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct PaymentStep {
    state: String,
    reason: Option<String>,
    seconds: Option<i64>,
    code: Option<String>,
    text: Option<String>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct AccountRow {
    suffix: String,
    path: Vec<AccountStep>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct AccountStep {
    status: Option<String>,
    verification: Option<String>,
    seconds: Option<i64>,
}

impl PaymentRow {
    pub(super) fn read(self) -> Result<Payment, String> {
        if self.suffix.is_none() && self.user.is_none() && self.amount.is_none() {
            return Err("say what it fits: give a suffix, a user or an amount".to_owned());
        }
        if self.suffix.is_some() && self.user.is_some() {
            return Err("nothing has both a suffix and a user".to_owned());
        }
        let currency = match &self.currency {
            Some(_) if self.amount.is_none() => {
                return Err("a currency goes with an amount".to_owned());
            }
            Some(code) => {
                Some(Currency::from_code(code).ok_or_else(|| format!("{code} is no currency"))?)
            }
            None => None,
        };
        if self.amount.is_some_and(|minor| minor <= 0) {
            return Err("an amount is more than 0, in the smallest unit".to_owned());
        }
        let cause = match self.cause.as_deref() {
            None => None,
            Some("transfer") => Some(Cause::Transfer),
            Some("quote") => Some(Cause::Quote),
            Some(other) => return Err(format!("cause is transfer or quote, not {other}")),
        };
        Ok(Payment {
            suffix: self.suffix.map(suffix).transpose()?,
            user: self.user,
            amount: self.amount.map(|minor| (minor, currency)),
            cause,
            path: payment_path(&self.path)?,
        })
    }
}

/// A suffix of the length that account numbers are looked at with.
fn suffix(text: String) -> Result<String, String> {
    if text.chars().count() == SUFFIX_LENGTH {
        Ok(text)
    } else {
        Err(format!("a suffix has {SUFFIX_LENGTH} characters, not '{text}'"))
    }
}

fn millis(seconds: i64) -> Result<i64, String> {
    let most = AHEAD_MAX_MILLIS / 1_000;
    if (1..=most).contains(&seconds) {
        Ok(seconds * 1_000)
    } else {
        Err(format!("seconds are from 1 to {most}, not {seconds}"))
    }
}

fn payment_path(steps: &[PaymentStep]) -> Result<PaymentPath, String> {
    if steps.len() > PATH_MAX {
        return Err(format!("a path has at most {PATH_MAX} states"));
    }
    let waits = steps.iter().take_while(|step| step.state == "PENDING").count();
    let (waiting, rest) = steps.split_at(waits);
    let pending = match waiting {
        [] => Wait::Millis(0),
        [PaymentStep { seconds: None, reason: None, .. }] => Wait::Usual,
        _ => {
            let each = waiting.iter().map(|step| match (step.seconds, &step.reason) {
                (Some(seconds), None) => millis(seconds),
                (None, _) => Err("one of several PENDING needs seconds".to_owned()),
                (Some(_), Some(_)) => Err("PENDING has no reason".to_owned()),
            });
            let all = each.collect::<Result<Vec<_>, _>>()?;
            Wait::Millis(all.into_iter().fold(0, i64::saturating_add))
        }
    };
    let named = |reason: &Option<String>| match reason.as_deref() {
        Some("INSUFFICIENT_FUNDS") => Ok(RailFailure::InsufficientFunds),
        Some("ACCOUNT_INVALID") => Ok(RailFailure::AccountInvalid),
        Some("TIMED_OUT") => Ok(RailFailure::TimedOut),
        _ => Err("give a reason: INSUFFICIENT_FUNDS, ACCOUNT_INVALID or TIMED_OUT".to_owned()),
    };
    let end = match rest {
        [PaymentStep { state, reason: None, seconds: None, .. }] if state == "SETTLED" => {
            End::Settled
        }
        [PaymentStep { state, reason: None, seconds: None, .. }] if state == "REFUSED" => {
            End::Refused
        }
        [PaymentStep { state, reason, seconds: None, .. }] if state == "FAILED" => {
            End::Failed(named(reason)?)
        }
        [PaymentStep { state, reason, seconds: None, .. }]
            if state == "NOT_TAKEN" && waits == 0 =>
        {
            End::NotTaken(named(reason)?)
        }
        [
            PaymentStep { state: first, reason: None, seconds: Some(seconds), .. },
            PaymentStep { state: then, reason: None, seconds: None, .. },
        ] if first == "SETTLED" && then == "RETURNED" => {
            End::Returned { after_millis: millis(*seconds)? }
        }
        _ => {
            return Err("after PENDING, with or without seconds, a path ends with SETTLED; with \
                        SETTLED for some seconds, and RETURNED; with REFUSED; or with FAILED for \
                        a reason. NOT_TAKEN for a reason stands alone"
                .to_owned());
        }
    };
    let said_early = steps.split_last().is_some_and(|(_, earlier)| {
        earlier.iter().any(|step| step.code.is_some() || step.text.is_some())
    });
    if said_early {
        return Err("code and text belong to the last state".to_owned());
    }
    let words = |of: fn(&PaymentStep) -> &Option<String>| rest.last().and_then(|it| of(it).clone());
    let (code, text) = (words(|step| &step.code), words(|step| &step.text));
    Ok(PaymentPath { pending, end, code, text })
}

impl AccountRow {
    pub(super) fn read(self) -> Result<Account, String> {
        Ok(Account { suffix: suffix(self.suffix)?, path: account_path(&self.path)? })
    }
}

fn account_path(steps: &[AccountStep]) -> Result<AccountPath, String> {
    if steps.len() > PATH_MAX {
        return Err(format!("a path has at most {PATH_MAX} states"));
    }
    if let [AccountStep { status: Some(status), verification: None, seconds: None }] = steps
        && let Some((_, path)) = [("UNKNOWN", AccountPath::Unknown), ("FAILS", AccountPath::Fails)]
            .into_iter()
            .find(|(name, _)| status == name)
    {
        return Ok(path);
    }
    let state = |step: &AccountStep| {
        let status = step.status.as_deref().unwrap_or(USABLE.status.name());
        let status = Status::from_name(status)
            .ok_or_else(|| format!("{status} is no status; UNKNOWN and FAILS stand alone"))?;
        let verification = step.verification.as_deref().unwrap_or(USABLE.verification.name());
        let verification = Verification::from_name(verification)
            .ok_or_else(|| format!("{verification} is no result of a verification"))?;
        Ok::<_, String>(AccountState { status, verification })
    };
    let Some((last, first)) = steps.split_last() else {
        return Err("a path has at least one state".to_owned());
    };
    if steps.iter().skip(1).any(|step| step.status.as_deref() == Some("PENDING")) {
        return Err("an account is PENDING only at first".to_owned());
    }
    if last.seconds.is_some() {
        return Err("the last state lasts, it has no seconds".to_owned());
    }
    let first = first.iter().map(|step| {
        let seconds = step.seconds.ok_or("every state but the last has seconds")?;
        Ok::<_, String>((state(step)?, millis(seconds)?))
    });
    Ok(AccountPath::Known { first: first.collect::<Result<_, _>>()?, last: state(last)? })
}
