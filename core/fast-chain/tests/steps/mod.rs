//! Random steps of user space, and random frames.

use crate::fixture::{self, MEMBER, NOWHERE, OTHERS, SWITCHES};
use fast_chain::{Entry, Memory, ObjectShape, Shape, ShardMirror, Standing};
use rand::rngs::StdRng;
use rand::seq::IndexedRandom;
use rand::{Rng, SeedableRng};
use std::collections::BTreeMap;
use std::net::SocketAddrV4;
use std::sync::Arc;
use wire::{Batch, BatchHead, BatchRecord, KeyRing, RecordFlags, Secret};

const SHARDS: u16 = 3;
/// Keys of an object in a shard that there may be: more than there are places for.
const KEYS: u8 = 12;
const OBJECTS: [ObjectShape; 4] = [
    ObjectShape { id: 1, key_bytes: 5, value_bytes: 9 },
    ObjectShape { id: 2, key_bytes: 16, value_bytes: 8 },
    ObjectShape { id: 9, key_bytes: 13, value_bytes: 100 },
    ObjectShape { id: 63, key_bytes: 8, value_bytes: 144 },
];
const FRONT: usize = 72;
const TAG_AT: usize = 56;

/// Few records and lines, so that both run out.
pub fn shape(seed: u64) -> Shape {
    Shape {
        shards: SHARDS,
        records: 40 * u32::from(SHARDS),
        address: MEMBER,
        // The last one does not fit, and is not here.
        objects: [&OBJECTS[..], &[ObjectShape { id: 64, key_bytes: 8, value_bytes: 8 }]].concat(),
        seed,
    }
}

/// What user space last wrote of a record.
#[derive(Clone, Copy)]
struct Known {
    place: u32,
    epoch: u32,
    owner: (u32, u32),
    session: u32,
}

type Name = (u16, usize, u8);

/// The state of the steps.
pub struct World {
    rng: StdRng,
    memories: [Arc<Memory>; 2],
    mirrors: Vec<[ShardMirror; 2]>,
    standings: Vec<Option<Standing>>,
    known: BTreeMap<Name, Known>,
}

fn ring(send: u8, ids: &[u8]) -> KeyRing {
    let secret = |id: u8| Secret([id + 1; 16]);
    let mut ring = KeyRing::new(send, secret(send)).unwrap();
    for id in ids {
        assert!(ring.accept(*id, secret(*id)));
    }
    ring
}

fn key(object: &ObjectShape, number: u8) -> Vec<u8> {
    (0..object.key_bytes).map(|at| number.wrapping_mul(7).wrapping_add(at as u8)).collect()
}

impl World {
    pub fn new(seed: u64, memories: [Arc<Memory>; 2]) -> World {
        let mirrors = (0..SHARDS)
            .map(|shard| memories.clone().map(|memory| ShardMirror::new(memory, shard)))
            .collect();
        let rng = StdRng::seed_from_u64(seed);
        let standings = vec![None; SHARDS.into()];
        let mut world = World { rng, memories, mirrors, standings, known: BTreeMap::new() };
        world.set_keys();
        for shard in 0..SHARDS {
            for _ in 0..30 {
                world.write(shard);
            }
        }
        world
    }

    fn one_in(&mut self, number: u32) -> bool {
        self.rng.random_ratio(1, number)
    }

    fn set_keys(&mut self) {
        let some = [&[0, 1][..], &[2], &[], &[0, 1, 2]];
        let ids = some[self.rng.random_range(0..12).min(3)];
        let send = self.rng.random_range(0..3);
        for memory in &self.memories {
            memory.set_keys(&ring(send, ids));
        }
    }

