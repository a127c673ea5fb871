//! etcd or ZooKeeper on three servers, with clients by the library for each.

use crate::kv::failure::{Live, Plan, Record, Recorded};
use crate::kv::labs::{Network, Site, kill_and_restore, require};
use crate::kv::ledger::{Busy, Ledger};
use crate::kv::lockers::{Locker, Lockers};
use crate::kv::rivals::{Door, SERVERS, leader};
use crate::kv::workload::{Draw, Measured, Pace, Reading, Workload, number, value};
use crate::kv::{Service, System, runtime};
use anyhow::{Context, Result, anyhow, ensure};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::{Duration, Instant};
use tokio::runtime::Runtime;
use tokio::sync::watch;

/// After so long another one of etcd's servers is asked.
const TRY: Duration = Duration::from_millis(100);
/// After so long a request's outcome is unknown.
const DEADLINE: Duration = Duration::from_secs(5);
/// A key is made within this.
const FILLING: Duration = Duration::from_secs(30);
/// A server that did not answer is not asked for so long.
const AVOIDED: Duration = Duration::from_secs(1);
/// Between two tries.
const PAUSE: Duration = Duration::from_millis(10);
/// Requests of an open loop begin this often.
const TICK: Duration = Duration::from_millis(1);

/// See the module.
pub struct Servers {
    system: System,
    doors: Arc<Vec<Door>>,
    /// The leader.
    leads: usize,
    keys: Arc<Vec<String>>,
    // (Clients end before the network.)
    runtime: Arc<Runtime>,
    network: Network,
    _data: tempfile::TempDir,
}

/// Runs a future on the runtime's own thread.
fn inside<T: Send + 'static>(
    runtime: &Runtime,
    work: impl Future<Output = Result<T>> + Send + 'static,
) -> Result<T> {
    runtime.block_on(runtime.spawn(work))?
}

fn locked<T>(of: &Mutex<T>) -> MutexGuard<'_, T> {
    of.lock().unwrap_or_else(std::sync::PoisonError::into_inner)
}

impl Servers {
    /// Brings three servers up, with their data on tmpfs.
    ///
    /// # Errors
    /// A program is missing, or the lab does not come up.
    pub fn up(site: &Site, system: System) -> Result<Servers> {
        require(system)?;
        let data = tempfile::Builder::new().prefix("stateplane-kv-").tempdir_in("/dev/shm");
        let data = data.context("/dev/shm")?;
        let vars = [("data", data.path().display().to_string())];
        let network = Network::up(site, "kv_servers.toml", Some(system.name()), &vars)?;
        let runtime = Arc::new(runtime(&network)?);
        let opening = async move {
            let mut doors = vec![];
            for server in 0..SERVERS {
                doors.push(Door::open(system, server).await?);
            }
            Ok((doors, leader(system).await?))
        };
        let (doors, leads) = inside(&runtime, opening)?;
        let (doors, keys) = (Arc::new(doors), Arc::default());
        Ok(Servers { system, doors, leads, keys, runtime, network, _data: data })
    }

    /// Where requests go: etcd's leader answers with the fewest hops, ZooKeeper's servers read by
    /// themselves.
    fn doors(&self) -> Vec<usize> {
        if self.system == System::Etcd { vec![self.leads] } else { (0..SERVERS).collect() }
    }

    fn asking(&self, load: &Workload) -> Arc<Asking> {
        let (doors, keys) = (Arc::clone(&self.doors), Arc::clone(&self.keys));
        let Workload { reading, value_bytes, .. } = *load;
        let (draw, measured) = (Mutex::new(load.draw()), Mutex::default());
        Arc::new(Asking { doors, by: self.doors(), keys, reading, value_bytes, draw, measured })
    }
}

/// The next server after `from` that is `open`, and not `avoided` by now if there is such a one.
fn nearest(
    from: usize,
    open: [bool; SERVERS],
    avoided: [Option<Instant>; SERVERS],
    now: Instant,
) -> usize {
    let order = || (0..SERVERS).map(|it| (from + it) % SERVERS).filter(|it| open[*it]);
    let answers = |it: &usize| avoided[*it].is_none_or(|until| until <= now);
    order().find(answers).or_else(|| order().next()).unwrap_or(from % SERVERS)
}

/// Waits a little after an error, and begins a session that is over.
async fn begin_again(door: &Door) {
    // (An error is a session that did not begin: it is tried again.)
    let _ = door.renew().await;
    tokio::time::sleep(PAUSE).await;
}

