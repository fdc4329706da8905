//! Check digits of bank identifiers.
//!
//! They catch a mistyped digit before money leaves. They are asked for by live platforms only: the
//! sandbox steers outcomes by the last three characters of an identifier, and hardly any
//! identifier with such an ending has a correct check digit.
//!
//! Not here: Nigeria's account numbers, whose check digit needs a bank code that nobody sends.

use crate::account_info::{AccountInfo, FieldError, Rule};

/// A check that a [`crate::account_info::Field`] can ask for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Check {
    /// Routing number of the American Bankers Association.
    AbaRouting,
    /// International bank account number, with the lengths and formats of its country.
    Iban,
    /// Mexico's standardised account number.
    Clabe,
    /// Brazil's tax number: a person's CPF or a company's CNPJ.
    BrazilianTaxNumber,
    /// A PIX key that is a tax number, which its `pixKeyType` says.
    PixKey,
    /// Only characters that base58 has.
    Base58,
    /// Only characters that the data part of bech32 has.
    Bech32,
}

impl Check {
    /// What the identifier has to be, for messages and documents.
    pub const fn name(self) -> &'static str {
        match self {
            Self::AbaRouting => "an ABA routing number",
            Self::Iban => "an IBAN",
            Self::Clabe => "a CLABE",
            Self::BrazilianTaxNumber => "a CPF or CNPJ",
            Self::PixKey => "a CPF or CNPJ if pixKeyType says so",
            Self::Base58 => "a base58 address",
            Self::Bech32 => "a bech32 address",
        }
    }

    fn refusal(self) -> String {
        match self {
            Self::PixKey => "is not the CPF or CNPJ that pixKeyType says it is".to_owned(),
            Self::AbaRouting
            | Self::Iban
            | Self::Clabe
            | Self::BrazilianTaxNumber
            | Self::Base58
            | Self::Bech32 => format!("is not {}: check it for a mistyped character", self.name()),
        }
    }

    fn holds(self, text: &str, account: &AccountInfo) -> bool {
        match self {
            Self::AbaRouting => aba_routing(text),
            Self::Iban => iban(text),
            Self::Clabe => clabe(text),
            Self::BrazilianTaxNumber => cpf(text) || cnpj(text),
            Self::PixKey => {
                match account.text("pixKeyType").map(str::to_ascii_uppercase).as_deref() {
                    Some("CPF") => cpf(text),
                    Some("CNPJ") => cnpj(text),
                    _ => true,
                }
            }
            Self::Base58 => base58(text),
            Self::Bech32 => bech32(text),
        }
    }
}

impl AccountInfo {
    /// The fields whose check digits are wrong. Patterns were checked when the value was made.
    pub fn check_digits(&self) -> Vec<FieldError> {
        let fields = self.account_type().fields.iter();
        fields
            .filter_map(|field| Some((field, field.check?, self.text(field.name)?)))
            .filter(|(_, check, text)| !check.holds(text, self))
            .map(|(field, check, _)| FieldError {
                field: field.name.to_owned(),
                rule: Rule::Checksum,
                message: check.refusal(),
            })
            .collect()
    }
}

/// Routing number of the American Bankers Association: nine digits.
pub fn aba_routing(text: &str) -> bool {
    mod10(text, 9)
}

/// Mexico's standardised account number: eighteen digits.
pub fn clabe(text: &str) -> bool {
    mod10(text, 18)
}

/// International bank account number without spaces, in capitals.
pub fn iban(text: &str) -> bool {
    text.bytes().all(|byte| byte.is_ascii_alphanumeric()) && text.parse::<iban::Iban>().is_ok()
}

/// Brazil's tax number of a person: eleven digits, with or without its punctuation.
pub fn cpf(text: &str) -> bool {
    let digits = without_punctuation(text);
    digits.len() == 11
        && digits.bytes().all(|byte| byte.is_ascii_digit())
        && mod11(&digits, |place| 2 + place)
}

/// Brazil's tax number of a company: fourteen characters of which the first twelve may be capitals
/// since July 2026 and the last two are digits, with or without its punctuation.
pub fn cnpj(text: &str) -> bool {
    let digits = without_punctuation(text);
    digits.len() == 14
        && digits.bytes().all(|byte| byte.is_ascii_digit() || byte.is_ascii_uppercase())
        && mod11(&digits, |place| 2 + place % 8)
}

/// Text of the base58 alphabet, which leaves out `0`, `O`, `I` and `l`.
pub fn base58(text: &str) -> bool {
    !text.is_empty()
        && text.bytes().all(|byte| byte.is_ascii_alphanumeric() && !b"0OIl".contains(&byte))
}

/// Text whose part behind the last `1` is of the bech32 alphabet, in one case throughout.
pub fn bech32(text: &str) -> bool {
    let one_case = !text.bytes().any(|byte| byte.is_ascii_uppercase())
        || !text.bytes().any(|byte| byte.is_ascii_lowercase());
    one_case
        && text.rsplit_once('1').is_some_and(|(prefix, data)| {
            !prefix.is_empty()
                && !data.is_empty()
                && data.bytes().all(|byte| {
                    byte.is_ascii_alphanumeric() && !b"bio".contains(&byte.to_ascii_lowercase())
                })
        })
}