    /// What user space does between two frames: often nothing.
    pub fn user_space(&mut self) {
        if self.one_in(50) {
            self.set_keys();
        }
        if !self.one_in(4) {
            return;
        }
        let shard = self.rng.random_range(0..SHARDS);
        self.enter(shard);
        for _ in 0..self.rng.random_range(0..4) {
            if self.one_in(4) { self.remove(shard) } else { self.write(shard) }
        }
        if self.one_in(200) {
            self.both(shard, ShardMirror::clear);
            self.known.retain(|name, _| name.0 != shard);
        }
        if self.one_in(10) {
            return; // and keeps the lock until the next time
        }
        let standing = (!self.one_in(12)).then(|| self.standing());
        self.both(shard, |mirror| mirror.leave(standing.as_ref()));
        self.standings[usize::from(shard)] = standing;
    }

    fn both(&mut self, shard: u16, step: impl Fn(&mut ShardMirror)) {
        self.mirrors[usize::from(shard)].iter_mut().for_each(step);
    }

    /// Both mirrors must tell the same changes.
    fn enter(&mut self, shard: u16) {
        let [own, kernel] = self.mirrors[usize::from(shard)].each_mut().map(|mirror| {
            let mut changes = Vec::new();
            mirror.enter(|it| changes.push((it.slot, it.seq, it.flags, it.value.to_vec())));
            changes
        });
        assert_eq!(own, kernel, "what changed");
    }

    fn standing(&mut self) -> Standing {
        let mut nexts = OTHERS.to_vec();
        if self.one_in(8) {
            nexts = vec![NOWHERE];
        }
        let view = self.rng.random_range(1..4);
        let previous = self.rng.random_bool(0.5).then(|| *OTHERS.choose(&mut self.rng).unwrap());
        let next = self.rng.random_bool(0.5).then(|| *nexts.choose(&mut self.rng).unwrap());
        Standing { view, previous, next }
    }

    fn name(&mut self, shard: u16) -> Name {
        (shard, self.rng.random_range(0..OBJECTS.len()), self.rng.random_range(0..KEYS))
    }

    fn owner(&mut self) -> (u32, u32, u32) {
        [(1, 1, 5), (1, 1, 5), (1, 1, 6), (1, 2, 5), (2, 1, 5), (0, 0, 0), (1, 1, 0)]
            .choose(&mut self.rng)
            .copied()
            .unwrap()
    }

    fn write(&mut self, shard: u16) {
        self.enter(shard);
        let name = self.name(shard);
        let object = &OBJECTS[name.1];
        let (key, mut value) = (key(object, name.2), vec![0; object.value_bytes]);
        self.rng.fill(&mut value[..]);
        let (switch, life, session) = self.owner();
        let entry = Entry {
            slot: self.rng.random_range(0..1_000),
            object_id: object.id,
            epoch: self.rng.random_range(1..4),
            seq: self.rng.random_range(0..20),
            owner: (switch, life),
            session,
            flags: self.rng.random_range(0..8) << 2,
            key: &key,
            value: &value,
        };
        let place = self.known.get(&name).map(|known| known.place);
        let mirrors = self.mirrors[usize::from(shard)].each_mut();
        let [own, kernel] = mirrors.map(|mirror| mirror.put(place, &entry));
        assert_eq!(own, kernel, "where a record is");
        let Some(place) = own else { return };
        let (epoch, owner) = (entry.epoch, entry.owner);
        self.known.insert(name, Known { place, epoch, owner, session });
    }

    fn remove(&mut self, shard: u16) {
        let names: Vec<Name> = self.known.keys().filter(|it| it.0 == shard).copied().collect();
        let Some(name) = names.choose(&mut self.rng) else { return };
        let known = self.known.remove(name).unwrap();
        self.both(shard, |mirror| mirror.remove(known.place));
    }

