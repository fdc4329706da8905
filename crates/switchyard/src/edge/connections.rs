//! All connections, and which of them ends when there are too many.
//!
//! Guarantees: an address has so many connections and half-sent heads at most; when there is no
//! room for another connection, one ends that only waits for its client. Of those, half-sent heads
//! come first, then idle ones, then slow bodies and clients that do not read; among equals one of
//! the address with most connections, the one that has waited longest.
//!
//! Received bodies and rendered answers are counted by address too. When an address or the server
//! holds too many bytes, connections end that hold some and wait for their client, the oldest
//! request first.

use std::collections::{BTreeMap, HashMap};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use service::guesses::Network;

use super::exchange::{Exchange, Phase, now_millis};

/// A client that sends a body or reads an answer is slow, and not only at it, after this time.
const SLOW_MILLIS: u64 = 250;

/// A body that still arrives after this time, however steadily, may end for another one.
const OLD_BODY_MILLIS: u64 = 3_000;

/// Connections that are chosen to end, for the next ones that come: choosing looks at all.
const CHOSEN_MAX: usize = 32;

/// How many connections there may be.
#[derive(Debug, Clone, Copy)]
pub(super) struct Room {
    pub(super) connections_max: usize,
    pub(super) of_address_max: usize,
    pub(super) heads_of_address_max: usize,
    /// Bytes of bodies and answers.
    pub(super) bytes_max: usize,
    pub(super) bytes_of_address_max: usize,
}

/// The connections that are open.
pub(super) struct Connections {
    room: Room,
    open: Mutex<Open>,
}

#[derive(Default)]
struct Open {
    next_id: u64,
    all: HashMap<u64, Arc<Exchange>>,
    /// Of these, the ones that were asked to end.
    ending: usize,
    of: HashMap<Network, OfAddress>,
    /// Bytes of bodies and answers that all connections hold.
    bytes: usize,
    chosen: Vec<Arc<Exchange>>,
}

#[derive(Default)]
struct OfAddress {
    connections: usize,
    bytes: usize,
    /// Its half-sent heads, the oldest first.
    heads: BTreeMap<u64, Arc<Exchange>>,
    /// Numbers heads as they come.
    next_head: u64,
}

/// A place among the connections, until it is dropped.
pub(super) struct Place {
    pub(super) exchange: Arc<Exchange>,
    connections: Arc<Connections>,
}

/// The bytes of bodies and answers that a connection holds.
#[derive(Clone)]
pub(super) struct Memory {
    pub(super) exchange: Arc<Exchange>,
    connections: Arc<Connections>,
}

/// A head that is half there, until it is dropped.
pub(super) struct HalfHead {
    number: u64,
    address: Network,
    connections: Arc<Connections>,
}

impl Connections {
    pub(super) fn new(room: Room) -> Arc<Self> {
        Arc::new(Self { room, open: Mutex::default() })
    }

    fn open(&self) -> MutexGuard<'_, Open> {
        self.open.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Takes a connection in. Where that is one too many, another ends; none if none can.
    pub(super) fn admit(self: &Arc<Self>, address: Network, is_trusted: bool) -> Option<Place> {
        let mut open = self.open();
        let of_address = open.of.get(&address).map_or(0, |of| of.connections);
        if !is_trusted && of_address >= self.room.of_address_max {
            let candidates = open.all.values().filter(|one| one.address == address);
            let victim = best(candidates, |_| 0).first().cloned()?;
            open.end(&victim, "address");
        }
        if open.all.len() - open.ending >= self.room.connections_max && !open.make_room() {
            return None;
        }
        let id = open.next_id;
        open.next_id += 1;
        let exchange = Exchange::new(id, address, is_trusted);
        open.all.insert(id, Arc::clone(&exchange));
        open.of.entry(address).or_default().connections += 1;
        Some(Place { exchange, connections: Arc::clone(self) })
    }

    /// Ends a connection that only waits, if there is one.
    pub(super) fn make_room(&self) {
        self.open().make_room();
    }

