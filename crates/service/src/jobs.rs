//! What time does: each step takes the timers that are due and does what they say. No loop and no
//! sleep is here; the binary has the one loop, and tests move the clock.

use std::collections::HashSet;
use std::sync::Arc;

use domain::clock::Ahead;
use domain::external_account::ExternalAccount;
use domain::id::{ExternalAccountId, IdentityCheckId, InvitationId, QuoteId, TransactionId};
use domain::money::{Money, Sending};
use domain::platform::Platform;
use domain::quote::{self, Quote, Route};
use domain::rail::Rail;
use domain::time::Timestamp;
use domain::transaction::{
    AccountRef, Destination, Direction, Event, FailureReason, Source, Status, StatusReason,
    Transaction,
};
use ledger::movements::{self, Movement};
use ledger::posting::Resolution;
use ports::rail::{Cause, Flow, Instruction, Party, RailAnswer};
use store::books::PostingRow;
use store::error::StoreError;
use store::timers::{Due, Timer, TimerKey, TimerKind};
use store::unit::Unit;
use tokio::task::JoinSet;

use crate::app::App;
use crate::error::Error;
use crate::tenure::{self, Tenure};
use crate::{
    bulk, external_accounts, funding, identity, incoming, invitations, lifecycle, owners, quotes,
    rail_answers,
};

/// Timers taken at a time: what several transactions take while others go to the lane and back, so
/// that it does not run out of them. How many of them go beside requests, the lane decides.
const TIMERS_MAX: usize = 256;

/// Timers of a step at most: some tenths of a second of a busy server, as long as one that is to
/// stop can wait for it.
const STEP_TIMERS_MAX: usize = 1_024;

/// Timers that are taken at once where the database is shared, and all of a step: taking them is
/// several round trips and turns, which are worth it for as many as fit one commit.
const SHARED_TIMERS_MAX: usize = 512;

/// How long after a failure of ours a timer is tried again, in milliseconds.
const RETRY_MILLIS: i64 = 1_000;

/// The same where a row cannot be read: somebody must look at it first, and each try costs those
/// who share the transaction another one.
const UNREADABLE_RETRY_MILLIS: i64 = 60_000;

/// What a rail is asked, and the platform whose money it is.
type Order = (Instruction, Arc<Platform>);

/// What a step did.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Step {
    /// Timers that were due and are done.
    pub done: usize,
    /// Timers that were due and could not be worked off; they are due again soon.
    pub failed: usize,
    /// Whether more may be due already.
    pub more: bool,
    /// Whether this server does what is due; if not, another one does.
    pub is_ours: bool,
}

/// Does what is due now, unless another server does. One step at a time: a job is not begun twice
/// by one server.
pub async fn step(app: &App) -> Result<Step, Error> {
    let _alone = app.steps().lock().await;
    let Some(tenure) = tenure::hold(app).await? else {
        return Ok(Step { done: 0, failed: 0, more: false, is_ours: false });
    };
    let mut work = Work::default();
    let rest = work.take_all(app, tenure).await;
    // What was begun is brought to its end, whatever keeps this server from taking more.
    work.wait(0).await;
    let Rest { unreadable, more } = rest?;
    Ok(Step { done: work.done, failed: work.failed + unreadable, more, is_ours: true })
}

/// What a step does.
#[derive(Default)]
struct Work {
    taken: HashSet<TimerKey>,
    under_way: JoinSet<bool>,
    done: usize,
    failed: usize,
}

/// What a step leaves.
struct Rest {
    unreadable: usize,
    more: bool,
}

impl Work {
    /// Takes what is due. Where the database is this server's own and more is due than is taken at
    /// a time, more is taken as soon as half of it is done, with what has become due meanwhile, so
    /// that the lane has jobs beside requests all the time: what is accepted there is settled about
    /// as fast. A step of what was due at its beginning would wait for its last before the next.
    async fn take_all(&mut self, app: &App, tenure: Tenure) -> Result<Rest, Error> {
        let (max, step_max) = if app.env().shares_database {
            (SHARED_TIMERS_MAX, SHARED_TIMERS_MAX)
        } else {
            (TIMERS_MAX, STEP_TIMERS_MAX)
        };
        loop {
            // What is under way or has failed is still there, and was taken.
            let limit = self.taken.len().saturating_sub(self.done).saturating_add(max);
            let Due { mut timers, unreadable } = due(app, app.server_now(), limit).await?;
            let more = timers.len() + unreadable == limit;
            timers.retain(|timer| self.taken.insert(timer.key()));
            let goes_on = more && !timers.is_empty() && self.taken.len() < step_max;
            for ordered in with_orders(app, timers).await? {
                let app = app.clone();
                self.under_way.spawn(async move { ring(&app, tenure, ordered).await });
            }
            if !goes_on {
                return Ok(Rest { unreadable, more });
            }
            self.wait(max / 2).await;
        }
    }

