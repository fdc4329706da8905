//! One example of every movement, in every way that it can end.

use domain::currency::Currency;
use domain::id::{InternalAccountId, Owner};
use domain::money::{Money, Receiving, Sending};
use domain::rail::Rail;

use super::{Example, acme, ada, bo, currency, money};
use crate::movements::{self, Source, Target};
use crate::posting::{Posting, PostingError, Resolution};

/// Every movement in every way it can end.
pub(super) fn all() -> Vec<String> {
    vec![
        deposit(),
        transfer_out_settled(),
        transfer_out_rejected(),
        transfer_out_refused(),
        transfer_in_settled(),
        transfer_in_failed(),
        quote_to_internal(),
        quote_in_one_currency(),
        quote_to_external_settled(),
        quote_to_external_failed(),
        quote_to_another_institution(),
        quote_to_a_customer_here(),
        quote_funded_in_real_time(),
        quote_funded_with_the_wrong_amount(),
        unmatched_money(),
        receipt(),
        receipt_deposited(),
        receipt_converted_and_refused(),
        return_after_settlement(),
        return_to_suspense(),
        return_to_someone_gone(),
    ]
}

fn deposit() -> String {
    let mut example = Example::new("Deposit", "Money comes in for an internal account.");
    example.post(movements::deposit(acme(), Rail::Ach, ada("USD"), money(10_000, "USD")));
    example.finish()
}

fn transfer_out_settled() -> String {
    let mut example = Example::new(
        "Transfer-out, settled",
        "The money is set aside while the rail works and leaves when it settles.",
    );
    example.given(movements::deposit(acme(), Rail::Ach, ada("USD"), money(10_000, "USD")));
    let pending =
        example.pend(movements::transfer_out(acme(), ada("USD"), Rail::Ach, money(6_000, "USD")));
    example.resolve(pending, "the rail has settled", Resolution::Post);
    example.finish()
}

fn transfer_out_rejected() -> String {
    let mut example = Example::new(
        "Transfer-out, rejected or failed",
        "What was set aside is available again, as if nothing had been.",
    );
    example.given(movements::deposit(acme(), Rail::Ach, ada("USD"), money(10_000, "USD")));
    let pending =
        example.pend(movements::transfer_out(acme(), ada("USD"), Rail::Ach, money(6_000, "USD")));
    example.resolve(pending, "the receiver's bank rejected the payment", Resolution::Void);
    example.finish()
}

fn transfer_out_refused() -> String {
    let mut example = Example::new(
        "Transfer-out, refused",
        "More is asked for than is available: the ledger refuses and nothing changes.",
    );
    example.given(movements::deposit(acme(), Rail::Ach, ada("USD"), money(10_000, "USD")));
    example.pend(movements::transfer_out(acme(), ada("USD"), Rail::Ach, money(6_000, "USD")));
    example.refused(movements::transfer_out(acme(), ada("USD"), Rail::Ach, money(6_000, "USD")));
    example.finish()
}

fn transfer_in_settled() -> String {
    let mut example = Example::new(
        "Transfer-in, settled",
        "What is on its way in is not available before the rail has it.",
    );
    let pending =
        example.pend(movements::transfer_in(acme(), Rail::Ach, ada("USD"), money(4_000, "USD")));
    example.resolve(pending, "the rail has settled", Resolution::Post);
    example.finish()
}

fn transfer_in_failed() -> String {
    let mut example = Example::new("Transfer-in, failed", "Nothing came, nothing is available.");
    let pending =
        example.pend(movements::transfer_in(acme(), Rail::Ach, ada("USD"), money(4_000, "USD")));
    example.resolve(pending, "the rail reported a failure", Resolution::Void);
    example.finish()
}

fn quote_to_internal() -> String {
    let mut example = Example::new(
        "Quote, internal account to internal account",
        "Each currency balances by itself; the two exchange accounts hold the open position.",
    );
    example.given(movements::deposit(acme(), Rail::Ach, ada("USD"), money(10_000, "USD")));
    example.post(dollars_to_euros(Source::Internal(ada("USD")), Target::Internal(bo("EUR"))));
    example.finish()
}

