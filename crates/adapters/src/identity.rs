//! Checks of identities.

use ports::identity::{Identification, Outcome};

/// Lets the person on the page of a check say how it ends, so that a test can take every
/// way. For sandbox platforms.
#[derive(Debug, Clone, Copy, Default)]
pub struct TesterDecides;

impl Identification for TesterDecides {
    fn outcomes(&self) -> &'static [Outcome] {
        &[Outcome::Approved, Outcome::Rejected, Outcome::LeftToOperator, Outcome::Canceled]
    }

    fn note(&self) -> Option<&'static str> {
        Some("This is a sandbox. The buttons below decide how the check ends.")
    }
}

/// Takes what the person says and leaves the decision to the operator: no provider that could
/// decide is connected.
#[derive(Debug, Clone, Copy, Default)]
pub struct OperatorDecides;

impl Identification for OperatorDecides {
    fn outcomes(&self) -> &'static [Outcome] {
        &[Outcome::LeftToOperator, Outcome::Canceled]
    }
}
