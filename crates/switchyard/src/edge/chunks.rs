//! Where a chunked body ends, found by the strict grammar of RFC 9112 section 7.1.
//!
//! A proxy in front and this server must agree on the end of a body. Otherwise one can be made to
//! see a request that the other does not. So what the grammar does not allow is refused, and the
//! decoder behind this sees nothing that it might read another way.

/// Longest line of a chunk's size with its extensions, which no client of an API sends.
const LINE_BYTES_MAX: usize = 4 * 1024;

/// Bytes of all trailer fields.
const TRAILER_BYTES_MAX: usize = 8 * 1024;

/// More digits than a size of 64 bits has.
const SIZE_DIGITS_MAX: usize = 16;

/// A chunked body up to where it was seen.
#[derive(Debug)]
pub(super) struct Chunks {
    at: At,
    /// Bytes of the line or the trailers so far.
    length: usize,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum At {
    Size { size: u64, digits: usize },
    Extension { size: u64 },
    SizeLineFeed { size: u64 },
    Data { left: u64 },
    DataReturn,
    DataLineFeed,
    TrailerStart,
    Trailer,
    TrailerLineFeed,
    LastLineFeed,
    End,
}

/// The body does not follow the grammar.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Malformed;

impl Chunks {
    pub(super) fn new() -> Self {
        Self { at: At::Size { size: 0, digits: 0 }, length: 0 }
    }

    pub(super) fn has_ended(&self) -> bool {
        self.at == At::End
    }

    /// Takes the next bytes, and tells how many of them are the body's: all, unless it ends.
    pub(super) fn advance(&mut self, bytes: &[u8]) -> Result<usize, Malformed> {
        let mut used = 0;
        while used < bytes.len() && !self.has_ended() {
            if let At::Data { left } = self.at {
                let rest = bytes.len() - used;
                let taken = usize::try_from(left).map_or(rest, |left| left.min(rest));
                used += taken;
                let left = left - taken as u64;
                self.at = if left == 0 { At::DataReturn } else { At::Data { left } };
            } else {
                self.at = self.after(bytes[used])?;
                used += 1;
            }
        }
        Ok(used)
    }

    fn after(&mut self, byte: u8) -> Result<At, Malformed> {
        let limit = match self.at {
            At::TrailerStart | At::Trailer | At::TrailerLineFeed => TRAILER_BYTES_MAX,
            _ => LINE_BYTES_MAX,
        };
        self.length += 1;
        if self.length > limit {
            return Err(Malformed);
        }
        match (self.at, byte) {
            (At::Size { size, digits }, _) if byte.is_ascii_hexdigit() => {
                let digit = char::from(byte).to_digit(16).expect("it is one of these");
                if digits == SIZE_DIGITS_MAX {
                    return Err(Malformed);
                }
                let size = (size << 4) | u64::from(digit);
                Ok(At::Size { size, digits: digits + 1 })
            }
            (At::Size { size, digits: 1.. }, b';') => Ok(At::Extension { size }),
            (At::Size { size, digits: 1.. } | At::Extension { size }, b'\r') => {
                Ok(At::SizeLineFeed { size })
            }
            (at @ At::Extension { .. }, _) if is_text(byte) => Ok(at),
            (At::SizeLineFeed { size }, b'\n') => {
                self.length = 0;
                Ok(if size == 0 { At::TrailerStart } else { At::Data { left: size } })
            }
            (At::DataReturn, b'\r') => Ok(At::DataLineFeed),
            (At::DataLineFeed, b'\n') => {
                self.length = 0;
                Ok(At::Size { size: 0, digits: 0 })
            }
            (At::TrailerStart, b'\r') => Ok(At::LastLineFeed),
            (At::TrailerStart | At::Trailer, _) if is_text(byte) => Ok(At::Trailer),
            (At::Trailer, b'\r') => Ok(At::TrailerLineFeed),
            (At::TrailerLineFeed, b'\n') => Ok(At::TrailerStart),
            (At::LastLineFeed, b'\n') => Ok(At::End),
            _ => Err(Malformed),
        }
    }
}

fn is_text(byte: u8) -> bool {
    byte == b'\t' || !byte.is_ascii_control()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The bytes behind the body, however it was cut on its way.
    fn check(text: &str, expected: Result<&str, Malformed>) {
        for step in [1, 2, 3, text.len()] {
            let mut chunks = Chunks::new();
            let mut used = 0;
            let result = loop {
                if chunks.has_ended() || used == text.len() {
                    break Ok(&text[used..]);
                }
                let end = text.len().min(used + step);
                match chunks.advance(&text.as_bytes()[used..end]) {
                    Ok(taken) => used += taken,
                    Err(malformed) => break Err(malformed),
                }
            };
            assert_eq!(result, expected, "{text:?} by {step}");
        }
    }

    #[test]
    fn a_body_ends_where_the_grammar_says() {
        check("0\r\n\r\nGET", Ok("GET"));
        check("3\r\nabc\r\n0\r\n\r\nGET", Ok("GET"));
        check("A;name=\"x\"\r\n0123456789\r\n000\r\n\r\n", Ok(""));
        check("0000000000000001\r\n\r\r\n0\r\nName: value\r\nOther: x\r\n\r\n!", Ok("!"));
    }

    #[test]
    fn what_can_be_read_two_ways_is_refused() {
        for text in [
            "\r\n",
            ";x\r\n",
            "3\nabc\r\n",
            "3\r\nabcd\r\n",
            "3\r\nabc\n0\r\n\r\n",
            "3\r\nab\r\n0\r\n\r\n",
            "3 \r\nabc\r\n",
            " 3\r\nabc\r\n",
            "+3\r\nabc\r\n",
            "0x3\r\nabc\r\n",
            "-1\r\n",
            "g\r\n",
            "3;a\nb\r\nabc\r\n",
            "3;a\rb\r\nabc\r\n",
            "00000000000000003\r\nabc\r\n",
            "0\r\n\n",
            "0\n\r\n",
            "0\r\nName: x\n\r\n",
            "0\r\n\rX",
        ] {
            check(text, Err(Malformed));
        }
        check(&format!("3;{}\r\nabc", "x".repeat(LINE_BYTES_MAX)), Err(Malformed));
        check(&format!("0\r\nName: {}\r\n\r\n", "x".repeat(TRAILER_BYTES_MAX)), Err(Malformed));
    }
}
