//! Whose payments are listed where: by platform, by owner and account, and by the other side.

use domain::id::{CustomerId, InternalAccountId, Owner, PlatformId};
use domain::transaction::{AccountRef, Destination, Direction, Source};
use domain::uma_address::UmaAddress;
use uuid::Uuid;

use crate::error::StoreError;
use crate::readers::View;
use crate::select::{Branch, Conditions, Way};
use crate::sql::{Row, Value};
use crate::strands::{Facet, Index, Strand};

/// The uuid of an account.
pub(crate) fn account_uuid(account: AccountRef) -> Uuid {
    match account {
        AccountRef::Internal(id) => id.uuid(),
        AccountRef::External(id) => id.uuid(),
    }
}

/// What stands for a UMA address where accounts are listed: a uuid of its own for each platform, so
/// that a platform's list of payments to an address holds no other platform's.
pub fn address_uuid(platform: PlatformId, address: &UmaAddress) -> Uuid {
    Uuid::new_v5(&platform.uuid(), address.as_str().as_bytes())
}

/// What stands for a source where accounts are listed; nothing for a deposit.
pub(crate) fn source_uuid(platform: PlatformId, source: &Source) -> Option<Uuid> {
    match source {
        Source::Account { account, .. } => Some(account_uuid(*account)),
        Source::RealtimeFunding { .. } => None,
        Source::Uma { address } => Some(address_uuid(platform, address)),
    }
}

/// What stands for a destination where accounts are listed.
pub(crate) fn destination_uuid(platform: PlatformId, destination: &Destination) -> Uuid {
    match destination {
        Destination::Account { account, .. } => account_uuid(*account),
        Destination::Uma { address, .. } => address_uuid(platform, address),
    }
}

/// The accounts by which a payment or a quote is listed besides its destination.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Parties {
    /// The owner's internal account that it pays from or into; if there is none, the owner's own
    /// uuid. All of an owner's stand side by side in the order of uuids, so that they are the
    /// owner's list.
    pub(crate) own_account: Uuid,
    /// The account that pays, unless it is that one.
    pub(crate) payer: Option<Uuid>,
    /// What stands for the owner's own UMA address, if the payment is one between addresses. The
    /// other side's is the payer or the destination.
    pub(crate) own_address: Option<Uuid>,
}

impl Parties {
    /// The accounts of a payment between these.
    pub(crate) fn of(
        platform: PlatformId,
        owner: Owner,
        direction: Direction,
        source: Option<&Source>,
        destination: &Destination,
    ) -> Self {
        let near = match direction {
            Direction::Outgoing => source.and_then(Source::account),
            Direction::Incoming => destination.account(),
        };
        let own_account = near
            .and_then(AccountRef::internal)
            .filter(|account| account.owner_uuid() == owner.uuid())
            .map_or(owner.uuid(), InternalAccountId::uuid);
        let payer = source.and_then(|source| source_uuid(platform, source));
        let payer = payer.filter(|source| *source != own_account);
        Self { own_account, payer, own_address: None }
    }
}

/// The indexes of a list of payments or quotes.
pub(crate) struct Indexes {
    pub(crate) by_platform: Index,
    pub(crate) by_own_account: Index,
    pub(crate) by_destination: Index,
    pub(crate) by_payer: Index,
    /// Nothing where a payer's address stands for all that the payer has.
    pub(crate) by_own_address: Option<Index>,
}

