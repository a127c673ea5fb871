//! The key-value store in the switches, for real: clients on both sides read and write shared and
//! own keys while a switch dies and returns, and every reply is held against what linearizable
//! means. Needs root. Waits for timers.

mod common;

use common::{INSIDE, OUTSIDE, TestLab, one_at_a_time, skip, wait_for};
use std::collections::BTreeMap;
use std::net::UdpSocket;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

const SERVICE: (&str, u16) = ("10.99.0.1", 5409);
const READ: u8 = 1;
const UPDATE: u8 = 2;
const COMPARE_AND_SET: u8 = 3;
const DONE: u8 = 1;
const ABSENT: u8 = 2;
const CONFLICT: u8 = 3;
/// Each client has a key of its own, and now and then they all write this one.
const SHARED: u64 = 1_000;
const CLIENTS: u64 = 6;
/// Each client asks from so many ports by turns.
const PORTS: u64 = 7;

/// A request or a reply: systems/redplane/docs/apps/key_value.md.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Message {
    operation: u8,
    status: u8,
    request: u32,
    key: u64,
    version: u64,
    value: u64,
}

impl Message {
    fn encode(self) -> Vec<u8> {
        let mut bytes = b"KV".to_vec();
        bytes.extend([self.operation, self.status]);
        bytes.extend(self.request.to_be_bytes());
        bytes.extend(u128::from(self.key).to_be_bytes());
        bytes.extend(self.version.to_be_bytes());
        bytes.extend([0; 16]);
        bytes.extend(u128::from(self.value).to_be_bytes());
        bytes
    }

    fn decode(bytes: &[u8]) -> Message {
        assert!(bytes.len() == 64 && bytes.starts_with(b"KV"), "{bytes:?}");
        let word =
            |at: usize| bytes[at..at + 8].iter().fold(0, |word, byte| word << 8 | u64::from(*byte));
        Message {
            operation: bytes[2],
            status: bytes[3],
            request: word(0) as u32,
            key: word(16),
            version: word(24),
            value: word(56),
        }
    }
}

/// One operation that got its reply.
struct Operation {
    /// When its first request was sent, and when its reply came.
    from: Instant,
    to: Instant,
    /// What was asked, and what was answered.
    asked: Message,
    reply: Message,
    /// Requests sent; a write may have been carried out up to so many times.
    tries: u32,
}

struct Client {
    socket: UdpSocket,
    requests: u32,
}

impl Client {
    fn new(lab: &TestLab, node: &str) -> Client {
        let address = if node == "inside" { INSIDE } else { OUTSIDE };
        let socket = lab.netns(node).run(|| UdpSocket::bind((address, 0))).expect("bind");
        socket.set_read_timeout(Some(Duration::from_millis(100))).expect("timeout");
        Client { socket, requests: 0 }
    }

    /// Asks until there is a reply to this very request.
    fn ask(&mut self, operation: u8, key: u64, version: u64, value: u64) -> Operation {
        self.requests += 1;
        let asked = Message { operation, status: 0, request: self.requests, key, version, value };
        let from = Instant::now();
        for tries in 1..200 {
            // While a route is away, sending fails; the next try follows.
            let _ = self.socket.send_to(&asked.encode(), SERVICE);
            let mut buffer = [0; 128];
            while let Ok(length) = self.socket.recv(&mut buffer) {
                let reply = Message::decode(&buffer[..length]);
                if reply.request == asked.request {
                    return Operation { from, to: Instant::now(), asked, reply, tries };
                }
            }
        }
        panic!("no reply to {asked:?} within 20 s");
    }
}

/// A client's work until it is stopped: writes and reads of its own key, and of the shared one.
fn work(lab: &TestLab, number: u64, stop: &Arc<AtomicBool>) -> JoinHandle<Vec<Operation>> {
    // ECMP picks a switch by the client's port. With one port a client, all six went by the same
    // switch in one run of 32, and the other served nothing.
    let mut clients = vec![];
    for _ in 0..PORTS {
        clients.push(Client::new(lab, if number.is_multiple_of(2) { "inside" } else { "outside" }));
    }
    let stop = Arc::clone(stop);
    std::thread::spawn(move || {
        let mut done = Vec::new();
        for round in 1u64.. {
            if stop.load(Ordering::Relaxed) {
                break;
            }
            let key = if round.is_multiple_of(10) { SHARED } else { number };
            // The value says who wrote it, and when.
            let value = number << 32 | round;
            let client = &mut clients[(round % PORTS) as usize];
            done.push(if round.is_multiple_of(4) || round.is_multiple_of(20) {
                client.ask(UPDATE, key, 0, value)
            } else {
                client.ask(READ, key, 0, 0)
            });
            std::thread::sleep(Duration::from_millis(2));
        }
        done
    })
}

