//! A Lightning node inside the server, of the crates of LDK: payments between institutions over
//! channels, with invoices, hash-locked contracts and preimages of Lightning itself.
//!
//! Guarantee: a payment is made once, however often it is asked for and wherever a crash comes
//! between; it has settled only with the preimage of its invoice. Money from a payer is claimed
//! only while the payment waits for it, and no payment is given up whose money is being claimed.
//!
//! Limits: there is no Bitcoin chain behind the channels. They are opened with invented money, are
//! usable at once, and are taken from named peers only, so the node serves sandbox platforms. A
//! folder is of one server; an old copy of it must never be opened, as peers go on with the newer
//! state.

mod disk;
mod events;
mod outcomes;
mod parts;
mod peers;
mod start;

use std::io;
use std::str::FromStr as _;
use std::sync::Arc;
use std::time::Duration;

use bitcoin::secp256k1::PublicKey;
use domain::id::TransactionId;
use domain::rail::RailWords;
use domain::time::Timestamp;
use domain::uma_address::UmaAddress;
use lightning::ln::channelmanager::{Bolt11PaymentError, PaymentId, Retry, RetryableSendFailure};
use lightning::routing::router::RouteParametersConfig;
use lightning::sign::KeysManager;
use lightning::types::payment::PaymentHash;
use lightning_invoice::Bolt11Invoice;
use ports::clock::Clock;
use ports::lightning::{INVOICE_MILLIS, InvalidInvoice, Invoice, Lightning, NewInvoice};
use ports::rail::{Instruction, Pending, Proof, RailAnswer, RailFailure, RailReply};
use tokio::sync::{mpsc, watch};

use self::disk::Disk;
pub use self::disk::Files;
use self::outcomes::{Failure, Outcome, Outcomes};
use self::parts::{Manager, Monitors, Peers};
pub use self::peers::{NodePeer, WrongPeer};
pub use self::start::{Settings, StartError, files, node_id};
use super::{Settlement, pending, said, unsendable};
use crate::lightning::Network;
use crate::lightning::{FINAL_EXPIRY_BLOCKS, LightningNode, read_invoice, seconds};

/// Invoices of the node are of the network that everybody runs for themselves.
const NETWORK: Network = Network::Regtest;

/// How long an order waits for its payment before it is asked about again: a payment over a channel
/// takes a tenth of a second, and other orders may wait meanwhile.
const ANSWER_WITHIN: Duration = Duration::from_secs(5);

/// How long the library looks for a channel with room. After that, the next question tries again.
const ROOM_WITHIN: Duration = Duration::from_secs(3);

/// When money is asked about again that is being claimed.
const CLAIM_MILLIS: i64 = 1_000;

/// The node. It works while [`Node::run`] does.
pub struct Node {
    manager: Arc<Manager>,
    monitors: Arc<Monitors>,
    peers: Arc<Peers>,
    keys: Arc<KeysManager>,
    disk: Arc<Disk>,
    outcomes: Outcomes,
    invoices: LightningNode,
    named: Vec<NodePeer>,
    /// The server's clock, by which invoices expire. A platform's may be ahead of it.
    clock: Arc<dyn Clock>,
    /// Wakes those who wait for an outcome.
    decided: watch::Sender<()>,
    /// Payments that we were paid for.
    arrived: mpsc::UnboundedSender<TransactionId>,
}

/// How the node takes an order.
enum Given {
    Decided(Outcome),
    UnderWay,
    /// Nothing was sent: the payee is away, or no channel has room.
    NotSent,
}

