//! The beneficiary of an account.

use super::field::{Field, FieldError, FieldReader, birth_error, joined};
use crate::address::{Address, AddressDraft};
use crate::country::Country;
use crate::time::Date;

/// Whether a beneficiary is a person or a business.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum BeneficiaryType {
    /// A person, who has a `fullName`.
    Individual,
    /// A business, which has a `legalName`.
    Business,
}

impl BeneficiaryType {
    /// The name that the API uses.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Individual => "INDIVIDUAL",
            Self::Business => "BUSINESS",
        }
    }

    /// The type with this name.
    fn from_name(name: &str) -> Option<Self> {
        [Self::Individual, Self::Business].into_iter().find(|it| it.name() == name)
    }
}

/// The beneficiary of an account. It was checked.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Beneficiary {
    kind: BeneficiaryType,
    full_name: Option<String>,
    legal_name: Option<String>,
    birth_date: Option<Date>,
    nationality: Option<Country>,
    registration_number: Option<String>,
    tax_id: Option<String>,
    email: Option<String>,
    phone_number: Option<String>,
    country_of_residence: Option<Country>,
    address: Option<Address>,
}

/// A beneficiary as a client wrote it.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct BeneficiaryDraft {
    /// `INDIVIDUAL` or `BUSINESS`.
    pub beneficiary_type: Option<String>,
    /// Full name of a person.
    pub full_name: Option<String>,
    /// Registered name of a business.
    pub legal_name: Option<String>,
    /// Date of birth of a person.
    pub birth_date: Option<String>,
    /// Nationality of a person.
    pub nationality: Option<String>,
    /// Number in the register of companies.
    pub registration_number: Option<String>,
    /// Tax number.
    pub tax_id: Option<String>,
    /// E-mail address.
    pub email: Option<String>,
    /// Phone number.
    pub phone_number: Option<String>,
    /// Country of residence.
    pub country_of_residence: Option<String>,
    /// Postal address.
    pub address: Option<AddressDraft>,
}