/// Every write has a version of its own; a read gives the value of the version that it names; and
/// nobody sees less than what was replied before he asked.
fn check(operations: &[Operation]) {
    let mut by_key: BTreeMap<u64, Vec<&Operation>> = BTreeMap::new();
    for operation in operations {
        assert_eq!(operation.reply.key, operation.asked.key);
        by_key.entry(operation.asked.key).or_default().push(operation);
    }
    for (key, mut operations) in by_key {
        let mut values = BTreeMap::new();
        let (mut writes, mut tries) = (0, 0);
        for operation in operations.iter().filter(|operation| operation.asked.operation == UPDATE) {
            let reply = operation.reply;
            assert_eq!((reply.status, reply.value), (DONE, operation.asked.value), "{reply:?}");
            assert_eq!(
                values.insert(reply.version, reply.value),
                None,
                "key {key}: version {} twice",
                reply.version
            );
            writes += 1;
            tries += u64::from(operation.tries);
        }
        let last = operations.iter().map(|operation| operation.reply.version).max().unwrap_or(0);
        assert!(
            (writes..=tries).contains(&last),
            "key {key}: version {last} of {writes} writes, {tries} requests"
        );
        for operation in operations.iter().filter(|operation| operation.asked.operation == READ) {
            let reply = operation.reply;
            match reply.version {
                0 => assert_eq!((reply.status, reply.value), (ABSENT, 0), "{reply:?}"),
                // A version that no reply named was written by a request whose reply got lost.
                version => assert_eq!(
                    values.get(&version).copied().unwrap_or(reply.value),
                    reply.value,
                    "{reply:?}"
                ),
            }
        }
        // In the order of asking: the highest version replied before each.
        let mut by_reply = operations.clone();
        by_reply.sort_by_key(|operation| operation.to);
        operations.sort_by_key(|operation| operation.from);
        let (mut replied, mut known) = (by_reply.into_iter().peekable(), 0);
        for operation in operations {
            while let Some(earlier) = replied.next_if(|earlier| earlier.to < operation.from) {
                known = earlier.reply.version.max(known);
            }
            let least = if operation.asked.operation == READ { known } else { known + 1 };
            let reply = operation.reply;
            assert!(
                reply.version >= least,
                "key {key}: {reply:?} after version {known} had been replied"
            );
        }
        println!("key {key}: {writes} writes in {tries} requests, version {last}");
    }
}

#[test]
fn every_reply_is_linearizable_while_a_switch_dies_and_returns() {
    if skip() {
        return;
    }
    let _turn = one_at_a_time();
    let lab = TestLab::up("key-value", "key_value.toml", &[]);
    wait_for("both switches are used", || lab.both_used("10.1.0.0/24"));
    let mut client = Client::new(&lab, "inside");

    // The operations one by one.
    let one = |operation: Operation| {
        (operation.reply.status, operation.reply.version, operation.reply.value)
    };
    assert_eq!(one(client.ask(READ, 1 << 40, 0, 0)), (ABSENT, 0, 0));
    let (_, version, _) = one(client.ask(UPDATE, 1 << 40, 0, 7));
    assert!(version >= 1);
    assert_eq!(one(client.ask(READ, 1 << 40, 0, 0)), (DONE, version, 7));
    assert_eq!(one(client.ask(COMPARE_AND_SET, 1 << 40, version + 9, 8)), (CONFLICT, version, 7));
    assert_eq!(client.ask(COMPARE_AND_SET, 1 << 40, version, 8).reply.value, 8);
    // From the other side, by whichever switch.
    assert_eq!(Client::new(&lab, "outside").ask(READ, 1 << 40, 0, 0).reply.value, 8);

    let stop = Arc::new(AtomicBool::new(false));
    let workers: Vec<_> = (0..CLIENTS).map(|number| work(&lab, number, &stop)).collect();
    let served = |switch: &str| lab.counter(switch, "reads") + lab.counter(switch, "writes");
    let serves = |switch: &str| {
        let before = served(switch);
        wait_for(&format!("{switch} serves"), || served(switch) > before + 100);
    };
    serves("s1");
    serves("s2");
    lab.fail("s1");
    serves("s2");
    lab.restore("s1");
    wait_for("both switches are used", || lab.both_used("10.1.0.0/24"));
    serves("s1");
    stop.store(true, Ordering::Relaxed);
    let operations: Vec<Operation> =
        workers.into_iter().flat_map(|worker| worker.join().expect("a client")).collect();
    println!("{} operations", operations.len());
    check(&operations);
    assert_eq!(lab.equal_stores(), CLIENTS + 2, "each client's key, the shared one, and the first");
    lab.down();
}
