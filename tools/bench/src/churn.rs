//! Real TCP connections that come at a rate, live a while, and are used all the time; and which of
//! them break.
//!
//! A connection sends [`MESSAGE_BYTES`], waits for the same back, pauses, sends again, and closes
//! at the end of its life. It is *lost* if it was established and then is reset, or has no answer
//! for [`Load::answer_timeout_s`].

use anyhow::{Context, Result};
use nix::errno::Errno;
use nix::sys::epoll::{Epoll, EpollCreateFlags, EpollEvent, EpollFlags, EpollTimeout};
use nix::sys::socket::{
    AddressFamily, SockFlag, SockType, SockaddrIn, bind, connect, getsockopt, setsockopt, socket,
    sockopt,
};
use rand::{Rng, SeedableRng, rngs::StdRng};
use serde::Serialize;
use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::io::{Read, Write};
use std::net::{Ipv4Addr, SocketAddrV4, TcpListener, TcpStream};
use std::os::fd::{AsFd, OwnedFd};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

/// Bytes of a request and of its answer.
const MESSAGE_BYTES: usize = 8;
/// What Linux hosts draw their ports from (`net.ipv4.ip_local_port_range`).
const PORTS: std::ops::Range<u16> = 32_768..61_000;
/// Events taken at a time.
const EVENTS: usize = 512;

/// What to open, and how it is used.
#[derive(Clone, Debug)]
pub struct Load {
    /// Where connections go.
    pub server: SocketAddrV4,
    /// Where they come from, by turns.
    pub sources: Vec<Ipv4Addr>,
    /// New ones a second.
    pub rate_per_s: f64,
    /// Opened for so long, in seconds.
    pub opening_s: f64,
    /// Life of each, in seconds.
    pub life_s: f64,
    /// Pause between an answer and the next message, in seconds.
    pub pause_s: f64,
    /// A connection that gets no answer for so long is lost, in seconds.
    pub answer_timeout_s: f64,
    /// Of the source ports.
    pub seed: u64,
}

/// How a connection ended.
#[derive(Clone, Copy, Debug, Eq, PartialEq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum End {
    /// Closed in the end, all answers in.
    Finished,
    /// Reset or closed by the other side.
    Reset,
    /// No answer in time.
    Silent,
    /// Never established.
    NotOpened,
}

/// One connection's life, in seconds from the start.
#[derive(Clone, Copy, Debug)]
pub struct Life {
    /// First SYN.
    pub opened: f64,
    /// Handshake done.
    pub established: Option<f64>,
    /// Its end.
    pub ended: f64,
    /// Which.
    pub end: End,
}

/// What came of a load.
#[derive(Clone, Debug, Default)]
pub struct Lives {
    /// Every connection.
    pub lives: Vec<Life>,
    /// When answers came, in order.
    pub answers: Vec<f64>,
    /// Each handshake and each message: when it was sent first, and when its answer came (infinity:
    /// never).
    pub exchanges: Vec<(f64, f64)>,
}

impl Lives {
    /// Connections that were established and in use at a moment.
    pub fn open_at(&self, t: f64) -> impl Iterator<Item = &Life> {
        self.lives.iter().filter(move |l| l.established.is_some_and(|e| e <= t) && l.ended > t)
    }

    /// Of those, the lost ones.
    pub fn lost_of(&self, t: f64) -> usize {
        self.open_at(t).filter(|l| l.end != End::Finished).count()
    }

    /// Connections that were established after a moment, however long after they were opened.
    pub fn established_after(&self, t: f64) -> impl Iterator<Item = &Life> {
        self.lives.iter().filter(move |l| l.established.is_some_and(|e| e > t))
    }

    /// Of those, the lost ones.
    pub fn lost_of_later(&self, t: f64) -> usize {
        self.established_after(t).filter(|l| l.end != End::Finished).count()
    }

