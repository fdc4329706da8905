//! Calls of jobs to rails, beside the step: an answer that is there at once is kept within it, any
//! other in a task of its own. Each call has a place in its bulkhead first.
//!
//! A crash, a stop or a lost lease costs an answer and no money: the timer is still there, and the
//! same order is given again.

use std::future::poll_fn;
use std::pin::Pin;
use std::task::Poll;

use domain::clock::Ahead;
use domain::external_account::ExternalAccount;
use domain::id::{ExternalAccountId, TransactionId};
use domain::time::Timestamp;
use ports::rail::{self, Flow, Party, RailAnswer, RailReply};
use store::timers::Timer;
use tokio::sync::oneshot::Receiver;

use super::{Ended, fail};
use crate::app::App;
use crate::bulkheads::{Entry, Slot, Target};
use crate::error::Error;
use crate::external_accounts::{self, Report, Unknown};
use crate::leadership::Leadership;
use crate::rail_orders::Order;
use crate::{owners, rail_answers};

/// After how long a call that decided nothing has hung, in milliseconds. A bank answers "not yet"
/// at once.
const HANGS_AFTER_MILLIS: i64 = 3_000;

/// The first wait of a timer whose call finds no place, in milliseconds. It waits as long again as
/// it is old, so that a backlog costs few commits.
const WAIT_MILLIS_MIN: i64 = 1_000;

/// The longest wait of such a timer, in milliseconds: as of an order that got no answer.
const WAIT_MILLIS_MAX: i64 = 5 * 60_000;

/// The answer to a call.
enum Answer {
    /// To an order.
    Order { flow: Flow, reply: RailReply, other_side: TransactionId },
    /// To a question about an account.
    Account(Report),
}

/// An answer that is waited for.
type Answering = Pin<Box<dyn Future<Output = Result<Answer, Error>> + Send>>;

/// A call to a rail that is to be made.
struct Call {
    timer: Timer,
    target: Target,
    answer: Answering,
}

/// Leave to make a call, now or once it is the call's turn.
enum Turn {
    Now { slot: Slot, began: Timestamp },
    Queued(Receiver<Slot>),
}

/// Asks the rail about a transaction. The order is the same however often it is given.
pub(super) async fn about_transaction(
    app: &App,
    leadership: Leadership,
    timer: &Timer,
    order: Option<Order>,
) -> Result<Ended, Error> {
    let Some((order, platform)) = order else { return clear(app, leadership, timer).await };
    // An order may have been executed: it waits, and is never given to another port.
    let gone = format!("no port of this server serves {}", order.rail);
    if app.env().rails(platform.mode).port(&order.leg()).is_none() {
        return Err(Error::Internal(gone));
    }
    let target = match &order.party {
        Party::Uma { address, .. } => Target::Peer(address.domain().to_owned()),
        Party::Account(_) => Target::Rail(platform.mode, order.rail),
    };
    let (asking, other_side) = (app.clone(), app.new_id(Ahead::NONE, app.server_now()));
    let answer = async move {
        let port = asking.env().rails(platform.mode).port(&order.leg());
        let port = port.ok_or(Error::Internal(gone))?;
        let reply = rail::ask(port, &order, asking.now(platform.ahead)).await;
        Ok(Answer::Order { flow: order.flow, reply, other_side })
    };
    make(app, leadership, Call { timer: timer.clone(), target, answer: Box::pin(answer) }).await
}

/// Asks the rail what it knows about an external account.
pub(super) async fn about_account(
    app: &App,
    leadership: Leadership,
    timer: &Timer,
) -> Result<Ended, Error> {
    let id = ExternalAccountId::from_uuid(timer.subject);
    let found = app.store().get::<ExternalAccount>(id).await;
    let Some(account) = found.map_err(Error::Store)? else {
        return clear(app, leadership, timer).await;
    };
    let platform = external_accounts::platform(app, timer.platform).await?;
    let leg = app.env().rails(platform.mode).legs(&account.info, account.currency).next();
    let Some(leg) = leg else {
        let unknown = Answer::Account(Err(Unknown::NotConnected));
        return keep(app, leadership, timer, unknown).await;
    };
    let target = Target::Rail(platform.mode, leg.rail);
    let (asking, since) = (app.clone(), Some(timer.since));
    let answer = async move {
        let described = (&account.info, account.currency);
        external_accounts::report(&asking, &platform, described, since).await.map(Answer::Account)
    };
    make(app, leadership, Call { timer: timer.clone(), target, answer: Box::pin(answer) }).await
}