    /// A frame: a good batch, or with something wrong.
    pub fn frame(&mut self) -> Vec<u8> {
        let shard = self.rng.random_range(0..SHARDS);
        let mut head = self.head(shard);
        let from = self.origin(shard, &mut head);
        let mut datagram = Vec::new();
        let records = self.records(&head);
        Batch::new(head, &records).unwrap().append_to(&mut datagram);
        if self.one_in(6) {
            self.harm_message(&mut datagram);
        }
        self.sign(&mut datagram, from);
        if self.one_in(12) && !datagram.is_empty() {
            let at = self.rng.random_range(0..datagram.len());
            datagram[at] ^= 1 << self.rng.random_range(0..8);
        }
        let tos = self.rng.random();
        let mut frame = fixture::frame(from, MEMBER, tos, &datagram);
        if self.one_in(10) {
            self.harm_frame(&mut frame);
        }
        frame
    }

    fn head(&mut self, shard: u16) -> BatchHead {
        let (switch_id, incarnation, session) = self.owner();
        BatchHead {
            flags: self.rng.random(),
            switch_id,
            incarnation,
            request_ns: self.rng.random(),
            number: self.rng.random(),
            view: 0,
            session,
            stream: self.rng.random(),
            client: *SWITCHES.choose(&mut self.rng).unwrap().ip(),
            shard: if self.one_in(60) { self.rng.random() } else { shard },
        }
    }

    /// Where the batch comes from, mostly as the member's standing has it.
    fn origin(&mut self, shard: u16, head: &mut BatchHead) -> SocketAddrV4 {
        let standing = self.standings[usize::from(shard)].filter(|_| !self.one_in(20));
        if self.one_in(15) {
            head.client = *NOWHERE.ip();
        }
        let mut from = SocketAddrV4::new(head.client, wire::PORT);
        if let Some(Standing { view, previous: Some(previous), .. }) = standing {
            (head.view, from) = (view, previous);
        }
        match self.rng.random_range(0..60) {
            0 => head.view = self.rng.random_range(0..4),
            1 => from.set_ip(*OTHERS.choose(&mut self.rng).unwrap().ip()),
            2 => from.set_port(self.rng.random()),
            _ => {}
        }
        from
    }

    /// Records as long as there is room, mostly such as the member takes.
    fn records(&mut self, head: &BatchHead) -> Vec<u8> {
        let most = *[1, 2, 5, 64].choose(&mut self.rng).unwrap();
        let careful = !self.one_in(4);
        let fits = |name: &Name, known: &Known| {
            let owner = (head.switch_id, head.incarnation, head.session);
            name.0 == head.shard && (known.owner.0, known.owner.1, known.session) == owner
        };
        let good: Vec<Name> =
            self.known.iter().filter(|(name, it)| fits(name, it)).map(|(name, _)| *name).collect();
        let mut bytes = Vec::new();
        for _ in 0..most {
            let name = match good.choose(&mut self.rng) {
                Some(name) if careful || !self.one_in(10) => *name,
                _ => self.name(head.shard),
            };
            let mut longer = bytes.clone();
            self.record(name, careful, &mut longer);
            if longer.len() > wire::MOST_RECORDS_BYTES {
                break;
            }
            bytes = longer;
        }
        self.end_group(&mut bytes);
        bytes
    }

    fn record(&mut self, name: Name, careful: bool, bytes: &mut Vec<u8>) {
        let object = &OBJECTS[name.1];
        let mut value = vec![0; object.value_bytes];
        self.rng.fill(&mut value[..]);
        let epoch = self.known.get(&name).map_or(1, |known| known.epoch);
        let record = BatchRecord {
            object_id: object.id,
            flags: self.flags(),
            epoch: if careful || !self.one_in(8) { epoch } else { self.rng.random_range(0..5) },
            place: self.rng.random(),
            seq: if self.one_in(20) { self.rng.random() } else { self.rng.random_range(0..40) },
            content: &[],
        };
        record.append_to(&key(object, name.2), &value, bytes).unwrap();
    }

    /// Few are of a group: such a batch is user space's.
    fn flags(&mut self) -> RecordFlags {
        let group = u8::from(self.one_in(60));
        RecordFlags(if self.one_in(4) { self.rng.random::<u8>() & !1 | group } else { 4 | group })
    }

