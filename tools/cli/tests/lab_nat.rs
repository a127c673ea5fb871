//! The NAT lab for real: the compiled NAT on two switches, the replicated store, BIRD, and
//! failures. Needs root. Waits for timers.

mod common;

use common::{
    Connections, INSIDE, OUTSIDE, TestLab, one_at_a_time, skip, tcp_echo, udp_echo, wait_for,
};
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use std::collections::BTreeSet;
use std::io::{ErrorKind, Read, Write};
use std::net::{Ipv4Addr, Shutdown, TcpListener, TcpStream, UdpSocket};
use std::os::fd::AsRawFd;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

const POOL: &str = "203.0.113.0/28";

/// Every IPv4 address that a host's interface carries, in packets and in the packets that ICMP
/// errors quote.
struct Capture {
    stop: Arc<AtomicBool>,
    thread: JoinHandle<BTreeSet<Ipv4Addr>>,
}

impl Capture {
    fn start(lab: &TestLab, node: &str) -> Self {
        let socket = lab.netns(node).run(lab::raw::all_packets).expect("packet socket");
        let stop = Arc::new(AtomicBool::new(false));
        let stopped = Arc::clone(&stop);
        let thread = std::thread::spawn(move || {
            let mut seen = BTreeSet::new();
            let mut packet = [0; 2048];
            loop {
                match socket.recv(&mut packet) {
                    Ok(length) => addresses(&packet[..length], &mut seen),
                    Err(_) if stopped.load(Ordering::Relaxed) => return seen,
                    Err(_) => {}
                }
            }
        });
        Self { stop, thread }
    }

    fn finish(self) -> BTreeSet<Ipv4Addr> {
        self.stop.store(true, Ordering::Relaxed);
        self.thread.join().expect("the capture ends")
    }
}

fn addresses(packet: &[u8], seen: &mut BTreeSet<Ipv4Addr>) {
    if packet.len() < 20 || packet[0] >> 4 != 4 {
        return;
    }
    for at in [12, 16] {
        seen.insert(Ipv4Addr::new(packet[at], packet[at + 1], packet[at + 2], packet[at + 3]));
    }
    let header = usize::from(packet[0] & 15) * 4;
    if packet[9] == 1 && packet.len() > header + 8 && matches!(packet[header], 3 | 11 | 12) {
        addresses(&packet[header + 8..], seen);
    }
}

/// Byte `at` of the stream that connection `n` carries.
fn pattern(n: u32, at: u32) -> u8 {
    let x = (at ^ n.wrapping_mul(0x9e37_79b9)).wrapping_mul(0x85eb_ca6b);
    (x ^ (x >> 15)) as u8
}

/// Sends `bytes` bytes over each of `count` connections at once to `outside`, which checks every
/// byte.
fn transfer(lab: &TestLab, count: u32, bytes: u32) {
    let listener = lab.netns("outside").run(|| TcpListener::bind((OUTSIDE, 8001))).expect("bind");
    let receiver = std::thread::spawn(move || {
        let receive = |mut stream: TcpStream| {
            let mut n = [0; 4];
            stream.read_exact(&mut n).expect("number");
            let n = u32::from_be_bytes(n);
            let (mut at, mut buffer) = (0, vec![0; 64 * 1024]);
            loop {
                let length = stream.read(&mut buffer).expect("data");
                if length == 0 {
                    return at;
                }
                for byte in &buffer[..length] {
                    assert_eq!(*byte, pattern(n, at), "connection {n}, byte {at}");
                    at += 1;
                }
            }
        };
        let threads: Vec<_> = (0..count)
            .map(|_| {
                let (stream, from) = listener.accept().expect("accept");
                assert!(from.ip().to_string().starts_with("203.0.113."), "{from}");
                std::thread::spawn(move || receive(stream))
            })
            .collect();
        threads.into_iter().map(|t| t.join().expect("intact")).collect::<Vec<u32>>()
    });
    let senders: Vec<_> = (0..count)
        .map(|n| {
            let mut stream =
                lab.netns("inside").run(|| TcpStream::connect((OUTSIDE, 8001))).expect("connect");
            std::thread::spawn(move || {
                let data: Vec<u8> = (0..bytes).map(|at| pattern(n, at)).collect();
                stream
                    .write_all(&n.to_be_bytes())
                    .and_then(|()| stream.write_all(&data))
                    .expect("send");
                stream.shutdown(Shutdown::Write).expect("shutdown");
            })
        })
        .collect();
    for sender in senders {
        sender.join().expect("the sender ends");
    }
    assert_eq!(receiver.join().expect("the receiver ends"), vec![bytes; count as usize]);
}

