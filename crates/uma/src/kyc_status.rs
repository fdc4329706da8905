//! The identity status that an institution states of its customer (UMAD-04, UMAD-05).

/// The identity status of a party.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum KycStatus {
    /// It is not said, or in a word that is not known.
    Unknown,
    /// The identity was not verified.
    NotVerified,
    /// The check is under way.
    Pending,
    /// The identity was verified.
    Verified,
}

impl KycStatus {
    /// Every status.
    pub const ALL: [Self; 4] = [Self::Unknown, Self::NotVerified, Self::Pending, Self::Verified];

    /// The name in messages.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Unknown => "UNKNOWN",
            Self::NotVerified => "NOT_VERIFIED",
            Self::Pending => "PENDING",
            Self::Verified => "VERIFIED",
        }
    }

    /// The status with this name; `Unknown` if there is none.
    pub fn from_name(name: &str) -> Self {
        let known = Self::ALL.into_iter().find(|status| status.name() == name);
        known.unwrap_or(Self::Unknown)
    }
}