    /// Events a second in bins: of answers, or of connections established.
    pub fn rate(times: impl Iterator<Item = f64>, bin_s: f64, end_s: f64) -> Vec<(f64, f64)> {
        let mut bins = vec![0u32; (end_s / bin_s).round() as usize];
        for t in times {
            if let Some(bin) = bins.get_mut((t / bin_s) as usize) {
                *bin += 1;
            }
        }
        bins.iter()
            .enumerate()
            .map(|(i, n)| ((i as f64 + 0.5) * bin_s, f64::from(*n) / bin_s))
            .collect()
    }
}

/// Echoes until told to stop; to be called in the server's namespace. `ready` is set once it
/// listens.
///
/// # Errors
/// The port is taken, or epoll fails.
pub fn serve(port: u16, ready: &AtomicBool, stop: &AtomicBool) -> Result<()> {
    let listener = TcpListener::bind((Ipv4Addr::UNSPECIFIED, port))
        .with_context(|| format!("TCP port {port}"))?;
    // A burst of connections after an outage must not be refused for want of a queue.
    nix::sys::socket::listen(&listener, nix::sys::socket::Backlog::new(4096)?)?;
    listener.set_nonblocking(true)?;
    let epoll = Epoll::new(EpollCreateFlags::EPOLL_CLOEXEC)?;
    const LISTENER: u64 = u64::MAX;
    epoll.add(&listener, EpollEvent::new(EpollFlags::EPOLLIN, LISTENER))?;
    ready.store(true, Ordering::Release);
    let mut streams: Vec<Option<TcpStream>> = Vec::new();
    let mut free: Vec<usize> = Vec::new();
    let mut events = vec![EpollEvent::empty(); EVENTS];
    while !stop.load(Ordering::Relaxed) {
        let count = wait(&epoll, &mut events, 50)?;
        for event in &events[..count] {
            if event.data() == LISTENER {
                while let Ok((stream, _)) = listener.accept() {
                    stream.set_nonblocking(true)?;
                    stream.set_nodelay(true)?;
                    let slot = free.pop().unwrap_or_else(|| {
                        streams.push(None);
                        streams.len() - 1
                    });
                    epoll.add(&stream, EpollEvent::new(EpollFlags::EPOLLIN, slot as u64))?;
                    streams[slot] = Some(stream);
                }
                continue;
            }
            let slot = event.data() as usize;
            let Some(stream) = streams[slot].as_mut() else { continue };
            let mut buffer = [0; 64];
            let open = match stream.read(&mut buffer) {
                Ok(0) => false,
                Ok(n) => stream.write_all(&buffer[..n]).is_ok(),
                Err(e) => e.kind() == std::io::ErrorKind::WouldBlock,
            };
            if !open {
                streams[slot] = None;
                free.push(slot);
            }
        }
    }
    Ok(())
}

fn wait(epoll: &Epoll, events: &mut [EpollEvent], timeout_ms: u16) -> Result<usize> {
    match epoll.wait(events, EpollTimeout::from(timeout_ms)) {
        Ok(count) => Ok(count),
        Err(Errno::EINTR) => Ok(0),
        Err(error) => Err(error).context("epoll"),
    }
}

#[derive(Clone, Copy, PartialEq)]
enum State {
    Connecting,
    Waiting { received: usize },
    Pausing,
    Over(End),
}

struct Connection {
    stream: Option<TcpStream>,
    state: State,
    opened: f64,
    established: Option<f64>,
    ended: f64,
    /// When what is waited for was sent.
    asked: f64,
    /// A timer of an older turn is void.
    turn: u32,
}

struct Client<'a> {
    load: &'a Load,
    epoll: Epoll,
    start: Instant,
    connections: Vec<Connection>,
    /// (when in ns, connection, turn)
    timers: BinaryHeap<Reverse<(u64, usize, u32)>>,
    answers: Vec<f64>,
    exchanges: Vec<(f64, f64)>,
    open: usize,
    rng: StdRng,
}

