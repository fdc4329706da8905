//! The protocol of a client and PostgreSQL, as far as it takes to see a commit.
//!
//! Everything is handed on in whole messages, so that a cut never falls into one.

use std::collections::BTreeSet;

/// Code of the message that asks for TLS. The answer is a single byte.
const TLS_REQUEST: u32 = 80_877_103;

/// Code of the message that asks for encryption by GSSAPI. The answer is a single byte.
const GSS_REQUEST: u32 = 80_877_104;

/// A message before the type byte begins is short; what claims to be longer is no such message.
const STARTUP_BYTES_MAX: usize = 10_000;

/// The client's bytes, cut into messages.
#[derive(Debug, Default)]
pub struct FrontendMessages {
    bytes: Vec<u8>,
    phase: Phase,
    /// Prepared statements and portals that are a commit, by name.
    statements: BTreeSet<Vec<u8>>,
    portals: BTreeSet<Vec<u8>>,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum Phase {
    /// Messages have no type yet.
    #[default]
    Startup,
    /// A type, a length, a body.
    Typed,
    /// Encrypted, or something else that we do not understand.
    Opaque,
}

/// A whole message of a client.
#[derive(Debug, PartialEq, Eq)]
pub struct FrontendMessage {
    /// As it came.
    pub bytes: Vec<u8>,
    /// Its meaning.
    pub meaning: Meaning,
}

/// The meaning of a client's message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Meaning {
    /// The server commits when it gets this.
    Commit,
    /// The server answers this with one byte, which is no message.
    EncryptionRequest,
    /// Anything else.
    Other,
}

impl FrontendMessages {
    /// Takes bytes as they came.
    pub fn push(&mut self, bytes: &[u8]) {
        self.bytes.extend_from_slice(bytes);
    }

    /// From now on everything is forwarded as it comes.
    pub fn make_opaque(&mut self) {
        self.phase = Phase::Opaque;
    }

    /// The next message, when all of it has come.
    pub fn next(&mut self) -> Option<FrontendMessage> {
        match self.phase {
            Phase::Startup => self.next_startup(),
            Phase::Typed => {
                let bytes = take_typed(&mut self.bytes)?;
                let meaning = if self.commits(&bytes) { Meaning::Commit } else { Meaning::Other };
                Some(FrontendMessage { bytes, meaning })
            }
            Phase::Opaque => {
                let bytes = std::mem::take(&mut self.bytes);
                (!bytes.is_empty()).then_some(FrontendMessage { bytes, meaning: Meaning::Other })
            }
        }
    }

    fn next_startup(&mut self) -> Option<FrontendMessage> {
        let length = number(&self.bytes, 0)?;
        let code = number(&self.bytes, 4)?;
        if !(8..=STARTUP_BYTES_MAX).contains(&length) {
            self.phase = Phase::Opaque;
            return self.next();
        }
        let bytes = take(&mut self.bytes, length)?;
        let is_request = [TLS_REQUEST, GSS_REQUEST].map(|code| code as usize).contains(&code);
        let meaning = if is_request {
            Meaning::EncryptionRequest
        } else {
            self.phase = Phase::Typed;
            Meaning::Other
        };
        Some(FrontendMessage { bytes, meaning })
    }

    /// Whether the message makes the server commit. A statement or portal is remembered from when
    /// it is made until another takes its name.
    fn commits(&mut self, message: &[u8]) -> bool {
        let mut texts = message[5..].split(|byte| *byte == 0);
        let mut text = || texts.next().unwrap_or_default();
        match message[0] {
            b'Q' => says_commit(text()),
            b'P' => {
                let (name, sql) = (text().to_vec(), text());
                remember(&mut self.statements, name, says_commit(sql));
                false
            }
            b'B' => {
                let (portal, statement) = (text().to_vec(), text());
                let commits = self.statements.contains(statement);
                remember(&mut self.portals, portal, commits);
                false
            }
            b'E' => self.portals.contains(text()),
            _ => false,
        }
    }
}

/// The server's bytes, cut into messages.
#[derive(Debug, Default)]
pub struct Answers {
    bytes: Vec<u8>,
    /// Single bytes that are due before the next message.
    single: usize,
    is_opaque: bool,
}

/// A whole message of a server.
#[derive(Debug, PartialEq, Eq)]
pub struct Answer {
    /// As it came.
    pub bytes: Vec<u8>,
    /// Its meaning.
    pub outcome: Outcome,
}

/// The outcome of commits in a server's message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// A transaction is committed.
    Committed,
    /// The statement failed, or the commit ended in a rollback.
    NotCommitted,
    /// From here on we understand nothing.
    Encrypted,
    /// Nothing.
    Other,
}

impl Answers {
    /// Takes bytes as they came.
    pub fn push(&mut self, bytes: &[u8]) {
        self.bytes.extend_from_slice(bytes);
    }

    /// The client asked for encryption.
    pub fn expect_single(&mut self) {
        self.single += 1;
    }

    /// The next message, when all of it has come.
    pub fn next(&mut self) -> Option<Answer> {
        if self.is_opaque {
            let bytes = std::mem::take(&mut self.bytes);
            return (!bytes.is_empty()).then_some(Answer { bytes, outcome: Outcome::Other });
        }
        if self.single > 0 {
            let bytes = take(&mut self.bytes, 1)?;
            self.single -= 1;
            self.is_opaque = bytes != b"N";
            let outcome = if self.is_opaque { Outcome::Encrypted } else { Outcome::Other };
            return Some(Answer { bytes, outcome });
        }
        let bytes = take_typed(&mut self.bytes)?;
        let outcome = match (bytes[0], &bytes[5..]) {
            (b'C', b"COMMIT\0") => Outcome::Committed,
            (b'C', b"ROLLBACK\0") | (b'E', _) => Outcome::NotCommitted,
            _ => Outcome::Other,
        };
        Some(Answer { bytes, outcome })
    }
}

