//! Compression of what is sealed: bodies of events and answers.

use std::cell::RefCell;

use zstd::bulk::{Compressor, Decompressor};
use zstd::zstd_safe;

/// Fast, and the smaller levels save hardly less on texts of a kilobyte.
const LEVEL: i32 = 1;

/// Bytes of a text at most. Requests and answers have limits far below.
const LENGTH_MAX: usize = 64 << 20;

thread_local! {
    /// Its working memory takes longer to make than a body to compress.
    static COMPRESSOR: RefCell<Option<Compressor<'static>>> = const { RefCell::new(None) };
    static DECOMPRESSOR: RefCell<Option<Decompressor<'static>>> = const { RefCell::new(None) };
}

/// Makes bytes smaller.
pub(crate) fn compress(bytes: &[u8]) -> Vec<u8> {
    COMPRESSOR.with_borrow_mut(|kept| {
        let compressor = kept.get_or_insert_with(|| {
            Compressor::new(LEVEL).expect("there is memory for a compressor")
        });
        compressor.compress(bytes).expect("the buffer has room for the worst case")
    })
}

/// The bytes that were compressed; nothing if these are none.
pub(crate) fn decompress(compressed: &[u8]) -> Option<Vec<u8>> {
    let length = zstd_safe::get_frame_content_size(compressed).ok()??;
    let length = usize::try_from(length).ok().filter(|length| *length <= LENGTH_MAX)?;
    DECOMPRESSOR.with_borrow_mut(|kept| {
        let decompressor = match kept {
            Some(decompressor) => decompressor,
            None => kept.insert(Decompressor::new().ok()?),
        };
        decompressor.decompress(compressed, length).ok()
    })
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn what_was_compressed_comes_back(bytes: Vec<u8>) {
            prop_assert_eq!(decompress(&compress(&bytes)).unwrap(), bytes);
        }

        #[test]
        fn no_bytes_make_it_panic(bytes: Vec<u8>) {
            let _ = decompress(&bytes);
        }
    }

    #[test]
    fn a_text_that_repeats_itself_becomes_small() {
        let text = br#"{"id":"Transaction:1","status":"PENDING"}"#.repeat(20);
        assert!(compress(&text).len() < text.len() / 8);
    }
}