impl Node {
    /// Gives the payment of an invoice to the library, unless it was given before.
    fn give(&self, text: &str, read: &Invoice) -> io::Result<Given> {
        let hash = &read.payment_hash;
        let turn = self.outcomes.turn();
        if let Some(outcome) = turn.get(hash)? {
            return Ok(Given::Decided(outcome));
        }
        if self.is_under_way(hash) {
            return Ok(Given::UnderWay);
        }
        let failure = match text.parse::<Bolt11Invoice>() {
            _ if self.clock.now() >= read.expires_at => Failure::Expired,
            Err(_) => Failure::Unpayable,
            Ok(invoice) => {
                let (id, route) = (PaymentId(*hash), RouteParametersConfig::default());
                let retry = Retry::Timeout(ROOM_WITHIN);
                use RetryableSendFailure as Refused;
                match self.manager.pay_for_bolt11_invoice(&invoice, id, None, route, retry) {
                    Ok(()) | Err(Bolt11PaymentError::SendingFailed(Refused::DuplicatePayment)) => {
                        return Ok(Given::UnderWay);
                    }
                    Err(Bolt11PaymentError::SendingFailed(Refused::RouteNotFound)) => {
                        return Ok(Given::NotSent);
                    }
                    Err(Bolt11PaymentError::SendingFailed(Refused::PaymentExpired)) => {
                        Failure::Expired
                    }
                    Err(
                        Bolt11PaymentError::InvalidAmount
                        | Bolt11PaymentError::SendingFailed(Refused::OnionPacketSizeExceeded),
                    ) => Failure::Unpayable,
                }
            }
        };
        let outcome = Outcome::Failed(failure);
        turn.keep(hash, &outcome)?;
        Ok(Given::Decided(outcome))
    }

    /// Whether the library has the payment. It forgets one that failed before the event of that is
    /// handled, so this is only asked in the turn of the outcomes.
    fn is_under_way(&self, hash: &[u8; 32]) -> bool {
        use lightning::ln::channelmanager::RecentPaymentDetails as Payment;
        self.manager.list_recent_payments().iter().any(|payment| match payment {
            Payment::AwaitingInvoice { payment_id }
            | Payment::Pending { payment_id, .. }
            | Payment::Fulfilled { payment_id, .. }
            | Payment::Abandoned { payment_id, .. } => payment_id.0 == *hash,
        })
    }

    /// Waits until the payment has an outcome; nothing when the time is over before.
    async fn outcome(&self, hash: &[u8; 32]) -> io::Result<Option<Outcome>> {
        let mut decided = self.decided.subscribe();
        let outcome = async {
            loop {
                if let Some(outcome) = self.outcomes.turn().get(hash)? {
                    return Ok(outcome);
                }
                // The sender is this node.
                let _ = decided.changed().await;
            }
        };
        tokio::time::timeout(ANSWER_WITHIN, outcome).await.ok().transpose()
    }

    /// Pays the invoice of an order, or says how that went.
    async fn pay(&self, order: &Instruction, text: &str, now: Timestamp) -> RailReply {
        let read = match read_invoice(NETWORK, text) {
            Ok(read) if read.msat == order.amount => read,
            Ok(_) => return unsendable("the invoice is for another amount than the order"),
            Err(error) => return unsendable(&format!("the text of the order {error}")),
        };
        let outcome = match self.give(text, &read) {
            Ok(Given::Decided(outcome)) => Some(outcome),
            Ok(Given::UnderWay) => self.outcome(&read.payment_hash).await.unwrap_or_else(|error| {
                tracing::error!(%error, "lightning node cannot read the outcome of a payment");
                None
            }),
            Ok(Given::NotSent) => {
                return said(pending(order, now), None, "no channel to the payee has room");
            }
            Err(error) => {
                tracing::error!(%error, "lightning node cannot give a payment");
                None
            }
        };
        match outcome {
            None => said(pending(order, now), None, "the payment is under way"),
            Some(outcome) => paid(&outcome),
        }
    }