/// Requests without failures: what they need, and what came of them.
struct Asking {
    doors: Arc<Vec<Door>>,
    by: Vec<usize>,
    keys: Arc<Vec<String>>,
    reading: Reading,
    value_bytes: usize,
    draw: Mutex<Draw>,
    measured: Mutex<Measured>,
}

impl Asking {
    /// Does the next request; `at`: when it was due.
    async fn one(&self, number: usize, at: Instant) {
        let (write, key) = locked(&self.draw).request();
        let (door, key) = (&self.doors[self.by[number % self.by.len()]], &self.keys[key]);
        let outcome = if write {
            door.put(key, value(0, self.value_bytes)).await
        } else {
            door.get(key, self.reading).await.map(drop)
        };
        let took = at.elapsed();
        match outcome {
            Ok(()) => locked(&self.measured).answered(write, took),
            Err(_) => {
                locked(&self.measured).failed += 1;
                begin_again(door).await;
            }
        }
    }

    async fn closed(self: Arc<Self>, outstanding: usize, length: Duration) -> Result<()> {
        let until = Instant::now() + length;
        let tasks = (0..outstanding).map(|task| {
            let asking = Arc::clone(&self);
            tokio::spawn(async move {
                while Instant::now() < until {
                    asking.one(task, Instant::now()).await;
                }
            })
        });
        for task in tasks.collect::<Vec<_>>() {
            task.await?;
        }
        Ok(())
    }

    async fn open(self: Arc<Self>, load: Workload, rate: f64) -> Result<()> {
        let under_way = Arc::new(AtomicUsize::new(0));
        let (mut pace, until) = (Pace::new(rate), Instant::now() + load.length);
        let mut number = 0;
        while Instant::now() < until {
            while let Some(at) = pace.due(Instant::now()) {
                if under_way.load(Ordering::Relaxed) >= load.outstanding {
                    locked(&self.measured).late += 1;
                    continue;
                }
                under_way.fetch_add(1, Ordering::Relaxed);
                let (asking, under_way) = (Arc::clone(&self), Arc::clone(&under_way));
                tokio::spawn(async move {
                    asking.one(number, at).await;
                    under_way.fetch_sub(1, Ordering::Relaxed);
                });
                number += 1;
            }
            tokio::time::sleep(TICK).await;
        }
        while under_way.load(Ordering::Relaxed) > 0 {
            tokio::time::sleep(TICK).await;
        }
        Ok(())
    }
}

impl Service for Servers {
    fn system(&self) -> System {
        self.system
    }

    fn network(&self) -> &Network {
        &self.network
    }

    fn fill(&mut self, keys: usize, value_bytes: usize) -> Result<()> {
        let names: Arc<Vec<String>> = Arc::new((0..keys).map(|it| format!("/lock-{it}")).collect());
        self.keys = Arc::clone(&names);
        let next = Arc::new(AtomicUsize::new(0));
        let (doors, by) = (Arc::clone(&self.doors), self.doors());
        let filling = async move {
            let tasks = (0..128usize).map(|task| {
                let (names, next) = (Arc::clone(&names), Arc::clone(&next));
                let (doors, door) = (Arc::clone(&doors), by[task % by.len()]);
                tokio::spawn(async move {
                    while let Some(name) = names.get(next.fetch_add(1, Ordering::Relaxed)) {
                        let until = Instant::now() + FILLING;
                        // A session that moves to another server loses what is under way.
                        while let Err(error) = doors[door].create(name, value(0, value_bytes)).await
                        {
                            ensure!(Instant::now() < until, error);
                            begin_again(&doors[door]).await;
                        }
                    }
                    Ok::<_, anyhow::Error>(())
                })
            });
            for task in tasks.collect::<Vec<_>>() {
                task.await??;
            }
            Ok(())
        };
        inside(&self.runtime, filling).with_context(|| format!("filling {}", self.system.name()))
    }

    fn run(&mut self, load: &Workload) -> Result<Measured> {
        let asking = self.asking(load);
        Measured::timed(&self.network.processes(), || {
            let working = Arc::clone(&asking);
            match load.rate {
                None => inside(&self.runtime, working.closed(load.outstanding, load.length))?,
                Some(rate) => inside(&self.runtime, working.open(*load, rate))?,
            }
            Ok(std::mem::take(&mut *locked(&asking.measured)))
        })
    }

    fn lockers(&self) -> Result<Lockers> {
        let all = self.doors().into_iter().map(|door| Locker::of(&self.doors[door]));
        Ok(Lockers { runtime: Arc::clone(&self.runtime), all: all.collect::<Result<_>>()? })
    }

