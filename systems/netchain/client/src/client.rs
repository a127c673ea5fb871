//! The blocking client: the core with a UDP socket.

use crate::Config;
use crate::core::{Core, Step};
use crate::outcome::{Failure, NotBegun, Outcome};
use netchain_protocol::{Key, Operation, PORT};
use rand::TryRngCore;
use rand::rngs::OsRng;
use std::io;
use std::net::UdpSocket;
use std::path::Path;
use std::time::{Duration, Instant};

/// Longer than any message.
const BUFFER: usize = 512;

/// Why a call has no outcome.
#[derive(Debug, thiserror::Error)]
pub enum Failed {
    /// The configuration cannot be used.
    #[error("{0}")]
    Config(String),
    /// The socket fails.
    #[error("UDP socket: {0}")]
    Socket(#[from] io::Error),
    /// The switches carry none of this client's requests out.
    #[error(transparent)]
    Refused(#[from] Failure),
    /// Too many requests at a time.
    #[error("{0}")]
    Busy(NotBegun),
}

/// A client for one thread: one request at a time.
pub struct Client {
    core: Core,
    socket: UdpSocket,
    began: Instant,
    /// The process that made it: a child of a fork must be another client.
    process: u32,
    config: Config,
}

fn core(config: &Config) -> Result<Core, Failed> {
    // From the kernel: a generator in the process gives both sides of a fork the same numbers.
    let identity = OsRng.try_next_u64().map_err(|error| Failed::Config(error.to_string()))?;
    Ok(Core::new(config.ring.clone(), identity, config.retry_ms * 1000, config.deadline_ms * 1000))
}

impl Client {
    /// With a configuration file.
    ///
    /// # Errors
    /// The file, or no socket.
    pub fn open(file: &Path) -> Result<Client, Failed> {
        Client::new(Config::read(file).map_err(Failed::Config)?)
    }

    /// With a configuration.
    ///
    /// # Errors
    /// The configuration, or no socket.
    pub fn new(config: Config) -> Result<Client, Failed> {
        let socket = UdpSocket::bind("0.0.0.0:0")?;
        let process = std::process::id();
        Ok(Client { core: core(&config)?, socket, began: Instant::now(), process, config })
    }

    /// The key's value.
    ///
    /// # Errors
    /// The switches refuse this client, or the socket fails.
    pub fn get(&mut self, key: &Key) -> Result<Outcome, Failed> {
        self.ask(Operation::Read, key, None, 0)
    }

    /// Writes a value.
    ///
    /// # Errors
    /// The switches refuse this client, or the socket fails.
    pub fn put(&mut self, key: &Key, value: &[u8]) -> Result<Outcome, Failed> {
        self.ask(Operation::Put, key, Some(value), 0)
    }

    /// Writes a value if the key has none.
    ///
    /// # Errors
    /// The switches refuse this client, or the socket fails.
    pub fn insert(&mut self, key: &Key, value: &[u8]) -> Result<Outcome, Failed> {
        self.ask(Operation::Insert, key, Some(value), 0)
    }

    /// Writes a value if the key's version is this one. (0: it was never written.)
    ///
    /// # Errors
    /// The switches refuse this client, or the socket fails.
    pub fn compare_and_set(
        &mut self,
        key: &Key,
        version: u64,
        value: &[u8],
    ) -> Result<Outcome, Failed> {
        self.ask(Operation::CompareVersion, key, Some(value), version)
    }

    /// Writes a value if the first eight bytes of the present one are these.
    ///
    /// # Errors
    /// The switches refuse this client, or the socket fails.
    pub fn compare_owner(
        &mut self,
        key: &Key,
        owner: [u8; 8],
        value: &[u8],
    ) -> Result<Outcome, Failed> {
        self.ask(Operation::CompareOwner, key, Some(value), u64::from_be_bytes(owner))
    }

    /// Adds to the number that the value's first eight bytes are, modulo 2^64.
    ///
    /// # Errors
    /// The switches refuse this client, or the socket fails.
    pub fn add(&mut self, key: &Key, delta: u64) -> Result<Outcome, Failed> {
        self.ask(Operation::Add, key, None, delta)
    }

    /// Removes the value, if the key's version is this one; 0: in any case.
    ///
    /// # Errors
    /// The switches refuse this client, or the socket fails.
    pub fn delete(&mut self, key: &Key, version: u64) -> Result<Outcome, Failed> {
        self.ask(Operation::Delete, key, None, version)
    }

    fn now_us(&self) -> u64 {
        self.began.elapsed().as_micros() as u64
    }

    fn ask(
        &mut self,
        operation: Operation,
        key: &Key,
        value: Option<&[u8]>,
        operand: u64,
    ) -> Result<Outcome, Failed> {
        if std::process::id() != self.process || self.core.is_used_up() {
            // Parent and child would take each other's replies, and repeat each other's numbers.
            *self = Client::new(self.config.clone())?;
        }
        let now_us = self.now_us();
        let begun = self.core.begin(operation, *key, value.map(<[u8]>::to_vec), operand, now_us);
        let mut pending = match begun {
            Ok(pending) => pending,
            Err(NotBegun::TooLong(bytes)) => return Ok(Outcome::TooLong(bytes)),
            Err(busy) => return Err(Failed::Busy(busy)),
        };
        let mut step = self.core.time(&mut pending, now_us);
        let mut buffer = [0; BUFFER];
        loop {
            match step {
                Step::Over(result) => return Ok(result?),
                // (No route now may be one in a moment: the next time it goes again.)
                Step::Send(send) => drop(self.socket.send_to(&send.payload, (send.to, PORT))),
                Step::Wait => {}
            }
            let wait = pending.next_us().saturating_sub(self.now_us()).max(1);
            step = match self.receive(wait, &mut buffer) {
                Ok(Some(bytes)) => {
                    let now_us = self.now_us();
                    self.core.receive(&mut pending, &buffer[..bytes], now_us)
                }
                Ok(None) => {
                    let now_us = self.now_us();
                    self.core.time(&mut pending, now_us)
                }
                Err(error) => {
                    self.core.abandon(&pending);
                    return Err(error.into());
                }
            };
        }
    }

    /// Waits for a datagram. None: none came in time.
    fn receive(&self, wait_us: u64, buffer: &mut [u8]) -> io::Result<Option<usize>> {
        self.socket.set_read_timeout(Some(Duration::from_micros(wait_us)))?;
        match self.socket.recv(buffer) {
            Ok(bytes) => Ok(Some(bytes)),
            Err(error) if is_no_news(&error) => Ok(None),
            Err(error) => Err(error),
        }
    }
}

/// Nothing came in time, or the kernel says that something sent before went nowhere.
fn is_no_news(error: &io::Error) -> bool {
    use io::ErrorKind::{
        ConnectionRefused, HostUnreachable, Interrupted, NetworkUnreachable, TimedOut, WouldBlock,
    };
    matches!(
        error.kind(),
        WouldBlock
            | TimedOut
            | Interrupted
            | ConnectionRefused
            | HostUnreachable
            | NetworkUnreachable
    )
}