    /// Counts so many more bytes. Tells whether they are within the limits; connections that only
    /// wait have ended for them. A connection that was asked to end counts no more.
    fn hold(&self, exchange: &Exchange, bytes: usize) -> bool {
        let mut open = self.open();
        if exchange.since().phase() == Phase::Ending {
            return false;
        }
        exchange.hold(bytes);
        open.bytes += bytes;
        open.of.entry(exchange.address).or_default().bytes += bytes;
        open.free_bytes(self.room, exchange)
    }

    /// Counts none of the connection's bytes any more.
    fn release(&self, exchange: &Exchange) {
        if exchange.holds_bytes() {
            self.open().release(exchange);
        }
    }

    /// Counts a half-sent head. The oldest of an address that has too many ends.
    pub(super) fn half_head(self: &Arc<Self>, exchange: &Arc<Exchange>) -> HalfHead {
        let mut open = self.open();
        let address = exchange.address;
        let of = open.of.entry(address).or_default();
        let number = of.next_head;
        of.next_head += 1;
        of.heads.insert(number, Arc::clone(exchange));
        if !exchange.is_trusted && of.heads.len() > self.room.heads_of_address_max {
            let oldest = of.heads.pop_first();
            if let Some((_, oldest)) = oldest {
                open.end(&oldest, "heads");
            }
        }
        HalfHead { number, address, connections: Arc::clone(self) }
    }
}

impl Open {
    fn end(&mut self, exchange: &Arc<Exchange>, reason: &'static str) {
        if exchange.since().phase() == Phase::Ending {
            return;
        }
        exchange.enter(Phase::Ending);
        exchange.end.cancel();
        self.ending += 1;
        self.release(exchange);
        if let Some(of) = self.of.get_mut(&exchange.address) {
            of.connections = of.connections.saturating_sub(1);
        }
        metrics::counter!("switchyard_connections_ended_total", "reason" => reason).increment(1);
    }

    fn release(&mut self, exchange: &Exchange) {
        let bytes = exchange.release();
        self.bytes -= bytes;
        if let Some(of) = self.of.get_mut(&exchange.address) {
            of.bytes -= bytes;
        }
    }

    /// Ends connections that hold bytes and wait, until the limits hold for the address of this one
    /// and for all; false if they cannot.
    fn free_bytes(&mut self, room: Room, exchange: &Exchange) -> bool {
        let bytes_of = |open: &Self, address| open.of.get(&address).map_or(0, |of| of.bytes);
        while !exchange.is_trusted && bytes_of(self, exchange.address) > room.bytes_of_address_max {
            let own = self.all.values().filter(|one| one.address == exchange.address);
            let Some(victim) = oldest_holder(own) else { return false };
            self.end(&victim, "bytes");
        }
        while self.bytes > room.bytes_max {
            let most = self.of.values().map(|of| of.bytes).max().unwrap_or_default();
            let all = self.all.values();
            // Of the address that holds most, or of any other where that waits for nothing.
            let greatest = all.clone().filter(|one| bytes_of(self, one.address) == most);
            let victim = oldest_holder(greatest).or_else(|| oldest_holder(all));
            let Some(victim) = victim else { return false };
            self.end(&victim, "bytes");
        }
        true
    }

    fn make_room(&mut self) -> bool {
        loop {
            while let Some(victim) = self.chosen.pop() {
                if self.all.contains_key(&victim.id) && rank(&victim, now_millis()).is_some() {
                    self.end(&victim, "full");
                    return true;
                }
            }
            let count = |address| self.of.get(&address).map_or(0, |of| of.connections);
            self.chosen = best(self.all.values(), count);
            // The best one is taken first.
            self.chosen.reverse();
            if self.chosen.is_empty() {
                return false;
            }
        }
    }

    fn remove(&mut self, exchange: &Exchange) {
        self.all.remove(&exchange.id);
        self.release(exchange);
        if exchange.since().phase() == Phase::Ending {
            self.ending -= 1;
        } else if let Some(of) = self.of.get_mut(&exchange.address) {
            of.connections = of.connections.saturating_sub(1);
        }
        // Whatever is left of its request counts no bytes any more.
        exchange.enter(Phase::Ending);
        self.forget_if_empty(exchange.address);
    }

