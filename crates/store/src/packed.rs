//! Bodies in few bytes. What is kept for each payment are JSON texts that say nearly the same:
//! names of fields, identifiers in hexadecimal, times. Packed they take an eighth, unpacked they
//! are the same to the byte.
//!
//! - Phrases that most bodies have become one byte each, of those that JSON as we write it has not.
//! - Identifiers become their sixteen bytes and times six, each behind a byte that no UTF-8 text
//!   has. One that stands beside the body anyway, or was met before, becomes its number.
//! - What is still long then has more to say than most: LZ4 takes out what stands in a dictionary
//!   too.
//!
//! The first byte says how: with other phrases or another dictionary it would be another number,
//! and what was packed before would stay readable.

use std::ops::Range;
use std::sync::LazyLock;

use domain::id::TransactionId;
use domain::transaction::{reference, referenced};
use uuid::Uuid;

/// Folded with [`PHRASES`].
const FOLDED_1: u8 = 1;

/// The same, and then packed with [`DICTIONARY`].
const LZ4_1: u8 = 2;

/// As it was: not text, or not smaller packed.
const PLAIN: u8 = 0;

/// What stands for phrases is below this byte.
const PHRASES_END: u8 = 0x20;

/// UTF-8 never has this byte nor one above it: they are marks. This one stands before the number of
/// a known identifier, for the digits of its reconciliation reference.
const FIRST_MARK: u8 = 0xf9;

/// What a mark stands before.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Kind {
    /// An identifier.
    Uuid,
    /// An identifier that is part of a reference: in capitals, without hyphens.
    Reference,
    /// A time.
    Time,
}

impl Kind {
    /// The mark before its bytes, and the one before its number among those that are known.
    const fn marks(self) -> [u8; 2] {
        match self {
            Self::Uuid => [0xff, 0xfc],
            Self::Time => [0xfe, 0xfb],
            Self::Reference => [0xfd, 0xfa],
        }
    }

    /// What a mark is of, and whether a number follows.
    fn of_mark(mark: u8) -> Option<(Self, bool)> {
        [Self::Uuid, Self::Time, Self::Reference].into_iter().find_map(|kind| {
            let place = kind.marks().iter().position(|known| *known == mark)?;
            Some((kind, place == 1))
        })
    }
}

/// What is known when a body is packed or unpacked up to some place of it: what stands beside it,
/// and what stood in it.
struct Known {
    uuids: Vec<Uuid>,
    times: Vec<[u8; TIME_BYTES]>,
}

/// A number is a byte.
const KNOWN_MAX: usize = 256;

impl Known {
    fn beside(uuids: &[Uuid]) -> Self {
        Self { uuids: uuids.to_vec(), times: Vec::new() }
    }

    /// Writes something that was found: its number if it is known, else its bytes. From then on it
    /// is known.
    fn put<T: Copy + PartialEq>(
        all: &mut Vec<T>,
        found: T,
        [mark, mark_of_number]: [u8; 2],
        bytes: &[u8],
        folded: &mut Vec<u8>,
    ) {
        let place = all.iter().position(|known| *known == found);
        match place.and_then(|place| u8::try_from(place).ok()) {
            Some(number) => folded.extend_from_slice(&[mark_of_number, number]),
            None => {
                folded.push(mark);
                folded.extend_from_slice(bytes);
                if all.len() < KNOWN_MAX {
                    all.push(found);
                }
            }
        }
    }

    /// The number of the identifier whose reconciliation reference this is, if it is known.
    fn referenced(&self, text: &[u8]) -> Option<u8> {
        let text = std::str::from_utf8(text).ok()?;
        let (first, last) = referenced(text)?;
        let ids = first.uuid()..=last.uuid();
        let place = self.uuids.iter().position(|known| ids.contains(known))?;
        // Only what comes back the same.
        let is_its = reference(TransactionId::from_uuid(self.uuids[place])) == text;
        u8::try_from(place).ok().filter(|_| is_its)
    }

