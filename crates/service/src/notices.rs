//! Notices to the operator: one line of the log for each payment that ends other than `COMPLETED`,
//! each delivery that is given up, each change of a platform's settings, and each matter that only
//! a person can settle.
//!
//! A unit may run more than once, so its caller logs them once it is committed. They have ids,
//! amounts and names of fields, and never personal data or what a client has written, but for the
//! id of its request.

use domain::attention::Attention;
use domain::delivery::{self, Delivery, Outcome, Plan};
use domain::id::{DeliveryId, PlatformId, TransactionId};
use domain::money::{Money, Sending};
use domain::platform::Platform;
use domain::rail::Rail;
use domain::transaction::{Direction, Status, Transaction};
use store::unit::Unit;

use crate::app::App;

/// Dead deliveries of one unit that are logged one by one. A platform that takes its endpoint away
/// may have a week's events to give up.
const DEAD_LOGGED_MAX: usize = 32;

/// A payment that a unit has left at such an end.
#[derive(Debug)]
struct Ended {
    id: TransactionId,
    platform: PlatformId,
    status: Status,
    reason: Option<String>,
    /// The amount that the platform's side sends or receives.
    amount: Money,
    rail: Option<Rail>,
    request: Option<String>,
}

impl Ended {
    fn of(transaction: &Transaction) -> Option<Self> {
        let status = transaction.status();
        match status {
            Status::Rejected | Status::Failed | Status::Refunded | Status::Expired => {}
            Status::Created | Status::Pending | Status::Processing | Status::Completed => {
                return None;
            }
        }
        let draft = transaction.draft();
        let received = draft.received.money();
        let amount = match draft.direction {
            Direction::Outgoing => draft.sent.map_or(received, Sending::money),
            Direction::Incoming => received,
        };
        Some(Self {
            id: transaction.id(),
            platform: draft.platform,
            status,
            reason: transaction.reason().map(|reason| reason.code().to_owned()),
            amount,
            rail: transaction.rail(),
            request: transaction.request().map(str::to_owned),
        })
    }

    fn log(&self) {
        let Self { id, platform, status, reason, amount, rail, request } = self;
        tracing::info!(
            transaction = %id, %platform, status = status.name(), reason = reason.as_deref(),
            amount = amount.minor(), currency = amount.currency().code(),
            rail = rail.map(Rail::name), request_id = request.as_deref(),
            "payment ended without completion"
        );
    }
}

/// A matter for a person that a unit has opened or noticed again.
#[derive(Debug)]
struct Matter(Attention);

impl Matter {
    fn of(before: Option<&Attention>, after: &Attention) -> Option<Self> {
        let is_open = |matter: &Attention| matter.resolution.is_none();
        let is_new = is_open(after) && !before.is_some_and(is_open);
        is_new.then(|| Self(after.clone()))
    }

    fn log(&self) {
        let Self(matter) = self;
        tracing::error!(
            attention = %matter.id(), kind = matter.kind.name(), platform = %matter.platform,
            subject = %matter.subject, note = matter.notice.note,
            "a person must settle this: see switchyard attention"
        );
    }
}

/// A delivery that a unit has given up.
#[derive(Debug)]
struct Dead {
    id: DeliveryId,
    platform: PlatformId,
    event: &'static str,
    attempts: usize,
    /// HTTP status of the last answer, if there was one.
    answer: Option<u16>,
    failure: Option<&'static str>,
}

impl Dead {
    fn of(before: Option<&Delivery>, delivery: &Delivery) -> Option<Self> {
        let is_dead = |delivery: &Delivery| delivery.status() == delivery::Status::Dead;
        let (draft, attempts) = (delivery.draft(), &delivery.progress().attempts);
        // A payment that was decided before it could be asked about has missed nothing.
        let was_asked = draft.plan != Plan::Asked || !attempts.is_empty();
        if !is_dead(delivery) || before.is_some_and(is_dead) || !was_asked {
            return None;
        }
        let (answer, failure) = match attempts.last().map(|attempt| &attempt.outcome) {
            Some(Outcome::Answered { status, .. }) => (Some(*status), None),
            Some(Outcome::Refused(_)) => (None, Some("address refused")),
            Some(Outcome::Unreachable) => (None, Some("unreachable")),
            Some(Outcome::TimedOut) => (None, Some("timed out")),
            None => (None, Some("never attempted")),
        };
        let (id, platform, event) = (draft.id, draft.platform, draft.kind.name());
        Some(Self { id, platform, event, attempts: attempts.len(), answer, failure })
    }

