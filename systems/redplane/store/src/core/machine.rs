//! The records as what a chain replicates: how effects change them, and how they are described to a
//! joining replica.
//!
//! The sweep gives every record once. What an entry touches meanwhile is given again: of a record's
//! snapshots, which are long and always change, only the new parts.

use super::blob::Blob;
use super::mutation::{self, Mutation};
use super::pool::Pool;
use super::records::Records;
use chain::{DoesNotApply, StateMachine, Touched};
use state_protocol::{Effect, SnapshotPart};

/// What an effect touches: a record, which need not exist, or a part of its snapshots.
#[derive(Clone, PartialEq, Eq, Hash)]
pub struct Piece {
    /// Position of its object in the settings.
    object: usize,
    key: Blob,
    /// If only a part of a snapshot is new, which: epoch, number and part.
    part: Option<(u32, u64, u16)>,
}

impl StateMachine for Records {
    type Effect<'a> = Effect<'a>;

    /// The slot of the record that the effect wrote.
    type Written = Option<u32>;

    type Piece = Piece;

    fn empty(&self) -> Records {
        let mut empty = Records::new(self.objects.clone(), 0);
        for (new, old) in empty.tables.iter_mut().zip(&self.tables) {
            if let (Some(Pool::Backends(new)), Some(Pool::Backends(old))) =
                (&mut new.pool, &old.pool)
            {
                new.set_backends(old.backends().clone());
            }
        }
        if self.changed.is_some() {
            empty.watch_changes();
        }
        empty
    }

    fn apply(&mut self, effect: &Effect<'_>) -> Result<Option<u32>, DoesNotApply> {
        match effect {
            Effect::None => Ok(None),
            Effect::Write(write) => self.write(write).map(Some),
            Effect::Pair { first, second } => self.pair(first, second).map(Some),
            Effect::Free { object_id, key, floor } => {
                self.remove_with_pair(*object_id, key, *floor).map(|()| None)
            }
            Effect::SessionBegin { session, owner, client } => {
                self.floor = self.floor.max(*session);
                self.sessions.begin(*session, *owner, *client);
                Ok(None)
            }
            Effect::SessionEnd { session } => {
                self.sessions.end(*session);
                Ok(None)
            }
            Effect::Snapshot(part) => self.snapshot_part(part).map(Some),
            Effect::Batch(batch) => self.write_batch(batch).map(|()| None),
            Effect::Floor { floor } => {
                self.floor = self.floor.max(*floor);
                Ok(None)
            }
        }
    }

    fn slots(&self) -> u32 {
        self.slots()
    }

    fn slot_effects(&self, slot: u32) -> impl Iterator<Item = Effect<'_>> {
        self.record_effect(slot).into_iter().chain(self.snapshot_effects(slot))
    }

    fn note_touched(&self, effect: &Effect<'_>, touched: &mut Touched<Piece>) {
        match effect {
            Effect::Write(write) => self.note_key(write.object_id, write.key, touched),
            Effect::Pair { first, second } => {
                self.note_key(second.object_id, second.key, touched);
                self.note_key(first.object_id, first.key, touched);
            }
            Effect::Free { object_id, key, .. } => self.note_key(*object_id, key, touched),
            Effect::Snapshot(part) => self.note_part(part, touched),
            Effect::Batch(batch) => {
                for (slot, _, update) in self.places(batch).flatten() {
                    self.note_key(update.object_id, self.get(slot).key.as_slice(), touched);
                }
            }
            // Sessions and floors are in the rest.
            Effect::None
            | Effect::SessionBegin { .. }
            | Effect::SessionEnd { .. }
            | Effect::Floor { .. } => {}
        }
    }

    fn piece_effects<'a>(&'a self, piece: &'a Piece) -> impl Iterator<Item = Effect<'a>> {
        let slot = self.find(piece.object, piece.key.as_slice());
        let whole = piece.part.is_none().then(|| self.key_effects(piece, slot));
        let part = piece.part.and_then(|part| Some(self.part_effects(slot?, part)));
        whole.into_iter().flatten().chain(part.into_iter().flatten())
    }

    /// The floor, and the sessions.
    fn rest_effects(&self) -> impl Iterator<Item = Effect<'_>> {
        let sessions =
            self.session_effects().filter(|_| !mutation::planted(Mutation::CopyWithoutSessions));
        std::iter::once(Effect::Floor { floor: self.floor }).chain(sessions)
    }

    fn records(&self) -> u64 {
        self.len() as u64
    }

    fn digest(&self) -> u64 {
        self.shared_digest()
    }
}

