//! Customers of a platform (specification 2.6; contract 6.3).

use crate::account_info::{FieldError, birth_error};
use crate::address::Address;
use crate::country::Country;
use crate::currency::Currency;
use crate::id::{CustomerId, ExternalAccountId, IdentityCheckId, PlatformId};
use crate::kyc::{self, Kyc};
use crate::patch::Patch;
use crate::time::{Date, Timestamp};
use crate::transaction::Facts;
use crate::uma_address::UmaAddress;

/// A customer's identity status (specification 3.5). For businesses the API calls it
/// `kybStatus`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum KycStatus {
    /// Checked and good.
    Approved,
    /// Checked and refused.
    Rejected,
    /// Being checked.
    PendingReview,
    /// Not finished in time.
    Expired,
    /// The check was called off.
    Canceled,
    /// A person approved.
    ManuallyApproved,
    /// A person refused.
    ManuallyRejected,
}

impl KycStatus {
    /// Every status, in the order of the specification.
    pub const ALL: [Self; 7] = [
        Self::Approved,
        Self::Rejected,
        Self::PendingReview,
        Self::Expired,
        Self::Canceled,
        Self::ManuallyApproved,
        Self::ManuallyRejected,
    ];

    /// The name that the API uses.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Approved => "APPROVED",
            Self::Rejected => "REJECTED",
            Self::PendingReview => "PENDING_REVIEW",
            Self::Expired => "EXPIRED",
            Self::Canceled => "CANCELED",
            Self::ManuallyApproved => "MANUALLY_APPROVED",
            Self::ManuallyRejected => "MANUALLY_REJECTED",
        }
    }

    /// The status with this API name.
    pub fn from_name(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|status| status.name() == name)
    }

    /// Whether nothing more is to come by itself: the platform is notified.
    pub const fn is_final(self) -> bool {
        match self {
            Self::PendingReview => false,
            Self::Approved
            | Self::Rejected
            | Self::Expired
            | Self::Canceled
            | Self::ManuallyApproved
            | Self::ManuallyRejected => true,
        }
    }

    /// Where the event leads from this status, if the machine has an arrow for it.
    pub fn after(self, event: kyc::Event) -> Option<Self> {
        kyc::arrow(self, event)
    }

    /// Whether the customer may move money.
    pub const fn may_move_money(self) -> bool {
        match self {
            Self::Approved | Self::ManuallyApproved => true,
            Self::Rejected
            | Self::PendingReview
            | Self::Expired
            | Self::Canceled
            | Self::ManuallyRejected => false,
        }
    }
}

/// How a customer is reached, and the currencies that it uses. Its platform says so; nothing of it
/// is checked, and it can change at any time.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Contact {
    /// E-mail address.
    pub email: Option<String>,
    /// Phone number, E.164.
    pub phone_number: Option<String>,
    /// The currencies, each once.
    pub currencies: Vec<Currency>,
}

/// Changes of a contact.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct ContactPatch {
    /// E-mail address.
    pub email: Patch<String>,
    /// Phone number, E.164.
    pub phone_number: Patch<String>,
    /// The currencies, in the place of those before.
    pub currencies: Patch<Vec<Currency>>,
}

impl Contact {
    /// The contact after a change.
    pub fn patched(&self, patch: &ContactPatch) -> Self {
        Self {
            email: patch.email.applied_to(&self.email),
            phone_number: patch.phone_number.applied_to(&self.phone_number),
            currencies: patch.currencies.applied_to_list(&self.currencies),
        }
    }
}

/// A person's part of a customer.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Individual {
    /// Full name.
    pub full_name: Option<String>,
    /// Date of birth.
    pub birth_date: Option<Date>,
    /// Nationality.
    pub nationality: Option<Country>,
    /// Where the person lives.
    pub address: Option<Address>,
    /// How the person is reached.
    pub contact: Contact,
}

