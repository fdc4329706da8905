//! Codes that open something to their holder: a link that a person follows without a password.
//! A code is a secret, so nothing here prints one by accident.

use std::fmt;

/// Small letters and digits without those that are mistaken for one another; 5 bits each.
const LETTERS: &[u8; 32] = b"abcdefghijkmnpqrstuvwxyz23456789";

/// The letter that stands for a random byte.
pub const fn letter(byte: u8) -> char {
    LETTERS[(byte % 32) as usize] as char
}

/// Letters of a code: 80 random bits, unguessable over a network (contract 6.13 asks for
/// 64).
pub const CODE_LENGTH: usize = 16;

/// A code that cannot be guessed, in its one spelling.
#[derive(Clone, PartialEq, Eq)]
pub struct Code(String);

impl Code {
    /// The code that random bytes make.
    pub fn of_random(bytes: [u8; CODE_LENGTH]) -> Self {
        Self(bytes.into_iter().map(letter).collect())
    }

    /// Reads a code. Case does not matter, because people type codes.
    pub fn parse(text: &str) -> Option<Self> {
        let code = text.to_ascii_lowercase();
        let is_code = code.len() == CODE_LENGTH && code.bytes().all(|byte| LETTERS.contains(&byte));
        is_code.then_some(Self(code))
    }

    /// The code as text, to be shown to its holder.
    pub fn reveal(&self) -> &str {
        &self.0
    }
}

impl fmt::Debug for Code {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Code(..)")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_code_has_one_spelling_and_does_not_print_itself() {
        let code = Code::of_random([0, 1, 31, 32, 255, 7, 8, 9, 10, 11, 12, 13, 14, 15, 16, 17]);
        assert_eq!(code.reveal(), "ab9a9hijkmnpqrst");
        assert_eq!(Code::parse("AB9A9HIJKMNPQRST"), Some(code.clone()));
        assert_eq!(format!("{code:?}"), "Code(..)");
        for wrong in
            ["", "ab9a9hijkmnpqrs", "ab9a9hijkmnpqrstu", "ab9a9hijkmnpqrs0", "ab9a9hijklnpqrst"]
        {
            assert_eq!(Code::parse(wrong), None, "{wrong}");
        }
        assert_eq!(Code::parse("ab9a9hijkmnpqré"), None);
    }
}
