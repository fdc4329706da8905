//! The change sets of a row: which rows of tables each unit of work adds, changes and removes, and
//! who asked for it.
//!
//! A row has the values of its table's columns by their places, nothing sealed: a record's mapping
//! to columns is its encoding too. New columns come last, and a value that is missing is null. The
//! encoding is CBOR with numbered fields: a field that is not known is skipped, and no bytes may be
//! left over. Golden bytes hold every form that was ever written.
//!
//! The first frame has the change sets. A row whose only personal data are a few texts stands in it
//! without these texts, which are in the frame of the person; a row with other personal data is in
//! that frame as a whole. So the rows of a change set come back in another order, which is no
//! matter: no two are of the same key.

mod texts;

use std::borrow::Cow;
use std::collections::{BTreeMap, BTreeSet};
use std::num::NonZero;

use minicbor::data::Type;
use minicbor::{Decode, Decoder, Encode, Encoder, decode, encode};
use uuid::Uuid;

use super::frames::{Frame, Opened};
use crate::origin::Actor;
use crate::sql::Value;

/// The changes of a unit of work.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ChangeSet {
    /// The one who asked for it.
    pub actor: Actor,
    /// The id of the request, if it was one: text of the client, or ours.
    pub request: Option<String>,
    /// The rows, no two with the same key.
    pub rows: Vec<RowChange>,
}

/// A row that is changed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RowChange {
    /// The personal data in the row, if it has any.
    pub of_person: Option<Personal>,
    /// The change.
    pub change: TableChange,
}

impl RowChange {
    /// The owner of that data.
    pub fn owner(&self) -> Option<Uuid> {
        self.of_person.as_ref().map(|of| of.owner)
    }
}

/// The personal data in a row.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Personal {
    /// The person or firm.
    pub owner: Uuid,
    /// The personal texts, if all personal data in the row are texts. The row stands in the first
    /// frame then, without them.
    pub texts: Option<Vec<String>>,
}

/// A change to a table.
#[derive(Debug, Clone, PartialEq, Eq, Encode, Decode)]
#[cbor(map)]
pub struct TableChange {
    /// The number of the table.
    #[n(0)]
    pub table: u16,
    /// The kind of the change.
    #[n(1)]
    pub kind: Kind,
    /// All columns; of a row that goes, the key.
    #[n(2)]
    pub values: Vec<Value>,
    /// The number of the frame with the texts that its values lack, from 1.
    #[n(3)]
    texts_in: Option<NonZero<u32>>,
}

impl TableChange {
    /// A change to a row of a table.
    pub fn new(table: u16, kind: Kind, values: Vec<Value>) -> Self {
        Self { table, kind, values, texts_in: None }
    }
}

/// The kind of a change to a row.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Encode, Decode)]
#[cbor(index_only)]
pub enum Kind {
    /// The row is there for the first time.
    #[n(0)]
    Insert,
    /// It is another than before.
    #[n(1)]
    Update,
    /// It is gone.
    #[n(2)]
    Remove,
}

/// A change set in the first frame.
#[derive(Encode, Decode)]
#[cbor(map)]
struct Common<T> {
    #[n(0)]
    actor: Actor,
    #[n(1)]
    request: Option<String>,
    #[n(2)]
    rows: Vec<T>,
    /// How many rows it has in frames of owners, if there are any.
    #[n(3)]
    owned: Option<NonZero<u32>>,
}

/// The frame of an owner. Frames of earlier releases are the rows alone.
#[derive(Encode, Decode)]
#[cbor(map)]
struct OfOwner<T> {
    #[n(0)]
    rows: Vec<Owned<T>>,
    /// The texts that rows of the first frame lack.
    #[n(1)]
    texts: Option<Vec<String>>,
}

impl<T> Default for OfOwner<T> {
    fn default() -> Self {
        Self { rows: Vec::new(), texts: None }
    }
}

/// The rows of an owner in a change set.
#[derive(Encode, Decode)]
#[cbor(map)]
struct Owned<T> {
    /// The place of the change set in the first frame.
    #[n(0)]
    set: u32,
    #[n(1)]
    rows: Vec<T>,
}

impl<C> Encode<C> for Value {
    fn encode<W: encode::Write>(
        &self,
        encoder: &mut Encoder<W>,
        _: &mut C,
    ) -> Result<(), encode::Error<W::Error>> {
        match self {
            Self::Null => encoder.null()?.ok(),
            Self::Int(value) => encoder.i64(*value)?.ok(),
            Self::Text(value) => encoder.str(value)?.ok(),
            Self::Bytes(value) => encoder.bytes(value)?.ok(),
        }
    }
}

