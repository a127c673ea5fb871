//! Variables with EWO for real: the compiled program on four switches, hosts that write to all of
//! them at once, a link that is cut, and a switch that is killed and comes back. Truth is what the
//! hosts sent and got back. Needs root. Waits for timers.

mod common;

use common::{TestLab, skip, wait_for};
use std::collections::BTreeMap;
use std::net::UdpSocket;
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

const TOPOLOGY: &str = "../../systems/swish/lab/eventual.toml";
/// No host has it: the switch in front of the sender answers.
const SWITCH: &str = "10.9.9.9:4000";
/// Counters that the hosts use.
const INDEXES: u32 = 500;
/// Sockets that a host writes with at once.
const WRITERS: u64 = 2;

/// What a host reads of a cell. (`probe_t` in systems/swish/p4/eventual/eventual.p4.)
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Cell {
    counter: u32,
    balance: u32,
    bits: u32,
}

/// A packet that came back: index and amount.
type Update = (u32, u32);
type Cells = BTreeMap<u32, Cell>;

struct Host(UdpSocket);

impl Host {
    fn of(lab: &TestLab, number: u64) -> Host {
        let node = format!("h{number}");
        let socket = lab.netns(&node).run(|| UdpSocket::bind("0.0.0.0:0")).expect("a socket");
        socket.set_read_timeout(Some(Duration::from_secs(2))).expect("a timeout");
        Host(socket)
    }

    /// Sends, and waits for the answer: what was there before. `None`: it was lost.
    fn ask(&self, (index, amount): Update) -> Option<Cell> {
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

/// A number that looks random.
fn scrambled(number: u64) -> u32 {
    let mut hash = number.wrapping_mul(0x9e37_79b9_7f4a_7c15);
    hash ^= hash >> 32;
    hash.wrapping_mul(0xd6e8_feb8_6659_fd93).wrapping_shr(33) as u32
}

/// A host writes until `until`, or until nothing comes back; all that came back.
fn write(lab: &TestLab, number: u64, seed: u64, until: Instant) -> JoinHandle<Vec<Update>> {
    let host = Host::of(lab, number);
    std::thread::spawn(move || {
        let mut back = vec![];
        for round in 0.. {
            let random = scrambled(round << 8 | seed << 4 | number);
            let update = (random % INDEXES * 7 % 4096, 1 + (random >> 20 & 7));
            if Instant::now() >= until || host.ask(update).is_none() {
                break;
            }
            back.push(update);
        }
        back
    })
}

/// All hosts write for so long.
fn all_write(lab: &TestLab, seed: u64, time: Duration) -> Vec<Vec<Update>> {
    let until = Instant::now() + time;
    let hosts: Vec<Vec<_>> = (1..=4)
        .map(|number| (0..WRITERS).map(|at| write(lab, number, seed + at, until)).collect())
        .collect();
    let join = |writers: Vec<JoinHandle<Vec<Update>>>| {
        writers.into_iter().flat_map(|it| it.join().expect("a host")).collect()
    };
    hosts.into_iter().map(join).collect()
}

/// Adds updates to what the cells must be.
fn add(cells: &mut Cells, updates: &[Update]) {
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
fn read(host: &Host, cells: &Cells) -> Cells {
    let ask = |index: &u32| (*index, host.ask((*index, 0)).expect("an answer"));
    cells.keys().map(ask).collect()
}

/// All these hosts come to read the same, and what must be there.
fn converge(lab: &TestLab, numbers: &[u64], truth: &Cells) {
    for number in numbers {
        let host = Host::of(lab, *number);
        wait_for(&format!("h{number} reads the hosts' ledgers"), || read(&host, truth) == *truth);
    }
}

/// Reads, until three hosts have read the same twice: what the switches keep of a dead one.
fn kept(lab: &TestLab, truth: &Cells) -> Cells {
    let hosts: Vec<Host> = (1..=3).map(|number| Host::of(lab, number)).collect();
    let mut before = Cells::new();
    wait_for("three hosts read the same", || {
        let all: Vec<Cells> = hosts.iter().map(|host| read(host, truth)).collect();
        let same = all.iter().all(|it| *it == all[0]) && all[0] == before;
        before.clone_from(&all[0]);
        std::thread::sleep(Duration::from_millis(500));
        same
    });
    before
}

fn sum(cells: &Cells) -> u64 {
    cells.values().map(|it| u64::from(it.counter)).sum()
}

/// The switch has no drops that it must not have, and slots of so many lives.
fn is_clean(lab: &TestLab, switch: &str, lives: u32) {
    let text = lab.metrics(switch);
    for reason in ["forged", "foreign", "faults", "malformed", "no_slot", "cell_stuck"] {
        let none = format!("stateplane_drops_total{{part=\"swish\",reason=\"{reason}\"}} 0");
        assert!(text.contains(&none), "{switch}: {text}");
    }
    let lives = format!("stateplane_switch_shared_lives{{group=\"main\"}} {lives}\n");
    assert!(text.contains(&lives), "{switch}: {text}");
}

#[test]
fn four_switches_converge() {
    if skip() {
        return;
    }
    let lab = TestLab::up("eventual", TOPOLOGY, &[]);
    let mut truth = Cells::new();
    let write = |truth: &mut Cells, seed: u64, ms: u64| {
        let updates = all_write(&lab, seed, Duration::from_millis(ms));
        assert!(updates.iter().all(|it| !it.is_empty()), "each host writes");
        updates.iter().for_each(|it| add(truth, it));
        updates
    };
    write(&mut truth, 1, 1000);
    converge(&lab, &[1, 2, 3, 4], &truth);

    // Gossip goes round a link that is cut.
    lab.link("down", "s1", "s2");
    write(&mut truth, 3, 500);
    converge(&lab, &[1, 2, 3, 4], &truth);
    lab.link("up", "s1", "s2");
    write(&mut truth, 5, 500);
    converge(&lab, &[1, 2, 3, 4], &truth);

    // A switch dies while its host writes. What it had not sent is lost, and no more.
    let until = Instant::now() + Duration::from_secs(60);
    let dying: Vec<_> = (0..WRITERS).map(|at| self::write(&lab, 4, 7 + at, until)).collect();
    std::thread::sleep(Duration::from_secs(2));
    lab.fail("s4");
    let last: Vec<Update> = dying.into_iter().flat_map(|it| it.join().expect("h4")).collect();
    let before = sum(&truth);
    add(&mut truth, &last);
    let mut left = kept(&lab, &truth);
    let (had, all) = (sum(&left), sum(&truth));
    println!("the dead switch's last updates: {} of {} are kept", had - before, all - before);
    // (An update may be counted whose answer did not come back.)
    assert!(had <= all + 8 * WRITERS, "{had} of {all}");
    assert!(had - before >= (all - before) / 2, "{had} of {all}, {before} before");

    // It comes back, empty: nothing becomes less, and it has a slot of its own.
    lab.restore("s4");
    write(&mut left, 9, 500);
    converge(&lab, &[1, 2, 3, 4], &left);
    ["s1", "s2", "s3", "s4"].iter().for_each(|switch| is_clean(&lab, switch, 5));
    lab.down();
}
