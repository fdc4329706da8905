//! The body of a row: frames, each compressed and sealed by itself.
//!
//! Frames with personal data are sealed with a key made of the owner's data key and the journal's
//! key, other frames with the journal's key. A deleted data key makes its owner's frames unreadable
//! in every row, and the chain still holds: it is over the sealed bytes.
//!
//! A frame is bound to its row, the epoch and time of that row, and its place in it. The journal's
//! key has a number in the body, so that a new one can begin with any row.

use std::collections::{BTreeMap, HashMap};

use domain::time::Timestamp;
use uuid::Uuid;

use super::{End, RowHash};
use crate::compressed::{compress, decompress};
use crate::keyring::{JournalKey, KEY_LENGTH, SealingKey};

/// The form of a body. Another one begins with another byte.
const FORM: u8 = 3;

/// The form before it: epoch and time of the row are not authenticated.
const FORM_WITHOUT_TIME: u8 = 2;

/// The first form: besides, a person's frames are sealed with the data key alone.
const FORM_OF_DATA_KEYS: u8 = 1;

/// A part of a row.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Frame {
    /// The person or firm whose data it has; nothing if it has none.
    pub owner: Option<Uuid>,
    /// Its bytes.
    pub plain: Vec<u8>,
}

/// A part of a row that was read.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Opened {
    /// It can be read.
    Frame(Frame),
    /// Its owner was erased.
    Erased(Uuid),
}

/// The keys of a journal.
pub struct Keys {
    /// By number. The last one seals new rows.
    pub journal: JournalKeys,
    /// By owner; nothing for one that was erased.
    pub data: HashMap<Uuid, Option<DataKey>>,
}

/// The keys of a journal by their numbers.
pub type JournalKeys = BTreeMap<u32, JournalKey>;

/// The data key of an owner.
pub struct DataKey {
    key: [u8; KEY_LENGTH],
    /// The derived key of its frames for the newest key of the journal, by that key's number. It
    /// saves a derivation for each frame.
    newest: Option<(u32, SealingKey)>,
}

impl DataKey {
    /// The data key, for a journal with these keys.
    pub fn new(key: [u8; KEY_LENGTH], journal: &JournalKeys) -> Self {
        let newest = journal.last_key_value();
        Self { key, newest: newest.map(|(number, journal)| (*number, journal.of_owner(&key))) }
    }

    /// Runs `work` with the key of its frames for a key of the journal.
    fn with<T>(&self, number: u32, journal: &JournalKey, work: impl FnOnce(&SealingKey) -> T) -> T {
        match &self.newest {
            Some((newest, key)) if *newest == number => work(key),
            _ => work(&journal.of_owner(&self.key)),
        }
    }
}

/// The place of a body: its row, before it has a hash.
#[derive(Debug, Clone, Copy)]
pub struct Place {
    /// The journal's database.
    pub database: Uuid,
    /// The row before.
    pub previous: End,
    /// The take-over under which the row is appended.
    pub epoch: u64,
    /// The time of the row.
    pub at: Timestamp,
}

/// Why a body cannot be sealed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum Unsealable {
    /// There is no key of the journal.
    #[error("the journal has no key")]
    NoKey,
    /// The owner has no data key, or was erased.
    #[error("{0} has no data key")]
    Owner(Uuid),
}

/// Why a body cannot be read.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum Unreadable {
    /// It is of another form, or cut off.
    #[error("the body has a form that this release does not know")]
    Form,
    /// Its key is not there.
    #[error("the body is sealed with key {0} of the journal, which is not there")]
    NoKey(u32),
    /// Nothing is known of an owner's key.
    #[error("the body is sealed with the data key of {0}, which is not there or does not open")]
    NoDataKey(Uuid),
    /// A frame was changed, or stood elsewhere.
    #[error("frame {0} of the body does not open")]
    Frame(u32),
}

/// The name of a frame's place, which is authenticated with it: the row, the number of the key in
/// its head, the number of the frame, and the row's epoch and time.
fn name(form: u8, place: Place, number: u32, frame: u32) -> Vec<u8> {
    let End { seq, hash: RowHash(hash) } = place.previous;
    let (seq, numbers) = ((seq + 1).to_be_bytes(), [number, frame].map(u32::to_be_bytes));
    let mut name =
        [place.database.as_bytes(), &seq[..], &hash[..], numbers.as_flattened()].concat();
    if form == FORM {
        name.extend(place.epoch.to_be_bytes());
        name.extend(place.at.millis().to_be_bytes());
    }
    name
}

/// The body of frames, for one place.
pub fn seal(keys: &Keys, place: Place, frames: &[Frame]) -> Result<Vec<u8>, Unsealable> {
    let (number, journal) = keys.journal.last_key_value().ok_or(Unsealable::NoKey)?;
    let mut body = vec![FORM];
    body.extend(number.to_be_bytes());
    for (at, frame) in (0..).zip(frames) {
        let (name, plain) = (name(FORM, place, *number, at), compress(&frame.plain));
        let sealed = match frame.owner {
            None => journal.sealing.seal(&name, &plain),
            Some(owner) => match keys.data.get(&owner) {
                Some(Some(key)) => key.with(*number, journal, |key| key.seal(&name, &plain)),
                Some(None) | None => return Err(Unsealable::Owner(owner)),
            },
        };
        body.extend(frame.owner.unwrap_or_default().as_bytes());
        let length = u32::try_from(sealed.len()).expect("a row is far below four gigabytes");
        body.extend(length.to_be_bytes());
        body.extend(sealed);
    }
    Ok(body)
}