/// Sends one datagram from a connected socket until the kernel reports an ICMP error for it.
fn icmp_error(socket: &UdpSocket, data: &[u8]) -> ErrorKind {
    socket.set_read_timeout(Some(Duration::from_secs(2))).expect("timeout");
    for _ in 0..3 {
        if let Err(error) = socket.send(data) {
            return error.kind();
        }
        match socket.recv(&mut [0; 8]) {
            Err(error) if error.kind() != ErrorKind::WouldBlock => return error.kind(),
            _ => {}
        }
    }
    panic!("no ICMP error came back");
}

fn option(socket: &UdpSocket, level: i32, name: i32, value: i32) {
    // SAFETY: the descriptor is open, and the value is an int that lives through the call.
    let result = unsafe {
        libc::setsockopt(
            socket.as_raw_fd(),
            level,
            name,
            (&raw const value).cast(),
            size_of::<i32>() as u32,
        )
    };
    assert_eq!(result, 0, "{}", std::io::Error::last_os_error());
}

#[test]
fn translates_both_ways_and_hides_the_inside() {
    if skip() {
        return;
    }
    let _turn = one_at_a_time();
    let lab = TestLab::up("translate", "nat.toml", &[]);
    wait_for("both switches are used", || lab.both_used(POOL));
    let capture = Capture::start(&lab, "outside");

    // TCP through both switches, every byte checked.
    let before: Vec<u64> = ["s1", "s2"].iter().map(|s| lab.counter(s, "translated_out")).collect();
    transfer(&lab, 16, 50_000_000 / 16);
    for (switch, before) in ["s1", "s2"].iter().zip(before) {
        let frames = lab.counter(switch, "translated_out") - before;
        assert!(frames > 1000, "{switch} carried {frames} frames only");
    }

    // UDP and ping; the outside sees a pool address.
    let echo = udp_echo(&lab, 9000);
    let inside = lab.netns("inside");
    for n in 0..50_u8 {
        let socket = inside.run(|| UdpSocket::bind((INSIDE, 0))).expect("bind");
        socket.set_read_timeout(Some(Duration::from_secs(2))).expect("timeout");
        socket.send_to(&[n], echo).expect("send");
        let mut answer = [0; 2];
        assert_eq!(socket.recv_from(&mut answer).expect("answer"), (1, echo));
        assert_eq!(answer[0], n);
    }
    lab.must_run("inside", &format!("ping -c3 -i0.2 -W1 {OUTSIDE}"));

    // ICMP errors: from the switch itself, from a router beyond it, from the host.
    let said = |ttl: u8| lab.run("inside", &format!("ping -c1 -W2 -t{ttl} {OUTSIDE}")).1;
    let (at_switch, at_core) = (said(2), said(3));
    let from_switch = at_switch.contains("From 10.0.3.1 ") || at_switch.contains("From 10.0.4.1 ");
    assert!(from_switch && at_switch.contains("Time to live exceeded"), "{at_switch}");
    let from_core = at_core.contains("From 10.0.1.1 ") || at_core.contains("From 10.0.2.1 ");
    assert!(from_core && at_core.contains("Time to live exceeded"), "{at_core}");
    let closed = inside.run(|| {
        let socket = UdpSocket::bind((INSIDE, 0))?;
        socket.connect((OUTSIDE, 9999))?;
        Ok(socket)
    });
    assert_eq!(icmp_error(&closed.expect("socket"), b"x"), ErrorKind::ConnectionRefused);
    lab.must_run("core", "ip link set outside mtu 1400");
    let large = inside.run(|| {
        let socket = UdpSocket::bind((INSIDE, 0))?;
        socket.connect(echo)?;
        Ok(socket)
    });
    let large = large.expect("socket");
    option(&large, libc::IPPROTO_IP, libc::IP_MTU_DISCOVER, libc::IP_PMTUDISC_DO);
    let error = std::io::Error::from_raw_os_error(libc::EMSGSIZE).kind();
    assert_eq!(icmp_error(&large, &[0; 1450]), error, "frag needed");
    let route = lab.must_run("inside", &format!("ip route get {OUTSIDE}"));
    assert!(route.contains("mtu 1400"), "{route}");
    lab.must_run("core", "ip link set outside mtu 1500");

    // The same inwards: a router behind the NAT answers, and the outside sees the pool's address
    // instead of the router's.
    let bind = || UdpSocket::bind((OUTSIDE, 9500));
    let server = lab.netns("outside").run(bind).expect("bind");
    server.set_read_timeout(Some(Duration::from_secs(2))).expect("timeout");
    large.connect((OUTSIDE, 9500)).expect("connect");
    large.send(b"x").expect("send");
    let (_, from) = server.recv_from(&mut [0; 8]).expect("request");
    server.connect(from).expect("connect");
    option(&server, libc::IPPROTO_IP, libc::IP_RECVERR, 1);
    option(&server, libc::IPPROTO_IP, libc::IP_TTL, 3);
    assert_eq!(icmp_error(&server, b"x"), ErrorKind::HostUnreachable, "time exceeded at tor");

    // A packet that no binding knows gets nowhere and is counted.
    let unknown = || lab.counter("s1", "unknown_inbound") + lab.counter("s2", "unknown_inbound");
    let before = unknown();
    let stranger = lab.netns("outside").run(|| UdpSocket::bind((OUTSIDE, 0))).expect("bind");
    for port in 0..40 {
        stranger.send_to(b"x", ("203.0.113.5", 2000 + port)).expect("send");
    }
    wait_for("40 unknown packets are counted", || unknown() - before == 40);

    let seen = capture.finish();
    let private: Vec<_> = seen.iter().filter(|a| a.is_private()).collect();
    assert!(private.is_empty(), "the outside saw {private:?}");
    assert!(seen.iter().any(|a| a.octets()[..3] == [203, 0, 113]), "the capture works: {seen:?}");
    assert!(lab.equal_stores() > 100);
    lab.down();
}

