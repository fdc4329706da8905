//! Hash-locked settlement: two servers settle a Lightning invoice without a Lightning network.
//!
//! The payer's server posts the invoice to the payee's server. The payee's server books the payment
//! and answers with the preimage, which is the receipt. The payment hash identifies the payment, so
//! asking again is the same payment and has the same preimage.
//!
//! Guarantee: a payment settles only with the preimage of its invoice. It fails only by a code of
//! the protocol that refuses the payment itself. Everything else leaves its fate unknown, and is
//! asked about again: a proxy can answer for a server that has booked.
//!
//! Limits: no money moves between the institutions, so it serves sandbox platforms only. The
//! payee's server is believed when it says that it booked nothing. One that does not settle this
//! way and has no code for that leaves the payment to a person.

use std::future::ready;
use std::sync::Arc;
use std::time::Duration;

use bitcoin::hashes::{Hash as _, sha256};
use bitcoin::hex::{DisplayHex as _, FromHex as _};
use domain::rail::RailWords;
use domain::time::Timestamp;
use domain::uma_address::UmaAddress;
use ports::lightning::{INVOICE_MILLIS, Invoice};
use ports::locality::TestReach;
use ports::outbound::{Method, Outbound, OutboundAnswer, OutboundFailure, OutboundRequest};
use ports::rail::{Instruction, Pending, Proof, RailAnswer, RailFailure, RailReply};
use serde::{Deserialize, Serialize};

use ::uma::address::Address;
use ::uma::error::{ErrorCode, PeerCode, PeerError};

use super::{Settlement, pending, said, unsendable};
use crate::lightning::{Network, read_invoice};

/// The path of the payee's server that takes invoices.
const SETTLE_PATH: &str = "/uma/settle";

/// How long the payee's server has. It books one payment; other orders of ours may wait meanwhile.
const SETTLE_WITHIN: Duration = Duration::from_secs(9);

/// The message to the payee's server.
#[derive(Serialize)]
struct Settle<'a> {
    pr: &'a str,
}

/// The answer of the payee's server.
#[derive(Deserialize)]
struct Receipt {
    preimage: String,
}

/// Settles payments to and from addresses of other institutions. Stateless: clones and restarts
/// send the same.
#[derive(Clone)]
pub struct HashLocked {
    outbound: Arc<dyn Outbound>,
    network: Network,
    reach: TestReach,
}

impl HashLocked {
    /// Settles invoices of a network over this way out.
    pub const fn new(outbound: Arc<dyn Outbound>, network: Network, reach: TestReach) -> Self {
        Self { outbound, network, reach }
    }

    /// Gives the order to pay `address`, or asks how it went.
    async fn pay(
        &self,
        order: &Instruction,
        address: &UmaAddress,
        invoice: &str,
        now: Timestamp,
    ) -> RailReply {
        let read = match self.read(order, invoice) {
            Ok(read) => read,
            Err(why) => return unsendable(&why),
        };
        match self.outbound.send(self.request(address, invoice)).await {
            Ok(answer) => outcome(order, &read, &answer, now),
            // Nothing was sent this time. An earlier question may have got through, whatever the
            // guard, the connection or the name's address have become since.
            Err(
                failure @ (OutboundFailure::Refused(_)
                | OutboundFailure::Unreachable
                | OutboundFailure::TimedOut),
            ) => said(pending(order, now), None, &failure.to_string()),
        }
    }

    /// The order's invoice, or why it is not one. Whether it has expired, the payee's server says:
    /// it may have booked the payment before.
    fn read(&self, order: &Instruction, text: &str) -> Result<Invoice, String> {
        let invoice = read_invoice(self.network, text);
        let invoice = invoice.map_err(|error| format!("the text of the order {error}"))?;
        if invoice.msat != order.amount {
            let (named, ordered) = (invoice.msat.minor(), order.amount.minor());
            return Err(format!("the invoice is for {named} and not for {ordered} millisatoshi"));
        }
        Ok(invoice)
    }

    fn request(&self, address: &UmaAddress, invoice: &str) -> OutboundRequest {
        let body = serde_json::to_vec(&Settle { pr: invoice });
        OutboundRequest {
            method: Method::Post,
            url: Address::from(address).domain().url(SETTLE_PATH),
            reach: self.reach.now(),
            headers: vec![("content-type", "application/json".to_owned())],
            body: body.expect("a text can be written as JSON"),
            within: SETTLE_WITHIN,
        }
    }
}

