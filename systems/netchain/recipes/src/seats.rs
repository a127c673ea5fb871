//! A key with a queue of those who hold it or wait for it, each with a lease: what locks,
//! reader-writer locks and semaphores have in common.
//!
//! The queue's order says who holds: see [`Rule`]. A place further ahead is never lost to anybody
//! who comes later, so who holds goes on holding until it leaves or its lease is judged to be over.
//! Those who wait have leases, too: a waiter that died is removed while others still wait.
//!
//! The value: 8 bytes (letter, permits, two zeros, lease in milliseconds), then 8 bytes for each
//! entry: 6 at random, then a bit for a writer and 15 bits that grow with each refresh. A value of
//! 128 bytes has 15 entries; who finds no place comes again.

use crate::cell::{Error, Pauses, Seen, Swapped, read, swap};
use crate::mutation::{Mutation, planted};
use crate::{Store, judged_us};
use netchain_client::Key;
use std::collections::HashMap;
use std::time::Duration;

/// Entries at the most.
pub(crate) const ENTRIES: usize = 15;
const ENTRY_BYTES: usize = 8;
const BEATS: u16 = 1 << 15;
/// Shorter ones are over before they are refreshed; longer ones do not fit.
const LEASE_MS: (u64, u64) = (10, 24 * 3600 * 1000);

/// Who of the queue holds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Rule {
    /// The first one.
    Exclusive,
    /// The first one, if it writes; else all readers before the first writer.
    ReadersWriter,
    /// The first so many.
    Permits(u8),
}

impl Rule {
    fn letter(self) -> u8 {
        match self {
            Rule::Exclusive => b'L',
            Rule::ReadersWriter => b'R',
            Rule::Permits(_) => b'S',
        }
    }

    fn permits(self) -> u8 {
        match self {
            Rule::Exclusive | Rule::ReadersWriter => 0,
            Rule::Permits(permits) => permits,
        }
    }

