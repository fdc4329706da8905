//! The other institutions of the UMA network, as far as they are in this process.

pub mod sandbox;

use std::future::ready;
use std::sync::Arc;

use ports::outbound::{Outbound, OutboundAnswer, OutboundFailure, OutboundRequest, Reach};
use ports::rail::Pending;
use ports::uma::{Institutions, Provider};

use self::sandbox::SandboxInstitutions;

/// The institutions of live platforms: all are asked over the network, none is known before.
#[derive(Debug, Clone, Copy, Default)]
pub struct Unconnected;

impl Institutions for Unconnected {
    fn providers(&self) -> Vec<Provider> {
        Vec::new()
    }
}

/// The way out with the sandbox's institutions behind it. Requests to their hosts are answered in
/// this process; all others go on.
pub struct WithSandbox {
    inner: Arc<dyn Outbound>,
    institutions: Arc<SandboxInstitutions>,
}

impl WithSandbox {
    /// Puts the institutions before another way out.
    pub fn new(inner: Arc<dyn Outbound>, institutions: Arc<SandboxInstitutions>) -> Self {
        Self { inner, institutions }
    }
}

impl Outbound for WithSandbox {
    fn checked(&self, url: &str, reach: Reach) -> Result<String, OutboundFailure> {
        self.inner.checked(url, reach)
    }

    fn send(
        &self,
        request: OutboundRequest,
    ) -> Pending<'_, Result<OutboundAnswer, OutboundFailure>> {
        match self.institutions.answer(&request) {
            Some(answer) => Box::pin(ready(answer)),
            None => self.inner.send(request),
        }
    }
}
