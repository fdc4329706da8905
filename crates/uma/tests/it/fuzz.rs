//! Input that no peer would send: sound messages with some bytes changed, and any bytes at all.
//! Each target runs for a second among the tests, and for as long as `BOLERO_RANDOM_TEST_TIME_MS`
//! says in `cargo xtask fuzz`. A finding becomes a test of its own.
//!
//! No reader may panic. A refusal has a reason, and a message that is read can be written and read
//! again.

use std::sync::LazyLock;

use bolero::{TypeGenerator, check};
use domain::time::Timestamp;
use uma::address::{Address, PeerDomain};
use uma::configuration::Configuration;
use uma::error::{PeerError, Refusal};
use uma::keys::certificate::{Leaf, Terms};
use uma::keys::{KeyDocument, PeerKeys};
use uma::lnurlp::{Lookup, LookupResponse};
use uma::pay_request::PayRequest;
use uma::pay_response::PayResponse;
use uma::post_transaction::PostTransaction;
use uma::signature::VerifyingKey;
use uma::travel_rule::{DecryptionKey, EncryptionKey, open};
use uma::version::{Form, Version};

use crate::support::{
    lookup_request, lookup_response, now, pay_request, pay_response, peer, post_transaction,
    signing,
};

/// One change of a text.
#[derive(Debug, Clone, TypeGenerator)]
enum Edit {
    /// Some bytes go, and others come in their place.
    Splice { at: u16, gone: u8, bytes: Vec<u8> },
    /// A word of the format comes in.
    Word { at: u16, gone: u8, word: u8 },
    /// What stands behind is cut off.
    Cut { at: u16 },
    /// A part stands twice.
    Repeat { at: u16, length: u8 },
}

/// Words that mean something in messages.
const WORDS: &[&str] = &[
    "{",
    "}",
    "[",
    "]",
    ":",
    ",",
    "\"",
    "null",
    "true",
    "0",
    "-1",
    "1e3",
    "1e400",
    "1.5",
    "-0.0",
    "1e-30",
    "9223372036854775807",
    "9223372036854775808",
    "79228162514264337593543950336",
    "\\u0000",
    "\\ud800",
    "|",
    "$",
    "@",
    "%24",
    "%ff",
    "&",
    "=",
    "+",
    ".",
    "595.USD",
    "1.5.USD",
    "\"compliance\":",
    "\"convert\":",
    "\"currency\":",
    "\"converted\":",
    "umaVersion=2.0",
];

impl Edit {
    fn make(&self, text: &mut Vec<u8>) {
        let start = |at: u16| usize::from(at) % (text.len() + 1);
        let end = |start: usize, length: u8| (start + usize::from(length)).min(text.len());
        match self {
            Self::Splice { at, gone, bytes } => {
                let start = start(*at);
                text.splice(start..end(start, *gone % 8), bytes.iter().copied());
            }
            Self::Word { at, gone, word } => {
                let start = start(*at);
                let word = WORDS[usize::from(*word) % WORDS.len()];
                text.splice(start..end(start, *gone % 16), word.bytes());
            }
            Self::Cut { at } => text.truncate(start(*at)),
            Self::Repeat { at, length } => {
                let start = start(*at);
                let part = text[start..end(start, *length)].to_vec();
                text.splice(start..start, part);
            }
        }
    }
}

/// One of some texts, and what is changed in it.
#[derive(Debug, Clone, TypeGenerator)]
struct Changed {
    which: u8,
    edits: Vec<Edit>,
}

/// Changes of a text at most: what has more is as good as any bytes.
const EDITS_MAX: usize = 4;

impl Changed {
    fn of(&self, samples: &[Vec<u8>]) -> Vec<u8> {
        let mut text = samples[usize::from(self.which) % samples.len()].clone();
        for edit in self.edits.iter().take(EDITS_MAX) {
            edit.make(&mut text);
        }
        text
    }
}

static DECRYPTION: LazyLock<DecryptionKey> =
    LazyLock::new(|| DecryptionKey::from_bytes(&[0x22; 32]).expect("a scalar"));

fn document() -> KeyDocument {
    let end = Timestamp::from_millis(now().millis() + 1_000_000);
    let terms = Terms { name: peer("vasp1.com"), serial: 1, not_before: now(), not_after: end };
    KeyDocument::new(&signing(0x11), &DECRYPTION, &terms, end).expect("sound terms")
}

/// A refusal says why, in one line.
fn check_refusal(refusal: Refusal) {
    assert!(!refusal.reason.is_empty(), "{refusal:?}");
    assert!(refusal.reason.len() < 1_000, "{refusal:?}");
    PeerError::read(refusal.code.status(), refusal.to_json().as_bytes()).expect("an error");
}

