//! Hosts that update sketches of the program systems/swish/p4/own, and what they must read: the
//! program's merges, written a second time.

use crate::common::{TestLab, scrambled};
use std::collections::BTreeMap;
use std::net::UdpSocket;
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

/// No host has it: the switch in front of the sender answers.
const SWITCH: &str = "10.9.9.9:4000";
/// Cells that the hosts use. The last four soon have the largest sum there is.
pub const CELLS: u32 = 24;
const LARGE: u32 = CELLS - 4;
/// What a switch with EWO was told so long before it died is at the others. (Rounds of gossip are
/// 20 ms. The agent that begins them may wait long for a CPU.)
pub const SENT: Duration = Duration::from_millis(1500);
/// A packet without an answer for so long has none.
const PATIENCE: Duration = Duration::from_millis(500);

/// `total`, `joined`, `smallest` and `soon`.
pub type Cell = [u32; 4];

fn halves(a: u32, b: u32) -> u32 {
    (a >> 16).max(b >> 16) << 16 | (a | b) & 0xffff
}

/// An update of one variable.
fn merged(variable: usize, a: u32, b: u32) -> u32 {
    match variable {
        0 => a.saturating_add(b),
        2 if a == 0 || b == 0 => a | b,
        2 => a.min(b),
        _ => halves(a, b),
    }
}

/// A packet that updates, in order of time.
#[derive(Clone, Copy, Debug)]
pub struct Update {
    pub by: u32,
    pub index: u32,
    pub amount: u32,
    pub sent: Instant,
    /// Of `total` and `joined`, as the answer has them; 0: it was not counted there. None: there
    /// was no answer, and the update counts or not.
    pub windows: Option<[u64; 2]>,
}

/// A host's socket.
pub struct Host(UdpSocket);

impl Host {
    pub fn of(lab: &TestLab, number: u32) -> Host {
        let node = format!("h{number}");
        let socket = lab.netns(&node).run(|| UdpSocket::bind("0.0.0.0:0")).expect("a socket");
        socket.set_read_timeout(Some(PATIENCE)).expect("a timeout");
        Host(socket)
    }

    /// Sends, and waits for the answer: what was there, and the windows. (`probe_t` in own.p4.)
    /// Late answers to packets before are left out.
    pub fn ask(&self, index: u32, amount: u32) -> Option<(Cell, [u64; 2])> {
        let mut packet = [0; 40];
        packet[..4].copy_from_slice(&index.to_be_bytes());
        packet[4..8].copy_from_slice(&amount.to_be_bytes());
        let mut bytes = [0; 64];
        self.drain(&mut bytes);
        let begun = Instant::now();
        self.0.send_to(&packet, SWITCH).ok()?;
        loop {
            let length = self.0.recv(&mut bytes).ok()?;
            assert_eq!(length, 40);
            if bytes[..8] == packet[..8] {
                break;
            }
            if begun.elapsed() > PATIENCE {
                return None;
            }
        }
        let word = |at: usize| u32::from_be_bytes(bytes[at..at + 4].try_into().expect("a word"));
        let long = |at: usize| u64::from(word(at)) << 32 | u64::from(word(at + 4));
        Some(([8, 12, 16, 20].map(word), [24, 32].map(long)))
    }

    /// What has come is no answer to what is sent next.
    fn drain(&self, bytes: &mut [u8]) {
        self.0.set_nonblocking(true).expect("a socket");
        while self.0.recv(bytes).is_ok() {}
        self.0.set_nonblocking(false).expect("a socket");
    }

    fn read(&self, index: u32) -> (Cell, [u64; 2]) {
        (0..20).find_map(|_| self.ask(index, 0)).expect("an answer")
    }

    pub fn windows(&self) -> [u64; 2] {
        self.read(0).1
    }

    pub fn read_all(&self) -> Vec<Cell> {
        (0..CELLS).map(|index| self.read(index).0).collect()
    }
}

