//! External accounts in the store.

use std::collections::BTreeMap;

use domain::account_info::{AccountInfo, AccountType, BeneficiaryDraft, FieldValue};
use domain::currency::Currency;
use domain::external_account::{ExternalAccount, Status, Verification};
use domain::id::{CustomerId, ExternalAccountId, Owner, PlatformId};
use serde::{Deserialize, Serialize};
use uuid::Uuid;

use crate::error::StoreError;
use crate::keyring::{Keyring, Purpose};
use crate::list::{Conditions, Ids, Page, PageRequest, Query, Way};
use crate::reader::View;
use crate::record::{Record, of_person, record_table};
use crate::sealed::StoredAddress;
use crate::sql::{Row, Value};

/// The parts of an account that are kept inside the sealed column.
#[derive(Serialize, Deserialize)]
struct Stored {
    account_type: String,
    fields: BTreeMap<String, StoredValue>,
    rails: Vec<String>,
    beneficiary: Option<StoredBeneficiary>,
    platform_account_id: Option<String>,
    crypto_network: Option<String>,
    verification: Option<String>,
    holder_name: Option<String>,
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    removed: bool,
}

#[derive(Serialize, Deserialize)]
#[serde(untagged)]
enum StoredValue {
    Text(String),
    List(Vec<String>),
}

#[derive(Serialize, Deserialize)]
struct StoredBeneficiary {
    beneficiary_type: Option<String>,
    full_name: Option<String>,
    legal_name: Option<String>,
    birth_date: Option<String>,
    nationality: Option<String>,
    registration_number: Option<String>,
    tax_id: Option<String>,
    email: Option<String>,
    phone_number: Option<String>,
    country_of_residence: Option<String>,
    address: Option<StoredAddress>,
}

impl StoredBeneficiary {
    fn of(draft: BeneficiaryDraft) -> Self {
        Self {
            beneficiary_type: draft.beneficiary_type,
            full_name: draft.full_name,
            legal_name: draft.legal_name,
            birth_date: draft.birth_date,
            nationality: draft.nationality,
            registration_number: draft.registration_number,
            tax_id: draft.tax_id,
            email: draft.email,
            phone_number: draft.phone_number,
            country_of_residence: draft.country_of_residence,
            address: draft.address.map(StoredAddress::of_draft),
        }
    }

    fn into_draft(self) -> BeneficiaryDraft {
        BeneficiaryDraft {
            beneficiary_type: self.beneficiary_type,
            full_name: self.full_name,
            legal_name: self.legal_name,
            birth_date: self.birth_date,
            nationality: self.nationality,
            registration_number: self.registration_number,
            tax_id: self.tax_id,
            email: self.email,
            phone_number: self.phone_number,
            country_of_residence: self.country_of_residence,
            address: self.address.map(StoredAddress::into_draft),
        }
    }
}

impl Stored {
    fn of(account: &ExternalAccount) -> Self {
        let value = |value: &FieldValue| match value {
            FieldValue::Text(text) => StoredValue::Text(text.clone()),
            FieldValue::List(list) => StoredValue::List(list.clone()),
        };
        let info = &account.info;
        let fields = info.fields().iter().map(|(name, field)| (name.clone(), value(field)));
        Self {
            account_type: info.account_type().name.to_owned(),
            fields: fields.collect(),
            rails: info.rails().iter().map(|rail| rail.name().to_owned()).collect(),
            beneficiary: info.beneficiary().map(|who| StoredBeneficiary::of(who.to_draft())),
            platform_account_id: account.platform_account_id.clone(),
            crypto_network: account.crypto_network.clone(),
            verification: account.verification.map(|result| result.name().to_owned()),
            holder_name: account.holder_name.clone(),
            removed: account.is_removed,
        }
    }

    fn info(
        account_type: &str,
        fields: BTreeMap<String, StoredValue>,
        rails: &[String],
        beneficiary: Option<StoredBeneficiary>,
    ) -> Option<AccountInfo> {
        let value = |value| match value {
            StoredValue::Text(text) => FieldValue::Text(text),
            StoredValue::List(list) => FieldValue::List(list),
        };
        let fields = fields.into_iter().map(|(name, field)| (name, value(field))).collect();
        let account_type = AccountType::from_name(account_type)?;
        let beneficiary = beneficiary.map(StoredBeneficiary::into_draft);
        AccountInfo::restore(account_type, fields, rails, beneficiary)
    }
}

/// The two columns that name an owner.
pub(crate) fn owner_values(owner: Owner) -> [Value; 2] {
    let kind = match owner {
        Owner::Platform(_) => "PLATFORM",
        Owner::Customer(_) => "CUSTOMER",
    };
    [Value::name(kind), owner.uuid().into()]
}

/// Reads the two columns that name an owner.
pub(crate) fn read_owner(row: &mut Row) -> Result<Owner, StoreError> {
    let is_platform = row.named(|kind| match kind {
        "PLATFORM" => Some(true),
        "CUSTOMER" => Some(false),
        _ => None,
    })?;
    Ok(if is_platform { Owner::Platform(row.id()?) } else { Owner::Customer(row.id()?) })
}