    fn forget_if_empty(&mut self, address: Network) {
        let is_empty = |of: &OfAddress| of.connections == 0 && of.heads.is_empty() && of.bytes == 0;
        if self.of.get(&address).is_some_and(is_empty) {
            self.of.remove(&address);
        }
    }
}

/// Of the connections that hold bytes and wait for their client, the one with the oldest request.
fn oldest_holder<'a>(all: impl Iterator<Item = &'a Arc<Exchange>>) -> Option<Arc<Exchange>> {
    let now = now_millis();
    let waits = |one: &&Arc<Exchange>| {
        let since = one.since();
        let is_older = |than, millis: u64| now.saturating_sub(millis) >= than;
        match since.phase() {
            Phase::Stalled => true,
            Phase::Body => {
                is_older(SLOW_MILLIS, since.millis()) || is_older(OLD_BODY_MILLIS, one.held_since())
            }
            Phase::Head | Phase::Idle | Phase::Busy | Phase::Ending => false,
        }
    };
    let holders = all.filter(|one| one.holds_bytes()).filter(waits);
    holders.min_by_key(|one| (one.held_since(), one.id)).cloned()
}

/// Those that may end, the first ones first.
fn best<'a>(
    all: impl Iterator<Item = &'a Arc<Exchange>>,
    count: impl Fn(Network) -> usize,
) -> Vec<Arc<Exchange>> {
    let now = now_millis();
    let ranked = all.filter_map(|one| {
        let (order, millis) = rank(one, now)?;
        Some(((order, usize::MAX - count(one.address), millis, one.id), one))
    });
    let mut ranked: Vec<_> = ranked.collect();
    if ranked.len() > CHOSEN_MAX {
        ranked.select_nth_unstable_by_key(CHOSEN_MAX, |(key, _)| *key);
        ranked.truncate(CHOSEN_MAX);
    }
    ranked.sort_unstable_by_key(|(key, _)| *key);
    ranked.into_iter().map(|(_, one)| Arc::clone(one)).collect()
}

/// How soon a connection ends, and since when it waits; none if it does something.
fn rank(exchange: &Exchange, now: u64) -> Option<(u8, u64)> {
    let since = exchange.since();
    let is_slow = now.saturating_sub(since.millis()) >= SLOW_MILLIS;
    let order = match since.phase() {
        Phase::Head => 0,
        Phase::Idle => 1,
        Phase::Body | Phase::Stalled if is_slow => 2,
        Phase::Body | Phase::Stalled | Phase::Busy | Phase::Ending => return None,
    };
    Some((order, since.millis()))
}

impl Place {
    /// The bytes that it holds.
    pub(super) fn memory(&self) -> Memory {
        Memory { exchange: Arc::clone(&self.exchange), connections: Arc::clone(&self.connections) }
    }

    /// The head that it has begun to send.
    pub(super) fn half_head(&self) -> HalfHead {
        self.connections.half_head(&self.exchange)
    }
}

impl Memory {
    /// Counts so many more bytes. Tells whether there is room for them.
    pub(super) fn hold(&self, bytes: usize) -> bool {
        self.connections.hold(&self.exchange, bytes)
    }

    /// Counts none any more.
    pub(super) fn release(&self) {
        self.connections.release(&self.exchange);
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        self.connections.open().remove(&self.exchange);
    }
}