impl<'b, C> Decode<'b, C> for Value {
    fn decode(decoder: &mut Decoder<'b>, _: &mut C) -> Result<Self, decode::Error> {
        match decoder.datatype()? {
            Type::Null => decoder.null().map(|()| Self::Null),
            Type::String => decoder.str().map(Self::from),
            Type::Bytes => decoder.bytes().map(Self::from),
            _ => decoder.i64().map(Self::Int),
        }
    }
}

/// The frames of change sets.
///
/// Rows that tell of a person stand in a frame of the person, each of which is compressed by
/// itself. Nearly every payment tells of its customer, but only by a few texts, such as the
/// platform's name for it: the row stands in the first frame without these.
pub fn to_frames(sets: &[ChangeSet]) -> Vec<Frame> {
    let owners: BTreeSet<Uuid> =
        sets.iter().flat_map(|set| &set.rows).filter_map(RowChange::owner).collect();
    let numbers: BTreeMap<_, _> = owners.iter().copied().zip(1..).collect();
    let mut owned: BTreeMap<Uuid, OfOwner<&TableChange>> = BTreeMap::new();
    let mut common = Vec::with_capacity(sets.len());
    for (number, set) in (0..).zip(sets) {
        let (mut rows, mut owned_rows) = (Vec::new(), 0);
        for RowChange { of_person, change } in &set.rows {
            let Some(Personal { owner, texts }) = of_person else {
                rows.push(Cow::Borrowed(change));
                continue;
            };
            owned_rows += 1;
            let of_owner = owned.entry(*owner).or_default();
            let without = texts.as_ref().and_then(|texts| {
                texts::taken_out(&change.values, texts, of_owner.texts.get_or_insert_default())
            });
            if let Some(values) = without {
                let texts_in = numbers.get(owner).and_then(|number| NonZero::new(*number));
                let TableChange { table, kind, .. } = *change;
                rows.push(Cow::Owned(TableChange { table, kind, values, texts_in }));
                continue;
            }
            match of_owner.rows.last_mut() {
                Some(last) if last.set == number => last.rows.push(change),
                _ => of_owner.rows.push(Owned { set: number, rows: vec![change] }),
            }
        }
        let (actor, request) = (set.actor.clone(), set.request.clone());
        common.push(Common { actor, request, rows, owned: NonZero::new(owned_rows) });
    }
    let first = Frame { owner: None, plain: bytes(&common) };
    let owned = owned.iter().map(|(id, rows)| Frame { owner: Some(*id), plain: bytes(rows) });
    std::iter::once(first).chain(owned).collect()
}

/// The change sets of frames, without the rows of owners who were erased, and without the sets that
/// have no others; nothing if these are no change sets.
pub fn from_frames(frames: Vec<Opened>) -> Option<Vec<ChangeSet>> {
    let mut frames = frames.into_iter();
    let Some(Opened::Frame(Frame { owner: None, plain })) = frames.next() else { return None };
    let common: Vec<Common<TableChange>> = whole(&plain)?;
    // Nothing for one that was erased.
    let mut owners: Vec<Option<(Uuid, OfOwner<TableChange>)>> = Vec::new();
    for frame in frames {
        owners.push(match frame {
            Opened::Frame(Frame { owner, plain }) => Some((owner?, of_owner(&plain)?)),
            Opened::Erased(_) => None,
        });
    }
    let is_owned: Vec<_> = common.iter().map(|set| set.owned.is_some()).collect();
    let mut sets = Vec::with_capacity(common.len());
    for Common { actor, request, rows, .. } in common {
        let mut read = Vec::with_capacity(rows.len());
        for mut change in rows {
            let of_person = match change.texts_in.take() {
                None => None,
                Some(number) => {
                    let place = usize::try_from(number.get()).ok()?.checked_sub(1)?;
                    let Some((owner, of_owner)) = owners.get(place)? else { continue };
                    let texts = of_owner.texts.as_ref()?;
                    change.values = texts::put_back(change.values, texts)?;
                    Some(Personal { owner: *owner, texts: None })
                }
            };
            read.push(RowChange { of_person, change });
        }
        sets.push(ChangeSet { actor, request, rows: read });
    }
    for (owner, of_owner) in owners.into_iter().flatten() {
        for Owned { set, rows } in of_owner.rows {
            let set = sets.get_mut(usize::try_from(set).ok()?)?;
            let of_person = Personal { owner, texts: None };
            let row = |change| RowChange { of_person: Some(of_person.clone()), change };
            set.rows.extend(rows.into_iter().map(row));
        }
    }
    let mut is_owned = is_owned.into_iter();
    sets.retain(|set| !is_owned.next().unwrap_or_default() || !set.rows.is_empty());
    Some(sets)
}

/// The frame of an owner, also as earlier releases wrote it.
fn of_owner(plain: &[u8]) -> Option<OfOwner<TableChange>> {
    match Decoder::new(plain).datatype().ok()? {
        Type::Map | Type::MapIndef => whole(plain),
        _ => Some(OfOwner { rows: whole(plain)?, texts: None }),
    }
}