/// Opens and uses connections; to be called in the client's namespace. Times count from `start`.
///
/// # Errors
/// Sockets cannot be made.
pub fn run(load: &Load, start: Instant, stop: &AtomicBool) -> Result<Lives> {
    raise_file_limit()?;
    let mut client = Client {
        load,
        epoll: Epoll::new(EpollCreateFlags::EPOLL_CLOEXEC)?,
        start,
        connections: Vec::new(),
        timers: BinaryHeap::new(),
        answers: Vec::new(),
        exchanges: Vec::new(),
        open: 0,
        rng: StdRng::seed_from_u64(load.seed),
    };
    client.play(stop)?;
    let lives = client.connections.iter().map(|c| Life {
        opened: c.opened,
        established: c.established,
        ended: c.ended,
        end: match c.state {
            State::Over(end) => end,
            _ => End::Silent,
        },
    });
    Ok(Lives { lives: lives.collect(), answers: client.answers, exchanges: client.exchanges })
}

/// Tens of thousands of sockets at the worst.
fn raise_file_limit() -> Result<()> {
    let mut limit = libc::rlimit { rlim_cur: 0, rlim_max: 0 };
    // SAFETY: both calls get a pointer to a live, initialised rlimit.
    unsafe {
        if libc::getrlimit(libc::RLIMIT_NOFILE, &raw mut limit) == 0 {
            limit.rlim_cur = limit.rlim_max;
            libc::setrlimit(libc::RLIMIT_NOFILE, &raw const limit);
        }
    }
    Ok(())
}

