//! Which adapter serves which mode of a platform: the one place that says it.

use std::collections::HashMap;
use std::sync::Arc;

use domain::platform::Mode;
use ports::clock::Clock;
use ports::entropy::Entropy;
use ports::identity::Identification;
use ports::lightning::Lightning;
use ports::locality::TestReach;
use ports::outbound::Outbound;
use ports::rails::Rails;
use ports::rates::RateFeed;
use ports::uma::Institutions;

use crate::identity::{OperatorDecides, TesterDecides};
use crate::lightning::{LightningNode, Network};
use crate::rails::lightning::{HashLocked, SandboxLightning, Settlement};
use crate::rails::sandbox::SandboxRail;
use crate::rates::feed::{ModeRates, RateTable};
use crate::uma::sandbox::SandboxInstitutions;
use crate::uma::{Unconnected, WithSandbox};

/// The rail ports of the sandbox. A new rail is a folder in `rails` and a line here, or in the
/// ports of live platforms. `outbound` leads to other institutions as far as `reach` says.
pub fn sandbox_rails(sandbox: SandboxRail, outbound: Arc<dyn Outbound>, reach: TestReach) -> Rails {
    sandbox_rails_over(sandbox, Arc::new(HashLocked::new(outbound, Network::Regtest, reach)))
}

/// The rail ports of the sandbox, whose payments to and from other institutions settle so.
pub fn sandbox_rails_over(sandbox: SandboxRail, peers: Arc<dyn Settlement>) -> Rails {
    Rails::new(vec![Arc::new(sandbox), Arc::new(SandboxLightning::new(sandbox, peers))])
}

/// The Lightning nodes, by the mode of the platforms that they pay and are paid for. A live
/// platform has none until one is connected. The secret is the sandbox node's.
pub fn lightning(secret: [u8; 32]) -> HashMap<Mode, Arc<dyn Lightning>> {
    let node = LightningNode::new(secret, Network::Regtest);
    HashMap::from([(Mode::Sandbox, Arc::new(node) as _)])
}

/// The adapters of every mode.
pub struct Modes {
    /// Rates and the price list: of one table, from which live platforms are quoted less.
    pub rates: HashMap<Mode, Arc<dyn RateFeed>>,
    /// The rail ports. A live platform has none until a partner is connected.
    pub rails: HashMap<Mode, Rails>,
    /// The institutions that are known without the network.
    pub institutions: HashMap<Mode, Arc<dyn Institutions>>,
    /// The way out of all modes. The sandbox's institutions answer on it, in this process.
    pub outbound: Arc<dyn Outbound>,
    /// Those who check identities.
    pub identification: HashMap<Mode, Arc<dyn Identification>>,
}

impl Modes {
    /// The adapters of every mode, with these rates and these rails of the sandbox. `outbound`
    /// leads to the network.
    pub fn new(
        rates: &Arc<RateTable>,
        sandbox: Rails,
        clock: Arc<dyn Clock>,
        entropy: Arc<dyn Entropy>,
        outbound: Arc<dyn Outbound>,
    ) -> Self {
        let rates_of =
            |mode| -> Arc<dyn RateFeed> { Arc::new(ModeRates::new(Arc::clone(rates), mode)) };
        let sandbox_rates = rates_of(Mode::Sandbox);
        let peers = Arc::new(SandboxInstitutions::new(sandbox_rates, clock, entropy));
        let outbound = Arc::new(WithSandbox::new(outbound, Arc::clone(&peers)));
        let unconnected: Arc<dyn Institutions> = Arc::new(Unconnected);
        let tester: Arc<dyn Identification> = Arc::new(TesterDecides);
        let operator: Arc<dyn Identification> = Arc::new(OperatorDecides);
        Self {
            rates: HashMap::from([Mode::Sandbox, Mode::Live].map(|mode| (mode, rates_of(mode)))),
            rails: HashMap::from([(Mode::Sandbox, sandbox)]),
            institutions: HashMap::from([(Mode::Sandbox, peers as _), (Mode::Live, unconnected)]),
            outbound,
            identification: HashMap::from([(Mode::Sandbox, tester), (Mode::Live, operator)]),
        }
    }
}
