//! Many requests at a time by one thread, which does the socket's work itself.

use crate::core::{Core, Send};
use crate::engine::{Answer, Engine, Ticket};
use crate::outcome::{Failure, NotBegun};
use crate::socket::{BATCH, Calls, Socket};
use crate::{Config, Listing, Request, Wrong, fork};
use netchain_keys::Identity;
use rand::TryRngCore;
use rand::rngs::OsRng;
use std::io;
use std::os::fd::{AsFd, BorrowedFd};
use std::path::Path;
use std::time::{Duration, Instant};

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
    /// It did not begin.
    #[error(transparent)]
    NotBegun(#[from] NotBegun),
    /// This process is a child of the one that made the client.
    #[error("this client is the parent process's: make one in the child")]
    Forked,
    /// The client was closed, or its runtime has ended.
    #[error("the client is closed")]
    Closed,
}

/// Many requests at a time, without threads: the caller's thread sends and receives in
/// [`Pipeline::next`].
///
/// ```no_run
/// # fn main() -> Result<(), Box<dyn std::error::Error>> {
/// use netchain_client::{Key, Pipeline, Request};
/// let mut pipeline = Pipeline::open("kv.toml".as_ref())?;
/// for name in ["a", "b", "c"] {
///     pipeline.submit(Request::get(&Key::from_name(name)?))?;
/// }
/// while let Some((ticket, answer)) = pipeline.next(None)? {
///     println!("{ticket:?}: {answer:?}");
/// }
/// # Ok(())
/// # }
/// ```
pub struct Pipeline {
    engine: Engine,
    socket: Socket,
    sends: Vec<Send>,
    began: Instant,
    /// As last read.
    now_us: u64,
    /// The process that made it.
    process: u32,
    config: Config,
}

fn core(config: &Config) -> Result<Core, Failed> {
    // From the kernel: a generator in the process gives both sides of a fork the same numbers.
    let identity = OsRng.try_next_u64().map_err(|error| Failed::Config(error.to_string()))?;
    let key = match &config.identity {
        Some(file) => {
            Some(Identity::load(file).map_err(|error| Failed::Config(error.to_string()))?)
        }
        None => None,
    };
    let (retry_us, deadline_us) = (config.retry_ms * 1000, config.deadline_ms * 1000);
    let core = Core::new(config.ring.clone(), identity, retry_us, deadline_us);
    Ok(core.with_key(key.map(|key| key.key())).with_identities(config.identities.into()))
}

impl Pipeline {
    /// With a configuration file.
    ///
    /// # Errors
    /// The file, or no socket.
    pub fn open(file: &Path) -> Result<Pipeline, Failed> {
        Pipeline::new(Config::read(file).map_err(Failed::Config)?)
    }

    /// With a configuration.
    ///
    /// # Errors
    /// The client's key, or no socket.
    pub fn new(config: Config) -> Result<Pipeline, Failed> {
        Ok(Pipeline {
            engine: Engine::new(core(&config)?),
            socket: Socket::open()?,
            sends: vec![],
            began: Instant::now(),
            now_us: 0,
            process: fork::process(),
            config,
        })
    }

    /// Another client with the same configuration: another identity, another socket.
    ///
    /// # Errors
    /// The client's key, or no socket.
    pub fn renew(&self) -> Result<Pipeline, Failed> {
        Pipeline::new(self.config.clone())
    }

    /// A listing of the keys that begin with a prefix.
    ///
    /// # Errors
    /// The prefix has more than 16 bytes.
    pub fn listing(&self, prefix: &[u8]) -> Result<Listing, Wrong> {
        Listing::new(&self.config.ring, prefix)
    }

    /// This process is a child of the one that made the pipeline: all calls fail.
    pub fn is_forked(&self) -> bool {
        fork::process() != self.process
    }

    fn check(&self) -> Result<(), Failed> {
        // Parent and child would take each other's replies, and repeat each other's numbers.
        if self.is_forked() { Err(Failed::Forked) } else { Ok(()) }
    }

    fn read_clock(&mut self) -> u64 {
        self.now_us = self.began.elapsed().as_micros() as u64;
        self.now_us
    }

