//! Check digits of bank identifiers.
//!
//! They catch a mistyped digit before money leaves. They are asked for by live platforms only: the
//! sandbox steers outcomes by the last three characters of an identifier, and hardly any
//! identifier with such an ending has a correct check digit.
//!
//! Not here: Nigeria's account numbers, whose check digit needs a bank code that no client sends.

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
    /// A description of the identifier, for messages and documents.
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

    pub(crate) fn refusal(self) -> String {
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

    /// Whether it holds for an identifier; `key_type` is the account's `pixKeyType`.
    pub(crate) fn holds(self, text: &str, key_type: Option<&str>) -> bool {
        match self {
            Self::AbaRouting => aba_routing(text),
            Self::Iban => iban(text),
            Self::Clabe => clabe(text),
            Self::BrazilianTaxNumber => cpf(text) || cnpj(text),
            Self::PixKey => match key_type.map(str::to_ascii_uppercase).as_deref() {
                Some("CPF") => cpf(text),
                Some("CNPJ") => cnpj(text),
                _ => true,
            },
            Self::Base58 => base58(text),
            Self::Bech32 => bech32(text),
        }
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
    text.bytes().all(|byte| byte.is_ascii_alphanumeric())
        && text.parse::<iban::BaseIban>().is_ok()
        && is_iban_shaped(text)
}

/// Whether a text has the length and the characters of an IBAN of its country, and check digits
/// that ISO 7064 can give: 02 to 98. Whether they fit the number is not asked.
pub fn is_iban_shaped(text: &str) -> bool {
    let (Some(country), Some(digits), Some(number)) =
        (text.get(..2), text.get(2..4), text.get(4..))
    else {
        return false;
    };
    let is_alphanumeric = text.bytes().all(|byte| byte.is_ascii_alphanumeric());
    let digits = digits.parse::<u8>().ok().filter(|_| !digits.starts_with('+'));
    if !is_alphanumeric || !digits.is_some_and(|digits| (2..=98).contains(&digits)) {
        return false;
    }
    if let Some((_, letters, length)) = MORE_IBANS.iter().find(|(known, ..)| *known == country) {
        let (bank, account) = number.split_at_checked(*letters).unwrap_or_default();
        let is_account = |byte: u8| byte.is_ascii_digit() || country == "PK";
        return number.len() == *length
            && bank.bytes().all(|byte| byte.is_ascii_alphabetic())
            && account.bytes().all(is_account);
    }
    // The library takes an IBAN only with the check digits that fit.
    let remainder = iban_remainder(&format!("{number}{country}00"));
    format!("{country}{:02}{number}", 98 - remainder).parse::<iban::Iban>().is_ok()
}

/// Countries of the IBAN registry (SWIFT, release 100 of 2025) that the library does not know:
/// how many letters of the bank begin the number behind the check digits, and how long it is.
const MORE_IBANS: [(&str, usize, usize); 2] = [("HN", 4, 24), ("PK", 4, 20)];

/// The remainder modulo 97 of a text whose letters stand for 10 to 35 (ISO 7064).
fn iban_remainder(text: &str) -> u32 {
    text.chars().filter_map(|character| character.to_digit(36)).fold(0, |remainder, value| {
        let shift = if value < 10 { 10 } else { 100 };
        (remainder * shift + value) % 97
    })
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
/// Nothing but zeros has such a sum too, and belongs to no person.
fn mod10(text: &str, length: usize) -> bool {
    const WEIGHTS: [u32; 3] = [3, 7, 1];
    let digits: Option<Vec<u32>> = text.chars().map(|digit| digit.to_digit(10)).collect();
    digits.is_some_and(|digits| {
        let sum: u32 =
            digits.iter().zip(WEIGHTS.iter().cycle()).map(|(d, weight)| d * weight).sum();
        digits.len() == length && sum > 0 && sum.is_multiple_of(10)
    })
}

/// Whether the last two characters are the check digits of those before them: each is the weighted
/// sum of all characters to its left, times ten, modulo eleven. The weight is the place from the
/// right; ten becomes zero. A character's value is its distance from `0` in ASCII. One digit
/// repeated fulfils this too, and belongs to no person.
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

    /// The examples of the IBAN registry, one of each of its 89 countries.
    const IBANS: &str = "
        AD1200012030200359100100 AE070331234567890123456 AL47212110090000000235698741
        AT611904300234573201 AZ21NABZ00000000137010001944 BA391290079401028494 BE68539007547034
        BG80BNBG96611020345678 BH67BMAG00001299123456 BI4210000100010000332045181
        BR1800360305000010009795493C1 BY13NBRB3600900000002Z00AB00 CH9300762011623852957
        CR05015202001026284066 CY17002001280000001200527600 CZ6508000000192000145399
        DE89370400440532013000 DJ2100010000000154000100186 DK5000400440116243
        DO28BAGR00000001212453611324 EE382200221020145685 EG380019000500000000263180002
        ES9121000418450200051332 FI2112345600000785 FK88SC123456789012 FO6264600001631634
        FR1420041010050500013M02606 GB29NWBK60161331926819 GE29NB0000000101904917
        GI75NWBK000000007099453 GL8964710001000206 GR1601101250000000012300695
        GT82TRAJ01020000001210029690 HN88CABF00000000000250005469 HR1210010051863000160
        HU42117730161111101800000000 IE29AIBK93115212345678 IL620108000000099999999
        IQ98NBIQ850123456789012 IS140159260076545510730339 IT60X0542811101000000123456
        JO94CBJO0010000000000131000302 KW81CBKU0000000000001234560101 KZ86125KZT5004100100
        LB62099900000001001901229114 LC55HEMM000100010012001200023015 LI21088100002324013AA
        LT121000011101001000 LU280019400644750000 LV80BANK0000435195001
        LY83002048000020100120361 MC5811222000010123456789030 MD24AG000225100013104168
        ME25505000012345678951 MK07250120000058984 MN121234123456789123
        MR1300020001010000123456753 MT84MALT011000012345MTLCAST001S
        MU17BOMM0101101030300200000MUR NI45BAPR00000013000003558124 NL91ABNA0417164300
        NO9386011117947 OM810180000001299123456 PK36SCBL0000001123456702
        PL61109010140000071219812874 PS92PALS000000000400123456702 PT50000201231234567890154
        QA58DOHB00001234567890ABCDEFG RO49AAAA1B31007593840000 RS35260005601001611379
        RU0304452522540817810538091310419 SA0380000000608010167519
        SC18SSCB11010000000000001497USD SD8811123456789012 SE4550000000058398257466
        SI56263300012039086 SK3112000000198742637541 SM86U0322509800000000270100
        SO211000001001000100141 ST23000100010051845310146 SV62CENR00000000000000700025
        TL380080012345678910157 TN5910006035183598478831 TR330006100519786457841326
        UA213223130000026007233566001 VA59001123000012345678 VG96VPVG0000012345678901
        XK051212012345678906 YE15CBYE0001018861234567891234";

    #[test]
    fn ibans_of_every_country_have_its_shape() {
        assert_eq!(IBANS.split_whitespace().count(), 89);
        for text in IBANS.split_whitespace() {
            assert!(iban(text) && is_iban_shaped(text), "{text}");
            let (country, number) = (&text[..2], &text[4..]);
            // Other check digits are for live platforms to refuse, but for those that none has.
            for digits in 0..100 {
                let other = format!("{country}{digits:02}{number}");
                assert_eq!(is_iban_shaped(&other), (2..=98).contains(&digits), "{other}");
                assert_eq!(iban(&other), other == text, "{other}");
            }
            let shorter = &text[..text.len() - 1];
            for wrong in [shorter, &format!("{text}0"), &format!("ZZ{}", &text[2..])] {
                assert!(!is_iban_shaped(wrong), "{wrong}");
            }
            let blank = text.replacen(&number[..1], " ", 1);
            assert!(!is_iban_shaped(&blank), "{blank}");
        }
        for wrong in ["", "D", "DE", "DE89", "DE+9370400440532013000", "HN", "HN88", "PK36é"] {
            assert!(!is_iban_shaped(wrong), "{wrong}");
        }
        assert!(!is_iban_shaped("GB291234601613319268190"), "letters of the bank");
        assert!(!is_iban_shaped("HN88CABF0000000000025000546A"), "digits of the account");
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
