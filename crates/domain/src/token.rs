//! API tokens and what they permit (specification 2.12, 5; design decision 8).

use std::fmt;

use crate::id::{PlatformId, TokenId};
use crate::time::Timestamp;

/// One thing a token may do. None implies another.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Permission {
    /// Read everything.
    View,
    /// Move money.
    Transact,
    /// Change configuration, tokens, customers and external accounts.
    Manage,
}

impl Permission {
    /// Every permission.
    pub const ALL: [Self; 3] = [Self::View, Self::Transact, Self::Manage];

    /// The name that the API uses.
    pub const fn name(self) -> &'static str {
        match self {
            Self::View => "VIEW",
            Self::Transact => "TRANSACT",
            Self::Manage => "MANAGE",
        }
    }

    /// The permission with this API name.
    pub fn from_name(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|permission| permission.name() == name)
    }

    const fn bit(self) -> u8 {
        match self {
            Self::View => 1,
            Self::Transact => 2,
            Self::Manage => 4,
        }
    }
}

impl fmt::Display for Permission {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.name())
    }
}

/// A set of permissions; may be empty.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Permissions(u8);

impl Permissions {
    /// All three.
    pub const ALL: Self = Self(7);

    /// Whether the set holds `permission`.
    pub const fn contains(self, permission: Permission) -> bool {
        self.0 & permission.bit() != 0
    }

    /// The members, in the order of [`Permission::ALL`].
    pub fn iter(self) -> impl Iterator<Item = Permission> {
        Permission::ALL.into_iter().filter(move |permission| self.contains(*permission))
    }

    /// The members of this set that `other` lacks.
    pub const fn without(self, other: Self) -> Self {
        Self(self.0 & !other.0)
    }

    /// Whether there is no member.
    pub const fn is_empty(self) -> bool {
        self.0 == 0
    }

    /// The set as a number for storage.
    pub const fn bits(self) -> u8 {
        self.0
    }

    /// The set from its number; `None` for a number that no set has.
    pub const fn from_bits(bits: u8) -> Option<Self> {
        if bits <= Self::ALL.0 { Some(Self(bits)) } else { None }
    }
}

impl FromIterator<Permission> for Permissions {
    fn from_iter<I: IntoIterator<Item = Permission>>(permissions: I) -> Self {
        Self(permissions.into_iter().fold(0, |bits, permission| bits | permission.bit()))
    }
}

/// A credential of a platform. The secret itself is never kept, only a keyed hash of it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Token {
    /// System id.
    pub id: TokenId,
    /// The platform that it speaks for.
    pub platform: PlatformId,
    /// Label for people.
    pub name: String,
    /// Its permissions.
    pub permissions: Permissions,
    /// User name in Basic authentication.
    pub client_id: String,
    /// Keyed hash of the password.
    pub secret_hash: [u8; 32],
    /// When it was made.
    pub created_at: Timestamp,
    /// When it was last changed.
    pub updated_at: Timestamp,
    /// Whether it was deleted; a revoked token authenticates no client and is not shown.
    pub revoked: bool,
}

impl Token {
    /// Takes note of a change. Its times never go back, although the clock may.
    pub fn touch(&mut self, now: Timestamp) {
        self.updated_at = now.max(self.updated_at);
    }
}