/// Changes of a person.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct IndividualPatch {
    /// Full name.
    pub full_name: Patch<String>,
    /// Date of birth.
    pub birth_date: Patch<Date>,
    /// Nationality.
    pub nationality: Patch<Country>,
    /// Where the person lives, in the place of the address before.
    pub address: Patch<Address>,
    /// How the person is reached.
    pub contact: ContactPatch,
}

impl Individual {
    /// The person after a change.
    pub fn patched(&self, patch: &IndividualPatch) -> Self {
        Self {
            full_name: patch.full_name.applied_to(&self.full_name),
            birth_date: patch.birth_date.applied_to(&self.birth_date),
            nationality: patch.nationality.applied_to(&self.nationality),
            address: patch.address.applied_to(&self.address),
            contact: self.contact.patched(&patch.contact),
        }
    }

    /// Known facts once these are stated: what was not said stays, and so does the contact.
    pub fn changed(&self, said: &Self) -> Self {
        Self {
            full_name: newer(&said.full_name, &self.full_name),
            birth_date: newer(&said.birth_date, &self.birth_date),
            nationality: newer(&said.nationality, &self.nationality),
            address: newer(&said.address, &self.address),
            contact: self.contact.clone(),
        }
    }
}

fn newer<T: Clone>(new: &Option<T>, old: &Option<T>) -> Option<T> {
    new.as_ref().or(old.as_ref()).cloned()
}

/// Why a person has a say in a business (contract 5 `individualType`).
pub const OWNER_TYPES: [&str; 6] = [
    "DIRECTOR",
    "CONTROL_PERSON",
    "BUSINESS_POINT_OF_CONTACT",
    "TRUSTEE",
    "SETTLOR",
    "GENERAL_PARTNER",
];

/// A person behind a business.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct BeneficialOwner {
    /// Full name.
    pub full_name: String,
    /// One of [`OWNER_TYPES`].
    pub individual_type: &'static str,
    /// E-mail address.
    pub email_address: Option<String>,
    /// Phone number, E.164.
    pub phone_number: Option<String>,
    /// Tax number.
    pub tax_id: Option<String>,
    /// Date of birth.
    pub birth_date: Option<Date>,
    /// Nationality.
    pub nationality: Option<Country>,
    /// Where the person lives.
    pub address: Option<Address>,
    /// Share of the business in per cent, as decimal digits.
    pub percentage_ownership: Option<rust_decimal::Decimal>,
    /// Position.
    pub title: Option<String>,
}

/// A business's part of a customer.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Business {
    /// Legal name.
    pub legal_name: String,
    /// Number in the register.
    pub registration_number: Option<String>,
    /// Tax number.
    pub tax_id: Option<String>,
    /// Where it is.
    pub address: Option<Address>,
    /// The persons behind it.
    pub beneficial_owners: Vec<BeneficialOwner>,
    /// How it is reached.
    pub contact: Contact,
}

/// Changes of a business.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct BusinessPatch {
    /// Legal name, which no business is without.
    pub legal_name: Option<String>,
    /// Number in the register.
    pub registration_number: Patch<String>,
    /// Tax number.
    pub tax_id: Patch<String>,
    /// Where it is, in the place of the address before.
    pub address: Patch<Address>,
    /// The persons behind it, in the place of those before.
    pub beneficial_owners: Patch<Vec<BeneficialOwner>>,
    /// How it is reached.
    pub contact: ContactPatch,
}

impl Business {
    /// The business after a change.
    pub fn patched(&self, patch: &BusinessPatch) -> Self {
        Self {
            legal_name: patch.legal_name.as_ref().unwrap_or(&self.legal_name).clone(),
            registration_number: patch.registration_number.applied_to(&self.registration_number),
            tax_id: patch.tax_id.applied_to(&self.tax_id),
            address: patch.address.applied_to(&self.address),
            beneficial_owners: patch.beneficial_owners.applied_to_list(&self.beneficial_owners),
            contact: self.contact.patched(&patch.contact),
        }
    }
}

/// The person or business.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Identity {
    /// A person.
    Individual(Individual),
    /// A business.
    Business(Business),
}

