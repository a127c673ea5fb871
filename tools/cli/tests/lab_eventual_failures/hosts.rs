//! Hosts that write to cells of their own, and read those of all, until they are ended; and what
//! all switches must have of that.

use crate::cells::{self, Cell, Cells, Host, Update};
use crate::chaos::Death;
use crate::common::{TestLab, scrambled};
use lab::netns::Netns;
use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

/// Cells of a host, which no other host writes. (An update also changes the balance behind its
/// cell: every second one is used.)
const OWN_CELLS: u32 = 30;
/// What a switch was told so long before it died is at the others. (Changes are sent after 1 ms.
/// The agent that sends them may wait long for a CPU.)
pub const SENT: Duration = Duration::from_millis(1500);
/// A packet without an answer for so long has none.
const PATIENCE: Duration = Duration::from_millis(100);

/// What a host sent and read.
pub struct Ledger {
    pub number: u32,
    /// When the answer came. `None`: there was none, and the update counts or not.
    pub updates: Vec<(Update, Option<Instant>)>,
    /// The newest that it read of each cell.
    read: Cells,
    /// A cell of which it then read less.
    less: Option<String>,
}

impl Ledger {
    /// Counters and sets only grow at a switch that lives.
    fn note(&mut self, index: u32, cell: Cell) {
        let before = self.read.insert(index, cell).unwrap_or_default();
        if !has(&cell, &before) && self.less.is_none() {
            self.less = Some(format!("cell {index}: {before:?}, then {cell:?}"));
        }
    }
}

/// A counter and a set with all that they had.
fn has(cell: &Cell, before: &Cell) -> bool {
    cell.counter >= before.counter && cell.bits & before.bits == before.bits
}

/// Hosts that write and read, one behind each switch.
pub struct Hosts {
    stop: Arc<AtomicBool>,
    threads: Vec<JoinHandle<Ledger>>,
}

impl Hosts {
    /// Of switches 1 to `count`. What they write follows from the seed.
    pub fn begin(lab: &TestLab, count: u32, seed: u64) -> Hosts {
        let stop = Arc::new(AtomicBool::new(false));
        let threads = (1..=count).map(|number| {
            let (netns, stop) = (lab.netns(&format!("h{number}")), Arc::clone(&stop));
            let writer = Writer { netns, number, count, stop };
            std::thread::spawn(move || writer.run(seed << 8 | u64::from(number)))
        });
        let threads = threads.collect();
        Hosts { stop, threads }
    }

    pub fn end(self) -> Vec<Ledger> {
        self.stop.store(true, Ordering::Relaxed);
        self.threads.into_iter().map(|it| it.join().expect("a host")).collect()
    }
}

struct Writer {
    netns: Netns,
    number: u32,
    count: u32,
    stop: Arc<AtomicBool>,
}

impl Writer {
    fn run(&self, seed: u64) -> Ledger {
        let number = self.number;
        let mut ledger = Ledger { number, updates: vec![], read: Cells::new(), less: None };
        let mut host = Host::within(&self.netns, PATIENCE);
        let mut answers = true;
        for round in 0.. {
            if self.stop.load(Ordering::Relaxed) {
                break;
            }
            let random = (scrambled(seed << 32 | round) >> 33) as u32;
            // (Nothing is written to a switch that did not answer, until it does.)
            let writes = answers && !round.is_multiple_of(3);
            let of = if writes { number } else { 1 + random % self.count };
            let index = of * 400 + (random >> 8) % OWN_CELLS * 2;
            let amount = if writes { 1 + (random >> 20 & 7) } else { 0 };
            let answer = host.ask((index, amount));
            answers = answer.is_some();
            if writes {
                ledger.updates.push(((index, amount), answers.then(Instant::now)));
            }
            match answer {
                Some(cell) => ledger.note(index, cell),
                None => {
                    // (A late answer is not taken for another packet's.)
                    host = Host::within(&self.netns, PATIENCE);
                    std::thread::sleep(Duration::from_millis(10));
                }
            }
            std::thread::sleep(Duration::from_micros(300));
        }
        ledger
    }
}

