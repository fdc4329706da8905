//! Tokens in the store.

use std::sync::Arc;

use domain::id::{PlatformId, TokenId};
use domain::time::Timestamp;
use domain::token::{Permissions, Token};
use uuid::Uuid;

use crate::error::StoreError;
use crate::keyring::Keyring;
use crate::readers::View;
use crate::record::{Record, record_table};
use crate::select::{Branch, Conditions, Page, PageRequest, Query, Way};
use crate::sql::{Row, Value};
use crate::strands::{Facet, Ids, Index, SPANS_OF_PARTY, Strand};

impl Record for Token {
    type Key = TokenId;
    const TABLE: &'static str = "tokens";
    const IS_NOUN: bool = true;
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

    fn key_value(key: &TokenId) -> Value {
        (*key).into()
    }

    fn strands(&self) -> (Uuid, Vec<Strand>) {
        let strand = Strand {
            index: &BY_PLATFORM,
            leader: self.platform.uuid(),
            facet: facet(self.revoked),
        };
        (self.id.uuid(), vec![strand])
    }

    fn values(&self, _: &Keyring) -> Vec<Value> {
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

/// The index of the list of tokens.
pub(crate) static BY_PLATFORM: Index = Index {
    tag: 12,
    table: "tokens",
    columns: &["platform", "revoked"],
    condition: None,
    parts: None,
    brief: None,
    is_kept_apart: false,
    values: |facet| vec![Value::Int(facet.group.into())],
    passing: &[],
    usual: None,
    lagging: 0,
    spans: SPANS_OF_PARTY,
};

/// The facet of a token in its list.
pub(crate) fn facet(is_revoked: bool) -> Facet {
    Facet { group: is_revoked.into(), state: 0 }
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
        let mut id = None;
        self.connection.query(BY_CLIENT_ID, &[client_id.into()], 1, &mut |values| {
            id = Some(Row::new(Token::TABLE, &["id"], values).id()?);
            Ok(())
        })?;
        id.map_or(Ok(None), |id| self.get::<Token>(&id))
    }

    /// A platform's tokens that hold, or those that were revoked.
    pub fn tokens(
        &mut self,
        platform: PlatformId,
        filter: &TokenFilter,
        page: PageRequest,
    ) -> Result<Page<Token>, StoreError> {
        let group = Some(filter.revoked.into());
        let branch = Branch { index: &BY_PLATFORM, leaders: [platform.uuid(); 2], group };
        let way = Way { branches: vec![branch], conditions: Conditions::default() };
        let mut rest = Conditions::default();
        rest.and_if("name = ?", filter.name.as_deref())
            .and_if("updated_at >= ?", filter.updated_after)
            .and_if("updated_at <= ?", filter.updated_before);
        let ids = Ids::made(filter.created_after, filter.created_before);
        self.list(
            Query { ways: vec![way], group: None, state: None, horizon: None, ids, rest },
            page,
        )
    }
}
