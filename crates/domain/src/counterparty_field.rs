//! Facts about the other side of a payment, by the names under which they are asked for (contract
//! 5).

/// Names of facts about a person or business that may be asked for (contract 5).
pub const COUNTERPARTY_FIELDS: [&str; 16] = [
    "FULL_NAME",
    "BIRTH_DATE",
    "NATIONALITY",
    "PHONE_NUMBER",
    "EMAIL",
    "POSTAL_ADDRESS",
    "TAX_ID",
    "REGISTRATION_NUMBER",
    "USER_TYPE",
    "COUNTRY_OF_RESIDENCE",
    "ACCOUNT_IDENTIFIER",
    "FI_LEGAL_ENTITY_NAME",
    "FI_ADDRESS",
    "PURPOSE_OF_PAYMENT",
    "ULTIMATE_INSTITUTION_COUNTRY",
    "IDENTIFIER",
];

/// A fact that the platform asks of counterparties.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct CounterpartyField {
    /// One of [`COUNTERPARTY_FIELDS`].
    pub name: &'static str,
    /// Whether a payment without it is refused.
    pub mandatory: bool,
}
