//! The memory that user space and the program share: a shard's records, an index of their keys, a
//! lock.

use crate::layouts::{
    FastConfig, FastRecord, FastShard, LINE_ENTRIES, LOCK_FREE, LOCK_STORE, MOST_OBJECTS,
};
use crate::map::Mapping;
use c_layout::{Be16, Member};
use std::net::SocketAddrV4;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering, fence};
use wire::{KeyRing, MOST_SECRETS, Secret};

const WORD_BYTES: usize = size_of::<u64>();
const LOCK_WORD: usize = 0;
/// Then others get the CPU.
const TRIES_IN_A_ROW: u32 = 1_000;

/// An object whose records may be here.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ObjectShape {
    /// The object's number in the manifest.
    pub id: u16,
    /// Bytes of its keys.
    pub key_bytes: usize,
    /// Bytes of its values.
    pub value_bytes: usize,
}

impl ObjectShape {
    fn words(&self) -> (usize, usize) {
        (self.key_bytes.div_ceil(WORD_BYTES), self.value_bytes.div_ceil(WORD_BYTES))
    }

    /// Whether its records may be here: neither the number nor a record is too large.
    pub fn fits(&self) -> bool {
        let (key, value) = self.words();
        usize::from(self.id) < MOST_OBJECTS
            && key > 0
            && value > 0
            && key + value <= crate::layouts::MOST_CONTENT_WORDS
    }
}

/// What the memory is made for.
#[derive(Debug, Clone)]
pub struct Shape {
    /// Number of shards.
    pub shards: u16,
    /// Records of all shards together. Each shard has an equal part.
    pub records: u32,
    /// Where this member receives.
    pub address: SocketAddrV4,
    /// Those that do not fit stay with user space.
    pub objects: Vec<ObjectShape>,
    /// Of the hash of keys: a random number.
    pub seed: u64,
}

impl Shape {
    /// Records of one shard, at least one.
    pub fn records_of_shard(&self) -> u32 {
        (self.records / u32::from(self.shards.max(1))).max(1)
    }

    /// Index lines of one shard: on the average a quarter of a line is used, so that few lines
    /// overflow.
    pub fn lines_of_shard(&self) -> u32 {
        self.records_of_shard().div_ceil(LINE_ENTRIES as u32 / 4).next_power_of_two()
    }

    fn config(&self) -> FastConfig {
        let mut config = FastConfig::read(&[]);
        config.seed = self.seed;
        config.port = Be16(self.address.port());
        config.address = *self.address.ip();
        config.shards = self.shards.into();
        config.records = self.records_of_shard();
        config.line_mask = self.lines_of_shard() - 1;
        for object in self.objects.iter().filter(|object| object.fits()) {
            let (key, value) = object.words();
            let place = &mut config.objects[usize::from(object.id)];
            // Both are at most `MOST_CONTENT_WORDS`.
            (place.key_words, place.value_words) = (key as u8, value as u8);
            place.value_rest_bits = ((value * WORD_BYTES - object.value_bytes) * 8) as u8;
        }
        config
    }
}

/// Words that are the process's own, or a map's.
pub(crate) enum Area {
    Own(Box<[AtomicU64]>),
    Mapped(Mapping),
}

impl Area {
    fn own(words: usize) -> Area {
        Area::Own((0..words).map(|_| AtomicU64::new(0)).collect())
    }

    pub(crate) fn words(&self) -> &[AtomicU64] {
        match self {
            Area::Own(words) => words,
            Area::Mapped(mapping) => mapping.words(),
        }
    }

    /// Reads element `at`. Whoever reads holds the lock of its shard.
    fn read<T: Member>(&self, at: usize) -> T {
        let words = T::BYTES / WORD_BYTES;
        let mut bytes = [0; FastConfig::BYTES];
        let from = &self.words()[at * words..(at + 1) * words];
        for (word, place) in from.iter().zip(bytes.chunks_exact_mut(WORD_BYTES)) {
            place.copy_from_slice(&word.load(Ordering::Relaxed).to_ne_bytes());
        }
        T::read(&bytes[..T::BYTES])
    }

