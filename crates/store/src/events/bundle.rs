//! Bundles: events of one platform that follow each other and were committed together, in one row
//! (docs/decisions/0031). Of a row of its own, most of a small event would be what rows, keys and
//! seals have besides.
//!
//! A bundle stands under the ordinal of its last event, and covers those behind the bundle before
//! it. What events are about stands in its heads, one of [`HEAD`] bytes for each, so that whoever
//! has no key can look through them; their bodies are packed and sealed together.

use std::collections::BTreeMap;

use domain::event::{Event, EventKind, event_id};
use domain::id::PlatformId;
use domain::time::Timestamp;
use uuid::Uuid;

use super::{Numbered, Place};
use crate::error::StoreError;
use crate::keyring::Keyring;
use crate::packed;
use crate::sql::{Change, Row, Shape, Value, Write};

/// The table of events: one row for each bundle.
pub(crate) static EVENTS: Shape =
    Shape::covering("events", &["platform", "ordinal", "heads", "sealed"], 2);

/// Bytes of a head: resource, number, kind and time, numbers with their first byte first.
pub(crate) const HEAD: usize = 29;

/// Events of a bundle at most. A statement that looks into bundles goes through so many places of
/// each.
pub(crate) const EVENTS_MAX: usize = 32;

/// Bytes of their bodies, but for the last one's: packed, they take an eighth or less. PostgreSQL
/// moves what is longer than 2 kB out of a row, and whoever wants one event opens all.
const BODIES_MAX: usize = 12 * 1024;

/// Bytes that say how long a body is.
const LENGTH: usize = 4;

/// What an event is about, which is in no secret.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Head {
    pub(crate) resource: Uuid,
    pub(crate) number: u32,
    pub(crate) kind: EventKind,
    pub(crate) at: Timestamp,
}

impl Head {
    fn of(event: &Event) -> Self {
        Self { resource: event.resource, number: event.number, kind: event.kind, at: event.at }
    }

    fn encode(self, heads: &mut Vec<u8>) {
        heads.extend_from_slice(self.resource.as_bytes());
        heads.extend_from_slice(&self.number.to_be_bytes());
        heads.push(self.kind as u8);
        heads.extend_from_slice(&self.at.millis().to_be_bytes());
    }

    /// Reads a head; nothing if these bytes are none.
    pub(crate) fn decode(bytes: &[u8]) -> Option<Self> {
        let bytes: &[u8; HEAD] = bytes.try_into().ok()?;
        let (resource, rest) = bytes.split_first_chunk()?;
        let (number, rest) = rest.split_first_chunk()?;
        let (kind, at) = rest.split_first()?;
        Some(Self {
            resource: Uuid::from_bytes(*resource),
            number: u32::from_be_bytes(*number),
            kind: EventKind::ALL.into_iter().find(|known| *known as u8 == *kind)?,
            at: Timestamp::from_millis(i64::from_be_bytes(at.try_into().ok()?)),
        })
    }

    /// What the body says again: what it is about, and the id that follows from that.
    fn beside(self) -> [Uuid; 2] {
        [self.resource, event_id(self.resource, self.number).uuid()]
    }
}

/// What the sealed bytes of a bundle belong to: its place and all of its heads.
pub(crate) fn context(last: Place, heads: &[u8]) -> Vec<u8> {
    [&last.platform.uuid().as_bytes()[..], &last.ordinal.to_be_bytes(), heads].concat()
}

/// Events on their way into bundles. Sealing takes time, and there is more of it while a batch is
/// open than when it is to be written, so a bundle is made as soon as it is full.
#[derive(Default)]
pub(crate) struct Bundles {
    open: BTreeMap<PlatformId, Open>,
    rows: Vec<Vec<Value>>,
}

/// A bundle that takes events.
#[derive(Default)]
struct Open {
    last: i64,
    heads: Vec<u8>,
    beside: Vec<Uuid>,
    lengths: Vec<u8>,
    bodies: Vec<u8>,
}