impl Settlement for HashLocked {
    fn pay<'a>(
        &'a self,
        order: &'a Instruction,
        address: &'a UmaAddress,
        invoice: &'a str,
        now: Timestamp,
    ) -> Pending<'a, RailReply> {
        Box::pin(self.pay(order, address, invoice, now))
    }

    fn await_payment<'a>(
        &'a self,
        order: &'a Instruction,
        now: Timestamp,
    ) -> Pending<'a, RailReply> {
        Box::pin(ready(awaited(order, now).into()))
    }
}

/// The answer about money from elsewhere: its institution asks our server, which books it. The rail
/// only ends the wait once our invoice has expired.
fn awaited(order: &Instruction, now: Timestamp) -> RailAnswer {
    let expires_at = order.since.plus_millis(INVOICE_MILLIS);
    if now < expires_at {
        RailAnswer::Pending { ask_again_at: expires_at }
    } else {
        RailAnswer::Failed(RailFailure::TimedOut, Proof::Closed)
    }
}

/// The outcome of a payment by the answer of the payee's server.
fn outcome(
    order: &Instruction,
    invoice: &Invoice,
    answer: &OutboundAnswer,
    now: Timestamp,
) -> RailReply {
    if let Some(error) = PeerError::read(answer.status, &answer.body) {
        let (refusal, code) = match &error.code {
            PeerCode::Known(code) => (refusal(*code), Some(code.name())),
            PeerCode::Unknown(text) => (None, Some(text.as_str())),
            PeerCode::Absent => (None, None),
        };
        let refusal = refusal.filter(|_| error.says_error && decides(answer.status));
        let answer = refusal.unwrap_or_else(|| pending(order, now));
        return said(answer, code, &error.reason);
    }
    let receipt = serde_json::from_slice(&answer.body).ok();
    let preimage = receipt.and_then(|it: Receipt| <[u8; 32]>::from_hex(&it.preimage).ok());
    let Some(preimage) = preimage else {
        return said(pending(order, now), None, "the payee's server answered without a preimage");
    };
    if sha256::Hash::hash(&preimage).to_byte_array() != invoice.payment_hash {
        tracing::warn!(payment = %order.key, "the preimage of a peer does not match the invoice");
        let why = "the payee's server answered with a preimage that is not the invoice's";
        return said(pending(order, now), None, why);
    }
    let reference = preimage.to_lower_hex_string();
    RailReply { answer: RailAnswer::Settled, words: RailWords::new(None, None, Some(&reference)) }
}

/// Whether a server that answers with this status has decided. One that is busy or has failed may
/// have booked before, and a redirection is of something in front of it.
fn decides(status: u16) -> bool {
    matches!(status, 200..=299 | 400..=499 | 501) && !matches!(status, 408 | 425 | 429)
}

/// The answer of a code that refuses the payment itself: nothing was booked and nothing will be.
fn refusal(code: ErrorCode) -> Option<RailAnswer> {
    use ErrorCode as Code;
    let failed = |failure| Some(RailAnswer::Failed(failure, Proof::OtherSide));
    match code {
        Code::InvoiceExpired | Code::QuoteExpired => failed(RailFailure::TimedOut),
        Code::InvalidInvoice | Code::RequestNotFound | Code::QuoteNotFound | Code::UserNotFound => {
            failed(RailFailure::AccountInvalid)
        }
        Code::AmountOutOfRange
        | Code::InvalidCurrency
        | Code::SenderNotAccepted
        | Code::MissingMandatoryPayerData
        | Code::MissingMandatoryPayeeData
        | Code::UnrecognizedMandatoryPayeeDataKey
        | Code::VelocityLimitExceeded
        | Code::UserNotReady
        | Code::CounterpartyNotAllowed => Some(RailAnswer::Refused),
        Code::NotImplemented => failed(RailFailure::NotConnected),
        // About a message, not about the payment: something on the way has changed it, or took it
        // for another. The same bytes may have been read well before.
        Code::InvalidInput
        | Code::InvalidRequestFormat
        | Code::Forbidden
        | Code::NonUmaLnurlNotSupported
        | Code::InvalidPubkeyFormat
        | Code::CertChainInvalid
        | Code::CertChainExpired
        | Code::InvalidTimestamp
        | Code::InvalidNonce
        | Code::InvalidSignature
        | Code::MissingRequiredUmaParameters
        | Code::ParseLnurlpRequestError
        | Code::ParsePayreqRequestError
        | Code::ParseUtxoCallbackError
        | Code::ParseLnurlpResponseError
        | Code::ParsePayreqResponseError
        | Code::UnsupportedUmaVersion
        | Code::CounterpartyPubkeyFetchError
        | Code::LnurlpRequestFailed
        | Code::PayreqRequestFailed
        | Code::NoCompatibleUmaVersion
        | Code::UmaConfigurationFetchError
        | Code::InternalError => None,
    }
}

#[cfg(test)]
mod tests;