    /// Waits until no more than this many timers are under way.
    async fn wait(&mut self, left: usize) {
        while self.under_way.len() > left
            && let Some(result) = self.under_way.join_next().await
        {
            match result {
                Ok(true) => self.done += 1,
                Ok(false) | Err(_) => self.failed += 1,
            }
        }
    }
}

/// What is due, with as many timers as are wanted.
async fn due(app: &App, now: Timestamp, limit: usize) -> Result<Due, Error> {
    let max = u32::try_from(limit).unwrap_or(u32::MAX);
    let due = app.store().ask(move |view| view.due_timers(now, max)).await;
    let due = due.map_err(Error::Store)?;
    let since = due.timers.first().map_or(now, |oldest| oldest.due_at);
    let overdue_millis = now.millis().saturating_sub(since.millis());
    metrics::gauge!("switchyard_timers_oldest_seconds").set(overdue_millis as f64 / 1_000.0);
    if due.unreadable > 0 && due.timers.is_empty() {
        tracing::error!(rows = due.unreadable, "timers that are due cannot be read: run verify");
    }
    Ok(due)
}

/// A timer with what the rail is to be asked, or why that cannot be made out.
type Ordered = (Timer, Result<Option<Order>, Error>);

/// Timers with what the rail is to be asked. An order that cannot be made out is that timer's
/// failure alone: where rows are fetched together, those are halved until it stands alone.
async fn with_orders(app: &App, due: Vec<Timer>) -> Result<Vec<Ordered>, Error> {
    let mut ordered = Vec::with_capacity(due.len());
    let mut parts = vec![due];
    while let Some(mut part) = parts.pop() {
        match orders_of(app, part.clone()).await {
            Ok(found) => ordered.extend(found),
            Err(error) if !error.is_of_a_row() => return Err(error),
            Err(error) if part.len() == 1 => {
                ordered.extend(part.pop().map(|timer| (timer, Err(error))));
            }
            Err(_) => {
                let rest = part.split_off(part.len() / 2);
                parts.extend([rest, part]);
            }
        }
    }
    Ok(ordered)
}

/// The orders of timers, which the lane knows: what is due was changed a moment ago.
async fn orders_of(app: &App, due: Vec<Timer>) -> Result<Vec<Ordered>, Error> {
    if due.is_empty() {
        return Ok(Vec::new());
    }
    app.write(move |unit| {
        let mut orders = Vec::with_capacity(due.len());
        let mut first_wait = Ok(());
        for timer in &due {
            let order = match timer.kind {
                TimerKind::AskRail => order(unit, timer),
                TimerKind::ExpireQuote
                | TimerKind::ExpireInvitation
                | TimerKind::ExpireIdentityCheck
                | TimerKind::AskAccount
                | TimerKind::DecidePayment
                | TimerKind::ImportCustomers => Ok(None),
            };
            // All are gone through even so, so that what they wait for is fetched together.
            if matches!(order, Err(Error::Store(StoreError::NotFetched))) {
                first_wait = Err(StoreError::NotFetched);
            }
            orders.push((timer.clone(), order));
        }
        first_wait?;
        Ok(orders)
    })
    .await
}