#[test]
fn connections_outlive_a_switch_and_a_link() {
    if skip() {
        return;
    }
    let _turn = one_at_a_time();
    let lab = TestLab::up("failover", "nat.toml", &[]);
    wait_for("both switches are used", || lab.both_used(POOL));
    let mut connections = Connections::open(&lab, tcp_echo(&lab, 8000), 20);
    let records = lab.equal_stores();
    assert!(records >= 40, "20 bindings are 40 records, not {records}");
    assert!(["s1", "s2"].iter().all(|s| lab.counter(s, "translated_out") > 0), "both carry some");

    lab.fail("s1");
    connections.all_answer("s1 is dead");
    lab.restore("s1");
    // Its maps and its run directory are gone, but it knows the store before its routes bring the
    // first packet.
    let opened = lab::Lab::open(&lab.name).expect("lab");
    let log = std::fs::read_to_string(opened.log("s1", "switch")).expect("log");
    assert!(log.contains("of an earlier agent, until a controller answers"), "{log}");
    wait_for("both switches are used", || lab.both_used(POOL));
    connections.all_answer("s1 is back");
    assert!(lab.counter("s1", "translated_out") > 0, "s1 carries some again");
    assert_eq!(lab.equal_stores(), records, "the same bindings as before");

    // A partial failure: s1 lives, but has no way to the outside.
    lab.link("down", "core", "s1");
    connections.all_answer("core-s1 is down");
    assert!(lab.switch("s1").is_some(), "s1's agent lives");
    lab.link("up", "core", "s1");
    wait_for("both switches are used", || lab.both_used(POOL));
    connections.all_answer("core-s1 is up");
    assert_eq!(lab.equal_stores(), records, "the same bindings as before");
    lab.down();
}