/// Whether `text` is `length` digits whose sum with the weights 3, 7, 1 is a multiple of ten.
/// Nothing but zeros has such a sum too, and is nobody's number.
fn mod10(text: &str, length: usize) -> bool {
    const WEIGHTS: [u32; 3] = [3, 7, 1];
    let digits: Option<Vec<u32>> = text.chars().map(|digit| digit.to_digit(10)).collect();
    digits.is_some_and(|digits| {
        let sum: u32 =
            digits.iter().zip(WEIGHTS.iter().cycle()).map(|(d, weight)| d * weight).sum();
        digits.len() == length && sum > 0 && sum.is_multiple_of(10)
    })
}

/// Whether the last two characters are the check digits of those before them: each is the sum of
/// all characters to its left, weighted by their place from the right, times ten, modulo eleven,
/// and zero where that is ten. A character's value is its distance from `0` in ASCII. One digit
/// repeated fulfils this too, and is nobody's number.
fn mod11(text: &str, weight: impl Fn(u32) -> u32) -> bool {
    let values: Vec<u32> = text.bytes().map(|byte| u32::from(byte.saturating_sub(b'0'))).collect();
    let repeated = values.windows(2).all(|pair| pair[0] == pair[1]);
    let check_digit = |values: &[u32]| {
        let sum: u32 =
            (0..).zip(values.iter().rev()).map(|(place, value)| value * weight(place)).sum();
        sum * 10 % 11 % 10
    };
    !repeated
        && (values.len() - 2..values.len())
            .all(|place| values[place] == check_digit(&values[..place]))
}

fn without_punctuation(text: &str) -> String {
    text.chars().filter(|character| !".-/".contains(*character)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    type Holds = fn(&str) -> bool;

    fn check(name: &str, holds: Holds, good: &[&str], bad: &[&str]) {
        for text in good {
            assert!(holds(text), "{name} {text} is right");
        }
        for text in bad.iter().chain(&["", " ", "0", "é", "00000000000000000000000000"]) {
            assert!(!holds(text), "{name} {text} is wrong");
        }
    }

    #[test]
    fn known_numbers() {
        check(
            "ABA",
            aba_routing,
            &["021000021", "011000015", "121000248", "322271627", "026009593"],
            &["123456789", "987654321", "021000022", "000000000", "02100002", "0210000210"],
        );
        check(
            "IBAN",
            iban,
            &[
                "DE89370400440532013000",
                "GB29NWBK60161331926819",
                "DK5000400440116243",
                "FR1420041010050500013M02606",
                "NO9386011117947",
                "MT84MALT011000012345MTLCAST001S",
            ],
            &[
                "DE89370400440532013003",
                "DE89 3704 0044 0532 0130 00",
                "DE8937040044053201300",
                "XX89370400440532013000",
            ],
        );
        check(
            "CLABE",
            clabe,
            &["032180000118359719", "002010077777777771"],
            &["123456789012345678", "032180000118359710", "03218000011835971"],
        );
        check(
            "CPF",
            cpf,
            &["11144477735", "52998224725", "529.982.247-25"],
            &["11144477734", "12345678901", "11111111111", "00000000000", "1114447773A"],
        );
        check(
            "CNPJ",
            cnpj,
            &[
                "11222333000181",
                "11444777000161",
                "00000000000191",
                "12ABC34501DE35",
                "12.ABC.345/01DE-35",
            ],
            &["11222333000180", "12ABC34501DE36", "12abc34501de35", "00000000000000"],
        );
        check(
            "base58",
            base58,
            &["7EcDhSYGxXyscszYEp35KHN8vvw3svAuLKTzXwCFLtV"],
            &["7EcDhSYGxXyscszYEp35KHN8vvw3svAuLKTzXwCF002", "O", "I", "l"],
        );
        check(
            "bech32",
            bech32,
            &[
                "spark1pgssy7d7vel0nh9m4326qc54e6rskpczn07dktww9rv4nu5ptvt0s9uc489gg2",
                "SPARK1PGSSY7D7VEL0NH9M4326QC54E6RSKPCZN07DKTWW9RV4NU5PTVT0S9UC489GG2",
            ],
            &["spark1pgssY", "1qqq", "spark1", "spark1pgssb"],
        );
    }

    /// Every single wrong digit is found, which is what these checks are for.
    #[test]
    fn one_wrong_digit_is_found() {
        let numbers: [(Holds, &str); 4] = [
            (aba_routing, "021000021"),
            (clabe, "032180000118359719"),
            (iban, "DE89370400440532013000"),
            (cpf, "52998224725"),
        ];
        for (holds, number) in numbers {
            for (place, right) in number.char_indices().filter(|(_, c)| c.is_ascii_digit()) {
                for wrong in ('0'..='9').filter(|wrong| *wrong != right) {
                    let mut text = number.to_owned();
                    text.replace_range(place..=place, wrong.encode_utf8(&mut [0; 4]));
                    assert!(!holds(&text), "{text}");
                }
            }
        }
    }

    proptest::proptest! {
        #[test]
        fn no_text_breaks_a_check(text in ".{0,40}") {
            for holds in [aba_routing, iban, clabe, cpf, cnpj, base58, bech32] {
                holds(&text);
            }
        }
    }
}
