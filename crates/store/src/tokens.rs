//! Tokens in the store.

use std::sync::Arc;

use domain::id::{PlatformId, TokenId};
use domain::time::Timestamp;
use domain::token::{Permissions, Token};

use crate::error::StoreError;
use crate::keyring::Keyring;
use crate::list::{Conditions, Ids, Page, PageRequest, Query, Way};
use crate::reader::View;
use crate::record::{Record, record_table};
use crate::sql::{Row, Value};

impl Record for Token {
    type Key = TokenId;
    const TABLE: &'static str = "tokens";
    const COLUMNS: &'static [&'static str] = &[
        "id",
        "platform",
        "name",
        "permissions",
        "client_id",
        "secret_hash",
        "revoked",
        "created_at",
        "updated_at",
    ];
    record_table!(tokens);

    fn key(&self) -> TokenId {
        self.id
    }

    fn values(&self) -> Vec<Value> {
        vec![
            self.id.into(),
            self.platform.into(),
            self.name.as_str().into(),
            i64::from(self.permissions.bits()).into(),
            self.client_id.as_str().into(),
            Value::from(&self.secret_hash[..]),
            self.revoked.into(),
            self.created_at.into(),
            self.updated_at.into(),
        ]
    }

    fn read(row: &mut Row, _: &Keyring) -> Result<Self, StoreError> {
        let token = Self {
            id: row.id()?,
            platform: row.id()?,
            name: row.text()?,
            permissions: u8::try_from(row.int()?)
                .ok()
                .and_then(Permissions::from_bits)
                .ok_or_else(|| row.corrupt("not a set of permissions"))?,
            client_id: row.text()?,
            secret_hash: row.bytes()?.try_into().map_err(|_| row.corrupt("not 32 bytes"))?,
            revoked: row.flag()?,
            created_at: row.time()?,
            updated_at: row.time()?,
        };
        if token.created_at != token.id.created_at() {
            return Err(row.corrupt("not made when its id was drawn"));
        }
        Ok(token)
    }
}

/// Which tokens are listed. Bounds are inclusive.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct TokenFilter {
    /// Exactly this name.
    pub name: Option<String>,
    /// Made then or later.
    pub created_after: Option<Timestamp>,
    /// Made then or earlier.
    pub created_before: Option<Timestamp>,
    /// Changed then or later.
    pub updated_after: Option<Timestamp>,
    /// Changed then or earlier.
    pub updated_before: Option<Timestamp>,
    /// Those that were revoked, and not those that hold.
    pub revoked: bool,
}

pub(crate) const BY_CLIENT_ID: &str = "select id from tokens where client_id = $1";

impl View<'_> {
    /// The token that a Basic authentication names, revoked or not.
    pub fn token_by_client_id(
        &mut self,
        client_id: &str,
    ) -> Result<Option<Arc<Token>>, StoreError> {
        let columns = (Token::TABLE, &["id"][..]);
        let id = self.connection.first(BY_CLIENT_ID, &[client_id.into()], columns, Row::id)?;
        id.map_or(Ok(None), |id| self.get::<Token>(&id))
    }

    /// A platform's tokens that hold, or those that were revoked.
    pub fn tokens(
        &mut self,
        platform: PlatformId,
        filter: &TokenFilter,
        page: PageRequest,
    ) -> Result<Page<Token>, StoreError> {
        let mut run = Conditions::equal("platform", platform);
        run.and("revoked = ?", [filter.revoked.into()]);
        let mut rest = Conditions::default();
        rest.and_if("name = ?", filter.name.as_deref())
            .and_if("updated_at >= ?", filter.updated_after)
            .and_if("updated_at <= ?", filter.updated_before);
        let ids = Ids::made(filter.created_after, filter.created_before);
        // A platform has few tokens, and their list always says how many (specification 4.3).
        let count_max = u64::MAX;
        self.list(Query { rest, count_max, ..Query::of(Way::only(vec![run]), ids) }, page)
    }
}
