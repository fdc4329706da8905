//! Rules about the shape of Rust files: how long files and functions are.

use super::source::{Line, lines};
use super::{File, Finding, Tree};

/// Lines of production code of a file: enough to be understood in one reading.
const FILE_LINES_MAX: usize = 600;

/// Lines of a function: one screen.
const FUNCTION_LINES_MAX: usize = 70;

/// Files fit into one reading. Tests do not count.
pub fn file_length(tree: &Tree) -> Vec<Finding> {
    production_files(tree)
        .filter_map(|file| {
            let count = production_lines(file).len();
            let wrong = format!("{count} lines of production code, {FILE_LINES_MAX} are allowed");
            let instead = "make it a folder of smaller modules";
            let finding = Finding::new(&file.path, FILE_LINES_MAX + 1, wrong, instead);
            (count > FILE_LINES_MAX).then_some(finding)
        })
        .collect()
}

/// Functions fit on a screen, from `fn` to the brace that closes them. Tests do not count.
pub fn function_length(tree: &Tree) -> Vec<Finding> {
    let mut findings = Vec::new();
    for file in production_files(tree) {
        for (line, count) in functions(&production_lines(file)) {
            if count > FUNCTION_LINES_MAX {
                let wrong =
                    format!("a function of {count} lines, {FUNCTION_LINES_MAX} are allowed");
                let instead = "give a part of it a name";
                findings.push(Finding::new(&file.path, line, wrong, instead));
            }
        }
    }
    findings
}

/// Files under a crate's `src` that hold more than tests.
pub fn production_files(tree: &Tree) -> impl Iterator<Item = &File> {
    tree.with_extension("rs").filter(|file| {
        let parts: Vec<_> = file.path.split('/').collect();
        parts.get(2) == Some(&"src") && !parts.contains(&"tests.rs")
    })
}

/// The lines before a file's module of tests.
pub fn production_lines(file: &File) -> Vec<Line> {
    let all = lines(&file.text);
    let tests = file.text.lines().zip(file.text.lines().skip(1)).position(|(line, next)| {
        line == "#[cfg(test)]" && next.starts_with("mod ") && next.ends_with('{')
    });
    // The scanner ends with an empty line.
    let count = tests.unwrap_or_else(|| file.text.lines().count());
    all.into_iter().take(count).collect()
}

/// The functions of a file: the line on which each begins, from 1, and its lines.
fn functions(lines: &[Line]) -> Vec<(usize, usize)> {
    let mut found = Vec::new();
    for (start, line) in lines.iter().enumerate() {
        if begins_function(&line.code)
            && let Some(end) = end_of_function(&lines[start..])
        {
            found.push((start + 1, end));
        }
    }
    found
}

fn begins_function(code: &str) -> bool {
    let mut words = code.split_whitespace().take_while(|word| {
        ["pub", "const", "async", "unsafe", "extern", "fn"].contains(word)
            || word.starts_with("pub(")
            || word.starts_with("in ")
    });
    words.any(|word| word == "fn")
}

/// The lines of a function that begins at the first one; none if it has no body.
fn end_of_function(lines: &[Line]) -> Option<usize> {
    let (mut braces, mut parentheses) = (0_usize, 0_usize);
    for (index, line) in lines.iter().enumerate() {
        for letter in line.code.chars() {
            match letter {
                '(' | '[' => parentheses += 1,
                ')' | ']' => parentheses = parentheses.saturating_sub(1),
                ';' if braces == 0 && parentheses == 0 => return None,
                '{' => braces += 1,
                '}' if braces == 1 && parentheses == 0 => return Some(index + 1),
                '}' => braces = braces.saturating_sub(1),
                _ => {}
            }
        }
    }
    None
}

#[cfg(test)]
mod tests {
    use super::super::places;
    use super::*;

    #[test]
    fn long_files_are_split() {
        let (fits, long) = ("\n".repeat(FILE_LINES_MAX), "\n".repeat(FILE_LINES_MAX + 1));
        let tested = format!("{fits}#[cfg(test)]\nmod tests {{\n{long}}}\n");
        let found = places(
            file_length,
            &[
                ("crates/api/src/lib.rs", &fits),
                ("crates/api/src/quotes.rs", &long),
                ("crates/api/src/tested.rs", &tested),
                ("crates/api/src/quotes/tests.rs", &long),
                ("crates/api/tests/it/quotes.rs", &long),
            ],
        );
        assert_eq!(found, [format!("crates/api/src/quotes.rs:{}", FILE_LINES_MAX + 1)]);
    }

    #[test]
    fn long_functions_are_split() {
        let function = |lines: usize| {
            let body = "    call(|| {});\n".repeat(lines - 4);
            format!("pub(crate) async fn f(\n    a: [u8; 4],\n) {{\n{body}}}\n")
        };
        let (fits, long) = (function(FUNCTION_LINES_MAX), function(FUNCTION_LINES_MAX + 1));
        let tests = format!("#[cfg(test)]\nmod tests {{\n{long}}}\n");
        let declared = format!("trait T {{\n    fn declared(&self);\n}}\n{}", "\n".repeat(200));
        let text = format!("fn a() {{}}\n{fits}{long}{fits}{tests}");
        let path = "crates/api/src/quotes.rs";
        let found = places(function_length, &[(path, &text), ("crates/api/src/t.rs", &declared)]);
        assert_eq!(found, [format!("{path}:{}", FUNCTION_LINES_MAX + 2)]);
    }
}
