//! The sequencer for real: senders and a receiver of several sessions, and switches that are killed
//! by turns meanwhile. What the hosts know decides: no number was given twice, and each number that
//! did not arrive is known to be lost. Needs root. Waits for timers.

mod common;
#[path = "common/kills.rs"]
mod kills;

use common::{INSIDE, OUTSIDE, TestLab, one_at_a_time, skip, wait_for};
use kills::by_turns;
use std::collections::{BTreeMap, BTreeSet};
use std::net::{SocketAddr, UdpSocket};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

const PORT: u16 = 5410;
const SEQUENCER: (&str, u16) = ("10.99.0.2", PORT);
const REQUEST: u8 = 1;
const NUMBERED: u8 = 2;
const QUERY: u8 = 3;
const LAST: u8 = 4;
/// Each with one sender, which counts its requests and sends them until they are acknowledged.
const COUNTED: std::ops::Range<u32> = 1..5;
/// Each with several senders, which send each datagram once.
const PLAIN: std::ops::Range<u32> = 11..13;
const SENDERS: usize = 6;
/// Between two datagrams of the plain senders together.
const PERIOD: Duration = Duration::from_millis(2);
/// Without an acknowledgement in this time a request is sent again.
const AGAIN: Duration = Duration::from_millis(50);

/// The header and, behind it, what the test knows the datagram by: page sequencer.md.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Datagram {
    kind: u8,
    session: u32,
    sender: u32,
    request: u32,
    number: u64,
    name: u64,
}

impl Datagram {
    fn encode(self) -> Vec<u8> {
        let mut bytes = vec![b'S', b'Q', self.kind, 0];
        for word in [self.session, self.sender, self.request] {
            bytes.extend(word.to_be_bytes());
        }
        bytes.extend(self.number.to_be_bytes());
        bytes.extend(self.name.to_be_bytes());
        bytes
    }

    fn decode(bytes: &[u8]) -> Datagram {
        assert!(bytes.len() == 32 && bytes.starts_with(b"SQ"), "{bytes:?}");
        let word = |at: usize| u32::from_be_bytes(bytes[at..at + 4].try_into().expect("4 bytes"));
        let long = |at: usize| u64::from_be_bytes(bytes[at..at + 8].try_into().expect("8 bytes"));
        Datagram {
            kind: bytes[2],
            session: word(4),
            sender: word(8),
            request: word(12),
            number: long(16),
            name: long(24),
        }
    }
}

fn socket(lab: &TestLab, node: &str, address: (&str, u16), timeout: Duration) -> UdpSocket {
    let socket = lab.netns(node).run(|| UdpSocket::bind(address)).expect("bind");
    socket.set_read_timeout(Some(timeout)).expect("timeout");
    common::roomy(&socket);
    socket
}

/// What a host asked a switch for: the number that it got, or, if it only asked for the last number
/// given (`query`), that one.
#[derive(Clone, Copy, Debug)]
struct Operation {
    from: Instant,
    to: Instant,
    number: u64,
    query: bool,
}

/// What began after another had ended has the higher number; a query, at least the same.
fn in_real_time_order(what: &str, operations: &[Operation]) {
    let mut by_end = operations.to_vec();
    by_end.sort_by_key(|operation| operation.to);
    let mut by_begin = operations.to_vec();
    by_begin.sort_by_key(|operation| operation.from);
    let (mut ended, mut highest) = (by_end.into_iter().peekable(), 0);
    for later in by_begin {
        while let Some(earlier) = ended.next_if(|earlier| earlier.to < later.from) {
            highest = highest.max(earlier.number);
        }
        let least = if later.query { highest } else { highest + 1 };
        assert!(later.number >= least, "{what}: {later:?} began after {highest} was known");
    }
}

/// What `outside` received.
#[derive(Default)]
struct Received {
    arrivals: Vec<(Datagram, Instant)>,
    /// Sessions, each with queries that were answered.
    answers: BTreeMap<u32, Vec<Operation>>,
}

/// Receives, acknowledges counted requests by sending them back, and asks for last numbers.
struct Receiver {
    socket: UdpSocket,
    received: Received,
    /// Of the queries so far: session and time. Their place is the query's request number.
    asked: Vec<(u32, Instant)>,
    count: Arc<AtomicU64>,
}

impl Receiver {
    fn start(
        lab: &TestLab,
        stop: &Arc<AtomicBool>,
        count: &Arc<AtomicU64>,
    ) -> JoinHandle<Received> {
        let socket = socket(lab, "outside", (OUTSIDE, PORT), Duration::from_millis(5));
        let (stop, count) = (Arc::clone(stop), Arc::clone(count));
        let mut receiver = Receiver { socket, received: Received::default(), asked: vec![], count };
        std::thread::spawn(move || {
            let sessions: Vec<u32> = COUNTED.chain(PLAIN).collect();
            let mut next = Instant::now();
            while !stop.load(Ordering::Relaxed) {
                if Instant::now() >= next {
                    receiver.ask(sessions[receiver.asked.len() % sessions.len()]);
                    next = Instant::now() + Duration::from_millis(10);
                }
                receiver.take();
            }
            // All is quiet: what comes now comes at once, and the answers tell of all that was
            // given.
            for session in sessions {
                let answered = |receiver: &Receiver| {
                    receiver.received.answers.get(&session).map_or(0, Vec::len)
                };
                let before = answered(&receiver);
                wait_for("the last number of each session", || {
                    receiver.ask(session);
                    (0..20).for_each(|_| receiver.take());
                    answered(&receiver) > before
                });
            }
            receiver.received
        })
    }