impl Records {
    fn note_key(&self, object_id: u16, key: &[u8], touched: &mut Touched<Piece>) {
        let Some(object) = self.object(object_id) else { return };
        // A pair that is removed leaves two keys without a record.
        let slot = self.find(object, key);
        if let Some(pair) = slot.and_then(|slot| self.get(slot).pair) {
            touched.insert(Piece { object, key: self.get(pair).key.clone(), part: None });
        }
        touched.insert(Piece { object, key: Blob::new(key), part: None });
    }

    /// A part of a snapshot is about to come. The sweep brings it, if it is not there yet; and so
    /// does the record, if it is to be copied again.
    fn note_part(&self, part: &SnapshotPart<'_>, touched: &mut Touched<Piece>) {
        let Some(object) = self.object(part.object_id) else { return };
        let swept = self.find(object, part.key).is_some_and(|slot| touched.is_swept(slot));
        let whole = Piece { object, key: Blob::new(part.key), part: None };
        if swept && !touched.contains(&whole) {
            touched.insert(Piece { part: Some((part.epoch, part.seq, part.part)), ..whole });
        }
    }

    /// Whatever the copy has of a key, or of what it was linked with, goes first.
    fn key_effects<'a>(
        &'a self,
        piece: &'a Piece,
        slot: Option<u32>,
    ) -> impl Iterator<Item = Effect<'a>> {
        let object_id = self.settings(piece.object).id;
        let free = move |key| Effect::Free { object_id, key, floor: 0 };
        let pair = slot.and_then(|slot| self.get(slot).pair);
        let pairs_key = pair.map(|pair| self.get(pair).key.as_slice());
        // One of a pair describes both.
        let slots = [slot, pair].into_iter().flatten();
        let freed = [Some(piece.key.as_slice()), pairs_key].into_iter().flatten().map(free);
        freed.chain(slots.flat_map(|slot| self.slot_effects(slot)))
    }

    /// The part itself, if it is still there. If not, all parts of a newer snapshot follow, or the
    /// record is gone.
    fn part_effects(
        &self,
        slot: u32,
        (epoch, seq, number): (u32, u64, u16),
    ) -> impl Iterator<Item = Effect<'_>> {
        let same = move |effect: &Effect<'_>| match effect {
            Effect::Snapshot(part) => (part.epoch, part.seq, part.part) == (epoch, seq, number),
            _ => false,
        };
        self.record_effect(slot).into_iter().chain(self.snapshot_effects(slot).find(same))
    }
}

#[cfg(test)]
mod tests {
    use super::super::nat::NatKey;
    use super::super::settings::ObjectSettings;
    use super::*;
    use crate::core::settings::{AllocatorSettings, IdleNs, NatSettings};
    use state_protocol::{Flags, Owner, RecordWrite};
    use std::net::Ipv4Addr;

    fn object(
        id: u16,
        key_bytes: usize,
        value_bytes: usize,
        allocator: AllocatorSettings,
    ) -> ObjectSettings {
        let name = "o".to_owned();
        ObjectSettings {
            name,
            id,
            key_bytes,
            value_bytes,
            allocator,
            closed_ns: 1,
            half_open_ns: 1,
            shard_bytes: None,
        }
    }

    fn records() -> Records {
        let idle_ns = IdleNs { tcp: 1, udp: 1, icmp: 1, other: 1 };
        let nat = NatSettings {
            external: vec![Ipv4Addr::new(203, 0, 113, 1)],
            ports: 1024..=65535,
            idle_ns,
        };
        let zero = AllocatorSettings::Zero { idle_ns: None };
        Records::new(
            vec![object(1, 2, 4, zero), object(2, 13, 6, AllocatorSettings::NatPorts(nat))],
            100,
        )
    }

    fn write<'a>(object_id: u16, key: &'a [u8], value: &'a [u8], epoch: u32) -> RecordWrite<'a> {
        RecordWrite {
            object_id,
            epoch,
            seq: 0,
            owner: None,
            session: 0,
            phase: Flags::NONE,
            key,
            value,
        }
    }