impl Open {
    fn add(&mut self, Numbered { ordinal, event }: &Numbered) {
        let head = Head::of(event);
        self.last = *ordinal;
        head.encode(&mut self.heads);
        self.beside.extend(head.beside());
        let length = u32::try_from(event.body.len()).expect("requests and answers have limits");
        self.lengths.extend_from_slice(&length.to_be_bytes());
        self.bodies.extend_from_slice(&event.body);
    }

    /// Whether an event can follow the ones that are here.
    fn takes(&self, ordinal: i64) -> bool {
        let has_room = self.heads.len() < EVENTS_MAX * HEAD && self.bodies.len() < BODIES_MAX;
        has_room && self.last + 1 == ordinal
    }

    fn row(self, platform: PlatformId, keyring: &Keyring) -> Vec<Value> {
        let last = Place { platform, ordinal: self.last };
        let plain = [self.lengths, packed::pack(&self.bodies, &self.beside)].concat();
        let sealed = keyring.seal(EVENTS.table, &context(last, &self.heads), &plain);
        vec![platform.into(), self.last.into(), self.heads.into(), sealed.into()]
    }
}

impl Bundles {
    /// Takes an event, which comes behind all of its platform's that were taken.
    pub(crate) fn add(&mut self, event: &Numbered, keyring: &Keyring) {
        let platform = event.event.platform;
        let open = self.open.entry(platform).or_default();
        if !open.heads.is_empty() && !open.takes(event.ordinal) {
            self.rows.push(std::mem::take(open).row(platform, keyring));
        }
        open.add(event);
    }

    /// The write that appends all of them.
    pub(crate) fn write(self, keyring: &Keyring) -> Write {
        let mut rows = self.rows;
        rows.extend(self.open.into_iter().map(|(platform, open)| open.row(platform, keyring)));
        Write { shape: &EVENTS, change: Change::Insert, rows }
    }
}

/// A row of the table.
#[derive(Debug)]
pub(crate) struct Bundle {
    platform: PlatformId,
    first: i64,
    last: i64,
    raw_heads: Vec<u8>,
    heads: Vec<Head>,
    sealed: Vec<u8>,
}

impl Bundle {
    /// Reads a row, and opens nothing yet.
    pub(crate) fn read(values: Vec<Value>) -> Result<Self, StoreError> {
        let row = &mut Row::new(EVENTS.table, EVENTS.columns, values);
        let (platform, last, raw_heads) = (row.id()?, row.int()?, row.bytes()?);
        let (heads, first) =
            heads(&raw_heads, last).ok_or_else(|| row.corrupt("no heads of events"))?;
        Ok(Self { platform, first, last, raw_heads, heads, sealed: row.bytes()? })
    }

    /// Who is told.
    pub(crate) fn platform(&self) -> PlatformId {
        self.platform
    }

    /// The ordinal of its first event.
    pub(crate) fn first(&self) -> i64 {
        self.first
    }

    /// The ordinal of its last event.
    pub(crate) fn last(&self) -> i64 {
        self.last
    }

    /// What its events are about, each with its ordinal.
    pub(crate) fn heads(&self) -> impl Iterator<Item = (i64, Head)> {
        (self.first..=self.last).zip(self.heads.iter().copied())
    }

    /// Where its events stand.
    pub(crate) fn places(&self) -> impl Iterator<Item = Place> {
        (self.first..=self.last).map(|ordinal| Place { platform: self.platform, ordinal })
    }

    /// Opens it and gives its events.
    pub(crate) fn open(&self, keyring: &Keyring) -> Result<Vec<Numbered>, StoreError> {
        let place = Place { platform: self.platform, ordinal: self.last };
        let plain = keyring.open(EVENTS.table, &context(place, &self.raw_heads), &self.sealed)?;
        self.unpack(&plain).ok_or(StoreError::Sealed { place: EVENTS.table })
    }

