//! Hosts that ask the program systems/swish/p4/last for keys and registers, what they wrote, and
//! what may be read then.

use crate::common::{TestLab, scrambled};
use std::cell::Cell;
use std::collections::BTreeMap;
use std::net::UdpSocket;
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

/// No host has it: the switch in front of the sender answers.
const SWITCH: &str = "10.9.9.9:4000";
/// Keys that are written, and registers.
pub const KEYS: u32 = 24;
/// A packet without an answer for so long has none.
const PATIENCE: Duration = Duration::from_millis(500);

/// What is written.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Place {
    /// A key of the table.
    Key(u32),
    /// The same key of the set; its value is 1.
    Member(u32),
    /// A register.
    Number(u32),
}

/// A value; none: the key is not there.
pub type Values = BTreeMap<Place, Option<u32>>;

/// A packet that writes, or an operator's command.
#[derive(Clone, Copy, Debug)]
pub struct Write {
    /// The host's number; 0: what all had read before, or an operator.
    pub by: u32,
    pub place: Place,
    /// None: it removes the key.
    pub value: Option<u32>,
    pub sent: Instant,
    /// When the answer came. None: none did, and the write took effect or not.
    pub back: Option<Instant>,
    /// It took effect, and others have it.
    pub is_sure: bool,
}

impl Write {
    /// A command has ended that was given at `sent`.
    pub fn of_operator(place: Place, value: Option<u32>, sent: Instant) -> Write {
        Write { by: 0, place, value, sent, back: Some(Instant::now()), is_sure: true }
    }
}

/// All writes since hosts read the same.
#[derive(Default)]
pub struct Ledger {
    pub writes: Vec<Write>,
}

impl Ledger {
    /// All switches read this: nothing that was answered before the last sure write was sent. What
    /// they read is what was written from now on. Packets without an answer stay: the kernel of a
    /// host keeps some while its switch answers no ARP, and sends them when the switch is back.
    pub fn check(&mut self, read: &Values) {
        for (place, value) in read {
            let of: Vec<&Write> = self.writes.iter().filter(|it| it.place == *place).collect();
            let last = of.iter().filter(|it| it.is_sure).map(|it| it.sent).max();
            // (All clocks are this machine's.)
            let may = |it: &&&Write| {
                it.value == *value && last.is_none_or(|last| it.back.is_none_or(|at| at >= last))
            };
            let nothing = last.is_none() && value.unwrap_or(0) == 0;
            assert!(
                nothing || of.iter().any(|it| may(&it)),
                "{place:?} is {value:?}, and the last ones to write were {:#?}",
                &of[of.len().saturating_sub(6)..]
            );
        }
        self.writes.retain(|it| it.back.is_none());
        let now = Instant::now();
        let made = read.iter().map(|(place, value)| Write::of_operator(*place, *value, now));
        self.writes.extend(made);
    }
}

/// A host's socket.
pub struct Host {
    socket: UdpSocket,
    /// Packets that were sent, modulo 256. A packet has it, and its answer.
    sent: Cell<u8>,
}

impl Host {
    pub fn of(lab: &TestLab, number: u32) -> Host {
        let node = format!("h{number}");
        let socket = lab.netns(&node).run(|| UdpSocket::bind("0.0.0.0:0")).expect("a socket");
        socket.set_read_timeout(Some(PATIENCE)).expect("a timeout");
        Host { socket, sent: Cell::new(0) }
    }

