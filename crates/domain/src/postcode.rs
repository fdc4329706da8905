//! Countries in which mail has no postal code, or where most addresses have none.

use crate::country::Country;

/// Countries without a postal code in general use: those whose address format in Google's
/// libaddressinput, which follows the country pages of the Universal Postal Union, has none.
pub const WITHOUT: &[&str] = &[
    "AE", "AG", "AO", "AW", "BF", "BI", "BJ", "BO", "BQ", "BS", "BW", "BZ", "CD", "CF", "CG", "CI",
    "CK", "CM", "CW", "DJ", "DM", "ER", "FJ", "GA", "GD", "GH", "GM", "GQ", "GY", "HK", "JM", "KI",
    "KM", "KN", "KP", "LY", "ML", "MO", "MR", "MW", "NR", "NU", "PA", "QA", "RW", "SB", "SC", "SL",
    "SR", "SS", "ST", "SX", "SY", "TD", "TF", "TG", "TK", "TL", "TO", "TT", "TV", "TZ", "UG", "VU",
    "WS", "YE", "ZW",
];

/// Whether an address in this country has a postal code, so that one without it is incomplete.
pub fn has_postal_codes(country: Country) -> bool {
    !WITHOUT.contains(&country.code())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_entry_is_a_country_and_stands_in_order() {
        assert!(WITHOUT.is_sorted());
        for code in WITHOUT {
            assert!(!has_postal_codes(Country::parse(code).expect(code)), "{code}");
        }
        for code in ["US", "IE", "BR", "DE", "SG", "IN", "GB", "MX", "SA"] {
            assert!(has_postal_codes(Country::parse(code).expect(code)), "{code}");
        }
    }
}
