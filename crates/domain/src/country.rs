//! Countries, by their ISO 3166-1 alpha-2 codes.

use std::fmt;

/// A country that ISO 3166-1 lists. Compares and orders by its code.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Country(&'static str);

/// A text that is not the code of a country.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("'{0}' is not an ISO 3166-1 alpha-2 country code such as US")]
pub struct InvalidCountry(String);

impl Country {
    /// Reads a code of two capitals. Small letters are refused, as in ISO 3166-1 itself, so that a
    /// country has one spelling in everything that is stored and compared.
    pub fn parse(text: &str) -> Result<Self, InvalidCountry> {
        rust_iso3166::from_alpha2(text)
            .map(|country| Self(country.alpha2))
            .ok_or_else(|| InvalidCountry(text.chars().take(8).collect()))
    }

    /// Every country, in the order of the English short names.
    pub fn all() -> impl Iterator<Item = Self> {
        rust_iso3166::ALL.iter().map(|country| Self(country.alpha2))
    }

    /// The alpha-2 code.
    pub const fn code(self) -> &'static str {
        self.0
    }

    /// The English short name.
    pub fn name(self) -> &'static str {
        rust_iso3166::from_alpha2(self.0).map_or(self.0, |country| country.name)
    }
}

impl fmt::Display for Country {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.0)
    }
}

impl fmt::Debug for Country {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_country_is_in_the_list_once() {
        let codes: std::collections::BTreeSet<_> = Country::all().map(Country::code).collect();
        assert_eq!((codes.len(), Country::all().count()), (249, 249));
        assert!(Country::all().all(|country| Country::parse(country.code()) == Ok(country)));
    }

    #[test]
    fn only_codes_of_iso_3166_are_countries() {
        let country = Country::parse("BR").expect("a country");
        assert_eq!((country.code(), country.name()), ("BR", "Brazil"));
        assert_eq!(country.to_string(), "BR");
        for wrong in ["", "br", "Brazil", "BRA", "ZZ", "EU", "B", "BR ", "ＢＲ"] {
            assert!(Country::parse(wrong).is_err(), "{wrong}");
        }
        assert_eq!(
            Country::parse("nowhere at all").map_err(|error| error.to_string()),
            Err("'nowhere ' is not an ISO 3166-1 alpha-2 country code such as US".into())
        );
    }
}
