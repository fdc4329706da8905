//! Bodies in few bytes. What is kept for each payment are JSON texts that say nearly the same:
//! names of fields, identifiers in hexadecimal, times. Packed they take a quarter, unpacked they
//! are the same to the byte.
//!
//! Identifiers become their sixteen bytes and times six, each behind a byte that no UTF-8 text has;
//! then LZ4 takes out what stands in a dictionary too. The first byte says how: with another
//! dictionary it would be another number, and what was packed before would stay readable.

use std::ops::Range;

use uuid::Uuid;

/// Packed with [`DICTIONARY`].
const LZ4_1: u8 = 1;

/// As it was: not text, or not smaller packed.
const PLAIN: u8 = 0;

/// UTF-8 never has this byte nor one above it: they are marks.
const FIRST_MARK: u8 = 0xfd;

/// Stands before the bytes of an identifier.
const UUID_MARK: u8 = 0xff;

/// Stands before the bytes of a time.
const TIME_MARK: u8 = 0xfe;

/// Stands before the bytes of an identifier that is part of a reference: in capitals, without
/// hyphens.
const REFERENCE_MARK: u8 = FIRST_MARK;

/// Characters of an identifier in hexadecimal with its hyphens.
const UUID_TEXT: usize = 36;

/// Characters of an identifier within a reference.
const REFERENCE_TEXT: usize = 32;

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

/// What bodies have in common, the most common last, where LZ4 finds it nearest. Never changed: a
/// better one would be another number.
const DICTIONARY: &[u8] = br#"{"status":409,"code":"INVALID_INPUT","message":"","details":{"errors":[{"field":"","reason":""}],"hint":"send requiredPermission":"the amount is more than the account has available","available":}}"transferId":"Quote:"lockedCurrencySide":"SENDING","totalSendingAmount":,"totalReceivingAmount":,"sendingCurrency":{"receivingCurrency":{"expiresAt":"feesIncluded":"paymentInstructions":[{"accountOrWalletInfo":{"accountType":"USD_ACCOUNT","reference":"","accountNumber":"","routingNumber":"","bankName":"instructionsNotes":""}}],"umaAddress":"$platformCustomerId":"customerType":"INDIVIDUAL","fullName":"kycStatus":"APPROVED","birthDate":"nationality":"US","address":{"line1":"city":"state":"postalCode":"country":"isDeleted":false,"EUR","name":"Euro","symbol":"MXN"INR"GBP"BRL","failureReason":"OFFRAMP_FAILED","refund":{"reference":"","status":"COMPLETED","reason":"initiatedAt":"settledAt":""},"rateDetails":{"serviceApiMultiplier":,"serviceApiFixedFee":0,"serviceApiVariableFeeRate":0.,"serviceApiVariableFeeAmount":0,"counterpartyMultiplier":1,"counterpartyFixedFee":0},"quoteId":"Quote:"exchangeRate":1,"fees":0,"sourceType":"REALTIME_FUNDING","currency":"USDC","INCOMING_PAYMENT","type":"INCOMING","REJECTED","EXPIRED","FAILED","REFUNDED","type":"ACCOUNT_STATUS","timestamp":"2026-","data":{"id":"InternalAccount:","customerId":"Customer:","balance":{"amount":,"currency":{"code":"USD","name":"United States dollar","symbol":"$","decimals":2}},"fundingPaymentInstructions":[{"accountOrWalletInfo":{"accountNumber":"12345678901","accountType":"USD_ACCOUNT","bankName":"First Community Bank","paymentRails":["ACH","WIRE","RTP","FEDNOW"],"reference":"SYA-","routingNumber":"021000021"},"instructionsNotes":"Put SYA- in the reference of the payment.","isPlatformAccount":false}],"createdAt":"2026-","updatedAt":"2026-","oldBalance":{"amount":,"currency":{"code":"USD","name":"United States dollar","symbol":"$","decimals":2}},"newBalance":{"amount":,"currency":{"code":"USD","name":"United States dollar","symbol":"$","decimals":2}}}}"type":"OUTGOING_PAYMENT","timestamp":"2026-2027-00:00:00.000Z","data":{"id":"Transaction:","status":"PENDING","type":"OUTGOING","source":{"sourceType":"ACCOUNT","accountId":"InternalAccount:","currency":"USD"},"destination":{"destinationType":"ACCOUNT","accountId":"ExternalAccount:","currency":"USD"},"customerId":"Customer:PlatformConfig:","platformCustomerId":"","sentAmount":{"amount":,"currency":{"code":"USD","name":"United States dollar","symbol":"$","decimals":2}},"receivedAmount":{"amount":,"currency":{"code":"USD","name":"United States dollar","symbol":"$","decimals":2}},"status":"PROCESSING","status":"COMPLETED","settledAt":"createdAt":"2026-","updatedAt":"2026-","description":"Invoice ","reconciliationInstructions":{"reference":"SY-"}}}{"id":"Webhook:"#;