    fn unpack(&self, plain: &[u8]) -> Option<Vec<Numbered>> {
        let (lengths, packed) = plain.split_at_checked(self.heads.len() * LENGTH)?;
        let beside: Vec<_> = self.heads.iter().flat_map(|head| head.beside()).collect();
        let bodies = packed::unpack(packed, &beside)?;
        let mut rest = &bodies[..];
        let mut events = Vec::with_capacity(self.heads.len());
        for ((ordinal, head), length) in self.heads().zip(lengths.as_chunks().0) {
            let length = usize::try_from(u32::from_be_bytes(*length)).ok()?;
            let (body, behind) = rest.split_at_checked(length)?;
            rest = behind;
            let Head { resource, number, kind, at } = head;
            let (id, body) = (event_id(resource, number), body.to_vec());
            let event = Event { id, platform: self.platform, kind, resource, number, at, body };
            events.push(Numbered { ordinal, event });
        }
        rest.is_empty().then_some(events)
    }
}

/// Heads, and the ordinal of the first if that of the last is this; nothing if these are none.
fn heads(bytes: &[u8], last: i64) -> Option<(Vec<Head>, i64)> {
    let (heads, []) = bytes.as_chunks::<HEAD>() else { return None };
    let first = last.checked_sub(i64::try_from(heads.len()).ok()?)?.checked_add(1)?;
    let heads: Option<Vec<_>> = heads.iter().map(|head| Head::decode(head)).collect();
    let fits = |heads: &Vec<Head>| (1..=EVENTS_MAX).contains(&heads.len()) && first >= 1;
    heads.filter(fits).map(|heads| (heads, first))
}

/// The head of the event with this ordinal in a bundle that ends with `last`, if it is there.
pub(crate) fn head_at(bytes: &[u8], last: i64, ordinal: i64) -> Option<Head> {
    let (heads, first) = heads(bytes, last)?;
    heads.get(usize::try_from(ordinal.checked_sub(first)?).ok()?).copied()
}

#[cfg(test)]
mod tests {
    use domain::event::EventKind;
    use proptest::prelude::*;

    use super::*;
    use crate::keyring::KEY_LENGTH;

    fn keyring() -> Keyring {
        Keyring::new(&[7; KEY_LENGTH])
    }

    fn numbered(ordinal: i64, body: Vec<u8>) -> Numbered {
        let resource = Uuid::from_u128(ordinal as u128 / 2);
        let (number, kind) = (ordinal as u32, EventKind::ALL[ordinal as usize % 7]);
        let (id, platform) = (event_id(resource, number), PlatformId::from_uuid(Uuid::nil()));
        let at = Timestamp::from_millis(ordinal - 9);
        let event = Event { id, platform, kind, resource, number, at, body };
        Numbered { ordinal, event }
    }

    fn bundled(events: &[Numbered]) -> Vec<Vec<Value>> {
        let mut bundles = Bundles::default();
        for event in events {
            bundles.add(event, &keyring());
        }
        bundles.write(&keyring()).rows
    }

    /// How many events each bundle has.
    fn sizes(events: &[Numbered]) -> Vec<usize> {
        let rows = bundled(events).into_iter();
        rows.map(|row| Bundle::read(row).unwrap().heads().count()).collect()
    }

    fn opened(rows: Vec<Vec<Value>>) -> Vec<Numbered> {
        let bundles = rows.into_iter().map(|row| Bundle::read(row).unwrap());
        bundles.flat_map(|bundle| bundle.open(&keyring()).unwrap()).collect()
    }

    #[test]
    fn a_bundle_ends_where_it_is_full_or_a_number_is_missing() {
        let few = |ordinals: &[i64], length: usize| {
            let bodies = ordinals.iter().map(|ordinal| numbered(*ordinal, vec![b'x'; length]));
            bodies.collect::<Vec<_>>()
        };
        let all: Vec<_> = (1..=70).collect();
        assert_eq!(sizes(&few(&all, 2)), [EVENTS_MAX, EVENTS_MAX, 70 - 2 * EVENTS_MAX]);
        assert_eq!(sizes(&few(&[1, 2, 3], BODIES_MAX)), [1, 1, 1]);
        assert_eq!(sizes(&few(&[1, 2, 3], BODIES_MAX - 1)), [2, 1]);
        assert_eq!(sizes(&few(&[1, 2, 4, 5, 6], 2)), [2, 3]);
        assert!(sizes(&[]).is_empty());
    }

