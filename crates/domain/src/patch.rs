//! Partial changes: what a request says about a field that can be empty (RFC 7396, JSON Merge
//! Patch).

/// One optional field of a partial change.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub enum Patch<T> {
    /// Nothing: the value stays.
    #[default]
    Keep,
    /// `null`: the field has no value any more.
    Clear,
    /// The new value.
    Set(T),
}

impl<T> Patch<T> {
    /// The same about a value of another type.
    pub fn map<U>(self, into: impl FnOnce(T) -> U) -> Patch<U> {
        self.and_then(|value| Some(into(value)))
    }

    /// The same about a value of another type. A value that has none leaves the field as it is.
    pub fn and_then<U>(self, into: impl FnOnce(T) -> Option<U>) -> Patch<U> {
        match self {
            Self::Keep => Patch::Keep,
            Self::Clear => Patch::Clear,
            Self::Set(value) => into(value).map_or(Patch::Keep, Patch::Set),
        }
    }

    /// The new value, if there is one.
    pub const fn value(&self) -> Option<&T> {
        match self {
            Self::Keep | Self::Clear => None,
            Self::Set(value) => Some(value),
        }
    }
}

impl<T: Clone> Patch<T> {
    /// The field after the change.
    pub fn applied_to(&self, old: &Option<T>) -> Option<T> {
        match self {
            Self::Keep => old.clone(),
            Self::Clear => None,
            Self::Set(value) => Some(value.clone()),
        }
    }
}

impl<T: Clone> Patch<Vec<T>> {
    /// The list after the change: one without a value is empty.
    pub fn applied_to_list(&self, old: &[T]) -> Vec<T> {
        match self {
            Self::Keep => old.to_vec(),
            Self::Clear => Vec::new(),
            Self::Set(value) => value.clone(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_field_stays_or_is_cleared_or_set() {
        for old in [None, Some(1)] {
            assert_eq!(Patch::Keep.applied_to(&old), old);
            assert_eq!(Patch::Clear.applied_to(&old), None);
            assert_eq!(Patch::Set(2).applied_to(&old), Some(2));
        }
        assert_eq!(Patch::Keep.applied_to_list(&[1]), [1]);
        assert_eq!(Patch::<Vec<i32>>::Clear.applied_to_list(&[1]), []);
        assert_eq!(Patch::Set(vec![2]).applied_to_list(&[1]), [2]);
    }
}
