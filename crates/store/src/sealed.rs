//! How addresses are kept inside sealed columns.

use domain::address::{Address, AddressDraft};
use serde::{Deserialize, Serialize};

/// An address as it is kept.
#[derive(Serialize, Deserialize)]
pub(crate) struct StoredAddress {
    line1: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    line2: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    city: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    state: Option<String>,
    postal_code: Option<String>,
    country: Option<String>,
}

impl StoredAddress {
    pub(crate) fn of(address: &Address) -> Self {
        Self::of_draft(address.to_draft())
    }

    pub(crate) fn of_draft(draft: AddressDraft) -> Self {
        let AddressDraft { line1, line2, city, state, postal_code, country } = draft;
        Self { line1, line2, city, state, postal_code, country }
    }

    pub(crate) fn into_draft(self) -> AddressDraft {
        let Self { line1, line2, city, state, postal_code, country } = self;
        AddressDraft { line1, line2, city, state, postal_code, country }
    }

    pub(crate) fn into_domain(self) -> Option<Address> {
        Address::new(&self.into_draft()).ok()
    }
}

/// Reads an optional part; `None` if it is there and not valid.
pub(crate) fn each<T, U>(value: Option<T>, read: impl FnOnce(T) -> Option<U>) -> Option<Option<U>> {
    value.map_or(Some(None), |value| read(value).map(Some))
}
