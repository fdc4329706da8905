//! Lists: limits, cursors, and the body that every paged list has (contract 1.1).

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use domain::id::PlatformId;
use serde::Serialize;
use service::App;
use store::keyring::Purpose;
use store::list::{Order, Page, PageRequest};
use utoipa::ToSchema;
use uuid::Uuid;

use crate::validate::Checks;

/// Rows of a page when the client does not say.
pub const LIMIT_DEFAULT: u32 = 20;
/// Rows of a page at most (specification 8).
pub const LIMIT_MAX: u32 = 100;

/// Bytes of a cursor's seal: enough that none is guessed.
const SEAL_BYTES: usize = 12;

/// A page of a list.
#[derive(Debug, Serialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub struct List<B> {
    /// The rows.
    pub data: Vec<B>,
    /// Whether there are more behind them.
    pub has_more: bool,
    /// Where the next page starts; only if there is one.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(nullable = false)]
    pub next_cursor: Option<String>,
    /// How many rows match in all: exact up to 10,000, left out above. `GET /tokens` always has it.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(nullable = false)]
    pub total_count: Option<u64>,
}

/// A list that is given as a whole.
#[derive(Debug, Serialize, ToSchema)]
pub struct All<B> {
    /// The rows.
    pub data: Vec<B>,
}

/// Makes and reads the cursors of one list of one platform. A cursor names the last row that was
/// seen and is sealed, so that it works only where it came from.
pub struct Cursors<'a> {
    app: &'a App,
    platform: PlatformId,
    list: &'static str,
}

impl<'a> Cursors<'a> {
    /// The cursors of `list`, as `platform` sees it.
    pub fn new(app: &'a App, platform: PlatformId, list: &'static str) -> Self {
        Self { app, platform, list }
    }

    fn seal(&self, last: Uuid) -> [u8; SEAL_BYTES] {
        let platform = self.platform.uuid();
        let parts: [&[u8]; 3] = [self.list.as_bytes(), platform.as_bytes(), last.as_bytes()];
        let hash = self.app.store().keyring().hash(Purpose::Cursor, &parts);
        let mut seal = [0; SEAL_BYTES];
        seal.copy_from_slice(&hash[..SEAL_BYTES]);
        seal
    }

    fn write(&self, last: Uuid) -> String {
        let mut bytes = last.as_bytes().to_vec();
        bytes.extend(self.seal(last));
        URL_SAFE_NO_PAD.encode(bytes)
    }

    fn read(&self, cursor: &str) -> Option<Uuid> {
        let bytes = URL_SAFE_NO_PAD.decode(cursor).ok()?;
        let (last, seal) = bytes.split_at_checked(16)?;
        let last = Uuid::from_slice(last).ok()?;
        (seal == self.seal(last)).then_some(last)
    }

    /// Which page a client wants.
    pub fn request(
        &self,
        checks: &mut Checks,
        limit: Option<&str>,
        cursor: Option<&str>,
        order: Order,
    ) -> PageRequest {
        let limit = limit.map_or(Some(LIMIT_DEFAULT), |text| {
            let in_range = |limit: &u32| (1..=LIMIT_MAX).contains(limit);
            let is_number = text.bytes().all(|byte| byte.is_ascii_digit());
            let limit = text.parse().ok().filter(in_range).filter(|_| is_number);
            if limit.is_none() {
                checks.refuse("limit", format!("must be an integer from 1 to {LIMIT_MAX}"));
            }
            limit
        });
        let after = cursor.and_then(|text| {
            let after = self.read(text);
            if after.is_none() {
                checks.refuse("cursor", "is not a nextCursor of this list");
            }
            after
        });
        PageRequest { limit: limit.unwrap_or(LIMIT_DEFAULT), after, order }
    }

    /// Which page of a short list a client wants: all of it, unless it says how many rows.
    pub fn request_all(
        &self,
        checks: &mut Checks,
        limit: Option<&str>,
        cursor: Option<&str>,
    ) -> PageRequest {
        let page = self.request(checks, limit, cursor, Order::Descending);
        let limit = limit.map_or(PageRequest::ALL.limit, |_| page.limit);
        PageRequest { limit, ..page }
    }

    /// Which part of a list that is numbered without holes a client wants: how many rows, and
    /// behind which number.
    pub fn numbered(
        &self,
        checks: &mut Checks,
        limit: Option<&str>,
        cursor: Option<&str>,
    ) -> (u32, Option<i64>) {
        let page = self.request(checks, limit, cursor, Order::Ascending);
        let after = page.after.and_then(|last| i64::try_from(last.as_u128()).ok());
        (page.limit, after)
    }

    /// The cursor of what comes behind a number.
    pub fn behind(&self, number: i64) -> String {
        self.write(Uuid::from_u128(u128::try_from(number).unwrap_or(0)))
    }

    /// The body of a page.
    pub fn list<R, B>(
        &self,
        page: Page<R>,
        id: impl Fn(&R) -> Uuid,
        body: impl Fn(&R) -> B,
    ) -> List<B> {
        let last = page.rows.last().map(|row| id(row));
        List {
            next_cursor: last.filter(|_| page.has_more).map(|last| self.write(last)),
            data: page.rows.iter().map(|row| body(row)).collect(),
            has_more: page.has_more,
            total_count: page.total,
        }
    }
}
