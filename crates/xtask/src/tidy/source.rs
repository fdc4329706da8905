//! Rust text split into what is code, what stands in string literals and what is comment.
//!
//! A scanner, not a parser: it knows comments, strings, raw strings, characters and lifetimes,
//! which is enough to keep a rule about code from reading prose.

/// One line of a file: two texts of the same columns, blank where the other kind stands.
#[derive(Debug, Default)]
pub struct Line {
    /// Code, with the inside of literals and all comments blanked.
    pub code: String,
    /// The inside of string literals.
    pub literals: String,
    /// Columns of the longest part of a string literal that stands on this line.
    pub longest_literal: usize,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum State {
    Code,
    LineComment,
    /// Rust nests block comments.
    BlockComment {
        depth: usize,
    },
    /// `hashes` is the number of `#` that close it; none for an ordinary string with escapes.
    Text {
        hashes: Option<usize>,
    },
}

/// Splits a file into its lines.
pub fn lines(text: &str) -> Vec<Line> {
    let text: Vec<char> = text.chars().collect();
    let mut lines = vec![Line::default()];
    let mut state = State::Code;
    let mut literal = 0;
    let mut at = 0;
    while at < text.len() {
        if text[at] == '\n' {
            if state == State::LineComment {
                state = State::Code;
            }
            literal = 0;
            lines.push(Line::default());
            at += 1;
            continue;
        }
        let (next, length) = step(state, &text, at);
        let line = lines.last_mut().expect("starts with one line");
        for &letter in &text[at..at + length] {
            let is_code = state == State::Code && next == State::Code;
            let is_literal = matches!(state, State::Text { .. }) && state == next;
            line.code.push(if is_code { letter } else { ' ' });
            line.literals.push(if is_literal { letter } else { ' ' });
            literal = if is_literal { literal + 1 } else { 0 };
            line.longest_literal = line.longest_literal.max(literal);
        }
        at += length;
        state = next;
    }
    lines
}

/// The state after the letters at `at`, and how many letters belong together. Never steps over
/// the end of a line.
fn step(state: State, text: &[char], at: usize) -> (State, usize) {
    let rest = &text[at..];
    let follows = |word: &str| word.chars().enumerate().all(|(i, c)| rest.get(i) == Some(&c));
    match state {
        State::LineComment => (state, 1),
        State::BlockComment { depth: 1 } if follows("*/") => (State::Code, 2),
        State::BlockComment { depth } if follows("*/") => {
            (State::BlockComment { depth: depth - 1 }, 2)
        }
        State::BlockComment { depth } if follows("/*") => {
            (State::BlockComment { depth: depth + 1 }, 2)
        }
        State::BlockComment { .. } => (state, 1),
        State::Text { hashes: None } if rest[0] == '\\' => {
            (state, if rest.get(1).is_some_and(|&c| c != '\n') { 2 } else { 1 })
        }
        State::Text { hashes: None } if rest[0] == '"' => (State::Code, 1),
        State::Text { hashes: Some(hashes) }
            if rest[0] == '"' && (1..=hashes).all(|i| rest.get(i) == Some(&'#')) =>
        {
            (State::Code, 1 + hashes)
        }
        State::Text { .. } => (state, 1),
        State::Code if follows("//") => (State::LineComment, 2),
        State::Code if follows("/*") => (State::BlockComment { depth: 1 }, 2),
        State::Code if rest[0] == '"' => (State::Text { hashes: None }, 1),
        State::Code if rest[0] == 'r' && !is_inside_word(text, at) => {
            let hashes = rest[1..].iter().take_while(|&&c| c == '#').count();
            match rest.get(1 + hashes) {
                Some('"') => (State::Text { hashes: Some(hashes) }, 2 + hashes),
                _ => (State::Code, 1),
            }
        }
        State::Code if rest[0] == '\'' => (State::Code, character(rest)),
        State::Code => (State::Code, 1),
    }
}

/// Columns of the character literal at the start of `rest`; 1 for the quote of a lifetime.
fn character(rest: &[char]) -> usize {
    match rest {
        // The escaped letter may itself be a quote, so the closing one is looked for after it.
        ['\'', '\\', _, more @ ..] => {
            more.iter().take(10).position(|&c| c == '\'').map_or(1, |end| end + 4)
        }
        ['\'', letter, '\'', ..] if *letter != '\n' => 3,
        _ => 1,
    }
}

/// Whether the letter at `at` continues a word; the `b` and `c` of `br".."` and `cr".."` do not
/// count.
fn is_inside_word(text: &[char], at: usize) -> bool {
    let is_word = |i: usize| text[i].is_alphanumeric() || text[i] == '_';
    match at {
        0 => false,
        _ if !is_word(at - 1) => false,
        1 => !matches!(text[0], 'b' | 'c'),
        _ => is_word(at - 2) || !matches!(text[at - 1], 'b' | 'c'),
    }
}

/// Whether `word` stands in `text` with no letter, digit or `_` touching an end of it that is
/// itself one.
pub fn has_word(text: &str, word: &str) -> bool {
    let is_word = |c: char| c.is_alphanumeric() || c == '_';
    let open = word.starts_with(is_word);
    let close = word.ends_with(is_word);
    text.match_indices(word).any(|(at, _)| {
        let before = text[..at].chars().next_back();
        let after = text[at + word.len()..].chars().next();
        !(open && before.is_some_and(is_word) || close && after.is_some_and(is_word))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(text: &str, code: &str, literals: &str) {
        let lines = lines(text);
        let join = |of: fn(&Line) -> &String| {
            let parts: Vec<_> = lines.iter().map(|line| of(line).trim().to_owned()).collect();
            parts.join("|")
        };
        assert_eq!(join(|line| &line.code), code, "code of {text}");
        assert_eq!(join(|line| &line.literals), literals, "literals of {text}");
    }

    #[test]
    fn code_literals_and_comments_are_separated() {
        check("let a = 1; // b", "let a = 1;", "");
        check("f(\"a // b\") // c", "f(        )", "a // b");
        check("a /* b /* c */ d */ e", "a                   e", "");
        check("a /* b\nc */ d", "a|d", "|");
        check(r##"f(r#"a "b" c"#)"##, "f(            )", "a \"b\" c");
        check(r#"f("a \" b", c)"#, "f(        , c)", r#"a \" b"#);
        check("f(\"a\\\n  b\")", "f(|)", "a\\|b");
        check("x('\"', '\\'', b'a') // y", "x('\"', '\\'', b'a')", "");
        check("fn f<'a>(x: &'a str) {}", "fn f<'a>(x: &'a str) {}", "");
        check("br\"a\" cr\"b\" for_r", "b     c     for_r", "a     b");
    }

    #[test]
    fn words_stand_alone() {
        assert!(has_word("x as f64)", "f64"));
        assert!(!has_word("to_f64()", "f64"));
        assert!(!has_word("f64_total", "f64"));
        assert!(has_word("values (now())", "now("));
        assert!(!has_word("known(", "now("));
    }
}
