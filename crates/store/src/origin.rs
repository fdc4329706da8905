//! The origin of a change: who asked for it, by which request, and when. It stands in the journal
//! with each change set.

use domain::id::TokenId;
use domain::time::Timestamp;
use minicbor::bytes::ByteArray;
use minicbor::{Decode, Encode};
use uuid::Uuid;

/// The one who asks for a change.
#[derive(Debug, Clone, PartialEq, Eq, Encode, Decode)]
pub enum Actor {
    /// A client, by its token.
    #[n(0)]
    Token(#[n(0)] ByteArray<16>),
    /// An operator's command: its name, and who ran it where, as the system says.
    #[n(1)]
    Operator {
        /// The command.
        #[n(0)]
        command: String,
        /// Name and machine.
        #[n(1)]
        by: String,
    },
    /// The server itself: the name of the job.
    #[n(2)]
    Job(#[n(0)] String),
    /// A request without a token, of another institution or a person at a page: its route.
    #[n(3)]
    Route(#[n(0)] String),
}

impl Actor {
    /// A client.
    pub fn token(id: TokenId) -> Self {
        Self::Token((*id.uuid().as_bytes()).into())
    }

    /// The server itself.
    pub fn job(name: &str) -> Self {
        Self::Job(name.to_owned())
    }

    /// The token of a client.
    pub fn token_id(&self) -> Option<TokenId> {
        match self {
            Self::Token(id) => Some(TokenId::from_uuid(Uuid::from_bytes(**id))),
            Self::Operator { .. } | Self::Job(_) | Self::Route(_) => None,
        }
    }
}

/// The origin of a change.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Origin {
    /// The one who asks for it.
    pub actor: Actor,
    /// The id of the request, if it is one: text of the client, or ours.
    pub request: Option<String>,
    /// When, by the server's clock.
    pub at: Timestamp,
}
