//! Controllers that add up what switches count alone. One pulls whole sketches in each period; to
//! the other one the switches' agents push what is new in theirs. Both block at once what an
//! omniscient switch would block: the union of the cells decides, so neither needs a list of
//! sources. Agents map the switch's registers into memory, and talk to the controller by TCP.
//! A third one reads the union from RedPlane's store, to which switches send snapshots by
//! themselves ([`crate::shared::snapshots`]), and tells agents in the same way.

use crate::shared::SWITCHES;
use crate::shared::network::Network;
use crate::shared::sketch::{CELLS, Sketch};
use crate::shared::snapshots::Reader;
use crate::shared::traffic::monotonic_ns;
use anyhow::{Context, Result, anyhow, ensure};
use dataplane::{Dataplane, MappedWords};
use manifest::Register;
use std::io::{ErrorKind, Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Mutex, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

const PORT: u16 = 5500;
/// A read that finds nothing returns after this, to see whether it is over.
const PATIENCE: Duration = Duration::from_millis(50);
/// What an agent is asked for: all that its switch counted.
pub(super) const PULL: u32 = u32::MAX;
/// Of a block, in what the program compares with: 1024 us.
const BLOCKED_FOR: u64 = 600_000;
/// Bytes of a sketch on the wire.
const SKETCH_BYTES: usize = CELLS * 4;

/// How the controller hears of what switches count.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Way {
    /// It asks for all sketches once in this time, or as often as it can.
    Pull(Duration),
    /// Agents look for changes once in this time.
    Push(Duration),
    /// It asks the store for what has changed once in this time, or as often as it can.
    Store(Duration),
}

/// What a controller did.
#[derive(Debug, Default)]
pub struct Work {
    /// Bytes that it got.
    pub bytes: AtomicU64,
    /// Sketches, messages of changes, or the store's answers.
    pub messages: AtomicU64,
    /// Rounds over all switches, or over what the store has.
    pub rounds: AtomicU64,
}

/// A connection on which waiting ends when all is over.
pub(super) struct Wire<'a> {
    pub(super) stream: TcpStream,
    over: &'a AtomicBool,
}

impl Wire<'_> {
    fn new(stream: TcpStream, over: &AtomicBool) -> Result<Wire<'_>> {
        stream.set_nodelay(true)?;
        stream.set_read_timeout(Some(PATIENCE))?;
        Ok(Wire { stream, over })
    }

    fn another(&self) -> Result<Self> {
        Wire::new(self.stream.try_clone()?, self.over)
    }

    /// Fills the buffer. `false`: it is over.
    fn read(&mut self, buffer: &mut [u8]) -> Result<bool> {
        let mut filled = 0;
        while filled < buffer.len() {
            match self.stream.read(&mut buffer[filled..]) {
                Ok(0) => return Ok(false),
                Ok(more) => filled += more,
                Err(error)
                    if matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::TimedOut) =>
                {
                    if self.over.load(Ordering::Acquire) {
                        return Ok(false);
                    }
                }
                Err(error) => return Err(error).context("between agent and controller"),
            }
        }
        Ok(true)
    }

    pub(super) fn read_word(&mut self) -> Result<Option<u32>> {
        let mut bytes = [0; 4];
        Ok(self.read(&mut bytes)?.then_some(u32::from_le_bytes(bytes)))
    }

    /// A number of words, then the words.
    pub(super) fn write_words(&mut self, words: &[u32]) -> Result<()> {
        let count = u32::try_from(words.len())?;
        let bytes: Vec<u8> =
            [count].iter().chain(words).flat_map(|word| word.to_le_bytes()).collect();
        self.stream.write_all(&bytes).context("between agent and controller")
    }

    pub(super) fn read_words(&mut self, count: u32) -> Result<Option<Vec<u32>>> {
        let most = 2 * CELLS;
        ensure!(count as usize <= most, "a message of {count} words; at most {most} make sense");
        let mut bytes = vec![0; count as usize * 4];
        let there = self.read(&mut bytes)?;
        let words = bytes.as_chunks().0.iter().map(|word| u32::from_le_bytes(*word));
        Ok(there.then(|| words.collect()))
    }
}

/// A switch's agent, as far as detection goes.
struct Agent {
    dataplane: Dataplane,
    /// None: it is sent to a store.
    sketch: Option<MappedWords>,
    filled: Register,
}