/// Works one timer off. A failure is logged and the timer is due again later.
async fn ring(app: &App, tenure: Tenure, (timer, order): Ordered) -> bool {
    let result = match (timer.kind, order) {
        (_, Err(error)) => Err(error),
        (TimerKind::ExpireQuote, Ok(_)) => expire_quote(app, tenure, &timer).await,
        (TimerKind::ExpireInvitation, Ok(_)) => expire_invitation(app, tenure, &timer).await,
        (TimerKind::ExpireIdentityCheck, Ok(_)) => expire_identity_check(app, tenure, &timer).await,
        (TimerKind::ImportCustomers, Ok(_)) => bulk::step(app, tenure, &timer).await,
        (TimerKind::AskAccount, Ok(_)) => ask_account(app, tenure, &timer).await,
        (TimerKind::AskRail, Ok(order)) => ask_rail(app, tenure, &timer, order).await,
        (TimerKind::DecidePayment, Ok(_)) => time_out(app, tenure, &timer).await,
    };
    let Err(error) = result else { return true };
    if matches!(error, Error::Superseded) {
        tracing::warn!(subject = %timer.subject, "another server has taken over what is due");
        app.set_tenure(None);
        return false;
    }
    tracing::error!(kind = timer.kind.name(), subject = %timer.subject, %error, "a timer failed");
    let after = if error.is_of_a_row() { UNREADABLE_RETRY_MILLIS } else { RETRY_MILLIS };
    let later = Timer {
        due_at: app.server_now().plus_millis(after),
        attempts: timer.attempts.saturating_add(1),
        ..timer
    };
    let unit_app = app.clone();
    let moved = app
        .write_behind(move |unit| {
            tenure.check(&unit_app, unit)?;
            unit.set_timer(later.clone());
            Ok::<_, Error>(())
        })
        .await;
    if let Err(error) = moved {
        tracing::error!(%error, "a timer could not be moved");
    }
    false
}

async fn expire_quote(app: &App, tenure: Tenure, timer: &Timer) -> Result<(), Error> {
    let (id, timer) = (QuoteId::from_uuid(timer.subject), timer.clone());
    let (unit_app, server_now) = (app.clone(), app.server_now());
    app.write_behind(move |unit| {
        tenure.check(&unit_app, unit)?;
        let now = owners::platform(unit, timer.platform)?.ahead.shows(server_now);
        quotes::expire(&unit_app, unit, id, now)?;
        unit.clear_timer(timer.key());
        Ok(())
    })
    .await
}

async fn expire_invitation(app: &App, tenure: Tenure, timer: &Timer) -> Result<(), Error> {
    let (id, timer) = (InvitationId::from_uuid(timer.subject), timer.clone());
    let (unit_app, server_now) = (app.clone(), app.server_now());
    app.write_behind(move |unit| {
        tenure.check(&unit_app, unit)?;
        let now = owners::platform(unit, timer.platform)?.ahead.shows(server_now);
        invitations::expire(unit, id, now)?;
        unit.clear_timer(timer.key());
        Ok(())
    })
    .await
}

async fn expire_identity_check(app: &App, tenure: Tenure, timer: &Timer) -> Result<(), Error> {
    let (id, timer) = (IdentityCheckId::from_uuid(timer.subject), timer.clone());
    let (unit_app, server_now) = (app.clone(), app.server_now());
    app.write_behind(move |unit| {
        tenure.check(&unit_app, unit)?;
        let now = owners::platform(unit, timer.platform)?.ahead.shows(server_now);
        identity::expire(&unit_app, unit, id, now)?;
        unit.clear_timer(timer.key());
        Ok(())
    })
    .await
}

async fn time_out(app: &App, tenure: Tenure, timer: &Timer) -> Result<(), Error> {
    let (id, timer) = (TransactionId::from_uuid(timer.subject), timer.clone());
    let (unit_app, server_now) = (app.clone(), app.server_now());
    app.write_behind(move |unit| {
        tenure.check(&unit_app, unit)?;
        let now = owners::platform(unit, timer.platform)?.ahead.shows(server_now);
        unit.clear_timer(timer.key());
        incoming::time_out(&unit_app, unit, id, now)
    })
    .await
}

/// Asks the rail about a transaction, outside any unit of work, and then keeps what it said. The
/// order is the same however often it is given, so a crash in between costs a question, not money.
async fn ask_rail(
    app: &App,
    tenure: Tenure,
    timer: &Timer,
    order: Option<Order>,
) -> Result<(), Error> {
    let other_side = app.new_id(Ahead::NONE, app.server_now());
    let answer = match &order {
        Some((order, platform)) => {
            let rail = app.env().rail(platform.mode);
            Some((order.flow, rail.ask(order, app.now(platform.ahead)).await))
        }
        None => None,
    };
    let (timer, unit_app, server_now) = (timer.clone(), app.clone(), app.server_now());
    app.write_behind(move |unit| {
        tenure.check(&unit_app, unit)?;
        let Some((flow, answer)) = &answer else {
            unit.clear_timer(timer.key());
            return Ok(());
        };
        let now = owners::platform(unit, timer.platform)?.ahead.shows(server_now);
        keep_answer(&unit_app, unit, &timer, *flow, answer, other_side, now)
    })
    .await
}

