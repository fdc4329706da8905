//! Pay requests of other institutions that wait until their payments are decided on.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};

use domain::id::TransactionId;
use domain::transaction::{Status, Transaction};
use store::unit::Unit;
use tokio::sync::Notify;

/// The payments that this server's pay requests wait for.
#[derive(Default)]
pub(crate) struct Decisions(Mutex<HashMap<TransactionId, Arc<Notify>>>);

/// A pay request that waits. It waits no more once this is dropped.
pub(crate) struct Waiting<'a> {
    decisions: &'a Decisions,
    id: TransactionId,
    notify: Arc<Notify>,
}

impl Decisions {
    fn waiting(&self) -> std::sync::MutexGuard<'_, HashMap<TransactionId, Arc<Notify>>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Begins to wait for a payment.
    pub(crate) fn wait_for(&self, id: TransactionId) -> Waiting<'_> {
        let notify = Arc::clone(self.waiting().entry(id).or_default());
        Waiting { decisions: self, id, notify }
    }

    /// Wakes those who wait for one of these payments. It is called once the change is committed.
    pub(crate) fn tell(&self, decided: &[TransactionId]) {
        if decided.is_empty() {
            return;
        }
        let waiting = self.waiting();
        for notify in decided.iter().filter_map(|id| waiting.get(id)) {
            // A permit stays for one who is only about to wait.
            notify.notify_one();
        }
    }
}

impl Waiting<'_> {
    /// Waits until the payment was decided on since the last time.
    pub(crate) async fn decided(&self) {
        self.notify.notified().await;
    }
}

impl Drop for Waiting<'_> {
    fn drop(&mut self) {
        self.decisions.waiting().remove(&self.id);
    }
}

/// The payments from other institutions that a unit has decided on so far.
pub(crate) fn by(unit: &Unit<'_, '_>) -> Vec<TransactionId> {
    let is_decided = |transaction: &&Transaction| {
        transaction.is_from_peer()
            && !matches!(transaction.status(), Status::Created | Status::Pending)
    };
    unit.changed_transactions().filter(is_decided).map(Transaction::id).collect()
}
