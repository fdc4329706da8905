//! Names of data about a party.

use proptest::prelude::*;
use uma::data::{protocol_key, specification_name};

use crate::support::{demands, facts};

#[test]
fn keys_have_the_names_of_the_specification() {
    for (key, name) in [
        ("name", "FULL_NAME"),
        ("email", "EMAIL"),
        ("birthDate", "BIRTH_DATE"),
        ("nationality", "NATIONALITY"),
        ("countryOfResidence", "COUNTRY_OF_RESIDENCE"),
        ("phoneNumber", "PHONE_NUMBER"),
        ("fiLegalEntityName", "FI_LEGAL_ENTITY_NAME"),
        ("address", "ADDRESS"),
        ("taxId", "TAX_ID"),
        ("registrationNumber", "REGISTRATION_NUMBER"),
        ("accountNumber", "ACCOUNT_IDENTIFIER"),
        ("userType", "USER_TYPE"),
        ("fiAddress", "FI_ADDRESS"),
        ("purposeOfPayment", "PURPOSE_OF_PAYMENT"),
        ("ultimateInstitutionCountry", "ULTIMATE_INSTITUTION_COUNTRY"),
        ("shoeSize2", "SHOE_SIZE2"),
    ] {
        assert_eq!(specification_name(key), name);
        assert_eq!(protocol_key(name), key);
    }
}

#[test]
fn demands_name_the_facts_that_are_missing() {
    let demands = demands(&[
        ("compliance", true),
        ("email", false),
        ("identifier", true),
        ("name", true),
        ("taxId", true),
    ]);
    assert_eq!(demands.missing_in(&facts(&[("name", "Alice")])), ["taxId"]);
    assert_eq!(demands.missing_in(&facts(&[])), ["name", "taxId"]);
}

proptest! {
    #[test]
    fn keys_come_back(key in "[a-z][a-z0-9]{0,5}([A-Z][a-z0-9]{0,5}){0,3}") {
        // These two are spelled like names that mean another key.
        prop_assume!(!["fullName", "accountIdentifier"].contains(&key.as_str()));
        prop_assert_eq!(protocol_key(&specification_name(&key)), key);
    }

    #[test]
    fn names_come_back(name in "[A-Z][A-Z0-9]{0,5}(_[A-Z][A-Z0-9]{0,5}){0,3}") {
        prop_assume!(!["NAME", "ACCOUNT_NUMBER"].contains(&name.as_str()));
        prop_assert_eq!(specification_name(&protocol_key(&name)), name);
    }

    #[test]
    fn every_text_has_a_name_and_a_key(text in ".{0,40}") {
        specification_name(&text);
        protocol_key(&text);
    }
}