fn bytes<T: Encode<()>>(value: &T) -> Vec<u8> {
    minicbor::to_vec(value).expect("memory takes every byte")
}

/// A value that takes all bytes.
fn whole<T: for<'b> Decode<'b, ()>>(bytes: &[u8]) -> Option<T> {
    let mut decoder = Decoder::new(bytes);
    let value = decoder.decode().ok()?;
    (decoder.position() == bytes.len()).then_some(value)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn uuid(number: u8) -> Uuid {
        Uuid::from_u128(u128::from(number) + 1)
    }

    fn actors() -> impl Strategy<Value = Actor> {
        prop_oneof![
            any::<[u8; 16]>().prop_map(|id| Actor::Token(id.into())),
            (".*", ".*").prop_map(|(command, by)| Actor::Operator { command, by }),
            ".*".prop_map(Actor::Job),
        ]
    }

    fn rows() -> impl Strategy<Value = RowChange> {
        let value = prop_oneof![
            Just(Value::Null),
            any::<i64>().prop_map(Value::Int),
            ".*".prop_map(Value::from),
            prop::collection::vec(any::<u8>(), 0..40).prop_map(Value::Bytes),
        ];
        let kind = prop::sample::select(vec![Kind::Insert, Kind::Update, Kind::Remove]);
        let values = prop::collection::vec(value, 0..6);
        let text = prop::sample::select(vec!["", "a", "user-1", "user-10", "\"\u{1}\\", "\u{1}0"]);
        let texts = prop::option::of(prop::collection::vec(text, 0..3));
        (prop::option::of(0_u8..3), texts, any::<u16>(), kind, values).prop_map(
            |(owner, texts, table, kind, mut values)| {
                let texts: Option<Vec<String>> =
                    texts.map(|texts| texts.into_iter().map(str::to_owned).collect());
                if let Some(texts) = &texts {
                    values.extend(texts.iter().map(|text| Value::from(&**text)));
                    values.push(serde_json::to_vec(texts).expect("a list of texts").into());
                }
                let of_person = owner.map(|owner| Personal { owner: uuid(owner), texts });
                RowChange { of_person, change: TableChange::new(table, kind, values) }
            },
        )
    }

    fn change_sets() -> impl Strategy<Value = Vec<ChangeSet>> {
        let rows = prop::collection::vec(rows(), 0..6);
        let request = prop::option::of(".*");
        let set = (actors(), request, rows).prop_map(|(actor, request, rows)| ChangeSet {
            actor,
            request,
            rows,
        });
        prop::collection::vec(set, 0..4)
    }

    fn opened(sets: &[ChangeSet]) -> Vec<Opened> {
        to_frames(sets).into_iter().map(Opened::Frame).collect()
    }

    /// The sets in an order of their rows that does not depend on their frames, without the texts.
    fn sorted(mut sets: Vec<ChangeSet>) -> Vec<ChangeSet> {
        for set in &mut sets {
            for of_person in set.rows.iter_mut().filter_map(|row| row.of_person.as_mut()) {
                of_person.texts = None;
            }
            set.rows.sort_by_key(|row| (row.owner(), format!("{:?}", row.change)));
        }
        sets
    }

    proptest! {
        #[test]
        fn change_sets_come_back(sets in change_sets()) {
            prop_assert_eq!(from_frames(opened(&sets)).map(sorted), Some(sorted(sets)));
        }

        #[test]
        fn rows_of_an_erased_owner_are_gone_and_no_others(sets in change_sets()) {
            let mut frames = opened(&sets);
            for frame in &mut frames {
                if matches!(frame, Opened::Frame(it) if it.owner == Some(uuid(0))) {
                    *frame = Opened::Erased(uuid(0));
                }
            }
            let mut was_empty = sets.clone().into_iter().map(|set| set.rows.is_empty());
            let mut expected = sorted(sets);
            for set in &mut expected {
                set.rows.retain(|row| row.owner() != Some(uuid(0)));
            }
            expected.retain(|set| was_empty.next() == Some(true) || !set.rows.is_empty());
            prop_assert_eq!(from_frames(frames).map(sorted), Some(expected));
        }

        #[test]
        fn other_bytes_are_refused_and_never_panic(
            sets in change_sets(),
            more in prop::collection::vec(any::<u8>(), 1..20),
        ) {
            let mut frames = to_frames(&sets);
            frames[0].plain.extend(&more);
            prop_assert_eq!(from_frames(frames.into_iter().map(Opened::Frame).collect()), None);
            let _ = from_frames(vec![Opened::Frame(Frame { owner: None, plain: more })]);
        }
    }

    /// Every form as it was first written. Lines are added and never changed: journals have them.
    const GOLDEN: [&str; 3] = [
        "81a30082008150010101010101010101010101010101010163722d310281a30001010002844100f6246161",
        "81a20082018268636865636b2069646861646140686f73740280",
        "81a20082028167657870697265730281a30002010202814107",
    ];

    #[test]
    fn forms_that_were_written_are_read_and_written() {
        let row = |table, kind, values| RowChange {
            of_person: None,
            change: TableChange::new(table, kind, values),
        };
        let sets = [
            ChangeSet {
                actor: Actor::Token([1; 16].into()),
                request: Some("r-1".into()),
                rows: vec![row(
                    1,
                    Kind::Insert,
                    vec![Value::Bytes(vec![0]), Value::Null, Value::Int(-5), "a".into()],
                )],
            },
            ChangeSet {
                actor: Actor::Operator { command: "check id".into(), by: "ada@host".into() },
                request: None,
                rows: Vec::new(),
            },
            ChangeSet {
                actor: Actor::Job("expires".into()),
                request: None,
                rows: vec![row(2, Kind::Remove, vec![Value::Bytes(vec![7])])],
            },
        ];
        for (golden, set) in GOLDEN.into_iter().zip(sets) {
            let frames = to_frames(std::slice::from_ref(&set));
            let [Frame { owner: None, plain }] = &frames[..] else { panic!("one frame") };
            let written: String = plain.iter().map(|byte| format!("{byte:02x}")).collect();
            assert_eq!(written, golden);
            assert_eq!(from_frames(opened(std::slice::from_ref(&set))), Some(vec![set]));
        }
    }

    /// The frames of a person as they were first written: of a row that tells no more than texts,
    /// and of one that does. Earlier releases wrote the rows of the second alone.
    const GOLDEN_OF_PERSON: [&str; 3] = [
        "81a30082028161610281a4000101000282620130582e7b22706c6174666f726d437573746f6d65724964223a\
         220130222c226465736372697074696f6e223a220131227d03010302",
        "a20081a200000181a300010100028163416461018266757365722d316472656e74",
        "81a200000181a300010100028163416461",
    ];

    #[test]
    fn frames_of_a_person_are_read_and_written() {
        let row = |texts: Option<Vec<String>>, values| {
            let of_person = Personal { owner: uuid(1), texts };
            let change = TableChange::new(1, Kind::Insert, values);
            RowChange { of_person: Some(of_person), change }
        };
        let json = br#"{"platformCustomerId":"user-1","description":"rent"}"#;
        let texts = Some(vec!["user-1".to_owned(), "rent".to_owned()]);
        let of_texts = row(texts, vec!["user-1".into(), Value::Bytes(json.to_vec())]);
        let rows = vec![of_texts, row(None, vec!["Ada".into()])];
        let sets = [ChangeSet { actor: Actor::Job("a".into()), request: None, rows }];
        let frames = to_frames(&sets);
        let hex = |plain: &[u8]| plain.iter().map(|byte| format!("{byte:02x}")).collect::<String>();
        let [first, of_person] = &frames[..] else { panic!("two frames") };
        let rows = bytes(&of_owner(&of_person.plain).expect("a frame of an owner").rows);
        assert_eq!([&first.plain, &of_person.plain, &rows].map(|it| hex(it)), GOLDEN_OF_PERSON);
        let read = from_frames(opened(&sets)).expect("change sets");
        assert_eq!(sorted(read), sorted(sets.to_vec()));
    }

    #[test]
    fn a_text_that_stands_within_another_keeps_the_row_with_its_owner() {
        let json = br#"{"description":"rent","message":"no rent was found"}"#;
        let of_person = Personal { owner: uuid(1), texts: Some(vec!["rent".to_owned()]) };
        let change = TableChange::new(1, Kind::Insert, vec![Value::Bytes(json.to_vec())]);
        let rows = vec![RowChange { of_person: Some(of_person), change }];
        let set = ChangeSet { actor: Actor::Job("a".into()), request: None, rows };
        let frames = to_frames(&[set]);
        assert!(memchr::memmem::find(&frames[0].plain, b"rent").is_none(), "not in the first");
    }

    #[test]
    fn a_field_that_is_not_known_is_skipped() {
        let set = ChangeSet { actor: Actor::Job("a".into()), request: None, rows: Vec::new() };
        let mut frames = to_frames(std::slice::from_ref(&set));
        let plain = &mut frames[0].plain;
        // The map of the only set gets one field more, number 9.
        assert_eq!(plain[..2], [0x81, 0xa0 | 2]);
        plain[1] += 1;
        plain.extend([9, 0x61, b'x']);
        let frames = frames.into_iter().map(Opened::Frame).collect();
        assert_eq!(from_frames(frames), Some(vec![set]));
    }
}
