//! The change sets of a row: which rows of tables each unit of work adds, changes and removes, and
//! who asked for it.
//!
//! A row has the values of its table's columns by their places, nothing sealed: a record's mapping
//! to columns is its encoding too. New columns come last, and a value that is missing is null. The
//! encoding is CBOR with numbered fields: a field that is not known is skipped, and no bytes may be
//! left over. Golden bytes hold every form that was ever written.
//!
//! The first frame has the change sets with the rows that have no owner. Rows with an owner
//! stand in a frame of that owner. So the rows of a change set come back in another order, which is
//! no matter: no two are of the same key.

use std::collections::BTreeMap;
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
    /// The person or firm whose data it has; nothing if it has none.
    pub owner: Option<Uuid>,
    /// The change.
    pub change: TableChange,
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
pub fn to_frames(sets: &[ChangeSet]) -> Vec<Frame> {
    let mut common = Vec::with_capacity(sets.len());
    let mut owners: BTreeMap<Uuid, Vec<Owned<&TableChange>>> = BTreeMap::new();
    for (number, set) in (0..).zip(sets) {
        let (mut rows, mut owned_rows) = (Vec::new(), 0);
        for row in &set.rows {
            let change = &row.change;
            let Some(owner) = row.owner else {
                rows.push(change);
                continue;
            };
            owned_rows += 1;
            let owned = owners.entry(owner).or_default();
            match owned.last_mut() {
                Some(last) if last.set == number => last.rows.push(change),
                _ => owned.push(Owned { set: number, rows: vec![change] }),
            }
        }
        let (actor, request) = (set.actor.clone(), set.request.clone());
        common.push(Common { actor, request, rows, owned: NonZero::new(owned_rows) });
    }
    let first = Frame { owner: None, plain: bytes(&common) };
    let owned = owners.iter().map(|(id, rows)| Frame { owner: Some(*id), plain: bytes(rows) });
    std::iter::once(first).chain(owned).collect()
}

/// The change sets of frames, without the rows of owners who were erased, and without the sets that
/// have no others; nothing if these are no change sets.
pub fn from_frames(frames: Vec<Opened>) -> Option<Vec<ChangeSet>> {
    let mut frames = frames.into_iter();
    let Some(Opened::Frame(Frame { owner: None, plain })) = frames.next() else { return None };
    let common: Vec<Common<TableChange>> = whole(&plain)?;
    let is_owned: Vec<_> = common.iter().map(|set| set.owned.is_some()).collect();
    let set = |common: Common<TableChange>| ChangeSet {
        actor: common.actor,
        request: common.request,
        rows: common.rows.into_iter().map(|change| RowChange { owner: None, change }).collect(),
    };
    let mut sets: Vec<_> = common.into_iter().map(set).collect();
    for frame in frames {
        let Opened::Frame(Frame { owner, plain }) = frame else { continue };
        owner?;
        for Owned { set, rows } in whole::<Vec<Owned<TableChange>>>(&plain)? {
            let set = sets.get_mut(usize::try_from(set).ok()?)?;
            set.rows.extend(rows.into_iter().map(|change| RowChange { owner, change }));
        }
    }
    let mut is_owned = is_owned.into_iter();
    sets.retain(|set| !is_owned.next().unwrap_or_default() || !set.rows.is_empty());
    Some(sets)
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
        (prop::option::of(0_u8..3), any::<u16>(), kind, values).prop_map(
            |(owner, table, kind, values)| RowChange {
                owner: owner.map(uuid),
                change: TableChange { table, kind, values },
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

    /// The sets as they come back: rows by their owners.
    fn sorted(mut sets: Vec<ChangeSet>) -> Vec<ChangeSet> {
        sets.iter_mut().for_each(|set| set.rows.sort_by_key(|row| row.owner));
        sets
    }

    proptest! {
        #[test]
        fn change_sets_come_back(sets in change_sets()) {
            prop_assert_eq!(from_frames(opened(&sets)), Some(sorted(sets)));
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
                set.rows.retain(|row| row.owner != Some(uuid(0)));
            }
            expected.retain(|set| was_empty.next() == Some(true) || !set.rows.is_empty());
            prop_assert_eq!(from_frames(frames), Some(expected));
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
            owner: None,
            change: TableChange { table, kind, values },
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
