//! The end of "only this machine reaches the server" by a platform's public domain.
//!
//! Institutions elsewhere pay to the addresses of a public domain, so whatever it leads to is in
//! front of this server. A domain may be set by a token, by the operator beside the server, or by
//! another server, so it is looked at where it matters and not where it is set.

use domain::platform::Platform;
use ports::outbound::Reach;
use store::error::StoreError;

use crate::app::App;

/// How far a request of a platform may go that is sent now.
pub(crate) fn reach(app: &App, platform: &Platform) -> Reach {
    notice(app, platform);
    app.env().reach(platform.mode)
}

/// Ends the locality of the server if the platform's domain is one that others reach.
pub(crate) fn notice(app: &App, platform: &Platform) {
    if !platform.uma_domain.is_of_this_machine() && app.env().locality.end() {
        tracing::warn!(
            platform = %platform.id, uma_domain = %platform.uma_domain,
            "not only this machine reaches this server, as a platform has a public UMA domain: \
             private networks are out of reach for it now, and operator endpoints are at \
             --admin-listen alone"
        );
    }
}

/// Looks at the domains of all platforms while the server is local.
pub async fn notice_all(app: &App) -> Result<(), StoreError> {
    if app.env().locality.is_local() {
        let platforms = app.store().read::<_, StoreError, _>(|view| view.platforms()).await?;
        platforms.iter().for_each(|platform| notice(app, platform));
    }
    Ok(())
}
