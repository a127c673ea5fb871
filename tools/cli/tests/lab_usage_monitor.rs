//! The usage monitor for real: users who send and receive, and switches that are killed by turns
//! meanwhile. What the hosts received decides: the store's counts have every byte of it, and no
//! account got more than its quota. Needs root. Waits for timers.

mod common;
#[path = "common/kills.rs"]
mod kills;

use common::{OUTSIDE, TestLab, env_number, one_at_a_time, skip, wait_for};
use kills::by_turns;
use rand::rngs::StdRng;
use rand::{Rng, SeedableRng};
use std::net::{Ipv4Addr, SocketAddr, UdpSocket};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

const PORT: u16 = 7000;
/// The users, each with its account: usage_monitor.toml.
const USERS: [(&str, &str); 5] = [
    ("10.1.0.17", "10.1.0.17"),
    ("10.1.0.18", "10.1.0.18"),
    ("10.1.0.19", "10.1.0.19"),
    ("10.1.0.33", "10.1.0.32"),
    ("10.1.0.34", "10.1.0.32"),
];
/// The accounts with their quotas in bytes.
const ACCOUNTS: [(&str, u64); 4] = [
    ("10.1.0.17", 200_000),
    ("10.1.0.18", 1_000_000_000_000),
    ("10.1.0.19", 1_000_000_000_000),
    ("10.1.0.32", 300_000),
];
/// Those whose quota is used up long before the end.
const SMALL: [&str; 2] = ["10.1.0.17", "10.1.0.32"];
/// Of each user, so that ECMP has both switches carry every account.
const SOCKETS: usize = 8;
/// Between two packets of the users together, and as many come back.
const PERIOD: Duration = Duration::from_millis(2);
/// Of UDP payload. Every fourth packet is one of the smallest, so that a quota ends full.
const PAYLOAD: std::ops::RangeInclusive<usize> = 1..=1000;
/// IPv4 and UDP headers.
const HEADERS: usize = 28;

/// Bytes of one user that were sent or arrived, in one direction.
#[derive(Default)]
struct Bytes {
    sent: AtomicU64,
    arrived: AtomicU64,
}

/// What the hosts know of each user: bytes from it, and to it; and of all packets.
#[derive(Default)]
struct Ledger {
    up: [Bytes; USERS.len()],
    down: [Bytes; USERS.len()],
    packets: AtomicU64,
}

impl Ledger {
    /// The bytes of an account's users.
    fn of(&self, account: &str, bytes: impl Fn(&Self, usize) -> u64) -> u64 {
        let users = (0..USERS.len()).filter(|user| USERS[*user].1 == account);
        users.map(|user| bytes(self, user)).sum()
    }
}

fn add(to: &AtomicU64, payload: usize) {
    to.fetch_add((payload + HEADERS) as u64, Ordering::Relaxed);
}

/// Which user has this address.
fn user(address: Ipv4Addr) -> usize {
    let found = USERS.iter().position(|(user, _)| address.to_string() == **user);
    found.unwrap_or_else(|| panic!("{address} is no user's"))
}

fn payload(random: &mut StdRng) -> Vec<u8> {
    let smallest = random.random_range(0..4) == 0;
    vec![7; if smallest { *PAYLOAD.start() } else { random.random_range(PAYLOAD) }]
}

fn bind(lab: &TestLab, node: &str, address: (&str, u16)) -> UdpSocket {
    let socket = lab.netns(node).run(|| UdpSocket::bind(address)).expect("bind");
    socket.set_read_timeout(Some(Duration::from_millis(20))).expect("timeout");
    common::roomy(&socket);
    socket
}

/// The hosts' threads, and their common ledger.
struct Traffic {
    ledger: Arc<Ledger>,
    /// Nobody sends any more; nothing comes any more.
    quiet: Arc<AtomicBool>,
    over: Arc<AtomicBool>,
    threads: Vec<JoinHandle<()>>,
}

impl Traffic {
    fn start(lab: &TestLab, seed: u64) -> Traffic {
        let mut traffic = Traffic {
            ledger: Arc::default(),
            quiet: Arc::default(),
            over: Arc::default(),
            threads: vec![],
        };
        // One after the other of each user, so that they can send by turns.
        let all = (0..SOCKETS).flat_map(|_| USERS);
        let users: Vec<UdpSocket> = all.map(|(user, _)| bind(lab, "inside", (user, 0))).collect();
        let arriving = lab.netns("inside").run(lab::raw::udp_with_headers).expect("raw socket");
        traffic.receive(arriving);
        traffic.answer(bind(lab, "outside", (OUTSIDE, PORT)), seed + 1);
        traffic.send(users, seed);
        traffic
    }

