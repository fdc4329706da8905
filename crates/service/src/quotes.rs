//! Quotes: made, executed, expired (specification 2.5, 3.2, 4.13; contract 6.9).

mod create;
mod rail_check;
mod execute;
mod expire;

use std::sync::Arc;

use domain::clock::Ahead;
use domain::currency::Currency;
use domain::id::{CustomerId, ExternalAccountId, LookupId, QuoteId, TransactionId};
use domain::platform::Platform;
use domain::quote::Quote;
use domain::time::Timestamp;
use domain::transaction::{AccountRef, Destination, Direction, Facts, RailRequest};

use crate::app::App;
use crate::error::Error;
use crate::external_accounts::NewExternalAccount;
use crate::limits;
use crate::uma::ToUma;

pub use create::create;
pub use execute::execute;
pub(crate) use execute::{exchange, may_start, run, target};
pub(crate) use expire::expire;

/// Where a quote's money shall come from.
#[derive(Debug, Clone)]
pub enum From {
    /// An internal account. With a customer, the platform's own account pays for that customer.
    Account {
        /// The account.
        account: AccountRef,
        /// The customer who sends.
        customer_id: Option<CustomerId>,
    },
    /// A deposit that is made for this quote.
    RealtimeFunding {
        /// Currency of the deposit.
        currency: Currency,
        /// The blockchain that it comes over, if one was named.
        network: Option<&'static str>,
        /// The customer who sends; the platform itself without one.
        customer_id: Option<CustomerId>,
    },
}

/// Where a quote's money shall go.
#[derive(Debug, Clone)]
pub enum To {
    /// An account that exists.
    Account(AccountRef),
    /// An account that is made with the quote and stays.
    Details(Box<NewExternalAccount>),
    /// A UMA address that was looked up.
    Uma(ToUma),
}

/// The side whose amount is given.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Side {
    /// The amount that is charged.
    Sending,
    /// The amount that arrives.
    Receiving,
}

/// A client's request for a price.
#[derive(Debug, Clone)]
pub struct NewQuote {
    /// Where money comes from.
    pub from: From,
    /// Where it goes.
    pub to: To,
    /// Which side's amount is given.
    pub locked_side: Side,
    /// The amount, in the smallest unit of that side's currency.
    pub locked_minor: i64,
    /// Whether the quote is executed with its creation.
    pub immediately_execute: bool,
    /// The memo.
    pub description: Option<String>,
    /// Wishes for the rail.
    pub rail_request: RailRequest,
    /// The lookup of the receiver; needed for UMA addresses.
    pub lookup: Option<LookupId>,
    /// Facts about the payer.
    pub payer: Facts,
}

/// Identifiers that are drawn before a quote is made.
#[derive(Debug, Clone, Copy)]
pub struct Drawn {
    quote: QuoteId,
    transaction: TransactionId,
    external_account: ExternalAccountId,
    /// By the server's clock: the payee's platform may have another.
    other_side: TransactionId,
    now: Timestamp,
}

/// Draws what a new quote needs.
pub fn draw(app: &App, ahead: Ahead) -> Drawn {
    let now = app.now(ahead);
    Drawn {
        quote: app.new_id(ahead, now),
        transaction: app.new_id(ahead, now),
        external_account: app.new_id(ahead, now),
        other_side: app.new_id(Ahead::NONE, app.server_now()),
        now,
    }
}

/// A quote with the platform that it belongs to, which decides how its deposit is made.
#[derive(Debug, Clone)]
pub struct Quoted {
    /// The quote.
    pub quote: Quote,
    /// Its platform.
    pub platform: Arc<Platform>,
}

/// Refuses a payment of which the platform has turned a currency off. Money that leaves the
/// platform is an outgoing payment in both of its currencies; whether an address can be paid in one
/// is for its own platform to say.
fn are_on(platform: &Platform, sending: Currency, destination: &Destination) -> Result<(), Error> {
    if let Some(account) = destination.account() {
        let stays = account.internal().is_some();
        let way = if stays { Direction::Incoming } else { Direction::Outgoing };
        limits::enabled(platform, destination.currency(), way)?;
    }
    limits::enabled(platform, sending, Direction::Outgoing)
}
