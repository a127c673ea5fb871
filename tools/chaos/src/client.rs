//! The thread that uses the connections: one loop over all of them.

use crate::Judge;
use crate::connections::{Control, Figures, Load, Report, connecting};
use crate::random::Random;
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use std::io::{ErrorKind, Read, Write};
use std::net::{Ipv4Addr, SocketAddrV4, TcpStream, UdpSocket};
use std::os::fd::AsFd;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

/// Bytes of a message and of its answer.
const MESSAGE_BYTES: usize = 24;
/// How long an attempt to connect may take.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(6);
/// Interval of a UDP flow's datagrams.
const UDP_PERIOD: Duration = Duration::from_millis(50);
/// Longest wait for something to happen, in milliseconds.
const TICK_MS: u8 = 2;

#[derive(Clone, Copy, Debug, Eq, PartialEq)]
enum Kind {
    Busy,
    Sleepy,
    /// Closes after so many exchanges more.
    Brief(u32),
}

struct Connection {
    stream: TcpStream,
    kind: Kind,
    number: u32,
    opened: Instant,
    established: bool,
    /// Exchanges so far.
    exchanges: u32,
    /// When the message on its way was sent, and how much of its answer has come.
    outstanding: Option<(Instant, usize)>,
    /// When the last answered message was sent.
    answered: Option<Instant>,
    due: Instant,
}

/// A UDP flow.
struct Flow {
    socket: UdpSocket,
    number: u32,
    sent: u32,
    due: Instant,
    /// Where its datagrams come from, as the far end sees it.
    mapping: Option<SocketAddrV4>,
    /// When each of the last datagrams was sent: the low bits of its number are its place.
    sent_at: [Option<Instant>; 64],
    answered: Option<Instant>,
}

/// All of them.
pub(super) struct Client {
    to: SocketAddrV4,
    load: Load,
    random: Random,
    judge: Arc<Judge>,
    control: Arc<Control>,
    connections: Vec<Connection>,
    flows: Vec<Flow>,
    opened: u32,
    next_brief: Instant,
    figures: Figures,
    poke: u64,
    poked_at: Instant,
}

/// What has become of a connection.
enum Fate {
    GoesOn,
    Ended,
    Broken(String),
}

impl Client {
    pub(super) fn new(
        to: SocketAddrV4,
        load: Load,
        random: Random,
        judge: Arc<Judge>,
        control: Arc<Control>,
    ) -> Self {
        let now = Instant::now();
        Self {
            to,
            load,
            random,
            judge,
            control,
            connections: Vec::new(),
            flows: Vec::new(),
            opened: 0,
            next_brief: now,
            figures: Figures::default(),
            poke: 0,
            poked_at: now,
        }
    }

    pub(super) fn run(&mut self) {
        while !self.control.stop.load(Ordering::Relaxed) {
            let poke = self.control.poke.load(Ordering::SeqCst);
            if poke != self.poke {
                self.poke = poke;
                self.poked_at = Instant::now();
            }
            let paused = self.control.pause.load(Ordering::SeqCst);
            if !paused {
                self.open();
            }
            self.send(paused);
            self.receive();
            self.give_up();
            self.tell(paused);
        }
    }

    /// Opens what is missing of the lasting connections and flows, and the brief ones that are due.
    fn open(&mut self) {
        for (kind, wanted) in [(Kind::Busy, self.load.busy), (Kind::Sleepy, self.load.sleepy)] {
            for _ in self.connections.iter().filter(|c| c.kind == kind).count()..wanted {
                self.connect(kind);
            }
        }
        if self.load.brief_per_s > 0 && Instant::now() >= self.next_brief {
            let messages = self.random.between(1, 40) as u32;
            self.connect(Kind::Brief(messages));
            // Between half and one and a half of the mean.
            let mean_us = 1_000_000 / self.load.brief_per_s;
            self.next_brief = Instant::now()
                + Duration::from_micros(self.random.between(mean_us / 2, mean_us * 3 / 2));
        }
        while self.flows.len() < self.load.udp {
            let Ok(socket) = UdpSocket::bind((Ipv4Addr::UNSPECIFIED, 0)) else { return };
            if socket.connect(self.to).is_err() || socket.set_nonblocking(true).is_err() {
                return;
            }
            let number = self.flows.len() as u32;
            let flow = Flow {
                socket,
                number,
                sent: 0,
                due: Instant::now(),
                mapping: None,
                sent_at: [None; 64],
                answered: None,
            };
            self.flows.push(flow);
        }
    }

