//! Registers, tables and sets with EWO in a loaded object: what is read and written of them from
//! user space. A read is whole, and a write has its place among those of packets: both are made
//! under the record's lock.

use crate::group::has_consistency;
use crate::keyed::{Keyed, is_keyed};
use c_layout::CStruct;
use dataplane::{Dataplane, Error, Result};
use libbpf_rs::{MapCore, MapFlags};
use manifest::{Manifest, StateObject};
use std::ops::Deref;
use swish_protocol::lww::{CountsValue, HeadValue, OrderValue, RECORD_HEAD_BYTES, flag};
use swish_protocol::objects::{Consistency, LastSettings};

const RECORDS: &str = "sp_lww_records";
const COUNTS: &str = "sp_lww_counts";
const INDEX: &str = "sp_lww_index";
/// The data plane's helper program for operators.
const ORDER: &str = "sp_lww_order";
const XDP_DROP: u32 = 1;
const XDP_PASS: u32 = 2;

/// A register, table or set with EWO of a loaded object.
#[derive(Clone, Debug, PartialEq)]
pub struct Object {
    /// What the program declares.
    pub keyed: Keyed,
    /// Where its records are.
    pub settings: LastSettings,
}

impl Deref for Object {
    type Target = Keyed;

    fn deref(&self) -> &Keyed {
        &self.keyed
    }
}

/// A record.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Record {
    /// In wire form.
    pub key: Vec<u8>,
    /// See `key`; of a tombstone all zero.
    pub value: Vec<u8>,
    /// The stamp of the write that made it.
    pub stamp: (u64, u64),
    /// It is a tombstone.
    pub removed: bool,
}

/// What became of an operator's write.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Written {
    /// It is made, or its condition does not hold.
    Done,
    /// There is no room for the key.
    Full,
}

fn settings_of(object: &StateObject) -> Result<LastSettings> {
    let settings = serde_json::Value::Object(object.settings.clone());
    serde_json::from_value(settings.clone()).map_err(|error| Error::Value {
        what: format!("the settings of {} in the manifest", object.name),
        text: settings.to_string(),
        reason: format!("{error}: compile the program again, with this version"),
    })
}

impl Object {
    /// All of a program.
    ///
    /// # Errors
    /// The manifest is of another version.
    pub fn all(manifest: &Manifest) -> Result<Vec<Object>> {
        let is_own = |it: &&StateObject| is_keyed(it) && has_consistency(it, Consistency::Ewo);
        let own = manifest.state_objects.iter().filter(is_own);
        own.map(|it| Ok(Object { keyed: Keyed::of(it), settings: settings_of(it)? })).collect()
    }

    fn words(&self) -> (usize, usize) {
        (self.settings.key_words as usize, self.settings.value_words as usize)
    }

    fn at(&self, dataplane: &Dataplane, place: u32) -> Result<Option<Record>> {
        let map = dataplane.map(RECORDS).ok_or_else(|| no_map(RECORDS))?;
        // (Under the lock: no half of a write.)
        let bytes = map
            .lookup(&place.to_ne_bytes(), MapFlags::LOCK)
            .map_err(|error| Error::libbpf(format!("read a record of {}", self.name), error))?
            .unwrap_or_default();
        let head = HeadValue::from_bytes(&bytes);
        if head.time == 0 {
            return Ok(None);
        }
        let (key_words, _) = self.words();
        let part = |first: usize, count: u32| {
            bytes.get(first..first + count as usize).map(<[u8]>::to_vec).unwrap_or_default()
        };
        let first = RECORD_HEAD_BYTES as usize;
        Ok(Some(Record {
            key: part(first, self.key_bytes),
            value: part(first + 8 * key_words, self.value_bytes),
            stamp: (head.time, head.writer),
            removed: head.flags & flag::REMOVED != 0,
        }))
    }

    /// All records, tombstones too, in the order of their places.
    ///
    /// # Errors
    /// The kernel refuses.
    pub fn records(&self, dataplane: &Dataplane) -> Result<Vec<Record>> {
        let used = if self.is_register() {
            self.size
        } else {
            u32::try_from(self.counts(dataplane)?.used).unwrap_or(self.size).min(self.size)
        };
        let first = self.settings.first_record;
        (first..first + used).filter_map(|place| self.at(dataplane, place).transpose()).collect()
    }

    /// The record of a key in wire form, if it is there; a tombstone is none.
    ///
    /// # Errors
    /// The kernel refuses.
    pub fn get(&self, dataplane: &Dataplane, key: &[u8]) -> Result<Option<Record>> {
        let place = if self.is_register() {
            let index = key.first_chunk().copied().map_or(u32::MAX, u32::from_be_bytes);
            if index >= self.size {
                return Ok(None);
            }
            self.settings.first_record + index
        } else {
            let map = dataplane.map(INDEX).ok_or_else(|| no_map(INDEX))?;
            let mut asked = u64::from(self.settings.object).to_ne_bytes().to_vec();
            asked.extend(padded(key, self.words().0));
            let found = map
                .lookup(&asked, MapFlags::ANY)
                .map_err(|error| Error::libbpf(format!("look up a key of {}", self.name), error))?;
            let Some(place) = found.and_then(|it| it.first_chunk().copied()) else {
                return Ok(None);
            };
            u32::from_ne_bytes(place)
        };
        // (The place may have gone to another key meanwhile.)
        let found = self.at(dataplane, place)?;
        Ok(found.filter(|it| !it.removed && (self.is_register() || it.key == key)))
    }

    /// Writes a value, or removes a key (`flag::REMOVED`), with a stamp of now. In wire form.
    ///
    /// # Errors
    /// The kernel refuses.
    pub fn write(
        &self,
        dataplane: &Dataplane,
        key: &[u8],
        value: &[u8],
        flags: u32,
    ) -> Result<Written> {
        let mut order = OrderValue { object: self.settings.object, flags }.to_bytes().to_vec();
        let (key_words, value_words) = self.words();
        order.extend(padded(key, key_words));
        order.extend(padded(value, value_words));
        match dataplane.run_request(ORDER, &order)? {
            XDP_PASS => Ok(Written::Done),
            XDP_DROP => Ok(Written::Full),
            other => Err(Error::Value {
                what: format!("a write to {}", self.name),
                text: other.to_string(),
                reason: "the data plane does not know the object: it is of another program".into(),
            }),
        }
    }

    /// How many records it has.
    ///
    /// # Errors
    /// The kernel refuses.
    pub fn counts(&self, dataplane: &Dataplane) -> Result<CountsValue> {
        Ok(CountsValue::from_bytes(&dataplane.read_array(COUNTS, self.settings.object)?))
    }
}

/// In whole words, zero behind its end.
fn padded(bytes: &[u8], words: usize) -> Vec<u8> {
    let mut padded = bytes.to_vec();
    padded.resize(8 * words, 0);
    padded
}

fn no_map(map: &str) -> Error {
    Error::NoMap { map: map.to_owned(), owner: "variables with EWO".to_owned() }
}
