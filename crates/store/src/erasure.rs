//! Finding what is about a customer who is to be erased. Only erasure looks for these rows by their
//! customer, so no index is kept for it, and the tables are read whole.

use domain::id::{CustomerId, IdentityCheckId, InvitationId, LookupId, PlatformId};
use domain::invitation::Invitation;
use domain::kyc::IdentityCheck;
use domain::lookup::Lookup;
use uuid::Uuid;

use crate::error::StoreError;
use crate::events::{EVENTS, Place};
use crate::idempotency::{Answer, Scope, read_scope};
use crate::reader::View;
use crate::record::Record;
use crate::sql::Row;

pub(crate) const LOOKUPS: &str = "select id from lookups where sender = $1";

pub(crate) const INVITATIONS: &str = "select id from invitations where inviter = $1";

pub(crate) const IDENTITY_CHECKS: &str = "select id from identity_checks where customer = $1";

pub(crate) const ANSWERS: &str = "select scope from idempotency where owner = $1";

pub(crate) const EVENT_RESOURCES: &str = "select ordinal, resource from events \
    where platform = $1 and ordinal > $2 order by ordinal limit $3";

/// The resource that an event is about.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct EventResource {
    /// Where the event stands.
    pub place: Place,
    /// The resource.
    pub resource: Uuid,
}

impl View<'_> {
    /// The lookups of receivers for a customer.
    pub fn lookups_of(&mut self, sender: CustomerId) -> Result<Vec<LookupId>, StoreError> {
        self.about((LOOKUPS, Lookup::TABLE, &["id"]), sender, Row::id)
    }

    /// The invitations that a customer has made.
    pub fn invitations_of(&mut self, inviter: CustomerId) -> Result<Vec<InvitationId>, StoreError> {
        self.about((INVITATIONS, Invitation::TABLE, &["id"]), inviter, Row::id)
    }

    /// The checks of a customer's identity.
    pub fn identity_checks_of(
        &mut self,
        customer: CustomerId,
    ) -> Result<Vec<IdentityCheckId>, StoreError> {
        self.about((IDENTITY_CHECKS, IdentityCheck::TABLE, &["id"]), customer, Row::id)
    }

    /// The requests whose answers are about a customer.
    pub fn answers_about(&mut self, owner: CustomerId) -> Result<Vec<Scope>, StoreError> {
        self.about((ANSWERS, Answer::TABLE, &["scope"]), owner, read_scope)
    }

    fn about<T>(
        &mut self,
        (sql, table, column): (&str, &'static str, &'static [&'static str; 1]),
        customer: CustomerId,
        read: impl FnMut(&mut Row) -> Result<T, StoreError>,
    ) -> Result<Vec<T>, StoreError> {
        self.connection.all(sql, &[customer.into()], (table, column), read)
    }

    /// The resources of a platform's events behind one, in their order, up to a limit.
    pub fn event_resources(
        &mut self,
        platform: PlatformId,
        after: i64,
        max: u32,
    ) -> Result<Vec<EventResource>, StoreError> {
        let parameters = [platform.into(), after.into(), max.into()];
        let columns = (EVENTS.table, &["ordinal", "resource"][..]);
        self.connection.all(EVENT_RESOURCES, &parameters, columns, |row| {
            let place = Place { platform, ordinal: row.int()? };
            Ok(EventResource { place, resource: row.uuid()? })
        })
    }
}
