//! Refusals about tokens.

use domain::token::Permissions;

/// A refusal about a token.
#[derive(Debug, Clone, PartialEq, thiserror::Error)]
pub enum TokenError {
    /// There is no such token, or it is another platform's.
    #[error("there is no such token")]
    NotFound,
    /// A token may not grant what it does not hold.
    #[error("a token can only grant permissions that it holds itself")]
    CannotGrant {
        /// The permissions that it lacks.
        missing: Permissions,
    },
    /// The last token that can manage a platform stays.
    #[error("the last token with MANAGE cannot be deleted: no token could make another")]
    LastManager,
}
