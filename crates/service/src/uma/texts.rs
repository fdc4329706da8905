//! Texts about payers and payees, as other institutions write them: bounded and on one line before
//! they are kept.

use domain::transaction::Facts;
use uma::data;
use uma::error::{ErrorCode, Refusal};

use super::send::known;

/// Characters of a comment, and of each fact: as many as the API's own may have.
pub(super) const TEXT_MAX: u32 = 500;

/// Characters that end a line.
const LINE_ENDS: [char; 7] = ['\n', '\r', '\t', '\u{b}', '\u{c}', '\u{85}', '\u{2028}'];

/// Facts by the specification's names. Keys that it does not know are left out, whatever their
/// values are. `code` is that of the message in which they stand.
pub(super) fn facts(said: &data::Facts, code: ErrorCode) -> Result<Facts, Refusal> {
    let known = said.0.iter().filter_map(|(key, value)| Some((key, known(key)?, value)));
    known.map(|(key, name, value)| Ok((name, checked(key, value, code)?))).collect()
}

/// A payer's comment; one without letters is none.
pub(super) fn comment(said: Option<&str>, code: ErrorCode) -> Result<Option<String>, Refusal> {
    let checked = said.map(|text| checked("comment", text, code)).transpose()?;
    Ok(checked.filter(|text| !text.is_empty()))
}

/// A text on one line. Refuses what no payment could keep.
fn checked(name: &str, text: &str, code: ErrorCode) -> Result<String, Refusal> {
    let text = on_one_line(text);
    if text.chars().count() <= TEXT_MAX as usize && !text.chars().any(char::is_control) {
        return Ok(text);
    }
    let reason = format!("{name} has control characters or more than {TEXT_MAX} characters");
    Err(Refusal::new(code, reason))
}

/// The lines of a text, one behind the other: people write comments and addresses on several.
fn on_one_line(text: &str) -> String {
    if !text.contains(LINE_ENDS) {
        return text.to_owned();
    }
    let lines = text.split(LINE_ENDS).map(str::trim).filter(|line| !line.is_empty());
    lines.collect::<Vec<_>>().join(" ")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(text: &str, expected: Option<&str>) {
        let code = ErrorCode::ParsePayreqRequestError;
        let kept = comment(Some(text), code).ok().map(Option::unwrap_or_default);
        assert_eq!(kept.as_deref(), expected, "{text:?}");
    }

    #[test]
    fn a_text_is_one_line_and_bounded() {
        check("For lunch", Some("For lunch"));
        check("For lunch\nand dinner", Some("For lunch and dinner"));
        check(" For lunch \r\n\r\n\tand dinner\n", Some("For lunch and dinner"));
        check("one\u{2028}two\u{85}three", Some("one two three"));
        check("\n", Some(""));
        check("bell \u{7}", None);
        check("\u{0}", None);
        check(&"ü".repeat(500), Some(&"ü".repeat(500)));
        check(&"x".repeat(501), None);
    }
}