    /// Whether the invoice of an order was paid. One that has expired is not taken any more from
    /// then on, unless its money is being claimed.
    fn arrived(&self, order: &Instruction, now: Timestamp) -> io::Result<RailAnswer> {
        let hash = self.invoices.hash_of(order.key);
        let turn = self.outcomes.turn();
        let expires_at = order.since.plus_millis(INVOICE_MILLIS);
        match turn.get(&hash)? {
            Some(Outcome::Claimed) => Ok(RailAnswer::Settled),
            Some(Outcome::Claiming) => {
                Ok(RailAnswer::Pending { ask_again_at: now.plus_millis(CLAIM_MILLIS) })
            }
            None if now < expires_at => Ok(RailAnswer::Pending { ask_again_at: expires_at }),
            None | Some(Outcome::Closed | Outcome::Paid(_) | Outcome::Failed(_)) => {
                turn.keep(&hash, &Outcome::Closed)?;
                Ok(RailAnswer::Failed(RailFailure::TimedOut, Proof::Closed))
            }
        }
    }
}

/// The reply about an invoice that we were to pay.
fn paid(outcome: &Outcome) -> RailReply {
    let failure = match outcome {
        Outcome::Paid(preimage) => {
            let words = RailWords::new(None, None, Some(preimage));
            return RailReply { answer: RailAnswer::Settled, words };
        }
        Outcome::Failed(failure) => failure,
        // It is an invoice of our own.
        Outcome::Claiming | Outcome::Claimed | Outcome::Closed => &Failure::Unpayable,
    };
    match failure {
        Failure::Rejected => {
            said(RailAnswer::Refused, None, "the payee's node refused the payment")
        }
        Failure::Expired => {
            let failed = RailAnswer::Failed(RailFailure::TimedOut, Proof::OtherSide);
            said(failed, None, "the invoice expired before it could be paid")
        }
        Failure::Unpayable => unsendable("the node cannot pay such an invoice"),
    }
}

impl Settlement for Node {
    fn pay<'a>(
        &'a self,
        order: &'a Instruction,
        _: &'a UmaAddress,
        invoice: &'a str,
        now: Timestamp,
    ) -> Pending<'a, RailReply> {
        Box::pin(self.pay(order, invoice, now))
    }

    fn await_payment<'a>(
        &'a self,
        order: &'a Instruction,
        now: Timestamp,
    ) -> Pending<'a, RailReply> {
        let answer = self.arrived(order, now).unwrap_or_else(|error| {
            tracing::error!(%error, "lightning node cannot read the outcome of a payment");
            pending(order, now)
        });
        Box::pin(std::future::ready(answer.into()))
    }
}

impl Lightning for Node {
    fn node(&self) -> String {
        self.manager.get_our_node_id().to_string()
    }

    fn create_invoice(&self, new: &NewInvoice<'_>) -> Option<String> {
        let msat = u64::try_from(new.msat.minor()).ok()?;
        let lifetime = seconds(new.expires_at)?.checked_sub(seconds(new.made_at)?)?;
        let hash = self.invoices.hash_of(new.payment);
        let secret = self.manager.create_inbound_payment_for_hash(
            PaymentHash(hash),
            Some(msat),
            u32::try_from(lifetime).ok()?,
            u16::try_from(FINAL_EXPIRY_BLOCKS).ok(),
        );
        self.invoices.write_invoice(new, secret.ok()?.0, events::metadata(new.payment, msat))
    }

    /// None: the network gives it out when it brings the money.
    fn preimage(&self, _: TransactionId) -> Option<[u8; 32]> {
        None
    }

    fn payment_hash(&self, payment: TransactionId) -> [u8; 32] {
        self.invoices.hash_of(payment)
    }

    fn read_invoice(&self, text: &str) -> Result<Invoice, InvalidInvoice> {
        let invoice = read_invoice(NETWORK, text)?;
        let node = PublicKey::from_str(&invoice.node).map_err(|_| InvalidInvoice::Unreadable)?;
        if node != self.manager.get_our_node_id() && self.named(&node).is_none() {
            return Err(InvalidInvoice::NoChannel);
        }
        Ok(invoice)
    }
}

#[cfg(test)]
mod tests;