    /// Begins a request. It is sent by the next call of [`Pipeline::next`], [`Pipeline::turn`] or
    /// [`Pipeline::flush`], with the others that wait; or at once when a whole batch does.
    ///
    /// # Errors
    /// [`NotBegun`]: too many are under way, or the value is too long. [`Failed::Forked`].
    pub fn submit(&mut self, request: Request) -> Result<Ticket, Failed> {
        self.check()?;
        let now_us = self.read_clock();
        let ticket = self.engine.submit(request, now_us)?;
        if self.engine.to_send() >= BATCH {
            self.flush();
        }
        Ok(ticket)
    }

    /// Nobody waits for a request any more. It may have been carried out, or may still be.
    pub fn cancel(&mut self, ticket: Ticket) {
        self.engine.cancel(ticket);
    }

    /// Sends what waits.
    pub fn flush(&mut self) {
        if self.engine.to_send() > 0 && !self.is_forked() {
            self.engine.take_sends(&mut self.sends);
            self.socket.send(&mut self.sends);
            self.sends.clear();
        }
    }

    /// The next answer. Sends what waits, and waits itself until there is one, or for about `wait`.
    /// Without `wait` it waits until nothing is under way. None: there is no answer.
    ///
    /// # Errors
    /// The socket; [`Failed::Forked`].
    pub fn next(&mut self, wait: Option<Duration>) -> Result<Option<(Ticket, Answer)>, Failed> {
        self.check()?;
        let until_us = wait.map(|wait| self.now_us.saturating_add(wait.as_micros() as u64));
        loop {
            if let Some(answer) = self.engine.answer() {
                return Ok(Some(answer));
            }
            self.flush();
            let next_us = self.engine.next_us();
            let Some(wake_us) = next_us.into_iter().chain(until_us).min() else { return Ok(None) };
            if next_us.is_none() && until_us.is_some_and(|until_us| self.now_us >= until_us) {
                return Ok(None);
            }
            if wake_us > self.now_us {
                let wait = Duration::from_micros(wake_us - self.now_us);
                let count = self.socket.receive(wait, self.engine.outstanding() == 1)?;
                self.received(count);
            }
            let now_us = self.now_us;
            self.engine.time(now_us);
            if until_us.is_some_and(|until_us| now_us >= until_us) {
                return Ok(self.engine.answer());
            }
        }
    }

    /// Sends what waits, takes what came, and does what is due, without waiting. Then
    /// [`Pipeline::answer`] has the answers, and it must be called again when the socket
    /// ([`AsFd`]) is readable or [`Pipeline::next_wait`] is over. For event loops.
    ///
    /// # Errors
    /// The socket; [`Failed::Forked`].
    pub fn turn(&mut self) -> Result<(), Failed> {
        self.check()?;
        self.flush();
        loop {
            let count = self.socket.receive_now()?;
            self.received(count);
            if count == 0 {
                break;
            }
        }
        self.engine.time(self.now_us);
        self.flush();
        Ok(())
    }

    fn received(&mut self, count: usize) {
        let now_us = self.read_clock();
        for at in 0..count {
            self.engine.receive(self.socket.received(at), now_us);
        }
    }

    /// The next answer that is there.
    pub fn answer(&mut self) -> Option<(Ticket, Answer)> {
        self.engine.answer()
    }

    /// After so long [`Pipeline::turn`] must be called. None: nothing is under way.
    pub fn next_wait(&mut self) -> Option<Duration> {
        let next_us = self.engine.next_us()?;
        let now_us = self.read_clock();
        Some(Duration::from_micros(next_us.saturating_sub(now_us)))
    }

    /// Requests that are not over.
    pub fn outstanding(&self) -> usize {
        self.engine.outstanding()
    }

    /// Replies that no switch made for this client: they changed nothing.
    pub fn forged(&self) -> u64 {
        self.engine.forged()
    }

    /// The socket's system calls so far.
    pub fn calls(&self) -> Calls {
        self.socket.calls
    }
}

impl AsFd for Pipeline {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.socket.as_fd()
    }
}