/// What a cell may have besides what it has for sure.
#[derive(Clone, Copy, Debug, Default)]
struct More {
    counter: u32,
    up: u32,
    down: u32,
    bits: u32,
}

/// What the cells must have at least, and what they may have besides.
#[derive(Default)]
pub struct Truth {
    least: Cells,
    more: BTreeMap<u32, More>,
}

impl Truth {
    /// Adds what the hosts sent. Of a switch that died, the updates of the last [`SENT`] of its
    /// life count or not.
    pub fn add(&mut self, ledgers: &[Ledger], deaths: &[Death]) {
        for Ledger { number, updates, .. } in ledgers {
            let is_sent = |at: Instant| {
                let death = deaths.iter().find(|it| it.number == *number && at <= it.until);
                death.is_none_or(|it| at + SENT <= it.at)
            };
            for (update, answered) in updates {
                if answered.is_some_and(is_sent) {
                    cells::add(&mut self.least, &[*update]);
                } else {
                    self.may_have(*update);
                }
            }
        }
    }

    fn may_have(&mut self, (index, amount): Update) {
        let more = self.more.entry(index).or_default();
        more.counter += amount;
        more.up += amount >> 1;
        more.bits |= amount;
        self.more.entry(index + 1).or_default().down += amount;
        for index in [index, index + 1] {
            self.least.entry(index).or_default();
        }
    }

    /// All switches read this: the hosts' ledgers allow it, and what a living switch had read is in
    /// it. It is what must be there from now on. How much of the counters may be lost, and how much
    /// of that is there.
    pub fn check(&mut self, read: Cells, ledgers: &[Ledger], deaths: &[Death]) -> (u32, u32) {
        let (mut may, mut kept) = (0, 0);
        for (index, cell) in &read {
            let least = self.least.get(index).copied().unwrap_or_default();
            let more = self.more.get(index).copied().unwrap_or_default();
            let counter = cell.counter.wrapping_sub(least.counter);
            let balance = i64::from(cell.balance.wrapping_sub(least.balance) as i32);
            assert!(
                counter <= more.counter
                    && (-i64::from(more.down)..=i64::from(more.up)).contains(&balance)
                    && cell.bits & least.bits == least.bits
                    && cell.bits & !(least.bits | more.bits) == 0,
                "cell {index}: all read {cell:?}, not {least:?} and of {more:?}"
            );
            may += more.counter;
            kept += counter;
        }
        let lives = |it: &&Ledger| deaths.iter().all(|death| death.number != it.number);
        for ledger in ledgers.iter().filter(lives) {
            let number = ledger.number;
            assert!(ledger.updates.iter().any(|it| it.1.is_some()), "h{number} writes");
            assert_eq!(ledger.less, None, "h{number} read less than before");
            for (index, seen) in &ledger.read {
                let cell = read.get(index).copied().unwrap_or_default();
                assert!(has(&cell, seen), "cell {index}: h{number} read {seen:?}, now {cell:?}");
            }
        }
        *self = Truth { least: read, more: BTreeMap::new() };
        (may, kept)
    }

    /// Reads until all hosts have read the same twice.
    pub fn converged(&self, lab: &TestLab, count: u32) -> Cells {
        let hosts: Vec<Host> = (1..=count).map(|it| Host::of(lab, u64::from(it))).collect();
        let deadline = Instant::now() + Duration::from_secs(60);
        let mut before = Cells::new();
        loop {
            let mut all: Vec<Cells> = hosts.iter().map(|it| cells::read(it, &self.least)).collect();
            let differs = self.least.keys().find(|it| all.iter().any(|of| of[*it] != all[0][*it]));
            if differs.is_none() && all[0] == before {
                return before;
            }
            let read = differs.map(|it| (it, all.iter().map(|of| of[it]).collect::<Vec<_>>()));
            assert!(Instant::now() < deadline, "not within 60 s: all read the same, not {read:?}");
            before = all.swap_remove(0);
            std::thread::sleep(Duration::from_millis(200));
        }
    }
}