/// A frame as it stands in a body.
struct Sealed<'a> {
    owner: Option<Uuid>,
    bytes: &'a [u8],
}

/// The parts of a body.
struct Parts<'a> {
    form: u8,
    /// The number of the journal's key with which it is sealed.
    number: u32,
    frames: Vec<Sealed<'a>>,
}

fn parts(body: &[u8]) -> Option<Parts<'_>> {
    let (form, rest) = body.split_first()?;
    let form =
        Some(*form).filter(|form| [FORM_OF_DATA_KEYS, FORM_WITHOUT_TIME, FORM].contains(form))?;
    let (number, mut rest) = rest.split_first_chunk()?;
    let mut frames = Vec::new();
    while !rest.is_empty() {
        let (owner, behind) = rest.split_first_chunk()?;
        let (length, behind) = behind.split_first_chunk()?;
        let length = usize::try_from(u32::from_be_bytes(*length)).ok()?;
        let (bytes, behind) = behind.split_at_checked(length)?;
        let owner = Some(Uuid::from_bytes(*owner)).filter(|owner| !owner.is_nil());
        frames.push(Sealed { owner, bytes });
        rest = behind;
    }
    // Nothing would authenticate the row.
    let is_bound = form < FORM || !frames.is_empty();
    is_bound.then_some(Parts { form, number: u32::from_be_bytes(*number), frames })
}

/// Whether the journal's key of a body is known. A body of an unknown form needs none.
pub fn has_key(keys: &Keys, body: &[u8]) -> bool {
    parts(body).is_none_or(|parts| keys.journal.contains_key(&parts.number))
}

/// The owners whose data keys are needed to read a body.
pub fn owners(body: &[u8]) -> Vec<Uuid> {
    let frames = parts(body).map(|parts| parts.frames).unwrap_or_default();
    frames.into_iter().filter_map(|frame| frame.owner).collect()
}