    /// Reads what [`Known::put`] wrote behind a mark. Gives what stands behind it, too.
    fn take<'a, T: Copy, const BYTES: usize>(
        all: &mut Vec<T>,
        is_number: bool,
        folded: &'a [u8],
        of_bytes: impl FnOnce([u8; BYTES]) -> T,
    ) -> Option<(T, &'a [u8])> {
        if is_number {
            let (number, behind) = folded.split_first()?;
            return Some((*all.get(usize::from(*number))?, behind));
        }
        let (bytes, behind) = folded.split_first_chunk()?;
        let found = of_bytes(*bytes);
        if all.len() < KNOWN_MAX {
            all.push(found);
        }
        Some((found, behind))
    }
}

/// Characters of an identifier in hexadecimal with its hyphens.
const UUID_TEXT: usize = 36;

/// Characters of an identifier within a reference.
const REFERENCE_TEXT: usize = 32;

/// Characters of a reconciliation reference, of which two stand before its hyphen.
const RECONCILIATION_TEXT: usize = 23;
const RECONCILIATION_START: usize = 2;

/// A time as we write it: digits where this has zeros.
const TIME_TEXT: &[u8; 24] = b"0000-00-00T00:00:00.000Z";

/// The numbers of a time, with the number that each is below. A day need not be one of its month:
/// it comes back all the same.
const TIME_PARTS: [(Range<usize>, u64); 7] = [
    (0..4, 10_000),
    (5..7, 13),
    (8..10, 32),
    (11..13, 24),
    (14..16, 60),
    (17..19, 60),
    (20..23, 1_000),
];

/// Bytes of a time: enough for those of the next five thousand years.
const TIME_BYTES: usize = 6;

/// A body is no longer than this: requests have limits, and answers are made of them.
const UNPACKED_MAX: usize = 1024 * 1024;

/// Phrases of our bodies, each with its place for a byte: those that every payment is told with,
/// from one identifier, time or number to the next. Never changed: better ones would be another
/// number. None begins with one that stands before it.
static PHRASES: [&str; 32] = [
    r#"{"id":"Webhook:"#,
    r#"","type":"OUTGOING_PAYMENT","timestamp":""#,
    r#"","type":"INCOMING_PAYMENT","timestamp":""#,
    r#"","type":"ACCOUNT_STATUS","timestamp":""#,
    r#"","data":{"id":"Transaction:"#,
    r#"","data":{"id":"InternalAccount:"#,
    r#"","status":"PENDING","type":"OUTGOING","source":{"sourceType":"ACCOUNT","accountId":"InternalAccount:"#,
    r#"","status":"PROCESSING","type":"OUTGOING","source":{"sourceType":"ACCOUNT","accountId":"InternalAccount:"#,
    r#"","status":"COMPLETED","type":"OUTGOING","source":{"sourceType":"ACCOUNT","accountId":"InternalAccount:"#,
    r#"","status":"COMPLETED","type":"INCOMING","#,
    r#"","currency":"USD"},"destination":{"destinationType":"ACCOUNT","accountId":"ExternalAccount:"#,
    r#""destination":{"destinationType":"ACCOUNT","accountId":"InternalAccount:"#,
    r#","destination":{"destinationType":"ACCOUNT","accountId":"ExternalAccount:"#,
    r#"","currency":""#,
    r#""},"customerId":"Customer:"#,
    r#"","customerId":"Customer:"#,
    r#"","platformCustomerId":""#,
    r#"","sentAmount":{"amount":"#,
    r#","currency":{"code":"USD","name":"United States dollar","symbol":"$","decimals":2}}"#,
    r#","currency":{"code":""#,
    r#","receivedAmount":{"amount":"#,
    r#","settledAt":""#,
    r#","createdAt":""#,
    r#"","createdAt":""#,
    r#"","updatedAt":""#,
    r#"","description":""#,
    r#"","reconciliationInstructions":{"reference":"SY-"#,
    r#"","balance":{"amount":"#,
    r#","fundingPaymentInstructions":[{"accountOrWalletInfo":{"accountNumber":"12345678901","accountType":"USD_ACCOUNT","bankName":"First Community Bank","paymentRails":["ACH","WIRE","RTP","FEDNOW"],"reference":"SYA-"#,
    r#"","routingNumber":"021000021"},"instructionsNotes":"Put SYA-"#,
    r#" in the reference of the payment.","isPlatformAccount":false}],"createdAt":""#,
    r#"","oldBalance":{"amount":"#,
];

