//! The page of an invitation: who invites, how much is promised, and whether it is still open.

use axum::extract::Path;
use axum::http::StatusCode;
use axum::response::Response;
use domain::code::Code;
use domain::invitation::{Invitation, Status};
use maud::{Markup, html};
use service::invitations::{self, Found};
use store::error::StoreError;

use super::{later, moment, nothing, page};
use crate::compression::shows_secret;
use crate::extract::Acting;

/// Shows an invitation to the holder of its link.
pub async fn show(Acting(app): Acting, Path(code): Path<String>) -> Response {
    let Some(code) = Code::parse(&code) else { return nothing() };
    let id = app.store().keyring().invitation(&code);
    let found = app.store().read(move |view| invitations::find(view, id)).await;
    match found {
        Ok(Some(Found { invitation, made_by })) => {
            shown(&invitation, invitation.status_at(app.now(made_by.ahead)))
        }
        Ok(None) => nothing(),
        Err(error) => {
            log(&error);
            later()
        }
    }
}

fn log(error: &StoreError) {
    tracing::error!(%error, "the page of an invitation could not be shown");
}

fn shown(invitation: &Invitation, status: Status) -> Response {
    let draft = invitation.draft();
    let inviter = draft.first_name.as_deref().unwrap_or("Someone");
    let (title, content) = match status {
        Status::Pending => (format!("{inviter} invites you"), open(invitation)),
        Status::Claimed => over("This invitation was accepted"),
        Status::Expired => over("This invitation has expired"),
        Status::Cancelled => over("This invitation was cancelled"),
    };
    // The code is the secret.
    shows_secret(page(StatusCode::OK, &title, &content))
}

fn open(invitation: &Invitation) -> Markup {
    let draft = invitation.draft();
    html! {
        @if let Some(amount) = draft.amount_to_send {
            p { "You are to receive" }
            p.amount { (amount) }
        }
        p {
            "To accept, get a UMA address from a provider of your choice and give it this code:"
        }
        p.code { (draft.code.reveal()) }
        @if let Some(expires_at) = draft.expires_at {
            p.quiet { "It can be used until " (moment(expires_at)) "." }
        }
        @if draft.amount_to_send.is_some() {
            p.quiet { "The money is sent by the inviter's provider after you have accepted." }
        }
    }
}

fn over(title: &str) -> (String, Markup) {
    (title.to_owned(), html! { p { "It cannot be used any more. Ask for a new one." } })
}
