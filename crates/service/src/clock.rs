//! Moving a platform's clock on (docs/decisions/0020).

use domain::clock::Advance;
use domain::id::PlatformId;
use domain::platform::Platform;
use domain::time::Timestamp;
use store::unit::Unit;

use crate::error::Error;
use crate::{owners, webhooks};

/// Moves a platform's clock on, and its timers and deliveries with it: what is due by the new time
/// is done as soon as this is committed.
pub fn advance(
    unit: &mut Unit<'_, '_>,
    platform: PlatformId,
    advance: Advance,
    server_now: Timestamp,
) -> Result<Platform, Error> {
    let platform = owners::platform(unit, platform)?;
    let ahead = platform.advanced(advance, server_now).map_err(|refusal| {
        let field = match advance {
            Advance::BySeconds(_) => "advanceBySeconds",
            Advance::To(_) => "advanceTo",
        };
        Error::field(field, refusal.to_string())
    })?;
    webhooks::look_again(unit, platform.id)?;
    Ok(unit.move_clock(&platform, ahead))
}