/// The frames of a body that was sealed for this place.
pub fn open(keys: &Keys, place: Place, body: &[u8]) -> Result<Vec<Opened>, Unreadable> {
    let Parts { form, number, frames } = parts(body).ok_or(Unreadable::Form)?;
    let journal = || keys.journal.get(&number).ok_or(Unreadable::NoKey(number));
    let frames = (0..).zip(frames).map(|(at, Sealed { owner, bytes })| {
        let name = name(form, place, number, at);
        let plain = match owner {
            None => journal()?.sealing.open(&name, bytes),
            Some(owner) => match keys.data.get(&owner) {
                Some(Some(DataKey { key, .. })) if form == FORM_OF_DATA_KEYS => {
                    SealingKey::of(key).open(&name, bytes)
                }
                Some(Some(key)) => key.with(number, journal()?, |key| key.open(&name, bytes)),
                Some(None) => return Ok(Opened::Erased(owner)),
                None => return Err(Unreadable::NoDataKey(owner)),
            },
        };
        let plain = plain.and_then(|it| decompress(&it));
        Ok(Opened::Frame(Frame { owner, plain: plain.ok_or(Unreadable::Frame(at))? }))
    });
    frames.collect()
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const PLACE: Place = Place {
        database: Uuid::from_u128(7),
        previous: End::START,
        epoch: 1,
        at: Timestamp::from_millis(5),
    };

    fn owner(number: u8) -> Uuid {
        Uuid::from_u128(u128::from(number) + 1)
    }

    fn keys() -> Keys {
        let journal = BTreeMap::from([(1, JournalKey::of(&[1; 32]))]);
        let data = |it| (owner(it), Some(DataKey::new([10 + it; 32], &journal)));
        let data = (0..3).map(data).collect();
        Keys { journal, data }
    }

    fn frames() -> impl Strategy<Value = Vec<Frame>> {
        let frame = (prop::option::of(0_u8..3), prop::collection::vec(any::<u8>(), 0..300));
        let frame = frame.prop_map(|(it, plain)| Frame { owner: it.map(owner), plain });
        prop::collection::vec(frame, 1..5)
    }

    fn read(frames: &[Frame]) -> Vec<Opened> {
        frames.iter().cloned().map(Opened::Frame).collect()
    }

    proptest! {
        #[test]
        fn frames_come_back(frames in frames()) {
            let body = seal(&keys(), PLACE, &frames).expect("a body");
            prop_assert_eq!(open(&keys(), PLACE, &body), Ok(read(&frames)));
            prop_assert_eq!(seal(&keys(), PLACE, &frames), Ok(body), "the same has the same bytes");
        }

        #[test]
        fn an_owner_who_was_erased_is_unreadable_and_no_other(frames in frames()) {
            let body = seal(&keys(), PLACE, &frames).expect("a body");
            let mut keys = keys();
            keys.data.insert(owner(0), None);
            let expected: Vec<_> = read(&frames)
                .into_iter()
                .map(|frame| match frame {
                    Opened::Frame(Frame { owner: Some(it), .. }) if it == owner(0) => {
                        Opened::Erased(it)
                    }
                    other => other,
                })
                .collect();
            prop_assert_eq!(open(&keys, PLACE, &body), Ok(expected));
        }

        #[test]
        fn a_body_opens_at_its_place_only(frames in frames(), bit in 0_usize..10_000) {
            let body = seal(&keys(), PLACE, &frames).expect("a body");
            let moved = [
                Place { database: Uuid::from_u128(8), ..PLACE },
                Place { previous: End { seq: 1, ..End::START }, ..PLACE },
                Place { previous: End { seq: 0, hash: RowHash([1; 32]) }, ..PLACE },
                Place { epoch: 2, ..PLACE },
                Place { at: Timestamp::from_millis(6), ..PLACE },
            ];
            for place in moved {
                prop_assert_eq!(open(&keys(), place, &body), Err(Unreadable::Frame(0)));
            }
            let mut changed = body.clone();
            let at = (bit / 8) % body.len();
            changed[at] ^= 1 << (bit % 8);
            prop_assert_ne!(open(&keys(), PLACE, &changed), Ok(read(&frames)));
        }

        #[test]
        fn no_bytes_make_it_panic(bytes: Vec<u8>, number in 0_u32..3) {
            let _ = open(&keys(), PLACE, &bytes);
            let bytes = [&[FORM][..], &number.to_be_bytes(), &bytes].concat();
            let _ = open(&keys(), PLACE, &bytes);
        }
    }

    #[test]
    fn rows_of_an_older_key_are_read_and_new_ones_have_the_newest() {
        for owner in [None, Some(owner(0))] {
            let frame = Frame { owner, plain: b"a".to_vec() };
            let old = seal(&keys(), PLACE, std::slice::from_ref(&frame)).expect("a body");
            let mut keys = keys();
            keys.journal.insert(2, JournalKey::of(&[2; 32]));
            let new = seal(&keys, PLACE, std::slice::from_ref(&frame)).expect("a body");
            for body in [&old, &new] {
                assert_eq!(open(&keys, PLACE, body), Ok(vec![Opened::Frame(frame.clone())]));
            }
            // An owner's key opens nothing without the journal's.
            keys.journal.remove(&1);
            assert_eq!(open(&keys, PLACE, &old), Err(Unreadable::NoKey(1)));
            assert!(open(&keys, PLACE, &new).is_ok());
        }
        let of_none = Frame { owner: Some(owner(9)), plain: Vec::new() };
        assert_eq!(seal(&keys(), PLACE, &[of_none]), Err(Unsealable::Owner(owner(9))));
    }

    /// A body of an older form with one frame.
    fn older(form: u8, owner: Option<Uuid>, key: &SealingKey, plain: &[u8]) -> Vec<u8> {
        let sealed = key.seal(&name(form, PLACE, 1, 0), &compress(plain));
        let mut body = vec![form];
        body.extend(1_u32.to_be_bytes());
        body.extend(owner.unwrap_or_default().as_bytes());
        body.extend(u32::try_from(sealed.len()).expect("a short frame").to_be_bytes());
        body.extend(sealed);
        body
    }

    #[test]
    fn frames_of_older_forms_are_read_and_belong_to_no_other_form() {
        let (journal, data) = (JournalKey::of(&[1; 32]), [10; 32]);
        let cases = [
            (FORM_OF_DATA_KEYS, Some(owner(0)), SealingKey::of(&data)),
            (FORM_WITHOUT_TIME, Some(owner(0)), journal.of_owner(&data)),
            (FORM_WITHOUT_TIME, None, JournalKey::of(&[1; 32]).sealing),
        ];
        for (form, owner, key) in cases {
            let frame = Frame { owner, plain: b"a".to_vec() };
            let mut body = older(form, owner, &key, &frame.plain);
            assert_eq!(open(&keys(), PLACE, &body), Ok(vec![Opened::Frame(frame)]));
            body[0] = FORM;
            assert_eq!(open(&keys(), PLACE, &body), Err(Unreadable::Frame(0)));
        }
        let frame = Frame { owner: Some(owner(0)), plain: b"a".to_vec() };
        let mut body = seal(&keys(), PLACE, &[frame]).expect("a body");
        for form in [FORM_OF_DATA_KEYS, FORM_WITHOUT_TIME] {
            body[0] = form;
            assert_eq!(open(&keys(), PLACE, &body), Err(Unreadable::Frame(0)));
        }
    }

    #[test]
    fn a_body_without_a_frame_is_none() {
        let body = seal(&keys(), PLACE, &[]).expect("a head");
        assert_eq!(open(&keys(), PLACE, &body), Err(Unreadable::Form));
    }
}
