//! Imports of many customers (contract 6.5): a job that goes through one part of the file at a
//! time. A part and its progress are one unit, so each row is gone through exactly once, whatever
//! happens in between, and no request waits for more than a part.

use std::sync::Arc;

use domain::bulk_import::{
    BulkImport, Counts, Draft, Event, NewRow, Part, PartContent, Refusal, Row,
};
use domain::event::EventKind;
use domain::id::{JobId, PlatformId};
use domain::platform::Platform;
use domain::time::Timestamp;
use store::bulk_imports::PartKey;
use store::error::StoreError;
use store::timers::{Timer, TimerKind};
use store::unit::Unit;

use crate::app::App;
use crate::customers::{self, Drawn, NewCustomer};
use crate::error::Error;
use crate::leadership::Leadership;
use crate::owners;
use crate::presenter::Subject;

/// Rows that are gone through in one unit: a few milliseconds of the writer.
pub const PART_ROWS: usize = 50;

/// Refused rows that are shown. The others are counted: five hundred have one cause, and
/// the event about all of them stays below a megabyte.
pub const REFUSALS_SHOWN_MAX: usize = 500;

/// A file as it was read.
#[derive(Debug, Clone)]
pub enum File {
    /// It has rows.
    Rows(Vec<Row>),
    /// It cannot be read as rows.
    Broken(Refusal),
}

/// Takes a file in. Its rows wait, sealed, until they were gone through.
pub fn begin(
    app: &App,
    unit: &mut Unit<'_, '_>,
    platform: PlatformId,
    file: &File,
    id: JobId,
    now: Timestamp,
) -> Result<BulkImport, Error> {
    let platform = owners::platform(unit, platform)?;
    let count = |length: usize| u32::try_from(length).unwrap_or(u32::MAX);
    let draft = |total: usize, parts: usize| Draft {
        id,
        platform: platform.id,
        total: count(total),
        parts: count(parts),
    };
    match file {
        File::Rows(rows) => {
            let parts = rows.chunks(PART_ROWS);
            let import = BulkImport::pending(draft(rows.len(), parts.len()));
            for (number, rows) in (0..).zip(parts) {
                let content = PartContent::Waiting(rows.to_vec());
                unit.put(Part { import: id, number, content });
            }
            let kind = TimerKind::ImportCustomers;
            unit.set_timer(Timer::new(&platform, id.uuid(), kind, now, now));
            unit.put(import.clone());
            Ok(import)
        }
        File::Broken(refusal) => {
            let content = PartContent::Done(vec![refusal.clone()]);
            unit.put(Part { import: id, number: 0, content });
            let import = BulkImport::pending(draft(0, 1));
            let moved = import.clone().apply(Event::Broken, now)?;
            tell(app, unit, moved.now(), std::slice::from_ref(refusal))?;
            unit.put_moved(moved);
            // Its receipt is answered before its outcome (contract 6.5).
            Ok(import)
        }
    }
}

/// Goes through the next part of an import.
pub(crate) async fn step(app: &App, leadership: Leadership, timer: &Timer) -> Result<(), Error> {
    let (id, timer) = (JobId::from_uuid(timer.subject), timer.clone());
    let platform = timer.platform;
    let platform = app.store().get::<Platform>(platform).await;
    let ahead = platform.map_err(Error::Store)?.map(|platform| platform.ahead).unwrap_or_default();
    let drawn: Vec<_> = (0..PART_ROWS).map(|_| customers::draw(app, ahead)).collect();
    let (unit_app, server_now) = (app.clone(), app.server_now());
    app.store()
        .write_behind(app.origin(), move |unit| {
            leadership.check(&unit_app, unit)?;
            next_part(&unit_app, unit, id, &timer, &drawn, server_now)
        })
        .await
}

