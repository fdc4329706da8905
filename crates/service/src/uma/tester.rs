//! A payment that a tester asks an institution in this process to make. It looks the customer up
//! and makes a pay request, in the same messages as any other. Only the way of the bytes differs.

use domain::currency::Currency;
use domain::customer::Customer;
use domain::id::{CustomerId, PlatformId, TransactionId};
use domain::platform::Platform;
use domain::time::Timestamp;
use domain::transaction::Transaction;
use domain::uma_address::{UmaAddress, UmaDomain};
use ports::uma::{PayOrder, PeerFailure};
use store::unit::Unit;
use uma::error::Refusal;
use uma::lnurlp::LookupResponse;

use super::callback::PAY_PATH;
use super::{keys, receive};
use crate::app::App;
use crate::error::{Error, PeerStage, UmaError};
use crate::incoming::{self, PayIn, Wanted};
use crate::limits;

/// A payment that a tester asks for.
#[derive(Debug, Clone)]
pub struct TesterOrder {
    /// The address that pays, one of an institution in this process.
    pub sender: UmaAddress,
    /// The address that is paid, if it is given.
    pub receiver: Option<UmaAddress>,
    /// The customer who is paid, if it is given. One of the two must be.
    pub customer_id: Option<CustomerId>,
    /// The currency that shall arrive.
    pub currency: Currency,
    /// The amount that shall arrive, in its smallest unit.
    pub amount_minor: i64,
}

impl TesterOrder {
    /// The order with what the payer's institution has said, or with nothing of it.
    fn pay_in(&self, requested: Option<&PayIn>) -> PayIn {
        let plain = PayIn {
            sender: self.sender.clone(),
            payer: domain::transaction::Facts::new(),
            receiver: None,
            customer_id: None,
            currency: self.currency,
            amount: Wanted::Arrives(self.amount_minor),
            asked: Vec::new(),
            description: None,
            callback: None,
        };
        let said = requested.cloned().unwrap_or(plain);
        PayIn { receiver: self.receiver.clone(), customer_id: self.customer_id, ..said }
    }
}

/// Why there is no pay request.
#[derive(Debug, Clone)]
pub enum NoRequest {
    /// The payer's institution does not make one.
    Payer(Error),
    /// The order is not one that could be asked for: the rules say why.
    Order,
    /// This server has refused a message.
    Refused(Refusal),
}

/// The pay request of the payer's institution, checked as one from elsewhere.
pub async fn request(
    app: &App,
    platform: &Platform,
    order: &TesterOrder,
) -> Result<PayIn, NoRequest> {
    let institutions = app.env().institutions(platform.mode);
    let refused = |failure: PeerFailure| {
        let (address, stage) = (order.sender.clone(), PeerStage::Lookup);
        NoRequest::Payer(Error::Uma(UmaError::Peer { address, stage, failure }))
    };
    let payee = payee(app, platform, order).await;
    // An address that no customer has still shows whether there is such a payer.
    let payee_or_payer = payee.as_ref().unwrap_or(&order.sender);
    // The sandbox's institutions sign as others do, by the machine's clock.
    let now = app.machine_now();
    let url = institutions.look_up(&order.sender, payee_or_payer, now).map_err(refused)?;
    let Some(payee) = payee else { return Err(NoRequest::Order) };
    let amount = limits::amount(order.amount_minor, order.currency);
    let amount = amount.map_err(|_| NoRequest::Order)?;
    let domain = UmaDomain::parse(payee.domain()).map_err(|_| NoRequest::Order)?;
    let (path, query) = path_and_query(&url);
    let answer = receive::looked_up(app, platform, &domain, path, query).await;
    let answer = answer.map_err(NoRequest::Refused)?;
    let keys = keys::document(app, platform).map_err(NoRequest::Payer)?;
    let pay_order = PayOrder {
        payer: &order.sender,
        payee: &payee,
        answer: answer.as_bytes(),
        keys: keys.as_bytes(),
        amount,
    };
    let body = institutions.pay(&pay_order, now).map_err(|_| NoRequest::Order)?;
    let response = LookupResponse::read(answer.as_bytes()).map_err(NoRequest::Refused)?;
    let (_, token) = response.callback.rsplit_once(PAY_PATH).ok_or(NoRequest::Order)?;
    receive::requested(app, token, &body).await.map_err(NoRequest::Refused)
}

/// Takes the payment. The rules about the order come before what the messages were refused for:
/// they say more.
pub fn receive(
    app: &App,
    unit: &mut Unit<'_, '_>,
    platform: PlatformId,
    (order, requested): (&TesterOrder, &Result<PayIn, NoRequest>),
    (id, now): (TransactionId, Timestamp),
) -> Result<Transaction, Error> {
    if let Err(NoRequest::Payer(error)) = requested {
        return Err(error.clone());
    }
    let pay_in = order.pay_in(requested.as_ref().ok());
    let received = incoming::receive(app, unit, platform, &pay_in, id, now)?;
    match requested {
        Ok(_) => Ok(received),
        Err(NoRequest::Refused(refusal)) => Err(Error::Conflict(refusal.to_string())),
        Err(NoRequest::Payer(_) | NoRequest::Order) => {
            Err(Error::Conflict("the payer's institution cannot make this payment".to_owned()))
        }
    }
}

/// The address that is paid, if the order names a customer of the platform.
async fn payee(app: &App, platform: &Platform, order: &TesterOrder) -> Option<UmaAddress> {
    if let Some(receiver) = &order.receiver {
        return Some(receiver.clone());
    }
    let customer = app.store().get::<Customer>(order.customer_id?).await.ok()??;
    (customer.platform == platform.id).then(|| customer.uma_address.clone())
}

/// The path and the query of a URL.
fn path_and_query(url: &str) -> (&str, &str) {
    let rest = url.split_once("://").map_or(url, |(_, rest)| rest);
    let target = rest.find('/').map_or("/", |at| &rest[at..]);
    target.split_once('?').unwrap_or((target, ""))
}