/// Reads the input as every message.
fn read_as_all(input: &[u8]) {
    match LookupResponse::read(input) {
        Ok(message) => {
            let json = message.to_json().expect("it was read");
            // Entries that were left out are not written.
            let message = LookupResponse { left_out: Vec::new(), ..message };
            assert_eq!(LookupResponse::read(json.as_bytes()), Ok(message), "{json}");
        }
        Err(refusal) => check_refusal(refusal),
    }
    match PayRequest::read(input) {
        Ok(message) => {
            let json = message.to_json().expect("it was read");
            assert_eq!(PayRequest::read(json.as_bytes()), Ok(message), "{json}");
        }
        Err(refusal) => check_refusal(refusal),
    }
    match PayResponse::read(input) {
        Ok(message) => {
            let json = message.to_json().expect("it was read");
            assert_eq!(PayResponse::read(json.as_bytes()), Ok(message), "{json}");
        }
        Err(refusal) => check_refusal(refusal),
    }
    match PostTransaction::read(input) {
        Ok(message) => {
            let json = message.to_json();
            assert_eq!(PostTransaction::read(json.as_bytes()), Ok(message), "{json}");
        }
        Err(refusal) => check_refusal(refusal),
    }
    match Configuration::read(input) {
        Ok(message) => {
            let json = message.to_json();
            assert_eq!(Configuration::read(json.as_bytes()), Ok(message), "{json}");
        }
        Err(refusal) => check_refusal(refusal),
    }
    if let Err(refusal) = PeerKeys::read(input, now()) {
        check_refusal(refusal);
    }
    for status in [200, 412, 500] {
        PeerError::read(status, input);
    }
}

/// Reads the input as every small part of a message.
fn read_as_parts(input: &[u8]) {
    let _ = Leaf::read(input);
    let _ = VerifyingKey::from_sec1(input);
    let _ = EncryptionKey::from_sec1(input);
    let text = String::from_utf8_lossy(input);
    let _ = Address::parse(&text);
    let _ = PeerDomain::parse(&text);
    let _ = Version::parse(&text);
    let _ = signing(0x11).verifying_key().verify("text", &text);
    let _ = signing(0x11).verifying_key().verify("text", &hex::encode(input));
    let _ = open(&text, &DECRYPTION);
    let _ = open(&hex::encode(input), &DECRYPTION);
    read_as_lookup(&text);
}

fn read_as_lookup(text: &str) {
    let (path, query) = text.split_once('?').unwrap_or((text, text));
    match Lookup::read(path, query, &peer("vasp2.com")) {
        Ok(Lookup::Uma(request)) => {
            let url = request.url();
            let (path, query) = url.split_once('?').expect("it has a query");
            let path = path.strip_prefix("https://vasp2.com").expect("the domain");
            let read = Lookup::read(path, query, &peer("vasp2.com"));
            assert_eq!(read, Ok(Lookup::Uma(request)), "{url}");
        }
        Ok(Lookup::Plain { .. }) => {}
        Err(refusal) => check_refusal(refusal),
    }
}

#[test]
fn fuzz_any_bytes() {
    check!().with_type::<Vec<u8>>().for_each(|input: &Vec<u8>| {
        read_as_all(input);
        read_as_parts(input);
        let mut path = b"/.well-known/lnurlp/".to_vec();
        path.extend_from_slice(input);
        read_as_parts(&path);
    });
}

#[test]
fn fuzz_messages() {
    let samples: Vec<_> = [
        lookup_response(Version::CURRENT).to_json().expect("sound"),
        lookup_response(Version::LEGACY).to_json().expect("sound"),
        pay_request(Form::V1).to_json().expect("sound"),
        pay_request(Form::V0).to_json().expect("sound"),
        pay_response(Form::V1).to_json().expect("sound"),
        pay_response(Form::V0).to_json().expect("sound"),
        post_transaction().to_json(),
        Configuration::ours("Vasp").to_json(),
        document().to_json(),
    ]
    .map(String::into_bytes)
    .into();
    for sample in &samples {
        read_as_all(sample);
    }
    check!().with_type::<Changed>().for_each(|changed: &Changed| {
        read_as_all(&changed.of(&samples));
    });
}

#[test]
fn fuzz_parts() {
    let url = lookup_request().url();
    let request = url.strip_prefix("https://vasp2.com").expect("the domain");
    let signature = signing(0x11).sign("text");
    let sealed = [&[4; 65][..], &[0; 33]].concat();
    let samples: Vec<_> = vec![
        request.as_bytes().to_vec(),
        hex::decode(signature).expect("hexadecimal"),
        document().signing_certificate,
        sealed,
        b"$bob@vasp2.com".to_vec(),
        b"1.0".to_vec(),
    ];
    check!().with_type::<Changed>().for_each(|changed: &Changed| {
        read_as_parts(&changed.of(&samples));
    });
}