/// A host updates until `until`.
pub fn write(lab: &TestLab, by: u32, seed: u32, until: Instant) -> JoinHandle<Vec<Update>> {
    let host = Host::of(lab, by);
    std::thread::spawn(move || {
        let mut made: Vec<Update> = vec![];
        for round in 0u32.. {
            if Instant::now() >= until {
                break;
            }
            let random = (scrambled(u64::from(seed) << 40 | u64::from(by) << 32 | u64::from(round))
                >> 32) as u32;
            let index = random % CELLS;
            // (Both halves have something; the small ones add up without an overflow.)
            let small = (random >> 8 & 7) << 16 | 1 << (random >> 12 & 15);
            let amount = if index < LARGE { small } else { small | 1 << 28 };
            let sent = Instant::now();
            let windows = host.ask(index, amount).map(|(_, windows)| windows);
            made.push(Update { by, index, amount, sent, windows });
            std::thread::sleep(Duration::from_micros(500));
        }
        made
    })
}

/// A switch died then; all that lived on had read these windows.
pub struct Death {
    pub of: u32,
    pub at: Instant,
    pub windows: [u64; 2],
}

impl Death {
    /// By what the others' hosts read.
    pub fn of(of: u32, at: Instant, updates: &[Update]) -> Death {
        // (The last answer may have come later. The one before came before its packet was sent.)
        let mut read: BTreeMap<u32, [[u64; 2]; 2]> = BTreeMap::new();
        for update in updates.iter().filter(|it| it.by != of && it.sent < at) {
            let Some(windows) = update.windows else { continue };
            let [last, _] = read.get(&update.by).copied().unwrap_or_default();
            read.insert(update.by, [windows, last]);
        }
        let least = |at: usize| read.values().map(|[_, it]| it[at]).min().unwrap_or(0);
        Death { of, at, windows: [least(0), least(1)] }
    }
}

/// What the cells must have at least, and what they may have besides.
pub struct Truth {
    sure: Vec<Cell>,
    all: Vec<Cell>,
}

impl Truth {
    pub fn new() -> Truth {
        let none = vec![[0; 4]; CELLS as usize];
        Truth { sure: none.clone(), all: none }
    }

    /// Whether a variable has the update. None: nobody knows.
    fn counts(variable: usize, update: &Update, death: Option<&Death>) -> Option<bool> {
        let windows = update.windows?;
        let death = death.filter(|it| it.of == update.by);
        let window = match variable {
            0 | 1 => windows[variable],
            _ => {
                let is_sent = death.is_none_or(|it| update.sent + SENT < it.at);
                return is_sent.then_some(true);
            }
        };
        // (An update of window w is in rotation w or w + 1, and the others had all below theirs.)
        let is_merged = death.is_none_or(|it| window + 2 <= it.windows[variable]);
        if window == 0 { Some(false) } else { is_merged.then_some(true) }
    }

    /// How many updates the dead switch's others have for sure, of `total`.
    pub fn add(&mut self, updates: &[Update], death: Option<&Death>) -> usize {
        let mut kept = 0;
        for update in updates {
            let (index, by) = (update.index as usize, update.amount);
            for variable in 0..4 {
                let counts = Truth::counts(variable, update, death);
                if counts == Some(true) {
                    let cell = &mut self.sure[index][variable];
                    *cell = merged(variable, *cell, by);
                    kept +=
                        usize::from(variable == 0 && death.is_some_and(|it| it.of == update.by));
                }
                if counts != Some(false) {
                    let cell = &mut self.all[index][variable];
                    *cell = merged(variable, *cell, by);
                }
            }
        }
        kept
    }

    /// All switches read this; it is what must be there from now on.
    pub fn check(&mut self, read: &[Cell]) {
        for (index, cell) in read.iter().enumerate() {
            for (variable, value) in cell.iter().enumerate() {
                let (sure, all) = (self.sure[index][variable], self.all[index][variable]);
                // What is there holds all that must be, and all that may be holds it.
                let holds = |more: u32, less: u32| match variable {
                    0 => more >= less,
                    _ => merged(variable, more, less) == more,
                };
                assert!(
                    holds(*value, sure) && holds(all, *value),
                    "variable {variable}, cell {index}: {value:#x}, not {sure:#x} to {all:#x}"
                );
            }
        }
        self.sure = read.to_vec();
        self.all = read.to_vec();
    }
}
