//! Other institutions in the store.

use std::sync::Arc;

use domain::id::PlatformId;
use domain::time::Timestamp;
use domain::uma_address::UmaDomain;
use domain::uma_peer::{Exchange, PeerKeys, REQUESTS, Rule, UmaPeer};
use serde::{Deserialize, Serialize};
use uuid::Uuid;

use crate::error::StoreError;
use crate::keyring::Keyring;
use crate::reader::View;
use crate::record::{self, Record, record_table};
use crate::sql::{Row, Value};

/// Keys and last exchange; neither is personal or secret.
#[derive(Serialize, Deserialize)]
struct Stored {
    #[serde(skip_serializing_if = "Option::is_none")]
    keys: Option<StoredKeys>,
    #[serde(skip_serializing_if = "Option::is_none")]
    last: Option<StoredExchange>,
    #[serde(default, skip_serializing_if = "is_none")]
    open: u32,
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "serde gives a reference")]
const fn is_none(count: &u32) -> bool {
    *count == 0
}

#[derive(Serialize, Deserialize)]
struct StoredKeys {
    signing: String,
    encryption: String,
    until: i64,
}

#[derive(Serialize, Deserialize)]
struct StoredExchange {
    request: String,
    outcome: String,
    at: i64,
    millis: i64,
    #[serde(skip_serializing_if = "Option::is_none")]
    version: Option<String>,
}

impl Stored {
    fn of(peer: &UmaPeer) -> Self {
        let keys = |keys: &PeerKeys| StoredKeys {
            signing: keys.signing_hex.clone(),
            encryption: keys.encryption_hex.clone(),
            until: keys.until.millis(),
        };
        let last = |last: &Exchange| StoredExchange {
            request: last.request.to_owned(),
            outcome: last.outcome.clone(),
            at: last.at.millis(),
            millis: last.millis,
            version: last.version.clone(),
        };
        Self {
            keys: peer.keys.as_ref().map(keys),
            last: peer.last.as_ref().map(last),
            open: peer.open_payments,
        }
    }
}

impl From<StoredKeys> for PeerKeys {
    fn from(keys: StoredKeys) -> Self {
        Self {
            signing_hex: keys.signing,
            encryption_hex: keys.encryption,
            until: Timestamp::from_millis(keys.until),
        }
    }
}

impl StoredExchange {
    fn into_domain(self) -> Option<Exchange> {
        Some(Exchange {
            request: REQUESTS.into_iter().find(|known| *known == self.request)?,
            outcome: self.outcome,
            at: Timestamp::from_millis(self.at),
            millis: self.millis,
            version: self.version,
        })
    }
}

/// The key of an institution's row: a platform has one for each domain.
pub fn peer_key(platform: PlatformId, domain: &UmaDomain) -> Uuid {
    Uuid::new_v5(&platform.uuid(), domain.as_str().as_bytes())
}

impl Record for UmaPeer {
    type Key = Uuid;
    const TABLE: &'static str = "uma_peers";
    const COLUMNS: &'static [&'static str] =
        &["id", "platform", "domain", "rule", "stored", "created_at"];
    record_table!(uma_peers);

    fn key(&self) -> Uuid {
        peer_key(self.platform, &self.domain)
    }

    fn values(&self) -> Vec<Value> {
        let stored = serde_json::to_string(&Stored::of(self)).expect("it has text keys only");
        vec![
            self.key().into(),
            self.platform.into(),
            self.domain.as_str().into(),
            Value::name(self.rule.name()),
            stored.into(),
            self.created_at.into(),
        ]
    }

    fn read(row: &mut Row, _: &Keyring) -> Result<Self, StoreError> {
        let (_, platform): (Uuid, _) = (row.uuid()?, row.id()?);
        let domain = UmaDomain::parse(&row.text()?).map_err(|error| row.corrupt(error))?;
        let rule = row.named(Rule::from_name)?;
        let stored: Stored =
            serde_json::from_str(&row.text()?).map_err(|error| row.corrupt(error))?;
        let last = match stored.last {
            Some(last) => {
                let last = last.into_domain();
                Some(last.ok_or_else(|| row.corrupt("a request that is unknown"))?)
            }
            None => None,
        };
        let (keys, open_payments) = (stored.keys.map(Into::into), stored.open);
        Ok(Self { platform, domain, rule, keys, last, open_payments, created_at: row.time()? })
    }
}

impl View<'_> {
    /// The institutions that platforms know, by their domains. Operators ask for it.
    pub fn uma_peers(&mut self) -> Result<Vec<Arc<UmaPeer>>, StoreError> {
        record::select(self.connection, self.keyring, "order by domain, platform", &[])
    }
}