/// Asks the rail what it knows about an external account, and keeps what it said.
async fn ask_account(app: &App, tenure: Tenure, timer: &Timer) -> Result<(), Error> {
    let (id, platform) = (ExternalAccountId::from_uuid(timer.subject), timer.platform);
    let found = app.store().get::<ExternalAccount>(id).await;
    let report = match found.map_err(Error::Store)? {
        Some(account) => {
            Some(external_accounts::inspect(app, platform, &account.info, Some(timer.since)).await?)
        }
        None => None,
    };
    let (timer, unit_app, server_now) = (timer.clone(), app.clone(), app.server_now());
    app.write_behind(move |unit| {
        tenure.check(&unit_app, unit)?;
        let now = owners::platform(unit, timer.platform)?.ahead.shows(server_now);
        match &report {
            Some(report) => external_accounts::keep_report(unit, &timer, report, now),
            None => {
                unit.clear_timer(timer.key());
                Ok(())
            }
        }
    })
    .await
}

/// What the rail is asked about a transaction; nothing if it has ended.
fn order(unit: &mut Unit<'_, '_>, timer: &Timer) -> Result<Option<Order>, Error> {
    let id = TransactionId::from_uuid(timer.subject);
    let Some(transaction) = unit.get::<Transaction>(&id)? else { return Ok(None) };
    let is_asked_about = match transaction.status() {
        // What was delivered may come back, if the rail said that it may.
        Status::Pending | Status::Processing | Status::Completed => true,
        Status::Created
        | Status::Rejected
        | Status::Failed
        | Status::Refunded
        | Status::Expired => false,
    };
    if !is_asked_about {
        return Ok(None);
    }
    let flow = flow(&unit.postings(id)?, &transaction);
    let (party, rail, amount) = other_side(unit, &transaction, flow)?;
    let draft = transaction.draft();
    let platform = owners::platform(unit, draft.platform)?;
    // A deposit in the currency that was received is a transfer.
    let is_transfer = match (&draft.uma, flow) {
        (None, _) => draft.terms.is_none(),
        (Some(uma), Flow::PayOut) => draft.terms.is_none() && uma.conversion.is_none(),
        (Some(_), Flow::PullIn) => false,
    };
    let order = Instruction {
        key: id,
        flow,
        cause: if is_transfer { Cause::Transfer } else { Cause::Quote },
        rail,
        amount,
        party,
        since: timer.since,
        settings: platform.rail_settings.clone(),
    };
    Ok(Some((order, platform)))
}

/// Who is on the other side of a transaction's next order, over which rail, and for how much.
fn other_side(
    unit: &mut Unit<'_, '_>,
    transaction: &Transaction,
    flow: Flow,
) -> Result<(Party, Rail, Money), Error> {
    let draft = transaction.draft();
    let corrupt = || Error::Internal(format!("{} waits for a rail without need", draft.id));
    let source = draft.source.as_ref();
    let account = match (flow, source, &draft.destination) {
        (Flow::PayOut, _, Destination::Account { account, .. })
        | (Flow::PullIn, Some(Source::Account { account, .. }), _) => account.external(),
        (Flow::PullIn, Some(Source::Uma { address }), _) => {
            let msat = draft.uma.as_ref().and_then(|uma| uma.settlement.msat());
            let party = Party::Uma { address: address.clone(), invoice: None };
            return Ok((party, Rail::Lightning, msat.ok_or_else(corrupt)?));
        }
        (Flow::PayOut, _, Destination::Uma { address, .. }) => {
            let quote = draft.terms.as_ref().map(|terms| terms.quote).ok_or_else(corrupt)?;
            let quote = unit.get::<Quote>(&quote)?.ok_or_else(corrupt)?;
            let route = quote.draft().uma.as_ref().map(|uma| &uma.route);
            let Some(Route::Lightning { invoice, msat }) = route else { return Err(corrupt()) };
            let (address, invoice) = (address.clone(), Some(invoice.clone()));
            return Ok((Party::Uma { address, invoice }, Rail::Lightning, *msat));
        }
        (Flow::PullIn, Some(Source::RealtimeFunding { .. }) | None, _) => None,
    };
    let amount = match (flow, draft.direction, draft.sent) {
        (Flow::PullIn, Direction::Outgoing, Some(sent)) => sent.money(),
        (Flow::PayOut | Flow::PullIn, _, _) => draft.arrives(),
    };
    let account = unit.get::<ExternalAccount>(&account.ok_or_else(corrupt)?)?;
    let info = account.ok_or_else(corrupt)?.info.clone();
    let rail = info.rails()[0];
    Ok((Party::Account(Box::new(info)), rail, amount))
}