    /// Writes element `at`, but for its first `skip` words.
    fn write<T: Member>(&self, at: usize, value: &T, skip: usize) {
        let words = T::BYTES / WORD_BYTES;
        let mut bytes = [0; FastConfig::BYTES];
        value.write(&mut bytes[..T::BYTES]);
        let to = &self.words()[at * words..(at + 1) * words];
        for (word, part) in to.iter().zip(bytes.as_chunks::<WORD_BYTES>().0).skip(skip) {
            word.store(u64::from_ne_bytes(*part), Ordering::Relaxed);
        }
    }
}

/// The memory. What is a shard's belongs to the holder of that shard's lock.
pub struct Memory {
    shape: Shape,
    pub(crate) config: Area,
    pub(crate) shards: Area,
    pub(crate) records: Area,
    pub(crate) lines: Area,
}

/// How many words each area has, in the order of `Memory`'s fields.
pub(crate) fn words_of(shape: &Shape) -> [usize; 4] {
    let (shards, records) = (usize::from(shape.shards), shape.records_of_shard() as usize);
    let lines = shape.lines_of_shard() as usize * LINE_ENTRIES;
    [
        FastConfig::BYTES / WORD_BYTES,
        shards * FastShard::BYTES / WORD_BYTES,
        shards * records * FastRecord::BYTES / WORD_BYTES,
        shards * lines,
    ]
}

impl Memory {
    /// Memory of this process alone, for the reference of the program.
    pub fn own(shape: Shape) -> Arc<Memory> {
        Memory::of(words_of(&shape).map(Area::own), shape)
    }

    pub(crate) fn of([config, shards, records, lines]: [Area; 4], shape: Shape) -> Arc<Memory> {
        let memory = Memory { shape, config, shards, records, lines };
        memory.config.write(0, &memory.shape.config(), 0);
        Arc::new(memory)
    }

    /// What it was made for.
    pub fn shape(&self) -> &Shape {
        &self.shape
    }

    /// Other secrets from now on. (A run of the program in this instant may find a message forged,
    /// and leave it to user space.)
    pub fn set_keys(&self, keys: &KeyRing) {
        let mut config = self.config();
        let of = |id: u8| keys.secret(id).map(Secret::words);
        let mut known = 0;
        for id in 0..MOST_SECRETS as u8 {
            // One that is unknown now keeps its words: a run that read the bit before this finds
            // the secret as it was, not one of zeros.
            if let Some(words) = of(id) {
                known |= 1 << id;
                config.secrets[usize::from(id)] = words;
            }
        }
        config.send = keys.sending();
        // First no secret is known, then they change, then they are known.
        config.known_secrets = 0;
        self.config.write(0, &FastConfig { secrets: self.config().secrets, ..config }, 0);
        fence(Ordering::SeqCst);
        self.config.write(0, &config, 0);
        fence(Ordering::SeqCst);
        config.known_secrets = known;
        self.config.write(0, &config, 0);
    }

    /// All words of all areas, for comparisons in tests.
    pub fn words(&self) -> [Vec<u64>; 4] {
        [&self.config, &self.shards, &self.records, &self.lines]
            .map(|area| area.words().iter().map(|word| word.load(Ordering::Relaxed)).collect())
    }

    pub(crate) fn config(&self) -> FastConfig {
        self.config.read(0)
    }

    fn lock_word(&self, shard: u16) -> &AtomicU64 {
        &self.shards.words()[usize::from(shard) * FastShard::BYTES / WORD_BYTES + LOCK_WORD]
    }

    pub(crate) fn try_lock(&self, shard: u16, holder: u64) -> bool {
        let (success, failure) = (Ordering::Acquire, Ordering::Relaxed);
        self.lock_word(shard).compare_exchange(LOCK_FREE, holder, success, failure).is_ok()
    }