impl Identity {
    /// Every `customerType`.
    pub const TYPES: [&str; 2] = ["INDIVIDUAL", "BUSINESS"];

    /// The `customerType` in the API.
    pub const fn customer_type(&self) -> &'static str {
        match self {
            Self::Individual(_) => "INDIVIDUAL",
            Self::Business(_) => "BUSINESS",
        }
    }

    /// The fields that are implausible on `today`, by the platform's clock.
    pub fn implausible(&self, today: Date) -> Vec<FieldError> {
        let births: Vec<(String, Option<Date>)> = match self {
            Self::Individual(person) => vec![("birthDate".to_owned(), person.birth_date)],
            Self::Business(business) => (0..)
                .zip(&business.beneficial_owners)
                .map(|(index, owner)| {
                    (format!("beneficialOwners.{index}.birthDate"), owner.birth_date)
                })
                .collect(),
        };
        let error = |(field, birth): &(String, Option<Date>)| birth_error((*birth)?, today, field);
        births.iter().filter_map(error).collect()
    }

    /// How the person or business is reached.
    pub const fn contact(&self) -> &Contact {
        match self {
            Self::Individual(person) => &person.contact,
            Self::Business(business) => &business.contact,
        }
    }

    /// The name of the person or of the business, if it is known.
    pub fn name(&self) -> Option<&str> {
        match self {
            Self::Individual(person) => person.full_name.as_deref(),
            Self::Business(business) => Some(&business.legal_name),
        }
    }
}

impl Customer {
    /// Takes note of a change. Its times never go back, although the clock may.
    pub fn touch(&mut self, now: Timestamp) {
        self.updated_at = now.max(self.updated_at);
    }

    /// Facts about the customer, by the names of
    /// [`crate::platform::COUNTERPARTY_FIELDS`].
    pub fn facts(&self) -> Facts {
        let text = |value: &dyn ToString| Some(value.to_string());
        let known = match &self.identity {
            Identity::Individual(person) => [
                ("FULL_NAME", person.full_name.clone()),
                ("BIRTH_DATE", person.birth_date.and_then(|date| text(&date))),
                ("NATIONALITY", person.nationality.and_then(|country| text(&country))),
                ("POSTAL_ADDRESS", person.address.as_ref().map(Address::line)),
            ],
            Identity::Business(business) => [
                ("FULL_NAME", Some(business.legal_name.clone())),
                ("REGISTRATION_NUMBER", business.registration_number.clone()),
                ("TAX_ID", business.tax_id.clone()),
                ("POSTAL_ADDRESS", business.address.as_ref().map(Address::line)),
            ],
        };
        let contact = self.identity.contact();
        let reached =
            [("EMAIL", contact.email.clone()), ("PHONE_NUMBER", contact.phone_number.clone())];
        let known = known.into_iter().chain(reached);
        let facts = known.filter_map(|(name, value)| Some((name, value?)));
        let always = [
            ("USER_TYPE", self.identity.customer_type().to_owned()),
            ("IDENTIFIER", self.uma_address.to_string()),
        ];
        facts.chain(always).collect()
    }
}

/// A customer of a platform.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Customer {
    /// System id.
    pub id: CustomerId,
    /// The platform.
    pub platform: PlatformId,
    /// The platform's own name for the customer. Several customers may share one (contract 6.3).
    pub platform_customer_id: String,
    /// Its address; unique on this server, and never given out again.
    pub uma_address: UmaAddress,
    /// Its identity status.
    pub kyc: Kyc,
    /// The latest check of its identity by a link.
    pub identity_check: Option<IdentityCheckId>,
    /// The person or business.
    pub identity: Identity,
    /// The external account that incoming UMA payments go on to. One field, so that at most one
    /// account can hold the flag and moving it is atomic (specification 2.8).
    pub default_uma_deposit_account: Option<ExternalAccountId>,
    /// Whether it was deleted. Its records stay readable; its money does not move.
    pub is_deleted: bool,
    /// When it was made.
    pub created_at: Timestamp,
    /// When it last changed.
    pub updated_at: Timestamp,
}
