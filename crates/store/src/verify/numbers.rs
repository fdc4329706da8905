//! The numbers of rows of lists: tallies beside the rows that they count.
//!
//! There may be as many tallies as rows, so none is kept. Each has a weight of its own, and for
//! each leader the weights of the tallies in which its rows count are summed, less the weights of
//! the tallies that are there, each as often as it says: nothing is left where all are right.

use std::collections::{BTreeMap, BTreeSet};
use std::hash::{DefaultHasher, Hash, Hasher};

use domain::id::{InternalAccountId, Owner};
use domain::transaction::Direction;
use uuid::Uuid;

use super::payment::Payment;
use super::{Findings, Predicate, Run};
use crate::error::StoreError;
use crate::parties::{Listed, Parties};
use crate::sql::Row;
use crate::strands::{Facet, Index, Strand};
use crate::tallies::{self, Scope, lag};
use crate::{quotes, transactions};

pub(super) const TALLIES: &str = "select scope, facet, bucket, rows from tallies";
pub(super) const GROUPS: &str = "select scope, facet, rows from tallies where bucket < 0";
pub(super) const COUNTED: &str = "select platform, until from counted";

/// Why tallies were not compared.
const NOT_COUNTED: &str = "a row that it counts cannot be read";

/// What the rows say less what the tallies say, by leader.
#[derive(Default)]
pub(super) struct Numbers {
    differences: BTreeMap<Scope, u64>,
    /// Groups of rows whose tallies lag behind.
    groups: BTreeMap<(Scope, i64), Group>,
    /// A time that none of these of a platform's may be counted beyond.
    counted: BTreeMap<Uuid, i64>,
    /// Horizons, by platform ([`lag::horizon`]).
    horizons: BTreeMap<Uuid, i64>,
    /// Whether a row was met that cannot be counted.
    pub(super) is_incomplete: bool,
}

/// A group of rows whose tallies lag behind.
#[derive(Default)]
struct Group {
    /// Up to when they count it.
    until: i64,
    /// Whether a row of it was met.
    is_met: bool,
}

impl Numbers {
    /// Counts a row in the strands that it is in.
    pub(super) fn count(&mut self, id: Uuid, strands: impl IntoIterator<Item = Strand>) {
        let strands: Vec<_> = strands.into_iter().collect();
        let of_platform = tallies::of_platform(&strands).copied();
        let platform = of_platform.map(|strand| strand.leader);
        if let Some(Strand { index, leader, facet }) = of_platform
            && index.brief(facet).is_some()
            && let Some(horizon) = self.horizons.get(&leader)
            && lag::made(id) < *horizon
        {
            // Lists do not look for it where it is.
            self.add(tallies::scope(index, index.spans[0], leader), 1);
        }
        for strand in strands {
            for (scope, facet, bucket) in tallies::of_row(id, &strand) {
                let is_lagging = strand.index.lags() && facet == Facet::all_of(strand.facet.group);
                if !is_lagging || self.is_counted((scope, facet), id, platform) {
                    self.add(scope, weight(facet, bucket));
                }
            }
        }
    }

    /// Whether the tally of a group that lags behind counts a row. The group itself is counted
    /// once: it has one time up to which that is so.
    fn is_counted(&mut self, key: (Scope, i64), id: Uuid, platform: Option<Uuid>) -> bool {
        let group = self.groups.entry(key).or_default();
        let until = group.until;
        if !std::mem::replace(&mut group.is_met, true) {
            self.add(key.0, weight(key.1, lag::COUNTED));
            let counted = platform.and_then(|platform| self.counted.get(&platform));
            if until > counted.copied().unwrap_or(0) {
                // Rows that come late would be forgotten.
                self.add(key.0, 1);
            }
        }
        lag::made(id) < until
    }

    /// Whether no row was met of a group that lags behind: a payment whose deposit was refused is
    /// in the lists of another account than before.
    fn is_left(&self, key: (Scope, i64)) -> bool {
        self.groups.get(&key).is_some_and(|group| !group.is_met)
    }

    /// Counts the horizons that there are. None may be later than the time of its platform, as rows
    /// that come late would not be found then.
    fn expect_horizons(&mut self) {
        for (platform, horizon) in std::mem::take(&mut self.horizons) {
            let index = &transactions::INDEXES.by_platform;
            if let Some((scope, code)) = lag::horizon(index, platform) {
                self.add(scope, weight(code, lag::COUNTED));
                let counted = self.counted.get(&platform).copied().unwrap_or(0);
                if horizon > counted {
                    self.add(scope, 1);
                }
            }
            self.horizons.insert(platform, horizon);
        }
    }

    fn add(&mut self, scope: Scope, weight: u64) {
        let sum = self.differences.entry(scope).or_default();
        *sum = sum.wrapping_add(weight);
    }
}

fn weight(facet: i64, bucket: i64) -> u64 {
    let mut hasher = DefaultHasher::new();
    (facet, bucket).hash(&mut hasher);
    hasher.finish()
}