/// 1000 numbered datagrams a second to an echo server, and when each came back.
struct Stream {
    stop: Arc<AtomicBool>,
    thread: JoinHandle<Vec<Option<Duration>>>,
}

const PERIOD: Duration = Duration::from_millis(1);

impl Stream {
    fn start(lab: &TestLab, port: u16) -> Self {
        let echo = udp_echo(lab, port);
        let socket = lab.netns("inside").run(|| UdpSocket::bind((INSIDE, 0))).expect("bind");
        socket.connect(echo).expect("connect");
        common::roomy(&socket);
        let answers = socket.try_clone().expect("clone");
        answers.set_read_timeout(Some(Duration::from_millis(500))).expect("timeout");
        let stop = Arc::new(AtomicBool::new(false));
        let (stopped, ended) = (Arc::clone(&stop), Arc::clone(&stop));
        let start = Instant::now();
        let sender = std::thread::spawn(move || {
            let mut sent = Vec::new();
            while !stopped.load(Ordering::Relaxed) {
                let n = sent.len() as u32;
                sent.push(start.elapsed());
                socket.send(&n.to_be_bytes()).expect("send");
                std::thread::sleep((PERIOD * (n + 1)).saturating_sub(start.elapsed()));
            }
            sent
        });
        let thread = std::thread::spawn(move || {
            let mut back = Vec::new();
            let mut number = [0; 4];
            // A silence ends it only when no more is sent: what comes after an outage is not lost.
            loop {
                let over = ended.load(Ordering::Relaxed);
                match answers.recv(&mut number) {
                    Ok(_) => back.push((u32::from_be_bytes(number) as usize, start.elapsed())),
                    Err(_) if over => break,
                    Err(_) => {}
                }
            }
            let sent = sender.join().expect("the sender ends");
            let mut delays = vec![None; sent.len()];
            for (n, at) in back {
                delays[n] = Some(at - sent[n]);
            }
            delays
        });
        Self { stop, thread }
    }

    /// The delay of each datagram; `None` for those that did not come back.
    fn finish(self) -> Vec<Option<Duration>> {
        self.stop.store(true, Ordering::Relaxed);
        self.thread.join().expect("the receiver ends")
    }
}

/// A link moves traffic while both switches live: the flows are recalled, also those that have just
/// begun.
#[test]
fn a_flow_moves_between_living_switches() {
    if skip() {
        return;
    }
    let _turn = one_at_a_time();
    let lab = TestLab::up("recall", "nat.toml", &["--prefer", "s1"]);
    wait_for("s1 is preferred", || {
        !lab.must_run("core", &format!("ip route show {POOL}")).contains("nexthop")
    });
    let mut connections = Connections::open(&lab, tcp_echo(&lab, 8000), 20);
    for (state, taker) in [("down", "s2"), ("up", "s1")] {
        let stream = Stream::start(&lab, if state == "down" { 9000 } else { 9001 });
        let recalled = |lab: &TestLab| lab.event("s1", "recalled") + lab.event("s2", "recalled");
        let (recalled_before, carried) = (recalled(&lab), lab.counter(taker, "translated_out"));
        lab.link(state, "core", "s1");
        wait_for("the other switch carries the stream", || {
            lab.counter(taker, "translated_out") > carried + 500
        });
        connections.all_answer("the link moved");
        let delays = stream.finish();
        let silence = delays.split(Option::is_some).map(<[_]>::len).max().unwrap_or(0);
        report(&format!("core-s1 {state}: longest silence {silence} ms"), &delays);
        let handed_over = recalled(&lab) - recalled_before;
        println!("{handed_over} recalled");
        let met: Vec<_> = [
            "recalled",
            "recalled_unknown",
            "late",
            "malformed",
            "bad_tag",
            "no_route",
            "heartbeats",
        ]
        .map(|event| (event, lab.event("s1", event), lab.event("s2", event)))
        .to_vec();
        assert!(handed_over > 0, "the flows were handed over: {met:?}");
    }
    lab.equal_stores();
    lab.down();
}

