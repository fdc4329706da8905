//! The bodies that use cases write and read, in JSON: [`Presenter`] for this API.

use service::Error;
use service::presenter::{ApprovalAnswer, Context, Presenter, Subject};

use crate::{approvals, bulk, events};

/// Writes and reads the bodies of this API.
#[derive(Debug, Clone, Copy, Default)]
pub struct JsonPresenter;

impl Presenter for JsonPresenter {
    fn event(&self, context: &Context<'_>, subject: Subject<'_>) -> Vec<u8> {
        events::render(context, subject)
    }

    fn approval_answer(&self, body: &[u8]) -> ApprovalAnswer {
        approvals::read(body)
    }

    fn import_refusal(&self, error: &Error, row: usize) -> String {
        bulk::refusal(error, row)
    }
}
