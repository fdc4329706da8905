//! The bodies of requests about customers, and their checks.

use domain::account_info::FieldError;
use domain::address::{Address, AddressDraft};
use domain::country::Country;
use domain::currency::Currency;
use domain::customer::{
    BeneficialOwner, Business, BusinessPatch, Contact, ContactPatch, Identity, Individual,
    IndividualPatch, KycStatus, OWNER_TYPES,
};
use domain::patch::Patch;
use domain::time::Date;
use rust_decimal::Decimal;
use serde::{Deserialize, Serialize};
use serde_json::Number as JsonNumber;
use service::customers::{CustomerChange, NewCustomer};
use utoipa::ToSchema;

use crate::error::{ApiError, Problem};
use crate::patch;
use crate::validate::{Checks, patch_of, schema_of};
use crate::wire::AddressBody;

/// A new customer; `customerType` selects the variant.
#[derive(Debug, Deserialize, ToSchema)]
#[serde(tag = "customerType")]
pub enum CreateCustomer {
    /// A person.
    #[serde(rename = "INDIVIDUAL")]
    Individual(CreateIndividual),
    /// A business.
    #[serde(rename = "BUSINESS")]
    Business(CreateBusiness),
}

/// Adds how a customer is reached, and in which currencies, to the body of a new one.
macro_rules! with_contact {
    ($(#[$about:meta])* pub struct $name:ident { $($fields:tt)* }) => {
        $(#[$about])*
        pub struct $name {
            $($fields)*
            /// E-mail address.
            #[serde(default)]
            #[schema(
                nullable = false,
                max_length = 254,
                pattern = "^[^@\\s]{1,64}@[^@\\s.]+(\\.[^@\\s.]+)+$",
                example = "ada@mail.example"
            )]
            email: Option<String>,
            /// Phone number, E.164.
            #[serde(default)]
            #[schema(nullable = false, pattern = "^\\+[1-9]\\d{1,14}$", example = "+442071234567")]
            phone_number: Option<String>,
            /// The currencies that the customer uses.
            #[serde(default)]
            #[schema(nullable = false, required = false, max_items = 50)]
            currencies: Vec<String>,
        }
    };
}

/// The same for a change.
macro_rules! with_contact_change {
    ($(#[$about:meta])* pub struct $name:ident { $($fields:tt)* }) => {
        $(#[$about])*
        pub struct $name {
            $($fields)*
            /// E-mail address.
            #[serde(default, deserialize_with = "patch::read")]
            #[schema(
                value_type = Option<String>,
                required = false,
                max_length = 254,
                pattern = "^[^@\\s]{1,64}@[^@\\s.]+(\\.[^@\\s.]+)+$"
            )]
            email: Patch<String>,
            /// Phone number, E.164.
            #[serde(default, deserialize_with = "patch::read")]
            #[schema(
                value_type = Option<String>,
                required = false,
                pattern = "^\\+[1-9]\\d{1,14}$"
            )]
            phone_number: Patch<String>,
            /// The currencies that the customer uses, in the place of those before.
            #[serde(default, deserialize_with = "patch::read")]
            #[schema(value_type = Option<Vec<String>>, required = false, max_items = 50)]
            currencies: Patch<Vec<String>>,
        }
    };
}

with_contact! {
    /// A new customer that is a person.
    #[derive(Debug, Deserialize, ToSchema)]
    #[serde(rename_all = "camelCase")]
    pub struct CreateIndividual {
        /// The platform's own name for it; made up when left out.
        #[serde(default)]
        #[schema(nullable = false, min_length = 1, max_length = 255, example = "user-42")]
        platform_customer_id: Option<String>,
        /// Its address at the platform's domain; made up when left out.
        #[serde(default)]
        #[schema(nullable = false, format = "uma-address", max_length = 400)]
        uma_address: Option<String>,
        /// The platform's statement about its identity; counts only for regulated platforms.
        #[serde(default)]
        #[schema(nullable = false, max_length = 64)]
        kyc_status: Option<String>,
        /// Full name.
        #[serde(default)]
        #[schema(
            nullable = false,
            format = "name",
            min_length = 1,
            max_length = 255,
            example = "Ada Lovelace"
        )]
        full_name: Option<String>,
        /// Date of birth.
        #[serde(default)]
        #[schema(nullable = false, format = Date, max_length = 10, example = "1985-12-10")]
        birth_date: Option<String>,
        /// ISO 3166-1 alpha-2 code.
        #[serde(default)]
        #[schema(nullable = false, format = "iso-3166-1-alpha-2", max_length = 2, example = "GB")]
        nationality: Option<String>,
        /// Where the person lives.
        #[serde(default)]
        #[schema(nullable = false, required = false)]
        address: Option<AddressBody>,
    }
}