    /// Users' packets arrive.
    fn receive(&mut self, socket: UdpSocket) {
        let (ledger, over) = (Arc::clone(&self.ledger), Arc::clone(&self.over));
        self.threads.push(std::thread::spawn(move || {
            let mut packet = [0; 2048];
            while !over.load(Ordering::Relaxed) {
                let Ok(length) = socket.recv(&mut packet) else { continue };
                if packet[20..22] == PORT.to_be_bytes() {
                    let to = Ipv4Addr::new(packet[16], packet[17], packet[18], packet[19]);
                    add(&ledger.down[user(to)].arrived, length - HEADERS);
                    ledger.packets.fetch_add(1, Ordering::Relaxed);
                }
            }
        }));
    }

    /// Whatever arrives at the server is answered with a packet of another size.
    fn answer(&mut self, socket: UdpSocket, seed: u64) {
        let (ledger, over) = (Arc::clone(&self.ledger), Arc::clone(&self.over));
        let mut random = StdRng::seed_from_u64(seed);
        self.threads.push(std::thread::spawn(move || {
            let mut packet = [0; 2048];
            while !over.load(Ordering::Relaxed) {
                let Ok((length, from)) = socket.recv_from(&mut packet) else { continue };
                let SocketAddr::V4(user_at) = from else { panic!("{from}") };
                let user = user(*user_at.ip());
                add(&ledger.up[user].arrived, length);
                ledger.packets.fetch_add(1, Ordering::Relaxed);
                let answer = payload(&mut random);
                add(&ledger.down[user].sent, answer.len());
                // While a route is away, sending fails.
                let _ = socket.send_to(&answer, from);
            }
        }));
    }

    /// The users send by turns.
    fn send(&mut self, users: Vec<UdpSocket>, seed: u64) {
        let (ledger, quiet) = (Arc::clone(&self.ledger), Arc::clone(&self.quiet));
        let over = Arc::clone(&self.over);
        let to: SocketAddr = (OUTSIDE.parse::<std::net::IpAddr>().expect("address"), PORT).into();
        let mut random = StdRng::seed_from_u64(seed);
        self.threads.push(std::thread::spawn(move || {
            let start = Instant::now();
            for turn in 0.. {
                if quiet.load(Ordering::Relaxed) {
                    break;
                }
                let packet = payload(&mut random);
                add(&ledger.up[turn % USERS.len()].sent, packet.len());
                let _ = users[turn % users.len()].send_to(&packet, to);
                let due = PERIOD * (turn as u32 + 1);
                std::thread::sleep(due.saturating_sub(start.elapsed()));
            }
            // To a late answer a closed socket's host would say ICMP "port unreachable", which
            // counts as the user's.
            while !over.load(Ordering::Relaxed) {
                std::thread::sleep(PERIOD);
            }
        }));
    }

    /// Ends, when all that is on its way has arrived or is lost.
    fn finish(self, lab: &TestLab) -> Arc<Ledger> {
        self.quiet.store(true, Ordering::Relaxed);
        let packets = || self.ledger.packets.load(Ordering::Relaxed);
        let (mut before, mut since) = (packets(), Instant::now());
        wait_for("no packet arrives", || {
            if packets() != before {
                (before, since) = (packets(), Instant::now());
            }
            since.elapsed() > Duration::from_millis(700)
        });
        lab.equal_stores();
        self.over.store(true, Ordering::Relaxed);
        for thread in self.threads {
            thread.join().expect("a host");
        }
        self.ledger
    }
}

/// An account's record in the store.
struct Usage(serde_json::Value);

impl Usage {
    fn of(lab: &TestLab, account: &str) -> Usage {
        let found = lab.state(0, "usage_monitor.json", &format!("get account={account}"));
        let one = found.as_array().filter(|all| all.len() == 1);
        Usage(one.unwrap_or_else(|| panic!("{account}: {found}"))[0]["value"].clone())
    }

    fn get(&self, field: &str) -> u64 {
        common::counting::number(self.0[field].as_str().unwrap_or_else(|| panic!("{}", self.0)))
    }
}