fn next_part(
    app: &App,
    unit: &mut Unit<'_, '_>,
    id: JobId,
    timer: &Timer,
    drawn: &[Drawn],
    server_now: Timestamp,
) -> Result<(), Error> {
    let platform = owners::platform(unit, timer.platform)?;
    let now = platform.ahead.shows(server_now);
    let import = unit.get::<BulkImport>(&id)?;
    let next = import.as_ref().and_then(|import| Some((Arc::clone(import), import.next_part()?)));
    let Some((import, number)) = next else {
        unit.clear_timer(timer.key());
        return Ok(());
    };
    let missing = || Error::Internal(format!("part {number} of {id} is not there"));
    let part = unit.get::<Part>(&PartKey(id, number))?.ok_or_else(missing)?;
    let PartContent::Waiting(rows) = &part.content else { return Err(missing()) };
    let rows_before = usize::try_from(number).unwrap_or(usize::MAX).saturating_mul(PART_ROWS);
    let refused = take(app, unit, platform.id, rows, rows_before, drawn)?;
    let count = |length: usize| u32::try_from(length).unwrap_or(u32::MAX);
    let failed = count(refused.len());
    let counts = Counts { successful: count(rows.len()).saturating_sub(failed), failed };
    unit.put(Part { import: id, number, content: PartContent::Done(refused) });
    let is_last = number + 1 == import.draft().parts;
    let event = if is_last { Event::Finished(counts) } else { Event::Progressed(counts) };
    let moved = BulkImport::clone(&import).apply(event, now)?;
    if is_last {
        let refused = refusals(number + 1, id, |key| unit.get::<Part>(key))?;
        tell(app, unit, moved.now(), &refused)?;
        unit.clear_timer(timer.key());
        unit.erase_key(id.uuid());
    } else {
        unit.set_timer(timer.again(now));
    }
    unit.put_moved(moved);
    Ok(())
}

/// Makes the customers of some rows, which come after others of the file. Gives the rows that were
/// refused, of which nothing is left.
fn take(
    app: &App,
    unit: &mut Unit<'_, '_>,
    platform: PlatformId,
    rows: &[Row],
    rows_before: usize,
    drawn: &[Drawn],
) -> Result<Vec<Refusal>, Error> {
    let (mut refused, mut waits) = (Vec::new(), false);
    for (number, (row, drawn)) in (rows_before + 1..).zip(rows.iter().zip(drawn)) {
        let refuse = |body| Refusal { label: row.label.clone(), body };
        let made = match &row.content {
            Ok(new) => customers::create(unit, platform, &new_customer(new), drawn),
            Err(body) => {
                refused.push(refuse(body.clone()));
                continue;
            }
        };
        match made {
            Ok(_) => {}
            // All are gone through even so, so that what they wait for is fetched together.
            Err(Error::Store(StoreError::NotFetched)) => waits = true,
            Err(error) if error.is_failure() => return Err(error),
            Err(error) => refused.push(refuse(app.env().presenter.import_refusal(&error, number))),
        }
    }
    if waits { Err(StoreError::NotFetched.into()) } else { Ok(refused) }
}

fn new_customer(row: &NewRow) -> NewCustomer {
    NewCustomer {
        platform_customer_id: Some(row.platform_customer_id.clone()),
        uma_address: Some(row.uma_address.clone()),
        kyc_status: None,
        identity: row.identity.clone(),
    }
}

/// The refusals of the first batches of an import, as far as it is shown.
pub fn refusals(
    parts: u32,
    import: JobId,
    mut get: impl FnMut(&PartKey) -> Result<Option<Arc<Part>>, StoreError>,
) -> Result<Vec<Refusal>, StoreError> {
    let (mut refused, mut waits) = (Vec::new(), false);
    for number in 0..parts {
        match get(&PartKey(import, number)) {
            Ok(Some(part)) => match &part.content {
                PartContent::Done(more) => refused.extend(more.iter().cloned()),
                PartContent::Waiting(_) => {}
            },
            Ok(None) => {}
            Err(StoreError::NotFetched) => waits = true,
            Err(error) => return Err(error),
        }
        if refused.len() >= REFUSALS_SHOWN_MAX {
            refused.truncate(REFUSALS_SHOWN_MAX);
            break;
        }
    }
    if waits { Err(StoreError::NotFetched) } else { Ok(refused) }
}

/// Tells the platform how an import has ended.
fn tell(
    app: &App,
    unit: &mut Unit<'_, '_>,
    import: &BulkImport,
    refused: &[Refusal],
) -> Result<(), Error> {
    let platform = owners::platform(unit, import.draft().platform)?;
    let (change, at) = ((import.id().uuid(), 1), import.progress().updated_at);
    let subject = Subject::Import(import, refused);
    unit.add_event(app.env().event(&platform, EventKind::BulkUpload, change, at, subject))?;
    Ok(())
}
