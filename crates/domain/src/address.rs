//! Postal addresses (specification 2.7).

use crate::account_info::{Field, FieldError, FieldReader};
use crate::country::Country;
use crate::postcode::has_postal_codes;

/// A postal address that was checked.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Address {
    line1: String,
    line2: Option<String>,
    city: Option<String>,
    state: Option<String>,
    postal_code: Option<String>,
    country: Country,
}

/// An address as a client wrote it.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct AddressDraft {
    /// Street and number.
    pub line1: Option<String>,
    /// Flat, floor or building.
    pub line2: Option<String>,
    /// City or town.
    pub city: Option<String>,
    /// State, province or region.
    pub state: Option<String>,
    /// Postal code.
    pub postal_code: Option<String>,
    /// ISO 3166-1 alpha-2 code.
    pub country: Option<String>,
}

/// The fields of an address and their limits, for validation and documents alike.
static FIELDS: &[Field] = &[
    Field::text("line1", "Street and number", "Rua das Flores 123"),
    Field::text("line2", "Flat, floor or building", "Apartment 4").optional(),
    Field::text("city", "City or town", "São Paulo").optional(),
    Field::text("state", "State, province or region", "SP").optional(),
    Field::text("postalCode", "Postal code; required where the country has them", "01310-100")
        .lengths(1, 20)
        .optional(),
    Field::country("country", "Country, ISO 3166-1 alpha-2", "BR"),
];

impl Address {
    /// The fields of an address and their limits.
    pub fn fields() -> &'static [Field] {
        FIELDS
    }

    /// Checks an address and reports everything that is wrong with it.
    pub fn new(draft: &AddressDraft) -> Result<Self, Vec<FieldError>> {
        let mut errors = Vec::new();
        Self::read(draft, "", &mut errors).ok_or(errors)
    }

    /// Checks the address at `path`. `None` exactly if something was added to `errors`.
    pub(crate) fn read(
        draft: &AddressDraft,
        path: &str,
        errors: &mut Vec<FieldError>,
    ) -> Option<Self> {
        let mut reader = FieldReader::new(FIELDS, path, errors);
        let line1 = reader.text("line1", draft.line1.as_deref());
        let line2 = reader.text("line2", draft.line2.as_deref());
        let city = reader.text("city", draft.city.as_deref());
        let state = reader.text("state", draft.state.as_deref());
        let country = reader.country("country", draft.country.as_deref());
        // A country that is not known may have them.
        if country.is_none_or(has_postal_codes) {
            reader.needs = &["postalCode"];
        }
        let postal_code = reader.text("postalCode", draft.postal_code.as_deref());
        reader.is_clean().then_some(())?;
        Some(Self { line1: line1?, line2, city, state, postal_code, country: country? })
    }

    /// The address as a client would write it, for storage and answers.
    pub fn to_draft(&self) -> AddressDraft {
        AddressDraft {
            line1: Some(self.line1.clone()),
            line2: self.line2.clone(),
            city: self.city.clone(),
            state: self.state.clone(),
            postal_code: self.postal_code.clone(),
            country: Some(self.country.code().to_owned()),
        }
    }

    /// The whole of it in one line, from the street to the country.
    pub fn line(&self) -> String {
        let Self { line1, line2, city, state, postal_code, country } = self;
        let middle = [line2, city, state, postal_code].into_iter().filter_map(Option::as_deref);
        let parts = [line1.as_str()].into_iter().chain(middle);
        parts.chain([country.code()]).collect::<Vec<_>>().join(", ")
    }

    /// Street and number.
    pub fn line1(&self) -> &str {
        &self.line1
    }

    /// Flat, floor or building.
    pub fn line2(&self) -> Option<&str> {
        self.line2.as_deref()
    }

    /// City or town.
    pub fn city(&self) -> Option<&str> {
        self.city.as_deref()
    }

    /// State, province or region.
    pub fn state(&self) -> Option<&str> {
        self.state.as_deref()
    }

    /// Postal code, where the country has them.
    pub fn postal_code(&self) -> Option<&str> {
        self.postal_code.as_deref()
    }

    /// The country.
    pub fn country(&self) -> Country {
        self.country
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::account_info::Rule;

    #[test]
    fn an_address_is_kept_as_it_was_written() {
        let draft = AddressDraft {
            line1: Some("Rua das Flores 123".into()),
            city: Some("São Paulo".into()),
            postal_code: Some("01310-100".into()),
            country: Some("BR".into()),
            ..AddressDraft::default()
        };
        let address = Address::new(&draft).expect("valid");
        assert_eq!((address.line1(), address.line2()), ("Rua das Flores 123", None));
        assert_eq!((address.city(), address.state()), (Some("São Paulo"), None));
        assert_eq!((address.postal_code(), address.country().code()), (Some("01310-100"), "BR"));
        assert_eq!(address.to_draft(), draft);
    }

    #[test]
    fn everything_wrong_is_reported_at_once() {
        let draft = AddressDraft {
            line2: Some("x".repeat(256)),
            city: Some(String::new()),
            state: Some("S\u{0}P".into()),
            country: Some("br".into()),
            ..AddressDraft::default()
        };
        let errors = Address::new(&draft).expect_err("invalid");
        let found: Vec<_> =
            errors.iter().map(|error| (error.field.as_str(), error.rule.clone())).collect();
        assert_eq!(
            found,
            [
                ("line1", Rule::Required),
                ("line2", Rule::MaxLength(255)),
                ("city", Rule::MinLength(1)),
                ("state", Rule::Other),
                ("country", Rule::Format("iso-3166-1-alpha-2")),
                ("postalCode", Rule::Required),
            ]
        );
    }

    #[test]
    fn a_postal_code_is_asked_for_where_there_are_any() {
        let address = |country: &str, postal_code: Option<&str>| {
            Address::new(&AddressDraft {
                line1: Some("1 High St".into()),
                postal_code: postal_code.map(str::to_owned),
                country: Some(country.into()),
                ..AddressDraft::default()
            })
        };
        let hong_kong = address("HK", None).expect("Hong Kong has none");
        assert_eq!(hong_kong.postal_code(), None);
        assert_eq!(hong_kong.line(), "1 High St, HK");
        // Forms that ask for one are filled in somehow.
        assert_eq!(address("AE", Some("00000")).expect("kept").postal_code(), Some("00000"));
        for country in ["GB", "US", "IE", "SG"] {
            let errors = address(country, None).expect_err("it has them");
            assert_eq!((errors.len(), errors[0].field.as_str()), (1, "postalCode"), "{country}");
        }
    }
}