    fn log(&self) {
        let Self { id, platform, event, attempts, answer, failure } = self;
        tracing::warn!(
            delivery = %id, %platform, event, attempts, answer, failure,
            "webhook delivery is DEAD: it is not attempted any more"
        );
    }
}

/// Settings of a platform that a unit has changed.
#[derive(Debug)]
struct Changed {
    platform: PlatformId,
    settings: Vec<&'static str>,
}

impl Changed {
    fn of(before: Option<&Platform>, after: &Platform) -> Option<Self> {
        let before = before?;
        let differs = [
            ("name", before.name != after.name),
            ("umaDomain", before.uma_domain != after.uma_domain),
            ("webhookEndpoint", before.webhook_endpoint != after.webhook_endpoint),
            ("eventNames", before.event_names != after.event_names),
            ("isRegulatedFinancialInstitution", before.is_regulated != after.is_regulated),
            ("supportedCurrencies", before.currencies != after.currencies),
            ("pricing", before.corridors != after.corridors),
            ("webhookKeys", before.signing != after.signing),
            ("umaKeys", before.uma_keys != after.uma_keys),
            ("railSettings", before.rail_settings != after.rail_settings),
            ("costDrift", before.cost_drift_max != after.cost_drift_max),
        ];
        let settings: Vec<_> =
            differs.into_iter().filter_map(|(name, differs)| differs.then_some(name)).collect();
        (!settings.is_empty()).then_some(Self { platform: after.id, settings })
    }

    fn log(&self, app: &App) {
        let Self { platform, settings } = self;
        let origin = app.origin();
        let token = origin.actor.token_id().map(|id| id.to_string());
        tracing::info!(
            %platform, settings = settings.join(","), token, request_id = origin.request,
            "platform settings changed"
        );
    }
}

/// The lines of one unit.
#[derive(Debug, Default)]
pub(crate) struct Notices {
    ended: Vec<Ended>,
    dead: Vec<Dead>,
    changed: Vec<Changed>,
    matters: Vec<Matter>,
}

impl Notices {
    /// The lines of the unit so far.
    pub(crate) fn by(unit: &mut Unit<'_, '_>) -> Self {
        let ended = unit.changed_transactions().filter_map(Ended::of).collect();
        let dead = unit.changed::<Delivery>();
        let dead = dead.iter().filter_map(|(before, after)| Dead::of(before.as_deref(), after));
        let dead = dead.collect();
        let changed = unit.changed::<Platform>();
        let changed =
            changed.iter().filter_map(|(before, after)| Changed::of(before.as_deref(), after));
        let changed = changed.collect();
        let matters = unit.changed::<Attention>();
        let matters =
            matters.iter().filter_map(|(before, after)| Matter::of(before.as_deref(), after));
        Self { ended, dead, changed, matters: matters.collect() }
    }

    /// Logs them, once the unit is committed.
    pub(crate) fn log(&self, app: &App) {
        self.ended.iter().for_each(Ended::log);
        self.dead.iter().take(DEAD_LOGGED_MAX).for_each(Dead::log);
        if let Some(first) = self.dead.get(DEAD_LOGGED_MAX) {
            let deliveries = self.dead.len() - DEAD_LOGGED_MAX;
            let platform = &first.platform;
            tracing::warn!(%platform, deliveries, "more webhook deliveries are DEAD");
        }
        self.changed.iter().for_each(|changed| changed.log(app));
        self.matters.iter().for_each(Matter::log);
    }
}