fn quote_in_one_currency() -> String {
    let mut example = Example::new(
        "Quote in one currency",
        "Nothing is exchanged. Should rounding leave a smallest unit over, the exchange account \
         of the currency takes it, in plain sight.",
    );
    example.given(movements::deposit(acme(), Rail::Ach, ada("USD"), money(10_000, "USD")));
    example.post(movements::exchange(
        Source::Internal(ada("USD")),
        Target::Internal(bo("USD")),
        acme(),
        Sending(money(10_000, "USD")),
        money(200, "USD"),
        Receiving(money(9_799, "USD")),
    ));
    example.finish()
}

fn quote_to_external_settled() -> String {
    let mut example = Example::new(
        "Quote, internal account to external account, settled",
        "The whole posting is pending until the rail answers.",
    );
    example.given(movements::deposit(acme(), Rail::Ach, ada("USD"), money(10_000, "USD")));
    let pending =
        example.pend(dollars_to_euros(Source::Internal(ada("USD")), Target::Rail(Rail::Sepa)));
    example.resolve(pending, "the rail has settled", Resolution::Post);
    example.finish()
}

fn quote_to_external_failed() -> String {
    let mut example = Example::new(
        "Quote, internal account to external account, failed",
        "The fees go back with the rest.",
    );
    example.given(movements::deposit(acme(), Rail::Ach, ada("USD"), money(10_000, "USD")));
    let pending =
        example.pend(dollars_to_euros(Source::Internal(ada("USD")), Target::Rail(Rail::Sepa)));
    example.resolve(pending, "the rail reported a failure", Resolution::Void);
    example.finish()
}

fn quote_to_another_institution() -> String {
    let mut example = Example::new(
        "Quote to a UMA address at another institution",
        "What leaves is what its invoice asks for, in millisatoshi. The other institution turns it \
         into what its customer receives.",
    );
    example.given(movements::deposit(acme(), Rail::Ach, ada("USD"), money(10_000, "USD")));
    let pending = example.pend(movements::exchange(
        Source::Internal(ada("USD")),
        Target::Rail(Rail::Lightning),
        acme(),
        Sending(money(10_000, "USD")),
        money(200, "USD"),
        Receiving(Money::new(97_510_000, Currency::MSAT).expect("a small amount")),
    ));
    example.resolve(pending, "the invoice is paid", Resolution::Post);
    example.finish()
}

fn quote_to_a_customer_here() -> String {
    let mut example = Example::new(
        "Quote to a UMA address of this server",
        "Two payments, which may be of two platforms: that of the payer waits in transit until the \
         payee's platform has decided; then both are posted at once.",
    );
    example.given(movements::deposit(acme(), Rail::Ach, ada("USD"), money(10_000, "USD")));
    let pending = example.pend(dollars_to_euros(Source::Internal(ada("USD")), Target::Transit));
    example.resolve(pending, "the payee's platform has approved", Resolution::Post);
    example.post(movements::delivery(bo("EUR"), money(9_000, "EUR")));
    example.finish()
}

fn quote_funded_in_real_time() -> String {
    let mut example = Example::new(
        "Quote funded in real time",
        "The money that funds the quote waits in suspense and is exchanged from there.",
    );
    example.post(movements::funding(acme(), Rail::Rtp, money(10_000, "USD")));
    let pending = example.pend(dollars_to_euros(Source::Suspense, Target::Rail(Rail::Sepa)));
    example.resolve(pending, "the rail has settled", Resolution::Post);
    example.finish()
}

fn quote_funded_with_the_wrong_amount() -> String {
    let mut example = Example::new(
        "Quote funded with the wrong amount, or too late",
        "Nothing is exchanged. The money goes from suspense to the internal account; the \
         transaction is `FAILED`, then `REFUNDED`.",
    );
    example.post(movements::funding(acme(), Rail::Rtp, money(9_000, "USD")));
    example.post(movements::suspense_return(acme(), ada("USD"), money(9_000, "USD")));
    example.finish()
}

fn unmatched_money() -> String {
    let mut example =
        Example::new("Money that matches nothing", "It stays in suspense until it is matched.");
    example.post(movements::suspense(acme(), Rail::Wire, money(2_500, "USD")));
    example.post(movements::suspense_return(acme(), bo("USD"), money(2_500, "USD")));
    example.finish()
}

fn receipt() -> String {
    let mut example = Example::new(
        "Receipt of a payment from another institution",
        "What arrived stays on the exchange account of its asset; fees and the received amount \
         are in the currency of the receiver. Nothing is booked for an invoice that was not paid.",
    );
    example.post(received_dollars());
    example.finish()
}

