//! Leadership among the servers that share a database: the holder of the lease runs due jobs.
//!
//! The lease only saves work. Safety comes from the fence: every unit that keeps the result of a
//! job first checks that the lease still has the term under which the job began
//! ([`Leadership::check`]). A server that was frozen for an hour, or whose clock is wrong, finds
//! out there.
//!
//! A lease has run out at its end, or when it was not renewed for its length by the reader's clock:
//! its end was written by another clock, which may have been ahead.

use std::sync::Arc;

use domain::time::Timestamp;
use store::error::StoreError;
use store::leases::{Lease, LeaseName};
use store::unit::Unit;

use crate::app::App;
use crate::error::Error;

/// How long a server that is gone keeps the others waiting, in milliseconds. A few times what a
/// slow commit and the clocks of two machines differ by.
const LEASE_MILLIS: i64 = 3_000;

/// How often the lease is renewed, in milliseconds: twice more before it ends.
const RENEW_MILLIS: i64 = 1_000;

/// The right to run due jobs, for one term of the lease.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Leadership {
    term: i64,
    renewed_at: Timestamp,
}

impl Leadership {
    /// Whether it is of the same term, perhaps renewed.
    pub(crate) fn is_of(self, other: Self) -> bool {
        self.term == other.term
    }

    /// The term of the lease.
    pub(crate) fn term(self) -> i64 {
        self.term
    }

    /// Refuses to keep the result of a job if another server has taken over since it began.
    pub fn check(self, app: &App, unit: &mut Unit<'_, '_>) -> Result<(), Error> {
        let lease = unit.get::<Lease>(&LeaseName::Jobs)?;
        let is_ours =
            lease.is_some_and(|lease| (lease.holder, lease.epoch) == (app.server(), self.term));
        if is_ours { Ok(()) } else { Err(Error::Superseded) }
    }
}

/// Another server that leads.
#[derive(Debug, PartialEq, Eq)]
pub struct Leader {
    /// Its name ([`name`]).
    pub server: String,
    /// Where it is reached, if it has said.
    pub address: Option<String>,
}

/// Another server's lease, and since when by our clock it has not changed.
pub(crate) struct Seen {
    pub(crate) lease: Lease,
    pub(crate) since: Timestamp,
    /// Its holder, shared by all readers until that changes.
    pub(crate) leader: Arc<Leader>,
}

impl Seen {
    /// A lease that is new to us. `known` had the one before.
    pub(crate) fn new(lease: &Lease, since: Timestamp, known: Option<&Arc<Leader>>) -> Self {
        let leader =
            Leader { server: lease.holder.simple().to_string(), address: lease.address.clone() };
        let known = known.filter(|known| ***known == leader).cloned();
        let leader = known.unwrap_or_else(|| Arc::new(leader));
        Self { lease: lease.clone(), since, leader }
    }
}

/// This server's name among those that share a database. It is drawn at the start, so a server
/// that tells it is the process that the lease means.
pub fn name(app: &App) -> String {
    app.server().simple().to_string()
}

/// The other server that leads, as far as this one knows. It reads the lease every second
/// ([`hold`]).
pub fn elsewhere(app: &App) -> Option<Arc<Leader>> {
    if app.leadership().is_some() {
        return None;
    }
    let now = app.server_now();
    app.seen(|Seen { lease, since, leader }| {
        (lease.holder != app.server() && runs(lease, *since, now)).then(|| Arc::clone(leader))
    })?
}

/// Takes or renews the lease as is needed; gives nothing while another server has it.
pub async fn hold(app: &App) -> Result<Option<Leadership>, Error> {
    let now = app.server_now();
    let held = app.leadership();
    if let Some(leadership) = held {
        let age = now.millis().saturating_sub(leadership.renewed_at.millis());
        if !app.env().shares_database || (0..RENEW_MILLIS).contains(&age) {
            return Ok(Some(leadership));
        }
    }
    let unit_app = app.clone();
    let taken = app.store().write(app.origin(), move |unit| take(&unit_app, unit, now)).await?;
    let before = app.set_leadership(taken);
    match taken {
        // Jobs and deliveries may take it at the same time; one of them has changed the term.
        Some(taken) if !before.is_some_and(|before| before.is_of(taken)) => {
            tracing::info!(server = name(app), term = taken.term, "took the leader lease");
        }
        None if before.is_some() => {
            tracing::warn!(leader = leader_now(app), "lost the leader lease");
        }
        Some(_) | None => {}
    }
    Ok(taken)
}

/// Whether this server leads, for a metric: a lease that could not be renewed in time is another
/// server's to take.
pub fn leads(app: &App) -> bool {
    let now = app.server_now();
    app.leadership().is_some_and(|held| {
        !app.env().shares_database || now < held.renewed_at.plus_millis(LEASE_MILLIS)
    })
}

/// The name of the server that leads, for the log.
pub(crate) fn leader_now(app: &App) -> Option<String> {
    elsewhere(app).map(|leader| leader.server.clone())
}

fn take(app: &App, unit: &mut Unit<'_, '_>, now: Timestamp) -> Result<Option<Leadership>, Error> {
    let lease = unit.get::<Lease>(&LeaseName::Jobs)?;
    let term = match &lease {
        Some(lease) if lease.holder == app.server() => lease.epoch,
        // A server that has its database for itself knows that the holder before it is gone.
        Some(lease) if app.env().shares_database && is_held(app, lease, now) => return Ok(None),
        Some(lease) => lease.epoch + 1,
        None => 1,
    };
    let until = now.plus_millis(LEASE_MILLIS);
    let address = app.env().peer_address.clone();
    unit.put(Lease { name: LeaseName::Jobs, holder: app.server(), epoch: term, until, address });
    Ok(Some(Leadership { term, renewed_at: now }))
}

/// Whether the server that has a lease may still be there.
fn is_held(app: &App, lease: &Lease, now: Timestamp) -> bool {
    runs(lease, app.first_seen(lease, now), now)
}

/// Whether a lease that has not changed since then has not run out.
fn runs(lease: &Lease, since: Timestamp, now: Timestamp) -> bool {
    now < lease.until && now < since.plus_millis(LEASE_MILLIS)
}

/// Makes sure that changes can be kept, by writing a row again as it is: a unit that changes
/// nothing would not touch the disk.
pub async fn try_to_write(app: &App) -> Result<(), StoreError> {
    let work = |unit: &mut Unit<'_, '_>| {
        if let Some(lease) = unit.get::<Lease>(&LeaseName::Jobs)? {
            unit.put(Lease::clone(&lease));
        }
        Ok(())
    };
    app.store().write(app.origin(), work).await
}

/// Lets another server take over at once. For one that stops.
pub async fn give_up(app: &App) -> Result<(), Error> {
    let Some(leadership) = app.leadership() else { return Ok(()) };
    app.set_leadership(None);
    if !app.env().shares_database {
        return Ok(());
    }
    let unit_app = app.clone();
    app.store()
        .write(app.origin(), move |unit| {
            if leadership.check(&unit_app, unit).is_ok()
                && let Some(lease) = unit.get::<Lease>(&LeaseName::Jobs)?
            {
                unit.put(Lease { until: Timestamp::from_millis(0), ..Lease::clone(&lease) });
            }
            Ok::<_, StoreError>(())
        })
        .await?;
    Ok(())
}