/// Packs a body.
pub(crate) fn pack(body: &[u8]) -> Vec<u8> {
    if body.iter().all(|byte| *byte < FIRST_MARK) {
        let folded = fold(body);
        let packed = lz4_flex::block::compress_with_dict(&folded, DICTIONARY);
        if packed.len() + 5 < body.len() {
            let length = u32::try_from(folded.len()).unwrap_or(u32::MAX).to_be_bytes();
            return [&[LZ4_1], &length[..], &packed].concat();
        }
    }
    [&[PLAIN], body].concat()
}

/// Gives back what [`pack`] was given; nothing if this was never packed.
pub(crate) fn unpack(packed: &[u8]) -> Option<Vec<u8>> {
    match packed.split_first()? {
        (&PLAIN, body) => Some(body.to_vec()),
        (&LZ4_1, rest) => {
            let (length, packed) = rest.split_first_chunk()?;
            let length = usize::try_from(u32::from_be_bytes(*length)).ok()?;
            if length > UNPACKED_MAX {
                return None;
            }
            let folded = lz4_flex::block::decompress_with_dict(packed, length, DICTIONARY).ok()?;
            unfold(&folded)
        }
        _ => None,
    }
}

/// Writes identifiers and times as a mark and their bytes. Looks only where the first hyphen of one
/// stands, or the one before a reference.
fn fold(body: &[u8]) -> Vec<u8> {
    let mut folded = Vec::with_capacity(body.len());
    let (mut rest, mut looked) = (body, 0);
    while let Some(hyphen) = rest[looked..].iter().position(|byte| *byte == b'-') {
        let hyphen = looked + hyphen;
        match fold_at(rest, hyphen, &mut folded) {
            Some(end) => (rest, looked) = (&rest[end..], 0),
            None => looked = hyphen + 1,
        }
    }
    folded.extend_from_slice(rest);
    folded
}

