//! Imports of many customers from a file (contract 6.5). The rows wait in parts, each of which is
//! one unit of work, so that no other unit waits for the whole file.

use crate::customer::Identity;
use crate::id::{JobId, PlatformId};
use crate::time::Timestamp;
use crate::transition::{IllegalTransition, Moved, arrows_of};

/// Status of an import (contract 5).
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Status {
    /// No row was read yet.
    Pending,
    /// Some rows were.
    Processing,
    /// All rows were; some of them may have been refused.
    Completed,
    /// The file cannot be read as rows.
    Failed,
}

impl Status {
    /// Every status.
    pub const ALL: [Self; 4] = [Self::Pending, Self::Processing, Self::Completed, Self::Failed];

    /// The name that the API uses.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Pending => "PENDING",
            Self::Processing => "PROCESSING",
            Self::Completed => "COMPLETED",
            Self::Failed => "FAILED",
        }
    }

    /// The status with this API name.
    pub fn from_name(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|status| status.name() == name)
    }

    /// Whether nothing more will happen.
    pub const fn is_final(self) -> bool {
        match self {
            Self::Pending | Self::Processing => false,
            Self::Completed | Self::Failed => true,
        }
    }

    /// Where the event leads from this status, if the machine has an arrow for it.
    pub fn after(self, event: Event) -> Option<Self> {
        arrow(self, event)
    }
}

/// The outcome of the rows of one part.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Counts {
    /// Customers that were made.
    pub successful: u32,
    /// Rows that were refused.
    pub failed: u32,
}

/// Events of an import.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Event {
    /// A part was gone through, and there are more.
    Progressed(Counts),
    /// The last part was gone through.
    Finished(Counts),
    /// The file cannot be read as rows.
    Broken,
}

impl Event {
    /// One of each.
    pub const ALL: [Self; 3] = [
        Self::Progressed(Counts { successful: 0, failed: 0 }),
        Self::Finished(Counts { successful: 0, failed: 0 }),
        Self::Broken,
    ];

    /// The event's name in documents and refusals.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Progressed(_) => "progressed",
            Self::Finished(_) => "finished",
            Self::Broken => "broken",
        }
    }
}

/// The arrows of the machine: the one table that [`BulkImport::apply`] and the documents share.
fn arrow(from: Status, event: Event) -> Option<Status> {
    use Status::{Completed, Failed, Pending, Processing};
    match (from, event) {
        (Pending | Processing, Event::Progressed(_)) => Some(Processing),
        (Pending | Processing, Event::Finished(_)) => Some(Completed),
        (Pending, Event::Broken) => Some(Failed),
        (Processing, Event::Broken)
        | (Completed | Failed, Event::Progressed(_) | Event::Finished(_) | Event::Broken) => None,
    }
}

/// The draft of an import.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Draft {
    /// System id.
    pub id: JobId,
    /// Whose customers they will be.
    pub platform: PlatformId,
    /// Rows of the file.
    pub total: u32,
    /// Parts in which they wait.
    pub parts: u32,
}

/// How far an import has come.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Progress {
    /// Its status.
    pub status: Status,
    /// Parts that were gone through.
    pub parts_done: u32,
    /// The outcome of their rows.
    pub counts: Counts,
    /// When that last changed.
    pub updated_at: Timestamp,
}

/// An import, whose progress only [`BulkImport::apply`] changes.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct BulkImport {
    draft: Draft,
    progress: Progress,
}

impl BulkImport {
    /// A new import, `PENDING` since its id was drawn.
    pub fn pending(draft: Draft) -> Self {
        let progress = Progress {
            status: Status::Pending,
            parts_done: 0,
            counts: Counts::default(),
            updated_at: draft.id.created_at(),
        };
        Self { draft, progress }
    }

    /// Puts a stored import together again, unless its parts contradict each other. For the store
    /// only.
    pub fn restore(draft: Draft, progress: Progress) -> Option<Self> {
        let Progress { status, parts_done, counts, .. } = progress;
        let processed = counts.successful.checked_add(counts.failed)?;
        let fits = match status {
            Status::Pending => parts_done == 0 && processed == 0,
            Status::Processing => (1..draft.parts).contains(&parts_done),
            Status::Completed => parts_done == draft.parts && processed == draft.total,
            Status::Failed => processed == 0,
        };
        (fits && processed <= draft.total).then_some(Self { draft, progress })
    }

