//! The list of a platform's transactions.

use domain::id::{Owner, PlatformId};
use domain::time::Timestamp;
use domain::transaction::{Direction, Status, Transaction};
use uuid::Uuid;

use crate::accounts::Named;
use crate::error::StoreError;
use crate::list::{Conditions, Ids, Page, PageRequest, Query, Way, split_by};
use crate::reader::View;
use crate::seal;
use crate::sql::Value;

/// Which transactions are listed. Bounds are inclusive.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct TransactionFilter {
    /// Of this customer, or of the platform itself.
    pub owner: Option<Owner>,
    /// Of customers with this name of the platform's.
    pub platform_customer_id: Option<String>,
    /// From this account.
    pub source_account: Option<Named>,
    /// To this account.
    pub destination_account: Option<Named>,
    /// From or to this account.
    pub either_account: Option<Named>,
    /// In this status.
    pub status: Option<Status>,
    /// In this direction.
    pub direction: Option<Direction>,
    /// With this reconciliation reference.
    pub reference: Option<String>,
    /// Made then or later.
    pub created_after: Option<Timestamp>,
    /// Made then or earlier.
    pub created_before: Option<Timestamp>,
}

/// Makes the way to what an account or an address has to do with.
type ToWay = fn(&TransactionFilter, Uuid) -> Way;

impl TransactionFilter {
    /// The runs of an index whose first column has a value, and direction and status behind it.
    fn runs(&self, column: &str, value: impl Into<Value>) -> Vec<Conditions> {
        self.runs_of(self.direction, column, value)
    }

    fn runs_of(
        &self,
        direction: Option<Direction>,
        column: &str,
        value: impl Into<Value>,
    ) -> Vec<Conditions> {
        let directions = [Direction::Incoming, Direction::Outgoing].into_iter();
        let directions = directions.filter(|it| direction.is_none_or(|wanted| wanted == *it));
        let statuses = Status::ALL.into_iter();
        let statuses = statuses.filter(|it| self.status.is_none_or(|wanted| wanted == *it));
        let runs = vec![Conditions::equal(column, value)];
        let runs = split_by(runs, "direction", directions.map(Direction::name));
        split_by(runs, "status", statuses.map(Status::name))
    }

    /// The runs of payments in one direction whose owner has an address.
    fn runs_of_own_address(&self, direction: Direction, address: Uuid) -> Vec<Conditions> {
        match self.direction {
            Some(wanted) if wanted != direction => Vec::new(),
            Some(_) | None => self.runs_of(Some(direction), "own_address", address),
        }
    }

    /// The way to what these owners have.
    fn of_owners(&self, owners: &[Owner]) -> Way {
        let runs = owners.iter().flat_map(|owner| self.runs("owner", owner.uuid())).collect();
        let marks = vec!["?"; owners.len()].join(", ");
        let mut condition = Conditions::default();
        condition
            .and(format!("owner in ({marks})"), owners.iter().map(|owner| owner.uuid().into()));
        Way { runs, condition }
    }

    /// The way to what an account or an address pays.
    fn of_source(&self, key: Uuid) -> Way {
        let mut runs = self.runs("source_account", key);
        runs.extend(self.runs_of_own_address(Direction::Outgoing, key));
        let text = "(source_account = ? or own_address = ? and direction = 'OUTGOING')";
        Way { runs, condition: condition(text, key) }
    }

    /// The way to what an account or an address is paid.
    fn of_destination(&self, key: Uuid) -> Way {
        let mut runs = self.runs("destination_account", key);
        runs.extend(self.runs_of_own_address(Direction::Incoming, key));
        let text = "(destination_account = ? or own_address = ? and direction = 'INCOMING')";
        Way { runs, condition: condition(text, key) }
    }

    /// The way to what an account or an address pays or is paid. No payment is from an account or
    /// address to itself, so that no row is in two of the runs.
    fn of_either(&self, key: Uuid) -> Way {
        let columns = ["source_account", "destination_account", "own_address"];
        let runs = columns.into_iter().flat_map(|column| self.runs(column, key)).collect();
        let text = "(source_account = ? or destination_account = ? or own_address = ?)";
        Way { runs, condition: condition(text, key) }
    }
}

/// A condition in which each `?` stands for the same account.
fn condition(text: &str, key: Uuid) -> Conditions {
    let mut conditions = Conditions::default();
    conditions.and(text, vec![key.into(); text.matches('?').count()]);
    conditions
}

impl View<'_> {
    /// A platform's transactions.
    pub fn transactions(
        &mut self,
        platform: PlatformId,
        filter: &TransactionFilter,
        page: PageRequest,
    ) -> Result<Page<Transaction>, StoreError> {
        let referenced = filter.reference.as_deref().map_or(Ids::ALL, Ids::referenced);
        let ids = Ids::made(filter.created_after, filter.created_before).and(referenced);
        let (mut ways, mut rest) = (Vec::new(), Conditions::default());
        if let Some(owner) = filter.owner {
            if !self.is_owner(platform, owner)? {
                return Ok(Page::EMPTY);
            }
            ways.push(filter.of_owners(&[owner]));
        }
        if let Some(name) = &filter.platform_customer_id {
            match self.owners_named(platform, name)? {
                Some(owners) if owners.is_empty() => return Ok(Page::EMPTY),
                Some(owners) => ways.push(filter.of_owners(&owners)),
                None => {
                    let hidden = seal::hidden(self.keyring, &name.as_str().into());
                    rest.and_if("platform_customer_id = ?", hidden);
                }
            }
        }
        let accounts: [(_, ToWay); 3] = [
            (&filter.source_account, TransactionFilter::of_source),
            (&filter.destination_account, TransactionFilter::of_destination),
            (&filter.either_account, TransactionFilter::of_either),
        ];
        for (named, way) in accounts {
            let Some(named) = named else { continue };
            let Some(key) = self.list_key(platform, named)? else { return Ok(Page::EMPTY) };
            ways.push(way(filter, key));
        }
        if ways.is_empty() {
            ways.push(Way::only(filter.runs("platform", platform)));
        }
        self.list(Query { ways, rest, ..Query::of(Way::only(Vec::new()), ids) }, page)
    }
}
