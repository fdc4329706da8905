//! The commands that are clients of the API: `listen` and `trigger`.

use std::fmt;

use clap::Args;
use domain::event::EventKind;
use http::Uri;

use super::super::checks::{ApiUrl, parse_event_kind, parse_web_url};

/// Options of `listen`.
#[derive(Debug, Clone, Args)]
pub struct Forward {
    /// Where events are posted to.
    #[arg(long, value_name = "URL", value_parser = parse_web_url)]
    pub forward_to: Uri,

    /// The server that has them.
    #[command(flatten)]
    pub access: Access,

    /// Only events of these types, such as OUTGOING_PAYMENT,KYC_STATUS.
    #[arg(long, value_name = "TYPES", value_delimiter = ',', value_parser = parse_event_kind)]
    pub events: Vec<EventKind>,

    /// Approves incoming payments that the platform is asked about.
    ///
    /// The platform's own endpoint must put them off with 202. A platform without one gets one on
    /// this machine for as long as this runs. Only for sandbox platforms; the token must be allowed
    /// to TRANSACT, too.
    #[arg(long, conflicts_with = "reject")]
    pub approve: bool,

    /// Rejects them.
    #[arg(long)]
    pub reject: bool,
}

/// The decision about incoming payments.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Decision {
    /// They go on.
    Approved,
    /// They end.
    Rejected,
}

impl fmt::Display for Decision {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Approved => "approved",
            Self::Rejected => "rejected",
        })
    }
}

impl Forward {
    /// The decision about approval requests, if it answers them.
    pub fn decision(&self) -> Option<Decision> {
        match (self.approve, self.reject) {
            (true, _) => Some(Decision::Approved),
            (false, true) => Some(Decision::Rejected),
            (false, false) => None,
        }
    }
}

/// How a client of the API reaches its server.
#[derive(Debug, Clone, Args)]
pub struct Access {
    /// The server, with or without the version of the API at the end [default: the SY that a first
    /// start prints, or http://127.0.0.1:8080].
    #[arg(long, value_name = "URL", env = "SWITCHYARD_API")]
    pub api: Option<ApiUrl>,
}

/// Options of `trigger`.
#[derive(Debug, Clone, Args)]
pub struct Trigger {
    /// The event.
    #[arg(value_name = "EVENT")]
    pub event: Event,

    /// The server.
    #[command(flatten)]
    pub access: Access,
}

/// The events of `trigger`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
pub enum Event {
    /// A payment to a bank account is delivered: OUTGOING_PAYMENT, at last COMPLETED.
    #[value(name = "payment.completed")]
    PaymentCompleted,
    /// The account is closed: FAILED, and the money comes back.
    #[value(name = "payment.failed")]
    PaymentFailed,
    /// The bank rejects it: REJECTED.
    #[value(name = "payment.rejected")]
    PaymentRejected,
    /// It is delivered and comes back: REFUNDED. Moves the platform's clock on by 61 seconds.
    #[value(name = "payment.returned")]
    PaymentReturned,
    /// A quote is not executed: EXPIRED. Moves the platform's clock on by 901 seconds.
    #[value(name = "payment.expired")]
    PaymentExpired,
    /// Another institution pays a customer: INCOMING_PAYMENT.
    #[value(name = "incoming", alias = "incoming.completed")]
    Incoming,
    /// The same, once the platform has approved it. It must have a webhook endpoint.
    #[value(name = "approval")]
    Approval,
    /// Money comes into an account: ACCOUNT_STATUS.
    #[value(name = "account.status", alias = "account")]
    AccountStatus,
    /// A customer's identity is approved: KYC_STATUS.
    #[value(name = "kyc.approved", alias = "kyc")]
    KycApproved,
    /// It is rejected.
    #[value(name = "kyc.rejected")]
    KycRejected,
    /// A file of customers is imported: BULK_UPLOAD.
    #[value(name = "bulk.upload", alias = "bulk")]
    BulkUpload,
    /// An invitation is claimed: INVITATION_CLAIMED.
    #[value(name = "invitation.claimed", alias = "invitation")]
    InvitationClaimed,
    /// The endpoint is tried out: TEST. The platform must have one.
    #[value(name = "test")]
    Test,
}
