//! The proof that a state machine was asked.
//!
//! A [`Moved`] has private fields, so only this crate's `apply` functions can make one. The store
//! takes a change of state from nothing else: code that skips the machine does not compile.

use std::fmt;

/// A resource after a legal change of state, with the state that it left.
#[must_use = "a change of state that is not committed has not happened"]
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Moved<T> {
    from: &'static str,
    now: T,
}

impl<T> Moved<T> {
    pub(crate) fn new(from: &'static str, now: T) -> Self {
        Self { from, now }
    }

    /// Name of the state that was left, as the specification spells it.
    pub fn from(&self) -> &'static str {
        self.from
    }

    /// The resource in its new state.
    pub fn now(&self) -> &T {
        &self.now
    }

    /// Gives up the proof and keeps the resource.
    pub fn into_now(self) -> T {
        self.now
    }
}

/// An event that the machine has no arrow for in its present state. Changes nothing.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub struct IllegalTransition {
    /// The kind of resource.
    pub machine: &'static str,
    /// Name of its present state.
    pub state: &'static str,
    /// Name of the event that was refused.
    pub event: &'static str,
}

impl fmt::Display for IllegalTransition {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} is {} and cannot be {}", self.machine, self.state, self.event)
    }
}

/// The arrows of a machine, each by the names of the status before, the event and the status after.
pub(crate) fn arrows_of<S: Copy, E>(
    states: &[S],
    events: &[E],
    after: impl Fn(S, &E) -> Option<S>,
    state_name: impl Fn(S) -> &'static str,
    event_name: impl Fn(&E) -> &'static str,
) -> Vec<[&'static str; 3]> {
    let mut all = Vec::new();
    for from in states {
        for event in events {
            if let Some(to) = after(*from, event) {
                all.push([state_name(*from), event_name(event), state_name(to)]);
            }
        }
    }
    all
}
