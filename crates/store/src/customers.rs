//! Customers in the store.

use std::borrow::Cow;

use domain::country::Country;
use domain::currency::Currency;
use domain::customer::{
    BeneficialOwner, Business, Contact, Customer, Identity, Individual, KycStatus, OWNER_TYPES,
};
use domain::id::{
    CustomerId, ExternalAccountId, IdentityCheckId, InternalAccountId, Owner, PlatformId,
};
use domain::kyc::Kyc;
use domain::time::{Date, Timestamp};
use domain::uma_address::UmaAddress;
use serde::{Deserialize, Serialize};
use uuid::Uuid;

use crate::error::StoreError;
use crate::keyring::{Keyring, Purpose};
use crate::list::{Conditions, Ids, Order, Page, PageRequest, Query, Way, split_by};
use crate::reader::View;
use crate::record::{Record, of_person, record_table};
use crate::seal;
use crate::sealed::{StoredAddress, each};
use crate::sql::{Row, Value};
use crate::unit::Unit;

/// The identity of a customer, as it is kept inside the sealed column.
#[derive(Serialize, Deserialize)]
pub(crate) enum StoredIdentity {
    Individual {
        full_name: Option<String>,
        birth_date: Option<String>,
        nationality: Option<String>,
        address: Option<StoredAddress>,
        #[serde(default, skip_serializing_if = "StoredContact::is_empty")]
        contact: StoredContact,
    },
    Business {
        legal_name: String,
        registration_number: Option<String>,
        tax_id: Option<String>,
        address: Option<StoredAddress>,
        owners: Vec<StoredOwner>,
        #[serde(default, skip_serializing_if = "StoredContact::is_empty")]
        contact: StoredContact,
    },
}

/// How a customer is reached. Identities that were kept before have none.
#[derive(Default, PartialEq, Serialize, Deserialize)]
pub(crate) struct StoredContact {
    #[serde(default, skip_serializing_if = "Option::is_none")]
    email: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    phone_number: Option<String>,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    currencies: Vec<Cow<'static, str>>,
}

impl StoredContact {
    fn is_empty(&self) -> bool {
        *self == Self::default()
    }

    fn of(contact: &Contact) -> Self {
        let code = |currency: &Currency| Cow::Borrowed(currency.code());
        Self {
            email: contact.email.clone(),
            phone_number: contact.phone_number.clone(),
            currencies: contact.currencies.iter().map(code).collect(),
        }
    }

    fn into_domain(self) -> Option<Contact> {
        let currencies = self.currencies.iter().map(|code| Currency::from_code(code));
        Some(Contact {
            email: self.email,
            phone_number: self.phone_number,
            currencies: currencies.collect::<Option<_>>()?,
        })
    }
}

#[derive(Serialize, Deserialize)]
pub(crate) struct StoredOwner {
    full_name: String,
    individual_type: Cow<'static, str>,
    email_address: Option<String>,
    phone_number: Option<String>,
    tax_id: Option<String>,
    birth_date: Option<String>,
    nationality: Option<String>,
    address: Option<StoredAddress>,
    percentage_ownership: Option<String>,
    title: Option<String>,
}

fn date(text: String) -> Option<Date> {
    Date::parse(&text).ok()
}

fn country(text: String) -> Option<Country> {
    Country::parse(&text).ok()
}

impl StoredOwner {
    fn of(owner: &BeneficialOwner) -> Self {
        Self {
            full_name: owner.full_name.clone(),
            individual_type: Cow::Borrowed(owner.individual_type),
            email_address: owner.email_address.clone(),
            phone_number: owner.phone_number.clone(),
            tax_id: owner.tax_id.clone(),
            birth_date: owner.birth_date.map(|date| date.to_string()),
            nationality: owner.nationality.map(|country| country.to_string()),
            address: owner.address.as_ref().map(StoredAddress::of),
            percentage_ownership: owner.percentage_ownership.map(|share| share.to_string()),
            title: owner.title.clone(),
        }
    }

    fn into_domain(self) -> Option<BeneficialOwner> {
        Some(BeneficialOwner {
            full_name: self.full_name,
            individual_type: OWNER_TYPES
                .into_iter()
                .find(|known| *known == self.individual_type)?,
            email_address: self.email_address,
            phone_number: self.phone_number,
            tax_id: self.tax_id,
            birth_date: each(self.birth_date, date)?,
            nationality: each(self.nationality, country)?,
            address: each(self.address, StoredAddress::into_domain)?,
            percentage_ownership: each(self.percentage_ownership, |digits| digits.parse().ok())?,
            title: self.title,
        })
    }
}

impl StoredIdentity {
    pub(crate) fn of(identity: &Identity) -> Self {
        match identity {
            Identity::Individual(person) => Self::Individual {
                full_name: person.full_name.clone(),
                birth_date: person.birth_date.map(|date| date.to_string()),
                nationality: person.nationality.map(|country| country.to_string()),
                address: person.address.as_ref().map(StoredAddress::of),
                contact: StoredContact::of(&person.contact),
            },
            Identity::Business(business) => Self::Business {
                legal_name: business.legal_name.clone(),
                registration_number: business.registration_number.clone(),
                tax_id: business.tax_id.clone(),
                address: business.address.as_ref().map(StoredAddress::of),
                owners: business.beneficial_owners.iter().map(StoredOwner::of).collect(),
                contact: StoredContact::of(&business.contact),
            },
        }
    }

