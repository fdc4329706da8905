//! Which adapter serves which mode of a platform: the one place that says it.

use std::collections::HashMap;
use std::sync::Arc;

use domain::platform::Mode;
use ports::identity::Identification;
use ports::rails::Rails;
use ports::rates::Rates;
use ports::uma::UmaPeer;

use crate::identity::{OperatorDecides, TesterDecides};
use crate::rails::lightning::SandboxLightning;
use crate::rails::sandbox::SandboxRail;
use crate::rates::FixedRates;
use crate::uma;
use crate::uma::sandbox::SandboxPeer;

/// The rail ports of the sandbox. A new rail is a folder in `rails` and a line here, or in the
/// ports of live platforms.
pub fn sandbox_rails(sandbox: SandboxRail) -> Rails {
    Rails::new(vec![Arc::new(sandbox), Arc::new(SandboxLightning::new(sandbox))])
}

/// The adapters of every mode.
pub struct Modes {
    /// Rates and the price list, which all modes share.
    pub rates: Arc<dyn Rates>,
    /// The rail ports. A live platform has none until a partner is connected.
    pub rails: HashMap<Mode, Rails>,
    /// The UMA networks.
    pub uma_peers: HashMap<Mode, Arc<dyn UmaPeer>>,
    /// Those who check identities.
    pub identification: HashMap<Mode, Arc<dyn Identification>>,
}

impl Modes {
    /// The adapters of every mode, with these rates and these rails of the sandbox.
    pub fn new(rates: FixedRates, sandbox: Rails) -> Self {
        let rates: Arc<dyn Rates> = Arc::new(rates);
        let peers: Arc<dyn UmaPeer> = Arc::new(SandboxPeer::new(Arc::clone(&rates)));
        let unconnected: Arc<dyn UmaPeer> = Arc::new(uma::Unconnected);
        let tester: Arc<dyn Identification> = Arc::new(TesterDecides);
        let operator: Arc<dyn Identification> = Arc::new(OperatorDecides);
        Self {
            rates,
            rails: HashMap::from([(Mode::Sandbox, sandbox)]),
            uma_peers: HashMap::from([(Mode::Sandbox, peers), (Mode::Live, unconnected)]),
            identification: HashMap::from([(Mode::Sandbox, tester), (Mode::Live, operator)]),
        }
    }
}