    fn connect(&mut self, kind: Kind) {
        self.opened += 1;
        let opened = Instant::now();
        match connecting(self.to) {
            Ok(stream) => self.connections.push(Connection {
                stream,
                kind,
                number: self.opened,
                opened,
                established: false,
                exchanges: 0,
                outstanding: None,
                answered: None,
                due: opened,
            }),
            Err(error) => self.not_established(opened, &error.to_string()),
        }
    }

    fn not_established(&mut self, opened: Instant, reason: &str) {
        if self.judge.excuses(opened) {
            self.figures.excused += 1;
        } else {
            let what = "a connection opened while the network was whole was not established";
            self.judge.suspicion(format!("{what}: {reason}"));
        }
    }

    /// Sends what is due.
    fn send(&mut self, paused: bool) {
        let (now, poked_at) = (Instant::now(), self.poked_at);
        let lags = |answered: Option<Instant>| answered.is_none_or(|sent| sent < poked_at);
        let mut broken = Vec::new();
        for (at, connection) in self.connections.iter_mut().enumerate() {
            let due = if paused {
                lags(connection.answered)
            } else {
                now >= connection.due || lags(connection.answered)
            };
            if connection.established && connection.outstanding.is_none() && due {
                connection.outstanding = Some((now, 0));
                let message = message(connection.number, connection.exchanges);
                if let Err(error) = connection.stream.write_all(&message) {
                    broken.push((at, format!("cannot be written to: {error}")));
                }
            }
        }
        for (at, reason) in broken.into_iter().rev() {
            let connection = self.connections.swap_remove(at);
            self.broken(&connection, &reason);
        }
        for flow in &mut self.flows {
            if now >= flow.due && (!paused || lags(flow.answered)) {
                flow.due = now + UDP_PERIOD;
                flow.sent_at[(flow.sent % 64) as usize] = Some(now);
                // An error is the ICMP answer to an earlier datagram, or a route that is away: a
                // lost datagram.
                let _ = flow
                    .socket
                    .send(&[flow.number.to_be_bytes(), flow.sent.to_be_bytes()].concat());
                flow.sent = flow.sent.wrapping_add(1);
            }
        }
    }

    /// Takes what has come, for a tick at most.
    fn receive(&mut self) {
        let mut polled: Vec<PollFd> = Vec::with_capacity(self.connections.len() + self.flows.len());
        for connection in &self.connections {
            let wanted =
                if connection.established { PollFlags::POLLIN } else { PollFlags::POLLOUT };
            polled.push(PollFd::new(connection.stream.as_fd(), wanted));
        }
        polled.extend(
            self.flows.iter().map(|flow| PollFd::new(flow.socket.as_fd(), PollFlags::POLLIN)),
        );
        if poll(&mut polled, PollTimeout::from(TICK_MS)).is_err() {
            return;
        }
        let ready: Vec<bool> =
            polled.iter().map(|p| p.revents().is_some_and(|r| !r.is_empty())).collect();
        drop(polled);
        let split = self.connections.len();
        // From the end on, so that removal moves none that is still to be looked at.
        for at in (0..split).rev() {
            if !ready[at] && self.connections[at].established {
                continue;
            }
            match self.advance(at, ready[at]) {
                Fate::GoesOn => {}
                Fate::Ended => drop(self.connections.swap_remove(at)),
                Fate::Broken(reason) => {
                    let connection = self.connections.swap_remove(at);
                    if connection.established {
                        self.broken(&connection, &reason);
                    } else {
                        self.not_established(connection.opened, &reason);
                    }
                }
            }
        }
        for (at, _) in ready[split..].iter().enumerate().filter(|(_, ready)| **ready) {
            self.take_datagrams(at);
        }
    }

