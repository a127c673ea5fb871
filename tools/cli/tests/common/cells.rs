//! Hosts that write to cells of eventual.p4 through their switches, and what they must read.

use crate::common::{TestLab, scrambled, wait_for};
use lab::netns::Netns;
use std::collections::BTreeMap;
use std::net::UdpSocket;
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

/// No host has it: the switch in front of the sender answers.
const SWITCH: &str = "10.9.9.9:4000";
/// Counters that the hosts use.
const INDEXES: u32 = 500;
/// Sockets that a host writes with at once.
pub const WRITERS: u64 = 2;

/// What a host reads of a cell. (`probe_t` in eventual.p4.)
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Cell {
    pub counter: u32,
    pub balance: u32,
    pub bits: u32,
}

/// A packet that came back: index and amount.
pub type Update = (u32, u32);
pub type Cells = BTreeMap<u32, Cell>;

pub struct Host(UdpSocket);

impl Host {
    pub fn of(lab: &TestLab, number: u64) -> Host {
        Host::within(&lab.netns(&format!("h{number}")), Duration::from_secs(2))
    }

    /// One that waits so long for an answer.
    pub fn within(netns: &Netns, patience: Duration) -> Host {
        let socket = netns.run(|| UdpSocket::bind("0.0.0.0:0")).expect("a socket");
        socket.set_read_timeout(Some(patience)).expect("a timeout");
        Host(socket)
    }

    /// Sends, and waits for the answer: what was there before. `None`: it was lost.
    pub fn ask(&self, (index, amount): Update) -> Option<Cell> {
        let mut packet = [0; 32];
        packet[..4].copy_from_slice(&index.to_be_bytes());
        packet[4..8].copy_from_slice(&amount.to_be_bytes());
        self.0.send_to(&packet, SWITCH).ok()?;
        let mut bytes = [0; 64];
        let length = self.0.recv(&mut bytes).ok()?;
        assert_eq!(length, 32);
        let word = |at: usize| u32::from_be_bytes(bytes[at..at + 4].try_into().expect("a word"));
        assert_eq!(word(0), index);
        Some(Cell { counter: word(8), balance: word(12), bits: word(20) })
    }
}

/// A host writes until `until`, or until nothing comes back; all that came back.
pub fn write(lab: &TestLab, number: u64, seed: u64, until: Instant) -> JoinHandle<Vec<Update>> {
    let host = Host::of(lab, number);
    std::thread::spawn(move || {
        let mut back = vec![];
        for round in 0.. {
            let random = (scrambled(round << 8 | seed << 4 | number) >> 33) as u32;
            let update = (random % INDEXES * 7 % 4096, 1 + (random >> 20 & 7));
            if Instant::now() >= until || host.ask(update).is_none() {
                break;
            }
            back.push(update);
        }
        back
    })
}

/// These hosts write for so long.
pub fn all_write(lab: &TestLab, numbers: &[u64], seed: u64, time: Duration) -> Vec<Vec<Update>> {
    let until = Instant::now() + time;
    let hosts: Vec<Vec<_>> = (numbers.iter())
        .map(|number| (0..WRITERS).map(|at| write(lab, *number, seed + at, until)).collect())
        .collect();
    let join = |writers: Vec<JoinHandle<Vec<Update>>>| {
        writers.into_iter().flat_map(|it| it.join().expect("a host")).collect()
    };
    hosts.into_iter().map(join).collect()
}

/// Adds updates to what the cells must be.
pub fn add(cells: &mut Cells, updates: &[Update]) {
    for (index, amount) in updates {
        let cell = cells.entry(*index).or_default();
        cell.counter = cell.counter.wrapping_add(*amount);
        cell.balance = cell.balance.wrapping_add(amount >> 1);
        cell.bits |= amount;
        let next = cells.entry(index + 1).or_default();
        next.balance = next.balance.wrapping_sub(*amount);
    }
}

/// What a host reads of these cells.
pub fn read(host: &Host, cells: &Cells) -> Cells {
    let ask = |index: &u32| (*index, host.ask((*index, 0)).expect("an answer"));
    cells.keys().map(ask).collect()
}

/// All these hosts come to read the same, and what must be there.
pub fn converge(lab: &TestLab, numbers: &[u64], truth: &Cells) {
    for number in numbers {
        let host = Host::of(lab, *number);
        wait_for(&format!("h{number} reads the hosts' ledgers"), || read(&host, truth) == *truth);
    }
}
