//! Slots that are written by their maps: millions of packets would take longer.

use crate::switch::{GROUP, Switch};
use libbpf_rs::{MapCore, MapFlags};
use netchain_protocol::layouts::{SlotHead, SlotMark};

/// Elements written in one call.
const BATCH: u32 = 10_000;

/// Fills the reader: each key with a value of `length` bytes (NO_VALUE: it was deleted), and the
/// first version of session 1.
pub fn fill(reader: &Switch, keys: u32, length: u8) {
    use c_layout::{CStruct, Member};
    let map = |end: &str| {
        let name = format!("{}{end}", reader.slots.map);
        reader.dataplane.map(&name).unwrap_or_else(|| panic!("no map {name}"))
    };
    let slot_bytes = map("_slots").value_size() as usize;
    let value = reader.slots.value.offset() as usize;
    let value_bytes = reader.slots.value.fields().iter().map(|field| field.width / 8).sum::<u32>();
    let mark = SlotMark { copied_view: 0, part: GROUP, used: 1 }.to_bytes();
    for first in (0..keys).step_by(BATCH as usize) {
        let numbers: Vec<u32> = (first..keys.min(first + BATCH)).collect();
        let (mut names, mut slots) = (vec![], vec![]);
        for number in &numbers {
            let key = u128::from(*number).to_be_bytes();
            let mut slot = vec![0; slot_bytes];
            slot[SlotHead::BYTES..SlotHead::BYTES + 16].copy_from_slice(&key);
            // Its version, and its length, which come first and last.
            slot[value..value + 8].copy_from_slice(&(1_u64 << 48 | 1).to_be_bytes());
            slot[value + value_bytes as usize - 1] = length;
            names.extend(key);
            slots.extend(slot);
        }
        let numbers_bytes: Vec<u8> = numbers.iter().flat_map(|it| it.to_ne_bytes()).collect();
        let marks = mark.repeat(numbers.len());
        let count = numbers.len() as u32;
        let write = |end: &str, keys: &[u8], values: &[u8]| {
            let outcome = map(end).update_batch(keys, values, count, MapFlags::ANY, MapFlags::ANY);
            outcome.unwrap_or_else(|error| panic!("{end}: {error}"));
        };
        write("", &names, &numbers_bytes);
        write("_slots", &numbers_bytes, &slots);
        write("_marks", &numbers_bytes, &marks);
    }
    let used = format!("{}_used", reader.slots.map);
    reader.dataplane.write_array(&used, 0, &keys.to_ne_bytes()).expect("used");
}