    /// Its draft.
    pub fn draft(&self) -> &Draft {
        &self.draft
    }

    /// How far it has come.
    pub fn progress(&self) -> &Progress {
        &self.progress
    }

    /// System id.
    pub fn id(&self) -> JobId {
        self.draft.id
    }

    /// The number of the part that comes next, if there is one.
    pub fn next_part(&self) -> Option<u32> {
        let next = self.progress.parts_done;
        (!self.progress.status.is_final() && next < self.draft.parts).then_some(next)
    }

    /// The one function that changes it.
    pub fn apply(mut self, event: Event, now: Timestamp) -> Result<Moved<Self>, IllegalTransition> {
        let from = self.progress.status;
        let Some(to) = arrow(from, event) else {
            let (state, event) = (from.name(), event.name());
            return Err(IllegalTransition { machine: "import", state, event });
        };
        let progress = &mut self.progress;
        progress.status = to;
        progress.updated_at = now.max(progress.updated_at);
        if let Event::Progressed(counts) | Event::Finished(counts) = event {
            progress.parts_done = progress.parts_done.saturating_add(1);
            let Counts { successful, failed } = &mut progress.counts;
            *successful = successful.saturating_add(counts.successful);
            *failed = failed.saturating_add(counts.failed);
        }
        Ok(Moved::new(from.name(), self))
    }
}

/// The customer that a row asks for.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NewRow {
    /// The platform's own name for the customer.
    pub platform_customer_id: String,
    /// Its address.
    pub uma_address: String,
    /// The person or business.
    pub identity: Identity,
}

/// A row of the file.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Row {
    /// Its identifier in the report: the platform's name for the customer, or the
    /// row's number.
    pub label: String,
    /// Its customer, or the refusal, as the API says it.
    pub content: Result<NewRow, String>,
}

/// A row that was refused.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Refusal {
    /// Its identifier.
    pub label: String,
    /// Why, as the API says it.
    pub body: String,
}

/// Some rows of the file that are gone through together.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Part {
    /// Its import.
    pub import: JobId,
    /// Its number, from 0.
    pub number: u32,
    /// The rows, until they were gone through; then what was refused.
    pub content: PartContent,
}

/// The stored outcome of a part.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum PartContent {
    /// The rows, which hold personal data.
    Waiting(Vec<Row>),
    /// Only what was refused.
    Done(Vec<Refusal>),
}

/// Every arrow, for people and tests.
pub(crate) fn arrows() -> Vec<[&'static str; 3]> {
    arrows_of(
        &Status::ALL,
        &Event::ALL,
        |from, event| from.after(*event),
        Status::name,
        |event| event.name(),
    )
}

#[cfg(test)]
mod tests {
    use super::*;
    use uuid::Uuid;

    #[test]
    fn the_arrows_are_those_of_the_contract() {
        let arrows: Vec<_> = arrows().iter().map(|arrow| arrow.join(" ")).collect();
        assert_eq!(
            arrows,
            [
                "PENDING progressed PROCESSING",
                "PENDING finished COMPLETED",
                "PENDING broken FAILED",
                "PROCESSING progressed PROCESSING",
                "PROCESSING finished COMPLETED",
            ]
        );
    }

    #[test]
    fn parts_are_gone_through_in_order_and_counted() {
        let draft = Draft {
            id: JobId::from_uuid(Uuid::nil()),
            platform: PlatformId::from_uuid(Uuid::nil()),
            total: 3,
            parts: 2,
        };
        let now = Timestamp::from_millis(5);
        let import = BulkImport::pending(draft);
        assert_eq!(import.next_part(), Some(0));
        let first = Event::Progressed(Counts { successful: 1, failed: 1 });
        let import = import.apply(first, now).expect("an arrow").into_now();
        assert_eq!(import.next_part(), Some(1));
        let last = Event::Finished(Counts { successful: 1, failed: 0 });
        let import = import.apply(last, now).expect("an arrow").into_now();
        assert_eq!(import.next_part(), None);
        assert_eq!(import.progress().counts, Counts { successful: 2, failed: 1 });
        assert_eq!(BulkImport::restore(draft, *import.progress()), Some(import.clone()));
        let torn = Progress { parts_done: 1, ..*import.progress() };
        assert_eq!(BulkImport::restore(draft, torn), None);
    }
}