    fn fail(&mut self, plan: &Plan, live: &Arc<Live>) -> Result<Recorded> {
        self.fill(plan.locks, 64)?;
        self.leads = inside(&self.runtime, leader(self.system))?;
        let victim = format!("s{}", self.leads + 1);
        let began = Instant::now();
        let holders = Arc::new(Holders {
            doors: Arc::clone(&self.doors),
            patience: if self.system == System::ZooKeeper { DEADLINE } else { TRY },
            avoided: Mutex::new([None; SERVERS]),
            connected: watch::Sender::new([true; SERVERS]),
            keys: Arc::clone(&self.keys),
            began,
            live: Arc::clone(live),
            ledger: Mutex::new(Ledger::new(plan.locks)),
            revisions: Mutex::new(vec![None; plan.locks]),
            records: Mutex::default(),
            under_way: AtomicUsize::new(0),
        });
        let stop = Arc::new(AtomicBool::new(false));
        let renewing = std::array::from_fn::<_, SERVERS, _>(|door| {
            self.runtime.spawn(Arc::clone(&holders).renew(door))
        });
        let load = self.runtime.spawn(Arc::clone(&holders).run(*plan, Arc::clone(&stop)));
        let events = kill_and_restore(&self.network, &victim, plan, began);
        stop.store(events.is_err(), Ordering::Relaxed);
        self.runtime.block_on(load)?;
        let (killed, restored) = events?;
        self.leads = inside(&self.runtime, leader(self.system))?;
        let looked = inside(&self.runtime, Arc::clone(&holders).look());
        renewing.iter().for_each(tokio::task::JoinHandle::abort);
        looked?;
        let (records, lost) =
            (std::mem::take(&mut *locked(&holders.records)), locked(&holders.ledger).lost());
        let led = vec![true; plan.locks];
        Ok(Recorded { began, killed, restored, victim, led, records, lost })
    }
}

/// Holders of locks, who write, and others, who read, while a server dies.
struct Holders {
    doors: Arc<Vec<Door>>,
    /// How long a server has for an answer before another one is asked. ZooKeeper's client itself
    /// says that a connection is lost, for all requests there. A server carries a request out that
    /// was given up before, too: copies of all of them are more than it can do.
    patience: Duration,
    /// Servers that did not answer, until when.
    avoided: Mutex<[Option<Instant>; SERVERS]>,
    /// Servers with a connection, as far as is known.
    connected: watch::Sender<[bool; SERVERS]>,
    keys: Arc<Vec<String>>,
    began: Instant,
    live: Arc<Live>,
    ledger: Mutex<Ledger>,
    /// Of each lock's value, as far as the holder knows.
    revisions: Mutex<Vec<Option<i64>>>,
    records: Mutex<Vec<Record>>,
    under_way: AtomicUsize,
}

impl Holders {
    /// The next server after `from` that is connected, and was not silent lately if there is one.
    /// Waits until there is a connection: thousands of requests that look again and again would
    /// take the CPU time that the servers need to find a leader.
    async fn next_door(&self, from: usize) -> usize {
        let mut connected = self.connected.subscribe();
        // (The sender is `self`'s.)
        let open = connected.wait_for(|all| all.contains(&true)).await.map(|it| *it);
        let (open, now) = (open.unwrap_or([true; SERVERS]), Instant::now());
        nearest(from, open, *locked(&self.avoided), now)
    }

    /// Asks one server; whether it answered, and what a read showed.
    async fn ask(&self, door: usize, lock: usize, write: Option<u64>) -> Result<Option<Vec<u8>>> {
        match write {
            Some(number) => self.write(door, lock, number).await.map(|()| None),
            None => {
                let read = self.doors[door].get(&self.keys[lock], Reading::Newest).await?;
                Ok(read.map(|(value, _)| value))
            }
        }
    }

    /// Writes a number over the value that the holder knows: a try that was given up, and comes to
    /// a server late, then changes nothing.
    async fn write(&self, door: usize, lock: usize, new: u64) -> Result<()> {
        let (door, key) = (&self.doors[door], &self.keys[lock]);
        let known = locked(&self.revisions)[lock].take();
        let revision = match known {
            Some(revision) => revision,
            None => {
                let read = door.get(key, Reading::Newest).await?;
                let (shown, revision) = read.with_context(|| format!("{key} is not there"))?;
                if number(Some(&shown)) == new {
                    return Ok(());
                }
                revision
            }
        };
        let now = door.put_over(key, value(new, 64), revision).await?;
        ensure!(now.is_some(), "{key} has changed: it is read before the next try");
        locked(&self.revisions)[lock] = now;
        Ok(())
    }

