//! The events of the library: payments that were made or have come, and channels.

use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use bitcoin::absolute::LockTime;
use bitcoin::hashes::{Hash as _, sha256};
use bitcoin::hex::DisplayHex as _;
use bitcoin::secp256k1::PublicKey;
use bitcoin::transaction::Version;
use bitcoin::{Amount, OutPoint, ScriptBuf, Sequence, Transaction, TxIn, TxOut, Txid, Witness};
use domain::id::TransactionId;
use lightning::events::{Event, EventsProvider as _, PaymentFailureReason, ReplayEvent};
use lightning::ln::channelmanager::RecipientOnionFields;
use lightning::ln::types::ChannelId;
use lightning::sign::EntropySource as _;
use lightning::types::payment::{PaymentHash, PaymentPreimage};
use lightning::util::wakers::Sleeper;
use uuid::Uuid;

use super::Node;
use super::outcomes::{Failure, Outcome, Turn};

/// How long the node sleeps at most when nothing happens.
const PAUSE: Duration = Duration::from_millis(500);

/// The part of an invoice of ours that is for ourselves: the payment, and its millisatoshi.
pub(super) fn metadata(payment: TransactionId, msat: u64) -> Vec<u8> {
    [&payment.uuid().as_bytes()[..], &msat.to_be_bytes()].concat()
}

/// The payment and amount of money that comes, as its payer says.
fn read_metadata(fields: Option<&RecipientOnionFields>) -> Option<(TransactionId, u64)> {
    let bytes = fields?.payment_metadata.as_deref()?;
    let (payment, msat) = bytes.split_at_checked(16)?;
    let payment = TransactionId::from_uuid(Uuid::from_slice(payment).ok()?);
    Some((payment, u64::from_be_bytes(msat.try_into().ok()?)))
}

impl Node {
    /// Works until `is_over`: handles what has happened, saves it, and only then lets peers know.
    pub(super) fn work(&self, is_over: &AtomicBool) {
        loop {
            // Before the step: something may happen while it runs.
            let change = self.manager.get_event_or_persistence_needed_future();
            let update = self.monitors.get_update_future();
            self.step();
            if is_over.load(Ordering::Acquire) {
                return;
            }
            Sleeper::from_two_futures(&change, &update).wait_timeout(PAUSE);
        }
    }

    fn step(&self) {
        self.manager.process_pending_htlc_forwards();
        self.manager.process_pending_events(&|event| self.handle(event));
        self.monitors.process_pending_events(&|event| self.handle(event));
        if let Err(error) = self.disk.save(&self.manager, &self.monitors) {
            tracing::error!(%error, "lightning node cannot save its channels, and waits");
            return;
        }
        self.peers.process_events();
    }

    /// Handles an event, which comes again after an error and perhaps after a crash.
    fn handle(&self, event: Event) -> Result<(), ReplayEvent> {
        let handled = match event {
            Event::PaymentClaimable { payment_hash, amount_msat, onion_fields, .. } => {
                self.claim(&payment_hash.0, amount_msat, onion_fields.as_ref())
            }
            Event::PaymentClaimed { payment_hash, onion_fields, .. } => {
                let kept = self.outcomes.turn().keep(&payment_hash.0, &Outcome::Claimed);
                if let (Ok(()), Some((payment, _))) = (&kept, read_metadata(onion_fields.as_ref()))
                {
                    // A listener that has stopped: the rail says it when it is asked.
                    let _ = self.arrived.send(payment);
                }
                kept
            }
            Event::PaymentSent { payment_hash, payment_preimage, .. } => {
                let preimage = payment_preimage.0.to_lower_hex_string();
                self.decide(&self.outcomes.turn(), &payment_hash.0, &Outcome::Paid(preimage))
            }
            Event::PaymentFailed { payment_id, reason, .. } => self.failed(&payment_id.0, reason),
            Event::OpenChannelRequest { temporary_channel_id, counterparty_node_id, .. } => {
                self.accept(&temporary_channel_id, &counterparty_node_id);
                Ok(())
            }
            Event::FundingGenerationReady {
                temporary_channel_id,
                counterparty_node_id,
                channel_value_satoshis,
                output_script,
                ..
            } => {
                let funding = self.invented(channel_value_satoshis, output_script);
                self.fund(temporary_channel_id, counterparty_node_id, funding);
                Ok(())
            }
            Event::ChannelReady { channel_id, counterparty_node_id, .. } => {
                let peer = counterparty_node_id;
                tracing::info!(%channel_id, %peer, "lightning channel is ready");
                Ok(())
            }
            Event::ChannelClosed { channel_id, reason, .. } => {
                tracing::warn!(%channel_id, %reason, "lightning channel is closed");
                Ok(())
            }
            // Everything else is about chains, routes and features that the node does not have.
            _ => Ok(()),
        };
        handled.map_err(|error| {
            tracing::error!(%error, "lightning node cannot keep the outcome of a payment");
            ReplayEvent()
        })
    }