    /// The last record's group ends.
    fn end_group(&mut self, bytes: &mut [u8]) {
        let mut at = 0;
        while at < bytes.len() {
            let next = at + 24 + usize::from(bytes[at + 3]) * 8;
            if next >= bytes.len() {
                bytes[at + 2] &= !1;
            }
            at = next;
        }
    }

    /// Something is wrong that the sender signs.
    fn harm_message(&mut self, datagram: &mut Vec<u8>) {
        let length = datagram.len();
        match self.rng.random_range(0..9) {
            0 => datagram[7] = self.rng.random_range(0..66),
            1 => datagram[45] = datagram[45].wrapping_add(8),
            2 => datagram[FRONT + 3] = self.rng.random_range(0..66),
            3 => datagram[FRONT + 1] = self.rng.random(), // the object
            4 => datagram[FRONT] = 1,
            5 => datagram[length - 1] = 1, // behind the value, perhaps
            6 => datagram.truncate(self.rng.random_range(0..length)),
            7 => {
                datagram.truncate(FRONT + self.rng.random_range(0..=(length - FRONT) / 8) * 8);
                self.set_body_bytes(datagram);
            }
            _ => {
                datagram.resize(length + 8 * self.rng.random_range(1..20), 0);
                self.set_body_bytes(datagram);
            }
        }
        // The last record's group goes on.
        if self.one_in(9) && datagram.len() > FRONT + 2 {
            datagram[FRONT + 2] |= 1;
        }
    }

    fn set_body_bytes(&self, datagram: &mut [u8]) {
        let body = (datagram.len() - FRONT) as u16;
        datagram[44..46].copy_from_slice(&body.to_be_bytes());
    }

    /// Tag and digest, each under one of the secrets.
    fn sign(&mut self, datagram: &mut [u8], from: SocketAddrV4) {
        let id =
            |rng: &mut StdRng| if rng.random_ratio(1, 40) { 3 } else { rng.random_range(0..3) };
        let (of_tag, of_digest) = (id(&mut self.rng), id(&mut self.rng));
        if !ring(of_digest, &[]).sign(datagram, *from.ip(), *MEMBER.ip()) || datagram.len() < FRONT
        {
            return;
        }
        datagram[54] = of_tag;
        let secret = *ring(of_tag, &[]).secret(of_tag).unwrap();
        let addresses = [from.ip().octets(), MEMBER.ip().octets()].concat();
        let addresses = u64::from_le_bytes(addresses.try_into().unwrap());
        let tag = wire::tag_of_words(&secret, Some(addresses), &datagram[..FRONT], TAG_AT);
        datagram[TAG_AT..TAG_AT + 8].copy_from_slice(&tag.to_be_bytes());
        if self.one_in(40) {
            datagram[55] = self.rng.random(); // a number that is none
        }
    }

    /// Something is wrong with the frame, or it is not for the program.
    fn harm_frame(&mut self, frame: &mut Vec<u8>) {
        match self.rng.random_range(0..9) {
            0 => frame[20] |= 0x20, // more fragments
            1 => frame[21] = 1,     // not the first one
            2 => {
                // IP options.
                frame.splice(34..34, [1; 4]);
                frame[14] = 0x46;
                let bytes = (frame.len() - 14) as u16;
                frame[16..18].copy_from_slice(&bytes.to_be_bytes());
            }
            3 => frame[37] ^= 1, // another port
            4 => frame[33] ^= 1, // another address
            5 => frame.extend([0; 3]),
            6 => frame[39] ^= 8, // length in UDP's header
            7 => frame.truncate(self.rng.random_range(14..frame.len())),
            _ => {
                let at = self.rng.random_range(0..fixture::HEADERS + 4);
                if let Some(byte) = frame.get_mut(at) {
                    *byte ^= 1 << self.rng.random_range(0..8);
                }
            }
        }
    }
}
