//! The rail ports of one mode, and which of them serves a payment.
//!
//! Guarantee: the rail of a payment is chosen once, by [`Rails::route`]. It is kept with the
//! payment, so that the same port pays, is asked again and takes back.

use std::sync::Arc;

use domain::account_info::{AccountInfo, AccountType};
use domain::currency::Currency;
use domain::money::Money;
use domain::rail::Rail;

use crate::rail::{Deposit, FundingInstruction, NetworkFee, PaymentRail};

/// One leg of a payment: a currency over a rail, to or from an account of a type.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Leg {
    /// The rail.
    pub rail: Rail,
    /// The type of the account elsewhere; nothing where the other side is a UMA address.
    pub account_type: Option<&'static AccountType>,
    /// The currency that moves.
    pub currency: Currency,
}

impl Leg {
    /// Between this server and another institution.
    pub const fn to_institution() -> Self {
        Self { rail: Rail::Lightning, account_type: None, currency: Currency::MSAT }
    }
}

/// Why no port takes a payment.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum NoRoute {
    /// No port serves any of the account's rails.
    NotConnected,
    /// The ports that do move less at once.
    AboveLimit {
        /// The most that one of them moves, in smallest units.
        max_minor: i64,
    },
}

/// The rail ports of a mode. The first that serves a leg has it.
///
/// A port that is put before another, or in its place, takes over that one's orders: it must know
/// them by their keys.
#[derive(Clone, Default)]
pub struct Rails(Vec<Arc<dyn PaymentRail>>);

impl<Port: PaymentRail + 'static> From<Arc<Port>> for Rails {
    fn from(port: Arc<Port>) -> Self {
        Self(vec![port])
    }
}

impl Rails {
    /// No port: nothing moves.
    pub const fn none() -> Self {
        Self(Vec::new())
    }

    /// These ports, in this order.
    pub fn new(ports: Vec<Arc<dyn PaymentRail>>) -> Self {
        Self(ports)
    }

    fn serving(&self, leg: &Leg) -> Option<(&dyn PaymentRail, i64)> {
        self.0.iter().find_map(|port| Some((port.as_ref(), port.amount_max(leg)?)))
    }

    /// The port that serves a leg, if there is one.
    pub fn port(&self, leg: &Leg) -> Option<&dyn PaymentRail> {
        self.serving(leg).map(|(port, _)| port)
    }

    /// The legs of an account that a port serves, in the order of the account's own rails.
    pub fn legs(&self, account: &AccountInfo, currency: Currency) -> impl Iterator<Item = Leg> {
        let account_type = Some(account.account_type());
        let leg = move |rail: &Rail| Leg { rail: *rail, account_type, currency };
        account.rails().iter().map(leg).filter(|leg| self.port(leg).is_some())
    }

    /// The leg on which an amount moves to or from an account: the first of the account's own rails
    /// whose port takes it, or the one that is wanted.
    pub fn route(
        &self,
        account: &AccountInfo,
        amount: Money,
        wanted: Option<Rail>,
    ) -> Result<Leg, NoRoute> {
        let mut most = None;
        let legs = self.legs(account, amount.currency());
        for leg in legs.filter(|leg| wanted.is_none_or(|rail| rail == leg.rail)) {
            let max = self.serving(&leg).map_or(0, |(_, max)| max);
            if amount.minor() <= max {
                return Ok(leg);
            }
            most = most.max(Some(max));
        }
        Err(most.map_or(NoRoute::NotConnected, |max_minor| NoRoute::AboveLimit { max_minor }))
    }

    /// Every way to make a deposit, by the order of the ports.
    pub fn instructions(&self, deposit: &Deposit<'_>) -> Vec<FundingInstruction> {
        self.0.iter().flat_map(|port| port.instructions(deposit)).collect()
    }

    /// About what the network of a leg takes for a payment now.
    pub fn network_fee(&self, leg: &Leg) -> Option<NetworkFee> {
        self.port(leg)?.network_fee(leg.rail)
    }
}