impl Indexes {
    /// Each of them.
    pub(crate) fn all(&'static self) -> impl Iterator<Item = &'static Index> {
        let Self { by_platform, by_own_account, by_destination, by_payer, by_own_address } = self;
        [by_platform, by_own_account, by_destination, by_payer].into_iter().chain(by_own_address)
    }
}

/// Where a row of such a list is.
pub(crate) struct Listed {
    pub(crate) platform: Uuid,
    pub(crate) parties: Parties,
    /// The destination, unless the payment is listed there as the owner's own account.
    pub(crate) destination: Option<Uuid>,
    pub(crate) facet: Facet,
}

impl Listed {
    /// The strands that it is in.
    pub(crate) fn strands(self, indexes: &'static Indexes) -> impl Iterator<Item = Strand> {
        let Self { platform, parties, destination, facet } = self;
        [
            (Some(&indexes.by_platform), Some(platform)),
            (Some(&indexes.by_own_account), Some(parties.own_account)),
            (Some(&indexes.by_destination), destination),
            (Some(&indexes.by_payer), parties.payer),
            (indexes.by_own_address.as_ref(), parties.own_address),
        ]
        .into_iter()
        .filter_map(move |(index, leader)| Some(Strand { index: index?, leader: leader?, facet }))
    }
}

/// A side of a payment that is not its owner's own account.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Side {
    Payer,
    Destination,
}

/// Whether a filter wants an account or an address where it is the owner's own.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum AsOwn {
    Never,
    /// In this group of rows only.
    In(u8),
    Always,
}

/// An account that a filter names.
pub(crate) struct AccountFilter {
    pub(crate) account: Uuid,
    /// Whether it stands for a UMA address, of which every platform has its own.
    pub(crate) is_address: bool,
    /// Whether it is wanted where it is the owner's own account.
    pub(crate) as_own: AsOwn,
    /// The sides on which it is wanted besides.
    pub(crate) sides: &'static [Side],
    /// The same as a condition on a row, with `?` for the account each time.
    pub(crate) condition: &'static str,
}

/// Whose payments a filter names: those of one of the owners in each list, with all the accounts.
pub(crate) struct PartyFilter {
    pub(crate) owners: Vec<Vec<Owner>>,
    pub(crate) accounts: Vec<AccountFilter>,
}

/// Owners whose lists are merged when a name of the platform's is theirs. A platform gives a name
/// to one customer, seldom to a few; of more, the name is compared row by row.
const OWNERS_MAX: u32 = 16;

pub(crate) const OWNERS_NAMED: &str = "select id from customers \
    where platform = $1 and platform_customer_id = $2 order by id limit $3";

pub(crate) const KINDS: &str = "select 0, platform from customers where id = $1 \
    union all select 1, platform from external_accounts where id = $2";

/// What a uuid names.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Kind {
    /// An owner, or an account that an owner has.
    Owner,
    /// An external account, or an address.
    Elsewhere,
}