/// The place in a phrase of the byte by which it is looked for: those before it are the same in
/// most.
const TELLING: usize = 3;

/// Phrases, each with what stands for it.
type Coded = Vec<(u8, &'static [u8])>;

/// Phrases by their telling byte.
static PHRASES_BY_BYTE: LazyLock<Vec<Coded>> = LazyLock::new(|| {
    let mut all = vec![Vec::new(); 256];
    for (code, phrase) in (0..).zip(PHRASES.map(str::as_bytes)) {
        all[usize::from(phrase[TELLING])].push((code, phrase));
    }
    all
});

/// What bodies have in common besides, the most common last, where LZ4 finds it nearest. Never
/// changed: a better one would be another number.
const DICTIONARY: &[u8] = br#"{"status":409,"code":"INVALID_INPUT","message":"","details":{"errors":[{"field":"","reason":""}],"hint":"send requiredPermission":"the amount is more than the account has available","available":}}"transferId":"Quote:"lockedCurrencySide":"SENDING","totalSendingAmount":,"totalReceivingAmount":,"sendingCurrency":{"receivingCurrency":{"expiresAt":"feesIncluded":"paymentInstructions":[{"accountOrWalletInfo":{"accountType":"USD_ACCOUNT","reference":"","accountNumber":"","routingNumber":"","bankName":"instructionsNotes":""}}],"umaAddress":"$platformCustomerId":"customerType":"INDIVIDUAL","fullName":"kycStatus":"APPROVED","birthDate":"nationality":"US","address":{"line1":"city":"state":"postalCode":"country":"isDeleted":false,"EUR","name":"Euro","symbol":"MXN"INR"GBP"BRL","failureReason":"OFFRAMP_FAILED","refund":{"reference":"","status":"COMPLETED","reason":"initiatedAt":"settledAt":""},"rateDetails":{"serviceApiMultiplier":,"serviceApiFixedFee":0,"serviceApiVariableFeeRate":0.,"serviceApiVariableFeeAmount":0,"counterpartyMultiplier":1,"counterpartyFixedFee":0},"quoteId":"Quote:"exchangeRate":1,"fees":0,"sourceType":"REALTIME_FUNDING","currency":"USDC","INCOMING_PAYMENT","type":"INCOMING","REJECTED","EXPIRED","FAILED","REFUNDED","type":"ACCOUNT_STATUS","timestamp":"2026-","data":{"id":"InternalAccount:","customerId":"Customer:","balance":{"amount":,"currency":{"code":"USD","name":"United States dollar","symbol":"$","decimals":2}},"fundingPaymentInstructions":[{"accountOrWalletInfo":{"accountNumber":"12345678901","accountType":"USD_ACCOUNT","bankName":"First Community Bank","paymentRails":["ACH","WIRE","RTP","FEDNOW"],"reference":"SYA-","routingNumber":"021000021"},"instructionsNotes":"Put SYA- in the reference of the payment.","isPlatformAccount":false}],"createdAt":"2026-","updatedAt":"2026-","oldBalance":{"amount":,"currency":{"code":"USD","name":"United States dollar","symbol":"$","decimals":2}},"newBalance":{"amount":,"currency":{"code":"USD","name":"United States dollar","symbol":"$","decimals":2}}}}"type":"OUTGOING_PAYMENT","timestamp":"2026-2027-00:00:00.000Z","data":{"id":"Transaction:","status":"PENDING","type":"OUTGOING","source":{"sourceType":"ACCOUNT","accountId":"InternalAccount:","currency":"USD"},"destination":{"destinationType":"ACCOUNT","accountId":"ExternalAccount:","currency":"USD"},"customerId":"Customer:PlatformConfig:","platformCustomerId":"","sentAmount":{"amount":,"currency":{"code":"USD","name":"United States dollar","symbol":"$","decimals":2}},"receivedAmount":{"amount":,"currency":{"code":"USD","name":"United States dollar","symbol":"$","decimals":2}},"status":"PROCESSING","status":"COMPLETED","settledAt":"createdAt":"2026-","updatedAt":"2026-","description":"Invoice ","reconciliationInstructions":{"reference":"SY-"}}}{"id":"Webhook:"#;

/// The dictionary as bodies look when LZ4 gets them.
static FOLDED_DICTIONARY: LazyLock<Vec<u8>> = LazyLock::new(|| {
    let mut folded = Vec::new();
    put_text(DICTIONARY, &mut folded);
    folded
});

/// A body that takes this part of its bytes when it is folded, or less, is short enough if it is
/// one: LZ4 would need longer than all else here and take a tenth off it. Of several bodies
/// together, it takes half.
const SHORT_ENOUGH: usize = 6;

/// What is longer than this when it is folded has more to say than one payment's body.
const ONE_BODY_MAX: usize = 200;

/// Bytes that say how long the folded body is.
const LENGTH_BYTES: usize = 3;

/// Packs a body. It need not have what stands beside it.
pub(crate) fn pack(body: &[u8], beside: &[Uuid]) -> Vec<u8> {
    if body.len() <= UNPACKED_MAX && are_text(body) {
        let folded = fold(body, Known::beside(beside));
        if folded.len() <= ONE_BODY_MAX && folded.len() * SHORT_ENOUGH <= body.len() {
            return [&[FOLDED_1], &folded[..]].concat();
        }
        let packed = lz4_flex::block::compress_with_dict(&folded, &FOLDED_DICTIONARY);
        if packed.len() + LENGTH_BYTES < body.len() {
            let length = folded.len().to_be_bytes();
            let length = &length[length.len() - LENGTH_BYTES..];
            return [&[LZ4_1], length, &packed].concat();
        }
    }
    [&[PLAIN], body].concat()
}

/// Gives back what [`pack`] was given, if the same stands beside it; nothing if this was never
/// packed.
pub(crate) fn unpack(packed: &[u8], beside: &[Uuid]) -> Option<Vec<u8>> {
    match packed.split_first()? {
        (&PLAIN, body) => Some(body.to_vec()),
        (&FOLDED_1, folded) => unfold(folded, Known::beside(beside)),
        (&LZ4_1, rest) => {
            let (length, packed) = rest.split_first_chunk::<LENGTH_BYTES>()?;
            let length = length.iter().fold(0, |length, byte| length << 8 | usize::from(*byte));
            if length > UNPACKED_MAX {
                return None;
            }
            let dictionary = &FOLDED_DICTIONARY;
            let folded = lz4_flex::block::decompress_with_dict(packed, length, dictionary).ok()?;
            unfold(&folded, Known::beside(beside))
        }
        _ => None,
    }
}

/// Whether a byte stands for itself in a body that is folded.
fn is_text(byte: u8) -> bool {
    (PHRASES_END..FIRST_MARK).contains(&byte)
}

/// Whether all bytes stand for themselves. It does not end at the first that does not: nearly
/// always all do, and so many are looked at in one step.
fn are_text(body: &[u8]) -> bool {
    body.iter().fold(true, |all, byte| all & is_text(*byte))
}

/// Writes identifiers and times as a mark and their bytes, and phrases as a byte. Looks only where
/// the first hyphen of one stands, or the one before a reference.
fn fold(body: &[u8], mut known: Known) -> Vec<u8> {
    let mut folded = Vec::with_capacity(body.len());
    let (mut rest, mut looked) = (body, 0);
    while let Some(hyphen) = memchr::memchr(b'-', &rest[looked..]) {
        let hyphen = looked + hyphen;
        match fold_at(rest, hyphen, &mut known, &mut folded) {
            Some(end) => (rest, looked) = (&rest[end..], 0),
            None => looked = hyphen + 1,
        }
    }
    put_text(rest, &mut folded);
    folded
}

/// Writes text, phrases as the bytes that stand for them.
fn put_text(mut text: &[u8], folded: &mut Vec<u8>) {
    let by_byte = &**PHRASES_BY_BYTE;
    while let Some((first, behind)) = text.split_first() {
        let telling = text.get(TELLING).map_or(&[][..], |byte| &by_byte[usize::from(*byte)]);
        let phrase = telling.iter().find(|(_, phrase)| text.starts_with(phrase));
        match phrase {
            Some((code, phrase)) => {
                folded.push(*code);
                text = &text[phrase.len()..];
            }
            None => {
                folded.push(*first);
                text = behind;
            }
        }
    }
}

/// Folds what has its first hyphen here, or begins behind it, and what stands before. Where it
/// ends.
fn fold_at(body: &[u8], hyphen: usize, known: &mut Known, folded: &mut Vec<u8>) -> Option<usize> {
    let from = |start: usize, length: usize| start..start + length;
    if let Some(text) = hyphen.checked_sub(4).map(|start| from(start, TIME_TEXT.len()))
        && let Some(time) = body.get(text.clone()).and_then(time_bytes)
    {
        put_text(&body[..text.start], folded);
        Known::put(&mut known.times, time, Kind::Time.marks(), &time, folded);
        return Some(text.end);
    }
    let reconciliation = |start| from(start, RECONCILIATION_TEXT);
    if let Some(text) = hyphen.checked_sub(RECONCILIATION_START).map(reconciliation)
        && let Some(number) = body.get(text.clone()).and_then(|text| known.referenced(text))
    {
        // Up to the hyphen it is the end of a phrase.
        put_text(&body[..=hyphen], folded);
        folded.extend_from_slice(&[FIRST_MARK, number]);
        return Some(text.end);
    }
    let mut put = |text: Range<usize>, kind: Kind, uuid: Uuid| {
        put_text(&body[..text.start], folded);
        Known::put(&mut known.uuids, uuid, kind.marks(), uuid.as_bytes(), folded);
        Some(text.end)
    };
    if let Some(text) = hyphen.checked_sub(8).map(|start| from(start, UUID_TEXT))
        && let Some(uuid) = body.get(text.clone()).and_then(canonical)
    {
        return put(text, Kind::Uuid, uuid);
    }
    let text = from(hyphen + 1, REFERENCE_TEXT);
    let uuid = body.get(text.clone()).and_then(in_capitals)?;
    put(text, Kind::Reference, uuid)
}

/// The identifier that stands here as we write it: other spellings would not come back the same.
fn canonical(text: &[u8]) -> Option<Uuid> {
    if text[8] != b'-' || text[13] != b'-' || text[18] != b'-' || text[23] != b'-' {
        return None;
    }
    let has_capitals = text.iter().any(u8::is_ascii_uppercase);
    if has_capitals { None } else { Uuid::try_parse_ascii(text).ok() }
}

/// The identifier that stands here as references have it.
fn in_capitals(text: &[u8]) -> Option<Uuid> {
    let is_capital = |byte: &u8| matches!(byte, b'0'..=b'9' | b'A'..=b'F');
    if text.iter().all(is_capital) { Uuid::try_parse_ascii(text).ok() } else { None }
}

/// The bytes of the time that stands here as we write it: its numbers as one.
fn time_bytes(text: &[u8]) -> Option<[u8; TIME_BYTES]> {
    let fits = |(byte, like): (&u8, &u8)| match like {
        b'0' => byte.is_ascii_digit(),
        _ => byte == like,
    };
    if !text.iter().zip(TIME_TEXT).all(fits) {
        return None;
    }
    let mut time = 0;
    for (part, below) in TIME_PARTS {
        let digits = text[part].iter();
        let number = digits.fold(0, |number, digit| number * 10 + u64::from(*digit - b'0'));
        if number >= below {
            return None;
        }
        time = time * below + number;
    }
    let [0, 0, bytes @ ..] = time.to_be_bytes() else { return None };
    Some(bytes)
}

/// The time that has these bytes.
fn time_text(bytes: [u8; TIME_BYTES]) -> [u8; TIME_TEXT.len()] {
    let (mut time, mut text) = (0, *TIME_TEXT);
    for byte in bytes {
        time = time << 8 | u64::from(byte);
    }
    for (part, below) in TIME_PARTS.into_iter().rev() {
        let mut number = time % below;
        time /= below;
        for digit in text[part].iter_mut().rev() {
            *digit = b"0123456789"[(number % 10) as usize];
            number /= 10;
        }
    }
    text
}

fn unfold(folded: &[u8], mut known: Known) -> Option<Vec<u8>> {
    let mut body = Vec::with_capacity(folded.len() * 8);
    let mut rest = folded;
    while let Some(place) = rest.iter().position(|byte| !is_text(*byte)) {
        if body.len() > UNPACKED_MAX {
            return None;
        }
        body.extend_from_slice(&rest[..place]);
        let (byte, behind) = (rest[place], &rest[place + 1..]);
        rest = match PHRASES.get(usize::from(byte)) {
            Some(phrase) => {
                body.extend_from_slice(phrase.as_bytes());
                behind
            }
            None => unfold_at(byte, behind, &mut known, &mut body)?,
        };
    }
    body.extend_from_slice(rest);
    Some(body)
}

/// Unfolds what stands behind a mark. Gives what stands behind that.
fn unfold_at<'a>(
    mark: u8,
    folded: &'a [u8],
    known: &mut Known,
    body: &mut Vec<u8>,
) -> Option<&'a [u8]> {
    if mark == FIRST_MARK {
        let (number, behind) = folded.split_first()?;
        let uuid = known.uuids.get(usize::from(*number))?;
        let reference = reference(TransactionId::from_uuid(*uuid));
        body.extend_from_slice(&reference.as_bytes()[RECONCILIATION_START + 1..]);
        return Some(behind);
    }
    let (kind, is_number) = Kind::of_mark(mark)?;
    if kind == Kind::Time {
        let (time, behind) = Known::take(&mut known.times, is_number, folded, |bytes| bytes)?;
        body.extend_from_slice(&time_text(time));
        return Some(behind);
    }
    let (uuid, behind) = Known::take(&mut known.uuids, is_number, folded, Uuid::from_bytes)?;
    let mut text = [0; UUID_TEXT];
    let text = match kind {
        Kind::Reference => uuid.simple().encode_upper(&mut text),
        Kind::Uuid | Kind::Time => uuid.hyphenated().encode_lower(&mut text),
    };
    body.extend_from_slice(text.as_bytes());
    Some(behind)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const EVENT: &str = r#"{"id":"Webhook:5d0295b3-e7f5-5d02-8000-4e0f9d0a5157","type":"OUTGOING_PAYMENT","timestamp":"2026-11-21T15:00:00.123Z","data":{"id":"Transaction:019542f5-b3e7-7d02-8000-000000000005","status":"PENDING","type":"OUTGOING","source":{"sourceType":"ACCOUNT","accountId":"InternalAccount:019542f5-b3e7-7d02-8000-000000000348","currency":"USD"},"destination":{"destinationType":"ACCOUNT","accountId":"ExternalAccount:019542f5-b3e7-7d02-8000-000000000007","currency":"USD"},"customerId":"Customer:019542f5-b3e7-7d02-8000-000000000000","platformCustomerId":"ada-1","sentAmount":{"amount":7,"currency":{"code":"USD","name":"United States dollar","symbol":"$","decimals":2}},"receivedAmount":{"amount":7,"currency":{"code":"USD","name":"United States dollar","symbol":"$","decimals":2}},"createdAt":"2026-11-21T15:00:00.123Z","updatedAt":"2026-11-21T15:00:00.123Z","description":"Invoice 2025-001","reconciliationInstructions":{"reference":"SY-CN8BTV7SYG4000000000"}}}"#;

    const ACCOUNT_EVENT: &str = r#"{"id":"Webhook:5d0295b3-e7f5-5d02-8000-4e0f9d0a5157","type":"ACCOUNT_STATUS","timestamp":"2026-11-21T15:00:00.123Z","data":{"id":"InternalAccount:019542f5-b3e7-7d02-8000-000000000348","balance":{"amount":99993,"currency":{"code":"USD","name":"United States dollar","symbol":"$","decimals":2}},"fundingPaymentInstructions":[{"accountOrWalletInfo":{"accountNumber":"12345678901","accountType":"USD_ACCOUNT","bankName":"First Community Bank","paymentRails":["ACH","WIRE","RTP","FEDNOW"],"reference":"SYA-019542F5B3E77D028000000000000348","routingNumber":"021000021"},"instructionsNotes":"Put SYA-019542F5B3E77D028000000000000348 in the reference of the payment.","isPlatformAccount":false}],"createdAt":"2026-11-21T14:00:00.000Z","updatedAt":"2026-11-21T15:00:00.123Z","customerId":"Customer:019542f5-b3e7-7d02-8000-000000000000","oldBalance":{"amount":100000,"currency":{"code":"USD","name":"United States dollar","symbol":"$","decimals":2}},"newBalance":{"amount":99993,"currency":{"code":"USD","name":"United States dollar","symbol":"$","decimals":2}}}}"#;

    /// What stands beside [`EVENT`]: what it is about, and its own id.
    fn beside() -> [Uuid; 2] {
        ["019542f5-b3e7-7d02-8000-000000000005", "5d0295b3-e7f5-5d02-8000-4e0f9d0a5157"]
            .map(|text| Uuid::parse_str(text).unwrap())
    }

    #[test]
    fn an_event_takes_an_eighth_and_comes_back_the_same() {
        let check = |event: &str, beside: &[Uuid], part: usize| {
            let packed = pack(event.as_bytes(), beside);
            assert!(packed.len() * part < event.len(), "{} of {}", packed.len(), event.len());
            assert_eq!(unpack(&packed, beside).as_deref(), Some(event.as_bytes()));
        };
        check(EVENT, &beside(), 8);
        check(EVENT, &[], 6);
        check(ACCOUNT_EVENT, &[], 8);
        let with_more =
            EVENT.replace("ada-1", &"somebody whom few others are called like ".repeat(4));
        check(&with_more, &beside(), 6);
    }

    #[test]
    fn phrases_are_found_and_stand_for_themselves() {
        for (place, phrase) in PHRASES.iter().enumerate() {
            let mut folded = Vec::new();
            put_text(phrase.as_bytes(), &mut folded);
            assert_eq!(folded, [u8::try_from(place).unwrap()], "{phrase}");
        }
    }

    #[test]
    fn what_is_known_takes_two_bytes_however_it_is_written() {
        let [payment, _] = beside();
        let text = format!(
            "{payment} SYA-{} SY-CN8BTV7SYG4000000000 2026-11-22T02:24:47.342Z 2026-11-22T02:24:47.342Z",
            payment.simple().to_string().to_uppercase()
        );
        let folded = fold(text.as_bytes(), Known::beside(&[payment]));
        assert_eq!(folded.len(), 2 + " SYA-".len() + 2 + " SY-".len() + 2 + 1 + 7 + 1 + 2);
        let unfolded = unfold(&folded, Known::beside(&[payment]));
        assert_eq!(unfolded.as_deref(), Some(text.as_bytes()));
        assert_eq!(unfold(&folded, Known::beside(&[])), None);
    }

    #[test]
    fn more_identifiers_than_numbers_come_back_the_same() {
        let text: String = (0..2 * KNOWN_MAX as u128 + 9)
            .map(|number| format!("{} ", Uuid::from_u128(number % (KNOWN_MAX as u128 + 7))))
            .collect();
        assert_eq!(unpack(&pack(text.as_bytes(), &[]), &[]), Some(text.into_bytes()));
    }

    #[test]
    fn what_is_folded_takes_its_bytes_and_what_only_looks_like_it_stays() {
        let check = |text: &str, length: usize| {
            let folded = fold(text.as_bytes(), Known::beside(&[]));
            assert_eq!(folded.len(), length, "{text}");
            assert_eq!(
                unfold(&folded, Known::beside(&[])).as_deref(),
                Some(text.as_bytes()),
                "{text}"
            );
        };
        check("2026-11-22T02:24:47.342Z", 7);
        check("0000-00-00T00:00:00.000Z", 7);
        check("7000-12-31T23:59:59.999Z", 7);
        check("019542f5-b3e7-7d02-8000-000000000005", 17);
        check("SYA-019542F5B3E77D028000000000000348", 4 + 17);
        check("\"2026-11-22T02:24:47.342Z\",\"2026-11-22T02:24:47.344Z\"", 2 * 9 + 1);
        for text in [
            "9999-12-31T23:59:59.999Z",
            "2026-13-22T02:24:47.342Z",
            "2026-11-32T02:24:47.342Z",
            "2026-11-22T24:24:47.342Z",
            "2026-11-22T02:24:60.342Z",
            "2026-11-22T02:24:47Z",
            "2026-11-22T02:24:47.342",
            "2026-11-22t02:24:47.342Z",
            "019542F5-b3e7-7d02-8000-000000000005",
            "SYA-019542f5b3e77d028000000000000348",
            "SYA-019542F5B3E77D0280000000000003",
        ] {
            check(text, text.len());
        }
    }

    #[test]
    fn what_was_never_packed_is_refused() {
        let packed = pack(EVENT.as_bytes(), &[]);
        assert_eq!(unpack(&[], &[]), None);
        assert_eq!(unpack(&[9, 9], &[]), None);
        for cut in 1..packed.len() {
            assert_ne!(unpack(&packed[..cut], &[]).as_deref(), Some(EVENT.as_bytes()));
        }
    }

    proptest! {
        #[test]
        fn anything_comes_back_the_same(body: Vec<u8>) {
            prop_assert_eq!(unpack(&pack(&body, &[]), &[]), Some(body));
        }

        #[test]
        fn text_with_anything_like_what_is_folded_comes_back_the_same(
            body in "([a-f0-9]{8}-[a-f0-9]{4}-[a-fA-F0-9]{4}-[a-f0-9]{4}-[a-f0-9]{12}|[a-f0-9-]{36}|[0-9]{4}-[01][0-9]-[0-3][0-9]T[0-2][0-9]:[0-6][0-9]:[0-6][0-9]\\.[0-9]{3}Z|-[0-9A-F]{31,33}|SY-CN8BTV7SYG4000000000|SY-[0-9A-Z]{20}|019542f5-b3e7-7d02-8000-000000000005|-019542F5B3E77D028000000000000005|\",\"currency\":\"|,\"fees\":|[\\x00-\\x1f]|.){0,9}"
        ) {
            let packed = pack(body.as_bytes(), &beside());
            prop_assert_eq!(unpack(&packed, &beside()), Some(body.into_bytes()));
        }

        #[test]
        fn no_bytes_make_it_panic(packed: Vec<u8>) {
            let _ = unpack(&packed, &[]);
        }
    }
}