with_contact! {
    /// A new customer that is a business.
    #[derive(Debug, Deserialize, ToSchema)]
    #[serde(rename_all = "camelCase")]
    pub struct CreateBusiness {
        /// The platform's own name for it; made up when left out.
        #[serde(default)]
        #[schema(nullable = false, min_length = 1, max_length = 255)]
        platform_customer_id: Option<String>,
        /// Its address at the platform's domain; made up when left out.
        #[serde(default)]
        #[schema(nullable = false, format = "uma-address", max_length = 400)]
        uma_address: Option<String>,
        /// The platform's statement about its identity; counts only for regulated platforms.
        #[serde(default)]
        #[schema(nullable = false, max_length = 64)]
        kyb_status: Option<String>,
        /// Where it is.
        #[serde(default)]
        #[schema(nullable = false, required = false)]
        address: Option<AddressBody>,
        /// Its entry in the register.
        business_info: BusinessInfoBody,
        /// The persons behind it.
        #[serde(default)]
        #[schema(max_items = 100)]
        beneficial_owners: Vec<BeneficialOwnerBody>,
    }
}

/// The entry of a business in the register.
#[derive(Debug, Default, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase")]
#[schema(as = BusinessInfo)]
pub struct BusinessInfoBody {
    /// Legal name.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    #[schema(format = "name", min_length = 1, max_length = 255, required = true)]
    pub(super) legal_name: String,
    /// Number in the register.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(nullable = false, max_length = 255)]
    pub(super) registration_number: Option<String>,
    /// Tax number.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(nullable = false, max_length = 255)]
    pub(super) tax_id: Option<String>,
}

/// Changes of a business in the register.
#[derive(Debug, Default, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase")]
#[schema(as = UpdateBusinessInfo)]
pub struct UpdateBusinessInfo {
    /// Legal name.
    #[serde(default)]
    #[schema(nullable = false, format = "name", min_length = 1, max_length = 255)]
    legal_name: Option<String>,
    /// Number in the register.
    #[serde(default, deserialize_with = "patch::read")]
    #[schema(value_type = Option<String>, required = false, max_length = 255)]
    registration_number: Patch<String>,
    /// Tax number.
    #[serde(default, deserialize_with = "patch::read")]
    #[schema(value_type = Option<String>, required = false, max_length = 255)]
    tax_id: Patch<String>,
}

/// A person behind a business.
#[derive(Debug, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase")]
#[schema(as = BeneficialOwner)]
pub struct BeneficialOwnerBody {
    /// Full name.
    #[schema(format = "name", min_length = 1, max_length = 255)]
    pub(super) full_name: String,
    /// Why the person has a say.
    #[schema(max_length = 64, example = "DIRECTOR")]
    pub(super) individual_type: String,
    /// E-mail address.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(
        nullable = false,
        max_length = 254,
        pattern = "^[^@\\s]{1,64}@[^@\\s.]+(\\.[^@\\s.]+)+$",
        example = "ada@mail.example"
    )]
    pub(super) email_address: Option<String>,
    /// Phone number, E.164.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(nullable = false, pattern = "^\\+[1-9]\\d{1,14}$")]
    pub(super) phone_number: Option<String>,
    /// Tax number.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(nullable = false, max_length = 255)]
    pub(super) tax_id: Option<String>,
    /// Date of birth.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(nullable = false, format = Date, max_length = 10)]
    pub(super) birth_date: Option<String>,
    /// ISO 3166-1 alpha-2 code.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(nullable = false, format = "iso-3166-1-alpha-2", max_length = 2)]
    pub(super) nationality: Option<String>,
    /// Where the person lives.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(nullable = false, required = false)]
    pub(super) address: Option<AddressBody>,
    /// Share of the business in per cent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<f64>, nullable = false, minimum = 0, maximum = 100)]
    pub(super) percentage_ownership: Option<JsonNumber>,
    /// Position.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(nullable = false, max_length = 255)]
    pub(super) title: Option<String>,
}

/// Changes of a customer; `customerType` must be what it is. Fields that are left out stay.
/// `null` clears a field.
#[derive(Debug, Deserialize, ToSchema)]
#[serde(tag = "customerType")]
pub enum UpdateCustomer {
    /// A person.
    #[serde(rename = "INDIVIDUAL")]
    Individual(UpdateIndividual),
    /// A business.
    #[serde(rename = "BUSINESS")]
    Business(UpdateBusiness),
}

