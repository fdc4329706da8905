//! Compression of what is sealed: rows of the journal, bodies of events and answers.
//!
//! Most are of a kilobyte and say nearly the same, so they are compressed against a dictionary:
//! texts as they are written most, the commonest last. The first byte is the number of the
//! dictionary. It never changes: a better one gets another number, and earlier ones stay.

use std::cell::RefCell;

use zstd::bulk::{Compressor, Decompressor};
use zstd::zstd_safe;

/// Fast, and the smaller levels save hardly less on texts of a kilobyte.
const LEVEL: i32 = 1;

/// Bytes of a text at most. Requests and answers have limits far below.
const LENGTH_MAX: usize = 64 << 20;

/// The dictionary.
const DICTIONARY: &[u8] = include_bytes!("compressed/dictionary.txt");

/// Its number.
const NUMBER: u8 = 1;

thread_local! {
    /// Its working memory takes longer to make than a body to compress.
    static COMPRESSOR: RefCell<Option<Compressor<'static>>> = const { RefCell::new(None) };
    static DECOMPRESSOR: RefCell<Option<Decompressor<'static>>> = const { RefCell::new(None) };
}

/// The first byte of bytes that are left as they are.
const AS_IT_IS: u8 = 0;

/// The length from which compression is worth its time.
const LENGTH_MIN: usize = 128;

/// Makes bytes smaller, unless they are few.
pub(crate) fn compress(bytes: &[u8]) -> Vec<u8> {
    if bytes.len() < LENGTH_MIN {
        return [&[AS_IT_IS], bytes].concat();
    }
    metrics::counter!("switchyard_zstd_calls_total", "operation" => "compress").increment(1);
    COMPRESSOR.with_borrow_mut(|kept| {
        let compressor = kept.get_or_insert_with(|| {
            Compressor::with_dictionary(LEVEL, DICTIONARY).expect("there is memory for it")
        });
        let compressed =
            compressor.compress(bytes).expect("the buffer has room for the worst case");
        [&[NUMBER][..], &compressed].concat()
    })
}

/// The bytes that were compressed; nothing if these are none.
pub(crate) fn decompress(compressed: &[u8]) -> Option<Vec<u8>> {
    if let Some(bytes) = compressed.strip_prefix(&[AS_IT_IS]) {
        return Some(bytes.to_vec());
    }
    metrics::counter!("switchyard_zstd_calls_total", "operation" => "decompress").increment(1);
    let compressed = compressed.strip_prefix(&[NUMBER])?;
    let length = zstd_safe::get_frame_content_size(compressed).ok()??;
    let length = usize::try_from(length).ok().filter(|length| *length <= LENGTH_MAX)?;
    DECOMPRESSOR.with_borrow_mut(|kept| {
        let decompressor = match kept {
            Some(decompressor) => decompressor,
            None => kept.insert(Decompressor::with_dictionary(DICTIONARY).ok()?),
        };
        decompressor.decompress(compressed, length).ok()
    })
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use sha2::{Digest as _, Sha256};

    use super::*;

    proptest! {
        #[test]
        fn what_was_compressed_comes_back(bytes: Vec<u8>) {
            prop_assert_eq!(decompress(&compress(&bytes)).unwrap(), bytes);
        }

        #[test]
        fn no_bytes_make_it_panic(mut bytes: Vec<u8>) {
            let _ = decompress(&bytes);
            bytes.insert(0, NUMBER);
            let _ = decompress(&bytes);
        }
    }

    #[test]
    fn the_dictionary_is_the_one_that_databases_were_written_with() {
        let digest = Sha256::digest(DICTIONARY);
        let digest: String = digest.iter().map(|byte| format!("{byte:02x}")).collect();
        assert_eq!(digest, "d7b914556b553a84421d08f6a508f0ce2762e1ec8d5a888ba801c16abdd54fea");
    }

    #[test]
    fn an_event_becomes_small() {
        let event = br#"{"id":"Webhook:0c0efadf-4703-5ef9-a4b1-1ea8b0f7b238","type":"OUTGOING_PAYMENT","timestamp":"2026-11-28T03:20:55.996Z","data":{"id":"Transaction:01a2202b-91bc-7001-8e16-42b9d7493e41","status":"PENDING","type":"OUTGOING","customerId":"Customer:01a2202b-9173-7000-96eb-cc0c6a2b0000"}}"#;
        assert!(compress(event).len() < event.len() / 2, "{}", compress(event).len());
        let text = br#"{"id":"Transaction:1","status":"PENDING"}"#.repeat(20);
        assert!(compress(&text).len() < text.len() / 8);
    }
}