impl Agent {
    fn new(dataplane: Dataplane, way: Way) -> Result<Agent> {
        let sketch = match way {
            Way::Pull(_) | Way::Push(_) => {
                Some(dataplane.map_words(&dataplane.register("sketch")?.map)?)
            }
            Way::Store(_) => None,
        };
        let filled = dataplane.register("filled")?.clone();
        Ok(Agent { dataplane, sketch, filled })
    }

    fn sketch(&self) -> Result<&MappedWords> {
        self.sketch.as_ref().context("the store has the sketch")
    }

    /// Makes cells block.
    fn block(&self, cells: &[u32]) -> Result<()> {
        let until = ((monotonic_ns()? / 1000) >> 10) + BLOCKED_FOR;
        for cell in cells {
            self.dataplane.write_register(&self.filled, *cell, until.into())?;
        }
        Ok(())
    }

    /// Does what the controller says, until it is over.
    fn obey(&self, mut wire: Wire) -> Result<()> {
        while let Some(word) = wire.read_word()? {
            if word == PULL {
                let sketch = self.sketch()?;
                let cells = (0..CELLS).flat_map(|cell| (sketch.get(cell) as u32).to_le_bytes());
                let bytes: Vec<u8> = cells.collect();
                wire.stream.write_all(&bytes).context("an agent's sketch")?;
            } else if let Some(cells) = wire.read_words(word)? {
                self.block(&cells)?;
            }
        }
        Ok(())
    }

    /// Sends each change of the sketch once: a cell and its new bits.
    fn push(&self, mut wire: Wire, period: Duration) -> Result<()> {
        let sketch = self.sketch()?;
        let mut told = vec![0u32; CELLS];
        let mut next = Instant::now();
        while !wire.over.load(Ordering::Acquire) {
            let mut words = vec![];
            for (cell, told) in (0u32..).zip(&mut told) {
                let now = sketch.get(cell as usize) as u32;
                if now != *told {
                    words.extend([cell, now & !*told]);
                    *told = now;
                }
            }
            if !words.is_empty() {
                wire.write_words(&words)?;
            }
            next = (next + period).max(Instant::now());
            thread::sleep(next.saturating_duration_since(Instant::now()));
        }
        Ok(())
    }
}

/// The controller's side of a switch. (Its writer has a lock, for messages are whole.)
struct Peer<'a> {
    reader: Mutex<Wire<'a>>,
    writer: Mutex<Wire<'a>>,
}

fn locked<T>(mutex: &Mutex<T>) -> std::sync::MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Tells all switches that cells are full.
fn tell(peers: &[Peer], cells: &[u32]) -> Result<()> {
    if cells.is_empty() {
        return Ok(());
    }
    peers.iter().try_for_each(|peer| locked(&peer.writer).write_words(cells))
}

/// Asks all switches for their sketches, again and again.
fn pull(peers: &[Peer], period: Duration, over: &AtomicBool, work: &Work) -> Result<()> {
    let mut sketch = Sketch::default();
    let mut bytes = vec![0; SKETCH_BYTES];
    let mut next = Instant::now();
    while !over.load(Ordering::Acquire) {
        // (All at once: they answer side by side.)
        for peer in peers {
            locked(&peer.writer).stream.write_all(&PULL.to_le_bytes())?;
        }
        let mut full = vec![];
        for peer in peers {
            if !locked(&peer.reader).read(&mut bytes)? {
                return Ok(());
            }
            work.bytes.fetch_add(SKETCH_BYTES as u64, Ordering::Relaxed);
            work.messages.fetch_add(1, Ordering::Relaxed);
            for (cell, bits) in (0u32..).zip(bytes.as_chunks().0) {
                let bits = u32::from_le_bytes(*bits);
                if bits != 0 && sketch.merge(cell as usize, bits) {
                    full.push(cell);
                }
            }
        }
        tell(peers, &full)?;
        work.rounds.fetch_add(1, Ordering::Relaxed);
        next = (next + period).max(Instant::now());
        thread::sleep(next.saturating_duration_since(Instant::now()));
    }
    Ok(())
}