    pub(crate) fn into_domain(self) -> Option<Identity> {
        Some(match self {
            Self::Individual { full_name, birth_date, nationality, address, contact } => {
                Identity::Individual(Individual {
                    full_name,
                    birth_date: each(birth_date, date)?,
                    nationality: each(nationality, country)?,
                    address: each(address, StoredAddress::into_domain)?,
                    contact: contact.into_domain()?,
                })
            }
            Self::Business {
                legal_name,
                registration_number,
                tax_id,
                address,
                owners,
                contact,
            } => Identity::Business(Business {
                legal_name,
                registration_number,
                tax_id,
                address: each(address, StoredAddress::into_domain)?,
                beneficial_owners: owners
                    .into_iter()
                    .map(StoredOwner::into_domain)
                    .collect::<Option<_>>()?,
                contact: contact.into_domain()?,
            }),
        })
    }
}

impl Record for Customer {
    type Key = CustomerId;
    const TABLE: &'static str = "customers";
    const COLUMNS: &'static [&'static str] = &[
        "id",
        "platform",
        "platform_customer_id",
        "customer_type",
        "uma_address",
        "kyc_status",
        "kyc_changes",
        "identity_check",
        "default_uma_deposit_account",
        "is_deleted",
        "created_at",
        "updated_at",
        "sealed",
    ];
    const HIDDEN: &'static [&'static str] = &["platform_customer_id", "uma_address"];
    record_table!(customers);

    fn key(&self) -> CustomerId {
        self.id
    }

    fn owner(&self) -> Option<Uuid> {
        Some(self.id.uuid())
    }

    fn data_key(&self, _: Option<Uuid>) -> Option<Uuid> {
        of_person(self)
    }

    fn values(&self) -> Vec<Value> {
        let identity = serde_json::to_vec(&StoredIdentity::of(&self.identity))
            .expect("an identity has text keys only");
        vec![
            self.id.into(),
            self.platform.into(),
            self.platform_customer_id.as_str().into(),
            Value::name(self.identity.customer_type()),
            self.uma_address.as_str().into(),
            Value::name(self.kyc.status().name()),
            self.kyc.changes().into(),
            Value::or_null(self.identity_check),
            Value::or_null(self.default_uma_deposit_account),
            self.is_deleted.into(),
            self.created_at.into(),
            self.updated_at.into(),
            identity.into(),
        ]
    }

    fn read(row: &mut Row, _: &Keyring) -> Result<Self, StoreError> {
        let (id, platform, platform_customer_id) = (row.id()?, row.id()?, row.text()?);
        let customer_type = row.text()?;
        let uma_address = UmaAddress::parse(&row.text()?).map_err(|error| row.corrupt(error))?;
        let kyc = Kyc::restore(row.named(KycStatus::from_name)?, row.count()?);
        let identity_check = row.uuid_or_null()?.map(IdentityCheckId::from_uuid);
        let default_uma_deposit_account = row.uuid_or_null()?.map(ExternalAccountId::from_uuid);
        let is_deleted = row.flag()?;
        let (created_at, updated_at) = (row.time()?, row.time()?);
        let identity = row.bytes()?;
        let identity = serde_json::from_slice::<StoredIdentity>(&identity)
            .ok()
            .and_then(StoredIdentity::into_domain)
            .filter(|identity| identity.customer_type() == customer_type)
            .ok_or_else(|| row.corrupt("not an identity of this type"))?;
        if created_at != id.created_at() {
            return Err(row.corrupt("not made when its id was drawn"));
        }
        Ok(Self {
            id,
            platform,
            platform_customer_id,
            uma_address,
            kyc,
            identity_check,
            identity,
            default_uma_deposit_account,
            is_deleted,
            created_at,
            updated_at,
        })
    }
}

/// The keyed hash of a UMA address.
pub type AddressHash = [u8; 32];

/// The claim of a customer to an address, which is for ever. It does not tell the address, so that
/// it can stay when the customer is erased.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct UmaClaim {
    /// The address.
    pub address: AddressHash,
    /// The customer that has it, or had it once.
    pub customer: CustomerId,
}

impl Keyring {
    /// The keyed hash of a UMA address.
    pub(crate) fn address_hash(&self, address: &UmaAddress) -> AddressHash {
        self.hash(Purpose::UmaAddress, &[address.as_str().as_bytes()])
    }
}

impl Record for UmaClaim {
    type Key = AddressHash;
    const TABLE: &'static str = "uma_addresses";
    const COLUMNS: &'static [&'static str] = &["address_hash", "customer"];
    record_table!(uma_addresses);

    fn key(&self) -> AddressHash {
        self.address
    }

    fn values(&self) -> Vec<Value> {
        vec![self.address.into(), self.customer.into()]
    }

    fn read(row: &mut Row, _: &Keyring) -> Result<Self, StoreError> {
        let address = row.bytes()?.try_into().map_err(|_| row.corrupt("not 32 bytes"))?;
        Ok(Self { address, customer: row.id()? })
    }
}