fn receipt_deposited() -> String {
    let mut example = Example::new(
        "Receipt that goes on to a deposit account",
        "What was received is in the internal account until the bank has it, all of it in one \
         payment.",
    );
    example.given(received_dollars());
    let pending = example.pend(movements::payout(
        ada("USD"),
        Rail::Ach,
        acme(),
        Receiving(money(9_900, "USD")),
        money(0, "USD"),
        money(9_900, "USD"),
    ));
    example.resolve(pending, "the bank has taken it", Resolution::Post);
    example.finish()
}

fn receipt_converted_and_refused() -> String {
    let mut example = Example::new(
        "Receipt that is converted for a deposit account, refused",
        "The money stays in the internal account, in the currency in which it was received, and \
         the fees with it.",
    );
    example.given(received_dollars());
    let pending = example.pend(movements::payout(
        ada("USD"),
        Rail::Sepa,
        acme(),
        Receiving(money(9_900, "USD")),
        money(100, "USD"),
        money(9_000, "EUR"),
    ));
    example.resolve(pending, "the bank has refused it", Resolution::Void);
    example.finish()
}

/// 99.00 USD received for 100,000 satoshi.
fn received_dollars() -> Result<Posting, PostingError> {
    movements::receipt(
        Rail::Lightning,
        ada("USD"),
        acme(),
        Sending(Money::new(100_000_000, Currency::MSAT).expect("a small amount")),
        money(100, "USD"),
        Receiving(money(9_900, "USD")),
    )
}

fn return_after_settlement() -> String {
    let mut example = Example::new(
        "Return after settlement",
        "The rail had settled and the money came back: the same entries once more, on the other \
         side.",
    );
    example.given(movements::deposit(acme(), Rail::Ach, ada("USD"), money(10_000, "USD")));
    let settled = movements::transfer_out(acme(), ada("USD"), Rail::Ach, money(6_000, "USD"));
    let pending = example.pend(settled);
    example.resolve(pending, "the rail has settled", Resolution::Post);
    let settled = example.book.posting(pending).expect("pended above").posting.clone();
    example.post(Ok(movements::reverse(&settled)));
    example.finish()
}

fn return_to_suspense() -> String {
    let mut example = Example::new(
        "Return of a quote that was funded in real time",
        "The exchange is reversed at its own rate, the fees with it; what had funded it goes from \
         suspense to the internal account. The transaction is `FAILED`, then `REFUNDED`.",
    );
    example.given(movements::funding(acme(), Rail::Rtp, money(10_000, "USD")));
    let settled = dollars_to_euros(Source::Suspense, Target::Rail(Rail::Sepa));
    let pending = example.pend(settled);
    example.resolve(pending, "the rail has settled", Resolution::Post);
    let settled = example.book.posting(pending).expect("pended above").posting.clone();
    example.post(Ok(movements::reverse(&settled)));
    example.post(movements::suspense_return(acme(), ada("USD"), money(10_000, "USD")));
    example.finish()
}

fn return_to_someone_gone() -> String {
    let mut example = Example::new(
        "Return to a customer who was deleted",
        "Nothing leaves the accounts of a deleted customer any more, so what comes back waits in \
         suspense. An operator gives it to the platform; the transaction is `FAILED`, and \
         `REFUNDED` then.",
    );
    example.given(movements::deposit(acme(), Rail::Ach, ada("USD"), money(6_000, "USD")));
    let pending =
        example.pend(movements::transfer_out(acme(), ada("USD"), Rail::Ach, money(6_000, "USD")));
    example.resolve(pending, "the rail has settled", Resolution::Post);
    let settled = example.book.posting(pending).expect("pended above").posting.clone();
    example.post(movements::reverse_into_suspense(acme(), &settled, ada("USD")));
    let acmes = InternalAccountId::of(Owner::Platform(acme()), currency("USD"));
    example.post(movements::suspense_return(acme(), acmes, money(6_000, "USD")));
    example.finish()
}

/// 100.00 USD sent, 2.00 USD of them fees, 90.00 EUR received.
fn dollars_to_euros(source: Source, target: Target) -> Result<Posting, PostingError> {
    movements::exchange(
        source,
        target,
        acme(),
        Sending(money(10_000, "USD")),
        money(200, "USD"),
        Receiving(money(9_000, "EUR")),
    )
}