/// Whether a quote's money is still to be pulled from its external source.
fn waits_for_source(postings: &[PostingRow], transaction: &Transaction) -> bool {
    let draft = transaction.draft();
    let source = draft.source.as_ref().and_then(Source::account).and_then(AccountRef::external);
    draft.direction == Direction::Outgoing
        && source.is_some()
        && !postings.iter().any(|posting| posting.movement == Movement::Funding)
}

/// Which way money has to move next for a transaction.
fn flow(postings: &[PostingRow], transaction: &Transaction) -> Flow {
    let is_deposited = || postings.iter().any(|posting| posting.movement == Movement::Payout);
    match transaction.draft().direction {
        Direction::Outgoing if !waits_for_source(postings, transaction) => Flow::PayOut,
        Direction::Incoming if is_deposited() => Flow::PayOut,
        Direction::Outgoing | Direction::Incoming => Flow::PullIn,
    }
}

/// Keeps what the rail said. A transaction that has ended in the meantime stays as it is.
fn keep_answer(
    app: &App,
    unit: &mut Unit<'_, '_>,
    timer: &Timer,
    asked: Flow,
    answer: &RailAnswer,
    other_side: TransactionId,
    now: Timestamp,
) -> Result<(), Error> {
    let id = TransactionId::from_uuid(timer.subject);
    let Some(transaction) = unit.get::<Transaction>(&id)? else { return Ok(()) };
    let is_open = matches!(transaction.status(), Status::Pending | Status::Processing);
    if transaction.status() == Status::Completed {
        return watch(app, unit, Transaction::clone(&transaction), timer, asked, answer, now);
    }
    if !is_open {
        unit.clear_timer(timer.key());
        return Ok(());
    }
    if asked != flow(&unit.postings(id)?, &transaction) {
        // The answer is about an order that has been answered before: the payment is a step further
        // and its timer asks about that one.
        return Ok(());
    }
    let mut transaction = Transaction::clone(&transaction);
    let is_new = transaction.status() == Status::Pending;
    let has_moved = match answer {
        RailAnswer::Settled | RailAnswer::SettledForNow { .. } => true,
        // What was pulled in and taken back before it was counted on has not come.
        RailAnswer::Returned => asked == Flow::PayOut,
        RailAnswer::Pending { .. } | RailAnswer::Refused | RailAnswer::Failed(_) => false,
    };
    if is_new && (has_moved || matches!(answer, RailAnswer::Pending { .. })) {
        transaction = lifecycle::advance(app, unit, transaction, Event::Started, now)?;
    }
    let from_peer = incoming::is_from_peer(&transaction) && asked == Flow::PullIn;
    match answer {
        RailAnswer::Pending { ask_again_at } => {
            let platform = owners::platform(unit, timer.platform)?;
            unit.set_timer(timer.again(&platform, *ask_again_at));
            return Ok(());
        }
        RailAnswer::Settled | RailAnswer::SettledForNow { .. } | RailAnswer::Returned
            if has_moved =>
        {
            if asked == Flow::PullIn && transaction.draft().direction == Direction::Outgoing {
                return pulled(app, unit, transaction, timer, other_side, now);
            }
            if !from_peer {
                let transaction = end(app, unit, transaction, Event::Settled, now)?;
                return watch(app, unit, transaction, timer, asked, answer, now);
            }
            // What goes on to a deposit account is asked about by the same timer, set anew.
            unit.clear_timer(timer.key());
            incoming::credit(app, unit, transaction, now)?;
            return Ok(());
        }
        RailAnswer::Refused
        | RailAnswer::Failed(_)
        | RailAnswer::Settled
        | RailAnswer::SettledForNow { .. }
        | RailAnswer::Returned => {
            let event = rail_answers::undone(&transaction, asked, answer);
            if let Event::Kept(reason) = event {
                incoming::refuse_deposit(app, unit, transaction, reason, now)?;
            } else if from_peer {
                incoming::stop(app, unit, transaction, event, now)?;
            } else {
                end(app, unit, transaction, event, now)?;
            }
        }
    }
    unit.clear_timer(timer.key());
    Ok(())
}