/// Folds what has its first hyphen here, or begins behind it, and what stands before. Where it
/// ends.
fn fold_at(body: &[u8], hyphen: usize, folded: &mut Vec<u8>) -> Option<usize> {
    let mut put = |text: Range<usize>, mark: u8, bytes: &[u8]| {
        folded.extend_from_slice(&body[..text.start]);
        folded.push(mark);
        folded.extend_from_slice(bytes);
        Some(text.end)
    };
    let from = |start: usize, length: usize| start..start + length;
    if let Some(text) = hyphen.checked_sub(4).map(|start| from(start, TIME_TEXT.len()))
        && let Some(bytes) = body.get(text.clone()).and_then(time_bytes)
    {
        return put(text, TIME_MARK, &bytes);
    }
    if let Some(text) = hyphen.checked_sub(8).map(|start| from(start, UUID_TEXT))
        && let Some(uuid) = body.get(text.clone()).and_then(canonical)
    {
        return put(text, UUID_MARK, uuid.as_bytes());
    }
    let text = from(hyphen + 1, REFERENCE_TEXT);
    let uuid = body.get(text.clone()).and_then(in_capitals)?;
    put(text, REFERENCE_MARK, uuid.as_bytes())
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

fn unfold(folded: &[u8]) -> Option<Vec<u8>> {
    let mut body = Vec::with_capacity(folded.len() * 2);
    let mut rest = folded;
    while let Some(mark) = rest.iter().position(|byte| *byte >= FIRST_MARK) {
        body.extend_from_slice(&rest[..mark]);
        let behind = &rest[mark + 1..];
        rest = match rest[mark] {
            UUID_MARK => {
                let (uuid, behind) = behind.split_first_chunk()?;
                let text = &mut [0; UUID_TEXT];
                let text = Uuid::from_bytes(*uuid).hyphenated().encode_lower(text);
                body.extend_from_slice(text.as_bytes());
                behind
            }
            TIME_MARK => {
                let (time, behind) = behind.split_first_chunk()?;
                body.extend_from_slice(&time_text(*time));
                behind
            }
            _ => {
                let (uuid, behind) = behind.split_first_chunk()?;
                let text = &mut [0; REFERENCE_TEXT];
                let text = Uuid::from_bytes(*uuid).simple().encode_upper(text);
                body.extend_from_slice(text.as_bytes());
                behind
            }
        };
    }
    body.extend_from_slice(rest);
    Some(body)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const EVENT: &str = r#"{"id":"Webhook:019542f5-b3e7-5d02-8000-000000000009","type":"ACCOUNT_STATUS","timestamp":"2026-","data":{"id":"InternalAccount:","customerId":"Customer:","balance":{"amount":,"currency":{"code":"USD","name":"United States dollar","symbol":"$","decimals":2}},"fundingPaymentInstructions":[{"accountOrWalletInfo":{"accountNumber":"12345678901","accountType":"USD_ACCOUNT","bankName":"First Community Bank","paymentRails":["ACH","WIRE","RTP","FEDNOW"],"reference":"SYA-","routingNumber":"021000021"},"instructionsNotes":"Put SYA- in the reference of the payment.","isPlatformAccount":false}],"createdAt":"2026-","updatedAt":"2026-","oldBalance":{"amount":,"currency":{"code":"USD","name":"United States dollar","symbol":"$","decimals":2}},"newBalance":{"amount":,"currency":{"code":"USD","name":"United States dollar","symbol":"$","decimals":2}}}}"type":"OUTGOING_PAYMENT","timestamp":"2026-11-21T15:00:00.123Z","data":{"id":"Transaction:019542f5-b3e7-7d02-8000-000000000005","status":"PENDING","type":"OUTGOING","source":{"sourceType":"ACCOUNT","accountId":"InternalAccount:019542f5-b3e7-7d02-8000-000000000348","currency":"USD"},"destination":{"destinationType":"ACCOUNT","accountId":"ExternalAccount:019542f5-b3e7-7d02-8000-000000000007","currency":"USD"},"customerId":"Customer:019542f5-b3e7-7d02-8000-000000000000","platformCustomerId":"ada-1","sentAmount":{"amount":7,"currency":{"code":"USD","name":"United States dollar","symbol":"$","decimals":2}},"receivedAmount":{"amount":7,"currency":{"code":"USD","name":"United States dollar","symbol":"$","decimals":2}},"createdAt":"2026-11-21T15:00:00.123Z","updatedAt":"2026-11-21T15:00:00.123Z","description":"Invoice 2025-001","reconciliationInstructions":{"reference":"SY-8B3E7NT0G00000008B3E"}}}"#;

    #[test]
    fn an_event_takes_a_third_and_comes_back_the_same() {
        let packed = pack(EVENT.as_bytes());
        assert!(packed.len() * 3 < EVENT.len(), "{} of {}", packed.len(), EVENT.len());
        assert_eq!(unpack(&packed).as_deref(), Some(EVENT.as_bytes()));
    }

    #[test]
    fn what_is_folded_takes_its_bytes_and_what_only_looks_like_it_stays() {
        let check = |text: &str, length: usize| {
            let folded = fold(text.as_bytes());
            assert_eq!(folded.len(), length, "{text}");
            assert_eq!(unfold(&folded).as_deref(), Some(text.as_bytes()), "{text}");
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
        let packed = pack(EVENT.as_bytes());
        assert_eq!(unpack(&[]), None);
        assert_eq!(unpack(&[9, 9]), None);
        for cut in 1..packed.len() {
            assert_ne!(unpack(&packed[..cut]).as_deref(), Some(EVENT.as_bytes()));
        }
    }

    proptest! {
        #[test]
        fn anything_comes_back_the_same(body: Vec<u8>) {
            prop_assert_eq!(unpack(&pack(&body)), Some(body));
        }

        #[test]
        fn text_with_anything_like_what_is_folded_comes_back_the_same(
            body in "([a-f0-9]{8}-[a-f0-9]{4}-[a-fA-F0-9]{4}-[a-f0-9]{4}-[a-f0-9]{12}|[a-f0-9-]{36}|[0-9]{4}-[01][0-9]-[0-3][0-9]T[0-2][0-9]:[0-6][0-9]:[0-6][0-9]\\.[0-9]{3}Z|-[0-9A-F]{31,33}|.){0,9}"
        ) {
            prop_assert_eq!(unpack(&pack(body.as_bytes())), Some(body.into_bytes()));
        }

        #[test]
        fn no_bytes_make_it_panic(packed: Vec<u8>) {
            let _ = unpack(&packed);
        }
    }
}