    /// Asks servers until one answers: whether it was the first one, and what it showed.
    async fn ask_all(
        &self,
        number: usize,
        lock: usize,
        write: Option<u64>,
    ) -> (bool, Option<Vec<u8>>) {
        let (mut first, mut from) = (true, number);
        loop {
            let door = self.next_door(from).await;
            let answer = tokio::time::timeout(self.patience, self.ask(door, lock, write)).await;
            if let Ok(Ok(shown)) = answer {
                locked(&self.avoided)[door] = None;
                return (first, shown);
            }
            locked(&self.avoided)[door] = Some(Instant::now() + AVOIDED);
            (first, from) = (false, door + 1);
            tokio::time::sleep(PAUSE).await;
        }
    }

    /// The same, until its outcome is unknown.
    async fn answer(
        &self,
        number: usize,
        lock: usize,
        write: Option<u64>,
    ) -> Option<(bool, Option<Vec<u8>>)> {
        tokio::time::timeout(DEADLINE, self.ask_all(number, lock, write)).await.ok()
    }

    fn record(&self, record: Record) {
        self.live.note(&record);
        locked(&self.records).push(record);
    }

    async fn one(self: Arc<Self>, number: usize, due: Instant, write: bool, lock: usize) {
        let at = due.saturating_duration_since(self.began);
        let begun = if write {
            locked(&self.ledger).begin_write(lock, at)
        } else {
            Ok(locked(&self.ledger).begin_read(lock))
        };
        let known = match begun {
            Ok(known) => known,
            Err(Busy::InTime) => return,
            Err(Busy::Late) => return self.record(Record::none(at, write, lock)),
        };
        let answer = self.answer(number, lock, write.then_some(known)).await;
        let now = self.began.elapsed();
        {
            let mut ledger = locked(&self.ledger);
            match &answer {
                _ if write => ledger.end_write(lock, answer.is_some()),
                Some((_, shown)) => ledger.end_read(known, shown.as_deref()),
                None => {}
            }
        }
        self.record(match answer {
            Some((true, _)) => Record::first_try(at, now, write, lock),
            Some((false, _)) => Record::later_try(at, now, write, lock),
            None => Record::none(at, write, lock),
        });
    }

    async fn run(self: Arc<Self>, plan: Plan, stop: Arc<AtomicBool>) {
        let (mut requests, until) = (plan.requests(self.began), self.began + plan.end);
        let mut number = 0;
        while Instant::now() < until && !stop.load(Ordering::Relaxed) {
            while let Some((at, write, lock)) = requests.due(Instant::now()) {
                self.under_way.fetch_add(1, Ordering::Relaxed);
                let holders = Arc::clone(&self);
                tokio::spawn(async move {
                    Arc::clone(&holders).one(number, at, write, lock).await;
                    holders.under_way.fetch_sub(1, Ordering::Relaxed);
                });
                number += 1;
            }
            tokio::time::sleep(TICK).await;
        }
        while self.under_way.load(Ordering::Relaxed) > 0 {
            tokio::time::sleep(TICK).await;
        }
    }

    /// Begins a server's session again whenever it is over, and says when it is connected.
    async fn renew(self: Arc<Self>, door: usize) {
        loop {
            let is = self.doors[door].is_connected();
            self.connected.send_if_modified(|all| std::mem::replace(&mut all[door], is) != is);
            begin_again(&self.doors[door]).await;
        }
    }

    /// Reads all locks at the end.
    async fn look(self: Arc<Self>) -> Result<()> {
        for lock in 0..self.keys.len() {
            let least = locked(&self.ledger).begin_read(lock);
            let answer = self.answer(lock, lock, None).await;
            let (_, shown) =
                answer.ok_or_else(|| anyhow!("lock {lock} cannot be read at the end"))?;
            locked(&self.ledger).end_read(least, shown.as_deref());
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_server_without_a_connection_is_not_asked() {
        let (now, soon) = (Instant::now(), Some(Instant::now() + AVOIDED));
        let all = [true; SERVERS];
        assert_eq!(nearest(4, all, [None; SERVERS], now), 1);
        assert_eq!(nearest(1, [true, false, true], [None; SERVERS], now), 2);
        assert_eq!(nearest(1, all, [None, soon, None], now), 2);
        // Silent ones, if there are no others.
        assert_eq!(nearest(1, [true, false, true], [soon; SERVERS], now), 2);
        assert_eq!(nearest(1, all, [soon; SERVERS], now + AVOIDED), 1);
    }
}