    #[test]
    fn writes_create_and_replace() {
        let mut records = records();
        let slot = records.apply(&Effect::Write(write(1, b"ab", b"1234", 101))).unwrap().unwrap();
        assert_eq!(records.apply(&Effect::Write(write(1, b"ab", b"5678", 102))), Ok(Some(slot)));
        assert_eq!(
            (records.get(slot).value.as_slice(), records.get(slot).epoch),
            (&b"5678"[..], 102)
        );
        assert_eq!(records.len(), 1);
    }

    #[test]
    fn what_does_not_fit_changes_nothing() {
        let mut records = records();
        records.apply(&Effect::Write(write(1, b"ab", b"1234", 101))).unwrap();
        let before = records.full_digest();
        for bad in [
            Effect::Write(write(9, b"ab", b"1234", 1)),
            Effect::Write(write(1, b"abc", b"1234", 1)),
            Effect::Write(write(1, b"ab", b"123", 1)),
            Effect::Free { object_id: 1, key: b"xxx", floor: 900 },
            Effect::Pair {
                first: write(1, b"cd", b"1234", 1),
                second: write(1, b"ef", b"1234", 1),
            },
        ] {
            assert_eq!(records.apply(&bad), Err(DoesNotApply));
            assert_eq!(records.full_digest(), before);
        }
    }

    #[test]
    fn a_pair_is_made_and_freed_together_and_epochs_never_repeat() {
        let mut records = records();
        let forward =
            NatKey { source: 1, destination: 2, source_port: 3, destination_port: 4, protocol: 6 };
        let reverse = forward.reverse(0xcb007101, 5000);
        let (forward, reverse) = (forward.to_bytes(), reverse.to_bytes());
        let (first, second) =
            (write(2, &forward, b"aaaabb", 101), write(2, &reverse, b"ccccdd", 100));
        let effect = Effect::Pair { first, second };
        let slot = records.apply(&effect).unwrap().unwrap();
        let other = records.get(slot).pair.unwrap();
        assert_eq!((records.get(slot).epoch, records.get(other).epoch), (101, 100));
        let once = records.shared_digest();
        assert_eq!(records.apply(&effect), Ok(Some(slot)), "once more is the same");
        assert_eq!(
            (records.shared_digest(), records.pool(1).unwrap().in_use(), records.len()),
            (once, 1, 2)
        );
        let third = write(2, &[7; 13], b"ccccdd", 1);
        assert_eq!(
            records.apply(&Effect::Pair { first, second: third }),
            Err(DoesNotApply),
            "linked with another"
        );
        records.apply(&Effect::Write(RecordWrite { epoch: 107, ..second })).unwrap();
        assert_eq!(records.get(slot).pair, Some(other), "a write keeps the link");
        for _ in 0..2 {
            records.apply(&Effect::Free { object_id: 2, key: &reverse, floor: 107 }).unwrap();
            assert_eq!(
                (records.len(), records.pool(1).unwrap().in_use(), records.floor()),
                (0, 0, 107)
            );
        }
        assert!(records.current(slot, 0).is_none());
    }

    #[test]
    fn a_record_that_a_copy_gives_again_leaves_the_floor() {
        let mut records = records();
        records.apply(&Effect::Write(write(1, b"ab", b"1234", 107))).unwrap();
        let before = records.shared_digest();
        records.apply(&Effect::Free { object_id: 1, key: b"ab", floor: 0 }).unwrap();
        records.apply(&Effect::Write(write(1, b"ab", b"1234", 107))).unwrap();
        assert_eq!((records.floor(), records.shared_digest()), (100, before));
    }

