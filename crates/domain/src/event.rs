//! Things that happened and that a platform is told (specification 6; design decision 10).

use std::fmt;

use uuid::Uuid;

use crate::id::{EventId, PlatformId};
use crate::time::Timestamp;

/// What an event is about; the `type` of its envelope. The store keeps the place of a kind among
/// these, so a new one comes last.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum EventKind {
    /// An incoming transaction has a new status.
    IncomingPayment,
    /// An outgoing transaction has a new status.
    OutgoingPayment,
    /// Somebody has claimed an invitation.
    InvitationClaimed,
    /// What is known of a customer's identity is final, for now.
    KycStatus,
    /// What is available on an internal account has changed.
    AccountStatus,
    /// An endpoint was set, or is tried out. One that is tried out is stored nowhere.
    Test,
    /// An import of many customers has ended.
    BulkUpload,
}

impl EventKind {
    /// Every kind.
    pub const ALL: [Self; 7] = [
        Self::IncomingPayment,
        Self::OutgoingPayment,
        Self::InvitationClaimed,
        Self::KycStatus,
        Self::AccountStatus,
        Self::Test,
        Self::BulkUpload,
    ];

    /// The name in the envelope.
    pub const fn name(self) -> &'static str {
        match self {
            Self::IncomingPayment => "INCOMING_PAYMENT",
            Self::OutgoingPayment => "OUTGOING_PAYMENT",
            Self::InvitationClaimed => "INVITATION_CLAIMED",
            Self::KycStatus => "KYC_STATUS",
            Self::AccountStatus => "ACCOUNT_STATUS",
            Self::Test => "TEST",
            Self::BulkUpload => "BULK_UPLOAD",
        }
    }

    /// The kind with this name.
    pub fn from_name(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|kind| kind.name() == name)
    }
}

impl fmt::Display for EventKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.name())
    }
}

/// One event, committed with the change that caused it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Event {
    /// Derived from what changed, see [`event_id`].
    pub id: EventId,
    /// Who is told.
    pub platform: PlatformId,
    /// What it is about.
    pub kind: EventKind,
    /// Uuid of the resource that changed.
    pub resource: Uuid,
    /// Number of the change within that resource, from 1.
    pub number: u32,
    /// When it changed.
    pub at: Timestamp,
    /// The bytes that are sent, rendered once.
    pub body: Vec<u8>,
}

/// Namespace of derived event ids.
const NAMESPACE: Uuid = Uuid::from_u128(0x5a1e_77c1_0b6e_4f0e_9d0a_5157_17c4_7a2d);

/// The id of the event for change `number` of `resource`: the same after a replay, a restore or a
/// rebuild, so that a receiver can tell a repeat (reliability 2.4, E2).
pub fn event_id(resource: Uuid, number: u32) -> EventId {
    let mut name = [0_u8; 20];
    name[..16].copy_from_slice(resource.as_bytes());
    name[16..].copy_from_slice(&number.to_be_bytes());
    EventId::from_uuid(Uuid::new_v5(&NAMESPACE, &name))
}