    /// Claims money that comes for a payment that waits for it; lets go of any other. A claim that
    /// has begun may come again after a crash. One that is done does not: that is a second payment.
    fn claim(
        &self,
        hash: &[u8; 32],
        msat: u64,
        fields: Option<&RecipientOnionFields>,
    ) -> std::io::Result<()> {
        let preimage = read_metadata(fields).filter(|(_, named)| *named == msat);
        let preimage = preimage.map(|(payment, _)| self.invoices.preimage_of(payment));
        let turn = self.outcomes.turn();
        let preimage = preimage.filter(|it| sha256::Hash::hash(it).to_byte_array() == *hash);
        match (preimage, turn.get(hash)?) {
            (Some(preimage), None) => {
                turn.keep(hash, &Outcome::Claiming)?;
                self.manager.claim_funds(PaymentPreimage(preimage));
            }
            (Some(preimage), Some(Outcome::Claiming)) => {
                self.manager.claim_funds(PaymentPreimage(preimage));
            }
            (Some(_) | None, _) => self.manager.fail_htlc_backwards(&PaymentHash(*hash)),
        }
        Ok(())
    }

    /// Keeps why a payment failed, unless it can be tried again or is being tried already.
    fn failed(&self, hash: &[u8; 32], reason: Option<PaymentFailureReason>) -> std::io::Result<()> {
        let failure = match reason {
            Some(PaymentFailureReason::RecipientRejected) => Failure::Rejected,
            Some(PaymentFailureReason::PaymentExpired) => Failure::Expired,
            Some(PaymentFailureReason::UnknownRequiredFeatures) => Failure::Unpayable,
            // No money is under way, and the next question tries again.
            Some(_) | None => return Ok(()),
        };
        let turn = self.outcomes.turn();
        if turn.get(hash)?.is_none() && !self.is_under_way(hash) {
            self.decide(&turn, hash, &Outcome::Failed(failure))?;
        }
        Ok(())
    }

    /// Keeps the outcome of a payment of ours, and wakes those who wait for it.
    fn decide(&self, turn: &Turn<'_>, hash: &[u8; 32], outcome: &Outcome) -> std::io::Result<()> {
        turn.keep(hash, outcome)?;
        self.decided.send_replace(());
        Ok(())
    }

    /// Takes a channel of a peer that was named, without waiting for a chain.
    fn accept(&self, channel: &ChannelId, peer: &PublicKey) {
        let accepted = match self.named(peer) {
            Some(_) => {
                self.manager.accept_inbound_channel_from_trusted_peer_0conf(channel, peer, 0, None)
            }
            None => {
                let reason = "channels are only taken from named peers".to_owned();
                self.manager.force_close_broadcasting_latest_txn(channel, peer, reason)
            }
        };
        if let Err(error) = accepted {
            tracing::warn!(%peer, ?error, "lightning node cannot answer a request for a channel");
        }
    }

    fn fund(&self, channel: ChannelId, peer: PublicKey, funding: Transaction) {
        if let Err(error) = self.manager.funding_transaction_generated(channel, peer, funding) {
            tracing::warn!(%peer, ?error, "lightning node cannot open a channel");
        }
    }

    /// A transaction that funds a channel with money that is not there. No chain ever sees it.
    fn invented(&self, satoshi: u64, script: ScriptBuf) -> Transaction {
        let txid = Txid::from_byte_array(self.keys.get_secure_random_bytes());
        let input = TxIn {
            previous_output: OutPoint { txid, vout: 0 },
            script_sig: ScriptBuf::new(),
            sequence: Sequence::MAX,
            witness: Witness::from_slice(&[[1_u8]]),
        };
        let output = TxOut { value: Amount::from_sat(satoshi), script_pubkey: script };
        let (version, lock_time) = (Version::TWO, LockTime::ZERO);
        Transaction { version, lock_time, input: vec![input], output: vec![output] }
    }
}
