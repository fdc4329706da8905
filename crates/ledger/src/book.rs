//! The whole ledger in memory: what tests, documents and the simulator keep their books in.
//!
//! It remembers every posting with its phase, so it can be audited from its own history.

use std::collections::BTreeMap;
use std::convert::Infallible;
use std::fmt;

use crate::account::{AccountKey, Balance};
use crate::apply::{self, ApplyError, Balances, Refusal};
use crate::audit::{Audit, Break};
use crate::posting::{AlreadyResolved, Phase, Posting, Resolution};

/// Names one posting of one book, by its place in it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct PostingRef(pub usize);

impl fmt::Display for PostingRef {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "posting {}", self.0)
    }
}

/// A posting as the book remembers it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Recorded {
    /// The posting, never edited.
    pub posting: Posting,
    /// Where it stands.
    pub phase: Phase,
}

/// Why a resolution changed nothing.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum ResolveError {
    /// The book has no such posting.
    #[error("{posting} is not in the book")]
    Unknown {
        /// The posting.
        posting: PostingRef,
    },
    /// The posting is final or undone already.
    #[error(transparent)]
    AlreadyResolved(#[from] AlreadyResolved),
    /// The balances refused.
    #[error(transparent)]
    Refused(#[from] Refusal),
}

/// Balances and the postings that made them.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Book {
    balances: BTreeMap<AccountKey, Balance>,
    postings: Vec<Recorded>,
}

impl Book {
    /// A book in which nothing has happened.
    pub fn new() -> Self {
        Self::default()
    }

    /// Sets a posting aside until [`Book::resolve`].
    pub fn pend(&mut self, posting: Posting) -> Result<PostingRef, Refusal> {
        apply::pend(self, &posting).map_err(refusal)?;
        Ok(self.record(posting, Phase::Pending))
    }

    /// Makes a posting final at once.
    pub fn post(&mut self, posting: Posting) -> Result<PostingRef, Refusal> {
        apply::post(self, &posting).map_err(refusal)?;
        Ok(self.record(posting, Phase::Posted))
    }

    /// Makes a pending posting final, or undoes it; once.
    pub fn resolve(
        &mut self,
        posting: PostingRef,
        resolution: Resolution,
    ) -> Result<(), ResolveError> {
        let Some(recorded) = self.postings.get(posting.0).cloned() else {
            return Err(ResolveError::Unknown { posting });
        };
        let phase = recorded.phase.resolve(resolution)?;
        apply::resolve(self, &recorded.posting, resolution).map_err(refusal)?;
        self.postings[posting.0].phase = phase;
        Ok(())
    }

    /// The balance of one account; zero when nothing has happened to it.
    pub fn balance_of(&self, account: &AccountKey) -> Balance {
        self.balances.get(account).copied().unwrap_or_default()
    }

    /// Every account that something has happened to, in the order of the keys.
    pub fn balances(&self) -> impl Iterator<Item = (AccountKey, Balance)> {
        self.balances.iter().map(|(account, balance)| (*account, *balance))
    }

    /// One posting.
    pub fn posting(&self, posting: PostingRef) -> Option<&Recorded> {
        self.postings.get(posting.0)
    }

    /// Every posting, oldest first.
    pub fn postings(&self) -> impl Iterator<Item = (PostingRef, &Recorded)> {
        self.postings.iter().enumerate().map(|(index, recorded)| (PostingRef(index), recorded))
    }

    /// Violations when the history is folded again; none, unless the ledger is wrong.
    pub fn audit(&self) -> Vec<Break> {
        let mut audit = Audit::new();
        for (name, Recorded { posting, phase }) in self.postings() {
            match phase {
                Phase::Pending => audit.pended(name, posting.entries()),
                Phase::Posted => audit.posted(name, posting.entries()),
                Phase::Voided => audit.voided(name, posting.entries()),
            }
        }
        for (account, balance) in self.balances() {
            audit.cached(account, balance.counters());
        }
        audit.finish()
    }

    fn record(&mut self, posting: Posting, phase: Phase) -> PostingRef {
        self.postings.push(Recorded { posting, phase });
        PostingRef(self.postings.len() - 1)
    }
}

impl Balances for Book {
    type Error = Infallible;

    fn balance(&mut self, account: &AccountKey) -> Result<Balance, Infallible> {
        Ok(self.balance_of(account))
    }

    fn set(&mut self, account: AccountKey, balance: Balance) {
        self.balances.insert(account, balance);
    }
}

fn refusal(error: ApplyError<Infallible>) -> Refusal {
    match error {
        ApplyError::Refused(refusal) => refusal,
        ApplyError::Store(never) => match never {},
    }
}