    /// Sends, and waits for the answer: whether the key was in the table and in the set, and its
    /// value. (`probe_t` in last.p4.) Late answers to packets before are left out.
    fn ask(&self, op: u8, key: u32, value: u32) -> Option<([bool; 2], u32)> {
        let mut packet = [0; 24];
        packet[0] = op;
        self.sent.set(self.sent.get().wrapping_add(1));
        packet[3] = self.sent.get();
        packet[4..8].copy_from_slice(&key.to_be_bytes());
        packet[8..12].copy_from_slice(&value.to_be_bytes());
        let begun = Instant::now();
        self.socket.send_to(&packet, SWITCH).ok()?;
        let mut bytes = [0; 64];
        loop {
            let length = self.socket.recv(&mut bytes).ok()?;
            assert_eq!(length, 24);
            if bytes[3..8] == packet[3..8] {
                break;
            }
            if begun.elapsed() > PATIENCE {
                return None;
            }
        }
        let word = |at: usize| u32::from_be_bytes(bytes[at..at + 4].try_into().expect("a word"));
        let was = word(12);
        // (Three copies: a torn value shows.)
        assert_eq!((word(16), word(20)), (was.rotate_left(16), was), "key {key}");
        Some(([bytes[1] != 0, bytes[2] != 0], was))
    }

    /// Writes, and waits for the answer. A packet that removes a key which is not there writes
    /// nothing.
    fn write(&self, by: u32, places: &[Place], value: Option<u32>) -> Vec<Write> {
        let sent = Instant::now();
        let answer = match (places[0], value) {
            (Place::Key(key) | Place::Member(key), Some(value)) => self.ask(2, key, value),
            (Place::Key(key) | Place::Member(key), None) => self.ask(4, key, 0),
            (Place::Number(at), value) => self.ask(6, at, value.unwrap_or(0)),
        };
        let back = answer.map(|_| Instant::now());
        let was = answer.map_or([true; 2], |(was, _)| was);
        let writes = places.iter().zip(was).filter(|(_, was)| value.is_some() || *was);
        let made = writes.map(|(place, _)| {
            let value = value.map(|it| if matches!(place, Place::Member(_)) { 1 } else { it });
            Write { by, place: *place, value, sent, back, is_sure: back.is_some() }
        });
        made.collect()
    }

    /// A key of the table and of the set.
    pub fn write_key(&self, by: u32, key: u32, value: Option<u32>) -> Vec<Write> {
        self.write(by, &[Place::Key(key), Place::Member(key)], value)
    }

    /// Sets a key and removes it, again until both are answered.
    pub fn set_and_remove(&self, by: u32, key: u32, value: u32) -> Vec<Write> {
        let mut made = vec![];
        for _ in 0..20 {
            let both = [Some(value), None].map(|it| self.write_key(by, key, it)).concat();
            let is_done = both.len() == 4 && both.iter().all(|it| it.is_sure);
            made.extend(both);
            if is_done {
                return made;
            }
        }
        panic!("not all is answered: {made:#?}");
    }

    /// All keys and registers.
    pub fn read_all(&self) -> Values {
        let read = |op, key| (0..20).find_map(|_| self.ask(op, key, 0)).expect("an answer");
        let keys = (0..KEYS).flat_map(|key| {
            let ([found, is_member], was) = read(0, key);
            let values = [found.then_some(was), is_member.then_some(1)];
            [Place::Key(key), Place::Member(key)].into_iter().zip(values)
        });
        let numbers = (0..KEYS).map(|at| (Place::Number(at), Some(read(5, at).1)));
        keys.chain(numbers).collect()
    }
}

/// A host writes until `until`. Each value is another one.
pub fn write(lab: &TestLab, by: u32, seed: u32, until: Instant) -> JoinHandle<Vec<Write>> {
    let host = Host::of(lab, by);
    std::thread::spawn(move || {
        let mut made: Vec<Write> = vec![];
        for round in 0..50_000u32 {
            if Instant::now() >= until {
                break;
            }
            let random = (scrambled(u64::from(seed) << 40 | u64::from(by) << 32 | u64::from(round))
                >> 33) as u32;
            let at = random % KEYS;
            let value = by << 28 | (seed & 0xff) << 20 | round;
            made.extend(match random >> 16 & 7 {
                0..4 => host.write_key(by, at, Some(value)),
                4 | 5 => host.write_key(by, at, None),
                _ => host.write(by, &[Place::Number(at)], Some(value)),
            });
            std::thread::sleep(Duration::from_micros(500));
        }
        made
    })
}