impl Drop for HalfHead {
    fn drop(&mut self) {
        let mut open = self.connections.open();
        if let Some(of) = open.of.get_mut(&self.address) {
            of.heads.remove(&self.number);
        }
        open.forget_if_empty(self.address);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn connections(connections_max: usize, of_address_max: usize) -> Arc<Connections> {
        Connections::new(Room {
            connections_max,
            of_address_max,
            heads_of_address_max: 2,
            bytes_max: 1_000,
            bytes_of_address_max: 400,
        })
    }

    fn address(text: &str) -> Network {
        text.parse::<std::net::IpAddr>().expect("an address").into()
    }

    #[test]
    fn half_heads_end_first_then_idle_ones_and_none_that_is_busy() {
        let all = connections(3, 3);
        let places: Vec<_> =
            (0..3).map(|_| all.admit(address("10.0.0.1"), false).expect("room")).collect();
        places[0].exchange.enter(Phase::Busy);
        places[2].exchange.enter(Phase::Head);
        let ended = || {
            let ended = places.iter().map(|place| place.exchange.end.is_cancelled());
            ended.collect::<Vec<_>>()
        };
        let _third = all.admit(address("10.0.0.2"), false).expect("room");
        assert_eq!(ended(), [false, false, true]);
        let fourth = all.admit(address("10.0.0.2"), false).expect("room");
        assert_eq!(ended(), [false, true, true]);
        fourth.exchange.enter(Phase::Busy);
        let _fifth = all.admit(address("10.0.0.3"), false).expect("room");
        assert_eq!(ended(), [false, true, true]);
        _fifth.exchange.enter(Phase::Busy);
        assert!(all.admit(address("10.0.0.3"), false).is_none());
        drop(places);
        assert!(all.admit(address("10.0.0.3"), false).is_some());
    }

    #[test]
    fn the_oldest_that_waits_with_bytes_ends_for_more() {
        let all = connections(100, 100);
        let admit = |host: &str, phase, bytes| {
            let place = all.admit(address(host), false).expect("room");
            assert!(place.memory().hold(bytes), "{host} {bytes}");
            place.exchange.enter(phase);
            place
        };
        let has_ended = |place: &Place| place.exchange.end.is_cancelled();
        let [busy, first, second] = [Phase::Busy, Phase::Stalled, Phase::Stalled]
            .map(|phase| admit("10.0.0.1", phase, 130));
        let third = admit("10.0.0.1", Phase::Stalled, 130);
        assert_eq!([&busy, &first, &second, &third].map(has_ended), [false, true, false, false]);
        assert!(!first.memory().hold(1), "it counts no more");
        // Of an address whose connections are all busy, none ends, and there is no more room.
        second.memory().release();
        third.memory().release();
        assert!(busy.memory().hold(270) && !busy.memory().hold(1));
        busy.memory().release();

        // All addresses together: the one that holds most gives way.
        let most = admit("10.0.0.2", Phase::Stalled, 400);
        let others = ["10.0.0.3", "10.0.0.4"].map(|host| admit(host, Phase::Stalled, 300));
        let last = admit("10.0.0.5", Phase::Busy, 100);
        assert!(has_ended(&most) && !others.iter().any(has_ended) && !has_ended(&last));
        drop((busy, first, second, third, most, others, last));
        let open = all.open();
        assert!(open.of.is_empty() && open.bytes == 0);
    }

    #[test]
    fn an_address_has_so_many_connections_and_half_heads() {
        let all = connections(100, 3);
        let own: Vec<_> =
            (0..3).map(|_| all.admit(address("10.0.0.1"), false).expect("room")).collect();
        let another = all.admit(address("10.0.0.2"), false).expect("room");
        let next = all.admit(address("10.0.0.1"), false).expect("in the place of an idle one");
        assert!(own[0].exchange.end.is_cancelled() && !another.exchange.end.is_cancelled());
        for busy in own[1..].iter().chain([&next]) {
            busy.exchange.enter(Phase::Busy);
        }
        assert!(all.admit(address("10.0.0.1"), false).is_none());
        assert!(all.admit(address("10.0.0.1"), true).is_some(), "a proxy has many clients");

        let heads: Vec<_> = own[1..].iter().chain([&next]).map(Place::half_head).collect();
        assert!(own[1].exchange.end.is_cancelled(), "the oldest of three");
        assert!(!next.exchange.end.is_cancelled());
        drop((heads, own, next, another));
        assert!(all.open().of.is_empty(), "nothing is kept of an address that is gone");
        assert_eq!(all.open().ending, 0);
    }
}
