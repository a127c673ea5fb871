//! Redis: one server, or a primary with replicas that `WAIT` waits for.

use super::{KEYS, Load, Servers, UNDER_WAY, key, wait_for};
use anyhow::{Context, Result, ensure};
use std::io::{Read, Write};
use std::net::{Ipv4Addr, TcpListener, TcpStream};
use std::path::Path;
use std::process::Command;
use std::time::Duration;

/// A primary and its replicas, without files.
pub struct Redis {
    servers: Servers,
    port: u16,
    replicas: usize,
}

/// A connection, and what has come in on it.
struct Connection {
    stream: TcpStream,
    text: Vec<u8>,
}

/// Appends a command in RESP.
fn command(words: &[&[u8]], bytes: &mut Vec<u8>) {
    bytes.extend_from_slice(format!("*{}\r\n", words.len()).as_bytes());
    for word in words {
        bytes.extend_from_slice(format!("${}\r\n", word.len()).as_bytes());
        bytes.extend_from_slice(word);
        bytes.extend_from_slice(b"\r\n");
    }
}

impl Connection {
    fn open(port: u16) -> Result<Connection> {
        let stream = TcpStream::connect((Ipv4Addr::LOCALHOST, port))?;
        stream.set_nodelay(true)?;
        stream.set_read_timeout(Some(Duration::from_secs(5)))?;
        Ok(Connection { stream, text: Vec::new() })
    }

    /// Reads so many replies of a line each; returns the last.
    fn replies(&mut self, count: usize) -> Result<Vec<u8>> {
        let mut last = Vec::new();
        for _ in 0..count {
            let end = loop {
                if let Some(at) = self.text.windows(2).position(|two| two == b"\r\n") {
                    break at;
                }
                let mut buffer = [0; 16_384];
                let bytes = self.stream.read(&mut buffer).context("Redis does not answer")?;
                ensure!(bytes > 0, "Redis closed a connection");
                self.text.extend_from_slice(&buffer[..bytes]);
            };
            last = self.text.drain(..end + 2).take(end).collect();
            ensure!(last.first() != Some(&b'-'), "Redis: {}", String::from_utf8_lossy(&last));
        }
        Ok(last)
    }

    fn ask(&mut self, words: &[&[u8]]) -> Result<Vec<u8>> {
        let mut bytes = Vec::new();
        command(words, &mut bytes);
        self.stream.write_all(&bytes)?;
        self.replies(1)
    }
}

fn free_port() -> Result<u16> {
    Ok(TcpListener::bind((Ipv4Addr::LOCALHOST, 0))?.local_addr()?.port())
}

impl Redis {
    /// Starts one primary and so many replicas, all on one CPU.
    ///
    /// # Errors
    /// `redis-server` is not there or does not start.
    pub fn start(replicas: usize, cpu: usize, directory: &Path) -> Result<Redis> {
        let mut servers = Servers::default();
        let port = free_port()?;
        for number in 0..=replicas {
            let own = if number == 0 { port } else { free_port()? };
            let mut server = Command::new("redis-server");
            server.current_dir(directory);
            server.args(["--port", &own.to_string(), "--bind", "127.0.0.1"]);
            server.args(["--save", "", "--appendonly", "no", "--loglevel", "warning"]);
            // A replica's first copy goes over the socket, at once.
            server.args(["--repl-diskless-sync", "yes", "--repl-diskless-sync-delay", "0"]);
            if number > 0 {
                server.args(["--replicaof", &format!("127.0.0.1 {port}")]);
            }
            servers.start(&mut server, cpu).context("setup.sh installs redis-server")?;
            wait_for("redis-server", || {
                Connection::open(own).and_then(|mut it| it.ask(&[b"PING"])).is_ok()
            })?;
        }
        let (mut first, all) = (Connection::open(port)?, replicas.to_string());
        wait_for("Redis' replicas", || {
            let set = first.ask(&[b"SET", b"first", b"1"]);
            let seen = set.and_then(|_| first.ask(&[b"WAIT", all.as_bytes(), b"100"]));
            seen.is_ok_and(|seen| seen == format!(":{all}").as_bytes())
        })?;
        Ok(Redis { servers, port, replicas })
    }

    /// SETs of 8 bytes, `together` on a connection in one write and behind them, with replicas, one
    /// WAIT for all of these; on as many connections as bring about [`UNDER_WAY`] writes.
    ///
    /// # Errors
    /// A server fails, or a replica does not acknowledge.
    pub fn load(&self, together: usize, time: Duration) -> Result<Load> {
        let count = UNDER_WAY.div_ceil(together);
        let mut connections: Vec<Connection> =
            (0..count).map(|_| Connection::open(self.port)).collect::<Result<_>>()?;
        let all = self.replicas.to_string();
        let waits = usize::from(self.replicas > 0);
        let (mut bytes, mut next) = (Vec::new(), 0u64);
        Load::measure(&self.servers, time, || {
            for connection in &mut connections {
                bytes.clear();
                for _ in 0..together {
                    let name = key((next % u64::from(KEYS)) as u32);
                    command(&[b"SET", &name, &next.to_be_bytes()], &mut bytes);
                    next += 1;
                }
                if waits > 0 {
                    command(&[b"WAIT", all.as_bytes(), b"5000"], &mut bytes);
                }
                connection.stream.write_all(&bytes)?;
            }
            for connection in &mut connections {
                let last = connection.replies(together + waits)?;
                ensure!(
                    waits == 0 || last == format!(":{all}").as_bytes(),
                    "not all replicas of Redis have a write: {}",
                    String::from_utf8_lossy(&last)
                );
            }
            Ok((together * count) as u64)
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn commands_are_arrays_of_strings() {
        let mut bytes = Vec::new();
        command(&[b"SET", b"key", b"\r\n"], &mut bytes);
        assert_eq!(bytes, b"*3\r\n$3\r\nSET\r\n$3\r\nkey\r\n$2\r\n\r\n\r\n");
    }

    /// A line may come in parts, and an error is none of the answers that are counted.
    #[test]
    fn replies_are_read_line_by_line() {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
        let mut connection = Connection::open(listener.local_addr().unwrap().port()).unwrap();
        let (mut server, _) = listener.accept().unwrap();
        server.write_all(b"+OK\r\n:2").unwrap();
        assert_eq!(connection.replies(1).unwrap(), b"+OK");
        server.write_all(b"\r\n-ERR no\r\n").unwrap();
        assert_eq!(connection.replies(1).unwrap(), b":2");
        let error = connection.replies(1).unwrap_err().to_string();
        assert_eq!(error, "Redis: -ERR no");
        drop(server);
        assert_eq!(connection.replies(1).unwrap_err().to_string(), "Redis closed a connection");
    }
}
