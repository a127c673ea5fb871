//! The idle connections of the demonstration: an echo server, and a client that holds many
//! connections and uses them when it is told to.
//!
//! The client speaks JSON lines on standard output and takes commands on standard input:
//! `check LABEL TIMEOUT_MS` makes one exchange on every connection and prints an [`Exchange`]; end
//! of input ends it.

use crate::error::{Error, Result};
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use serde::{Deserialize, Serialize};
use std::io::{BufRead, Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::os::fd::AsFd;
use std::time::{Duration, Instant};

/// Bytes of a request and of its answer.
const MESSAGE_BYTES: usize = 8;
/// Stack of a server thread: it needs next to none, and there are hundreds.
const STACK_BYTES: usize = 64 * 1024;

/// Outcome of one exchange on every connection.
#[derive(Clone, Debug, Default, Deserialize, Eq, PartialEq, Serialize)]
pub struct Exchange {
    /// What the exchange was for.
    pub label: String,
    /// Connections opened at the start.
    pub connections: usize,
    /// Those that answered.
    pub answered: usize,
    /// Those that were reset or closed, now or before.
    pub reset: usize,
    /// Those that gave no answer in time, now or before.
    pub silent: usize,
    /// Time until the last answer, in milliseconds.
    pub slowest_ms: u64,
}

impl Exchange {
    /// Connections that no longer work.
    pub fn broken(&self) -> usize {
        self.reset + self.silent
    }
}

/// Answers every message with itself, for ever.
///
/// # Errors
/// The address cannot be bound.
pub fn serve(address: SocketAddr) -> Result<()> {
    let listener =
        TcpListener::bind(address).map_err(Error::system(format!("listening on {address}")))?;
    for stream in listener.incoming() {
        let Ok(stream) = stream else { continue };
        // Should no thread start, the connection closes and its client reports that.
        let _ = std::thread::Builder::new().stack_size(STACK_BYTES).spawn(move || echo(stream));
    }
    Ok(())
}

fn echo(mut stream: TcpStream) {
    let mut message = [0; MESSAGE_BYTES];
    let _ = stream.set_nodelay(true);
    while stream.read_exact(&mut message).is_ok() && stream.write_all(&message).is_ok() {}
}

#[derive(Debug)]
enum State {
    Open,
    Reset,
    Silent,
}

struct Connection {
    stream: TcpStream,
    state: State,
    /// Bytes of the present exchange's answer that have come.
    received: usize,
}

/// Opens `count` connections to an echo server and serves commands from standard input until its
/// end.
///
/// # Errors
/// A connection cannot be opened, or standard output is closed.
pub fn connect(address: SocketAddr, count: usize) -> Result<()> {
    let mut connections = Vec::with_capacity(count);
    for n in 0..count {
        let stream = TcpStream::connect_timeout(&address, Duration::from_secs(5))
            .and_then(|stream| {
                stream.set_nodelay(true)?;
                stream.set_nonblocking(true)?;
                Ok(stream)
            })
            .map_err(Error::system(format!("opening connection {} to {address}", n + 1)))?;
        connections.push(Connection { stream, state: State::Open, received: 0 });
    }
    print(&exchange(&mut connections, "opened", Duration::from_secs(10)))?;
    for line in std::io::stdin().lock().lines() {
        let line = line.map_err(Error::system("reading commands from standard input"))?;
        let words: Vec<&str> = line.split_whitespace().collect();
        if let ["check", label, timeout] = words.as_slice()
            && let Ok(timeout) = timeout.parse()
        {
            print(&exchange(&mut connections, label, Duration::from_millis(timeout)))?;
        } else {
            return Err(Error::Run(format!("\"{line}\": must be: check LABEL TIMEOUT_MS")));
        }
    }
    Ok(())
}

fn print(exchange: &Exchange) -> Result<()> {
    let text = serde_json::to_string(exchange).map_err(|e| Error::Run(e.to_string()))?;
    let mut out = std::io::stdout().lock();
    writeln!(out, "{text}")
        .and_then(|()| out.flush())
        .map_err(Error::system("writing to standard output"))
}

/// One request on every open connection, and the wait for the answers.
fn exchange(connections: &mut [Connection], label: &str, timeout: Duration) -> Exchange {
    let start = Instant::now();
    for connection in connections.iter_mut() {
        connection.received = 0;
        if matches!(connection.state, State::Open)
            && connection.stream.write_all(&[b'.'; MESSAGE_BYTES]).is_err()
        {
            connection.state = State::Reset;
        }
    }
    let mut slowest = Duration::ZERO;
    loop {
        let waiting: Vec<usize> = (0..connections.len())
            .filter(|&i| {
                matches!(connections[i].state, State::Open)
                    && connections[i].received < MESSAGE_BYTES
            })
            .collect();
        let left = timeout.saturating_sub(start.elapsed());
        if waiting.is_empty() {
            break;
        }
        if left.is_zero() {
            for i in waiting {
                connections[i].state = State::Silent;
            }
            break;
        }
        for i in readable(connections, &waiting, left) {
            receive(&mut connections[i]);
            slowest = start.elapsed();
        }
    }
    let count =
        |wanted: fn(&State) -> bool| connections.iter().filter(|c| wanted(&c.state)).count();
    Exchange {
        label: label.to_string(),
        connections: connections.len(),
        answered: count(|s| matches!(s, State::Open)),
        reset: count(|s| matches!(s, State::Reset)),
        silent: count(|s| matches!(s, State::Silent)),
        slowest_ms: u64::try_from(slowest.as_millis()).unwrap_or(u64::MAX),
    }
}

/// Which of the waiting connections have something to read.
fn readable(connections: &[Connection], waiting: &[usize], left: Duration) -> Vec<usize> {
    let mut polled: Vec<PollFd> = waiting
        .iter()
        .map(|&i| PollFd::new(connections[i].stream.as_fd(), PollFlags::POLLIN))
        .collect();
    let timeout =
        PollTimeout::try_from(left.min(Duration::from_millis(100))).unwrap_or(PollTimeout::ZERO);
    if poll(&mut polled, timeout).is_err() {
        return Vec::new();
    }
    waiting
        .iter()
        .zip(&polled)
        .filter(|(_, p)| p.revents().is_some_and(|r| !r.is_empty()))
        .map(|(&i, _)| i)
        .collect()
}

fn receive(connection: &mut Connection) {
    let mut buffer = [0; MESSAGE_BYTES];
    let want = MESSAGE_BYTES - connection.received;
    match connection.stream.read(&mut buffer[..want]) {
        Ok(0) => connection.state = State::Reset,
        Ok(n) => connection.received += n,
        Err(e) if e.kind() == std::io::ErrorKind::WouldBlock => {}
        Err(_) => connection.state = State::Reset,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tells_answered_reset_and_silent_apart() {
        let listener = TcpListener::bind("127.0.0.1:0").expect("bind");
        let address = listener.local_addr().expect("address");
        let mut connections = Vec::new();
        let mut held = Vec::new();
        for n in 0..3 {
            let stream = TcpStream::connect(address).expect("connect");
            stream.set_nonblocking(true).expect("nonblocking");
            connections.push(Connection { stream, state: State::Open, received: 0 });
            let (server, _) = listener.accept().expect("accept");
            match n {
                0 => drop(std::thread::spawn(move || echo(server))),
                1 => drop(server),
                _ => held.push(server),
            }
        }
        let seen = exchange(&mut connections, "x", Duration::from_millis(300));
        assert_eq!((seen.answered, seen.reset, seen.silent), (1, 1, 1), "{seen:?}");
        assert_eq!(seen.broken(), 2);
        let again = exchange(&mut connections, "y", Duration::from_millis(300));
        assert_eq!((again.answered, again.broken()), (1, 2), "a broken connection stays broken");
    }
}
