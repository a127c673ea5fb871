//! Connections through the lab: what they carry, and when one is broken.
//!
//! Three kinds of TCP connections from a client to echo servers ([`super::ends`]): *busy* ones
//! exchange a message each 20 to 50 ms, *sleepy* ones each 2 to 4 s, both for as long as the run
//! lasts; *brief* ones are opened all the time, exchange a few messages and close. UDP flows tell
//! from which address and port their datagrams arrive. The rules of judgement are in
//! [`crate::chaos`].

use crate::echo::limit_backoff;
use crate::ends::Ends;
use crate::random::Random;
use crate::{Judge, client};
use lab::error::{Error, Result};
use lab::instance::Lab;
use lab::interrupt;
use serde::Serialize;
use std::net::{SocketAddrV4, TcpStream};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

/// How many connections there are of each kind.
#[derive(Clone, Copy, Debug)]
pub struct Load {
    /// Busy TCP connections.
    pub busy: usize,
    /// Sleepy ones.
    pub sleepy: usize,
    /// Brief ones opened in a second.
    pub brief_per_s: u64,
    /// UDP flows.
    pub udp: usize,
}

impl Default for Load {
    fn default() -> Self {
        Self { busy: 32, sleepy: 16, brief_per_s: 10, udp: 8 }
    }
}

/// What has become of them.
#[derive(Clone, Copy, Debug, Default, Serialize)]
pub struct Figures {
    /// TCP connections that were established.
    pub established: u64,
    /// Attempts that failed in a failure window.
    pub excused: u64,
    /// Those that broke.
    pub broken: u64,
    /// Exchanges that were answered, and right.
    pub exchanges: u64,
    /// Datagrams that were answered.
    pub datagrams: u64,
    /// Longest time from a message to its answer, in milliseconds.
    pub slowest_ms: u64,
}

/// What the client's thread tells.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Report {
    pub figures: Figures,
    /// The last poke that it has heard of.
    pub poke: u64,
    /// Whether it has heard that it is to pause.
    pub paused: bool,
    /// Connections and flows that have answered nothing that was sent since.
    pub lagging: usize,
    /// Messages on their way.
    pub outstanding: usize,
}

/// What the client's thread is told.
#[derive(Default)]
pub(super) struct Control {
    pub stop: AtomicBool,
    /// Start no exchange and no connection.
    pub pause: AtomicBool,
    /// Grows with each demand that every connection shows that it works.
    pub poke: AtomicU64,
    /// The poke after which those that lag are given up.
    pub give_up: AtomicU64,
    report: Mutex<Report>,
}

impl Control {
    pub(super) fn publish(&self, report: Report) {
        *self.report.lock().unwrap_or_else(PoisonError::into_inner) = report;
    }

    fn read(&self) -> Report {
        *self.report.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The connections of a lab; they end with this value.
pub struct Connections {
    control: Arc<Control>,
    thread: Option<JoinHandle<()>>,
}

impl Connections {
    /// Opens the lasting ones and waits until each has had an answer.
    ///
    /// # Errors
    /// They do not all work, even before anything fails.
    pub fn start(
        lab: &Lab,
        ends: &Ends,
        load: Load,
        seed: u64,
        judge: &Arc<Judge>,
    ) -> Result<Self> {
        let control = Arc::new(Control::default());
        let (netns, to) = (lab.netns(&ends.client)?, ends.to);
        let random = Random::new(seed, "connections");
        let mut client =
            client::Client::new(to, load, random, Arc::clone(judge), Arc::clone(&control));
        let thread = std::thread::spawn(move || {
            // Threads do not share their namespaces. Without this one nothing would connect, which
            // `settle` reports.
            if netns.enter_thread().is_ok() {
                client.run();
            }
        });
        let connections = Self { control, thread: Some(thread) };
        let broken = connections.settle(Duration::from_secs(10))?;
        if broken > 0 || connections.figures().established < (load.busy + load.sleepy) as u64 {
            let figures = connections.figures();
            return Err(Error::Run(format!(
                "connections do not work even before anything fails: {figures:?}"
            )));
        }
        Ok(connections)
    }

    /// The figures so far.
    pub fn figures(&self) -> Figures {
        self.control.read().figures
    }

    /// Waits until each established connection and each flow has answered something that was sent
    /// from now on. Those that have not within `limit` are broken; returns how many these are.
    ///
    /// # Errors
    /// The process is to stop.
    pub fn settle(&self, limit: Duration) -> Result<usize> {
        let poke = self.control.poke.fetch_add(1, Ordering::SeqCst) + 1;
        let settled = self.wait(limit, |report| report.poke == poke && report.lagging == 0)?;
        if settled {
            return Ok(0);
        }
        let lagging = self.control.read().lagging;
        self.control.give_up.store(poke, Ordering::SeqCst);
        self.wait(limit, |report| report.lagging == 0)?;
        Ok(lagging.max(1))
    }

    /// Nothing more is sent until [`Connections::resume`]; waits until the last answers are there.
    ///
    /// # Errors
    /// The process is to stop.
    pub fn pause(&self) -> Result<()> {
        self.control.pause.store(true, Ordering::SeqCst);
        self.wait(Duration::from_secs(10), |report| report.paused && report.outstanding == 0)?;
        Ok(())
    }

    /// Goes on.
    pub fn resume(&self) {
        self.control.pause.store(false, Ordering::SeqCst);
    }

    fn wait(&self, limit: Duration, done: impl Fn(&Report) -> bool) -> Result<bool> {
        let deadline = Instant::now() + limit;
        while !done(&self.control.read()) {
            if interrupt::requested() {
                return Err(Error::Interrupted);
            }
            if Instant::now() > deadline {
                return Ok(false);
            }
            std::thread::sleep(Duration::from_millis(5));
        }
        Ok(true)
    }
}

impl Drop for Connections {
    fn drop(&mut self) {
        self.control.stop.store(true, Ordering::Relaxed);
        if let Some(thread) = self.thread.take() {
            // It has nothing to say.
            let _ = thread.join();
        }
    }
}

/// A TCP connection being opened; it is established, or not, when it is writable.
pub(super) fn connecting(to: SocketAddrV4) -> std::io::Result<TcpStream> {
    use nix::sys::socket::{AddressFamily, SockFlag, SockType, SockaddrIn, connect, socket};
    use std::os::fd::AsRawFd;
    let flags = SockFlag::SOCK_NONBLOCK | SockFlag::SOCK_CLOEXEC;
    let fd = socket(AddressFamily::Inet, SockType::Stream, flags, None)?;
    let raw = fd.as_raw_fd();
    let stream = TcpStream::from(fd);
    limit_backoff(&stream);
    stream.set_nodelay(true)?;
    match connect(raw, &SockaddrIn::from(to)) {
        Ok(()) | Err(nix::errno::Errno::EINPROGRESS) => Ok(stream),
        Err(error) => Err(error.into()),
    }
}