    fn ask(&mut self, session: u32) {
        let request = self.asked.len() as u32;
        self.asked.push((session, Instant::now()));
        let query = Datagram { kind: QUERY, session, sender: 0, request, number: 0, name: 0 };
        // While a route is away, sending fails; the next one follows.
        let _ = self.socket.send_to(&query.encode(), SEQUENCER);
    }

    fn take(&mut self) {
        let mut bytes = [0; 2048];
        let Ok((length, from)) = self.socket.recv_from(&mut bytes) else { return };
        let (datagram, at) = (Datagram::decode(&bytes[..length]), Instant::now());
        match datagram.kind {
            NUMBERED => {
                if datagram.request != 0 {
                    let _ = self.socket.send_to(&bytes[..length], from);
                }
                self.received.arrivals.push((datagram, at));
                self.count.fetch_add(1, Ordering::Relaxed);
            }
            LAST => {
                let (session, asked) = self.asked[datagram.request as usize];
                assert_eq!(session, datagram.session);
                let number = datagram.number;
                let answer = Operation { from: asked, to: at, number, query: true };
                self.received.answers.entry(session).or_default().push(answer);
            }
            _ => panic!("{datagram:?} arrived"),
        }
    }
}

/// A counted request: when it was first sent, and how often.
struct Request {
    from: Instant,
    tries: u32,
}

/// Sends a session's requests one after the other, each until it is acknowledged.
fn count(lab: &TestLab, session: u32, stop: &Arc<AtomicBool>) -> JoinHandle<Vec<Request>> {
    let (socket, stop) = (socket(lab, "inside", (INSIDE, 0), AGAIN), Arc::clone(stop));
    std::thread::spawn(move || {
        let mut requests = vec![];
        while !stop.load(Ordering::Relaxed) {
            let request = requests.len() as u32 + 1;
            let (sender, name) = (session * 10, u64::from(request));
            let made = Datagram { kind: REQUEST, session, sender, request, number: 0, name };
            let (from, mut tries) = (Instant::now(), 0);
            loop {
                tries += 1;
                assert!(from.elapsed() < Duration::from_secs(60), "{made:?} is not acknowledged");
                let _ = socket.send_to(&made.encode(), (OUTSIDE, PORT));
                if is_acknowledged(&socket, request) {
                    break;
                }
            }
            requests.push(Request { from, tries });
            std::thread::sleep(Duration::from_millis(1));
        }
        requests
    })
}

fn is_acknowledged(socket: &UdpSocket, request: u32) -> bool {
    let mut bytes = [0; 2048];
    while let Ok(length) = socket.recv(&mut bytes) {
        if Datagram::decode(&bytes[..length]).request == request {
            return true;
        }
    }
    false
}

/// Sends datagrams of the plain sessions by turns: when each was sent, by its name.
fn send(lab: &TestLab, stop: &Arc<AtomicBool>) -> JoinHandle<Vec<Instant>> {
    let bind = |session| (session, socket(lab, "inside", (INSIDE, 0), AGAIN));
    let sockets: Vec<(u32, UdpSocket)> =
        PLAIN.flat_map(|session| [session; SENDERS]).map(bind).collect();
    let to: SocketAddr = (OUTSIDE.parse::<std::net::IpAddr>().expect("address"), PORT).into();
    let stop = Arc::clone(stop);
    std::thread::spawn(move || {
        let mut sent: Vec<Instant> = vec![];
        let start = Instant::now();
        while !stop.load(Ordering::Relaxed) {
            let (session, socket) = &sockets[sent.len() % sockets.len()];
            let name = sent.len() as u64;
            let made = Datagram {
                kind: REQUEST,
                session: *session,
                sender: 0,
                request: 0,
                number: 0,
                name,
            };
            sent.push(Instant::now());
            let _ = socket.send_to(&made.encode(), to);
            std::thread::sleep((PERIOD * sent.len() as u32).saturating_sub(start.elapsed()));
        }
        sent
    })
}

/// The last number that was given in a session, as the receiver heard in the end.
fn last(received: &Received, session: u32) -> u64 {
    received.answers[&session].last().expect("an answer").number
}

