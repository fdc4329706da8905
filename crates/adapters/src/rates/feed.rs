//! The table in force, and which of its prices a platform may be quoted.

use std::fs::Metadata;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError, RwLock};
use std::time::SystemTime;

use domain::currency::Currency;
use domain::platform::Mode;
use domain::time::Timestamp;
use ports::rates::{CorridorTerms, MidRate, NoRate, RateFeed, Rates, WhyNoRate};

use super::{FixedRates, RatesError};

/// By how much the clock that a table is dated by may be ahead of this one, in milliseconds: as
/// much as receivers of signatures tolerate.
const AHEAD_MAX_MILLIS: i64 = 5 * 60_000;

/// Tells one state of a file from another without reading it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Stamp {
    changed: Option<SystemTime>,
    length: u64,
    /// A file that was put in the place of another one has another number.
    number: u64,
}

impl Stamp {
    fn of(file: &Metadata) -> Self {
        #[cfg(unix)]
        let number = std::os::unix::fs::MetadataExt::ino(file);
        #[cfg(not(unix))]
        let number = 0;
        Self { changed: file.modified().ok(), length: file.len(), number }
    }
}

/// The state of the file of rates.
#[derive(Debug)]
struct Source {
    path: PathBuf,
    /// The file as it was read last; nothing if it was not there.
    seen: Mutex<Option<Stamp>>,
}

/// The table in force: the built-in one, or that of a file, which is read again when it changes.
#[derive(Debug)]
pub struct RateTable {
    source: Option<Source>,
    current: RwLock<Arc<FixedRates>>,
    live_max_age_millis: i64,
}

impl RateTable {
    /// The table that comes with this program. Live platforms are quoted nothing from it.
    pub fn builtin() -> Self {
        let current = RwLock::new(Arc::new(FixedRates::builtin()));
        Self { source: None, current, live_max_age_millis: 0 }
    }

    /// The table of a file, which live platforms are quoted from until it is so old.
    pub fn of_file(path: &Path, live_max_age_millis: i64) -> Result<Self, RatesError> {
        // A change between the two is read again.
        let seen = path.metadata().ok().map(|file| Stamp::of(&file));
        let table = FixedRates::from_file(path)?;
        let source = Some(Source { path: path.to_owned(), seen: Mutex::new(seen) });
        Ok(Self { source, current: RwLock::new(Arc::new(table)), live_max_age_millis })
    }

    /// Reads the file again if it is another one than before: whether another table holds now. One
    /// that cannot be used changes nothing, and is an error once.
    pub fn refresh(&self) -> Result<bool, RatesError> {
        let Some(Source { path, seen }) = &self.source else { return Ok(false) };
        let mut seen = seen.lock().unwrap_or_else(PoisonError::into_inner);
        let now = path.metadata().ok().map(|file| Stamp::of(&file));
        if std::mem::replace(&mut *seen, now) == now {
            return Ok(false);
        }
        let table = Arc::new(FixedRates::from_file(path)?);
        *self.current.write().unwrap_or_else(PoisonError::into_inner) = table;
        Ok(true)
    }

    /// The table that holds now.
    pub fn table(&self) -> Arc<FixedRates> {
        Arc::clone(&self.current.read().unwrap_or_else(PoisonError::into_inner))
    }
}

/// The rates of platforms of one mode.
pub(crate) struct ModeRates {
    table: Arc<RateTable>,
    mode: Mode,
}

impl ModeRates {
    pub(crate) fn new(table: Arc<RateTable>, mode: Mode) -> Self {
        Self { table, mode }
    }
}

impl RateFeed for ModeRates {
    fn current(&self) -> Arc<dyn Rates> {
        let (table, max_age_millis) = (self.table.table(), self.table.live_max_age_millis);
        match self.mode {
            Mode::Sandbox => table,
            Mode::Live => Arc::new(LiveRates { table, max_age_millis }),
        }
    }
}

/// Prices that were written down by the operator, and lately: real money has no others.
struct LiveRates {
    table: Arc<FixedRates>,
    max_age_millis: i64,
}

impl LiveRates {
    fn unusable(
        &self,
        sending: Currency,
        receiving: Currency,
        now: Timestamp,
    ) -> Option<WhyNoRate> {
        let as_of = self.table.written_at();
        if !self.table.is_from_file() {
            Some(WhyNoRate::NoFile)
        } else if ![sending, receiving].into_iter().all(|currency| self.names(currency)) {
            Some(WhyNoRate::NotNamed)
        } else if now > as_of.plus_millis(self.max_age_millis) {
            Some(WhyNoRate::TooOld { as_of, max_age_seconds: self.max_age_millis / 1_000 })
        } else if as_of > now.plus_millis(AHEAD_MAX_MILLIS) {
            Some(WhyNoRate::Ahead { as_of })
        } else {
            None
        }
    }
}

impl Rates for LiveRates {
    fn mid(
        &self,
        sending: Currency,
        receiving: Currency,
        now: Timestamp,
    ) -> Result<MidRate, NoRate> {
        match self.unusable(sending, receiving, now) {
            Some(why) => Err(NoRate { sending, receiving, why }),
            None => self.table.mid(sending, receiving, now),
        }
    }

    fn terms(&self, sending: Currency, receiving: Currency) -> Result<CorridorTerms, NoRate> {
        self.table.terms(sending, receiving)
    }

    fn names(&self, currency: Currency) -> bool {
        self.table.is_priced_by_file(currency)
    }
}
