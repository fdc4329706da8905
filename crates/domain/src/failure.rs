//! Why a payment was not made: the reason as the specification lists it, and the finer one beside
//! it (specification 2.3).

use std::borrow::Cow;
use std::fmt::Write as _;

use crate::rail::RailWords;

/// Why a transaction failed: one of the eight values of specification 2.3.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum FailureReason {
    /// The lookup before an incoming payment failed.
    LnurlpFailed,
    /// The pay request of an incoming payment failed.
    PayRequestFailed,
    /// The platform's approval webhook answered with an error.
    PaymentApprovalWebhookError,
    /// The platform did not decide in time.
    PaymentApprovalTimedOut,
    /// The rail could not deliver.
    OfframpFailed,
    /// The payee's platform left out data that the payer's side demands.
    MissingMandatoryPayeeData,
    /// The quote's time was over.
    QuoteExpired,
    /// A quote's transfer could not be made.
    QuoteExecutionFailed,
}

impl FailureReason {
    /// Every reason, in the order of the specification.
    pub const ALL: [Self; 8] = [
        Self::LnurlpFailed,
        Self::PayRequestFailed,
        Self::PaymentApprovalWebhookError,
        Self::PaymentApprovalTimedOut,
        Self::OfframpFailed,
        Self::MissingMandatoryPayeeData,
        Self::QuoteExpired,
        Self::QuoteExecutionFailed,
    ];

    /// The name that the API uses.
    pub const fn name(self) -> &'static str {
        match self {
            Self::LnurlpFailed => "LNURLP_FAILED",
            Self::PayRequestFailed => "PAY_REQUEST_FAILED",
            Self::PaymentApprovalWebhookError => "PAYMENT_APPROVAL_WEBHOOK_ERROR",
            Self::PaymentApprovalTimedOut => "PAYMENT_APPROVAL_TIMED_OUT",
            Self::OfframpFailed => "OFFRAMP_FAILED",
            Self::MissingMandatoryPayeeData => "MISSING_MANDATORY_PAYEE_DATA",
            Self::QuoteExpired => "QUOTE_EXPIRED",
            Self::QuoteExecutionFailed => "QUOTE_EXECUTION_FAILED",
        }
    }

    /// The reason with this API name.
    pub fn from_name(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|reason| reason.name() == name)
    }

    /// The finer reason where no more is known than this one.
    pub const fn status_reason(self) -> StatusReason {
        let message = match self {
            Self::LnurlpFailed => "the lookup before the payment failed",
            Self::PayRequestFailed => "the payer's institution did not pay",
            Self::PaymentApprovalWebhookError => {
                "the approval webhook could not be reached, or its answer was no decision"
            }
            Self::PaymentApprovalTimedOut => "the receiver's platform did not decide in time",
            Self::OfframpFailed => "the rail could not deliver the payment",
            Self::MissingMandatoryPayeeData => {
                "the receiver's platform left out data that the payer's side demands"
            }
            Self::QuoteExpired => "the money came after the quote had expired",
            Self::QuoteExecutionFailed => "the quote's transfer could not be made",
        };
        StatusReason::known(self.name(), message)
    }
}

/// The finer reason of a payment that failed or was rejected: a code for programs and plain words
/// for people, without personal data. A code may be a rail's own, so the set is open.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct StatusReason {
    code: Cow<'static, str>,
    message: Cow<'static, str>,
}