impl Client<'_> {
    fn now(&self) -> f64 {
        self.start.elapsed().as_secs_f64()
    }

    fn play(&mut self, stop: &AtomicBool) -> Result<()> {
        let mut events = vec![EpollEvent::empty(); EVENTS];
        let begin = self.now();
        loop {
            let now = self.now();
            let due = ((now - begin).min(self.load.opening_s) * self.load.rate_per_s) as usize;
            // In small portions, so that answers are read in between.
            for _ in self.connections.len()..due.min(self.connections.len() + 64) {
                self.open()?;
            }
            self.expire(now);
            let all_opened = now - begin >= self.load.opening_s && self.connections.len() >= due;
            if stop.load(Ordering::Relaxed) || (all_opened && self.open == 0) {
                return Ok(());
            }
            let count = wait(&self.epoll, &mut events, 1)?;
            for event in &events[..count] {
                self.ready(event.data() as usize);
            }
        }
    }

    fn open(&mut self) -> Result<()> {
        let number = self.connections.len();
        let opened = self.now();
        let mut connection = Connection {
            stream: None,
            state: State::Over(End::NotOpened),
            opened,
            established: None,
            ended: opened,
            asked: opened,
            turn: 0,
        };
        if let Some(socket) = self.connect(number)? {
            self.epoll.add(&socket, EpollEvent::new(EpollFlags::EPOLLOUT, number as u64))?;
            connection.stream = Some(TcpStream::from(socket));
            connection.state = State::Connecting;
            self.open += 1;
        }
        self.connections.push(connection);
        self.timer(number, self.load.answer_timeout_s);
        Ok(())
    }

    /// A socket on its way; none if the network refuses at once.
    fn connect(&mut self, number: usize) -> Result<Option<OwnedFd>> {
        let source = self.load.sources[number % self.load.sources.len()];
        for _ in 0..64 {
            let flags = SockFlag::SOCK_NONBLOCK | SockFlag::SOCK_CLOEXEC;
            let fd =
                socket(AddressFamily::Inet, SockType::Stream, flags, None).context("socket")?;
            setsockopt(&fd, sockopt::TcpNoDelay, &true)?;
            let own = SockaddrIn::from(SocketAddrV4::new(source, self.rng.random_range(PORTS)));
            match bind(std::os::fd::AsRawFd::as_raw_fd(&fd), &own) {
                Ok(()) => {}
                // Another connection has the port.
                Err(Errno::EADDRINUSE) => continue,
                Err(error) => return Err(error).with_context(|| format!("bind to {own}")),
            }
            return match connect(
                std::os::fd::AsRawFd::as_raw_fd(&fd),
                &SockaddrIn::from(self.load.server),
            ) {
                Ok(()) | Err(Errno::EINPROGRESS) => Ok(Some(fd)),
                Err(_) => Ok(None),
            };
        }
        Ok(None)
    }

    fn timer(&mut self, index: usize, after_s: f64) {
        let connection = &mut self.connections[index];
        connection.turn += 1;
        let when = self.start.elapsed() + Duration::from_secs_f64(after_s);
        self.timers.push(Reverse((when.as_nanos() as u64, index, connection.turn)));
    }

    fn expire(&mut self, now: f64) {
        let now_ns = (now * 1e9) as u64;
        while let Some(Reverse((when, index, turn))) = self.timers.peek().copied() {
            if when > now_ns {
                break;
            }
            self.timers.pop();
            if self.connections[index].turn != turn {
                continue;
            }
            match self.connections[index].state {
                State::Connecting => self.end(index, End::NotOpened),
                State::Waiting { .. } => self.end(index, End::Silent),
                State::Pausing => self.send(index),
                State::Over(_) => {}
            }
        }
    }

    fn end(&mut self, index: usize, end: End) {
        let ended = self.now();
        let connection = &mut self.connections[index];
        if matches!(connection.state, State::Connecting | State::Waiting { .. })
            && end != End::Finished
        {
            self.exchanges.push((connection.asked, f64::INFINITY));
        }
        connection.state = State::Over(end);
        connection.ended = ended;
        connection.stream = None;
        self.open -= 1;
    }

    fn send(&mut self, index: usize) {
        let sent = self.connections[index]
            .stream
            .as_mut()
            .is_some_and(|s| s.write_all(&[b'.'; MESSAGE_BYTES]).is_ok());
        if !sent {
            self.end(index, End::Reset);
            return;
        }
        self.connections[index].state = State::Waiting { received: 0 };
        self.connections[index].asked = self.now();
        self.timer(index, self.load.answer_timeout_s);
    }

    fn ready(&mut self, index: usize) {
        match self.connections[index].state {
            State::Connecting => self.established(index),
            State::Over(_) => {}
            State::Waiting { received } => self.receive(index, received),
            // Nothing is owed: what comes now is a reset or an end.
            State::Pausing => self.end(index, End::Reset),
        }
    }

    fn established(&mut self, index: usize) {
        let Some(stream) = &self.connections[index].stream else { return };
        let good = getsockopt(&stream.as_fd(), sockopt::SocketError).is_ok_and(|error| error == 0);
        let mut reading = EpollEvent::new(EpollFlags::EPOLLIN, index as u64);
        if !good || self.epoll.modify(stream, &mut reading).is_err() {
            self.end(index, End::NotOpened);
            return;
        }
        let now = self.now();
        self.connections[index].established = Some(now);
        self.exchanges.push((self.connections[index].opened, now));
        self.send(index);
    }

    fn receive(&mut self, index: usize, received: usize) {
        let mut buffer = [0; MESSAGE_BYTES];
        let Some(stream) = &mut self.connections[index].stream else { return };
        match stream.read(&mut buffer[..MESSAGE_BYTES - received]) {
            Ok(0) => self.end(index, End::Reset),
            Ok(n) if received + n < MESSAGE_BYTES => {
                self.connections[index].state = State::Waiting { received: received + n };
            }
            Ok(_) => self.answered(index),
            Err(e) if e.kind() == std::io::ErrorKind::WouldBlock => {}
            Err(_) => self.end(index, End::Reset),
        }
    }

    fn answered(&mut self, index: usize) {
        let now = self.now();
        self.answers.push(now);
        self.exchanges.push((self.connections[index].asked, now));
        if now - self.connections[index].opened >= self.load.life_s {
            self.end(index, End::Finished);
        } else {
            self.connections[index].state = State::Pausing;
            self.timer(index, self.load.pause_s);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn load(server: SocketAddrV4) -> Load {
        Load {
            server,
            sources: vec![Ipv4Addr::new(127, 0, 0, 1), Ipv4Addr::new(127, 0, 0, 2)],
            rate_per_s: 500.0,
            opening_s: 0.1,
            life_s: 0.1,
            pause_s: 0.02,
            answer_timeout_s: 0.5,
            seed: 1,
        }
    }

    #[test]
    fn all_finish_with_a_server_and_are_lost_with_one_that_says_nothing() {
        let (ready, stop) = (AtomicBool::new(false), AtomicBool::new(false));
        std::thread::scope(|scope| {
            let server = scope.spawn(|| serve(47_311, &ready, &stop));
            while !ready.load(Ordering::Acquire) {
                std::thread::yield_now();
            }
            let address = SocketAddrV4::new(Ipv4Addr::LOCALHOST, 47_311);
            let lives = run(&load(address), Instant::now(), &AtomicBool::new(false)).expect("run");
            stop.store(true, Ordering::Relaxed);
            server.join().expect("join").expect("serve");
            assert_eq!(lives.lives.len(), 50);
            assert!(lives.lives.iter().all(|l| l.end == End::Finished), "{:?}", lives.lives);
            assert!(lives.answers.len() >= 100, "{}", lives.answers.len());
        });
        let silent = TcpListener::bind("127.0.0.1:47312").expect("bind");
        let address = SocketAddrV4::new(Ipv4Addr::LOCALHOST, 47_312);
        let lives = run(&load(address), Instant::now(), &AtomicBool::new(false)).expect("run");
        assert!(
            lives.lives.iter().all(|l| l.end == End::Silent && l.established.is_some()),
            "{:?}",
            lives.lives
        );
        // Each handshake was answered, and no message was.
        let answered = lives
            .exchanges
            .iter()
            .filter(|(asked, answered)| answered.is_finite() && answered >= asked);
        assert_eq!((answered.count(), lives.exchanges.len()), (50, 100), "{:?}", lives.exchanges);
        assert_eq!(lives.lost_of(lives.lives[49].established.expect("established")), 50);
        drop(silent);
    }

    #[test]
    fn a_lost_connection_counts_on_the_side_of_the_moment_on_which_it_was_established() {
        let life = |opened: f64, established: Option<f64>, ended: f64, end| Life {
            opened,
            established,
            ended,
            end,
        };
        let lives = Lives {
            lives: vec![
                // Over before 3.0: on neither side.
                life(0.0, Some(0.1), 1.5, End::Finished),
                life(0.0, Some(0.1), 1.5, End::Reset),
                life(2.0, Some(2.1), 3.5, End::Finished),
                life(2.0, Some(2.1), 13.0, End::Silent),
                // Its handshake was under way at that moment.
                life(2.9, Some(3.4), 4.4, End::Reset),
                life(3.1, Some(3.5), 13.5, End::Silent),
                life(3.1, Some(3.5), 4.6, End::Finished),
                life(3.1, None, 13.1, End::NotOpened),
            ],
            ..Lives::default()
        };
        assert_eq!((lives.open_at(3.0).count(), lives.lost_of(3.0)), (2, 1));
        assert_eq!((lives.established_after(3.0).count(), lives.lost_of_later(3.0)), (3, 2));
    }

    #[test]
    fn rates_fall_into_bins() {
        let rates = Lives::rate([0.05, 0.06, 0.15, 9.0].into_iter(), 0.1, 0.2);
        assert_eq!(rates.len(), 2);
        assert_eq!((rates[0].1, rates[1].1), (20.0, 10.0));
    }
}
