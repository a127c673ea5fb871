//! Hosts that ask for keys of pairs.p4, and what they know of the answers.
#![allow(dead_code, reason = "each test program uses a part of it")]

use crate::common::{TestLab, json, stateplane};
use std::collections::{BTreeMap, BTreeSet};
use std::net::{Ipv4Addr, UdpSocket};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

/// A packet adds this operation's value to a key; it reads before.
pub const ADD: u8 = 3;
pub const READ: u8 = 0;

/// A host's socket to the switch in front of an address.
pub struct Prober(UdpSocket);

impl Prober {
    pub fn new(lab: &TestLab, host: &str, address: Ipv4Addr, timeout: Duration) -> Prober {
        let socket = lab.netns(host).run(|| UdpSocket::bind("0.0.0.0:0")).expect("a socket");
        socket.set_read_timeout(Some(timeout)).expect("a timeout");
        socket.connect((address, 4000)).expect("an address");
        Prober(socket)
    }

    /// What was there before; `None`: no answer came in time.
    pub fn ask(&self, op: u8, key: u32, value: u32) -> Option<u32> {
        let mut packet = vec![op, 0, 0, 0];
        packet.extend(key.to_be_bytes());
        packet.extend(value.to_be_bytes());
        // (What is read; tally.p4 has 12 bytes more.)
        packet.extend([0; 24]);
        self.0.send(&packet).ok()?;
        let mut bytes = [0; 64];
        // (What came late is the answer of an earlier packet, to another key.)
        loop {
            assert_eq!(self.0.recv(&mut bytes).ok()?, packet.len());
            if (bytes[0], &bytes[4..8]) == (op, &packet[4..8]) {
                break;
            }
        }
        let word = |at: usize| u32::from_be_bytes(bytes[at..at + 4].try_into().expect("a word"));
        assert_eq!(bytes[1], bytes[2], "half of another packet's writes");
        assert_eq!((word(12), word(12)), (word(16), word(20)), "half of another packet's writes");
        Some(word(12))
    }
}

/// A key, and what was there before 1 was added. `None`: no answer came, so nobody knows.
#[derive(Clone, Copy, Debug)]
pub struct Addition {
    pub key: u32,
    pub was: Option<u32>,
    pub answered: Instant,
}

/// A host that adds 1 to keys in turn.
pub struct Writer {
    ends: Arc<AtomicBool>,
    thread: JoinHandle<Vec<Addition>>,
}

impl Writer {
    /// `own`: each writer goes its own way through the keys.
    pub fn begin(prober: Prober, own: u32, keys: u32) -> Writer {
        let ends = Arc::new(AtomicBool::new(false));
        let stop = Arc::clone(&ends);
        let thread = std::thread::spawn(move || {
            let mut found = vec![];
            let mut round = 0;
            while !stop.load(Ordering::Relaxed) {
                let key = (round * (2 * own + 1) + 13 * own) % keys;
                let was = prober.ask(ADD, key, 1);
                found.push(Addition { key, was, answered: Instant::now() });
                round += 1;
            }
            found
        });
        Writer { ends, thread }
    }

    /// What it sent, in order.
    pub fn end(self) -> Vec<Addition> {
        self.ends.store(true, Ordering::Relaxed);
        self.thread.join().expect("a writer")
    }
}

/// Of each key: how often it was added to with an answer, and without.
pub type Truth = BTreeMap<u32, (BTreeSet<u32>, u32)>;

/// Each addition read what all before it, at any switch, had made of the key: no two read the same.
pub fn note(truth: &mut Truth, additions: &[Addition]) {
    for Addition { key, was, .. } in additions {
        let (read, unknown) = truth.entry(*key).or_default();
        match was {
            Some(was) => assert!(read.insert(*was), "key {key}: two additions read {was}"),
            None => *unknown += 1,
        }
    }
}

/// All of these switches have the same, and all that was answered.
pub fn all_have(probers: &[Prober], truth: &Truth) {
    for (key, (read, unknown)) in truth {
        // (A switch that has just joined may read only after some rounds of the chain.)
        let ask = |it: &Prober| (0..5).find_map(|_| it.ask(READ, *key, 0)).expect("an answer");
        let now: Vec<u32> = probers.iter().map(ask).collect();
        assert!(now.iter().all(|it| *it == now[0]), "key {key}: {now:?}");
        let (least, most) = (read.len() as u32, read.len() as u32 + unknown);
        assert!((least..=most).contains(&now[0]), "key {key}: {now:?} of {least} to {most}");
        assert!(read.last().is_none_or(|it| *it < now[0]), "key {key}: {now:?}, {read:?}");
    }
}

/// The longest time without an answer.
pub fn longest_pause(additions: &[Addition], from: Instant, until: Instant) -> Duration {
    let answered = additions.iter().filter(|it| it.was.is_some()).map(|it| it.answered);
    let mut times: Vec<Instant> = answered.filter(|it| (from..until).contains(it)).collect();
    times.insert(0, from);
    times.push(until);
    times.windows(2).map(|two| two[1] - two[0]).max().unwrap_or_default()
}

/// What a switch has counted of packets, by cell (tally.p4).
pub fn tally(lab: &TestLab, switch: &str, counter: &str) -> BTreeMap<u32, u64> {
    let name = format!("{}-{switch}", lab.name);
    let output = stateplane(&["shared", "get", counter, "--json", "--switch", &name]);
    assert!(output.status.success(), "{name}: {}", String::from_utf8_lossy(&output.stderr));
    let said = json(&String::from_utf8_lossy(&output.stdout));
    let entries = said["entries"].as_array().expect("entries").iter();
    let text = |it: &serde_json::Value| it.as_str().expect("a number").to_owned();
    entries
        .map(|it| (text(&it["key"][0][1]), text(&it["value"][0][1])))
        .map(|(cell, count)| (cell.parse().expect("a cell"), count.parse().expect("a count")))
        .collect()
}