with_contact_change! {
    /// Changes of a person.
    #[derive(Debug, Deserialize, ToSchema)]
    #[serde(rename_all = "camelCase")]
    pub struct UpdateIndividual {
        /// A new address in the place of the old one.
        #[serde(default)]
        #[schema(nullable = false, format = "uma-address", max_length = 400)]
        uma_address: Option<String>,
        /// The platform's statement about its identity; counts only for regulated platforms.
        #[serde(default)]
        #[schema(nullable = false, max_length = 64)]
        kyc_status: Option<String>,
        /// Full name.
        #[serde(default, deserialize_with = "patch::read")]
        #[schema(
            value_type = Option<String>,
            required = false,
            format = "name",
            min_length = 1,
            max_length = 255
        )]
        full_name: Patch<String>,
        /// Date of birth.
        #[serde(default, deserialize_with = "patch::read")]
        #[schema(value_type = Option<String>, required = false, format = Date, max_length = 10)]
        birth_date: Patch<String>,
        /// ISO 3166-1 alpha-2 code.
        #[serde(default, deserialize_with = "patch::read")]
        #[schema(
            value_type = Option<String>,
            required = false,
            format = "iso-3166-1-alpha-2",
            max_length = 2
        )]
        nationality: Patch<String>,
        /// Where the person lives, in the place of the address before.
        #[serde(default, deserialize_with = "patch::read")]
        #[schema(value_type = Option<AddressBody>, required = false)]
        address: Patch<AddressBody>,
    }
}

with_contact_change! {
    /// Changes of a business.
    #[derive(Debug, Deserialize, ToSchema)]
    #[serde(rename_all = "camelCase")]
    pub struct UpdateBusiness {
        /// A new address in the place of the old one.
        #[serde(default)]
        #[schema(nullable = false, format = "uma-address", max_length = 400)]
        uma_address: Option<String>,
        /// The platform's statement about its identity; counts only for regulated platforms.
        #[serde(default)]
        #[schema(nullable = false, max_length = 64)]
        kyb_status: Option<String>,
        /// Where it is, in the place of the address before.
        #[serde(default, deserialize_with = "patch::read")]
        #[schema(value_type = Option<AddressBody>, required = false)]
        address: Patch<AddressBody>,
        /// Its entry in the register.
        #[serde(default)]
        #[schema(nullable = false, required = false)]
        business_info: Option<UpdateBusinessInfo>,
        /// The persons behind it, in the place of those before.
        #[serde(default, deserialize_with = "patch::read")]
        #[schema(value_type = Option<Vec<BeneficialOwnerBody>>, required = false, max_items = 100)]
        beneficial_owners: Patch<Vec<BeneficialOwnerBody>>,
    }
}

schema_of!(CreateCustomer);
patch_of!(UpdateCustomer, "businessInfo");

fn date(checks: &mut Checks, field: &str, text: Option<&str>) -> Option<Date> {
    text.and_then(|text| checks.take(field, Date::parse(text)))
}

fn country(checks: &mut Checks, field: &str, text: Option<&str>) -> Option<Country> {
    text.and_then(|text| checks.take(field, Country::parse(text)))
}

fn address(checks: &mut Checks, path: &str, body: Option<AddressBody>) -> Option<Address> {
    let draft = AddressDraft::from(body?);
    match Address::new(&draft) {
        Ok(address) => Some(address),
        Err(errors) => {
            let errors: Vec<FieldError> = errors;
            checks.part(path, errors.iter().map(Problem::from));
            None
        }
    }
}

fn owners(checks: &mut Checks, bodies: Vec<BeneficialOwnerBody>) -> Vec<BeneficialOwner> {
    let owner = |(index, body): (usize, BeneficialOwnerBody)| {
        let at = |field: &str| format!("beneficialOwners.{index}.{field}");
        let known = OWNER_TYPES.into_iter().find(|known| *known == body.individual_type);
        if known.is_none() {
            let message = format!("must be one of {}", OWNER_TYPES.join(", "));
            checks.refuse(&at("individualType"), message);
        }
        let share = body.percentage_ownership.and_then(|number| {
            let digits = number.to_string();
            let share = Decimal::from_str_exact(&digits).or(Decimal::from_scientific(&digits));
            let share = share.map_err(|_| "must be a number with at most 28 digits");
            checks.take(&at("percentageOwnership"), share)
        });
        Some(BeneficialOwner {
            full_name: body.full_name,
            individual_type: known?,
            email_address: body.email_address,
            phone_number: body.phone_number,
            tax_id: body.tax_id,
            birth_date: date(checks, &at("birthDate"), body.birth_date.as_deref()),
            nationality: country(checks, &at("nationality"), body.nationality.as_deref()),
            address: address(checks, &at("address"), body.address),
            percentage_ownership: share,
            title: body.title,
        })
    };
    bodies.into_iter().enumerate().filter_map(owner).collect()
}

