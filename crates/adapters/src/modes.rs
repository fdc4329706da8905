//! Which adapter serves which mode of a platform: the one place that says it.

use std::collections::HashMap;
use std::sync::Arc;

use domain::platform::Mode;
use ports::identity::Identification;
use ports::rail::PaymentRail;
use ports::rates::Rates;
use ports::uma::UmaPeer;

use crate::identity::{OperatorDecides, TesterDecides};
use crate::rails;
use crate::rates::FixedRates;
use crate::uma;
use crate::uma::sandbox::SandboxPeer;

/// The adapters of every mode.
pub struct Modes {
    /// Rates and the price list, which all modes share.
    pub rates: Arc<dyn Rates>,
    /// The rails.
    pub rails: HashMap<Mode, Arc<dyn PaymentRail>>,
    /// The UMA networks.
    pub uma_peers: HashMap<Mode, Arc<dyn UmaPeer>>,
    /// Those who check identities.
    pub identification: HashMap<Mode, Arc<dyn Identification>>,
}

impl Modes {
    /// The adapters of every mode, with these rates and this rail of the sandbox.
    pub fn new(rates: FixedRates, sandbox: Arc<dyn PaymentRail>) -> Self {
        let rates: Arc<dyn Rates> = Arc::new(rates);
        let peers: Arc<dyn UmaPeer> = Arc::new(SandboxPeer::new(Arc::clone(&rates)));
        let unconnected: Arc<dyn UmaPeer> = Arc::new(uma::Unconnected);
        let tester: Arc<dyn Identification> = Arc::new(TesterDecides);
        let operator: Arc<dyn Identification> = Arc::new(OperatorDecides);
        let live: Arc<dyn PaymentRail> = Arc::new(rails::Unconnected);
        Self {
            rates,
            rails: HashMap::from([(Mode::Sandbox, sandbox), (Mode::Live, live)]),
            uma_peers: HashMap::from([(Mode::Sandbox, peers), (Mode::Live, unconnected)]),
            identification: HashMap::from([(Mode::Sandbox, tester), (Mode::Live, operator)]),
        }
    }
}
