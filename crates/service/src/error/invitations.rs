//! Refusals about invitations.

use domain::invitation;
use domain::time::Timestamp;
use domain::uma_address::UmaAddress;

/// A refusal about an invitation.
#[derive(Debug, Clone, PartialEq, thiserror::Error)]
pub enum InvitationError {
    /// There is no invitation with this code. The code is not repeated: it is a secret.
    #[error("there is no invitation with this code")]
    NotFound,
    /// The invitation was made by another platform.
    #[error("only the platform that made an invitation can cancel it")]
    OfAnother,
    /// The invitation has ended before.
    #[error("the invitation is {} and can neither be claimed nor cancelled", status.name())]
    Over {
        /// How.
        status: invitation::Status,
        /// The claimant, if there is one.
        invitee: Option<UmaAddress>,
        /// Until when it could be claimed, if there was such a time.
        expires_at: Option<Timestamp>,
    },
}
