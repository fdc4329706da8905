//! The other institutions of the UMA network.

pub mod sandbox;

use std::future::ready;

use domain::time::Timestamp;
use ports::rail::Pending;
use ports::uma::{Inquiry, Invoice, PayRequest, Payee, PeerFailure, Provider, UmaPeer};

/// The network of a live platform that is not connected to it: no peer can be reached.
#[derive(Debug, Clone, Copy, Default)]
pub struct Unconnected;

impl UmaPeer for Unconnected {
    fn is_connected(&self) -> bool {
        false
    }

    fn providers(&self) -> Vec<Provider> {
        Vec::new()
    }

    fn look_up<'a>(
        &'a self,
        _: &'a Inquiry,
        _: Timestamp,
    ) -> Pending<'a, Result<Payee, PeerFailure>> {
        Box::pin(ready(Err(PeerFailure::Unreachable)))
    }

    fn request_payment<'a>(
        &'a self,
        _: &'a PayRequest,
        _: Timestamp,
    ) -> Pending<'a, Result<Invoice, PeerFailure>> {
        Box::pin(ready(Err(PeerFailure::Unreachable)))
    }
}
