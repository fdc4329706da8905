//! Texts that people read: names and labels. A text that cannot be seen, or that shows another
//! order of its letters than it has, misleads the person who decides by it.

use unicode_general_category::{GeneralCategory, get_general_category};

/// Stands for the text of a person who was erased, where a text must be.
pub const ERASED: &str = "ERASED";

/// Letters that Unicode counts as letters or symbols and every font shows as nothing: the fillers
/// of Hangul and the empty cell of Braille.
const BLANK: [char; 5] = ['\u{115F}', '\u{1160}', '\u{2800}', '\u{3164}', '\u{FFA0}'];

/// Invisible characters that names need inside: joiners of emoji and of Persian and Indic letters,
/// and marks of direction, which change no letter's place by themselves.
const JOINERS: [char; 5] = ['\u{200C}', '\u{200D}', '\u{200E}', '\u{200F}', '\u{061C}'];

/// The flag that begins a sequence of tags, such as those of England and Scotland.
const BLACK_FLAG: char = '\u{1F3F4}';

/// Why a text cannot be shown to people.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum Unreadable {
    /// It has nothing that can be seen.
    #[error("must have a character that can be seen")]
    Invisible,
    /// It has a character that misleads.
    #[error(
        "must not have U+{0:04X}, which is invisible, a control character or not assigned; leave \
         it out"
    )]
    Character(u32),
}

/// Checks that people can read a text: it has something to see, and no control character, blank
/// letter, override of direction, or invisible character but those that join letters.
pub fn readable(text: &str) -> Result<(), Unreadable> {
    let mut is_visible = false;
    let mut previous = None;
    for character in text.chars() {
        let allowed = match get_general_category(character) {
            GeneralCategory::Control
            | GeneralCategory::LineSeparator
            | GeneralCategory::ParagraphSeparator
            | GeneralCategory::PrivateUse
            | GeneralCategory::Surrogate
            | GeneralCategory::Unassigned => false,
            GeneralCategory::Format => {
                JOINERS.contains(&character)
                    || is_arabic_sign(character)
                    || (is_tag(character)
                        && previous.is_some_and(|it| it == BLACK_FLAG || is_tag(it)))
            }
            // A mark is seen on what it marks, and a space between two words.
            GeneralCategory::NonspacingMark
            | GeneralCategory::EnclosingMark
            | GeneralCategory::SpacingMark
            | GeneralCategory::SpaceSeparator => character != '\u{034F}',
            _ => {
                is_visible |= !BLANK.contains(&character);
                !BLANK.contains(&character)
            }
        };
        if !allowed {
            return Err(Unreadable::Character(character.into()));
        }
        previous = Some(character);
    }
    if is_visible { Ok(()) } else { Err(Unreadable::Invisible) }
}

fn is_tag(character: char) -> bool {
    ('\u{E0020}'..='\u{E007F}').contains(&character)
}

/// Signs that Unicode counts as formatting and every font shows: they stand before Arabic numbers.
fn is_arabic_sign(character: char) -> bool {
    matches!(character, '\u{0600}'..='\u{0605}' | '\u{06DD}' | '\u{070F}' | '\u{08E2}')
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn names_of_the_world_are_readable() {
        for text in [
            "Ada Lovelace",
            "José Ángel Núñez-O'Brien",
            "Jose\u{301}",
            "李小龍",
            "김철수",
            "עדה\u{200F} לאבלייס",
            "محمد\u{061C} علی\u{200C}زاده",
            "क्\u{200D}ष",
            "Ada \u{1F469}\u{200D}\u{1F4BB}",
            "\u{2764}\u{FE0F}",
            "\u{1F3F4}\u{E0067}\u{E0062}\u{E0065}\u{E006E}\u{E0067}\u{E007F} Ltd",
            "X Æ A-12",
            "7",
            "…",
        ] {
            assert_eq!(readable(text), Ok(()), "{text:?}");
        }
    }

    #[test]
    fn what_no_one_can_see_is_refused() {
        for text in
            ["", " ", "\u{A0}\u{2003}", "\u{301}", "\u{200D}", "\u{200E}\u{200F}", "\u{FE0F}"]
        {
            assert_eq!(readable(text), Err(Unreadable::Invisible), "{text:?}");
        }
        for character in [
            '\0',
            '\n',
            '\u{7F}',
            '\u{85}',
            '\u{AD}',
            '\u{34F}',
            '\u{115F}',
            '\u{1160}',
            '\u{180E}',
            '\u{200B}',
            '\u{2028}',
            '\u{2029}',
            '\u{202A}',
            '\u{202B}',
            '\u{202C}',
            '\u{202D}',
            '\u{202E}',
            '\u{2060}',
            '\u{2064}',
            '\u{2066}',
            '\u{2067}',
            '\u{2068}',
            '\u{2069}',
            '\u{206A}',
            '\u{2800}',
            '\u{3164}',
            '\u{FEFF}',
            '\u{FFA0}',
            '\u{FFF9}',
            '\u{E000}',
            '\u{E0041}',
            '\u{378}',
            '\u{FFFF}',
            '\u{10FFFF}',
        ] {
            let expected = Err(Unreadable::Character(character.into()));
            for text in [character.to_string(), format!("Ada{character}Lovelace")] {
                assert_eq!(readable(&text), expected, "{text:?}");
            }
        }
    }

    proptest! {
        #[test]
        fn any_text_is_read_or_refused(text in ".{0,40}") {
            let _ = readable(&text);
        }
    }
}
