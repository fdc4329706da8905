//! Finding out who a person is.

/// The outcome of a person's way through the page of a check.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Outcome {
    /// The identity is good.
    Approved,
    /// The identity is refused.
    Rejected,
    /// The person called the check off.
    Canceled,
    /// The operator has to decide.
    LeftToOperator,
}

impl Outcome {
    /// Every outcome.
    pub const ALL: [Self; 4] =
        [Self::Approved, Self::Rejected, Self::Canceled, Self::LeftToOperator];

    /// The name in a form.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Approved => "approved",
            Self::Rejected => "rejected",
            Self::Canceled => "canceled",
            Self::LeftToOperator => "submitted",
        }
    }
}

/// A provider that checks identities.
pub trait Identification: Send + Sync {
    /// The outcomes that the page of a check leads to, the first of them when the person just goes
    /// on. Where a person must not decide about itself, none of them is a decision.
    fn outcomes(&self) -> &'static [Outcome];

    /// A word to the person above the page of a check, if there is one to say.
    fn note(&self) -> Option<&'static str> {
        None
    }
}
