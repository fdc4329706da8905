//! The table of account types. Its rows are in `entries`, what rows share in `fields`.

mod entries;
mod fields;

use self::entries::TYPES;
use super::field::{Field, FieldError, Rule};
use crate::currency::Currency;
use crate::rail::Rail;

/// One kind of bank account or wallet.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct AccountType {
    /// The value of `accountType`.
    pub name: &'static str,
    /// Its name, for people.
    pub title: &'static str,
    /// Codes of the currencies it holds; the first is meant when nothing else is said.
    pub currencies: &'static [&'static str],
    /// The rails that reach it.
    pub rails: &'static [Rail],
    /// Its fields, besides `accountType`, `paymentRails` and `beneficiary`.
    pub fields: &'static [Field],
    /// Values of `cryptoNetwork` that fit; the first is the main network. Empty for bank accounts.
    pub networks: &'static [&'static str],
    /// Whether `cryptoNetwork` must be named (specification 2.8): one address is valid on several
    /// networks, and money that is sent on another one is lost.
    pub needs_network: bool,
    /// Its holder.
    pub holder: Holder,
    /// Whether money can be pulled out of it. A wallet has to send by itself.
    pub can_pull: bool,
    /// Fields of payment instructions of this type (`accountOrWalletInfo`), besides
    /// `accountType` and, for bank accounts, `paymentRails`. Empty examples are values that the
    /// server makes.
    pub instruction_fields: &'static [Field],
}

/// The holder of an account.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Holder {
    /// A person or business that must be named.
    Beneficiary {
        /// The fields that a person must have; a business needs its `legalName`.
        individual_needs: &'static [&'static str],
    },
    /// The holder of the keys. A beneficiary may be given and is kept.
    Wallet,
}

/// Every account type, in the order in which documents list them.
pub fn types() -> &'static [AccountType] {
    TYPES
}

/// Whether a kind of account holds a currency, so that a rail can move it. A currency without one
/// can be held here, and moves between accounts here.
pub fn has_rail(currency: Currency) -> bool {
    TYPES.iter().any(|kind| kind.holds(currency))
}

impl AccountType {
    /// The type with this name, which may be one of before 2026-02-23.
    pub fn from_name(name: &str) -> Option<&'static Self> {
        let name =
            ALIASES.iter().find(|(alias, _)| *alias == name).map_or(name, |(_, current)| current);
        TYPES.iter().find(|kind| kind.name == name)
    }

    /// The `cryptoNetwork` of an account of this type, by the name that was given. The error's path
    /// is that of `cryptoNetwork`, which stands beside `accountInfo` and not in it.
    pub fn network(&self, named: Option<&str>) -> Result<Option<&'static str>, FieldError> {
        let refuse =
            |rule, message| Err(FieldError { field: "cryptoNetwork".to_owned(), rule, message });
        let (name, networks) = (self.name, self.networks.join(", "));
        let Some(named) = named else {
            let message = format!("is required for a {name}: one of {networks}");
            return if self.needs_network { refuse(Rule::Required, message) } else { Ok(None) };
        };
        match self.networks.iter().copied().find(|network| *network == named) {
            Some(network) => Ok(Some(network)),
            None if self.networks.is_empty() => {
                let message = format!("must be left out for a {name}, which is not a wallet");
                refuse(Rule::Other, message)
            }
            None => {
                let message = format!("must be one of {networks} for a {name}");
                refuse(Rule::Enum(self.networks.to_vec()), message)
            }
        }
    }

    /// A network that wallets of any type are on, by its name.
    pub fn known_network(name: &str) -> Option<&'static str> {
        TYPES.iter().flat_map(|kind| kind.networks).copied().find(|network| *network == name)
    }

    /// Whether accounts of this type are wallets on a network.
    pub fn is_on(&self, network: &str) -> bool {
        self.networks.contains(&network)
    }

    /// Whether accounts of this type hold `currency`.
    pub fn holds(&self, currency: Currency) -> bool {
        self.currencies.contains(&currency.code())
    }

    /// Whether this is a wallet and not an account at a bank or provider.
    pub fn is_wallet(&self) -> bool {
        self.holder == Holder::Wallet
    }

    /// The rails that reach any account of this type: besides those of the type, those of accounts
    /// with an IBAN outside of SEPA.
    pub fn every_rail(&self) -> Vec<Rail> {
        let elsewhere = if self.field("iban").is_some() { OUTSIDE_SEPA } else { &[] };
        self.rails.iter().chain(elsewhere).copied().collect()
    }

    pub(super) fn field(&self, name: &str) -> Option<&'static Field> {
        self.fields.iter().find(|field| field.name == name)
    }
}

/// The rails of an account whose IBAN is of a country that SEPA does not reach.
pub(super) const OUTSIDE_SEPA: &[Rail] = &[Rail::BankTransfer];

/// Names that account types had before 2026-02-23. Old clients still send them; nothing here
/// answers with them.
pub(super) const ALIASES: [(&str, &str); 5] = [
    ("US_ACCOUNT", "USD_ACCOUNT"),
    ("PIX", "BRL_ACCOUNT"),
    ("CLABE", "MXN_ACCOUNT"),
    ("IBAN", "EUR_ACCOUNT"),
    ("UPI", "INR_ACCOUNT"),
];