/// Asks the store, again and again. (In the controller's namespace, for good.)
fn read(
    network: &Network,
    peers: &[Peer],
    period: Duration,
    over: &AtomicBool,
    work: &Work,
) -> Result<()> {
    network.controller()?.enter_thread()?;
    let mut reader = Reader::new(network)?;
    let mut next = Instant::now();
    while !over.load(Ordering::Acquire) {
        tell(peers, &reader.round()?)?;
        work.rounds.fetch_add(1, Ordering::Relaxed);
        work.messages.store(reader.answers, Ordering::Relaxed);
        work.bytes.store(reader.bytes, Ordering::Relaxed);
        next = (next + period).max(Instant::now());
        thread::sleep(next.saturating_duration_since(Instant::now()));
    }
    Ok(())
}

/// Takes what one switch pushes.
fn take(peers: &[Peer], number: usize, sketch: &Mutex<Sketch>, work: &Work) -> Result<()> {
    let mut reader = locked(&peers[number].reader);
    while let Some(count) = reader.read_word()? {
        let Some(words) = reader.read_words(count)? else { return Ok(()) };
        work.bytes.fetch_add(4 + 4 * u64::from(count), Ordering::Relaxed);
        work.messages.fetch_add(1, Ordering::Relaxed);
        let mut all = locked(sketch);
        let changes = words.as_chunks::<2>().0.iter();
        let full = changes.filter(|[cell, bits]| all.merge(*cell as usize, *bits));
        let full: Vec<u32> = full.map(|[cell, _]| *cell).collect();
        drop(all);
        tell(peers, &full)?;
    }
    Ok(())
}

/// The connection of a switch: the agent's end, and the controller's.
pub(super) fn connected<'a>(
    network: &Network,
    switch: usize,
    over: &'a AtomicBool,
) -> Result<(Wire<'a>, Wire<'a>)> {
    let address = SocketAddr::from(([10, 4, switch as u8 + 1, 10], PORT));
    let listener = network.controller()?.run(|| TcpListener::bind(address))?;
    let timeout = Duration::from_secs(2);
    let agent = network.netns('s', switch)?.run(|| TcpStream::connect_timeout(&address, timeout));
    let agent = agent.with_context(|| format!("from switch {} to {address}", switch + 1))?;
    let (controller, _) = listener.accept()?;
    Ok((Wire::new(agent, over)?, Wire::new(controller, over)?))
}

fn joined(thread: thread::ScopedJoinHandle<'_, Result<()>>) -> Result<()> {
    thread.join().map_err(|_| anyhow!("a thread of the controller or an agent panicked"))?
}

/// Ends controller and agents; what was done meanwhile, or what went wrong first.
pub(super) fn end<T>(
    over: &AtomicBool,
    threads: Vec<thread::ScopedJoinHandle<'_, Result<()>>>,
    result: Result<T>,
) -> Result<T> {
    over.store(true, Ordering::Release);
    let ended: Vec<Result<()>> = threads.into_iter().map(joined).collect();
    let result = result?;
    ended.into_iter().collect::<Result<()>>()?;
    Ok(result)
}

/// Runs controller and agents while `meanwhile` works; what that returns.
///
/// # Errors
/// Something cannot be connected, or `meanwhile` fails.
pub fn beside<T>(
    network: &Network,
    way: Way,
    work: &Work,
    meanwhile: impl FnOnce() -> Result<T>,
) -> Result<T> {
    let over = AtomicBool::new(false);
    let (mut agents, mut peers) = (vec![], vec![]);
    for switch in 0..SWITCHES {
        let (agent, controller) = connected(network, switch, &over)?;
        agents.push((Agent::new(network.dataplane(switch)?, way)?, agent));
        let writer = Mutex::new(controller.another()?);
        peers.push(Peer { reader: Mutex::new(controller), writer });
    }
    let sketch = Mutex::new(Sketch::default());
    thread::scope(|scope| {
        let (peers, over, sketch) = (&peers[..], &over, &sketch);
        let mut threads = vec![];
        for (number, (agent, wire)) in agents.iter().enumerate() {
            let reader = wire.another();
            threads.push(scope.spawn(move || agent.obey(reader?)));
            if let Way::Push(period) = way {
                let wire = wire.another();
                threads.push(scope.spawn(move || agent.push(wire?, period)));
                threads.push(scope.spawn(move || take(peers, number, sketch, work)));
            }
        }
        match way {
            Way::Pull(period) => {
                threads.push(scope.spawn(move || pull(peers, period, over, work)));
            }
            Way::Store(period) => {
                threads.push(scope.spawn(move || read(network, peers, period, over, work)));
            }
            Way::Push(_) => {}
        }
        end(over, threads, meanwhile())
    })
}