    #[test]
    fn platforms_have_bundles_of_their_own() {
        let other = PlatformId::from_uuid(Uuid::max());
        let mut events: Vec<_> = (1..=6).map(|ordinal| numbered(ordinal, vec![b'x'])).collect();
        for event in events.iter_mut().filter(|it| it.ordinal % 2 == 0) {
            event.event.platform = other;
            event.ordinal /= 2;
        }
        events.retain(|it| it.event.platform == other || it.ordinal == 1);
        let found = opened(bundled(&events));
        assert_eq!(found.len(), 4);
        assert!(events.iter().all(|event| found.contains(event)));
    }

    #[test]
    fn a_bundle_opens_only_at_its_place_with_its_heads_and_key() {
        let events: Vec<_> = (3..=5).map(|ordinal| numbered(ordinal, vec![b'x'; 9])).collect();
        let [row] = &bundled(&events)[..] else { panic!("one bundle") };
        let opens = |column: usize, value: Value| {
            let mut row = row.clone();
            row[column] = value;
            Bundle::read(row).is_ok_and(|bundle| bundle.open(&keyring()).is_ok())
        };
        assert!(opens(1, 5_i64.into()));
        assert!(!opens(1, 6_i64.into()));
        assert!(!opens(0, Uuid::max().into()));
        let Value::Bytes(heads) = row[2].clone() else { panic!("bytes") };
        for byte in 0..heads.len() {
            let mut heads = heads.clone();
            heads[byte] ^= 1;
            assert!(!opens(2, heads.into()), "{byte}");
        }
        assert!(!opens(2, heads[HEAD..].into()));
        let bundle = Bundle::read(row.clone()).unwrap();
        assert!(bundle.open(&Keyring::new(&[8; KEY_LENGTH])).is_err());
    }

    #[test]
    fn what_is_no_bundle_is_refused() {
        let read = |last: i64, heads: &[u8]| {
            Bundle::read(vec![Uuid::nil().into(), last.into(), heads.into(), Value::from(&[][..])])
                .is_ok()
        };
        assert!(read(1, &[0; HEAD]));
        assert!(read(32, &[0; EVENTS_MAX * HEAD]));
        assert!(!read(40, &[0; (EVENTS_MAX + 1) * HEAD]));
        for heads in [&[][..], &[0; HEAD - 1], &[0; HEAD + 1], &[9; HEAD]] {
            assert!(!read(1, heads), "{} bytes", heads.len());
        }
        assert!(!read(i64::MIN, &[0; HEAD]));
        assert!(!read(i64::MIN, &[0; 2 * HEAD]));
        let last =
            vec![Uuid::nil().into(), i64::MAX.into(), [0; HEAD][..].into(), [0; 9][..].into()];
        let bundle = Bundle::read(last).unwrap();
        assert!(bundle.heads().map(|(ordinal, _)| ordinal).eq([i64::MAX]));
    }

    proptest! {
        #[test]
        fn any_events_come_back_the_same(
            bodies in prop::collection::vec(prop::collection::vec(any::<u8>(), 0..600), 0..80)
        ) {
            let events: Vec<_> =
                (1..).zip(bodies).map(|(ordinal, body)| numbered(ordinal, body)).collect();
            prop_assert_eq!(opened(bundled(&events)), events);
        }

        #[test]
        fn no_bytes_make_it_panic(heads: Vec<u8>, last: i64, plain: Vec<u8>) {
            let values = vec![Uuid::nil().into(), last.into(), heads.into(), vec![0_u8].into()];
            if let Ok(bundle) = Bundle::read(values) {
                let _ = bundle.unpack(&plain);
            }
        }
    }
}