/// No byte that arrived is missing in the count, none is in it that nobody sent, and no quota was
/// exceeded.
fn check(lab: &TestLab, ledger: &Ledger) {
    let load = |bytes: &AtomicU64| bytes.load(Ordering::Relaxed);
    for (account, quota) in ACCOUNTS {
        let usage = Usage::of(lab, account);
        assert_eq!(usage.get("period"), 1, "{account}");
        let sides = [
            (
                usage.get("sent"),
                ledger.of(account, |it, user| load(&it.up[user].arrived)),
                ledger.of(account, |it, user| load(&it.up[user].sent)),
            ),
            (
                usage.get("received"),
                ledger.of(account, |it, user| load(&it.down[user].arrived)),
                ledger.of(account, |it, user| load(&it.down[user].sent)),
            ),
        ];
        for (counted, arrived, sent) in sides {
            assert!(
                arrived > 0 && arrived <= counted && counted <= sent,
                "{account}: {arrived} bytes arrived, {counted} counted, {sent} sent"
            );
        }
        let [counted, arrived] = [sides[0].0 + sides[1].0, sides[0].1 + sides[1].1];
        println!("{account}: {counted} bytes counted, {arrived} arrived, quota {quota}");
        assert!(counted <= quota, "{account}: {counted} bytes of {quota}");
        // The smallest packet does not fit any more.
        let least = (PAYLOAD.start() + HEADERS) as u64;
        assert!(!SMALL.contains(&account) || quota - counted < least, "{account}: {counted}");
        assert!(arrived * 10 >= counted * 7, "{account}: {arrived} of {counted} bytes arrived");
    }
}

/// A newer period in the table begins a new count; the store keeps the count of the one before.
fn next_period(lab: &TestLab) {
    let before = Usage::of(lab, "10.1.0.18");
    for switch in ["s1", "s2"] {
        let name = format!("{}-{switch}", lab.name);
        common::must(&[
            "table",
            "add",
            "UsageIngress.accounts",
            "user.address=10.1.0.16/28",
            "-a",
            "UsageIngress.each",
            "quota_bytes=1000",
            "period_number=2",
            "--replace",
            "--switch",
            &name,
        ]);
    }
    // (Without it the server's host would answer with an ICMP error, which is counted.)
    let _server = bind(lab, "outside", (OUTSIDE, PORT));
    let socket = bind(lab, "inside", ("10.1.0.18", 0));
    socket.send_to(&[7; 100], (OUTSIDE, PORT)).expect("send");
    wait_for("the new period begins", || Usage::of(lab, "10.1.0.18").get("period") == 2);
    lab.equal_stores();
    let after = Usage::of(lab, "10.1.0.18");
    assert_eq!((after.get("sent"), after.get("received")), (128, 0));
    for (field, kept) in
        [("sent", "sent_before"), ("received", "received_before"), ("period", "period_before")]
    {
        assert_eq!(after.get(kept), before.get(field), "{kept}");
    }
}

fn bytes_over_kills(name: &str, commit: &str, kills: u64) {
    let set = format!("commit={commit}");
    let lab = TestLab::up(name, "usage_monitor.toml", &["--prefer", "", "--set", &set]);
    wait_for("both switches are used", || lab.both_used("10.1.0.0/24"));
    let seed = env_number("SEED").unwrap_or(21);
    println!("seed {seed}, {commit}");
    let traffic = Traffic::start(&lab, seed);
    let ledger = Arc::clone(&traffic.ledger);
    by_turns(&lab, kills, ("counted", 300), || ledger.packets.load(Ordering::Relaxed));
    // (Two quotas are used up by now, and refused what came after that.)
    let refused = ["s1", "s2"].map(|switch| lab.counter(switch, "over_quota"));
    let ledger = traffic.finish(&lab);
    check(&lab, &ledger);
    assert!(refused.iter().sum::<u64>() > 0, "{refused:?} packets were over their quota");
    next_period(&lab);
    lab.down();
}

#[test]
fn every_byte_that_left_is_counted_and_no_quota_exceeded() {
    if skip() {
        return;
    }
    let _turn = one_at_a_time();
    bytes_over_kills("usage", "wrap", 2);
}

/// KILLS=N: so many for each way to wait; COMMIT=wrap or batch: only this one; SEED=N: other sizes.
#[test]
#[ignore = "takes minutes"]
fn many_kills() {
    kills::many_kills(|commit, kills| bytes_over_kills("usages", commit, kills));
}
