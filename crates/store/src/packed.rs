//! Bodies in few bytes. What is kept for each payment are JSON texts that say nearly the same:
//! names of fields, identifiers in hexadecimal, times. Packed they take a quarter, unpacked they
//! are the same to the byte.
//!
//! Identifiers become their sixteen bytes behind a byte that no UTF-8 text has; then LZ4 takes out
//! what stands in a dictionary too. The first byte says how: with another dictionary it would be
//! another number, and what was packed before would stay readable.

use uuid::Uuid;

/// Packed with [`DICTIONARY`].
const LZ4_1: u8 = 1;

/// As it was: not text, or not smaller packed.
const PLAIN: u8 = 0;

/// Stands before the bytes of an identifier. UTF-8 never has this byte.
const UUID_MARK: u8 = 0xff;

/// Characters of an identifier in hexadecimal with its hyphens.
const UUID_TEXT: usize = 36;

/// A body is no longer than this: requests have limits, and answers are made of them.
const UNPACKED_MAX: usize = 1024 * 1024;

/// What bodies have in common, the most common last, where LZ4 finds it nearest. Never changed: a
/// better one would be another number.
const DICTIONARY: &[u8] = br#"{"status":409,"code":"INVALID_INPUT","message":"","details":{"errors":[{"field":"","reason":""}],"hint":"send requiredPermission":"the amount is more than the account has available","available":}}"transferId":"Quote:"lockedCurrencySide":"SENDING","totalSendingAmount":,"totalReceivingAmount":,"sendingCurrency":{"receivingCurrency":{"expiresAt":"feesIncluded":"paymentInstructions":[{"accountOrWalletInfo":{"accountType":"USD_ACCOUNT","reference":"","accountNumber":"","routingNumber":"","bankName":"instructionsNotes":""}}],"umaAddress":"$platformCustomerId":"customerType":"INDIVIDUAL","fullName":"kycStatus":"APPROVED","birthDate":"nationality":"US","address":{"line1":"city":"state":"postalCode":"country":"isDeleted":false,"EUR","name":"Euro","symbol":"MXN"INR"GBP"BRL","failureReason":"OFFRAMP_FAILED","refund":{"reference":"","status":"COMPLETED","reason":"initiatedAt":"settledAt":""},"rateDetails":{"serviceApiMultiplier":,"serviceApiFixedFee":0,"serviceApiVariableFeeRate":0.,"serviceApiVariableFeeAmount":0,"counterpartyMultiplier":1,"counterpartyFixedFee":0},"quoteId":"Quote:"exchangeRate":1,"fees":0,"sourceType":"REALTIME_FUNDING","currency":"USDC","INCOMING_PAYMENT","type":"INCOMING","REJECTED","EXPIRED","FAILED","REFUNDED","type":"ACCOUNT_STATUS","timestamp":"2026-","data":{"id":"InternalAccount:","customerId":"Customer:","balance":{"amount":,"currency":{"code":"USD","name":"United States dollar","symbol":"$","decimals":2}},"fundingPaymentInstructions":[{"accountOrWalletInfo":{"accountNumber":"12345678901","accountType":"USD_ACCOUNT","bankName":"First Community Bank","paymentRails":["ACH","WIRE","RTP","FEDNOW"],"reference":"SYA-","routingNumber":"021000021"},"instructionsNotes":"Put SYA- in the reference of the payment.","isPlatformAccount":false}],"createdAt":"2026-","updatedAt":"2026-","oldBalance":{"amount":,"currency":{"code":"USD","name":"United States dollar","symbol":"$","decimals":2}},"newBalance":{"amount":,"currency":{"code":"USD","name":"United States dollar","symbol":"$","decimals":2}}}}"type":"OUTGOING_PAYMENT","timestamp":"2026-2027-00:00:00.000Z","data":{"id":"Transaction:","status":"PENDING","type":"OUTGOING","source":{"sourceType":"ACCOUNT","accountId":"InternalAccount:","currency":"USD"},"destination":{"destinationType":"ACCOUNT","accountId":"ExternalAccount:","currency":"USD"},"customerId":"Customer:PlatformConfig:","platformCustomerId":"","sentAmount":{"amount":,"currency":{"code":"USD","name":"United States dollar","symbol":"$","decimals":2}},"receivedAmount":{"amount":,"currency":{"code":"USD","name":"United States dollar","symbol":"$","decimals":2}},"status":"PROCESSING","status":"COMPLETED","settledAt":"createdAt":"2026-","updatedAt":"2026-","description":"Invoice ","reconciliationInstructions":{"reference":"SY-"}}}{"id":"Webhook:"#;

/// Packs a body.
pub(crate) fn pack(body: &[u8]) -> Vec<u8> {
    if !body.contains(&UUID_MARK) {
        let folded = fold_uuids(body);
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
            unfold_uuids(&folded)
        }
        _ => None,
    }
}

/// Writes identifiers as a mark and their bytes. Looks only where the first hyphen of one stands.
fn fold_uuids(body: &[u8]) -> Vec<u8> {
    const BEFORE_HYPHEN: usize = 8;
    let mut folded = Vec::with_capacity(body.len());
    let (mut rest, mut looked) = (body, 0);
    while let Some(hyphen) = rest[looked..].iter().position(|byte| *byte == b'-') {
        let hyphen = looked + hyphen;
        let start = hyphen.checked_sub(BEFORE_HYPHEN);
        let found = start.and_then(|start| {
            let uuid = canonical_uuid(rest.get(start..start + UUID_TEXT)?)?;
            Some((start, uuid))
        });
        match found {
            Some((start, uuid)) => {
                folded.extend_from_slice(&rest[..start]);
                folded.push(UUID_MARK);
                folded.extend_from_slice(uuid.as_bytes());
                (rest, looked) = (&rest[start + UUID_TEXT..], 0);
            }
            None => looked = hyphen + 1,
        }
    }
    folded.extend_from_slice(rest);
    folded
}

/// The identifier that stands here as we write it: other spellings would not come back the same.
fn canonical_uuid(text: &[u8]) -> Option<Uuid> {
    // A time has hyphens too, in other places.
    if text[8] != b'-' || text[13] != b'-' || text[18] != b'-' || text[23] != b'-' {
        return None;
    }
    let has_capitals = text.iter().any(u8::is_ascii_uppercase);
    if has_capitals { None } else { Uuid::try_parse_ascii(text).ok() }
}

fn unfold_uuids(folded: &[u8]) -> Option<Vec<u8>> {
    let mut body = Vec::with_capacity(folded.len() * 2);
    let mut rest = folded;
    while let Some((byte, behind)) = rest.split_first() {
        if *byte != UUID_MARK {
            body.push(*byte);
            rest = behind;
            continue;
        }
        let (uuid, behind) = behind.split_first_chunk::<16>()?;
        let mut text = [0; UUID_TEXT];
        Uuid::from_bytes(*uuid).hyphenated().encode_lower(&mut text);
        body.extend_from_slice(&text);
        rest = behind;
    }
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
        fn text_with_anything_like_an_identifier_comes_back_the_same(
            body in "([a-f0-9]{8}-[a-f0-9]{4}-[a-fA-F0-9]{4}-[a-f0-9]{4}-[a-f0-9]{12}|[a-f0-9-]{36}|.){0,9}"
        ) {
            prop_assert_eq!(unpack(&pack(body.as_bytes())), Some(body.into_bytes()));
        }

        #[test]
        fn no_bytes_make_it_panic(packed: Vec<u8>) {
            let _ = unpack(&packed);
        }
    }
}