impl Record for ExternalAccount {
    type Key = ExternalAccountId;
    const TABLE: &'static str = "external_accounts";
    const COLUMNS: &'static [&'static str] = &[
        "id",
        "platform",
        "owner_kind",
        "owner",
        "status",
        "currency",
        "created_at",
        "updated_at",
        "sealed",
    ];
    record_table!(external_accounts);

    fn key(&self) -> ExternalAccountId {
        self.id
    }

    fn owner(&self) -> Option<Uuid> {
        self.owner.customer().map(|customer| customer.uuid())
    }

    fn data_key(&self, _: Option<Uuid>) -> Option<Uuid> {
        of_person(self)
    }

    fn values(&self) -> Vec<Value> {
        let stored = serde_json::to_vec(&Stored::of(self)).expect("an account has text keys only");
        let [owner_kind, owner] = owner_values(self.owner);
        vec![
            self.id.into(),
            self.platform.into(),
            owner_kind,
            owner,
            Value::name(self.status.name()),
            Value::name(self.currency.code()),
            self.created_at.into(),
            self.updated_at.into(),
            stored.into(),
        ]
    }

    fn read(row: &mut Row, _: &Keyring) -> Result<Self, StoreError> {
        let (id, platform): (ExternalAccountId, _) = (row.id()?, row.id()?);
        let owner = read_owner(row)?;
        let (status, currency) = (row.named(Status::from_name)?, row.currency()?);
        let (created_at, updated_at) = (row.time()?, row.time()?);
        if created_at != id.created_at() {
            return Err(row.corrupt("not made when its id was drawn"));
        }
        let stored = row.bytes()?;
        let stored: Stored = serde_json::from_slice(&stored).map_err(|error| row.corrupt(error))?;
        let Stored { account_type, fields, rails, beneficiary, .. } = stored;
        let verification = stored.verification.map(|name| {
            Verification::from_name(&name).ok_or_else(|| row.corrupt("unknown verification"))
        });
        Ok(Self {
            id,
            platform,
            owner,
            status,
            currency,
            platform_account_id: stored.platform_account_id,
            info: Stored::info(&account_type, fields, &rails, beneficiary)
                .ok_or_else(|| row.corrupt("not the data of an account"))?,
            is_removed: stored.removed,
            crypto_network: stored.crypto_network,
            verification: verification.transpose()?,
            holder_name: stored.holder_name,
            created_at,
            updated_at,
        })
    }
}

/// The use of an account's identifiers on its rail by one external account of an owner.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Fingerprint {
    /// A keyed hash of owner and identifiers.
    pub fingerprint: [u8; 32],
    /// The account that has them.
    pub external_account: ExternalAccountId,
}

/// The fingerprint of an account of `owner`.
pub fn fingerprint(
    keyring: &Keyring,
    owner: Owner,
    info: &AccountInfo,
    currency: Currency,
) -> [u8; 32] {
    let (owner, text) = (owner.uuid(), info.fingerprint_text(currency));
    keyring.hash(Purpose::Fingerprint, &[owner.as_bytes(), text.as_bytes()])
}

impl Record for Fingerprint {
    type Key = [u8; 32];
    const TABLE: &'static str = "external_account_fingerprints";
    const COLUMNS: &'static [&'static str] = &["fingerprint", "external_account"];
    record_table!(fingerprints);

    fn key(&self) -> [u8; 32] {
        self.fingerprint
    }

    fn values(&self) -> Vec<Value> {
        vec![Value::from(&self.fingerprint[..]), self.external_account.into()]
    }

    fn read(row: &mut Row, _: &Keyring) -> Result<Self, StoreError> {
        let fingerprint = row.bytes()?.try_into().map_err(|_| row.corrupt("not 32 bytes"))?;
        Ok(Self { fingerprint, external_account: row.id()? })
    }
}

/// Which external accounts are listed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum AccountsOf {
    /// The platform's own.
    Platform,
    /// Those of any customer.
    Customers,
    /// Those of one customer.
    Customer(CustomerId),
}

impl View<'_> {
    /// A platform's external accounts or those of its customers.
    pub fn external_accounts(
        &mut self,
        platform: PlatformId,
        of: &AccountsOf,
        currency: Option<Currency>,
        page: PageRequest,
    ) -> Result<Page<ExternalAccount>, StoreError> {
        let of_platform = |owner_kind: &'static str| {
            let mut run = Conditions::equal("platform", platform);
            run.and("owner_kind = ?", [Value::name(owner_kind)]);
            run
        };
        let mut run = match of {
            AccountsOf::Platform => of_platform("PLATFORM"),
            AccountsOf::Customers => of_platform("CUSTOMER"),
            AccountsOf::Customer(id) => {
                if !self.is_owner(platform, Owner::Customer(*id))? {
                    return Ok(Page::EMPTY);
                }
                Conditions::equal("owner", *id)
            }
        };
        run.and_if("currency = ?", currency.map(|currency| Value::name(currency.code())));
        self.list(Query::of(Way::only(vec![run]), Ids::ALL), page)
    }
}