    /// Waits until a run of the program has let it go, which takes some microseconds: a run never
    /// waits. (Under a real-time kernel other threads may interrupt it.)
    pub(crate) fn lock(&self, shard: u16) {
        loop {
            for _ in 0..TRIES_IN_A_ROW {
                if self.try_lock(shard, LOCK_STORE) {
                    return;
                }
                std::hint::spin_loop();
            }
            std::thread::yield_now();
        }
    }

    pub(crate) fn unlock(&self, shard: u16) {
        self.lock_word(shard).store(LOCK_FREE, Ordering::Release);
    }

    pub(crate) fn shard(&self, shard: u16) -> FastShard {
        self.shards.read(shard.into())
    }

    /// All but the lock.
    pub(crate) fn set_shard(&self, shard: u16, value: &FastShard) {
        self.shards.write(shard.into(), value, LOCK_WORD + 1);
    }

    fn at(&self, shard: u16, place: u32) -> usize {
        debug_assert!(place < self.shape.records_of_shard());
        usize::from(shard) * self.shape.records_of_shard() as usize + place as usize
    }

    pub(crate) fn record(&self, shard: u16, place: u32) -> FastRecord {
        self.records.read(self.at(shard, place))
    }

    pub(crate) fn set_record(&self, shard: u16, place: u32, value: &FastRecord) {
        self.records.write(self.at(shard, place), value, 0);
    }

    /// The index line of a key, and the key's fingerprint in it.
    pub(crate) fn line(&self, shard: u16, object_id: u16, key: &[u64]) -> (&[AtomicU64], u32) {
        let hash = hash(self.shape.seed, object_id, key);
        let lines = self.shape.lines_of_shard();
        let line = hash as u32 & (lines - 1); // the lower half
        let from = (usize::from(shard) * lines as usize + line as usize) * LINE_ENTRIES;
        (&self.lines.words()[from..from + LINE_ENTRIES], (hash >> 32) as u32)
    }

    pub(crate) fn clear_lines(&self, shard: u16) {
        let words = self.shape.lines_of_shard() as usize * LINE_ENTRIES;
        let from = usize::from(shard) * words;
        for word in &self.lines.words()[from..from + words] {
            word.store(0, Ordering::Relaxed);
        }
    }

    /// The place of a key's record. Of two keys of one line with the same fingerprint only the
    /// first is found: the other one stays with user space.
    pub(crate) fn find(&self, shard: u16, object_id: u16, key: &[u64]) -> Option<u32> {
        let (line, fingerprint) = self.line(shard, object_id, key);
        let entries = line.iter().map(|word| word.load(Ordering::Relaxed));
        let mut places = entries.filter(|entry| *entry as u32 == fingerprint).filter_map(place_of);
        let place = places.next()?;
        let record = self.record(shard, place);
        let same = record.object_id == object_id
            && usize::from(record.key_words) == key.len()
            && record.content[..key.len()] == *key;
        same.then_some(place)
    }
}

/// An index entry: the place plus one, above the fingerprint; 0: none.
pub(crate) fn entry_of(place: u32, fingerprint: u32) -> u64 {
    (u64::from(place) + 1) << 32 | u64::from(fingerprint)
}

pub(crate) fn place_of(entry: u64) -> Option<u32> {
    ((entry >> 32) as u32).checked_sub(1)
}

/// Multiplications and shifts, seeded: a host that crowds a line in spite of the seed sends its
/// flows' updates by user space, no more. The program has the same.
fn hash(seed: u64, object_id: u16, key: &[u64]) -> u64 {
    let mix = |hash: u64, word: u64| {
        let hash = (hash ^ word).wrapping_mul(0x9e37_79b9_7f4a_7c15);
        hash ^ hash >> 32
    };
    let hash = key.iter().fold(mix(seed, object_id.into()), |hash, word| mix(hash, *word));
    let hash = hash.wrapping_mul(0xff51_afd7_ed55_8ccd);
    hash ^ hash >> 29
}