impl View<'_> {
    /// The platform's customers whom it has given a name, and itself if it is its own; nothing if
    /// they are too many to be merged.
    pub(crate) fn owners_named(
        &mut self,
        platform: PlatformId,
        name: &str,
    ) -> Result<Option<Vec<Owner>>, StoreError> {
        let mut owners = Vec::new();
        if name == platform.to_string() {
            owners.push(Owner::Platform(platform));
        }
        let parameters = [platform.into(), name.into(), (OWNERS_MAX + 1).into()];
        self.connection.query(OWNERS_NAMED, &parameters, 1, &mut |values| {
            owners.push(Owner::Customer(Row::new("customers", &["id"], values).id()?));
            Ok(())
        })?;
        Ok((owners.len() <= OWNERS_MAX as usize).then_some(owners))
    }

    /// The ways to what a filter names. Nothing if it names what this platform does not have: its
    /// lists are empty, whoever else has it.
    pub(crate) fn ways(
        &mut self,
        platform: PlatformId,
        indexes: &'static Indexes,
        filter: &PartyFilter,
    ) -> Result<Option<Vec<Way>>, StoreError> {
        let mut ways = Vec::new();
        for owners in &filter.owners {
            let mut theirs = Vec::new();
            for owner in owners {
                if self.is_owner(platform, *owner)? {
                    theirs.push(*owner);
                }
            }
            if theirs.is_empty() {
                return Ok(None);
            }
            ways.push(of_owners(indexes, &theirs));
        }
        for account in &filter.accounts {
            let named = InternalAccountId::from_uuid(account.account);
            let kind = match account.is_address {
                true => Some(Kind::Elsewhere),
                false => self.kind(platform, account.account)?,
            };
            let of_owners = match kind {
                Some(Kind::Elsewhere) if account.is_address => indexes.by_own_address.as_ref(),
                Some(Kind::Elsewhere) => None,
                Some(Kind::Owner) if named.currency().is_some() => Some(&indexes.by_own_account),
                Some(Kind::Owner) | None => return Ok(None),
            };
            ways.push(of_account(indexes, account, of_owners));
        }
        if ways.is_empty() {
            let leaders = [platform.uuid(); 2];
            let branches = vec![Branch { index: &indexes.by_platform, leaders, group: None }];
            ways.push(Way { branches, conditions: Conditions::default() });
        }
        Ok(Some(ways))
    }

    /// Whether an owner is this platform or one of its customers.
    pub(crate) fn is_owner(
        &mut self,
        platform: PlatformId,
        owner: Owner,
    ) -> Result<bool, StoreError> {
        match owner {
            Owner::Platform(id) => Ok(id == platform),
            Owner::Customer(id) => {
                let is_owner = InternalAccountId::from_uuid(id.uuid()).owner_uuid() == id.uuid();
                let is_other = id != CustomerId::from_uuid(platform.uuid());
                let kind = self.kind(platform, id.uuid())?;
                Ok(is_owner && is_other && kind == Some(Kind::Owner))
            }
        }
    }

    /// What of this platform's a uuid names.
    fn kind(&mut self, platform: PlatformId, uuid: Uuid) -> Result<Option<Kind>, StoreError> {
        const COLUMNS: &[&str] = &["kind", "platform"];
        let owner = InternalAccountId::from_uuid(uuid).owner_uuid();
        if owner == platform.uuid() {
            return Ok(Some(Kind::Owner));
        }
        let mut kind = None;
        self.connection.query(KINDS, &[owner.into(), uuid.into()], 2, &mut |values| {
            let row = &mut Row::new("accounts", COLUMNS, values);
            let found = if row.int()? == 0 { Kind::Owner } else { Kind::Elsewhere };
            if row.uuid()? == platform.uuid() {
                kind = Some(found);
            }
            Ok(())
        })?;
        Ok(kind)
    }
}

fn of_owners(indexes: &'static Indexes, owners: &[Owner]) -> Way {
    let branch = |owner: &Owner| {
        let leaders = InternalAccountId::range_of(*owner);
        Branch { index: &indexes.by_own_account, leaders, group: None }
    };
    let marks = vec!["?"; owners.len()].join(", ");
    let mut conditions = Conditions::default();
    conditions.and(format!("owner in ({marks})"), owners.iter().map(|owner| owner.uuid().into()));
    Way { branches: owners.iter().map(branch).collect(), conditions }
}

/// The way to an account or an address, which an index has where it is the owner's own.
fn of_account(
    indexes: &'static Indexes,
    filter: &AccountFilter,
    of_owners: Option<&'static Index>,
) -> Way {
    let leaders = [filter.account; 2];
    let own = |group| of_owners.map(|index| Branch { index, leaders, group });
    let own = match filter.as_own {
        AsOwn::In(group) => own(Some(group)),
        AsOwn::Always => own(None),
        AsOwn::Never => None,
    };
    let side = |side: &Side| {
        let index = match side {
            Side::Payer => &indexes.by_payer,
            Side::Destination => &indexes.by_destination,
        };
        Branch { index, leaders, group: None }
    };
    let mut conditions = Conditions::default();
    let marks = filter.condition.matches('?').count();
    conditions.and(filter.condition, vec![Value::from(filter.account); marks]);
    Way { branches: own.into_iter().chain(filter.sides.iter().map(side)).collect(), conditions }
}