/// The currencies that codes name, each once.
fn currencies(checks: &mut Checks, codes: Vec<String>) -> Vec<Currency> {
    let mut all = Vec::new();
    for (index, code) in codes.iter().enumerate() {
        let field = format!("currencies.{index}");
        let known = |code: &str| Currency::all().find(|currency| currency.code() == code);
        match checks.named_if(&field, Some(code), known) {
            Some(currency) if all.contains(&currency) => checks.refuse(&field, "is given twice"),
            Some(currency) => all.push(currency),
            None => {}
        }
    }
    all
}

fn kyc(checks: &mut Checks, field: &str, text: Option<&str>) -> Option<KycStatus> {
    checks.named_if(field, text, KycStatus::from_name)
}

impl TryFrom<CreateCustomer> for NewCustomer {
    type Error = ApiError;

    fn try_from(body: CreateCustomer) -> Result<Self, ApiError> {
        let mut checks = Checks::new();
        let new = match body {
            CreateCustomer::Individual(body) => Self {
                platform_customer_id: body.platform_customer_id,
                uma_address: body.uma_address,
                kyc_status: kyc(&mut checks, "kycStatus", body.kyc_status.as_deref()),
                identity: Identity::Individual(Individual {
                    full_name: body.full_name,
                    birth_date: date(&mut checks, "birthDate", body.birth_date.as_deref()),
                    nationality: country(&mut checks, "nationality", body.nationality.as_deref()),
                    address: address(&mut checks, "address", body.address),
                    contact: Contact {
                        email: body.email,
                        phone_number: body.phone_number,
                        currencies: currencies(&mut checks, body.currencies),
                    },
                }),
            },
            CreateCustomer::Business(body) => {
                let info = body.business_info;
                Self {
                    platform_customer_id: body.platform_customer_id,
                    uma_address: body.uma_address,
                    kyc_status: kyc(&mut checks, "kybStatus", body.kyb_status.as_deref()),
                    identity: Identity::Business(Business {
                        legal_name: info.legal_name,
                        registration_number: info.registration_number,
                        tax_id: info.tax_id,
                        address: address(&mut checks, "address", body.address),
                        beneficial_owners: owners(&mut checks, body.beneficial_owners),
                        contact: Contact {
                            email: body.email,
                            phone_number: body.phone_number,
                            currencies: currencies(&mut checks, body.currencies),
                        },
                    }),
                }
            }
        };
        checks.finish(Some(new))
    }
}

impl TryFrom<UpdateCustomer> for CustomerChange {
    type Error = ApiError;

    fn try_from(body: UpdateCustomer) -> Result<Self, ApiError> {
        let mut checks = Checks::new();
        let new_address = |checks: &mut Checks, body: Patch<AddressBody>| {
            body.and_then(|body| address(checks, "address", Some(body)))
        };
        let change = match body {
            UpdateCustomer::Individual(body) => Self {
                customer_type: "INDIVIDUAL",
                uma_address: body.uma_address,
                kyc_status: kyc(&mut checks, "kycStatus", body.kyc_status.as_deref()),
                individual: IndividualPatch {
                    full_name: body.full_name,
                    birth_date: checks.patch("birthDate", body.birth_date, Date::parse),
                    nationality: checks.patch("nationality", body.nationality, Country::parse),
                    address: new_address(&mut checks, body.address),
                    contact: ContactPatch {
                        email: body.email,
                        phone_number: body.phone_number,
                        currencies: { body.currencies }.map(|codes| currencies(&mut checks, codes)),
                    },
                },
                business: BusinessPatch::default(),
            },
            UpdateCustomer::Business(body) => {
                let info = body.business_info.unwrap_or_default();
                Self {
                    customer_type: "BUSINESS",
                    uma_address: body.uma_address,
                    kyc_status: kyc(&mut checks, "kybStatus", body.kyb_status.as_deref()),
                    individual: IndividualPatch::default(),
                    business: BusinessPatch {
                        legal_name: info.legal_name,
                        registration_number: info.registration_number,
                        tax_id: info.tax_id,
                        address: new_address(&mut checks, body.address),
                        beneficial_owners: { body.beneficial_owners }
                            .map(|bodies| owners(&mut checks, bodies)),
                        contact: ContactPatch {
                            email: body.email,
                            phone_number: body.phone_number,
                            currencies: { body.currencies }
                                .map(|codes| currencies(&mut checks, codes)),
                        },
                    },
                }
            }
        };
        checks.finish(Some(change))
    }
}