#[test]
fn forwarding_goes_on_without_the_agent() {
    if skip() {
        return;
    }
    let _turn = one_at_a_time();
    let lab = TestLab::up("agent", "nat.toml", &["--prefer", "s1"]);
    wait_for("s1 is preferred", || {
        !lab.must_run("core", &format!("ip route show {POOL}")).contains("nexthop")
    });
    let mut connections = Connections::open(&lab, tcp_echo(&lab, 8000), 20);
    let before = lab.switch("s1").expect("s1's agent");
    let pid = before["pid"].as_i64().expect("pid") as i32;
    let table = |lab: &TestLab| {
        common::must(&["table", "list", "inside", "--switch", &format!("{}-s1", lab.name)])
    };
    let entries = table(&lab);
    assert!(entries.contains("10.0.0.0/8"), "{entries}");

    let stream = Stream::start(&lab, 9000);
    wait_for("the agent prolongs its session", || lab.event("s1", "heartbeats") > 2);
    kill(Pid::from_raw(pid), Signal::SIGKILL).expect("kill");
    wait_for("the agent is gone", || lab.switch("s1").is_none());
    // Five seconds are twenty leases: without the generator, each is renewed by a packet that is
    // parked.
    let dead_since = Instant::now();
    while dead_since.elapsed() < Duration::from_secs(5) {
        connections.all_answer("the agent is dead");
        std::thread::sleep(Duration::from_millis(100));
    }
    let opened_meanwhile = Connections::open(&lab, tcp_echo(&lab, 8010), 3);
    let delays = stream.finish();
    report("agent dead", &delays);
    let lost = delays.iter().filter(|d| d.is_none()).count();
    assert!(delays.len() > 4000, "{} datagrams sent", delays.len());
    assert_eq!(lost, 0, "of {}", delays.len());

    // The next agent takes the running program over, and nothing is lost by that either.
    let stream = Stream::start(&lab, 9001);
    let config = lab::Lab::open(&lab.name).expect("lab").node_dir("s1").join("switch.toml");
    let words = [
        env!("CARGO_BIN_EXE_stateplane"),
        "switch",
        "--config",
        config.to_str().expect("UTF-8 path"),
    ];
    let log = config.with_file_name("switch.log");
    lab::process::spawn(&lab.netns("s1"), &words.map(str::to_string), &log)
        .expect("the agent starts");
    wait_for("the agent answers", || lab.switch("s1").is_some());
    let after = lab.switch("s1").expect("s1's agent");
    assert_eq!(after["how"], "took over");
    assert_eq!(after["incarnation"], before["incarnation"]);
    assert_eq!(table(&lab), entries);
    let heartbeats = lab.event("s1", "heartbeats");
    wait_for("the new agent prolongs the session", || {
        lab.event("s1", "heartbeats") > heartbeats + 3
    });
    let delays = stream.finish();
    report("agent restarted", &delays);
    assert_eq!(delays.iter().filter(|d| d.is_none()).count(), 0, "of {}", delays.len());
    connections.all_answer("the agent is back");
    drop(opened_meanwhile);
    lab.equal_stores();
    lab.down();
}

fn report(when: &str, delays: &[Option<Duration>]) {
    let lost = delays.iter().filter(|d| d.is_none()).count();
    let over =
        |ms: u64| delays.iter().flatten().filter(|d| **d > Duration::from_millis(ms)).count();
    let slowest = delays.iter().flatten().max().copied().unwrap_or_default();
    println!(
        "{when}: {} datagrams, {lost} lost, {} over 1 ms, {} over 10 ms, slowest {slowest:?}",
        delays.len(),
        over(1),
        over(10)
    );
}