/// Reads up to when tallies count that lag behind.
pub(super) fn groups(run: &mut Run<'_>) -> Result<(), StoreError> {
    const OF_GROUPS: (&str, &[&str]) = ("tallies", &["scope", "facet", "rows"]);
    const OF_PLATFORMS: (&str, &[&str]) = ("counted", &["platform", "until"]);
    run.each(GROUPS, OF_GROUPS, |run, mut row| {
        let mut read = || Ok((row.bytes()?, row.int()?, row.int()?));
        // What is no group is found among the tallies.
        if let Ok::<_, StoreError>((scope, facet, until)) = read()
            && let Ok(scope) = Scope::try_from(scope)
        {
            let platform = tallies::leader(&scope).unwrap_or_default();
            if lag::horizon(&transactions::INDEXES.by_platform, platform) == Some((scope, facet)) {
                run.numbers.horizons.insert(platform, until);
            } else {
                run.numbers.groups.insert((scope, facet), Group { until, is_met: false });
            }
        }
    })?;
    run.each(COUNTED, OF_PLATFORMS, |run, mut row| {
        let mut read = || Ok::<_, StoreError>((row.uuid()?, row.int()?));
        if let Ok((platform, until)) = read() {
            run.numbers.counted.insert(platform, until);
        }
    })?;
    run.numbers.expect_horizons();
    Ok(())
}

/// N2, and counts the rows of a payment for N1.
pub(super) fn count_payment(run: &mut Run<'_>, payment: &Payment) {
    if let Some(transaction) = &payment.transaction {
        // What it should be is sealed; the row cannot be read where it is another.
        let own_address = transaction.own_address;
        let listed =
            Parties { own_account: transaction.own_account, payer: transaction.payer, own_address };
        let expected = Parties {
            own_address,
            ..parties(
                transaction.owner,
                transaction.direction,
                transaction.source_account,
                transaction.destination_account,
            )
        };
        demand(&mut run.findings, listed == expected, &payment.name());
        let destination = Some(transaction.destination_account);
        let listed = Listed {
            platform: transaction.platform,
            parties: listed,
            destination: destination.filter(|account| *account != listed.own_account),
            facet: transactions::facet(transaction.direction, transaction.status),
        };
        run.numbers.count(payment.id, listed.strands(&transactions::INDEXES));
    }
    for quote in &payment.quotes {
        let (own_account, payer) = (quote.own_account, quote.payer);
        let listed = Parties { own_account, payer, own_address: None };
        let outgoing = Direction::Outgoing;
        let expected =
            parties(quote.owner, outgoing, quote.source_account, quote.destination_account);
        demand(&mut run.findings, listed == expected, &format!("Quote:{}", quote.id));
        let listed = Listed {
            platform: quote.platform,
            parties: listed,
            destination: Some(quote.destination_account),
            facet: quotes::facet(quote.status),
        };
        run.numbers.count(quote.id, listed.strands(&quotes::INDEXES));
    }
}

fn demand(findings: &mut Findings, holds: bool, name: &str) {
    findings.saw(Predicate::N2, 1);
    findings.demand(Predicate::N2, holds, || format!("{name} is not listed by its parties"));
}

/// The accounts by which something is listed that moves money between these.
fn parties(owner: Owner, direction: Direction, source: Option<Uuid>, destination: Uuid) -> Parties {
    let near = match direction {
        Direction::Outgoing => source,
        Direction::Incoming => Some(destination),
    };
    let is_own =
        |account: &Uuid| InternalAccountId::from_uuid(*account).owner_uuid() == owner.uuid();
    let own_account = near.filter(is_own).unwrap_or(owner.uuid());
    let payer = source.filter(|source| *source != own_account);
    Parties { own_account, payer, own_address: None }
}

/// N1.
pub(super) fn check(run: &mut Run<'_>) -> Result<(), StoreError> {
    let Run { connection, findings, numbers, .. } = run;
    if numbers.is_incomplete {
        findings.check(Predicate::N1).skipped = Some(NOT_COUNTED);
        return Ok(());
    }
    let columns = tallies::TALLIES.columns;
    connection.query(TALLIES, &[], columns.len(), &mut |values| {
        findings.saw(Predicate::N1, 1);
        let row = &mut Row::new(tallies::TALLIES.table, columns, values);
        let mut read = || Ok((row.bytes()?, row.int()?, row.int()?, row.int()?));
        let (scope, facet, bucket, rows) = match read() {
            Ok(columns) => columns,
            Err(error) => {
                findings.unreadable(Predicate::N1, "a tally", &error);
                return Ok(());
            }
        };
        match Scope::try_from(scope) {
            // A group that its last row has left is still counted up to its time.
            Ok(scope) if bucket == lag::COUNTED && numbers.is_left((scope, facet)) => {}
            Ok(scope) => {
                let times = if bucket == lag::COUNTED { 1 } else { rows as u64 };
                let counted = weight(facet, bucket).wrapping_mul(times);
                numbers.add(scope, counted.wrapping_neg());
            }
            Err(_) => findings.broke(
                Predicate::N1,
                "tallies of a scope that is none count nothing that there is",
            ),
        }
        Ok(())
    })?;
    let wrong = numbers.differences.iter().filter(|(_, difference)| **difference != 0);
    // A row counts in one tally for each span of time, and is one break all the same.
    let wrong: BTreeSet<_> =
        wrong.map(|(scope, _)| (scope[0], tallies::leader(scope).unwrap_or_default())).collect();
    for (tag, leader) in wrong {
        let what = match tallies::indexes().find(|index| index.tag == tag) {
            Some(Index { table, columns, .. }) => {
                format!("the tallies of {table} whose {} is {leader} are wrong", columns[0])
            }
            None => format!("tallies of {leader} count nothing that there is"),
        };
        findings.broke(Predicate::N1, what);
    }
    Ok(())
}