impl Beneficiary {
    /// Checks the beneficiary at `path`; `None` exactly if something was added to `errors`.
    pub(super) fn read(
        draft: &BeneficiaryDraft,
        individual_needs: &'static [&'static str],
        path: &str,
        errors: &mut Vec<FieldError>,
    ) -> Option<Self> {
        let mut reader = FieldReader::new(BENEFICIARY, path, errors);
        let kind = reader.text("beneficiaryType", draft.beneficiary_type.as_deref());
        let kind = match kind.as_deref() {
            Some("INDIVIDUAL") => Some(BeneficiaryType::Individual),
            Some(_) => Some(BeneficiaryType::Business),
            None => None,
        };
        reader.needs = match kind {
            Some(BeneficiaryType::Individual) => individual_needs,
            Some(BeneficiaryType::Business) => &["legalName"],
            None => &[],
        };
        let full_name = reader.text("fullName", draft.full_name.as_deref());
        let legal_name = reader.text("legalName", draft.legal_name.as_deref());
        let birth_date = reader.date("birthDate", draft.birth_date.as_deref());
        let nationality = reader.country("nationality", draft.nationality.as_deref());
        let registration_number =
            reader.text("registrationNumber", draft.registration_number.as_deref());
        let tax_id = reader.text("taxId", draft.tax_id.as_deref());
        let email = reader.text("email", draft.email.as_deref());
        let phone_number = reader.text("phoneNumber", draft.phone_number.as_deref());
        let country_of_residence =
            reader.country("countryOfResidence", draft.country_of_residence.as_deref());
        let clean = reader.is_clean();
        let address = match &draft.address {
            Some(address) => Some(Address::read(address, &joined(path, "address"), errors)?),
            None => None,
        };
        clean.then_some(())?;
        Some(Self {
            kind: kind?,
            full_name,
            legal_name,
            birth_date,
            nationality,
            registration_number,
            tax_id,
            email,
            phone_number,
            country_of_residence,
            address,
        })
    }

    /// A beneficiary that was checked when it was new. `None` if it is none of ours.
    pub(super) fn restore(draft: BeneficiaryDraft) -> Option<Self> {
        let country = |code: Option<String>| code.map(|it| Country::parse(&it)).transpose().ok();
        Some(Self {
            kind: BeneficiaryType::from_name(draft.beneficiary_type.as_deref()?)?,
            full_name: draft.full_name,
            legal_name: draft.legal_name,
            birth_date: draft.birth_date.map(|date| Date::parse(&date)).transpose().ok()?,
            nationality: country(draft.nationality)?,
            registration_number: draft.registration_number,
            tax_id: draft.tax_id,
            email: draft.email,
            phone_number: draft.phone_number,
            country_of_residence: country(draft.country_of_residence)?,
            address: draft.address.map(|it| Address::new(&it)).transpose().ok()?,
        })
    }

    /// Implausible values on `today`, at `path`.
    pub(super) fn implausible(&self, today: Date, path: &str) -> Option<FieldError> {
        let birth_date = self.birth_date?;
        birth_error(birth_date, today, &joined(path, "birthDate"))
    }

    /// The beneficiary as a client would write it, for storage and answers.
    pub fn to_draft(&self) -> BeneficiaryDraft {
        let code = |country: Country| country.code().to_owned();
        BeneficiaryDraft {
            beneficiary_type: Some(self.kind.name().to_owned()),
            full_name: self.full_name.clone(),
            legal_name: self.legal_name.clone(),
            birth_date: self.birth_date.map(|date| date.to_string()),
            nationality: self.nationality.map(code),
            registration_number: self.registration_number.clone(),
            tax_id: self.tax_id.clone(),
            email: self.email.clone(),
            phone_number: self.phone_number.clone(),
            country_of_residence: self.country_of_residence.map(code),
            address: self.address.as_ref().map(Address::to_draft),
        }
    }

    /// Person or business.
    pub fn kind(&self) -> BeneficiaryType {
        self.kind
    }

    /// The name that the account's holder goes by: a person's full name, a business's legal name.
    pub fn name(&self) -> &str {
        let name = match self.kind {
            BeneficiaryType::Individual => &self.full_name,
            BeneficiaryType::Business => &self.legal_name,
        };
        name.as_deref().unwrap_or_default()
    }

    /// Full name of a person.
    pub fn full_name(&self) -> Option<&str> {
        self.full_name.as_deref()
    }

    /// Registered name of a business.
    pub fn legal_name(&self) -> Option<&str> {
        self.legal_name.as_deref()
    }

    /// Date of birth of a person.
    pub fn birth_date(&self) -> Option<Date> {
        self.birth_date
    }

    /// Nationality of a person.
    pub fn nationality(&self) -> Option<Country> {
        self.nationality
    }

    /// Number in the register of companies.
    pub fn registration_number(&self) -> Option<&str> {
        self.registration_number.as_deref()
    }

    /// Tax number.
    pub fn tax_id(&self) -> Option<&str> {
        self.tax_id.as_deref()
    }

    /// E-mail address.
    pub fn email(&self) -> Option<&str> {
        self.email.as_deref()
    }

    /// Phone number.
    pub fn phone_number(&self) -> Option<&str> {
        self.phone_number.as_deref()
    }

    /// Country of residence.
    pub fn country_of_residence(&self) -> Option<Country> {
        self.country_of_residence
    }

    /// Postal address.
    pub fn address(&self) -> Option<&Address> {
        self.address.as_ref()
    }
}

/// The fields of a beneficiary besides its address ([`Address::fields`]). Which of them a person
/// must have depends on the account type (`Holder::Beneficiary`).
pub fn beneficiary_fields() -> &'static [Field] {
    BENEFICIARY
}

/// An address at a domain of at least two labels, none of them empty.
const EMAIL: &str = "^[^@\\s]{1,64}@[^@\\s.]+(\\.[^@\\s.]+)+$";

/// The fields of a beneficiary. Names are optional here because which one is needed depends on
/// the kind of beneficiary.
static BENEFICIARY: &[Field] = &[
    Field::text("beneficiaryType", "Person or business", "INDIVIDUAL")
        .values(&["INDIVIDUAL", "BUSINESS"]),
    Field::text("fullName", "Full name of a person", "Maria da Silva").optional(),
    Field::text("legalName", "Registered name of a business", "Silva Comércio Ltda").optional(),
    Field::text("birthDate", "Date of birth of a person", "1990-05-17")
        .pattern("^[0-9]{4}-[0-9]{2}-[0-9]{2}$", 10, 10)
        .date()
        .optional(),
    Field::country("nationality", "Nationality of a person, ISO 3166-1 alpha-2", "BR").optional(),
    Field::text("registrationNumber", "Number in the register of companies", "33000167000101")
        .optional(),
    Field::text("taxId", "Tax number", "11222333000181").optional(),
    Field::text("email", "E-mail address", "maria@mail.example").pattern(EMAIL, 6, 254).optional(),
    Field::text("phoneNumber", "Phone number with country code", "+5511987654321")
        .pattern("^\\+?[0-9][0-9 ().\\-]{4,30}$", 5, 32)
        .optional(),
    Field::country("countryOfResidence", "Country of residence, ISO 3166-1 alpha-2", "BR")
        .optional(),
];
