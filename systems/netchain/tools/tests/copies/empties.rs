//! A switch gives back the slots of groups that it has left, and forgets its clients. Needs root.

use crate::switch::{self, READER, Switch};
use c_layout::CStruct;
use libbpf_rs::{MapCore, MapFlags};
use manifest::StateObject;
use netchain_protocol::layouts::SlotMark;
use netchain_switch::empties::Slots;
use netchain_switch::windows::Windows;
use std::collections::BTreeSet;
use std::sync::Arc;

const KEYS: u32 = 300;

/// An element that the data plane would have made: head, key, value.
fn put(switch: &Switch, object: &StateObject, number: u32, head: &[u8; 8], key: &[u8]) {
    let map = object.slots_map.as_deref().expect("a map of slots");
    let mut element = switch.dataplane.read_array(map, number).expect("element");
    element[..8].copy_from_slice(head);
    element[8..8 + key.len()].copy_from_slice(key);
    let end = element.len();
    element[end - 8..].copy_from_slice(&7u64.to_ne_bytes());
    switch.dataplane.write_array(map, number, &element).expect("written");
    let numbers = switch.dataplane.map(&object.map).expect("numbers");
    numbers.update(key, &number.to_ne_bytes(), MapFlags::ANY).expect("number");
    let used = format!("{}_used", object.map);
    switch.dataplane.write_array(&used, 0, &(number + 1).to_ne_bytes()).expect("used");
}

fn given_back(switch: &Switch, object: &StateObject) -> BTreeSet<u32> {
    let free = switch.dataplane.map(&format!("{}_free", object.map)).expect("queue");
    let next = || free.lookup_and_delete(&[]).expect("queue");
    let number = |bytes: Vec<u8>| u32::from_ne_bytes(*bytes.first_chunk().expect("a number"));
    std::iter::from_fn(next).map(number).collect()
}

#[test]
fn slots_go_by_group_and_windows_all() {
    if dataplane::check_permitted().is_err() {
        eprintln!("skipped: BPF needs root");
        return;
    }
    let folder = tempfile::tempdir().expect("folder");
    let (file, manifest) = switch::object(folder.path(), KEYS);
    let switch = Switch::load(&file, &manifest, READER, true);
    let key = |number: u32| u128::from(number + 1).to_be_bytes();
    for number in 0..KEYS {
        put(&switch, &switch.slots, number, &[0, 0, 0, 0, 2, 0, 0, 0], &key(number));
        let mark = SlotMark { copied_view: 5, part: (number % 3) as u16, used: 1 };
        let marks = format!("{}_marks", switch.slots.map);
        switch.dataplane.write_array(&marks, number, &mark.to_bytes()).expect("mark");
    }
    let slots = Slots::new(Arc::clone(&switch.dataplane), switch.slots.clone()).expect("slots");
    assert_eq!(slots.empty(&BTreeSet::from([0, 2])).expect("emptied"), 200);
    for number in 0..KEYS {
        let stays = number % 3 == 1;
        assert_eq!(switch.slot_of(&key(number)).is_some(), stays, "{number}");
        assert_eq!(switch.slot(number).iter().any(|byte| *byte != 0), stays, "{number}");
    }
    let expected = (0..KEYS).filter(|number| number % 3 != 1).collect();
    assert_eq!(given_back(&switch, &switch.slots), expected);
    assert_eq!(slots.empty(&BTreeSet::from([0, 2])).expect("emptied"), 0, "once");

    let object = manifest.state_objects.iter().find(|it| it.kind == "RequestWindow");
    let object = object.expect("windows");
    let numbers = switch.dataplane.map(&object.map).expect("numbers");
    let client = |number: u32| {
        let mut client = vec![0; numbers.key_size() as usize];
        client[..4].copy_from_slice(&(number + 1).to_ne_bytes());
        client
    };
    (0..5).for_each(|at| put(&switch, object, at, &99u64.to_ne_bytes(), &client(at)));
    let windows = Windows::new(object.clone());
    windows.clear(&switch.dataplane).expect("cleared");
    windows.clear(&switch.dataplane).expect("cleared once");
    assert_eq!(given_back(&switch, object), (0..5).collect());
    for at in 0..5 {
        assert_eq!(numbers.lookup(&client(at), MapFlags::ANY).expect("lookup"), None);
    }
}