/// Keeps what the rail says about a payment that was delivered: that it may still come back, or
/// that it has.
fn watch(
    app: &App,
    unit: &mut Unit<'_, '_>,
    transaction: Transaction,
    timer: &Timer,
    asked: Flow,
    answer: &RailAnswer,
    now: Timestamp,
) -> Result<(), Error> {
    match answer {
        RailAnswer::SettledForNow { ask_again_at } | RailAnswer::Pending { ask_again_at }
            if asked == Flow::PayOut =>
        {
            let platform = owners::platform(unit, timer.platform)?;
            unit.set_timer(timer.again(&platform, *ask_again_at));
            return Ok(());
        }
        RailAnswer::Returned if asked == Flow::PayOut => {
            if transaction.draft().deposit_account().is_some() {
                incoming::take_deposit_back(app, unit, transaction, now)?;
            } else {
                funding::take_back(app, unit, transaction, now)?;
            }
        }
        RailAnswer::Settled | RailAnswer::SettledForNow { .. } => {}
        // The rail takes back what it said. Nobody but a person can tell where the money is.
        RailAnswer::Pending { .. }
        | RailAnswer::Returned
        | RailAnswer::Refused
        | RailAnswer::Failed(_) => {
            tracing::error!(
                transaction = %transaction.id(), ?answer,
                "a rail contradicts itself about a payment that it had settled"
            );
        }
    }
    unit.clear_timer(timer.key());
    Ok(())
}

/// Goes on with a quote whose money has come from its external source: into the exchange, or, if
/// the destination cannot be paid any more, to the sender's internal account.
fn pulled(
    app: &App,
    unit: &mut Unit<'_, '_>,
    transaction: Transaction,
    timer: &Timer,
    other_side: TransactionId,
    now: Timestamp,
) -> Result<(), Error> {
    let draft = transaction.draft().clone();
    let missing = || Error::Internal(format!("{} has no quote", draft.id));
    let (Some(terms), Some(sent)) = (&draft.terms, draft.sent) else { return Err(missing()) };
    let quote = unit.get::<Quote>(&terms.quote)?.ok_or_else(missing)?;
    unit.clear_timer(timer.key());
    let source = draft.source.as_ref().and_then(Source::account).and_then(AccountRef::external);
    let source = owners::external_account(unit, draft.platform, source.ok_or_else(missing)?)?;
    let rail = source.info.rails()[0];
    if funding::can_run(unit, &quote)? {
        unit.post(draft.id, &movements::funding(rail, sent.money())?, now)?;
        let source = movements::Source::Suspense;
        let quote = Quote::clone(&quote);
        quotes::exchange(app, unit, transaction, quote, source, other_side, now)?;
        return Ok(());
    }
    let reason = StatusReason::DESTINATION_UNAVAILABLE;
    let failed = Event::Failed(FailureReason::QuoteExecutionFailed, reason);
    funding::give_back(app, unit, &quote, rail, sent.money(), failed, quote::Event::Failed, now)
}

/// Ends a transaction: the pending posting becomes posted or voided, the quote ends with it, and
/// money that had come just in time goes to the owner's internal account.
pub(crate) fn end(
    app: &App,
    unit: &mut Unit<'_, '_>,
    transaction: Transaction,
    event: Event,
    now: Timestamp,
) -> Result<Transaction, Error> {
    let settled = event == Event::Settled;
    let resolution = if settled { Resolution::Post } else { Resolution::Void };
    let postings = unit.postings(transaction.id())?;
    // Nothing was set aside for money that was still to be pulled.
    if !waits_for_source(&postings, &transaction) {
        unit.resolve(transaction.id(), resolution, now)?;
    }
    let mut transaction = lifecycle::advance(app, unit, transaction, event, now)?;
    if let Some(terms) = &transaction.draft().terms
        && let Some(quote) = unit.get::<Quote>(&terms.quote)?
    {
        let event = if settled { quote::Event::Delivered } else { quote::Event::Failed };
        lifecycle::advance_quote(unit, Quote::clone(&quote), event, now)?;
    }
    let funded = postings.iter().any(|posting| posting.movement == Movement::Funding);
    if let (false, true, Some(sent)) = (settled, funded, transaction.draft().sent) {
        transaction = funding::return_from_suspense(unit, transaction, Sending::money(sent), now)?;
        if transaction.status() == Status::Failed {
            transaction = lifecycle::advance(app, unit, transaction, Event::Refunded, now)?;
        }
    }
    Ok(transaction)
}