    /// Does the entry at this place hold?
    fn holds(self, entries: &[Entry], at: usize) -> bool {
        match self {
            Rule::Exclusive => at == 0,
            Rule::ReadersWriter if planted(Mutation::ReaderBesideWriter) => {
                at == 0 || !entries[at].writes
            }
            Rule::ReadersWriter => {
                at == 0 || entries.iter().take(at + 1).all(|entry| !entry.writes)
            }
            Rule::Permits(permits) if planted(Mutation::OnePermitMore) => {
                at <= usize::from(permits)
            }
            Rule::Permits(permits) => at < usize::from(permits),
        }
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Entry {
    /// 48 bits, at random.
    tag: u64,
    writes: bool,
    beat: u16,
}

impl Entry {
    fn bytes(self) -> [u8; ENTRY_BYTES] {
        let end = u64::from(self.beat) | u64::from(self.writes) << 15;
        (self.tag << 16 | end).to_be_bytes()
    }

    fn of(bytes: [u8; ENTRY_BYTES]) -> Entry {
        let word = u64::from_be_bytes(bytes);
        let end = word as u16;
        Entry { tag: word >> 16, writes: end >= BEATS, beat: end % BEATS }
    }
}

/// When an entry's present beat was first seen, by the clock of who waits.
#[derive(Default)]
struct Watch {
    seen: HashMap<u64, (u16, u64)>,
    looked_us: u64,
}

impl Watch {
    fn look(&mut self, entries: &[Entry], now_us: u64, lease_us: u64) {
        // (After a long pause a beat could have come round.)
        if now_us.saturating_sub(self.looked_us) > lease_us {
            self.seen.clear();
        }
        self.looked_us = now_us;
        self.seen.retain(|tag, _| entries.iter().any(|entry| entry.tag == *tag));
        for entry in entries {
            let known = self.seen.entry(entry.tag).or_insert((entry.beat, now_us));
            if known.0 != entry.beat {
                *known = (entry.beat, now_us);
            }
        }
    }

    fn is_over(&self, entry: &Entry, now_us: u64, lease_us: u64) -> bool {
        let judged_us = match planted(Mutation::JudgedEarly) {
            true => lease_us / 2,
            false => judged_us(lease_us),
        };
        self.seen
            .get(&entry.tag)
            .is_some_and(|(_, since_us)| now_us.saturating_sub(*since_us) >= judged_us)
    }
}

/// See the module.
#[derive(Clone)]
pub(crate) struct Seats<S> {
    store: S,
    key: Key,
    rule: Rule,
    lease_ms: u32,
}

impl<S: Store + Clone> Seats<S> {
    pub(crate) fn new(store: S, key: Key, rule: Rule, lease: Duration) -> Result<Seats<S>, Error> {
        let lease_ms = lease.as_millis() as u64;
        if !(LEASE_MS.0..=LEASE_MS.1).contains(&lease_ms) {
            let (least, most) = LEASE_MS;
            return Err(Error::Parameter(format!("the lease must be {least} ms to {most} ms")));
        }
        Ok(Seats { store, key, rule, lease_ms: lease_ms as u32 })
    }

    fn lease_us(&self) -> u64 {
        u64::from(self.lease_ms) * 1000
    }

    fn encode(&self, entries: &[Entry]) -> Vec<u8> {
        let mut value = vec![self.rule.letter(), self.rule.permits(), 0, 0];
        value.extend(self.lease_ms.to_be_bytes());
        value.extend(entries.iter().flat_map(|entry| entry.bytes()));
        value
    }

    fn decode(&self, value: Option<&[u8]>) -> Result<Vec<Entry>, Error> {
        let Some(value) = value else { return Ok(vec![]) };
        let (head, rest) = value.split_at(ENTRY_BYTES.min(value.len()));
        let (entries, []) = rest.as_chunks::<ENTRY_BYTES>() else {
            return Err(Error::NotOurs("the key has a value of another kind".into()));
        };
        let empty = self.encode(&[]);
        // Who comes first says what the lease is. (Judging by another one, two would hold.)
        if head != empty && (head.first() != Some(&self.rule.letter()) || !entries.is_empty()) {
            let said =
                "the key has a value of another kind, or of another lease or number of permits";
            return Err(Error::NotOurs(said.into()));
        }
        Ok(entries.iter().copied().map(Entry::of).collect())
    }

    /// Takes a place in the queue and waits until it holds, for at most about `patience`. None:
    /// others had it for so long.
    pub(crate) async fn take(
        &self,
        writes: bool,
        patience: Option<Duration>,
    ) -> Result<Option<Seat<S>>, Error> {
        let seats = self.clone();
        let tag = self.store.random() >> 16;
        let mut seat = Seat { seats, tag, writes, beat: 0, sent: vec![], known_us: None, token: 0 };
        let began_us = self.store.now_us();
        let mut watch = Watch::default();
        let mut pauses = Pauses::new();
        let mut seen = None;
        loop {
            let now_us = self.store.now_us();
            if patience.is_some_and(|it| now_us.saturating_sub(began_us) > it.as_micros() as u64) {
                seat.leave().await?;
                return Ok(None);
            }
            let Some(Seen { version, value }) = (match seen.take() {
                Some(seen) => Some(seen),
                None => read(&self.store, &self.key).await?,
            }) else {
                pauses.pause(&self.store).await;
                continue;
            };
            let entries = self.decode(value.as_deref())?;
            let now_us = self.store.now_us();
            watch.look(&entries, now_us, self.lease_us());
            let place = seat.find(&entries);
            if place.is_some_and(|at| self.rule.holds(&entries, at)) && seat.is_held() {
                seat.token = version;
                return Ok(Some(seat));
            }
            let next = seat.wish(&entries, &watch, now_us);
            let Some(next) = next else {
                pauses.pause(&self.store).await;
                continue;
            };
            seen = seat.write(version, &next).await?;
            if seen.is_none() {
                pauses.pause(&self.store).await;
            }
        }
    }
}

/// A place in a queue that holds what the queue is for.
pub struct Seat<S: Store + Clone> {
    seats: Seats<S>,
    tag: u64,
    writes: bool,
    beat: u16,
    /// Beats whose writes have no outcome, and when they were sent.
    sent: Vec<(u16, u64)>,
    /// When the newest write was sent that is known to be done.
    known_us: Option<u64>,
    token: u64,
}

impl<S: Store + Clone> Seat<S> {
    /// The fencing token: larger than those of all earlier holders of what only one can hold.
    pub fn token(&self) -> u64 {
        self.token
    }

    /// It holds, as far as its own clock can tell.
    pub fn is_held(&self) -> bool {
        !self.left().is_zero()
    }

    /// So long it holds without a refresh.
    pub fn left(&self) -> Duration {
        let Some(known_us) = self.known_us else { return Duration::ZERO };
        let until_us = known_us + self.seats.lease_us();
        Duration::from_micros(until_us.saturating_sub(self.seats.store.now_us()))
    }

    /// The time of the lease.
    pub fn lease(&self) -> Duration {
        Duration::from_millis(self.seats.lease_ms.into())
    }

    fn is_sent(&self) -> bool {
        self.known_us.is_some() || !self.sent.is_empty()
    }

    /// Its entry, which also says which of its writes were done.
    fn find(&mut self, entries: &[Entry]) -> Option<usize> {
        let at = entries.iter().position(|entry| entry.tag == self.tag);
        let Some(at) = at else {
            if self.known_us.is_some() {
                self.known_us = None; // somebody judged it
            }
            return None;
        };
        let beat = entries[at].beat;
        if let Some((_, sent_us)) = self.sent.iter().find(|(sent, _)| *sent == beat) {
            self.known_us = self.known_us.max(Some(*sent_us));
        }
        Some(at)
    }

    /// What the queue should be while this one waits. None: as it is.
    fn wish(&mut self, entries: &[Entry], watch: &Watch, now_us: u64) -> Option<Vec<Entry>> {
        let lease_us = self.seats.lease_us();
        let mut next = entries.to_vec();
        next.retain(|it| it.tag == self.tag || !watch.is_over(it, now_us, lease_us));
        let removes = next.len() < entries.len();
        let beat = (self.beat + 1) % BEATS;
        let is_late = self.left().as_micros() as u64 <= lease_us * 2 / 3;
        match next.iter().position(|entry| entry.tag == self.tag) {
            Some(own) if removes || is_late => next[own].beat = beat,
            Some(_) => return None,
            None if next.len() < ENTRIES => {
                next.push(Entry { tag: self.tag, writes: self.writes, beat });
            }
            None => return removes.then_some(next),
        }
        Some(next)
    }

    /// Writes the queue. What the key has then; None: nobody knows.
    async fn write(&mut self, version: u64, next: &[Entry]) -> Result<Option<Seen>, Error> {
        let (store, key) = (self.seats.store.clone(), self.seats.key);
        let own = next.iter().find(|entry| entry.tag == self.tag).map(|entry| entry.beat);
        let sent_us = store.now_us();
        if let Some(beat) = own {
            self.beat = beat;
            self.sent.push((beat, sent_us));
        }
        let swapped = swap(&store, &key, version, &self.seats.encode(next)).await?;
        let (done, seen) = match swapped {
            Swapped::Done { now, .. } => (true, Some(now)),
            Swapped::Not(now) => (false, Some(now)),
            Swapped::Unknown => return Ok(None),
        };
        if let Some(beat) = own {
            self.sent.retain(|(sent, _)| *sent != beat);
            if done {
                let known_us = match planted(Mutation::CountedFromReply) {
                    true => store.now_us(),
                    false => sent_us,
                };
                self.known_us = self.known_us.max(Some(known_us));
            }
        }
        Ok(seen)
    }

    /// Renews the lease. False: it is lost, or no switch could be asked in its time. Call it when a
    /// third of the lease is over.
    ///
    /// # Errors
    /// The client cannot ask, or the key's group was lost.
    pub async fn refresh(&mut self) -> Result<bool, Error> {
        let (store, key) = (self.seats.store.clone(), self.seats.key);
        let mut pauses = Pauses::new();
        let mut seen = None;
        let before = self.known_us;
        while self.is_held() {
            let Some(Seen { version, value }) = (match seen.take() {
                Some(seen) => Some(seen),
                None => read(&store, &key).await?,
            }) else {
                pauses.pause(&store).await;
                continue;
            };
            let mut entries = self.seats.decode(value.as_deref())?;
            let Some(at) = self.find(&entries) else { return Ok(false) };
            if self.known_us > before {
                return Ok(self.is_held());
            }
            entries[at].beat = (self.beat + 1) % BEATS;
            seen = self.write(version, &entries).await?;
        }
        Ok(false)
    }

    /// Leaves the queue: the next one need not wait for the lease's end.
    ///
    /// # Errors
    /// The client cannot ask, or the key's group was lost.
    pub async fn release(mut self) -> Result<(), Error> {
        self.leave().await
    }

    async fn leave(&mut self) -> Result<(), Error> {
        if !self.is_sent() {
            return Ok(());
        }
        let (store, key) = (self.seats.store.clone(), self.seats.key);
        let began_us = store.now_us();
        self.known_us = None;
        let mut pauses = Pauses::new();
        let mut seen = None;
        // (After a lease the others have judged it.)
        while store.now_us().saturating_sub(began_us) <= self.seats.lease_us() {
            let Some(Seen { version, value }) = (match seen.take() {
                Some(seen) => Some(seen),
                None => read(&store, &key).await?,
            }) else {
                pauses.pause(&store).await;
                continue;
            };
            let mut entries = self.seats.decode(value.as_deref())?;
            let Some(at) = self.find(&entries) else { return Ok(()) };
            self.known_us = None; // (an earlier write may have been found done)
            entries.remove(at);
            seen = self.write(version, &entries).await?;
        }
        Ok(())
    }
}