    fn advance(&mut self, at: usize, ready: bool) -> Fate {
        let connection = &mut self.connections[at];
        if connection.established {
            return self.take_answer(at);
        }
        match connection.stream.take_error() {
            Ok(None) if ready && connection.stream.peer_addr().is_ok() => {
                connection.established = true;
                self.figures.established += 1;
                Fate::GoesOn
            }
            Ok(None) if connection.opened.elapsed() < CONNECT_TIMEOUT => Fate::GoesOn,
            Ok(None) => Fate::Broken(format!("no answer within {} s", CONNECT_TIMEOUT.as_secs())),
            Ok(Some(error)) | Err(error) => Fate::Broken(error.to_string()),
        }
    }

    fn take_answer(&mut self, at: usize) -> Fate {
        let connection = &mut self.connections[at];
        let mut buffer = [0; MESSAGE_BYTES];
        let (sent, had) = connection.outstanding.unwrap_or((connection.opened, MESSAGE_BYTES));
        let wanted = (MESSAGE_BYTES - had).max(1);
        let length = match connection.stream.read(&mut buffer[..wanted]) {
            Ok(0) => return Fate::Broken("closed by the other end".to_string()),
            Ok(length) => length,
            Err(error)
                if matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::Interrupted) =>
            {
                return Fate::GoesOn;
            }
            Err(error) => return Fate::Broken(error.to_string()),
        };
        let expected = message(connection.number, connection.exchanges);
        if connection.outstanding.is_none() || buffer[..length] != expected[had..had + length] {
            return Fate::Broken(format!("wrong bytes: {:02x?}", &buffer[..length]));
        }
        if had + length < MESSAGE_BYTES {
            connection.outstanding = Some((sent, had + length));
            return Fate::GoesOn;
        }
        let now = Instant::now();
        connection.outstanding = None;
        connection.answered = Some(sent);
        connection.exchanges += 1;
        self.figures.exchanges += 1;
        let took = u64::try_from((now - sent).as_millis()).unwrap_or(u64::MAX);
        self.figures.slowest_ms = self.figures.slowest_ms.max(took);
        let pace_ms = match connection.kind {
            Kind::Sleepy => self.random.between(2_000, 4_000),
            Kind::Busy | Kind::Brief(_) => self.random.between(20, 50),
        };
        connection.due = now + Duration::from_millis(pace_ms);
        match connection.kind {
            Kind::Brief(messages) if connection.exchanges >= messages => Fate::Ended,
            _ => Fate::GoesOn,
        }
    }

    fn broken(&mut self, connection: &Connection, reason: &str) {
        self.figures.broken += 1;
        let from = connection
            .stream
            .local_addr()
            .map_or_else(|_| "?".to_string(), |address| address.to_string());
        let age = connection.opened.elapsed().as_millis();
        self.judge.violation(format!(
            "connection {} ({:?}, from {from}, {age} ms old, {} exchanges) is broken: {reason}",
            connection.number, connection.kind, connection.exchanges
        ));
    }

    fn take_datagrams(&mut self, at: usize) {
        let flow = &mut self.flows[at];
        let mut buffer = [0; 64];
        loop {
            let length = match flow.socket.recv(&mut buffer) {
                Ok(length) => length,
                // That was the ICMP answer to an earlier datagram.
                Err(error) if error.kind() != ErrorKind::WouldBlock => continue,
                Err(_) => return,
            };
            let Some((number, sent, from)) = parse(&buffer[..length]) else { continue };
            if number != flow.number {
                let reason = format!(
                    "UDP flow {} got the answer to a datagram of flow {number}",
                    flow.number
                );
                self.judge.violation(reason);
                continue;
            }
            if let Some(mapping) = flow.mapping.filter(|mapping| *mapping != from) {
                self.figures.broken += 1;
                self.judge.violation(format!(
                    "UDP flow {number} was {mapping} at the far end and is {from} now"
                ));
            }
            flow.mapping = Some(from);
            let recent = flow.sent.wrapping_sub(sent) <= 64;
            flow.answered =
                flow.answered.max(flow.sent_at[(sent % 64) as usize].filter(|_| recent));
            self.figures.datagrams += 1;
        }
    }

    /// Those that lag when patience is over are broken.
    fn give_up(&mut self) {
        if self.poke == 0 || self.control.give_up.load(Ordering::SeqCst) != self.poke {
            return;
        }
        let since = self.poked_at;
        let lags = |answered: Option<Instant>| answered.is_none_or(|sent| sent < since);
        let (silent, good): (Vec<_>, Vec<_>) =
            self.connections.drain(..).partition(|c| c.established && lags(c.answered));
        self.connections = good;
        for connection in &silent {
            self.broken(
                connection,
                &format!("silent for {} ms of a whole network", since.elapsed().as_millis()),
            );
        }
        for at in (0..self.flows.len()).rev() {
            if lags(self.flows[at].answered) {
                let flow = self.flows.swap_remove(at);
                self.figures.broken += 1;
                self.judge.violation(format!(
                    "UDP flow {} ({:?} at the far end) is silent for {} ms of a whole network",
                    flow.number,
                    flow.mapping,
                    since.elapsed().as_millis()
                ));
            }
        }
        self.load.udp = self.flows.len();
    }

    fn tell(&self, paused: bool) {
        let lags = |answered: Option<Instant>| answered.is_none_or(|sent| sent < self.poked_at);
        let lasting = |kind: Kind| {
            self.connections.iter().filter(|c| c.kind == kind && c.established).count()
        };
        // Before their first answers, those that are still being opened count too: the run begins
        // when all work.
        let missing = if self.poke == 1 {
            (self.load.busy + self.load.sleepy)
                .saturating_sub(lasting(Kind::Busy) + lasting(Kind::Sleepy))
        } else {
            0
        };
        let lagging = self.connections.iter().filter(|c| c.established && lags(c.answered)).count();
        let lagging_flows = self.flows.iter().filter(|f| lags(f.answered)).count();
        self.control.publish(Report {
            figures: self.figures,
            poke: self.poke,
            paused,
            lagging: lagging + lagging_flows + missing,
            outstanding: self.connections.iter().filter(|c| c.outstanding.is_some()).count(),
        });
    }
}

