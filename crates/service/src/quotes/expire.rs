//! A quote ends with its time.

use domain::id::QuoteId;
use domain::quote::{self, Quote, Status};
use domain::time::Timestamp;
use domain::transaction::{Event, Transaction};
use store::unit::Unit;

use crate::app::App;
use crate::error::Error;
use crate::lifecycle;

/// Ends a quote whose time is over, with its transaction. Does nothing to a quote that is not
/// pending any more.
pub(crate) fn expire(
    app: &App,
    unit: &mut Unit<'_, '_>,
    id: QuoteId,
    now: Timestamp,
) -> Result<(), Error> {
    let Some(quote) = unit.get::<Quote>(&id)? else { return Ok(()) };
    if quote.status() != Status::Pending || !quote.is_over(now) {
        return Ok(());
    }
    if let Some(transaction) = unit.get::<Transaction>(&quote.draft().transaction)? {
        lifecycle::advance(app, unit, Transaction::clone(&transaction), Event::Expired, now)?;
    }
    lifecycle::advance_quote(unit, Quote::clone(&quote), quote::Event::Expired, now)?;
    Ok(())
}