    #[test]
    fn a_records_description_makes_the_same_records() {
        let mut original = records();
        let owner = |incarnation| Owner { switch_id: 1, incarnation };
        let client = std::net::SocketAddrV4::new(Ipv4Addr::LOCALHOST, 5407);
        let forward =
            NatKey { source: 1, destination: 2, source_port: 3, destination_port: 4, protocol: 6 };
        let reverse = forward.reverse(0xcb007101, 5000);
        let (forward, reverse) = (forward.to_bytes(), reverse.to_bytes());
        for effect in [
            Effect::SessionBegin { session: 103, owner: owner(4), client },
            Effect::SessionBegin { session: 105, owner: owner(5), client },
            Effect::SessionEnd { session: 103 },
            Effect::SessionBegin {
                session: 106,
                owner: Owner { switch_id: 2, incarnation: 9 },
                client,
            },
            Effect::SessionEnd { session: 106 },
            Effect::Write(RecordWrite {
                owner: Some(owner(5)),
                session: 105,
                ..write(1, b"ab", b"1234", 101)
            }),
            Effect::Write(RecordWrite {
                phase: Flags::CLOSED,
                seq: 9,
                ..write(1, b"ef", b"5678", 101)
            }),
            Effect::Write(write(1, b"cd", b"1234", 101)),
            Effect::Free { object_id: 1, key: b"cd", floor: 101 },
            Effect::Pair {
                first: write(2, &forward, b"aaaabb", 107),
                second: write(2, &reverse, b"ccccdd", 107),
            },
        ] {
            original.apply(&effect).unwrap();
        }
        let mut copy = records();
        // Half of it early: what is copied twice, or changes between, does no harm.
        for effect in original.effects().take(4).chain(original.effects()) {
            copy.apply(&effect).unwrap();
        }
        assert_eq!(copy.shared_digest(), original.shared_digest());
        assert_eq!((copy.floor(), copy.len(), copy.pool(1).unwrap().in_use()), (106, 4, 1));
        assert!(copy.sessions.may_begin(&owner(4), 1).is_err());
    }

    #[test]
    fn backends_conversations_are_counted_from_the_records() {
        use crate::core::backends::{Backend, Backends};
        use crate::core::pool::Pool;
        use crate::core::{BackendPolicy, BackendSettings};
        let idle_ns = IdleNs { tcp: 1, udp: 1, icmp: 1, other: 1 };
        let allocator = AllocatorSettings::Backends(BackendSettings {
            policy: BackendPolicy::LeastConnections,
            idle_ns,
        });
        let object = object(1, 13, 6, allocator);
        let fresh = || {
            let mut records = Records::new(vec![object.clone()], 100);
            let Some(Pool::Backends(pool)) = records.pool_mut(0) else { panic!("no backends") };
            let backend = |last: u8| Backend {
                address: std::net::SocketAddrV4::new(Ipv4Addr::new(10, 0, 0, last), 80),
                weight: 1,
                drained: false,
                health: crate::core::backends::Health::Up,
            };
            let list = Backends::new(BackendPolicy::LeastConnections, vec![backend(1), backend(2)]);
            pool.set_backends(list.into());
            records
        };
        let counts = |records: &Records| -> Vec<usize> {
            let Some(Pool::Backends(pool)) = records.pool(0) else { panic!("no backends") };
            pool.status().iter().map(|backend| backend.conversations).collect()
        };
        let mut records = fresh();
        let mut rng = crate::core::SplitMix64::new(1);
        let mut keys = Vec::new();
        for source_port in 0..10 {
            let key = NatKey {
                source: 1,
                destination: 2,
                source_port,
                destination_port: 80,
                protocol: 6,
            };
            let binding = records.pool(0).unwrap().choose(&key, &mut rng, |_| false).unwrap();
            let key = key.to_bytes();
            let first = write(1, &key, &binding.value, 101);
            let second = write(1, &binding.reverse_key, &binding.reverse_value, 100);
            assert_eq!(binding.reverse_value, [0, 0, 0, 2, 0, 80], "what the client asked");
            // Twice: an effect that comes again counts once.
            for _ in 0..2 {
                records.apply(&Effect::Pair { first, second }).unwrap();
            }
            keys.push((key, binding.reverse_key));
        }
        assert_eq!(counts(&records), [5, 5]);
        // By either of its keys.
        for (at, (key, reverse)) in keys.iter().take(4).enumerate() {
            let key = if at % 2 == 0 { key } else { reverse };
            records.apply(&Effect::Free { object_id: 1, key, floor: 0 }).unwrap();
        }
        assert_eq!(counts(&records).iter().sum::<usize>(), 6);
        // A server that takes over from a copy counts the same.
        let mut copy = fresh();
        for effect in records.effects() {
            copy.apply(&effect).unwrap();
        }
        assert_eq!(counts(&copy), counts(&records));
        assert_eq!(copy.shared_digest(), records.shared_digest());
    }
}