/// Each request has the number that is its own count: none was given twice, none was skipped.
fn check_counted(session: u32, requests: &[Request], received: &Received) -> u32 {
    let mut first: BTreeMap<u64, Instant> = BTreeMap::new();
    for (datagram, at) in of(received, session) {
        let request = u64::from(datagram.request);
        assert_eq!((datagram.number, datagram.name), (request, request), "session {session}");
        first.entry(request).or_insert(*at);
    }
    let all = requests.len() as u64;
    assert!(first.keys().copied().eq(1..=all), "session {session}: {all} requests");
    assert_eq!(last(received, session), all, "session {session}");
    let operation = |(request, to): (&u64, &Instant)| {
        let from = requests[*request as usize - 1].from;
        Operation { from, to: *to, number: *request, query: false }
    };
    let operations: Vec<Operation> = first.iter().map(operation).collect();
    in_real_time_order(
        &format!("session {session}"),
        &[&operations, &received.answers[&session][..]].concat(),
    );
    requests.iter().map(|request| request.tries - 1).sum()
}

/// No number and no datagram twice, and as many numbers at most as datagrams. Returns how many
/// arrived, and how many numbers did not.
fn check_plain(session: u32, sent: &[Instant], received: &Received) -> (u64, u64) {
    let (mut numbers, mut names) = (BTreeSet::new(), BTreeSet::new());
    let mut operations = received.answers[&session].clone();
    for (datagram, at) in of(received, session) {
        assert!(numbers.insert(datagram.number), "session {session}: {datagram:?} again");
        assert!(names.insert(datagram.name), "session {session}: {datagram:?} again");
        let from = sent[datagram.name as usize];
        operations.push(Operation { from, to: *at, number: datagram.number, query: false });
    }
    in_real_time_order(&format!("session {session}"), &operations);
    let (given, arrived) = (last(received, session), numbers.len() as u64);
    let of_session = (sent.len() / PLAIN.len()) as u64 + SENDERS as u64;
    assert!(given <= of_session, "session {session}: {given} numbers for {of_session} datagrams");
    assert!(numbers.iter().all(|it| (1..=given).contains(it)), "session {session}: of {given}");
    assert!(arrived * 10 >= given * 7, "session {session}: {arrived} of {given} numbers arrived");
    (arrived, given - arrived)
}

fn of(received: &Received, session: u32) -> impl Iterator<Item = &(Datagram, Instant)> {
    received.arrivals.iter().filter(move |(datagram, _)| datagram.session == session)
}

/// The last number that the store has of a session.
fn stored(lab: &TestLab, session: u32) -> u64 {
    let found = lab.state(0, "sequencer.json", &format!("get session={session}"));
    let one = found.as_array().filter(|all| all.len() == 1).unwrap_or_else(|| panic!("{found}"));
    common::counting::number(one[0]["value"]["last"].as_str().expect("text"))
}

fn numbers_over_kills(name: &str, commit: &str, kills: u64) {
    let set = format!("commit={commit}");
    let lab = TestLab::up(name, "sequencer.toml", &["--prefer", "", "--set", &set]);
    wait_for("both switches are used", || lab.both_used("10.1.0.0/24"));
    let (stop, received_all) = (Arc::default(), Arc::default());
    let arrived: Arc<AtomicU64> = Arc::default();
    let receiver = Receiver::start(&lab, &received_all, &arrived);
    let counting: Vec<_> = COUNTED.map(|session| (session, count(&lab, session, &stop))).collect();
    let sending = send(&lab, &stop);
    by_turns(&lab, kills, ("numbered", 300), || arrived.load(Ordering::Relaxed));
    stop.store(true, Ordering::Relaxed);
    let counted: Vec<(u32, Vec<Request>)> = counting
        .into_iter()
        .map(|(session, thread)| (session, thread.join().expect("a sender")))
        .collect();
    let sent = sending.join().expect("the senders");
    lab.equal_stores();
    received_all.store(true, Ordering::Relaxed);
    let received = receiver.join().expect("the receiver");

    let (mut requests, mut repeated) = (0, 0);
    for (session, of_session) in &counted {
        requests += of_session.len();
        repeated += check_counted(*session, of_session, &received);
    }
    let (mut through, mut lost) = (0, 0);
    for session in PLAIN {
        let (arrived, gaps) = check_plain(session, &sent, &received);
        through += arrived;
        lost += gaps;
    }
    for session in COUNTED.chain(PLAIN) {
        assert_eq!(stored(&lab, session), last(&received, session), "session {session}");
    }
    let answers: usize = received.answers.values().map(Vec::len).sum();
    println!(
        "{commit}: {requests} counted requests, sent {repeated} times more, numbers without a gap; \
         {} plain datagrams, {through} arrived, {lost} numbers known to be lost; {answers} answers",
        sent.len()
    );
    lab.down();
}

#[test]
fn no_number_is_given_twice_or_skipped_without_notice() {
    if skip() {
        return;
    }
    let _turn = one_at_a_time();
    numbers_over_kills("sequence", "batch", 2);
}

/// KILLS=N: so many for each way to wait; COMMIT=wrap or batch: only this one.
#[test]
#[ignore = "takes minutes"]
fn many_kills() {
    kills::many_kills(|commit, kills| numbers_over_kills("sequences", commit, kills));
}
