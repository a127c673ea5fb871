//! Deleted keys give their slots back, under load, and when a switch dies meanwhile.

use crate::cluster::Cluster;
use crate::common::wait_for;
use crate::load::Load;
use crate::verify;
use netchain_client::{Client, Key};

/// Keys that are made and deleted.
const KEYS: u64 = 1000;

fn key(round: u64, number: u64) -> Key {
    Key::from_name(&format!("gone-{round}-{number}")).expect("a short name")
}

/// Makes a key, and deletes it: the version of its tombstone.
fn make_and_delete(client: &mut Client, key: &Key) -> u64 {
    let made = client.insert(key, b"for a moment").expect("an outcome").done().expect("no value");
    let gone = client.delete(key, made.now.version).expect("an outcome").done().expect("its value");
    gone.now.version
}

/// Orders that tombstones are collected, and waits until they are.
fn collect(cluster: &Cluster) {
    let floors: Vec<u16> = cluster.groups().iter().map(|it| it.floor).collect();
    cluster.order("collect");
    wait_for("all groups are collected", || {
        let groups = cluster.groups();
        groups.iter().zip(&floors).all(|(now, before)| now.floor > *before && !now.collecting)
    });
}

/// Slots of keys are there again, versions go on, no acknowledged write is lost.
pub fn gives_slots_back(cluster: &Cluster) {
    let mut client = cluster.client();
    let before = verify::agrees(cluster);
    let tombstones: Vec<u64> =
        (0..KEYS).map(|number| make_and_delete(&mut client, &key(0, number))).collect();
    let with = verify::agrees(cluster);
    assert!(with >= before + KEYS, "{before} keys, then {with} with tombstones");
    let load = Load::start(cluster, 7, |_| None);
    collect(cluster);
    let ended = load.end();
    println!("collected under load: {}", ended.summary());
    ended.check(cluster);
    let after = verify::agrees(cluster);
    assert!(after < before + KEYS / 2, "{with} keys with tombstones, {after} after");
    for (number, tombstone) in (0..).zip(&tombstones).take(100) {
        let again = client.insert(&key(0, number), b"again").expect("an outcome");
        let again = again.done().expect("no value").now.version;
        assert!(again > *tombstone, "versions go on: {tombstone:x}, then {again:x}");
    }
}

/// The same while a switch dies and comes back.
pub fn a_switch_dies_meanwhile(cluster: &Cluster, victim: &str) {
    let mut client = cluster.client();
    let before = verify::agrees(cluster);
    for number in 0..KEYS {
        make_and_delete(&mut client, &key(1, number));
    }
    let load = Load::start(cluster, 8, |_| None);
    cluster.order("collect");
    wait_for("the first groups are collected", || {
        cluster.groups().iter().filter(|it| it.collecting || it.floor > 1).count() > 5
    });
    cluster.kill(victim);
    std::thread::sleep(std::time::Duration::from_secs(1));
    cluster.lab.restore(victim);
    cluster.settle("the killed switch is back");
    let ended = load.end();
    println!("{victim} dies while tombstones are collected: {}", ended.summary());
    ended.check(cluster);
    collect(cluster);
    let after = verify::agrees(cluster);
    assert!(after < before + KEYS / 2, "{before} keys before, {after} after");
}