/// Makes a call if there is a place for it.
async fn make(app: &App, leadership: Leadership, mut call: Call) -> Result<Ended, Error> {
    let turn = match app.bulkheads().enter(&call.target, app.server_now()) {
        Entry::Now(slot) => {
            let began = app.server_now();
            if let Some(answer) = at_once(&mut call.answer).await {
                leave(app, slot, began, &answer);
                return keep(app, leadership, &call.timer, answer?).await;
            }
            Turn::Now { slot, began }
        }
        Entry::Queued(turn) => Turn::Queued(turn),
        Entry::Refused => return postpone(app, leadership, &call.timer, &call.target).await,
    };
    beside(app, leadership, call, turn);
    Ok(Ended::UnderWay)
}

/// The answer, if it is there without waiting.
async fn at_once(answer: &mut Answering) -> Option<Result<Answer, Error>> {
    poll_fn(|context| match answer.as_mut().poll(context) {
        Poll::Ready(answer) => Poll::Ready(Some(answer)),
        Poll::Pending => Poll::Ready(None),
    })
    .await
}

/// Waits for the answer in a task of its own, and keeps it.
fn beside(app: &App, leadership: Leadership, mut call: Call, turn: Turn) {
    let under_way = app.bulkheads().begin(call.timer.key(), call.timer.platform);
    let task_app = app.clone();
    app.bulkheads().spawn(async move {
        if let Err(error) = finish(&task_app, leadership, &mut call, turn).await {
            fail(&task_app, leadership, &call.timer, &error).await;
        }
        drop(under_way);
    });
}

async fn finish(
    app: &App,
    leadership: Leadership,
    call: &mut Call,
    turn: Turn,
) -> Result<Ended, Error> {
    let (slot, began) = match turn {
        Turn::Now { slot, began } => (slot, began),
        Turn::Queued(turn) => match turn.await {
            Ok(slot) if app.leadership().is_some_and(|held| held.is_of(leadership)) => {
                (slot, app.server_now())
            }
            // Another server may lead now, and asks itself.
            Ok(_) => return Ok(Ended::UnderWay),
            Err(_) => return postpone(app, leadership, &call.timer, &call.target).await,
        },
    };
    let answer = call.answer.as_mut().await;
    leave(app, slot, began, &answer);
    keep(app, leadership, &call.timer, answer?).await
}

/// Gives the slot of a call back. One that took long and decided nothing has hung.
fn leave(app: &App, slot: Slot, began: Timestamp, answer: &Result<Answer, Error>) {
    let is_open = match answer {
        Ok(Answer::Order { reply, .. }) => {
            matches!(reply.answer, RailAnswer::Pending { .. } | RailAnswer::Overdue { .. })
        }
        Ok(Answer::Account(_)) => false,
        Err(_) => true,
    };
    let now = app.server_now();
    if is_open && now.millis().saturating_sub(began.millis()) >= HANGS_AFTER_MILLIS {
        slot.hung(now, app.env().entropy.number());
    } else {
        slot.answered();
    }
}

/// Keeps the answer to a call.
async fn keep(
    app: &App,
    leadership: Leadership,
    timer: &Timer,
    answer: Answer,
) -> Result<Ended, Error> {
    let (timer, unit_app, server_now) = (timer.clone(), app.clone(), app.server_now());
    app.write_behind(move |unit| {
        leadership.check(&unit_app, unit)?;
        let now = owners::platform(unit, timer.platform)?.ahead.shows(server_now);
        match &answer {
            Answer::Order { flow, reply, other_side } => {
                rail_answers::keep_answer(&unit_app, unit, &timer, *flow, reply, *other_side, now)
            }
            Answer::Account(report) => external_accounts::keep_report(unit, &timer, report, now),
        }
    })
    .await?;
    Ok(Ended::Done)
}

/// Takes away a timer about which there is nothing to ask.
async fn clear(app: &App, leadership: Leadership, timer: &Timer) -> Result<Ended, Error> {
    let (key, unit_app) = (timer.key(), app.clone());
    app.write_behind(move |unit| {
        leadership.check(&unit_app, unit)?;
        unit.clear_timer(key);
        Ok(())
    })
    .await?;
    Ok(Ended::Done)
}

/// Sets the timer of a call for which there is no place anew.
async fn postpone(
    app: &App,
    leadership: Leadership,
    timer: &Timer,
    target: &Target,
) -> Result<Ended, Error> {
    let paused_until = app.bulkheads().paused_until(target);
    let (timer, unit_app, server_now) = (timer.clone(), app.clone(), app.server_now());
    app.write_behind(move |unit| {
        leadership.check(&unit_app, unit)?;
        let ahead = owners::platform(unit, timer.platform)?.ahead;
        let now = ahead.shows(server_now);
        let age_millis = now.millis().saturating_sub(timer.since.millis());
        let due_at = now.plus_millis(age_millis.clamp(WAIT_MILLIS_MIN, WAIT_MILLIS_MAX));
        let paused_until = paused_until.map(|until| ahead.shows(until));
        unit.set_timer(timer.again(paused_until.map_or(due_at, |until| until.max(due_at))));
        Ok(())
    })
    .await?;
    Ok(Ended::Done)
}
