//! Things that happened and of which a platform is notified (specification 6; design decision 10).

use std::fmt;

use uuid::Uuid;

use crate::bulk_import;
use crate::customer::KycStatus;
use crate::id::{EventId, PlatformId};
use crate::time::Timestamp;
use crate::transaction::{self, Direction};

/// The kind of an event; the `type` of its envelope. The store keeps the place of a kind among
/// these, so a new one comes last.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum EventKind {
    /// An incoming transaction has a new status.
    IncomingPayment,
    /// An outgoing transaction has a new status.
    OutgoingPayment,
    /// A person has claimed an invitation.
    InvitationClaimed,
    /// A customer's identity status is final, for now.
    KycStatus,
    /// The available balance of an internal account has changed.
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

    /// The kind of an event by the `type` of its envelope, however its platform names events.
    pub fn of_type(name: &str) -> Option<Self> {
        match name.split_once('.') {
            Some(("CUSTOMER", _)) => Some(Self::KycStatus),
            Some(("INTERNAL_ACCOUNT", _)) => Some(Self::AccountStatus),
            Some(("INVITATION", _)) => Some(Self::InvitationClaimed),
            Some((kind, _)) => Self::from_name(kind),
            None => Self::from_name(name),
        }
    }
}

/// How a platform's events are named in their envelope.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum EventNames {
    /// By kind alone, as in the specification (section 6): `INVITATION_CLAIMED`.
    Plain,
    /// By kind and state, as receivers of the hosted API of the same version expect them (contract
    /// 7.2): `INVITATION.CLAIMED`.
    Dotted,
}

impl EventNames {
    /// Both.
    pub const ALL: [Self; 2] = [Self::Plain, Self::Dotted];

    /// The name in storage and on the command line.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Plain => "plain",
            Self::Dotted => "dotted",
        }
    }

    /// The naming with this name.
    pub fn from_name(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|names| names.name() == name)
    }
}

/// The dotted name of an event of a payment with this status. The hosted API has no names for
/// money that a receiver refused or gave back: those tell of the nearest end that it names.
pub const fn dotted_payment(direction: Direction, status: transaction::Status) -> &'static str {
    use transaction::Status::{
        Completed, Created, Expired, Failed, Pending, Processing, Refunded, Rejected,
    };
    match (direction, status) {
        (Direction::Incoming, Created) => "INCOMING_PAYMENT.CREATED",
        (Direction::Incoming, Pending) => "INCOMING_PAYMENT.PENDING",
        (Direction::Incoming, Processing) => "INCOMING_PAYMENT.PROCESSING",
        (Direction::Incoming, Completed) => "INCOMING_PAYMENT.COMPLETED",
        (Direction::Incoming, Rejected | Failed | Refunded | Expired) => "INCOMING_PAYMENT.FAILED",
        (Direction::Outgoing, Created | Pending) => "OUTGOING_PAYMENT.PENDING",
        (Direction::Outgoing, Processing) => "OUTGOING_PAYMENT.PROCESSING",
        (Direction::Outgoing, Completed) => "OUTGOING_PAYMENT.COMPLETED",
        (Direction::Outgoing, Rejected | Failed) => "OUTGOING_PAYMENT.FAILED",
        (Direction::Outgoing, Expired) => "OUTGOING_PAYMENT.EXPIRED",
        (Direction::Outgoing, Refunded) => "OUTGOING_PAYMENT.REFUND_COMPLETED",
    }
}

/// The dotted name of an event of what is known of a customer's identity.
pub const fn dotted_identity(is_business: bool, status: KycStatus) -> &'static str {
    match (is_business, status) {
        (false, KycStatus::Approved) => "CUSTOMER.KYC_APPROVED",
        (false, KycStatus::Rejected) => "CUSTOMER.KYC_REJECTED",
        (false, KycStatus::PendingReview) => "CUSTOMER.KYC_SUBMITTED",
        (false, KycStatus::Expired) => "CUSTOMER.KYC_EXPIRED",
        (false, KycStatus::Canceled) => "CUSTOMER.KYC_CANCELED",
        (false, KycStatus::ManuallyApproved) => "CUSTOMER.KYC_MANUALLY_APPROVED",
        (false, KycStatus::ManuallyRejected) => "CUSTOMER.KYC_MANUALLY_REJECTED",
        (true, KycStatus::Approved) => "CUSTOMER.KYB_APPROVED",
        (true, KycStatus::Rejected) => "CUSTOMER.KYB_REJECTED",
        (true, KycStatus::PendingReview) => "CUSTOMER.KYB_SUBMITTED",
        (true, KycStatus::Expired) => "CUSTOMER.KYB_EXPIRED",
        (true, KycStatus::Canceled) => "CUSTOMER.KYB_CANCELED",
        (true, KycStatus::ManuallyApproved) => "CUSTOMER.KYB_MANUALLY_APPROVED",
        (true, KycStatus::ManuallyRejected) => "CUSTOMER.KYB_MANUALLY_REJECTED",
    }
}

/// The dotted name of an event of an import that has ended.
pub const fn dotted_import(status: bulk_import::Status) -> &'static str {
    use bulk_import::Status::{Completed, Failed, Pending, Processing};
    match status {
        Pending | Processing | Completed => "BULK_UPLOAD.COMPLETED",
        Failed => "BULK_UPLOAD.FAILED",
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
    /// The platform that is notified.
    pub platform: PlatformId,
    /// Its subject.
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