/// Whether one of the statements in `sql` is a commit. A semicolon within a literal is taken for
/// an end, so a literal with `; commit;` in it is taken for one; no statement of ours has that.
fn says_commit(sql: &[u8]) -> bool {
    let mut statements = sql.split(|byte| *byte == b';').map(<[u8]>::trim_ascii);
    statements.any(|statement| {
        let mut words = statement.split(u8::is_ascii_whitespace);
        let first = words.next().unwrap_or_default();
        let is_prepared = words.next().is_some_and(|word| word.eq_ignore_ascii_case(b"prepared"));
        (first.eq_ignore_ascii_case(b"commit") || first.eq_ignore_ascii_case(b"end"))
            && !is_prepared
    })
}

fn remember(names: &mut BTreeSet<Vec<u8>>, name: Vec<u8>, is_commit: bool) {
    if is_commit {
        names.insert(name);
    } else {
        names.remove(&name);
    }
}

/// A type byte, then a length that counts itself and the body.
fn take_typed(bytes: &mut Vec<u8>) -> Option<Vec<u8>> {
    let length = number(bytes, 1)?;
    take(bytes, 1 + length)
}

fn take(bytes: &mut Vec<u8>, length: usize) -> Option<Vec<u8>> {
    if bytes.len() < length {
        return None;
    }
    let rest = bytes.split_off(length);
    Some(std::mem::replace(bytes, rest))
}

fn number(bytes: &[u8], at: usize) -> Option<usize> {
    let number: [u8; 4] = bytes.get(at..at + 4)?.try_into().ok()?;
    usize::try_from(u32::from_be_bytes(number)).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn message(kind: u8, body: &[u8]) -> Vec<u8> {
        let length = u32::try_from(4 + body.len()).expect("short");
        [&[kind], &length.to_be_bytes()[..], body].concat()
    }

    fn startup(code: u32) -> Vec<u8> {
        [8_u32.to_be_bytes(), code.to_be_bytes()].concat()
    }

    /// The meanings of `messages`, given byte by byte.
    fn meanings(messages: &[Vec<u8>]) -> Vec<Meaning> {
        let mut frontend = FrontendMessages::default();
        let mut meanings = Vec::new();
        let mut passed = Vec::new();
        for byte in messages.concat() {
            frontend.push(&[byte]);
            while let Some(message) = frontend.next() {
                meanings.push(message.meaning);
                passed.extend(message.bytes);
            }
        }
        assert_eq!(passed, messages.concat());
        meanings
    }

    fn check(sql: &str, is_commit: bool) {
        let text = [sql.as_bytes(), b"\0"].concat();
        let expected = if is_commit { Meaning::Commit } else { Meaning::Other };
        assert_eq!(
            meanings(&[startup(196_608), message(b'Q', &text)]),
            [Meaning::Other, expected],
            "{sql}"
        );
    }

    #[test]
    fn a_commit_is_seen_in_a_simple_query() {
        check("COMMIT", true);
        check("commit;", true);
        check(" Commit Work ", true);
        check("insert into t values (1); commit", true);
        check("end", true);
        check("begin", false);
        check("rollback", false);
        check("commit prepared 'x'", false);
        check("insert into commits values (1)", false);
        check("", false);
    }

    #[test]
    fn a_commit_is_seen_when_a_prepared_one_is_executed() {
        let parse =
            |name: &str, sql: &str| message(b'P', format!("{name}\0{sql}\0\0\0").as_bytes());
        let bind = |name: &str| message(b'B', format!("\0{name}\0\0\0\0\0\0\0").as_bytes());
        let execute = || message(b'E', b"\0\0\0\0\0");
        let messages = [
            startup(TLS_REQUEST),
            startup(196_608),
            parse("c", "commit"),
            parse("i", "insert into t values (1)"),
            bind("i"),
            execute(),
            bind("c"),
            execute(),
            message(b'S', b""),
            parse("c", "select 1"),
            bind("c"),
            execute(),
        ];
        let mut expected = [Meaning::Other; 12];
        expected[0] = Meaning::EncryptionRequest;
        expected[7] = Meaning::Commit;
        assert_eq!(meanings(&messages), expected);
    }

    #[test]
    fn what_is_not_understood_passes() {
        let hello = b"\x16\x03\x01\x02\x00\x01\x00".to_vec();
        assert_eq!(meanings(&[[hello.clone(), hello].concat()])[0], Meaning::Other);
    }

    #[test]
    fn outcomes_are_read() {
        let mut answers = Answers::default();
        answers.expect_single();
        answers.push(b"N");
        answers.push(&message(b'C', b"INSERT 0 1\0"));
        answers.push(&message(b'C', b"COMMIT\0"));
        answers.push(&message(b'C', b"ROLLBACK\0"));
        answers.push(&message(b'E', b"SERROR\0\0"));
        let outcomes: Vec<_> =
            std::iter::from_fn(|| answers.next().map(|answer| answer.outcome)).collect();
        let no = Outcome::NotCommitted;
        assert_eq!(outcomes, [Outcome::Other, Outcome::Other, Outcome::Committed, no, no]);
    }
}