impl Unit<'_, '_> {
    /// The customer that has a UMA address, or had it once.
    pub fn claim(&mut self, address: &UmaAddress) -> Result<Option<CustomerId>, StoreError> {
        let address = self.keyring().address_hash(address);
        Ok(self.get::<UmaClaim>(&address)?.map(|claim| claim.customer))
    }

    /// Gives a UMA address to a customer, for ever. The caller has read that no other has it.
    pub fn put_claim(&mut self, address: &UmaAddress, customer: CustomerId) {
        let address = self.keyring().address_hash(address);
        self.put(UmaClaim { address, customer });
    }
}

/// Which customers are listed. Bounds are inclusive.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct CustomerFilter {
    /// Exactly this name of the platform's.
    pub platform_customer_id: Option<String>,
    /// `INDIVIDUAL` or `BUSINESS`.
    pub customer_type: Option<&'static str>,
    /// Exactly this address.
    pub uma_address: Option<UmaAddress>,
    /// Made then or later.
    pub created_after: Option<Timestamp>,
    /// Made then or earlier.
    pub created_before: Option<Timestamp>,
    /// Changed then or later.
    pub updated_after: Option<Timestamp>,
    /// Changed then or earlier.
    pub updated_before: Option<Timestamp>,
    /// This status of its identity.
    pub kyc_status: Option<KycStatus>,
    /// Whether deleted customers are listed too.
    pub including_deleted: bool,
}

impl View<'_> {
    /// The customer that has a UMA address, or had it once.
    pub fn claim(&mut self, address: &UmaAddress) -> Result<Option<CustomerId>, StoreError> {
        let address = self.keyring.address_hash(address);
        Ok(self.get::<UmaClaim>(&address)?.map(|claim| claim.customer))
    }

    /// A platform's customers.
    pub fn customers(
        &mut self,
        platform: PlatformId,
        filter: &CustomerFilter,
        page: PageRequest,
    ) -> Result<Page<Customer>, StoreError> {
        let hidden = |text: &str| seal::hidden(self.keyring, &text.into());
        let name = filter.platform_customer_id.as_deref().and_then(hidden);
        let address = filter.uma_address.as_ref().and_then(|address| hidden(address.as_str()));
        let ids = Ids::made(filter.created_after, filter.created_before);
        let mut query = match (&name, &address) {
            (None, None) => of_platform(platform, filter.customer_type, filter.including_deleted),
            // Few have the name and one has the address: each is an index of its own.
            (Some(_), _) | (_, Some(_)) => {
                let mut run = Conditions::equal("platform", platform);
                run.and_if("platform_customer_id = ?", name)
                    .and_if("uma_address = ?", address)
                    .and_if("is_deleted = ?", (!filter.including_deleted).then_some(false))
                    .and_if("customer_type = ?", filter.customer_type.map(Value::name));
                Query::of(Way::only(vec![run]), Ids::ALL)
            }
        };
        query.ids = ids;
        query
            .rest
            .and_if("updated_at >= ?", filter.updated_after)
            .and_if("updated_at <= ?", filter.updated_before)
            .and_if("kyc_status = ?", filter.kyc_status.map(|status| Value::name(status.name())));
        self.list(query, page)
    }

    /// A platform's customers whose internal accounts come after `after` in a list of accounts,
    /// newest customers first: the owner of that account, then those made before it.
    pub fn owners_of_accounts(
        &mut self,
        platform: PlatformId,
        after: Option<InternalAccountId>,
        accounts: u32,
    ) -> Result<Page<Customer>, StoreError> {
        let query = of_platform(platform, None, false);
        // Accounts of one owner come after the owner itself, and its first one may be still due.
        let after = after.map(|account| {
            let owner = Owner::Customer(CustomerId::from_uuid(account.owner_uuid()));
            let [_, last] = InternalAccountId::range_of(owner);
            last
        });
        // The first owner may have no account left, and one account more shows that there is more.
        let limit = accounts.saturating_add(1);
        self.list(query, PageRequest { limit, after, order: Order::Descending })
    }
}

/// Every customer of a platform, of one type or of any.
fn of_platform(
    platform: PlatformId,
    customer_type: Option<&'static str>,
    including_deleted: bool,
) -> Query {
    let run = |is_deleted: bool| {
        let mut run = Conditions::equal("platform", platform);
        run.and("is_deleted = ?", [is_deleted.into()]);
        run
    };
    let runs = [false, true].into_iter().filter(|deleted| including_deleted || !deleted).map(run);
    let types = Identity::TYPES.into_iter();
    let types = types.filter(|it| customer_type.is_none_or(|wanted| wanted == *it));
    Query::of(Way::only(split_by(runs.collect(), "customer_type", types)), Ids::ALL)
}