impl StatusReason {
    /// The receiving institution or wallet said no.
    pub const REJECTED_BY_RECEIVER: Self =
        Self::known("REJECTED_BY_RECEIVER", "the receiving institution rejected the payment");
    /// The receiver's platform decided against an incoming payment.
    pub const REJECTED_BY_PLATFORM: Self =
        Self::known("REJECTED_BY_PLATFORM", "the receiver's platform rejected the payment");
    /// A bank or wallet did not let money be pulled from it.
    pub const DEBIT_REJECTED: Self =
        Self::known("DEBIT_REJECTED", "the source's institution rejected the debit");
    /// There was not enough money where it should have come from.
    pub const INSUFFICIENT_FUNDS: Self =
        Self::known("INSUFFICIENT_FUNDS", "the account did not have enough money");
    /// The other account is closed or does not exist.
    pub const ACCOUNT_INVALID: Self =
        Self::known("ACCOUNT_INVALID", "the account is closed or does not exist");
    /// No answer came in time.
    pub const TIMEOUT: Self = Self::known("TIMEOUT", "no answer came in time");
    /// No partner moves money over the rail.
    pub const RAIL_NOT_CONNECTED: Self =
        Self::known("RAIL_NOT_CONNECTED", "no partner is connected that moves money over the rail");
    /// A Lightning payment failed.
    pub const LIGHTNING_PAYMENT_FAILED: Self =
        Self::known("LIGHTNING_PAYMENT_FAILED", "the Lightning payment failed");
    /// A deposit was not of the quote's amount.
    pub const FUNDING_AMOUNT_MISMATCH: Self = Self::known(
        "FUNDING_AMOUNT_MISMATCH",
        "the deposit was not of the amount that the quote asks for",
    );
    /// The destination cannot be paid any more.
    pub const DESTINATION_UNAVAILABLE: Self =
        Self::known("DESTINATION_UNAVAILABLE", "the destination could not be paid any more");
    /// The receiver's side of a payment failed.
    pub const COUNTERPARTY_FAILED: Self =
        Self::known("COUNTERPARTY_FAILED", "the receiver's institution could not take the payment");
    /// The other side has not said in time whether it took a payment.
    pub const OUTCOME_UNKNOWN: Self = Self::known(
        "OUTCOME_UNKNOWN",
        "the other side has not said whether it took the payment; a person has to find out",
    );
    /// A payment that was delivered came back.
    pub const RETURNED: Self =
        Self::known("RETURNED", "the receiving institution sent the money back");

    /// Every reason that is not a [`FailureReason`] too. Rails add their own.
    pub const FINER: [Self; 13] = [
        Self::REJECTED_BY_RECEIVER,
        Self::REJECTED_BY_PLATFORM,
        Self::DEBIT_REJECTED,
        Self::INSUFFICIENT_FUNDS,
        Self::ACCOUNT_INVALID,
        Self::TIMEOUT,
        Self::RAIL_NOT_CONNECTED,
        Self::LIGHTNING_PAYMENT_FAILED,
        Self::FUNDING_AMOUNT_MISMATCH,
        Self::DESTINATION_UNAVAILABLE,
        Self::COUNTERPARTY_FAILED,
        Self::OUTCOME_UNKNOWN,
        Self::RETURNED,
    ];

    const fn known(code: &'static str, message: &'static str) -> Self {
        Self { code: Cow::Borrowed(code), message: Cow::Borrowed(message) }
    }

    /// A reason in the words of its source.
    pub const fn given(code: String, message: String) -> Self {
        Self { code: Cow::Owned(code), message: Cow::Owned(message) }
    }

    /// The reason as the rail says it, as far as it does.
    #[must_use]
    pub fn in_words_of(self, rail: &RailWords) -> Self {
        let own = |said: Option<&str>| said.map(|said| Cow::Owned(said.to_owned()));
        Self {
            code: own(rail.code()).unwrap_or(self.code),
            message: own(rail.text()).unwrap_or(self.message),
        }
    }

    /// For programs.
    pub fn code(&self) -> &str {
        &self.code
    }

    /// For people.
    pub fn message(&self) -> &str {
        &self.message
    }
}

/// The reasons as tables, for `docs/states.md`.
pub(crate) fn markdown(page: &mut String) {
    page.push_str(
        "\n## Why a payment was not made\n\n\
         `failureReason` is on payments that failed, also when they were refunded. `statusReason` \
         is on those, on rejected ones, and on received ones whose deposit account did not take \
         the money; its `code` is the same or finer, and can be a rail's own. On a payment that is \
         `PROCESSING` it says that its outcome is unknown past its deadline.\n\n\
         | `failureReason` | in words |\n|---|---|\n",
    );
    let mut row = |code: &str, message: &str| {
        // Writing to a string cannot fail.
        let _ = writeln!(page, "| `{code}` | {message} |");
    };
    for reason in FailureReason::ALL {
        row(reason.name(), reason.status_reason().message());
    }
    page.push_str("\n| finer `statusReason.code` | `statusReason.message` |\n|---|---|\n");
    for reason in StatusReason::FINER {
        let _ = writeln!(page, "| `{}` | {} |", reason.code(), reason.message());
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeSet;

    #[test]
    fn codes_differ_and_failures_are_those_of_the_specification() {
        let names = FailureReason::ALL.map(FailureReason::name);
        assert!(
            FailureReason::ALL.iter().all(|it| FailureReason::from_name(it.name()) == Some(*it))
        );
        let finer = StatusReason::FINER.map(|reason| reason.code().to_owned());
        let codes: BTreeSet<_> = names.iter().map(|name| (*name).to_owned()).chain(finer).collect();
        assert_eq!(codes.len(), 8 + 13);
        assert_eq!(FailureReason::from_name("TIMEOUT"), None);
    }
}