/// What a connection sends: every byte depends on the connection and on the exchange.
fn message(number: u32, exchange: u32) -> [u8; MESSAGE_BYTES] {
    let mut bytes = [0; MESSAGE_BYTES];
    let mut x =
        (u64::from(number) << 32 | u64::from(exchange)).wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1;
    for byte in &mut bytes {
        x ^= x << 13;
        x ^= x >> 7;
        x ^= x << 17;
        *byte = (x >> 24) as u8;
    }
    bytes
}

/// Flow, number and source of a datagram that came back.
fn parse(bytes: &[u8]) -> Option<(u32, u32, SocketAddrV4)> {
    let bytes: &[u8; 14] = bytes.try_into().ok()?;
    let [a, b, c, d, e, f, g, h, i, j, k, l, m, n] = *bytes;
    let from = SocketAddrV4::new(Ipv4Addr::new(i, j, k, l), u16::from_be_bytes([m, n]));
    Some((u32::from_be_bytes([a, b, c, d]), u32::from_be_bytes([e, f, g, h]), from))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn messages_differ_by_connection_and_exchange() {
        let all = [message(1, 0), message(1, 1), message(2, 0), message(2, 1)];
        for (i, a) in all.iter().enumerate() {
            for b in &all[i + 1..] {
                assert!(a.iter().zip(b).filter(|(x, y)| x != y).count() > 8, "{a:?} {b:?}");
            }
        }
    }

    #[test]
    fn a_datagram_that_came_back_tells_its_source() {
        let bytes = [0, 0, 0, 3, 0, 0, 1, 0, 203, 0, 113, 9, 4, 1];
        assert_eq!(
            parse(&bytes),
            Some((3, 256, SocketAddrV4::new(Ipv4Addr::new(203, 0, 113, 9), 1025)))
        );
        assert_eq!(parse(&bytes[1..]), None);
    }
}
